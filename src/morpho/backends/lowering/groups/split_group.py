"""A group with several reductions over few, very long rows, taken apart: a group per walk over the columns.

Each walk is then divided among threads by itself: one that reduces by blocks of its rows, in the same tree, the last
one by columns. Values of rows, and full ones that are dear, pass from one walk to the next in memory; the others are
computed again. Every value is computed by the same operations as before, so the bits are the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from morpho.ir.node import Node, toposort
from morpho.ops.elementwise import COSTLY
from morpho.passes.fusion.group import make_group


def split_group(node: Node) -> list[tuple[Node, list[Node], list[Node]]]:
    """Groups in the order they run, each with the values of the old body that it reads and those that it makes."""
    body, space, axes = node["body"], node["space"], node["axes"]
    nodes = toposort(body.outputs)
    stages = _stages(nodes)
    last = max(stages.values())
    given = [n for n in nodes if n.op.name == "parameter"]
    wanted = [_results(nodes, stages, body.outputs, space, stage) for stage in range(last + 1)]
    parts = []
    for stage, results in enumerate(wanted):
        later = _needed([n for more in wanted[stage + 1:] for n in more], [*given, *results])
        kept = [n for n in _needed(results, given) & later if n.op.flops >= COSTLY and n.shape == space]
        made = [*results, *sorted(kept, key=lambda n: n.serial)]
        if made:
            read = [n for n in given if n in _needed(made, given, inclusive=True)]
            parts.append((make_group(made, read, space, axes if stage < last else ()), read, made))
        given = [*given, *made]
    return parts


def _stages(nodes: Iterable[Node]) -> dict[Node, int]:
    """The walk after which a value of one element per row is known; the walk in which a full one is computed."""
    found: dict[Node, int] = {}
    for node in nodes:
        found[node] = max((found[child] for child in node.inputs), default=0) + (node.op.kind == "reduce")
    return found


def _results(nodes: list[Node], stages: dict[Node, int], outputs: tuple[Node, ...], space: object,
             stage: int) -> list[Node]:
    """Results of one pass over memory: its full outputs, and values of rows that are used outside their rows."""
    users: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node in nodes:
        for child in node.inputs:
            users[child].append(node)

    def leaves(node: Node) -> bool:
        return node in outputs or any(stages[u] != stages[node] or u.op.kind != "elementwise" for u in users[node])

    computed = [n for n in nodes if n.op.kind in ("elementwise", "reduce", "index")]
    full = [n for n in computed if n.shape == space and stages[n] == stage and n in outputs]
    rows = [n for n in computed if n.shape != space and leaves(n)
            and (stages[n] == stage + 1 or (stage == 0 == stages[n] and n in outputs))]
    return [*full, *rows]


def _needed(outputs: list[Node], given: list[Node], inclusive: bool = False) -> set[Node]:
    """The nodes behind these, up to what is given; with `inclusive` also which of that is met."""
    stop, found, stack = set(given), set(), list(outputs)
    while stack:
        node = stack.pop()
        if node in found or (node in stop and not inclusive):
            continue
        found.add(node)
        if node not in stop:
            stack.extend(node.inputs)
    return found
