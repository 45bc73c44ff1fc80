"""Images and lines in other sizes: nearest elements, or lines between them, one axis after another."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.checks import as_real, as_whole, shown
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn.module import Module

RANKS = {"nearest": (1, 2, 3), "linear": (1,), "bilinear": (2,), "trilinear": (3,)}  # mode -> spatial axes


def interpolate(input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                align_corners: bool | None = None) -> mo.Tensor:
    """x[N, C, ...] in another size: `size` for the axes behind the channels, or `scale_factor` times what they are.

    mode: "nearest", or along lines between neighbours: "linear" for x[N, C, L], "bilinear" for x[N, C, H, W],
        "trilinear" for x[N, C, D, H, W].
    align_corners: the first and last elements stay where they are; otherwise elements are areas with centres between.

    >>> mo.nn.interpolate(mo.asarray([[[1.0, 3.0]]]), size=4, mode="linear").numpy()
    array([[[1. , 1.5, 2.5, 3. ]]], dtype=float32)
    """
    x = mo.asarray(input)
    _check_mode("interpolate", mode, align_corners)
    rank = x.ndim - 2
    if rank not in RANKS[mode] or not all(isinstance(length, int) and length > 0 for length in x.shape[2:]):
        taken = " or ".join(map(str, RANKS[mode]))
        raise fail(ShapeError, "interpolate", f"shape {tuple(x.shape)} has not the {taken} known axes behind N, C that "
                                              f"mode {mode!r} takes")
    sizes, steps = _sizes("interpolate", x.shape[2:], size, scale_factor)
    for axis, (length, step) in enumerate(zip(sizes, steps, strict=True), 2):
        if mode == "nearest":
            x = mo.take(x, mo.asarray(_nearest(int(x.shape[axis]), length, step)), axis=axis)
        elif length != x.shape[axis]:
            x = _between(x, axis, length, step, bool(align_corners))
    return x


def _check_mode(name: str, mode: Any, align_corners: Any) -> None:
    if not isinstance(mode, str) or mode not in RANKS:
        raise fail(ArgumentError, name, f"mode {shown(mode)} is unknown", "one of " + ", ".join(RANKS))
    if mode == "nearest" and align_corners is not None:
        raise fail(ArgumentError, name, "align_corners has no meaning for mode 'nearest'", "leave it out")


def _sizes(name: str, lengths: Any, size: Any, scale_factor: Any) -> tuple[list[int], list[float]]:
    """The new length of each axis, and the way in the old one from one element of the new to the next."""
    if (size is None) == (scale_factor is None):
        raise fail(ArgumentError, name, "one of size and scale_factor is wanted")
    given = scale_factor if size is None else size
    items = list(given) if isinstance(given, tuple | list) else [given] * len(lengths)
    if len(items) != len(lengths):
        raise fail(ArgumentError, name, f"{shown(given)} is not one number for each of {len(lengths)} axes")
    if size is None:
        factors = [as_real(item) for item in items]
        if any(factor is None or factor <= 0 for factor in factors):
            raise fail(ArgumentError, name, f"scale_factor={shown(given)} is not made of positive numbers")
        sizes = [math.floor(length * factor) for length, factor in zip(lengths, factors, strict=True)]
        steps = [1 / factor for factor in factors]  # type: ignore[operator]
    else:
        wanted = [as_whole(item) for item in items]
        if any(number is None for number in wanted):
            raise fail(ArgumentError, name, f"size={shown(given)} is not made of whole numbers")
        sizes = [int(number) for number in wanted]  # type: ignore[arg-type]
        steps = [length / max(number, 1) for length, number in zip(lengths, sizes, strict=True)]
    if any(number < 1 for number in sizes):
        raise fail(ArgumentError, name, f"nothing is left of {tuple(lengths)} in the size {tuple(sizes)}")
    return sizes, steps


def _nearest(length: int, size: int, step: float) -> np.ndarray:
    """The old element of every new one; the product is rounded to float32, as PyTorch's is."""
    places = np.floor(np.arange(size, dtype=np.float32) * np.float32(step))
    return np.asarray(np.minimum(places.astype(np.int64), length - 1))


def _between(x: mo.Tensor, axis: int, size: int, step: float, align_corners: bool) -> mo.Tensor:
    """Along lines between neighbours of one axis."""
    length = int(x.shape[axis])
    places = np.arange(size, dtype=np.float64)
    if align_corners:
        places = places * ((length - 1) / (size - 1) if size > 1 else 0.0)
    else:
        places = np.maximum((places + 0.5) * step - 0.5, 0.0)
    first = np.minimum(places.astype(np.int64), length - 1)
    second = np.minimum(first + 1, length - 1)
    along = (size, *(1 for _ in x.shape[axis + 1:]))
    share = mo.asarray((places - first).reshape(along)).astype(x.dtype)
    one, other = (mo.take(x, mo.asarray(numbers), axis=axis) for numbers in (first, second))
    return one * (1 - share) + other * share


class Upsample(Module):
    """`mo.nn.interpolate` as a module.

    >>> mo.nn.Upsample(scale_factor=2)(mo.asarray([[[[1.0, 2.0]]]])).numpy()[0, 0]
    array([[1., 1., 2., 2.],
           [1., 1., 2., 2.]], dtype=float32)
    """

    def __init__(self, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                 align_corners: bool | None = None) -> None:
        _check_mode("Upsample", mode, align_corners)
        if (size is None) == (scale_factor is None):
            raise fail(ArgumentError, "Upsample", "one of size and scale_factor is wanted")
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners)

    def describe(self) -> str:
        how = f"scale_factor={self.scale_factor}" if self.size is None else f"size={self.size}"
        return f"{how}, mode={self.mode!r}"
