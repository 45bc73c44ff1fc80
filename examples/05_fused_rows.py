"""What fusion does: a masked softmax and a layer norm, each one kernel that walks over the rows.

    python examples/05_fused_rows.py [FOLDER]

`explain()` says what the passes did and where memory went; `stats` has the same as numbers; `dot` draws the graph,
into the folder or a temporary one.
The answer has the same bits at every optimisation level and with every number of threads.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import morpho as mo


@mo.compile
def attention_weights(scores, mask):
    """Softmax over the allowed keys of each query."""
    return mo.softmax(mo.where(mask, scores / 8, -mo.inf))


@mo.compile
def block(x, residual, weight, bias):
    """The sum of two tensors, normalised, scaled and passed through gelu."""
    return mo.gelu(mo.layer_norm(x + residual, weight, bias))


generator = np.random.default_rng(3)
scores = mo.asarray(generator.standard_normal((256, 256), dtype=np.float32))
mask = mo.tril(mo.ones((256, 256))) > 0
weights = attention_weights(scores, mask)
print(attention_weights.explain())
assert np.allclose(weights.numpy().sum(axis=-1), 1, atol=1e-6)

x, residual = (mo.asarray(generator.standard_normal((128, 768), dtype=np.float32)) for _ in range(2))
weight, bias = mo.ones(768), mo.zeros(768)
wanted = block(x, residual, weight, bias).numpy().tobytes()
print(f"\nblock: {block.stats['kernels']} kernel, {block.stats['bytes_avoided']:,} bytes of intermediates never stored")
for level in (0, 1, 2, 3):
    with mo.settings(level=level, threads=1 + level % 2):
        assert block(x, residual, weight, bias).numpy().tobytes() == wanted
        print(f"level {level}: {block.stats['kernels']} kernels, the same bits")
drawing = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "block.dot"
block.dot(drawing)
print(f"the graph is in {drawing}: dot -Tsvg {drawing} > block.svg")
