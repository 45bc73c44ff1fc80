"""The ops that layers are made of: products, convolution, attention, softmax, norms, losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from case_values import of_kinds
from running import stored
from shaped_case import FLOATS, Array, Shaped, Specs, draw_calm, one_matrix

from morpho.base.dtypes import (
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
)
from morpho.ir.node import Node, build
from morpho.ops.reductions.contract import transpose
from morpho.ops.sources import pick


def _products() -> list[Shaped]:
    numbers = of_kinds("iuf")
    return [
        Shaped("matmul", "n columns", numbers, lambda d, n: [((5, 7), d), ((7, n), d)],
               lambda a, b: build("matmul", a, b), "rule", draw=draw_calm),
        Shaped("matmul", "n inner", numbers, lambda d, n: [((3, n), d), ((n, 9), d)],
               lambda a, b: build("matmul", a, b), "rule", draw=draw_calm, lengths=(0, 1, 2, 31, 32, 33, 64, 65, 67)),
        Shaped("matmul_blas", "n columns", (float32, float64), lambda d, n: [((5, 7), d), ((7, n), d)],
               lambda a, b: build("matmul_blas", a, b), draw=draw_calm),
        Shaped("matmul", "n rows", FLOATS, lambda d, n: [((n, 6), d), ((6, 33), d)],
               lambda a, b: build("matmul", a, b), "rule", draw=draw_calm),
        Shaped("matmul", "batch, turned", (float32, bfloat16, int32), lambda d, n: [((n, 4, 3), d), ((n, 5, 4), d)],
               lambda a, b: build("matmul", build("permute", a, axes=(0, 2, 1)), build("permute", b, axes=(0, 2, 1))),
               "rule", draw=draw_calm),
        Shaped("matmul", "complex", (complex64, complex128), lambda d, n: [((9, n), d), ((n, 37), d)],
               lambda a, b: build("matmul", a, b), "rule", draw=draw_calm, lengths=(0, 1, 5, 33, 65)),
    ]


def _draw_blocks(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    """Small integers, and quantised weights whose scales are powers of two: every sum is exact."""
    if dtype is not uint8:
        return stored(rng.integers(-4, 5, shape).astype(np.float32), dtype)
    blocks = rng.integers(0, 256, (shape[0], shape[1] // 34, 34)).astype(np.uint8)
    blocks[..., :2] = np.exp2(rng.integers(-3, 2, blocks.shape[:2])).astype("<f2")[..., None].view(np.uint8)
    return blocks.reshape(shape)


def _draw_records(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    """Rows in 8 bits and panels of weights in 4, whose scales are powers of two."""
    found = rng.integers(0, 256, (shape[0], shape[1] // (320 if position else 40), 320 if position else 40)).astype(
        np.uint8)
    if position:
        found[..., :64] = np.exp2(rng.integers(-3, 2, (*found.shape[:2], 32))).astype("<f2").view(np.uint8)
    else:
        found[..., :4] = np.exp2(rng.integers(-3, 2, found.shape[:2])).astype("<f4")[..., None].view(np.uint8)
        found[..., 4:8] = found[..., 8:].view(np.int8).sum(-1, dtype="<i4")[..., None].view(np.uint8)
    return found.reshape(shape)


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
        Shaped("quantise_rows", "n rows", (float32,), lambda d, n: [((n, 96), d)], lambda x: build("quantise_rows", x),
               draw=draw_calm),
        Shaped("matmul_rounded", "n rows", (uint8,), lambda d, n: [((n, 80), d), ((2, 640), d)],
               lambda x, w: build("matmul_rounded", x, w, kind="q4_1", n=29), draw=_draw_records),
        Shaped("matmul_int8", "n inner", (int8, uint8), lambda d, n: [((3, n), d), ((n, 9), int8)],
               lambda a, b: build("matmul_int8", a, b), draw=draw_calm),
        Shaped("matmul_int8", "n rows, batch", (int8, uint8), lambda d, n: [((2, n, 6), d), ((2, 6, 33), uint8)],
               lambda a, b: build("matmul_int8", a, b), draw=draw_calm),
    ]


def _convolutions() -> list[Shaped]:
    def conv(x: Node, weight: Node, **changes: Any) -> Node:
        plain = {"before": (0, 0), "after": (0, 0), "steps": (1, 1), "dilations": (1, 1), "groups": 1}
        return build("conv", x, weight, **{**plain, **changes})

    few = (0, 1, 2, 5)
    return [
        Shaped("conv", "images", FLOATS, lambda d, n: [((n, 3, 5, 6), d), ((7, 3, 3, 2), d)],
               lambda x, w: conv(x, w, before=(1, 0), after=(1, 2)), "rule", draw=draw_calm, lengths=few),
        Shaped("conv", "steps, groups", FLOATS, lambda d, n: [((n, 4, 7, 9), d), ((6, 2, 2, 3), d)],
               lambda x, w: conv(x, w, before=(0, 2), steps=(2, 3), dilations=(3, 2), groups=2), "rule", draw=draw_calm,
               lengths=few),
        Shaped("conv", "cut off", (float32, bfloat16), lambda d, n: [((2, 3, 9, n + 6), d), ((25, 3, 2, 3), d)],
               lambda x, w: conv(x, w, before=(-1, -2), after=(-2, 1)), "rule", draw=draw_calm, lengths=(1, 2, 13)),
        Shaped("conv", "n channels", FLOATS, lambda d, n: [((2, n, 4, 4), d), ((3, n, 2, 2), d)],
               lambda x, w: conv(x, w, before=(1, 1)), "rule", draw=draw_calm, lengths=(0, 1, 7, 8, 9, 33, 130)),
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


def _paged() -> list[Shaped]:
    """Queries over pages that a table finds, page numbers outside the pool among them; lines put into pages."""
    def attend(q: Node, k: Node, v: Node, pages: Node, offset: Node, window: int = 0) -> Node:
        return pick(build("paged_attention", q, k, v, pages, offset, scale=0.25, window=window, offset=0), 0)

    def rows(d: DType, n: Any) -> Specs:
        return [((2, 2, n, 4), d), ((3, 1, 64, 4), d), ((3, 1, 64, 3), d), ((2, 2), int64), ((2, 2), int64)]

    def sequences(d: DType, n: Any) -> Specs:
        return [((n, 2, 1, 4), d), ((3, 2, 64, 4), d), ((3, 2, 64, 3), d), ((n, 2), int64), ((n, 2), int64)]

    def lines(d: DType, n: Any) -> Specs:
        return [((2, 2, 64, 3), d), ((2, 2, n, 3), d), ((2, n), int64)]

    def draw(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
        if dtype is int64:  # page numbers, then offsets
            return rng.integers(-1, 5, shape) if position == 3 else rng.integers(-2, 130, shape)
        return stored(rng.normal(0, 1, shape), dtype)

    table = [Shaped("paged_attention", label, FLOATS, specs, make, "close", draw=draw, gradient=False)
             for label, specs, make in (("n rows", rows, attend), ("n sequences", sequences, attend),
                                        ("window", rows, lambda *x: attend(*x, window=40)))]

    def apart(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
        if dtype is not int64:
            return stored(rng.normal(0, 1, shape), dtype)
        places = rng.permutation(max(160, int(np.prod(shape))))[:int(np.prod(shape))] - 16  # some lie outside
        return places.reshape(shape)

    return [*table, Shaped("write_pages", "n lines", FLOATS, lines, lambda *x: build("write_pages", *x), draw=apart,
                           gradient=False)]


def _draw_apart(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    """Rows whose numbers are not nearly equal: a norm of those is what their roundings make of it."""
    if position:
        return draw_calm(rng, position, shape, dtype)
    return stored(np.linspace(-3, 3, shape[-1]) + rng.uniform(-1, 1, shape), dtype)


def _fused() -> list[Shaped]:
    lengths = (1, 2, 3, 7, 16, 33, 64, 67, 4099)
    table = []
    for name in ("softmax", "log_softmax", "logsumexp"):
        table.append(Shaped(name, "rows", FLOATS, one_matrix, lambda x, name=name: build(name, x, axes=(1,)), "close",
                            draw=draw_calm, lengths=lengths))
        table.append(Shaped(name, "columns", (float32,), lambda d, n: [((n, 5), d)],
                            lambda x, name=name: build(name, x, axes=(0,)), "close", draw=draw_calm, lengths=lengths))
    for name, parts in (("layer_norm", 2), ("rms_norm", 1)):
        table.append(Shaped(name, "plain", FLOATS, one_matrix, lambda x, name=name: build(name, x, axes=(1,), eps=1e-5),
                            "close", draw=_draw_apart, lengths=lengths))
        table.append(Shaped(name, "affine", FLOATS, lambda d, n, parts=parts: [((3, n), d), *[((n,), d)] * parts],
                            lambda *x, name=name: build(name, *x, axes=(1,), eps=1e-5), "close", draw=_draw_apart,
                            lengths=lengths))
    return [*table, *_losses()]


def _draw_targets(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    """Classes below five, or probabilities that add up to one."""
    if position == 0:
        return draw_calm(rng, position, shape, dtype)
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


LAYERS: list[Shaped] = [*_products(), *_quantised(), *_convolutions(), *_attentions(), *_paged(), *_fused()]
