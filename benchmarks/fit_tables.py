"""The numbers of `backends/code/vector_math/normal.py`: polynomials of degree eight on intervals.

Their coefficients are float32.

    python benchmarks/fit_tables.py gelu          # prints the parts of one function as Python
    python benchmarks/fit_tables.py gelu_slope

Needs SciPy (`pip install -e '.[bench]'`). Errors, in units of the last place, go to standard error. Coefficients are
rounded one after another from the constant term up, and what is left is fitted again to what each rounding lost. The
centre of an interval is that of some candidates with the least error: where the value is nearly a float, and away from
the middle towards smaller values, where roundings weigh most.
"""

from __future__ import annotations

import argparse
import math
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

DEGREE, INTERVALS = 8, 8
ZERO_POWERS = [0.0] * (DEGREE + 1)
Array = Any


@dataclass(frozen=True)
class Task:
    """A function of t >= 0, what its errors are relative to, and how its parts are to lie."""

    function: Callable[[Array], Array]
    weight: Callable[[Array], Array]
    top: float  # of the first part
    shift: float  # the larger, the shorter is the first interval
    end: float  # from here on every float is zero


def tasks() -> dict[str, Task]:
    from scipy.special import erfc

    def below(t: Array) -> Array:  # Phi(-t)
        return 0.5 * erfc(t / np.sqrt(2))

    def slope(t: Array) -> Array:
        return t * np.exp(-t * t / 2) / np.sqrt(2 * np.pi) - below(t)

    return {"gelu": Task(lambda t: t * below(t), lambda t: t * below(t), 5.36, 0.1, 14.357),
            "gelu_slope": Task(slope, lambda t: np.maximum(below(t), np.abs(slope(t))), 5.93, 0.01, 14.542)}


def as_float(value: float) -> float:
    """The nearest float32."""
    return float(np.float32(value))


def fit(task: Task, scale: float, span: tuple[float, float], centre: float, fixed: list[float]) -> list[float]:
    """Coefficients with the least relative error, the first of them given: least squares, weighted where errors are
    largest until they are even."""
    low, high = span
    t = (low + high) / 2 + (high - low) / 2 * np.cos((np.arange(300) + 0.5) * np.pi / 300)
    weight, r = task.weight(t) * scale, t - centre
    size, known = np.abs(r).max(), len(fixed)
    powers = np.vander(r / size, DEGREE + 1, increasing=True)
    wanted = task.function(t) * scale - powers[:, :known] @ (np.array(fixed) * size ** np.arange(known))
    emphasis = np.ones(t.size)
    for _ in range(40):
        each = np.sqrt(emphasis) / weight
        found, *_ = np.linalg.lstsq(powers[:, known:] * each[:, None], wanted * each, rcond=None)
        errors = np.abs((powers[:, known:] @ found - wanted) / weight)
        emphasis *= errors / errors.max() + 1e-3
        emphasis /= emphasis.mean()
    return [*fixed, *(found / size ** np.arange(known, DEGREE + 1))]


def rounded_fit(task: Task, scale: float, span: tuple[float, float], centre: float) -> list[float]:
    """The same with float32 coefficients, rounded one after another."""
    fixed = [as_float(task.function(np.float64(centre)) * scale)]
    while len(fixed) <= DEGREE:
        fixed.append(as_float(fit(task, scale, span, centre, fixed)[len(fixed)]))
    return fixed


def error_in_ulps(task: Task, scale: float, powers: list[float], centre: float, t: Array) -> float:
    """The largest error of the polynomial as it is computed, by Horner's rule."""
    r = (t - np.float32(centre)).astype(np.float64)
    value = np.full(t.size, powers[-1])
    for power in powers[-2::-1]:
        value = (value * r + power).astype(np.float32).astype(np.float64)
    true = task.function(t.astype(np.float64)) * scale
    unit = np.spacing((task.weight(t.astype(np.float64)) * scale).astype(np.float32)).astype(np.float64)
    return float((np.abs(value - true) / unit).max())


def best_of(task: Task, scale: float, low: float, high: float, random: np.random.Generator) \
        -> tuple[float, list[float]]:
    """The centre and the coefficients of an interval."""
    t = random.uniform(low, high, 30000).astype(np.float32)
    centres = [0.0] if low == 0 else []
    for share in (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85) if low else ():
        start = np.float32(low + (high - low) * share).view(np.int32)
        near = (start + np.arange(-3000, 3001, dtype=np.int32)).view(np.float32)
        values = task.function(near.astype(np.float64)) * scale
        lost = np.abs(values - values.astype(np.float32)) / np.spacing(np.abs(values).astype(np.float32))
        centres.append(float(near[lost.argmin()]))
    tried = [(c, rounded_fit(task, scale, (low * 0.99999, high * 1.00001), c)) for c in centres]
    errors = [error_in_ulps(task, scale, powers, c, t) for c, powers in tried]
    print(f"{low:8.4f} to {high:8.4f}: {min(errors):.2f} ulp", file=sys.stderr)
    return tried[int(np.argmin(errors))]


def parts(task: Task) -> list[str]:
    """All parts as Python: the first one from zero on, each of the others from the top of the one before."""
    random, first = np.random.default_rng(0), 4
    start = as_float(math.sqrt(first - 0.5 + task.shift))
    steepness = as_float((math.sqrt(first + 7.5) - start) / (task.top * 1.0005))
    edges = [0.0, *((math.sqrt(first + 0.5 + n) - start) / steepness for n in range(INTERVALS))]
    rows = [best_of(task, 1.0, low, high, random) for low, high in pairwise(edges)]
    found, top = [text(steepness, start, first, as_float(task.top), 1.0, 0.0, rows)], as_float(task.top)
    while top < task.end:
        begin = top - 0.02  # so that the law of the intervals may be off by some floats
        first = round(begin * begin / 4.1 - 0.5)  # each over a factor of e**2.05
        steepness = as_float(math.sqrt(first + 0.5) / begin)
        edges = [math.sqrt(first + 0.5 + n) / steepness for n in range(INTERVALS)]
        scale = 2.0 ** min(126, round(-math.log2(abs(float(task.function(np.float64(begin)))))))
        rows = [(0.0, ZERO_POWERS)]
        for low, high in pairwise(edges):
            centre, powers = best_of(task, scale, low, high, random)
            rows.append((centre, powers if low <= task.end else ZERO_POWERS))
        top = as_float(edges[-1] - 0.004)
        found.append(text(steepness, 0.0, first, top, 1 / scale, as_float(math.sqrt(first) / steepness), rows))
    return found


def short(value: float) -> str:
    """The fewest digits that are this float32."""
    for digits in range(5, 18):
        written = f"{value:.{digits}g}"
        if struct.pack("<f", float(written)) == struct.pack("<f", value):
            return written if "." in written or "e" in written else written + ".0"
    raise ValueError(value)


def row(values: list[float], indent: int) -> str:
    words = [short(value) for value in values]
    line = " " * indent + f"({', '.join(words)}),\n"
    if len(line) <= 120:
        return line
    return " " * indent + f"({', '.join(words[:5])},\n" + " " * (indent + 1) + f"{', '.join(words[5:])}),\n"


def text(steepness: float, start: float, first: int, top: float, scale: float, done: float,
         rows: list[tuple[float, list[float]]]) -> str:
    """A `Part` as Python."""
    head = f"{short(steepness)}, {short(start)}, {first}, {short(top)}, {scale!r}, {short(done)},"
    powers = "".join(row([powers[n] for _, powers in rows], 12) for n in range(DEGREE, -1, -1))
    return f"    Part(\n        {head}\n{row([c for c, _ in rows], 8)}        (\n{powers}        ),\n    ),\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("function", choices=["gelu", "gelu_slope"])
    print("".join(parts(tasks()[parser.parse_args().function])), end="")


if __name__ == "__main__":
    main()
