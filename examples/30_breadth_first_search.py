"""Breadth-first search by a semiring: a step of the search is a product with (or, and) for plus and times.

    python examples/30_breadth_first_search.py
"""

import collections

import numpy as np

import morpho as mo

NODES, EDGES = 5_000, 12_000

rng = np.random.default_rng(3)
source, target = rng.integers(0, NODES, EDGES), rng.integers(0, NODES, EDGES)
edges = mo.sparse.coo(np.ones(EDGES, bool), (source, target), (NODES, NODES)).tocsr()
incoming = edges.T.tocsr()


@mo.compile
def levels(incoming, start):
    """How many edges lie between a node and the start; -1 where there is no way."""
    def turn(state):
        level, found, front, _ = state
        reached = mo.sparse.matmul(incoming, front, semiring="or_and") & (found < 0)
        found = mo.where(reached, mo.full(NODES, 0) + level + 1, found)
        return level + 1, found, reached, mo.any(reached)

    front = mo.arange(NODES) == start
    found = mo.where(front, 0, -1)
    return mo.while_loop(lambda s: s[3], turn, (mo.asarray(0), found, front, mo.asarray(True)))[1]


def by_queue(start):
    neighbours = collections.defaultdict(list)
    for a, b in zip(source.tolist(), target.tolist(), strict=True):
        neighbours[a].append(b)
    found, queue = {start: 0}, collections.deque([start])
    while queue:
        node = queue.popleft()
        for other in neighbours[node]:
            if other not in found:
                found[other] = found[node] + 1
                queue.append(other)
    return [found.get(node, -1) for node in range(NODES)]


found = levels(incoming, mo.asarray(0))
assert found.tolist() == by_queue(0) and levels.stats["host_steps"] == 0
print(f"{int((found >= 0).sum())} of {NODES} nodes are reached, the farthest by {int(found.max())} edges")
