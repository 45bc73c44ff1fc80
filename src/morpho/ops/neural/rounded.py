"""Products of quantised weights with activations in 8 bits: `quantise_rows`, then `matmul_rounded`.

A row of k values becomes k / 32 records of 40 bytes: a float32 scale s, the int32 sum of the codes, and 32 int8 codes.
With a = max |x| of a block: where a < 2**-100 all is 0; else r = 127 / a, a code is x * r rounded to the nearest whole
number, ties to even, and s = a / 127 + (a - a), which is NaN for blocks that are not finite (their codes are 0 where
x * r is NaN). Each of these operations rounds once, to float32.

The weights (n, k) lie in panels of 16 outputs (`panels_of`), block by block: the scales d of all 16, then their least
values m (`q4_1`), then the codes in groups of four values of k, 16 outputs side by side. Codes of `q8_0` are stored
with 128 added, so that all are unsigned, as the dot products of x86 want one side to be; those of `q4_0` are the
file's, with 8 added.

A result is a chain over blocks, k ascending, from +0.0: sum = fma(s * d, D, sum), and for `q4_1` then
sum = fma(s * m, S, sum), where D is the dot product of the codes of a block and S the sum of those of x, both exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import float32, uint8
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import ONE, TWO, Attributes, NoGradient, Op, Spec, register
from morpho.ops.algebra import reshape
from morpho.ops.batching import Rows, loop
from morpho.ops.neural.quantised import BLOCK, LAYOUTS

RECORD = 8 + BLOCK  # bytes of a block of a row
WIDTH = 16  # outputs of a panel
GROUP = 4  # values of k that a dot-product instruction takes
ROUNDED = ("q8_0", "q4_1", "q4_0")  # layouts of weights that have panels
LEAST = 2.0**-100  # largest magnitude below which a block counts as zeros
_WHY = "rounded values do not vary"


def _infer_rows(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    x = inputs[0]
    if x.dtype is not float32:
        raise fail(DTypeError, "quantise_rows", f"rows of {x.dtype} are not taken", "convert to float32 with astype")
    if len(x.shape) != 2 or not isinstance(x.shape[1], int) or x.shape[1] % BLOCK:
        raise fail(ShapeError, "quantise_rows", f"shape {x.shape} is not a matrix whose rows are whole blocks of "
                                                f"{BLOCK}")
    return Spec((x.shape[0], x.shape[1] // BLOCK * RECORD), uint8)


def _reference_rows(attributes: Attributes, x: Any) -> Any:
    values = np.asarray(x, np.float32)
    rows, count = values.shape[0], values.shape[1] // BLOCK
    blocks = values.reshape(rows, count, BLOCK)
    found = np.zeros((rows, count, RECORD), np.uint8)
    with np.errstate(all="ignore"):
        most = np.abs(blocks).max(axis=-1, initial=0)
        tiny = most < np.float32(LEAST)
        inverse = np.where(tiny, np.float32(0), np.float32(127) / most)
        scale = np.where(tiny, np.float32(0), most / np.float32(127) + (most - most))
        codes = np.rint(blocks * inverse[..., None])
        codes = np.where(np.isnan(codes), np.float32(0), codes).astype(np.int32)
    found[..., :4] = scale.astype("<f4")[..., None].view(np.uint8)
    found[..., 4:8] = codes.sum(axis=-1, dtype=np.int32).astype("<i4")[..., None].view(np.uint8)
    found[..., 8:] = codes.astype(np.int8).view(np.uint8)
    return found.reshape(rows, count * RECORD)


def _batch_rows(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    x = inputs[0]
    found = build("quantise_rows", reshape(x, (x.shape[0] * x.shape[1], x.shape[2])))
    return reshape(found, (*x.shape[:2], found.shape[1]))


QUANTISE_ROWS = register(Op("quantise_rows", "contract", _infer_rows, NoGradient(_WHY), _reference_rows, 4,
                            "s = max / 127 per block of 32, codes to nearest even", arity=ONE, batch=_batch_rows))


def added_to_codes(kind: str) -> int:
    """What is added to the codes of a kind's panels so that none is negative."""
    layout = LAYOUTS[kind]
    return 128 if layout.bits == 8 else 8 if layout.book else 0


# -- weights -----------------------------------------------------------------------------------------------------------
def panel_bytes(kind: str, k: int) -> int:
    """Bytes of a panel of 16 outputs.

    >>> panel_bytes("q8_0", 64), panel_bytes("q4_1", 64)
    (1088, 640)
    """
    if kind not in ROUNDED:
        raise fail(ArgumentError, "panels", f"weights of kind {kind!r} have no product with activations in 8 bits",
                   "use " + " or ".join(ROUNDED))
    return k // BLOCK * WIDTH * LAYOUTS[kind].block_bytes


def panels_of(data: np.ndarray, kind: str) -> np.ndarray:
    """The bytes of a quantised matrix (rows of blocks, as a file has them) as panels; missing outputs are zeros."""
    panel_bytes(kind, 0)  # a kind that has panels
    layout = LAYOUTS[kind]
    n, count = data.shape[0], data.shape[1] // layout.block_bytes
    panels, start = -(-n // WIDTH), 2 * layout.headers
    blocks = np.zeros((panels * WIDTH, count, layout.block_bytes), np.uint8)
    blocks[:n] = data.reshape(n, count, layout.block_bytes)
    codes = blocks[..., start:]
    if layout.bits == 8:
        codes = codes ^ 0x80
    codes = codes.reshape(panels, WIDTH, count, -1, GROUP).transpose(0, 2, 3, 1, 4)  # panel, block, group, output, 4
    headers = blocks[..., :start].reshape(panels, WIDTH, count, layout.headers, 2).transpose(0, 2, 3, 1, 4)
    parts = [part.reshape(panels, count, -1) for part in (headers, codes)]
    return np.ascontiguousarray(np.concatenate(parts, axis=-1).reshape(panels, -1))


# -- the product -------------------------------------------------------------------------------------------------------
def _infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    rows, panels = inputs
    n, kind = attributes["n"], attributes["kind"]
    if rows.dtype is not uint8 or panels.dtype is not uint8 or len(rows.shape) != 2 or len(panels.shape) != 2:
        raise fail(DTypeError, "matmul_rounded", f"{rows.dtype}{rows.shape} and {panels.dtype}{panels.shape} are not "
                                                 "rows and panels in bytes", "use quantise_rows and panels_of")
    wide = rows.shape[1]
    if not isinstance(wide, int) or wide % RECORD or panels.shape != (
            -(-n // WIDTH), panel_bytes(kind, wide // RECORD * BLOCK)):
        raise fail(ShapeError, "matmul_rounded", f"rows of {wide} bytes and panels {panels.shape} of {n} {kind} "
                                                 "outputs do not fit")
    return Spec((rows.shape[0], n), float32)


def _reference(attributes: Attributes, rows: Any, panels: Any) -> Any:
    layout, n = LAYOUTS[attributes["kind"]], attributes["n"]
    count = rows.shape[1] // RECORD
    given = np.ascontiguousarray(rows).reshape(rows.shape[0], count, RECORD)
    scale = np.ascontiguousarray(given[..., :4]).view("<f4")[..., 0]
    total = np.ascontiguousarray(given[..., 4:8]).view("<i4")[..., 0]
    left = given[..., 8:].view(np.int8).astype(np.int64)
    number = panels.shape[0]
    blocks = np.asarray(panels).reshape(number, count, -1)
    start = 2 * layout.headers * WIDTH
    headers = np.ascontiguousarray(blocks[..., :start]).view("<f2").astype(np.float32).reshape(
        number, count, layout.headers, WIDTH)
    codes = blocks[..., start:].reshape(number, count, -1, WIDTH, GROUP).transpose(0, 3, 1, 2, 4)
    codes = codes.reshape(number * WIDTH, count, -1)
    right = codes if layout.bits == 8 else np.concatenate([codes & 15, codes >> 4], -1)
    right = right.astype(np.int64) - added_to_codes(attributes["kind"])
    found = np.zeros((rows.shape[0], number * WIDTH), np.float32)
    with np.errstate(all="ignore"):
        for block in range(count):
            dots = left[:, block] @ right[:, block].T
            parts = [(headers[:, block, 0].reshape(-1), dots)]
            if layout.headers == 2:
                parts.append((headers[:, block, 1].reshape(-1), total[:, block, None].astype(np.int64)))
            for header, times in parts:
                factor = scale[:, block, None] * header  # float32, rounded once
                found = _fma(factor, times, found)
    return found[:, :n]


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c rounded once to float32; b is whole and small, so that the product is exact in float64. The sum may
    round twice: it is made odd in its last place first where it is not exact (Boldo and Melquiond)."""
    product = a.astype(np.float64) * b
    wide = c.astype(np.float64)
    total = product + wide
    other = total - product
    error = (product - (total - other)) + (wide - other)
    bits = total.view(np.int64)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    inexact = (error != 0) & ((bits & 1) == 0) & np.isfinite(total)
    found: np.ndarray = np.where(inexact, (bits + toward).view(np.float64), total).astype(np.float32)
    return found


def _batch(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    if batched[1]:
        return loop(node, inputs, batched, rows)
    x = inputs[0]
    found = build("matmul_rounded", reshape(x, (x.shape[0] * x.shape[1], x.shape[2])), inputs[1], **node.attributes)
    return reshape(found, (*x.shape[:2], found.shape[1]))


MATMUL_ROUNDED = register(Op(
    "matmul_rounded", "contract", _infer, NoGradient(_WHY), _reference, 2,
    "exact dot products per block of 32, one float32 FMA chain over blocks, k ascending", arity=TWO, batch=_batch))
