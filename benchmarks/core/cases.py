"""The cases every peer runs: inputs from a seed, and the answer in float64 NumPy.

A case is known to a peer by its name; the order of the inputs is the order of the peer function's arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Arrays = dict[str, np.ndarray]
Shape = tuple[int, ...]
EPSILON = 1e-5
SAMPLE_ELEMENTS = 1 << 20
SMALL_VALUES = 1e-7  # absolute error allowed where results are far below 1
LONG_SUM = 3e-4  # relative error allowed in an f32 sum of 16 million values; BLAS dot needs most of it


@dataclass(frozen=True)
class Case:
    """One computation. ``by_row`` names the inputs that split along axis 0 when rows are independent (else empty)."""

    inputs: Callable[[np.random.Generator, Shape], Arrays]
    reference: Callable[..., tuple[np.ndarray, ...]]
    by_row: tuple[str, ...] = ()
    math_heavy: bool = False
    absolute: float = 1e-5
    relative: float = 5e-5
    seen: Callable[[np.ndarray], np.ndarray] | None = None  # what is compared of a result that is drawn at random


def normal(*names: str) -> Callable[[np.random.Generator, Shape], Arrays]:
    """Inputs of the full shape, standard normal."""
    return lambda rng, shape: {name: rng.standard_normal(shape, dtype=np.float32) for name in names}


def uniform(*names: str) -> Callable[[np.random.Generator, Shape], Arrays]:
    """Inputs of the full shape, uniform in [0, 1): sums do not cancel."""
    return lambda rng, shape: {name: rng.random(shape, dtype=np.float32) for name in names}


def normal_with_columns(*columns: str) -> Callable[[np.random.Generator, Shape], Arrays]:
    """``x`` of the full shape and vectors of one value per column."""
    return lambda rng, shape: {"x": rng.standard_normal(shape, dtype=np.float32),
                               **{name: rng.standard_normal(shape[-1], dtype=np.float32) for name in columns}}


def bias_inputs(rng: np.random.Generator, shape: Shape) -> Arrays:
    """x, a bias per column, a residual."""
    return {**normal_with_columns("bias")(rng, shape), **normal("residual")(rng, shape)}


def mask_inputs(rng: np.random.Generator, shape: Shape) -> Arrays:
    """x and a Boolean mask that lets about 3 of 4 through and the first of each row always."""
    mask = rng.random(shape, dtype=np.float32) < 0.75
    mask[:, 0] = True
    return {**normal("x")(rng, shape), "mask": mask}


def label_inputs(rng: np.random.Generator, shape: Shape) -> Arrays:
    """Logits and the right class of each row."""
    return {**normal("x")(rng, shape), "labels": rng.integers(0, shape[1], shape[0], dtype=np.int64)}


def erf(x: np.ndarray) -> np.ndarray:
    """erf in float64; SciPy's where present, else the standard library's, value by value."""
    try:
        from scipy.special import erf as vectorised
    except ImportError:
        return np.vectorize(math.erf, otypes=[np.float64])(x)
    return vectorised(x)


def gelu(x: np.ndarray) -> np.ndarray:
    """Exact GELU."""
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def chain10(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Ten elementwise operations."""
    t = (x * y + x) * 0.5 - y
    return (np.maximum(np.sqrt(t * t + 1.0) * y + x, 0.0),)


def chain20(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Twenty elementwise operations: ten multiply-and-add steps."""
    t = x
    for _ in range(10):
        t = t * y + x
    return (t,)


def softmax(x: np.ndarray) -> np.ndarray:
    """Softmax along rows."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def log_sum_exp(x: np.ndarray) -> np.ndarray:
    """log(sum(exp(row))), a column."""
    top = x.max(axis=-1, keepdims=True)
    return np.log(np.exp(x - top).sum(axis=-1, keepdims=True)) + top


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, ...]:
    """Layer norm along rows."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return (centred / np.sqrt(x.var(axis=-1, keepdims=True) + EPSILON) * weight + bias,)


def rms_norm(x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, ...]:
    """RMS norm along rows."""
    return (x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON) * weight,)


def cross_entropy(x: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, ...]:
    """The loss of each row."""
    return ((log_sum_exp(x) - np.take_along_axis(x, labels[:, None].astype(np.int64), axis=1))[:, 0],)


CASES: dict[str, Case] = {
    "add": Case(normal("a", "b"), lambda a, b: (a + b,), by_row=("a", "b")),
    "triad": Case(normal("b", "c"), lambda b, c: (b + c * 3.0,), by_row=("b", "c")),
    "gelu": Case(normal("x"), lambda x: (gelu(x),), by_row=("x",), math_heavy=True),
    "chain20": Case(uniform("x", "y"), chain20, by_row=("x", "y")),
    "chain10": Case(normal("x", "y"), chain10, by_row=("x", "y")),
    "bias_gelu_residual": Case(bias_inputs, lambda x, bias, residual: (gelu(x + bias) + residual,),
                               by_row=("x", "residual"), math_heavy=True),
    "softmax": Case(normal("x"), lambda x: (softmax(x),), by_row=("x",), math_heavy=True, absolute=SMALL_VALUES),
    "log_softmax": Case(normal("x"), lambda x: (x - log_sum_exp(x),), by_row=("x",), math_heavy=True),
    "layer_norm": Case(normal_with_columns("weight", "bias"), layer_norm, by_row=("x",)),
    "rms_norm": Case(normal_with_columns("weight"), rms_norm, by_row=("x",)),
    "mean_variance": Case(normal("x"), lambda x: (x.mean(axis=-1), x.var(axis=-1)), by_row=("x",)),
    "standardise": Case(normal("x"), lambda x: ((x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + EPSILON),)),
    "masked_softmax": Case(mask_inputs, lambda x, mask: (softmax(np.where(mask > 0, x, -np.inf)),),
                           by_row=("x", "mask"), math_heavy=True, absolute=SMALL_VALUES),
    "cross_entropy": Case(label_inputs, cross_entropy, by_row=("x", "labels"), math_heavy=True),
    "squared_error": Case(normal("x", "target"), lambda x, target: (np.square(x - target).mean(),),
                          relative=LONG_SUM),
    "sum_dot_max": Case(uniform("x", "y"), lambda x, y: (x.sum(), (x * y).sum(), x.max()), relative=LONG_SUM),
}


def positive(*names: str) -> Callable[[np.random.Generator, Shape], Arrays]:
    """Inputs of the full shape between 0.1 and some 4."""
    return lambda rng, shape: {name: np.abs(array) + np.float32(0.1)
                               for name, array in normal(*names)(rng, shape).items()}


def inside(*names: str) -> Callable[[np.random.Generator, Shape], Arrays]:
    """Inputs of the full shape in (-0.95, 0.95)."""
    return lambda rng, shape: {name: np.float32(0.95) * (2 * array - 1)
                               for name, array in uniform(*names)(rng, shape).items()}


# By the standard's names: inputs, and what NumPy calls them.
FUNCTIONS: dict[str, tuple[Callable[[np.random.Generator, Shape], Arrays], str]] = {
    **{name: (normal("x"), name) for name in ("exp", "exp2", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{name: (positive("x"), name) for name in ("log", "log2", "log10", "log1p", "sqrt", "reciprocal")},
    **{name: (inside("x"), "arc" + name[1:]) for name in ("asin", "acos", "atan", "atanh")},
    "asinh": (normal("x"), "arcsinh"),
    "pow": (positive("x", "y"), "power"),
    "atan2": (normal("x", "y"), "arctan2"),
    "hypot": (normal("x", "y"), "hypot"),
    "logaddexp": (normal("x", "y"), "logaddexp"),
    "remainder": (positive("x", "y"), "remainder"),
    "argmax": (normal("x"), "argmax"),
    "sort": (normal("x"), "sort"),
}


def _function_case(inputs: Callable[[np.random.Generator, Shape], Arrays], called: str) -> Case:
    return Case(inputs, lambda **given: (getattr(np, called)(*given.values()),), absolute=1e-6)


CASES |= {f"function {name}": _function_case(inputs, called) for name, (inputs, called) in FUNCTIONS.items()}


def _complex_normal(rng: np.random.Generator, shape: Shape) -> Arrays:
    return {"x": rng.standard_normal(shape) + 1j * rng.standard_normal(shape)}


def _real_normal(rng: np.random.Generator, shape: Shape) -> Arrays:
    return {"x": rng.standard_normal(shape)}


TRANSFORMS = {"fft": _complex_normal, "fftn": _complex_normal, "rfft": _real_normal}  # float64: as NumPy computes
CASES |= {f"fourier {name}": Case(inputs, lambda x, name=name: (getattr(np.fft, name)(x),), absolute=1e-10,
                                  relative=1e-10) for name, inputs in TRANSFORMS.items()}


def _distinct(dtype: str) -> Callable[[np.random.Generator, Shape], Arrays]:
    """Numbers of both signs in random order, none twice, so that there is one order of their indices."""

    def made(rng: np.random.Generator, shape: Shape) -> Arrays:
        numbers = rng.permutation(math.prod(shape)).reshape(shape) - math.prod(shape) // 2
        if dtype == "int64":
            numbers = numbers * -7046029254386353131  # an odd number: they are spread over the whole range
        return {"x": (numbers / 7 if dtype.startswith("float") else numbers).astype(dtype)}

    return made


SORTS = {f"{name} {dtype}": (name, dtype) for name in ("sort", "argsort")
         for dtype in ("float32", "float64", "int32", "int64")}
CASES |= {f"sorting {label}": Case(_distinct(dtype), lambda x, name=name: (getattr(np, name)(x),), absolute=1e-300,
                                   relative=0.0, seen=lambda result: result) for label, (name, dtype) in SORTS.items()}

SHARES = np.arange(0.1, 0.95, 0.1)  # quantiles that draws are compared by
NORMAL_DECILES = (-1.2815516, -0.8416212, -0.5244005, -0.2533471, 0.0, 0.2533471, 0.5244005, 0.8416212, 1.2815516)
DRAWS: dict[str, Callable[[int], np.ndarray]] = {
    "uniform": lambda count: SHARES, "normal": lambda count: np.array(NORMAL_DECILES),
    "exponential": lambda count: -np.log1p(-SHARES), "permutation": lambda count: np.arange(count)}


def _count(rng: np.random.Generator, shape: Shape) -> Arrays:
    return {"count": np.asarray(math.prod(shape))}


CASES |= {f"random {name}": Case(_count, lambda count, right=right: (right(int(count)),), absolute=0.1,
                                 seen=np.sort if name == "permutation" else lambda drawn: np.quantile(drawn, SHARES))
          for name, right in DRAWS.items()}


def _wide(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "iu":
        return array
    return np.asarray(array, np.complex128 if np.iscomplexobj(array) else np.float64)


def make_inputs(name: str, shape: Shape) -> Arrays:
    """The inputs of a case: the same in every process."""
    return CASES[name].inputs(np.random.default_rng(20240611), shape)


def check(name: str, inputs: Arrays, results: tuple[np.ndarray, ...]) -> float:
    """The worst error as a share of what is allowed; ValueError when above 1. Large row-wise cases are sampled."""
    case = CASES[name]
    elements = max(array.size for array in inputs.values())
    step = max(1, elements // SAMPLE_ELEMENTS) if case.by_row else 1
    wide = {key: _wide(array[::step] if key in case.by_row else array) for key, array in inputs.items()}
    expected = case.reference(**wide)
    if len(results) != len(expected):
        raise ValueError(f"{name}: {len(results)} results, expected {len(expected)}")
    worst = 0.0
    for result, right in zip(results, expected, strict=True):
        seen = _wide(case.seen(result) if case.seen else result)
        seen = seen[::step] if case.by_row else seen
        if seen.shape != np.shape(right):
            raise ValueError(f"{name}: result of shape {seen.shape}, expected {np.shape(right)}")
        share = np.abs(seen - right) / (case.absolute + case.relative * np.abs(right))
        worst = float(np.maximum(worst, np.max(share)))  # unlike max(), keeps NaN
    if not worst <= 1.0:
        raise ValueError(f"{name}: wrong result, {worst:.3g} times the allowed error")
    return worst
