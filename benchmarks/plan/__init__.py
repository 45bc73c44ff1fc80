"""The planner: exactness, time to proof, annealing, rules of thumb on 400 clusters, what-if.

    morpho bench plan                                             # everything
    morpho bench plan --only proof --quick                        # time to proof, fewer sizes
    python -m benchmarks.plan.brute_force --instances 10000       # exact search against brute force
"""
