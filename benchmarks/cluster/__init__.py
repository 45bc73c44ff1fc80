"""`morpho bench cluster`: several processes of one program, on this machine: pipelines (R1-R8, R10, R11 of the
cluster's promises, the naive path with each part ablated) and data-parallel training (R9, R12).

    morpho bench cluster                                   # everything; needs a quiet machine
    morpho bench cluster --only kills --quick              # a look
    python -m benchmarks.cluster.kills --kills 200         # 200 texts, each with a worker killed or stopped
"""
