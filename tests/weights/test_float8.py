"""Floats of 8 bits in safetensors files, with the scales that published checkpoints keep beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, MorphoError
from morpho.models.quantization_keys import block_size
from morpho.ops.neural.float8 import KINDS, POWERS, table
from morpho.ops.neural.quantised import LAYOUTS
from morpho.weights.scaled import PACKED, ScaledWeights, with_scales
from tests.weights.test_safetensors import entry, raw_file

NUMPY = {"F32": np.float32, "F8_E4M3": np.uint8, "F8_E5M2": np.uint8, "F8_E4M3FNUZ": np.uint8, "I8": np.int8,
         "U8": np.uint8, "F8_E8M0": np.uint8}


def write(path: Path, tensors: dict[str, tuple[str, np.ndarray]]) -> Path:
    """A file of arrays, those of 8 bits given by their codes."""
    at, header, data = 0, {}, b""
    for name, (dtype, array) in tensors.items():
        raw = np.ascontiguousarray(array, NUMPY[dtype]).tobytes()
        header[name] = entry(dtype, list(array.shape), at, at + len(raw))
        at, data = at + len(raw), data + raw
    return raw_file(path, header, data)


@pytest.mark.parametrize("kind", [*KINDS, POWERS])
def test_every_byte_has_the_value_of_the_format(kind: str) -> None:
    """Against ml_dtypes, NumPy's extension, where it is installed."""
    library = pytest.importorskip("ml_dtypes", reason="compares with ml_dtypes")
    name = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E4M3FNUZ": "float8_e4m3fnuz",
            "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu"}[kind]
    wanted = np.arange(256, dtype=np.uint8).view(getattr(library, name)).astype(np.float32)
    np.testing.assert_array_equal(table(kind), wanted)
    assert (np.signbit(table(kind)) == np.signbit(wanted))[~np.isnan(wanted)].all()


@pytest.mark.parametrize("kind", [*PACKED])
@pytest.mark.parametrize("rows", [1, 9])
def test_products_are_those_of_the_values(kind: str, rows: int) -> None:
    """Every byte that is a number, in registers (few rows) and unpacked (many), to the bit."""
    rng = np.random.default_rng(5)
    codes = np.arange(256, dtype=np.uint8)
    codes = np.resize(codes[np.isfinite(table(kind))], (20, 64))
    scale = rng.uniform(0.5, 2, (20, 2)).astype("<f4")
    blocks = np.concatenate([scale.view(np.uint8).reshape(20, 2, 4), codes.reshape(20, 2, 32)], axis=-1)
    weight = mo.Quantised.from_bytes(np.ascontiguousarray(blocks), (20, 64), PACKED[kind])
    values = (table(kind)[codes].reshape(20, 2, 32) * scale[..., None]).reshape(20, 64)
    np.testing.assert_array_equal(weight.dequantise().numpy(), values)
    x = rng.standard_normal((rows, 64)).astype(np.float32)
    found = mo.compile(lambda x: x @ weight.T)(x).numpy()
    assert (found == (mo.asarray(x) @ mo.asarray(values.T)).numpy()).all()
    ids = mo.asarray([[3, 0, 19]])
    assert (mo.nn.QuantisedEmbedding(weight)(ids).numpy() == values[[[3, 0, 19]]]).all()


@pytest.mark.parametrize("kind", [*PACKED])
def test_what_is_no_number_stays_none(kind: str) -> None:
    codes = np.zeros((4, 32), np.uint8)
    ends = np.flatnonzero(~np.isfinite(table(kind)))
    codes[0, 0], codes[1, 1], codes[2, 2] = ends[0], ends[-1], 1
    blocks = np.concatenate([np.ones((4, 1), "<f4").view(np.uint8), codes], axis=-1)
    weight = mo.Quantised.from_bytes(np.ascontiguousarray(blocks), (4, 32), PACKED[kind])
    found = mo.compile(lambda x: x @ weight.T)(np.ones((1, 32), np.float32)).numpy()[0]
    wanted = table(kind)[codes].sum(axis=1)
    np.testing.assert_array_equal(found, wanted)  # NaN, infinities, the least number


@pytest.mark.parametrize("kind", [*LAYOUTS])
def test_rows_of_every_layout(kind: str) -> None:
    """A table of token vectors in any layout gives what `dequantise` does."""
    rng = np.random.default_rng(3)
    layout = LAYOUTS[kind]
    blocks = rng.integers(0, 120, (6, 2, layout.block_bytes)).astype(np.uint8)
    heads = np.exp2(rng.integers(-3, 2, (6, 2, layout.groups * layout.headers)))
    blocks[..., :layout.header_bytes] = heads.astype("<f4" if layout.wide else "<f2").view(np.uint8)
    weight = mo.Quantised.from_bytes(blocks, (6, 64), kind)
    assert (mo.nn.QuantisedEmbedding(weight)(mo.asarray([5, 0])).numpy() == weight.dequantise().numpy()[[5, 0]]).all()


# -- scales ------------------------------------------------------------------------------------------------------------
CODES = (np.arange(160 * 96) % 120).astype(np.uint8).reshape(160, 96)
SCALES = {"one": (np.full((), 0.5), None), "in a list": (np.full((1,), 0.5), None),
          "rows": (np.linspace(0.5, 2, 160).reshape(160, 1), None), "rows, flat": (np.linspace(0.5, 2, 160), None),
          "blocks": (np.linspace(0.5, 2, 6).reshape(2, 3), (128, 32)),
          "odd blocks": (np.linspace(0.5, 2, 21).reshape(3, 7), (64, 15))}


def spread(scale: np.ndarray, block: tuple[int, int] | None) -> np.ndarray:
    if block is None:
        return scale.reshape(-1, 1) if scale.size > 1 else scale.reshape(())
    rows, columns = np.arange(160) // block[0], np.arange(96) // block[1]
    return scale[rows][:, columns]


@pytest.mark.parametrize("name", [*SCALES])
@pytest.mark.parametrize("suffix", ["weight_scale", "weight_scale_inv"])
def test_scales_of_every_shape(name: str, suffix: str, tmp_path: Path) -> None:
    scale, block = SCALES[name]
    scale = scale.astype(np.float32)
    path = write(tmp_path / "a.safetensors", {"x.weight": ("F8_E4M3", CODES), f"x.{suffix}": ("F32", scale),
                                              "x.input_scale": ("F32", np.ones(())), "y": ("F32", np.ones(2))})
    found = with_scales(mo.weights.load(path), block)
    assert isinstance(found, ScaledWeights) and [*found] == ["x.weight", "y"]
    wanted = table("F8_E4M3")[CODES] * spread(scale, block).astype(np.float32)
    np.testing.assert_array_equal(found["x.weight"].numpy(), wanted)  # type: ignore[union-attr]
    kept = found.packing(["x.weight"])["x.weight"]
    if name == "odd blocks":
        assert isinstance(kept, mo.Tensor)
    else:
        assert isinstance(kept, mo.Quantised) and kept.nbytes == 160 * 3 * 36
        np.testing.assert_array_equal(kept.dequantise().numpy(), wanted)
    assert len(found.places("x.weight")) == 2


def test_other_kinds_and_no_scale(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", {"w": ("F8_E4M3FNUZ", CODES), "v": ("F8_E5M2", CODES),
                                              "s": ("F8_E5M2", CODES[0, 0])})
    found = with_scales(mo.weights.load(path)).packing(["w", "v", "s"])  # type: ignore[union-attr]
    assert isinstance(found["w"], mo.Tensor) and found["v"].kind == "f8_e5m2"  # type: ignore[union-attr]
    np.testing.assert_array_equal(found["w"].numpy(), table("F8_E4M3FNUZ")[CODES])
    np.testing.assert_array_equal(found["v"].dequantise().numpy(), table("F8_E5M2")[CODES])  # type: ignore[union-attr]
    assert found["s"].shape == ()


BAD = [
    ({"x.weight": ("F8_E4M3", CODES), "x.weight_scale": ("F32", np.ones((3, 2)))}, None, "say weight_block_size"),
    ({"x.weight": ("F8_E4M3", CODES), "x.weight_scale": ("F32", np.ones((3, 2)))}, (128, 128), "128 x 128 values"),
    ({"x.weight": ("F8_E4M3", CODES), "x.weight_scale": ("I8", np.ones(()))}, None, "scales are floats"),
    ({"x.weight": ("I8", CODES), "x.weight_scale": ("F32", np.ones(())), "y": ("F8_E4M3", CODES)}, None, "is int8"),
    ({"x.weight_scale": ("F32", np.ones(())), "y": ("F8_E4M3", CODES)}, None, "is not there"),
    ({"x.weight": ("F8_E4M3", CODES), "x.weight_scale": ("F32", np.ones(())),
      "x.weight_scale_inv": ("F32", np.ones(()))}, None, "both scale"),
]


@pytest.mark.parametrize(("tensors", "block", "complaint"), BAD, ids=[case[2] for case in BAD])
def test_scales_that_do_not_fit(tensors: Any, block: Any, complaint: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", tensors)
    with pytest.raises(mo.weights.FileFault, match=complaint):
        with_scales(mo.weights.load(path), block)["x.weight"]


# -- models ------------------------------------------------------------------------------------------------------------
SIZES: dict[str, Any] = {"vocab_size": 40, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
                         "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [32, 32],
       "modules_to_not_convert": ["lm_head"]}
GROUP = {"weights": {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False, "strategy": "channel",
                     "group_size": None, "observer": "minmax"}, "targets": ["Linear"], "input_activations": None}
COMPRESSED = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": GROUP},
              "ignore": ["lm_head"], "quantization_status": "compressed", "kv_cache_scheme": None}


def folder(place: Path, said: Any, rows: bool) -> tuple[Path, dict[str, np.ndarray]]:
    """A Llama whose matrices are in 8 bits, and the values they stand for."""
    rng = np.random.default_rng(7)
    model = mo.models.create("llama", **SIZES)
    tensors: dict[str, tuple[str, np.ndarray]] = {}
    values = {}
    for name, tensor in model.state_dict().items():
        shape = tuple(tensor.shape)
        if len(shape) != 2 or "proj" not in name:
            values[name] = rng.standard_normal(shape).astype(np.float32)
            tensors[name] = ("F32", values[name])
            continue
        codes = rng.integers(0, 0x7F, shape).astype(np.uint8) | (rng.integers(0, 2, shape) << 7).astype(np.uint8)
        grid = (shape[0], 1) if rows else (-(-shape[0] // 32), shape[1] // 32)
        scale = rng.uniform(1e-3, 2e-3, grid).astype(np.float32)
        wide = scale if rows else np.repeat(np.repeat(scale, 32, 0)[:shape[0]], 32, 1)
        tensors[name] = ("F8_E4M3", codes)
        tensors[name + ("_scale" if rows else "_scale_inv")] = ("F32", scale)
        values[name] = table("F8_E4M3")[codes] * wide
    place.mkdir(exist_ok=True)
    write(place / "model.safetensors", tensors)
    (place / "config.json").write_text(json.dumps({**model.config, "model_type": "llama", "quantization_config": said}))
    return place, values


@pytest.mark.parametrize(("said", "rows"), [(FP8, False), (COMPRESSED, True), ({"quant_method": "fbgemm_fp8"}, True)])
def test_a_folder_in_eight_bits(said: Any, rows: bool, tmp_path: Path) -> None:
    """Kept in 8 bits and multiplied as the values they stand for, to the bit."""
    place, values = folder(tmp_path, said, rows)
    ids = mo.asarray([[3, 1, 4, 1, 5]])
    plain = mo.models.create("llama", **SIZES)
    plain.load_state_dict({name: mo.asarray(value) for name, value in values.items()})
    wanted = plain.eval()(ids).numpy()
    model = mo.models.load(place)
    layer = model.model.layers[0].mlp.down_proj
    assert isinstance(layer, mo.nn.QuantisedLinear) and layer.weight.kind == "f8_e4m3"
    assert (model(ids).numpy() == wanted).all()
    opened = mo.models.load(place, packed=False)
    assert isinstance(opened.model.layers[0].mlp.down_proj, mo.nn.Linear)
    assert (opened(ids).numpy() == wanted).all()
    rounded = mo.models.load(place, activations="int8")(ids).numpy()
    assert np.abs(rounded - wanted).max() < 0.1 * np.abs(wanted).max()


def changed(path: str, value: Any, given: Any = COMPRESSED) -> Any:
    found = json.loads(json.dumps(given))
    *parents, last = path.split(".")
    inner = found
    for part in parents:
        inner = inner[part]
    inner[last] = value
    return found


REFUSED = [
    (changed("quant_method", "quip", FP8), "quant_method is 'quip'"), ("fp8", "quantization_config"),
    (changed("quant_method", None, FP8), "quant_method is None"),
    (changed("bits", 4, FP8), r"quantization_config\.bits"),
    (changed("fmt", "e3m4", FP8), r"quantization_config\.fmt is 'e3m4'"), ({}, "quant_method"),
    (changed("weight_block_size", [128], FP8), "weight_block_size"), (changed("format", "marlin-24"), "format"),
    (changed("config_groups.group_0.weights.num_bits", 4), r"group_0\.weights\.num_bits is 4"),
    (changed("config_groups.group_0.weights.strategy", "group"), "strategy"),
    (changed("config_groups.group_0.weights", None), r"group_0\.weights is None"),
    (changed("config_groups.group_0", 3), "nothing about weights"), (changed("sparsity_config", {"a": 1}), "sparsity"),
    (changed("config_groups.group_0.weights.block_structure", [0, 1]), "block_structure"),
]


@pytest.mark.parametrize(("said", "complaint"), REFUSED, ids=[case[1] for case in REFUSED])
def test_other_quantised_weights_are_refused_by_name(said: Any, complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        mo.models.from_config({"model_type": "llama", **SIZES, "quantization_config": said})


@pytest.mark.parametrize("scales", ["F8_E8M0", "U8"])
@pytest.mark.parametrize("columns", [64, 70])
def test_exponents_scale_32_values_of_a_row(tmp_path: Path, scales: str, columns: int) -> None:
    """MXFP8: as files of E8M0, and as those that hold the exponents as plain bytes; packed where rows are whole."""
    rng = np.random.default_rng(11)
    codes = rng.integers(0, 120, (6, columns)).astype(np.uint8)
    powers = rng.integers(120, 134, (6, -(-columns // 32))).astype(np.uint8)
    path = write(tmp_path / "m.safetensors", {"l.weight": ("F8_E4M3", codes), "l.weight_scale": (scales, powers)})
    wanted = table("F8_E4M3")[codes] * np.repeat(np.exp2(powers - 127.0), 32, axis=1)[:, :columns].astype(np.float32)
    for block in (None, (1, 32)):
        found = with_scales(mo.weights.load(path), block)
        assert [*found] == ["l.weight"]
        np.testing.assert_array_equal(found["l.weight"].numpy(), wanted)
        packed = found.packing(["l.weight"])["l.weight"]
        assert isinstance(packed, mo.Quantised) == (columns == 64)
        np.testing.assert_array_equal((packed.dequantise() if columns == 64 else packed).numpy(), wanted)


def test_exponents_scale_rows_blocks_and_all(tmp_path: Path) -> None:
    codes = np.arange(64, dtype=np.uint8).reshape(8, 8)
    for number, (powers, block) in enumerate([([[130]], None), ([[120 + n] for n in range(8)], None),
                                              ([[126, 127], [128, 129]], (4, 4))]):
        array = np.asarray(powers, np.uint8)
        path = write(tmp_path / f"{number}.safetensors", {"w.weight": ("F8_E5M2", codes),
                                                          "w.weight_scale_inv": ("F8_E8M0", array)})
        scale = np.exp2(array - 127.0).astype(np.float32)
        spread = np.kron(scale, np.ones((4, 4), np.float32)) if block else scale
        found = with_scales(mo.weights.load(path), block)["w.weight"].numpy()
        np.testing.assert_array_equal(found, table("F8_E5M2")[codes] * spread)
    other = write(tmp_path / "u8.safetensors", {"w.weight": ("F8_E5M2", codes), "w.weight_scale": ("U8", array)})
    with pytest.raises(MorphoError, match="exponents"):
        with_scales(mo.weights.load(other), (4, 4))["w.weight"]


def test_configurations_of_mx_formats() -> None:
    group = {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}
    said = {"quant_method": "compressed-tensors", "format": "mxfp8-quantized",
            "config_groups": {"group_0": {"weights": group, "targets": ["Linear"]}}}
    assert block_size("load", "", {"quantization_config": said}) == (1, 32)
    modelopt = {"quant_method": "modelopt", "quant_algo": "MXFP8", "config_groups": said["config_groups"]}
    assert block_size("load", "", {"quantization_config": modelopt}) == (1, 32)
    for wrong in ({**group, "group_size": 16}, {**group, "block_structure": [128, 128]}):
        said["config_groups"] = {"group_0": {"weights": wrong}}
        with pytest.raises(MorphoError, match="group"):
            block_size("load", "", {"quantization_config": said})
