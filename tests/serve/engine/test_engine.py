"""Requests from beginning to end: pages, prefixes, fairness, cancelling, limits, faults."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_models import alone, ask, greedy, llama, paused, tokens_of

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.serve.engine.adapters import read_adapter
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Event, QueueFull, Request, SamplingParams


def drained(engine: Engine) -> bool:
    stats = engine.stats()
    return stats.pages_used == 0 and stats.running == 0 and stats.waiting == 0


# -- prefixes and pages ------------------------------------------------------------------------------------------------
def test_the_second_turn_of_a_chat_computes_only_what_is_new(rng: np.random.Generator) -> None:
    model = llama()
    first = tuple(rng.integers(0, 97, 100).tolist())
    with Engine(model, pages=16, drafted=0) as engine:
        answer = tokens_of(ask(engine, first, greedy(10)))
        before = engine.stats().prompt_tokens
        second = (*first, *answer, *rng.integers(0, 97, 20).tolist())
        events = ask(engine, second, greedy(10))
        computed = engine.stats().prompt_tokens - before
        assert tokens_of(events) == alone(model, second, 10)[0]
    assert computed == 20 + 1  # the last token of an answer has no keys yet
    assert events[-1].usage is not None and events[-1].usage.cached == len(second) - computed


def test_prompts_that_come_together_compute_what_they_share_once(rng: np.random.Generator) -> None:
    """Eight prompts with the same 200 tokens before their own: three pages once, and the rest of the fourth by each."""
    model, shared = llama(), tuple(rng.integers(0, 97, 200).tolist())
    prompts = [(*shared, *rng.integers(0, 97, 10).tolist()) for _ in range(8)]
    with Engine(model, pages=64, drafted=0) as engine:
        with paused(engine):
            streams = [engine.submit(Request(prompt, greedy(4), "a")) for prompt in prompts]
        found = [tokens_of([*stream]) for stream in streams]
        assert engine.stats().prompt_tokens == 210 + 7 * (210 - 192) and drained(engine)
    assert found == [alone(model, prompt, 4)[0] for prompt in prompts]


def test_every_function_is_loaded_while_there_is_nothing_to_do() -> None:
    """That of guesses too: no text in its middle waits for one."""
    with Engine(llama(), pages=4, warm=True) as engine:
        for _ in range(6):  # a turn of the engine each, which loads one of four
            engine.refresh()
        assert {name for name, *_ in engine.runner.functions} == {"prefill", "single", "decode", "prompts", "verify"}
        assert not engine._cold


def test_functions_that_are_compiled_meanwhile_touch_no_page(rng: np.random.Generator) -> None:
    model, prompt = llama(), tuple(rng.integers(0, 97, 70).tolist())
    with Engine(model, pages=2, warm=True, drafted=0) as engine:  # both pages hold the prompt
        assert tokens_of(ask(engine, prompt, greedy(1))) == alone(model, prompt, 1)[0]
        engine.refresh()  # nothing changed; by now the engine had nothing to do
        engine.refresh()
        events = ask(engine, (*prompt, 5), greedy(4))
        assert tokens_of(events) == alone(model, (*prompt, 5), 4)[0] and engine.stats().recompiles == 0
        assert events[-1].usage is not None and events[-1].usage.cached == 70 and not engine._cold


def test_several_texts_of_one_prompt_share_its_pages(rng: np.random.Generator) -> None:
    """n texts: the prompt is computed once, its last page copied for each, and number 0 is the text of n=1."""
    model = llama(initializer_range=0.05)
    prompt = tuple(rng.integers(0, 97, 150).tolist())
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=12, n=4)
    with Engine(model, pages=32) as engine:
        events = ask(engine, prompt, params)
        assert engine.stats().prompt_tokens == 150 and drained(engine)
    texts = [tokens_of(events, index) for index in range(4)]
    assert texts[0] == [*mo.models.generate(model, prompt, max_new_tokens=12, temperature=1.0, seed=3)]
    assert len({tuple(text) for text in texts}) == 4 and all(len(text) == 12 for text in texts)
    assert [event.finish for event in events if event.finish] == ["length"] * 4
    assert events[-1].usage is not None and events[-1].usage.completion == 48
    with Engine(model, pages=32, max_batch=2) as engine:  # two of them have to wait
        again = ask(engine, prompt, params)
    assert [tokens_of(again, index) for index in range(4)] == texts


@pytest.mark.parametrize("length", [64, 128, 65])
def test_several_texts_of_a_prompt_that_is_known_already(length: int, rng: np.random.Generator) -> None:
    """All but its last token is found, so that the texts begin in a step of decoding: at the rim of a page too."""
    model = llama(initializer_range=0.05)
    prompt = tuple(rng.integers(0, 97, length).tolist())
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=5, n=3)
    with Engine(model, pages=32) as engine:
        fresh = ask(engine, prompt, params)
        known = ask(engine, prompt, params)
        assert engine.alive and engine.last_error is None and drained(engine)
    assert known[-1].usage is not None and known[-1].usage.cached == length - 1
    assert [[tokens_of(events, index) for index in range(3)] for events in (fresh, known)] \
        == [[tokens_of(fresh, index) for index in range(3)]] * 2


def test_few_pages_change_nothing_but_the_time(rng: np.random.Generator) -> None:
    model, prompts = llama(), [tuple(rng.integers(0, 97, 60).tolist()) for _ in range(6)]
    with Engine(model, pages=4, drafted=0) as engine:  # a page each, then two
        with paused(engine):
            streams = [engine.submit(Request(prompt, greedy(40), "x")) for prompt in prompts]
        found = [tokens_of([*stream]) for stream in streams]
        assert engine.stats().preemptions and drained(engine)
    assert found == [alone(model, prompt, 40)[0] for prompt in prompts]


def test_bytes_of_the_cache_are_limited() -> None:
    model = llama()
    page = 2 * 2 * 64 * 8 * 4  # layers, keys and values, positions, width of a head, bytes
    with Engine(model, kv_bytes=5 * page + 1) as engine:
        assert engine.stats().pages_total == 5
        with pytest.raises(ArgumentError, match="together have 320 at most"):
            engine.submit(Request(tuple(range(90)) * 4, greedy(1), "x"))
    with pytest.raises(ArgumentError, match="holds no page"):
        Engine(model, kv_bytes=page - 1)


def test_a_full_context_ends_a_text() -> None:
    with Engine(llama(max_position_embeddings=64), pages=4) as engine:
        events = ask(engine, range(60), SamplingParams(temperature=0.0, ignore_eos=True))
        assert len(tokens_of(events)) == 4 and events[-1].finish == "length"
        assert ask(engine, range(3), greedy(0))[-1].finish == "length"


# -- fairness ------------------------------------------------------------------------------------------------------
def test_a_long_prompt_does_not_hold_up_a_running_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two tokens of a running text at most `prefill_tokens` of a prompt are computed."""
    with Engine(llama(), pages=16, prefill_tokens=32, drafted=0) as engine:
        calls: list[tuple[str, int]] = []
        prefill, decode = engine.runner.prefill, engine.runner.decode
        monkeypatch.setattr(engine.runner, "prefill", lambda row: calls.append(("p", len(row.tokens))) or prefill(row))
        monkeypatch.setattr(engine.runner, "decode", lambda rows: calls.append(("d", len(rows))) or decode(rows))
        done, others = threading.Event(), []

        def ask_more(event: Event) -> None:  # by the engine's thread: the text is running
            if not others:
                for prompt in (range(90), [*range(90), *range(90)][::-1]):
                    others.append(engine.submit(Request(tuple(prompt), greedy(1), "long")))
            if event.finish:
                done.set()
        engine.submit(Request((1, 2), greedy(60), "short")).on_event(ask_more)
        assert done.wait(300) and all([*stream][-1].finish == "length" for stream in others)
    between, pieces = 0, []  # tokens of prompts since the last step of the running text
    for kind, count in calls[1:]:
        between = between + count if kind == "p" else 0
        pieces += [between] * (kind == "p")
    assert max(pieces) == 32 and len(pieces) >= 9 and {count for kind, count in calls if kind == "d"} >= {1}


def test_a_short_prompt_does_not_wait_for_a_long_one(rng: np.random.Generator) -> None:
    """Both come at once, the long one first: the short one is answered while the long one is read."""
    order: list[str] = []
    with Engine(llama(), pages=16, chunk=64, drafted=0) as engine:
        ended = [threading.Event(), threading.Event()]
        with paused(engine):
            for number, length in enumerate((400, 10)):
                def tell(event: Event, name: str = str(length), done: threading.Event = ended[number]) -> None:
                    order.append(name)
                    done.set()
                engine.submit(Request(tuple(rng.integers(0, 97, length).tolist()), greedy(1), "a")).on_event(tell)
        assert all(done.wait(300) for done in ended) and order == ["10", "400"]


def test_a_reader_that_fails_harms_nobody_else() -> None:
    def fail_at_once(event: Event) -> None:
        raise ValueError("broken")
    with Engine(llama(), pages=16) as engine:
        with paused(engine):
            engine.submit(Request((1, 2), greedy(300), "broken")).on_event(fail_at_once)
            other = engine.submit(Request((1, 3), greedy(5), "whole"))
        assert tokens_of([*other]) == alone(engine.model, (1, 3), 5)[0]
        assert len(tokens_of(ask(engine, (1, 4), greedy(2)))) == 2
        assert engine.stats().cancelled == 1 and drained(engine) and engine.last_error is None


# -- ends -----------------------------------------------------------------------------------------------------------
def test_cancelling_ends_within_a_step_and_frees_the_pages() -> None:
    with Engine(llama(), pages=16) as engine:
        done, ends = threading.Event(), []

        def stop(event: Event) -> None:  # by the engine's thread, at the first token
            ends.append(event.finish)
            stream.cancel()
            if event.finish:
                done.set()
        with paused(engine):
            stream = engine.submit(Request((1, 2, 3), greedy(400), "a"))
            stream.on_event(stop)
        assert done.wait(300) and ends == [None, "cancelled"]  # not one token more
        assert tokens_of(ask(engine, (1, 2, 3), greedy(3))) == alone(engine.model, (1, 2, 3), 3)[0]
        assert drained(engine) and engine.stats().cancelled == 1


def test_a_deadline_is_kept() -> None:
    with Engine(llama(), pages=16) as engine:
        events = ask(engine, (1, 2, 3), greedy(400), deadline_s=1e-6)
        assert events[-1].finish == "error" and "1e-06 s" in str(events[-1].error)
        assert drained(engine)


def test_a_full_queue_says_when_to_come_again() -> None:
    with Engine(llama(), pages=16, max_batch=1, max_waiting=2) as engine:
        with paused(engine):
            streams = [engine.submit(Request((1, 2, 3), greedy(2), "a")) for _ in range(2)]
            with pytest.raises(QueueFull, match="2 requests wait already") as caught:
                engine.submit(Request((1, 2, 3), greedy(2), "a"))
        assert caught.value.retry_after_s >= 1 and engine.stats().rejected == 1
        assert [[*stream][-1].finish for stream in streams] == ["length", "length"]


@pytest.mark.parametrize("drain", [True, False])
def test_shutting_down_finishes_or_cancels(drain: bool) -> None:
    engine = Engine(llama(), pages=16)
    streams = [engine.submit(Request((1, 2, number), greedy(30), "a")) for number in range(3)]
    next(iter(streams[0]))
    engine.shutdown(drain=drain)
    ends = {[*stream][-1].finish for stream in streams}
    assert ends == {"length"} if drain else ends <= {"cancelled", "length"}
    assert not engine.alive and drained(engine)
    with pytest.raises(QueueFull, match=r"dead|shutting down"):
        engine.submit(Request((1,), greedy(1), "a"))


def test_a_step_that_fails_ends_its_texts_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(llama(), pages=16) as engine:
        decode = engine.runner.decode
        monkeypatch.setattr(engine.runner, "decode", lambda rows: (_ for _ in ()).throw(MemoryError("none left")))
        assert ask(engine, (1, 2), greedy(3))[-1].error == "MemoryError: none left"
        monkeypatch.setattr(engine.runner, "decode", decode)
        assert len(tokens_of(ask(engine, (1, 2), greedy(3)))) == 3
        assert engine.alive and "none left" in str(engine.last_error) and drained(engine)
        monkeypatch.setattr(engine.runner, "decode", lambda rows: (_ for _ in ()).throw(MemoryError("none left")))
        for _ in range(3):
            assert ask(engine, (1, 2), greedy(3))[-1].finish == "error"
        engine._thread.join()
        assert not engine.alive


@pytest.mark.parametrize("place", ["prefill", "copy_page"])
def test_a_step_that_fails_ends_every_text_of_a_request(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those too that had not begun: who reads the stream would wait for them for ever."""
    params = SamplingParams(temperature=1.0, seed=1, max_tokens=3, n=3)
    with Engine(llama(), pages=16) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(engine.runner, place, lambda *_: (_ for _ in ()).throw(MemoryError("none left")))
            events = ask(engine, (1, 2), params)
        assert [event.finish for event in events if event.finish] == ["error"] * 3 and engine.alive
        assert len(tokens_of(ask(engine, (1, 2), params), 2)) == 3 and drained(engine)


def test_a_fault_in_the_account_of_pages_ends_its_texts_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was held in common is forgotten then, and the engine goes on."""
    with Engine(llama(), pages=16) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(engine.scheduler.pages, "commit", lambda *_: (_ for _ in ()).throw(IndexError("no page")))
            assert ask(engine, (1, 2), greedy(3))[-1].error == "IndexError: no page"
        events = ask(engine, (1, 2), greedy(3))
        assert len(tokens_of(events)) == 3 and events[-1].usage.cached == 0 and engine.alive and drained(engine)


def test_events_may_go_to_a_function() -> None:
    done, found = threading.Event(), []
    with Engine(llama(), pages=16) as engine:
        engine.submit(Request((1, 2), greedy(5), "a")).on_event(
            lambda event: (found.append(event.token), done.set() if event.finish else None))
        assert done.wait(60)
    assert found == alone(engine.model, (1, 2), 5)[0]


def test_random_requests_leak_nothing(rng: np.random.Generator) -> None:
    """Requests that come, end and are cancelled at random, over few pages: all end, and every page is accounted for."""
    with Engine(llama(num_hidden_layers=1), pages=12, max_batch=6) as engine:
        streams = []
        for number in range(80):
            prompt = tuple(rng.integers(0, 3, int(rng.integers(1, 150))).tolist())
            stream = engine.submit(Request(prompt, greedy(int(rng.integers(1, 30)), n=int(rng.integers(1, 4))), "a"))
            streams.append(stream)
            if rng.random() < 0.4:
                streams[int(rng.integers(0, number + 1))].cancel()
        for stream in streams:
            assert sum(event.finish is not None for event in stream) == stream.request.params.n
        pages, stats = engine.scheduler.pages, engine.stats()
        assert drained(engine) and stats.recompiles == 0 and stats.errors == 0
        assert len(pages.free) + pages.cached == 12 and len(set(pages.free)) == len(pages.free)
        assert not engine.stepper.siblings


# -- arguments -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("prompt", "params", "complaint"), [
    ((97,), greedy(1), "token 97 is not in a vocabulary of 97"),
    ((1,) * 512, greedy(1), "the prompt has 512 tokens"),
    ((1,), greedy(1, stop=("x",)), "need the tokenizer"),
    ((1,), greedy(1, logit_bias={97: 1.0}), "token 97 is not in a vocabulary"),
    ((1,), greedy(1, stop_token_ids=(100,)), "token 100 is not in a vocabulary"),
])
def test_wrong_requests_are_refused(prompt: Any, params: SamplingParams, complaint: str) -> None:
    with Engine(llama(), pages=8) as engine, pytest.raises(ArgumentError, match=complaint):
        engine.submit(Request(prompt, params, "a"))


@pytest.mark.parametrize(("given", "complaint"), [
    ({"temperature": -1}, "temperature"), ({"top_p": 0}, "top_p"), ({"n": 0}, "n=0"), ({"stop": ("",)}, "stop="),
    ({"logprobs": 21}, "logprobs"), ({"max_tokens": -1}, "max_tokens"), ({"logit_bias": {-1: 1.0}}, "logit_bias"),
    ({"temperature": float("nan")}, "temperature"), ({"min_p": 2}, "min_p"), ({"seed": -3}, "seed"),
])
def test_wrong_settings_are_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        SamplingParams(**given)


# -- adapters --------------------------------------------------------------------------------------------------------
def write_adapter(folder: Path, rng: np.random.Generator, rank: int = 4, **more: Any) -> dict[str, np.ndarray]:
    folder.mkdir()
    config = {"r": rank, "lora_alpha": 8, "target_modules": ["q_proj"], "megatron_core": "megatron.core", **more}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    made = {}
    for layer in range(2):
        for product, sizes in (("self_attn.q_proj", (24, 24)), ("mlp.down_proj", (32, 24))):
            name = f"base_model.model.model.layers.{layer}.{product}"
            made[f"{name}.lora_A.weight"] = rng.normal(0, 0.3, (rank, sizes[0])).astype(np.float32)
            made[f"{name}.lora_B.weight"] = rng.normal(0, 0.3, (sizes[1], rank)).astype(np.float32)
    mo.weights.save(folder / "adapter_model.safetensors", {key: mo.asarray(value) for key, value in made.items()})
    return made


def test_adapters_by_request(rng: np.random.Generator, tmp_path: Path) -> None:
    """Texts with two adapters and with none in one batch: each as it is alone, and near that of a merged model."""
    model, prompt = llama(), (5, 6, 7)
    files = {name: write_adapter(tmp_path / name, rng) for name in ("one", "two")}
    with Engine(model, pages=32) as engine:
        for name in files:
            engine.add_adapter(name, tmp_path / name)
        params = greedy(8, logprobs=0)
        single = {name: ask(engine, prompt, params, adapter=name) for name in (None, *files)}
        streams = [(name, engine.submit(Request(prompt, params, "a", adapter=name))) for name in (None, *files) * 4]
        for name, stream in streams:
            assert [*stream][:-1] == single[name][:-1]
        assert len({tuple(tokens_of(events)) for events in single.values()}) == 3
        assert engine.stats().recompiles == 0
        with pytest.raises(ArgumentError, match="no adapter 'three'"):
            engine.submit(Request(prompt, params, "a", adapter="three"))
    assert tokens_of(single[None]) == alone(model, prompt, 8)[0]
    merged = {key: value.numpy(copy=True) for key, value in model.state_dict().items()}
    for key, first in files["one"].items():
        if ".lora_A" in key:
            second = files["one"][key.replace("lora_A", "lora_B")]
            merged[key.removeprefix("base_model.model.").replace(".lora_A", "")] += 8 / 4 * second @ first
    twin = mo.models.from_config(model.config)
    twin.load_state_dict({key: mo.asarray(value) for key, value in merged.items()})
    with Engine(twin.eval(), pages=8) as engine:
        wanted = ask(engine, prompt, params)
    assert tokens_of(wanted) == tokens_of(single["one"])
    np.testing.assert_allclose([e.logprob for e in wanted], [e.logprob for e in single["one"]], rtol=1e-4)


def test_products_of_an_adapter_may_have_numbers_of_their_own(rng: np.random.Generator, tmp_path: Path) -> None:
    """PEFT's patterns: ends of names, the first that matches."""
    made = write_adapter(tmp_path / "one", rng, alpha_pattern={"0.self_attn.q_proj": 2, "q_proj": 32}, use_rslora=True)
    found = read_adapter(tmp_path / "one")
    for product, alpha in (("layers.0.self_attn.q_proj", 2), ("layers.1.self_attn.q_proj", 32),
                           ("layers.0.mlp.down_proj", 8)):
        a, b = (made[f"base_model.model.model.{product}.lora_{each}.weight"] for each in "AB")
        assert (found[f"model.{product}"][0] == a).all() and (found[f"model.{product}"][1] == alpha / 2 * b).all()


@pytest.mark.parametrize(("config", "complaint"), [
    ({"rank_pattern": {"down_proj": 2}}, r"says rank 2 of model.layers.0.mlp.down_proj, and its matrix has 4"),
    ({"use_dora": True}, "use_dora=True is not served"), ({"peft_type": "LOHA"}, "peft_type=LOHA"),
    ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights=pissa"), ({"bias": "all"}, "bias=all"),
    ({"alora_invocation_tokens": [5]}, "alora_invocation_tokens"), ({"alpha_pattern": {"(": 1}}, "says no number"),
    ({"r": "4"}, "are not numbers of an adapter")])
def test_what_an_adapter_asks_for_and_is_not_computed_is_refused(config: dict[str, Any], complaint: str,
                                                                 rng: np.random.Generator, tmp_path: Path) -> None:
    write_adapter(tmp_path / "one", rng, **config)
    with pytest.raises(ArgumentError, match=complaint):
        read_adapter(tmp_path / "one")


def test_weights_that_change_are_taken_over() -> None:
    model = llama()
    with Engine(model, pages=16) as engine:
        old = tokens_of(ask(engine, (1, 2, 3), greedy(6)))
        other = llama()
        model.load_state_dict(other.state_dict())
        engine.refresh()
        new = tokens_of(ask(engine, (1, 2, 3), greedy(6)))
        assert engine.stats().recompiles == 0
    assert new == alone(other, (1, 2, 3), 6)[0] != old
