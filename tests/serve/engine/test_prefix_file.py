"""Shared prefixes of an engine, and the keys and values of one text, kept in files from one start to the next."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from morpho.models.text.prompt_cache import PromptCache
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Request, SamplingParams
from morpho.weights import FileFault

SIZES = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
PROMPT = [int(n) for n in np.random.default_rng(5).integers(0, 60, 150)]


@pytest.fixture(scope="module")
def model() -> mo.models.LanguageModel:
    return mo.models.create("llama", **SIZES)


def asked(engine: Engine, prompt: list[int]) -> tuple[list[int | None], list[float | None], int]:
    params = SamplingParams(temperature=0.0, max_tokens=6, logprobs=0)
    stream = engine.submit(Request(tuple(prompt), params, "a"))
    every = [*stream]
    events, usage = [event for event in every if event.token is not None], every[-1].usage
    return [event.token for event in events], [event.logprob for event in events], usage.cached if usage else -1


def test_a_restarted_engine_finds_prefixes(model: mo.models.LanguageModel, tmp_path: Path,
                                           caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "a.prefixes"
    with Engine(model, pages=8, prefix_file=file) as engine:
        tokens, scores, cached = asked(engine, PROMPT)
        assert cached == 0
    with Engine(model, pages=8, prefix_file=file) as engine:
        again = asked(engine, PROMPT)
        other = asked(engine, [*PROMPT[:100], 1, 2, 3])
    assert again == (tokens, scores, 149) and other[2] == 100
    with Engine(model, pages=8) as engine:
        assert asked(engine, [*PROMPT[:100], 1, 2, 3])[:2] == other[:2]
    with Engine(model, pages=1, prefix_file=file) as engine:  # room for the first page only
        assert engine.stats().pages_cached == 1 and asked(engine, PROMPT[:60])[2] == 59
    whole = file.read_bytes()
    for start in (60, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:start] + bytes([whole[start] ^ 1]) + whole[start + 1:])
        with caplog.at_level("ERROR", "morpho.serve"), Engine(model, pages=8, prefix_file=file) as engine:
            assert engine.stats().pages_cached == 0
        assert caplog.records[-1].message == "prefixes_refused" and str(file) in caplog.records[-1].__dict__["file"]


def test_pages_of_other_weights_are_not_taken(tmp_path: Path) -> None:
    model, file = mo.models.create("llama", **SIZES), tmp_path / "a.prefixes"
    with Engine(model, pages=8, prefix_file=file) as engine:
        asked(engine, PROMPT)
        model.model.norm.weight.assign(model.model.norm.weight.value * 2)
        engine.refresh()
        tokens, scores, _ = asked(engine, PROMPT)
    with Engine(model, pages=8, prefix_file=file) as engine:
        assert asked(engine, PROMPT) == (tokens, scores, 149)
    model.model.norm.weight.assign(model.model.norm.weight.value * 2)
    with Engine(model, pages=8, prefix_file=file) as engine:
        assert asked(engine, PROMPT)[2] == 0


def test_a_text_goes_on_from_a_file(model: mo.models.LanguageModel, tmp_path: Path) -> None:
    file, cold = tmp_path / "text", {"max_new_tokens": 8, "temperature": 0.9, "seed": 3}

    def made(prompt: list[int], path: Path | None = None) -> list[int]:
        model.__dict__.pop("_generators", None)  # what a new process has
        return [*mo.models.generate(model, prompt, prompt_cache=path, **cold)]

    wanted = made(PROMPT)
    assert made(PROMPT, file) == wanted
    first = PromptCache(file, model)
    assert first.tokens == PROMPT + wanted[:-1]
    assert made(PROMPT, file) == wanted and made(PROMPT[:90], file) == made(PROMPT[:90])
    longer = [*PROMPT, *wanted, 4, 5]
    assert made(longer, file) == made(longer)  # from the file of the shorter one, which it replaces
    assert PromptCache(file, model).tokens[:len(longer)] == longer
    text = mo.models.generate(model, PROMPT, prompt_cache=tmp_path / "part", **cold)
    next(text)
    text.close()
    assert PromptCache(tmp_path / "part", model).tokens == PROMPT


def test_files_that_are_refused(model: mo.models.LanguageModel, tmp_path: Path) -> None:
    file = tmp_path / "text"
    list(mo.models.generate(model, PROMPT[:20], prompt_cache=file, max_new_tokens=2))
    whole = file.read_bytes()
    for damaged, reason in ((whole[:-1] + bytes([whole[-1] ^ 1]), "is damaged"), (whole[:-8], "not a safetensors file"),
                            (b"", "text"), (whole.replace(b"prompt cache 1", b"prompt cache 9"), "not a prompt cache")):
        file.write_bytes(damaged)
        with pytest.raises(FileFault, match=reason):
            next(mo.models.generate(model, PROMPT, prompt_cache=file))
    file.write_bytes(whole)
    with pytest.raises(FileFault, match="of another model"):
        next(mo.models.generate(mo.models.create("llama", **SIZES), PROMPT, prompt_cache=file))
    with pytest.raises(FileFault, match="is a folder"):
        next(mo.models.generate(model, PROMPT, prompt_cache=tmp_path))
    with pytest.raises(mo.errors.ArgumentError, match="share no prompt cache"):
        next(mo.models.generate(model, [PROMPT, PROMPT], prompt_cache=file))
    shutil.rmtree(tmp_path)
