"""Fourier transforms by the whole grid, on the emulated device: the CPU's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo

CALLS: list[tuple[str, Any, tuple[int, ...], str]] = [
    ("rows", lambda x: mo.fft.fft(x), (3, 240), "complex64"),
    ("first axis", lambda x: mo.fft.ifft(x, axis=0), (64, 5), "complex128"),
    ("short", lambda x: mo.fft.fft(x, norm="ortho"), (7, 3), "complex64"),
    ("real", lambda x: mo.fft.rfft(x), (2, 96), "float32"),
    ("real, odd", lambda x: mo.fft.rfft(x), (2, 45), "float64"),
    ("half", lambda x: mo.fft.irfft(x, norm="ortho"), (2, 49), "complex64"),
    ("prime", lambda x: mo.fft.fft(x), (2, 101), "complex64"),
    ("prime back", lambda x: mo.fft.ifft(x), (131,), "complex128"),
    ("real, twice a prime", lambda x: mo.fft.rfft(x), (134,), "float32"),
    ("half, twice a prime", lambda x: mo.fft.irfft(x, n=134), (68,), "complex64"),
    ("plane", lambda x: mo.fft.fft2(x), (2, 12, 20), "complex64"),
    ("one number", lambda x: mo.fft.fft(x, norm="ortho") + mo.fft.ifft2(x), (3, 1), "complex64")]


@pytest.mark.parametrize(("call", "shape", "dtype"), [case[1:] for case in CALLS], ids=[case[0] for case in CALLS])
def test_transforms_have_the_cpus_bits(gpu: str, rng: np.random.Generator, call: Any, shape: tuple[int, ...],
                                       dtype: str) -> None:
    parts = rng.standard_normal((2, *shape))
    x = mo.asarray((parts[0] + 1j * parts[1] if "complex" in dtype else parts[0]).astype(dtype))
    got, want = call(x.to(gpu)), mo.compile(call)(x)
    assert got.device == gpu and got.numpy().tobytes() == want.numpy().tobytes()


def test_a_transform_leaves_nothing_to_the_host(gpu: str, rng: np.random.Generator) -> None:
    f = mo.compile(lambda x: mo.fft.fft(x).real.sum())
    x = mo.asarray(rng.standard_normal(1000).astype("f")).to(gpu)
    assert abs(float(f(x)) - 1000 * float(x[0])) < 0.1 and "0 host steps" in str(f.explain())
