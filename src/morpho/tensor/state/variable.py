"""Tensors that have a place: `Parameter` and `Buffer` are tensors whose elements lie in a `State`.

They are used like any tensor. `assign` gives one a new value, in place where a compiled function does it; whatever was
computed before keeps the old value.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol

from morpho.base.errors import DTypeError, fail
from morpho.ir.node import Node
from morpho.tensor.autodiff.autograd import detach, no_grad
from morpho.tensor.autodiff.grad_mode import Tracked, detached, tracing, watch
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor
from morpho.tensor.state.state import State, defer
from morpho.tensor.state.trace import current_trace

unfilled: ContextVar[bool] = ContextVar("morpho_unfilled", default=False)  # variables wait for values from a file


class Variable(Tensor):
    """A tensor whose value can be replaced; what `Parameter` and `Buffer` have in common."""

    __slots__ = ("state",)

    def __init__(self, value: Any) -> None:
        self.state, self._track = State(value, filled=not unfilled.get()), None

    # What a tensor is made of is the state's at the moment.
    _node = property(lambda self: self.state._tensor._node,
                     lambda self, node: setattr(self.state._tensor, "_node", node))
    _layout = property(lambda self: self.state._tensor._layout)
    _record = property(lambda self: self.state._tensor._record)
    _storage = property(lambda self: self.state._tensor._storage)

    def program(self) -> Node:
        """The leaf of the current value; inside a trace an input of the function, or what it was given there."""
        trace = current_trace()
        if trace is not None:
            node: Node = trace.read(self.state).program()
        else:
            node = self.state._tensor.program()
        if isinstance(getattr(self, "_track", None), Tracked):
            watch(self, node)
        return node

    @property
    def node(self) -> Node:
        node = self.program()
        return detached(node) if tracing.gradients_off else node

    def claim(self) -> None:
        self.state._tensor.claim()

    def release_leaf(self) -> None:
        self.state._tensor.release_leaf()

    def replace(self, node: Node) -> None:
        self.assign(Tensor.of_node(node))

    def version(self) -> tuple[Any, Any]:
        self.state._tensor  # noqa: B018  a value that waits is computed first: that is another version
        return self.state.version, None

    def replace_if(self, version: tuple[Any, Any], node: Node) -> bool:
        if unfilled.get():
            return True
        new = asarray(self.state.checked(Tensor.of_node(node)), copy=True).realise()
        new._track = None  # a value without a past: gradients end here
        with self.state.lock:
            if self.state.version != version[0]:
                return False
            self.state.replace(new)
        return True

    def assign(self, value: Any) -> None:
        """Give it another value of the same shape and dtype."""
        if not unfilled.get():
            self.state.value = value

    @property
    def value(self) -> Tensor:
        """The value as it is now, as a tensor of its own."""
        return self.state.value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


class Across(Protocol):
    """Ranks among which a parameter is shared out: each has other elements, and sums over all need everybody's."""

    @property
    def size(self) -> int: ...

    def sum(self, x: Tensor) -> Tensor: ...

    def max(self, x: Tensor) -> Tensor: ...


class Parameter(Variable):
    """A tensor that training changes: it wants its gradient, and optimisers assign it.

    >>> w = mo.nn.Parameter([1.0, 2.0])
    >>> (w * w).sum().backward()
    >>> w.assign(w - 0.5 * w.grad)
    >>> w.numpy()
    array([0., 0.], dtype=float32)
    """

    __slots__ = ("across",)

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        super().__init__(data)
        self.across: Across | None = None  # None: whole on this rank
        if not self.dtype.is_float:
            raise fail(DTypeError, "Parameter", f"dtype {self.dtype} is not one that optimisers train",
                       "keep the real and the imaginary part as two parameters" if self.dtype.is_complex else
                       "use nn.Buffer for other values")
        self._track = Tracked(bool(requires_grad))

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        made = memo[id(self)] = Parameter(self.value, self._track.wanted)
        made.across = self.across
        return made


class LeafState(State):
    """The value of a tensor that is no `Parameter`, as optimisers see it: a new value goes into the tensor, and what
    the program assigns to the tensor is the value from then on."""

    __slots__ = ("_layout", "leaf")

    def __init__(self, leaf: Tensor) -> None:
        self.leaf = leaf
        self._layout: Any = None  # that the tensor had when its value was last read
        super().__init__(detach(leaf))

    @property
    def _tensor(self) -> Tensor:
        if self._waiting is None and (self._layout is None or self.leaf._layout is not self._layout):
            self._held = asarray(detach(self.leaf.realise()), copy=True).realise()
            self._layout = self.leaf._layout
        return super()._tensor

    def replace(self, tensor: Tensor) -> None:
        super().replace(tensor)
        with no_grad():
            self.leaf[...] = tensor
        self.leaf.realise()
        self._layout = self.leaf._layout


class LeafParameter(Parameter):
    """A tensor with `requires_grad` that an optimiser trains: its value and its gradient are the tensor's."""

    __slots__ = ()

    def __init__(self, leaf: Tensor) -> None:
        super().__init__(detach(leaf))
        self.state = LeafState(leaf)

    grad = property(lambda self: self.state.leaf.grad, lambda self, value: setattr(self.state.leaf, "grad", value))


class Buffer(Variable):
    """A tensor that belongs to a module and is saved with it, but has no gradient: running statistics, tables. One that
    is not `persistent` is not saved either: what the module can make again.

    >>> mo.nn.Buffer([1, 2]).requires_grad
    False
    """

    __slots__ = ("persistent",)

    def __init__(self, data: Any, persistent: bool = True) -> None:
        super().__init__(data)
        self.persistent = persistent

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        made = memo[id(self)] = Buffer(self.value, self.persistent)
        return made

    def defer(self, value: Tensor) -> None:
        """Give it another value that is computed when it is read, or with the next step of an optimiser."""
        defer(self.state, value)


# -- the value of a tensor without its gradient ------------------------------------------------------------------------
class Data(Tensor):
    """The result of `x.data`: the elements of `x` without a gradient. An assignment to it is one to `x`,
    gradients or not."""

    __slots__ = ("owner",)

    def __init__(self, owner: Tensor) -> None:
        self.owner, self._track = owner, None

    def __getitem__(self, key: Any) -> Any:
        return DataPart(self, key)

    _node = property(lambda self: self.owner._node, lambda self, node: setattr(self.owner, "_node", node))
    _layout = property(lambda self: self.owner._layout)
    _record = property(lambda self: self.owner._record)
    _storage = property(lambda self: self.owner._storage)

    def program(self) -> Node:
        return detached(self.owner.program())

    @property
    def node(self) -> Node:
        return self.program()

    def claim(self) -> None:
        self.owner.claim()

    def release_leaf(self) -> None:
        self.owner.release_leaf()

    def version(self) -> tuple[Any, Any]:
        return self.owner.version()

    def replace(self, node: Node) -> None:
        with no_grad():
            self.owner[...] = Tensor.of_node(node)

    def replace_if(self, version: tuple[Any, Any], node: Node) -> bool:
        if self.owner.version() != version:
            return False
        self.replace(node)
        return True

    def __reduce__(self) -> Any:
        return self.owner.detach().__reduce__()


class DataPart(Data):
    """`x.data[key]`: what is assigned to it is assigned to that part of `x`."""

    __slots__ = ("key", "value")

    def __init__(self, owner: Tensor, key: Any) -> None:
        super().__init__(owner)
        self.key, self.value = key, Tensor.of_node(Tensor.of_node(owner.program())[key].program())

    _node = property(lambda self: self.value._node, lambda self, node: setattr(self.value, "_node", node))
    _layout = property(lambda self: self.value._layout)
    _record = property(lambda self: self.value._record)
    _storage = property(lambda self: self.value._storage)

    def program(self) -> Node:
        return self.value.program()

    def claim(self) -> None:
        self.value.claim()

    def release_leaf(self) -> None:
        self.value.release_leaf()

    def version(self) -> tuple[Any, Any]:
        return self.value.version()

    def replace(self, node: Node) -> None:
        self.value.replace(node)
        with no_grad():
            self.owner[self.key] = Tensor.of_node(node)

    def replace_if(self, version: tuple[Any, Any], node: Node) -> bool:
        self.replace(node)
        return True


class VariableData(Variable):
    """The result of `parameter.data`: the same state without a gradient."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        return DataPart(self, key)


def data_of(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, Variable):
        return Data(tensor)
    alias = object.__new__(VariableData)
    alias.state, alias._track = tensor.state, None
    return alias


def assign_data(tensor: Tensor, value: Any) -> None:
    with no_grad():
        data_of(tensor)[...] = value
