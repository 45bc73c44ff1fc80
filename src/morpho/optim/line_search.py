"""A step length along a direction that meets the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6):
the loss falls by a share of what the slope promises, and the slope there is a good deal flatter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import morpho as mo

ENOUGH = 1e-4  # of the fall that the first slope promises
FLATTER = 0.9  # the slope at the end, as a share of the first one
MOST_EVALUATIONS = 25


@dataclass(frozen=True)
class Point:
    """The loss at a length along a direction: its value, gradient and slope."""

    length: float
    value: float
    gradient: mo.Tensor
    slope: float


def strong_wolfe(at: Callable[[float], Point], start: Point, length: float, least: float) -> tuple[Point, int]:
    """A point that meets both conditions, or the best one found, and the number of evaluations. `least` is the length
    below which nothing is looked for."""
    before = start
    for number in range(1, MOST_EVALUATIONS + 1):
        now = at(length)
        if _too_high(now, start) or (number > 1 and now.value >= before.value):
            return _narrowed(at, start, before, now, number, least)
        if abs(now.slope) <= -FLATTER * start.slope:
            return now, number
        if now.slope >= 0:
            return _narrowed(at, start, now, before, number, least)
        guess = _lowest(before, now)  # further on, but not without bounds
        before, length = now, min(max(guess, 1.01 * length + 0.01 * (length - before.length)), 10 * length)
    return before, MOST_EVALUATIONS


def _too_high(point: Point, start: Point) -> bool:
    return not point.value <= start.value + ENOUGH * point.length * start.slope  # NaN is too high


def _narrowed(at: Callable[[float], Point], start: Point, low: Point, high: Point, number: int,
              least: float) -> tuple[Point, int]:
    """Between the best point so far and one on the other side of a minimum."""
    while number < MOST_EVALUATIONS and abs(high.length - low.length) * _largest_slope(low) > least:
        first, last = sorted((low.length, high.length))
        room = 0.1 * (last - first)
        now = at(min(max(_lowest(low, high), first + room), last - room))
        number += 1
        if _too_high(now, start) or now.value >= low.value:
            high = now
            continue
        if abs(now.slope) <= -FLATTER * start.slope:
            return now, number
        if now.slope * (high.length - low.length) >= 0:
            high = low
        low = now
    return low, number


def _largest_slope(point: Point) -> float:
    return max(abs(point.slope), 1e-300)


def _lowest(a: Point, b: Point) -> float:
    """The minimum of the cubic through two points with their slopes, or the middle where it has none."""
    middle = (a.length + b.length) / 2
    if a.length == b.length:
        return middle
    bend = a.slope + b.slope - 3 * (a.value - b.value) / (a.length - b.length)
    inside = bend * bend - a.slope * b.slope
    if not inside >= 0:
        return middle
    root = math.copysign(math.sqrt(inside), b.length - a.length)
    below = b.slope - a.slope + 2 * root
    found = b.length - (b.length - a.length) * (b.slope + root - bend) / below if below else middle
    return found if math.isfinite(found) else middle
