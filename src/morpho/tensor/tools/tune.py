"""`mo.tune`: find faster kernels of the same bits for a function, and keep them for this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from morpho.backends.registry import backend_of
from morpho.base import settings
from morpho.base.checks import as_seconds, check_flags
from morpho.base.errors import ArgumentError, fail
from morpho.base.units import format_seconds
from morpho.cost.tuned_choices import NO_CHOICES, Choices
from morpho.runtime import thresholds
from morpho.runtime.plans import evaluate, on_device
from morpho.runtime.tuner import store
from morpho.runtime.tuner.sequential import Watch
from morpho.runtime.tuner.tuner import Tuned, Tuner
from morpho.tensor.jit.compile import Compiled, compile

CHECK_PAIRS = 16
CHECK_SHARE = 0.2  # of the time box, for the whole function at the end
SLICE_S = 2e-3


@dataclass(frozen=True)
class TuneReport:
    """Result of tuning. `whole` is how many times faster the whole function is than with the defaults, by the median
    of pairs; None where it was not tried.

    >>> import morpho as mo
    >>> report = mo.tune(lambda x, w: x @ w, mo.ones((64, 64)), mo.ones((64, 64)), budget_s=0.3)
    >>> report.seconds > 0
    True
    """

    found: list[Tuned] = field(default_factory=list)
    seconds: float = 0.0
    whole: float | None = None
    rolled_back: bool = False

    @property
    def switched(self) -> list[Tuned]:
        """Problems that have a choice now."""
        return [] if self.rolled_back else [one for one in self.found if one.row is not None]

    def summary(self) -> str:
        """One line: how many problems were explored, and how many have a faster kernel now."""
        took = f" in {format_seconds(self.seconds)}" if self.seconds else ""
        return (f"{len(self.found)} problems explored{took}, {len(self.switched)} of them with a faster kernel of the "
                "same bits")

    def __str__(self) -> str:
        lines = [self.summary()]
        lines += [f"  {one.line()}" for one in self.found]
        if self.rolled_back:
            lines.append("  the whole function was slower with these choices: all of them were rolled back")
        elif self.whole is not None:
            lines.append(f"  the whole function: {self.whole:.2f}x the speed of the defaults")
        return "\n".join(lines)


def tune(function: Callable[..., Any], *args: Any, budget_s: float = 30.0, anew: bool = False,
         **kwargs: Any) -> TuneReport:
    """Let kernels of the same bits race for the products, convolutions and loops of a function at these arguments, and
    keep those that are surely at least 10 % faster than the defaults, for this machine and this version.

    Takes at most about `budget_s` seconds, and wants a machine that is otherwise idle. Results stay the same, bit for
    bit. Choices found before are looked at again, and dropped where the default is faster now; with `anew` they are
    searched again. The function's state does not change, unless it has none: then it is called a few times to see that
    the whole is not slower. `f.explain()` names every choice that came from the tuner.

    >>> import morpho as mo
    >>> report = mo.tune(lambda x: mo.exp(x @ x), mo.ones((32, 32)), budget_s=0.3)
    >>> all(one.row is None or one.row.gain >= 1.1 for one in report.found)
    True
    """
    budget_s = as_seconds("tune", "budget_s", budget_s)
    check_flags("tune", anew=anew)
    if not callable(function):
        raise fail(ArgumentError, "tune", f"{type(function).__name__} is not a function",
                   "give a function and the arguments it is called with")
    compiled = function if isinstance(function, Compiled) else compile(function)
    started = time.perf_counter()
    compiled.through_python(*args, **kwargs)
    if compiled.current is None or not (compiled.current.plan.native or _on_gpu(compiled.current.plan)):
        raise fail(ArgumentError, "tune", f"{compiled.__name__} is compiled neither for the CPU nor for a GPU",
                   "the tuner knows kernels of these; leave out the device")
    stateless = compiled.current.states.count == 0
    box_s = budget_s * (1.0 - CHECK_SHARE if stateless else 1.0)
    before = store.kept().rows
    found = explored([compiled.current.plan], box_s, anew)
    report = TuneReport(found, time.perf_counter() - started)
    rows = {one.key: one.row for one in found if one.row is not None}
    if rows and stateless and any(before.get(key) != row for key, row in rows.items()):
        whole = _whole(compiled, Choices.of({key: row.choice for key, row in {**before, **rows}.items()}),
                       budget_s * CHECK_SHARE, args, kwargs)
        report = replace(report, whole=whole[0], rolled_back=whole[1])
    keep(found, report.rolled_back)
    return replace(report, seconds=time.perf_counter() - started)


def explored(plans: Iterable[Any], budget_s: float, anew: bool = False,
             tell: Callable[[Tuned], None] = lambda found: None) -> list[Tuned]:
    """Explore the problems of several plans within one time box; one that several have is explored once."""
    found: dict[str, Tuned] = {}
    ends_s = time.perf_counter() + budget_s
    plans = list(plans)
    for number, plan in enumerate(plans):
        left_s = (ends_s - time.perf_counter()) / (len(plans) - number)
        if left_s <= 0:
            break
        with settings.of(plan.chosen):
            gpu = _on_gpu(plan)
            program = on_device.executable(plan.graph, plan.device).program if gpu else plan.lowered  # type: ignore
            tuner = Tuner(thresholds.current(), left_s, anew, tell=tell, device=plan.device if gpu else "")
            problems = [problem for key, problem in program.problems.items() if key not in found]
            constants = () if gpu else plan.constants
            found |= {one.key: one for one in tuner.tune(problems, constants, store.kept().rows)}
    return list(found.values())


def _on_gpu(plan: Any) -> bool:
    """Whether a plan's backend has kernels to choose from and a clock."""
    return not plan.native and hasattr(backend_of(plan.device), "slice_executable")


def keep(found: Iterable[Tuned], rolled_back: bool = False) -> None:
    """Store what was found, and let programs follow it from now on."""
    found = list(found)
    rows = {one.key: one.row for one in found if one.row is not None}
    dropped = {one.key for one in found if one.rolled_back or (rolled_back and one.row is not None)}
    if rows or dropped:
        store.keep({} if rolled_back else rows, dropped)
        thresholds.tuned_anew()


def _whole(compiled: Compiled, choices: Choices, budget_s: float, args: Any, kwargs: Any) -> tuple[float, bool]:
    """The whole function with the defaults and with choices, in turns: how many times faster it is with them, and
    whether it is surely slower."""
    default = replace(thresholds.current(), choices=NO_CHOICES)
    chosen, watch, ratios = replace(default, choices=choices), Watch(), []
    ends_s = time.perf_counter() + budget_s
    plan = compiled.current.plan if compiled.current is not None else None
    wait = backend_of(plan.device).synchronize if plan is not None and not plan.native else lambda: None

    def seconds(forced: Any) -> float:
        with thresholds.using(forced):
            compiled.through_python(*args, **kwargs)
            wait()
            started = time.perf_counter()
            count = 0
            while count == 0 or (time.perf_counter() - started < SLICE_S and count < 1000):
                compiled.through_python(*args, **kwargs)
                count += 1
            wait()
            return (time.perf_counter() - started) / count

    seconds(default), seconds(chosen)
    while watch.pairs < CHECK_PAIRS and (watch.pairs < 3 or time.perf_counter() < ends_s) and not watch.rolls_back:
        if watch.pairs % 2:
            chosen_s, default_s = seconds(chosen), seconds(default)
        else:
            default_s, chosen_s = seconds(default), seconds(chosen)
        watch.feed(default_s, chosen_s)
        ratios.append(default_s / chosen_s)
    return sorted(ratios)[len(ratios) // 2], watch.rolls_back


class Recorder:
    """Notes every plan that is made in a block: a script is run in one, and then tuned."""

    def __init__(self) -> None:
        self.plans: list[Any] = []

    def __enter__(self) -> Recorder:
        evaluate.watchers.append(self._note)
        return self

    def __exit__(self, *exception: Any) -> None:
        evaluate.watchers.remove(self._note)

    def _note(self, plan: Any) -> None:
        if plan.native or _on_gpu(plan):
            self.plans.append(plan)
