"""The dtypes, and promotion between them as the Array API standard has it (no value-based casting).

>>> promote(int16, float32)
float32
>>> promote(uint8, int8)
int16
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from morpho.base.errors import DTypeError, fail


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DType:
    """One element type. `kind` is b(ool), i(nt), u(nsigned), f(loat) or c(omplex); `code` is its number in a record.

    `llvm` is the type in memory; a bool is a byte there. NumPy has no bfloat16: its bits travel as uint16.
    """

    name: str
    kind: str
    itemsize: int
    numpy: np.dtype
    llvm: str
    code: int

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        """There is one object for each dtype; like NumPy's it also equals its name, and NumPy's and Python's types.

        >>> float32 == "float32", float32 == np.dtype(np.float32), float64 == float, float32 == "float64"
        (True, True, True, False)
        """
        if isinstance(other, DType):
            return self is other
        if other is None or not isinstance(other, (str, type, np.dtype)):
            return NotImplemented
        try:
            return as_dtype(other) is self
        except DTypeError:
            return False

    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[object, ...]:
        return as_dtype, (self.name,)  # a copy of a module that holds a dtype holds the same one

    def __call__(self, value: object = 0) -> object:
        """A value as a tensor of this dtype: `mo.float32(3)`."""
        return makers[0](value, dtype=self)

    @property
    def __numpy_dtype__(self) -> np.dtype:
        """The NumPy dtype, for libraries that call `np.dtype(self)` (from NumPy 2.4 on).

        NumPy has no bfloat16: a TypeError says so.
        """
        if self is bfloat16:
            raise AttributeError("NumPy has no bfloat16")
        return self.numpy

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def is_inexact(self) -> bool:
        """Whether values vary: floats and complex numbers have gradients."""
        return self.kind in "fc"

    @property
    def is_numeric(self) -> bool:
        return self.kind != "b"

    @property
    def compute(self) -> DType:
        """The dtype arithmetic runs in: half floats compute in float32 and round once per operation."""
        return float32 if self is float16 or self is bfloat16 else self


makers: list[Callable[..., object]] = []  # `asarray`, once tensors are there
bool_ = DType("bool", "b", 1, np.dtype(np.bool_), "i8", 0)
int8 = DType("int8", "i", 1, np.dtype(np.int8), "i8", 1)
int16 = DType("int16", "i", 2, np.dtype(np.int16), "i16", 2)
int32 = DType("int32", "i", 4, np.dtype(np.int32), "i32", 3)
int64 = DType("int64", "i", 8, np.dtype(np.int64), "i64", 4)
uint8 = DType("uint8", "u", 1, np.dtype(np.uint8), "i8", 5)
uint16 = DType("uint16", "u", 2, np.dtype(np.uint16), "i16", 6)
uint32 = DType("uint32", "u", 4, np.dtype(np.uint32), "i32", 7)
uint64 = DType("uint64", "u", 8, np.dtype(np.uint64), "i64", 8)
float16 = DType("float16", "f", 2, np.dtype(np.float16), "half", 9)
bfloat16 = DType("bfloat16", "f", 2, np.dtype(np.uint16), "bfloat", 10)
float32 = DType("float32", "f", 4, np.dtype(np.float32), "float", 11)
float64 = DType("float64", "f", 8, np.dtype(np.float64), "double", 12)
complex64 = DType("complex64", "c", 8, np.dtype(np.complex64), "", 13)
complex128 = DType("complex128", "c", 16, np.dtype(np.complex128), "", 14)

ALL = (bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64,
       complex64, complex128)
BY_NAME = {dtype.name: dtype for dtype in ALL}
BY_NUMPY = {dtype.numpy: dtype for dtype in ALL if dtype is not bfloat16}
_PYTHON = {bool: bool_, int: int64, float: float64, complex: complex128}


def as_dtype(value: object) -> DType:
    """The dtype meant by a DType, its name, a NumPy dtype, or a Python number type."""
    if isinstance(value, DType):
        return value
    if isinstance(value, np.dtype) and value in BY_NUMPY:
        return BY_NUMPY[value]
    if isinstance(value, str) and value in BY_NAME:
        return BY_NAME[value]
    try:
        if isinstance(value, type) and value in _PYTHON:
            return _PYTHON[value]
        if getattr(value, "name", None) == "bfloat16" or getattr(value, "__name__", None) == "bfloat16":
            return bfloat16  # the extension dtype of ml_dtypes, known by its name alone
        return BY_NUMPY[np.dtype(value)]  # type: ignore[call-overload]
    except Exception:  # of an odd object; and NumPy reads texts as little programs: "," is a SyntaxError
        raise fail(DTypeError, "dtype", f"{value!r} is not a dtype Morpho has",
                   "the dtypes are " + ", ".join(BY_NAME)) from None


_SIGNED = {1: int8, 2: int16, 4: int32, 8: int64}


def _promote(a: DType, b: DType) -> DType | None:
    if a is b:
        return a
    if a.kind > b.kind:  # alphabetical: b < c < f < i < u; order the pair once
        a, b = b, a
    if a.kind == "b":
        return b
    if a.kind == b.kind:
        if a.kind == "f" and a.itemsize == b.itemsize == 2:
            return float32  # float16 with bfloat16: the smallest that holds both
        return a if a.itemsize >= b.itemsize else b
    if (a.kind, b.kind) == ("i", "u"):
        if a.itemsize > b.itemsize:
            return a
        return _SIGNED.get(2 * b.itemsize)
    if (a.kind, b.kind) == ("c", "f"):
        return complex128 if float64 in (a, b) or a is complex128 else a
    if a.kind in "cf":  # a float or complex with an integer keeps its own width
        return a
    return None


_TABLE = {(a, b): _promote(a, b) for a in ALL for b in ALL}


def promote(a: DType, b: DType, operation: str = "promote") -> DType:
    """The common dtype of two, or an error when there is none (uint64 with a signed integer)."""
    found = _TABLE[a, b]
    if found is None:
        raise fail(DTypeError, operation, f"{a} and {b} have no common dtype", "convert one of them with astype")
    return found
