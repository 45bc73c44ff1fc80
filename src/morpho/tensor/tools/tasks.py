"""Tasks: Python functions on all cores, with dependencies, exceptions that arrive, and parallel map and reduce.

>>> import morpho as mo
>>> load = mo.tasks.submit(range, 10)
>>> total = mo.tasks.submit(sum, load)                # waits for `load` and takes its result
>>> total.result()
45
>>> mo.tasks.map(lambda n: n * n, range(5))
[0, 1, 4, 9, 16]
>>> mo.tasks.reduce(max, [3, 1, 4, 1, 5])
5

Threads run at the same time only where the work gives up the interpreter lock: NumPy, Morpho's own kernels, files,
sleep. `Scheduler(processes=n)` runs tasks in processes, for all other work. See docs/tasks.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.runtime.groups.group import Group
from morpho.runtime.tasks import parallel
from morpho.runtime.tasks import scheduler as scheduling
from morpho.runtime.tasks.futures import Future
from morpho.runtime.tasks.scheduler import Scheduler, default, wait
from morpho.tensor.autodiff.grad_mode import tracing

__all__ = ["Future", "Scheduler", "graph", "map", "reduce", "serve", "stats", "submit", "wait"]

# A function being traced records what its thread computes: tasks it waits for run on other threads.
scheduling.inline_allowed = lambda: tracing.current is None


def _chosen(scheduler: Scheduler | None) -> Scheduler:
    """The one given, or the one in force here."""
    if scheduler is None:
        return default()
    if not isinstance(scheduler, Scheduler):
        raise fail(ArgumentError, "tasks", f"scheduler={scheduler!r} is no mo.tasks.Scheduler")
    return scheduler


def submit(function: Callable[..., Any], /, *arguments: Any, after: Iterable[Future] = (), name: str | None = None,
           scheduler: Scheduler | None = None, **named: Any) -> Future:
    """Run `function(*arguments, **named)` on another thread, once the futures among the arguments and in `after` are
    done. A function's own `after`, `name` or `scheduler` goes through `functools.partial`.

    Futures among the arguments are replaced by their results; `mo.settings` of this moment hold inside the task.
    Without `scheduler` it is the one whose task is running here, or a common one with the threads of the settings.

    >>> first = mo.tasks.submit(pow, 2, 5)
    >>> mo.tasks.submit(pow, first, 2, name="square").result()
    1024
    >>> mo.tasks.submit(sorted, [1, 3, 2], reverse=True).result()
    [3, 2, 1]
    """
    return _chosen(scheduler).submit(function, *arguments, after=after, name=name, **named)


def map(function: Callable[[Any], Any], items: Iterable[Any], chunk: int | None = None, *,
        scheduler: Scheduler | None = None) -> list[Any]:
    """`[function(item) for item in items]` on all threads, in order. An exception is that of the first item to fail.

    `chunk` items are taken at a time; without it the number follows from how long they take.

    >>> mo.tasks.map(len, ["a", "bc", ""])
    [1, 2, 0]
    """
    return parallel.parallel_map(_chosen(scheduler), function, items, chunk)


def reduce(function: Callable[[Any, Any], Any], items: Iterable[Any], initial: Any = parallel.MISSING, *,
           map: Callable[[Any], Any] | None = None, scheduler: Scheduler | None = None) -> Any:
    """Join all items by a function of two, on all threads: neighbours first, then neighbours of those, and so on.

    The tree depends on the number of items alone, so the result is the same for any number of threads, rounding
    included. `map` is applied to each item first; `initial` is joined from the left at the very end.

    >>> mo.tasks.reduce(lambda a, b: f"({a}{b})", "abcde")
    '(((ab)(cd))e)'
    """
    return parallel.parallel_reduce(_chosen(scheduler), function, items, initial, map)


def graph(tasks: Mapping[str, Sequence[Any]], *, scheduler: Scheduler | None = None) -> dict[str, Future]:
    """Submit named tasks `name: (function, argument, ...)`; an argument that names one stands for its result.

    >>> futures = mo.tasks.graph({"sum": (lambda a, b: a + b, "left", "right"), "left": (len, "xyz"),
    ...                           "right": (abs, -4)})
    >>> futures["sum"].result()
    7
    """
    return parallel.submit_graph(_chosen(scheduler), tasks)


def serve(group: Group) -> int:
    """Run tasks that rank 0's `Scheduler(group=group)` gives this rank, until that is closed; how many there were.

    >>> mo.tasks.serve(mo.cluster.init())
    Traceback (most recent call last):
    ...
    morpho.base.errors.ArgumentError: [tasks] rank 0 gives the tasks. At ...
    """
    from morpho.runtime.tasks.processes import ranks

    return ranks.serve(group)


def stats(scheduler: Scheduler | None = None) -> dict[str, Any]:
    """Statistics of a scheduler: tasks executed and stolen, busy seconds per worker, imbalance, and the engine's
    threads.

    >>> mo.tasks.map(abs, [-1, 2]) and mo.tasks.stats()["executed"] > 0
    True
    """
    return _chosen(scheduler).stats()


def __dir__() -> list[str]:
    return sorted(__all__)
