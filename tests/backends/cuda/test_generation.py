"""Text on a GPU: tokens are chosen there, a step is one native call, and the CPU's text comes out."""

from __future__ import annotations

from typing import Any

import pytest
from native_device import Native

import morpho as mo
from morpho.base.errors import ArgumentError

PROMPT = [3, 14, 15]


def _model(**others: Any) -> mo.models.LanguageModel:
    mo.nn.seed(5)
    sizes = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32, **others}
    return mo.models.create("gpt2", **sizes)  # type: ignore[no-any-return]


def test_a_step_is_one_native_call_and_the_text_is_the_cpu_s(native: Native) -> None:
    model = _model().astype(mo.bfloat16)
    asked: list[dict[str, Any]] = [{}, {"temperature": 1.3, "seed": 4}]
    want = [[*mo.models.generate(model, PROMPT, max_new_tokens=12, **each)] for each in asked]
    model.to("cuda")
    for each, text in zip(asked, want, strict=True):
        assert [*mo.models.generate(model, PROMPT, max_new_tokens=12, **each)] == text
    loop = model.__dict__["_generators"].free[0].loop
    for function in (loop.greedy, loop.drawn):
        assert function.native_calls >= 8 and function.native_calls + function.slow_calls == 11
    assert native.replays > 0


def test_texts_end_and_go_on_where_the_host_says(gpu: str) -> None:
    model = _model()
    whole = [*mo.models.generate(model, PROMPT, max_new_tokens=28)]
    model.to(gpu)
    stop = whole[5]
    assert [*mo.models.generate(model, PROMPT, max_new_tokens=28, stop=stop)] == whole[:whole.index(stop)]
    assert [*mo.models.generate(model, PROMPT, max_new_tokens=28)] == whole  # steps that were queued too far left nothing
    assert [*mo.models.generate(model, PROMPT + whole[:4], max_new_tokens=8)] == whole[4:12]
    both = [*mo.models.generate(model, [PROMPT, PROMPT[:2]], max_new_tokens=6)]
    assert both[0] == whole[:6]
    model.to("cpu")
    assert [*mo.models.generate(model, PROMPT, max_new_tokens=6, top_k=5, temperature=1.0, seed=1)]


def test_logits_that_are_not_finite_are_an_error(gpu: str) -> None:
    model = _model(n_layer=1)
    model.wpe.weight.assign(mo.asarray([[1.0] * 32] * 3 + [[float("nan")] * 32] * 29))
    model.to(gpu)
    with pytest.raises(ArgumentError, match="the logits are not finite"):
        [*mo.models.generate(model, PROMPT, max_new_tokens=3)]
