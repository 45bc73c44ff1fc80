"""The array language beyond the standard, against NumPy: each function on inputs of several shapes and dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, IndexFault, MorphoError, ShapeError, ValueFault

NAN, INF = math.nan, math.inf
RNG = np.random.default_rng(7)
M = RNG.normal(0, 3, (4, 5)).astype(np.float32)  # a matrix
D = RNG.normal(0, 3, (3, 4, 5))  # of float64
WHOLE = RNG.integers(-5, 6, (4, 6))
V = RNG.normal(0, 2, 7).astype(np.float32)
HOLES = np.where(RNG.random((4, 6)) < 0.3, NAN, RNG.normal(0, 1, (4, 6))).astype(np.float32)
HOLES[2] = NAN
EDGES = np.array([0.0, 1.0, 2.0, 4.0])
X = np.array([0.2, 1.0, 2.5, 4.0, -1.0, 1.0, 9.0, NAN])

# name -> calls: (arguments, keywords of ours, keywords of NumPy's where they differ)
Call = tuple[tuple[Any, ...], dict[str, Any]]
SAME: dict[str, list[Call]] = {
    "swapaxes": [((D, 0, 2), {}), ((D, -1, 1), {})],
    "append": [((M, M[:1]), {"axis": 0}), ((M, V), {}), ((WHOLE, 3), {})],
    "delete": [((M, 1), {"axis": 1}), ((M, [0, -1]), {"axis": 0}), ((D, slice(0, None, 2)), {"axis": 2}), ((M, 7), {}),
               ((V, np.array([True, False, True, True, False, False, True])), {}), ((V, []), {})],
    "insert": [((V, 2, 9.0), {}), ((V, -1, V[:3]), {}), ((V, [5, 0, 5], V[:3]), {}), ((M, 1, M[:, 0]), {"axis": 1}),
               ((M, [1, 3], M[:, :2]), {"axis": 1}), ((M, 2, 7.0), {"axis": 0}), ((WHOLE, 3, 2), {})],
    "block": [(([[M, M[:, :1]], [M[:2], M[:2, :1]]],), {}), (([V, 3.0],), {}), ((M,), {}), (([[V], [V]],), {})],
    "compress": [((np.array([True, False, True, True]), M), {"axis": 0}), ((V > 0, V), {}), ((V > 9, M), {"axis": 1}),
                 ((np.array([0, 1]), WHOLE), {"axis": 1})],
    "choose": [((np.array([0, 2, 1, 0, 1]), [M, 5.0, M[0]]), {}), ((WHOLE % 2, [WHOLE, -WHOLE]), {})],
    "select": [(([M < -1, M > 1], [M, M * 10]), {}), (([V > 0], [V], NAN), {}),
               (([WHOLE > 1, WHOLE > 0], [1, 2], 3), {})],
    "modf": [((np.array([2.5, -1.25, INF, -INF, -0.0, NAN, 3.0]),), {}), ((M,), {})],
    "ldexp": [((D, WHOLE[0, :5]), {}), ((M, 3), {}),
              ((np.array([1.5, 1.0, 3.0, INF]), np.array([-1074, 1023, -1080, 5])), {}),
              ((np.array([5e-324, 1.0]), np.array([1074, -2000])), {})],
    "frexp": [((D,), {}), ((M,), {}), ((np.array([0.0, -0.0, 5e-324, -1e-310, 1e308, 0.5, 1.0, 2.0**-1022]),), {}),
              ((np.array([1e-45, 1e-40, 3e38, 0.99999994, 8.0], np.float32),), {})],
    "unwrap": [((D * 3,), {}), ((D * 3,), {"axis": 0, "period": 4.0}), ((V * 3,), {"discont": 5.0})],
    "histogram2d": [((D[0].ravel(), D[1].ravel()), {}), ((V, V[::-1], [3, EDGES]), {}),
                    ((V, V[::-1], 4), {"density": True}),
                    ((V, V[::-1]), {"range": [[-1, 1], [-2, 3]], "weights": V})],
    "ravel": [((D,), {})], "fliplr": [((M,), {})], "flipud": [((M,), {})],
    "rot90": [((M,), {"k": k}) for k in (0, 1, 2, 3, -1)] + [((D,), {"axes": (1, 2)})],
    "diag": [((M,), {}), ((V,), {}), ((M,), {"k": 1}), ((V,), {"k": -2}), ((V,), {"k": 3}), ((M,), {"k": -9})],
    "diagflat": [((M,), {"k": 1})],
    "diagonal": [((D,), {"offset": 1, "axis1": 0, "axis2": 2}), ((M,), {}), ((D,), {"offset": -1})],
    "tril_indices": [((4,), {}), ((3,), {"k": 1}), ((3, 1, 5), {})],
    "triu_indices": [((4,), {"k": 1}), ((4,), {"k": -1})],
    "diag_indices": [((3, 3), {})],
    "atleast_1d": [((3.0,), {}), ((M,), {})], "atleast_2d": [((V,), {}), ((2.0,), {})],
    "atleast_3d": [((V,), {}), ((M,), {}), ((1.0,), {})],
    "hstack": [(([V, V],), {}), (([M, M],), {})], "vstack": [(([V, V],), {}), (([M, M],), {})],
    "dstack": [(([V, V],), {}), (([M, M],), {})], "column_stack": [(([V, V],), {}), (([M, M[:, :1]],), {})],
    "split": [((M, 2), {}), ((M, [1, 3]), {"axis": 1}), ((M, [1, -1, 9]), {"axis": 0}), ((D, 5), {"axis": -1})],
    "array_split": [((V, 3), {}), ((V, 9), {}), ((M, 2), {"axis": 1})],
    "hsplit": [((M, [2]), {}), ((V, 7), {})], "vsplit": [((M, 2), {})],
    "fmax": [((HOLES, HOLES[::-1]), {}), ((WHOLE, 2), {})], "fmin": [((HOLES, HOLES[::-1]), {})],
    "fmod": [((M, 1.5), {}), ((WHOLE, 3), {}), ((WHOLE, -4), {}),
             ((np.array([7.5, -INF, 3.0, 2.0]), np.array([0.0, 2, INF, -3])), {}),
             ((np.array([5, 7], np.uint8), np.array([3, 9], np.uint8)), {})],
    "cbrt": [((D,), {}), ((np.array([0.0, -0.0, INF, -INF, NAN, 5e-324, 1e300]),), {})],
    "deg2rad": [((D,), {})], "rad2deg": [((D,), {})],
    "sinc": [((D,), {}), ((np.array([0.0, 1.0, -3.0, 1e6]),), {})],
    "angle": [((M,), {}), ((D + 1j * D[::-1],), {}), ((WHOLE,), {}), ((D * 1j - 2,), {"deg": True}),
              ((np.array([0.0, -0.0, INF, -INF]),), {})],
    "polyval": [((V, D), {}), ((V[:0], np.array([NAN, INF, 2.0])), {}),
                ((V.astype(np.float64), 1.5), {}), ((WHOLE[0], WHOLE), {}), ((V * 1j, V), {})],
    "convolve": [((V, D[0, 0]), {}), ((D[0, 0], V), {"mode": "same"}), ((V, V[:4]), {"mode": "valid"}),
                 ((V * 1j, V[:2] + 2j), {}),
                 ((V, V[:4]), {"mode": "same"}), ((V[:1], V), {})],
    "correlate": [((V, D[0, 0]), {}), ((D[0, 0], V), {"mode": "full"}), ((V, V[:4]), {"mode": "same"}),
                  ((V * 1j, V[:2] + 2j), {"mode": "full"}), ((V[:3] * (1 + 1j), V + 0.5j), {"mode": "same"})],
    "heaviside": [((np.array([-1.0, 0.0, NAN, 2.0]), 0.5), {})], "divmod": [((WHOLE, 3), {})],
    "isclose": [((X, X + 1e-9), {}), ((X, X + 1e-9), {"equal_nan": True}), ((INF, np.array([INF, -INF, 1.0])), {}),
                ((M, M + 0.5), {"atol": 0.4, "rtol": 0.1})],
    "interp": [((X, EDGES, np.array([1.0, 5.0, -2.0, 3.0])), {}),
               ((X, EDGES, EDGES ** 2), {"left": -7.0, "right": 8.0}),
               ((X, EDGES[::-1].copy(), EDGES), {"period": 5.0})],
    "trapezoid": [((M,), {}), ((M, EDGES), {"axis": 0}), ((D,), {"axis": 1, "dx": 0.25})],
    "gradient": [((V,), {}), ((V, 0.5), {}), ((D, 2.0), {"axis": 1}), ((np.array([1.0, 4.0, 2.0, 5.0]), EDGES), {})],
    "kron": [((M, V), {}), ((D, M), {})], "vander": [((V, 4), {}), ((WHOLE[0],), {"increasing": True})],
    "bincount": [((np.array([0, 2, 2, 5]),), {}), ((np.array([1, 1], np.uint8), np.array([0.5, 2.0])), {})],
    "digitize": [((X, EDGES), {}), ((X, EDGES[::-1]), {}), ((X, EDGES), {"right": True}),
                 ((X, EDGES[::-1]), {"right": True})],
    "histogram": [((M, 5), {}), ((X[:-1], EDGES), {}), ((D, 7), {"range": (-2.0, 2.0)}), ((M, 4), {"density": True}),
                  ((V, 3), {"weights": V ** 2}), ((WHOLE, 4), {}), ((np.full(3, 2.0), 4), {})],
    "histogram_bin_edges": [((D, 6), {})],
    "nansum": [((HOLES,), {"axis": 1}), ((HOLES,), {}), ((WHOLE,), {"axis": 0})], "nanprod": [((HOLES,), {"axis": 0})],
    "nanmax": [((HOLES,), {"axis": 1}), ((HOLES,), {"keepdims": True}), ((WHOLE,), {})],
    "nanmin": [((HOLES,), {"axis": 1})],
    "nanmean": [((HOLES,), {"axis": 1}), ((HOLES,), {})],
    "nanargmax": [((HOLES[:2],), {"axis": 1}), ((HOLES,), {})], "nanargmin": [((HOLES,), {})],
    "nan_to_num": [((np.array([NAN, INF, -INF, 1.0], np.float32),), {}), ((X,), {"nan": 3.0}), ((WHOLE,), {})],
    "average": [((M,), {}), ((M,), {"axis": 1, "weights": np.arange(5.0)}), ((M,), {"weights": M})],
    "ptp": [((M,), {"axis": 1}), ((WHOLE,), {})],
    "cov": [((M,), {}), ((M, M[::-1] ** 2), {}), ((M,), {"rowvar": False}), ((V,), {}),
            ((M,), {"fweights": np.arange(5), "aweights": np.arange(1.0, 6)})],
    "corrcoef": [((M,), {}), ((M,), {"rowvar": False})],
    "median": [((M,), {}), ((M,), {"axis": 0}), ((D,), {"axis": (0, 2), "keepdims": True}), ((HOLES,), {"axis": 1}),
               ((WHOLE,), {"axis": 1})],
    "nanmedian": [((HOLES,), {"axis": 1}), ((HOLES,), {})],
    "quantile": [((D, 0.3), {"axis": 1}), ((D, [0.0, 0.25, 1.0]), {"axis": (0, 2), "keepdims": True}),
                 ((HOLES, 0.5), {"axis": 1})]
                + [((M, [0.1, 0.5, 0.77]), {"axis": 1, "method": method}) for method in ("lower", "higher",
                                                                                         "midpoint", "nearest")],
    "percentile": [((M, 30), {}), ((M, [5, 95]), {"axis": 0})],
    "nanquantile": [((HOLES, [0.2, 0.9]), {"axis": 1}), ((HOLES, 0.5), {"keepdims": True})],
    "nanpercentile": [((HOLES, 40), {"axis": 0})],
    "isin": [((WHOLE, [1, 2, 3]), {}), ((M, M[0]), {"invert": True}), ((X, [NAN, 1.0]), {}),
             ((WHOLE, np.array([], np.int64)), {})],
    "union1d": [((WHOLE, [9, 1]), {})], "intersect1d": [((WHOLE, [4, 1, 1, 99]), {})],
    "setdiff1d": [((WHOLE, [4, 1]), {})],
    "argwhere": [((WHOLE,), {})], "flatnonzero": [((WHOLE,), {})],
    "unravel_index": [((np.array([[5, 11]]), (2, 3, 2)), {})],
    "unique": [((WHOLE,), {}), ((WHOLE,), {"return_index": True, "return_inverse": True, "return_counts": True})],
}
OTHER_KEYWORDS = {"correction": "ddof"}


def flat(found: Any) -> list[np.ndarray]:
    if isinstance(found, tuple | list):
        return [part for item in found for part in flat(item)]
    return [np.asarray(found)]


def same(ours: Any, theirs: Any, rtol: float = 2e-6) -> None:
    found, wanted = flat(ours), flat(theirs)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-6 if one.dtype == np.float32 else 1e-13)


def as_given(argument: Any) -> Any:
    if isinstance(argument, list) and argument and isinstance(argument[0], np.ndarray):
        return [mo.asarray(part) for part in argument]
    return mo.asarray(argument) if isinstance(argument, np.ndarray) else argument


@pytest.mark.parametrize("name", SAME)
def test_as_numpy(name: str) -> None:
    for arguments, keywords in SAME[name]:
        with np.errstate(all="ignore"):
            wanted = getattr(np, name)(*arguments, **{OTHER_KEYWORDS.get(k, k): v for k, v in keywords.items()})
        placed = tuple(as_given(a) for a in arguments)
        same(getattr(mo, name)(*placed, **keywords), wanted)


@pytest.mark.parametrize("correction", [0, 1])
def test_spread_without_nan(correction: int) -> None:
    for name in ("nanvar", "nanstd"):
        for axis in (0, 1, None):
            with np.errstate(all="ignore"):
                import warnings

                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    wanted = getattr(np, name)(HOLES, axis=axis, ddof=correction)
            same(getattr(mo, name)(HOLES, axis=axis, correction=correction), wanted)
            same(getattr(mo, name)(HOLES, axis=axis, ddof=correction, dtype=None), wanted)
        assert getattr(mo, name)(HOLES, dtype="float32").dtype == mo.float32
        with pytest.raises(mo.errors.MorphoError, match="two names of one number"):
            getattr(mo, name)(HOLES, ddof=1, correction=1)


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
def test_borders(mode: str) -> None:
    for widths in (1, (2, 3), ((0, 2), (4, 1)), ((9, 0), (0, 12))):
        same(mo.pad(mo.asarray(M), widths, mode=mode), np.pad(M, widths, mode=mode))
    aliases = {"edge": "replicate", "wrap": "circular"}
    if mode in aliases:
        same(mo.pad(mo.asarray(V), 2, mode=aliases[mode]), np.pad(V, 2, mode=mode))


def test_running_extremes() -> None:
    for x in (M, WHOLE, HOLES, np.float32(3.0)):
        axis = None if np.ndim(x) < 2 else 1
        for name, numpy in (("cummax", np.maximum), ("cummin", np.minimum)):
            wanted = numpy.accumulate(np.atleast_1d(x), axis=axis or 0)
            values, indices = getattr(mo, name)(x, axis=axis, return_indices=True)
            same(values, wanted.reshape(np.shape(x)))  # of one number it is a number, as PyTorch has it
            taken = np.take_along_axis(np.atleast_1d(x), np.atleast_1d(indices.numpy()), axis=axis or 0)
            np.testing.assert_array_equal(taken, wanted)
    assert mo.cummax([1.0, 1.0, 0.0], return_indices=True).indices.tolist() == [0, 1, 1]  # PyTorch's: the last
    x = RNG.normal(0, 300, (3, 50))
    same(mo.logcumsumexp(x, axis=1), np.logaddexp.accumulate(x, axis=1), 1e-12)
    assert mo.logcumsumexp([-INF, -INF, 1.0]).tolist() == [-INF, -INF, 1.0]


def scattered(x: np.ndarray, index: np.ndarray, values: np.ndarray, how: str, include_self: bool) -> np.ndarray:
    """Along the last axis, one value after the other: PyTorch's meaning."""
    result = x.copy()
    for row in range(len(x)):
        for place in range(x.shape[1]):
            met = [values[row, n] for n in range(values.shape[1]) if index[row, n] == place]
            if met:
                met = [x[row, place], *met] if include_self else met
                result[row, place] = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "amax": np.max,
                                      "amin": np.min}[how](np.array(met))
    return result


@pytest.mark.parametrize("how", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(how: str) -> None:
    index = RNG.integers(0, 5, (4, 9))
    values = RNG.normal(0, 2, (4, 9))
    for dtype in ("float32", "float64", "float16"):
        x, v = M.astype(dtype), values.astype(dtype)
        for include in (True, False):
            found = mo.scatter_reduce(x, mo.asarray(index), mo.asarray(v), reduce=how, include_self=include)
            wanted = scattered(x.astype(float), index, v.astype(float), how, include)
            np.testing.assert_allclose(found.numpy(), wanted, rtol=5e-3 if dtype == "float16" else 2e-6, atol=1e-6)


def test_segments() -> None:
    ids, x = np.array([0, 1, 1, 3, 0, 3]), RNG.normal(0, 2, (6, 3))
    for name, numpy, empty in (("sum", np.sum, 0.0), ("prod", np.prod, 1.0), ("max", np.max, -INF),
                               ("min", np.min, INF),
                               ("mean", np.mean, 0.0)):
        wanted = np.stack([numpy(x[ids == n], axis=0) if (ids == n).any() else np.full(3, empty) for n in range(5)])
        same(getattr(mo, f"segment_{name}")(x, ids, 5), wanted)
        same(getattr(mo, f"segment_{name}")(x, ids), wanted[:4])
    assert mo.segment_max(np.array([3, 4], np.int8), [0, 0], 2).tolist() == [4, -128]
    with pytest.raises(IndexFault, match="segment_sum"):
        mo.segment_sum(x, ids, 3).numpy()


def test_distances() -> None:
    a, b = RNG.normal(0, 1, (2, 3, 4)), RNG.normal(0, 1, (5, 4))
    gaps = np.abs(a[:, :, None] - b[None, None])
    for p in (0.0, 1.0, 1.5, 2.0, 3.0, INF):
        same(mo.cdist(a, b, p=p), np.linalg.norm(gaps, ord=p, axis=-1), 1e-12)
    same(mo.pdist(b), np.array([np.linalg.norm(b[i] - b[j]) for i in range(5) for j in range(i + 1, 5)]), 1e-12)
    assert mo.grad(lambda x: mo.cdist(x, x).sum())(mo.asarray([[1.0, 2.0]])).tolist() == [[0.0, 0.0]]


def test_topk_and_partition() -> None:
    x = RNG.integers(0, 9, (4, 20)).astype(np.float32)
    values, indices = mo.topk(x, 3)
    same(values, -np.sort(-x, axis=1)[:, :3])
    same(indices, np.argsort(-x, axis=1, kind="stable")[:, :3])
    values, indices = mo.topk(x, 2, axis=0, largest=False)
    same(values, np.sort(x, axis=0)[:2])
    assert math.isnan(mo.topk([1.0, NAN, 3.0], 1).values.item())
    found = mo.partition(x, 4).numpy()
    assert (found[:, :4] <= found[:, 4:5]).all() and (found[:, 5:] >= found[:, 4:5]).all()
    same(np.take_along_axis(x, mo.argpartition(x, 4).numpy(), 1), found)


def test_parts_of_pytorch_s() -> None:
    assert [p.shape[0] for p in mo.chunk(mo.arange(7), 3)] == [3, 3, 1]
    assert [p.shape[0] for p in mo.chunk(mo.arange(4), 3)] == [2, 2]
    assert mo.diag_embed(mo.ones((2, 3)), offset=-1, axis1=0, axis2=2).shape == (4, 2, 4)
    same(mo.diag_embed(M, offset=2), np.stack([np.diag(row, 2) for row in M]))
    same(mo.diag_embed(M, offset=-1), np.stack([np.diag(row, -1) for row in M]))
    assert mo.flatten(D, start_axis=1).shape == (3, 20) and mo.flatten(3.0).shape == (1,)
    assert mo.unflatten(mo.ones((2, 12)), 1, (3, -1)).shape == (2, 3, 4)
    assert mo.bucketize([1, 2, 6], [2, 4, 6], right=True).tolist() == [0, 1, 3]
    assert mo.bucketize(mo.asarray([1, 6]), mo.asarray([2, 6]), out_int32=True).dtype is mo.int32
    assert mo.bucketize(mo.asarray([1, 6]), mo.asarray([2, 6])).dtype is mo.int64
    assert mo.unique_consecutive([1, 1, 2, 1], return_inverse=True, return_counts=True)[2].tolist() == [2, 1, 1]
    same(mo.lerp(V, V + 3, 0.25), V + 0.75)
    same(mo.rsqrt(V ** 2), 1 / np.abs(V))
    same(mo.cumulative_trapezoid(EDGES, EDGES, initial=0.0), np.array([0.0, 0.5, 2.0, 8.0]))
    assert mo.nanargmax([NAN, -INF]).item() == 1  # NumPy has the place of the NaN
    assert mo.allclose(V, V + 1e-9) and not mo.allclose(V, V + 1) and mo.array_equal([NAN], [NAN], equal_nan=True)
    assert mo.bincount([0, 2], length=4).tolist() == [1, 0, 1, 0]


def test_truths_and_numbers_as_numpy_has_them() -> None:
    mask = M > 0
    for axis in (None, 0, 1):
        same(mo.argmax(mask, axis=axis), np.argmax(mask, axis=axis))
        same(mo.argmin(mask, axis=axis), np.argmin(mask, axis=axis))
        same(mo.max(mask, axis=axis), np.max(mask, axis=axis))
        same(mo.min(mask, axis=axis, keepdims=True), np.min(mask, axis=axis, keepdims=True))
    assert mo.max(mask).dtype is mo.bool
    with pytest.raises(ShapeError, match="max"):
        mo.max(np.zeros((0,), bool))
    for axis in (0, -1):
        for name in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"):
            found = getattr(mo, name)(mo.asarray(3.0), axis=axis)
            assert found.shape == () and found.item() == getattr(np, name)(np.float64(3.0), axis=axis)
    for name in ("sum", "argmax"):
        with pytest.raises(MorphoError, match="axis 1 is out of range"):
            getattr(mo, name)(mo.asarray(3.0), axis=1)
    assert mo.cumulative_sum(mo.asarray(3)).tolist() == [3]


@pytest.mark.parametrize("values", [[-1.0, 0.0, np.inf], [-np.inf, 0.0, 1.0], [0.0, np.inf], [-1.7e308, 1.7e308],
                                    [1.0, np.inf, np.inf], [-np.inf, -np.inf, 2.0, 3.0]])
def test_medians_beside_infinities(values: list[float]) -> None:
    """Times that were never reached are infinite: they must not make NaN of a median that was."""
    same(mo.median(mo.asarray(np.array(values))), np.median(values))
    same(mo.nanmedian(mo.asarray(np.array([*values, np.nan]))), np.median(values))
    ends = mo.quantile(mo.asarray(np.array(values)), [0.0, 1.0]).tolist()
    assert ends == [min(values), max(values)]


def test_running_extremes_of_bools() -> None:
    mask = mo.asarray([[False, True, False], [True, False, True]])
    assert mo.cummax(mask, axis=1).tolist() == [[False, True, True], [True, True, True]]
    least = mo.cummin(mask, axis=0, return_indices=True)
    assert least.values.dtype is mo.bool and least.values.tolist() == [[False, True, False], [False, False, False]]
    assert least.indices.tolist() == [[0, 0, 0], [0, 1, 0]]


GRADIENTS: dict[str, Callable[[Any], Any]] = {
    "median": lambda x: mo.median(x, axis=1), "quantile": lambda x: mo.quantile(x, [0.3, 0.8], axis=0),
    "nanmean": mo.nanmean, "nanstd": lambda x: mo.nanstd(x, axis=1), "cummax": lambda x: mo.cummax(x, axis=1),
    "cummin": lambda x: mo.cummin(x, axis=0), "logcumsumexp": lambda x: mo.logcumsumexp(x, axis=1),
    "topk": lambda x: mo.topk(x, 2).values, "interp": lambda x: mo.interp(x, EDGES, EDGES ** 2),
    "trapezoid": mo.trapezoid, "cov": mo.cov, "corrcoef": mo.corrcoef, "kron": lambda x: mo.kron(x, x[0]),
    "cdist": lambda x: mo.cdist(x, x * 2 + 1), "fmod": lambda x: mo.fmod(x, 0.75), "diag_embed": mo.diag_embed,
    "prod": lambda x: mo.scatter_reduce(x, mo.asarray([[0, 1, 1, 0, 2]] * 4), x + 1, reduce="prod"),
    "amax": lambda x: mo.scatter_reduce(x, mo.asarray([[0, 1, 1, 0, 2]] * 4), x * 1.5, reduce="amax"),
    "amin": lambda x: mo.scatter_reduce(x, mo.asarray([[0, 1, 1, 0, 2]] * 4), x * 1.5, reduce="amin",
                                        include_self=False),
    "mean": lambda x: mo.segment_mean(x, mo.asarray([0, 1, 1, 0])),
    "reflect": lambda x: mo.pad(x, 2, mode="reflect") ** 2,
    "wrap": lambda x: mo.pad(x, 1, mode="wrap") ** 2, "edge": lambda x: mo.pad(x, 3, mode="edge") ** 2,
    "cbrt": mo.cbrt, "sinc": mo.sinc, "fmax": lambda x: mo.fmax(x, -x), "nan_to_num": mo.nan_to_num,
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    function = GRADIENTS[name]
    x = RNG.normal(0, 1, (4, 5)) + 0.05
    weights = mo.asarray(RNG.normal(0, 1, tuple(function(mo.asarray(x)).shape)))

    def loss(value: Any) -> Any:
        return (function(value) * weights).sum()

    found = mo.grad(loss)(mo.asarray(x)).numpy()
    compiled = mo.compile(loss)
    for place in list(np.ndindex(*x.shape))[::3]:
        step = np.zeros_like(x)
        step[place] = 1e-6
        wanted = (compiled(mo.asarray(x + step)).item() - compiled(mo.asarray(x - step)).item()) / 2e-6
        np.testing.assert_allclose(found[place], wanted, rtol=2e-5, atol=1e-6)


def test_gradient_of_a_product_with_zeros() -> None:
    x, index = mo.asarray([2.0, 0.0, 3.0]), mo.asarray([0, 1, 2, 2])
    _, slopes = mo.value_and_grad(lambda v: mo.scatter_reduce(x, index, v, reduce="prod").sum())(
        mo.asarray([5.0, 4.0, 0.0, 7.0]))
    assert slopes.tolist() == [2.0, 0.0, 21.0, 0.0]


@pytest.mark.parametrize(("call", "error", "said"), [
    (lambda: mo.split(mo.arange(5), 2), ShapeError, r"\[split\] size 5 .* is not divisible into 2"),
    (lambda: mo.split(mo.arange(5), 0), ArgumentError, "0 sections"),
    (lambda: mo.vsplit(mo.arange(5), 5), ShapeError, "has no rows"),
    (lambda: mo.chunk(mo.arange(5), 0), ArgumentError, "0 chunks"),
    (lambda: mo.quantile([1.0], 1.5), ValueFault, r"q 1\.5 leaves 0\.\.1"),
    (lambda: mo.percentile([1.0], 150), ValueFault, r"leaves 0\.\.100"),
    (lambda: mo.quantile([1.0], 0.5, method="odd"), ArgumentError, "method 'odd' is unknown"),
    (lambda: mo.median(np.zeros((0,))), ShapeError, "no elements"),
    (lambda: mo.median([1j]), DTypeError, "complex64 is not taken"),
    (lambda: mo.topk([1.0], 2), ArgumentError, "no 2 elements along an axis of size 1"),
    (lambda: mo.pad([1.0], 1, mode="odd"), ArgumentError, "mode 'odd' is unknown"),
    (lambda: mo.pad(np.zeros((0,)), 1, mode="edge"), ShapeError, "no elements to make a border of"),
    (lambda: mo.interp([1.0], [1.0, 2.0], [1.0]), ShapeError, "one line each"),
    (lambda: mo.bincount([0.5]), DTypeError, "not an integer"),
    (lambda: mo.bincount([-1]), ValueFault, "-1 is negative"),
    (lambda: mo.bincount([4], length=2).numpy(), IndexFault, "bincount"),
    (lambda: mo.histogram([1.0], 0), ArgumentError, "0 bins"),
    (lambda: mo.histogram([1.0], [2.0, 1.0]), ValueFault, "rise"),
    (lambda: mo.scatter_reduce([1.0], [0], [1.0], reduce="odd"), ArgumentError, "reduce 'odd' is unknown"),
    (lambda: mo.cdist([[1.0]], [[1.0, 2.0]]), ShapeError, "cdist"),
    (lambda: mo.cdist([[1.0]], [[1.0]], p=-1), ArgumentError, "p=-1"),
    (lambda: mo.cov(np.zeros((2, 2, 2))), ShapeError, "more than two axes"),
    (lambda: mo.cov(M, fweights=np.ones(5)), DTypeError, "not integers"),
    (lambda: mo.diag(D), ShapeError, "neither a vector nor a matrix"),
    (lambda: mo.rot90(M, axes=(0, 0)), ArgumentError, "the same"),
    (lambda: mo.cummax(M), ArgumentError, "an axis is needed"),
    (lambda: mo.logcumsumexp([1j]), DTypeError, "not taken"),
    (lambda: mo.partition([1.0], 3), ArgumentError, "no element 3"),
    (lambda: mo.hstack([]), ArgumentError, "nothing to join"),
    (lambda: mo.trapezoid([1.0, 2.0], [1.0]), ShapeError, "1 points do not fit 2"),
    (lambda: mo.gradient([1.0]), ShapeError, "no slope"),
    (lambda: mo.unflatten(mo.ones(6), 0, (4, -1)), ShapeError, "does not become"),
    (lambda: mo.fmax([1j], 2), DTypeError, "not taken"),
    (lambda: mo.segment_sum(mo.ones(3), [0, 1]), ShapeError, "one for each row"),
])
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call()


def test_native_and_compiled() -> None:
    """Scatters, scans and borders are kernels: nothing runs on the host."""
    ids = mo.asarray([0, 1, 1, 3])
    for function in (lambda x: mo.segment_max(x, ids, 4), lambda x: mo.cummax(x, axis=1),
                     lambda x: mo.pad(x, 2, mode="reflect"),
                     lambda x: mo.scatter_reduce(x, ids[:, None], x[:, :1], reduce="prod", axis=1), mo.nanmean, mo.cov,
                     lambda x: mo.logcumsumexp(x, axis=0), lambda x: mo.isclose(x, 1.0)):
        compiled = mo.compile(function, whole=True)
        same(compiled(mo.asarray(M)), function(mo.asarray(M)))


def test_put_along_axis() -> None:
    for array, indices, values, axis in ((M, np.array([[1], [0], [-1], [3]]), 7.0, 1),
                                         (D, D.argmax(0)[None], -D[:1], 0),
                                         (WHOLE, WHOLE.argsort(1)[:, :2], WHOLE[:, :2], 1)):
        wanted = array.copy()
        np.put_along_axis(wanted, indices, values, axis)
        found = mo.put_along_axis(mo.asarray(array), mo.asarray(indices), as_given(values), axis=axis)
        assert np.array_equal(found.numpy(), wanted)


def test_polynomials() -> None:
    x, y = np.linspace(-2, 3, 40), RNG.normal(0, 1, (40, 3))
    same(mo.polyfit(mo.asarray(x), mo.asarray(y), 4), np.polyfit(x, y, 4), rtol=1e-9)
    same(mo.polyfit(mo.asarray(x), mo.asarray(y[:, 0]), 2, w=mo.asarray(x**2)), np.polyfit(x, y[:, 0], 2, w=x**2),
         rtol=1e-9)
    for p in ([1.0, -6.0, 11.0, -6.0], [0.0, 0.0, 2.0, 1.0, 0.0, 0.0], [3.0], [0.0, 0.0], [1.0, 0.0, 1.0], [2.0, 4.0]):
        line = np.array(p)
        found = np.sort_complex(mo.roots(mo.asarray(line)).numpy())
        same(found, np.sort_complex(np.roots(line).astype(complex)), rtol=1e-9)
    for call in (lambda: mo.polyfit(x, y[:5], 1), lambda: mo.roots(M), lambda: mo.select([], []),
                 lambda: mo.choose([0], []), lambda: mo.block([[V], V]),
                 lambda: mo.delete(V, 99), lambda: mo.insert(V, 1.5, 0.0)):
        with pytest.raises(MorphoError):
            call()
