"""Floats of 8 bits with scales beside them, as published checkpoints have them.

A tensor `x.weight` of a safetensors file is F8, and `x.weight_scale` or `x.weight_scale_inv` (the same: a factor of
what is stored) says by what its values are multiplied:

| shape of the scale of (n, k) | what a number scales |
|---|---|
| `()`, `(1,)`, `(1, 1)` | all values |
| `(n, 1)`, `(n,)` | a row |
| `(n / a, k / b)`, rounded up | a x b values, where the configuration says `weight_block_size` [a, b] |
| `(n, k / 32)`, rounded up, of E8M0 | 32 values of a row, as the MX formats have it |

Scales are floats, or powers of two as their exponents alone: F8_E8M0, or U8 in the last of these forms.
Scales of activations, of keys and of values are left out: nothing but weights is rounded here. Weights come as float32,
or in blocks that products read as they are: a byte a value and a scale for each 32.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, TypeAlias

import numpy as np

from morpho.base.dtypes import DType, uint8
from morpho.base.errors import fail
from morpho.ops.neural.float8 import KINDS, POWERS, table
from morpho.ops.neural.quantised import BLOCK, LAYOUTS
from morpho.tensor.convert import borrowed
from morpho.tensor.functions.products.quantised import Quantised
from morpho.weights.errors import FileFault
from morpho.weights.named import NamedTensors
from morpho.weights.safetensors import Entry, MappedFile, Weights
from morpho.weights.transforms import Weight

SCALES = ("weight_scale", "weight_scale_inv")
OF_ACTIVATIONS = ("input_scale", "input_scale_ub", "activation_scale", "output_scale", "q_scale", "k_scale", "v_scale")
PACKED = {layout.float8: kind for kind, layout in LAYOUTS.items() if layout.float8}  # kind of float -> of blocks
Place: TypeAlias = tuple[MappedFile, Entry]


def with_scales(weights: Weights, block: tuple[int, int] | None = None) -> Weights | ScaledWeights:
    """The same weights, those of 8 bits multiplied by the scales beside them; `block` is what the configuration says of
    the size of the blocks that share one. Files without floats of 8 bits are given back as they are.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> mo.weights.save(path, {"w": mo.ones((2, 3))})
    >>> with_scales(mo.weights.load(path))
    Weights(1 tensors, 24 bytes)
    """
    floats = {name for name in weights if weights.place(name)[1].float8 in KINDS}
    if not floats:
        return weights
    scales: dict[str, str] = {}
    for name in weights:
        start, _, last = name.rpartition(".")
        if last not in SCALES:
            continue
        target = f"{start}.weight" if start else "weight"
        if target not in floats:
            raise fail(FileFault, "load", f"{name} scales {target}, which " + (
                f"is {weights.dtypes[target]}" if target in weights else "is not there"), "only F8 weights have scales")
        if target in scales:
            raise fail(FileFault, "load", f"{name} and {scales[target]} both scale {target}")
        scales[target] = name
    return ScaledWeights(weights, scales, block)


class ScaledWeights(NamedTensors[Place, Weight]):
    """Tensors by name without their scales; made by `with_scales`."""

    operation = "weights"

    def __init__(self, weights: Weights, scales: dict[str, str], block: tuple[int, int] | None,
                 packed: Collection[str] = ()) -> None:
        dropped = {*scales.values(), *(name for name in weights if name.rpartition(".")[2] in OF_ACTIVATIONS)}
        super().__init__({name: weights.place(name) for name in weights if name not in dropped})
        self._weights, self._scales, self._block, self._packed = weights, scales, block, packed
        self.metadata = weights.metadata

    def packing(self, names: Collection[str]) -> ScaledWeights:
        """The same; weights of these names, and whose rows are whole blocks of 32, stay in 8 bits."""
        return ScaledWeights(self._weights, self._scales, self._block, names)

    def places(self, name: str) -> list[Place]:
        """Where a tensor and its scale lie."""
        beside = [self._weights.place(self._scales[name])] if name in self._scales else []
        return [self._places[name], *beside]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor; none is read."""
        return {name: entry.shape for name, (_, entry) in self._places.items()}

    @property
    def dtypes(self) -> dict[str, DType]:
        """The dtype of every tensor; none is read."""
        return {name: entry.dtype for name, (_, entry) in self._places.items()}

    def _make(self, name: str, place: Place) -> Weight:
        file, entry = place
        if entry.float8 not in KINDS:
            return self._weights[name]
        codes, kind = file.codes(entry), PACKED.get(entry.float8)
        scale, block = self._scale_of(name, entry.shape)
        whole = len(entry.shape) == 2 and entry.shape[1] % BLOCK == 0 and math.prod(entry.shape) > 0
        if name in self._packed and kind is not None and whole and (block is None or block[1] % BLOCK == 0):
            return _in_blocks(codes, scale, block, kind)
        return borrowed(np.asarray(table(entry.float8)[codes] * _spread(scale, block, entry.shape, 1)))

    def _scale_of(self, name: str, shape: tuple[int, ...]) -> tuple[np.ndarray, tuple[int, int] | None]:
        """The scale of a tensor as an array that spreads over its shape, in blocks of that size if any."""
        if name not in self._scales:
            return np.ones((), np.float32), None
        source = self._scales[name]
        found, by_32 = self._weights[source], len(shape) == 2 and (shape[0], -(-shape[-1] // BLOCK))
        is_power = self._weights.place(source)[1].float8 == POWERS or (found.dtype is uint8 and found.shape == by_32)
        if not found.dtype.is_float and not is_power:
            raise fail(FileFault, "load", f"{source} is {found.dtype}, and scales are floats, or exponents (E8M0) of "
                                          "32 values each")
        scale = np.asarray(table(POWERS)[found.numpy()] if found.dtype is uint8 else found.astype("float32").numpy())
        if scale.size == 1:
            return scale.reshape(()), None
        if shape and scale.shape in ((shape[0],), (shape[0], *(1,) * (len(shape) - 1))):
            return scale.reshape(shape[0], *(1,) * (len(shape) - 1)), None
        block = (1, BLOCK) if is_power and scale.shape == by_32 and self._block is None else self._block
        if block is not None and len(shape) == 2 and scale.shape == tuple(-(-size // step) for size, step in
                                                                          zip(shape, block, strict=True)):
            return scale, block
        said = f"blocks of {block[0]} x {block[1]} values have another" if block else (
            "config.json does not say weight_block_size")
        raise fail(FileFault, "load", f"{source} of shape {scale.shape} scales {name} of shape {shape} neither whole "
                                      f"nor by rows, and {said}")


def _spread(scale: np.ndarray, block: tuple[int, int] | None, shape: tuple[int, ...], columns: int) -> np.ndarray:
    """A scale for each value, or for each `columns` values of a row."""
    if block is None:
        return scale
    rows = np.repeat(scale, block[0], axis=0)[:shape[0]]
    return np.repeat(rows, block[1] // columns, axis=1)[:, :-(-shape[1] // columns)]


def _in_blocks(codes: np.ndarray, scale: np.ndarray, block: tuple[int, int] | None, kind: str) -> Quantised:
    """Blocks of a float32 scale and 32 bytes."""
    n, k = codes.shape
    made: Any = np.empty((n, k // BLOCK, LAYOUTS[kind].block_bytes), np.uint8)
    scales = np.broadcast_to(_spread(scale, block, (n, k), BLOCK), (n, k // BLOCK)).astype("<f4")
    made[..., :4] = np.ascontiguousarray(scales).view(np.uint8).reshape(n, k // BLOCK, 4)
    made[..., 4:] = codes.reshape(n, k // BLOCK, BLOCK)
    return Quantised.of_tensor(borrowed(made.reshape(n, -1)), (n, k), kind)
