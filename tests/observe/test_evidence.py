"""What figures of a profile are made of: threads that came in time, whole cache lines, calls that never fall."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.driver.timed_code import KIND_BITS, Kind
from morpho.observe.record.totals import Sum, Totals
from morpho.program.program import Step
from morpho.runtime.trace.rings import Batch

STEP, KERNEL = 1000, 2000  # addresses


def event(start: int, end: int, pointer: int, kind: Kind, number: int = 0) -> list[int]:
    return [start, end, pointer, (number << KIND_BITS) | kind]


def test_only_helpers_that_came_in_time_say_how_work_was_divided() -> None:
    """Calls of 100 ticks: one that nobody helps, one whose helper comes late, two whose helper is done early."""
    caller, helper = [], []
    for at, (came, left) in enumerate([(0, 0), (90, 100), (5, 30), (10, 40)]):
        start = 1000 * at
        caller += [event(start + 1, start + 100, KERNEL, Kind.WORK), event(start, start + 100, STEP, Kind.STEP)]
        helper += [event(start + came, start + left, KERNEL, Kind.WORK, 1)] if left else []
    totals = Totals()
    totals.add([Batch(1, np.array(caller, np.int64)), Batch(2, np.array(helper, np.int64))])
    found = totals.steps[1, STEP]
    assert (found.calls, found.helped) == (4, 2) and found.sure_tail == pytest.approx(0.6)


def test_neither_one_even_call_nor_disturbed_ones_say_how_work_was_divided() -> None:
    """A helper that another process held up ends with the long part of the caller, by accident; and one that loses its
    core in the midst is waited for, in a call that takes longer for it."""
    uneven, even, disturbed = (100, 0.9), (300, 0.0), (300, 0.8)
    assert Sum(tails=[uneven] * 19 + [even]).sure_tail == 0.9
    assert Sum(tails=[(100, 0.0)] * 4 + [(100, 0.9)] * 16).sure_tail == 0.0
    assert Sum(tails=[(100, 0.1)] * 6 + [disturbed] * 14).sure_tail == 0.1
    assert Sum(tails=[(90, 0.05)] * 2 + [disturbed] * 20).sure_tail == 0.8 and Sum().sure_tail == 0.0


def test_rows_that_nobody_divides_are_counted() -> None:
    found = []
    for function, shape in ((lambda x: mo.cumulative_sum(x, axis=1), (3, 100_000)), (lambda x: mo.exp(x), (3, 100_000)),
                            (lambda x: x @ x.T, (3, 300))):
        f, x = mo.compile(function), mo.ones(shape)
        f(x)
        with mo.profile() as p:
            f(x)
        found.append(p.trace.ops[0].parts)
    assert found == [3, 0, 0]


def test_functions_are_told_apart_by_what_they_compute() -> None:
    """Of one line: the same with another number or another length, another formula, another width of what it holds."""
    def program(f: Any, n: int = 100, rows: int = 5) -> str:
        held = mo.ones((rows, 1)).realise()
        made = mo.compile(lambda x: f(x) * held)
        with mo.profile(memory=False) as p:
            made(mo.ones((1, n)))
        (span,) = [span for span in p.trace.spans if span.kind == "trace"]
        return str(span.detail["program"])

    first = program(lambda x: mo.sin(x * 3.5))
    assert program(lambda x: mo.sin(x * 2.5)) == first == program(lambda x: mo.sin(x * 3.5), n=150)
    assert len({first, program(lambda x: mo.cos(x * 3.5)), program(lambda x: mo.sin(x * 3.5), rows=7)}) == 3


def test_first_values_of_states_are_no_programs_of_a_loop() -> None:
    def compiled() -> list[bool]:
        return [span.detail["first"] for span in p.trace.spans if span.kind == "compile"]

    with mo.profile(memory=False) as p:
        _ = mo.State(mo.ones((17, 3)) * 1.25 + 2)
    assert compiled() == [True]
    with mo.profile(memory=False) as p:
        _ = (mo.ones((18, 3)) * 1.25 + 2).realise()
    assert compiled() and not any(compiled())  # a program for each operation, the first times


def steps(function: object, *arguments: object) -> list[Step]:
    compiled = mo.compile(function)
    compiled(*arguments)
    return [step for step in compiled.current.plan.program.steps if isinstance(step, Step)]


def test_bytes_are_whole_lines_where_elements_lie_apart() -> None:
    table = mo.ones((8192, 32))
    (first, *_) = steps(lambda t: mo.exp(t[:, 3]), table)
    traffic = first.traffic_at(int)
    assert traffic.bytes == pytest.approx(8192 * (64 + 4), rel=0.01) and first.cost.bytes == 8192 * 8
    assert first.lies_apart() and traffic.flops == first.cost.flops
    (whole, *_) = steps(lambda t: mo.exp(t), table)
    assert whole.traffic_at(int).bytes == whole.cost.bytes and not whole.lies_apart()
    (several, *_) = steps(lambda t: t[:, 0] + t[:, 1] * t[:, 2], table)  # of the same lines
    assert several.traffic_at(int).bytes <= 8192 * (32 * 4 + 4) + 64


@pytest.mark.parametrize(("function", "across"), [
    (lambda x: x.T + 1, True), (lambda x: x + x.T, True), (lambda x: (x.T + 1).reshape(-1)[::2].sum(), True),
    (lambda x: x + 1, False), (lambda x: x.sum(axis=0), False), (lambda x: x + x[:, :1], False),
    (lambda x: x[::-1] * 2, False), (lambda x: x[:, :8].T + 1, True)])
def test_a_step_that_reads_across_rows(function: Callable[..., mo.Tensor], across: bool) -> None:
    assert steps(function, mo.ones((96, 96)))[0].reads_across() is across


def test_rows_know_what_functions_take_and_give() -> None:
    x, f = mo.ones((64, 32)), mo.compile(lambda x: (x.T + 1, x.sum()))
    f(x)
    with mo.profile() as found:
        f(x)
    (row, *_) = [row for row in found.trace.ops if row.program != "eager"]
    assert (row.takes, row.gives) == ("float32 2048", "float32 2048")  # a sum is no array to keep in a register


def test_the_second_half_of_a_long_sum_reads_its_blocks_alone() -> None:
    *_, join = steps(lambda t: mo.sum(t), mo.ones(1 << 20))
    assert join.label.endswith("(join)") and join.traffic_at(int).bytes < 1 << 14 < join.cost.bytes


def test_calls_do_not_fall_when_functions_go() -> None:
    gone = [mo.compile(lambda x, n=n: x + n) for n in range(3)]
    kept, x = mo.compile(lambda x: x * 2), mo.ones(8)
    for f in (*gone, kept):
        for _ in range(5):
            f(x)
    with mo.profile() as p:
        for _ in range(10):
            kept(x)
        del f
        gone.clear()
        gc.collect()
    counted = p.trace.counters
    assert counted["native_calls"] + counted["slow_calls"] == 10 and counted["compiled_functions"] == 0


def test_single_operations_of_lazy_tensors_are_no_functions_of_the_user() -> None:
    x = mo.ones((64, 64)).realise()
    for _ in range(8):
        y = (x * 2.5).realise()
    with mo.profile() as p:
        for _ in range(10):
            y = (x * 2.5).realise()
    assert y.shape == (64, 64) and {row.program for row in p.trace.ops} == {"eager"}
    assert p.trace.counters["native_calls"] == 0 and p.trace.counters["realisations"] == 10
