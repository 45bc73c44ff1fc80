"""llama.cpp through the wheel xllamacpp, on the same GGUF file: its own figures for a prompt and for decoding."""

from __future__ import annotations

from typing import Any

import numpy as np
import xllamacpp

import morpho as mo
from benchmarks.peers import self_timed
from benchmarks.peers.prepared import Prepared
from benchmarks.peers.self_timed import Made, SelfTimed
from benchmarks.train import smollm2_cases

CASES_MODULE = "benchmarks.train.cases"
to_numpy = self_timed.to_numpy
THREADS = 1
SERVERS: list[Any] = []  # one for all cases: it holds the model


def load(threads: int) -> dict[str, str]:
    """Versions, and what instructions the wheel was built with; the threads are those of the server."""
    global THREADS
    THREADS = threads
    return {"xllamacpp": xllamacpp.__version__, "built with": xllamacpp.get_system_info().strip(" |\n")}


def server() -> Any:
    """llama.cpp with the model, one sequence at a time."""
    if not SERVERS:
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(mo.weights.model_path("smollm2"))
        parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = smollm2_cases.CONTEXT, 1, 0
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = THREADS
        SERVERS.append(xllamacpp.Server(parameters))
    return SERVERS[0]


def prepare(name: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """A request; of its timings, `prompt_ms` or the time of the tokens after the first one, which comes from the
    prompt."""
    if not name.startswith("smollm2"):
        raise KeyError(name)
    decode = name.endswith("_decode")
    new = int(inputs["new"]) if decode else 0
    request = {"prompt": inputs["ids"].tolist(), "n_predict": new + 1, "temperature": 0.0, "ignore_eos": True,
               "cache_prompt": decode, "stream": False}
    running = server()

    def run() -> Made:
        answer = running.handle_completions(request)
        if "timings" not in answer:
            raise RuntimeError(f"llama.cpp answered {str(answer)[:200]}")
        timings, text = answer["timings"], answer["choices"][0]["text"]
        if decode:
            return Made(1e-3 * timings["predicted_ms"], timings["predicted_n"] - 1, text)
        return Made(1e-3 * timings["prompt_ms"], timings["prompt_n"] // len(request["prompt"]), text)

    return SelfTimed(run, ())
