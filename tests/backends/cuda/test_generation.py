"""Text on a GPU: tokens are chosen there, a step is one native call, and the CPU's text comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_device import Native

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.serve.engine.runner import ModelRunner, Row

PROMPT = [3, 14, 15]


def _model(**others: Any) -> mo.models.LanguageModel:
    mo.nn.seed(5)
    sizes = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32, **others}
    return mo.models.create("gpt2", **sizes)  # type: ignore[no-any-return]


def test_a_step_is_one_native_call_and_the_text_is_the_cpu_s(native: Native) -> None:
    model = _model(n_layer=1).astype(mo.bfloat16)
    asked: list[dict[str, Any]] = [{}, {"temperature": 1.3, "seed": 4}]
    want = [[*mo.models.generate(model, PROMPT, max_new_tokens=9, **each)] for each in asked]
    model.to("cuda")
    for each, text in zip(asked, want, strict=True):
        assert [*mo.models.generate(model, PROMPT, max_new_tokens=9, **each)] == text
    loop = model.__dict__["_generators"].free[0].loop
    for function in (loop.greedy, loop.drawn):
        assert function.native_calls >= 6 and function.native_calls + function.slow_calls == 8
    assert native.replays > 0


def test_texts_end_and_go_on_where_the_host_says(gpu: str) -> None:
    model = _model(n_layer=1)
    whole = [*mo.models.generate(model, PROMPT, max_new_tokens=8)]
    model.to(gpu)
    stop = whole[4]
    assert [*mo.models.generate(model, PROMPT, max_new_tokens=8, stop=stop)] == whole[:whole.index(stop)]
    assert [*mo.models.generate(model, PROMPT, max_new_tokens=8)] == whole  # steps queued too far left nothing
    assert [*mo.models.generate(model, PROMPT + whole[:4], max_new_tokens=3)] == whole[4:7]
    both = [*mo.models.generate(model, [PROMPT, PROMPT[:2]], max_new_tokens=2)]
    assert both[0] == whole[:2]


def test_logits_that_are_not_finite_are_an_error(gpu: str) -> None:
    model = _model(n_layer=1)
    model.wpe.weight.assign(mo.asarray([[1.0] * 32] * 3 + [[float("nan")] * 32] * 29))
    model.to(gpu)
    with pytest.raises(ArgumentError, match="the logits are not finite"):
        [*mo.models.generate(model, PROMPT, max_new_tokens=3)]


def test_rows_have_the_bits_they_have_among_many(gpu: str, rng: np.random.Generator) -> None:
    """By the kernel for few rows, and by that for many: plain, and with what follows."""
    for right, n, k, counts in (("n", 48, 72, (1, 9)), ("k", 61, 776, (1,)), ("n", 8200, 64, (3,))):
        shape = (k, n) if right == "n" else (n, k)
        given = [rng.standard_normal(size).astype("f") for size in ((20, k), shape, (n,))]
        x, w, b = (mo.asarray(each).astype(mo.bfloat16).to(gpu).realise() for each in given)
        weights = w if right == "n" else mo.matrix_transpose(w)
        works = (lambda x, w=weights: mo.matmul(x, w), lambda x, w=weights, b=b: mo.gelu(mo.matmul(x, w) + b))
        for work in works[n % 8 == 0:] if n < 100 else works[:1]:
            many = work(x).astype(mo.float32).numpy()
            for count in counts:
                few = work(x[:count]).astype(mo.float32).numpy()
                assert few.tobytes() == many[:count].tobytes(), (right, n, k, count)


def test_the_engine_runs_on_a_gpu(gpu: str) -> None:
    from morpho.serve.engine.runner import ModelRunner, Row

    model = _model(n_layer=1, n_positions=128).astype(mo.bfloat16)
    found = []
    for place in ("cpu", gpu):
        runner = ModelRunner(model.to(place), pages=4, max_batch=4)
        long = [number % 50 for number in range(67)]  # more than a page
        logits = [runner.prefill(Row(long, 0, [1, 0])), runner.prefill(Row([4], 0, [2])),
                  runner.prefill(Row([7, 7], 0, [3]))]
        logits += [*runner.decode([Row([9], 67, [1, 0]), Row([8], 1, [2]), Row([6], 2, [3])])]
        runner.copy_page(3, 2)
        logits.append(runner.decode([Row([5], 3, [2])]))
        found.append(np.concatenate([np.ravel(each) for each in logits]))
        assert runner.recompiles == 0 and len(runner.functions) == 3
    np.testing.assert_allclose(found[1], found[0], atol=0.02)


def test_first_calls_and_profiled_calls_write_pages_in_place(native: Native) -> None:
    """No function of the engine moves its pages: not when it is compiled, not in steady state, not under the profiler.
    Each would copy all of them, gigabytes on a GPU."""
    mo.nn.seed(0)
    model = mo.models.create("llama", vocab_size=24, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                             num_key_value_heads=2, intermediate_size=32, max_position_embeddings=256).eval()
    texts: dict[str, list[np.ndarray]] = {}
    for device in ("cpu", "cuda:0"):
        model.to(device)
        runner = ModelRunner(model, pages=6)

        def pages(runner: ModelRunner = runner) -> list[int]:
            return [state.value.elements().address for cache in runner.caches for state in (cache.keys, cache.values)]

        begun = pages()
        for name in ("prefill", "single", "decode", "verify", "prompts"):
            runner.warm(name)
            assert pages() == begun, name
        logits = [runner.prefill(Row([1, 2, 3], 0, [1])), runner.decode([Row([4], 3, [1])])]
        with mo.profile():
            logits += [runner.decode([Row([5], 4, [1])]), runner.decode([Row([6], 5, [1])])]
        texts[device] = logits
        assert pages() == begun
    for here, there in zip(texts["cpu"], texts["cuda:0"], strict=True):
        assert np.array_equal(here, there)
