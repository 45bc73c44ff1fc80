"""Models from folders and GGUF files, and what is said when names do not fit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, MorphoError
from morpho.weights import FileFault, MissingFile, NameFault
from morpho.weights.finite import holds_nan

IDS = mo.asarray([[3, 1, 4, 1, 5]])
SMALL = {
    "gpt2": {"vocab_size": 50, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16},
    "llama": {"vocab_size": 50, "hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 1,
              "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 16},
    "bert-base": {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
                  "intermediate_size": 12, "max_position_embeddings": 16},
    "t5-small": {"vocab_size": 50, "d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 1, "num_heads": 2},
    "prenorm-small": {"vocab_size": 50, "width": 8, "layers": 1, "heads": 2, "hidden": 12, "max_seq_len": 16},
    "vit-b16": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
                "image_size": 8, "patch_size": 4, "num_labels": 3},
    "resnet18": {"width": 2, "layers": [1, 1], "num_classes": 3},
    "mlp": {"inputs": 4, "hidden": [3]},
    "cnn": {"size": 8, "widths": [2], "hidden": 3},
}


def _same(a: mo.models.Model, b: mo.models.Model) -> bool:
    one, two = a.state_dict(), b.state_dict()
    return list(one) == list(two) and all((one[name].numpy() == two[name].numpy()).all() for name in one)


def _write(folder: Path, config: dict[str, Any], weights: dict[str, Any], **others: Any) -> Path:
    mo.weights.save(folder, weights, **others)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", sorted(SMALL))
def test_what_was_saved_is_loaded(name: str, tmp_path: Path) -> None:
    model = mo.models.create(name, **SMALL[name])
    mo.models.save(tmp_path, model, shard_bytes=2000)
    found = mo.models.load(tmp_path)
    assert type(found) is type(model) and found.config == model.config and _same(found, model)
    assert not found._training


def test_names_as_published_files_have_them(tmp_path: Path) -> None:
    """Prefixes, tied matrices, masks and names of long ago."""
    model = mo.models.create("gpt2", **SMALL["gpt2"])
    theirs = {f"transformer.{name}": value for name, value in model.state_dict().items()}
    theirs |= {"lm_head.weight": model.wte.weight.value, "transformer.h.0.attn.bias": mo.ones((1, 1, 4, 4)),
               "transformer.h.0.attn.masked_bias": mo.ones(())}
    config = {**model.config, "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "n_ctx": 16}
    assert _same(mo.models.load(_write(tmp_path / "a", config, theirs)), model)
    bert = mo.models.create("bert-base", **SMALL["bert-base"])
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
           for name, value in bert.state_dict().items()}
    old |= {"cls.predictions.decoder.weight": bert.bert.embeddings.word_embeddings.weight.value,
            "cls.seq_relationship.bias": mo.zeros(2),
            "bert.embeddings.position_ids": mo.arange(16)}
    assert _same(mo.models.load(_write(tmp_path / "b", bert.config, old)), bert)
    bare = {name.removeprefix("bert."): value for name, value in bert.state_dict().items()
            if "pooler" not in name and "cls" not in name}
    parts = ("pooler", "masked_lm")
    theirs = {name: value for name, value in bert.config.items() if name not in parts}  # published files do not say it
    found = mo.models.load(_write(tmp_path / "c", theirs, bare))
    assert found.cls is None and found.bert.pooler is None and (found(IDS).numpy() == bert.eval()(IDS).numpy()).all()


def test_other_dtypes(tmp_path: Path) -> None:
    model = mo.models.create("llama", **SMALL["llama"])
    mo.models.save(tmp_path, model)
    half = mo.models.load(tmp_path, dtype=mo.bfloat16)
    assert {value.dtype for value in half.state_dict().values()} == {mo.bfloat16}
    generator = mo.models.Generator(half)
    assert np.abs(generator.start([3, 1, 4]) - model(IDS[:, :3]).numpy()[0, -1]).max() < 0.02
    assert generator.caches[0].keys.value.dtype is mo.bfloat16


def test_names_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    model = mo.models.create("gpt2", **SMALL["gpt2"])
    weights = model.state_dict()
    del weights["h.0.ln_1.bias"]
    weights |= {"ln_f.weight": mo.ones(9), "colour": mo.ones(1)}
    with pytest.raises(NameFault) as error:
        mo.models.load(_write(tmp_path, model.config, weights))
    for words in ("h.0.ln_1.bias", "colour", "ln_f.weight is (9,), not (8,)"):
        assert words in str(error.value)


def test_folders_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="there is no"):
        mo.models.load(tmp_path / "nowhere")
    with pytest.raises(MissingFile, match=r"has no config\.json"):
        mo.models.load(tmp_path)
    for text in ("{", "[1]", '"x"', "[" * 100_000):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(FileFault, match="is not a configuration"):
            mo.models.load(tmp_path)
    model = mo.models.create("mlp", **SMALL["mlp"])
    _write(tmp_path, {**model.config, "model_type": "gru"}, model.state_dict())
    with pytest.raises(ArgumentError, match="no family 'gru'"):
        mo.models.load(tmp_path)
    with pytest.raises(ArgumentError, match="neither a folder nor a GGUF file"):
        mo.models.load(tmp_path / "model.safetensors")
    with pytest.raises(MorphoError):
        mo.models.load_with_tokenizer(_write(tmp_path, model.config, model.state_dict()))


@pytest.mark.parametrize("settings", [
    {"n_embd": 1 << 33, "n_head": 2}, {"vocab_size": 1 << 39}, {"n_layer": 1 << 30}, {"n_positions": 1 << 35},
    {"n_embd": -8}, {"n_embd": "8"}, {"n_embd": 8.5}, {"vocab_size": 1 << 50}, {"n_head": 0}, {"n_layer": True},
    {"layer_norm_epsilon": "1"}, {"activation_function": 3}, {"tie_word_embeddings": "no"},
])
def test_lies_about_sizes_are_found_before_memory_is_taken(settings: dict[str, Any], tmp_path: Path) -> None:
    model = mo.models.create("gpt2", **SMALL["gpt2"])
    _write(tmp_path, {**model.config, **settings}, model.state_dict())
    peak = mo.pool.stats()["peak_bytes"]
    with pytest.raises(MorphoError) as error:
        mo.models.load(tmp_path)
    assert mo.pool.stats()["peak_bytes"] - peak < 1 << 20 and "memory" not in str(error.value)


def test_a_model_without_weights_is_not_computed() -> None:
    with mo.nn.init.undrawn():
        layer = mo.nn.Linear(1 << 20, 1 << 20)  # 4 TB, if it were there
    with pytest.raises(ArgumentError, match="has no value yet"):
        mo.compile(layer)(mo.zeros((1, 1 << 20)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is right, to be broken in copies."""
    folder = tmp_path_factory.mktemp("right")
    mo.models.save(folder, mo.models.create("gpt2", **SMALL["gpt2"]))
    return folder


CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "mamba"}, r"\[models\] \S+config\.json: there is no family 'mamba'.*one of gpt2, llama"),
    ({"model_type": ["gpt2"]}, r"config\.json: there is no family \['gpt2'\]"),
    ({"model_type": None}, r"config\.json: there is no family None"),
    ({"n_embd": "8"}, r"config\.json: n_embd is '8'.*a positive whole number, such as 768"),
    ({"n_embd": None}, r"config\.json: n_embd is None"), ({"n_layer": 0}, r"config\.json: n_layer is 0"),
    ({"n_head": 3}, r"config\.json: n_embd=8 is not a multiple of n_head=3"),
    ({"tie_word_embeddings": "no"}, r"config\.json: tie_word_embeddings is 'no'.*true or false"),
    ({"layer_norm_epsilon": "1"}, r"config\.json: layer_norm_epsilon is '1'.*a number from 0 on, such as"),
]


@pytest.mark.parametrize(("change", "text"), CONFIGS)
def test_the_configuration_is_looked_at_first(saved: Path, tmp_path: Path, change: dict[str, Any], text: str) -> None:
    """Also where there are no weights: they are the next thing that is missed."""
    config = json.loads((saved / "config.json").read_text())
    shutil.copy(saved / "model.safetensors", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ArgumentError, match=text):
        mo.models.load(tmp_path)
    if "n_head" not in change:
        (tmp_path / "model.safetensors").unlink()
        with pytest.raises(ArgumentError, match=text):
            mo.models.load(tmp_path)


def test_weights_that_are_missing_pickled_or_of_another_model(saved: Path, tmp_path: Path) -> None:
    config = json.loads((saved / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(MissingFile, match=r"neither model\.safetensors nor"):
        mo.models.load(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(MissingFile, match=r"pytorch_model\.bin is a pickle, which is never read"):
        mo.models.load(tmp_path)
    shutil.copy(saved / "model.safetensors", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 60}))
    with pytest.raises(NameFault, match=r"\(50, 8\), not \(60, 8\).*Hint: config\.json says vocab_size=60"):
        mo.models.load(tmp_path)
    del config["n_embd"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(NameFault, match=r"config\.json says vocab_size=50.*leaves out n_embd \(768 then\)"):
        mo.models.load(tmp_path)


def test_tokenizers_that_are_missing_or_larger_than_the_model(saved: Path, tmp_path: Path,
                                                              caplog: pytest.LogCaptureFixture) -> None:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(saved / name, tmp_path)
    with pytest.raises(MissingFile, match=r"has no tokenizer\.json.*beside config\.json"):
        mo.models.load_with_tokenizer(tmp_path)
    mo.weights.save_tokenizer(tmp_path, mo.weights.train_bpe("so on and so on", vocab_size=260))
    mo.models.load_with_tokenizer(tmp_path)
    assert "tokens and the model 50" in caplog.text


def test_names_are_not_folders(tmp_path: Path) -> None:
    for name, hint in (("gpt2", r"mo\.models\.create\('gpt2'\)"), ("smollm2", "morpho models pull smollm2"),
                       ("nothing", "give a folder with config")):
        with pytest.raises(MissingFile, match=hint):
            mo.models.load(name)


# -- GGUF --------------------------------------------------------------------------------------------------------------
GGUF_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
              "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
              "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
              "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "model.layers": "blk"}


def _gguf(path: Path, model: mo.models.Model, packed: bool) -> Path:
    """A file as llama.cpp's converter writes it: rows of queries and keys in pairs."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    config = model.config
    writer = gguf.GGUFWriter(str(path), "llama")
    for key, name in {"block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
                      "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
                      "attention.head_count": "num_attention_heads",
                      "attention.head_count_kv": "num_key_value_heads"}.items():
        writer.add_uint32(f"llama.{key}", config[name])
    writer.add_float32("llama.rope.freq_base", config["rope_theta"])
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", config["rms_norm_eps"])
    for name, value in model.state_dict().items():
        array = value.numpy()
        for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if part in name:
                halves = array.reshape(config[heads], 2, -1, array.shape[1])
                array = halves.swapaxes(1, 2).reshape(array.shape)
        kind = "F32"
        if packed and array.ndim == 2:
            kind = "Q8_0" if "v_proj" in name or "embed" in name else "Q4_1"
        for ours, theirs in GGUF_NAMES.items():
            name = name.replace(ours, theirs)
        kind = getattr(gguf.GGMLQuantizationType, kind)
        writer.add_tensor(name, gguf.quantize(np.ascontiguousarray(array), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _llama(**others: Any) -> mo.models.Model:
    mo.nn.seed(8)
    model = mo.models.create("llama", **{**SMALL["llama"], "hidden_size": 64, "num_attention_heads": 4,
                                         "num_key_value_heads": 2, "intermediate_size": 32, **others})
    for parameter in model.parameters():
        parameter.assign(parameter * 4)
    return model  # type: ignore[no-any-return]


def test_gguf_of_plain_numbers(tmp_path: Path) -> None:
    model = _llama()
    found = mo.models.load(_gguf(tmp_path / "plain.gguf", model, packed=False))
    assert _same(found, model) and found.config["rms_norm_eps"] == pytest.approx(1e-6)


@pytest.mark.parametrize("tied", [True, False])
def test_gguf_packed(tied: bool, tmp_path: Path) -> None:
    """Packed weights stay packed, and the logits have the bits of the model with the same weights unpacked."""
    path = _gguf(tmp_path / "packed.gguf", _llama(tie_word_embeddings=tied), packed=True)
    packed, plain = mo.models.load(path), mo.models.load(path, packed=False)
    layer = packed.model.layers[0]
    assert isinstance(layer.self_attn.q_proj, mo.nn.QuantisedLinear)
    assert isinstance(packed.model.embed_tokens, mo.nn.QuantisedEmbedding)
    assert [*packed.state_dict()] == [name for name in plain.state_dict() if "norm" in name]
    assert (packed(IDS).numpy() == plain(IDS).numpy()).all()
    if tied:
        assert (mo.models.Generator(packed).start([3, 1, 4, 1]) == plain(IDS).numpy()[0, 3]).all()


def test_weights_that_are_no_numbers_are_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = mo.models.create("gpt2", **SMALL["gpt2"])
    broken = {name: value.numpy(copy=True) for name, value in model.state_dict().items()}
    broken["wte.weight"][3, 1] = broken["ln_f.bias"][0] = np.nan
    broken["wpe.weight"][0, 0] = np.inf
    for dtype in (mo.float32, mo.bfloat16):
        caplog.clear()
        mo.models.load(_write(tmp_path / "a", model.config, broken), dtype=dtype)
        assert len(caplog.records) == 1 and "2 weights hold NaN, wte.weight for one" in caplog.text
    caplog.clear()
    mo.models.load(_write(tmp_path / "b", model.config, dict(model.state_dict())))
    assert not caplog.records
    packed = mo.quantise(np.ones((2, 32), np.float32), "q4_1")
    assert not holds_nan(packed)
    data = packed.data.numpy(copy=True)
    data[1, 2:4] = np.array([np.nan], np.float16).view(np.uint8)
    assert holds_nan(mo.Quantised.of_tensor(mo.asarray(data), (2, 32), "q4_1"))


def test_an_embedding_that_a_file_holds_twice(tmp_path: Path) -> None:
    model = mo.models.create("t5-small", **SMALL["t5-small"])
    weights = {**model.state_dict(), "encoder.embed_tokens.weight": model.shared.weight.value}
    assert _same(mo.models.load(_write(tmp_path, model.config, weights)), model)
    weights["encoder.embed_tokens.weight"] = mo.zeros((50, 8))
    with pytest.raises(FileFault, match=r"encoder\.embed_tokens\.weight differs from shared\.weight"):
        mo.models.load(_write(tmp_path, model.config, weights))


def test_packed_layers_are_their_unpacked_ones() -> None:
    rng = np.random.default_rng(9)
    ids, x = mo.asarray([[5, 0, 2]]), mo.asarray(rng.standard_normal((2, 64)).astype(np.float32))
    for kind in ("q8_0", "q4_1"):
        weight = mo.quantise(rng.standard_normal((6, 64)).astype(np.float32), kind)
        table = weight.dequantise().numpy()
        assert (mo.nn.QuantisedEmbedding(weight)(ids).numpy() == table[[[5, 0, 2]]]).all()
        bias = rng.standard_normal(6).astype(np.float32)
        wanted = mo.matmul(x, mo.asarray(table.T)) + mo.asarray(bias)
        assert (mo.nn.QuantisedLinear(weight, bias)(x).numpy() == wanted.numpy()).all()
    for made in (mo.nn.QuantisedLinear, mo.nn.QuantisedEmbedding):
        with pytest.raises(ArgumentError, match="is not packed"):
            made(mo.zeros((2, 32)))
