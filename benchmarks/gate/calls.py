"""Counts of calls that really run, at small sizes: who serves them, and what they allocate. Fewer is better of all.

They run on this machine, with vectors of one width and so many threads everywhere, and do not depend on its speed.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import morpho as mo
from benchmarks.core import cases as core_cases
from benchmarks.gate import cases
from benchmarks.gate.cases import Shape
from benchmarks.gate.counts import Counts
from benchmarks.kernels import cases as kernel_cases
from benchmarks.peers.morpho import core as core_peer
from benchmarks.peers.morpho import gpt as gpt_peer
from benchmarks.peers.morpho import kernels as kernel_peer
from benchmarks.peers.morpho import resnet as resnet_peer
from benchmarks.peers.morpho import train as train_peer
from benchmarks.train import cases as train_cases
from morpho.runtime.plans.evaluate import counts as runtime_counts

ISA, THREADS = "vector128", 2
WARM_UP, CALLS = 3, 8
GPT, RESNET, MLP = (1, 12, 3, 40, 2, 7), (4, 6, 2, 32), (3, 8)
KERNEL_SHAPES: dict[str, Shape] = {"conv_bn_relu": (1, 4, 7, 7, 6, 3), "attention": (1, 2, 9, 8),
                                   "attention_causal": (1, 2, 9, 8), "mlp": (1, 16)}
ONE_AXIS = ("add", "triad", "chain20")

Made = tuple[Callable[[], Any], tuple[Any, ...]]  # one call, and the compiled functions that serve it


def all_calls() -> Iterator[tuple[str, Callable[[], Made]]]:
    """Every case by name: what makes it."""
    for name in core_cases.CASES:
        yield f"core/{name}", lambda name=name: core(name)
    for name in kernel_peer.FUNCTIONS:
        yield f"kernels/{name}", lambda name=name: kernel(name)
    for name, shape in (("mlp_step", MLP), ("gpt_step", GPT), ("gpt_step_bf16", GPT), ("resnet_step", RESNET)):
        yield f"train/{name}", lambda name=name, shape=shape: train(name, shape)
    for name in cases.SMALL_MODELS:
        yield f"models/{name} forward", lambda name=name: model(name)
    for name in cases.TEXT_MODELS:
        yield f"models/{name} decode", lambda name=name: text(name)


def core(name: str) -> Made:
    shape = (64,) if name in ONE_AXIS or name.startswith("function") else (16, 64)
    prepared = core_peer.prepare(name, core_cases.make_inputs(name, shape))
    return lambda: prepared.function(*prepared.arguments, **prepared.keywords), (prepared.function,)


def kernel(name: str) -> Made:
    shape = KERNEL_SHAPES.get(name, (64,) if name == "read_sweep" else (4, 16, 8))
    prepared = kernel_peer.prepare(name, kernel_cases.make_inputs(name, shape))
    return lambda: prepared.function(*prepared.arguments, **prepared.keywords), (prepared.function,)


def train(name: str, shape: Shape) -> Made:
    inputs = train_cases.make_inputs(name, shape)
    if name == "mlp_step":
        prepared = train_peer.prepare(name, inputs)
        return lambda: prepared.function(*prepared.arguments), (prepared.function,)
    step, arguments = (resnet_peer if name.startswith("resnet") else gpt_peer).prepare(name, inputs)
    return lambda: step(*arguments), (step,)


def model(name: str) -> Made:
    function, arguments = cases.forward(name), cases.model_inputs(name)
    return lambda: function(*arguments), (function,)


def text(name: str) -> Made:
    generator = cases.generator(name)
    generator.start([1, 2, 3])
    return lambda: generator.step(1), (generator.prefill, generator.decode)


def count(make: Callable[[], Made]) -> Counts:
    """Of `CALLS` calls after the first few."""
    with mo.settings(isa=ISA, threads=THREADS, record=False):  # recordings of the setup are plans of their own
        call, functions = make()
        for _ in range(WARM_UP):
            call()
        gc.collect()
        gc.disable()
        try:
            before = _now(functions)
            for _ in range(CALLS):
                call()
            after = _now(functions)
        finally:
            gc.enable()
    found = {name: after[name] - before[name] for name in before}
    return {**found, "recompiles": sum(len(function.specialisations) - 1 for function in functions)}


def _now(functions: tuple[Any, ...]) -> Counts:
    return {"python_calls": sum(function.slow_calls for function in functions),
            "allocations": mo.pool.stats()["acquires"], "plans": runtime_counts.plans,
            "host_steps": runtime_counts.host_steps, "syncs": runtime_counts.syncs, "copies": runtime_counts.copies}
