"""`mo.profile()`: record everything while a block runs, and say what was found."""

from __future__ import annotations

import platform
import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from morpho.backends.code.compiler import code
from morpho.backends.driver import executable as driver
from morpho.backends.driver.timed_code import KIND_BITS, Kind
from morpho.base.checks import check_flags, check_texts
from morpho.base.errors import ArgumentError, fail
from morpho.base.machine import machine
from morpho.base.python.notebook import preformatted
from morpho.base.target import current_isa, wanted_threads
from morpho.observe.record.rows import Addresses, op_row
from morpho.observe.record.sampler import Sampler
from morpho.observe.record.seconds import by_category
from morpho.observe.record.totals import Totals
from morpho.observe.trace.model import EventRow, OpRow, SpanRow, Trace
from morpho.runtime.measure import machine_profile
from morpho.runtime.memory.pool import pool
from morpho.runtime.plans import evaluate
from morpho.runtime.trace import device_events, spans
from morpho.runtime.trace.rings import Batch, Calibration, calibrate, converter, rings
from morpho.tensor.eager import EAGER
from morpho.tensor.jit.native.entries import entries
from morpho.tensor.steps import counts as recordings

CALLS = ("recompiles", "native_calls", "slow_calls")  # what each compiled function counts
MANY_EVENTS = 2_000_000  # drained ones that wait to be summed up: 64 MB
KIND_NAMES = {Kind.RUN: "run", Kind.STEP: "step", Kind.LAUNCH: "step", Kind.WORK: "work"}
_lock = threading.Lock()
_current: Recorder | None = None


class Recorder:
    """One recording, from `start` to `stop`, which gives the trace."""

    def __init__(self, name: str = "profile", memory: bool = True) -> None:
        self.name, self.with_memory = name, memory
        self.totals = Totals()
        self._batches: list[Batch] = []
        self._waiting = 0

    # -- on and off ----------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Put the timed twin in force and begin to look."""
        global _current
        import morpho.tensor.jit.compile  # noqa: F401  (tells the driver where things lie inside objects)

        with _lock:
            if _current is not None:
                raise fail(ArgumentError, "profile", "a profile is being recorded already",
                           "end it before the next one begins")
            _current = self
        try:
            self._begin()
        except BaseException:
            _current = None
            raise

    def _begin(self) -> None:
        self.peak = machine_profile()  # measured before the clock runs, the first time on a machine
        self._rings = rings()
        self._rings.restart()
        self._native = driver.profile_with(self._rings.address)
        entries.enter_by(int(self._native.entry))
        self._counters, self._called = counters(), called()
        self._tracker = pool().track() if self.with_memory else None
        self._spans = spans.recording()
        self._recorded = self._spans.__enter__()
        entries.watch_devices()
        self._start = calibrate(self._native.now)
        self.started_s, self.started_unix_s = time.perf_counter(), time.time()  # side by side: ranks compare the latter
        self._caller = threading.get_ident()
        self._sampler = Sampler(self._drain, self._caller, self.started_s)
        self._sampler.start()

    def stop(self) -> Trace:
        """Put the plain driver in force again; what was found."""
        global _current
        wall_s = time.perf_counter() - self.started_s
        device_events.settle()
        self._spans.__exit__(None, None, None)
        self._sampler.stop()
        end = calibrate(self._native.now)
        held = driver.born or []
        entries.enter_by(int(driver.profile_with(0).entry))
        if self._tracker is not None:
            pool().untrack(self._tracker)
        with _lock:
            _current = None
        self._sum()
        return self._trace(wall_s, end, held)

    def _drain(self) -> float:
        """Take what is in the rings; how full the fullest was."""
        found = self._rings.drain()
        self._batches += found
        self._waiting += sum(len(batch.events) for batch in found)
        if self._waiting > MANY_EVENTS:
            self._sum()
        return self._rings.fullest

    def _sum(self) -> None:
        """Sum up what was drained, thread by thread."""
        threads = dict.fromkeys(batch.thread for batch in self._batches)
        self.totals.add([Batch(thread, np.concatenate([b.events for b in self._batches if b.thread == thread]))
                         for thread in threads])
        self._batches, self._waiting = [], 0

    # -- what was found ------------------------------------------------------------------------------------------------
    def _trace(self, wall_s: float, end: Calibration, held: Iterable[driver.Executable]) -> Trace:
        at_ns = converter(self._start, end)
        rate_s = (at_ns(self._start.ticks + 1_000_000) - at_ns(self._start.ticks)) * 1e-15
        addresses = Addresses(held, self.totals)
        numbers: dict[int, int] = {}
        ops: list[OpRow] = []
        own: list[OpRow] = []
        caller = self._main_thread()
        for (thread, pointer), found in self.totals.steps.items():
            row = op_row(addresses, pointer, found, lambda ticks: ticks * rate_s, self.peak)
            own += [row] if thread == caller else []
            numbers.setdefault(pointer, len(ops))
            ops.append(row)
        trace = Trace(self.name, wall_s, started_unix_s=self.started_unix_s, host=platform.node())
        origin_ns = round(1e9 * self.started_s)
        trace.spans = [SpanRow(one.kind, one.name, one.thread, 1e-9 * (one.start_ns - origin_ns),
                               1e-9 * (one.end_ns - one.start_ns), one.detail) for one in self._recorded]
        offset_s = 1e-9 * (self._start.nanoseconds - origin_ns)
        trace.events = list(self._events(addresses, numbers, ops, at_ns, offset_s))
        runs = np.array([(e.start_s, e.seconds) for e in trace.events if e.kind == "run" and e.thread == caller])
        run_s = rate_s * sum(found.ticks for (thread, _), found in self.totals.programs.items() if thread == caller)
        trace.seconds = by_category(wall_s, run_s, own, [s for s in trace.spans if s.thread == caller],
                                    runs[np.argsort(runs[:, 0])] if len(runs) else runs)
        trace.ops = sorted(joined(ops), key=lambda row: -row.seconds)
        _renumber(trace, ops)
        trace.dropped, trace.lost = self.totals.dropped, self._rings.lost
        self._add_surroundings(trace, caller)
        remember(addresses, self.totals, rate_s)
        return trace

    def _main_thread(self) -> int:
        """The thread whose time is told: the caller, or the one that ran most where the caller ran next to nothing."""
        ran: dict[int, int] = {}
        for (thread, _), found in self.totals.programs.items():
            ran[thread] = ran.get(thread, 0) + found.ticks
        busiest = max(ran, key=lambda thread: ran[thread], default=self._caller)
        return self._caller if ran.get(self._caller, 0) * 10 >= ran.get(busiest, 0) else busiest

    def _events(self, addresses: Addresses, numbers: dict[int, int], ops: list[OpRow], at_ns: Any,
                offset_s: float) -> Iterable[EventRow]:
        kernels = {place[0].function_of(place[1]): number for pointer, number in numbers.items()
                   if (place := addresses.step(pointer)) is not None}
        for thread, events in self.totals.events:
            starts, ends = at_ns(events[:, 0]) * 1e-9 + offset_s, at_ns(events[:, 1]) * 1e-9 + offset_s
            for i, (_, _, pointer, tagged) in enumerate(events.tolist()):
                code = tagged & ((1 << KIND_BITS) - 1)
                if code not in KIND_NAMES:  # of a call that was on its way when the rings were taken back
                    continue
                kind = Kind(code)
                number = kernels.get(pointer, -1) if kind is Kind.WORK else numbers.get(pointer, -1)
                if kind is Kind.RUN:
                    program = addresses.programs.get(pointer)
                    name = "a program that is gone" if program is None else addresses.name(program)
                else:
                    name = ops[number].name if number >= 0 else "co-scheduled"
                yield EventRow(KIND_NAMES[kind], name, thread, float(starts[i]), float(ends[i] - starts[i]), number)

    def _add_surroundings(self, trace: Trace, caller: int) -> None:
        """Counters, threads, memory, the machine."""
        after = counters()
        trace.counters = {name: after[name] - self._counters.get(name, 0) for name in after}
        trace.counters |= since(self._called, trace.counters.get("realisations", 0))
        named = {thread.ident: thread.name for thread in threading.enumerate()}
        seen = dict.fromkeys([caller, *(e.thread for e in trace.events), *(s.thread for s in trace.spans)])
        trace.threads = {thread: str(named.get(thread, f"thread {thread}")) for thread in seen}
        trace.memory = self._sampler.memory
        looks = sum(self._sampler.stacks.values())
        trace.stacks = {stack: trace.wall_s * count / looks for stack, count in self._sampler.stacks.items()}
        trace.lines = {line: trace.wall_s * count / looks for line, count in self._sampler.lines.items()}
        if self._tracker is not None:
            trace.peak_bytes = self._tracker.peak_bytes
            trace.peak_s = max(0.0, self._tracker.peak_s - self.started_s)
            trace.holders = sorted(((line, *held) for line, held in self._tracker.at_peak.items()),
                                   key=lambda row: -row[1])[:64]
        here = machine()
        trace.machine = {"flops_per_s": self.peak.flops_per_s, "bytes_per_s": self.peak.bytes_per_s,
                         "isa": current_isa().name, "cpu": here.cpu_name, "cores": here.cores,
                         "threads": wanted_threads(), "l2_bytes": here.l2_bytes,
                         "l3_bytes": here.l3_bytes}


def counters() -> dict[str, float]:
    """Counters of the process so far."""
    found: dict[str, float] = {name: value for name, value in vars(evaluate.counts).items()
                               if isinstance(value, int | float)}
    found |= {"recorded_programs": recordings.plans, "recorded_runs": recordings.runs,
              "failed_recordings": recordings.failed, "unrecorded": sum(recordings.unrecorded.values())}
    found |= {f"code_{name}": value for name, value in code.counters.snapshot().items()}
    return found


def called() -> weakref.WeakKeyDictionary[Any, tuple[int, ...]]:
    """Counters of each compiled function so far. One by one: some are gone when the profile ends."""
    return weakref.WeakKeyDictionary({made: _calls(made) for made in list(entries.live)})


def _calls(made: Any) -> tuple[int, ...]:
    return tuple(getattr(made, name, 0) for name in CALLS)


def since(before: Mapping[Any, tuple[int, ...]], realisations: float) -> dict[str, float]:
    """Counters of functions since a snapshot, without those that serve single operations of lazy tensors."""
    found: dict[str, float] = dict.fromkeys(CALLS, 0)
    made_now = 0
    for made in list(entries.live):
        own = [now - then for now, then in zip(_calls(made), before.get(made, (0,) * len(CALLS)), strict=True)]
        if getattr(made, "__name__", "") == EAGER:
            realisations += sum(own[1:])
            continue
        made_now += made not in before
        found = {name: found[name] + number for name, number in zip(CALLS, own, strict=True)}
    return found | {"realisations": realisations, "compiled_functions": made_now}


def joined(ops: Iterable[OpRow]) -> list[OpRow]:
    """Rows of the same step written in the same line, run by several threads or signatures, or written out turn by
    turn, as one. The best call of all of them says how long threads wait in any case."""
    found: dict[tuple[Any, ...], OpRow] = {}
    for row in ops:
        key = (row.name, row.line, row.program, row.kind, row.sizes, row.dtype, row.rank)
        if key not in found:
            found[key] = row
            continue
        into = found[key]
        tails = [one.tail_s / one.shared_s for one in (into, row) if one.shared_s]
        for name in ("calls", "seconds", "busy_s", "shared_s", "flops", "bytes", "limit_s"):
            setattr(into, name, getattr(into, name) + getattr(row, name))
        into.tail_s = into.shared_s * min(tails, default=0.0)
    return list(found.values())


def _renumber(trace: Trace, ops: list[OpRow]) -> None:
    """Events name their row in the sorted table."""
    place = {(row.name, row.line, row.program, row.kind, row.sizes, row.dtype): number
             for number, row in enumerate(trace.ops)}
    new = [place[(row.name, row.line, row.program, row.kind, row.sizes, row.dtype)] for row in ops]
    for event in trace.events:
        if event.op >= 0:
            event.op = new[event.op]


def remember(addresses: Addresses, totals: Totals, rate_s: float) -> None:
    """Let `explain()` of compiled functions show what their steps took: the mean of the profiled calls."""
    by_executable: dict[int, list[float]] = {}
    calls: dict[int, int] = {}
    for (_, pointer), found in totals.programs.items():
        program = addresses.programs.get(pointer)
        if program is not None:
            calls[id(program)] = calls.get(id(program), 0) + found.calls
    for (_, pointer), found in totals.steps.items():
        place = addresses.step(pointer)
        if place is not None and calls.get(id(place[0])):
            times = by_executable.setdefault(id(place[0]), [0.0] * len(place[0].steps))
            times[place[1]] += found.ticks * rate_s / calls[id(place[0])]
    for made in list(entries.live):
        for chosen in list(made.specialisations.values()):
            if id(chosen.plan.executable) in by_executable:
                chosen.seconds = by_executable[id(chosen.plan.executable)]


class Profile:
    """Result of `mo.profile()`: after its block, the trace and everything made of it."""

    def __init__(self, name: str, memory: bool) -> None:
        self._recorder = Recorder(name, memory)
        self._trace: Trace | None = None

    def __enter__(self) -> Profile:
        self._recorder.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self._trace = self._recorder.stop()

    @property
    def trace(self) -> Trace:
        """Everything that was recorded, as plain data."""
        if self._trace is None:
            raise fail(ArgumentError, "profile", "the profile is not over yet", "look at it after its block")
        return self._trace

    @property
    def verdicts(self) -> list[Any]:
        """Bottlenecks, the most important first; each has a kind, a sentence, advice and a gain."""
        from morpho.observe.analyse.analyser import analyse

        return analyse(self.trace)

    def report(self) -> str:
        """The verdict, the table of operations, and memory, in words."""
        from morpho.observe.export.text import report

        return report(self.trace)

    def __str__(self) -> str:
        return self.report()

    def _repr_html_(self) -> str:
        return preformatted("a profile that is not over yet" if self._trace is None else self.report())

    def save(self, path: str | Path) -> Path:
        """Write the trace (.json), a Perfetto trace (.perfetto.json, .pftrace), a flame graph (.svg) or a report
        (.html)."""
        from morpho.observe.export.files import save

        return save(self.trace, path)


def profile(name: str = "profile", *, memory: bool = True) -> Profile:
    """Record where time and memory go while a block runs.

    Compiled functions run as a timed twin with a time stamp before and after every kernel, for as long as the block
    lasts; outside there is none in their code. `print(p)` says what binds the program, in a sentence, and then in
    tables; `p.verdicts` has it as objects, `p.trace` as plain data, `p.save("report.html")` draws it.

    name: what reports call it.
    memory: note also which lines ask for memory.

    >>> f = mo.compile(lambda x: mo.softmax(x @ x, axis=-1))
    >>> x = mo.ones((64, 64))
    >>> _ = f(x)
    >>> with mo.profile() as p:
    ...     for _ in range(10):
    ...         y = f(x)
    >>> sum(op.calls for op in p.trace.ops if "matmul" in op.name)
    10
    """
    check_texts("profile", name=name)
    check_flags("profile", memory=memory)
    return Profile(name, memory)
