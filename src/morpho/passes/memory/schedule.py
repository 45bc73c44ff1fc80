"""Scheduling for memory: an order of the steps with a small peak of live bytes.

Training graphs read backwards from their results keep every gradient until the last one is known: a walk from the
updates that need least comes closer to how one would write it down. A few such orders are compared by the bytes alive
at their worst step, and the first of the best is taken; the order the graph came in is among them.
"""

from __future__ import annotations

from collections.abc import Sequence

from morpho.ir.graph import Graph
from morpho.ir.node import Node, toposort
from morpho.passes.memory.liveness import Steps, Updates


def schedule(graph: Graph, updates: Updates = (), slack: float = 0.0) -> Graph:
    """The same graph with its nodes in the best order found. `updates` are results that may take the memory of inputs,
    if nothing reads those afterwards."""
    steps = Steps(graph, updates)
    return in_order(graph, steps, best_order(steps, slack))


def best_order(steps: Steps, slack: float = 0.0) -> list[int]:
    """The first of the orders with the fewest bytes alive, and updates not in place, at once; then on average. With
    some `slack` the average decides among those that come so near: a low valley is where to compute things again."""
    given = list(range(len(steps.nodes)))
    if len(given) < 3:
        return given
    found = [(_needs(steps, given), given)]
    for before in [_with_updates(steps), steps.before] if steps.updates else [steps.before]:
        shallow = shallow_first(before)
        for order in (shallow, eager(steps, before, walk(before, given)), eager(steps, before, shallow)):
            found.append((_needs(steps, order), order))
    least = min(needs[0] for needs, _ in found)
    most = least + int(slack * least) if slack else least  # no float without need: bounds may pass 2**53 bytes
    near = [item for item in found if item[0][0] <= most]
    return min(near, key=lambda item: item[0][::-1] if slack else item[0])[1]


def _needs(steps: Steps, order: Sequence[int]) -> tuple[int, int]:
    """Bytes at the worst step, and over all of them."""
    alive = steps.alive(order)
    return max(alive, default=0) + steps.lost_bytes(order), sum(alive)


def in_order(graph: Graph, steps: Steps, order: Sequence[int]) -> Graph:
    """The graph with its steps in an order."""
    if list(order) == list(range(len(steps.nodes))):
        return graph
    return ordered(graph.outputs, [steps.nodes[step] for step in order])


def ordered(outputs: Sequence[Node], sequence: Sequence[Node]) -> Graph:
    """The graph of these outputs with its steps in a sequence, each after the views and leaves it reads."""
    seen: set[int] = set()
    nodes = [child for node in (*sequence, *outputs) for child in toposort([node], seen)]
    return Graph(tuple(outputs), nodes)


def _with_updates(steps: Steps) -> list[set[int]]:
    """Predecessors of each step, updates in place included. Nothing reads an update, so there is no cycle."""
    before = [set(own) for own in steps.before]
    faulty = steps.faulty() if steps.updates else []
    sinks = {step for step, _ in steps.updates}
    for step, index in steps.updates:
        before[step].update(other for other in (*steps.inputs.get(index, ()), *faulty) if other not in sinks)
    return before


def walk(before: Sequence[set[int]], wanted: Sequence[int], depth: Sequence[int] | None = None) -> list[int]:
    """Every wanted step in turn, each after what it waits for; the first of that first, or that of the least depth."""
    found: list[int] = []
    done = [False] * len(before)
    for first in wanted:
        stack = [first]
        while stack:
            step = stack[-1]
            waiting = [] if done[step] else [other for other in before[step] if not done[other]]
            if waiting:
                waiting.sort(reverse=True, key=None if depth is None else lambda other: (depth[other], other))
                stack += waiting
                continue
            stack.pop()
            if not done[step]:
                done[step] = True
                found.append(step)
    return found


def shallow_first(before: Sequence[set[int]]) -> list[int]:
    """A walk from the steps that nothing waits for; the shortest way from the inputs comes first, there and below."""
    depth = [0] * len(before)
    waited: set[int] = set()
    for step in walk(before, range(len(before))):
        depth[step] = 1 + max((depth[other] for other in before[step]), default=0)
        waited |= before[step]
    last = [step for step in range(len(before)) if step not in waited]
    return walk(before, sorted(last, key=lambda step: (depth[step], step)), depth)


def eager(steps: Steps, before: Sequence[set[int]], order: Sequence[int]) -> list[int]:
    """An order in which every step that frees more than it takes comes as soon as it can."""
    missing = [len(own) for own in before]
    after: list[list[int]] = [[] for _ in before]
    for step, own in enumerate(before):
        for other in own:
            after[other].append(step)
    left = [len(readers) + (value in steps.forever) for value, readers in enumerate(steps.readers)]
    found: list[int] = []
    done = [False] * len(before)

    def frees(step: int) -> bool:
        freed = sum(steps.sizes[value] for value in steps.reads[step] if left[value] == 1)
        return freed > sum(steps.sizes[value] for value in steps.writes[step] if left[value])

    for guide in order:
        stack = [guide]
        while stack:
            step = stack.pop()
            if done[step]:
                continue
            done[step] = True
            found.append(step)
            for value in steps.reads[step]:
                left[value] -= 1
            for other in after[step]:
                missing[other] -= 1
            near = {other for value in steps.reads[step] if left[value] == 1 for other in steps.readers[value]}
            stack += [other for other in sorted(near.union(after[step]), reverse=True)
                      if not done[other] and not missing[other] and frees(other)]
    return found
