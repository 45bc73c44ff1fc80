"""Small calls, elementwise and fused operations, start-up and memory against the peers in the same run.

    morpho bench core                           # everything
    morpho bench core --only 2,3 --quick        # GELU and fusion, fewer rounds and sizes

One file per theme; `cases.py` has the inputs and the answers in float64.
"""
