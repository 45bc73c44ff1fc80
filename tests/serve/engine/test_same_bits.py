"""Each request gets the tokens, and the bits of logits, that it gets alone, whoever else is answered with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine_models import alone, ask, greedy, llama, paused, prompts_of, repeating, tokens_of

import morpho as mo
from morpho.models.rounding import round_activations
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Request, SamplingParams
from morpho.serve.engine.runner import ModelRunner, Row
from morpho.serve.engine.sequence import Sequence


@pytest.fixture
def logits_seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[bytes]]:
    """By request the bits of the logits that its tokens were chosen from, in order."""
    seen: dict[str, list[bytes]] = {}
    advance = Sequence.advance

    def watched(self: Sequence, logits: np.ndarray) -> int | None:
        seen.setdefault(self.group.request.id, []).append(logits.tobytes())
        return advance(self, logits)

    monkeypatch.setattr(Sequence, "advance", watched)
    return seen


def all_at_once(engine: Engine, prompts: list[tuple[int, ...]], params: SamplingParams) -> list[list[int]]:
    with paused(engine):
        streams = [engine.submit(Request(prompt, params, str(number))) for number, prompt in enumerate(prompts)]
    return [tokens_of([*stream]) for stream in streams]


@pytest.mark.parametrize("pages", [300, 80])
def test_64_at_once_have_the_bits_of_each_alone(pages: int, rng: np.random.Generator,
                                                logits_seen: dict[str, list[bytes]]) -> None:
    """Prompts of 1 to 240 tokens, prefixes in common, guesses, pages for all or for half of them: rows come and go in
    any mix."""
    model, prompts = llama(), prompts_of(rng, 64)
    with Engine(model, pages=pages, draft_rows=64) as engine:
        found = all_at_once(engine, prompts, greedy(12))
        stats = engine.stats()
    for number, prompt in enumerate(prompts):
        tokens, bits = alone(model, prompt, 12)
        assert found[number] == tokens
        assert logits_seen[str(number)] == bits, f"logits of request {number}, of {len(prompt)} tokens"
    assert stats.recompiles == 0 and stats.errors == 0 and stats.pages_used == 0
    assert stats.prefix_hits and stats.drafted and bool(stats.evictions) == (pages == 80)


@pytest.mark.parametrize("packed", [False, True])
def test_short_prompts_are_read_together(packed: bool, rng: np.random.Generator, logits_seen: dict[str, list[bytes]],
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """One call reads short prompts, and those that come later join the rows that are decoded; a long one is read by
    itself. All have the bits of each alone; with a packed table of words, as in GGUF files, too."""
    sizes: list[list[int]] = []
    prompts_call = ModelRunner.prompts

    def counted(self: ModelRunner, rows: list[Row]) -> np.ndarray:
        sizes.append([len(row.tokens) for row in rows])
        return prompts_call(self, rows)

    monkeypatch.setattr(ModelRunner, "prompts", counted)
    model = llama(hidden_size=96 if packed else 24)
    if packed:
        table = mo.quantise(model.model.embed_tokens.weight, "q4_1")
        model.model.embed_tokens = mo.nn.QuantisedEmbedding(table)
    prompts = [tuple(rng.integers(0, 97, length).tolist()) for length in (5, 1, 40, 17, 9, 30, 22, 3, 300)]
    with Engine(model, pages=40, drafted=0, prefill_tokens=64) as engine:
        found = all_at_once(engine, prompts, greedy(20))
        stats = engine.stats()
    for number, prompt in enumerate(prompts):
        assert (found[number], logits_seen[str(number)]) == alone(model, prompt, 20), f"request {number}"
    assert stats.recompiles == 0 and stats.errors == 0
    assert any(size.count(1) >= 4 and max(size) > 1 for size in sizes), "rows and prompts in one call"
    assert all(sum(size) <= engine.runner.chunk for size in sizes) and len(sizes) == engine.stepper.calls_together


def test_pages_are_written_where_they_lie() -> None:
    """No function copies its pools, which it would if something could fail after the first write."""
    runner = ModelRunner(llama(), pages=4, max_batch=4)
    runner.prefill(Row([1, 2, 3], 0, [1]))
    before = runner.caches[0].keys.value.elements().address
    runner.prompts([Row([4], 3, [1]), Row([5, 6], 0, [2])])
    runner.decode([Row([7], 4, [1]), Row([8], 2, [2])])
    assert runner.caches[0].keys.value.elements().address == before


def _rounded() -> Any:
    model = llama(hidden_size=32, num_attention_heads=2)
    assert round_activations(model) == 15
    return model


def models() -> dict[str, Any]:
    small = {"vocab_size": 97, "width": 16, "layers": 1, "heads": 4, "kv_heads": 2, "hidden": 32, "max_seq_len": 256}
    return {
        "gpt2": lambda: mo.models.create("gpt2", vocab_size=97, n_embd=16, n_layer=1, n_head=2, n_positions=256),
        "learned positions": lambda: mo.models.create("prenorm-small", **small, use_rope=False),
        "window": lambda: llama(sliding_window=40),
        "bfloat16": lambda: llama().to(mo.bfloat16),
        "int8 activations": _rounded,
    }


@pytest.mark.parametrize("name", models())
def test_every_family_and_dtype(name: str, rng: np.random.Generator, logits_seen: dict[str, list[bytes]]) -> None:
    model, prompts = models()[name](), prompts_of(rng, 6, 60)
    with Engine(model, pages=24, draft_rows=8, prefill_tokens=16) as engine:
        found = all_at_once(engine, prompts, greedy(6))
        assert engine.stats().recompiles == 0
    for number, prompt in enumerate(prompts):
        assert (found[number], logits_seen[str(number)]) == alone(model, prompt, 6)


def test_drawn_tokens_are_those_of_generate(rng: np.random.Generator) -> None:
    """With a seed a text is that of `mo.models.generate`, in a crowd too, and guesses do not change it."""
    model, prompts = llama(initializer_range=0.05), prompts_of(rng, 5, 40)
    params = SamplingParams(temperature=0.9, top_k=40, top_p=0.95, repetition_penalty=1.1, seed=7, max_tokens=16)
    with Engine(model, pages=32, draft_rows=8) as engine:
        found = all_at_once(engine, prompts, params)
    for tokens, prompt in zip(found, prompts, strict=True):
        assert tokens == [*mo.models.generate(model, prompt, max_new_tokens=16, temperature=0.9, top_k=40, top_p=0.95,
                                              repetition_penalty=1.1, seed=7)]


def test_guesses_are_exact_and_save_steps(logits_seen: dict[str, list[bytes]]) -> None:
    model = repeating()
    tokens, bits = alone(model, (3, 4, 5), 120)
    with Engine(model, pages=8, drafted=5) as engine:
        assert tokens_of(ask(engine, (3, 4, 5), greedy(120))) == tokens
        stats = engine.stats()
    assert logits_seen["test"] == bits
    assert stats.accepted > 20 and stats.steps == 120 - stats.accepted


def test_lists_of_prompts_without_visible_padding(rng: np.random.Generator) -> None:
    """`mo.models.generate` of several prompts, left padding of an array among them."""
    model, prompts = llama(), prompts_of(rng, 4, 30)
    longest = max(map(len, prompts))
    ids, mask = np.zeros((4, longest), np.int64), np.zeros((4, longest), np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt):], mask[row, longest - len(prompt):] = prompt, 1
    wanted = [alone(model, prompt, 5)[0] for prompt in prompts]
    assert [*mo.models.generate(model, [list(prompt) for prompt in prompts], max_new_tokens=5)] == wanted
    assert [*mo.models.generate(model, ids, mask=mask, max_new_tokens=5)] == wanted
