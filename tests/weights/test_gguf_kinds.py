"""Quantised types of GGUF files: the values of the gguf library, and products with packed weights that have the bits of
products with those values. Floats of 8 bits in safetensors."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from morpho.ops.neural import float8
from morpho.weights.errors import FileFault
from morpho.weights.gguf.repack import REPACKED, repacked

HALVES = {"Q4_0": [0], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}


def _rows(kind: str, rng: np.random.Generator, count: int, values: int) -> np.ndarray:
    """Random bytes with scales that are numbers."""
    size, block, _, _ = REPACKED[kind]
    raw = rng.integers(0, 256, (count, values // block, size), np.uint8)
    for at in HALVES[kind]:
        scales = (rng.standard_normal((count, values // block, 1)) * 0.05).astype("<f2")
        raw[..., at:at + 2] = scales.view(np.uint8)
    return raw.reshape(count, -1)


@pytest.mark.parametrize("kind", sorted(REPACKED))
def test_values_and_products(kind: str, rng: np.random.Generator) -> None:
    gguf = pytest.importorskip("gguf", reason="the gguf library has the values")
    rows = _rows(kind, rng, 37, 512)
    wanted = gguf.dequantize(rows, getattr(gguf.GGMLQuantizationType, kind))
    weight = mo.Quantised.from_bytes(repacked(rows, kind).tobytes(), (37, 512), REPACKED[kind][2])
    assert (weight.dequantise().numpy() == wanted).all()
    plain = mo.asarray(wanted)
    for count in (1, 40):  # few rows and many are other kernels
        x = mo.asarray(rng.standard_normal((count, 512), np.float32))
        found = mo.compile(lambda x: mo.matmul(x, weight))(x).numpy()
        assert (found == mo.compile(lambda x: mo.matmul(x, mo.matrix_transpose(plain)))(x).numpy()).all()
        apart = np.abs(found - x.numpy().astype(np.float64) @ wanted.T).max()
        assert apart < 1e-5 * np.abs(found).max()


def test_a_file_with_every_kind(tmp_path: Path, rng: np.random.Generator, caplog: pytest.LogCaptureFixture) -> None:
    """All of them stay packed, IQ types become what the gguf library makes of them, which is said."""
    gguf = pytest.importorskip("gguf", reason="the gguf library writes the file")
    writer = gguf.GGUFWriter(str(tmp_path / "all.gguf"), "llama")
    given = {kind: _rows(kind, rng, 4, 256) for kind in REPACKED}
    sizes = {kind: gguf.GGML_QUANT_SIZES[getattr(gguf.GGMLQuantizationType, kind)]
             for kind in ("IQ4_NL", "IQ4_XS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M")}
    given |= {kind: rng.integers(0, 256, (4, 256 // block * size), np.uint8) & 0x3B
              for kind, (block, size) in sizes.items()}
    for kind, rows in given.items():
        writer.add_tensor(kind, rows, raw_dtype=getattr(gguf.GGMLQuantizationType, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with caplog.at_level("WARNING", "morpho"):
        file = mo.weights.load_gguf(tmp_path / "all.gguf")
    assert f"{len(sizes)} tensors" in caplog.text and "products do not read IQ" in caplog.text
    for kind, rows in given.items():
        weight = file.tensors[kind]
        assert isinstance(weight, mo.Quantised) == (kind in REPACKED)
        values = weight.dequantise() if isinstance(weight, mo.Quantised) else weight
        wanted = gguf.dequantize(rows, getattr(gguf.GGMLQuantizationType, kind))
        assert np.array_equal(values.numpy(), wanted, equal_nan=True)


def test_scales_that_do_not_fit() -> None:
    raw = np.zeros((1, 18), np.uint8)
    raw[:, :2] = np.array([60000], "<f2").view(np.uint8)
    with pytest.raises(FileFault, match="too large for float16"):
        repacked(raw, "Q4_0")


# -- floats of 8 bits --------------------------------------------------------------------------------------------------
def test_floats_of_8_bits(tmp_path: Path) -> None:
    codes = np.arange(256, dtype=np.uint8)
    header = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [16, 16], "data_offsets": [0, 256]},
                         "b": {"dtype": "F8_E5M2", "shape": [256], "data_offsets": [256, 512]}}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + codes.tobytes() * 2)
    found = mo.weights.load(path)
    assert found["a"].shape == (16, 16) and found.dtypes["a"] is mo.float32
    assert np.array_equal(found["a"].numpy().reshape(-1), float8.table("F8_E4M3"), equal_nan=True)
    assert np.array_equal(found["b"].numpy(), float8.table("F8_E5M2"), equal_nan=True)
    # By hand: 1 + 3/8 at exponent 2, the largest, the least, and what is no number.
    one, two = float8.table("F8_E4M3"), float8.table("F8_E5M2")
    assert (one[[0x4B, 0x7E, 0x01, 0xFE]] == [5.5, 448.0, 2.0**-9, -448.0]).all() and np.isnan(one[0x7F])
    assert (two[[0x45, 0x7B, 0x01, 0x7C, 0xFC]] == [5.0, 57344.0, 2.0**-16, np.inf, -np.inf]).all()
    assert np.isnan(two[0x7D])


def test_floats_of_8_bits_as_torch_has_them() -> None:
    torch = pytest.importorskip("torch", reason="torch has both kinds")
    for kind, theirs in (("F8_E4M3", torch.float8_e4m3fn), ("F8_E5M2", torch.float8_e5m2)):
        wanted = torch.arange(256, dtype=torch.uint8).view(theirs).to(torch.float32).numpy()
        assert np.array_equal(float8.table(kind), wanted, equal_nan=True)
