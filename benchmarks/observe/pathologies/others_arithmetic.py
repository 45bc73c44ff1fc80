"""Mistakes of array programs, written by somebody who had not read the analyser: arithmetic, memory, threads.

The kinds were decided before the first run; `notes/profiling.md` has what came of it.
"""

from __future__ import annotations

import numpy as np

import morpho as mo
from benchmarks.observe.pathologies import Program, pathology


def _numbers(*shape: int, dtype: str = "float32") -> mo.Tensor:
    return mo.asarray(np.random.default_rng(0).uniform(0.1, 1.0, shape).astype(dtype))


# -- arithmetic --------------------------------------------------------------------------------------------------------
@pathology("a network trained in double precision by accident", "compute")
def trained_in_double() -> Program:
    """The data came from NumPy, the weights from `np.random`, and nobody looked at a dtype."""
    def step(x: mo.Tensor, w: mo.Tensor, v: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        gw, gv = mo.grad(lambda w, v: mo.mean(mo.square(mo.tanh(x @ w) @ v - 1)), (0, 1))(w, v)
        return w - 0.01 * gw, v - 0.01 * gv

    run = mo.compile(step)

    start = {dtype: (_numbers(512, 512, dtype=dtype), _numbers(512, 512, dtype=dtype), _numbers(512, 64, dtype=dtype))
             for dtype in ("float32", "float64")}

    def train(dtype: str) -> None:
        x, w, v = start[dtype]
        for _ in range(8):
            w, v = run(x, w, v)
        w.numpy()

    return Program(lambda: train("float64"), lambda: train("float32"))


@pathology("distances by the difference of all pairs", "compute")
def all_differences() -> Program:
    """`(x[:, None] - y[None]) ** 2` summed: 3 n m d operations on arithmetic units instead of a product."""
    far = mo.compile(lambda x, y: mo.sum(mo.square(x[:, None, :] - y[None, :, :]), axis=-1))
    product = mo.compile(lambda x, y: mo.sum(x * x, axis=1)[:, None] + mo.sum(y * y, axis=1)[None] - 2 * (x @ y.T))
    x, y = _numbers(1500, 96), _numbers(1500, 96)
    return Program(lambda: [far(x, y).numpy() for _ in range(3)], lambda: [product(x, y).numpy() for _ in range(3)])


@pathology("all rows computed for the last one", "compute")
def all_rows_for_the_last() -> Program:
    """Decoding without a cache: the whole padded prefix goes through the layers for every token."""
    layers = [_numbers(256, 256) / 128 for _ in range(4)]

    def forward(x: mo.Tensor) -> mo.Tensor:
        for w in layers:
            x = mo.tanh(x @ w)
        return x

    whole, last = mo.compile(lambda x: forward(x)[-1]), mo.compile(lambda x: forward(x[-1:])[0])
    x = _numbers(512, 256)
    return Program(lambda: [whole(x).numpy() for _ in range(20)], lambda: [last(x).numpy() for _ in range(20)])


@pathology("a power of a matrix one factor at a time", "compute")
def power_by_factors() -> Program:
    def power(a: mo.Tensor) -> mo.Tensor:
        result = a
        for _ in range(31):
            result = result @ a
        return result

    def squared(a: mo.Tensor) -> mo.Tensor:
        for _ in range(5):
            a = a @ a
        return a

    slow, fast, a = mo.compile(power), mo.compile(squared), _numbers(448, 448) / 400
    return Program(lambda: slow(a).numpy(), lambda: fast(a).numpy())


@pathology("a one-hot matrix times a table", "compute")
def one_hot_product() -> Program:
    table, ids = _numbers(2048, 256), mo.asarray(np.random.default_rng(1).integers(0, 2048, 1024))
    product = mo.compile(lambda t, i: mo.one_hot(i, 2048).astype(mo.float32) @ t)
    lookup = mo.compile(lambda t, i: mo.take(t, i, axis=0))
    return Program(lambda: [product(table, ids).numpy() for _ in range(4)],
                   lambda: [lookup(table, ids).numpy() for _ in range(4)])


@pathology("a diagonal matrix written out for a product", "compute")
def diagonal_product() -> Program:
    scale, a = _numbers(1024), _numbers(1024, 1024)
    full, rows = mo.compile(lambda d, a: mo.diag(d) @ a), mo.compile(lambda d, a: d[:, None] * a)
    return Program(lambda: [full(scale, a).numpy() for _ in range(4)],
                   lambda: [rows(scale, a).numpy() for _ in range(4)])


@pathology("the same matrix factored for every right side", "compute")
def factored_again() -> Program:
    a, sides = _numbers(200, 200) + 200 * mo.eye(200), [_numbers(200) for _ in range(12)]
    solve, apply = mo.compile(mo.linalg.solve), mo.compile(lambda a, b: mo.linalg.solve(a, b.T).T)
    together = mo.asarray(np.stack([side.numpy() for side in sides]))
    return Program(lambda: [solve(a, side).numpy() for side in sides], lambda: apply(a, together).numpy())


# -- memory ------------------------------------------------------------------------------------------------------------
@pathology("a transposed copy at every step", "memory")
def transposed_copy() -> Program:
    """The layout of the file is not the layout of the loop; the copy could be made once, when the data is read."""
    x = _numbers(3000, 3000)
    turned = mo.asarray(np.ascontiguousarray(x.numpy().T))
    copy, scaled = mo.compile(lambda x: mo.reshape(x.T, (-1,)) * 2), mo.compile(lambda x: mo.reshape(x, (-1,)) * 2)
    return Program(lambda: [copy(x).realise() for _ in range(3)], lambda: [scaled(turned).realise() for _ in range(3)])


@pathology("every intermediate of a long formula looked at", "memory")
def every_intermediate() -> Program:
    x = _numbers(6_000_000)
    fused = mo.compile(lambda x: mo.sqrt(mo.abs((x * 2 + 1) * x - 3)) / 2)

    def bad() -> None:
        y = (x * 2).realise()
        y = (y + 1).realise()
        y = (y * x).realise()
        y = (y - 3).realise()
        y = mo.abs(y).realise()
        y = mo.sqrt(y).realise()
        (y / 2).realise()

    return Program(bad, lambda: fused(x).realise())


@pathology("a running sum down the columns", "memory")
def sum_down_the_columns() -> Program:
    """Time is the first axis, and every step of the recurrence touches another cache line."""
    x = _numbers(2048, 2048)
    turned = mo.asarray(np.ascontiguousarray(x.numpy().T))
    down, along = (mo.compile(lambda x, axis=axis: mo.cumulative_sum(x, axis=axis)) for axis in (0, 1))
    return Program(lambda: down(x).realise(), lambda: along(turned).realise())


@pathology("counts added at random places", "memory", "imbalance")
def scattered_counts() -> Program:
    """A large histogram with its events in the order of arrival: a cache miss each, on one thread."""
    rng = np.random.default_rng(2)
    places = rng.integers(0, 1 << 23, 1 << 20)
    table, ones = mo.zeros(1 << 23).realise(), _numbers(1 << 20)
    add = mo.compile(lambda t, i, v: mo.scatter_add(t, i, v))
    small, near = mo.zeros(1 << 14).realise(), mo.asarray(np.sort(places) >> 9)
    any_order = mo.asarray(places)
    return Program(lambda: add(table, any_order, ones).realise(), lambda: add(small, near, ones).realise())


@pathology("a large table copied for one changed row", "memory")
def copied_for_a_row() -> Program:
    table, rows = _numbers(4000, 1000), _numbers(10, 1000)
    numbers = mo.reshape(mo.arange(4000), (4000, 1)).realise()
    one = mo.compile(lambda t, r, k: mo.where(numbers == k, r, t))
    places = [mo.asarray(np.int64(400 * k)) for k in range(10)]
    all_at_once = mo.compile(lambda t, r: mo.where(numbers % 400 == 0, mo.repeat(r, 400, axis=0), t))
    parts = [row.realise() for row in rows]

    def bad() -> None:
        t = table
        for row, place in zip(parts, places, strict=True):
            t = one(t, row, place)
        t.realise()

    return Program(bad, lambda: all_at_once(table, rows).realise())


# -- threads -----------------------------------------------------------------------------------------------------------
@pathology("a recursive filter, channel by channel", "imbalance")
def filter_by_channel() -> Program:
    """One thread does everything: a recurrence has no second row to give away, unless channels are taken together."""
    channels = [_numbers(1_000_000) for _ in range(8)]
    together = mo.asarray(np.stack([channel.numpy() for channel in channels], axis=1))
    one = mo.compile(lambda x: mo.scan(lambda y, x: (0.9 * y + 0.1 * x,) * 2, 0.0, x)[1])
    every = mo.compile(lambda x: mo.scan(lambda y, x: (0.9 * y + 0.1 * x,) * 2, mo.zeros(8), x)[1])
    return Program(lambda: [one(channel).realise() for channel in channels], lambda: every(together).realise())


@pathology("eigenvectors of one covariance at a time", "imbalance", "compute")
def one_covariance_at_a_time() -> Program:
    a = _numbers(32, 40, 40)
    batch = (a + mo.matrix_transpose(a)).realise()
    matrices = [batch[k].realise() for k in range(32)]
    one = mo.compile(lambda a: mo.linalg.eigh(a)[1])
    return Program(lambda: [one(matrix).realise() for matrix in matrices], lambda: one(batch).realise())


@pathology("one large job among small ones", "imbalance")
def one_large_job() -> Program:
    """A map over files of which one is large: the other threads are long done."""
    work = mo.compile(lambda x: mo.scan(lambda y, x: (mo.sin(y) + x,) * 2, 0.0, x)[0])
    uneven = [_numbers(4_000_000)] + [_numbers(8000) for _ in range(20)]
    even = [_numbers(200_000) for _ in range(21)]
    return Program(lambda: mo.tasks.map(lambda x: work(x).item(), uneven),
                   lambda: mo.tasks.map(lambda x: work(x).item(), even))
