"""Numbers among the arguments of a compiled function, as inputs of its program instead of constants.

A compiled function that is called with one number and then with another is traced with a `LiftedNumber` in its place.
It is a number to whoever looks (`isinstance(n, int)`), and beside a tensor it is the value of an input. Whatever asks
for the number itself (a shape, `range`, `if`, `math.exp`) gets it, and is noted: such a number stays a constant.
Python's numbers take the dtype of what they meet (`LiftedNumber`), NumPy's have one (`LiftedScalar`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from morpho.base.dtypes import BY_NUMPY, DType, bfloat16, float16, float32, float64, int64, uint64
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast, constant

LARGEST_INT = (1 << 31) - 1  # an integer beyond it is a constant: sums and products of lifted ones stay in int64
EXACT = 1 << 53  # integers up to it are float64 numbers


@dataclass
class Lifting:
    """Lifted numbers of a trace, by their positions among the function's numbers."""

    seen: set[int] = field(default_factory=set)  # whose value was asked for: constants of the program
    limits: dict[int, tuple[int, int]] = field(default_factory=dict)  # of integers beside tensors of small dtypes
    constants: dict[int, tuple[LiftedNumber, DType]] = field(default_factory=dict)  # by serial of a node
    is_indexing: bool = False  # one of them is an index

    def fits(self, place: int, value: float) -> bool:
        """Whether the program is right for this number."""
        low, high = self.limits.get(place, (-LARGEST_INT, LARGEST_INT))
        return isinstance(value, float) or low <= value <= high


class LiftedNumber:
    """A number that is an input of the program being traced, or a sum, difference or product of such."""

    __slots__ = ("_at", "_bound", "_lifting", "_places", "_value", "node")

    def __init__(self, value: Any, node: Node, lifting: Lifting, places: frozenset[int],
                 at: Callable[[Any], Any], bound: int = LARGEST_INT) -> None:
        self._value, self.node, self._lifting, self._places, self._at = value, node, lifting, places, at
        self._bound = bound  # of an integer's magnitude, for every number it may be

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._value)

    def seen(self) -> Any:
        """The number itself, which is then a constant of the program."""
        self._lifting.seen |= self._places
        return self._value

    def at(self, values: Any) -> Any:
        """Result with these numbers as arguments, by position."""
        return self._at(values)

    def as_index(self) -> Node:
        """An integer as a position on an axis, found when the program runs."""
        self._lifting.is_indexing = True
        return self.node

    def in_dtype(self, dtype: DType) -> Node | None:
        """The value in a dtype, rounded as the constant would be; None where the number has to be one."""
        number = self.node
        if dtype.kind in "bc" or (dtype.is_integer and not self._fits(dtype)):
            return None
        if dtype.is_float and dtype.itemsize < 4:
            if dtype is not bfloat16 and isinstance(self._value, float):
                return None  # a kernel rounds to float32 first, a constant does not
            number = cast(number, float32)
        made = cast(number, dtype)
        self._lifting.constants[made.serial] = (self, dtype)
        return made

    def _fits(self, dtype: DType) -> bool:
        info = np.iinfo(dtype.numpy)
        if isinstance(self._value, float):
            return False
        if info.min <= -self._bound and self._bound <= info.max:
            return True
        if len(self._places) != 1 or self.node.op.name != "parameter":
            return False
        place, = self._places
        low, high = self._lifting.limits.get(place, (-LARGEST_INT, LARGEST_INT))
        self._lifting.limits[place] = max(low, int(info.min)), min(high, int(info.max))
        return bool(info.min <= self._value <= info.max)

    # -- arithmetic of numbers: exact as Python's, or with the constant ----------------------------------------------
    def _operand(self, other: Any) -> tuple[Node, int, frozenset[int], Callable[[Any], Any]] | None:
        if type(other) is LiftedNumber:
            return other.node, other._bound, other._places, other._at
        if type(other) is int and abs(other) <= EXACT:
            return constant(other, int64), abs(other), frozenset(), lambda values: other
        return (constant(other, float64), 0, frozenset(), lambda values: other) if type(other) is float else None

    def _combined(self, name: str, function: Callable[[Any, Any], Any], other: Any, swapped: bool = False) -> Any:
        found = self._operand(other)
        value = other._value if type(other) is LiftedNumber else other
        pair = (value, self._value) if swapped else (self._value, value)
        result = function(*pair) if isinstance(value, int | float) else NotImplemented
        if found is None or type(result) not in (int, float):
            return result if result is NotImplemented else function(*((value, self.seen()) if swapped else
                                                                      (self.seen(), value)))
        node, bound, places, at = found
        whole = type(result) is int
        size = (self._bound * bound if name == "multiply" else self._bound + bound) if whole else 0
        largest = max(bound if type(value) is int else 0, self._bound if type(self._value) is int else 0)
        if size > EXACT or (not whole and largest > EXACT):
            self._lifting.seen |= places
            return function(*((value, self.seen()) if swapped else (self.seen(), value)))
        dtype = int64 if whole else float64
        nodes = [cast(self.node, dtype), cast(node, dtype)]
        mine = self._at

        def evaluate(values: Any) -> Any:
            return function(at(values), mine(values)) if swapped else function(mine(values), at(values))

        made = build(name, *(reversed(nodes) if swapped else nodes))
        return LiftedNumber(result, made, self._lifting, self._places | places, evaluate, size)

    def __add__(self, other: Any) -> Any:
        return self._combined("add", operator.add, other)

    def __radd__(self, other: Any) -> Any:
        return self._combined("add", operator.add, other, swapped=True)

    def __sub__(self, other: Any) -> Any:
        return self._combined("subtract", operator.sub, other)

    def __rsub__(self, other: Any) -> Any:
        return self._combined("subtract", operator.sub, other, swapped=True)

    def __mul__(self, other: Any) -> Any:
        return self._combined("multiply", operator.mul, other)

    def __rmul__(self, other: Any) -> Any:
        return self._combined("multiply", operator.mul, other, swapped=True)

    def __neg__(self) -> Any:
        mine = self._at
        return LiftedNumber(-self._value, build("negative", self.node), self._lifting, self._places,
                            lambda values: -mine(values), self._bound)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.seen(), name)


class LiftedScalar(LiftedNumber):
    """A number of NumPy's that is an input of the program being traced: beside tensors it is one, of its own dtype."""

    __slots__ = ()

    def strong(self) -> Node:
        """The value as that of a tensor."""
        self._lifting.constants[self.node.serial] = (self, self.node.dtype)
        return self.node

    def as_index(self) -> Node:
        self._lifting.is_indexing = True
        return cast(self.node, int64)

    def in_dtype(self, dtype: DType) -> Node | None:
        return None

    def _combined(self, name: str, function: Callable[[Any, Any], Any], other: Any, swapped: bool = False) -> Any:
        """Sums, differences and products are rounded, and wrap, as NumPy's; what else there is asks for the number."""
        if type(other) is LiftedNumber:
            other = other.seen()
        known = type(other) is LiftedScalar
        value = other._value if known else other
        if type(value) not in (int, float) and type(value) not in _KINDS:
            return NotImplemented
        result = function(value, self._value) if swapped else function(self._value, value)
        dtype = _KINDS.get(type(result))
        if dtype is None or dtype.kind not in "iuf" or dtype is float16:
            self._lifting.seen |= self._places | (other._places if known else frozenset())
            return result
        nodes = [cast(self.node, dtype), cast(other.node, dtype) if known else constant(value, dtype)]
        mine, at = self._at, other._at if known else lambda values: value

        def evaluate(values: Any) -> Any:
            return function(at(values), mine(values)) if swapped else function(mine(values), at(values))

        made = build(name, *(reversed(nodes) if swapped else nodes))
        return LiftedScalar(result, made, self._lifting, self._places | (other._places if known else frozenset()),
                            evaluate)

    def __neg__(self) -> Any:
        mine = self._at
        if self.node.dtype.kind not in "if":
            return -self.seen()
        return LiftedScalar(-self._value, build("negative", self.node), self._lifting, self._places,
                            lambda values: -mine(values))


_KINDS = {dtype.type: known for dtype, known in BY_NUMPY.items()}  # NumPy's classes of numbers, and their dtypes


def dtype_of(value: Any) -> DType | None:
    """The dtype of an input that takes the place of this number; None where there is none."""
    if type(value) in (int, float):
        return int64 if type(value) is int else float64
    return _KINDS.get(type(value))


def lifted_index(item: Any) -> Any:
    """A position on an axis that is found when the program runs, as a node, where an index is a lifted integer; else
    the index itself."""
    if type(item) is LiftedNumber and isinstance(item, int):
        return item.as_index()
    if type(item) is not LiftedScalar:
        return item
    return item.as_index() if isinstance(item, np.integer) and item.node.dtype is not uint64 else item.seen()


def _asks(name: str) -> Callable[..., Any]:
    """A method of numbers that needs the number."""
    def method(self: LiftedNumber, *arguments: Any) -> Any:
        if not all(isinstance(one, int | float | complex | str | np.generic) for one in arguments):
            return NotImplemented  # a tensor knows what to do
        value = self.seen()
        plain = [one.seen() if issubclass(type(one), LiftedNumber) else one for one in arguments]
        found = getattr(type(value), name, None)
        if found is None:
            raise TypeError(f"{type(value).__name__} has no {name}")
        return found(value, *plain)

    method.__name__ = name
    return method


for _name in ("bool", "int", "float", "complex", "eq", "ne", "lt", "le", "gt", "ge", "hash", "repr", "str", "format",
              "abs", "pos", "invert", "round", "trunc", "floor", "ceil", "truediv", "rtruediv", "floordiv", "rfloordiv",
              "mod", "rmod", "divmod", "rdivmod", "pow", "rpow", "and", "rand", "or", "ror", "xor", "rxor", "lshift",
              "rlshift", "rshift", "rrshift", "index"):
    setattr(LiftedNumber, f"__{_name}__", _asks(f"__{_name}__"))
