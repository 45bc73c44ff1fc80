"""Quantised types of GGUF files: the values of the gguf library, and products with packed weights that have the bits of
products with those values. Floats of 8 bits in safetensors."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from morpho.base.machine import available_isas, machine
from morpho.ops.neural import float8
from morpho.weights.gguf.repack import REPACKED, repacked

# Where a type's float16 scales stand; those without are numbers whatever their bytes are.
HALVES = {"Q4_0": [0], "IQ4_NL": [0], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2],
          "Q5_K": [0, 2], "Q6_K": [208], "IQ4_XS": [0], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0],
          "IQ3_S": [0], "IQ1_S": [0], "TQ1_0": [52], "TQ2_0": [64]}
AS_THEY_STAND = {"Q4_0": ("q4_0", 32, 18), "IQ4_NL": ("iq4_nl", 32, 18)}
TYPES = {**AS_THEY_STAND, **{kind: (form.kind, form.values, form.size) for kind, form in REPACKED.items()}}
# A type for each layout whose products have code of their own: codes of 4 and 8 bits, one or two groups, codebooks.
PRODUCTS = ["Q4_0", "IQ4_NL", "Q5_1", "Q2_K", "Q4_K", "Q5_K", "Q6_K", "MXFP4", "IQ2_S"]


def _rows(kind: str, rng: np.random.Generator, count: int, values: int) -> np.ndarray:
    """Random bytes with scales that are numbers."""
    _, block, size = TYPES[kind]
    raw = rng.integers(0, 256, (count, values // block, size), np.uint8)
    for at in HALVES.get(kind, []):
        scales = (rng.standard_normal((count, values // block, 1)) * 0.05).astype("<f2")
        raw[..., at:at + 2] = scales.view(np.uint8)
    if kind == "IQ1_M":  # four bits of the scale in each of four words: a small one
        raw[..., 55] = raw[..., 55] & 15 | 0x20
    if kind == "MXFP4":
        raw[..., 0] = rng.integers(118, 124, raw[..., 0].shape)
    return raw.reshape(count, -1)


def _packed(kind: str, rows: np.ndarray, values: int) -> mo.Quantised:
    raw = rows if kind in AS_THEY_STAND else repacked(rows, kind)
    return mo.Quantised.from_bytes(raw.tobytes(), (len(rows), values), TYPES[kind][0])


def test_values_of_any_bytes(rng: np.random.Generator) -> None:
    """The gguf library's, to the bit, infinities and NaN among them."""
    gguf = pytest.importorskip("gguf", reason="the gguf library has the values")
    for kind, (_, block, size) in TYPES.items():
        rows = rng.integers(0, 256, (13, 512 // block * size), np.uint8)
        with np.errstate(all="ignore"):
            wanted = gguf.dequantize(rows, getattr(gguf.GGMLQuantizationType, kind))
        assert np.array_equal(_packed(kind, rows, 512).dequantise().numpy(), wanted, equal_nan=True), kind


@pytest.mark.parametrize("kind", PRODUCTS)
def test_products(kind: str, rng: np.random.Generator) -> None:
    gguf = pytest.importorskip("gguf", reason="the gguf library has the values")
    rows = _rows(kind, rng, 37, 512)
    wanted = gguf.dequantize(rows, getattr(gguf.GGMLQuantizationType, kind))
    weight, plain = _packed(kind, rows, 512), mo.asarray(wanted)
    for count in (1, 40):  # few rows and many are other kernels
        x = mo.asarray(rng.standard_normal((count, 512), np.float32))
        found = mo.compile(lambda x: mo.matmul(x, weight))(x).numpy()
        assert (found == mo.compile(lambda x: mo.matmul(x, mo.matrix_transpose(plain)))(x).numpy()).all()
        apart = np.abs(found - x.numpy().astype(np.float64) @ wanted.T).max()
        assert apart < 1e-5 * np.abs(found).max()


def test_codebooks_on_every_instruction_set(rng: np.random.Generator) -> None:
    """Numbers picked by an instruction and by shifts, by one lane and by many."""
    rows = _rows("IQ4_NL", rng, 19, 64)
    weight, x = _packed("IQ4_NL", rows, 64), rng.standard_normal((5, 64)).astype(np.float32)
    plain = weight.dequantise().numpy()
    for isa in (*available_isas(machine()), "vector128"):
        with mo.settings(isa=isa):
            found = mo.compile(lambda x: mo.matmul(x, weight))(mo.asarray(x)).numpy()
            assert (found == mo.compile(lambda x: x @ mo.asarray(plain).T)(mo.asarray(x)).numpy()).all(), isa


def test_embeddings_of_packed_rows(rng: np.random.Generator) -> None:
    for kind in ("Q4_0", "NVFP4"):
        weight = _packed(kind, _rows(kind, rng, 7, 64), 64)
        found = mo.nn.QuantisedEmbedding(weight)(mo.asarray([[3, 0, 6]])).numpy()[0]
        assert (found == weight.dequantise().numpy()[[3, 0, 6]]).all()


def test_quantised_as_the_library_does(rng: np.random.Generator) -> None:
    gguf = pytest.importorskip("gguf", reason="the gguf library has the blocks")
    values = rng.standard_normal((9, 96)).astype(np.float32)
    values[0, :32], values[1, 40:] = 0, -values[1, 40:].clip(0)
    wanted = gguf.quantize(values, gguf.GGMLQuantizationType.Q4_0)
    assert (mo.quantise(values, "q4_0").data.numpy() == wanted).all()


def test_a_file_with_every_kind(tmp_path: Path, rng: np.random.Generator, caplog: pytest.LogCaptureFixture) -> None:
    """All of them stay packed, and nothing is said."""
    gguf = pytest.importorskip("gguf", reason="the gguf library writes the file")
    writer = gguf.GGUFWriter(str(tmp_path / "all.gguf"), "llama")
    given = {kind: _rows(kind, rng, 4, 256) for kind in TYPES}
    for kind, rows in given.items():
        writer.add_tensor(kind, rows, raw_dtype=getattr(gguf.GGMLQuantizationType, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with caplog.at_level("WARNING", "morpho"):
        file = mo.weights.load_gguf(tmp_path / "all.gguf")
    assert not caplog.text and not file.tensors.converted
    for kind, rows in given.items():
        weight = file.tensors[kind]
        assert isinstance(weight, mo.Quantised) and weight.kind == TYPES[kind][0]
        wanted = gguf.dequantize(rows, getattr(gguf.GGMLQuantizationType, kind))
        assert np.array_equal(weight.dequantise().numpy(), wanted, equal_nan=True)


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
