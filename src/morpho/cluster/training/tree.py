"""Sums over ranks with the bits of one rank: a fixed number of shards, added by a fixed tree, whoever holds them.

The tree over `count` shards splits at the largest power of two below; rank r of R holds the shards from `count * r //
R` on. A rank adds up the largest subtrees that it holds whole; then every rank gets its part of all ranks' subtrees,
adds those in the tree's order, and all gather the result: no more bytes than a plain all-reduce where R is a power of
two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from morpho.base.errors import ArgumentError, fail
from morpho.runtime.groups.group import Group

Node = tuple[int, int]  # shards from the first to before the second
SHARDS = 8


def held(count: int, size: int, rank: int) -> Node:
    """The shards of a rank.

    >>> [held(8, 3, rank) for rank in range(3)]
    [(0, 2), (2, 5), (5, 8)]
    """
    return count * rank // size, count * (rank + 1) // size


def children(node: Node) -> tuple[Node, Node]:
    """The two subtrees of a node of several shards.

    >>> children((0, 8)), children((0, 7))
    (((0, 4), (4, 8)), ((0, 4), (4, 7)))
    """
    first, end = node
    middle = first + (1 << ((end - first - 1).bit_length() - 1))
    return (first, middle), (middle, end)


def covered(wanted: Node, node: Node) -> list[Node]:
    """The largest subtrees that lie within the wanted shards.

    >>> covered((2, 5), (0, 8))
    [(2, 4), (4, 5)]
    """
    first, end = max(wanted[0], node[0]), min(wanted[1], node[1])
    if first >= end:
        return []
    if (first, end) == node:
        return [node]
    return [found for child in children(node) for found in covered(wanted, child)]


def added(node: Node, value: Callable[[Node], np.ndarray | None]) -> np.ndarray:
    """The sum of a subtree: what is known of it, else that of its children; the left one's memory is written over."""
    found = value(node)
    if found is not None:
        return found
    left, right = children(node)
    total = added(left, value)
    total += added(right, value)
    return total


def ordered_sum(group: Group, count: int, shard: Callable[[int], np.ndarray]) -> np.ndarray:
    """The sum of all shards, of which this rank makes its own by `shard(number)`: flat arrays that may be written
    over. The same bits for every size of the group.

    >>> from morpho.cluster.groups.one import OneGroup
    >>> ordered_sum(OneGroup(), 3, lambda number: np.full(2, number, np.float32)).tolist()
    [3.0, 3.0]
    """
    if count < group.size:
        raise fail(ArgumentError, "ordered", f"{count} shards are not enough for {group.size} ranks",
                   "use a larger batch, more shards, or fewer ranks")

    def leaf(node: Node) -> np.ndarray | None:
        return shard(node[0]) if node[1] - node[0] == 1 else None

    root = (0, count)
    nodes = [covered(held(count, group.size, rank), root) for rank in range(group.size)]
    mine = [added(node, leaf) for node in nodes[group.rank]]
    return mine[0] if group.size == 1 else _exchanged(group, root, nodes, mine)


def _exchanged(group: Group, root: Node, nodes: Sequence[Sequence[Node]], mine: Sequence[np.ndarray]) -> np.ndarray:
    most, length = max(map(len, nodes)), mine[0].size
    share = -(-length // group.size)
    out = np.zeros((group.size, most, share), mine[0].dtype)
    for number, part in enumerate(mine):
        whole = np.zeros(share * group.size, part.dtype)
        whole[:length] = part
        out[:, number] = whole.reshape(group.size, share)
    come = np.empty_like(out)
    group.all_to_all(out, come)
    known = {node: come[rank, number] for rank, own in enumerate(nodes) for number, node in enumerate(own)}
    total = np.empty(share * group.size, out.dtype)
    group.all_gather(np.ascontiguousarray(added(root, known.get)), total)
    return total[:length]
