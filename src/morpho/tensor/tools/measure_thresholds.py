"""Where one way of computing products becomes faster than another on this machine, by trying both in turns.

`morpho doctor --measure` calls this and nothing else does: without it the defaults of
`cost/dispatch_thresholds.py` hold.
Kernels of the same bits race with each other; BLAS and Strassen's method are asked about for `fast` alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from morpho.backends.driver import threads
from morpho.base import settings
from morpho.base.target import current_isa
from morpho.cost.contraction import ContractionRates
from morpho.cost.dispatch_thresholds import MOST, DispatchThresholds, defaults_for
from morpho.runtime import measure, thresholds
from morpho.tensor.core import Tensor
from morpho.tensor.functions.create import ones
from morpho.tensor.functions.products.products import matmul
from morpho.tensor.jit.compile import compile

ROUNDS = 7
ROUND_S = 5e-4  # a way is repeated until a round takes about this long
SETTLE_S = 0.05  # OpenBLAS's threads spin for some time after a product
NEVER = 1 << 40
LAYOUTS = {"unpacked_bytes": False, "unpacked_transposed_bytes": True}  # whether the right operand is transposed
DIRECT_ROWS, DIRECT_SIZES = (1, 2, 4, 8), (32, 64, 128, 256, 512, 1024)
BLOCK_ROWS, BLOCK_SHAPE = (8, 16, 32, 64, 128), (2048, 1024)
SHARED_SIZES = (16, 24, 32, 48, 64, 96, 128, 192, 256)
BLAS_SIZES = (64, 128, 256, 512, 1024)
STRASSEN_SIZES = (1024, 2048)
CHECKED = ((1, 64, 64), (2, 256, 256), (8, 256, 256), (48, 48, 48), (96, 96, 96), (128, 768, 768), (512, 512, 512))
ALGORITHMS = ("kernel", "parallel")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A compiled call, and the thresholds it was made with."""

    call: Callable[[], Any]
    forced: DispatchThresholds


@dataclass(frozen=True, slots=True)
class Check:
    """A product m x k x n by `auto`, and by the best of all ways of the same bits, in seconds."""

    shape: tuple[int, int, int]
    auto_s: float
    best_s: float
    best: str


def race(ways: Sequence[Candidate], settle_s: float = 0.0) -> list[float]:
    """The least seconds of each way; they take turns, so that a busy moment of the machine hits all of them."""
    repeats = [max(1, math.ceil(ROUND_S / max(_seconds(way, 1), 1e-7))) for way in ways]
    best = [math.inf] * len(ways)
    for _ in range(ROUNDS):
        for number, (way, count) in enumerate(zip(ways, repeats, strict=True)):
            time.sleep(settle_s)
            best[number] = min(best[number], _seconds(way, count))
    return best


def _seconds(way: Candidate, count: int) -> float:
    call = way.call
    with thresholds.using(way.forced):
        call()  # through Python, which finds the program of these thresholds
        started = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - started) / count


def measure_thresholds(keep: bool = True) -> DispatchThresholds:
    """Measure all of them, in about half a minute, and keep them in the machine profile; see
    `cost/dispatch_thresholds.py`."""
    with settings.settings(fast=False, autocast="", nans="", device="cpu"):
        found = defaults_for(current_isa().vector_bits)
        found = replace(found, single_k_block_rows=_single_k_block_rows(found), parallel_macs=_parallel_macs(found))
        found = replace(found, **{name: _unpacked_bytes(found, name) for name in LAYOUTS})  # type: ignore[arg-type]
        with thresholds.using(found):
            blas_size, strassen_size = _fast_sizes()
            found = replace(found, blas_size=blas_size, strassen_size=strassen_size, rates=_rates())
    if keep:
        thresholds.store(found)
    return found


def check_auto(found: DispatchThresholds) -> list[Check]:
    """How `auto` does with these thresholds against the best of the kernels it chooses among."""
    rows = []
    with settings.settings(fast=False, autocast="", nans="", device="cpu"):
        for shape in CHECKED:
            ways = {"auto": product(shape, found)}
            for name in ALGORITHMS:
                ways[f"{name}, packed"] = product(shape, replace(found, unpacked_bytes=()), name)
            if shape[0] <= max(DIRECT_ROWS):
                ways["unpacked"] = product(shape, replace(found, unpacked_bytes=(MOST,) * shape[0]))
            seconds = dict(zip(ways, race(list(ways.values())), strict=True))
            auto_s = seconds.pop("auto")
            best = min(seconds, key=seconds.__getitem__)
            rows.append(Check(shape, auto_s, seconds[best], best))
    return rows


def product(shape: tuple[int, int, int], forced: DispatchThresholds, algorithm: str = "auto",
            transposed: bool = False) -> Candidate:
    """One compiled product m x k x n of two arguments, made with those thresholds; `transposed`: B is."""
    m, k, n = shape
    a, b = ones((m, k)).realise(), ones((n, k) if transposed else (k, n)).realise()

    def function(x: Tensor, y: Tensor) -> Tensor:
        return matmul(x, y.T if transposed else y, algorithm=algorithm)

    return made(function, forced, a, b)


def made(function: Callable[..., Tensor], forced: DispatchThresholds, *arguments: Tensor) -> Candidate:
    """A compiled function, called twice, so that its native entry serves it."""
    compiled = compile(function)
    with thresholds.using(forced):
        compiled(*arguments)
        compiled(*arguments)
    return Candidate(partial(compiled, *arguments), forced)


# -- kernels of the same bits ------------------------------------------------------------------------------------------
def cut(gains: Sequence[float]) -> int:
    """How many sizes, from the smallest on, are better one way, where the other takes `gains` times as long: so many
    that the worst choice costs least, then that all of them do.

    >>> cut([2.0, 1.3, 0.99, 1.08, 0.5])
    4
    """
    def regrets(count: int) -> tuple[float, float, int]:
        lost = [max(0.0, -math.log(gain)) for gain in gains[:count]] + [max(0.0, math.log(g)) for g in gains[count:]]
        return max(lost, default=0.0), sum(lost), -count

    return min(range(len(gains) + 1), key=regrets)


def first_of(sizes: Sequence[int], wins: Callable[[int], bool]) -> int:
    """The smallest size from which on all of them win; 0 where the last does not."""
    first = 0
    for size in reversed(sizes):
        if not wins(size):
            break
        first = size
    return first


def _unpacked_bytes(found: DispatchThresholds, name: str) -> tuple[int, ...]:
    """By rows, the largest right operand up to which reading it as it lies is better than packing it first."""
    limits: list[int] = []
    for rows in DIRECT_ROWS:
        def gain(size: int, rows: int = rows) -> float:
            direct, packed = race([product((rows, size, size), replace(found, **{name: limits}), "auto", LAYOUTS[name])  # type: ignore[arg-type]
                                   for limits in ((MOST,) * rows, ())])
            return packed / direct

        count = cut([gain(size) for size in DIRECT_SIZES])
        limit = MOST if count == len(DIRECT_SIZES) else 4 * DIRECT_SIZES[count - 1] ** 2 if count else 0
        limits += [limit] * (rows - len(limits))  # rows between two that were tried go with the larger
        if not count:
            break
    while limits and not limits[-1]:
        limits.pop()
    return tuple(limits)


def _single_k_block_rows(found: DispatchThresholds) -> int:
    """Rows up to which one block of k is better than several; the weight is packed before."""
    weight = ones(BLOCK_SHAPE).realise()

    def gain(rows: int) -> float:
        x = ones((rows, BLOCK_SHAPE[0])).realise()
        one, several = race([made(lambda x: x @ weight, replace(found, single_k_block_rows=most), x)
                             for most in (rows, 0)])
        return several / one

    return (0, *BLOCK_ROWS)[cut([gain(rows) for rows in BLOCK_ROWS])]


def _parallel_macs(found: DispatchThresholds) -> int:
    """Multiply-adds from which all threads are faster than one."""
    if threads.wanted_threads() == 1:
        return found.parallel_macs

    def gain(size: int) -> float:
        alone, shared = race([product((size,) * 3, found, name) for name in ALGORITHMS])
        return shared / alone

    count = cut([gain(size) for size in SHARED_SIZES])
    return SHARED_SIZES[count] ** 3 - 1 if count < len(SHARED_SIZES) else NEVER


# -- others, for `fast` ------------------------------------------------------------------------------------------------
def _fast_sizes() -> tuple[int, int]:
    """From which size on BLAS, and Strassen's method, are faster than Morpho's own kernels and than each other."""
    seconds: dict[int, dict[str, float]] = {}
    with _at_rest():
        for size in sorted({*BLAS_SIZES, *STRASSEN_SIZES}):
            names = ["auto", *(name for name, sizes in (("blas", BLAS_SIZES), ("strassen", STRASSEN_SIZES))
                               if size in sizes)]
            ways = [product((size,) * 3, thresholds.current(), name) for name in names]
            seconds[size] = dict(zip(names, race(ways, SETTLE_S), strict=True))

    def beats(name: str, size: int) -> bool:
        return seconds[size][name] < min(second for other, second in seconds[size].items() if other != name)

    strassen = first_of(STRASSEN_SIZES, lambda size: beats("strassen", size))
    below = [size for size in BLAS_SIZES if not strassen or size < strassen]
    return first_of(below, lambda size: beats("blas", size)), strassen


@contextmanager
def _at_rest() -> Iterator[None]:
    """Before and after, the threads of BLAS have had time to stop spinning. (Its products set how many there are.)"""
    time.sleep(SETTLE_S)
    yield
    time.sleep(SETTLE_S)


def _rates() -> ContractionRates:
    """Measured rates of contractions: operations of a product, bytes of a sweep, and the cost of a further small
    product."""
    size, more = 512, 16
    small = ones((4, 4)).realise()

    def chain(x: Tensor) -> Tensor:
        y = x
        for _ in range(more + 1):
            y = y @ x
        return y

    here = thresholds.current()
    seconds, one, many = race([product((size,) * 3, here), made(lambda x: x @ x, here, small),
                               made(chain, here, small)])
    return ContractionRates(2.0 * size**3 / seconds, measure.machine_profile().bytes_per_s,
                            max((many - one) / more, 1e-9))
