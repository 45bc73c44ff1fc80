"""Mistakes around the arithmetic, written by somebody who had not read the analyser: Python, compiling, NumPy.

The kinds were decided before the first run; `notes/profiling.md` has what came of it.
"""

from __future__ import annotations

import itertools

import numpy as np

import morpho as mo
from benchmarks.observe.pathologies import Program, pathology

_rng = np.random.default_rng(0)


def _numbers(*shape: int) -> mo.Tensor:
    return mo.asarray(_rng.uniform(0.1, 1.0, shape).astype(np.float32))


# -- Python ------------------------------------------------------------------------------------------------------------
@pathology("products of tiny matrices in a Python loop", "python")
def tiny_products() -> Program:
    lefts, rights = [_numbers(4, 4) for _ in range(300)], [_numbers(4, 4) for _ in range(300)]
    left, right = (mo.asarray(np.stack([m.numpy() for m in side])) for side in (lefts, rights))
    return Program(lambda: [(a @ b).numpy() for a, b in zip(lefts, rights, strict=True)],
                   lambda: (left @ right).numpy())


@pathology("convergence asked for with item()", "python")
def converged_with_item() -> Program:
    step = mo.compile(lambda x: 0.5 * (x + 2 / x) + 1e-3)
    loop = mo.compile(lambda x: mo.fori_loop(0, 1000, lambda i, x: 0.5 * (x + 2 / x) + 1e-3, x))
    start = _numbers(16)

    def bad() -> None:
        x = start
        for _ in range(1000):
            new = step(x)
            if mo.max(mo.abs(new - x)).item() < -1:  # never: the number of steps is the same in both
                break
            x = new

    return Program(bad, lambda: loop(start).numpy())


@pathology("an optimiser that goes from parameter to parameter", "python")
def parameter_by_parameter() -> Program:
    weights, grads = [_numbers(32) for _ in range(120)], [_numbers(32) for _ in range(120)]
    one = mo.compile(lambda w, g, m: (w - 0.1 * (0.9 * m + g), 0.9 * m + g))

    def every(ws: list[mo.Tensor], gs: list[mo.Tensor], ms: list[mo.Tensor]) -> list[mo.Tensor]:
        new = 0.9 * mo.stack(ms) + mo.stack(gs)
        return [mo.stack(ws) - 0.1 * new, new]

    everything = mo.compile(every)

    def bad() -> None:
        for _ in range(400):
            for w, g in zip(weights, grads, strict=True):
                one(w, g, g)

    return Program(bad, lambda: [everything(weights, grads, grads) for _ in range(400)])


@pathology("one random sample per call", "python")
def one_sample_per_call() -> Program:
    inside = mo.compile(lambda p: (mo.sum(p * p, axis=-1) < 1).astype(mo.float32).mean())
    points = _numbers(4000, 2)
    rows = [mo.asarray(row[None]) for row in points.numpy()]
    return Program(lambda: sum(inside(row).item() for row in rows) / 4000, lambda: inside(points).item())


@pathology("a tensor put together from Python numbers", "python")
def put_together() -> Program:
    values = [float(k) for k in range(400)]
    return Program(lambda: mo.stack([mo.asarray(value) for value in values]).numpy(),
                   lambda: mo.asarray(values).numpy())


# -- compiling again ---------------------------------------------------------------------------------------------------
@pathology("a history that grows by concatenation", "recompiles")
def growing_history() -> Program:
    """The cache of a decoder, longer by one row at every step: every step is another program."""
    length = itertools.count(8)
    row = _numbers(1, 16)
    read = mo.compile(lambda h, q: mo.softmax(q @ h.T) @ h)
    sized = mo.compile(lambda h, q: mo.softmax(q @ h.T) @ h, dynamic={"h": {0: mo.Dim("n", 1, 4096)}})

    def run(function: object) -> None:
        history = np.tile(row.numpy(), (next(length), 1))
        for _ in range(6):
            history = np.concatenate([history, row.numpy()])
            next(length)
            function(mo.asarray(history), row).numpy()  # type: ignore[operator]

    return Program(lambda: run(read), lambda: run(sized))


@pathology("a gradient made and compiled inside the loop", "recompiles")
def gradient_in_the_loop() -> Program:
    x, w = _numbers(32, 8), _numbers(8)
    once = mo.compile(mo.grad(lambda w: mo.sum(mo.square(x @ w - 1))))

    def bad() -> None:
        v = w
        for _ in range(5):
            v = v - 0.01 * mo.compile(mo.grad(lambda w: mo.sum(mo.square(x @ w - 1))))(v)
        v.numpy()

    def good() -> None:
        v = w
        for _ in range(5):
            v = v - 0.01 * once(v)
        v.numpy()

    return Program(bad, good)


@pathology("random crops of any size", "recompiles")
def crops_of_any_size() -> Program:
    sizes = itertools.count(20)
    image, kernel = _numbers(1, 1, 256, 256), _numbers(1, 1, 3, 3)
    blur = mo.compile(lambda x, k: mo.relu(mo.conv2d(x, k)).mean())

    def bad() -> None:
        for _ in range(5):
            size = next(sizes) % 200 + 8
            blur(mo.asarray(image.numpy()[:, :, :size, :size + 3].copy()), kernel).item()

    return Program(bad,
                   lambda: [blur(mo.asarray(image.numpy()[:, :, :64, :64].copy()), kernel).item() for _ in range(5)])


# -- NumPy -------------------------------------------------------------------------------------------------------------
@pathology("a matrix logarithm in the middle", "compute")  # "host", until LAPACK was called from native code
def logarithm_in_the_middle() -> Program:
    def by_eigenvectors(a: mo.Tensor) -> mo.Tensor:
        values, vectors = mo.linalg.eigh(a)
        return (vectors * mo.log(values)) @ vectors.T

    a = _numbers(60, 60)
    spd = (a @ a.T + 60 * mo.eye(60)).realise()
    slow = mo.compile(lambda a: mo.sum(mo.square(mo.real(mo.linalg.logm(a * 2)))))
    fast = mo.compile(lambda a: mo.sum(mo.square(by_eigenvectors(a * 2))))
    return Program(lambda: [slow(spd).item() for _ in range(2)], lambda: [fast(spd).item() for _ in range(2)])


@pathology("a calibration curve by NumPy", "host")
def curve_by_numpy() -> Program:
    grid, curve = np.linspace(0, 1, 64, dtype=np.float32), np.sqrt(np.linspace(0, 1, 64, dtype=np.float32))
    operation = mo.extend.op("calibrated", native=False,
                             reference=lambda x: np.interp(x, grid, curve).astype(np.float32))
    x, points, values = _numbers(500_000), mo.asarray(grid), mo.asarray(curve)
    slow = mo.compile(lambda x: mo.sum(operation(x * 0.5) + 1))
    fast = mo.compile(lambda x: mo.sum(mo.interp(x * 0.5, points, values) + 1))
    return Program(lambda: [slow(x).item() for _ in range(3)], lambda: [fast(x).item() for _ in range(3)],
                   lambda: mo.extend.remove("calibrated"))


# -- first calls -------------------------------------------------------------------------------------------------------
_constants = itertools.count(3)


@pathology("a benchmark without a warm-up", "cold", cold=True)
def no_warm_up() -> Program:
    x = _numbers(128, 128)

    def loss(x: mo.Tensor, constant: float) -> mo.Tensor:
        for turn in range(6):
            x = mo.softmax(mo.gelu(x @ x) * (constant + turn), axis=-1)
        return mo.sum(x * mo.cos(x))

    warm = mo.compile(mo.value_and_grad(lambda x: loss(x, 2.0)))
    warm(x)

    def bad() -> None:
        constant = float(next(_constants))
        f = mo.compile(mo.value_and_grad(lambda x: loss(x, constant)))
        for _ in range(5):
            f(x)[0].item()

    return Program(bad, lambda: [warm(x)[0].item() for _ in range(5)])
