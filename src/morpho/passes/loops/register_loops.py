"""Which loops are so small that all their values fit registers: one kernel then runs all turns of them.

A step of a program costs some 80 ns besides its work; a scalar instruction half a nanosecond (measured on a Xeon at
2.5 GHz: RK4 of three equations, 29 steps, 2,300 ns a turn as steps). So a body is taken apart into scalars where it has
fewer of them than its steps would cost.
"""

from __future__ import annotations

from morpho.base.dims import product
from morpho.ir.body import Body
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ops.control.records import bodies_of
from morpho.passes.fusion.candidates import NATIVE

SCALARS_PER_STEP = 160  # that cost as much as a step
MOST_SCALARS = 3000  # more than that takes LLVM long
MOST_CARRIED = 96  # scalars that go from turn to turn
MOVED = frozenset({"reshape", "permute", "slice", "expand", "window", "concatenate", "pad", "update", "copy", "pick",
                   "remat_barrier", "parameter", "constant", "iota"})
REDUCED = frozenset({"sum", "prod", "max", "min", "any", "all"})
FACTORED = frozenset({"cholesky", "det", "slogdet", "inv", "solve", "solve_triangular"})  # `linalg/unrolled.py`
MOST_FACTORED_ROWS = 6  # of a matrix, and columns of a right side
LONGEST_ROW = 64  # of a reduction: as many lanes as its tree has


def scalars_of(graph: Graph) -> float:
    """How many scalar instructions a body would be; infinity where it cannot be taken apart."""
    return sum(_scalars(node, graph) for node in graph.nodes)


def _scalars(node: Node, graph: Graph) -> float:
    specs = (*node.outputs, *(child.spec for child in node.inputs))
    if any(not isinstance(size, int) for spec in specs for size in spec.shape):
        return float("inf")
    if any(spec.dtype.is_complex or (spec.dtype.itemsize == 2 and spec.dtype.is_float) for spec in specs):
        return float("inf")
    name, kind, count = node.op.name, node.op.kind, product(node.shape)
    assert isinstance(count, int)
    if name in MOVED:
        return 0.0
    if kind == "elementwise" and name in NATIVE:
        return float(count * max(1, node.op.flops // 2))
    if kind == "reduce" and name in REDUCED:
        row = product(tuple(node.inputs[0].shape[axis] for axis in node["axes"]))
        return float(count * row) if row <= LONGEST_ROW else float("inf")
    if name == "matmul" and node.attributes.get("kind", "auto") != "blas" and len(node.inputs) == 2:
        return float(count * node.inputs[0].shape[-1])
    if name == "gather" and node.inputs[0].op.name == "parameter" and node.inputs[1] is not node.inputs[0]:
        return 4.0 * count
    if name == "scan" and isinstance(node["length"], int):
        return node["length"] * scalars_of(node["turn"].graph)
    if name in FACTORED:
        return _scalars_of_matrices(node)
    if name == "switch" and not any(_may_fail(body) for body in bodies_of(node)):
        return sum(scalars_of(body.graph) for body in bodies_of(node))
    return float("inf")


def _may_fail(body: Body) -> bool:
    """Whether a branch that is not taken may not be computed: something in it, or in a loop in it, may be an error."""
    return any(node.op.kind in ("index", "host", "collective") or any(_may_fail(inner) for inner in bodies_of(node))
               for node in body.graph.nodes)


def _scalars_of_matrices(node: Node) -> float:
    """Scalar operations of an elimination: a multiply-add for every row, column and step, and selects for exchanges."""
    *batch, rows, _ = node.inputs[0].shape
    columns = node.inputs[1].shape[-1] if len(node.inputs) > 1 else rows if node.op.name == "inv" else 0
    if not 1 <= rows <= MOST_FACTORED_ROWS or columns > MOST_FACTORED_ROWS:
        return float("inf")
    return float(product(tuple(batch)) * rows * rows * (rows + 2 * columns))


def steps_of(graph: Graph) -> int:
    """How many steps a body is after the passes."""
    return sum(len(bodies_of(node)) + sum(steps_of(body.graph) * _turns(node) for body in bodies_of(node))
               if node.op.kind == "control" else node.op.kind != "source" and "view" not in node.op.properties
               for node in graph.nodes)


def _turns(node: Node) -> int:
    return node["length"] if node.op.name == "scan" and isinstance(node["length"], int) else 1


def fits_registers(node: Node, plain: list[Body], optimised: list[Body]) -> bool:
    """Whether a loop is faster as one kernel: `plain` are its bodies without fusion, `optimised` those with it."""
    if node.op.name not in ("scan", "while_loop"):
        return False
    carried = node["turn"].specs[:node["carries"]]
    elements = [product(spec.shape) for spec in (*carried, *(body.spec for body in node["turn"].outputs))]
    if any(not isinstance(count, int) for count in elements) or sum(elements) > MOST_CARRIED:
        return False
    if not all(_looks_up_memory(body, node["carries"]) for body in plain):
        return False
    scalars = sum(scalars_of(body.graph) for body in plain)
    steps = sum(steps_of(body.graph) for body in optimised)
    return scalars <= min(MOST_SCALARS, SCALARS_PER_STEP * steps)


def _looks_up_memory(body: Body, carries: int) -> bool:
    """Whether everything that is looked up by an index lies in memory: no carry, which is in registers, nothing that is
    read otherwise, too, and nothing of a loop inside."""
    for node in body.graph.nodes:
        if node.op.kind == "control" and any(_has_lookups(inner.graph) for inner in bodies_of(node)):
            return False
        if node.op.name == "gather":
            leaf = node.inputs[0]
            if leaf.op.name != "parameter" or leaf["index"] < carries or any(
                    user.op.name != "gather" or user.inputs[1] is leaf for user in body.graph.users[leaf.serial]):
                return False
    return True


def _has_lookups(graph: Graph) -> bool:
    return any(node.op.name == "gather" or (node.op.kind == "control" and any(
        _has_lookups(body.graph) for body in bodies_of(node))) for node in graph.nodes)
