"""Faults reported by kernels (an index outside its axis) as exceptions: operation, line, index and range.

A kernel tells no more than that there is one. Which one it is is found by computing the indices again, after the fact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from morpho.base.errors import MorphoError, fail
from morpho.ir.node import Node, toposort
from morpho.ops.index import out_of_range
from morpho.program.program import HostStep, Step


def index_fault(outputs: Sequence[Node], step: Step, known: Mapping[int, str],
                realise: Callable[[Sequence[Node]], Sequence[Any]]) -> MorphoError:
    """The error behind a fault of a step of this program: with the index at fault where the program has no arguments,
    else of all operations that the step may be. `known` are the lines of its nodes where others were written since."""
    below = toposort(outputs)
    checks = [node for node in below if node.op.kind == "index" or "checks" in node.op.properties]
    if not any(node.op.name == "parameter" for node in below):
        for node in checks:  # inputs before users: the first one found is the cause
            worst = _worst(node, realise)
            if worst is not None:
                return out_of_range(_name(node), _size(node), worst, node.origin)
    scatters = step.kernel.role == "scatter"  # what gathers may be anywhere in a fused step
    checks = [node for node in checks if (node.op.name == "scatter") == scatters] or checks
    lines = dict.fromkeys(known.get(node.serial, node.origin) for node in checks)
    names, sizes = (dict.fromkeys(map(found, checks)) for found in (_name, _size))
    return out_of_range(" or ".join(map(str, names)), _only(sizes, None), line=_only(lines, step.origin))


def host_fault(outputs: Sequence[Node], step: HostStep, known: Mapping[int, str], error: MorphoError) -> MorphoError:
    """The error of an operation on the host, with the line where it was written and not that where it runs."""
    same = [node for node in toposort(outputs) if node.op.name == step.node.op.name]
    line = _only(dict.fromkeys(known.get(node.serial, node.origin) for node in same), step.origin)
    return fail(type(error), step.node.op.name, error.message or str(error), error.hint, line=line)


def _name(node: Node) -> str:
    """What the user called."""
    return str(node.attributes.get("called", node.op.name))


def _only(found: Collection[Any], otherwise: Any) -> Any:
    """The only one there is."""
    return next(iter(found)) if len(found) == 1 else otherwise


def _size(node: Node) -> object:
    """How many indices are right."""
    axis = node["axis"] if "axis" in node.attributes else node["axes"][0]
    return node.inputs[0].shape[axis]


def _worst(node: Node, realise: Callable[[Sequence[Node]], Sequence[Any]]) -> int | None:
    """An index of this operation that is wrong, or None where there is none or it cannot be computed again."""
    size = _size(node)
    if not node.inputs[1].dtype.is_integer:
        return None
    try:
        index = realise([node.inputs[1]])[0].numpy()
    except (MorphoError, MemoryError):  # the fault that is told about comes first
        return None
    wrong = (index < 0) | (index >= size)
    if node.attributes.get("ignore") is not None:
        wrong &= index != node["ignore"]
    return int(index[wrong].flat[0]) if wrong.any() else None
