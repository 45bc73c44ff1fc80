"""Models between folders and GGUF files: the gguf library's bytes, bits of the logits, what cannot be said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import morpho as mo
from benchmarks.models.parity.inputs import write_folder
from morpho.cli.main import app
from morpho.weights.gguf.quantise import WRITTEN, quantise

CASES = json.loads((Path(__file__).parent / "families.json").read_text())
WORST = {"q4_k": 0.09, "q5_k": 0.05, "q6_k": 0.025, "q8_0": 0.006, "q4_0": 0.1, "q4_1": 0.09, "q5_0": 0.05,
         "q5_1": 0.05}


@pytest.mark.parametrize("kind", WRITTEN)
def test_blocks_as_the_gguf_library_reads_and_writes_them(kind: str) -> None:
    gguf = pytest.importorskip("gguf", reason="the gguf library is the reference here")
    x = np.random.default_rng(4).standard_normal((6, 512)).astype(np.float32)
    x[1], x[2, :40] = 0, 0
    raw, number = quantise(x, kind), gguf.GGMLQuantizationType(WRITTEN[kind][0])
    again = gguf.dequantize(raw, number)
    assert np.sqrt(((again - x) ** 2).mean()) < WORST[kind] and not again[1].any()
    if not kind.endswith("k"):
        assert (raw == gguf.quantize(x, number)).all()


@pytest.mark.parametrize("name", ["mixtral: two of five", "gpt_neox: half turns", "olmo2: linear", "mistral: window 5",
                                  "phi3: longrope, short"])
def test_a_file_has_the_bits_of_the_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write_folder(tmp_path / "a", CASES[name]["files"], CASES[name]["shapes"])
    file = mo.models.convert(tmp_path / "a", tmp_path / "b.gguf", kind="f32")
    ids = mo.asarray([[3, 9, 27, 11]])
    with mo.settings(device="reference"):
        assert (mo.models.load(file)(ids).numpy() == mo.models.load(tmp_path / "a")(ids).numpy()).all()


def small(place: Path, family: str = "llama", **settings: object) -> None:
    mo.nn.seed(1)
    tokenizer = mo.weights.train_bpe("a rose is a rose is a rose", vocab_size=270)
    model = mo.models.create(family, **{
        "vocab_size": 272, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "max_position_embeddings": 32, "eos_token_id": 0, **settings})
    mo.models.save(place, model)
    mo.weights.save_tokenizer(place, tokenizer)


def test_there_and_back(tmp_path: Path) -> None:
    small(tmp_path / "one")
    called = CliRunner().invoke(app, ["convert", str(tmp_path / "one"), str(tmp_path / "one.gguf"), "--type", "BF16"])
    assert called.exit_code == 0, called.output
    mo.models.convert(tmp_path / "one.gguf", tmp_path / "two" / "one", kind="bf16")
    mo.models.convert(tmp_path / "two" / "one", tmp_path / "two" / "one.gguf")  # the dtype of the folder
    assert (tmp_path / "two" / "one.gguf").read_bytes() == (tmp_path / "one.gguf").read_bytes()
    mo.models.convert(tmp_path / "two" / "one.gguf", tmp_path / "three", kind="bf16")
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "three" / name).read_bytes() == (tmp_path / "two" / "one" / name).read_bytes()
    packed = mo.models.convert(tmp_path / "one", tmp_path / "q.gguf", kind="q8_0")
    model, tokenizer = mo.models.load_with_tokenizer(packed)
    assert isinstance(model.model.layers[0].mlp.up_proj, mo.nn.QuantisedLinear)
    assert tokenizer.decode(tokenizer.encode("a rose")) == "a rose"


def test_what_cannot_be_said_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    small(tmp_path / "biased", "qwen3", attention_bias=True)
    with pytest.raises(mo.errors.ArgumentError, match="cannot say what the model's qkv_bias is"):
        mo.models.convert(tmp_path / "biased", tmp_path / "a.gguf")
    assert not (tmp_path / "a.gguf").exists()
    for target, kind, says in (("biased", "", "is there already"), ("new", "q8_0", "folders hold floats"),
                               ("new.gguf", "q9", "there is no kind 'q9'")):
        with pytest.raises(mo.errors.ArgumentError, match=says):
            mo.models.convert(tmp_path / "biased", tmp_path / target, kind=kind)
    with pytest.raises(mo.errors.ArgumentError, match="prenorm has no form in GGUF files"):
        mo.models.convert(mo.models.SHIPPED, tmp_path / "b.gguf")
