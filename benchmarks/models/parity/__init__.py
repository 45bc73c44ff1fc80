"""Every model family in odd configurations against the transformers library: the same folders, the same numbers.

    python -m benchmarks.models.parity                 # all cases, compared; needs torch and transformers
    python -m benchmarks.models.parity --only qwen3    # cases whose name begins so
    python -m benchmarks.models.parity --store         # and writes log.json and the expectations of the tests

`cases.py` has the configurations, `theirs.py` runs the library and `ours.py` Morpho, each case on inputs that follow
from its name (`inputs.py`). The tests have no transformers: they build the same folders (the library's config.json,
weights drawn by name) and compare with the stored values.
"""
