"""Description of the namespace: dtypes, their limits and promotions, devices and capabilities."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from morpho.backends.registry import canonical, default_device, memory_of
from morpho.backends.registry import devices as all_devices
from morpho.base.dtypes import (
    ALL,
    BY_NAME,
    DType,
    as_dtype,
    bfloat16,
    complex64,
    complex128,
    float32,
    float64,
    promote,
)
from morpho.base.errors import ArgumentError, DTypeError, fail
from morpho.base.shapes import MOST_DIMENSIONS
from morpho.tensor.core import Tensor
from morpho.tensor.scalars import DEFAULT_COMPLEX, DEFAULT_FLOAT, DEFAULT_INT, is_scalar, scalar_dtype

API_VERSION = "2024.12"

_KINDS = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
          "complex floating": "c", "numeric": "iufc"}


@dataclass(frozen=True)
class FloatInfo:
    """Limits of a floating dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType

    @property
    def tiny(self) -> float:
        """The smallest normal number, by NumPy's and PyTorch's older name."""
        return self.smallest_normal

    @property
    def resolution(self) -> float:
        """10**-precision, as NumPy and PyTorch have it."""
        return 10.0 ** -int(-math.log10(self.eps))


@dataclass(frozen=True)
class IntegerInfo:
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(value: Any) -> DType:
    return value.dtype if isinstance(value, Tensor) else as_dtype(value)


def finfo(type: Any, /) -> FloatInfo:
    """Limits of a floating dtype; of a complex one, those of its parts.

    >>> mo.finfo(mo.float32).max, mo.finfo(mo.bfloat16).bits
    (3.4028234663852886e+38, 16)
    """
    dtype = _dtype_of(type)
    dtype = {complex64: float32, complex128: float64}.get(dtype, dtype)
    if not dtype.is_float:
        raise fail(DTypeError, "finfo", f"dtype {dtype} is not floating", "use iinfo")
    if dtype is bfloat16:
        top = float.fromhex("0x1.fep127")
        return FloatInfo(16, 2.0**-7, top, -top, 2.0**-126, dtype)
    info = np.finfo(dtype.numpy)
    return FloatInfo(info.bits, float(info.eps), float(info.max), float(info.min), float(info.smallest_normal), dtype)


def iinfo(type: Any, /) -> IntegerInfo:
    """Limits of an integer dtype.

    >>> mo.iinfo(mo.int8).min, mo.iinfo(mo.int8).max
    (-128, 127)
    """
    dtype = _dtype_of(type)
    if not dtype.is_integer:
        raise fail(DTypeError, "iinfo", f"dtype {dtype} is not an integer", "use finfo")
    info = np.iinfo(dtype.numpy)
    return IntegerInfo(info.bits, int(info.max), int(info.min), dtype)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a name such as 'integral', another dtype, or a tuple of those.

    >>> mo.isdtype(mo.int16, "integral"), mo.isdtype(mo.float32, ("bool", mo.float64))
    (True, False)
    """
    found = as_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(found, one) for one in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return found.kind in _KINDS[kind]
    if isinstance(kind, str) and kind not in BY_NAME:
        raise fail(ArgumentError, "isdtype", f"kind {kind!r} is unknown", "the kinds are " + ", ".join(_KINDS))
    return found is as_dtype(kind)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether a dtype (or a tensor's) promotes to another without loss of kind or width.

    >>> mo.can_cast(mo.int16, mo.int32), mo.can_cast(mo.float32, mo.int32)
    (True, False)
    """
    target = as_dtype(to)
    try:
        return promote(_dtype_of(from_), target) is target
    except DTypeError:
        return False


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype of an operation on these tensors, dtypes and Python numbers; values do not matter.

    >>> mo.result_type(mo.float32, 2.0), mo.result_type(mo.int32, mo.uint32)
    (float32, int64)
    """
    found: DType | None = None
    numbers = [value for value in arrays_and_dtypes if is_scalar(value)]
    for value in arrays_and_dtypes:
        if not is_scalar(value):
            dtype = _dtype_of(value)
            found = dtype if found is None else promote(found, dtype, "result_type")
    if found is None:
        raise fail(ArgumentError, "result_type", "there is no tensor or dtype among the arguments")
    for value in numbers:
        found = scalar_dtype(value, found, "result_type")
    return found


class NamespaceInfo:
    """Result of `mo.__array_namespace_info__()`: capabilities, devices and dtypes, as in the standard."""

    def capabilities(self) -> dict[str, Any]:
        """Capabilities of this implementation."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MOST_DIMENSIONS}

    def default_device(self) -> str:
        """Where tensors are made."""
        return memory_of(default_device())

    def devices(self) -> list[str]:
        """The devices that tensors can lie on; `mo.devices()` has those that only compute, too."""
        return [device for device in all_devices() if memory_of(device) == device]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """Default dtypes of Python numbers."""
        _check(device)
        return {"real floating": DEFAULT_FLOAT, "complex floating": DEFAULT_COMPLEX, "integral": DEFAULT_INT,
                "indexing": DEFAULT_INT}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The standard's dtypes of a kind, or all of them, by name. Morpho has `float16` and `bfloat16` besides."""
        _check(device)
        return {dtype.name: dtype for dtype in ALL if (kind is None or isdtype(dtype, kind))
                and dtype.name not in ("float16", "bfloat16")}


def _check(device: Any) -> None:
    if device is not None:
        canonical(device, "dtypes")


def array_namespace_info() -> NamespaceInfo:
    """Capabilities, devices and dtypes of this namespace."""
    return NamespaceInfo()


def array_namespace(self: Tensor, /, *, api_version: str | None = None) -> Any:
    """The module `morpho`, which has the functions of the Array API standard."""
    if api_version is not None and api_version not in ("2021.12", "2022.12", "2023.12", API_VERSION):
        raise fail(ArgumentError, "__array_namespace__", f"version {api_version!r} of the standard is not there",
                   f"the newest is {API_VERSION}")
    return sys.modules["morpho"]
