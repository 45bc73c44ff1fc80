"""Graphs as text and as DOT."""

from __future__ import annotations

from collections.abc import Sequence

from morpho.ir.graph import Graph
from morpho.ir.node import Node

_COLOURS = {"source": "#dddddd", "elementwise": "#a8d5ff", "reduce": "#ffd59e", "move": "#eeeeee",
            "contract": "#ffb3b3", "fused": "#b8e6b8", "host": "#e0c3f5",
            "collective": "#f5d7a8"}


def joined(names: Sequence[str], most: int = 6) -> str:
    """The names of operations as one label, `...` in place of those that are left out.

    >>> joined(["exp", "add"]), joined(["exp", "add", "sin"], most=2)
    ('exp+add', 'exp+add+...')
    """
    return "+".join([*names[:most], *(["..."] if len(names) > most else [])])


def _describe(node: Node) -> str:
    shown = ", ".join(f"{name}={value}" for name, value in node.attributes.items() if name != "body")
    return f"{node.op.name}({shown})" if shown else node.op.name


def to_text(graph: Graph) -> str:
    """One line a node: `%3 = add(%1, %2) : float32[4, 8]`."""
    numbers = {node.serial: i for i, node in enumerate(graph.nodes)}
    lines = []
    for node in graph.nodes:
        arguments = ", ".join(f"%{numbers[child.serial]}" for child in node.inputs)
        outputs = ", ".join(f"{spec.dtype}{list(spec.shape)}" for spec in node.outputs)
        lines.append(f"%{numbers[node.serial]} = {_describe(node)} [{arguments}] : {outputs}")
        body = node.attributes.get("body")
        if body is not None:
            lines.extend("      | " + line for line in str(body).splitlines())
    lines.append("return " + ", ".join(f"%{numbers[node.serial]}" for node in graph.outputs))
    return "\n".join(lines)


def to_dot(graph: Graph) -> str:
    """The graph for Graphviz: boxes coloured by kind, outputs with a double border."""
    outputs = {node.serial for node in graph.outputs}
    lines = ["digraph morpho {", "  rankdir=TB; node [shape=box, style=filled, fontname=Helvetica];"]
    for node in graph.nodes:
        body = node.attributes.get("body")
        label = f"{_describe(node)}\\n" + ", ".join(f"{s.dtype}{list(s.shape)}" for s in node.outputs)
        if body is not None:
            label += "\\n" + str(body).replace("\n", "\\l").replace('"', "'") + "\\l"
        border = ", peripheries=2" if node.serial in outputs else ""
        colour = _COLOURS.get(node.op.kind, "white")
        lines.append(f'  n{node.serial} [label="{label}", fillcolor="{colour}"{border}];')
        lines.extend(f"  n{child.serial} -> n{node.serial};" for child in node.inputs)
    lines.append("}")
    return "\n".join(lines)
