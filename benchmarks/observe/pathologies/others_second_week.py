"""Mistakes of the second week: programs that work, written by somebody who had not read the analyser.

Two each for arithmetic, memory, Python and threads, one for each other cause. The right first verdict and the change
that the advice should lead to (`good`) were written down before the first run: see `notes/profiling.md`.
"""

from __future__ import annotations

import itertools
import json
import time
from threading import Thread
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.observe.pathologies import Program, pathology


def _numbers(*shape: int, dtype: Any = np.float32) -> mo.Tensor:
    return mo.asarray(np.random.default_rng(5).random(shape).astype(dtype) + dtype(0.5))


# -- compute -----------------------------------------------------------------------------------------------------------
@pathology("option prices in double precision", "compute")
def option_prices() -> Program:
    """Black and Scholes for 20,000 strikes, again and again: logarithms and error functions of what stays in the cache.

    The change: float32, which cents do not notice.
    """
    def normal(x: Any) -> Any:
        return 0.5 * (1 + mo.erf(x / 1.4142135))

    def price(spot: Any, strike: Any) -> Any:
        d1 = (mo.log(spot / strike) + 0.12) / 0.4
        return spot * normal(d1) - strike * mo.exp(mo.full((), -0.04, dtype=spot.dtype)) * normal(d1 - 0.4)

    priced = mo.compile(price)
    wide = _numbers(20_000, dtype=np.float64), _numbers(20_000, dtype=np.float64)
    narrow = _numbers(20_000), _numbers(20_000)
    return Program(lambda: [priced(*wide) for _ in range(100)], lambda: [priced(*narrow) for _ in range(100)])


@pathology("a blur by one large square kernel", "compute")
def square_blur() -> Program:
    """A Gaussian of 21 x 21 by one convolution. The change: fewer operations, a row of 21 and a column of 21."""
    row = np.exp(-0.5 * ((np.arange(21) - 10) / 4.0) ** 2).astype(np.float32)
    row /= row.sum()
    image = _numbers(1, 1, 320, 320)
    square = mo.asarray(np.outer(row, row)[None, None])
    across, down = mo.asarray(row[None, None, None, :]), mo.asarray(row[None, None, :, None])
    blur = mo.compile(lambda x, w: mo.conv2d(x, w, padding=10))
    twice = mo.compile(lambda x, a, d: mo.conv2d(mo.conv2d(x, a, padding=(0, 10)), d, padding=(10, 0)))
    return Program(lambda: [blur(image, square) for _ in range(8)],
                   lambda: [twice(image, across, down) for _ in range(8)])


# -- memory ------------------------------------------------------------------------------------------------------------
@pathology("momentum updated line by line", "memory")
def momentum() -> Program:
    """An optimiser written as NumPy code is, every line asked for. The change: one compiled function for the lines."""
    weights, gradient, kept = (_numbers(3_000_000).realise() for _ in range(3))

    def bad() -> None:
        w, m = weights, kept
        for _ in range(4):
            m = (m * 0.9).realise()
            m = (m + gradient).realise()
            step = (m * 0.01).realise()
            w = (w - step).realise()

    @mo.compile
    def update(w: Any, m: Any, g: Any) -> Any:
        m = m * 0.9 + g
        return w - m * 0.01, m

    def good() -> None:
        w, m = weights, kept
        for _ in range(4):
            w, m = update(w, m, gradient)

    return Program(bad, good)


@pathology("one column of a wide table at a time", "memory")
def one_column() -> Program:
    """A column store read as rows: every number of a column is in a cache line of its own.

    The change: the table the other way round (columns contiguous), or all columns in one pass.
    """
    table = _numbers(200_000, 24)
    means = [mo.compile(lambda t, k=k: (t[:, k] * 0.5 + 0.25).mean()) for k in range(24)]
    together = mo.compile(lambda t: (t * 0.5 + 0.25).mean(axis=0))
    return Program(lambda: [mean(table) for mean in means], lambda: together(table))


# -- python ------------------------------------------------------------------------------------------------------------
@pathology("a game of life called turn by turn", "python")
def life() -> Program:
    """3,000 calls of a compiled turn on a small board. The change: the loop into the compiled function."""
    def turn(board: Any) -> Any:
        around = mo.zeros_like(board)
        for down, right in itertools.product((-1, 0, 1), (-1, 0, 1)):
            if down or right:
                around = around + mo.roll(board, (down, right), axis=(0, 1))
        return mo.where((around == 3) | ((around == 2) & (board == 1)), 1.0, 0.0)

    start = mo.asarray((np.random.default_rng(1).random((10, 10)) < 0.4).astype(np.float32))
    once = mo.compile(turn)
    many = mo.compile(lambda board: mo.fori_loop(0, 3000, lambda i, b: turn(b), board))

    def bad() -> None:
        board = start
        for _ in range(3000):
            board = once(board)

    return Program(bad, lambda: many(start))


@pathology("an array filled element by element", "python")
def filled() -> Program:
    """x[i] = ... in a loop, as in C. The change: the values as one array, or the loop compiled."""
    def bad() -> None:
        x = mo.zeros(400)
        for i in range(400):
            x[i] = (i % 7) * 0.5
        x.numpy()

    return Program(bad, lambda: ((mo.arange(400) % 7) * 0.5).numpy())


# -- threads -----------------------------------------------------------------------------------------------------------
@pathology("a hub in a sparse graph", "imbalance")
def hub() -> Program:
    """One node of a graph has five times the edges of all others together: its row is one thread's.

    The change: rows of equal cost; the hub's row as a dense product, which is divided along its elements.
    """
    rng = np.random.default_rng(3)
    nodes, others, each = 100_000, 1000, 20
    near = np.sort(rng.integers(0, nodes, (others, each)), axis=1)
    edges, starts = rng.random(nodes + others * each, dtype=np.float32), np.arange(others + 1) * each
    graph = mo.sparse.csr(edges, np.concatenate([np.arange(nodes), near.ravel()]),
                          np.concatenate([[0], nodes + starts]), (others + 1, nodes))
    without = mo.sparse.csr(edges[nodes:], near.ravel(), starts, (others, nodes))
    row, x = mo.asarray(edges[None, :nodes].copy()), _numbers(nodes, 16)
    whole = mo.compile(lambda a, x: a @ x)
    apart = mo.compile(lambda a, r, x: (r @ x, a @ x))
    return Program(lambda: [whole(graph, x) for _ in range(30)], lambda: [apart(without, row, x) for _ in range(30)])


@pathology("a balance carried through a long ledger", "imbalance")
def ledger() -> Program:
    """A scan over one account of a million bookings. The change: accounts side by side, a batch that threads share."""
    def interest(balance: Any, booking: Any) -> Any:
        return (balance * 1.00001 + mo.sqrt(mo.abs(balance)) * 1e-6 + booking,) * 2

    one = mo.compile(lambda bookings: mo.scan(interest, 0.0, bookings)[1])
    accounts = np.random.default_rng(2).standard_normal((6, 300_000)).astype(np.float32)
    single = [mo.asarray(row.copy()) for row in accounts]
    beside = mo.asarray(np.ascontiguousarray(accounts.T))
    all_of_them = mo.compile(lambda bookings: mo.scan(interest, mo.zeros(6), bookings)[1])
    return Program(lambda: [one(row) for row in single], lambda: all_of_them(beside))


# -- recompiles --------------------------------------------------------------------------------------------------------
@pathology("a growing window of a series", "recompiles", cold=True)
def growing_window() -> Program:
    """The volatility of everything up to today, for each day: a shape per day. The change: a bounded dynamic length."""
    rng = np.random.default_rng(4)
    days = [rng.random(length, dtype=np.float32) for length in range(100, 125)]

    def volatility(x: Any) -> Any:
        return mo.sqrt(mo.mean((x - mo.mean(x)) ** 2))

    def run(**options: Any) -> None:
        measure = mo.compile(volatility, **options)
        for day in days:
            measure(day).item()

    return Program(run, lambda: run(dynamic={"x": {0: mo.Dim("days", 1, 256)}}))


# -- host --------------------------------------------------------------------------------------------------------------
@pathology("a clipping rule by np.piecewise", "host")
def piecewise() -> Program:
    """An operation of one's own, by its NumPy meaning alone. The change: Morpho's own operations."""
    name = "ramp_by_numpy"
    ramp = mo.extend.op(name, native=False,
                        reference=lambda x: np.piecewise(x, [x < 0, x > 1], [0, 1, lambda v: v * v]))
    x, w = _numbers(256, 256), _numbers(256, 16)
    slow = mo.compile(lambda x, w: ramp(x - 0.8) @ w)

    def rule(x: Any, w: Any) -> Any:
        x = x - 0.8
        return mo.where(x < 0, 0.0, mo.where(x > 1, 1.0, x * x)) @ w

    fast = mo.compile(rule)
    return Program(lambda: [slow(x, w) for _ in range(60)], lambda: [fast(x, w) for _ in range(60)],
                   lambda: mo.extend.remove(name))


# -- transfers ---------------------------------------------------------------------------------------------------------
@pathology("an activation by NumPy between two layers on a device", "transfers")
def there_and_back() -> Program:
    """Results come to the host for one function and go back. The change: that function on the device."""
    from morpho.backends.cuda.emulator.install import install

    gpu = install()
    x = mo.ones((1500, 2000)).realise().to(gpu)

    def bad() -> None:
        for _ in range(4):
            y = mo.asarray(np.maximum(x.numpy(), 0), device=gpu)
            y[0, :4].numpy()

    def good() -> None:
        for _ in range(4):
            mo.relu(x[0, :4]).numpy()

    return Program(bad, good)


# -- data --------------------------------------------------------------------------------------------------------------
class _Lines(mo.data.Dataset):
    """Lines of JSON, parsed whenever one is asked for, or once."""

    def __init__(self, parsed: bool) -> None:
        rows = np.random.default_rng(6).random((96, 400)).round(4).tolist()
        self.lines: list[Any] = [json.dumps({"features": row}) for row in rows]
        if parsed:
            self.lines = [np.asarray(row, np.float32) for row in rows]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, number: int) -> Any:
        line = self.lines[number]
        return np.asarray(json.loads(line)["features"], np.float32) if isinstance(line, str) else line


@pathology("lines of JSON parsed in every epoch", "data")
def parsed_again() -> Program:
    """The change: items that are ready (parsed once), or workers."""
    score = mo.compile(lambda x: mo.mean(mo.tanh(x)))
    text, ready = _Lines(False), _Lines(True)

    def epochs(rows: Any) -> None:
        for _ in range(6):
            for batch in mo.data.DataLoader(rows, batch_size=32):
                score(batch)

    return Program(lambda: epochs(text), lambda: epochs(ready))


# -- network -----------------------------------------------------------------------------------------------------------
@pathology("a barrier after every step", "network")
def barriers() -> Program:
    """Ranks that meet although nothing is exchanged; the other one is late at every second step.

    The change: fewer meetings: one at the end.
    """
    from morpho.cluster.groups.threads import run_threads

    step = mo.compile(lambda x: mo.tanh(x @ x))
    x = _numbers(128, 128)

    def run(every: int) -> None:
        def other(group: Any) -> None:
            for number in range(30):
                time.sleep(0.001 if number % 2 else 0.004)
                if number % every == every - 1:
                    group.barrier()

        here, there = run_threads(2, lambda group: group)
        beside = Thread(target=other, args=(there,))
        beside.start()
        for number in range(30):
            step(x)
            time.sleep(0.002 if number % 2 else 0.0002)
            if number % every == every - 1:
                here.barrier()
        beside.join()

    return Program(lambda: run(1), lambda: run(30))


# -- cold --------------------------------------------------------------------------------------------------------------
@pathology("a tool that answers one question", "cold", cold=True)
def one_question() -> Program:
    """A process that starts, computes one Hessian and ends. The change: a cache that is kept, or a warm-up."""
    sizes = itertools.count(9)

    def made(n: int) -> Any:
        a = _numbers(n, n)
        return mo.compile(mo.hessian(lambda x: mo.sum(mo.log1p(mo.exp(a @ x))))), _numbers(n)

    warm, point = made(8)
    warm(point)

    def bad() -> None:
        hessian, x = made(next(sizes))
        with mo.settings(cache=False):
            hessian(x).numpy()

    return Program(bad, lambda: warm(point).numpy())
