"""Guesses by a smaller model: the tokens and scores of a text without them, in fewer steps; and when they rest."""

from __future__ import annotations

import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.serve.engine.drafts import FIRST, REST, SAMPLES, DraftModel, Payoff, check_vocabularies
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Request, SamplingParams

SIZES = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}


@pytest.fixture(scope="module")
def model() -> mo.models.LanguageModel:
    return mo.models.create("llama", **SIZES)


def texts(engine: Engine, temperature: float = 0.0) -> list[list[tuple[int | None, float | None]]]:
    params = SamplingParams(temperature=temperature, max_tokens=40, logprobs=0, seed=7)
    streams = [engine.submit(Request(prompt, params, str(prompt))) for prompt in ((1, 2, 3), (5, 9))]
    return [[(event.token, event.logprob) for event in stream if event.token is not None] for stream in streams]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_texts_are_the_same(model: mo.models.LanguageModel, temperature: float,
                            monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(model, pages=8, drafted=0) as engine:
        wanted, plain = texts(engine, temperature), engine.stats().steps
    monkeypatch.setattr(Payoff, "pays", lambda self, rows, source: source == "draft")  # whatever this machine does
    for draft in (model, mo.models.create("llama", **{**SIZES, "vocab_size": 64})):  # always right, and hardly ever
        with Engine(model, pages=8, draft=draft) as engine:
            assert texts(engine, temperature) == wanted
            stats = engine.stats()
        if draft is model and not temperature:
            assert stats.accepted == stats.drafted > 40 and stats.steps < plain / 3
        assert stats.drafted and stats.recompiles == 0


def test_guesses_that_do_not_pay_rest() -> None:
    for seconds, tokens, rests in ((0.02, 1, True), (0.02, 3, False), (0.0101, 1, True)):
        payoff = Payoff()
        assert payoff.pays(1, "lookup") and not payoff.pays(1, "draft")
        for _ in range(FIRST):
            payoff.plain(1, 0.01)
        for _ in range(SAMPLES):
            assert payoff.pays(1, "draft")
            payoff.guessed(1, "draft", seconds, tokens)
        assert [payoff.pays(1, "draft") for _ in range(REST)] == [not rests] * REST
        assert payoff.pays(1, "draft") and payoff.pays(2, "lookup")


def test_drafts_that_are_refused(model: mo.models.LanguageModel) -> None:
    with pytest.raises(ArgumentError, match="makes no guesses"):
        Engine(model, pages=4, drafted=0, draft=model)
    with pytest.raises(ArgumentError, match="does not guess"):
        DraftModel(mo.nn.Linear(2, 2), 1, 8, 8)  # type: ignore[arg-type]
    one, other = (mo.weights.train_bpe(text * 9, 270) for text in ("in the beginning ", "once upon a time "))
    check_vocabularies(one, one, "one")
    with pytest.raises(ArgumentError, match="other has another vocabulary: token 2"):
        check_vocabularies(one, other, "other")
