"""A `Body`: a small program over parameters that an operation holds, as a fused group and the regions of loops do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from morpho.base.dims import Dim
from morpho.base.python.lazy import cached_property
from morpho.ir.graph import Graph
from morpho.ir.node import Node, make, rebuild, toposort
from morpho.ir.op import REGISTRY, Spec


class Body:
    """Outputs over `parameter` leaves, which stand for the inputs of whoever runs it.

    Nodes are interned, so two bodies are equal when their outputs are the same objects.
    """

    def __init__(self, outputs: Sequence[Node]) -> None:
        self.outputs = tuple(outputs)

    @cached_property
    def graph(self) -> Graph:
        """The body as a program."""
        return Graph(self.outputs)

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Shape and dtype of every output."""
        return tuple(node.spec for node in self.outputs)

    def digest(self) -> str:
        """A hash of the structure that is the same in every process."""
        return self.graph.digest()

    def put(self, inputs: Sequence[Node]) -> list[Node]:
        """The outputs with `inputs` in place of the parameters: the body written out where it stands."""
        done: dict[int, Node] = {}
        for node in self.graph.nodes:
            done[node.serial] = (inputs[node["index"]] if node.op.name == "parameter" else
                                 rebuild(node, [done[child.serial] for child in node.inputs]))
        return [done[node.serial] for node in self.outputs]

    def map(self, function: Callable[[Graph], Graph]) -> Body:
        """The body with a pass run over it."""
        found = function(self.graph)
        if found.outputs == self.outputs:
            return self
        made = Body(found.outputs)
        made.__dict__["graph"] = found  # in the order that the pass chose
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Body) and self.outputs == other.outputs

    def __hash__(self) -> int:
        return hash(tuple(node.serial for node in self.outputs))

    def __repr__(self) -> str:
        return f"Body({self.digest()[:16]})"

    def __str__(self) -> str:
        numbers: dict[int, str] = {}
        lines: list[str] = []
        for node in self.graph.nodes:
            if node.op.name == "parameter":
                numbers[node.serial] = f"in{node['index']}"
                continue
            if node.op.name == "constant":
                numbers[node.serial] = f"{node['value']:.6g}" if node.dtype.is_float else str(node["value"])
                continue
            arguments = ", ".join(numbers[child.serial] for child in node.inputs)
            if node.op.name in ("expand", "reshape"):
                numbers[node.serial] = numbers[node.inputs[0].serial]
                continue
            numbers[node.serial] = f"t{len(lines)}"
            lines.append(f"t{len(lines)} = {node.op.name}({arguments})")
        return "\n".join(lines) or ", ".join(numbers[n.serial] for n in self.outputs)


def parameter(index: int, spec: Spec) -> Node:
    """The leaf of a body that stands for input `index`."""
    return make(REGISTRY["parameter"], (), {"index": index, "shape": spec.shape, "dtype": spec.dtype})


def cut_out(outputs: Sequence[Node], inputs: Sequence[Node]) -> Body:
    """The nodes between `inputs` and `outputs` as a body, whose parameter i stands for input i."""
    done = {node.serial: parameter(number, node.spec) for number, node in reversed(list(enumerate(inputs)))}
    for node in toposort(outputs, set(done)):
        done[node.serial] = make(node.op, [done[child.serial] for child in node.inputs], node.attributes,
                                 origin=node.origin)
    return Body([done[node.serial] for node in outputs])


def symbols_in(value: Any) -> dict[str, Dim]:
    """The dynamic sizes that something depends on, by name.

    >>> n = Dim("n", 1, 8)
    >>> symbols_in({"shape": (3, n * 2 + 1)})
    {'n': n}
    """
    if isinstance(value, Dim):
        return {name: Dim(name, *bounds) for name, bounds in value.symbols.items()}
    if isinstance(value, Spec):
        return symbols_in(value.shape)
    if isinstance(value, Body):
        return symbols_in([(node.outputs, node.attributes) for node in value.graph.nodes])
    if isinstance(value, Mapping):
        value = list(value.values())
    found: dict[str, Dim] = {}
    for one in value if isinstance(value, list | tuple) else ():
        found |= symbols_in(one)
    return found
