"""The scheduler of tasks: map and reduce."""

from __future__ import annotations

import operator
import threading
import traceback

import numpy as np
import pytest
from schedulers import LIMIT_S, divide, held

import morpho as mo
from morpho.base.errors import ArgumentError, ValueFault
from morpho.tensor.tools.tasks import Scheduler


# -- map and reduce ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("chunk", [None, 1, 7, 10**6])
def test_map(scheduler: Scheduler, chunk: int | None) -> None:
    for items in ([], [3], range(1000), (n for n in range(50)), np.arange(5)):
        expected = [n * 2 for n in (range(50) if not hasattr(items, "__len__") else items)]
        assert mo.tasks.map(lambda n: n * 2, items, chunk, scheduler=scheduler) == expected


def test_map_says_that_it_takes_one_sequence() -> None:
    with pytest.raises(ArgumentError, match=r"^\[tasks\] map takes one sequence of items.*Hint: .*zip\("):
        mo.tasks.map(pow, [1], [2])


def test_map_takes_chunks_that_suit() -> None:
    """A chunk is one item at first, grows while items are cheap, and leaves enough for the others at the end."""
    from morpho.runtime.tasks.parallel import CHUNK_S, Gather

    gather = Gather(abs, range(1000), None, 2)
    assert len(gather._take()) == 1
    gather.finished, gather.spent_s = 1, CHUNK_S / 100
    assert len(gather._take()) == 100
    gather.spent_s = CHUNK_S / 1000
    assert len(gather._take()) == (1000 - 101) // 4
    gather.finished, gather.spent_s = 1, CHUNK_S * 3
    assert len(gather._take()) == 1
    gather.next = 998
    gather.spent_s = CHUNK_S / 100
    assert len(gather._take()) == 1 and len(gather._take()) == 1 and len(gather._take()) == 0 and gather.exhausted


def test_map_spreads_uneven_items(two: Scheduler) -> None:
    """While one worker is at the costly first item, the other one does all the rest."""
    rest = threading.Semaphore(0)

    def work(n: int) -> int:
        if n:
            rest.release()
        else:
            assert all(rest.acquire(timeout=LIMIT_S) for _ in range(99))
        return threading.get_ident()

    found = mo.tasks.map(work, range(100), 1, scheduler=two)
    assert found[0] not in found[1:] and len(set(found)) == 2


def test_map_raises_what_a_loop_would(scheduler: Scheduler, seed: int) -> None:
    bad = set(np.random.default_rng(seed).integers(0, 300, 5).tolist())

    def work(n: int) -> None:
        if n in bad:
            raise ValueError(n)

    for _ in range(10):
        with pytest.raises(ValueError, match=rf"^{min(bad)}$") as caught:
            mo.tasks.map(work, range(300), scheduler=scheduler)
        assert traceback.extract_tb(caught.tb)[-1].name == "work"


def test_the_first_failure_counts_whichever_comes_first() -> None:
    from morpho.runtime.tasks.parallel import Gather

    gather = Gather(abs, range(9), 1, 2)
    for index in (5, 3, 7):
        gather._fail(index, ValueError(index))
    with pytest.raises(ValueError, match=r"^3$"):
        gather.outcome()
    assert gather.exhausted and not gather._take()


def test_map_does_not_wait_for_workers_it_does_not_need(two: Scheduler) -> None:
    gate, holder = held(two)
    assert mo.tasks.map(abs, range(-5, 0), scheduler=two) == [5, 4, 3, 2, 1]
    assert not holder.done()
    gate.set()


def test_map_inside_a_task_and_inside_a_map(scheduler: Scheduler) -> None:
    def row(n: int) -> int:
        return sum(mo.tasks.map(lambda m: n * m, range(20)))

    expected = [190 * n for n in range(20)]
    assert mo.tasks.map(row, range(20), scheduler=scheduler) == expected
    assert scheduler.submit(lambda: mo.tasks.map(row, range(20))).result(LIMIT_S) == expected


def test_reduce_is_one_tree_for_any_number_of_threads(rng: np.random.Generator) -> None:
    def expected(values: list[str]) -> str:
        while len(values) > 1:
            values = ["".join(["(", *values[i:i + 2], ")"]) if i + 1 < len(values) else values[i]
                      for i in range(0, len(values), 2)]
        return values[0]

    numbers = (rng.standard_normal(999) * 10.0 ** rng.integers(-8, 8, 999)).astype(np.float32).tolist()
    sums = set()
    for count in (1, 2, 3, 4):
        with Scheduler(count) as made:
            for length in (1, 2, 3, 7, 8, 100, 333):
                items = [chr(97 + n % 26) for n in range(length)]
                found = mo.tasks.reduce(lambda a, b: f"({a}{b})", items, scheduler=made)
                assert found == expected(items)
            sums.add(mo.tasks.reduce(lambda a, b: np.float32(a) + np.float32(b), numbers, scheduler=made).tobytes())
            mapped = mo.tasks.reduce(operator.add, range(500), 1000, map=lambda n: 2 * n, scheduler=made)
            assert mapped == 1000 + 499 * 500
    assert len(sums) == 1
    assert mo.tasks.reduce(lambda a, b: a + b, "bc", "a") == "abc"
    assert mo.tasks.reduce(operator.add, [], 3) == 3
    with pytest.raises(ValueFault, match="initial"):
        mo.tasks.reduce(operator.add, [])
    with pytest.raises(ZeroDivisionError):
        mo.tasks.reduce(divide, [1, 0, 0, 0])


def test_what_is_no_list_is_said() -> None:
    with pytest.raises(ArgumentError, match="no list of items"):
        mo.tasks.map(len, 3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="not a list of futures"):
        mo.tasks.submit(len, "ab", after=5)  # type: ignore[arg-type]
