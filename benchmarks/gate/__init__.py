"""The performance gate that noise cannot touch: counts of every bench case against stored ones.

    python -m benchmarks.gate                     # compare with benchmarks/gate/counts.json; 1 where a count differs
    python -m benchmarks.gate --only kernels      # cases whose names begin so
    python -m benchmarks.gate --store             # after a change that is meant: write the counts anew

Nothing is timed. Each case is traced and lowered for fixed machines (`targets.py`), whatever this one is, and counted:
kernels, launches, bytes moved, memory, and the instructions in the loops of the code, for four instruction
sets. At small sizes it is also called here, and calls through Python, recompiles and allocations are counted. Fewer is
better of all of them. A larger count fails and is named; a smaller one fails too, until it is stored.
"""
