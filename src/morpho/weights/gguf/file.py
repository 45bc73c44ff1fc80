"""GGUF files: configuration, tensors as they stand in the file, tokenizer and chat template.

float32, float16, bfloat16, integers, Q8_0, Q4_0, Q4_1 and IQ4_NL are read by Morpho, without a copy; other quantised
types are put into blocks that products read (`repack.py`), IQ1, IQ2 and IQ3 with the help of the gguf library (`pip
install 'morpho-tensor[models]'`). Types that only the library knows are turned into float32 when they are asked for,
and that is said once.
"""

from __future__ import annotations

import logging
import math
import mmap
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from morpho.base import dtypes
from morpho.base.dtypes import DType
from morpho.base.errors import fail, sentence
from morpho.base.python.lazy import cached_property
from morpho.base.shapes import contiguous_strides
from morpho.runtime.memory.buffer import Buffer
from morpho.tensor.convert import borrowed
from morpho.tensor.core import Tensor
from morpho.tensor.functions.move import reshape
from morpho.tensor.functions.products.quantised import Quantised
from morpho.weights.errors import FileFault
from morpho.weights.gguf.header import NATIVE, Place, read_header
from morpho.weights.gguf.keys import rope_scaling
from morpho.weights.gguf.repack import REPACKED, gguf_library, repacked
from morpho.weights.gguf.tokenizer import text_of, tokenizer_of
from morpho.weights.named import NamedTensors
from morpho.weights.safetensors import open_regular
from morpho.weights.scanner import Malformed, shortened
from morpho.weights.text.tokenizer import Tokenizer
from morpho.weights.transforms import Weight

DTYPES: dict[str, DType] = {
    "F32": dtypes.float32, "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F64": dtypes.float64, "I8": dtypes.int8,
    "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64,
}
QUANTISED = {"Q8_0": "q8_0", "Q4_0": "q4_0", "Q4_1": "q4_1", "IQ4_NL": "iq4_nl"}
_log = logging.getLogger("morpho")


@dataclass(frozen=True)
class GgufConfig:
    """Configuration for a model's builder; a width is a count of values.

    `norm_eps` and `rope_theta` are None where the file does not say, `rope_dimensions` is the width of a head then.
    `tied` tells that the output matrix is the embedding's.

    >>> list(mo.weights.GgufConfig.__dataclass_fields__)[:3]
    ['architecture', 'name', 'layers']
    """

    architecture: str
    name: str
    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_width: int
    vocab_size: int
    context: int
    norm_eps: float | None
    rope_theta: float | None
    rope_dimensions: int
    tied: bool
    value_width: int = 0
    window: int | None = None  # keys that a token sees, itself among them
    attention_scale: float | None = None
    rope_factor: float | None = None  # by which positions are stretched


class GgufFile:
    """A GGUF file: `config`, `tensors` (name -> tensor or `mo.Quantised`), `tokenizer`, `chat_template`, `metadata`.

    >>> import struct, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "empty.gguf"
    >>> _ = path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    >>> len(mo.weights.GgufFile(path).tensors)
    0
    """

    def __init__(self, path: Path, ignore: Collection[str] = ()) -> None:
        self.path = path
        self.ignore = frozenset(ignore)  # keys that the caller goes on without
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise fail(FileFault, "load_gguf", f"{path.name} is empty")
            self._map = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        try:
            self.metadata, self._places = read_header(self._map, size, _sizes)
        except Malformed as error:
            raise fail(FileFault, "load_gguf", f"{path.name} is not a GGUF file: {error}") from None
        self.tensors = GgufTensors(self._map, self._places)
        if self.tensors.converted:
            names, kinds = self.tensors.converted, self.tensors.kinds
            _log.warning(sentence("load_gguf", f"{len(names)} tensors of {path.name} become float32 when they are used,"
                                               f" {names[0]} for one: products do not read {kinds[names[0]]} packed"))

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Fields of the header that describe the model, without the architecture's name before each key."""
        before = text_of(self.metadata, "general.architecture") + "."
        return {key.removeprefix(before): value for key, value in self.metadata.items()
                if key.startswith(before) and key not in self.ignore}

    @cached_property
    def config(self) -> GgufConfig:
        """The sizes of the model."""
        architecture, fields = text_of(self.metadata, "general.architecture"), self.fields
        heads, width = _size(fields, "attention.head_count"), _size(fields, "embedding_length")
        kv_heads = _size(fields, "attention.head_count_kv", heads)
        head_width = _size(fields, "attention.key_length", max(width // heads, 1))
        if heads % kv_heads:
            raise fail(FileFault, "load_gguf", f"attention.head_count={heads} heads do not share "
                                               f"attention.head_count_kv={kv_heads} heads of keys and values")
        eps = fields.get("attention.layer_norm_rms_epsilon", fields.get("attention.layer_norm_epsilon"))
        return GgufConfig(
            architecture, text_of(self.metadata, "general.name", self.path.stem), _size(fields, "block_count"), width,
            _size(fields, "feed_forward_length"), heads, kv_heads, head_width,
            _size(fields, "vocab_size", self._rows("token_embd.weight")), _size(fields, "context_length"),
            _positive("attention.layer_norm_rms_epsilon", eps),
            _positive("rope.freq_base", fields.get("rope.freq_base")),
            _size(fields, "rope.dimension_count", head_width),
            "output.weight" not in self._places, _size(fields, "attention.value_length", head_width),
            _count(fields, "attention.sliding_window"),
            _positive("attention.scale", fields.get("attention.scale") or None),
            rope_scaling(fields, self.path.name))

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the file: byte-level BPE or SentencePiece's."""
        return tokenizer_of(self.metadata, self.path.name, self.ignore)

    @property
    def chat_template(self) -> str:
        """The template of a chat, empty where there is none."""
        return text_of(self.metadata, "tokenizer.chat_template", "")

    def _rows(self, name: str) -> int | None:
        return self._places[name].shape[0] if name in self._places else None

    def __repr__(self) -> str:
        return f"GgufFile({self.path.name!r}, {len(self.tensors)} tensors, {self.tensors.nbytes} bytes)"


class GgufTensors(NamedTensors[Place, Weight]):
    """Tensors by the names in the file, made when they are asked for. `kinds` has the type of each in the file."""

    operation = "load_gguf"

    def __init__(self, data: mmap.mmap, places: Mapping[str, Place]) -> None:
        super().__init__(places)
        self._map = data
        self.kinds = {name: place.kind for name, place in places.items()}
        self.converted = [name for name, kind in self.kinds.items()
                          if kind not in DTYPES and kind not in QUANTISED and kind not in REPACKED]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor, rows first; none is read."""
        return {name: place.shape for name, place in self._places.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors in the file."""
        return sum(place.stop - place.start for place in self._places.values())

    def _make(self, name: str, place: Place) -> Weight:
        raw = np.frombuffer(self._map, np.uint8, place.stop - place.start, place.start)
        if place.kind in DTYPES:
            return _borrowed(raw, place.shape, DTYPES[place.kind])
        rows = raw.reshape(math.prod(place.shape[:-1]), -1)  # (rows, bytes of a row)
        kind = QUANTISED.get(place.kind)
        if place.kind in REPACKED:
            rows, kind = repacked(rows, place.kind), REPACKED[place.kind][2]
        if kind is not None:
            weight = Quantised.of_tensor(borrowed(rows), (rows.shape[0], place.shape[-1]), kind)
            return weight if len(place.shape) == 2 else reshape(weight.dequantise(), place.shape)
        try:
            found = gguf_library().dequantize(rows, gguf_library().GGMLQuantizationType(place.type))
        except NotImplementedError:
            raise fail(FileFault, "load_gguf", f"weights of type {place.kind} cannot be read") from None
        return borrowed(found.reshape(place.shape))  # nobody else holds it


def load_gguf(path: str | os.PathLike[str], *, ignore: Collection[str] = ()) -> GgufFile:
    """A GGUF file: its configuration, tensors, tokenizer and chat template; nothing large is read before it is used.
    `ignore` are keys of its header to go on without.

    >>> mo.weights.load_gguf("nowhere.gguf")
    Traceback (most recent call last):
    ...
    morpho.weights.errors.MissingFile: [load] nowhere.gguf is not there. At ...
    """
    return GgufFile(Path(path), ignore)


def _borrowed(raw: np.ndarray, shape: tuple[int, ...], dtype: DType) -> Tensor:
    array = raw.view(dtype.numpy)
    array = array if array.flags.aligned else array.copy()
    return Tensor.of_buffer(Buffer(array, array.ctypes.data, shape, contiguous_strides(shape), dtype, False))  # type: ignore[arg-type]


def _sizes(kind: int) -> tuple[str, int, int]:
    """Name, values in a block and bytes of a block of a type."""
    if kind in NATIVE:
        return NATIVE[kind]
    library = gguf_library()
    try:
        found = library.GGMLQuantizationType(kind)
        return (found.name, *library.GGML_QUANT_SIZES[found])
    except (ValueError, KeyError):
        raise Malformed(f"a tensor has the unknown type {kind}") from None


# -- metadata ----------------------------------------------------------------------------------------------------------
def _size(fields: Mapping[str, Any], key: str, default: int | None = None) -> int:
    found = fields.get(key, default)
    if type(found) is not int or not 0 < found < 1 << 31:
        raise fail(FileFault, "load_gguf", f"{key} is {shortened(found)}, not a size",
                   "models whose layers differ in size are not known here" if isinstance(found, list) else "")
    return found


def _count(fields: Mapping[str, Any], key: str) -> int | None:
    """A size, None for 0 or where there is none."""
    return _size(fields, key) if fields.get(key) else None


def _positive(key: str, found: Any) -> float | None:
    if found is None or (type(found) in (int, float) and 0 < found < math.inf):
        return None if found is None else float(found)
    raise fail(FileFault, "load_gguf", f"{key} is {shortened(found)}", "give a positive number")
