"""What complex results are held to: rules on the parts, errors relative to |z|, and NumPy's answers at the limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle

from morpho.base.dtypes import DType, complex64, float32, float64

Array = Any
LIMITS = {"tan": 6, "tanh": 6, "log2": 4, "log10": 4, "expm1": 6, "log1p": 6, "asin": 5, "acos": 5, "asinh": 5,
          "acosh": 5, "atan": 5, "atanh": 5, "pow": 400, "divide": 4, "reciprocal": 4}
MORE_THAN_NUMPY = frozenset({"expm1", "log1p", "pow"})  # whose limits NumPy does not treat apart


def part_dtype(dtype: DType) -> DType:
    return float32 if dtype is complex64 else float64


def times(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def paired(re: Array, im: Array) -> Array:
    found = np.empty(np.shape(re), np.complex64 if re.dtype == np.float32 else np.complex128)
    found.real, found.imag = re, im
    return found


def chain(x: Array, axis: int, every: bool) -> Array:
    """Products along an axis, one after the other, from 1."""
    work = np.moveaxis(x, axis, 0)
    total = np.ones(work.shape[1:], x.real.dtype), np.zeros(work.shape[1:], x.real.dtype)
    found = []
    with np.errstate(all="ignore"):
        for one in work:
            total = times(total, (one.real, one.imag))
            found.append(paired(*total))
    if every:
        return np.moveaxis(np.array(found, x.dtype).reshape(work.shape), 0, axis)
    return np.expand_dims(paired(*total), axis)


def matmul(a: Array, b: Array, dtype: DType) -> Array:
    """One chain for each part, by rule 6: of every k the product with the real part of a, then that with the other."""
    left = np.stack([a.real, a.imag], axis=2).reshape(a.shape[0], 2 * a.shape[1])
    parts = [np.stack([one, other], axis=1).reshape(2 * b.shape[0], b.shape[1])
             for one, other in ((b.real, -b.imag), (b.imag, b.real))]
    with np.errstate(all="ignore"):
        return paired(*[oracle.matmul_by_rule(left, right, part_dtype(dtype)) for right in parts])


def check(name: str, reference: Any, attributes: Any, arrays: list[Array], got: Array) -> None:
    """Finite results within some epsilons of |z|; where numbers are not finite, NumPy's answers, up to signs that C99
    leaves open (those of a zero or an infinity beside a NaN)."""
    with np.errstate(all="ignore"):
        near = np.asarray(reference(attributes, *arrays))
        wide = [x.astype(np.clongdouble) if x.dtype.kind == "c" else x for x in arrays]
        true = np.asarray(reference(attributes, *wide))
        if got.dtype.kind not in "cf":
            assert np.array_equal(got, near), name
            return
        eps, most = np.finfo(got.dtype).eps, np.finfo(got.dtype).max
        given = np.all([np.isfinite(x) for x in arrays], axis=0)
        calm = given & np.isfinite(true) & (np.abs(true) < most / 8) & np.isfinite(near)
        allowed = LIMITS.get(name, 3) * eps * np.abs(true) + 4 * np.finfo(got.dtype).tiny * eps
        wrong = calm & ~(np.abs(got - true) <= allowed)
        assert not wrong.any(), (name, [x[wrong][:3] for x in arrays], got[wrong][:3], true[wrong][:3])
        if name in MORE_THAN_NUMPY:
            return
        rest = ~given if name in ("multiply", "square") else ~calm & (~given | ~np.isfinite(near))
        parts = [(x.real[rest], x.imag[rest]) if x.dtype.kind == "c" else (x[rest],) for x in (got, near)]
        loose = np.any([np.isnan(p) for p in parts[1]], axis=0)
        for one, other in zip(*parts, strict=True):
            same = (one == other) | (np.isnan(one) & np.isnan(other)) | (loose & (np.abs(one) == np.abs(other)))
            same |= np.isfinite(one) & (np.abs(one - other) <= 4 * eps * np.abs(other))
            bad = np.flatnonzero(~same)[:3]
            assert not bad.size, (name, [x[rest][bad] for x in arrays], got[rest][bad], near[rest][bad])


def check_spectrum(reference: Any, attributes: Any, x: Array, got: Array, where: str) -> None:
    """A transform within some epsilons of the true one, relative to the length of the whole spectrum."""
    wide = x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)
    true = np.asarray(reference(attributes, wide))
    assert got.shape == true.shape, where
    error = np.linalg.norm(got - true) / np.linalg.norm(true)
    assert error < 4 * np.finfo(got.dtype).eps, f"{where}: error {error}"
