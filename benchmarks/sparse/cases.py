"""The matrices, by kind and size, and the check of what a peer computes.

A case is "<computation> <kind>": `spmv laplacian` multiplies a 2-D Laplacian with a vector, `spmm random` a random
matrix with a dense one, `dense random` the same matrix stored dense, `spgemm random` squares it, `network random`
applies 120 layers. Shapes are (rows, stored per row, columns of the dense operand).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
LAYERS = 120
SAMPLE = 2000


def from_lengths(rng: np.random.Generator, lengths: np.ndarray, columns: Callable[[int, int], np.ndarray]) -> Arrays:
    """CSR from the lengths of rows; `columns(row, count)` gives those of a row, or all rows together."""
    starts = np.r_[0, np.cumsum(lengths)].astype(np.int32)
    indices = columns(len(lengths), int(starts[-1])).astype(np.int32)
    return {"data": rng.standard_normal(int(starts[-1]), dtype=np.float32), "indices": indices, "indptr": starts}


def banded(rng: np.random.Generator, rows: int, per_row: int) -> Arrays:
    """A band around the diagonal; columns wrap around."""
    steps = np.sort(rng.choice(np.arange(-2 * per_row, 2 * per_row), per_row, replace=False))
    place = (np.arange(rows)[:, None] + steps[None, :]) % rows
    return from_lengths(rng, np.full(rows, per_row), lambda *_: np.sort(place, axis=1).reshape(-1))


def random(rng: np.random.Generator, rows: int, per_row: int) -> Arrays:
    """As many in each row, anywhere."""
    place = np.sort(rng.integers(0, rows, (rows, per_row)), axis=1)
    return from_lengths(rng, np.full(rows, per_row), lambda *_: place.reshape(-1))


def power_law(rng: np.random.Generator, rows: int, per_row: int) -> Arrays:
    """A few long rows and many short ones; columns alike."""
    lengths = np.minimum(rng.zipf(1.8, rows), rows // 4)
    lengths = np.maximum(1, (lengths * (per_row / lengths.mean())).astype(np.int64))
    return from_lengths(rng, lengths, lambda m, count: (m * rng.random(count) ** 2).astype(np.int64))


def laplacian(rng: np.random.Generator, rows: int, per_row: int) -> Arrays:
    """The five-point stencil on a grid that wraps around."""
    side = int(rows ** 0.5)
    n = side * side
    place = (np.arange(n)[:, None] + np.array([-side, -1, 0, 1, side])[None, :]) % n
    return from_lengths(rng, np.full(n, 5), lambda *_: np.sort(place, axis=1).reshape(-1))


KINDS = {"banded": banded, "power_law": power_law, "random": random, "laplacian": laplacian}


def make_inputs(case: str, shape: tuple[int, ...]) -> Arrays:
    """A matrix, and for products with a dense operand that operand."""
    computation, kind = case.split()
    if computation == "bandwidth":
        return {"x": np.ones(shape[0], np.float32)}
    rng = np.random.default_rng(7)
    rows, per_row, width = shape
    found = KINDS[kind](rng, rows, per_row)
    if computation == "network":
        found["data"] = (found["data"] * 0.1).astype(np.float32)
    if computation != "spgemm":
        count = len(found["indptr"]) - 1
        dense = (count,) if computation == "spmv" else (count, width)
        found["x"] = rng.standard_normal(dense, dtype=np.float32)
    return found


def apply(inputs: Arrays, x: np.ndarray) -> np.ndarray:
    """The product in float64."""
    rows = np.repeat(np.arange(len(inputs["indptr"]) - 1), np.diff(inputs["indptr"]))
    found = np.zeros((len(inputs["indptr"]) - 1, *x.shape[1:]))
    np.add.at(found, rows, inputs["data"].astype(np.float64).reshape(-1, *[1] * (x.ndim - 1)) * x[inputs["indices"]])
    return found


def check(case: str, inputs: Arrays, results: tuple[np.ndarray, ...]) -> float:
    """The largest error as a share of what is allowed; a wrong answer raises."""
    computation = case.split()[0]
    if computation == "bandwidth":
        return 0.0
    x = inputs.get("x")
    rng = np.random.default_rng(1)
    if computation == "spgemm":
        v = rng.standard_normal(len(inputs["indptr"]) - 1)
        want = apply(inputs, apply(inputs, v))
        got = apply(dict(zip(("data", "indices", "indptr"), results, strict=True)), v)
    else:
        assert x is not None
        mix = rng.standard_normal(x.shape[1]) if x.ndim == 2 else None
        if computation == "network":
            want = x.astype(np.float64)[:, :1]
            for _ in range(LAYERS):
                want = np.maximum(apply(inputs, want), 0)
            want, got = want[:, 0], results[0][:, 0].astype(np.float64)
        else:
            want = apply(inputs, x.astype(np.float64) if mix is None else x @ mix)
            got = results[0].astype(np.float64) if mix is None else results[0].astype(np.float64) @ mix
    scale = np.abs(want).max() + 1e-30
    share = float(np.abs(got - want).max() / scale / 1e-3)
    if not share <= 1:
        raise ValueError(f"wrong result: off by {share * 1e-3:.2g} of the largest")
    return share


def stored_bytes(inputs: Arrays) -> int:
    """What a product with a vector must move: the matrix, the vector, the result."""
    return sum(array.nbytes for array in inputs.values()) + (len(inputs["indptr"]) - 1) * 4


def as_dense(inputs: Arrays) -> np.ndarray:
    """The matrix with its zeros."""
    count = len(inputs["indptr"]) - 1
    found = np.zeros((count, count), np.float32)
    np.add.at(found, (np.repeat(np.arange(count), np.diff(inputs["indptr"])), inputs["indices"]), inputs["data"])
    return found


def split(inputs: Arrays) -> tuple[Any, ...]:
    """The parts in the order of CSR."""
    return inputs["data"], inputs["indices"], inputs["indptr"]
