"""Pipelines over processes: R1-R8, R10, R11 of the cluster's promises, and the naive path with each part ablated.

    morpho bench cluster                                   # everything; needs a quiet machine
    morpho bench cluster --only kills --quick              # a look
    python -m benchmarks.cluster.kills --kills 200         # 200 streams, each with a worker killed or stopped
"""
