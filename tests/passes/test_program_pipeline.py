"""The passes over a lowered program: legal after each, and what is illegal is named."""

from __future__ import annotations

import numpy as np
import pytest
from programs import random_program
from running import Native

import morpho as mo
import morpho.ops
from morpho.base.dtypes import float32
from morpho.ir.graph import Graph
from morpho.ir.node import build
from morpho.passes import pipeline
from morpho.program.hoist import hoist
from morpho.program.program import Program, Slot, Step
from morpho.program.verify import IllegalProgram, verify_program
from morpho.program.view import View
from morpho.runtime.plans.evaluate import make_plan


def chain() -> Program:
    """Three kernels that hand temporaries on."""
    x = build("parameter", index=0, shape=(16, 16), dtype=float32)
    node = x
    for _ in range(3):
        node = build("matmul", node, x)
    return make_plan(Graph((node,)), True, 1).program


def test_random_programs_are_legal_after_every_pass(session_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "checking", True)
    for number in range(6):
        Native(random_program(session_seed + number, steps=20).static(5))


def test_what_is_alive_at_once_may_not_share_memory() -> None:
    program = chain()
    verify_program(program, "memory", placed=True)
    used = [slot for slot in program.slots if slot.kind == "temporary" and slot.nbytes]
    assert len(used) > 1
    for slot in used:
        slot.offset = 0
    with pytest.raises(IllegalProgram, match=r"after memory: slots .* are alive at once in the same memory"):
        verify_program(program, "memory", placed=True)


def test_what_is_read_was_written() -> None:
    program = chain()
    del program.steps[0]
    with pytest.raises(IllegalProgram, match=r"after hoist: .* which no earlier step wrote"):
        verify_program(program, "hoist")


def test_a_temporary_lies_in_the_arena() -> None:
    program = chain()
    program.arena_bytes = 8
    with pytest.raises(IllegalProgram, match="outside the arena"):
        verify_program(program, "memory", placed=True)


def step_between(source: int, target: int) -> Step:
    """A copy from slot to slot; only what it reads and writes matters here."""
    views = tuple(View(slot, 0, (4,), (1,), float32) for slot in (source, target))
    kernel = next(step for step in chain().steps if isinstance(step, Step)).kernel
    return Step(kernel, views, (1,), (), 1, 4, f"{source} to {target}", "")


def test_what_stays_keeps_its_readers_however_far_behind() -> None:
    """The last step that writes slot 2 reads slot 2 alone; what is copied on from there depends on the argument."""
    slots = [Slot("input" if index < 2 else "temporary", float32, 4, index) for index in range(8)]
    of_argument = [(0, 2), (2, 2), (2, 3), (3, 4), (4, 5)]
    of_constant = [(1, 6), (6, 6), (6, 7)]
    program = Program(slots, [step_between(*pair) for pair in (*of_argument, *of_constant)])
    hoist(program, {1})
    assert [step.label for step in program.steps] == [f"{a} to {b}" for a, b in of_argument]
    assert [step.label for step in program.prepare] == [f"{a} to {b}" for a, b in of_constant]


def test_what_is_read_between_two_writers_stays() -> None:
    """Slot 2 is made of a constant and changed in place; what an argument is put beside reads it before the change."""
    slots = [Slot("input" if index < 2 else "temporary", float32, 4, index) for index in range(5)]
    pairs = [(1, 2), (0, 3), (2, 3), (2, 2), (1, 4)]
    program = Program(slots, [step_between(*pair) for pair in pairs])
    hoist(program, {1})
    assert [step.label for step in program.steps] == [f"{a} to {b}" for a, b in pairs[:4]]
    assert [step.label for step in program.prepare] == ["1 to 4"]


def test_an_element_of_a_constant_value_that_is_written_afterwards() -> None:
    table = mo.asarray(np.arange(6, dtype=np.float32))

    @mo.compile
    def f(rows: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        turned = -table[::-1] + 0
        rows[:, 0] = turned[4]
        turned[4:0:-3] -= table[5:1:-3]
        return rows, turned

    rows, turned = f(mo.ones((3, 6)))
    np.testing.assert_array_equal(rows.numpy()[:, 0], [-1, -1, -1])
    np.testing.assert_array_equal(turned.numpy(), [-5, -6, -3, -2, -6, 0])
