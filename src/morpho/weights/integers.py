"""Whole numbers of 2 to 8 bits with scales beside them, as GPTQ, AWQ and compressed-tensors checkpoints have them.

| writer | tensors of a layer `x` | value of row o, column i in group g |
|---|---|---|
| GPTQ | `qweight` (in * bits / 32, out), `qzeros`, `scales` (groups, out), `g_idx` (in) | scale * (q - zero - 1) |
| GPTQ, `checkpoint_format` "gptq_v2" | the same | scale * (q - zero) |
| AWQ | `qweight` (in, out * bits / 32), `qzeros`, `scales` (groups, out) | scale * (q - zero) |
| compressed-tensors | `weight_packed` (out, in * bits / 32), `weight_scale` (out, groups), `weight_shape`, and \
`weight_zero_point` and `weight_g_idx` where they are | scale * (q - zero) |
| compressed-tensors | `weight` of int8, `weight_scale` | scale * (q - zero) |

Words of 32 bits hold the numbers from the lowest bit on; AWQ's hold columns 0, 2, 4, 6, 1, 3, 5, 7. Each value is one
product of float32, rounded once: the writers' own kernels round to float16 besides. Where the columns of 32 values
share a scale, weights stay packed, in blocks that products read as they are and that have the same values.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from morpho.base.dtypes import DType, float32
from morpho.base.errors import fail
from morpho.ops.neural.quantised import BLOCK, LAYOUTS
from morpho.tensor.convert import borrowed
from morpho.tensor.functions.products.quantised import Quantised
from morpho.weights.errors import FileFault
from morpho.weights.named import NamedTensors
from morpho.weights.safetensors import Entry, MappedFile, Weights
from morpho.weights.transforms import Weight

AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)  # the columns that the numbers of a word are of, from the lowest bits on
WEIGHTS = {"gptq": "qweight", "awq": "qweight", "compressed-tensors": "weight_packed"}
BESIDE = {"gptq": ("qzeros", "scales", "g_idx"), "awq": ("qzeros", "scales"),
          "compressed-tensors": ("weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx")}
NEEDED = {"gptq": ("qzeros", "scales"), "awq": ("qzeros", "scales"), "compressed-tensors": ("weight_scale",)}
Place: TypeAlias = tuple[MappedFile, Entry]


@dataclass(frozen=True)
class Integers:
    """The numbers as config.json describes them: their writer, their bits, and what is added to their zeros.

    >>> Integers("gptq", 4, 1).method
    'gptq'
    """

    method: str
    bits: int
    shift: int = 0  # of zeros: GPTQ's first form has them less 1


def with_integers(weights: Weights, form: Integers) -> IntegerWeights:
    """The same weights, those of a few bits under the name `x.weight`.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> mo.weights.save(path, {"w.qweight": mo.asarray([[0x21]], dtype=mo.int32), "w.scales": mo.ones((1, 1)),
    ...                        "w.qzeros": mo.zeros((1, 1), dtype=mo.int32)})
    >>> with_integers(mo.weights.load(path), Integers("gptq", 4))["w.weight"].numpy()[:, :3]
    array([[1., 2., 0.]], dtype=float32)
    """
    return IntegerWeights(weights, form)


class IntegerWeights(NamedTensors[tuple[Place, ...], Weight]):
    """Tensors by name with those of a few bits put together; made by `with_integers`."""

    operation = "weights"

    def __init__(self, weights: Weights, form: Integers, packed: Collection[str] = ()) -> None:
        self._weights, self._form, self._packed = weights, form, frozenset(packed)
        self.metadata = weights.metadata
        self._parts: dict[str, dict[str, str]] = {}  # a weight -> its parts -> their names
        said = WEIGHTS[form.method]
        for name in weights:
            start, _, last = name.rpartition(".")
            bytes_alone = form.method == "compressed-tensors" and last == "weight" and f"{name}_scale" in weights
            if last == said or bytes_alone:
                self._parts[f"{start}.weight" if start else "weight"] = {last: name, **{
                    part: beside for part in BESIDE[form.method]
                    if (beside := f"{start}.{part}" if start else part) in weights}}
        used = {name for parts in self._parts.values() for name in parts.values()}
        for target, parts in self._parts.items():
            for part in NEEDED[form.method]:
                if part not in parts:
                    raise fail(FileFault, "load", f"{target} has no {part} beside it")
        places: dict[str, tuple[Place, ...]] = {name: (weights.place(name),) for name in weights if name not in used}
        places |= {target: tuple(weights.place(name) for name in parts.values())
                   for target, parts in self._parts.items()}
        super().__init__(dict(sorted(places.items())))
        self._sizes = {target: self._shape(target) for target in self._parts}

    def packing(self, names: Collection[str]) -> IntegerWeights:
        """The same; weights of these names stay in blocks where 32 columns share a scale."""
        return IntegerWeights(self._weights, self._form, names)

    def places(self, name: str) -> list[Place]:
        """Where a tensor and what belongs to it lie."""
        return [*self._places[name]]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor, (rows, columns) for those of a few bits."""
        return {name: self._sizes.get(name, places[0][1].shape) for name, places in self._places.items()}

    @property
    def dtypes(self) -> dict[str, DType]:
        """The dtype of every tensor as it is given."""
        return {name: float32 if name in self._parts else places[0][1].dtype for name, places in self._places.items()}

    def _make(self, name: str, place: tuple[Place, ...]) -> Weight:
        if name not in self._parts:
            return self._weights[name]
        codes, zeros, scales, groups = self._read(name)
        count, bits = scales.shape[1], self._form.bits
        width = codes.shape[1] // count if codes.shape[1] % count == 0 else 0
        if groups is None and width == 0:
            raise fail(FileFault, "load", f"{name} has {codes.shape[1]} columns and {count} groups of them")
        plain = groups is None or bool((groups == np.arange(codes.shape[1]) // max(width, 1)).all())
        short = not (np.ascontiguousarray(scales, np.float32).view(np.uint32) & 255).any()  # products are exact
        if name in self._packed and plain and short and width and width % BLOCK == 0:
            return _in_blocks(codes, zeros, scales, bits)
        columns = np.arange(codes.shape[1]) // width if groups is None else groups
        with np.errstate(all="ignore"):
            return borrowed(np.ascontiguousarray(scales[:, columns] * (codes - zeros[:, columns]).astype(np.float32)))

    def _array(self, name: str, part: str, kind: str = "<i4") -> np.ndarray:
        source = self._parts[name][part]
        tensor = self._weights[source]
        if kind == "<i4" and tensor.dtype.name not in ("int32", "uint32"):
            raise fail(FileFault, "load", f"{source} is {tensor.dtype}, and words are int32")
        return np.asarray(tensor.astype("float32").numpy() if kind == "<f4" else tensor.numpy().view(np.int32))

    def _signed(self, source: str) -> np.ndarray:
        """Signed bytes as numbers from 0 on, as the packed forms have them."""
        if self._weights.dtypes[source].name != "int8":
            raise fail(FileFault, "load", f"{source} is {self._weights.dtypes[source]}, and int8 is read")
        return np.asarray(self._weights[source].numpy()).astype(np.int32) + (1 << (self._form.bits - 1))

    def _shape(self, name: str) -> tuple[int, ...]:
        parts, bits = self._parts[name], self._form.bits
        said = next(each for each in parts if each in ("qweight", "weight_packed", "weight"))
        entry = self._weights.place(parts[said])[1]
        if len(entry.shape) != 2:
            raise fail(FileFault, "load", f"{parts[said]} of shape {entry.shape} is no matrix")
        first, second = entry.shape
        if said == "weight":
            return first, second
        if said == "weight_packed":
            return first, second * 32 // bits if "weight_shape" not in parts else int(
                self._weights[parts["weight_shape"]].numpy()[1])
        return (second, first * 32 // bits) if self._form.method == "gptq" else (second * 32 // bits, first)

    def _read(self, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Numbers (rows, columns), zeros and scales (rows, groups), and each column's group where the file says."""
        bits, parts, (rows, columns) = self._form.bits, self._parts[name], self._sizes[name]
        groups: np.ndarray | None = None
        if self._form.method == "gptq":
            codes = unpacked(self._array(name, "qweight").T, bits)
            scales = self._array(name, "scales", "<f4").T
            zeros = (unpacked(self._array(name, "qzeros"), bits).T + self._form.shift) & ((1 << bits) - 1)
            groups = self._array(name, "g_idx") if "g_idx" in parts else None
        elif self._form.method == "awq":
            codes = _in_order(unpacked(self._array(name, "qweight"), bits)).T
            scales = self._array(name, "scales", "<f4").T
            zeros = _in_order(unpacked(self._array(name, "qzeros"), bits)).T
        else:
            middle = 1 << (bits - 1)
            scales = self._array(name, "weight_scale", "<f4")
            scales = np.full((rows, 1), scales.flat[0]) if scales.size == 1 else scales.reshape(scales.shape[0], -1)
            if "weight" in parts:
                codes = self._signed(parts["weight"])
                zeros = self._signed(parts["weight_zero_point"]).reshape(scales.shape) \
                    if "weight_zero_point" in parts else np.full(scales.shape, middle, np.int32)
            else:
                codes = unpacked(self._array(name, "weight_packed"), bits)[:, :columns]
                zeros = unpacked(self._array(name, "weight_zero_point").T, bits).T[:rows] \
                    if "weight_zero_point" in parts else np.full(scales.shape, middle, np.int32)
            groups = self._array(name, "weight_g_idx") if "weight_g_idx" in parts else None
            groups = None if groups is not None and (groups < 0).any() else groups  # -1 where nothing is said
        zeros = zeros[:scales.shape[0], :scales.shape[1]]
        count = scales.shape[1]
        if codes.shape != (rows, columns) or scales.shape[0] != rows or zeros.shape != scales.shape or (
                groups is not None and (groups.shape != (columns,) or groups.min() < 0 or groups.max() >= count)):
            raise fail(FileFault, "load", f"{name}: numbers of shape {codes.shape}, zeros {zeros.shape} and scales "
                                          f"{scales.shape} do not make a matrix of {rows} x {columns}")
        return codes, zeros, scales, groups


def unpacked(words: np.ndarray, bits: int) -> np.ndarray:
    """Return the numbers of so many bits in rows of words, the lowest bits first.

    >>> unpacked(np.array([[0x4321]], np.int32), 4)[0, :5].tolist()
    [1, 2, 3, 4, 0]
    """
    raw = np.ascontiguousarray(words.astype("<i4")).view(np.uint8)
    if bits == 8:
        return raw.astype(np.int32)
    if bits == 4:
        return np.stack([raw & 15, raw >> 4], axis=-1).reshape(raw.shape[0], -1).astype(np.int32)
    single = np.unpackbits(raw, axis=1, bitorder="little")
    single = single[:, :single.shape[1] // bits * bits].reshape(raw.shape[0], -1, bits)
    return np.asarray((single.astype(np.int32) << np.arange(bits, dtype=np.int32)).sum(axis=-1, dtype=np.int32))


def _in_order(columns: np.ndarray) -> np.ndarray:
    """Columns of AWQ's words in their order."""
    order = np.argsort(AWQ_COLUMNS)
    return columns.reshape(columns.shape[0], -1, len(order))[:, :, order].reshape(columns.shape)


def _in_blocks(codes: np.ndarray, zeros: np.ndarray, scales: np.ndarray, bits: int) -> Quantised:
    """Blocks of 32 numbers with a scale and a least value in float32: scale * (q - zero), which is exact before the one
    rounding of the product."""
    rows, columns = codes.shape
    kind = "q4_wm" if bits <= 4 else "q8_wm"
    low = 0 if bits <= 4 else 128  # bytes are signed there
    spread = columns // BLOCK // scales.shape[1]
    each = np.repeat(scales, spread, axis=1).astype(np.float32)
    least = np.repeat(scales * (low - zeros).astype(np.float32), spread, axis=1).astype(np.float32)
    made = np.empty((rows, columns // BLOCK, LAYOUTS[kind].block_bytes), np.uint8)
    made[..., :8] = np.ascontiguousarray(np.stack([each, least], axis=-1).astype("<f4")).view(np.uint8).reshape(
        rows, -1, 8)
    blocks = codes.reshape(rows, -1, BLOCK)
    if bits <= 4:
        made[..., 8:] = blocks[..., :16] | blocks[..., 16:] << 4
    else:
        made[..., 8:] = (blocks - low).astype(np.int8).view(np.uint8)
    return Quantised.of_tensor(borrowed(made.reshape(rows, -1)), (rows, columns), kind)
