"""The metric registry: numbers that a running process counts, by name and label, for whoever looks.

Counters only grow, gauges are set, histograms have buckets and quantiles, and what is counted elsewhere is read when
somebody asks. Names and help texts follow Prometheus, so that a server
can show them as they are; adding to one costs a dictionary lookup under a lock.
"""

from __future__ import annotations

import logging
import math
import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any, TypeVar

from morpho.base.errors import ArgumentError, ValueFault, fail
from morpho.base.python.fork_safe import ForkSafe
from morpho.runtime.quantiles import LONGEST_S, QUANTILES, Series, quantiles_of, quantiles_of_buckets

_log = logging.getLogger("morpho")
NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,199}")
SECONDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)  # upper bounds of buckets
_EXACT = 2**63  # whole numbers below are kept as they are without a look at floats


def number(name: str, value: Any) -> float:
    """A value as Python's own number, so that counts neither wrap nor round as NumPy's scalars do.

    >>> number("cakes", 3), number("cakes", True), number("cakes", 0.5)
    (3, 1, 0.5)
    """
    kind = type(value)
    if kind is float or (kind is int and -_EXACT < value < _EXACT):
        return value  # type: ignore[no-any-return]
    try:
        if isinstance(value, str | bytes | bytearray):
            raise TypeError
        try:
            found: float = operator.index(value)
        except TypeError:
            return float(value)
        float(found)  # exporters write floats: too large is an error here, not there
        return found
    except (TypeError, ValueError, OverflowError):
        raise fail(ArgumentError, "metrics", f"{name} takes numbers, and {_shown(value)} is none that a float holds",
                   "give a number") from None


def check_window(subject: str, window_s: float) -> None:
    """Raise for a window of which nothing is kept."""
    if not (isinstance(window_s, int | float) and 0 < window_s <= LONGEST_S):
        raise fail(ValueFault, subject, f"window_s must be more than 0 and at most {LONGEST_S:g}, and is {window_s!r}")


def _shown(value: Any) -> str:
    kind = type(value)
    return repr(value) if kind in (str, bytes, type(None), complex) else f"a {kind.__module__}.{kind.__qualname__}"


def _text(label: Any) -> str:
    """A label as a text that every exporter can write."""
    text = label if isinstance(label, str) else str(label)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class Metric(ForkSafe):
    """One name with a value for each combination of labels."""

    kind = "gauge"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        super().__init__()
        self.name, self.help, self.labels = name, _text(help), () if isinstance(labels, str) else tuple(labels)
        usable = [label for label in self.labels if isinstance(label, str) and NAME.fullmatch(label)
                  and not label.startswith("__") and label not in self.reserved]
        if isinstance(labels, str) or len(set(usable)) < len(self.labels):
            raise fail(ArgumentError, "metrics", f"{labels!r} are no labels of {name}", "give a list of different "
                       f"names of letters, digits and underscores{', but for ' if self.reserved else ''}"
                       f"{' and '.join(self.reserved)}")
        self._values: dict[tuple[str, ...], Any] = {}

    reserved: tuple[str, ...] = ()  # labels that exporters add

    def _change(self, labels: tuple[Any, ...], value: float, add: bool) -> None:
        labels = self._checked(labels)
        with self._lock:
            self._values[labels] = self._values.get(labels, 0) + value if add else value

    def _checked(self, labels: tuple[Any, ...]) -> tuple[str, ...]:
        """The labels as texts, as many as there should be."""
        if len(labels) != len(self.labels):
            raise fail(ArgumentError, "metrics", f"{self.name} has the labels {self.labels}, not {len(labels)} of them")
        return tuple(map(_text, labels)) if labels else labels

    def value(self, *labels: str) -> Any:
        """The number under these labels, 0 where nothing was counted."""
        labels = tuple(map(_text, labels))
        with self._lock:
            return self._values.get(labels, 0)

    def values(self) -> dict[tuple[str, ...], Any]:
        """All numbers, by their labels."""
        with self._lock:
            return dict(self._values)


class Counter(Metric):
    """A number that grows.

    >>> made = Counter("cakes", "Cakes made.", ["kind"])
    >>> made.add(2, "plum")
    >>> made.value("plum"), made.values()
    (2, {('plum',): 2})
    """

    kind = "counter"

    def add(self, amount: float = 1, *labels: str) -> None:
        """Count some more."""
        amount = number(self.name, amount)
        if not 0 <= amount < math.inf:
            how = f"go down by {-amount}" if -math.inf < amount < 0 else f"grow by {amount}"
            raise fail(ArgumentError, "metrics", f"the counter {self.name} does not {how}")
        self._change(labels, amount, True)


class Gauge(Metric):
    """A number that is set.

    >>> heat = Gauge("heat", "Degrees.")
    >>> heat.set(180.5)
    >>> heat.value()
    180.5
    """

    def set(self, value: float, *labels: str) -> None:
        """The number now."""
        self._change(labels, number(self.name, value), False)


class Histogram(Metric):
    """How many observations were at most each bound, and quantiles; values are (counts, sum, count). NaN is no
    observation: `left_out` says how many came, and the first is said.

    >>> waits = Histogram("waits", "Seconds of waiting.")
    >>> for n in range(1, 101):
    ...     waits.observe(n / 100)
    >>> waits.quantiles()
    {0.5: 0.5, 0.95: 0.95, 0.99: 0.99}
    >>> waits.min(), waits.mean(), waits.max()
    (0.01, 0.505, 1.0)
    """

    kind = "histogram"
    reserved = ("le", "quantile")

    def __init__(self, name: str, help: str, labels: Sequence[str] = (), bounds: Sequence[float] = SECONDS) -> None:
        super().__init__(name, help, labels)
        try:
            self.bounds = tuple(float(number(name, bound)) for bound in bounds)
            rising = all(low < high for low, high in zip(self.bounds, (*self.bounds[1:], math.inf)))
        except ArgumentError:
            rising = False
        if not rising:
            raise fail(ArgumentError, "metrics", f"the bounds of {name} do not rise: {tuple(bounds)}",
                       "give numbers, each larger than the one before; larger values have a bucket of their own")
        self.left_out = 0

    def observe(self, value: float, *labels: str) -> None:
        """One observation."""
        labels, value = self._checked(labels), number(self.name, value)
        if value != value:
            self.left_out += 1
            if self.left_out == 1:
                _log.warning("[metrics] %s was given NaN, which is left out", self.name)
            return
        place, now = bisect_left(self.bounds, value), monotonic()
        value = float(value)
        with self._lock:
            series = self._values.get(labels)
            if series is None:
                series = self._values[labels] = Series(len(self.bounds) + 1)
            series.add(value, place, now)

    def value(self, *labels: str) -> Any:
        """(counts, sum, count) under these labels, 0 where nothing was observed."""
        labels = tuple(map(_text, labels))
        with self._lock:
            series = self._values.get(labels)
            return 0 if series is None else series.totals()

    def values(self) -> dict[tuple[str, ...], Any]:
        """All of them, by their labels."""
        with self._lock:
            return {labels: series.totals() for labels, series in self._values.items()}

    def quantiles(self, *labels: str, of: Sequence[float] = QUANTILES,
                  window_s: float | None = None) -> dict[float, float]:
        """Quantiles of the last 1000 observations, exact, or of the last `window_s` seconds (at most 300), to 1 %; NaN
        where there are none."""
        if window_s is not None:
            check_window("metrics", window_s)
        now, labels = monotonic(), tuple(map(_text, labels))
        with self._lock:
            series = self._values.get(labels)
            last = [] if series is None or window_s is not None else list(series.last)
            counts = {} if series is None or window_s is None else series.window(window_s, now)
        return quantiles_of(sorted(last), of) if window_s is None else quantiles_of_buckets(counts, of)

    def mean(self, *labels: str) -> float:
        """Mean of the last 1000 observations; NaN where there are none, as of the next four."""
        last = self._last(labels)
        return math.fsum(last) / len(last) if last else math.nan

    def median(self, *labels: str) -> float:
        last = self._last(labels)
        half = len(last) // 2
        return (last[half] + last[~half]) / 2 if last else math.nan

    def std(self, *labels: str) -> float:
        """Standard deviation of all of them, as NumPy's `std` without `ddof`."""
        mean, last = self.mean(*labels), self._last(labels)
        return math.sqrt(math.fsum((value - mean) ** 2 for value in last) / len(last)) if last else math.nan

    def min(self, *labels: str) -> float:
        return next(iter(self._last(labels)), math.nan)

    def max(self, *labels: str) -> float:
        return next(reversed(self._last(labels)), math.nan)

    def _last(self, labels: tuple[Any, ...]) -> list[float]:
        """The last 1000 observations, sorted."""
        labels = self._checked(labels)
        with self._lock:
            series = self._values.get(labels)
            return [] if series is None else sorted(series.last)


class Observed(Metric):
    """A number that is read from where it is counted, when somebody asks: `read` gives it, or several by labels.

    >>> orders = ["plum", "plum", "rhubarb"]
    >>> Observed("orders", "Orders.", lambda: len(orders)).value()
    3
    """

    def __init__(self, name: str, help: str, read: Callable[[], Any], labels: Sequence[str] = (),
                 kind: str = "gauge") -> None:
        super().__init__(name, help, labels)
        self.read, self.kind, self.failures = read, kind, 0

    def values(self) -> dict[tuple[str, ...], Any]:
        """Current values of `read`; empty if there are none. A reader that fails, or gives what is no number,
        is counted and said once: it takes nobody else's figures away."""
        try:
            found = self.read()
            if found is None:
                return {}
            pairs: Iterable[tuple[Any, Any]] = dict(found).items() if self.labels else (((), found),)
            return {self._checked(tuple(labels)): number(self.name, value) for labels, value in pairs}
        except Exception:
            self.failures += 1
            if self.failures == 1:
                _log.warning("[metrics] %s cannot be read", self.name, exc_info=True)
            return {}

    def value(self, *labels: str) -> Any:
        """The number under these labels, 0 where there is none."""
        return self.values().get(tuple(map(_text, labels)), 0)


Kind = TypeVar("Kind", bound=Metric)


class Metrics(ForkSafe):
    """The registry: a name is made once, and asking again gives the same metric.

    >>> known = Metrics()
    >>> known.counter("steps", "Training steps.").add(2)
    >>> known.counter("steps", "Training steps.").value()
    2
    """

    def __init__(self) -> None:
        super().__init__()
        self._metrics: dict[str, Metric] = {}
        self.when_new: list[Callable[[Metric], None]] = []  # told of every metric that is made

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:
        """A number that grows."""
        return self._made(Counter(name, help, labels))

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
        """A number that is set."""
        return self._made(Gauge(name, help, labels))

    def histogram(self, name: str, help: str, labels: Sequence[str] = (),
                  bounds: Sequence[float] = SECONDS) -> Histogram:
        """Observations in buckets."""
        return self._made(Histogram(name, help, labels, bounds))

    def observed(self, name: str, help: str, read: Callable[[], Any], labels: Sequence[str] = (),
                 kind: str = "gauge") -> Observed:
        """A number that is counted elsewhere, read by `read` when somebody asks."""
        return self._made(Observed(name, help, read, labels, kind))

    def find(self, name: str) -> Metric | None:
        """The metric of a name, if there is one."""
        with self._lock:
            return self._metrics.get(name)

    def all(self) -> list[Metric]:
        """Every metric, by name."""
        with self._lock:
            return [self._metrics[name] for name in sorted(self._metrics)]

    def _made(self, made: Kind) -> Kind:
        if not (isinstance(made.name, str) and NAME.fullmatch(made.name)):
            raise fail(ArgumentError, "metrics", f"{made.name!r} is no name of a metric",
                       "use letters, digits and underscores, as Prometheus does")
        with self._lock:
            found = self._metrics.setdefault(made.name, made)
        if type(found) is not type(made) or found.labels != made.labels:
            raise fail(ArgumentError, "metrics", f"{made.name} is a {found.kind} with labels {found.labels} already")
        if found is made:
            for told in self.when_new:
                told(made)
        return found


metrics = Metrics()
