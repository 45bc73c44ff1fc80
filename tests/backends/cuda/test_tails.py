"""Sizes just beside those that kernels divide their work by: one case a kernel, with the CPU's bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo

CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "map": (lambda x, y: mo.exp(x) * y.T, [(7, 37), (37, 7)]),
    "product": (lambda x, y: x @ y, [(67, 35), (35, 33)]),
    "product of columns": (lambda x, y: x.T @ y.T, [(35, 67), (33, 35)]),
    "rows": (lambda x: mo.softmax(x, axis=-1), [(5, 37)]),
    "rows of blocks": (lambda x: mo.softmax(x, axis=-1), [(3, 4500)]),
    "long lines": (lambda x: mo.sum(x, axis=-1), [(2, 70001)]),
    "columns of passes": (lambda x: mo.softmax(x, axis=0), [(300, 19)]),
    "columns": (lambda x: mo.sum(x, axis=0), [(4100, 19)]),
    "attention": (lambda q, k, v: mo.attention(q, k, v),
                  [(1, 1, 37, 40), (1, 1, 70, 40), (1, 1, 70, 40)]),
    "convolution": (lambda x, w: mo.conv2d(x, w, padding=1), [(2, 3, 7, 5), (9, 3, 3, 3)]),
    "convolution of many images": (lambda x, w: mo.conv2d(x, w, padding=1), [(30, 3, 3, 3), (9, 3, 3, 3)]),
}


@pytest.mark.parametrize("case", CASES)
def test_bits_are_the_cpus(gpu: str, rng: np.random.Generator, case: str) -> None:
    function, shapes = CASES[case]
    arrays = [rng.standard_normal(shape).astype("f") for shape in shapes]
    got, want = (function(*[mo.asarray(x, device=device) for x in arrays]).numpy() for device in (gpu, "cpu"))
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", [mo.float32, mo.bfloat16])
def test_convolved_images_know_nothing_of_each_other(gpu: str, rng: np.random.Generator, dtype: mo.DType) -> None:
    """Behind the last channel of an image lies the next one; weights that are not there are zero."""
    x, w = rng.standard_normal((3, 3, 7, 5)).astype("f"), rng.standard_normal((9, 3, 3, 3)).astype("f")
    kernels = mo.asarray(w, device=gpu).astype(dtype)
    alone, beside = (mo.conv2d(mo.asarray(x, device=gpu).astype(dtype), kernels, padding=1).astype(mo.float32).numpy()
                     for x in (x, np.where(np.arange(3)[:, None, None, None] == 1, np.float32("inf"), x)))
    for image in (0, 2):
        assert beside[image].tobytes() == alone[image].tobytes()


def test_a_line_is_sorted(gpu: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 9, 5003).astype(np.int32)
    there = mo.asarray(x, device=gpu)
    assert np.array_equal(mo.argsort(there).numpy(), np.argsort(x, kind="stable"))


def test_rows_are_added_at_their_indices(gpu: str, rng: np.random.Generator) -> None:
    index, values = rng.integers(0, 4, 300), rng.standard_normal((300, 3)).astype("f")
    f = mo.compile(mo.grad(lambda t, at, c: mo.sum(mo.take(t, at, axis=0) * c)))
    got, want = (f(*[mo.asarray(x, device=device) for x in (np.zeros((5, 3), "f"), index, values)]).numpy()
                 for device in (gpu, "cpu"))
    assert got.tobytes() == want.tobytes()
