"""Quantities as text and back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morpho.base.errors import ValueFault
from morpho.base.units import (
    format_binary_bytes,
    format_bits_per_s,
    format_bytes,
    format_bytes_per_s,
    format_flops_per_s,
    format_per_s,
    format_seconds,
    parse_bytes,
    parse_bytes_per_s,
    parse_flops_per_s,
    parse_seconds,
)


@given(st.integers(0, 10**18))
def test_bytes_there_and_back(nbytes: int) -> None:
    for text in (format_bytes(nbytes), format_binary_bytes(nbytes)):
        found = parse_bytes(text)
        assert abs(found - nbytes) <= 0.06 * max(nbytes, 1), text
    assert parse_bytes(nbytes) == parse_bytes(str(nbytes)) == nbytes


@given(st.floats(1e-10, 59))
def test_seconds_there_and_back(seconds: float) -> None:
    assert math.isclose(parse_seconds(format_seconds(seconds)), seconds, rel_tol=0.06, abs_tol=6e-11)


@pytest.mark.parametrize(("text", "nbytes"), [
    ("1KB", 1000), ("1KiB", 1024), ("1k", 1000), ("1Ki", 1024), ("0.5 MiB", 524288), ("1e3", 1000), ("3 GB", 3 * 10**9),
    (" 12 ", 12), ("1tb", 10**12), (".5k", 500), ("8B", 8)])
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1 Mx", "1 MB 2", "nan", "inf", "1,5GB", "0x10"])
def test_what_is_not_a_size(text: str) -> None:
    with pytest.raises(ValueFault, match=r"\[units\]"):
        parse_bytes(text)
    with pytest.raises(ValueFault):
        parse_seconds(text if text != "" else "1 parsec")


def test_edges() -> None:
    assert format_bytes(999_999) == "1 MB" and format_bytes(-1500) == "-1.5 kB" and format_bytes(math.inf) == "inf B"
    assert format_seconds(0) == "0 s" and format_seconds(59.99) == "1 min 0 s" and format_seconds(-0.25) == "-250 ms"
    assert format_seconds(3599.9) == "1 h 0 min" and format_seconds(0.9999) == "1 s"
    assert format_bytes_per_s(1e9) == "1 GB/s" and format_flops_per_s(2e12) == "2 TFLOP/s"
    assert format_per_s(1500.0, "tokens") == "1.5 k tokens/s"


@pytest.mark.parametrize(("text", "bytes_per_s"), [
    ("1000Mbit/s", 125e6), ("10 Gbit/s", 1.25e9), ("10gbit/s", 1.25e9), ("100 Mbps", 12.5e6), ("1.25GB/s", 1.25e9),
    ("500 kB/s", 5e5), ("8bit/s", 1.0), ("1e3 MB/s", 1e9)])
def test_bandwidths(text: str, bytes_per_s: float) -> None:
    assert parse_bytes_per_s(text) == bytes_per_s


@pytest.mark.parametrize("text", ["10", "10G", "10Gb/s", "10GBps", "fast", "-1Gbit/s", "", "1.2.3Gbit/s", ".Gbit/s"])
def test_bandwidths_that_mean_nothing_or_two_things(text: str) -> None:
    with pytest.raises(ValueFault, match=r"bandwidth|bits or bytes"):
        parse_bytes_per_s(text)


def test_rates_of_arithmetic() -> None:
    assert parse_flops_per_s("1.2TFLOP/s") == 1.2e12 and parse_flops_per_s("900 gflops") == 9e11
    for text in ("1.2T", "-3GFLOP/s", "", "1..2GFLOPS"):
        with pytest.raises(ValueFault, match="rate"):
            parse_flops_per_s(text)


@given(st.floats(1.0, 1e15))
def test_bits_there_and_back(bytes_per_s: float) -> None:
    assert math.isclose(parse_bytes_per_s(format_bits_per_s(bytes_per_s)), bytes_per_s, rel_tol=0.06)
