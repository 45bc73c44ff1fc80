"""NumPy's names with NumPy's arguments: each call is made of NumPy too, and results are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.spelling.table import ALIASES

A = np.array([[3.0, -1.5, 2.25, 0.5], [1.0, 4.0, -2.0, 8.0], [0.25, 7.5, 6.0, -3.0]])
B = A[::-1] * 0.5 + 1
S = A[:, :3]
V = np.array([2.0, 0.5, -1.0, 3.0])
W = np.array([1.0, 2.0, 4.0])
K = np.array([[5, 3, 8, 1], [7, 2, 9, 4], [6, 0, 11, 10]])
M = A > 1
C = A + 1j * B
N = np.where(M, A, np.nan)

# function of a namespace `xp` and arrays made by `t`; the same text is run with NumPy and with Morpho
ELEMENTWISE = """absolute arccos arccosh arcsin arcsinh arctan arctanh around conjugate degrees fabs fix
isneginf isposinf
isreal iscomplex radians rint copy spacing
ravel sort_complex trim_zeros"""
PAIRS = "arctan2 float_power logaddexp2 mod power true_divide"
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: lambda xp, t, name=name: getattr(xp, name)(t(np.abs(A) / 10 if "arc" in name and name != "arccosh" else
                                                          np.abs(A) + 1 if name != "trim_zeros" else [0, 1, 2, 0, 3,
                                                              0]))
       for name in ELEMENTWISE.split()},
    **{name: lambda xp, t, name=name: getattr(xp, name)(t(np.abs(A)), t(B)) for name in PAIRS.split()},
    "sum by place": lambda xp, t: xp.sum(t(A), 0), "sum keepdims": lambda xp, t: xp.sum(t(A), (0, 1), keepdims=True),
    "sum dtype": lambda xp, t: xp.sum(t(K), 1, np.float64), "sum where": lambda xp, t: xp.sum(t(A), where=t(M)),
    "sum initial": lambda xp, t: xp.sum(t(A), axis=0, initial=10.0), "mean": lambda xp, t: xp.mean(t(A), 1),
    "mean dtype": lambda xp, t: xp.mean(t(K), dtype=np.float32), "mean where": lambda xp, t: xp.mean(t(A), where=t(M)),
    "std": lambda xp, t: xp.std(t(A), 0), "std ddof": lambda xp, t: xp.std(t(A), ddof=1),
    "var": lambda xp, t: xp.var(t(A), axis=1, ddof=1, keepdims=True), "max": lambda xp, t: xp.max(t(A), 1),
    "max where": lambda xp, t: xp.max(t(A), where=t(M), initial=-5.0), "amax": lambda xp, t: xp.amax(t(A), 0),
    "amin": lambda xp, t: xp.amin(t(A), 1, keepdims=True), "argmax": lambda xp, t: xp.argmax(t(A), 0),
    "any": lambda xp, t: xp.any(t(M), 0), "all": lambda xp, t: xp.all(t(M), 1), "prod": lambda xp, t: xp.prod(t(A), 1),
    "median": lambda xp, t: xp.median(t(A), 1), "quantile": lambda xp, t: xp.quantile(t(A), 0.3, 1),
    **{f"quantile {method}": lambda xp, t, method=method: xp.quantile(t(A), [0.1, 0.25, 0.5, 0.77], axis=1,
                                                                      method=method)
       for method in ("inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf",
                      "hazen",
                      "weibull", "median_unbiased", "normal_unbiased")},
    "cumsum": lambda xp, t: xp.cumsum(t(A), 0), "cumsum flat": lambda xp, t: xp.cumsum(t(A)),
    "cumprod": lambda xp, t: xp.cumprod(t(A), axis=1), "nancumsum": lambda xp, t: xp.nancumsum(t(N), 0),
    "nancumprod": lambda xp, t: xp.nancumprod(t(N)), "sort": lambda xp, t: xp.sort(t(A), 0),
    "argsort": lambda xp, t: xp.argsort(t(A), 1), "sort flat": lambda xp, t: xp.sort(t(A), axis=None),
    "round": lambda xp, t: xp.round(t(A * 1.237), 2), "round back": lambda xp, t: xp.round(t(K * 7), -1),
    "clip": lambda xp, t: xp.clip(t(A), a_min=0, a_max=3), "where one": lambda xp, t: xp.where(t(M)),
    "where": lambda xp, t: xp.where(t(M), t(A), 0.0), "concatenate": lambda xp, t: xp.concatenate([t(A), t(B)], 1),
    "stack": lambda xp, t: xp.stack([t(A), t(B)], 1), "transpose": lambda xp, t: xp.transpose(t(A[None]), (2, 0, 1)),
    "transpose all": lambda xp, t: xp.transpose(t(A)), "dot": lambda xp, t: xp.dot(t(A), t(V)),
    "dot 3": lambda xp, t: xp.dot(t(A[None]), t(A.T)), "vdot": lambda xp, t: xp.vdot(t(C), t(C + 1)),
    "inner": lambda xp, t: xp.inner(t(A), t(B)), "outer": lambda xp, t: xp.outer(t(V), t(W)),
    "trace": lambda xp, t: xp.trace(t(A), 1), "cross": lambda xp, t: xp.cross(t(S), t(S[::-1])),
    "matvec": lambda xp, t: xp.matvec(t(A), t(V)), "vecmat": lambda xp, t: xp.vecmat(t(W), t(A)),
    "matmul": lambda xp, t: xp.matmul(t(A), t(B.T)), "tensordot": lambda xp, t: xp.tensordot(t(A), t(B.T), 1),
    "zeros": lambda xp, t: xp.zeros((2, 3), np.int32), "full": lambda xp, t: xp.full((2,), 7, np.float64),
    "eye": lambda xp, t: xp.eye(3, 4, 1, np.float64), "identity": lambda xp, t: xp.identity(3, np.float64),
    "tri": lambda xp, t: xp.tri(3, 4, -1, dtype=np.float64), "arange": lambda xp, t: xp.arange(2, 9, 3, np.int64),
    "array": lambda xp, t: xp.array([[1, 2], [3, 4]], np.float64,
                                    ndmin=3), "asanyarray": lambda xp, t: xp.asanyarray(A),
    "linspace": lambda xp, t: xp.linspace(0.0, 1.0, dtype=np.float64), "indices": lambda xp, t: xp.indices((2, 3)),
    "logspace": lambda xp, t: xp.logspace(0, 2, 5, dtype=np.float64), "geomspace": lambda xp, t: xp.geomspace(
        1, 64, 7, dtype=np.float64), "tril": lambda xp, t: xp.tril(t(A), -1), "triu": lambda xp, t: xp.triu(t(A), 1),
    "triu_indices": lambda xp, t: xp.triu_indices(4, 1), "tril_indices": lambda xp, t: xp.tril_indices(3, -1, 4),
    "triu_indices_from": lambda xp, t: xp.triu_indices_from(t(A), 1),
    "tril_indices_from": lambda xp, t: xp.tril_indices_from(t(A)),
    "diag_indices_from": lambda xp, t: xp.diag_indices_from(t(S)), "mask_indices": lambda xp, t: xp.mask_indices(3,
        xp.triu),
    "diag": lambda xp, t: xp.diag(t(A), 1), "flip": lambda xp, t: xp.flip(t(A), 0), "roll": lambda xp, t: xp.roll(t(A),
        1, 0),
    "rot90": lambda xp, t: xp.rot90(t(A), 3), "repeat": lambda xp, t: xp.repeat(t(A), 2, 0),
    "tile": lambda xp, t: xp.tile(t(A), (2, 1)), "take": lambda xp, t: xp.take(t(A), t([2, 0]), 1),
    "take_along_axis": lambda xp, t: xp.take_along_axis(t(A), t(A.argsort(1)), 1), "diff": lambda xp, t: xp.diff(t(A),
        2, 0),
    "ediff1d": lambda xp, t: xp.ediff1d(t(V), to_begin=9.0, to_end=[1.0,
                                                                    2.0]), "squeeze": lambda xp,
                                                                    t: xp.squeeze(t(A[None])),
    "expand_dims": lambda xp, t: xp.expand_dims(t(A), 1), "rollaxis": lambda xp, t: xp.rollaxis(t(A[None]), 2),
    "row_stack": lambda xp, t: xp.vstack([t(A), t(V)]), "split": lambda xp, t: xp.split(t(A), 2, 1),
    "dsplit": lambda xp, t: xp.dsplit(t(A[None]), 2), "resize": lambda xp, t: xp.resize(t(A), (5, 3)),
    "pad": lambda xp, t: xp.pad(t(A), 1, "constant", constant_values=7.0), "pad edge": lambda xp, t: xp.pad(t(A), 2,
        mode="edge"),
    "gradient": lambda xp, t: xp.gradient(t(V), 0.5, edge_order=2), "gradient two": lambda xp, t: xp.gradient(t(A)),
    "histogram": lambda xp, t: xp.histogram(t(A), bins=5), "histogram range": lambda xp, t: xp.histogram(t(A), 4, (0.0,
        5.0)),
    "histogramdd": lambda xp, t: xp.histogramdd(t(A.T), 2)[0], "bincount": lambda xp, t: xp.bincount(t(K.ravel() % 4)),
    "digitize": lambda xp, t: xp.digitize(t(V), t(W)), "searchsorted": lambda xp, t: xp.searchsorted(t(W), t(V),
        "right"),
    "unique": lambda xp, t: xp.unique(t(K % 3), return_counts=True), "unique rows": lambda xp, t: xp.unique(t(K % 2),
        axis=0),
    "setxor1d": lambda xp, t: xp.setxor1d(t([1, 2, 3]), t([2, 3, 4])), "intersect1d": lambda xp, t: xp.intersect1d(
        t([1, 5, 3]), t([3, 4, 1]), return_indices=True), "extract": lambda xp, t: xp.extract(t(M), t(A)),
    "compress": lambda xp, t: xp.compress(t([True, False, True]), t(A), 0), "ix_": lambda xp, t: xp.ix_(t([0, 2]),
        t([1, 3])),
    "lexsort": lambda xp, t: xp.lexsort((t(K.ravel()), t(K.ravel() % 3))), "average": lambda xp, t: xp.average(
        t(A), 0, t(W)), "average returned": lambda xp, t: xp.average(t(A), weights=t(np.abs(B)), returned=True),
    "cov": lambda xp, t: xp.cov(t(A), bias=True), "cov ddof": lambda xp, t: xp.cov(t(A), rowvar=False, ddof=0),
    "corrcoef": lambda xp, t: xp.corrcoef(t(A), rowvar=False), "allclose": lambda xp, t: xp.allclose(t(A), t(A + 1e-9),
        1e-5),
    "ravel_multi_index": lambda xp, t: xp.ravel_multi_index((t([1, 2]), t([3, 0])), (3, 4)),
    "piecewise": lambda xp, t: xp.piecewise(t(V), [t(V < 0), t(V >= 1)], [lambda v: -v, lambda v: v * 2]),
    "apply_along_axis": lambda xp, t: xp.apply_along_axis(lambda v: v * 2 + v[0], 0, t(A)),
    "apply_along_axis number": lambda xp, t: xp.apply_along_axis(lambda v: v.sum(), 1, t(A)),
    "apply_over_axes": lambda xp, t: xp.apply_over_axes(xp.sum, t(A), [0]), "interp": lambda xp, t: xp.interp(
        t(V), t(W), t(W * 2), -1.0, 9.0), "packbits": lambda xp, t: xp.packbits(t(M), axis=1),
    "unpackbits": lambda xp, t: xp.unpackbits(t(np.array([3, 200],
                                                         np.uint8))), "bitwise_not": lambda xp, t: xp.bitwise_not(t(K)),
    "left_shift": lambda xp, t: xp.left_shift(t(K), 2), "right_shift": lambda xp, t: xp.right_shift(t(K), 1),
    "invert": lambda xp, t: xp.invert(t(M)), "bitwise_count": lambda xp, t: xp.bitwise_count(t(-K)),
    "bartlett": lambda xp, t: xp.bartlett(7), "blackman": lambda xp, t: xp.blackman(7), "hamming": lambda xp,
    t: xp.hamming(6),
    "hanning": lambda xp, t: xp.hanning(7), "kaiser": lambda xp, t: xp.kaiser(7,
                                                                              3.0), "poly": lambda xp, t: xp.poly(t(W)),
    "polyadd": lambda xp, t: xp.polyadd(t(W), t(V)), "polysub": lambda xp, t: xp.polysub(t(W), t(V)),
    "polymul": lambda xp, t: xp.polymul(t(W), t(V)), "polydiv": lambda xp, t: xp.polydiv(t(V), t(W[:2])),
    "polyder": lambda xp, t: xp.polyder(t(V), 2), "polyint": lambda xp, t: xp.polyint(t(V), 2, k=[1.0, 2.0]),
    "polyval": lambda xp, t: xp.polyval(t(V), t(W)), "array_equiv": lambda xp, t: xp.array_equiv(t(A), t(A[None])),
    "broadcast_shapes": lambda xp, t: xp.broadcast_shapes((3, 1), (1, 4)), "ndim": lambda xp, t: xp.ndim(t(A)),
    "shape": lambda xp, t: xp.shape(t(A)), "size": lambda xp, t: xp.size(t(A),
                                                                         1), "isscalar": lambda xp, t: xp.isscalar(3.0),
    "iscomplexobj": lambda xp, t: xp.iscomplexobj(t(C)), "isrealobj": lambda xp, t: xp.isrealobj(t(C)),
    "iterable": lambda xp, t: xp.iterable(t(A)), "isfortran": lambda xp, t: xp.isfortran(t(A)),
    "issubdtype": lambda xp, t: (xp.issubdtype(xp.float32, np.floating), xp.issubdtype(xp.int8, np.floating)),
    "fromfunction": lambda xp, t: xp.fromfunction(lambda i, j: i * 10 + j, (3, 2), dtype=int),
    "fromiter": lambda xp, t: xp.fromiter((n * n for n in range(4)), np.int64),
    "frombuffer": lambda xp, t: xp.frombuffer(b"\1\0\2\0", np.int16), "fromstring": lambda xp, t: xp.fromstring("1 2",
        sep=" "),
    "vectorize": lambda xp, t: xp.vectorize(lambda a, b: a + b if a > 1 else 0.0)(t(A), t(B)),
    "frompyfunc": lambda xp, t: np.asarray(xp.frompyfunc(lambda a: a * 2, 1, 1)(t(V)), float),
    "out": lambda xp, t: (lambda z: (xp.add(t(A), t(B), out=z), z))(t(np.zeros_like(A))),
    "where ufunc": lambda xp, t: xp.multiply(t(A), 2, out=t(np.zeros_like(A)), where=t(M)),
    "dtype ufunc": lambda xp, t: xp.add(t(K), t(K), dtype=np.float64), "fft": lambda xp, t: xp.fft.fft(t(A), 8, 0),
    "norm": lambda xp, t: xp.linalg.norm(t(A), 2, 1), "isclose": lambda xp, t: xp.isclose(t(A), t(A), 1e-3, 0.0),
    "meshgrid": lambda xp, t: xp.meshgrid(t(V), t(W), sparse=True), "select": lambda xp, t: xp.select([t(M)], [t(A)],
        5.0),
    "append": lambda xp, t: xp.append(t(A), t(B), 0), "c_": lambda xp, t: xp.c_[t(V),
                                                                                t(V)], "r_": lambda xp, t: xp.r_[t(V),
                                                                                    1.0, t(W)],
    "mgrid": lambda xp, t: xp.mgrid[0:2, 0:3], "s_": lambda xp, t: t(A)[xp.s_[1:,
                                                                              ::2]], "ogrid": lambda xp,
                                                                              t: xp.ogrid[0:2, 0:3],
    "promote_types": lambda xp, t: str(xp.promote_types("float32",
                                                        "int8")), "conjugate": lambda xp, t: xp.conjugate(t(C)),
    "asarray_chkfinite": lambda xp, t: xp.asarray_chkfinite(A), "array_str": lambda xp, t: xp.array_str(t(V)),
    "array2string": lambda xp, t: xp.array2string(t(V)), "may_share_memory": lambda xp, t: xp.may_share_memory(t(A),
        t(B)),
    "shares_memory": lambda xp, t: xp.shares_memory(t(A),
                                                    t(B)), "ascontiguousarray": lambda xp,
                                                    t: xp.ascontiguousarray(t(A.T)),
    "round method": lambda xp, t: t(A * 1.237).round(2), "std method": lambda xp, t: t(A).std(0, ddof=1),
    "argsort method": lambda xp, t: t(A).argsort(0), "cumsum method": lambda xp, t: t(A).cumsum(1),
    "repeat method": lambda xp, t: t(A).repeat(2, 0), "swapaxes method": lambda xp, t: t(A).swapaxes(0, 1),
    "transpose method": lambda xp, t: t(A[None]).transpose(2, 0, 1), "flatten method": lambda xp, t: t(A).flatten(),
    "ravel method": lambda xp, t: t(A).ravel(), "T": lambda xp, t: t(A[None]).T, "dot method": lambda xp,
    t: t(A).dot(t(V)),
    "clip method": lambda xp, t: t(A).clip(0, 2), "take method": lambda xp, t: t(A).take(t([1, 0]), 1),
    "compress method": lambda xp, t: t(A).compress(t([True, False, True]), 0), "choose method": lambda xp, t: t(
        np.array([0, 1, 0, 1])).choose([t(V), t(V * 2)]), "trace method": lambda xp, t: t(A).trace(1),
    "nonzero method": lambda xp, t: t(M).nonzero(), "tobytes": lambda xp, t: t(A).tobytes(), "real": lambda xp,
    t: t(C).real,
    "imag": lambda xp, t: t(C).imag, "view dtype": lambda xp, t: t(W).view(np.int64), "copy method": lambda xp,
    t: t(A).copy(),
    "sum method": lambda xp, t: t(K).sum(0, np.float64), "mean method": lambda xp, t: t(K).mean(dtype=np.float32),
    "squeeze method": lambda xp, t: t(A[None]).squeeze(), "diagonal": lambda xp, t: t(A).diagonal(1),
    "searchsorted method": lambda xp, t: t(W).searchsorted(t(V)), "prod method": lambda xp, t: t(A).prod(0),
    "conj": lambda xp, t: t(C).conj(), "flat": lambda xp, t: list(t(A).flat), "itemsize": lambda xp, t: t(A).itemsize,
    "argpartition": lambda xp, t: xp.sort(xp.argpartition(t(V), 1)[:1]), "ptp": lambda xp, t: xp.ptp(t(A), 0),
}
# Names whose test stands elsewhere, or whose result is nothing to compare.
OTHERWISE = {"array_repr", "get_printoptions", "load", "printoptions", "save", "savez", "savez_compressed",
             "set_printoptions",
             "fromfile", "genfromtxt", "loadtxt", "savetxt", "copyto", "fill_diagonal", "place", "put", "putmask",
             "top_k",
             "row_stack"}


def same(result: Any, wanted: Any) -> None:
    if isinstance(wanted, tuple | list):
        assert len(result) == len(wanted)
        for one, other in zip(result, wanted, strict=True):
            same(one, other)
    elif isinstance(wanted, str | bytes):
        assert result == wanted
    else:
        result = result.numpy() if isinstance(result, mo.Tensor) else np.asarray(result)
        wanted = np.asarray(wanted)
        assert result.shape == wanted.shape and result.dtype.kind == wanted.dtype.kind, (result.dtype, wanted.dtype)
        np.testing.assert_allclose(result, wanted, rtol=2e-6 if result.dtype.itemsize < 8 else 1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_gives_what_numpy_gives(name: str) -> None:
    with np.errstate(all="ignore"):
        wanted = CALLS[name](np, np.array)
    with mo.device("reference"):  # values alone are compared: no kernel is compiled
        same(CALLS[name](mo, mo.array), wanted)


def test_every_name_is_called() -> None:
    called = {name.split()[0] for name in CALLS}
    left = {alias.name for alias in ALIASES.values() if alias.owner == "numpy"} - called - OTHERWISE
    assert not left, sorted(left)


def test_what_numpy_writes_to_its_argument_is_assigned() -> None:
    for write in (lambda xp, x: xp.fill_diagonal(x, 5.0), lambda xp, x: xp.put(x, [0, 5], [1.0, 2.0]),
                  lambda xp, x: xp.place(x, x > 1, [7.0, 8.0]), lambda xp, x: xp.putmask(x, x > 1, [7.0, 8.0]),
                  lambda xp, x: xp.copyto(x, 3.0, where=x > 1), lambda xp, x: x.sort(), lambda xp, x: x.fill(2.0),
                  lambda xp, x: x.sort(0), lambda xp, x: x.put([1, 2], 9.0)):
        array, tensor = A.copy(), mo.array(A)
        before = tensor + 0
        assert write(np, array) is None and write(mo, tensor) is None
        assert np.array_equal(tensor.numpy(), array) and np.array_equal(before.numpy(), A)


def test_files(tmp_path: Any) -> None:
    path = str(tmp_path / "a.npy")
    mo.save(path, mo.array(A))
    assert np.array_equal(np.load(path), A) and np.array_equal(mo.load(path).numpy(), A)
    mo.savez(str(tmp_path / "b.npz"), first=mo.array(A), second=V)
    parts = mo.load(str(tmp_path / "b.npz"))
    assert sorted(parts) == ["first", "second"] and np.array_equal(parts["first"].numpy(), A)
    tree = {"model": {"w": mo.array(A), "b": [mo.ones(2), 3]}, "epoch": 4, "name": "x", 7: (None, True)}
    mo.save(tree, str(tmp_path / "c.pt"))
    again = mo.load(str(tmp_path / "c.pt"))
    assert again["epoch"] == 4 and again[7] == (None, True) and again["model"]["b"][1] == 3
    assert np.array_equal(again["model"]["w"].numpy(), A)
    (tmp_path / "d.pt").write_bytes(b"\x80\x04N.")
    with pytest.raises(mo.weights.FileFault, match="is a pickle"):
        mo.load(str(tmp_path / "d.pt"))
    with pytest.raises(mo.errors.ArgumentError, match="neither a tensor"):
        mo.save({"f": object()}, str(tmp_path / "e.pt"))


TRUTH = """
floor(t) | ceil(t) | trunc(t) | t @ t | dot(t[0], t[1]) | inner(t, t) | tensordot(t, t, 1) | vdot(t[0], t[0])
convolve(t[0], t[1]) | convolve(i, i) | convolve(i, [1, 0, 2], "same") | correlate(i, [1, 2], "full")
append(u, 300) | append(u, 3) | kron(u, 300) | setdiff1d(u, 300) | intersect1d(u, 300) | isin(u, 300)
indices(n for n in (2, 3)) | matmul(i, i, out=zeros((), dtype=int64))
"""


def test_truth_values_and_small_integers_are_numpys() -> None:
    for text in TRUTH.replace("\n", "|").split("|"):
        if not text.strip():
            continue
        call = text if text.strip().startswith("t ") else f"np.{text.strip().replace('zeros', 'np.zeros')}"
        call = call.replace("=int64", "=np.int64").strip()
        results = []
        for library in (np, mo):
            arrays = {"t": [[True, False, True], [False, False, True], [True, True, True]], "i": [3, 1, 2]}
            space = {name: library.asarray(value) for name, value in arrays.items()}
            results.append(eval(call, {"np": library, "u": library.asarray([1, 44], dtype=library.uint8), **space}))
        one, other = np.asarray(results[0]), np.asarray(results[1])
        assert one.dtype == other.dtype and np.array_equal(one, other), call
