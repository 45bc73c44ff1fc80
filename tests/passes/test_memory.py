"""The memory plan: live temporaries never overlap, the arena stays near its lower bound, reuse only where safe."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import random_program
from running import Native, by_reference, parameter

import morpho as mo
from morpho.backends.lowering.lower_graph import build_program
from morpho.base.dtypes import float32, float64
from morpho.base.target import current_target
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build
from morpho.ir.verify import verify
from morpho.ops.algebra import constant_like
from morpho.passes.memory.arena import ALIGNMENT, Lifetime, aligned, lower_bound, plan
from morpho.passes.pipeline import optimise
from morpho.program.plan_memory import plan_memory, written
from morpho.program.program import Program, Step

LIFETIMES = st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 20), st.integers(0, 8)), min_size=1, max_size=25)


@given(LIFETIMES)
def test_live_temporaries_do_not_overlap(drawn: list[tuple[int, int, int]]) -> None:
    lifetimes = [Lifetime(nbytes, first, first + extra) for nbytes, first, extra in drawn]
    found = plan(lifetimes)
    assert found.bound == lower_bound(lifetimes) <= found.total
    for i, (a, start) in enumerate(zip(lifetimes, found.offsets)):
        assert start % ALIGNMENT == 0 and start + a.nbytes <= found.total
        for b, other in zip(lifetimes[:i], found.offsets):
            if a.first <= b.last and b.first <= a.last:
                assert start + a.nbytes <= other or other + b.nbytes <= start


def planned(seed: int, level: int = 3) -> Program:
    """The program of a seed with many intermediate values in memory: views and moves between kernels."""
    outputs = random_program(seed, steps=25).static(5)
    graph, _ = optimise(Graph(outputs), level)
    verify(graph)
    inputs = max((node["index"] + 1 for node in graph.parameters), default=0)
    program = build_program(graph, True, inputs, current_target())
    plan_memory(program, reuse=level > 0)
    return program


def test_the_arena_is_near_its_lower_bound(session_seed: int) -> None:
    """At most 1.10 times the most bytes alive at once, on graphs of 25 operations; the worst is printed."""
    worst, total, bound = 1.0, 0, 0
    for number in range(150):
        program = planned(session_seed + number)
        total, bound = total + program.arena_bytes, bound + program.liveness_bytes
        if program.liveness_bytes:
            worst = max(worst, program.arena_bytes / program.liveness_bytes)
    print(f"worst arena {worst:.3f} of its bound, all together {total / max(bound, 1):.3f}")
    assert total <= 1.05 * bound and worst <= 1.10


@pytest.mark.parametrize("level", [0, 3])
def test_no_step_writes_over_what_is_still_read(level: int, session_seed: int) -> None:
    """Walk the steps: whatever a slot holds must still be there when a later step reads it."""
    for number in range(150):
        program = planned(session_seed + number, level)
        owner: dict[int, tuple[int, int, int]] = {}  # slot -> its bytes in the arena and the step that wrote it
        for position, step in enumerate(program.steps):
            written_slots = {place.slot for place in written(step)}
            # A GEMV with an epilogue reads what it wrote before.
            reads_own = isinstance(step, Step) and step.kernel.role == "gemv"
            first = {place.slot for place in step.reads} & written_slots if reads_own else set()
            for place in step.reads:
                slot = program.slots[place.slot]
                if slot.kind == "temporary" and slot.nbytes and place.slot not in first:
                    assert place.slot in owner, (session_seed + number, position)
            for index in (*first, *(written_slots - first)):
                slot = program.slots[index]
                if slot.kind != "temporary":
                    continue
                begin, end = slot.offset, slot.offset + slot.nbytes
                for other, (start, stop, _) in list(owner.items()):
                    if other != index and start < end and begin < stop:
                        reads_here = {place.slot for place in step.reads}
                        in_place = isinstance(step, Step) and step.in_place and start == begin
                        assert other not in reads_here or in_place, (session_seed + number, position)
                        del owner[other]
                owner[index] = (begin, end, position)


def test_a_result_written_in_parts_does_not_take_an_input_s_memory() -> None:
    """`update` copies its base, then its region: the region's value must survive the first copy (found by fuzzing)."""
    x = parameter(0, (7, 1), float64)
    node = build("cumulative_prod", build("update", x, build("negative", x), starts=(0, 0), sizes=(7, 1),
                                          steps=(1, -1)), axis=1)
    value = np.arange(1.0, 8.0).reshape(7, 1)
    assert Native([node])([value])[0].tolist() == (-value).tolist()
    joined = build("exp", build("concatenate", build("exp", x), build("negative", x), axis=1))
    assert np.allclose(Native([joined])([value])[0], by_reference([joined], [value])[0])


def test_chains_between_moves_are_written_in_place() -> None:
    """A long line of kernels needs the memory of two, not of ten."""
    node: Node = parameter(0, (1000,), float32)
    for _ in range(10):
        node = build("cumulative_sum", build("multiply", node, constant_like(node, 0.5)), axis=0)
    program = Native([node]).program
    assert program.kernels == 20
    assert program.arena_bytes <= 2 * aligned(4000)


def test_no_reuse_at_level_zero() -> None:
    x = parameter(0, (1000,), float32)
    node = build("exp", build("negative", build("exp", x)))
    with mo.settings(level=0):
        assert Native([node]).program.reused_bytes == 0
    with mo.settings(level=3, passes_off="fuse"):
        program = Native([node]).program
    assert program.reused_bytes > 0


def test_without_a_plan_no_two_values_share_memory() -> None:
    node: Node = parameter(0, (1000,), float32)
    for _ in range(3):
        node = build("cumulative_sum", build("multiply", node, constant_like(node, 0.5)), axis=0)
    planned = Native([node])
    with mo.settings(passes_off="memory"):
        apart = Native([node])
    assert apart.program.arena_bytes == 5 * aligned(4000) and apart.program.reused_bytes == 0
    assert apart.program.liveness_bytes >= planned.program.liveness_bytes
    value = np.linspace(-1, 1, 1000, dtype="f")
    np.testing.assert_array_equal(apart([value])[0], planned([value])[0])


def test_slopes_of_a_cross_entropy_take_the_place_of_the_logits(rng: np.random.Generator) -> None:
    """Its kernel checks the classes but reads nothing by them, so what it writes may lie over what it reads."""
    h, w = (mo.asarray(rng.normal(size=shape).astype("f"), copy=True) for shape in ((64, 8), (8, 1000)))
    classes = mo.asarray(rng.integers(0, 1000, 64))

    def loss(h: mo.Tensor) -> mo.Tensor:
        return mo.cross_entropy(h @ w, classes)

    step = mo.compile(mo.value_and_grad(loss))
    value, slope = step(h)
    logits = 64 * 1000 * 4
    assert logits <= step.stats["arena_bytes"] < 1.5 * logits
    x, p = h.numpy().astype(np.float64), w.numpy().astype(np.float64)
    shares = np.exp(x @ p)
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(64), classes.numpy()] -= 1
    np.testing.assert_allclose(slope.numpy(), shares @ p.T / 64, rtol=1e-4, atol=1e-6)
    assert value.item() == pytest.approx(mo.cross_entropy(h @ w, classes).item())
