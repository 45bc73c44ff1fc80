"""A table of cases: who took how long, the ratio that counts, its target and whether it was met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.harness.compare import best_peer, label, record, seconds
from benchmarks.harness.report import duration, times
from benchmarks.harness.results import Table, Target, ThemeResult, geometric_mean, ratio
from benchmarks.harness.rounds import Timing
from benchmarks.harness.session import Session
from benchmarks.kernels import cases

LONG_FLOPS = 4e9  # calls of some 0.1 s: fewer rounds will do
LONG_ROUNDS = 7
TOO_LONG_S = 5.0  # a call that would take longer is not worth waiting for
OWN = ("morpho", "unfused", "peak")  # entries that are no competitors


@dataclass(frozen=True)
class Row:
    """One case as measured."""

    timings: dict[str, Timing]
    over_numpy: float | None
    over_best: float | None

    @property
    def own(self) -> float | None:
        """Morpho's seconds."""
        return seconds(self.timings, "morpho")

    def over(self, entry: str) -> float | None:
        """How many times faster Morpho is than an entry."""
        return ratio(seconds(self.timings, entry), self.own)


class Board:
    """Measures cases and writes a table of them into a result.

    ``columns`` are entries, each (peer, variant of the case); ``extra`` adds columns computed from a row.
    """

    def __init__(self, session: Session, result: ThemeResult, title: str, columns: dict[str, tuple[str, str]],
                 extra: dict[str, Callable[[Row], str]] | None = None) -> None:
        self.session, self.result = session, result
        self.columns = {name: entry for name, entry in columns.items() if entry[0] in session.modules}
        self.extra = extra or {}
        self.rows: list[Row] = []
        self.rates: dict[tuple[str, str], float] = {}  # seconds a FLOP of an entry in a type, where measured last
        self.table = Table(title, ["case", "morpho", *self.columns, "vs best", "best peer", *self.extra, "target",
                                   "verdict"])
        result.tables.append(self.table)

    def measure(self, name: str, case: str, shape: tuple[int, ...], floor: float | None = None,
                against: str = "best", flops: float = 0.0) -> Row:
        """Time a case on all entries; ``floor`` is the least ratio over the best peer or over the named entry."""
        entries = {"morpho": ("morpho", case)}
        entries.update({column: (peer, case + variant if variant[:1] in ("", "@") else variant)
                        for column, (peer, variant) in self.columns.items()})
        entries = {entry: pair for entry, pair in entries.items() if not self.too_long(entry, name, case, flops)}
        timings = self.session.measure_mixed(entries, shape, LONG_ROUNDS if flops > LONG_FLOPS else None)
        for entry, timing in timings.items():
            if timing.seconds and flops:
                self.rates[entry, cases.of(case).dtype] = timing.seconds / flops
        competitors = {key: timing for key, timing in timings.items() if key == "morpho" or key not in OWN}
        row = Row(timings, *record(self.result, name, competitors))
        self.keep_own(name, row)
        verdict = Target(name, row.over_best if against == "best" else row.over(against), floor or 0.0).verdict
        goal = "-" if floor is None else f"{floor:g}x" + ("" if against == "best" else f" {against}")
        cells = [duration(seconds(timings, entry)) for entry in ("morpho", *self.columns)]
        self.table.rows.append([name, *cells, times(row.over_best), best_peer(competitors) or "-",
                                *(show(row) for show in self.extra.values()), goal, "-" if floor is None else verdict])
        self.rows.append(row)
        return row

    def too_long(self, entry: str, name: str, case: str, flops: float) -> bool:
        """Whether the last rate says that a call is not worth waiting for: a type without instructions is emulated."""
        expected = self.rates.get((entry, cases.of(case).dtype), 0.0) * flops
        if expected > TOO_LONG_S:
            self.result.notes.append(f"{name}: {entry} is left out, a call would take about {expected:.0f} s")
        return expected > TOO_LONG_S

    def keep_own(self, name: str, row: Row) -> None:
        """Figures, errors and ratios of the entries that are no competitors."""
        for entry in OWN[1:]:
            if entry not in row.timings:
                continue
            self.result.figures[name][entry] = row.timings[entry].as_json()
            if row.timings[entry].error:
                self.result.errors.append(f"{name}: {row.timings[entry].error}")
            gain = row.over(entry)
            if gain:
                self.result.ratios[f"{name} vs {entry}"] = gain

    def ratios(self, against: str = "best") -> list[float]:
        """Every ratio over the best peer, or over one entry, that could be measured."""
        found = [row.over_best if against == "best" else row.over(against) for row in self.rows]
        return [value for value in found if value]

    def worst(self, name: str, floor: float, against: str = "best") -> None:
        """A target for the lowest ratio."""
        self.result.targets.append(Target(name, min(self.ratios(against), default=None), floor))

    def geometric_mean(self, name: str, floor: float, against: str = "best") -> None:
        """A target for the geometric mean."""
        self.result.targets.append(Target(name, geometric_mean(self.ratios(against)), floor))

    def average(self, name: str, floor: float, against: str) -> None:
        """A target for the plain average."""
        found = self.ratios(against)
        self.result.targets.append(Target(name, sum(found) / len(found) if found else None, floor))


def same(*peers: str) -> dict[str, tuple[str, str]]:
    """Entries that run the case itself."""
    return {peer: (peer, "") for peer in peers}


def lacking(session: Session, result: ThemeResult, case: str) -> bool:
    """Whether Morpho cannot do a case; a note says why."""
    reason = session.why_not("morpho", case)
    if reason:
        result.notes.append(f"{case} is left out: {reason}")
    return bool(reason)


def named(case: str, shape: tuple[int, ...]) -> str:
    """linear 128x768x768."""
    return f"{case} {label(shape)}"
