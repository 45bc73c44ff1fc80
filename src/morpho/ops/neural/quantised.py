"""Products with quantised weights: rows of blocks of 32 values, as they stand in GGUF files.

A weight (n, k) is n rows of bytes. A block of `q8_0` is a float16 scale d and 32 int8 q, value d * q. A block of
`q4_1` is a float16 scale d, a float16 least value m and 16 bytes, whose low halves are values 0..15 and whose high
ones are 16..31, value d * q + m. Where a layout has a codebook, q is the codebook's number at the code of 4 bits. In
float32 d * q is exact: 11 bits times 8 or 4 fit 24. Adding m rounds once. A block of `f8_e4m3` or `f8_e5m2` is a
float32 scale d and 32 floats of 8 bits, value d * q, rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from morpho.base.dtypes import float32, float64, uint8
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.ir.node import Node, build, make
from morpho.ir.op import ONE, TWO, Attributes, NoGradient, Op, Spec, register
from morpho.ops.algebra import cast, expand, reshape
from morpho.ops.batching import Rows, loop
from morpho.ops.neural.float8 import table

BLOCK = 32  # values that share a scale


@dataclass(frozen=True, slots=True)
class Layout:
    """A block in bytes: for each of `groups` equal parts of it `headers` numbers (d, then m), float16 or, where `wide`,
    float32; then 32 values of `bits` bits: whole numbers, those of 8 signed, floats of the kind `float8`, or indices
    into a codebook of 16 whole numbers, `book`."""

    headers: int
    bits: int
    wide: bool = False
    groups: int = 1
    float8: str = ""
    book: str = ""

    @property
    def header_bytes(self) -> int:
        return (4 if self.wide else 2) * self.headers * self.groups

    @property
    def block_bytes(self) -> int:
        """
        >>> LAYOUTS["q8_0"].block_bytes, LAYOUTS["q4_1"].block_bytes
        (34, 20)
        """
        return self.header_bytes + BLOCK * self.bits // 8


# Numbers that codes of 4 bits stand for, ascending where the file's own order is not another one.
BOOKS: dict[str, tuple[int, ...]] = {
    "linear": tuple(range(-8, 8)),
    "iq4": (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113),
    "e2m1": (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12),  # twice the floats of 4 bits
    "iq3_xxs": tuple(sign * size for sign, sizes in ((-1, (62, 52, 44, 36, 28, 20, 12, 4)),
                                                     (1, (4, 12, 20, 28, 36, 44, 52, 62))) for size in sizes),
    "iq3_s": tuple(range(-15, 16, 2)),
    "iq2": (-43, -25, -8, 8, 25, 43, *[0] * 10),
    "iq1": (-9, -7, -1, 1, 7, 9, *[0] * 10),  # eight times -1, 0 or 1, and an eighth more or less
    "ternary": (-1, 0, 1, 2, *[0] * 12),
}

# The first two are GGML's, and so are q4_0 and iq4_nl. In the names of the others m is a least value, w are numbers in
# float32, and 16 says that each 16 values have their own; files' blocks of other kinds become these
# (weights/gguf/repack.py). Those of f8 are made of safetensors files' floats of 8 bits and their scales
# (weights/scaled.py).
LAYOUTS = {"q8_0": Layout(1, 8), "q4_1": Layout(2, 4), "q8_m": Layout(2, 8), "q4_wm": Layout(2, 4, True),
           "q8_wm": Layout(2, 8, True), "q8_w16": Layout(1, 8, True, 2), "q4_wm16": Layout(2, 4, True, 2),
           "f8_e4m3": Layout(1, 8, True, float8="F8_E4M3"), "f8_e5m2": Layout(1, 8, True, float8="F8_E5M2"),
           "q4_0": Layout(1, 4, book="linear"), "iq4_nl": Layout(1, 4, book="iq4"),
           "iq4_w": Layout(1, 4, True, book="iq4"),
           "e2m1_w": Layout(1, 4, True, book="e2m1"), "e2m1_w16": Layout(1, 4, True, 2, book="e2m1"),
           "iq3_xxs_w": Layout(1, 4, True, book="iq3_xxs"), "iq3_s_w": Layout(1, 4, True, book="iq3_s"),
           "iq2_w": Layout(1, 4, True, book="iq2"), "iq2_w16": Layout(1, 4, True, 2, book="iq2"),
           "iq1_w": Layout(1, 4, True, book="iq1"), "iq1_w16": Layout(1, 4, True, 2, book="iq1"),
           "ternary": Layout(1, 4, book="ternary")}


def layout_of(operation: str, kind: str) -> Layout:
    """The layout of that name, or the user's error."""
    if kind not in LAYOUTS:
        raise fail(ArgumentError, operation, f"quantised layout {kind!r} is unknown", "use " + " or ".join(LAYOUTS))
    return LAYOUTS[kind]


def values_per_row(spec: Spec, kind: str) -> int:
    """k of a weight whose bytes have this spec."""
    layout = layout_of("matmul", kind)
    if spec.dtype is not uint8 or len(spec.shape) != 2:
        raise fail(DTypeError, "matmul", f"{spec.dtype}{spec.shape} is not the bytes of a quantised matrix")
    count = spec.shape[1]
    if not isinstance(count, int) or count % layout.block_bytes:
        raise fail(ShapeError, "matmul", f"rows of {count} bytes are not whole blocks of {layout.block_bytes}")
    return count // layout.block_bytes * BLOCK


# -- from bytes to numbers ---------------------------------------------------------------------------------------------
def _infer_dequantise(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    return Spec((inputs[0].shape[0], values_per_row(inputs[0], attributes["kind"])), float32)


def _reference_dequantise(attributes: Attributes, data: Any) -> Any:
    layout = LAYOUTS[attributes["kind"]]
    rows, count = data.shape[0], data.shape[1] // layout.block_bytes
    blocks = np.ascontiguousarray(data).reshape(rows, count, layout.block_bytes)
    start, groups = layout.header_bytes, layout.groups
    headers = np.ascontiguousarray(blocks[..., :start]).view("<f4" if layout.wide else "<f2").astype(np.float32)
    headers = headers.reshape(rows, count, groups, layout.headers)
    codes = blocks[..., start:]
    with np.errstate(all="ignore"):
        if layout.float8:
            wide = table(layout.float8)[codes]
        elif layout.bits == 8:
            wide = codes.view(np.int8).astype(np.float32)
        else:
            wide = np.concatenate([codes & 15, codes >> 4], axis=-1).astype(np.float32)
            if layout.book:
                wide = np.array(BOOKS[layout.book], np.float32)[wide.astype(np.uint8)]
        values = headers[..., :1] * wide.reshape(rows, count, groups, BLOCK // groups)
        if layout.headers == 2:
            values = values + headers[..., 1:]  # the product is exact: this is one fma
    return values.reshape(rows, count * BLOCK)


def _batch_dequantise(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    data = inputs[0]
    found = build("dequantise", reshape(data, (data.shape[0] * data.shape[1], data.shape[2])), kind=node["kind"])
    return reshape(found, (*data.shape[:2], found.shape[1]))


DEQUANTISE = register(Op("dequantise", "host", _infer_dequantise, NoGradient("quantised values do not vary"),
                         _reference_dequantise, 2, "d * q exact, + m rounded once", arity=ONE,
                         batch=_batch_dequantise))


# -- the product -------------------------------------------------------------------------------------------------------
def _infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    a, b = inputs
    k = values_per_row(b, attributes["kind"])
    if not a.dtype.is_float or a.dtype is float64:
        raise fail(DTypeError, "matmul", f"{a.dtype} and quantised weights are not taken",
                   "convert to float32 with astype, or use dequantise()")
    if len(a.shape) < 2 or a.shape[-1] != k:
        raise fail(ShapeError, "matmul", f"shape {a.shape} and quantised weights {(b.shape[0], k)} do not align")
    return Spec((*a.shape[:-1], b.shape[0]), a.dtype)


def _vjp(node: Node, ct: Node) -> list[Node | None]:
    a, b = node.inputs
    weight = build("dequantise", b, kind=node["kind"])
    weight = expand(reshape(weight, (*(1,) * (len(a.shape) - 2), *weight.shape)), (*a.shape[:-2], *weight.shape))
    return [cast(build("matmul", cast(ct, float32), weight), a.dtype), None]


def _reference(attributes: Attributes, a: Any, b: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.matmul(np.asarray(a, np.float32), _reference_dequantise(attributes, b).T)


def _batch(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    return loop(node, inputs, batched, rows) if batched[1] else make(node.op, inputs, node.attributes)


MATMUL_QUANTISED = register(Op(
    "matmul_quantised", "contract", _infer, _vjp, _reference, 2, "one float32 FMA chain per output, k ascending",
    arity=TWO, batch=_batch))
