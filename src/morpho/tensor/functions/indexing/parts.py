"""Parts of tensors that an assignment goes through: `x[i][j] = v` and `x[i].add_(v)` assign to `x`.

A tensor is a value, and `y = x[i]` is one of its own. A part that no variable holds is none: what is assigned to it is
meant for the tensor it was taken from. So a part remembers its base and its key, and an assignment to a part that only
the expression holds becomes one to the nearest base that something else holds.

>>> x = mo.zeros((2, 3))
>>> x[1][2] = 5
>>> x[1, 2].item()
5.0
"""

from __future__ import annotations

import dis
import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import EllipsisType, FrameType, NoneType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from morpho.base.dims import product
from morpho.base.errors import ArgumentError, fail
from morpho.tensor.convert import following
from morpho.tensor.core import Tensor
from morpho.tensor.recording import local
from morpho.tensor.steps import Step
from morpho.tensor.tools.foreign_calls import part_arguments

BASIC = frozenset({int, slice, NoneType, EllipsisType})  # types of keys whose result is a view of the base
DEEPEST = 8  # parts of parts that are remembered, besides rows of rows
UNKNOWN = False  # the base of a tensor that stands for another one, which nobody could assign to
OWN = True  # the base of a part with a name that was assigned to


# (weak reference to the base, the base's own base, its own key, how many such records are behind this one). A base that
# is a row of memory is held itself: native code makes the part.
Base = tuple[Any, Any, Any, int]


def of_base(part: Tensor, x: Tensor, key: Any) -> Tensor:
    """The part, which remembers that it is `x[key]` of a basic key."""
    base = x._base
    depth = base[3] + 1 if type(base) is tuple else 0
    if depth > DEEPEST:
        base, depth = None, 0
    part._base = weakref.ref(x), base, None if base is None else x._key, depth
    part._key = key
    return part


def is_basic(key: Any) -> bool:
    """Whether a key names a view: integers, slices, None and an ellipsis."""
    if type(key) is tuple:
        return all(type(item) in BASIC for item in key)
    return type(key) in BASIC


class View:
    """The key of a part that is no index: `x.T`, `x.view(-1)`, `x.diagonal()`."""

    def __init__(self, function: Callable[..., Tensor], args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.function, self.args, self.options = function, args, options

    def read(self, base: Tensor) -> Any:
        return self.function(base, *self.args, **self.options)

    def write(self, base: Tensor, part: Tensor) -> None:
        """Assign to the base what the part is, each element to the place it was taken from."""
        count = product(base.shape)
        if type(count) is not int:
            raise fail(ArgumentError, "setitem", f"a view of a tensor of dynamic shape {base.shape} is assigned to",
                       "index the tensor itself: x[:, 0] = value")
        places = self.read(following(np.arange(count).reshape(base.shape)))
        line = base.reshape(-1)
        line[places.reshape(-1)] = part.reshape(-1)
        base[...] = line.reshape(base.shape)


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose result is a view of its tensor in NumPy and PyTorch."""

    @functools.wraps(function)
    def call(self: Tensor, *args: Any, **options: Any) -> Any:
        part = function(self, *args, **options)
        if type(part) is Tensor and part is not self:
            of_base(part, self, View(function, args, options))
        return part

    return call


# -- whether anything but the expression holds a tensor ----------------------------------------------------------------
class _Probe:
    """Counts references to an object in `object[key] = value`, and in `object.method_()`: those of an expression that
    nothing else holds, and of a variable."""

    counts: ClassVar[list[int]] = []

    def __setitem__(self, key: Any, value: Any) -> None:
        self.counts.append(sys.getrefcount(self))

    def method_(self, *args: Any, **options: Any) -> None:
        self.counts.append(sys.getrefcount(self))


def _references() -> tuple[int, int]:
    variable = _Probe()
    _Probe()[0] = variable[0] = 0
    _Probe().method_()
    variable.method_()
    one, of_variable, other, of_other = _Probe.counts
    return one if one < of_variable else 0, other if other < of_other else 0


OF_ITEM, OF_METHOD = _references()  # 0 where this Python counts both alike


def _of_local() -> int:
    local = object()
    return sys.getrefcount(local)


OF_LOCAL = _of_local()  # references to what a local variable alone holds


def is_alone(count: int, least: int, x: Tensor, value: Any = None) -> bool:
    """Whether nothing but the expression itself holds a tensor, counted `count` references, or the recording too, or
    the part of it that is assigned to it: `x[0][1] += 2`."""
    if least and type(value) is Tensor and value._base is x:
        least += 1
    if count == least:
        return type(x) is Tensor
    return count == least + 1 and least > 0 and type(x) is Tensor and _is_recorded(x)


def is_statement(frame: FrameType) -> bool:
    """Whether a frame is at an assignment to an item: a call of `y.__setitem__` has one reference to `y` less."""
    return frame.f_code.co_code[frame.f_lasti] in _ASSIGNMENTS


_ASSIGNMENTS = [dis.opmap[name] for name in ("STORE_SUBSCR", "STORE_SLICE") if name in dis.opmap]


def _of_arguments() -> tuple[int, int, int]:
    """References to a value that only the arguments of a function hold: by place, by place of a `partial`, by name."""

    def counted(value: Any, count: int) -> int:  # as `begin` is called, which holds the value too
        return count

    def call(*args: Any, **options: Any) -> int:
        if args:
            return counted(args[0], sys.getrefcount(args[0]))
        return counted(options["out"], sys.getrefcount(options["out"]))

    def method(kind: str, /, *args: Any) -> int:
        return counted(args[0], sys.getrefcount(args[0]))

    method_of = functools.partial(method, "at")
    return call(_Probe()), method_of(_Probe()), call(out=_Probe())


OF_ARGUMENT, OF_PARTIAL, OF_OPTION = _of_arguments()
_LEAST = {"argument": OF_ARGUMENT, "partial": OF_PARTIAL, "option": OF_OPTION}


def begin(part: Any, count: int, what: str) -> Callable[[], None] | None:
    """Before a function assigns to one of its arguments, to which there are `count` references: what to do afterwards,
    so that the base of a part without a name has the value too."""
    if type(part) is not Tensor or not is_alone(count, _LEAST[what], part) or (path := path_to(part)) is None:
        return None
    part._base = OWN
    return lambda: path.write([*path.parts()[:-1], part])


part_arguments.append(begin)


def reaching(function: Callable[..., Any], first: bool = False) -> Callable[..., Any]:
    """A function that assigns to `out=`, or to its first argument, and through it where that is a part without a name:
    `mo.cumsum(x, out=y[0])`. To be the outermost frame around a function."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        finish = None
        if first and args:
            finish = begin(args[0], sys.getrefcount(args[0]), "argument")
        elif "out" in options:
            finish = begin(options["out"], sys.getrefcount(options["out"]), "option")
        result = function(*args, **options)
        if finish is not None:
            finish()
        return result

    return call


def _is_recorded(x: Tensor) -> bool:
    """Whether a recording holds a tensor: as pending, or as a part of pending ones that has another value already."""
    recording = x._storage if type(x._node) is Step else local.recording if x._base is not None else None
    return any(one is x for one in reversed(getattr(recording, "results", ())))


def refuse_lost(operation: str) -> None:
    raise fail(ArgumentError, operation, "a tensor that nothing holds, such as (x + 1)[0], is assigned to: the value "
                                         "would be lost",
               "give it a name first: y = x + 1; y[0] = value")


# -- assignment --------------------------------------------------------------------------------------------------------
class Path(NamedTuple):
    """A tensor that something holds, and the keys from it to a part."""

    owner: Tensor
    keys: list[Any]

    def parts(self) -> list[Tensor]:
        """The part behind each key, as it is now."""
        parts = []
        part = self.owner
        for key in self.keys:
            part = key.read(part) if type(key) is View else part[key]
            parts.append(part)
        return parts

    def write(self, parts: list[Tensor]) -> None:
        """Assign parts to those they were taken from, the innermost first."""
        for number in reversed(range(len(parts))):
            base, key = parts[number - 1] if number else self.owner, self.keys[number]
            if type(key) is View:
                key.write(base, parts[number])
            else:
                base[key] = parts[number]


def path_to(part: Tensor) -> Path | None:
    """The way to a part from the nearest base that something but parts holds; None where there is no such base."""
    keys: list[Any] = []
    base, key = part._base, part._key
    if type(key) is Changed:
        key = key.key
    while isinstance(base, tuple | Tensor):
        keys.append(key)
        if isinstance(base, Tensor):
            tensor, others = base, OF_LOCAL + 1  # the slot of the part
            base, key = tensor._base, tensor._key
        else:
            reference, base, key, _ = base
            tensor, others = reference(), OF_LOCAL
        if tensor is None:
            continue
        if tensor._base is UNKNOWN:
            return None
        if not _is_dropped(sys.getrefcount(tensor), others, tensor):
            return Path(tensor, keys[::-1])
    return None


def _is_dropped(count: int, least: int, tensor: Tensor) -> bool:
    """Whether nothing but this walk, parts and the recording hold a tensor."""
    return count <= least or (count == least + 1 and _is_recorded(tensor))


class Changed(NamedTuple):
    """The key of a part that was changed in the expression it is in: `x[0].mul_(2).add_(1)`."""

    key: Any


@contextmanager
def changed(part: Tensor) -> Iterator[None]:
    """While this lasts, a part is changed that still stands for a part of its base where nothing else holds it."""
    base, key = part._base, part._key
    yield
    if base is not None:
        part._base, part._key = base, key if type(key) is Changed else Changed(key)


def assign_result(x: Tensor, operation: str, change: Callable[[Tensor], object]) -> None:
    """`x.add_(1)` of a part that nothing holds: the change is made to that part of its base."""
    path = path_to(x)
    if path is None:
        refuse_lost(operation)
        return
    parts = path.parts()
    if type(x._key) is Changed:
        parts[-1] = x
    change(parts[-1])
    path.write(parts)


def assign_item(x: Tensor, key: Any, value: Any) -> None:
    """x[key] = value of a part that nothing holds: its base is assigned to."""
    if type(key) is int and type(x._key) is int and (path := path_to(x)) is not None and len(path.keys) == 1:
        path.owner[x._key, key] = value  # one index says the same
        return
    assign_result(x, "setitem", lambda part: part.__setitem__(key, value))
