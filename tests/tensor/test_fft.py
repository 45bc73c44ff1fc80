"""Fourier transforms in generated code: any length, axis, form and norm, in no host step, with the same bits for any
batch, layout, number of threads and instruction set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.kernels.fft.butterflies import root
from morpho.base.machine import available_isas, machine
from morpho.runtime.plans import evaluate

DTYPES = {"complex64": 2e-6, "complex128": 4e-15}


def drawn(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def check(got: Any, want: np.ndarray, tolerance: float, what: object) -> None:
    found = got.numpy()
    assert found.shape == want.shape, what
    assert np.linalg.norm(found - want) <= tolerance * max(np.linalg.norm(want), 1e-30), what


@pytest.mark.parametrize("dtype", DTYPES)
def test_lengths(dtype: str, rng: np.random.Generator, sample: Callable[..., Any]) -> None:
    """Lengths of every kind, and of those up to 130 a quarter, drawn; in one program for each batch of them: code is
    compiled side by side."""
    before = evaluate.counts.host_steps
    lengths = [1, 2, 3, 6, 7, 8, 11, 13, 16, 17, 24, 60, 64, 97, 121, 128]
    if dtype == "complex64":
        lengths = sorted({*lengths, *sample(range(1, 131))})
    arrays = [drawn(rng, dtype, 3, n) for n in lengths]
    found = mo.compile(lambda *xs: [mo.fft.fft(x) for x in xs])
    for start in range(0, len(arrays), 10):
        part = arrays[start:start + 10]
        for x, y in zip(part, found(*[mo.asarray(x) for x in part]), strict=True):
            check(y, np.fft.fft(x.astype(np.complex128)), DTYPES[dtype], x.shape)
    assert evaluate.counts.host_steps == before


@pytest.mark.parametrize("n", [144, 1000, 1024, 2187, 2310, 10007, 40960])
def test_long_rows_are_as_precise_as_pocketfft(n: int, rng: np.random.Generator) -> None:
    x = drawn(rng, "complex128", n)
    true = np.fft.fft(x.astype(np.clongdouble))
    errors = [np.linalg.norm(y - true) / np.linalg.norm(true)
              for y in (mo.fft.fft(mo.asarray(x)).numpy(), np.fft.fft(x))]
    assert errors[0] <= 1.1 * errors[1] + 1e-17
    check(mo.fft.ifft(mo.fft.fft(mo.asarray(x))), x, 4e-15, n)


@pytest.mark.parametrize("n", [2, 7, 64, 74, 288, 301, 1000, 20014])
def test_real_forms(n: int, rng: np.random.Generator) -> None:
    x, half = drawn(rng, "complex128", 3, n), drawn(rng, "complex128", 3, n // 2 + 1)
    a, b = mo.asarray(np.ascontiguousarray(x.real)), mo.asarray(half)
    check(mo.fft.rfft(a), np.fft.rfft(x.real), 4e-15, "rfft")
    check(mo.fft.irfft(b, n=n), np.fft.irfft(half, n=n), 4e-15, "irfft")
    check(mo.fft.hfft(b, n=n, norm="ortho"), np.fft.hfft(half, n=n, norm="ortho"), 4e-15, "hfft")
    check(mo.fft.ihfft(a), np.fft.ihfft(x.real), 4e-15, "ihfft")
    check(mo.fft.fft(a), np.fft.fft(x.real), 4e-15, "fft of real numbers")


@pytest.mark.parametrize("axes", [None, (1,), (2, 0)])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_several_axes(axes: tuple[int, ...] | None, norm: str, rng: np.random.Generator) -> None:
    x = drawn(rng, "complex128", 6, 9, 10)
    for name in ("fftn", "ifftn", "irfftn"):
        got = getattr(mo.fft, name)(mo.asarray(x), axes=axes, norm=norm)
        check(got, getattr(np.fft, name)(x, axes=axes, norm=norm), 4e-15, name)
    real = np.ascontiguousarray(x.real)
    got = mo.fft.rfftn(mo.asarray(real), axes=axes, norm=norm)
    check(got, np.fft.rfftn(real, axes=axes, norm=norm), 4e-15, "rfftn")
    if axes is None:  # the last two
        for name, array in (("fft2", x), ("ifft2", x), ("rfft2", real), ("irfft2", x)):
            got = getattr(mo.fft, name)(mo.asarray(array), s=(8, 10), norm=norm)
            check(got, getattr(np.fft, name)(array, s=(8, 10), norm=norm), 4e-15, name)


def test_lengths_that_are_cut_or_filled_and_other_layouts(rng: np.random.Generator) -> None:
    x = drawn(rng, "complex128", 5, 12, 40)
    a = mo.asarray(x)
    for n, axis in ((7, 1), (30, 1), (3, 0), (64, 2)):
        check(mo.fft.fft(a, n=n, axis=axis), np.fft.fft(x, n=n, axis=axis), 4e-15, (n, axis))
    turned = mo.permute_dims(a, (2, 0, 1))[::2]
    check(mo.fft.fft(turned, axis=0), np.fft.fft(x.transpose(2, 0, 1)[::2], axis=0), 4e-15, "turned")
    assert mo.fft.fft(mo.asarray(x[:0])).shape == (0, 12, 40)


@pytest.mark.parametrize("n", [30, 192, 37])
def test_a_row_has_the_bits_of_a_batch(n: int, rng: np.random.Generator) -> None:
    x = drawn(rng, "complex64", 37, n)
    want = mo.fft.fft(mo.asarray(x)).numpy()
    assert np.array_equal(mo.fft.fft(mo.asarray(x[5])).numpy(), want[5])
    assert np.array_equal(mo.fft.fft(mo.asarray(np.ascontiguousarray(x.T)), axis=0).numpy().T, want)
    for threads in (1, 2):
        with mo.settings(threads=threads):
            assert np.array_equal(mo.compile(mo.fft.fft)(mo.asarray(x)).numpy(), want)
    for name in available_isas(machine()):
        with mo.settings(isa=name):
            assert np.array_equal(mo.fft.fft(mo.asarray(x)).numpy(), want), name


def test_a_transform_fuses_with_what_is_around_it(rng: np.random.Generator) -> None:
    """A filter: two transforms and a kernel between; nothing runs on the host."""
    x, h = drawn(rng, "complex128", 8, 256), drawn(rng, "complex128", 256)
    f = mo.compile(lambda a, b: mo.abs(mo.fft.ifft(mo.fft.fft(a) * b)))
    check(f(mo.asarray(x), mo.asarray(h)), np.abs(np.fft.ifft(np.fft.fft(x) * h)), 4e-15, "filter")
    assert f.stats["host_steps"] == 0 and f.stats["kernels"] == 4


def test_roots_are_rounded_once() -> None:
    assert [root(k, 8)[0] for k in (0, 2, 4)] == [1.0, 0.0, -1.0]
    for n in (5, 7, 13):
        angle = np.longdouble(2) * np.arccos(np.longdouble(-1)) / n
        assert all(root(k, n) == (float(np.cos(angle * k)), float(np.sin(angle * k))) for k in range(n // 2 + 1))
