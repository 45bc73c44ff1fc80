"""A function while it is traced: what it reads and writes besides its arguments."""

from __future__ import annotations

import itertools
from typing import Any, Protocol

from morpho.base.dims import Dim, Shape
from morpho.base.dtypes import DType
from morpho.base.errors import ArgumentError, fail
from morpho.base.shapes import is_contiguous
from morpho.ir.node import Node, has_symbols, make, next_serial, toposort
from morpho.ir.op import REGISTRY
from morpho.ops.identity import mark
from morpho.tensor.autodiff.grad_mode import Tracked, tracing, tracked, watch
from morpho.tensor.core import Holder, Tensor, evaluate

_traces = itertools.count()


class Slot(Protocol):
    """Interface of a state for a trace: its current value."""

    @property
    def _tensor(self) -> Tensor: ...


class Trace:
    """Values that a traced function reads and writes besides its arguments."""

    def __init__(self, first_parameter: int, whole: bool = False) -> None:
        self.next_parameter, self.whole = first_parameter, whole  # whole: nothing may run on the host
        self.number, self.start = next(_traces), next_serial()
        self.own: dict[int, Tensor] = {}  # tensors of this trace, or left lazy in it, whose programs are older
        self.states: list[Any] = []
        self.inputs: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        self.written: dict[int, Slot] = {}
        self.captured: dict[int, tuple[Tensor, Node]] = {}
        self.tracked: dict[int, Tensor] = {}  # serial of a leaf -> the tensor that wants its gradient
        self.assumed: dict[int, Any] = {}  # objects whose `static_key()` this program is compiled for
        self.notes: dict[str, None] = {}  # what was decided on the way, each once, for `explain`
        self.selected: dict[int, tuple[Node, Tensor]] = {}  # serial of a mask -> it, and the places it selects
        self.counted: list[tuple[Dim, Node]] = []  # sizes that are data, and what counts them
        self.collectives: dict[int, Node] = {}  # group -> the token of its last one: other ranks wait in them
        self.local: set[int] = set()  # what collects gradients of values of this trace alone
        self._grads: dict[int, tuple[Tracked, Any, bool]] = {}  # gradient before, dropped here

    def parameter(self, index: int, shape: Shape, dtype: DType, device: str, **extra: Any) -> Node:
        """An argument, of this trace alone: that of another one is another node, though all else is equal. Graphs that
        are compiled do not say which trace it was."""
        attributes = {"index": index, "shape": shape, "dtype": dtype, "trace": self.number, **extra}
        return make(REGISTRY["parameter"], (), attributes, device=device)

    def assume(self, thing: Any) -> None:
        """Say that the program depends on `thing.static_key()`: another one means another program."""
        self.assumed[id(thing)] = thing

    def keep_grad(self, track: Tracked, anew: bool = False) -> None:
        """Before a gradient is set: it is that of the surroundings again when the trace ends. `anew` says that it is
        dropped, so that what follows adds to nothing."""
        _, before, dropped = self._grads.get(id(track), (track, track.grad, False))
        self._grads[id(track)] = (track, before, dropped or anew)

    def _end_grads(self) -> None:
        """Gradients end with the function. Where the same lines outside it would add to those of the last call, that is
        said instead of being left out."""
        adds = any(not dropped and id(track) not in self.local and (before is not None or track.grad is not None)
                   for track, before, dropped in self._grads.values())
        self._restore_grads()
        if adds:
            raise fail(ArgumentError, "compile", "gradients of this function would be added to those of another call, "
                                                 "and they end with the call they are made in",
                       "call zero_grad() inside it, and accumulate within one function")

    def owns(self, tensor: Tensor, node: Node) -> None:
        """A lazy tensor is made in this trace; only programs that others wrote before need to be remembered."""
        if node.serial < self.start:
            self.own[id(tensor)] = tensor

    def is_outside(self, tensor: Tensor, node: Node) -> bool:
        """Whether a lazy tensor of this program was made before the trace."""
        return node.serial < self.start and id(tensor) not in self.own

    def settle(self, tensor: Tensor, node: Node) -> None:
        """Compute a lazy tensor of the surroundings, so that it is captured like any other and a later change of it is
        seen. What has no value, or leads to leaves that want gradients, stays the program it is."""
        if any(n.serial in tracked or n.op.name == "parameter" or has_symbols(n) for n in toposort([node])):
            self.own[id(tensor)] = tensor
            return
        tracing.current = None
        try:
            tensor.realise()
        finally:
            tracing.current = self

    def capture(self, tensor: Tensor) -> Node:
        """The leaf of a realised tensor of the surroundings; one of this trace alone, so that a later change of the
        tensor concerns where the function names it, and not programs made from its old value."""
        found = self.captured.get(id(tensor))
        if found is None:
            below = tensor.differentiated()
            if below is None:
                leaf = evaluate.leaf(tensor.elements())
            else:  # its elements are read, and gradients go on to the leaves outside
                leaf = mark(below)
                leaf.payload = Holder(tensor)
            found = self.captured[id(tensor)] = (tensor, leaf)
            if isinstance(getattr(tensor, "_track", None), Tracked):
                watch(tensor, found[1])
        return found[1]

    def read(self, state: Slot) -> Tensor:
        """The value the function sees: the last one it wrote, else the state as an input."""
        if id(state) not in self.values:
            tensor = state._tensor
            if not is_contiguous(tensor._layout[1], tensor._layout[2]):  # type: ignore[index]
                raise fail(ArgumentError, "compile", f"a state of {tensor.dtype}{tensor.shape} has no value yet",
                           "load the weights of a model that was made without any")
            node = self.parameter(self.next_parameter, tensor.shape, tensor.dtype, tensor.device)
            self.next_parameter += 1
            self.states.append(state)
            self.inputs[id(state)] = self.values[id(state)] = Tensor.of_node(node)
        return self.values[id(state)]

    def give(self, state: Slot, tensor: Tensor) -> None:
        """Let the function see this tensor instead of the state's value: a constant that is packed once, where a state
        is an input of every call."""
        self.values.setdefault(id(state), tensor)

    def write(self, state: Slot, tensor: Tensor) -> None:
        self.read(state)
        self.values[id(state)] = tensor
        self.written[id(state)] = state

    @property
    def updates(self) -> list[tuple[int, Tensor]]:
        """(number among `states`, new value) of every state written."""
        return [(n, self.values[id(s)]) for n, s in enumerate(self.states) if id(s) in self.written]

    def __enter__(self) -> Trace:
        if current_trace() is not None:
            raise fail(ArgumentError, "compile", "a compiled function is traced inside another one's trace")
        tracing.current = self
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        tracing.current = None
        self.own.clear()
        if kind is None:
            self._end_grads()
        else:
            self._restore_grads()

    def _restore_grads(self) -> None:
        for track, before, _ in self._grads.values():
            track.grad = before


def current_trace() -> Trace | None:
    """The trace this thread is in, if any."""
    found: Trace | None = tracing.current
    return found
