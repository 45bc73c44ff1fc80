"""Morpho's engine, without HTTP."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.peers import self_timed
from benchmarks.peers.morpho import kernels as morpho_peer
from benchmarks.peers.prepared import Prepared
from benchmarks.peers.self_timed import Made, SelfTimed
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Request, SamplingParams
from morpho.serve.engine.stream import RequestStream

CASES_MODULE = "benchmarks.serve.cases"
load = morpho_peer.load
to_numpy = self_timed.to_numpy
ENGINES: dict[str, Any] = {}  # by activations, one for all cases


def engine(activations: str = "exact") -> Any:
    """SmolLM2 with pages for 64 texts and the long prompts; without guesses."""
    if activations not in ENGINES:
        model, tokenizer = mo.models.load_with_tokenizer(mo.weights.model_path("smollm2"), activations=activations)
        ENGINES[activations] = Engine(model, tokenizer, pages=300, drafted=0, warm=True)
    return ENGINES[activations]


def prepare(name: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """All requests at once."""
    running, new = engine("int8" if name == "serve_int8" else "exact"), int(inputs["new"])
    params = SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True)

    def ask(ids: np.ndarray, wanted: SamplingParams = params) -> RequestStream:
        return running.submit(Request(tuple(ids.tolist()), wanted, "bench"))

    def streams() -> Made:
        running.scheduler.pages.clear()  # nothing of the last call is used; the engine is idle
        begin = time.perf_counter()
        texts = [[*stream] for stream in [ask(ids) for ids in inputs["prompts"]]]
        seconds = time.perf_counter() - begin
        return Made(seconds, sum(len(text) for text in texts), "".join(event.text for event in texts[0]))

    def stalls() -> Made:
        running.scheduler.pages.clear()
        moments: list[list[float]] = [[] for _ in inputs["prompts"]]
        asked = [ask(ids) for ids in inputs["prompts"]]
        for stream, times in zip(asked, moments, strict=True):
            stream.on_event(lambda event, times=times: times.append(time.perf_counter()))
        one = SamplingParams(temperature=0.0, max_tokens=1)
        for ids in inputs["long"]:
            [*ask(ids, one)]
        while any(len(times) < new for times in moments):
            time.sleep(0.01)
        between = np.concatenate([np.diff(times) for times in moments])
        tokens = sum(len(times) for times in moments)
        return Made(float(between.sum()), tokens, f"{np.percentile(between, 50)} {np.percentile(between, 99)}")

    return SelfTimed(stalls if name == "serve_stalls" else streams, ())
