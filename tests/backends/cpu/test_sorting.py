"""Sorting kernels: instruction sets of the machine, patterns that divide badly, zeros and NaN, counts of host steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.kernels.loops.sorting.network import odd_even_network
from morpho.backends.kernels.loops.sorting.radix import RadixSortKernel
from morpho.backends.kernels.loops.sorting.radix_code import generate
from morpho.base.dtypes import float64
from morpho.base.machine import ISAS, available_isas, machine

NAMES = [name for name in ("avx512", "avx2", "vector128") if name in available_isas(machine())]
LENGTHS = (1, 15, 17, 65, 129, 256, 257, 5000)
PATTERNS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "random": lambda rng, n: rng.normal(0, 1e6, n), "equal": lambda rng, n: np.full(n, 7.0),
    "sorted": lambda rng, n: np.arange(n), "reversed": lambda rng, n: np.arange(n)[::-1],
    "few": lambda rng, n: rng.integers(0, 3, n), "pipe": lambda rng, n: np.minimum(np.arange(n), np.arange(n)[::-1]),
    "one larger": lambda rng, n: (np.arange(n) == n // 2) * 5.0, "saw": lambda rng, n: np.arange(n) % 17,
}


@pytest.mark.parametrize("isa", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_values(isa: str, dtype: str, rng: np.random.Generator) -> None:
    with mo.settings(isa=isa):
        ordered = mo.compile(lambda x: mo.sort(x), dynamic={"x": {0: mo.Dim("n", 0, 8192)}}, whole=True)
        for pattern in PATTERNS.values():
            for length in LENGTHS:
                x = np.asarray(pattern(rng, length)).astype(dtype)
                np.testing.assert_array_equal(ordered(mo.asarray(x)).numpy(), np.sort(x))


@pytest.mark.parametrize("isa", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint64"])
def test_indices(isa: str, dtype: str, rng: np.random.Generator) -> None:
    """Also of keys that differ in their last bits alone beside one far away, which cannot be packed with an index."""
    far, step = (1e9, 2.0 ** -52) if dtype.startswith("float") else (1 << 62, 1)
    with mo.settings(isa=isa):
        order = mo.compile(lambda x: (mo.argsort(x), mo.argsort(x, descending=True)),
                           dynamic={"x": {0: mo.Dim("n", 0, 40000)}}, whole=True)
        for length in (25, 129, 1000, 30000):
            near = (1 + rng.permutation(length) * step).astype(dtype)
            one_far = np.where(np.arange(length) == length // 3, far, near).astype(dtype)
            twice = np.repeat(near[::2], 2)[:length]
            for x in (near, one_far, twice, *(np.abs(np.asarray(pattern(rng, length))).astype(dtype)
                                              for pattern in PATTERNS.values())):
                up, down = order(mo.asarray(x))
                np.testing.assert_array_equal(up.numpy(), np.argsort(x, kind="stable"))
                turned = len(x) - 1 - np.argsort(x[::-1], kind="stable")[::-1]
                np.testing.assert_array_equal(down.numpy(), turned)


def test_indices_are_packed_where_registers_sort() -> None:
    kernel = RadixSortKernel(float64, True, False, 0, False)
    packed = {name: "@llvm.x86.avx512.mask.compress" in generate(kernel, ISAS[name], "k") for name in ISAS}
    there = [name for name in ISAS if packed[name]]
    assert there == [name for name in ISAS if name.endswith("amx") or name == "avx512"]
    assert "compress" not in generate(replace(kernel, wide=True), ISAS["avx512"], "k")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("descending", [False, True])
def test_zeros_keep_their_order_and_nan_is_largest(dtype: str, descending: bool, rng: np.random.Generator) -> None:
    for length in (5, 40, 700):
        x = rng.choice([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], (3, length)).astype(dtype)
        order = mo.argsort(x, descending=descending).numpy()
        found = mo.sort(x, descending=descending).numpy()
        wanted = np.take_along_axis(x, order, 1)
        np.testing.assert_array_equal(found, wanted)
        zeros = found == 0
        np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]))
        if not descending:
            np.testing.assert_array_equal(order, np.argsort(x, axis=1, kind="stable"))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int32", "uint32", "uint64", "float32"])
def test_limits_of_the_dtype(dtype: str, rng: np.random.Generator) -> None:
    kind = np.dtype(dtype)
    ends = [False, True] if dtype == "bool" else [-np.inf, np.inf, 1.0] if kind.kind == "f" else [
        np.iinfo(kind).min, np.iinfo(kind).max, np.iinfo(kind).max - 1, 3]
    for length in (7, 33, 900):
        x = rng.choice(np.array(ends, kind), length)
        np.testing.assert_array_equal(mo.sort(x).numpy(), np.sort(x))
        np.testing.assert_array_equal(mo.argsort(x).numpy(), np.argsort(x, kind="stable"))
        down = mo.argsort(x, descending=True).numpy()
        np.testing.assert_array_equal(down, length - 1 - np.argsort(x[::-1], kind="stable")[::-1])


def test_strides_and_threads(rng: np.random.Generator) -> None:
    x = rng.normal(0, 1, (40, 6, 50)).astype(np.float32)
    for threads in (1, 2):
        with mo.settings(threads=threads):
            for axis in (0, 1, 2):
                t = mo.permute_dims(mo.asarray(x), (2, 0, 1))
                wanted = np.transpose(x, (2, 0, 1))
                np.testing.assert_array_equal(mo.sort(t, axis=axis).numpy(), np.sort(wanted, axis))
                np.testing.assert_array_equal(mo.argsort(t[::-1], axis=axis).numpy(),
                                              np.argsort(wanted[::-1], axis, kind="stable"))


def test_nothing_runs_on_the_host() -> None:
    f = mo.compile(lambda x: (mo.sort(x), mo.argsort(x), mo.searchsorted(mo.sort(x), x), mo.topk(x, 2).values,
                              mo.median(x), mo.histogram(x, 4)[0], mo.bincount(mo.argsort(x), length=9),
                              mo.random.permutation(mo.random.key(0), 9)), whole=True)
    f(mo.asarray(np.arange(9.0)))
    assert f.stats["host_steps"] == 0 and f.stats["fallbacks"] == 0


def test_the_network_sorts_every_row_of_zeros_and_ones() -> None:
    """Then it sorts everything."""
    for count in (4, 8, 16):
        rows = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
        columns = [rows[:, i].copy() for i in range(count)]
        for i, j in odd_even_network(count):
            columns[i], columns[j] = np.minimum(columns[i], columns[j]), np.maximum(columns[i], columns[j])
        assert all((a <= b).all() for a, b in itertools.pairwise(columns))
