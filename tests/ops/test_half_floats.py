"""Functions of float16 that are made of several operations: they compute wider and round once, so that nothing in
between overflows (squares past 256) or vanishes (squares below 1e-3)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.tensor.core import Tensor

Array = Any
SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "x": ((9,),), "x y": ((9,), (9,)), "x y z": ((9,), (9,), (9,)), "m": ((5, 4),), "m m": ((5, 4), (3, 4)),
    "square": ((4, 4),), "square v": ((4, 4), (4,)), "3 3": ((3,), (3,)), "images": ((2, 3, 8, 8),),
    "lines": ((2, 3, 8),), "lines filters": ((2, 3, 8), (4, 3, 3)), "images filters": ((2, 3, 8, 8), (4, 3, 3, 3)),
    "heads": ((1, 2, 4, 4),) * 3, "rows": ((4, 5), (4, 5))}
SLACK = {"linalg.solve_toeplitz": 1e-3}  # as a share of the value, beside one unit: an ill-conditioned system
Row = tuple[Callable[..., Any], str]
nn, la = mo.nn, mo.linalg
FUNCTIONS: dict[str, Row] = {
    **{name: (getattr(mo, name), "x") for name in (
        "std", "var", "mean", "sum", "nanstd", "nanvar", "nanmean", "nansum", "average", "median", "nanmedian",
        "logsumexp", "softmax", "log_softmax", "logcumsumexp", "cumulative_sum", "diff", "ptp", "cov", "gradient",
        "trapezoid", "cumulative_trapezoid", "rsqrt", "reciprocal", "sinc", "logit", "softplus", "gelu", "silu", "mish",
        "elu", "selu", "sigmoid", "leaky_relu", "relu", "square", "sqrt", "cbrt", "exp2", "expm1", "log1p", "tanh",
        "asinh", "atan", "rad2deg", "deg2rad", "erf", "erfc", "lgamma", "digamma", "i0", "vander")},
    **{name: (getattr(mo, name), "x y") for name in (
        "add", "subtract", "multiply", "divide", "hypot", "logaddexp", "atan2", "remainder", "fmod", "floor_divide",
        "xlogy", "trapezoid", "cumulative_trapezoid", "vecdot", "convolve", "correlate", "outer", "polyval", "kron",
        "corrcoef", "copysign", "heaviside", "maximum", "fmin")},
    "lerp": (lambda x, y: mo.lerp(x, y, 0.25), "x y"), "lerp, far": (lambda x: mo.lerp(-30 * x, 30 * x, 0.5), "x"),
    "quantile": (lambda x: mo.quantile(x, 0.3), "x"), "nanquantile": (lambda x: mo.nanquantile(x, 0.3), "x"),
    "gradient, at": (lambda x, y: mo.gradient(x, mo.sort(y)), "x y"),
    "interp": (lambda x, y: mo.interp(x, mo.sort(y), x), "x y"),
    "std, correction": (lambda x: mo.std(x, axis=1, correction=1), "m"),
    "var, axis": (lambda x: mo.var(x, axis=0), "m"),
    "cov, rows": (mo.cov, "m"), "corrcoef, rows": (mo.corrcoef, "m"), "cdist": (mo.cdist, "m m"),
    "cdist, p": (lambda a, b: mo.cdist(a, b, p=3.0), "m m"), "pdist": (mo.pdist, "m"),
    "layer_norm": (lambda x: mo.layer_norm(x), "m"), "rms_norm": (lambda x: mo.rms_norm(x), "m"),
    "matmul": (lambda a, b: a @ b.T, "m m"), "tensordot": (lambda a, b: mo.tensordot(a, b, axes=((1,), (1,))), "m m"),
    "einsum": (lambda a, b: mo.einsum("ik,jk->ij", a, b), "m m"), "attention": (mo.attention, "heads"),
    "avg_pool1d": (lambda x: mo.avg_pool1d(x, 2), "lines"), "avg_pool2d": (lambda x: mo.avg_pool2d(x, 2), "images"),
    "adaptive_avg_pool2d": (lambda x: mo.adaptive_avg_pool2d(x, 3), "images"),
    "conv1d": (mo.conv1d, "lines filters"), "conv2d": (mo.conv2d, "images filters"),
    "interpolate": (lambda x: nn.interpolate(x, size=(5, 5), mode="bilinear"), "images"),
    "group_norm": (lambda x: nn.GroupNorm(1, 3).astype("float16")(x) if x.dtype is mo.float16 else
                   nn.GroupNorm(1, 3).astype("float64")(x), "images"),
    **{f"linalg.{name}": (getattr(la, name), "x") for name in ("norm", "vector_norm")},
    "linalg.norm, 3": (lambda x: la.vector_norm(x, ord=3), "x"), "linalg.vecdot": (la.vecdot, "x y"),
    "linalg.cross": (la.cross, "3 3"), "linalg.matrix_norm": (la.matrix_norm, "m"),
    "linalg.trace": (la.trace, "square"),
    "linalg.solve_toeplitz": (lambda c, b: la.solve_toeplitz(mo.concat([c[:1] * 4, c[1:] / 8]), b), "x y"),
    "linalg.solve": (lambda a, b: la.solve(a + 4 * a[0, 0] * mo.eye(4, dtype=a.dtype), b), "square v"),
    "nn.cosine_similarity": (nn.cosine_similarity, "rows"), "nn.pairwise_distance": (nn.pairwise_distance, "rows"),
    **{f"nn.{name}": (getattr(nn, name), "rows") for name in (
        "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")},
    "nn.triplet_margin_loss": (nn.triplet_margin_loss, "x y z"),
}


def drawn(kind: str, shapes: Any, rng: np.random.Generator) -> list[Array]:
    """float16 values of one magnitude, of both signs, that differ."""
    low, high = (300, 2000) if kind == "large" else (1e-4, 9e-4)
    return [(rng.uniform(low, high, shape) * rng.choice([-1, 1], shape)).astype(np.float16) for shape in shapes]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["large", "small"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_half_floats_are_rounded_once(name: str, kind: str, rng: np.random.Generator) -> None:
    function, form = FUNCTIONS[name]
    arrays = drawn(kind, SHAPES[form], rng)
    got, want = (function(*[mo.asarray(array.astype(dtype)) for array in arrays]) for dtype in (np.float16, np.float64))
    for one, other in zip(*([x] if isinstance(x, Tensor) else list(x) for x in (got, want)), strict=True):
        assert one.dtype is mo.float16 and one.shape == other.shape
        with np.errstate(all="ignore"):
            exact = other.numpy()
            rounded = exact.astype(np.float16)
            # One unit more: what was computed in float32 may lie on the other side of a middle. Sums that cancel are
            # as exact as float32 is.
            room = np.spacing(np.abs(rounded)).astype(np.float64) + SLACK.get(name, 0) * np.abs(exact)
            off = np.abs(one.numpy().astype(np.float64) - rounded.astype(np.float64))
        same = (one.numpy() == rounded) | (np.isnan(exact) & np.isnan(one.numpy()))
        assert (same | (off <= room)).all(), (one.numpy()[~same], exact[~same])


@pytest.mark.parametrize("name", ["std", "nanstd", "cdist", "lerp", "cov", "trapezoid", "vecdot"])
def test_bfloat16_too_and_gradients(name: str, rng: np.random.Generator) -> None:
    function, form = FUNCTIONS[name]
    arrays = [mo.asarray(array.astype("f")) for array in drawn("small", SHAPES[form], rng)]
    halves = [array.astype(mo.bfloat16) for array in arrays]
    wide = [half.astype(mo.float32) for half in halves]
    found, wanted = function(*halves), function(*wide).astype(mo.bfloat16)
    assert found.astype("float32").tolist() == wanted.astype("float32").tolist()
    slopes = [mo.grad(lambda *x: function(*x).astype("float32").sum())(*x).numpy() for x in (halves, wide)]
    np.testing.assert_allclose(*slopes, rtol=0.02, atol=1e-5)


def test_functions_of_half_floats_keep_their_signatures() -> None:
    assert str(inspect.signature(mo.cdist)) == "(x1: 'Any', x2: 'Any', /, *, p: 'float' = 2.0) -> 'Tensor'"
