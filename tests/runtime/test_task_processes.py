"""Tasks in other processes: results, errors, arrays in shared memory, workers that die, ranks of a group."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import task_functions as functions

import morpho as mo
from morpho.base.errors import ArgumentError, TaskError
from morpho.cluster.groups.threads import run_threads
from morpho.runtime.groups.group import Group
from morpho.runtime.tasks.processes import message


@pytest.fixture(scope="module")
def scheduler() -> Iterator[mo.tasks.Scheduler]:
    with mo.tasks.Scheduler(processes=2) as made:
        yield made


def test_tasks_run_elsewhere_and_depend_on_each_other(scheduler: mo.tasks.Scheduler) -> None:
    first = scheduler.submit(functions.square, 3)
    assert scheduler.submit(functions.add, first, b=first).result() == 18
    assert scheduler.submit(functions.process_number, 0).result() != os.getpid()
    assert scheduler.submit(functions.square, mo.asarray([2.0, 3.0])).result().numpy().tolist() == [4.0, 9.0]


def test_map_and_reduce(scheduler: mo.tasks.Scheduler) -> None:
    assert mo.tasks.map(functions.square, range(50), scheduler=scheduler) == [n * n for n in range(50)]
    assert mo.tasks.reduce(functions.add, range(100), map=functions.square, scheduler=scheduler) == 328350
    with pytest.raises(ValueError, match="no 0"):
        mo.tasks.map(functions.fail, range(4), scheduler=scheduler)


def test_arrays_lie_in_shared_memory(scheduler: mo.tasks.Scheduler) -> None:
    before = {*message.shared_folder().glob(f"morpho-{os.getpid()}-*")}
    x = np.arange(50_000, dtype=np.float64)
    assert scheduler.submit(functions.look, x).result() == (x.sum(), False)
    assert np.array_equal(scheduler.submit(functions.count_up, 60_000).result(), np.arange(60_000))
    assert {*message.shared_folder().glob(f"morpho-{os.getpid()}-*")} == before  # nothing is left behind


def test_errors_come_back_with_their_place(scheduler: mo.tasks.Scheduler) -> None:
    with pytest.raises(ValueError, match="no 7") as caught:
        scheduler.submit(functions.fail, 7).result()
    assert "task_functions.py" in "".join(caught.value.__notes__)
    with pytest.raises(ArgumentError, match="cannot go to another process"):
        scheduler.submit(lambda: 3).result()


def test_a_killed_worker_loses_no_task(scheduler: mo.tasks.Scheduler, tmp_path: Path) -> None:
    before = scheduler.stats()["processes_died"]
    lost = scheduler.submit(functions.die_once, str(tmp_path / "mark"))
    others = [scheduler.submit(functions.square, n) for n in range(10)]
    assert lost.result() == "alive" and [each.result() for each in others] == [n * n for n in range(10)]
    assert scheduler.stats()["processes_died"] == before + 1


def test_a_task_that_always_kills_its_worker() -> None:
    with mo.tasks.Scheduler(processes=1, retries=1) as scheduler, pytest.raises(TaskError, match="its process 2 times"):
        scheduler.submit(functions.die).result()


def test_workers_share_the_cores(scheduler: mo.tasks.Scheduler) -> None:
    with mo.settings(threads=0):
        assert scheduler.submit(functions.threads_in_force).result() == 1
    with mo.settings(threads=3):
        assert scheduler.submit(functions.threads_in_force).result() == 3


def test_one_way_at_a_time() -> None:
    with pytest.raises(ArgumentError, match="give one"):
        mo.tasks.Scheduler(threads=2, processes=2)
    with pytest.raises(ArgumentError, match="not a number from 1"):
        mo.tasks.Scheduler(processes=0)


def test_ranks_of_a_group_run_tasks() -> None:
    def rank(group: Group) -> object:
        if group.rank:
            return mo.tasks.serve(group)
        with mo.tasks.Scheduler(group=group) as scheduler:
            found = mo.tasks.map(functions.square, range(20), 1, scheduler=scheduler)
            with pytest.raises(ValueError, match="no 3"):
                scheduler.submit(functions.fail, 3).result()
            return found

    found = run_threads(3, rank)
    assert found[0] == [n * n for n in range(20)] and found[1] + found[2] == 21


def test_a_rank_that_dies_is_left_out() -> None:
    def rank(group: Group) -> object:
        if group.rank == 1:
            group.die()  # type: ignore[attr-defined]
            return None
        if group.rank:
            return mo.tasks.serve(group)
        with mo.tasks.Scheduler(group=group) as scheduler:
            return mo.tasks.map(functions.square, range(6), 1, scheduler=scheduler)

    assert run_threads(3, rank)[0] == [n * n for n in range(6)]


ODD = [(functions.lock, ArgumentError, "the result of lock cannot go to another process: cannot pickle"),
       (functions.unreadable, OSError, "cannot be read"), (functions.leave, SystemExit, "3")]


@pytest.mark.parametrize(("function", "kind", "said"), ODD)
def test_results_that_cannot_travel(scheduler: mo.tasks.Scheduler, function: Callable[[int], Any],
                                    kind: type[BaseException], said: str) -> None:
    died = scheduler.stats()["processes_died"]
    with pytest.raises(kind, match=said):
        scheduler.submit(function, 0).result()
    assert scheduler.submit(functions.square, 3).result() == 9 and scheduler.stats()["processes_died"] == died


def test_results_that_cannot_travel_between_ranks_cost_no_rank() -> None:
    def rank(group: Group) -> Any:
        if group.rank:
            return mo.tasks.serve(group)
        with mo.tasks.Scheduler(group=group) as made:
            for function, kind, said in ODD * 2:  # more often than there are ranks
                with pytest.raises(kind, match=said):
                    made.submit(function, 0).result(timeout=20)
            return made.submit(functions.square, 3).result(timeout=20), made.stats()["processes_died"]

    found = run_threads(3, rank)
    assert found[0] == (9, 0) and sum(found[1:]) == 7
