"""Distances between points."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.base.shapes import broadcast
from morpho.tensor.autodiff.precision import rounded_once
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import reduce
from morpho.tensor.functions.move import broadcast_to
from morpho.tensor.functions.searching.search import take
from morpho.tensor.operands import promoted


@rounded_once
def cdist(x1: Any, x2: Any, /, *, p: float = 2.0) -> Tensor:
    """The p-norm distance of every point of x1[..., P, M] to every point of x2[..., R, M]: (..., P, R). Differences
    are taken before squares, so that near points are as exact as far ones. The slope at distance 0 is 0.

    >>> mo.cdist([[0.0, 0.0]], [[3.0, 4.0], [0.0, 1.0]]).tolist()
    [[5.0, 1.0]]
    """
    a, b = (Tensor.of_node(node) for node in promoted("cdist", x1, x2, floating=True))
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
        raise fail(ShapeError, "cdist", f"shapes {a.shape} and {b.shape} are not points of one number of axes")
    batch = broadcast("cdist", a.shape[:-2], b.shape[:-2])
    a, b = broadcast_to(a, (*batch, *a.shape[-2:])), broadcast_to(b, (*batch, *b.shape[-2:]))
    return norm_of(ew.abs(a[..., :, None, :] - b[..., None, :, :]), _norm("cdist", p))


def _norm(name: str, p: Any) -> float:
    if not isinstance(p, Real) or not float(p) >= 0:
        raise fail(ArgumentError, name, f"p={p!r} is not a number of at least 0")
    return float(p)


def norm_of(sizes: Tensor, p: float) -> Tensor:
    """The p-norm of magnitudes along the last axis, with slope 0 where all are 0."""
    if p == 0:
        return reduce.sum(ew.astype(ew.not_equal(sizes, 0), sizes.dtype), axis=-1)
    if p == 1:
        return reduce.sum(sizes, axis=-1)
    if np.isinf(p):
        return reduce.max(sizes, axis=-1)
    total = reduce.sum(sizes * sizes if p == 2 else ew.pow(sizes, p), axis=-1)
    none = ew.equal(total, 0)
    safe = ew.where(none, 1.0, total)
    return ew.where(none, 0.0, ew.sqrt(safe) if p == 2 else ew.pow(safe, 1 / p))


@rounded_once
def pdist(x: Any, /, *, p: float = 2.0) -> Tensor:
    """The p-norm distances of all pairs of points of x[N, M]: (0, 1), (0, 2), ..., (1, 2), ...

    >>> mo.pdist([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]).tolist()
    [5.0, 1.0, 4.242640495300293]
    """
    points = Tensor.of_node(promoted("pdist", x, floating=True)[0])
    if points.ndim != 2 or not isinstance(points.shape[0], int):
        raise fail(ShapeError, "pdist", f"shape {points.shape} is not [N, M]")
    first, second = (np.asarray(index, np.int64) for index in np.triu_indices(points.shape[0], 1))
    return norm_of(ew.abs(take(points, first, axis=0) - take(points, second, axis=0)), _norm("pdist", p))
