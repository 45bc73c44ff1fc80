"""What stands behind the API: adapters, prefixes, deadlines, encoders, with the real engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import serving

import morpho as mo
from morpho.models.training import Run, Settings
from morpho.serve.api.limits import Limits
from morpho.serve.hosting.embedder import pooling_of
from morpho.serve.hosting.engines import EngineOptions
from morpho.serve.hosting.registry import Spec

TEXT = "/v1/completions"
ASKED: dict[str, Any] = {"prompt": "to be", "temperature": 0, "max_tokens": 8, "ignore_eos": True}
ENGINE = EngineOptions(kv_bytes=1 << 20, max_batch=8, warm=False)


def write_adapter(folder: Path, model: Any, rng: np.random.Generator) -> Path:
    """A LoRA of rank 2 in the manner of PEFT."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 64, "target_modules": ["q_proj"]}))
    tensors = {}
    for name, module in model.named_modules():
        if name.endswith(("q_proj", "down_proj")):
            out, width = module.weight.shape
            tensors[f"base_model.model.{name}.lora_A.weight"] = rng.normal(0, 1, (2, width)).astype(np.float32)
            tensors[f"base_model.model.{name}.lora_B.weight"] = rng.normal(0, 1, (out, 2)).astype(np.float32)
    assert tensors
    mo.weights.save(folder / "adapter_model.safetensors", {name: mo.asarray(each) for name, each in tensors.items()})
    return folder


def test_adapters_have_names_of_their_own(tmp_path: Path, rng: np.random.Generator) -> None:
    tokenizer = mo.weights.train_bpe("to be or not to be, that is the question " * 4, 300)
    mo.nn.seed(0)
    model = mo.models.create("llama", vocab_size=tokenizer.vocab_size, hidden_size=16, intermediate_size=32,
                             num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                             max_position_embeddings=256)
    mo.models.save(tmp_path / "base", model)
    mo.weights.save_tokenizer(tmp_path / "base", tokenizer)
    adapter = write_adapter(tmp_path / "adapter", model, rng)
    with serving(Spec("base", tmp_path / "base", {"pirate": adapter}), make_engine=ENGINE) as running:
        def text(name: str) -> str:
            answer = running.post(TEXT, model=name, **ASKED).json()
            assert answer["model"] == name
            return str(answer["choices"][0]["text"])

        base, pirate = text("base"), text("pirate")
        assert base != pirate and (text("base"), text("pirate")) == (base, pirate)
        listed = {model["id"]: model["parent"] for model in running.client.get("/v1/models").json()["data"]}
        assert listed == {"base": None, "pirate": "base"}


def test_the_second_turn_computes_only_what_is_new(chat_model: Path) -> None:
    with serving(Spec("tiny", chat_model), make_engine=ENGINE) as running:
        messages = [{"role": "user", "content": "to be or not to be, that is the question " * 8}]
        asked: dict[str, Any] = {"max_tokens": 40, "temperature": 0, "ignore_eos": True}
        first = running.post("/v1/chat/completions", messages=messages, **asked).json()
        messages += [first["choices"][0]["message"], {"role": "user", "content": "be"}]
        second = running.post("/v1/chat/completions", messages=messages, **asked).json()["usage"]
        assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        page = running.engine().stats().page_tokens
        cached = second["prompt_tokens_details"]["cached_tokens"]
        assert cached > 0 and cached >= first["usage"]["prompt_tokens"] - page
        assert running.client.get("/live").json()["engines"][0]["prefix_hits"] == cached


@pytest.mark.sampled
def test_a_folder_that_morpho_train_writes_is_served_anew(tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "model"
    text.write_text("Once upon a time there was a cat, and the cat was fat. " * 60, encoding="utf-8")
    run = Run(out, text, Settings(layers=1, width=16, heads=2, vocabulary=270, context=16, batch=2, steps=6, warmup=1))
    assert len([*run.advance(1, check_every=0)]) == 1
    with serving(Spec("model", out), make_engine=ENGINE) as running:
        def told() -> str:
            asked = {**ASKED, "max_tokens": 4, "logprobs": 0}
            return json.dumps(running.post(TEXT, **asked).json()["choices"][0]["logprobs"]["token_logprobs"])

        before = told()
        assert len([*run.advance(check_every=0)]) == 5
        assert [running.registry.look_for_changes() for _ in range(3)] == [[], ["model"], []]
        after, (served,) = told(), running.registry.loaded()
        model = mo.models.load(out)
        assert before != after and all((mine.numpy() == other.numpy()).all() for mine, other in zip(
            served.network.parameters(), model.parameters(), strict=True))


def test_a_deadline_is_an_error_of_time(chat_model: Path) -> None:
    with serving(Spec("tiny", chat_model), make_engine=ENGINE, limits=Limits(timeout_s=1e-4)) as running:
        late = running.post(TEXT, **{**ASKED, "max_tokens": 900})
        assert late.status_code == 504 and late.json()["error"]["code"] == "timeout", late.text
        assert running.client.get("/ready").status_code == 200


def test_the_encoder_of_t5_gives_vectors(tmp_path: Path) -> None:
    tokenizer = mo.weights.train_bpe("the cat sat on the mat " * 4, 280)
    mo.nn.seed(0)
    model = mo.models.create("t5-small", vocab_size=tokenizer.vocab_size, d_model=16, d_kv=8, d_ff=32, num_layers=1,
                             num_heads=2)
    mo.models.save(tmp_path, model)
    mo.weights.save_tokenizer(tmp_path, tokenizer)
    with serving(Spec("t5", tmp_path), make_engine=ENGINE) as running:
        both = running.post("/v1/embeddings", input=["the cat", "the mat sat"]).json()["data"]
        ids = mo.asarray([tokenizer.encode("the cat")])
        hidden = mo.models.load(tmp_path).encode(ids).numpy()[0].mean(axis=0)
        np.testing.assert_allclose(both[0]["embedding"], hidden / np.linalg.norm(hidden), atol=1e-5)
        assert running.post(TEXT, **ASKED).status_code == 200  # and its decoder text


@pytest.mark.parametrize(("said", "found"), [
    ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "word_embedding_dimension": 8}, "cls"),
    ({"pooling_mode_mean_tokens": True}, "mean"), ({"pooling_mode": "mean"}, "mean"), (None, "mean"),
    ({"pooling_mode_max_tokens": True}, ""), ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ""),
])
def test_what_a_folder_says_of_pooling(tmp_path: Path, said: dict[str, Any] | None, found: str) -> None:
    if said is not None:
        (tmp_path / "1_Pooling").mkdir()
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(said))
    if found:
        assert pooling_of(tmp_path) == found
    else:
        with pytest.raises(mo.errors.ArgumentError, match="not computed"):
            pooling_of(tmp_path)
