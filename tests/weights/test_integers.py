"""Weights of a few bits as GPTQ, AWQ and compressed-tensors write them: packed here number by number from the formats'
definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.weights.integers import AWQ_COLUMNS, Integers, with_integers

SMALL = {"vocab_size": 50, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "head_dim": 16,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16}


def packed(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of each row in words, one bit after another."""
    words = np.zeros((numbers.shape[0], -(-numbers.shape[1] * bits // 32)), np.uint64)
    for column in range(numbers.shape[1]):
        for bit in range(bits):
            place = column * bits + bit
            words[:, place // 32] |= ((numbers[:, column].astype(np.uint64) >> np.uint64(bit)) & np.uint64(1)) << \
                np.uint64(place % 32)
    return words.astype(np.uint32).view(np.int32)


def awq_order(numbers: np.ndarray) -> np.ndarray:
    return numbers.reshape(numbers.shape[0], -1, 8)[:, :, list(AWQ_COLUMNS)].reshape(numbers.shape)


def layer(method: str, bits: int, rows: int, columns: int, group: int, seed: int, ordered: bool = False,
          shift: int = 1) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The tensors of a layer as the writer has them, and the values that they stand for."""
    rng, groups = np.random.default_rng(seed), columns // group
    codes = rng.integers(0, 1 << bits, (rows, columns))
    zeros = rng.integers(1, 1 << bits, (rows, groups))
    scales = rng.uniform(0.001, 0.02, (rows, groups)).astype(np.float16)
    of = rng.permutation(np.arange(columns) // group) if ordered else np.arange(columns) // group
    values = scales.astype(np.float32)[:, of] * (codes - zeros[:, of]).astype(np.float32)
    if method == "gptq":
        found = {"qweight": packed(codes, bits).T, "qzeros": packed(zeros.T - shift, bits), "scales": scales.T,
                 "g_idx": of.astype(np.int32)}
    elif method == "awq":
        found = {"qweight": packed(awq_order(codes.T), 4), "qzeros": packed(awq_order(zeros.T), 4), "scales": scales.T}
    else:
        found = {"weight_packed": packed(codes, bits), "weight_scale": scales,
                 "weight_shape": np.array([rows, columns]), "weight_zero_point": packed(zeros.T, bits).T}
    return {name: np.ascontiguousarray(part) for name, part in found.items()}, values


@pytest.mark.parametrize("method, bits, group, ordered, shift", [
    ("gptq", 4, 32, False, 1), ("gptq", 4, 16, False, 0), ("gptq", 3, 32, False, 1), ("gptq", 8, 64, False, 1),
    ("gptq", 2, 32, True, 1), ("awq", 4, 32, False, 0), ("compressed-tensors", 4, 32, False, 0),
    ("compressed-tensors", 8, 64, False, 0)])
def test_values(method: str, bits: int, group: int, ordered: bool, shift: int, tmp_path: Path) -> None:
    parts, values = layer(method, bits, 32, 64, group, bits, ordered, shift)
    mo.weights.save(tmp_path / "a.safetensors", {f"w.{name}": mo.asarray(part) for name, part in parts.items()})
    found = with_integers(mo.weights.load(tmp_path / "a.safetensors"), Integers(method, bits, shift))
    assert found.shapes["w.weight"] == (32, 64)
    dense = found["w.weight"]
    assert isinstance(dense, mo.Tensor) and (dense.numpy() == values).all()
    inside = found.packing(["w.weight"])["w.weight"]
    assert isinstance(inside, mo.Quantised) == (not ordered and group % 32 == 0)
    assert ((inside.dequantise() if isinstance(inside, mo.Quantised) else inside).numpy() == values).all()


@pytest.mark.parametrize("said", [
    {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False},
    {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True},
    {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group",
                                           "group_size": 32}}}}])
def test_a_folder_computes_with_them(said: dict[str, Any], tmp_path: Path) -> None:
    """As the same model does whose weights are their values."""
    mo.nn.seed(1)
    plain = mo.models.create("llama", **SMALL).eval()
    weights, values = {}, {}
    for number, (name, weight) in enumerate(plain.state_dict().items()):
        weights[name] = values[name] = weight
        if "_proj" in name:
            parts, dense = layer(said["quant_method"], 4, weight.shape[0], weight.shape[1], 32, number)
            del weights[name]
            weights |= {f"{name.removesuffix('weight')}{part}": mo.asarray(each) for part, each in parts.items()}
            values[name] = mo.asarray(dense)
    plain.load_state_dict(values)
    mo.weights.save(tmp_path, weights)
    (tmp_path / "config.json").write_text(json.dumps({**plain.config, "quantization_config": said}))
    ids = mo.asarray([[3, 4, 5]])
    with mo.settings(device="reference"):
        wanted = plain(ids).numpy()
        for inside in (True, False):
            model = mo.models.load(tmp_path, packed=inside)
            assert isinstance(model.model.layers[0].mlp.up_proj, mo.nn.QuantisedLinear) == inside
            assert np.abs(model(ids).numpy() - wanted).max() < 1e-5


@pytest.mark.parametrize("said, words", [
    ({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemv"}, "version is 'gemv'"),
    ({"quant_method": "gptq", "bits": 5, "group_size": 32}, "bits is 5"),
    ({"quant_method": "gptq", "group_size": 32}, "does not say bits"),
    ({"quant_method": "bitsandbytes"}, "quant_method is 'bitsandbytes'")])
def test_other_forms_are_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(mo.errors.ArgumentError, match=words):
        mo.models.from_config({"model_type": "llama", **SMALL, "quantization_config": said})

