"""Scores of prompts, and what a request may ask of its tokens: lists of them, fewest, ends that are shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine_models import ask, greedy, llama, paused, tokens_of

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.models.text.generators import Generator
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Event, Request, SamplingParams
from morpho.serve.engine.sampler import score_of


def scores_of(model: Any, prompt: tuple[int, ...], most: int) -> list[Any]:
    """The scores of a prompt that a generator reads token by token."""
    generator = Generator(model)
    rows = [generator.start(prompt[:1]), *(generator.step(token) for token in prompt[1:-1])]
    return [None, *(score_of(row, token, most) for row, token in zip(rows, prompt[1:], strict=False))]


def told(events: list[Event]) -> list[Any]:
    [found] = [event.prompt for event in events if event.prompt is not None]
    return [*found]


def test_prompts_are_scored_alone_and_beside_others(rng: np.random.Generator) -> None:
    """Long ones in pieces, after others have left pages with the same beginning, without a token, and n times."""
    model, shared = llama(), tuple(rng.integers(0, 97, 150).tolist())
    prompts = [(*shared, *rng.integers(0, 97, length).tolist()) for length in (1, 30)] + [shared[:1], shared[:65]]
    with Engine(model, pages=32, drafted=0) as engine:
        ask(engine, shared, greedy(2))
        with paused(engine):
            streams = [engine.submit(Request(prompt, greedy(0, prompt_logprobs=2), "a")) for prompt in prompts]
            beside = engine.submit(Request(shared, greedy(4), "b"))
        found = [[*stream] for stream in streams]
        assert tokens_of([*beside]) == tokens_of(ask(engine, shared, greedy(4)))
        several = ask(engine, prompts[1], SamplingParams(seed=1, max_tokens=2, n=3, prompt_logprobs=0))
        assert engine.stats().pages_used == 0
    for prompt, events in zip(prompts, found, strict=True):
        assert told(events) == scores_of(model, prompt, 2) and not tokens_of(events)
        assert events[-1].finish == "length" and events[-1].usage.completion == 0
    assert [score.logprob for score in told(several)[1:]] == [score.logprob for score in told(found[1])[1:]]
    assert several[0].prompt is not None and sum(event.token is not None for event in several) == 6


def test_scores_where_pages_are_few(rng: np.random.Generator) -> None:
    """A prompt that gives its pages away in its middle is scored all the same."""
    model = llama()
    prompts = [tuple(rng.integers(0, 97, 130).tolist()) for _ in range(3)]
    with Engine(model, pages=5, drafted=0) as engine:
        with paused(engine):
            streams = [engine.submit(Request(prompt, greedy(70, prompt_logprobs=0), "a")) for prompt in prompts]
        found = [[*stream] for stream in streams]
        assert engine.stats().preemptions
    assert [told(events) for events in found] == [scores_of(model, prompt, 0) for prompt in prompts]


def test_scores_of_a_model_in_slots_and_none_of_an_encoder(rng: np.random.Generator) -> None:
    prompt = tuple(rng.integers(0, 50, 9).tolist())
    gemma = mo.models.create("gemma2", vocab_size=50, hidden_size=8, intermediate_size=16, num_hidden_layers=2,
                             num_attention_heads=2, num_key_value_heads=1, head_dim=4, max_position_embeddings=64)
    with Engine(gemma, max_batch=2) as engine:
        assert told(ask(engine, prompt, greedy(2, prompt_logprobs=1))) == scores_of(gemma, prompt, 1)
    t5 = mo.models.create("t5-small", vocab_size=50, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    with Engine(t5, max_batch=2, max_length=32) as engine, pytest.raises(ArgumentError, match="encoder"):
        ask(engine, prompt, greedy(2, prompt_logprobs=1))


def test_the_last_token_is_told_where_prompts_are_scored() -> None:
    """An end token is no part of a text, and would leave the scores of a request one shorter."""
    model = llama()
    with Engine(model, pages=4, drafted=0) as engine:
        first = tokens_of(ask(engine, (1, 2, 3), greedy(1)))[0]
        ends: dict[str, Any] = {"stop_token_ids": (first,), "logprobs": 1}
        [score, last] = ask(engine, (1, 2, 3), greedy(1, prompt_logprobs=1, **ends))
        assert score.prompt and (last.token, last.finish, last.usage.completion) == (first, "stop", 0)
        assert last.logprob == last.top_logprobs[0][1]
        [last] = ask(engine, (1, 2, 3), greedy(1, **ends))
        assert (last.token, last.finish) == (None, "stop")


def test_tokens_that_a_request_lists_and_ends_that_come_too_early() -> None:
    model = llama()
    with Engine(model, pages=4, drafted=0) as engine:
        free = tokens_of(ask(engine, (1, 2, 3), greedy(6)))
        listed = tokens_of(ask(engine, (1, 2, 3), greedy(6, allowed_token_ids=(5, 9))))
        assert {*listed} <= {5, 9} and len(listed) == 6
        stop = {"stop_token_ids": (free[0],)}
        assert tokens_of(ask(engine, (1, 2, 3), greedy(6, **stop))) == []
        late = tokens_of(ask(engine, (1, 2, 3), greedy(6, min_tokens=4, **stop)))
        assert len(late) >= 4 and free[0] not in late[:4]
        for params in ({"min_tokens": 7}, {"min_tokens": -1}):
            with pytest.raises(ArgumentError, match="min_tokens"):
                greedy(6, **params)
