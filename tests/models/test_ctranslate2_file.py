"""CTranslate2's file of a small Whisper, written here by its layout, gives the model's numbers; damage is an error."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from benchmarks.models.ctranslate2_file import read, whisper_config, whisper_weights

SIZES = {"vocab_size": 40, "d_model": 8, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 16, "decoder_ffn_dim": 12, "num_mel_bins": 4,
         "max_source_positions": 10, "max_target_positions": 12, "eos_token_id": 1, "decoder_start_token_id": 2}
TYPES = {"float32": 0, "int8": 1, "int16": 2, "float16": 4}


def text(word: str) -> bytes:
    return struct.pack("<H", len(word) + 1) + word.encode() + b"\0"


def packed(variables: dict[str, Any]) -> bytes:
    """A file of version 6."""
    out = struct.pack("<I", 6) + text("WhisperSpec") + struct.pack("<II", 3, len(variables))
    for name, array in variables.items():
        out += text(name) + struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        out += struct.pack("<BI", TYPES[array.dtype.name], array.nbytes) + array.tobytes()
    return out + struct.pack("<I", 1) + text("decoder/projection/weight") + text("decoder/embeddings/weight")


def variables_of(weights: dict[str, Any]) -> dict[str, Any]:
    """CTranslate2's names and packed products, from the hub's."""
    made: dict[str, Any] = {"decoder/activation": np.int8(3)}
    for side, heads in (("encoder", 2), ("decoder", 4)):
        made[f"{side}/num_heads"] = np.int16(heads)
        made[f"{side}/position_encodings/encodings"] = weights[f"model.{side}.embed_positions.weight"]
        places = {f"{side}/layer_norm": f"model.{side}.layer_norm"}
        for number in range(2 if side == "encoder" else 1):
            ours, theirs = f"model.{side}.layers.{number}", f"{side}/layer_{number}"
            places |= {f"{theirs}/self_attention/layer_norm": f"{ours}.self_attn_layer_norm",
                       f"{theirs}/ffn/layer_norm": f"{ours}.final_layer_norm"}
            groups = {"self_attention": ("self_attn", ("qkv", "o"))}
            if side == "decoder":
                groups["attention"] = ("encoder_attn", ("q", "kv", "o"))
                places[f"{theirs}/attention/layer_norm"] = f"{ours}.encoder_attn_layer_norm"
            for group, (name, linears) in groups.items():
                for place, letters in enumerate(linears):
                    for part in ("weight", "bias"):
                        made[f"{theirs}/{group}/linear_{place}/{part}"] = np.concatenate([
                            weights.get(f"{ours}.{name}.{'out' if letter == 'o' else letter}_proj.{part}",
                                        np.zeros(8, np.float32)) for letter in letters])
            for place in (0, 1):
                for part in ("weight", "bias"):
                    made[f"{theirs}/ffn/linear_{place}/{part}"] = weights[f"{ours}.fc{place + 1}.{part}"]
        for theirs, ours in places.items():
            made |= {f"{theirs}/gamma": weights[f"{ours}.weight"], f"{theirs}/beta": weights[f"{ours}.bias"]}
    for conv in ("conv1", "conv2"):
        made |= {f"encoder/{conv}/{part}": weights[f"model.encoder.{conv}.{part}"] for part in ("weight", "bias")}
    return {**made, "decoder/embeddings/weight": weights["model.decoder.embed_tokens.weight"]}


def test_the_models_numbers(tmp_path: Path, rng: np.random.Generator) -> None:
    model = mo.models.create("whisper-tiny", **SIZES)
    for parameter in model.parameters():  # norms and biases too: a swapped one would not be seen among ones and zeros
        parameter[...] = rng.standard_normal(parameter.shape).astype(np.float32)
    data = packed(variables_of({name: value.numpy() for name, value in model.state_dict().items()}))
    kind, variables = read(data)
    assert kind == "WhisperSpec"
    config = whisper_config(variables, {"<|endoftext|>": 1, "<|startoftranscript|>": 2},
                            {"suppress_ids": [3], "suppress_ids_begin": [4]})
    assert {name: config[name] for name in SIZES} == SIZES
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    mo.weights.save(tmp_path / "model.safetensors", whisper_weights(variables))
    sound, ids = rng.standard_normal((1, 4, 20)).astype(np.float32), np.asarray([[2, 5, 7]])
    loaded = mo.models.load(tmp_path)
    assert np.array_equal(loaded(sound, ids).numpy(), model(sound, ids).numpy())
    for broken in (data[:-3], data + b"x", b"\x09" + data[1:], data[:len(data) // 2]):
        with pytest.raises(ValueError, match=r"the file ends|bytes follow|version"):
            read(broken)


def test_a_bias_of_keys_is_refused() -> None:
    model = mo.models.create("whisper-tiny", **SIZES)
    variables = variables_of({name: value.numpy() for name, value in model.state_dict().items()})
    variables["encoder/layer_0/self_attention/linear_0/bias"] = np.ones(24, np.float32)
    _, found = read(packed(variables))
    with pytest.raises(ValueError, match="a bias of keys"):
        whisper_weights(found)
