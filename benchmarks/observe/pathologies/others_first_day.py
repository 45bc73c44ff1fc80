"""What somebody writes on the first day with Morpho, coming from NumPy and PyTorch, without having read the analyser.

The kinds were decided before the first run; `notes/profiling.md` has what came of it.
"""

from __future__ import annotations

import itertools
import time
from threading import Thread
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.observe.pathologies import Program, pathology


@pathology("a filter of eight numbers in a Python loop", "python")
def filter_in_python() -> Program:
    gain = mo.full(8, 0.1)

    def bad() -> None:
        state = mo.zeros(8)
        for _ in range(300):
            state = (state * 0.9 + gain).realise()

    smooth = mo.compile(lambda x: mo.fori_loop(0, 300, lambda i, state: state * 0.9 + gain, x))
    return Program(bad, lambda: smooth(mo.zeros(8)).realise())


@pathology("sentences of every length", "recompiles", cold=True)
def every_length() -> Program:
    rng = np.random.default_rng(0)
    table = mo.asarray(rng.random((32, 64), dtype=np.float32))
    sentences = [rng.random((length, 32), dtype=np.float32) for length in range(20, 50)]

    def score(tokens: Any, weights: Any) -> Any:
        return mo.softmax(tokens @ weights, axis=-1).max(axis=-1)

    def run(**options: Any) -> None:
        scored = mo.compile(score, **options)
        for sentence in sentences:
            scored(sentence, table).numpy()

    return Program(run, lambda: run(dynamic={"tokens": {0: mo.Dim("n", 1, 64)}}))


@pathology("a spectral radius by general eigenvalues", "compute")  # "host", until LAPACK was called from native code
def spectral_radius() -> Program:
    values = np.random.default_rng(0).random((100, 100), dtype=np.float32)
    a = mo.asarray(values + values.T)
    general = mo.compile(lambda a: mo.abs(mo.linalg.eigvals(a * 0.5)).max())
    symmetric = mo.compile(lambda a: mo.abs(mo.linalg.eigvalsh(a * 0.5)).max())
    return Program(lambda: [general(a) for _ in range(5)], lambda: [symmetric(a) for _ in range(5)])


@pathology("an image far larger than the caches", "memory")
def large_image() -> Program:
    def made(dtype: Any) -> Any:
        image, mean = mo.ones((2048, 2048), dtype=dtype).realise(), mo.full((2048, 2048), 0.5, dtype=dtype).realise()
        normalise = mo.compile(lambda image, mean: (image - mean) * 0.5 + 0.25)
        out = normalise(image, mean)
        return lambda: [normalise(image, mean, out=out) for _ in range(12)]

    return Program(made(mo.float32), made(mo.bfloat16))


@pathology("powers of a large matrix one by one", "compute")
def powers() -> Program:
    a = mo.asarray(np.random.default_rng(0).standard_normal((768, 768), dtype=np.float32) / 32)
    product = mo.compile(lambda x, y: x @ y)

    def power(times: int, squared: bool) -> None:
        b = product(a, a)
        for _ in range(times):
            b = product(b if squared else a, b)

    return Program(lambda: power(14, False), lambda: power(3, True))


@pathology("a recurrence along the only long axis", "imbalance")
def recurrence() -> Program:
    def smooth(xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            carry = mo.tanh(carry * 0.9 + x)
            return carry, carry

        return mo.scan(step, mo.zeros(xs.shape[1:]), xs)[1]

    smoothed = mo.compile(smooth)
    xs = np.random.default_rng(0).random((8, 20_000, 4), dtype=np.float32)
    beside = mo.asarray(np.ascontiguousarray(xs.transpose(1, 0, 2)))
    return Program(lambda: [smoothed(one) for one in xs], lambda: smoothed(beside))


class _Slow(mo.data.Dataset):
    """Every item comes from a slow disk."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, number: int) -> Any:
        time.sleep(0.002)
        return np.full(16, number / 64, np.float32), np.int64(number % 4)


@pathology("items from a slow disk", "data")
def slow_disk() -> Program:
    mo.nn.seed(0)
    model = mo.nn.Sequential(mo.nn.Linear(16, 32), mo.nn.ReLU(), mo.nn.Linear(32, 4))
    opt = mo.optim.SGD(model.parameters(), lr=0.1)
    criterion = mo.nn.CrossEntropyLoss()

    @mo.compile
    def step(x: Any, y: Any) -> Any:
        loss = criterion(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    def epoch(**options: Any) -> None:
        for x, y in mo.data.DataLoader(_Slow(), batch_size=8, **options):
            step(x, y)

    return Program(epoch, lambda: epoch(num_workers=2))


@pathology("a large array made a tensor again at every step", "transfers")
def array_again() -> Program:
    rows = mo.compile(lambda x: x.sum(axis=-1))
    table = np.random.default_rng(0).random((2048, 2048), dtype=np.float32)

    def steps(whole: bool) -> None:
        for step in range(10):
            table[0, 0] = step
            rows(mo.asarray(table) if whole else table).numpy()

    return Program(lambda: steps(True), lambda: steps(False))


@pathology("one call of a deep network", "cold", cold=True)
def deep_network() -> Program:
    widths = itertools.count(17)  # a network that nobody compiled yet

    def network() -> Any:
        first = next(widths)
        layers: list[Any] = []
        for width in range(first, first + 6):
            layers += [mo.nn.Linear(width, width + 1), mo.nn.GELU(), mo.nn.LayerNorm(width + 1)]
        for layer in layers:
            for parameter in layer.parameters():
                parameter.value.realise()
        return mo.compile(mo.nn.Sequential(*layers)), np.ones((4, first), np.float32)

    fresh, (warm, given) = [network() for _ in range(8)], network()
    warm(given)

    def bad() -> None:
        made, inputs = fresh.pop() if fresh else network()
        with mo.settings(cache=False):
            made(inputs).numpy()

    return Program(bad, lambda: warm(given).numpy())


@pathology("a rank that is always late", "network")
def late_rank() -> Program:
    from morpho.cluster.groups.threads import run_threads

    def run(own_s: float, others_s: float) -> None:
        def rank(group: Any, seconds: float) -> None:
            buffer = np.ones(1000, np.float32)
            for _ in range(10):
                time.sleep(seconds)
                group.all_reduce(buffer, "mean")

        here, there = run_threads(2, lambda group: group)
        late = Thread(target=rank, args=(there, others_s))
        late.start()
        rank(here, own_s)
        late.join()

    return Program(lambda: run(0.0, 0.02), lambda: run(0.01, 0.01))


@pathology("distances of all pairs, stored step by step", "memory")
def all_pairs() -> Program:
    rng = np.random.default_rng(0)
    a, b = (mo.asarray(rng.random(shape, dtype=np.float32)) for shape in ((700, 1, 8), (1, 700, 8)))

    def bad() -> None:
        for _ in range(4):
            difference = (a - b).realise()
            distance = (difference * difference).realise()
            distance.sum(axis=-1).realise().min(axis=-1).realise()

    nearest = mo.compile(lambda a, b: ((a - b) * (a - b)).sum(axis=-1).min(axis=-1))
    return Program(bad, lambda: [nearest(a, b) for _ in range(4)])


@pathology("weights of float64 cast at every call", "memory")
def cast_weights() -> Program:
    weights = mo.asarray(np.random.default_rng(0).random((2048, 2048)))
    narrow = mo.astype(weights, mo.float32).realise()
    x = mo.ones((2, 2048)).realise()
    cast = mo.compile(lambda x, w: x @ mo.astype(w, mo.float32))
    plain = mo.compile(lambda x, w: x @ w)
    return Program(lambda: [cast(x, weights) for _ in range(10)], lambda: [plain(x, narrow) for _ in range(10)])
