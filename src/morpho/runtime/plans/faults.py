"""Faults reported by kernels (an index outside its axis) as exceptions: operation, line, index and range.

A kernel tells no more than that there is one. Which one it is is found by computing the indices again, after the fact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from morpho.backends.code.kernel_abi import (
    FAULT_ENDLESS,
    FAULT_INDEFINITE,
    FAULT_NEGATIVE,
    FAULT_NOT_FINITE,
    FAULT_SINGULAR,
)
from morpho.base.errors import MorphoError, ValueFault, fail
from morpho.ir.node import Node, toposort
from morpho.ir.op import REGISTRY
from morpho.ops.control.records import bodies_of
from morpho.ops.index import out_of_range
from morpho.ops.linalg.schur import NEGATIVE, TO_COMPLEX
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
    if step.kernel.role != "lookup_scatter":  # what gathers may be anywhere in a fused step
        scatters = step.kernel.role == "scatter"
        checks = [node for node in checks if (node.op.name == "scatter") == scatters] or checks
    lines = dict.fromkeys(known.get(node.serial, node.origin) for node in checks)
    names, sizes = (dict.fromkeys(map(found, checks)) for found in (_name, _size))
    return out_of_range(" or ".join(map(str, names)), _only(sizes, None), line=_only(lines, step.origin))


GENERAL = ("eig", "eigvals", "schur", "matrix_function")
MATRICES = {FAULT_SINGULAR: ("singular matrix", ("inv", "solve", "solve_triangular", "sptrsv", "incomplete_factors",
                                                 "matrix_function")),
            FAULT_INDEFINITE: ("matrix is not positive definite", ("cholesky", "incomplete_factors")),
            FAULT_ENDLESS: ("{} did not converge", ("eigh", "eigvalsh", "svd", "svdvals", *GENERAL)),
            FAULT_NOT_FINITE: ("array must not contain infs or nans", GENERAL),
            FAULT_NEGATIVE: (NEGATIVE, ("matrix_function",))}
NO_VALUE = {"sqrtm": "a singular matrix that has no square root", "logm": "a singular matrix has no logarithm"}


def matrix_fault(outputs: Sequence[Node], step: Step, code: int, known: Mapping[int, str]) -> MorphoError:
    """The error of a factorisation that a matrix does not have."""
    words, names = MATRICES[code]
    same = [node for node in _all_nodes(outputs) if node.op.name in names
            and (step.label in REGISTRY) <= (node.op.name == step.label)]
    name = " or ".join(dict.fromkeys(_name(node) for node in same)) or step.label
    line = _only(dict.fromkeys(known.get(node.serial, node.origin) for node in same), step.origin)
    if step.label not in REGISTRY:  # a loop in registers: nodes of a body may have been written elsewhere before
        line = step.origin
    words = NO_VALUE.get(name, words) if code == FAULT_SINGULAR else words
    hint = TO_COMPLEX if code == FAULT_NEGATIVE else ""
    return fail(ValueFault, name, words.format("svd" if name.startswith("svd") else "eigenvalues"), hint, line=line)


def _all_nodes(outputs: Sequence[Node]) -> list[Node]:
    """The nodes of a program, those of its loops and branches too."""
    found = toposort(outputs)
    return [*found, *(inner for node in found if node.op.kind == "control" for body in bodies_of(node)
                      for inner in _all_nodes(body.outputs))]


def host_fault(outputs: Sequence[Node], step: HostStep, known: Mapping[int, str], error: MorphoError) -> MorphoError:
    """The error of an operation on the host, with the line where it was written and not that where it runs."""
    same = [node for node in _all_nodes(outputs) if node.op.name == step.node.op.name]
    line = _only(dict.fromkeys(known.get(node.serial, node.origin) for node in same), step.origin)
    return fail(type(error), _name(step.node), error.message or str(error), error.hint, line=line)


def _name(node: Node) -> str:
    """Name of the operation as the user wrote it."""
    if node.op.name == "matrix_function":
        return str(node["function"])
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
