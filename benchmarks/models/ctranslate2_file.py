"""CTranslate2's `model.bin`, read: variables by name, and Whisper's under the names that the Hugging Face hub has.

A file is, in little-endian numbers: the version of the format, the name of the specification, its revision, how many
variables follow, each with its name, rank, sizes, type, bytes and data; then aliases. A text is its length with the
NUL at its end, in 16 bits, and the text.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

VERSIONS = (4, 5, 6)  # those whose layout is the one above
TYPES = {0: "<f4", 1: "<i1", 2: "<i2", 3: "<i4", 4: "<f2"}
GELU = 3  # CTranslate2's number of the exact GELU
Variables = dict[str, np.ndarray[Any, Any]]


class _Reader:
    """Bytes of a file in order; the end is never passed."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = memoryview(data), 0

    def take(self, count: int) -> memoryview:
        if count > len(self.data) - self.at:
            raise ValueError(f"the file ends within {count} bytes from {self.at} on")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, form: str) -> int:
        return int(struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0])

    def text(self) -> str:
        return bytes(self.take(self.number("H"))).rstrip(b"\0").decode()


def read(data: bytes) -> tuple[str, Variables]:
    """The specification's name, and every variable; an alias is the variable it stands for."""
    reader = _Reader(data)
    version = reader.number("I")
    if version not in VERSIONS:
        raise ValueError(f"a file of version {version}; {VERSIONS} are read")
    name, _revision, count = reader.text(), reader.number("I"), reader.number("I")
    found = dict(_variable(reader) for _ in range(count))
    for _ in range(reader.number("I")):
        alias, stands_for = reader.text(), reader.text()
        found[alias] = found[stands_for]
    if reader.at != len(data):
        raise ValueError(f"{len(data) - reader.at} bytes follow the last alias")
    return name, found


def _variable(reader: _Reader) -> tuple[str, np.ndarray[Any, Any]]:
    name = reader.text()
    shape = tuple(reader.number("I") for _ in range(reader.number("B")))
    kind, size = reader.number("B"), reader.number("I")
    if kind not in TYPES:
        raise ValueError(f"{name} has the type {kind}, which is not read")
    dtype = np.dtype(TYPES[kind])
    if size != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} of shape {shape} has {size} bytes")
    return name, np.frombuffer(reader.take(size), dtype).reshape(shape)


def joined(folder: Path, name: str) -> bytes:
    """A file below a folder, or its parts `name.part1`, `name.part2`, ..., one after another."""
    parts = sorted(folder.rglob(name)) or sorted(folder.rglob(name + ".part*"), key=lambda part: part.name)
    if not parts:
        raise FileNotFoundError(f"{folder} has neither {name} nor parts of it")
    return b"".join(part.read_bytes() for part in parts)


# ------------------------------------------------------------------------------------------------------------- Whisper


def whisper_weights(found: Variables) -> Variables:
    """Whisper's weights under published names, in the type of the file. Packed products of attention are unpacked; the
    bias of the keys, which Whisper has not, must be zero."""
    made: Variables = {}
    for side in ("encoder", "decoder"):
        if int(found.get(f"{side}/activation", np.asarray(GELU))) != GELU:
            raise ValueError(f"the {side} has another activation than GELU")
        made[f"model.{side}.embed_positions.weight"] = found[f"{side}/position_encodings/encodings"]
        made |= _norm(found, f"{side}/layer_norm", f"model.{side}.layer_norm")
        for number in range(_layers(found, side)):
            made |= _layer(found, f"{side}/layer_{number}", f"model.{side}.layers.{number}")
    for conv in ("conv1", "conv2"):
        made |= _affine(found, f"encoder/{conv}", f"model.encoder.{conv}")
    made["model.decoder.embed_tokens.weight"] = found["decoder/embeddings/weight"]
    if found["decoder/projection/weight"] is not found["decoder/embeddings/weight"]:
        made["proj_out.weight"] = found["decoder/projection/weight"]
    return made


def _layers(found: Variables, side: str) -> int:
    return len({name.split("/")[1] for name in found if name.startswith(f"{side}/layer_") and name.count("/") > 2})


def _layer(found: Variables, source: str, target: str) -> Variables:
    made = dict(_attention(found, f"{source}/self_attention", f"{target}.self_attn", (("q", "k", "v"), ("out",))))
    made |= _norm(found, f"{source}/self_attention/layer_norm", f"{target}.self_attn_layer_norm")
    if f"{source}/attention/linear_0/weight" in found:
        made |= _attention(found, f"{source}/attention", f"{target}.encoder_attn", (("q",), ("k", "v"), ("out",)))
        made |= _norm(found, f"{source}/attention/layer_norm", f"{target}.encoder_attn_layer_norm")
    made |= _norm(found, f"{source}/ffn/layer_norm", f"{target}.final_layer_norm")
    made |= _affine(found, f"{source}/ffn/linear_0", f"{target}.fc1")
    return made | _affine(found, f"{source}/ffn/linear_1", f"{target}.fc2")


def _attention(found: Variables, source: str, target: str, packed: tuple[tuple[str, ...], ...]
               ) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """`linear_0`, `linear_1`, ... hold these projections one below the other."""
    for place, names in enumerate(packed):
        parts = _affine(found, f"{source}/linear_{place}", "")
        for part, array in parts.items():
            for name, piece in zip(names, np.split(array, len(names))):
                if name == "k" and part == ".bias":
                    if piece.any():
                        raise ValueError(f"{source} has a bias of keys, which Whisper has not")
                    continue
                yield f"{target}.{name}_proj{part}", piece


def _affine(found: Variables, source: str, target: str) -> Variables:
    """Weight and bias; int8 rows are multiplied out by their scales."""
    weight = found[f"{source}/weight"]
    if weight.dtype == np.int8:
        weight = weight.astype(np.float32) / found[f"{source}/weight_scale"].astype(np.float32)[:, None]
    return {f"{target}.weight": weight, f"{target}.bias": found[f"{source}/bias"]}


def _norm(found: Variables, source: str, target: str) -> Variables:
    return {f"{target}.weight": found[f"{source}/gamma"], f"{target}.bias": found[f"{source}/beta"]}


def whisper_config(found: Variables, tokens: dict[str, int], said: dict[str, Any]) -> dict[str, Any]:
    """`config.json` of the hub for these sizes; `tokens` gives the numbers of the special texts, `said` is the
    config.json that CTranslate2 has."""
    width = found["encoder/conv1/weight"].shape[0]
    made: dict[str, Any] = {
        "model_type": "whisper", "d_model": width, "num_mel_bins": found["encoder/conv1/weight"].shape[1],
        "vocab_size": found["decoder/embeddings/weight"].shape[0], "activation_function": "gelu",
        "max_source_positions": found["encoder/position_encodings/encodings"].shape[0],
        "max_target_positions": found["decoder/position_encodings/encodings"].shape[0],
        "tie_word_embeddings": found["decoder/projection/weight"] is found["decoder/embeddings/weight"],
        "eos_token_id": tokens["<|endoftext|>"], "decoder_start_token_id": tokens["<|startoftranscript|>"],
        "suppress_tokens": said["suppress_ids"], "begin_suppress_tokens": said["suppress_ids_begin"]}
    for side in ("encoder", "decoder"):
        made |= {f"{side}_layers": _layers(found, side), f"{side}_attention_heads": int(found[f"{side}/num_heads"]),
                 f"{side}_ffn_dim": found[f"{side}/layer_0/ffn/linear_0/weight"].shape[0]}
    return made
