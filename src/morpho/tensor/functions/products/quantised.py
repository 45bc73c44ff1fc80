"""Quantised weights: matrices in blocks of 32 values, as GGUF files hold them, that products read as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import DType
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, ValueFault, fail
from morpho.ir.node import build
from morpho.ops.algebra import cast, reshape
from morpho.ops.neural.quantised import BLOCK, LAYOUTS, layout_of
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor
from morpho.tensor.operands import as_node

ROWS = 256  # quantised at a time: temporary arrays stay small


class Quantised:
    """A matrix (n, k) of n outputs in a quantised layout: `q8_0` (34 bytes for 32 values) or `q4_1` (20 bytes).

    Make one with `mo.quantise`, or with `Quantised.from_bytes` from what a GGUF file holds. It is good for products
    only: `x @ weight.T` and `mo.matmul(x, weight)` both are x (..., k) times the transposed matrix, (..., n), in the
    dtype of x. The bits are those of a float32 product with `dequantise()`, rounded once to the dtype of x. A compiled
    function that captures the weights packs them for its kernels once, still quantised.

    >>> import morpho as mo
    >>> weight = mo.quantise(mo.ones((2, 32)), "q8_0")
    >>> weight
    Quantised((2, 32), 'q8_0', 68 bytes)
    >>> (mo.ones((1, 32)) @ weight.T).shape
    (1, 2)
    """

    __slots__ = ("data", "kind", "shape")

    data: Tensor
    kind: str
    shape: tuple[int, int]
    __array_ufunc__ = None  # numpy_array @ weight asks the weight

    def __init__(self) -> None:
        raise fail(ArgumentError, "Quantised", "quantised weights are not made by calling their class",
                   "use mo.quantise(weight, kind) or mo.Quantised.from_bytes(data, shape, kind)")

    @staticmethod
    def of_tensor(data: Tensor, shape: tuple[int, int], kind: str) -> Quantised:
        made = object.__new__(Quantised)
        made.data, made.shape, made.kind = data, shape, kind
        return made

    @staticmethod
    def from_bytes(data: Any, shape: Sequence[int], kind: str) -> Quantised:
        """Weights of shape (n, k) from bytes as they stand in a GGUF file: n rows of k / 32 blocks. They are copied.

        >>> import morpho as mo
        >>> mo.Quantised.from_bytes(bytes(20), (1, 32), "q4_1").dequantise().sum().item()
        0.0
        """
        layout = layout_of("from_bytes", kind)
        n, k = _sizes("from_bytes", tuple(shape))
        given = _bytes_of(data)
        wanted = n * k // BLOCK * layout.block_bytes
        if given.size != wanted:
            raise fail(ShapeError, "from_bytes", f"{given.size} bytes are given, {kind} weights of shape {(n, k)} have "
                                                 f"{wanted}", "look at the shape and the layout in the file")
        rows = given.reshape(n, k // BLOCK * layout.block_bytes)
        return Quantised.of_tensor(asarray(rows, copy=True), (n, k), kind)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights, scales included."""
        return self.shape[0] * (self.shape[1] // BLOCK) * LAYOUTS[self.kind].block_bytes

    @property
    def T(self) -> TransposedWeight:
        """The matrix as products take it, (k, n)."""
        return TransposedWeight(self)

    def to(self, device: str) -> Quantised:
        """The same weights in the memory of another device.

        >>> import morpho as mo
        >>> mo.quantise(mo.ones((2, 32)), "q8_0").to("cpu").nbytes
        68
        """
        return Quantised.of_tensor(self.data.to(device).realise(), self.shape, self.kind)

    def dequantise(self) -> Tensor:
        """The values as float32: d * q, exact, for q8_0; d * q + m, rounded once, for q4_1."""
        return Tensor.of_node(build("dequantise", self.data.node, kind=self.kind))

    def __rmatmul__(self, x: Any) -> Tensor:
        return product(x, self)

    def __repr__(self) -> str:
        return f"Quantised({self.shape}, {self.kind!r}, {self.nbytes} bytes)"


class TransposedWeight:
    """`weight.T` of a `Quantised`: the right operand of a product, nothing else."""

    __slots__ = ("T",)
    __array_ufunc__ = None

    def __init__(self, weight: Quantised) -> None:
        self.T = weight

    @property
    def shape(self) -> tuple[int, int]:
        return self.T.shape[1], self.T.shape[0]

    def __rmatmul__(self, x: Any) -> Tensor:
        return product(x, self)

    def __repr__(self) -> str:
        return f"{self.T!r}.T"


def _bytes_of(data: Any) -> np.ndarray:
    try:
        view = memoryview(data.numpy() if isinstance(data, Tensor) else data)  # type: ignore[arg-type]
        if view.itemsize == 1:
            return np.frombuffer(view, np.uint8)
        reason = f"its items have {view.itemsize} bytes"
    except (TypeError, ValueError, BufferError) as error:
        reason = str(error)
    raise fail(DTypeError, "from_bytes", f"{type(data).__name__} is not contiguous bytes ({reason})")


def product(x: Any, weight: Quantised | TransposedWeight, threads: str = "auto", dtype: DType | None = None) -> Tensor:
    """x (..., k) times the transposed weights, (..., n)."""
    weight = weight.T if isinstance(weight, TransposedWeight) else weight
    node = as_node(x, "matmul")
    node = node if dtype is None else cast(node, dtype)
    if not node.shape or node.shape[-1] != weight.shape[1]:
        raise fail(ShapeError, "matmul", f"shape {node.shape} and quantised weights {weight.shape} do not align",
                   "the last axis of x has as many values as a row of the weights")
    row = len(node.shape) == 1
    node = reshape(node, (1, *node.shape)) if row else node
    chosen = {} if threads == "auto" else {"threads": threads}
    found = build("matmul_quantised", node, weight.data.node, kind=weight.kind, **chosen)
    return Tensor.of_node(reshape(found, found.shape[1:]) if row else found)


# -- quantising --------------------------------------------------------------------------------------------------------
def quantise(weight: Any, kind: str) -> Quantised:
    """A matrix (n, k) in blocks of 32 values along k, rounded as GGML does: 8 bits a value and a scale (`q8_0`), 4 bits
    and a scale (`q4_0`), or 4 bits, a scale and a least value (`q4_1`). k must be a multiple of 32.

    >>> import morpho as mo
    >>> weight = mo.quantise([[i / 8 for i in range(32)]], "q4_1")
    >>> weight.nbytes, mo.abs(weight.dequantise() - mo.arange(32) / 8).max().item() < 0.14
    (20, True)
    """
    layout = layout_of("quantise", kind)
    if kind not in _ENCODERS:
        raise fail(ArgumentError, "quantise", f"blocks of kind {kind!r} come from files only",
                   "use " + " or ".join(_ENCODERS))
    values = asarray(weight).numpy()
    n, k = _sizes("quantise", values.shape)
    if values.dtype.kind not in "fiu":
        raise fail(DTypeError, "quantise", f"weights of {values.dtype} are not real numbers")
    rows = np.empty((n, k // BLOCK * layout.block_bytes), np.uint8)
    for start in range(0, n, ROWS):
        with np.errstate(all="ignore"):  # what is not finite is looked for and said
            part = values[start:start + ROWS].astype(np.float32)
            part = part.reshape(part.shape[0], k // BLOCK, BLOCK)
            if not np.isfinite(part).all():
                raise fail(ValueFault, "quantise", "the weights contain NaN or infinities, or exceed float32")
            rows[start:start + ROWS] = _ENCODERS[kind](part).reshape(part.shape[0], rows.shape[1])
    return Quantised.of_tensor(asarray(rows, copy=True), (n, k), kind)


def _sizes(operation: str, shape: tuple[Any, ...]) -> tuple[int, int]:
    if len(shape) != 2 or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise fail(ShapeError, operation, f"shape {shape} is not a matrix", "quantised weights are (outputs, inputs)")
    if shape[1] % BLOCK:
        raise fail(ShapeError, operation, f"rows of {shape[1]} values are not whole blocks of {BLOCK}")
    return shape[0], shape[1]


def _halves(*numbers: np.ndarray) -> np.ndarray:
    """Scales and least values of every block as bytes."""
    halves = np.stack(numbers, axis=-1).astype("<f2")
    if not np.isfinite(halves).all():
        raise fail(ValueFault, "quantise", "the weights are too large for float16 scales")
    return halves.view(np.uint8)


def _inverse(scale: np.ndarray) -> np.ndarray:
    """1 / scale, 0 for a block whose values are all alike; a scale too small to invert counts as 0 too."""
    found = (np.float32(1) / scale)[..., None]
    return np.where(np.isfinite(found), found, np.float32(0))


def _encode_q8_0(values: np.ndarray) -> np.ndarray:
    scale = np.abs(values).max(axis=-1) / np.float32(127)
    header = _halves(scale)
    wide = (values * _inverse(scale)).astype(np.float64)
    codes = np.trunc(wide + np.copysign(0.5, wide)).astype(np.int8)  # halves away from zero
    return np.concatenate([header, codes.view(np.uint8)], axis=-1)


def _encode_q4_0(values: np.ndarray) -> np.ndarray:
    largest = np.take_along_axis(values, np.abs(values).argmax(axis=-1)[..., None], axis=-1)[..., 0]  # with its sign
    scale = largest / np.float32(-8)
    header = _halves(scale)
    codes = np.clip(values * _inverse(scale) + np.float32(8.5), 0, 15).astype(np.uint8)
    half = BLOCK // 2
    return np.concatenate([header, codes[..., :half] | codes[..., half:] << 4], axis=-1)


def _encode_q4_1(values: np.ndarray) -> np.ndarray:
    least = values.min(axis=-1)
    scale = (values.max(axis=-1) - least) / np.float32(15)
    header = _halves(scale, least)
    codes = ((values - least[..., None]) * _inverse(scale) + np.float32(0.5)).astype(np.uint8)
    codes = np.minimum(codes, 15)
    half = BLOCK // 2
    return np.concatenate([header, codes[..., :half] | codes[..., half:] << 4], axis=-1)


_ENCODERS = {"q8_0": _encode_q8_0, "q4_1": _encode_q4_1, "q4_0": _encode_q4_0}
