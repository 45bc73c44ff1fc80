"""`morpho bench cluster`: several processes of one program, on this machine: training on ranks, pipelines, kills.

    morpho bench cluster                                   # everything; needs a quiet machine
    morpho bench cluster --only kills --quick              # a look
    python -m benchmarks.cluster.kills --kills 200         # 200 texts, each with a worker killed or stopped
"""
