"""`morpho bench cluster`: several processes of one program, on this machine: pipelines (R1-R8, R10, R11 of the
cluster's promises, the naive path with each part ablated) and data-parallel training (R9, R12).

    morpho bench cluster                                   # everything; needs a quiet machine
    morpho bench cluster --only kills --quick              # a look
    morpho bench cluster --only kills --count 200          # 200 texts, each with a worker killed or stopped
    morpho bench cluster --only alarms --count 60          # an hour on four times as many processes as cores
"""
