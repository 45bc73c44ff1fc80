"""Images and lines in other sizes: nearest elements, lines or cubics between them, or means, one axis after another."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.checks import as_real, as_whole, shown
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn.module import Module
from morpho.tensor.autodiff.precision import rounded_once
from morpho.tensor.convert import following, unplaced

# mode -> spatial axes
RANKS = {"nearest": (1, 2, 3), "nearest-exact": (1, 2, 3), "area": (1, 2, 3), "linear": (1,), "bilinear": (2,),
         "trilinear": (3,), "bicubic": (2,)}
WITHOUT_CORNERS = ("nearest", "nearest-exact", "area")
ANTIALIASED = ("bilinear", "bicubic")


@rounded_once
def interpolate(input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
                antialias: bool = False) -> mo.Tensor:
    """x[N, C, ...] in another size: `size` for the axes behind the channels, or `scale_factor` times what they are.

    mode: "nearest", or along lines between neighbours: "linear" for x[N, C, L], "bilinear" for x[N, C, H, W],
        "trilinear" for x[N, C, D, H, W]; "bicubic" between four for x[N, C, H, W]; "area", the mean of what an element
        covers; "nearest-exact", the nearest by the middles of elements.
    align_corners: the first and last elements stay where they are; otherwise elements are areas with centres between.
    recompute_scale_factor: the way between elements follows from the sizes, not from `scale_factor`.
    antialias: a smaller image is of all elements that are near, not of two or four ("bilinear", "bicubic").

    >>> mo.nn.interpolate(mo.asarray([[[1.0, 3.0]]]), size=4, mode="linear").numpy()
    array([[[1. , 1.5, 2.5, 3. ]]], dtype=float32)
    """
    x = following(input)
    _check_mode("interpolate", mode, align_corners)
    if antialias and mode not in ANTIALIASED:
        raise fail(ArgumentError, "interpolate", f"antialias has no meaning for mode {mode!r}", "leave it out")
    if recompute_scale_factor and size is not None:
        raise fail(ArgumentError, "interpolate", "recompute_scale_factor has no meaning beside size", "leave it out")
    rank = x.ndim - 2
    if rank not in RANKS[mode] or not all(isinstance(length, int) and length > 0 for length in x.shape[2:]):
        taken = " or ".join(map(str, RANKS[mode]))
        raise fail(ShapeError, "interpolate", f"shape {tuple(x.shape)} has not the {taken} known axes behind N, C that "
                                              f"mode {mode!r} takes")
    sizes, steps = _sizes("interpolate", x.shape[2:], size, scale_factor)
    if recompute_scale_factor:
        steps = [int(length) / size for length, size in zip(x.shape[2:], sizes, strict=True)]
    for axis, (length, step) in enumerate(zip(sizes, steps, strict=True), 2):
        before = int(x.shape[axis])
        if mode in ("nearest", "nearest-exact"):
            x = mo.take(x, unplaced(_nearest(before, length, step, 0.5 * (mode != "nearest"))), axis=axis)
        elif mode == "area":
            x = _weighted(x, axis, *_covered(before, length))
        elif antialias:
            if length != before:  # as PyTorch has it: an axis of the same size is left, whatever scale_factor is
                x = _weighted(x, axis, *_near(before, length, _way(before, length, step, align_corners), mode))
        elif mode == "bicubic":
            x = _weighted(x, axis, *_four(before, length, step, bool(align_corners)))
        elif length != x.shape[axis]:
            x = _between(x, axis, length, step, bool(align_corners))
    return x


def _check_mode(name: str, mode: Any, align_corners: Any) -> None:
    if not isinstance(mode, str) or mode not in RANKS:
        raise fail(ArgumentError, name, f"mode {shown(mode)} is unknown", "one of " + ", ".join(RANKS))
    if mode in WITHOUT_CORNERS and align_corners is not None:
        raise fail(ArgumentError, name, f"align_corners has no meaning for mode {mode!r}", "leave it out")


def _sizes(name: str, lengths: Any, size: Any, scale_factor: Any) -> tuple[list[int], list[float]]:
    """The new length of each axis, and the way in the old one from one element of the new to the next."""
    if (size is None) == (scale_factor is None):
        raise fail(ArgumentError, name, "exactly one of size and scale_factor must be given")
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


def _nearest(length: int, size: int, step: float, middle: float) -> np.ndarray:
    """The old element of every new one; the product is rounded to float32, as PyTorch's is."""
    places = np.floor(((np.arange(size) + middle) * float(np.float32(step))).astype(np.float32))
    return np.asarray(np.minimum(places.astype(np.int64), length - 1))


def _way(length: int, size: int, step: float, align_corners: Any) -> float:
    """The way in the old axis from one new element to the next."""
    if not align_corners:
        return step
    return (length - 1) / (size - 1) if size > 1 else 0.0


def _weighted(x: mo.Tensor, axis: int, places: np.ndarray, weights: np.ndarray) -> mo.Tensor:
    """Sums of old elements, each times its weight: `places` and `weights` have a row for every addend."""
    along = (-1, *(1 for _ in x.shape[axis + 1:]))
    total: Any = None
    for numbers, shares in zip(places, weights, strict=True):
        part = mo.take(x, unplaced(numbers), axis=axis) * unplaced(shares.reshape(along)).astype(x.dtype)
        total = part if total is None else total + part
    return total  # type: ignore[no-any-return]


def _runs(length: int, first: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of runs of `count` elements from `first` on, a row for the k-th of each; and whether there is a k-th."""
    k = np.arange(int(count.max()))[:, None]
    return np.minimum(first + k, length - 1), k < count


def _covered(length: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The elements that a new one covers, from floor(i * length / size) to ceil((i + 1) * length / size)."""
    i = np.arange(size)
    first, end = i * length // size, -(-(i + 1) * length // size)
    places, there = _runs(length, first, end - first)
    return places, there / (end - first)


def _cubic(t: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel: cubics that are 1 at 0 and 0 at the other whole numbers."""
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    return np.where(t <= 1, near, np.where(t < 2, ((t - 5) * t + 8) * t * a - 4 * a, 0.0))


def _four(length: int, size: int, step: float, align_corners: bool) -> tuple[np.ndarray, np.ndarray]:
    """Four neighbours; those beyond an end are the last."""
    places = np.arange(size) * _way(length, size, step, True) if align_corners else (np.arange(size) + 0.5) * step - 0.5
    first = np.floor(places)
    k = np.arange(-1, 3)[:, None]
    return np.clip(first.astype(np.int64) + k, 0, length - 1), _cubic(places - first - k, -0.75)


def _near(length: int, size: int, way: float, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """All elements under a triangle or a cubic that is as wide as the new elements lie apart."""
    wide = max(way, 1.0)
    reach = (1.0 if mode == "bilinear" else 2.0) * wide
    middle = (np.arange(size) + 0.5) * way
    first = np.maximum((middle - reach + 0.5).astype(np.int64), 0)
    places, there = _runs(length, first, np.minimum((middle + reach + 0.5).astype(np.int64), length) - first)
    t = (first + np.arange(len(places))[:, None] - middle + 0.5) / wide
    weights = there * (np.maximum(1 - np.abs(t), 0.0) if mode == "bilinear" else _cubic(t, -0.5))
    return places, weights / weights.sum(0)


def _between(x: mo.Tensor, axis: int, size: int, step: float, align_corners: bool) -> mo.Tensor:
    """Along lines between neighbours of one axis."""
    length = int(x.shape[axis])
    places = np.arange(size, dtype=np.float64)
    if align_corners:
        places = places * _way(length, size, step, True)
    else:
        places = np.maximum((places + 0.5) * step - 0.5, 0.0)
    first = np.minimum(places.astype(np.int64), length - 1)
    second = np.minimum(first + 1, length - 1)
    along = (size, *(1 for _ in x.shape[axis + 1:]))
    share = unplaced((places - first).reshape(along)).astype(x.dtype)
    one, other = (mo.take(x, unplaced(numbers), axis=axis) for numbers in (first, second))
    return one * (1 - share) + other * share


class Upsample(Module):
    """`mo.nn.interpolate` as a module.

    >>> mo.nn.Upsample(scale_factor=2)(mo.asarray([[[[1.0, 2.0]]]])).numpy()[0, 0]
    array([[1., 1., 2., 2.],
           [1., 1., 2., 2.]], dtype=float32)
    """

    def __init__(self, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                 align_corners: bool | None = None, recompute_scale_factor: bool | None = None) -> None:
        _check_mode("Upsample", mode, align_corners)
        if (size is None) == (scale_factor is None):
            raise fail(ArgumentError, "Upsample", "exactly one of size and scale_factor must be given")
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners,
                           self.recompute_scale_factor)

    def describe(self) -> str:
        how = f"scale_factor={self.scale_factor}" if self.size is None else f"size={self.size}"
        return f"{how}, mode={self.mode!r}"
