"""A matrix times its own transpose is symmetric: what lies above the diagonal's blocks is not computed again.

Element (i, j) adds the same products in the same order as (j, i), so that a copy has its bits. The rows of the result
are cut into `BLOCKS`; each is a product with the columns up to its own end, and the rest of the row is what the blocks
below have computed, transposed: 75 % of the work of the whole for two, 62.5 % for four, which lost what they saved to
the copies of more pieces.
"""

from __future__ import annotations

import itertools

from morpho.base.dims import Size
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, make, rebuild
from morpho.ops.algebra import permute

BLOCKS = 2
LEAST_SIZE = 4096  # of the result: narrower ones lose more than they save over a kernel that leaves it out itself
LEAST_DEPTH = 256  # of the sums, likewise
DTYPES = ("float32", "float64")


def halve_symmetric(graph: Graph) -> Graph:
    """Every large product of a matrix with its transpose, in blocks of rows."""
    if not any(_is_symmetric(node) for node in graph.nodes):
        return graph
    done: dict[int, Node] = {}
    for node in graph.nodes:
        new = rebuild(node, [done[child.serial] for child in node.inputs])
        done[node.serial] = _in_blocks(new) if _is_symmetric(node) else new
    return Graph(tuple(done[node.serial] for node in graph.outputs))


def _is_symmetric(node: Node) -> bool:
    if node.op.name != "matmul" or len(node.shape) != 2 or node.dtype.name not in DTYPES:
        return False
    left, right = node.inputs
    n, k = left.shape
    large = isinstance(n, int) and isinstance(k, int) and n >= LEAST_SIZE and k >= LEAST_DEPTH
    return large and (_is_transpose(left, right) or _is_transpose(right, left))


def _is_transpose(node: Node, other: Node) -> bool:
    return node.op.name == "permute" and node["axes"] == (1, 0) and node.inputs[0] is other


def _in_blocks(node: Node) -> Node:
    left, right = node.inputs  # (n, k) and (k, n)
    n, k = map(int, left.shape)
    edges = [*range(0, n, -(-n // BLOCKS)), n]
    rows: list[Node] = []  # (edges[i + 1] - edges[i], edges[i + 1])
    for low, high in itertools.pairwise(edges):
        inputs = _part(left, (low, 0), (high - low, k)), _part(right, (0, 0), (k, high))
        rows.append(make(node.op, inputs, node.attributes, origin=node.origin))
    whole = []
    for number, row in enumerate(rows):
        low, high = edges[number], edges[number + 1]
        mirrored = [permute(_part(below, (0, low), (below.shape[0], high - low)), (1, 0))
                    for below in rows[number + 1:]]
        whole.append(build("concatenate", row, *mirrored, axis=1) if mirrored else row)
    return build("concatenate", *whole, axis=0)


def _part(node: Node, starts: tuple[int, int], sizes: tuple[Size, Size]) -> Node:
    return node if sizes == node.shape else build("slice", node, starts=starts, sizes=sizes, steps=(1, 1))
