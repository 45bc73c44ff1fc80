"""Numbers that rules ask for, worked out of a trace once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from os.path import basename

from morpho.observe.record.sampler import MORPHO
from morpho.observe.record.seconds import self_seconds
from morpho.observe.trace.model import OpRow, SpanRow, Trace

SHORT_S = 4e-6  # a kernel call shorter than this is mostly its own start
UNEVEN = 0.2  # of all threads' time spent waiting for the last one: from here on a kernel counts as unbalanced
FEW_MADE = 3  # functions that compute alike, made in one line: more of them are made in a loop
FEW_CALLS = 3  # with fewer, a thread that waits may wait for one whose core another process took
LONG_S = 100e-6  # a call of one thread alone is worth dividing from here on
FAR_FROM_MEMORY = 0.6  # of memory's roofline: what lies in a cache and is slower than this waits for arithmetic
MANY_EAGER = 6  # compilations by lazy evaluation after which they are no longer first ones
EAGER = "", "", ""  # what lazy evaluation compiles, among functions
FIRST = "", MORPHO, ""  # ... for the first values of parameters and states
Function = tuple[str, str, str]  # name, line, and what it computes
SHORT_LIMIT = 0.25  # of the roofline: below it a short kernel is bound by being started, not by the machine; so is one
# whose data lie in a cache, which have no part in memory's bandwidth


@dataclass
class Facts:
    """A trace, with its kernels sorted by what binds each."""

    trace: Trace
    bound: dict[str, list[OpRow]] = field(default_factory=dict)  # kind -> kernels, the longest first

    def __post_init__(self) -> None:
        for row in self.trace.ops:
            if row.kind == "kernel":
                self.bound.setdefault(self.kind_of(row), []).append(row)

    def kind_of(self, row: OpRow) -> str:
        """Bottleneck of a kernel."""
        each_s = row.seconds / max(row.calls, 1)
        if each_s < SHORT_S and (row.share < SHORT_LIMIT or (row.bound == "memory" and self.is_cached(row))):
            return "python"
        if self.is_unbalanced(row):
            return "imbalance"
        if row.bound == "memory" and self.is_cached(row) and not row.gathers and row.share < FAR_FROM_MEMORY:
            return "compute"  # its data lie in the cache, and still it is slow: exp and the like are many operations
        return row.bound or "memory"

    def is_cached(self, row: OpRow) -> bool:
        """Whether what a call touches fits into the second-level cache."""
        return row.bytes / max(row.calls, 1) <= float(self.trace.machine.get("l2_bytes", 0))

    @staticmethod
    def is_unbalanced(row: OpRow) -> bool:
        """Whether threads wait, or could have helped."""
        if row.threads < 2 or row.seconds / max(row.calls, 1) < LONG_S:
            return False
        alone = row.shared_s < 0.5 * row.seconds
        # A thread that comes late was busy elsewhere or had to be woken: only those that wait at the end say something.
        waits = row.calls >= FEW_CALLS and row.tail_s > UNEVEN * row.shared_s * row.threads
        return alone or waits or (row.share < FAR_FROM_MEMORY and idle_by_parts(row) > UNEVEN)

    def kernel_s(self, kind: str) -> float:
        """Time of the kernels that something binds, on the calling thread's clock."""
        total = sum(row.seconds for row in self.trace.ops if row.kind == "kernel")
        mine = sum(row.seconds for row in self.bound.get(kind, ()))
        return self.seconds("kernels") * mine / total if total else 0.0

    def seconds(self, *categories: str) -> float:
        """The calling thread's time in some categories."""
        return sum(self.trace.seconds.get(name, 0.0) for name in categories)

    @cached_property
    def is_fetched(self) -> bool:
        """Whether values of a device are asked for so often that its queue runs empty."""
        runs = sum(span.kind == "device" and bool(span.detail.get("on_device")) for span in self.trace.spans)
        fetched = sum(span.name.startswith("from") for span in self.spans("transfer"))
        return fetched > max(2, 0.3 * runs)

    @property
    def wall_s(self) -> float:
        return self.trace.wall_s

    def count(self, name: str) -> float:
        """A counter's change."""
        return self.trace.counters.get(name, 0)

    @cached_property
    def compile_spans(self) -> list[tuple[SpanRow, float]]:
        """Traces and compilations, each with its own time."""
        found: dict[tuple[int, int], list[SpanRow]] = {}  # a span lies inside another of the same thread only
        for span in self.trace.spans:
            if span.kind in ("trace", "compile"):
                found.setdefault((span.rank, span.thread), []).append(span)
        return [pair for spans in found.values() for pair in zip(spans, self_seconds(spans), strict=True)]

    @cached_property
    def recompile_s(self) -> float:
        """Time of compilations after the first of each function, and after a few of lazy evaluation; of several ranks
        the mean. At most what compiling took of the calling thread's time, which other threads may help."""
        ranks = sorted({span.rank for span, _ in self.compile_spans})
        total = sum(self._recompile_s(rank) for rank in ranks) / max(len(ranks), 1)
        return min(total, self.seconds("compile", "trace"))

    def _recompile_s(self, rank: int) -> float:
        seen: Counter[Function] = Counter()
        total = 0.0
        open_until, again = 0.0, False
        own = [pair for pair in self.compile_spans if pair[0].rank == rank]
        for span, seconds in sorted(own, key=lambda pair: (pair[0].start_s, -pair[0].seconds)):
            if span.start_s >= open_until:  # the outermost: a function's trace, or lazy evaluation's program
                what = function_of(span)
                seen[what] += 1
                again = span.detail.get("recompiles", 0) > 0 or self._is_known(what, seen[what])
                open_until = span.start_s + span.seconds
            total += seconds if again else 0.0
        return total

    def _is_known(self, what: Function, times: int) -> bool:
        """Whether what is compiled for this time was there before. A few functions of one line, each of which is called
        for the first time, are what a table of formulas is; many that compute alike are one made in a loop."""
        if what == EAGER:
            return times > MANY_EAGER
        return times > 1 and not what[1].startswith(MORPHO) and (not what[2] or self.compilations[what] > FEW_MADE)

    @cached_property
    def compilations(self) -> Counter[Function]:
        """How often each function was traced, or lazy evaluation compiled (`EAGER`)."""
        found: Counter[Function] = Counter()
        open_until = 0.0
        for span, _ in sorted(self.compile_spans, key=lambda pair: (pair[0].start_s, -pair[0].seconds)):
            if span.start_s >= open_until:
                found[function_of(span)] += 1
                open_until = span.start_s + span.seconds
        return found

    def spans(self, kind: str) -> list[SpanRow]:
        """Spans of a kind that are no part of a step."""
        return [span for span in self.trace.spans if span.kind == kind and not span.detail.get("in_step")
                and not span.detail.get("on_device")]

    def ops(self, kind: str) -> list[OpRow]:
        """Steps of a kind, the longest first."""
        return [row for row in self.trace.ops if row.kind == kind]


def function_of(span: SpanRow) -> Function:
    """The function that is traced: many are called <lambda>, and many of those may be written in one line."""
    if span.kind != "trace":
        return FIRST if span.detail.get("first") else EAGER
    return span.name, str(span.detail.get("line", "")), str(span.detail.get("program", ""))


def idle_by_parts(row: OpRow) -> float:
    """Of all threads' time, what they have nothing to do in because there are too few equal parts for them.

    >>> idle_by_parts(OpRow("scan", threads=2, parts=3)), idle_by_parts(OpRow("scan", threads=2, parts=4))
    (0.25, 0.0)
    """
    rounds = -(-row.parts // row.threads)
    return 1 - row.parts / (rounds * row.threads) if row.parts else 0.0


def place(row: OpRow) -> str:
    """An operation and its line, for a sentence."""
    name = row.name if len(row.name) <= 48 else row.name[:45] + "..."
    return f"{name} ({basename(row.line)})" if row.line else name


def percent(share: float) -> str:
    """A share in words.

    >>> percent(0.723), percent(0.004)
    ('72 %', 'less than 1 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"
