"""Co-scheduling: counted, with the bits of one kernel after another, faults in their order, memory kept apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from callers import together
from checks import same
from hypothesis import given
from hypothesis import strategies as st
from programs import random_program
from running import Native

import morpho as mo
from morpho.base.dims import Dim
from morpho.base.dtypes import float32
from morpho.base.errors import ArgumentError, IndexFault
from morpho.cost.dispatch_thresholds import DEFAULT
from morpho.program import co_schedule
from morpho.program.co_schedule import is_sound
from morpho.program.kernel import Kernel
from morpho.program.program import Program, Slot, Step
from morpho.program.view import View
from morpho.runtime import thresholds

SIZE = (60, 300)  # softmax of it is too little work for two threads, of four such is enough


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every two steps that can run at the same time do, however small they are."""
    monkeypatch.setattr(co_schedule, "WORTH", -math.inf)
    monkeypatch.setattr(co_schedule, "LEAST_SHARE", 0.0)
    with mo.settings(cache=False):  # plans on disk were made for other thresholds
        yield


def tensors(rng: np.random.Generator, count: int, shape: tuple[int, ...] = SIZE) -> list[mo.Tensor]:
    return [mo.asarray(rng.standard_normal(shape).astype(np.float32), copy=True) for _ in range(count)]


def everywhere(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The compiled function co-scheduled on 2 and 3 threads, then on 2 one by one and on 1; equal bits."""
    made, bits = [], []
    for threads, concurrent in ((2, True), (3, True), (2, False), (1, True)):
        with mo.settings(threads=threads, co_schedule=concurrent):
            f = mo.compile(function)
            for _ in range(2):
                found = f(*arguments)
                bits.append([y.numpy().tobytes() for y in (found if isinstance(found, tuple) else (found,))])
            made.append((f, f.stats["co_scheduled_launches"]))
    assert all(one == bits[0] for one in bits)
    assert made[2][1] == made[3][1] == 0
    return made[:2]


def softmaxes(a: mo.Tensor, b: mo.Tensor, c: mo.Tensor, d: mo.Tensor) -> tuple[mo.Tensor, ...]:
    return tuple(mo.softmax(x * 2, axis=-1).max(axis=0) for x in (a, b[:50], c, d[:, :200]))


def test_independent_kernels_are_one_launch(rng: np.random.Generator) -> None:
    arguments = tensors(rng, 4)
    for f, launches in everywhere(softmaxes, *arguments):
        assert launches == 2  # once for each call: the sums alone are too small
        text = f.explain()
        assert "co-scheduled with the next 3" in text and f.stats["kernels"] == 8
        steps = f.current.plan.program.steps
        assert [step.together for step in steps] == [4, 0, 0, 0, 1, 1, 1, 1]


def test_the_native_entry_co_schedules(rng: np.random.Generator) -> None:
    arguments = tensors(rng, 4)
    with mo.settings(threads=2):
        f = mo.compile(softmaxes)
        for _ in range(5):
            f(*arguments)
        assert f.stats["native_calls"] >= 3 and f.stats["co_scheduled_launches"] == 5
        pool = f.current.plan.native_code.workers
        before, pieces = pool.runs, sum(pool.pieces)
        f(*arguments)
        assert pool.runs == before + 1 and sum(pool.pieces) - pieces >= 4


def test_products_run_together(rng: np.random.Generator) -> None:
    x, *weights = tensors(rng, 5, (48, 48))

    def function(x: mo.Tensor, *weights: mo.Tensor) -> tuple[mo.Tensor, ...]:
        return tuple(mo.relu(x @ w) for w in weights)

    with thresholds.using(DEFAULT):  # with wide vectors more products would have to come together
        found = everywhere(function, x, *weights)
    for f, launches in found:
        assert launches == 2
        group = [n for n, _ in co_schedule.groups(f.current.plan.program.steps)]
        assert len(group) == 1


def test_what_cannot_be_divided_runs_beside_others(rng: np.random.Generator) -> None:
    """One row cannot be shared; four of them can."""
    rows = tensors(rng, 4, (1, 40_000))
    for _, launches in everywhere(lambda *xs: tuple(mo.cumulative_sum(mo.softmax(x), axis=1) for x in xs), *rows):
        assert launches >= 2


@pytest.mark.parametrize(("function", "shape"), [
    (lambda a, b, c, d: mo.softmax(mo.softmax(a).T), SIZE),  # each needs the one before
    (lambda a, b, c, d: (a + 1, b.sum(axis=1), c * 2, d.max(axis=1)), (8, 8)),  # too little together
    (lambda a, b, c, d: tuple(mo.softmax(x, axis=-1).max(axis=0) for x in (a, b, c, d)), (700, 700)),  # each is shared
    (lambda a, b, c, d: tuple(mo.matmul(a, x, algorithm="kernel") for x in (b, c, d)), (40, 40)),  # on one thread
], ids=["dependent", "small", "large", "kernel"])
def test_others_are_left_alone(rng: np.random.Generator, function: Callable[..., Any], shape: tuple[int, int]) -> None:
    for _, launches in everywhere(function, *tensors(rng, 4, shape)):
        assert launches == 0


def test_a_budget_of_memory_comes_first(rng: np.random.Generator) -> None:
    with mo.settings(threads=2):
        f = mo.compile(softmaxes, memory_budget=1.0)
        f(*tensors(rng, 4))
        assert f.stats["co_scheduled_launches"] == 0


def test_so_do_checkpoints(rng: np.random.Generator, eager: None) -> None:
    def block(x: mo.Tensor) -> mo.Tensor:
        return mo.softmax(x, axis=-1) @ x

    def loss(x: mo.Tensor, kept: bool) -> mo.Tensor:
        parts = [block(x * n) if kept else mo.checkpoint(block, x * n) for n in (1, 2, 3)]
        return parts[0].sum() + parts[1].sum() + parts[2].sum()

    launches, bits = [], []
    (x,) = tensors(rng, 1, (12, 12))
    with mo.settings(threads=2):
        for kept in (True, False):
            f = mo.compile(mo.grad(lambda x, kept=kept: loss(x, kept)))
            bits.append(f(x).numpy().tobytes())
            launches.append(f.stats["co_scheduled_launches"])
    assert launches[0] > 0 and launches[1] == 0 and bits[0] == bits[1]


def test_measuring_takes_steps_one_by_one(rng: np.random.Generator) -> None:
    with mo.settings(threads=2):
        f = mo.compile(softmaxes)
        times = f.measure(*tensors(rng, 4), repeats=2)
        assert len(times["measured_s"]) == 8 and all(second > 0 for second in times["measured_s"])
        assert f.stats["co_scheduled_launches"] == 1  # of the call before


# -- faults ------------------------------------------------------------------------------------------------------------
def lookups(table: mo.Tensor, i: mo.Tensor, j: mo.Tensor, k: mo.Tensor) -> tuple[mo.Tensor, ...]:
    first = mo.embedding(table, i)
    second = mo.embedding(table, j)
    third = mo.embedding(table, k)
    return tuple(mo.cumulative_sum(x, axis=1) for x in (first, second, third))


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_fault_is_that_of_its_kernel(rng: np.random.Generator, eager: None, bad: int) -> None:
    (table,) = tensors(rng, 1, (50, 200))
    indices = [mo.asarray(rng.integers(0, 50, 64).astype(np.int32), copy=True) for _ in range(3)]
    with mo.settings(threads=2):
        f = mo.compile(lookups)
        expected = [y.numpy().tobytes() for y in f(table, *indices)]
        steps = f.current.plan.program.steps
        assert any(sum(step.may_fault for step in group) == 3 for _, group in co_schedule.groups(steps))
        wrong = list(indices)
        wrong[bad] = mo.asarray(np.where(np.arange(64) == 63, 50, 0).astype(np.int32))
        targets = tuple(mo.full((64, 200), 7.0).realise() for _ in range(3))
        for call in (lambda: f(table, *wrong), lambda: f(table, *wrong, out=targets)):
            for _ in range(2):  # through Python, and by the native entry
                with pytest.raises(IndexFault, match=r"out of range.*test_co_schedule\.py:\d+") as caught:
                    call()
                line = int(str(caught.value).split("test_co_schedule.py:")[1].split(".")[0])
                assert line == lookups.__code__.co_firstlineno + 1 + bad
        assert all((target.numpy() == 7).all() for target in targets)
        assert [y.numpy().tobytes() for y in f(table, *indices)] == expected


def test_the_first_of_several_faults_is_told(rng: np.random.Generator, eager: None) -> None:
    (table,) = tensors(rng, 1, (50, 200))
    good, wrong = (mo.asarray(np.full(64, n, np.int32), copy=True) for n in (3, 99))
    with mo.settings(threads=2):
        f = mo.compile(lookups)
        f(table, good, good, good)
        with pytest.raises(IndexFault) as caught:
            f(table, good, wrong, wrong)
        assert f"test_co_schedule.py:{lookups.__code__.co_firstlineno + 2}." in str(caught.value)


# -- memory ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(9,), (40, 300)])
def test_states_in_place(rng: np.random.Generator, eager: None, shape: tuple[int, ...]) -> None:
    """Each is written over its old value, which the others read: they must not run at the same time."""
    start = [rng.standard_normal(shape).astype(np.float32) for _ in range(3)]
    found = []
    for concurrent in (True, False):
        with mo.settings(threads=2, co_schedule=concurrent):
            a, b, c = (mo.State(mo.asarray(value)) for value in start)

            @mo.compile
            def step(x: mo.Tensor, a: mo.State = a, b: mo.State = b, c: mo.State = c) -> mo.Tensor:
                old = a.value
                a.value = mo.exp(b.value * 0.1) + x
                b.value = mo.tanh(c.value) + x.sum()
                c.value = old * 0.5 + mo.maximum(c.value, x)
                return old + 1

            bits = [step(mo.full(shape, 0.1 * n)).numpy().tobytes() for n in range(4)]
            found.append([*bits, *(s.value.numpy().tobytes() for s in (a, b, c))])
            programs = step.current.plan.program
            assert co_schedule.is_sound(programs)
    assert found[0] == found[1]


def test_updates_of_many_states_are_one_launch(rng: np.random.Generator) -> None:
    slots = [mo.State(x) for x in tensors(rng, 6, (150, 100))]

    def update(x: mo.Tensor) -> None:
        for n, slot in enumerate(slots):
            slot.value = mo.tanh(slot.value) * x + n

    x = mo.full((150, 100), 0.5)
    expected = [np.tanh(slot.value.numpy()) * 0.5 + n for n, slot in enumerate(slots)]
    with mo.settings(threads=2):
        f = mo.compile(update)
        f(x)
        assert f.stats["co_scheduled_launches"] >= 1
    for slot, wanted in zip(slots, expected, strict=True):
        np.testing.assert_allclose(slot.value.numpy(), wanted, rtol=1e-5)


def test_an_argument_as_target(rng: np.random.Generator, eager: None) -> None:
    """`out=` may be an argument; what reads it must be over first."""
    def function(x: mo.Tensor, y: mo.Tensor) -> mo.Tensor:
        return mo.concat([mo.cumulative_sum(y, axis=0)[:30] + mo.cumulative_sum(x, axis=1)[30:], x[:30] * 2 + y[:30]])

    x, y = (rng.standard_normal(SIZE).astype(np.float32) for _ in range(2))
    found = []
    for concurrent in (True, False):
        with mo.settings(threads=2, co_schedule=concurrent):
            f = mo.compile(function)
            for position in (0, 1, 0):
                arguments = [mo.asarray(value, copy=True) for value in (x, y)]
                found.append((position, f(*arguments, out=arguments[position]).numpy().tobytes()))
    assert len({bits for _, bits in found}) == 1


def test_conflicting_steps_are_not_sound(rng: np.random.Generator) -> None:
    with mo.settings(threads=2, co_schedule=False):
        f = mo.compile(lambda x: mo.softmax(mo.softmax(x, axis=0).T, axis=0))
        f(*tensors(rng, 1))
    program = f.current.plan.program
    first, second = program.steps[:2]
    assert co_schedule.is_sound(program)
    for marks, sound in (((2, 0), False), ((2, 1), False), ((1, 0), False), ((0, 1), False), ((9, 0), False)):
        first.together, second.together = marks
        assert co_schedule.is_sound(program) == sound
    first.together = second.together = 1


def test_a_plan_from_disk_co_schedules(rng: np.random.Generator, tmp_path: Any) -> None:
    arguments = tensors(rng, 4)
    with mo.settings(threads=2, cache_dir=str(tmp_path)):
        found = []
        for _ in range(2):
            f = mo.compile(softmaxes)
            found.append([y.numpy().tobytes() for y in f(*arguments)])
            assert f.stats["co_scheduled_launches"] == 1
        assert f.stats["cache"]["plan"] == 1 and found[0] == found[1]
        with mo.settings(co_schedule=False):
            g = mo.compile(softmaxes)
            assert [y.numpy().tobytes() for y in g(*arguments)] == found[0]
            assert g.stats["co_scheduled_launches"] == 0 and g.stats["cache"]["plan"] == 0


# -- at random ---------------------------------------------------------------------------------------------------------
def test_random_programs_have_the_same_bits(session_seed: int, eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = 0
    for number in range(96):
        if number >= 16 and launched:
            break  # few programs have steps to launch together: some seeds need more of them
        monkeypatch.setattr(co_schedule, "LEAST_SHARE", (0.0, 1e-4, 1e-3)[number % 3])  # smaller steps move ahead
        program = random_program(session_seed + 23 * number, rowwise=number % 2 == 0, native=number % 3 > 0)
        n = 1 + number % 7
        arrays, static = program.inputs(n), program.static(n)
        found = []
        for threads, concurrent in ((1, True), (2, True), (3, True)):
            with mo.settings(threads=threads, co_schedule=concurrent):
                native = Native(static)
                found.append(native(arrays))
                assert co_schedule.is_sound(native.plan.program)
                launched += native.plan.native_code.co_scheduled_launches
        for one in found[1:]:
            same(one, found[0], static, f"co-scheduled and one by one, seed {program.seed}")
    assert launched > 0


def test_several_callers(rng: np.random.Generator) -> None:
    arguments = tensors(rng, 4)
    with mo.settings(threads=2):
        f = mo.compile(softmaxes)
        expected = [y.numpy().tobytes() for y in f(*arguments)]

    def work(_: int) -> None:
        with mo.settings(threads=2):
            for _ in range(5):
                assert [y.numpy().tobytes() for y in f(*arguments)] == expected

    together(work, 3)


class OfThree(Kernel):
    """A kernel of three operations per column."""

    flops = 3


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 20_000), st.booleans()), min_size=1, max_size=6),
       st.integers(2, 9))
def test_pieces_cover_every_element_once(shapes: list[tuple[int, int, bool]], threads: int) -> None:
    group = [Step(OfThree(), (), (), (), rows, columns, "", "", splits_columns=splits)
             for rows, columns, splits in shapes]
    found = co_schedule.pieces(group, threads, DEFAULT)
    for number, (rows, columns, splits) in enumerate(shapes):
        mine = sorted(piece[1:] for piece in found if piece[0] == number)
        across = splits and rows < threads * co_schedule.CHUNKS_PER_THREAD
        starts, ends = ([piece[i] for piece in mine] for i in ((2, 3) if across else (0, 1)))
        assert starts == [0, *ends[:-1]] and ends[-1] == (columns if across else rows)
        others = {piece[:2] if across else piece[2:] for piece in mine}
        assert others == {(0, rows if across else columns)}


def test_bad_values_are_errors() -> None:
    with pytest.raises(ArgumentError, match="co_schedule='yes' is not of type bool"), mo.settings(co_schedule="yes"):
        pass
    with pytest.raises(ArgumentError, match="'joint' is named 'co_schedule' now"), mo.settings(joint=False):
        pass


def test_dynamic_places_end_with_their_slots() -> None:
    """A plan from disk whose places have sizes that change is not taken for one whose steps meet (found by a user)."""
    program = Program(slots=[Slot("temporary", float32, 16, offset=64 * i) for i in range(2)])
    n = Dim("n", 1, 16)
    places = [View(slot, 0, (n,), (1,), float32) for slot in range(2)]
    program.steps = [Step(OfThree(), (places[slot],), (0,), (), 1, 1, "", "", together=2 - 2 * slot)
                     for slot in range(2)]
    assert is_sound(program)
    program.slots[1].offset = 32
    assert not is_sound(program)
