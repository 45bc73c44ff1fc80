"""Forecast of a load: a line through its history, or smoothing, whichever has been right more often."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from morpho.base.errors import ArgumentError, ValueFault, fail

METHODS = ("least squares", "smoothing")
WINDOW = 8  # points that the line goes through
WEIGHTS = (0.2, 0.4, 0.6, 0.8, 1.0)  # of the newest value in smoothing; 1 is "as it was last"


@dataclass(frozen=True, slots=True)
class Forecast:
    """A predicted value.

    `error` is the root mean square of how far, relative to the truth, the same method was off when it predicted each
    point of the history from those before it (infinite where there was nothing to try it on).

    >>> from morpho import plan
    >>> plan.forecast([0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0], 5).value
    6.0
    """

    value: float
    error: float
    method: str


def forecast(times_s: Sequence[float], values: Sequence[float], at_s: float, method: str = "auto") -> Forecast:
    """Predict a positive quantity at a later time from its history.

    >>> forecast([0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0], 5).value
    6.0
    >>> forecast([0, 1, 2, 3], [2.0, 2.0, 2.0, 2.0], 9).error
    0.0
    """
    if not values or len(times_s) != len(values):
        raise fail(ArgumentError, "forecast", f"{len(times_s)} times and {len(values)} values", "give one for each")
    if any(after <= before for before, after in pairwise(times_s)):
        raise fail(ValueFault, "forecast", "the times do not increase", "sort the history by time")
    if any(not (math.isfinite(value) and value > 0) for value in values):
        raise fail(ValueFault, "forecast", "a value is not positive", "leave out values that were not measured")
    if method not in (*METHODS, "auto"):
        raise fail(ArgumentError, "forecast", f"there is no method {method!r}", f"use auto, {' or '.join(METHODS)}")
    tried = []
    if method != "smoothing":
        tried.append((_error(times_s, values, _line), "least squares", _line))
    if method != "least squares":
        for weight in WEIGHTS:
            def smooth(times: Sequence[float], known: Sequence[float], at: float, weight: float = weight) -> float:
                return _smoothed(known, weight)

            tried.append((_error(times_s, values, smooth), f"smoothing ({weight:g})", smooth))  # type: ignore[arg-type]
    error, name, predict = min(tried, key=lambda row: row[0])
    if math.isinf(error):  # too short to judge: the last value
        return Forecast(float(values[-1]), error, "last value")
    return Forecast(predict(times_s, values, at_s), error, name)


def trend(history: Sequence[tuple[float, Mapping[str, float]]], ahead_s: float) -> dict[str, Forecast]:
    """Where each of several loads is heading: its forecast `ahead_s` after the last of its measurements, but no further
    ahead than they reach back. What was measured fewer than three times has none.

    >>> rows = [(t, {"a": 1.0 + 0.1 * t, "b": 2.0}) for t in range(6)]
    >>> {name: round(guess.value, 6) for name, guess in trend(rows, 3.0).items()}
    {'a': 1.8, 'b': 2.0}
    """
    if not ahead_s >= 0:
        raise fail(ArgumentError, "trend", f"ahead_s is {ahead_s}", "give seconds from now on")
    found = {}
    for name in dict.fromkeys(name for _, row in history for name in row):
        rows = [(time_s, row[name]) for time_s, row in history if name in row and math.isfinite(row[name])]
        if len(rows) >= 3:
            times, values = [time_s for time_s, _ in rows], [value for _, value in rows]
            found[name] = forecast(times, values, times[-1] + min(ahead_s, times[-1] - times[0]))
    return found


def _error(times: Sequence[float], values: Sequence[float], predict: object) -> float:
    """Root mean square of the relative errors of predicting each value from those before it, from the third on."""
    assert callable(predict)
    misses = [predict(times[:k], values[:k], times[k]) / values[k] - 1.0 for k in range(2, len(values))]
    return math.sqrt(math.fsum(miss * miss for miss in misses) / len(misses)) if misses else math.inf


def _line(times: Sequence[float], values: Sequence[float], at: float) -> float:
    """The least-squares line through the last points; never below a tenth of the least of them."""
    times, values = times[-WINDOW:], values[-WINDOW:]
    middle, mean = math.fsum(times) / len(times), math.fsum(values) / len(values)
    spread = math.fsum((time - middle) ** 2 for time in times)
    if not spread:
        return mean
    slope = math.fsum((time - middle) * (value - mean) for time, value in zip(times, values)) / spread
    return max(mean + slope * (at - middle), 0.1 * min(values))


def _smoothed(values: Sequence[float], weight: float) -> float:
    level = values[0]
    for value in values[1:]:
        level += weight * (value - level)
    return level
