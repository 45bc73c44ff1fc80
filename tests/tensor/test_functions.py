"""Functions against NumPy, by table: every dtype that makes sense, and inputs that are 0-d, empty, transposed,
broadcast and read backwards."""

from __future__ import annotations

import ctypes
import math
from array import array as Floats
from collections import UserList, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, ValueFault

# The kernels' own tests go through every dtype of every operation; here each width and kind appears once.
FLOATS, REALS = "f4 f8 bf", "f4 f2 i4 u1"
WHOLE = "i1 i8 u4"
NAMES = {"b1": "bool", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "u1": "uint8", "u2": "uint16",
         "u4": "uint32", "u8": "uint64", "f2": "float16", "bf": "bfloat16", "f4": "float32", "f8": "float64",
         "c8": "complex64", "c16": "complex128"}
TOLERANCE = {"f2": 2e-3, "bf": 2e-2, "f4": 2e-6, "f8": 1e-13, "c8": 2e-6, "c16": 1e-13}


def numbers(code: str, low: float, high: float, seed: int = 0) -> np.ndarray:
    """Some numbers of a dtype in NumPy's terms; a bfloat16's are float32."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(low, high, (4, 6))
    if code == "b1":
        return values > (low + high) / 2
    if code[0] in "iu":
        return np.round(np.clip(values, 0 if code[0] == "u" else -100, 100)).astype(code)
    if code[0] == "c":
        return (values + 1j * rng.uniform(low, high, (4, 6))).astype(code)
    if code == "bf":
        return mo.asarray(values, dtype=mo.bfloat16).numpy()
    return values.astype(code)


def looks(x: np.ndarray) -> list[np.ndarray]:
    """Inputs of every kind, made from one: whole, backwards and transposed, every second, 0-d, empty."""
    return [x, x[::-1].T, x[:, ::2], np.broadcast_to(x[0], (3, 6)), x[1, 2], x[:0]]


def tensor(x: Any, code: str) -> mo.Tensor:
    return mo.asarray(np.asarray(x), dtype=getattr(mo, NAMES[code]))


def same(found: mo.Tensor, expected: Any, code: str, name: str) -> None:
    expected = np.asarray(expected)
    assert found.shape == expected.shape, (name, found.shape, expected.shape)
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(found.numpy(), expected, err_msg=name)
    else:
        tolerance = TOLERANCE.get(code, 2e-6)
        np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance, err_msg=name)


UNARY: list[tuple[str, str, Callable[..., Any], float, float]] = [
    ("abs", REALS + " c8 c16", np.abs, -3, 3), ("acos", FLOATS + " c8", np.arccos, -0.9, 0.9),
    ("acosh", FLOATS + " c8", np.arccosh, 1.1, 9), ("asin", FLOATS + " c8", np.arcsin, -0.9, 0.9),
    ("asinh", FLOATS + " c8", np.arcsinh, -9, 9), ("atan", FLOATS + " c8", np.arctan, -9, 9),
    ("atanh", FLOATS + " c8", np.arctanh, -0.9, 0.9), ("bitwise_invert", WHOLE + " b1", np.invert, -9, 9),
    ("ceil", REALS, np.ceil, -9, 9), ("conj", FLOATS + " c8 c16", np.conj, -9, 9),
    ("cos", FLOATS + " c8", np.cos, -9, 9), ("cosh", FLOATS + " c8", np.cosh, -3, 3),
    ("exp", FLOATS + " c8 c16", np.exp, -5, 5), ("exp2", FLOATS, np.exp2, -5, 5),
    ("expm1", FLOATS + " c8", np.expm1, -3, 3), ("floor", REALS, np.floor, -9, 9),
    ("imag", "f4 c8 c16", np.imag, -9, 9), ("isfinite", REALS + " c8", np.isfinite, -9, 9),
    ("isinf", REALS + " c8", np.isinf, -9, 9), ("isnan", REALS + " c8", np.isnan, -9, 9),
    ("log", FLOATS + " c8 c16", np.log, 0.1, 9), ("log10", FLOATS + " c8", np.log10, 0.1, 9),
    ("log1p", FLOATS + " c8", np.log1p, -0.5, 9), ("log2", FLOATS + " c8", np.log2, 0.1, 9),
    ("logical_not", "b1", np.logical_not, -1, 1), ("negative", REALS + " c8", np.negative, -9, 9),
    ("positive", REALS + " c8", np.positive, -9, 9), ("real", "f4 c8 c16", np.real, -9, 9),
    ("reciprocal", FLOATS + " c8", np.reciprocal, 0.5, 9), ("round", REALS + " c8", np.round, -9, 9),
    ("sign", REALS + " c8", np.sign, -2, 2), ("signbit", FLOATS, np.signbit, -2, 2),
    ("sin", FLOATS + " c8", np.sin, -9, 9), ("sinh", FLOATS + " c8", np.sinh, -3, 3),
    ("square", REALS + " c8", np.square, -3, 3), ("sqrt", FLOATS + " c8 c16", np.sqrt, 0, 9),
    ("tan", FLOATS + " c8", np.tan, -1, 1), ("tanh", FLOATS + " c8", np.tanh, -3, 3),
    ("trunc", REALS, np.trunc, -9, 9),
]

BINARY: list[tuple[str, str, Callable[..., Any], float, float]] = [
    ("add", REALS + " c8 c16", np.add, -9, 9), ("atan2", FLOATS, np.arctan2, 0.5, 9),
    ("bitwise_and", WHOLE + " b1", np.bitwise_and, 0, 9), ("bitwise_or", WHOLE + " b1", np.bitwise_or, 0, 9),
    ("bitwise_xor", WHOLE + " b1", np.bitwise_xor, 0, 9), ("bitwise_left_shift", "i4 u1 i8", np.left_shift, 0, 5),
    ("bitwise_right_shift", "i4 u1 i8", np.right_shift, 0, 5), ("copysign", FLOATS, np.copysign, -9, 9),
    ("divide", FLOATS + " c8", np.divide, 1, 9), ("equal", REALS + " b1 c8", np.equal, 0, 2),
    ("floor_divide", "f4 f8 i4 i8 u1", np.floor_divide, 1, 9), ("greater", REALS, np.greater, 0, 3),
    ("greater_equal", REALS, np.greater_equal, 0, 3), ("hypot", FLOATS, np.hypot, -9, 9),
    ("less", REALS, np.less, 0, 3), ("less_equal", REALS, np.less_equal, 0, 3),
    ("logaddexp", FLOATS, np.logaddexp, -3, 3), ("logical_and", "b1", np.logical_and, 0, 1),
    ("logical_or", "b1", np.logical_or, 0, 1), ("logical_xor", "b1", np.logical_xor, 0, 1),
    ("maximum", REALS, np.maximum, -9, 9), ("minimum", REALS, np.minimum, -9, 9),
    ("multiply", REALS + " c8", np.multiply, -3, 3), ("nextafter", "f4 f8", np.nextafter, -9, 9),
    ("not_equal", REALS + " b1", np.not_equal, 0, 2), ("pow", "f4 i4 c8", np.power, 1, 3),
    ("remainder", "f4 i4", np.remainder, 1, 9), ("subtract", REALS + " c8", np.subtract, 0, 9),
]


def drawn(codes: str, sample: Callable[..., Any]) -> list[str]:
    """The first dtype and a fifth of the others: tests/ops has every op with every dtype, and of each table row this
    asks for the name, the promotion and the layouts."""
    first, *others = codes.split()
    return [first, *sample(others)]


@pytest.mark.parametrize(("name", "codes", "numpy", "low", "high"), UNARY, ids=[row[0] for row in UNARY])
def test_unary(name: str, codes: str, numpy: Any, low: float, high: float, sample: Callable[..., Any]) -> None:
    """One function, every kind of input, all inputs of a dtype computed together; the dtypes are drawn."""
    for code in drawn(codes, sample):
        inputs = looks(numbers(code, low, high))
        found = [getattr(mo, name)(tensor(x, code)) for x in inputs]
        mo.realise(*found)
        with np.errstate(all="ignore"):
            for result, x in zip(found, inputs, strict=True):
                same(result, numpy(x), code, f"{name} {code} {np.shape(x)}")
        keeps = name not in ("isfinite", "isinf", "isnan", "signbit") and code[0] != "c"
        assert found[0].dtype is (getattr(mo, NAMES[code]) if keeps else found[0].dtype)


@pytest.mark.parametrize(("name", "codes", "numpy", "low", "high"), BINARY, ids=[row[0] for row in BINARY])
def test_binary(name: str, codes: str, numpy: Any, low: float, high: float, sample: Callable[..., Any]) -> None:
    """Two tensors of every kind, broadcasting, and a Python number on either side; the dtypes are drawn."""
    for code in drawn(codes, sample):
        a, b = numbers(code, low, high), numbers(code, low, high, seed=1)
        pairs = [*zip(looks(a), looks(b), strict=True), (a, b[0]), (a[:, :1], b[:1]), (a[0, 0], b)]
        found = [getattr(mo, name)(tensor(x, code), tensor(y, code)) for x, y in pairs]
        mo.realise(*found)
        with np.errstate(all="ignore"):
            for result, (x, y) in zip(found, pairs, strict=True):
                same(result, numpy(x, y), code, f"{name} {code} {np.shape(x)} {np.shape(y)}")
        number = True if code == "b1" else 2 if code[0] in "iu" else 1.5
        swapped = getattr(mo, name)(number, tensor(b, code))
        assert swapped.dtype is found[0].dtype and swapped.shape == (4, 6)


REDUCTIONS: list[tuple[str, str, Callable[..., Any]]] = [
    ("sum", "f4 f8 f2 bf i1 u1 i8 c8", np.sum), ("prod", "f4 f8 i8 c8", np.prod), ("max", REALS, np.max),
    ("min", REALS, np.min), ("mean", FLOATS + " c8", np.mean), ("var", FLOATS, np.var), ("std", FLOATS, np.std),
    ("any", "b1 f4 i4 c8", np.any), ("all", "b1 f4 i4 c8", np.all),
    ("count_nonzero", "b1 f4 i4 c8", np.count_nonzero),
]


@pytest.mark.parametrize(("name", "codes", "numpy"), REDUCTIONS, ids=[row[0] for row in REDUCTIONS])
def test_reductions(name: str, codes: str, numpy: Any, sample: Callable[..., Any]) -> None:
    """Along one axis, several, all, none; with axes kept; the dtypes are drawn."""
    for code in drawn(codes, sample):
        x = numbers(code, -2, 2)
        cases = [(x, None, False), (x, 0, False), (x[::-1].T, -1, True), (x[:, ::2], (0, 1), True)]
        cases.append((x[1, 2], None, False))
        if name not in ("max", "min", "mean", "var", "std"):
            cases.append((x[:0], 0, False))
        found = [getattr(mo, name)(tensor(v, code), axis=axis, keepdims=keep) for v, axis, keep in cases]
        mo.realise(*found)
        for result, (v, axis, keep) in zip(found, cases, strict=True):
            expected = numpy(v.astype(np.float32) if code == "f2" else v, axis=axis, keepdims=keep)
            same(result, expected, code, f"{name} {code} {np.shape(v)} {axis}")
    small = mo.asarray([1, 2], dtype=mo.uint8)
    if name in ("sum", "prod"):
        assert getattr(mo, name)(small).dtype is mo.uint64
        assert getattr(mo, name)(small, dtype=mo.float64).dtype is mo.float64


def test_variance_correction_and_extremes_with_nan() -> None:
    """A sample's variance; NaN wins; the first position of a tie."""
    x = numbers("f8", -2, 2)
    same(mo.var(tensor(x, "f8"), axis=0, correction=1), x.var(axis=0, ddof=1), "f8", "var")
    y = np.array([[1, np.nan, 3, 3], [4, 4, 2, 1]], np.float32)
    assert np.isnan(mo.max(mo.asarray(y), axis=1).numpy()[0])
    for name in ("argmax", "argmin"):
        for axis in (None, 0, 1, -1):
            found = getattr(mo, name)(mo.asarray(y), axis=axis)
            np.testing.assert_array_equal(found.numpy(), getattr(np, name)(y, axis=axis))
        assert getattr(mo, name)(mo.asarray(y), axis=0, keepdims=True).shape == (1, 4)


X = np.arange(24.0).reshape(2, 3, 4)
I8 = np.array([[3, 1, 2], [9, 7, 8]])
CASES: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    ("arange", lambda t: mo.arange(2, 11, 3), lambda a: np.arange(2, 11, 3)),
    ("arange down", lambda t: mo.arange(5, -2, -2.5), lambda a: np.arange(5, -2, -2.5, np.float32)),
    ("linspace", lambda t: mo.linspace(0, 1, 7, endpoint=False), lambda a: np.linspace(0, 1, 7, endpoint=False)),
    ("eye", lambda t: mo.eye(3, 5, k=-1), lambda a: np.eye(3, 5, k=-1)),
    ("full", lambda t: mo.full((2, 3), 7), lambda a: np.full((2, 3), 7)),
    ("full_like", lambda t: mo.full_like(t, 2.5), lambda a: np.full_like(a, 2.5)),
    ("zeros_like", lambda t: mo.zeros_like(t) + mo.ones_like(t), np.ones_like),
    ("tril", lambda t: mo.tril(t, k=1), lambda a: np.tril(a, 1)), ("triu", mo.triu, np.triu),
    ("meshgrid", lambda t: mo.meshgrid(t[0, 0], t[0, :, 0])[1], lambda a: np.meshgrid(a[0, 0], a[0, :, 0])[1]),
    ("meshgrid ij", lambda t: mo.meshgrid(t[0, 0], t[0, :, 0], indexing="ij")[0],
     lambda a: np.meshgrid(a[0, 0], a[0, :, 0], indexing="ij")[0]),
    ("broadcast_to", lambda t: mo.broadcast_to(t[0], (5, 3, 4)), lambda a: np.broadcast_to(a[0], (5, 3, 4))),
    ("broadcast_arrays", lambda t: mo.broadcast_arrays(t, t[0])[1], lambda a: np.broadcast_arrays(a, a[0])[1]),
    ("clip", lambda t: mo.clip(t, 3, t[0]), lambda a: np.clip(a, 3, a[0])),
    ("where", lambda t: mo.where(t > 5, t, 0.0), lambda a: np.where(a > 5, a, 0.0)),
    ("concat", lambda t: mo.concat([t, t[:1]], axis=0), lambda a: np.concatenate([a, a[:1]])),
    ("concat flat", lambda t: mo.concat([t, t[0]], axis=None), lambda a: np.concatenate([a, a[0]], axis=None)),
    ("stack", lambda t: mo.stack([t, t + 1], axis=-1), lambda a: np.stack([a, a + 1], axis=-1)),
    ("unstack", lambda t: mo.unstack(t, axis=1)[2], lambda a: a[:, 2]),
    ("expand_dims", lambda t: mo.expand_dims(t, axis=(0, -1)), lambda a: np.expand_dims(a, (0, -1))),
    ("squeeze", lambda t: mo.squeeze(t[:, :1], 1), lambda a: a[:, 0]),
    ("flip", lambda t: mo.flip(t, axis=(0, 2)), lambda a: np.flip(a, (0, 2))), ("flip all", mo.flip, np.flip),
    ("moveaxis", lambda t: mo.moveaxis(t, (0, 1), (-1, 0)), lambda a: np.moveaxis(a, (0, 1), (-1, 0))),
    ("permute_dims", lambda t: mo.permute_dims(t, (2, 0, 1)), lambda a: np.transpose(a, (2, 0, 1))),
    ("mT", lambda t: t.mT, lambda a: np.swapaxes(a, -1, -2)), ("T", lambda t: t[0].T, lambda a: a[0].T),
    ("reshape", lambda t: t.mT.reshape(-1, 2), lambda a: np.swapaxes(a, 1, 2).reshape(-1, 2)),
    ("roll", lambda t: mo.roll(t, (1, -2), axis=(0, 2)), lambda a: np.roll(a, (1, -2), (0, 2))),
    ("roll flat", lambda t: mo.roll(t, 5), lambda a: np.roll(a, 5)),
    ("tile", lambda t: mo.tile(t, (2, 1, 1, 3)), lambda a: np.tile(a, (2, 1, 1, 3))),
    ("repeat", lambda t: mo.repeat(t, 2, axis=1), lambda a: np.repeat(a, 2, 1)),
    ("repeat each", lambda t: mo.repeat(t, mo.asarray([2, 0, 1]), axis=1), lambda a: np.repeat(a, [2, 0, 1], 1)),
    ("repeat flat", lambda t: mo.repeat(t, 3), lambda a: np.repeat(a, 3)),
    ("pad", lambda t: mo.pad(t, [(0, 1), (2, 0), (1, 1)], value=9), lambda a: np.pad(
        a, [(0, 1), (2, 0), (1, 1)], constant_values=9)),
    ("pad by a pair", lambda t: mo.pad(t, (1, 2)), lambda a: np.pad(a, (1, 2))),
    ("pad by a pair for all axes", lambda t: mo.pad(t, [(2, 1)]), lambda a: np.pad(a, [(2, 1)])),
    ("stack of rows", lambda t: mo.stack(t, axis=1), lambda a: np.stack(a, 1)),
    ("concat of rows", lambda t: mo.concat(t, axis=1), lambda a: np.concatenate(a, 1)),
    ("a step past the end", lambda t: t[::10**30, ::-10**30], lambda a: a[::10**18, ::-10**18]),
    ("take", lambda t: mo.take(t, mo.asarray([2, -1, 0]), axis=1), lambda a: np.take(a, [2, -1, 0], 1)),
    ("take 2d", lambda t: mo.take(t, mo.asarray([[1, 0]]), axis=0), lambda a: np.take(a, [[1, 0]], 0)),
    ("take_along_axis", lambda t: mo.take_along_axis(t, mo.argsort(-t, axis=1), axis=1),
     lambda a: np.take_along_axis(a, np.argsort(-a, 1), 1)),
    ("diff", lambda t: mo.diff(t, axis=1, n=2), lambda a: np.diff(a, 2, 1)),
    ("diff ends", lambda t: mo.diff(t, prepend=t[..., :1], append=t),
     lambda a: np.diff(a, prepend=a[..., :1], append=a)),
    ("diff empty", lambda t: mo.diff(t[..., :1], n=3), lambda a: np.diff(a[..., :1], 3)),
    ("cumulative_sum", lambda t: mo.cumulative_sum(t, axis=1, include_initial=True),
     lambda a: np.concatenate([np.zeros((2, 1, 4)), np.cumsum(a, 1)], 1)),
    ("cumulative_prod", lambda t: mo.cumulative_prod(t, axis=2), lambda a: np.cumprod(a, 2)),
    ("matmul", lambda t: t @ t.mT, lambda a: a @ np.swapaxes(a, 1, 2)),
    ("matmul vector", lambda t: t @ t[0, 0], lambda a: a @ a[0, 0]),
    ("tensordot", lambda t: mo.tensordot(t, t, axes=((0, 2), (0, 2))), lambda a: np.tensordot(a, a, ((0, 2), (0, 2)))),
    ("tensordot 0", lambda t: mo.tensordot(t[0], t[0, 0], axes=0), lambda a: np.tensordot(a[0], a[0, 0], 0)),
    ("vecdot", lambda t: mo.vecdot(t, t[0], axis=-2), lambda a: np.sum(a * a[0], -2)),
    ("sort", lambda t: mo.sort(t[..., ::-1], axis=2), lambda a: a),
    ("searchsorted", lambda t: mo.searchsorted(t[0, 0], t[0]), lambda a: np.searchsorted(a[0, 0], a[0])),
    ("searchsorted right", lambda t: mo.searchsorted(t[0, 0, ::-1], t, side="right", sorter=mo.asarray([3, 2, 1, 0])),
     lambda a: np.searchsorted(a[0, 0], a, "right")),
    ("astype", lambda t: mo.astype(t - 5.5, "int8"), lambda a: (a - 5.5).astype(np.int8)),
    ("one_hot", lambda t: mo.one_hot(mo.asarray([2, 0, 7]), 3), lambda a: np.array([[0, 0, 1], [1, 0, 0], [0, 0, 0]])),
]


@pytest.mark.parametrize(("name", "ours", "theirs"), CASES, ids=[row[0] for row in CASES])
def test_creation_movement_and_search(name: str, ours: Any, theirs: Any) -> None:
    """On an ordinary input, and on one read backwards."""
    for array in (X, X[::-1, ::-1]):
        if "sorted" in name or name == "sort":
            array = X
        same(ours(mo.asarray(array)), theirs(array), "f4", name)


@pytest.mark.parametrize("code", ["f4", "bf", "f2", "i4", "u8", "b1"])
def test_sorting(code: str) -> None:
    """Stable both ways, on any axis."""
    x = numbers(code, 0, 4)
    t = tensor(x, code)
    for axis in (0, 1, -1):
        same(mo.sort(t, axis=axis), np.sort(x, axis), code, "sort")
        same(mo.sort(t, axis=axis, descending=True), np.flip(np.sort(x, axis), axis), code, "sort")
        same(mo.argsort(t, axis=axis), np.argsort(x, axis, kind="stable"), code, "argsort")
        wide = x.astype(np.float64)
        same(mo.argsort(t, axis=axis, descending=True), np.argsort(-wide, axis, kind="stable"), code, "argsort")
    assert mo.sort(t).dtype is t.dtype and mo.argsort(t).dtype is mo.int64


@pytest.mark.parametrize("code", ["f4", "bf", "i4", "b1", "c8"])
def test_sets(code: str) -> None:
    """Values, first positions, inverse, counts."""
    x = np.round(numbers(code, 0, 3).real if code == "c8" else numbers(code, 0, 3))
    x = x.astype({"c8": "c8", "b1": "b1", "bf": "f4"}.get(code, code))
    t = tensor(x, code)
    values, first, inverse, counts = mo.unique_all(t)
    expected = np.unique(x, return_counts=True)
    np.testing.assert_array_equal(values.numpy(), expected[0])
    np.testing.assert_array_equal(counts.numpy(), expected[1])
    np.testing.assert_array_equal(values[inverse].numpy(), x)
    np.testing.assert_array_equal(mo.reshape(t, (-1,))[first].numpy(), expected[0])
    assert mo.unique_values(t).dtype is t.dtype and mo.unique_counts(t).counts.tolist() == expected[1].tolist()
    assert mo.unique_inverse(t).inverse_indices.shape == t.shape
    assert mo.unique_values(mo.asarray([math.nan, math.nan])).shape == (2,)


def test_nonzero_and_scatter() -> None:
    """Positions of what is not zero; values put and added at positions."""
    x = mo.asarray(np.array([[0, 3, 0], [4, 0, 5]]))
    for found, expected in zip(mo.nonzero(x), np.nonzero(x.numpy()), strict=True):
        np.testing.assert_array_equal(found.numpy(), expected)
    base, index = mo.zeros((2, 4)), mo.asarray([[1, 1, -1], [0, 2, 2]])
    values = mo.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert mo.scatter(base, index, values).tolist() == [[0, 2, 0, 3], [4, 0, 6, 0]]
    assert mo.scatter_add(base, index, values).tolist() == [[0, 3, 0, 3], [4, 0, 11, 0]]
    assert mo.scatter_add(base, index, 1.0).tolist() == [[0, 2, 0, 1], [1, 0, 2, 0]]
    assert mo.scatter(base, mo.asarray([[1], [0]]), 7.0, axis=0).tolist() == [[7] * 4] * 2
    assert base.tolist() == [[0] * 4] * 2


def test_activations() -> None:
    """Against their formulas in float64."""
    x = np.linspace(-6, 6, 25)
    sigmoid, softplus = 1 / (1 + np.exp(-x)), np.log1p(np.exp(x))
    erf = np.array([math.erf(v) for v in x])
    expected = {
        "relu": np.maximum(x, 0), "leaky_relu": np.where(x > 0, x, 0.01 * x), "sigmoid": sigmoid, "silu": x * sigmoid,
        "elu": np.where(x > 0, x, np.expm1(x)), "softplus": softplus, "mish": x * np.tanh(softplus), "erf": erf,
        "erfc": 1 - erf, "gelu": x * 0.5 * (1 + np.array([math.erf(v / math.sqrt(2)) for v in x])),
        "selu": 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
        "softmax": np.exp(x) / np.exp(x).sum(), "log_softmax": x - np.log(np.exp(x).sum()),
        "logsumexp": np.log(np.exp(x).sum()), "layer_norm": (x - x.mean()) / np.sqrt(x.var() + 1e-5),
        "rms_norm": x / np.sqrt((x * x).mean() + 1e-5),
    }
    for name, value in expected.items():
        for dtype, tolerance in (("float32", 3e-6), ("float64", 1e-12), ("bfloat16", 4e-2)):
            found = getattr(mo, name)(mo.asarray(x, dtype=dtype))
            assert found.dtype is getattr(mo, dtype) and found.shape == value.shape
            np.testing.assert_allclose(found.numpy(), value, rtol=tolerance, atol=tolerance, err_msg=f"{name} {dtype}")
    tanh = mo.gelu(mo.asarray(x), approximate="tanh").numpy()
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    np.testing.assert_allclose(tanh, 0.5 * x * (1 + np.tanh(inner)), atol=1e-12)


def test_a_reshaped_range_of_two_dimensions() -> None:
    """Index numbers along one axis of a matrix, flattened: no stride shows those (found by fuzzing)."""
    from morpho.ir.node import build

    node = build("iota", shape=(5, 2), axis=1, dtype=mo.int32)
    flat = mo.reshape(mo.Tensor.of_node(node), (10,))
    np.testing.assert_array_equal(flat.numpy(), np.tile(np.arange(2), 5))
    np.testing.assert_array_equal((flat * 3 + 1).numpy(), np.tile(np.arange(2), 5) * 3 + 1)


SORTED = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool")


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", SORTED)
@pytest.mark.parametrize("descending", [False, True])
def test_sorted_values_stand_as_their_indices_do(dtype: str, descending: bool, rng: np.random.Generator) -> None:
    """Zeros of both signs, which are equal, keep their order; so the bits are those of a stable sort."""
    numbers = rng.integers(-3, 4, (7, 400)).astype(np.float32)
    numbers[::2] *= -1  # zeros become -0.0
    x = mo.asarray(numbers).astype(dtype)
    order = mo.argsort(x, axis=1, descending=descending)
    wanted = mo.take_along_axis(x, order, axis=1).astype("float64").numpy()
    found = mo.sort(x, axis=1, descending=descending).astype("float64").numpy()
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


@pytest.mark.parametrize("exponent", [2, 3, 2.0, 3.0])
def test_small_powers_are_products(exponent: float, rng: np.random.Generator) -> None:
    x = np.concatenate([rng.standard_normal(100), [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 1e30]]).astype(np.float32)
    found = (mo.asarray(x) ** exponent).numpy()
    with np.errstate(all="ignore"):
        wanted = (x.astype(np.float64) ** exponent).astype(np.float32)
    np.testing.assert_allclose(found, wanted, rtol=2.4e-7)
    compiled = mo.compile(lambda x: x ** exponent)(mo.asarray(x)).numpy()
    np.testing.assert_array_equal(compiled, found)
    np.testing.assert_array_equal(np.signbit(found[100:104]), np.signbit(wanted[100:104]))
    whole = mo.asarray(np.array([-3, 0, 7, 100], np.int32))
    assert (whole ** exponent).dtype is (mo.int32 if isinstance(exponent, int) else mo.float32)
    assert (whole ** exponent).tolist() == [n ** exponent for n in (-3, 0, 7, 100)]


def test_powers_of_arrays_and_truths() -> None:
    """A NumPy array has the bits it has as a tensor; truths count as integers."""
    x = np.random.default_rng(0).standard_normal(999).astype(np.float32)
    for exponent in (2, 3):
        plain = mo.pow(x, exponent).numpy()
        np.testing.assert_array_equal(plain, mo.compile(lambda v, n=exponent: mo.pow(v, n))(x).numpy())
        np.testing.assert_array_equal(plain, (mo.asarray(x) ** exponent).numpy())
        truths = mo.asarray(np.array([True, False])) ** exponent
        assert truths.tolist() == [1, 0] and truths.dtype is mo.int64


def test_powers_of_half_floats_are_rounded_once() -> None:
    half = mo.asarray(np.array([4e-3, 12.5, -3.0, 0.3], np.float16))
    for exponent in (2, 3):
        once = (half.astype("float64") ** exponent).astype("float16")
        np.testing.assert_array_equal((half ** exponent).numpy(), once.numpy())


def test_rows_with_an_infinite_maximum() -> None:
    """NaN where infinities would be divided, as in PyTorch and JAX; the logarithm of their sum is known."""
    inf = np.inf
    x = mo.asarray(np.array([[1, inf, 2], [-inf, -inf, -inf], [1, -inf, 1], [np.nan, inf, 0]], np.float32))
    for f in (mo.softmax, mo.log_softmax):
        found = f(x, axis=-1).numpy()
        assert np.isnan(found[[0, 1, 3]]).all() and not np.isnan(found[2]).any()
    np.testing.assert_array_equal(mo.softmax(x, axis=-1).numpy()[2], [0.5, 0, 0.5])
    sums = np.array([inf, -inf, np.float32(1) + np.log(np.float32(2)), np.nan], np.float32)
    np.testing.assert_array_equal(mo.logsumexp(x, axis=-1).numpy(), sums)


# -- numbers as they are given ---------------------------------------------------------------------------------------
def test_numbers_in_lists_keep_what_they_are() -> None:
    """NumPy's keep their dtype; whole numbers stay whole, or are refused; nothing loses a part of itself."""
    assert mo.asarray([np.ones(2), np.zeros(2)]).dtype is mo.float64
    assert mo.asarray([np.float64(1), 2]).dtype is mo.float64
    assert mo.asarray([[np.int8(1)], [np.int8(2)]]).dtype is mo.int8
    assert mo.asarray([np.float32(0.5), 1.5]).dtype is mo.float32 is mo.asarray([np.int8(1), 1.5]).dtype
    for huge in ([10**400], 10**400):
        with pytest.raises(DTypeError, match="do not fit float32"):
            mo.asarray(huge, dtype="float32")
    assert mo.asarray([2**63, 1], dtype="uint64").tolist() == [2**63, 1]
    assert mo.asarray([2**64, 1], dtype="float64").tolist() == [2.0**64, 1]
    for numbers in ([2**63, 1], [-1, 2**63], [[2**63], [0]], 2**63):
        with pytest.raises(DTypeError, match=r"do(es)? not fit int64"):
            mo.asarray(numbers)
    with pytest.raises(DTypeError, match="complex numbers do not become float32"):
        mo.asarray(1j, dtype=mo.float32)
    with pytest.raises(ArgumentError, match="do not form an array"):
        mo.asarray([[1, 2], [3]])


def test_a_view_that_would_need_a_copy_is_refused() -> None:
    x = mo.asarray(np.arange(12.0).reshape(3, 4))
    assert mo.reshape(x, (2, 6), copy=False).tolist() == np.arange(12.0).reshape(2, 6).tolist()
    assert mo.reshape(x[:, ::2], (3, 1, 2), copy=False).shape == (3, 1, 2)
    for impossible in (lambda: mo.reshape(x.T, (12,), copy=False), lambda: mo.reshape(x[:, 1:], (9,), copy=False)):
        with pytest.raises(ValueFault, match="without a copy"):
            impossible()
    with pytest.raises(ArgumentError, match="compiled function"):
        mo.compile(lambda x: mo.reshape(x.T, (12,), copy=False))(x)
    assert mo.compile(lambda x: mo.reshape(x + 1, (12,), copy=False))(x).shape == (12,)


@pytest.mark.sampled
@pytest.mark.parametrize("setting", [{"level": 0}, {"level": 3}, {"device": "reference"}], ids=str)
@pytest.mark.parametrize("shape, axis", [((2, 0), 1), ((0, 3), 0), ((0, 3), 1), ((2, 0), (0, 1))], ids=str)
def test_rows_of_no_elements(shape: tuple[int, ...], axis: Any, setting: dict[str, Any]) -> None:
    """Empty rows, as in PyTorch and JAX; the logarithm of an empty sum is -inf. `max` still has no value."""
    sums = np.zeros(shape).sum(axis=axis)
    with mo.settings(**setting):
        for dtype in ("float32", "float16"):
            x = mo.zeros(shape, dtype=dtype)
            for f in (mo.softmax, mo.log_softmax, mo.layer_norm, mo.rms_norm, mo.logsumexp):
                found = [f(x, axis=axis), mo.compile(lambda t, f=f: f(t, axis=axis) * 1)(x)]
                for result in found:
                    assert result.shape == (sums.shape if f is mo.logsumexp else shape) and result.dtype == dtype
                    assert np.array_equal(result.numpy(), np.full(result.shape, -np.inf))
                assert mo.grad(lambda t, f=f: f(t, axis=axis).sum())(x).shape == shape
    with pytest.raises(ShapeError, match="no identity"):
        mo.max(mo.zeros((2, 0)), axis=1)


def test_norms_of_no_elements_with_weights() -> None:
    x, none = mo.zeros((2, 0)), mo.zeros(0)
    assert mo.layer_norm(x, none, none).shape == mo.rms_norm(x, none).shape == (2, 0)
    slopes = mo.grad(lambda *leaves: mo.layer_norm(*leaves).sum(), argnums=(0, 1, 2))
    assert [slope.shape for slope in slopes(x, none, none)] == [(2, 0), (0,), (0,)]
    assert [slope.tolist() for slope in slopes(mo.zeros((0, 3)), mo.ones(3), mo.ones(3))] == [[], [0, 0, 0], [0, 0, 0]]


# -- beside what is no tensor ----------------------------------------------------------------------------------------
def test_others_are_asked_and_none_is_equal_to_no_tensor() -> None:
    class Unit:
        """Has operators of its own for tensors."""

        def __radd__(self, other: Any) -> str:
            return "added"

        def __rmatmul__(self, other: Any) -> str:
            return "multiplied"

    x = mo.asarray([1.0, 2.0])
    assert (x + Unit(), x @ Unit()) == ("added", "multiplied")
    assert (x == None) is False and (x != None) is True and (x == "a") is False  # noqa: E711
    assert None not in [x] and "a" not in [x]
    for same in (Floats("f", [1, 2]), deque([1, 2]), UserList([1, 2]), (ctypes.c_float * 2)(1, 2)):
        assert (x == same).tolist() == [True, True] and (x * same).tolist() == [1, 4]
    assert (x == [1.0, 3.0]).tolist() == [True, False] and (x != np.asarray([1.0, 3.0])).tolist() == [False, True]
    for wrong in (lambda: x + None, lambda: x * "a", lambda: x < None, lambda: x - Unit()):
        with pytest.raises(TypeError):
            wrong()


def test_the_text_of_a_tensor_without_elements_tells_its_shape() -> None:
    assert repr(mo.zeros((0, 3))) == "Tensor([], shape=(0, 3), dtype=float32)"
    assert repr(mo.zeros((2, 0), dtype=mo.int8)) == "Tensor([], shape=(2, 0), dtype=int8)"
    assert repr(mo.zeros(0)) == "Tensor([], dtype=float32)"


def test_like_what_becomes_a_tensor() -> None:
    for made in (mo.zeros_like([1, 2]), mo.ones_like((1, 2)), mo.full_like([1, 2], 3), mo.empty_like(np.array([1, 2]))):
        assert made.shape == (2,) and made.dtype is mo.int64
    assert mo.zeros_like(1.5).shape == () and mo.ones_like([1], dtype="float64").dtype is mo.float64


def test_integers_of_arange_are_exact() -> None:
    assert mo.arange(0, 5, 10**30).tolist() == [0]
    assert mo.arange(2**62, 2**62 + 3).tolist() == [2**62, 2**62 + 1, 2**62 + 2]  # no floats in between
    assert mo.arange(0, 10**20, 10**20, dtype=mo.float64).tolist() == [0.0]


def test_many_axes_are_tiled() -> None:
    """Of 40 axes only those that repeat become two."""
    assert mo.tile(mo.ones((1,) * 39 + (2,)), (2,) + (1,) * 39).shape == (2,) + (1,) * 38 + (2,)


# -- at the edges, as NumPy ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
@pytest.mark.parametrize("endpoint", [True, False])
def test_ranges_of_integers_go_down(dtype: str, endpoint: bool) -> None:
    for start, stop, count in ((-2.5, 2.5, 6), (-1, 1, 5), (0.2, 9.7, 7), (-0.5, -0.1, 3)):
        if dtype == "uint8" and start < 0:
            continue
        wanted = np.linspace(start, stop, count, endpoint=endpoint, dtype=dtype)
        assert mo.linspace(start, stop, count, endpoint=endpoint, dtype=dtype).tolist() == wanted.tolist()


def test_integers_with_steps_of_a_fraction_are_refused() -> None:
    for numbers in ((-2.5, 2.5, 1.0), (0, 3, 0.5), (2.5, -3, -0.75)):  # NumPy's [-2 -1 0 1 2] and [0 0 0 0 0 0]
        with pytest.raises(mo.errors.ValueFault, match=r"\[arange\] the (start|step) .* is no number of int32.*floor"):
            mo.arange(*numbers, dtype="int32")
    for numbers in ((-2.0, 2.5, 1.0), (3, -2.5, -2.0), (-3.0, 2.0)):
        assert mo.arange(*numbers, dtype="int32").tolist() == np.arange(*numbers, dtype="int32").tolist()


def test_no_differences_are_the_values_themselves() -> None:
    x = np.array([1, 4, 9])
    for options in ({"prepend": np.array([7])}, {"append": np.array([7, 8])}, {}):
        for n in (0, 1, 2):
            assert mo.diff(x, n=n, **options).tolist() == np.diff(x, n=n, **options).tolist()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_running_sums_keep_negative_zeros(dtype: str) -> None:
    x = np.array([[-0.0, -0.0, 0.0, -0.0, 1.0], [-0.0] * 5], dtype)
    for axis in (0, 1):
        found, wanted = mo.cumulative_sum(x, axis=axis).numpy(), np.cumsum(x, axis=axis)
        assert np.array_equal(found, wanted) and np.array_equal(np.signbit(found), np.signbit(wanted))
