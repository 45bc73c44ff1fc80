"""Helpers of the themes that compare peers on cases: table rows, best peer, ratios."""

from __future__ import annotations

from benchmarks.harness.report import duration, times
from benchmarks.harness.results import ThemeResult, ratio
from benchmarks.harness.rounds import Timing


def seconds(timings: dict[str, Timing], peer: str) -> float | None:
    """Median seconds of a peer, None when it has none."""
    return timings[peer].seconds if peer in timings else None


def best_peer(timings: dict[str, Timing], own: str = "morpho") -> str | None:
    """The fastest of the others."""
    finished = {name: timing.seconds for name, timing in timings.items() if name != own and timing.seconds}
    return min(finished, key=finished.__getitem__) if finished else None


def label(shape: tuple[int, ...]) -> str:
    """16x256."""
    return "x".join(map(str, shape))


def record(result: ThemeResult, name: str, timings: dict[str, Timing]) -> tuple[float | None, float | None]:
    """Keep figures, errors and ratios of one case; returns the speed-ups over NumPy and over the best peer."""
    result.figures[name] = {peer: timing.as_json() for peer, timing in timings.items()}
    result.errors += [f"{name}: {timing.error}" for timing in timings.values() if timing.error]
    own, best = seconds(timings, "morpho"), best_peer(timings)
    over_numpy = ratio(seconds(timings, "numpy"), own)
    over_best = ratio(seconds(timings, best) if best else None, own)
    if over_numpy:
        result.ratios[f"{name} vs numpy"] = over_numpy
    if over_best:
        result.ratios[f"{name} vs best"] = over_best
    return over_numpy, over_best


def row(name: str, timings: dict[str, Timing], peers: list[str], over_numpy: float | None, over_best: float | None
        ) -> list[str]:
    """One line of a table: a time per peer, then the two speed-ups and who was best."""
    return [name, *(duration(seconds(timings, peer)) for peer in peers), times(over_numpy), times(over_best),
            best_peer(timings) or "-"]


def headings(first: str, peers: list[str]) -> list[str]:
    """The headings that go with ``row``."""
    return [first, *peers, "vs numpy", "vs best", "best peer"]
