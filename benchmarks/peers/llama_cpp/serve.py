"""llama.cpp's server through the wheel xllamacpp, without HTTP: a slot for each stream."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import xllamacpp

import morpho as mo
from benchmarks.peers import self_timed
from benchmarks.peers.llama_cpp import train
from benchmarks.peers.prepared import Prepared
from benchmarks.peers.self_timed import Made, SelfTimed

CASES_MODULE = "benchmarks.serve.cases"
to_numpy = self_timed.to_numpy
load = train.load
SLOTS, ROOM = 64, 128  # streams, and tokens of each
SERVERS: list[Any] = []


def server() -> Any:
    """One for all cases: it holds the model."""
    if not SERVERS:
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(mo.weights.model_path("smollm2"))
        parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = SLOTS * ROOM, SLOTS, 0
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = train.THREADS
        SERVERS.append(xllamacpp.Server(parameters))
    return SERVERS[0]


def prepare(name: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """All requests at once, each from a thread that waits for it."""
    if name != "serve_streams":
        raise KeyError(name)
    running, new = server(), int(inputs["new"])
    requests = [{"prompt": ids.tolist(), "n_predict": new, "temperature": 0.0, "ignore_eos": True,
                 "cache_prompt": False, "stream": False} for ids in inputs["prompts"]]

    def run() -> Made:
        with ThreadPoolExecutor(len(requests)) as pool:
            begin = time.perf_counter()
            answers = list(pool.map(running.handle_completions, requests))
            seconds = time.perf_counter() - begin
        wrong = next((answer for answer in answers if "timings" not in answer), None)
        if wrong is not None:
            raise RuntimeError(f"llama.cpp answered {str(wrong)[:200]}")
        return Made(seconds, sum(answer["timings"]["predicted_n"] for answer in answers),
                    answers[0]["choices"][0]["text"])

    return SelfTimed(run, ())
