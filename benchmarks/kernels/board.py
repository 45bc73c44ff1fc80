"""A table of cases: who took how long, the ratio that counts, its target and whether it was met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.compare import best_peer, label, record, seconds
from benchmarks.harness import Timing
from benchmarks.report import duration, times
from benchmarks.results import Table, Target, ThemeResult, geometric_mean, ratio
from benchmarks.session import Session

LONG_FLOPS = 4e9  # calls of some 0.1 s: fewer rounds will do
LONG_ROUNDS = 7
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
        self.table = Table(title, ["case", "morpho", *self.columns, "vs best", "best peer", *self.extra, "target", "verdict"])
        result.tables.append(self.table)

    def measure(self, name: str, case: str, shape: tuple[int, ...], floor: float | None = None,
                against: str = "best", rounds: int | None = None) -> Row:
        """Time a case on all entries; ``floor`` is the least ratio over the best peer or over the named entry."""
        entries = {"morpho": ("morpho", case)}
        entries.update({column: (peer, case + variant if variant[:1] in ("", "@") else variant)
                        for column, (peer, variant) in self.columns.items()})
        timings = self.session.measure_mixed(entries, shape, rounds)
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


def rounds_for(flops: float) -> int | None:
    """Fewer rounds for long calls."""
    return LONG_ROUNDS if flops > LONG_FLOPS else None


def lacking(session: Session, result: ThemeResult, case: str) -> bool:
    """Whether Morpho cannot do a case; a note says why."""
    reason = session.why_not("morpho", case)
    if reason:
        result.notes.append(f"{case} is left out: {reason}")
    return bool(reason)


def named(case: str, shape: tuple[int, ...]) -> str:
    """linear 128x768x768."""
    return f"{case} {label(shape)}"
