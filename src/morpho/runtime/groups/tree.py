"""Sums over ranks with the bits of one rank: a fixed number of shards, added by a fixed tree, whoever holds them.

The tree over `count` shards splits at the largest power of two below; rank r of R holds the shards from `count * r //
R` on. A rank adds up the largest subtrees that it holds whole; then every rank gets its part of all ranks' subtrees,
adds those in the tree's order, and all gather the result: no more bytes than a plain all-reduce where R is a power of
two.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

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


def added(node: Node, value: Callable[[Node], Any], add: Callable[[Any, Any], Any] = operator.iadd) -> Any:
    """The sum of a subtree: what is known of it, else that of its children; the left one's memory is written over."""
    known = value(node)
    if known is not None:
        return known
    left, right = children(node)
    total = added(left, value, add)
    return add(total, added(right, value, add))


def sum_alone(count: int, shard: Callable[[int], Any], add: Callable[[Any, Any], Any] = operator.iadd) -> Any:
    """The sum of all shards by one process, with the bits of `ordered_sum`.

    >>> sum_alone(3, lambda number: np.full(2, number, np.float32)).tolist()
    [3.0, 3.0]
    """
    return added((0, count), lambda node: shard(node[0]) if node[1] - node[0] == 1 else None, add)


def ordered_sum(group: Group, count: int, shard: Callable[[int], np.ndarray]) -> np.ndarray:
    """The sum of all shards, of which this rank makes its own by `shard(number)`: flat arrays that may be written
    over. The same bits for every size of the group. A rank without a shard makes the first one for its form alone.

    >>> from morpho.cluster.groups.one import OneGroup
    >>> ordered_sum(OneGroup(), 3, lambda number: np.full(2, number, np.float32)).tolist()
    [3.0, 3.0]
    """
    if group.size == 1:
        return np.asarray(sum_alone(count, shard))
    nodes = [covered(held(count, group.size, rank), (0, count)) for rank in range(group.size)]
    mine = [added(node, lambda each: shard(each[0]) if each[1] - each[0] == 1 else None)
            for node in nodes[group.rank]]
    return _exchanged(group, (0, count), nodes, mine, shard(0) if not mine else mine[0])


def _exchanged(group: Group, root: Node, nodes: Sequence[Sequence[Node]], mine: Sequence[np.ndarray],
               form: np.ndarray) -> np.ndarray:
    most, length = max(map(len, nodes)), form.size
    share = -(-length // group.size)
    out = np.zeros((group.size, most, share), form.dtype)
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
