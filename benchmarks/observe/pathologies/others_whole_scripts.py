"""Whole scripts, profiled at their first run: what they compile is part of them. Written by somebody who had read the
issue and `docs/profiling.md` only; two for each cause, with the verdict and the change (`good`) written down before.

They were run as files by `morpho profile script.py`; here they are functions, which nothing calls beforehand
(`cold=True`). How the blind run went: `notes/profiling.md`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.observe.pathologies import Program, pathology
from benchmarks.observe.pathologies.others_waiting import _with_peer


def _normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


# -- compute -----------------------------------------------------------------------------------------------------------
def _neighbours(dtype: Any) -> None:
    table = mo.asarray(_normal(4000, 512, dtype=dtype))
    norms = (table * table).sum(axis=1)
    nearest = mo.compile(lambda q: mo.argmin(norms[None, :] - 2.0 * (q @ table.T), axis=1))
    queries = mo.asarray(_normal(500, 512, dtype=dtype))
    for _ in range(40):
        nearest(queries).numpy()


@pathology("nearest neighbours in NumPy's float64", "compute", cold=True)
def neighbours() -> Program:
    """The change: float32."""
    return Program(lambda: _neighbours(np.float64), lambda: _neighbours(np.float32))


def _prices(dtype: Any, rows: int) -> None:
    """Every day's prices by themselves (`rows` = 1), or those of many days as one batch."""
    spot = mo.broadcast_to(mo.linspace(80.0, 120.0, 30_000, dtype=dtype), (rows, 30_000))

    @mo.compile
    def price(s: Any, k: Any) -> Any:
        d1 = (mo.log(s / k) + 0.01) / 0.14
        call = 0.5 * (s * mo.erfc(-d1 / 1.4142) - k * mo.erfc(0.1 - d1 / 1.4142))
        return (call + mo.tanh(call)).sum(axis=1)

    for day in range(800 // rows):
        price(spot, mo.asarray(90.0 + day, dtype=dtype)).numpy()


@pathology("option prices of a day in one sum each", "compute", "imbalance", cold=True)
def prices() -> Program:
    """A sum of 30,000 costly elements is one thread's, which the verdict says. The change: float32, or a batch."""
    return Program(lambda: _prices(mo.float64, 1), lambda: _prices(mo.float32, 20))


# -- memory ------------------------------------------------------------------------------------------------------------
@pathology("a signal cleaned in six steps", "memory", cold=True)
def six_steps() -> Program:
    """Each step looked at, hence a pass over memory. The change: one compiled function."""
    def bad() -> None:
        signal = mo.ones(12_000_000).realise()
        for _ in range(4):
            x = (signal - 0.5).realise()
            x = (x * 2.0).realise()
            x = mo.abs(x).realise()
            x = (x + 1.0).realise()
            x = mo.minimum(x, 3.0).realise()
            x.sum().item()

    def good() -> None:
        signal = mo.ones(12_000_000).realise()
        clean = mo.compile(lambda s: mo.minimum(mo.abs((s - 0.5) * 2.0) + 1.0, 3.0).sum())
        for _ in range(4):
            clean(signal).item()

    return Program(bad, good)


def _decoded(together: bool) -> None:
    layers = [mo.asarray(_normal(2048, 2048) / 45) for _ in range(6)]

    @mo.compile
    def token(x: Any) -> Any:
        for w in layers:
            x = mo.tanh(x @ w)
        return x

    users = [mo.concat([mo.ones((1, 2048))] * 8)] if together else [mo.ones((1, 2048)) for _ in range(8)]
    for _ in range(12):
        users = [token(x) for x in users]
    users[0].numpy()


@pathology("eight users' tokens one user at a time", "memory", cold=True)
def decoded() -> Program:
    """Each reads all weights. The change: several vectors at once."""
    return Program(lambda: _decoded(False), lambda: _decoded(True))


# -- Python ------------------------------------------------------------------------------------------------------------
@pathology("a notebook's gradient descent", "python", cold=True)
def gradient_descent() -> Program:
    """The change: the step as a compiled function."""
    x, y = mo.asarray(_normal(200, 8)), mo.asarray(_normal(200))

    def step(w: Any) -> Any:
        value, slope = mo.value_and_grad(lambda w: ((x @ w - y) ** 2).mean())(w)
        return value, w - 0.05 * slope

    def run(step: Callable[[Any], Any]) -> None:
        w = mo.zeros(8)
        for _ in range(500):
            value, w = step(w)
            w.realise()
            value.item()

    return Program(lambda: run(step), lambda: run(mo.compile(step)))


@pathology("prey and predators by hand", "python", cold=True)
def predators() -> Program:
    """200,000 calls of a step of two numbers. The change: fori_loop."""
    def step(i: Any, s: Any) -> Any:
        return s + 0.001 * mo.stack([s[0] * (1.1 - 0.4 * s[1]), s[1] * (0.1 * s[0] - 0.4)])

    def bad() -> None:
        once, s = mo.compile(lambda s: step(0, s)), mo.asarray([10.0, 5.0])
        for _ in range(200_000):
            s = once(s)
        s.numpy()

    def good() -> None:
        mo.compile(lambda s: mo.fori_loop(0, 200_000, step, s))(mo.asarray([10.0, 5.0])).numpy()

    return Program(bad, good)


# -- imbalance ---------------------------------------------------------------------------------------------------------
def _totals(parts: int) -> None:
    kinds, items = 64, 400_000
    counts = np.concatenate([np.full(kinds - 1, 200), np.full(parts, items // parts)])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    indices = np.concatenate([np.arange(200)] * (kinds - 1) + [np.arange(items)]).astype(np.int32)
    a = mo.sparse.csr(mo.ones(len(indices)), mo.asarray(indices), mo.asarray(indptr), (len(counts), items))
    total = mo.compile(lambda a, x: a @ x)
    x = mo.ones((items, 8))
    for _ in range(100):
        total(a, x)


@pathology("a category that holds nearly everything", "imbalance", cold=True)
def totals() -> Program:
    """The change: its row in a hundred parts, whose sums are added."""
    return Program(lambda: _totals(1), lambda: _totals(100))


@pathology("a running total of one long series", "imbalance", cold=True)
def running_total() -> Program:
    """The change: several series side by side."""
    def run(rows: int) -> None:
        total = mo.compile(lambda x: mo.cumulative_sum(x, axis=1))
        x = mo.ones((rows, 4_000_000 // rows))
        for _ in range(40):
            total(x)

    return Program(lambda: run(1), lambda: run(16))


# -- recompiles --------------------------------------------------------------------------------------------------------
def _embedded(**options: Any) -> None:
    table, w = mo.asarray(_normal(500, 64)), mo.asarray(_normal(64, 64) / 8)

    def embed(ids: Any) -> Any:
        h = mo.gelu(mo.embedding(table, ids) @ w)
        return (mo.softmax(h @ h.T, axis=-1) @ h).mean(axis=0)

    embedded = mo.compile(embed, **options)
    for length in range(5, 30):
        embedded(mo.asarray(np.arange(length))).numpy()


@pathology("sentences embedded one by one", "recompiles", cold=True)
def embedded() -> Program:
    """The change: a dynamic length."""
    return Program(_embedded, lambda: _embedded(dynamic={"ids": {0: mo.Dim("n", 1, 64)}}))


@pathology("every window of a moving average", "recompiles", cold=True)
def windows() -> Program:
    """The window is a Python number that sizes follow from. The change: a tensor and a mask."""
    series = mo.asarray(_normal(4000))

    def by_size(x: Any, window: int) -> Any:
        sums = mo.cumulative_sum(x)
        return ((x[window:] - (sums[window:] - sums[:-window]) / window) ** 2).mean()

    def by_mask(x: Any, window: Any) -> Any:
        sums, places = mo.cumulative_sum(x), mo.arange(4000)
        inside = places >= window
        mean = (sums - sums[mo.where(inside, places - window, 0)]) / window
        return mo.where(inside, (x - mean) ** 2, 0.0).sum() / (4000 - window)

    def run(function: Any, as_number: Callable[[int], Any]) -> None:
        error = mo.compile(function)
        for window in range(2, 27):
            error(series, as_number(window)).item()

    return Program(lambda: run(by_size, int), lambda: run(by_mask, mo.asarray))


# -- host --------------------------------------------------------------------------------------------------------------
@pathology("an antenna's pattern by np.sinc", "host", cold=True)
def antenna() -> Program:
    """An operation by its NumPy meaning. The change: the same by composition."""
    slow = mo.extend.op("sinc_by_numpy", reference=np.sinc, native=False)

    def sinc(x: Any) -> Any:
        return mo.where(x == 0, 1.0, mo.sin(mo.pi * x) / mo.where(x == 0, 1.0, mo.pi * x))

    def run(sinc: Any) -> None:
        pattern = mo.compile(lambda a, g: (sinc(a * g) ** 2).sum())
        angles = mo.linspace(-30.0, 30.0, 400_000)
        for i in range(60):
            pattern(angles, mo.asarray(0.5 + 0.01 * i)).item()

    return Program(lambda: run(slow), lambda: run(sinc), close=lambda: mo.extend.remove("sinc_by_numpy"))


@pathology("quantiles by NumPy in between", "python", "host", cold=True)
def quantiles() -> Program:
    """The verdict names the line where NumPy is called. The change: mo.quantile in the compiled function."""
    def scaled(z: Any, low: Any, high: Any) -> Any:
        return mo.clip((z - low) / (high - low), 0.0, 1.0)

    def bad() -> None:
        before, after, x = mo.compile(lambda x: x * 1.01 + 0.1), mo.compile(scaled), mo.asarray(_normal(200, 2000))
        for _ in range(60):
            z = before(x)
            low, high = np.quantile(z.numpy(), [0.05, 0.95], axis=1, keepdims=True).astype(np.float32)
            x = after(z, mo.asarray(low), mo.asarray(high))
        x.numpy()

    def good() -> None:
        def turn(x: Any) -> Any:
            z = x * 1.01 + 0.1
            return scaled(z, *(mo.quantile(z, q, axis=1, keepdims=True) for q in (0.05, 0.95)))

        step, x = mo.compile(turn), mo.asarray(_normal(200, 2000))
        for _ in range(60):
            x = step(x)
        x.numpy()

    return Program(bad, good)


# -- transfers ---------------------------------------------------------------------------------------------------------
@pathology("a table made a tensor for each query", "transfers", cold=True)
def table_again() -> Program:
    """The change: copy=False, once."""
    table = np.ones((2_000_000, 4), np.float32)

    def run(given: Callable[[], Any]) -> None:
        pick = mo.compile(lambda t, i: t[i].sum())
        for query in range(60):
            pick(given(), mo.asarray(np.arange(query, query + 1000))).item()

    kept = mo.asarray(table, copy=False)
    return Program(lambda: run(lambda: mo.asarray(table)), lambda: run(lambda: kept))


@pathology("every frame of a film copied in", "transfers", cold=True)
def frames() -> Program:
    """The change: copy=False."""
    film = np.ones((2, 1080, 1920, 3), np.uint8)

    def run(**options: Any) -> None:
        means = mo.compile(lambda f: f[::40, ::40].astype(mo.float32).mean(axis=(0, 1)))
        for frame in [*film] * 100:
            means(mo.asarray(frame, **options)).numpy()

    return Program(run, lambda: run(copy=False))


# -- data --------------------------------------------------------------------------------------------------------------
class Slow(mo.data.Dataset):
    """Items that take a while."""

    def __init__(self, count: int, seconds: float) -> None:
        self.count, self.seconds = count, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> np.ndarray:
        time.sleep(self.seconds)
        return np.full(256, i, np.float32)


def _read(count: int, seconds: float, batch: int, workers: int) -> None:
    w = mo.asarray(_normal(256, 64))
    total = mo.compile(lambda x: mo.tanh(x @ w).sum())
    for rows in mo.data.DataLoader(Slow(count, seconds), batch_size=batch, num_workers=workers):
        total(rows).item()


@pathology("images decoded when asked for", "data", cold=True)
def images() -> Program:
    """The change: num_workers."""
    return Program(lambda: _read(160, 0.003, 16, 0), lambda: _read(160, 0.003, 16, 4))


@pathology("one worker for an object store", "data", cold=True)
def object_store() -> Program:
    """The change: more workers."""
    return Program(lambda: _read(16, 0.04, 1, 1), lambda: _read(16, 0.04, 1, 6))


# -- network -----------------------------------------------------------------------------------------------------------
@pathology("four hundred gradients reduced one by one", "network", cold=True)
def gradients_one_by_one() -> Program:
    """The change: one large collective."""
    def rank(parts: int) -> Callable[[Any], None]:
        def run(group: Any) -> None:
            for _ in range(3):
                for _ in range(parts):
                    if group.rank:
                        time.sleep(0.0005)  # the way of a message between two hosts
                    group.all_reduce(np.ones(25_600 // parts, np.float32), "mean")
        return run

    return Program(lambda: _with_peer(rank(400), rank(400)), lambda: _with_peer(rank(1), rank(1)))


@pathology("a rank with four fifths of the items", "network", cold=True)
def straggler() -> Program:
    """Seen from the other rank, which waits. The change: equal parts."""
    def rank(items: int) -> Callable[[Any], None]:
        def run(group: Any) -> None:
            for _ in range(4):
                time.sleep(0.004 * items)
                group.all_reduce(np.ones(1, np.float32), "sum")
        return run

    return Program(lambda: _with_peer(rank(4), rank(16)), lambda: _with_peer(rank(10), rank(10)))


# -- cold --------------------------------------------------------------------------------------------------------------
_seeds = itertools.count(1)


@pathology("a nightly report of statistics", "cold", "recompiles", cold=True)
def report() -> Program:
    """Functions that run once each, in a container without a cache. The change: code that is kept."""
    x = mo.asarray(_normal(300, 40))

    def made(seed: float) -> list[Any]:
        return [mo.compile(lambda x, i=i: (mo.softmax(mo.tanh(x[:, i:] * (i + seed)), axis=-1) - x[:, i:]).std(axis=0))
                for i in range(1, 11)]

    warm = made(0.5)

    def bad() -> None:
        with mo.settings(cache=False):
            for f in made(float(next(_seeds))):
                f(x).numpy()

    for f in warm:
        f(x)
    return Program(bad, lambda: [f(x).numpy() for f in warm])


@pathology("a handler that answers one prompt", "cold", cold=True)
def one_prompt() -> Program:
    """A model of its own width, loaded for one answer. The change: a cache that is kept, a warm-up."""
    widths = itertools.count(40, 8)

    def made(width: int) -> Any:
        layers = [mo.asarray(_normal(width, width) / 8) for _ in range(6)]

        def answer(x: Any) -> Any:
            for w in layers:
                x = x + mo.gelu(mo.rms_norm(x) @ w)
            return mo.softmax(x)
        return mo.compile(answer), mo.ones((3, width))

    warm, prompt = made(32)
    warm(prompt)

    def bad() -> None:
        answer, asked = made(next(widths))
        with mo.settings(cache=False):
            answer(asked).numpy()

    return Program(bad, lambda: warm(prompt).numpy())
