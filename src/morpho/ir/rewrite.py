"""The rewrite driver: rules are functions on one node; the driver applies them bottom-up until nothing changes.

A rule returns a replacement node, or None to leave the node alone. Rules are registered under the name of the op
they look at, so a walk asks each node only the rules that can concern it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from morpho.base.errors import CompileError, fail
from morpho.ir.graph import Graph
from morpho.ir.node import Node, in_place_of, rebuild
from morpho.ir.op import foreign

Rule = Callable[[Node], Node | None]


class RuleTable:
    """Rules by op name. Every application is counted under the rule's name for `explain()`."""

    def __init__(self) -> None:
        self._rules: dict[str, list[Rule]] = defaultdict(list)

    def rule(self, *names: str) -> Callable[[Rule], Rule]:
        """Decorator: `@table.rule("neg")` puts a rule on the list of an op."""

        def add(function: Rule) -> Rule:
            for name in names:
                self._rules[name].append(function)
            return function

        return add

    def remove(self, function: Rule) -> bool:
        """Take a rule off every list; whether it was on one."""
        found = False
        for rules in self._rules.values():
            if function in rules:
                rules.remove(function)
                found = True
        return found

    def step(self, node: Node) -> tuple[Node, str] | None:
        """The first rule that applies to the node: its result and its name."""
        for rule in self._rules.get(node.op.name, ()):
            result = in_place_of(node, rule)
            if result is not None and result is not node:
                if rule in foreign:
                    _check_replacement(node, result, rule)
                return result, rule.__name__
        return None


def _check_replacement(node: Node, result: object, rule: Rule) -> None:
    """A user's rule must give a node of the same shape and dtype: kernels would write past what was planned."""
    if not isinstance(result, Node):
        raise fail(CompileError, rule.__name__, f"the pattern returned {type(result).__name__}, not a node",
                   "return a node made by build(...), or None to leave this one alone", node.origin)
    if result.outputs != node.outputs:
        raise fail(CompileError, rule.__name__, f"the pattern put {result.dtype}{result.shape} in place of "
                                                f"{node.dtype}{node.shape}", line=node.origin)


def rewrite(graph: Graph, table: RuleTable, applied: dict[str, int] | None = None, limit: int = 64) -> Graph:
    """Apply a table bottom-up to a fixpoint. `limit` bounds the rewrites of one node: rules that undo each other are an
    error that names them."""
    done: dict[int, Node] = {}
    last: list[str] = []  # names of the rules applied, the last ones

    def reduce(node: Node) -> Node:
        """Rewrite `node` (its inputs are final) and whatever new nodes that makes."""
        stack = [node]
        while stack:
            current = stack[-1]
            if current.serial in done:
                stack.pop()
                continue
            waiting = [child for child in current.inputs if child.serial not in done]
            if waiting:
                stack.extend(waiting)
                continue
            new = rebuild(current, [done[child.serial] for child in current.inputs])
            for _ in range(limit):
                found = table.step(new)
                if found is None:
                    break
                new, name = found
                last[:-limit] = []
                last.append(name)
                if applied is not None:
                    applied[name] = applied.get(name, 0) + 1
                fresh = [child for child in new.inputs if child.serial not in done]
                if fresh:  # a rule built inner nodes: reduce those first, then look at this one again
                    for child in fresh:
                        reduce(child)
                    new = rebuild(new, [done[child.serial] for child in new.inputs])
            else:
                raise _endless(last[-limit:], current)
            done[current.serial] = new
            done.setdefault(new.serial, new)
            stack.pop()
        return done[node.serial]

    for node in graph.nodes:
        try:
            reduce(node)
        except RecursionError:  # each result holds a new node that the same rule applies to
            raise _endless(last[-limit:], node) from None
    return Graph(tuple(done[node.serial] for node in graph.outputs))


def _endless(names: list[str], node: Node) -> Exception:
    rules = sorted(set(names))
    many = "the rules " + " and ".join(rules) + " rewrite" if len(rules) > 1 else f"the rule {rules[0]} rewrites"
    return fail(CompileError, "rewrite", f"{many} {node.op.name} without end",
                "a rule may not apply to its own result, nor two to each other's", node.origin)
