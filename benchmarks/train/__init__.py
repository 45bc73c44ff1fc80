"""Training steps against the peers in the same run. One file per theme, `cases.py` for the inputs and the answers in
float64, `peers/` for the ways to compute them.

    python -m benchmarks train --only mlp_step
"""
