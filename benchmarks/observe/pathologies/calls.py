"""Programs bound by Python, by compiling, and by steps in NumPy."""

from __future__ import annotations

import itertools
import time

import numpy as np

import morpho as mo
from benchmarks.observe.pathologies import Program, pathology

_numbers = itertools.count()


def _random(*shape: int, dtype: str = "float32") -> mo.Tensor:
    made = np.random.default_rng(0).random(shape)
    return mo.asarray(made.astype(dtype), copy=True).realise()


@pathology("eager steps on a small tensor", "python")
def eager_small() -> Program:
    x = _random(64)

    def bad() -> None:
        y = x
        for _ in range(600):
            y = (mo.tanh(y) + x).realise()

    step = mo.compile(lambda x: mo.fori_loop(0, 600, lambda i, y: mo.tanh(y) + x, x))
    return Program(bad, lambda: step(x))


@pathology("many tiny calls", "python")
def tiny_calls() -> Program:
    f = mo.compile(lambda x: x * 1.01 + 0.5)
    loop = mo.compile(lambda x: mo.fori_loop(0, 20000, lambda i, y: y * 1.01 + 0.5, x))
    x = _random(16)

    def bad() -> None:
        y = x
        for _ in range(20000):
            y = f(y)

    return Program(bad, lambda: loop(x))


@pathology("a row at a time", "python")
def row_at_a_time() -> Program:
    f = mo.compile(lambda row: mo.softmax(row))
    whole = mo.compile(lambda rows: mo.softmax(rows, axis=-1))
    x = _random(4096, 32)

    def bad() -> None:
        for i in range(4096):
            f(x[i])

    return Program(bad, lambda: whole(x))


@pathology("a loss read at every step", "python")
def read_every_step() -> Program:
    w, x = _random(32, 8), _random(16, 32)

    def bad() -> None:
        total = 0.0
        for _ in range(300):
            total += float(mo.mean((x @ w) ** 2))

    step = mo.compile(lambda x, w: mo.fori_loop(0, 300, lambda i, t: t + mo.mean((x @ w) ** 2), mo.zeros(())))
    return Program(bad, lambda: float(step(x, w)))


@pathology("elements asked for one by one", "python")
def one_by_one() -> Program:
    x = _random(2000)
    return Program(lambda: sum(x[i].item() for i in range(2000)), lambda: sum(x.tolist()))


@pathology("NumPy between compiled calls", "python")
def numpy_between() -> Program:
    f = mo.compile(lambda x: mo.exp(-x))
    whole = mo.compile(lambda x: mo.fori_loop(0, 400, lambda i, y: mo.clip(mo.exp(-y), 0.1, 0.9), x))
    x = _random(4096)

    def bad() -> None:
        y = x
        for _ in range(400):
            y = mo.asarray(np.where(f(y).numpy() > 0.9, np.float32(0.9), np.maximum(f(y).numpy(), np.float32(0.1))))

    return Program(bad, lambda: whole(x))


@pathology("Python arithmetic between steps", "python")
def python_between() -> Program:
    f = mo.compile(lambda x: x + 1)
    x = _random(1000)

    def bad() -> None:
        for _ in range(100):
            f(x)
            sum(i * i for i in range(5000))

    return Program(bad, lambda: [f(x) for _ in range(100)])


@pathology("a new shape at every call", "recompiles", cold=True)
def new_shapes() -> Program:
    x = _random(4096)
    sizes = [1000 + 7 * i for i in range(30)]

    def run(dynamic: bool) -> None:
        offset = next(_numbers)
        f = mo.compile(lambda x: mo.softmax(x * (2.0 + offset)),
                       dynamic={"x": {0: mo.Dim("n", 1, 4096)}} if dynamic else None)
        for n in sizes:
            f(x[:n])

    return Program(lambda: run(False), lambda: run(True))


@pathology("compiled anew in a loop", "recompiles", cold=True)
def compiled_in_a_loop() -> Program:
    x = _random(1000)
    f = mo.compile(lambda x, k: mo.tanh(x) * k)

    def bad() -> None:
        for _ in range(12):
            number = next(_numbers) + 1.5
            mo.compile(lambda x, k=number: mo.tanh(x) * mo.sin(x * k))(x)

    return Program(bad, lambda: [f(x, mo.asarray(float(i))) for i in range(12)])


@pathology("a static argument that changes", "recompiles", cold=True)
def static_argument() -> Program:
    x = _random(500, 20)

    def bad() -> None:
        first = next(_numbers)
        f = mo.compile(lambda x, times: sum(mo.sin(x * (k + first)) for k in range(int(times))))
        for times in range(2, 12):
            f(x, times)

    g = mo.compile(lambda x, times: mo.fori_loop(0, times, lambda k, t: t + mo.sin(x), mo.zeros_like(x)))
    return Program(bad, lambda: [g(x, mo.asarray(times)) for times in range(2, 12)])


@pathology("a lazy program that grows", "recompiles", "python", cold=True)
def growing() -> Program:
    x = _random(64)

    def bad() -> None:
        y, seen = x, next(_numbers) + 1.5
        for _ in range(24):
            y = y * seen + x
            float(mo.sum(y))

    step = mo.compile(lambda y, x, k: y * k + x)

    def good() -> None:
        y, seen = x, mo.asarray(next(_numbers) + 1.5)
        for _ in range(24):
            y = step(y, x, seen)
            float(mo.sum(y).realise())

    return Program(bad, good)


def _cold_functions(count: int) -> list[object]:
    first = next(_numbers) + time.time_ns() % 100_000  # code that no cache has
    return [mo.compile(lambda x, k=first + i / 16: mo.sin(x * k) + mo.exp(x - k)) for i in range(count)]


@pathology("first calls of several functions", "cold", "recompiles", cold=True)
def first_calls() -> Program:
    x = _random(1000)
    warm = _cold_functions(6)
    for f in warm:
        f(x)  # type: ignore[operator]

    def named(f: object, name: str) -> object:
        f.__name__ = name  # type: ignore[attr-defined]
        return f

    def bad() -> None:
        for i, f in enumerate(_cold_functions(6)):
            named(f, f"layer{i}")(x)  # type: ignore[operator]

    return Program(bad, lambda: [f(x) for f in warm])  # type: ignore[operator]


@pathology("the first step of a network", "cold", cold=True)
def first_step() -> Program:
    x = _random(32, 64)
    model = mo.nn.Sequential(mo.nn.Linear(64, 64), mo.nn.GELU(), mo.nn.LayerNorm(64), mo.nn.Linear(64, 8))

    def fresh() -> object:
        k = next(_numbers) + time.time_ns() % 100_000 / 1024
        return mo.compile(lambda x: mo.softmax(model(x * k), axis=-1))

    warm = fresh()
    warm(x)  # type: ignore[operator]
    return Program(lambda: fresh()(x), lambda: warm(x))  # type: ignore[operator]


@pathology("a rule by np.vectorize inside a compiled step", "host")
def vectorised_rule() -> Program:
    name = f"tariff_{next(_numbers)}"
    tariff = mo.extend.op(name, reference=lambda x: np.vectorize(lambda v: v * 0.2 if v < 0.5 else v * 0.3 - 0.05,
                                                                 otypes=[x.dtype])(x), native=False)
    f = mo.compile(lambda x: mo.sum(tariff(x * 2)))
    g = mo.compile(lambda x: mo.sum(mo.where(x * 2 < 0.5, x * 0.4, x * 0.6 - 0.05)))
    x = _random(100, 100)
    return Program(lambda: [f(x) for _ in range(10)], lambda: [g(x) for _ in range(10)],
                   lambda: mo.extend.remove(name))


@pathology("an operation without native code", "host")
def host_op() -> Program:
    name = f"slow_square_{next(_numbers)}"
    op = mo.extend.op(name, reference=lambda x: np.multiply(x, x), native=False)
    f, g = mo.compile(lambda x: mo.sum(op(x))), mo.compile(lambda x: mo.sum(x * x))
    x = _random(512, 512)

    return Program(lambda: [f(x) for _ in range(60)], lambda: [g(x) for _ in range(60)],
                   lambda: mo.extend.remove(name))


@pathology("a window function by NumPy at every step", "host")
def window_by_numpy() -> Program:
    name = f"sinc_{next(_numbers)}"
    sinc = mo.extend.op(name, reference=np.sinc, native=False)
    f = mo.compile(lambda x, w: mo.tanh(sinc(x) @ w))

    def native(x: mo.Tensor, w: mo.Tensor) -> mo.Tensor:
        turned = x * 3.14159265
        return mo.tanh(mo.where(x == 0, 1.0, mo.sin(turned) / turned) @ w)

    g, x, w = mo.compile(native), _random(128, 128), _random(128, 8)
    return Program(lambda: [f(x, w) for _ in range(60)], lambda: [g(x, w) for _ in range(60)],
                   lambda: mo.extend.remove(name))
