"""`remat_barrier`, the order of steps, memory budgets: the same bits, less alive at once, and predictions that hold."""

from __future__ import annotations

import gc
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from checks import evaluate_exactly
from programs import random_program
from running import Native, equal_bits, leaf_of, parameter

import morpho as mo
from morpho.backends.lowering.lower_graph import build_program
from morpho.base.dtypes import float32
from morpho.base.errors import ArgumentError, MemoryLimit
from morpho.base.target import current_target
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build
from morpho.ir.verify import verify
from morpho.ops.algebra import add, expand, mul, reduce
from morpho.ops.order import mark, remat_barrier, unmarked
from morpho.passes import pipeline
from morpho.passes.memory.liveness import Steps, checked_indices
from morpho.passes.memory.schedule import schedule
from morpho.passes.pipeline import optimise
from morpho.passes.remat.bodies import without_unread
from morpho.passes.remat.recompute import Recomputation
from morpho.passes.remat.remat import Budget, Recomputed
from morpho.passes.simplify import simplify
from morpho.program.plan_memory import plan_memory, written
from morpho.program.program import Program
from morpho.runtime.plans.evaluate import make_plan
from morpho.tensor.autodiff.gradient import pull_back
from morpho.tensor.core import Tensor

ROWS, WIDTH, LAYERS = 64, 32, 6


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """The tiles of many threads would outweigh these small models."""
    with mo.settings(threads=2):
        yield


# -- again -------------------------------------------------------------------------------------------------------------
def lowered(*outputs: Node, level: int = 3, off: str = "") -> Program:
    graph, _ = optimise(Graph(outputs), level, off)
    verify(graph)
    program = build_program(graph, True, 3, current_target())
    plan_memory(program)
    return program


def test_again_is_another_value_in_the_same_memory() -> None:
    x, y = parameter(0, (8, 16), float32), parameter(1, (8, 16), float32)
    once = build("exp", x)
    total = expand(reduce("sum", mul(once, y), (0, 1)), x.shape)
    for level in range(4):
        program = lowered(mul(build("exp", remat_barrier(x, total)), total), level=level)
        labels = [step.label for step in program.steps]
        assert sum("exp" in label for label in labels) == 2 and not any("copy" in label for label in labels), labels
        assert program.copies == 0
        writers = {place.slot: n for n, step in enumerate(program.steps) for place in written(step)}
        second = max(n for n, label in enumerate(labels) if "exp" in label)
        assert all(writers[place.slot] < second for place in program.steps[second].reads if place.slot in writers)
        single = lowered(mul(once, total), level=level)
        assert sum("exp" in step.label for step in single.steps) == 1


def test_again_of_numbers_and_of_itself() -> None:
    x = parameter(0, (4,), float32)
    seven = expand(build("constant", value=7.0, dtype=float32), (4,))
    assert remat_barrier(seven, x) is seven
    assert simplify(Graph((build("remat_barrier", seven, x),))).outputs == (seven,)
    assert simplify(Graph((remat_barrier(remat_barrier(x), x),))).outputs == (remat_barrier(x, x),)


def test_nothing_is_computed_for_the_order_alone() -> None:
    """A value that simplifications left to `remat_barrier` is not computed, and one in a kernel is not stored."""
    x, y = parameter(0, (32,), float32), parameter(1, (32,), float32)
    left = build("cast", build("cast", y, dtype=mo.float64), dtype=float32)
    program = lowered(build("exp", remat_barrier(x, build("cast", y, dtype=mo.float64))), add(left, x))
    assert len(program.steps) == 2 and not any("cast" in step.label for step in program.steps)
    inner = build("exp", y)
    program = lowered(build("sin", inner), build("cos", remat_barrier(x, inner)))
    assert [len(written(step)) for step in program.steps] == [1, 1]


def test_a_product_is_still_one_kernel_with_what_follows() -> None:
    a, b, x = parameter(0, (64, 8), float32), parameter(1, (8, 64), float32), parameter(2, (64, 64), float32)
    product = build("matmul", a, b)
    program = lowered(build("sin", mul(product, build("exp", remat_barrier(x, product)))))
    assert [step.label.startswith("matmul+") for step in program.steps if "matmul" in step.label] == [True]


def test_marks_are_gone_before_the_passes() -> None:
    x = parameter(0, (4,), float32)
    marked = mark([build("exp", x), build("sin", x)], [x])
    graph, became = unmarked(Graph((add(*marked), marked[1])))
    assert not any(node.op.name in ("checkpoint", "pick") for node in graph.nodes)
    assert became[marked[1].serial] is build("sin", x)


# -- the order of steps ------------------------------------------------------------------------------------------------
def chain(layers: int = LAYERS, rows: int = ROWS, width: int = WIDTH) -> Graph:
    """Updates of the weights of a deep chain, first layer first."""
    x = Tensor.of_node(parameter(0, (rows, width), float32))
    weights = [Tensor.of_node(parameter(1 + i, (width, width), float32)) for i in range(layers)]
    for w in weights:
        x = mo.exp(x @ w)
    found = pull_back([x.sum().node], [build("constant", value=1.0, dtype=float32)], [w.node for w in weights])
    return Graph(tuple((w - 0.1 * Tensor.of_node(node)).node for w, node in zip(weights, found, strict=True)))


def test_updates_come_as_soon_as_they_can() -> None:
    """Read backwards from the first weight's update, every gradient would be alive until the end."""
    given, _ = optimise(chain(), 3, "schedule")
    ordered, report = optimise(chain(), 3)
    assert report.passes["schedule"]["ms"] > 0 and ordered.outputs == given.outputs
    peaks = [Steps(graph).peak(range(len(Steps(graph).nodes))) for graph in (given, ordered)]
    assert peaks[1] <= 0.75 * peaks[0], peaks
    again_ordered, _ = optimise(chain(), 3)
    assert again_ordered.nodes == ordered.nodes


def test_never_worse_than_the_order_given(session_seed: int) -> None:
    better = 0
    for number in range(150):
        graph, _ = optimise(Graph(random_program(session_seed + number, steps=25).static(5)), 3, "schedule")
        found = schedule(graph)
        verify(found, "schedule")
        steps, new = Steps(graph), Steps(found)
        before, after = (s.peak(range(len(s.nodes))) for s in (steps, new))
        assert after <= before, session_seed + number
        better += after < before
        assert sorted(node.serial for node in new.nodes) == sorted(node.serial for node in steps.nodes)
    assert better


def test_updates_stay_in_place() -> None:
    """A state is written over after everything else has read it; indices looked at twice do not stand in the way."""
    table, weight = mo.State(mo.ones((50, 8))), mo.State(mo.ones((8, 8)) * 0.1)

    @mo.compile
    def step(ids: Tensor) -> Tensor:
        rows = mo.embedding(table.value, ids)
        value = mo.square(mo.tanh(rows @ weight.value)).sum()
        slopes = pull_back([value.node], [build("constant", value=1.0, dtype=float32)],
                           [table.value.node, weight.value.node])
        norm = sum((Tensor.of_node(node) * Tensor.of_node(node)).sum() for node in slopes)
        for state, node in zip((table, weight), slopes, strict=True):
            state.value = state.value - Tensor.of_node(node) * (0.1 / norm)
        return value

    first = step(mo.asarray([1, 3, 3])).item()
    assert step(mo.asarray([1, 3, 3])).item() < first
    assert step.stats["predicted_bytes"]["results"] <= 64, step.stats["predicted_bytes"]
    held = [state.value.numpy().tobytes() for state in (table, weight)]
    with pytest.raises(IndexError):
        step(mo.asarray([1, 3, 50]))
    assert [state.value.numpy().tobytes() for state in (table, weight)] == held


def test_what_a_step_checks() -> None:
    x, i = parameter(0, (9, 4), float32), parameter(1, (3, 4), mo.int64)
    graph, _ = optimise(Graph((mul(build("gather", x, i, axis=0), build("gather", x, i, axis=0)),)), 3)
    assert [checked_indices(node) for node in Steps(graph).nodes] == [{(i.serial, 9)}]
    assert Steps(graph).faulty() == [0]


# -- budgets -----------------------------------------------------------------------------------------------------------
def network(rng: np.random.Generator) -> tuple[Any, list[Any]]:
    """A training step with norms, gelu, biases and dropout; its arguments."""

    def step(weights: list[dict[str, Tensor]], x: Tensor, key: Tensor) -> list[Tensor]:
        h = x
        for number, p in enumerate(weights):
            inner = mo.gelu(mo.layer_norm(h) @ p["up"] + p["bias"]) @ p["down"]
            kept = mo.random.bernoulli(mo.random.split(key, len(weights))[number], 0.8, inner.shape)
            h = h + mo.where(kept, inner, 0.0)
        value = mo.mean(h * h)
        leaves = [leaf for p in weights for leaf in p.values()]
        found = pull_back([value.node], [build("constant", value=1.0, dtype=float32)], [leaf.node for leaf in leaves])
        return [value, *[leaf - 0.1 * Tensor.of_node(node) for leaf, node in zip(leaves, found, strict=True)]]

    def draw(*shape: int) -> Tensor:
        return mo.asarray(rng.normal(0, 0.3, shape).astype(np.float32), copy=True)

    weights = [{"up": draw(WIDTH, 64), "bias": draw(64), "down": draw(64, WIDTH)} for _ in range(4)]
    return step, [weights, draw(4 * ROWS, WIDTH), mo.random.key(5)]


def bits(tensors: list[Tensor]) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in tensors]


def test_budgets_from_all_to_the_least(rng: np.random.Generator) -> None:
    step, arguments = network(rng)
    mo.realise(arguments[2])
    with mo.settings(co_schedule=False):  # what runs together is alive together: not with a budget
        plain = mo.compile(step)
        wanted = bits(plain(*arguments))
        needed, arena = plain.stats["predicted_peak_bytes"], plain.stats["arena_bytes"]
        assert plain.stats["recomputed"] is None
    flops = []
    for budget in (1.0, needed - arena // 4, f"{needed - arena * 2 // 5}B"):
        thrifty = mo.compile(step, memory_budget=budget)
        assert bits(thrifty(*arguments)) == wanted, budget
        stats = thrifty.stats
        found = stats["recomputed"]
        assert stats["predicted_peak_bytes"] == found["peak_bytes"] <= found["budget_bytes"] <= needed
        assert found["plain_bytes"] == needed and (found["kernels"] != {}) == (budget != 1.0)
        assert measured(thrifty, arguments) == pytest.approx(stats["predicted_peak_bytes"], rel=0.05)
        flops.append(found["flops"])
    assert flops[0] == 0 and flops[1] < flops[-1] < plain.stats["flops"]
    text = thrifty.explain()
    assert "computed again" in text and "more time" in text and "remat" in text and "schedule" in text
    with pytest.raises(MemoryLimit, match="the least reached is") as refused:
        mo.compile(step, memory_budget=needed // 10)(*arguments)
    least = int(re.findall(r"memory_budget=(\d+)", str(refused.value))[0])
    assert needed - arena < least <= found["peak_bytes"]
    assert bits(mo.compile(step, memory_budget=least)(*arguments)) == wanted


def measured(compiled: Any, arguments: list[Any]) -> int:
    """Bytes a call holds at most, by the pool: what it takes, and its arguments."""
    gc.collect()
    kept = compiled.current.block  # between calls, for the native entry
    with mo.pool.watch() as seen:
        compiled(*arguments)
    held = kept.nbytes if kept is not None and compiled.current.block is kept else 0
    return seen.peak_bytes - seen.base_bytes + compiled.stats["predicted_bytes"]["inputs"] + held


def test_states_are_updated_in_place_under_a_budget(rng: np.random.Generator) -> None:
    """Training by states: the same bits step by step, and no second copy of them in what is predicted and seen."""
    starts = [rng.normal(0, 0.2, (WIDTH, WIDTH)).astype(np.float32) for _ in range(LAYERS)]
    x = mo.asarray(rng.normal(0, 1, (8 * ROWS, WIDTH)).astype(np.float32), copy=True)
    found = []
    for budget in (None, 0.8):
        states = [mo.State(start) for start in starts]

        def step(x: Tensor, states: list[mo.State] = states) -> Tensor:
            h = x
            for state in states:
                h = mo.tanh(h @ state.value)
            value = mo.mean(h * h)
            slopes = pull_back([value.node], [build("constant", value=1.0, dtype=float32)],
                               [state.value.node for state in states])
            norm = sum((Tensor.of_node(slope) * Tensor.of_node(slope)).sum() for slope in slopes)
            for state, slope in zip(states, slopes, strict=True):
                state.value = state.value - Tensor.of_node(slope) / mo.sqrt(norm)
            return value

        compiled = mo.compile(lambda x, step=step: step(x), memory_budget=budget)
        losses = [compiled(x).item() for _ in range(2)]
        assert compiled.stats["predicted_bytes"]["results"] <= 64
        assert measured(compiled, [x]) == pytest.approx(compiled.stats["predicted_peak_bytes"], rel=0.05)
        found.append((losses, bits([state.value for state in states])))
    assert found[0] == found[1] and compiled.stats["recomputed"]["kernels"]


def test_a_plan_with_a_budget_comes_back_from_disk(rng: np.random.Generator) -> None:
    step, arguments = network(rng)
    first, second = (mo.compile(step, memory_budget=0.95) for _ in range(2))
    assert bits(first(*arguments)) == bits(second(*arguments))
    assert second.stats["cache"]["plan"] == 1
    assert second.stats["recomputed"] == first.stats["recomputed"]
    assert second.stats["predicted_bytes"] == first.stats["predicted_bytes"]


def test_budgets_that_are_none(rng: np.random.Generator) -> None:
    for budget in (0, -5, True, 1.5, 0.0, None.__class__):
        with pytest.raises(ArgumentError, match="memory_budget"):
            mo.compile(mo.exp, memory_budget=budget)  # type: ignore[arg-type]
    step, arguments = network(rng)
    with mo.settings(passes_off="remat"), pytest.raises(MemoryLimit, match="nothing computed again"):
        mo.compile(step, memory_budget=0.9)(*arguments)


def drop_some(graph: Graph, generator: random.Random) -> tuple[Graph, int]:
    """The graph with values drawn at random computed again, at two peaks; and how many kernels were repeated."""
    copies = 0
    for _ in range(2):
        source = Recomputation(graph)
        dropped = [value for value in source.droppable if generator.random() < 0.7]
        kept = [value for value in range(len(source.writer)) if generator.random() < 0.2 and value not in dropped]
        if dropped:
            made = source.attempt(source.trial(dropped, kept))
            verify(made.graph, "remat")
            graph, copies = without_unread(made.graph), copies + len(made.copies)
            verify(graph, "remat")
    return graph, copies


class Dropping(Native):
    """A compiled graph some values of which, drawn at random, are computed again."""

    def __init__(self, outputs: tuple[Node, ...], monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        self.outputs = outputs

        def drop(graph: Graph, *rest: Any) -> tuple[Graph, Recomputed]:
            graph, self.copies = drop_some(graph, random.Random(seed))
            return graph, Recomputed(0, 0)

        monkeypatch.setattr(pipeline, "remat", drop)
        inputs = max((node["index"] + 1 for node in Graph(outputs).parameters), default=0)
        self.plan = make_plan(Graph(outputs), True, inputs, budget=Budget(1))


def test_any_values_may_be_dropped(session_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random graphs with random values computed again have the bits they had."""
    copies = 0
    for number in range(8):
        program = random_program(session_seed + number, steps=16, native=True)
        arrays, outputs = program.inputs(3), program.static(3)
        dropping = Dropping(outputs, monkeypatch, number)
        copies += dropping.copies
        if dropping.copies:
            for a, b, node in zip(dropping(arrays), Native(outputs)(arrays), outputs, strict=True):
                assert equal_bits(a, b, node.dtype), session_seed + number
    print(copies, "kernels repeated")


def test_any_values_may_be_dropped_by_the_reference(session_seed: int) -> None:
    """More of them, without compiling."""
    copies = 0
    for number in range(100):
        program = random_program(session_seed + number, steps=25)
        graph, _ = optimise(Graph(program.static(3)), (3, 2, 1, 0)[number % 4])
        graph, count = drop_some(graph, random.Random(number))
        copies += count
        if count:
            leaf = leaf_of(program.inputs(3))
            with np.errstate(all="ignore"):
                plain, _ = optimise(Graph(program.static(3)), 3)
                found, wanted = (evaluate_exactly(each.outputs, leaf) for each in (graph, plain))
            for a, b, node in zip(found, wanted, graph.outputs, strict=True):
                dtype = float32 if a.dtype == np.float32 else node.dtype
                assert equal_bits(np.asarray(a), np.asarray(b), dtype), session_seed + number
    assert copies > 20
