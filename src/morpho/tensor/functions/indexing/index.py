"""Indexing: integers, slices, ellipsis and new axes are views; integer arrays gather and scatter, checked.

`x[key] = value` keeps value semantics: the tensor gets a new program, and nothing else that was made from its old
elements changes.
"""

from __future__ import annotations

import logging
import operator
import sys
from functools import cache
from typing import Any

import numpy as np

from morpho.backends.registry import HOST
from morpho.base.dims import Dim, Shape, Size, bounds, product, quotient_down
from morpho.base.dtypes import DType, bool_, complex128, float64
from morpho.base.errors import ArgumentError, CompileError, DeviceError, IndexFault, ShapeError, fail, sentence
from morpho.ir.node import Node, build
from morpho.ops import algebra
from morpho.tensor.autodiff.grad_mode import Tracked, tracing
from morpho.tensor.convert import following, unplaced
from morpho.tensor.core import Tensor, uses_parameters
from morpho.tensor.device import on
from morpho.tensor.eager import row
from morpho.tensor.functions.indexing.fancy import Fancy
from morpho.tensor.functions.indexing.parts import OF_ITEM, OWN, assign_item, is_alone, is_basic, is_statement, of_base
from morpho.tensor.functions.indexing.writing import written
from morpho.tensor.functions.move import slice_node
from morpho.tensor.functions.searching.selection import compacted, is_compacted, is_data, masked, selected, unravelled
from morpho.tensor.lifted import lifted_index
from morpho.tensor.operands import as_node
from morpho.tensor.recorded import view
from morpho.tensor.scalars import is_scalar, scalar_node
from morpho.tensor.steps import Step
from morpho.tensor.sync import realised_array

log = logging.getLogger("morpho")


def is_array(item: Any) -> bool:
    """Whether an index is by data: a tensor, a NumPy array, a list or a truth value."""
    return isinstance(item, Tensor | np.ndarray | list | tuple | range | bool | np.bool_)


def width(item: Any) -> int:
    """How many axes an index takes up: a mask one per dimension of its own, a new axis none."""
    if item is None or item is Ellipsis:
        return 0
    if (isinstance(item, Tensor) and item.dtype is bool_) or (isinstance(item, np.ndarray) and item.dtype == np.bool_):
        return item.ndim
    return 1


def as_items(key: Any, rank: int) -> list[Any]:
    """A key as a list with one item per axis (and the new axes), lists as tensors. An ellipsis stays in front of the
    axes it means: it keeps indices apart even where it means none."""
    items = [_converted(item) for item in (key if isinstance(key, tuple) else (key,))]
    used = sum(width(item) for item in items)
    if used > rank:
        raise fail(IndexFault, "index", f"{used} indices are too many for {rank} dimensions")
    if sum(1 for item in items if item is Ellipsis) > 1:
        raise fail(IndexFault, "index", "an index holds more than one ellipsis")
    gap = [slice(None)] * (rank - used)
    for i, item in enumerate(items):
        if item is Ellipsis:
            return items[:i + 1] + gap + items[i + 1:]
    return items + gap


def _converted(item: Any) -> Any:
    item = lifted_index(item)
    if isinstance(item, Node):
        return Tensor.of_node(item)
    if not is_array(item):
        return item
    if isinstance(item, tuple | range):  # inside of a key NumPy reads both as lists
        item = list(item)
    if isinstance(item, list) and not item:
        item = np.zeros(0, np.int64)
    found = following(item)
    if found.dtype.kind not in "biu":
        raise fail(IndexFault, "index", f"an index of dtype {found.dtype} is not integers or a mask", "use astype")
    return found


def resolve_slice(item: slice, size: Size) -> tuple[Size, Size, int]:
    """Start, count and step of a slice on an axis."""
    if isinstance(size, Dim):
        return _resolve_dynamic(item, size)
    try:
        start, stop, step = item.indices(size)
    except (TypeError, ValueError) as error:
        raise fail(IndexFault, "index", str(error)) from None
    count = len(range(start, stop, step))
    return (start if count else 0), count, step if count > 1 else 1  # one that is not taken may be of any size


def _resolve_dynamic(item: slice, size: Dim) -> tuple[Size, Size, int]:
    """The same on an axis of dynamic size. Positions are cut to it where they lie outside for every size; where they do
    for some sizes only, the slice is no region that is known."""
    step = 1 if item.step is None else _whole(item.step)
    if not isinstance(step, int) or step == 0:
        raise fail(IndexFault, "index", f"a slice of a dynamic dimension {size} takes no step of {item.step!r}",
                   "use a whole number that is not 0")
    first, last = (0, size) if step > 0 else (-1, size - 1)  # what positions are cut to
    start = _cut(item.start, size, (first, last), first if step > 0 else last)
    stop = _cut(item.stop, size, (first, last), last if step > 0 else first)
    span = stop - start if step > 0 else start - stop
    if bounds(span)[1] <= 0:
        return 0, 0, 1
    less = quotient_down(span - 1, abs(step))
    if less is None:
        raise fail(IndexFault, "index", f"a step of {step} through {span} positions takes a number of them that is no "
                                        "polynomial of the dynamic sizes",
                   f"declare the axis as a multiple: n = mo.Dim('n', 1, 512), and {abs(step)} * n for it")
    return start, less + 1, step


def _cut(given: Any, size: Dim, limits: tuple[Size, Size], otherwise: Size) -> Size:
    """A position of a slice: from the end where it is negative, and within limits."""
    if given is None:
        return otherwise
    place = _whole(given)
    place = size + place if isinstance(place, int) and place < 0 else place
    low, high = limits
    return low if bounds(place - low)[1] < 0 else high if bounds(place - high)[0] > 0 else place


def _whole(given: Any) -> Size:
    """A position or a step as a size; an error for what is no whole number."""
    if isinstance(given, Dim):
        return given
    try:
        return operator.index(given)
    except TypeError:
        raise fail(IndexFault, "index", f"a slice has {given!r}, which is no whole number",
                   "use whole numbers, or sizes of mo.Dim") from None


def resolve_integer(item: Any, size: Size, axis: int) -> Size:
    """A position on an axis from one that may count from the end."""
    try:
        number = operator.index(item)
    except TypeError:
        raise fail(IndexFault, "index", f"{type(item).__name__} {item!r} is not an index",
                   "use integers, slices, None, ... or tensors of integers or booleans") from None
    if isinstance(size, Dim):
        return number if number >= 0 else size + number
    if not -size <= number < size:
        raise fail(IndexFault, "index", f"index {number} is out of range for axis {axis} of size {size}")
    return number % size


class BasicIndex:
    """The basic part of a key (integers, slices, None): the strided part it names, and the shape it is seen in."""

    def __init__(self, shape: Shape, items: list[Any]) -> None:
        self.starts: list[Size] = []
        self.sizes: list[Size] = []
        self.steps: list[int] = []
        self.shape: list[Size] = []
        self.fancy: list[tuple[int, Tensor | None]] = []  # an axis of `shape` with its indices; None for an integer
        places: list[int] = []
        for position, item in enumerate(items):
            if item is Ellipsis:
                continue
            if item is None:
                self.shape.append(1)
                continue
            if isinstance(item, Tensor) or not isinstance(item, slice):
                places.append(position)
            if isinstance(item, Tensor):
                self.fancy.append((len(self.shape), item))
            elif not isinstance(item, slice):
                self.fancy.append((len(self.shape), None))
            self._axis(item, shape)
        self.together = not places or places[-1] - places[0] == len(places) - 1

    def _axis(self, item: Any, shape: Shape) -> None:
        axis = len(self.starts)
        if isinstance(item, Tensor):
            start, count, step = 0, shape[axis], 1
        elif isinstance(item, slice):
            start, count, step = resolve_slice(item, shape[axis])  # type: ignore[assignment]
        else:
            start, count, step = resolve_integer(item, shape[axis], axis), 1, 1  # type: ignore[assignment]
        self.starts.append(start)
        self.sizes.append(count)
        self.steps.append(step)
        self.shape.append(count)

    @property
    def is_basic(self) -> bool:
        return all(indices is None for _, indices in self.fancy)

    @property
    def result(self) -> Shape:
        """The shape of a basic key's value: integers take their axis away."""
        integers = {axis for axis, _ in self.fancy}
        return tuple(size for axis, size in enumerate(self.shape) if axis not in integers)

    def read(self, node: Node) -> Node:
        """The region as a view, integers keeping an axis of size 1."""
        return algebra.reshape(slice_node(node, self.starts, self.sizes, self.steps), tuple(self.shape))

    def write(self, node: Node, value: Node) -> Node:
        """The whole with the region replaced."""
        value = algebra.reshape(value, tuple(self.sizes))
        if value.shape == node.shape and all(step == 1 for step in self.steps):
            return value
        return build("update", node, value, starts=tuple(self.starts), sizes=tuple(self.sizes), steps=tuple(self.steps))


def without_masks(items: list[Any], shape: Shape) -> list[Any]:
    """Masks replaced by the positions at which they hold. How many there are is data: they are realised, or, in a
    function being compiled, of a dynamic size."""
    result: list[Any] = []
    axis = 0
    for item in items:
        if isinstance(item, Tensor) and item.dtype is bool_:
            if item.size != 0 and any(a != b for a, b in zip(item.shape, shape[axis:], strict=False)):
                raise fail(IndexFault, "index", f"a mask of shape {item.shape} does not fit {shape} at axis {axis}")
            result += positions(item, "index", "a boolean mask selects a number of elements that depends on data")
            axis += item.ndim
        else:
            result.append(item)
            axis += width(item)
    return result


def positions(mask: Tensor, operation: str, reason: str) -> list[Tensor]:
    """The positions at which a mask holds, a tensor per axis."""
    if is_data(mask):
        return unravelled(selected(mask, operation), mask.shape)
    if is_compacted(mask):
        return unravelled(compacted(mask), mask.shape)
    found = realised_array(mask, operation, reason, "use mo.where, or multiply by the mask")
    if not mask.program().device:  # nobody has put it anywhere
        return [unplaced(part) for part in np.nonzero(found)]
    return [on(Tensor.of_buffer(_borrowed(part)), mask.device) for part in np.nonzero(found)]


def _borrowed(array: np.ndarray) -> Any:
    from morpho.base.dtypes import int64
    from morpho.runtime.memory.buffer import borrow

    return borrow(np.ascontiguousarray(array, np.int64), int64)


def _scalar_masks(node: Node, items: list[Any]) -> tuple[Node, list[Any]]:
    """A 0-dimensional mask is a new axis of size 1 or 0: one is put in front and indexed by a mask of one element."""
    if not any(isinstance(item, Tensor) and item.ndim == 0 and item.dtype is bool_ for item in items):
        return node, items
    result: list[Any] = []
    shape: list[Size] = []
    left = list(node.shape)
    for item in items:
        if isinstance(item, Tensor) and item.ndim == 0 and item.dtype is bool_:
            shape.append(1)
            result.append(Tensor.of_node(algebra.reshape(item.node, (1,))))
        else:
            taken = width(item)
            shape, left = shape + left[:taken], left[taken:]
            result.append(item)
    return algebra.reshape(node, (*shape, *left)), result


def prepared(node: Node, key: Any) -> tuple[Node, BasicIndex]:
    """A value and the region of it that a key names."""
    items = as_items(key, len(node.shape))
    node, items = _scalar_masks(node, items)
    items = without_masks(items, node.shape)
    return node, BasicIndex(node.shape, items)


def getitem(x: Tensor, key: Any) -> Tensor:
    """x[key]."""
    if type(key) is int and type(x) is Tensor and (line := row(x, key)) is not None:
        line._base, line._key = x, key
        return line  # type: ignore[no-any-return]
    if not isinstance(x, Tensor) or _is_selection(key):
        return _item(x, key)
    key = tuple(map(_plain, key)) if type(key) is tuple else _plain(key)
    part = _recorded_item(x, key)
    return of_base(part, x, key) if is_basic(key) and part is not x else part


def _plain(item: Any) -> Any:
    """NumPy's integer as one of Python's. A lifted number says that it is one too, and stays an input."""
    return int(item) if issubclass(type(item), np.integer) else item


_LISTS, _ARRAYS = (list, np.bool_, bool), (np.ndarray, Tensor)  # `isinstance` of a union makes the union each time


def _is_selection(key: Any) -> bool:
    """Whether a key is, or holds, what is no part of a program: a mask, whose size is data, or a list."""
    for item in key if type(key) is tuple else (key,):
        if isinstance(item, _LISTS) or (isinstance(item, _ARRAYS) and (
                width(item) != 1 or item.dtype in (bool_, np.bool_))):
            return True
    return False


def _item(x: Tensor, key: Any) -> Tensor:
    if type(key) is Tensor and key.dtype is bool_ and (found := masked(x, key)) is not None:
        return found
    node, region = prepared(x.node, key)
    view = region.read(node)
    if region.is_basic:
        return Tensor.of_node(algebra.reshape(view, region.result))
    return Tensor.of_node(Fancy(view.shape, region.fancy, region.together).read(view))


_recorded_item = view(_item)


def setitem(x: Tensor, key: Any, value: Any) -> None:
    """x[key] = value: x becomes a new value; tensors made from its old one keep theirs."""
    if is_alone(sys.getrefcount(x), OF_ITEM, x, value) and is_statement(sys._getframe(1)):
        assign_item(x, key, value)
        return
    if x._base is not None:
        x._base = OWN
    trace = tracing.current
    if trace is not None and (x.is_realised or type(x._node) is Step or trace.is_outside(x, x._node)):
        raise fail(CompileError, "setitem", "a tensor of the surroundings is written inside a function being compiled",
                   "keep it in a mo.State, or write to a new value such as x + 0 and return that")
    track = getattr(x, "_track", None)
    collects = type(x) is Tensor and isinstance(track, Tracked) and track.wanted
    if collects and not tracing.gradients_off:
        raise fail(ArgumentError, "setitem", "the tensor collects a gradient, which would be that of its old value",
                   "write to a copy such as x * 1, or to a new leaf inside `with mo.no_grad():`")
    if trace is not None:
        made = placed(x, assigned(x, key, value))
        x.replace(made)
        trace.owns(x, made)  # which may be a program that others wrote before
    else:
        if track is None and is_basic(key) and written(x, key, value):
            return
        while True:  # until no other thread has assigned meanwhile: its elements would be lost
            version = x.version()
            if x.replace_if(version, placed(x, assigned(x, key, value))):
                break
    if collects:  # a leaf of other elements
        x.realise()
        x._track.program = None


def placed(x: Tensor, made: Node) -> Node:
    """The new value of a tensor on its device: it stays where it is."""
    if x.is_realised or x.program().device:
        if made.device not in ("", x.device):
            raise fail(DeviceError, "setitem", f"a tensor on {x.device} is given values that lie on {made.device}",
                       f"move them first: value.to({x.device!r})")
        if not made.device and x.device != HOST:
            return on(Tensor.of_node(made), x.device).node
    return made


def chosen(mask: Node, x: Tensor, other: Node) -> Node:
    """x where a mask on its leading axes is false, and `other` where it is true."""
    shape = (*mask.shape, *[1] * (x.ndim - len(mask.shape)))
    return algebra.where(algebra.expand(algebra.reshape(mask, shape), x.shape), other, x.node)


def assigned(x: Tensor, key: Any, value: Any) -> Node:
    """Value of x after x[key] = value."""
    given = as_value(value, x)
    mask = lone_mask(key, x)
    if mask is not None and product(given.shape) == 1:  # no count is needed: choose, and stay lazy
        return chosen(mask, x, algebra.expand(algebra.reshape(given, ()), x.shape))
    node, region = prepared(x.node, key)
    if region.is_basic:
        filled = algebra.reshape(fitted(given, region.result), tuple(region.sizes))
    else:
        check_indices(region)
        view = region.read(node)
        fancy = Fancy(view.shape, region.fancy, region.together)
        filled = fancy.write(view, fitted(given, fancy.result))
    return algebra.reshape(region.write(node, filled), x.shape)


def check_indices(region: BasicIndex) -> None:
    """Indices that are known now must lie inside their axes: later, the tensor would have lost its old value. Inside
    `compile` they are checked when the function runs; so are those of a loop's turn or of `vmap`'s rows."""
    if tracing.current is not None:
        return
    for axis, indices in region.fancy:
        if indices is None or 0 in indices.shape or uses_parameters([indices.node]):
            continue
        found, size = realised_array(indices, "setitem", "an index is needed now"), region.shape[axis]
        for worst in (int(found.min()), int(found.max())):
            if not -size <= worst < size:
                raise fail(IndexFault, "setitem", f"index {worst} is out of range for axis {axis} of size {size}",
                           "negative indices count from the end")


def lone_mask(key: Any, x: Tensor) -> Node | None:
    """The mask, where the whole key is one tensor of booleans on the leading axes."""
    items = key if isinstance(key, tuple) else (key,)
    if len(items) != 1 or not isinstance(items[0], Tensor | np.ndarray):
        return None
    mask = as_node(items[0], "index")
    if mask.dtype is not bool_ or not mask.shape or mask.shape != x.shape[:len(mask.shape)]:
        return None
    return mask


def as_value(value: Any, x: Tensor) -> Node:
    """The assigned value in the tensor's dtype, which an assignment does not change."""
    if is_scalar(value):
        if isinstance(value, complex) and not x.dtype.is_complex:
            raise fail(ArgumentError, "setitem", f"the number {value} does not fit {x.dtype}")
        return scalar_node(value, x.dtype, "setitem")
    node = as_node(value, "setitem")
    order = "biufc".index
    source, target = node.dtype.kind.replace("u", "i"), x.dtype.kind.replace("u", "i")
    if order(source) > order(target):
        raise fail(ArgumentError, "setitem", f"{node.dtype} values do not fit a {x.dtype} tensor",
                   "convert them with astype first")
    if node.dtype in (float64, complex128) and x.dtype not in (float64, complex128):
        _say_rounded(node.dtype, x.dtype)
    return algebra.cast(node, x.dtype)


@cache
def _say_rounded(source: DType, target: DType) -> None:
    """Once for two dtypes: NumPy's arrays are float64 unless told otherwise, so this is seldom meant."""
    log.warning("%s", sentence("setitem", f"{source} values are rounded to the {target} of the tensor that they are "
                                          f"assigned to (said once)",
                               f"write astype({str(target)!r}) where that is meant, or make the tensor {source}"))


def fitted(value: Node, shape: Shape) -> Node:
    """A value broadcast to the shape it is assigned to; extra leading axes of size 1 are dropped."""
    extra = len(value.shape) - len(shape)
    if extra > 0 and all(size == 1 for size in value.shape[:extra]):
        value = algebra.reshape(value, value.shape[extra:])
    fits = len(value.shape) <= len(shape) and all(
        a in (1, b) for a, b in zip(reversed(value.shape), reversed(shape), strict=False))
    if not fits:
        raise fail(ShapeError, "setitem", f"a value of shape {value.shape} does not broadcast to {shape}")
    return algebra.expand(value, shape)
