"""Kernels of the tests: what they compute, for which arrays, and what NumPy makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import morpho as mo
from morpho import kernel as mk

inf = float("inf")


@mk(grid=lambda a, block: mk.cdiv(a.shape[0], block), out="a")
def vector_add(a, b, out, *, block):
    start = mk.program_id(0) * block
    x = mk.load(a[start:], block)
    mk.store(out[start:], x + mk.load(b[start:], block))


@mk(grid=lambda x: x.shape[0], out="x")
def row_softmax(x, out, *, block):
    i = mk.program_id(0)
    v = mk.load(x[i, :], block, other=-inf)
    e = mo.exp(v - mo.max(v))
    mk.store(out[i, :], e / mo.sum(e))


@mk(grid=lambda x, rows: mk.cdiv(x.shape[0], rows), out="x")
def softmax_of_rows(x, out, *, rows, block):
    """Several rows to a program: reductions along one axis of a matrix."""
    first = mk.program_id(0) * rows
    v = mk.load(x[first:, :], (rows, block), other=-inf)
    v = mo.where(mk.arange(rows)[:, None] + first < x.shape[0], v, 0.0)
    e = mo.exp(v - mo.max(v, axis=1)[:, None])
    mk.store(out[first:, :], e / mo.sum(e, axis=1)[:, None])


@mk(grid=lambda x: x.shape[0], out="x")
def layer_norm(x, weight, bias, out, *, block, eps=1e-5):
    i, n = mk.program_id(0), x.shape[1]
    v = mk.load(x[i, :], block)
    inside = mk.arange(block) < n
    mean = mo.sum(v) / n.astype("float32")
    d = mo.where(inside, v - mean, 0.0)
    scale = 1.0 / mo.sqrt(mo.sum(d * d) / n.astype("float32") + eps)
    mk.store(out[i, :], d * scale * mk.load(weight[:], block) + mk.load(bias[:], block))


@mk(grid=lambda a, b, bm, bn: (mk.cdiv(a.shape[0], bm), mk.cdiv(b.shape[1], bn)),
    out=lambda a, b: mk.new((a.shape[0], b.shape[1]), a.dtype))
def matmul(a, b, out, *, bm=16, bn=32, bk=16):
    i, j = mk.program_id(0) * bm, mk.program_id(1) * bn
    acc = mk.zeros((bm, bn))
    for k in range(0, a.shape[1], bk):
        acc = mk.dot(mk.load(a[i:, k:], (bm, bk)), mk.load(b[k:, j:], (bk, bn)), acc)
    mk.store(out[i:, j:], acc)


@mk(grid=lambda q, bq: (mk.cdiv(q.shape[1], bq), q.shape[0]), out="q")
def attention(q, k, v, out, *, bq=16, bk=16, depth, causal=False):
    """Flash attention: scores of a block of queries, block by block of keys, with a running maximum and sum."""
    start, head = mk.program_id(0) * bq, mk.program_id(1)
    n = k.shape[1]
    query = mk.load(q[head, start:, :], (bq, depth)) * depth ** -0.5
    top, total, acc = mk.full(bq, -inf), mk.zeros(bq), mk.zeros((bq, depth))
    last = mo.minimum(n, start + bq) if causal else n
    for first in range(0, last, bk):
        s = query @ mk.load(k[head, first:, :], (bk, depth)).T
        place = first + mk.arange(bk)
        seen = place[None, :] < n
        if causal:
            seen = seen & (place[None, :] <= (start + mk.arange(bq))[:, None])
        s = mo.where(seen, s, -inf)
        new = mo.maximum(top, mo.max(s, axis=1))
        p = mo.exp(s - new[:, None])
        shrink = mo.exp(top - new)
        total = total * shrink + mo.sum(p, axis=1)
        acc = acc * shrink[:, None] + p @ mk.load(v[head, first:, :], (bk, depth))
        top = new
    mk.store(out[head, start:, :], acc / total[:, None])


@mk(grid=lambda x, block: mk.cdiv(x.shape[0], block), out=lambda bins: mk.new(bins, "int32", fill=0))
def histogram(x, counts, *, bins, block=64):
    v = mk.load(x[mk.program_id(0) * block:], block, other=-1)
    mk.atomic_add(counts[v], 1, mask=(v >= 0) & (v < bins))


@mk(grid=1, out="x")
def running_sum(x, out, *, block):
    """A line by one program: blocks in order, what came before is carried."""
    before = 0.0
    for start in range(0, x.shape[0], block):
        v = mk.load(x[start:], block)
        mk.store(out[start:], before + mk.cumsum(v))
        before = before + mo.sum(v)


@mk(grid=lambda x: x.shape[0], out="x")
def sort_rows(x, out, *, block):
    i = mk.program_id(0)
    mk.store(out[i, :], mk.sort(mk.load(x[i, :], block, other=inf)))


@mk(grid=lambda rows, block: mk.cdiv(rows.shape[0], block),
    out=lambda table, rows: mk.new((rows.shape[0], table.shape[1]), table.dtype))
def take_rows(table, rows, out, *, block, width):
    start = mk.program_id(0) * block
    which = mk.load(rows[start:], block)
    mk.store(out[start:, :], mk.load(table[which, :], (block, width)))


@mk(grid=1, out=lambda x: mk.new(x.shape[0], "int32"))
def collatz(x, out):
    """A loop in a loop with scalars: a while whose condition is a value."""
    for i in range(x.shape[0]):
        n, steps = mk.load(x[i]), 0
        while n != 1:
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
            steps = steps + 1
        mk.store(out[i], steps)


@mk(grid=lambda x, side: (mk.cdiv(x.shape[0], side), mk.cdiv(x.shape[1], side)),
    out=lambda x: mk.new((x.shape[1], x.shape[0]), x.dtype))
def transpose(x, out, *, side):
    i, j = mk.program_id(0) * side, mk.program_id(1) * side
    mk.store(out[j:, i:], mk.load(x[i:, j:], (side, side)).T)


def half_of(x, y):
    return 0.5 * (x + y)


@mk(grid=lambda x, block: mk.cdiv(x.shape[0], block), out="x")
def neighbours(x, out, *, block):
    """A stencil: a window that begins before the array, and a function of Python's."""
    start = mk.program_id(0) * block
    left, right = mk.load(x[start - 1:], block), mk.load(x[start + 1:], block)
    mk.store(out[start:], half_of(left, right))


@mk(grid=1, out=("x", "x"))
def fibonacci(x, a_out, b_out, *, block, steps):
    """Two carried tiles that change places."""
    a, b = mk.load(x[:], block), mk.full(block, 1.0)
    for _ in range(steps):
        a, b = b, a + b
    mk.store(a_out[:], a)
    mk.store(b_out[:], b)


@mk(grid=1, out=lambda x: (mk.new(x.shape[1], x.dtype), mk.new((), "bool"), mk.new((), x.dtype)))
def summaries(x, columns, positive, least, *, rows, width):
    v = mk.load(x[:, :], (rows, width), other=1)
    inside = (mk.arange(rows)[:, None] < x.shape[0]) & (mk.arange(width) < x.shape[1])[None, :]
    mk.store(columns[:], mo.sum(mo.where(inside, v, 0), axis=0))
    mk.store(positive, (v > 0).all())
    mk.store(least, mo.min(v))


@mk(grid=lambda x: x.shape[0], out=lambda x: mk.new(x.shape[1], "int64", fill=-1))
def largest_row(x, out, *, block):
    """Each column's largest value among all rows: an atomic maximum."""
    i = mk.program_id(0)
    mk.atomic_max(out[:], mk.load(x[i, :], block))


@mk(grid=lambda x, block: mk.cdiv(x.shape[0], block), out="x")
def branches(x, out, *, block):
    """A tile that depends on a condition of the program."""
    i = mk.program_id(0)
    v = mk.load(x[i * block:], block)
    if i % 2 == 0:
        v, scale = v * 2, 1.0
    else:
        scale = mo.sum(v)
    mk.store(out[i * block:], v + scale)


@dataclass
class Case:
    kernel: Any
    arrays: Callable[[np.random.Generator], list[np.ndarray]]
    want: Callable[..., Any]
    constants: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-6
    same_bits: bool = True  # of the CPU and the GPU
    name: str = ""


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def normed(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> np.ndarray:
    s = np.einsum("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5
    if causal:
        s = np.where(np.arange(s.shape[1])[:, None] >= np.arange(s.shape[2]), s, -inf)
    s = s - s.max(-1, keepdims=True)
    e = np.exp(s)
    return np.einsum("hqk,hkd->hqd", e / e.sum(-1, keepdims=True), v)


def steps(n: int) -> int:
    return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)


def neighbour_mean(x: np.ndarray) -> np.ndarray:
    wide = np.concatenate([[0], x, [0]]).astype(x.dtype)
    return (wide[:-2] + wide[2:]) / 2


def fibonacci_of(x: np.ndarray, count: int = 7) -> tuple[np.ndarray, np.ndarray]:
    a, b = x, np.ones_like(x)
    for _ in range(count):
        a, b = b, a + b
    return a, b


def branched(x: np.ndarray, block: int = 16) -> np.ndarray:
    parts = [x[n:n + block] for n in range(0, len(x), block)]
    return np.concatenate([p * 2 + 1 if n % 2 == 0 else p + p.sum() for n, p in enumerate(parts)])


def floats(*shape: int) -> Callable[[np.random.Generator], list[np.ndarray]]:
    return lambda rng: [rng.standard_normal(shape, dtype=np.float32)]


def several(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[np.ndarray]]:
    return lambda rng: [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def table() -> list[Case]:
    """Kernels with odd sizes: tiles that end inside a chunk, grids of one, lines shorter than a tile."""
    return [
        Case(vector_add, several((1000,), (1000,)), np.add, {"block": 128}, 0),
        Case(vector_add, several((3,), (3,)), np.add, {"block": 7}, 0, name="short"),
        Case(vector_add, lambda rng: [rng.integers(-9, 9, 77).astype(np.int16)] * 2, np.add, {"block": 32}, 0,
             name="int16"),
        Case(vector_add, lambda rng: [rng.standard_normal(77)] * 2, np.add, {"block": 20}, 0, name="float64"),
        Case(row_softmax, floats(3, 700), softmax, {"block": 1024}),
        Case(row_softmax, floats(5, 33), softmax, {"block": 100}, name="odd"),
        Case(softmax_of_rows, floats(9, 45), softmax, {"rows": 4, "block": 50}),
        Case(layer_norm, several((4, 60), (60,), (60,)), normed, {"block": 64}, 1e-5),
        Case(matmul, several((37, 50), (50, 45)), np.matmul, {}, 1e-5),
        Case(matmul, several((5, 7), (7, 3)), np.matmul, {"bm": 5, "bn": 3, "bk": 4}, 1e-5, name="odd"),
        Case(attention, several((2, 21, 8), (2, 35, 8), (2, 35, 8)), attended, {"depth": 8}, 1e-5),
        Case(attention, several((1, 33, 16), (1, 33, 16), (1, 33, 16)), lambda q, k, v: attended(q, k, v, True),
             {"depth": 16, "causal": True}, 1e-5, name="causal"),
        Case(histogram, lambda rng: [rng.integers(0, 12, 200).astype(np.int32)],
             lambda x: np.bincount(x[x < 10], minlength=10), {"bins": 10}, 0),
        Case(running_sum, floats(1000), lambda x: np.cumsum(x.astype(float)), {"block": 300}, 1e-4),
        Case(sort_rows, floats(2, 77), lambda x: np.sort(x, 1), {"block": 90}, 0),
        Case(take_rows, lambda rng: [rng.standard_normal((6, 10), dtype=np.float32), rng.integers(0, 6, 13)],
             lambda t, r: t[r], {"block": 4, "width": 10}, 0),
        Case(collatz, lambda rng: [np.arange(1, 12)], lambda x: [steps(int(n)) for n in x], {}, 0),
        Case(transpose, floats(19, 33), np.transpose, {"side": 8}, 0),
        Case(neighbours, floats(50), neighbour_mean, {"block": 16}, 1e-7),
        Case(fibonacci, floats(10), fibonacci_of, {"block": 12, "steps": 7}, 1e-5),
        Case(summaries, floats(7, 9), lambda x: (x.sum(0), (x > 0).all(), min(x.min(), 1)), {"rows": 8, "width": 11},
             1e-5),
        Case(largest_row, lambda rng: [rng.integers(0, 99, (5, 20))], lambda x: x.max(0), {"block": 32}, 0),
        Case(branches, floats(60), branched, {"block": 16}, 1e-5),
    ]
