"""`Tensor`: a value that is either a node still to be computed or elements in memory.

Tensors are values: nothing that is done to one tensor changes another. Asking for elements (`numpy()`, `print`,
`item()`, `float()`) computes the graph below and drops it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from morpho.backends.driver.layout import repacked
from morpho.backends.registry import default_device, holder, memory_of
from morpho.base import settings
from morpho.base.dims import Shape, product
from morpho.base.dtypes import DType, bfloat16
from morpho.base.errors import ArgumentError, CompileError, ShapeError, fail
from morpho.base.python.lazy_module import LazyModule
from morpho.base.trees import register_leaf
from morpho.ir.node import Node, build, toposort
from morpho.runtime.memory.buffer import Buffer, OffHost
from morpho.tensor import recording
from morpho.tensor.autodiff.grad_mode import (
    Tracked,
    check_leaves,
    check_own,
    detached,
    is_watched,
    tracing,
    tracked,
    watch,
)
from morpho.tensor.eager import item as fast_item
from morpho.tensor.steps import Step

if TYPE_CHECKING:  # `operators.py` gives them to the class when it is imported
    from morpho.tensor.operator_types import Operators
else:
    Operators = object

before_first_run: list[Callable[[], object]] = []  # called once: the layers above measure objects for native code


def _engine() -> ModuleType:
    """The evaluator: compiler, kernels and driver load when needed."""
    from morpho.runtime.plans import evaluate as module

    for prepare in before_first_run:
        prepare()
    return module


evaluate = LazyModule(_engine)

DEEPEST = 4000  # operations, one after another, that a lazy program may have before it is computed
_settling = threading.Lock()  # held while a tensor's value is put in, replaced or written down another way


class Count(int):
    """The number of elements; called, as PyTorch's `x.size()` and `x.size(0)` are, it gives the shape or a part."""

    _shape: Shape

    def __call__(self, dim: int | None = None) -> Any:
        return self._shape if dim is None else self._shape[dim]


@register_leaf
class Tensor(Operators):
    """An n-dimensional array. Make one with `mo.asarray`, `mo.zeros`, `mo.arange`, ...; see `dir(morpho)`.

    >>> import morpho as mo
    >>> x = mo.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> (x + 1).sum(axis=0).numpy()
    array([6., 8.], dtype=float32)
    """

    # `_record` and `_storage` are read by compiled code; see backends/driver/layout.py.
    # `_track` is None or unset for most: what a leaf collects gradients in, or the program of a computed value that
    # has some.
    # `_base` and `_key` are unset but for parts of other tensors (functions/indexing/parts.py).
    __slots__ = ("__weakref__", "_base", "_key", "_layout", "_node", "_record", "_storage", "_track")

    _base: Any
    _key: Any
    _node: Any  # a `Node`, a `Step` of the recording that stands in `_storage`, or None
    _record: bytes | None
    _storage: Any
    _layout: tuple[int, tuple[int, ...], tuple[int, ...], DType, bool] | None
    _track: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        raise fail(ArgumentError, "Tensor", "a Tensor is not made by calling its class",
                   "use mo.asarray(values), or mo.zeros(shape)")

    @staticmethod
    def of_node(node: Node) -> Tensor:
        """A lazy tensor."""
        made = object.__new__(Tensor)
        made._node, made._record, made._storage, made._layout, made._track = node, None, None, None, None
        if tracing.current is not None:
            tracing.current.owns(made, node)
        return made

    @staticmethod
    def of_buffer(buffer: Buffer) -> Tensor:
        """A realised tensor."""
        made = object.__new__(Tensor)
        made._node = made._track = None
        made._hold(buffer)
        return made

    def _hold(self, buffer: Buffer) -> None:
        self._storage = buffer.storage  # first: whoever sees a layout finds the memory behind it
        self._layout = (buffer.address, buffer.shape, buffer.strides, buffer.dtype, buffer.writable)
        self._record = buffer.record()

    def claim(self) -> None:
        """Before the elements are overwritten: programs that would read them as their node's value compute it anew."""
        with _settling:
            if self._layout is None:
                return  # another thread has given the tensor another value
            address, shape, strides, dtype, writable = self._layout
            self._layout = (address, shape, strides, dtype, writable)  # another tuple: a `Holder` knows the old one
            if self._record is not None:
                self._record = repacked(self._record, int(writable))
            self._forget_program()

    def _forget_program(self) -> None:
        """Elements that are overwritten are not what their program computes any more."""
        track = getattr(self, "_track", None)
        if isinstance(track, Tracked):
            track.program = None
        elif track is not None:
            self._track = None
            if isinstance(track, Node) and isinstance(track.payload, Kept):
                track.payload = None

    def release_leaf(self) -> None:
        """Let go of the leaf that programs name these elements by, so that only they hold the memory through it."""
        with _settling:
            if self._layout is not None:
                self._node = None

    def replace(self, node: Node) -> None:
        """Give the tensor another value. What was built from its old one holds the old node or the old elements."""
        with _settling:
            self._node, self._layout, self._record, self._storage = node, None, None, None
            self._forget_program()

    def version(self) -> tuple[Any, Any]:
        """Return what `replace_if` compares: it differs once the tensor has another value, or has been computed."""
        if self._layout is None:
            self.cut()
            self.program()  # a pending operation becomes a node here, not while the new value is built
        with _settling:
            return (self._node if self._layout is None else None), self._layout

    def replace_if(self, version: tuple[Any, Any], node: Node) -> bool:
        """Replace the value unless the tensor has another version; return whether it was replaced."""
        with _settling:
            if self._layout is not version[1] or (self._layout is None and self._node is not version[0]):
                return False
            self._node, self._layout, self._record, self._storage = node, None, None, None
            self._forget_program()
            return True

    # -- description ---------------------------------------------------------------------------------------------------
    @property
    def shape(self) -> Shape:
        """Sizes of the dimensions; inside `compile` one may be a bounded `Dim`."""
        return self._spec[0]

    @property
    def dtype(self) -> DType:
        return self._spec[1]

    @property
    def _spec(self) -> tuple[Shape, DType]:
        node, layout = self._node, self._layout  # in this order: another thread may be putting in the computed value
        return (layout[1], layout[3]) if layout is not None else node.outputs[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Any:
        """Number of elements."""
        shape = self.shape
        count = product(shape)
        if type(count) is not int:
            return count
        number = Count(count)
        number._shape = shape
        return number

    @property
    def nbytes(self) -> Any:
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def device(self) -> str:
        """Where the elements lie, or will: `cpu`, or another of `mo.devices()`."""
        node, storage, layout = self._node, self._storage, self._layout
        if layout is not None:
            return storage.device if isinstance(storage, OffHost) else "cpu"
        return (node.device if node is not None else "") or memory_of(default_device())

    @property
    def is_realised(self) -> bool:
        """Whether the elements are in memory already."""
        return self._layout is not None

    @property
    def strides(self) -> tuple[int, ...]:
        """Steps in elements; realises the tensor."""
        return self.elements().strides

    # -- values --------------------------------------------------------------------------------------------------------
    @property
    def node(self) -> Node:
        """The graph node of this value: its program, or a leaf holding its elements."""
        if self._layout is None:
            self.cut()
        if not tracing.gradients_off:
            return self.program()
        if tracing.current is None and type(getattr(self, "_track", None)) in (Node, recording.Lineage):
            return self._leaf()  # not its program: that would be computed again once this tensor is dropped
        return detached(self.program())

    def _leaf(self) -> Node:
        """A leaf that holds the elements."""
        while True:
            layout, node = self._layout, self._node
            if node is not None and layout is not None:
                return node  # type: ignore[no-any-return]
            leaf = evaluate.leaf(self.elements())
            with _settling:
                if self._layout is layout and self._node is None:
                    self._node = leaf

    def cut(self, deepest: int = DEEPEST) -> None:
        """Compute the value now where its program has become deeper than anyone wants to compile: that of a tensor
        which a loop carries on without asking for it. Counted in `cuts`; the bits are the same. Nothing happens where a
        program must stay whole: while a function is traced or differentiated, or somebody may ask for gradients."""
        node = self._node
        if type(node) is not Node or node.depth <= deepest or self._layout is not None or recording.is_building():
            return
        if tracing.current is not None or tracing.transformed or tracing.batched or tracing.gradients_off:
            return
        if any(reference() is not None for reference in list(tracked.values())):
            return
        evaluate.counts.cuts += 1
        self.realise()

    def program(self) -> Node:
        """The graph node, also where gradients are switched off."""
        while True:
            node, layout = self._node, self._layout
            if layout is not None:
                trace = tracing.current
                if trace is not None:
                    return trace.capture(self)  # type: ignore[no-any-return]
                track = getattr(self, "_track", None)
                if type(track) is recording.Lineage:
                    track = self._track = _kept_program(self, track)
                if isinstance(track, Node):
                    return track
                if isinstance(track, Tracked):
                    return self._tracked_node(track)
            if type(node) is Step:
                storage = self._storage
                if type(storage) is not recording.Recording or self._node is not node:
                    continue  # another thread has just computed it
                trace = tracing.current
                if trace is None:
                    return storage.node_of(node)
                if not node.tracked:
                    _realise_outside(self)  # of the surroundings: read at every call, like any other
                    continue
                made = storage.node_of(node)
                if trace.is_outside(self, made):
                    trace.settle(self, made)
                    continue
                return made
            if node is not None:
                if tracing.current is not None and tracing.current.is_outside(self, node):
                    tracing.current.settle(self, node)
                    continue
                return node  # type: ignore[no-any-return]
            buffer = self.buffer()
            if buffer is None:
                continue  # another thread has just given the tensor another value
            leaf = evaluate.leaf(buffer)
            with _settling:
                if self._layout is layout and self._node is None:
                    self._node = leaf

    def differentiated(self) -> Node | None:
        """The program of a computed value, where it leads to a leaf that somebody wants the gradient of."""
        track = getattr(self, "_track", None)
        if type(track) is recording.Lineage:
            track = self._track = _kept_program(self, track)
        node = track.program if isinstance(track, Tracked) else track
        return node if isinstance(node, Node) and any(map(is_watched, toposort([node]))) else None

    def _tracked_node(self, track: Tracked) -> Node:
        """The program that the gradient goes through, or the leaf that it ends at."""
        if track.program is not None:
            return track.program
        leaf = self._node
        if leaf is None:
            leaf = evaluate.leaf(self.elements())
            with _settling:
                self._node = leaf
        watch(self, leaf)
        return leaf  # type: ignore[no-any-return]

    def buffer(self) -> Buffer | None:
        """The realised elements, or None. Memory and layout belong together whatever other threads do: they are put
        in memory first and taken out layout first."""
        while True:
            storage, layout = self._storage, self._layout
            if layout is None:
                return None
            if self._storage is storage:
                return Buffer(storage, *layout)

    def elements(self) -> Buffer:
        """The elements, computed if need be: one value of the tensor, whole, whatever other threads assign to it."""
        while True:
            buffer = self.buffer() or self.realise().buffer()
            if buffer is not None:
                return buffer

    def realise(self) -> Tensor:
        """Compute the elements now; returns itself."""
        if self._layout is None:
            if type(self._node) is Step:
                recording.look(self)
            if self._layout is None:
                realise(self)
        return self

    def numpy(self, copy: bool = False) -> np.ndarray:
        """The elements as NumPy: a read-only view, or a copy of its own. bfloat16, which NumPy lacks, as float32."""
        if tracing.transformed and self.dtype.is_inexact:
            check_leaves(self)
        return self._values(copy)

    def _values(self, copy: bool = False) -> np.ndarray:
        """As `numpy`, also where a gradient ends with that: for printing, and for what has none."""
        buffer = self.elements()
        array = buffer.numpy()
        if buffer.dtype is bfloat16:
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array.copy() if copy else array

    def item(self, *index: Any) -> Any:
        """The only element as a Python number; with an index, or one into the flat tensor, the element there."""
        if index:
            return self._values().item(*index)
        if type(self._node) is Step:
            recording.look(self)
        found = fast_item(self)
        if found is not None:
            (_counts or _load_counts())[0].syncs += 1
            return found
        if self.size != 1:
            raise fail(ShapeError, "item", f"a tensor of shape {self.shape} is not a single number")
        evaluate.counts.syncs += 1
        return self._values().reshape(())[()].item()

    def tolist(self) -> Any:
        return self._values().tolist()

    def __repr__(self) -> str:
        if self._layout is None and type(self._node) is not Step and uses_parameters([self.node]):
            return f"Tensor(shape={self.shape}, dtype={self.dtype}, traced)"
        text = np.array2string(self._values(), separator=", ", prefix="Tensor(", threshold=200)
        lost = f"shape={self.shape}, " if self.size == 0 and self.shape != (0,) else ""  # the brackets do not tell it
        return f"Tensor({text}, {lost}dtype={self.dtype})"

    __str__ = __repr__

    def __bool__(self) -> bool:
        value = fast_number(self)
        return bool(self._scalar("bool") if value is None else value)

    def __float__(self) -> float:
        value = fast_number(self)
        return float(self._scalar("float") if value is None else value)

    def __int__(self) -> int:
        value = fast_number(self)
        return int(self._scalar("int") if value is None else value)

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise fail(ArgumentError, "index", f"a {self.dtype} tensor is not an index")
        return int(self._scalar("index"))

    def _scalar(self, wanted: str) -> Any:
        if type(self._node) is Step:
            recording.look(self)
        layout = self._layout
        if (layout[1] if layout is not None else self.ndim) and (wanted == "index" or self.size != 1):
            raise fail(ArgumentError, wanted, f"only a tensor of one element becomes a Python number, not {self.shape}",
                       "index it, or use any()/all(); `x in list` compares: use any(x is item for item in list)")
        return self.item()

    def __len__(self) -> int:
        if not self.shape:
            raise fail(ArgumentError, "len", "a 0-dimensional tensor has no length")
        return self.shape[0]  # type: ignore[return-value]

    def __hash__(self) -> int:
        return id(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A tensor with elements of its own; it wants a gradient where this one does, but not through this one."""
        made = memo[id(self)] = copied(Tensor.of_node(detached(self.program())))
        track = getattr(self, "_track", None)
        if isinstance(track, Tracked):
            made.requires_grad_(track.wanted)
        return made

    def __copy__(self) -> Tensor:
        return self.__deepcopy__({})



def fast_number(x: Tensor) -> Any:
    """The number that a 0-dimensional tensor in the CPU's memory is, recorded or computed; None for any other."""
    if type(x._node) is Step:
        recording.look(x)
    layout = x._layout
    if layout is None or layout[1] or (value := fast_item(x)) is None:
        return None
    counts = _counts or _load_counts()
    counts[0].syncs += 1
    return value


_counts: list[Any] = []  # those of the evaluator, once it is loaded


def _load_counts() -> list[Any]:
    _counts[:] = [evaluate.counts]
    return _counts


class Holder(weakref.ref[Tensor]):
    """A weak reference to the tensor that holds a node's elements; dead once `x[i] = v` gave it other ones."""

    __slots__ = ("layout",)

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor)  # type: ignore[call-arg]
        self.layout = tensor._layout

    def __call__(self) -> Tensor | None:
        tensor = super().__call__()
        return tensor if tensor is not None and tensor._layout is self.layout else None


class Kept:
    """Elements of a node that it holds itself, for as long as a program needs it: those behind collectives, which a
    rank must not run again because it has dropped the tensor."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __call__(self) -> Tensor:
        return self.tensor


def realise_once(*tensors: Tensor) -> None:
    """Compute values with collectives in their programs now, where they are written: gradients and further values read
    them, and no rank comes to these collectives again."""
    realise(*tensors)
    for tensor in tensors:
        node, buffer = getattr(tensor, "_track", None), tensor.buffer()
        if isinstance(node, Node) and node.op.name != "data" and buffer is not None:
            with _settling:
                if tensor._record is not None:
                    tensor._record = repacked(tensor._record, 0)
                node.payload = Kept(Tensor.of_buffer(buffer))


def check_device(device: Any, operation: str) -> None:
    """An error where there is no such device."""
    if device is not None:
        holder(device, operation)


def copied(tensor: Tensor) -> Tensor:
    """The same elements in memory of their own, now."""
    made = Tensor.of_node(build("copy", tensor.node))
    return made.realise()


def uses_parameters(nodes: Sequence[Node]) -> bool:
    """Whether a program depends on arguments of a function being traced, so that it has no value now."""
    return any(node.op.name == "parameter" for node in toposort(nodes))


def check_value(nodes: Sequence[Node]) -> None:
    """An error where a program has no value that could be computed by this thread now, or ever."""
    check_own(nodes, tracing.current)
    if any(node.op.name == "parameter" for node in nodes):
        raise fail(CompileError, "compile", "the function being compiled asks for a value of its arguments",
                   "use mo.where instead of if, keep print and numpy() outside, or pass the value as a Python number")


def realise(*tensors: Tensor) -> None:
    """Compute several tensors together, sharing what they have in common: `mo.realise(a, b)`.

    >>> a = mo.ones(3) + 1
    >>> mo.realise(a, a * 2)
    >>> a.is_realised
    True
    """
    try:
        waiting = [t for t in tensors if t._layout is None]
    except AttributeError:
        wrong = next(t for t in tensors if not isinstance(t, Tensor))
        raise fail(ArgumentError, "realise", f"a {type(wrong).__name__} is not a tensor",
                   "several results: mo.realise(*results)") from None
    for t in waiting:
        if type(t._node) is Step and t._layout is None:
            recording.look(t)
    waiting = [t for t in waiting if t._layout is None]
    if not waiting:
        return
    written = [t._node for t in waiting]
    nodes = [t.program() for t in waiting]
    below = toposort(nodes)
    check_value(below)
    of_data = any(leaf.op.name == "data" for leaf in below)
    differentiable = bool(tracked) and any(is_watched(node) for node in below)
    buffers = evaluate.realise(nodes)
    if settings.get().nans:
        from morpho.tensor.tools.debug import check_nodes

        check_nodes(nodes, buffers)
    for tensor, node, step, buffer in zip(waiting, nodes, written, buffers, strict=True):
        with _settling:
            if type(step) is Step and tensor._node is step and tensor._layout is None:
                tensor._node, tensor._storage = node, None
            _settle(tensor, node, buffer, of_data and node.op.name != "copy")
            if differentiable and node.dtype.is_inexact:  # its gradient may be asked for later
                _keep_program(tensor, node)


def _keep_program(tensor: Tensor, node: Node) -> None:
    track = getattr(tensor, "_track", None)
    if track is None:
        tensor._track = node
    elif isinstance(track, Tracked):
        track.program = node


def _kept_program(tensor: Tensor, lineage: recording.Lineage) -> Node:
    """The graph of a computed value, whose elements are read by programs that contain it."""
    node = lineage.node()
    with _settling:
        if tensor._layout is not None and node.op.name != "data" and node.inputs and (
                node.payload is None or (isinstance(node.payload, Holder) and node.payload() is None)):
            if tensor._record is not None:
                tensor._record = repacked(tensor._record, 0)
            node.payload = Holder(tensor)
    return node


def _realise_outside(tensor: Tensor) -> None:
    """Compute a recorded value of the surroundings of a function that is being traced."""
    trace, tracing.current = tracing.current, None
    try:
        tensor.realise()
    finally:
        tracing.current = trace


def _settle(tensor: Tensor, node: Node, buffer: Buffer, reusable: bool) -> None:
    """Put a computed value into its tensor. Where it is `reusable`, programs that contain the node read it instead of
    computing it again; the native entry may not overwrite it then (`Tensor.claim`). Copies and values that follow from
    numbers alone, such as zeros, are not: each has memory of its own."""
    if tensor._layout is not None or tensor._node is not node:
        return  # another thread was first, or has given the tensor another value
    tensor._hold(buffer)
    tensor._node = node if node.op.name == "data" and not node.device else None  # read or not, it lies nowhere
    if reusable and (node.payload is None or (isinstance(node.payload, Holder) and node.payload() is None)):
        if tensor._record is not None:
            tensor._record = repacked(tensor._record, 0)
        node.payload = Holder(tensor)


def _after_fork() -> None:
    global _settling
    _settling = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


