"""Programs bound by their kernels: arithmetic, memory, threads."""

from __future__ import annotations

import numpy as np

import morpho as mo
from benchmarks.observe.pathologies import Program, pathology
from benchmarks.observe.pathologies.calls import _random


@pathology("a sum of large arrays", "memory")
def large_sum() -> Program:
    f = mo.compile(lambda x, y: x + y)
    wide = [_random(6 << 20) for _ in range(2)]
    narrow = [x.astype(mo.bfloat16).realise() for x in wide]
    return Program(lambda: [f(*wide) for _ in range(10)], lambda: [f(*narrow) for _ in range(10)])


@pathology("a chain of eager operations", "memory")
def eager_chain() -> Program:
    x = _random(4 << 20)

    def chain(x: mo.Tensor, settle: bool) -> mo.Tensor:
        for k in range(6):
            x = x * 1.5 + k
            x = x.realise() if settle else x
        return x

    fused = mo.compile(lambda x: chain(x, False))
    return Program(lambda: [chain(x, True) for _ in range(3)], lambda: [fused(x) for _ in range(3)])


@pathology("a matrix times one vector", "memory")
def gemv() -> Program:
    f = mo.compile(lambda w, x: w @ x)
    w, columns = _random(4096, 4096), [_random(4096) for _ in range(12)]
    whole = mo.stack(columns, axis=1).realise()
    return Program(lambda: [f(w, x) for x in columns], lambda: f(w, whole))


@pathology("sums in double precision", "memory")
def double_sum() -> Program:
    f = mo.compile(lambda x: mo.sum(x, axis=1))
    x = _random(256, 32 << 10, dtype="float64")
    y = x.astype(mo.float32).realise()
    return Program(lambda: [f(x) for _ in range(12)], lambda: [f(y) for _ in range(12)])


@pathology("a gather from a large table", "memory")
def gather() -> Program:
    table = _random(1 << 20, 16)
    f = mo.compile(lambda t, i: mo.take(t, i, axis=0))
    rng = np.random.default_rng(1)
    mixed = mo.asarray(rng.integers(0, 1 << 20, 1 << 19), copy=True)
    few = mo.asarray(np.sort(rng.integers(0, 1 << 20, 1 << 19)), copy=True)
    return Program(lambda: [f(table, mixed) for _ in range(4)], lambda: [f(table, few) for _ in range(4)])


@pathology("several statistics in several passes", "memory")
def passes() -> Program:
    x = _random(64, 128 << 10)
    parts = [mo.compile(lambda x: mo.sum(x, axis=1)), mo.compile(lambda x: mo.max(x, axis=1)),
             mo.compile(lambda x: mo.min(x, axis=1)), mo.compile(lambda x: mo.sum(x * x, axis=1))]
    whole = mo.compile(lambda x: (mo.sum(x, axis=1), mo.max(x, axis=1), mo.min(x, axis=1), mo.sum(x * x, axis=1)))
    return Program(lambda: [[f(x) for f in parts] for _ in range(4)], lambda: [whole(x) for _ in range(4)])


@pathology("products in double precision", "compute")
def double_product() -> Program:
    f = mo.compile(lambda a, b: a @ b)
    a = _random(640, 640, dtype="float64")
    b = a.astype(mo.float32).realise()
    return Program(lambda: [f(a, a) for _ in range(6)], lambda: [f(b, b) for _ in range(6)])


@pathology("a product of two matrices before the vector", "compute")
def product_order() -> Program:
    a, v = _random(768, 768), _random(768)
    slow = mo.compile(lambda a, v: mo.sum((a @ a).mT @ v + mo.sum(a @ a, axis=1)))
    fast = mo.compile(lambda a, v: mo.sum(a.mT @ (a.mT @ v) + a @ mo.sum(a, axis=1)))
    return Program(lambda: [slow(a, v) for _ in range(8)], lambda: [fast(a, v) for _ in range(8)])


@pathology("the same product at every step", "compute")
def same_product() -> Program:
    a, b = _random(512, 512), _random(512, 512)
    step = mo.compile(lambda a, b, k: mo.sum(mo.exp(a @ b * 1e-3)) * k)
    product, rest = mo.compile(lambda a, b: mo.sum(mo.exp(a @ b * 1e-3))), mo.compile(lambda p, k: p * k)
    numbers = [mo.asarray(float(k)) for k in range(20)]

    def good() -> None:
        p = product(a, b)
        for k in numbers:
            rest(p, k)

    return Program(lambda: [step(a, b, k) for k in numbers], good)


@pathology("functions computed again and again", "compute")
def functions_again() -> Program:
    f = mo.compile(lambda x, k: mo.sum(mo.erf(mo.sin(x)) * mo.tanh(mo.exp(-x)) * k))
    first, rest = mo.compile(lambda x: mo.erf(mo.sin(x)) * mo.tanh(mo.exp(-x))), mo.compile(lambda y, k: mo.sum(y * k))
    x, numbers = _random(100_000), [mo.asarray(float(k)) for k in range(40)]

    def good() -> None:
        y = first(x)
        for k in numbers:
            rest(y, k)

    return Program(lambda: [f(x, k) for k in numbers], good)


@pathology("a running sum of one long row", "imbalance", "memory")
def one_row() -> Program:
    f = mo.compile(lambda x: mo.cumulative_sum(x, axis=-1))
    rows = [_random(1 << 20) for _ in range(8)]
    whole = mo.stack(rows).realise()
    return Program(lambda: [f(row) for row in rows], lambda: f(whole))


@pathology("sorting one row at a time", "imbalance")
def sort_rows() -> Program:
    f = mo.compile(lambda x: mo.sort(x, axis=-1))
    rows = [_random(200_000) for _ in range(8)]
    whole = mo.stack(rows).realise()
    return Program(lambda: [f(row) for row in rows], lambda: f(whole))


@pathology("orders of rows one at a time", "imbalance")
def order_rows() -> Program:
    f = mo.compile(lambda x: mo.argsort(x, axis=-1))
    rows = [_random(100_000) for _ in range(8)]
    whole = mo.stack(rows).realise()
    return Program(lambda: [f(row) for row in rows], lambda: f(whole))
