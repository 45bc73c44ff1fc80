"""Polynomials by linear algebra: fitted by least squares, solved by eigenvalues. `mo.polyval` evaluates them."""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.dtypes import DType, complex64, complex128
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.base.shapes import as_integer
from morpho.linalg.general import eigvals
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import reduce
from morpho.tensor.functions.calculus.curves import vander
from morpho.tensor.functions.create import eye, zeros
from morpho.tensor.functions.linalg import lstsq
from morpho.tensor.functions.move import concat
from morpho.tensor.operands import promoted


def polyfit(x: Any, y: Any, deg: int, /, *, rcond: float | None = None, w: Any = None) -> Tensor:
    """The coefficients, highest power first, of the polynomial of degree `deg` that is nearest to the points (x, y) by
    least squares; `w` are weights of the distances, and several columns of y are fitted side by side.

    >>> mo.polyfit([0.0, 1.0, 2.0, 3.0], [1.0, 3.0, 5.0, 7.0], 1).numpy().round(3).tolist()
    [2.0, 1.0]
    """
    points, values = (Tensor.of_node(node) for node in promoted("polyfit", x, y, floating=True))
    degree = as_integer(deg, "polyfit", "deg")
    if degree < 0:
        raise fail(ArgumentError, "polyfit", f"a degree of {degree} is below 0")
    if points.ndim != 1 or values.ndim not in (1, 2) or values.shape[0] != points.shape[0] or points.shape[0] == 0:
        raise fail(ShapeError, "polyfit", f"shapes {points.shape} and {values.shape} are no points")
    powers = vander(points, degree + 1)
    if w is not None:
        _, given = promoted("polyfit", points, w)
        weights = Tensor.of_node(given)
        powers, values = powers * weights[:, None], values * (weights if values.ndim == 1 else weights[:, None])
    scale = ew.sqrt(reduce.sum(powers * powers, axis=0))  # columns of one size: powers differ by orders of magnitude
    rtol = int(points.shape[0]) * float(np.finfo(points.dtype.name).eps) if rcond is None else rcond
    found = lstsq(powers / scale, values, rtol=rtol).solution
    return found / (scale if values.ndim == 1 else scale[:, None])


def roots(p: Any, /, *, strip_zeros: bool = True) -> Tensor:
    """The zeros of a polynomial whose coefficients are given, highest power first: eigenvalues of its companion matrix,
    always complex. Zeros before the first coefficient and behind the last are looked for, which needs their values;
    without `strip_zeros` there must be none in front.

    >>> sorted(mo.roots([1.0, -3.0, 2.0]).numpy().real.round(4).tolist())
    [1.0, 2.0]
    """
    (node,) = promoted("roots", p, floating=True)
    line = Tensor.of_node(node)
    if line.ndim != 1:
        raise fail(ShapeError, "roots", f"coefficients of shape {line.shape} are no line")
    behind = 0
    if strip_zeros:
        there = np.nonzero(line.numpy())[0]
        if len(there) == 0:
            return zeros(0, dtype=_complex(line))
        behind = int(line.shape[0]) - 1 - int(there[-1])
        line = line[int(there[0]):int(there[-1]) + 1]
    count = int(line.shape[0]) - 1
    at_zero = zeros(behind, dtype=_complex(line))
    if count < 1:
        return at_zero
    first = -line[1:] / line[0]
    companion = first[None] if count == 1 else concat([first[None], eye(count - 1, count, dtype=line.dtype)])
    return concat([ew.astype(eigvals(companion), _complex(line)), at_zero])


def _complex(line: Tensor) -> DType:
    return complex128 if line.dtype.name in ("float64", "complex128") else complex64
