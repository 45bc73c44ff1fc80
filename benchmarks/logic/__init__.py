"""Logic programs against other engines and graph libraries, all in the same run and checked against each other.

    morpho bench logic                              # reachability, full closure, paths by semirings, compile times
    morpho bench logic --only reachability --quick  # a tenth of the size

Peers are those that are installed: scipy.sparse.csgraph, networkx, clingo, and souffle where its command is on the
path.
"""
