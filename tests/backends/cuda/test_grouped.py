"""Small maps of equal kernels run as one launch: what they compute, and that nothing is moved past what it needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_device import Native

import morpho as mo
from morpho import nn, optim
from morpho.backends.cuda.codegen.select import device_kernel
from morpho.backends.cuda.grouped.step import MOST_WORDS, GroupSpec, GroupStep
from morpho.backends.cuda.lowering import lowered
from morpho.backends.registry import backend_of
from morpho.ir.graph import Graph
from morpho.ir.node import build
from morpho.program.program import Step


def steps_of(gpu: str, *outputs: Any) -> list[Step]:
    backend: Any = backend_of(gpu)
    program = lowered(Graph(tuple(x.node for x in outputs)), 2, backend.target)
    return [step for step in program.steps if isinstance(step, Step)]


def parameters(shapes: list[tuple[int, ...]]) -> list[Any]:
    return [mo.Tensor.of_node(build("parameter", index=n, shape=shape, dtype=mo.float32))
            for n, shape in enumerate(shapes)]


SHAPES = [(7,), (300,), (3, 5), (1,), (64, 33), (1024,)]


def test_maps_of_many_tensors_are_one_launch(gpu: str, rng: np.random.Generator) -> None:
    def f(*given: Any) -> Any:
        return [x * 2 + 1 for x in given]

    arrays = [rng.standard_normal(shape).astype("f") for shape in SHAPES]
    backend: Any = backend_of(gpu)
    there, run = [mo.asarray(x, device=gpu) for x in arrays], mo.compile(f)
    before = backend.gpu.launches
    for got, want in zip(run(*there), mo.compile(f)(*map(mo.asarray, arrays)), strict=True):
        assert got.numpy().tobytes() == want.numpy().tobytes()
    assert backend.gpu.launches - before == 2  # tensors of one row and of several have kernels of their own
    assert "at once" in run.explain()


def test_a_launch_holds_what_its_parameters_can(gpu: str) -> None:
    found = steps_of(gpu, *[x + 1 for x in parameters([(5,)] * 100)])
    assert 2 <= len(found) < 10 and all(isinstance(step, GroupStep) for step in found)
    kernels: list[Any] = [step.kernel for step in found]
    assert all(isinstance(kernel, GroupSpec) and kernel.words <= MOST_WORDS for kernel in kernels)
    assert sum(kernel.count for kernel in kernels) == 100
    assert len({kernel.count for kernel in kernels}) > 1 and len({device_kernel(step) for step in found}) == 1


def test_a_chain_of_sums_keeps_its_order(gpu: str, rng: np.random.Generator) -> None:
    """Maps between reductions need what comes before them: none of them may be moved there."""
    def f(x: Any, y: Any) -> Any:
        for _ in range(3):
            x = x - mo.sum(x) / 8
            y = y - mo.sum(y) / 8
        return x, y

    given = [rng.standard_normal(40).astype("f") for _ in range(2)]
    got = mo.compile(f)(*(mo.asarray(x, device=gpu) for x in given))
    want = mo.compile(f)(*map(mo.asarray, given))
    assert [x.numpy().tobytes() for x in got] == [x.numpy().tobytes() for x in want]


@pytest.mark.parametrize("swapped", [False, True])
def test_states_that_are_swapped_are_not_written_over_each_other(native: Native, rng: np.random.Generator,
                                                                 swapped: bool) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (nn.Parameter(mo.asarray(rng.standard_normal(5000).astype("f"), device="cuda:0"))
                              for _ in range(2))

    pair = Pair()
    start = pair.a.numpy().copy(), pair.b.numpy().copy()

    def step() -> Any:
        with mo.no_grad():
            a, b = pair.a * 1.0, pair.b * 1.0
            pair.a.assign(b * 2 if swapped else a * 2)
            pair.b.assign(a * 2 if swapped else b * 2)
        return mo.sum(pair.a[:1])

    run = mo.compile(step)
    for _ in range(4):
        run()
    want = [x * 16 for x in start]
    np.testing.assert_array_equal(pair.a.numpy(), want[0])
    np.testing.assert_array_equal(pair.b.numpy(), want[1])


def test_a_step_of_adam_is_few_launches(gpu: str, rng: np.random.Generator) -> None:
    start = [rng.standard_normal(n).astype("f") for n in (30, 40, 50, 60, 70)]
    found, launches = {}, 0
    for device in ("cpu", gpu):
        own = [nn.Parameter(mo.asarray(x, device=device)) for x in start]
        optimiser = optim.AdamW(own, lr=1e-2)

        def step(own: Any = own, optimiser: Any = optimiser) -> Any:
            loss = sum((mo.sum(x * x) for x in own), mo.zeros((), device=own[0].device))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            return loss

        run = mo.compile(step)
        run()
        backend: Any = backend_of(gpu)
        launches = backend.gpu.launches
        run()
        launches = backend.gpu.launches - launches
        found[device] = [x.numpy().tobytes() for x in own]
    assert found[gpu] == found["cpu"]
    assert launches <= 12, launches
