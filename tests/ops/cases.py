"""One table of every op in the registry: dtypes, attributes, inputs, and how closely backends must agree.

`ELEMENTWISE` holds the ops whose inputs and output have one shape, `SHAPED` the rest. `test_ops.py` and
`test_gradients.py` walk both; a test fails if an op of the registry is in neither.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from running import stored

from morpho.base.dims import Dim
from morpho.base.dtypes import (
    ALL,
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
    uint32,
)
from morpho.ir.node import Node, build
from morpho.ops.algebra import expand
from morpho.ops.contract import transpose
from morpho.ops.order import mark
from morpho.ops.sources import pick

Array = Any
MOST = 8192
LENGTH = Dim("n", 0, MOST)


def of_kinds(kinds: str) -> tuple[DType, ...]:
    """Every dtype of these kinds."""
    return tuple(dtype for dtype in ALL if dtype.kind in kinds)


# -- values ----------------------------------------------------------------------------------------------------------
def special_values(dtype: DType) -> Array:
    """Zeros, units, limits of the format and their neighbours, NaN and infinities; as numbers."""
    if dtype is bool_:
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        width = 8 * dtype.itemsize
        values = [0, 1, 2, 3, 7, width - 1, width, info.max, info.max - 1, info.min, info.min + 1, info.max // 2]
        if dtype.kind == "i":
            values += [-1, -2, -3, -7, -width]
        return np.array(values, dtype.numpy)
    if dtype.is_complex:
        part = special_values(float32 if dtype is complex64 else float64)[:8]
        return (part[:, None] + 1j * part[None, :]).reshape(-1).astype(dtype.numpy)
    mantissa, least, most = {float16: (10, -14, 16), bfloat16: (7, -126, 128), float32: (23, -126, 128),
                             float64: (52, -1022, 1024)}[dtype]
    eps = 2.0**-mantissa
    largest = (2 - eps) * 2.0**(most - 1)
    tiny, subnormal = 2.0**least, 2.0**(least - mantissa)
    positive = [0.0, 1.0, 0.5, 2.0, 3.0, 1 + eps, 1 - eps / 2, 1.5, 2.5, 10.0, 88.0, largest, largest * (1 - eps),
                tiny, tiny * (1 - eps), subnormal, 3 * subnormal, eps, 100.5, np.inf]
    values = np.array([*positive, *[-x for x in positive], np.nan])
    return values.astype(np.float32 if dtype is bfloat16 else dtype.numpy)


def random_values(rng: np.random.Generator, dtype: DType, count: int) -> Array:
    """Everyday numbers and random bit patterns, half each; as numbers."""
    if dtype is bool_:
        return rng.random(count) < 0.5
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        wide = rng.integers(info.min, info.max, count, dtype.numpy, endpoint=True)
        small = rng.integers(max(info.min, -9), 10, count).astype(dtype.numpy)
        return np.where(rng.random(count) < 0.5, wide, small)
    if dtype.is_complex:
        return (rng.normal(0, 3, count) + 1j * rng.normal(0, 3, count)).astype(dtype.numpy)
    everyday = rng.normal(0, 3, count)
    bits = rng.integers(0, 1 << 16 if dtype.itemsize == 2 else 1 << 32, count, dtype=np.uint64)
    if dtype is bfloat16:
        patterns = (bits << np.uint64(16)).astype(np.uint32).view(np.float32)
    elif dtype is float64:
        patterns = (bits << np.uint64(32) | bits).view(np.float64)
    else:
        patterns = bits.astype(f"u{dtype.itemsize}").view(dtype.numpy)
    work = np.float32 if dtype is bfloat16 else dtype.numpy
    with np.errstate(all="ignore"):
        return np.where(rng.random(count) < 0.5, everyday.astype(work), patterns)


def operands(rng: np.random.Generator, kinds: Sequence[DType], count: int) -> list[Array]:
    """Inputs of an elementwise op in stored form: every combination of special values, then random ones."""
    special = [special_values(dtype) for dtype in kinds]
    if len(kinds) == 1:
        columns = special
    else:
        most = 41 if len(kinds) == 2 else 9
        chosen = [v if len(v) <= most else np.concatenate([v[:most - 1], v[-1:]]) for v in special]
        columns = [np.array(c, v.dtype) for c, v in zip(zip(*itertools.product(*chosen)), chosen)]
    result = []
    for dtype, column in zip(kinds, columns):
        extra = random_values(rng, dtype, count)
        result.append(stored(np.concatenate([column, extra]), dtype))
    return result


# -- elementwise -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Elementwise:
    """An op of one shape. `accuracy` is 0 for exact ops, else the promised last places."""

    op: str
    kinds: str
    arity: int = 1
    accuracy: float = 0
    domain: tuple[float, float] = (-3.0, 3.0)  # where the gradient check draws its inputs
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return (uint32,) if self.op == "threefry" else ALL if self.op == "cast" else of_kinds(self.kinds)

    def inputs(self, dtype: DType) -> list[DType]:
        """The dtype of each input."""
        return [bool_, dtype, dtype] if self.op == "where" else [dtype] * self.arity

    def build(self, *nodes: Node) -> Node:
        return build(self.op, *nodes, **self.attributes)


def _unary() -> list[Elementwise]:
    table = [Elementwise(name, "iufc") for name in ("negative", "absolute", "sign", "square")]
    table += [Elementwise("sqrt", "fc", domain=(0.1, 3)), Elementwise("reciprocal", "fc", domain=(0.2, 3))]
    table += [Elementwise(name, "f") for name in ("floor", "ceil", "trunc", "round", "signbit")]
    table += [Elementwise(name, "fc") for name in ("isnan", "isinf", "isfinite")]
    table += [Elementwise("logical_not", "b"), Elementwise("bitwise_invert", "biu")]
    table += [Elementwise(name, "c") for name in ("real", "imag", "conj")]
    domains = {"log": (0.1, 3), "log2": (0.1, 3), "log10": (0.1, 3), "log1p": (-0.8, 3), "asin": (-0.9, 0.9),
               "acos": (-0.9, 0.9), "acosh": (1.1, 3), "atanh": (-0.9, 0.9), "tan": (-1.2, 1.2)}
    table += [Elementwise(name, "fc", accuracy=1, domain=domains.get(name, (-3, 3))) for name in ("exp", "log", "tanh")]
    table += [Elementwise(name, "f", accuracy=1) for name in ("erf", "sigmoid")]
    table += [Elementwise(name, "fc", accuracy=2, domain=domains.get(name, (-3, 3))) for name in (
        "expm1", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh",
        "acosh", "atanh")]
    table += [Elementwise("gelu_slope", "f", accuracy=5)]
    table += [Elementwise(name, "f", accuracy=2) for name in (
        "exp2", "erfc", "gelu", "gelu_tanh", "silu", "softplus", "mish")]
    return table


def _several() -> list[Elementwise]:
    table = [Elementwise(name, "iufc", 2) for name in ("add", "subtract", "multiply")]
    table += [Elementwise("divide", "fc", 2, domain=(0.5, 3))]
    table += [Elementwise(name, "iuf", 2, domain=(0.3, 3)) for name in ("floor_divide", "remainder")]
    table += [Elementwise("pow", "iufc", 2, 2, domain=(0.3, 2))]
    table += [Elementwise(name, "f", 2, 2) for name in ("atan2", "hypot", "logaddexp")]
    table += [Elementwise(name, "f", 2) for name in ("copysign", "nextafter", "multiply_from_zero")]
    table += [Elementwise(name, "iuf", 2) for name in ("maximum", "minimum", "less", "less_equal", "greater",
                                                       "greater_equal")]
    table += [Elementwise(name, "biufc", 2) for name in ("equal", "not_equal")]
    table += [Elementwise(name, "b", 2) for name in ("logical_and", "logical_or", "logical_xor")]
    table += [Elementwise(name, "biu", 2) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")]
    table += [Elementwise(name, "iu", 2) for name in ("bitwise_left_shift", "bitwise_right_shift")]
    table += [Elementwise("where", "biufc", 3), Elementwise("threefry", "u", 3)]
    return table


CASTS = [Elementwise("cast", "biufc", attributes={"dtype": target}) for target in ALL]
PLAIN = [*_unary(), *_several()]
ELEMENTWISE: list[Elementwise] = [*PLAIN, *CASTS]


# -- other shapes ----------------------------------------------------------------------------------------------------
Specs = list[tuple[tuple[Any, ...], DType]]


@dataclass(frozen=True)
class Shaped:
    """An op with shapes of its own, on one layout of inputs.

    `specs(dtype, n)` gives shape and dtype of every input, with `n` a number or a dynamic size; `make` builds the
    node. `check` is exact (bits of the reference), rule (bits of tests/ops/oracle.py) or close (a tolerance).
    """

    op: str
    label: str
    dtypes: tuple[DType, ...]
    specs: Callable[[DType, Any], Specs]
    make: Callable[..., Node]
    check: str = "exact"
    dynamic: bool = True
    draw: Callable[[np.random.Generator, int, tuple[int, ...], DType], Array] | None = None
    lengths: tuple[int, ...] = (0, 1, 2, 3, 7, 16, 17, 33, 63, 64, 65, 67)
    gradient: bool = True

    def __str__(self) -> str:
        return f"{self.op}-{self.label}"


SOME = (bool_, uint8, int32, float16, bfloat16, float32, float64)
NUMBERS = of_kinds("iuf")
FLOATS = of_kinds("f")
LONG = (0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 67, 130, 4095, 4096, 4097, 8192)


def _rows(dtype: DType, n: Any) -> Specs:
    return [((3, n), dtype)]


def _reductions() -> list[Shaped]:
    table = []
    for name, kinds in {"sum": "iuf", "prod": "iuf", "max": "iuf", "min": "iuf", "any": "b", "all": "b"}.items():
        def rows(x: Node, name: str = name) -> Node:
            return build(name, x, axes=(1,))

        def columns(x: Node, name: str = name) -> Node:
            return build(name, x, axes=(0,))

        def outer(x: Node, name: str = name) -> Node:
            return build(name, x, axes=(0, 2))

        def everything(x: Node, name: str = name) -> Node:
            return build(name, x, axes=(0, 1))

        first = 1 if name in ("max", "min") else 0
        long, short = (tuple(n for n in lengths if n >= first) for lengths in (LONG, LONG[:12]))
        dtypes_here = of_kinds(kinds)
        table.append(Shaped(name, "rows", dtypes_here, _rows, rows, "rule", lengths=long))
        table.append(Shaped(name, "columns", dtypes_here, lambda d, n: [((n, 5), d)], columns, "rule", lengths=short))
        table.append(Shaped(name, "outer", dtypes_here, lambda d, n: [((3, 2, n), d)], outer, "rule", lengths=short))
        table.append(Shaped(name, "everything", dtypes_here, lambda d, n: [((7, n), d)], everything, "rule",
                            lengths=short))
    complexes = (complex64, complex128)
    table += [Shaped(name, "complex", complexes, _rows, lambda x, name=name: build(name, x, axes=(1,)),
                     dynamic=False, lengths=(5,), gradient=False) for name in ("sum", "prod")]
    return table


def _scans() -> list[Shaped]:
    table = []
    for name in ("cumulative_sum", "cumulative_prod"):
        table.append(Shaped(name, "rows", NUMBERS, _rows, lambda x, name=name: build(name, x, axis=1), "rule"))
        table.append(Shaped(name, "columns", NUMBERS, lambda d, n: [((n, 5), d)],
                            lambda x, name=name: build(name, x, axis=0), "rule"))
    return table


def _axes(*axes: int) -> dict[str, Any]:
    return {"axes": axes}


def _moves() -> list[Shaped]:
    def reversed_slice(x: Node) -> Node:
        n = x.shape[1]
        return build("slice", x, starts=(1, n - 1), sizes=(2, n), steps=(1, -1))

    def update(x: Node, value: Node) -> Node:
        return build("update", x, value, starts=(0, 4), sizes=value.shape, steps=(1, -2))

    return [
        Shaped("reshape", "merge", SOME, _rows, lambda x: build("reshape", x, shape=(x.shape[1] * 3,))),
        Shaped("reshape", "of permute", SOME, _rows,
               lambda x: build("reshape", build("permute", x, axes=(1, 0)), shape=(x.shape[1] * 3,))),
        Shaped("permute", "turn", SOME, lambda d, n: [((2, n, 3), d)], lambda x: build("permute", x, axes=(2, 0, 1))),
        Shaped("expand", "new axis", SOME, lambda d, n: [((1, n, 1), d)],
               lambda x: build("expand", x, shape=(3, x.shape[1], 5))),
        Shaped("slice", "backwards", SOME, _rows, reversed_slice, lengths=(1, 2, 17, 67)),
        Shaped("slice", "steps", SOME, lambda d, n: [((9, n), d)],
               lambda x: build("slice", x, starts=(8, 0), sizes=(4, x.shape[1]), steps=(-2, 1))),
        Shaped("window", "overlapping", SOME, lambda d, n: [((9, n), d)],
               lambda x: build("window", x, axes=(0,), sizes=(3,), steps=(2,), dilations=(2,))),
        Shaped("window", "two axes", SOME, lambda d, n: [((n, 6, 5), d)],
               lambda x: build("window", x, axes=(1, 2), sizes=(2, 3), steps=(2, 1), dilations=(1, 1))),
        Shaped("window", "dynamic axis", SOME, lambda d, n: [((2, n + 3), d)],
               lambda x: build("window", x, axes=(1,), sizes=(3,), steps=(1,), dilations=(1,))),
        Shaped("concatenate", "columns", ALL, lambda d, n: [((3, n), d), ((3, 4), d), ((3, n), d)],
               lambda *x: build("concatenate", *x, axis=1)),
        Shaped("concatenate", "rows", SOME, lambda d, n: [((2, n), d), ((1, n), d)],
               lambda *x: build("concatenate", *x, axis=0)),
        Shaped("pad", "both", SOME[1:], _rows,
               lambda x: build("pad", x, before=(1, 2), after=(0, 3), value=1.0 if x.dtype.is_float else 1)),
        Shaped("update", "steps", SOME, lambda d, n: [((n, 7), d), ((n, 3), d)], update),
        Shaped("copy", "turned", ALL, lambda d, n: [((4, n), d)],
               lambda x: build("copy", build("permute", x, axes=(1, 0)))),
        Shaped("again", "after another", ALL, lambda d, n: [((3, n), d), ((n,), d)], lambda x, y: build("again", x, y)),
        Shaped("checkpoint", "one of two", SOME, lambda d, n: [((3, n), d), ((n,), d)],
               lambda x, y: mark([build("copy", x), build("copy", y)], [x, y])[1]),
    ]


def _draw_indices(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    if position == 1:
        return rng.integers(0, 5, shape).astype(dtype.numpy)
    return stored(random_values(rng, dtype, int(np.prod(shape))).reshape(shape), dtype)


def _indices() -> list[Shaped]:
    table = []
    for index in of_kinds("iu"):
        table.append(Shaped("gather", f"by {index}", (float32,) if index is not int64 else SOME,
                            lambda d, n, index=index: [((5, n), d), ((7, n), index)],
                            lambda x, i: build("gather", x, i, axis=0), draw=_draw_indices, gradient=index is int64))
    table.append(Shaped("gather", "columns", SOME, lambda d, n: [((n, 5), d), ((n, 3), int64)],
                        lambda x, i: build("gather", x, i, axis=1), draw=_draw_indices))
    for mode in ("set", "add"):
        table.append(Shaped("scatter", mode, of_kinds("biuf"),
                            lambda d, n: [((5, n), d), ((2, n), int64), ((2, n), d)],
                            lambda x, i, v, mode=mode: build("scatter", x, i, v, axis=0, mode=mode),
                            draw=_draw_distinct if mode == "set" else _draw_indices))
        table.append(Shaped("scatter", f"{mode} rows", FLOATS, lambda d, n: [((5, n), d), ((7, 1), int32), ((7, n), d)],
                            lambda x, i, v, mode=mode: build("scatter", x, expand(i, v.shape), v, axis=0, mode=mode),
                            draw=_draw_indices, gradient=mode == "add"))
        table.append(Shaped("scatter", f"{mode} along columns", (float32, bfloat16, int32),
                            lambda d, n: [((n, 5), d), ((n, 3), int64), ((n, 3), d)],
                            lambda x, i, v, mode=mode: build("scatter", x, i, v, axis=1, mode=mode),
                            draw=_draw_indices))
        table.append(Shaped("scatter", f"{mode} complex", (complex64, complex128),
                            lambda d, n: [((5, n), d), ((2, n), int64), ((2, n), d)],
                            lambda x, i, v, mode=mode: build("scatter", x, i, v, axis=0, mode=mode),
                            draw=_draw_complex, gradient=False))
    return table


def _draw_complex(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    if position == 1:
        return rng.integers(0, 5, shape).astype(dtype.numpy)
    return (rng.normal(0, 1, shape) + 1j * rng.normal(0, 1, shape)).astype(dtype.numpy)


def _draw_distinct(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    if position == 1:
        return np.argsort(rng.random((5, shape[1])), axis=0)[:shape[0]].astype(dtype.numpy)
    return _draw_indices(rng, position, shape, dtype)


def _calm(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers of everyday size: what sums of functions are compared on."""
    if dtype.is_integer:
        return rng.integers(0, 100, shape).astype(dtype.numpy)
    return stored(rng.normal(0, 2, shape), dtype)


def _draw_blocks(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    """Small integers, and quantised weights whose scales are powers of two: every sum is exact."""
    if dtype is not uint8:
        return stored(rng.integers(-4, 5, shape).astype(np.float32), dtype)
    blocks = rng.integers(0, 256, (shape[0], shape[1] // 34, 34)).astype(np.uint8)
    blocks[..., :2] = np.exp2(rng.integers(-3, 2, blocks.shape[:2])).astype("<f2")[..., None].view(np.uint8)
    return blocks.reshape(shape)


def _quantised() -> list[Shaped]:
    def multiply(x: Node, weight: Node) -> Node:
        return build("matmul_quantised", x, weight, kind="q8_0")

    return [
        Shaped("dequantise", "q8_0", (uint8,), lambda d, n: [((n, 68), d)],
               lambda x: build("dequantise", x, kind="q8_0"), draw=_draw_blocks),
        Shaped("dequantise", "q4_1", (uint8,), lambda d, n: [((n, 340), d)],
               lambda x: build("dequantise", x, kind="q4_1"), draw=_draw_blocks),
        Shaped("matmul_quantised", "n rows", FLOATS[:3], lambda d, n: [((n, 64), d), ((29, 68), uint8)], multiply,
               draw=_draw_blocks),
        Shaped("matmul_quantised", "turned", (float32,), lambda d, n: [((64, n), d), ((1, 68), uint8)],
               lambda x, w: multiply(transpose(x), w), draw=_draw_blocks),
        Shaped("matmul_int8", "n inner", (int8, uint8), lambda d, n: [((3, n), d), ((n, 9), int8)],
               lambda a, b: build("matmul_int8", a, b), draw=_calm),
        Shaped("matmul_int8", "n rows, batch", (int8, uint8), lambda d, n: [((2, n, 6), d), ((2, 6, 33), uint8)],
               lambda a, b: build("matmul_int8", a, b), draw=_calm),
    ]


def _products() -> list[Shaped]:
    numbers = of_kinds("iuf")
    return [
        Shaped("matmul", "n columns", numbers, lambda d, n: [((5, 7), d), ((7, n), d)],
               lambda a, b: build("matmul", a, b), "rule", draw=_calm),
        Shaped("matmul", "n inner", numbers, lambda d, n: [((3, n), d), ((n, 9), d)],
               lambda a, b: build("matmul", a, b), "rule", draw=_calm, lengths=(0, 1, 2, 31, 32, 33, 64, 65, 67)),
        Shaped("matmul_blas", "n columns", (float32, float64), lambda d, n: [((5, 7), d), ((7, n), d)],
               lambda a, b: build("matmul_blas", a, b), draw=_calm),
        Shaped("matmul", "n rows", FLOATS, lambda d, n: [((n, 6), d), ((6, 33), d)],
               lambda a, b: build("matmul", a, b), "rule", draw=_calm),
        Shaped("matmul", "batch, turned", (float32, bfloat16, int32), lambda d, n: [((n, 4, 3), d), ((n, 5, 4), d)],
               lambda a, b: build("matmul", build("permute", a, axes=(0, 2, 1)), build("permute", b, axes=(0, 2, 1))),
               "rule", draw=_calm),
    ]


def _convolutions() -> list[Shaped]:
    def conv(x: Node, weight: Node, **changes: Any) -> Node:
        plain = {"before": (0, 0), "after": (0, 0), "steps": (1, 1), "dilations": (1, 1), "groups": 1}
        return build("conv", x, weight, **{**plain, **changes})

    few = (0, 1, 2, 5)
    return [
        Shaped("conv", "images", FLOATS, lambda d, n: [((n, 3, 5, 6), d), ((7, 3, 3, 2), d)],
               lambda x, w: conv(x, w, before=(1, 0), after=(1, 2)), "rule", draw=_calm, lengths=few),
        Shaped("conv", "steps, groups", FLOATS, lambda d, n: [((n, 4, 7, 9), d), ((6, 2, 2, 3), d)],
               lambda x, w: conv(x, w, before=(0, 2), steps=(2, 3), dilations=(3, 2), groups=2), "rule", draw=_calm,
               lengths=few),
        Shaped("conv", "cut off", (float32, bfloat16), lambda d, n: [((2, 3, 9, n + 6), d), ((25, 3, 2, 3), d)],
               lambda x, w: conv(x, w, before=(-1, -2), after=(-2, 1)), "rule", draw=_calm, lengths=(1, 2, 13)),
        Shaped("conv", "n channels", FLOATS, lambda d, n: [((2, n, 4, 4), d), ((3, n, 2, 2), d)],
               lambda x, w: conv(x, w, before=(1, 1)), "rule", draw=_calm, lengths=(0, 1, 7, 8, 9, 33, 130)),
    ]


def _attentions() -> list[Shaped]:
    """Rows, keys and heads of every length, and the second output; for the gradient each of its three results."""
    def node(name: str, index: int, *inputs: Node, **options: Any) -> Node:
        given = {"scale": 0.25, "causal": False, "window": 0, "offset": 0, "masked": False, "moving": False}
        return pick(build(name, *inputs, **{**given, **options}), index)

    def rows(d: DType, n: Any) -> Specs:
        return [((2, n, 4), d), ((1, 9, 4), d), ((1, 9, 3), d)]

    def keys(d: DType, n: Any) -> Specs:
        return [((2, 3, 4), d), ((1, n, 4), d), ((1, n, 3), d)]

    def backward(d: DType, n: Any) -> Specs:
        return [*keys(d, n), ((2, 3, 3), d), ((2, 3), d.compute), ((2, 3), d.compute)]

    def draw(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
        if dtype is int64:
            return rng.integers(-2, 70, shape)
        if dtype is bool_:
            return rng.random(shape) < 0.6
        return stored(rng.normal(4 if position == 4 else 0, 1, shape), dtype)

    table = []
    for label, specs in (("n rows", rows), ("n keys", keys)):
        table.append(Shaped("attention", label, FLOATS, specs, lambda *x: node("attention", 0, *x), "close", draw=draw))
    table.append(Shaped("attention", "logarithm", FLOATS, rows, lambda *x: node("attention", 1, *x), "close", draw=draw,
                        gradient=False))
    table.append(Shaped("attention", "causal", FLOATS, keys,
                        lambda *x: node("attention", 0, *x, causal=True, window=40, offset=30), "close", draw=draw))
    table.append(Shaped("attention", "masked", FLOATS, lambda d, n: [*keys(d, n), ((2, 3, n), bool_)],
                        lambda *x: node("attention", 0, *x, masked=True), "close", draw=draw))
    table.append(Shaped("attention", "biased", FLOATS, lambda d, n: [*keys(d, n), ((2, 3, n), d), ((2,), int64)],
                        lambda *x: node("attention", 0, *x, masked=True, moving=True, causal=True), "close", draw=draw))
    for index in range(3):
        table.append(Shaped("attention_backward", f"part {index}", FLOATS, backward,
                            lambda *x, index=index: node("attention_backward", index, *x, causal=True, offset=40),
                            "close", draw=draw, gradient=False))
    return table


def _fused() -> list[Shaped]:
    lengths = (1, 2, 3, 7, 16, 33, 64, 67, 4099)
    table = []
    for name in ("softmax", "log_softmax", "logsumexp"):
        table.append(Shaped(name, "rows", FLOATS, _rows, lambda x, name=name: build(name, x, **_axes(1)), "close",
                            draw=_calm, lengths=lengths))
        table.append(Shaped(name, "columns", (float32,), lambda d, n: [((n, 5), d)],
                            lambda x, name=name: build(name, x, **_axes(0)), "close", draw=_calm, lengths=lengths))
    for name, parts in (("layer_norm", 2), ("rms_norm", 1)):
        table.append(Shaped(name, "plain", FLOATS, _rows, lambda x, name=name: build(name, x, axes=(1,), eps=1e-5),
                            "close", draw=_calm, lengths=lengths))
        table.append(Shaped(name, "affine", FLOATS, lambda d, n, parts=parts: [((3, n), d), *[((n,), d)] * parts],
                            lambda *x, name=name: build(name, *x, axes=(1,), eps=1e-5), "close", draw=_calm,
                            lengths=lengths))
    return [*table, *_losses()]


def _draw_targets(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    """Classes below five, or probabilities that add up to one."""
    if position == 0:
        return _calm(rng, position, shape, dtype)
    if dtype.is_integer:
        return rng.integers(0, 5, shape).astype(dtype.numpy)
    shares = rng.random(shape)
    return stored(shares / shares.sum(axis=1, keepdims=True), dtype)


def _losses() -> list[Shaped]:
    def loss(smoothing: float = 0.0, ignore: int | None = None, axis: int = 1) -> Callable[[Node, Node], Node]:
        return lambda x, t: build("cross_entropy", x, t, axes=(axis,), smoothing=smoothing, ignore=ignore)

    def classes(dtype: DType, n: Any, index: DType = int64) -> Specs:
        return [((6, n), dtype), ((6, 1), index)]

    options: dict[str, Any] = {"draw": _draw_targets, "lengths": (5, 7, 16, 33, 64, 67, 4099)}
    name = "cross_entropy"
    return [
        Shaped(name, "classes", FLOATS, classes, loss(), "close", **options),
        Shaped(name, "small classes", (float32,), lambda d, n: classes(d, n, uint8), loss(0.25), "close", **options),
        Shaped(name, "smoothed, some ignored", FLOATS, classes, loss(0.1, 3), "close", **options),
        Shaped(name, "all even", (float32, float64), classes, loss(1.0), "close", **options),
        Shaped(name, "columns", (float32,), lambda d, n: [((n, 6), d), ((1, 6), int64)], loss(axis=0), "close",
               **options),
        Shaped(name, "probabilities", FLOATS, lambda d, n: [((6, n), d), ((6, n), d)], loss(), "close", **options),
        Shaped(name, "smoothed probabilities", (float32, float64), lambda d, n: [((6, n), d), ((6, n), d)], loss(0.2),
               "close", **options),
    ]


def _square(dtype: DType, n: Any) -> Specs:
    return [((2, 4, 4), dtype)]


def _draw_matrix(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    """Well-conditioned, positive and symmetric where square."""
    x = rng.normal(0, 1, shape)
    if dtype.is_complex:
        x = x + 1j * rng.normal(0, 1, shape)
    if len(shape) > 1 and shape[-1] == shape[-2]:
        x = x @ np.conj(np.swapaxes(x, -1, -2)) + 3 * np.eye(shape[-1])
    return x.astype(dtype.numpy)


def _host() -> list[Shaped]:
    real, both = (float32, float64), (float32, float64, complex64, complex128)
    one = {"dynamic": False, "lengths": (5,)}
    table = [
        Shaped("sort", "rows", NUMBERS, _rows, lambda x: build("sort", x, axis=1, descending=False, stable=True)),
        Shaped("sort", "down", (float32, int32), lambda d, n: [((n, 3), d)],
               lambda x: build("sort", x, axis=0, descending=True, stable=True)),
        Shaped("argsort", "rows", NUMBERS, _rows, lambda x: build("argsort", x, axis=1, descending=False, stable=True)),
        Shaped("searchsorted", "left", (int32, float32), lambda d, n: [((6,), d), ((3, n), d)],
               lambda line, x: build("searchsorted", build("sort", line, axis=0, descending=False, stable=True), x,
                                     side="left"), draw=_calm),
        Shaped("complex", "parts", real, lambda d, n: [((3, n), d), ((3, n), d)], lambda a, b: build("complex", a, b),
               gradient=False),
    ]
    for function in ("fftn", "ifftn", "rfftn", "irfftn", "hfft", "ihfft"):
        dtypes_here = (float32, float64) if function in ("rfftn", "ihfft") else (complex64, complex128)
        table.append(Shaped("fft", function, dtypes_here, lambda d, n: [((3, 8), d)],
                            lambda x, function=function: build("fft", x, function=function, axes=(1,), sizes=(8,),
                                                               norm="backward"),
                            draw=_draw_matrix, gradient=False, **one))
    for name, attributes in (("cholesky", {"upper": False}), ("det", {}), ("inv", {}), ("pinv", {}), ("svdvals", {}),
                             ("eigvalsh", {})):
        table.append(Shaped(name, "square", both, _square, lambda x, n=name, a=attributes: build(n, x, **a),
                            draw=_draw_matrix, **one))
    table.append(Shaped("cholesky", "upper", real, _square, lambda x: build("cholesky", x, upper=True),
                        draw=_draw_matrix, **one))
    table.append(Shaped("solve", "square", both, lambda d, n: [((2, 4, 4), d), ((2, 4, 3), d)],
                        lambda a, b: build("solve", a, b), draw=_draw_matrix, **one))
    for name, attributes, count in (("slogdet", {}, 2), ("qr", {"mode": "reduced"}, 2), ("eigh", {}, 2),
                                    ("svd", {"full_matrices": False}, 3)):
        for index in range(count):
            def part(x: Node, name: str = name, attributes: dict[str, Any] = attributes, index: int = index) -> Node:
                node = build(name, x, **attributes)
                return build("pick", node, index=index, spec=node.outputs[index])

            table.append(Shaped(name, f"part {index}", both, _square, part, draw=_draw_matrix, gradient=False, **one))
    return table


def _sources() -> list[Shaped]:
    def group(x: Node) -> Node:
        from morpho.passes.group import make_group

        node = make_group([build("negative", x), build("square", x)], [x], x.shape, ())
        return build("pick", node, index=1, spec=node.outputs[1])

    def gemm(x: Node) -> Node:
        from morpho.ir.graph import Graph
        from morpho.passes.epilogue import epilogue
        from morpho.passes.fuse import fuse

        product = build("matmul", x, transpose(x))
        return epilogue(fuse(Graph((build("square", build("negative", product)),)))).outputs[0]

    def constant(x: Node) -> Node:
        kinds: dict[str, Any] = {"b": True, "i": 3, "u": 3, "f": -0.0, "c": 1 - 2j}
        return expand(build("constant", value=kinds[x.dtype.kind], dtype=x.dtype), x.shape)

    def ranged(x: Node) -> Node:
        return build("iota", shape=x.shape, axis=1, dtype=x.dtype)

    return [
        Shaped("constant", "spread", ALL, _rows, constant, gradient=False),
        Shaped("iota", "columns", of_kinds("iuf"), _rows, ranged, gradient=False),
        Shaped("dimension", "length", (int64, float32, float64), _rows,
               lambda x: build("dimension", size=x.shape[1] * 2, dtype=x.dtype) if isinstance(x.shape[1], Dim)
               else build("constant", value=(float if x.dtype.is_float else int)(x.shape[1] * 2), dtype=x.dtype),
               gradient=False),
        Shaped("parameter", "itself", ALL, _rows, lambda x: x, gradient=False),
        Shaped("detach", "itself", of_kinds("f"), _rows, lambda x: build("negative", build("detach", x)),
               gradient=False),
        Shaped("mark", "itself", of_kinds("f"), _rows, lambda x: build("negative", build("mark", x, number=0))),
        Shaped("pick", "of a group", (float32,), _rows, group, gradient=False),
        Shaped("group", "of two", (float32, int32), _rows, group, gradient=False),
        Shaped("gemm", "with two operations", (float32, float64), _rows, gemm, gradient=False),
    ]


SHAPED: list[Shaped] = [*_reductions(), *_scans(), *_moves(), *_indices(), *_products(), *_quantised(),
                        *_convolutions(), *_attentions(), *_fused(), *_host(), *_sources()]
ELSEWHERE = {"data": "a leaf that holds memory: every lazy evaluation in tests/fuzz uses it"}


def covered() -> set[str]:
    """Names of the ops in the table."""
    return {case.op for case in ELEMENTWISE} | {case.op for case in SHAPED} | set(ELSEWHERE)
