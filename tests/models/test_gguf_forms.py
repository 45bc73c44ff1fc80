"""Decoders from GGUF files of every architecture: names by the gguf library's own table, transforms as llama.cpp's
converter has them, the same logits as the model the weights come from; tokenizers against the tokenizers library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import morpho as mo
from docs.tools import families as families_page
from morpho.base.errors import MorphoError
from morpho.models.files.gguf import forms
from morpho.models.registry import record
from morpho.weights.mapping import rename

SIZES = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "eos_token_id": 1}
OWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # architecture -> settings, and what a header says of them
    "llama": ({}, {}),
    "mixtral": ({"num_local_experts": 3, "num_experts_per_tok": 2}, {"expert_count": 3, "expert_used_count": 2,
                "rope.freq_base": 1e6}),
    "qwen2": ({"rope_theta": 500.0, "tie_word_embeddings": True}, {"rope.freq_base": 500.0}),
    "qwen3": ({"head_dim": 8}, {"attention.key_length": 8, "attention.value_length": 8}),
    "gemma2": ({"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4},
               {"attention.key_length": 8, "attention.value_length": 8, "attention.sliding_window": 4,
                "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}),
    "gemma3": ({"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4, "sliding_window_pattern": 2,
                "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
               {"attention.key_length": 8, "attention.value_length": 8, "attention.sliding_window": 4,
                "attention.sliding_window_pattern": 2, "rope.freq_base": 1e6, "rope.scaling.type": "linear",
                "rope.scaling.factor": 4.0}),
    "phi3": ({"sliding_window": 5}, {"attention.sliding_window": 5, "rope.dimension_count": 4}),
    "granite": ({"embedding_multiplier": 12.0, "residual_multiplier": 0.25, "attention_multiplier": 0.5,
                 "logits_scaling": 8.0}, {"embedding_scale": 12.0, "residual_scale": 0.25, "attention.scale": 0.5,
                                          "logit_scale": 8.0}),
    "smollm3": ({"rope_theta": 2e6}, {"rope.freq_base": 2e6}),
    "olmo": ({"clip_qkv": 0.5}, {"attention.clamp_kqv": 0.5, "attention.layer_norm_epsilon": 1e-5}),
    "olmo2": ({}, {}),
    "gptneox": ({"num_key_value_heads": 4, "head_dim": 4, "rotary_pct": 0.5, "use_parallel_residual": False},
                {"rope.dimension_count": 2, "use_parallel_residual": False, "attention.layer_norm_epsilon": 1e-5}),
}


def test_the_page_has_what_the_records_say() -> None:
    assert families_page.page(families_page.PAGE.read_text()) == families_page.PAGE.read_text()


def test_every_form_is_here() -> None:
    assert OWN.keys() == forms().keys()


@pytest.fixture(params=sorted(OWN))
def files(request: pytest.FixtureRequest, tmp_path: Path, rng: np.random.Generator) -> tuple[Any, Path]:
    """A model with random weights, and a file with them as the converter writes one."""
    form = request.param
    settings, said = OWN[form]
    model = mo.models.create(forms()[form][0].name, **{**SIZES, **settings})
    for parameter in model.parameters():
        parameter.assign(mo.asarray(rng.normal(0, 0.4, parameter.shape).astype("f")))
    written = tmp_path / "model.gguf"
    _write(written, form, model, said)
    return model, written


def test_an_epsilon_is_not_made_up(files: tuple[Any, Path]) -> None:
    """llama.cpp needs it in every architecture."""
    path = files[1]
    raw = path.read_bytes()
    assert raw.count(b".attention.layer_norm_") == 1
    path.write_bytes(raw.replace(b".attention.layer_norm_", b".attention.layer_nOrm_"))
    name = mo.weights.load_gguf(path).metadata["general.architecture"]
    ignore = [key for key in mo.weights.load_gguf(path).metadata if "nOrm" in key]
    with pytest.raises(MorphoError, match=rf"{name}\.attention\.layer_norm_\w*epsilon is not there"):
        mo.models.load(path, ignore=ignore)


@pytest.mark.parametrize(("form", "key"), [("gptneox", "use_parallel_residual"), ("gemma3", "rope.freq_base"),
                                           ("mixtral", "expert_used_count")])
def test_what_a_form_needs(form: str, key: str, tmp_path: Path) -> None:
    """Keys without which llama.cpp does not load a file, or loads one that the converter never writes."""
    settings, said = OWN[form]
    model = mo.models.create(forms()[form][0].name, **{**SIZES, **settings})
    _write(tmp_path / "model.gguf", form, model, {name: value for name, value in said.items() if name != key})
    with pytest.raises(MorphoError, match=rf"\.{key} is not there"):
        mo.models.load(tmp_path / "model.gguf")


def test_the_first_files_of_gemma2(tmp_path: Path) -> None:
    """llama.cpp's constants stand for caps and windows that a file does not say; 0 is none."""
    settings, said = OWN["gemma2"]
    model = mo.models.create("gemma2", **{**SIZES, **settings})
    names = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "attention.sliding_window": 4096}
    for value in (None, 0):
        header = {name: number for name, number in said.items() if name not in names}
        _write(tmp_path / "model.gguf", "gemma2", model, header if value is None else header | dict.fromkeys(names, 0))
        config = mo.models.load(tmp_path / "model.gguf").config
        found = [config[name.removeprefix("attention.")] for name in names]
        assert found == ([*names.values()] if value is None else [None] * 3)


def _write(path: Path, form: str, model: Any, said: dict[str, Any]) -> None:
    name = "llama" if form == "mixtral" else form
    kind = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)
    table, writer = gguf.get_tensor_name_map(kind, 3), gguf.GGUFWriter(str(path), name)
    config = model.config
    header = {"block_count": 3, "context_length": 64, "embedding_length": 16, "feed_forward_length": 24,
              "attention.head_count": 4, "attention.head_count_kv": config.get("num_key_value_heads") or 4, **said}
    if "attention.layer_norm_epsilon" not in said:
        header["attention.layer_norm_rms_epsilon"] = float(config["rms_norm_eps"])
    for key, value in header.items():
        {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32,
         float: writer.add_float32}[type(value)](f"{name}.{key}", value)
    writer.add_uint32("tokenizer.ggml.eos_token_id", 1)
    rules = record(model.model_type).names.published(config)
    state = {key: tensor.numpy() for key, tensor in rename(model.state_dict(), rules).items()}
    for key, array in _converted(form, state, config).items():
        theirs = table.get_name(key, try_suffixes=(".weight", ".bias"))
        assert theirs is not None, key
        writer.add_tensor(theirs, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _converted(form: str, state: dict[str, np.ndarray], config: dict[str, Any]) -> dict[str, np.ndarray]:
    """What `convert_hf_to_gguf.py` does to weights, by its description."""
    found = {}
    for key, array in state.items():
        if form in ("llama", "mixtral", "granite", "smollm3", "olmo") and ("q_proj" in key or "k_proj" in key):
            heads = 4 if "q_proj" in key else config["num_key_value_heads"]
            array = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:]).swapaxes(1, 2).reshape(
                array.shape)
        if form.startswith("gemma") and key.endswith("norm.weight"):
            array = array + np.float32(1)
        if "query_key_value" in key:
            array = array.reshape(4, 3, 4, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape)
        found[key] = array
    if form == "mixtral":
        for layer in range(3):
            for which in ("w1", "w2", "w3"):
                names = [f"model.layers.{layer}.block_sparse_moe.experts.{number}.{which}.weight"
                         for number in range(3)]
                found[f"layers.{layer}.feed_forward.experts.{which}.weight"] = np.stack(
                    [found.pop(name) for name in names])
    return found


def test_the_models_logits(files: tuple[Any, Path]) -> None:
    model, path = files
    ids = mo.asarray(np.random.default_rng(0).integers(0, 40, (2, 11)))
    loaded = mo.models.load(path)
    assert loaded.model_type == model.model_type
    np.testing.assert_allclose(loaded(ids).numpy(), model(ids).numpy(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("form", "key", "value"), [
    ("qwen2", "attention.sliding_window", 4), ("gemma2", "rope.scaling.type", "yarn"),
    ("gemma3", "attention.scale", 2.0), ("phi3", "rope.scaling.factor", 2.0), ("olmo2", "logit_scale", 0.5),
    ("gptneox", "expert_count", 2), ("gemma2", "rope.dimension_count", 4),
    ("smollm3", "attention.value_length", 2),
    ("olmo", "new_key", 1)])
def test_what_is_not_computed_is_refused_by_name(form: str, key: str, value: Any, tmp_path: Path) -> None:
    settings, said = OWN[form]
    _write(tmp_path / "odd.gguf", form, mo.models.create(forms()[form][0].name, **{**SIZES, **settings}),
           {**said, key: value})
    with pytest.raises(MorphoError, match=rf"odd\.gguf: {form}\.{key}"):
        mo.models.load(tmp_path / "odd.gguf")


# -- tokenizers --------------------------------------------------------------------------------------------------------
TEXTS = ["", " ", "We've 12345 apples!\n\nNo  way\r\n ", "naïve 日本語 🙂", "x=1\t\ty", "DON'T I'LL", "½² Ⅻ_a__b",
         "  \n  \n a"]


@pytest.mark.parametrize("pattern", ["qwen2", "llama-bpe"])
def test_newer_patterns_are_the_librarys(pattern: str, seed: int, tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    made = mo.weights.train_bpe("".join(TEXTS) * 3 + " apples apples way 123 123", vocab_size=300, specials=["<s>"])
    ours = mo.weights.BytePairs(made.vocabulary, made.merges, made.specials, pattern=pattern)
    mo.weights.save_tokenizer(tmp_path, ours)
    theirs = library.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    draw = np.random.default_rng(seed)
    characters = "aB1²'s tT\n\r\t  ,._-日ü🙂½Ⅻ\u3000\x85\u0301"
    drawn = ["".join(draw.choice([*characters], draw.integers(1, 40))) for _ in range(300)]
    for text in TEXTS + drawn:
        assert ours.encode(text) == theirs.encode(text).ids, text
        assert ours.decode(ours.encode(text)) == text


def test_sentence_pieces_are_the_librarys(seed: int) -> None:
    library = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    words = ["▁", "a", "b", "c", "ab", "bc", "abc", "▁a", "▁ab", "▁abc", "ca", "cab", "▁b", "bb", "▁▁", "é"]
    letters = {byte: len(words) + byte for byte in range(256)}
    draw = np.random.default_rng(seed)
    order = {word: place for place, word in enumerate(draw.permutation([word for word in words if len(word) > 1]))}
    scores = [-float(order[word]) if word in order else -1e3 for word in words] + [0.0] * 256
    ours = mo.weights.SentencePieces({word: place for place, word in enumerate(words)}, scores, letters)
    vocabulary = {**{word: place for place, word in enumerate(words)}, **{f"<0x{byte:02X}>": number
                                                                          for byte, number in letters.items()}}
    merges = [(word[:cut], word[cut:]) for word in sorted(order, key=order.__getitem__) for cut in range(1, len(word))
              if word[:cut] in words and word[cut:] in words]
    theirs = library.Tokenizer(library.models.BPE(vocabulary, merges, byte_fallback=True, unk_token=None))
    theirs.normalizer = library.normalizers.Replace(" ", "▁")
    for _ in range(300):
        text = "".join(draw.choice([*"abc  é日"], draw.integers(0, 20)))
        assert ours.encode(text) == theirs.encode(text).ids, text
        assert ours.decode(ours.encode(text)) == text
