"""How tokens are chosen, told and ended: sampling, log-probabilities, stop strings, grammars."""

from __future__ import annotations

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest
from engine_models import alone, ask, greedy, llama, text_of, tokens_of

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.models.text.sampling import Sampling
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.grammar import Matcher
from morpho.serve.engine.request import Grammar, Request, SamplingParams
from morpho.serve.engine.sampler import Sampler, logprobs_of
from morpho.serve.engine.schema import prepared
from morpho.serve.engine.text import TextStream


@pytest.fixture(scope="module")
def shipped() -> Any:
    return mo.models.load_with_tokenizer(mo.models.SHIPPED)


# -- one row of logits -------------------------------------------------------------------------------------------------
LOGITS = np.array([1.0, 3.0, 2.5, -1.0, 0.0], np.float32)


@pytest.mark.parametrize(("given", "taken", "token"), [
    ({}, [], 1),
    ({"logit_bias": {1: -100.0}}, [], 2),
    ({"logit_bias": {4: 50.0, 900: 1.0}}, [], 4),
    ({"presence_penalty": 1.0}, [1], 2),
    ({"frequency_penalty": 0.3}, [1], 1),
    ({"frequency_penalty": 0.3}, [1, 1], 2),
    ({"repetition_penalty": 1.5}, [1], 2),
])
def test_bias_and_penalties(given: dict[str, Any], taken: list[int], token: int) -> None:
    sampler = Sampler(SamplingParams(temperature=0.0, **given), ())
    for each in taken:
        sampler.took(each)
    assert sampler.choose(LOGITS) == token


def test_repetition_counts_the_prompt_and_the_others_do_not() -> None:
    assert Sampler(SamplingParams(temperature=0.0, repetition_penalty=1.5), (1,)).choose(LOGITS) == 2
    assert Sampler(SamplingParams(temperature=0.0, presence_penalty=2.0), (1,)).choose(LOGITS) == 1


def test_drawing_is_sampling_s(rng: np.random.Generator) -> None:
    logits = rng.normal(0, 2, 200).astype(np.float32)
    sampler = Sampler(SamplingParams(temperature=0.7, top_k=20, top_p=0.9, seed=5), ())
    plain, numbers = Sampling(0.7, 20, 0.9), np.random.default_rng(5)
    assert [sampler.choose(logits) for _ in range(50)] == [plain.choose(logits, (), numbers) for _ in range(50)]


def test_min_p_leaves_out_the_unlikely() -> None:
    chances = np.exp(LOGITS - LOGITS.max())
    sampler = Sampler(SamplingParams(temperature=1.0, min_p=0.3, seed=1), ())
    drawn = {sampler.choose(LOGITS) for _ in range(300)}
    assert drawn == {i for i, chance in enumerate(chances) if chance >= 0.3} == {1, 2}


def test_a_mask_leaves_nothing_else() -> None:
    allowed = np.array([False, False, False, True, True])
    for params in (SamplingParams(temperature=0.0), SamplingParams(temperature=2.0, seed=3, min_p=0.01)):
        assert {Sampler(params, ()).choose(LOGITS, allowed) for _ in range(20)} <= {3, 4}


def test_log_probabilities() -> None:
    found, best = logprobs_of(LOGITS, 2, 3)
    wanted = LOGITS - np.log(np.exp(LOGITS.astype(np.float64)).sum())
    assert found == pytest.approx(wanted[2]) and [token for token, _ in best] == [1, 2, 0]
    assert logprobs_of(LOGITS, 2, 0)[1] == () and len(logprobs_of(LOGITS, 2, 20)[1]) == 5


def test_logits_that_are_not_finite_end_the_text_with_an_error() -> None:
    model = llama()
    model.model.norm.weight.assign(mo.full((24,), float("nan")))
    with Engine(model, pages=4) as engine:
        last = ask(engine, (1, 2), greedy(3))[-1]
        assert last.finish == "error" and "not finite" in str(last.error) and engine.alive


# -- events --------------------------------------------------------------------------------------------------------
def test_log_probabilities_come_with_tokens() -> None:
    with Engine(llama(), pages=4) as engine:
        events = ask(engine, (1, 2), greedy(4, logprobs=2))
    assert all(len(event.top_logprobs) == 2 and event.top_logprobs[0] == (event.token, event.logprob)
               for event in events)


def test_end_tokens_end_and_are_not_told() -> None:
    model = llama()
    tokens = alone(model, (1, 2), 8)[0]
    end = tokens[3]
    wanted = tokens[:tokens.index(end)]
    model.eos_token_id = end
    with Engine(model, pages=4) as engine:
        events = ask(engine, (1, 2), greedy(8))
        assert tokens_of(events) == wanted and events[-1].finish == "stop"
        assert tokens_of(ask(engine, (1, 2), greedy(8, ignore_eos=True))) == tokens
        stop = ask(engine, (1, 2), greedy(8, ignore_eos=True, stop_token_ids=(tokens[0],)))
        assert tokens_of(stop) == [] and stop[-1].usage is not None and stop[-1].usage.completion == 0


def test_stop_strings_are_never_told(shipped: Any) -> None:
    model, tokenizer = shipped
    prompt = tokenizer.encode("In the beginning")
    with Engine(model, tokenizer, pages=16) as engine:
        whole = text_of(ask(engine, prompt, greedy(40)))
        assert whole == tokenizer.decode(tokens_of(ask(engine, prompt, greedy(40))))
        for string in (whole[7:10], whole[20:21], whole[3:15]):
            events = ask(engine, prompt, greedy(40, stop=(string, "never there")))
            assert text_of(events) == whole[:whole.index(string)] and events[-1].finish == "stop"
        assert text_of(ask(engine, prompt, greedy(40, stop=("never there",)))) == whole


@pytest.mark.parametrize("stop", [("ab",), ("b", "abc"), ("cd",), ("x",), ("aab",)])
def test_text_is_told_to_the_letter(stop: tuple[str, ...], rng: np.random.Generator) -> None:
    """What is told is the text before the first stop string, however it is cut into tokens."""
    tokenizer = mo.weights.train_bpe("ab abc é aab", vocab_size=260)
    for _ in range(60):
        text = "".join(rng.choice([*"abcdé "], 12))
        stream = TextStream(tokenizer, stop)
        told = "".join(stream.push(token) for token in tokenizer.encode(text) if not stream.stopped) + stream.finish()
        found = [(text.index(string) + len(string), text.index(string)) for string in stop if string in text]
        end, begin = min(found, default=(0, len(text)))
        assert told == text[:begin] and stream.stopped == (text[begin:end] if found else None)


# -- grammars ------------------------------------------------------------------------------------------------------
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"enum": [1, 20, 300]},
                                           "number": {"type": "integer"}},
          "required": ["name", "age", "number"], "additionalProperties": False}


@pytest.mark.parametrize(("schema", "largest"), [
    ({"type": "integer"}, True), ({"type": ["integer", "null"]}, True), ({"type": "integer", "minimum": 0}, True),
    ({"properties": {"type": {"type": "integer"}}}, True), ({"$defs": {"n": [{"type": "integer"}]}}, True),
    ({"type": "integer", "minimum": 10**30}, False), ({"type": "integer", "maximum": 5}, False),
    ({"type": "integer", "enum": [10**30]}, False), ({"type": "integer", "minimum": "a"}, False),
    ({"const": {"type": "integer"}}, False), ({"type": "number"}, False), (True, False)])
def test_integers_of_a_form_end(schema: Any, largest: bool) -> None:
    """Where nothing bounds them they have 53 bits, and no other word of a schema is touched."""
    found = json.dumps(prepared(schema))
    assert (str((1 << 53) - 1) in found) == largest and (largest or json.loads(found) == schema)


def test_masks_are_computed_while_the_model_computes() -> None:
    """From the moment a token came, by another thread: whoever asks for the mask only waits for what is left of it."""
    class Library:
        filled: ClassVar[list[str]] = []
        begun = threading.Event()

        def unsafe_compute_mask_ptr(self, address: int, size: int) -> None:
            self.filled.append(threading.current_thread().name)
            self.begun.set()

        def consume_token(self, token: int) -> None:
            self.begun.clear()

        def is_error(self) -> bool:
            return False

        is_stopped = is_error

    with ThreadPoolExecutor(1, thread_name_prefix="masks") as pool:
        matcher = Matcher(Library(), 64, pool)
        assert matcher.allowed().shape == (64,) and not matcher.took(3)
        assert Library.begun.wait(30) and Library.filled == ["masks_0"] * 2  # and nobody has asked


@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_text_of_a_given_form(shipped: Any, temperature: float) -> None:
    pytest.importorskip("llguidance", reason="the extra `serve`")
    model, tokenizer = shipped
    prompt = tokenizer.encode("A person: ")
    number = re.compile(r"[0-9]{3}-[0-9]{4}")
    with Engine(model, tokenizer, pages=32) as engine:
        def form(kind: Any, source: str = "", seed: int = 0) -> Any:
            params = SamplingParams(temperature=temperature, seed=seed, max_tokens=200, grammar=Grammar(kind, source))
            return engine.submit(Request(tuple(prompt), params, "a"))
        streams = [form("json_schema", json.dumps(SCHEMA), seed) for seed in range(3)]
        other = [form("regex", number.pattern), form("lark", 'start: "yes" | "no"')]
        for stream in streams:
            events = [*stream]
            found = json.loads(text_of(events))
            assert events[-1].finish == "stop" and set(found) == {"name", "age", "number"}
            assert found["age"] in (1, 20, 300) and len(found["name"]) <= 8
        assert number.fullmatch(text_of([*other[0]])) and text_of([*other[1]]) in ("yes", "no")
        for kind, source in (("json_schema", "{"), ("regex", "["), ("lark", "nothing"), ("regex", "a" * 70000),
                             ("json_schema", '{"$ref": "#"}')):
            with pytest.raises(ArgumentError, match=r"not usable|too large"):
                form(kind, source)
        assert engine.alive and engine.stats().errors == 0
