"""Functions by tables: every float falls into one interval of one part, whichever way the numbers are looked up."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import parameter

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_cross_compile import assembly, kernels_of
from test_vector_math import reference
from ulp import Array, Compiled, ulp_errors

import morpho as mo
from morpho.backends.code.lookup import ENTRIES
from morpho.backends.code.vector_math.core import FLOAT
from morpho.backends.code.vector_math.normal import GELU, GELU_SLOPE, gelu_float, gelu_slope_float
from morpho.backends.code.vector_math.piecewise import DEGREE, Part
from morpho.base.dtypes import float32
from morpho.base.machine import choose_isa, machine
from morpho.ir.node import build

TABLES = {"gelu": GELU, "gelu_slope": GELU_SLOPE}
FUNCTIONS = {"gelu": gelu_float, "gelu_slope": gelu_slope_float}
PARTS = [(name, number) for name, parts in TABLES.items() for number in range(len(parts))]


def fma(a: Array, b: Any, c: Any) -> Array:
    """By doubles: right but for a float in 2**29 or so."""
    return (a.astype(np.float64) * b + c).astype(np.float32)


def interval(part: Part, t: Array) -> Array:
    root = fma(t, part.steepness, part.start)
    return fma(root, root, FLOAT.magic - part.first).view(np.int32) & 0xFF


def floats_around(value: float, count: int = 2000) -> Array:
    return (np.float32(value).view(np.int32) + np.arange(-count, count, dtype=np.int32)).view(np.float32)


def edges(part: Part) -> list[float]:
    return [(np.sqrt(part.first + 0.5 + n) - part.start) / part.steepness for n in range(ENTRIES)]


@pytest.mark.parametrize("name, number", PARTS)
def test_every_argument_has_an_interval(name: str, number: int) -> None:
    part = TABLES[name][number]
    assert len(part.centres) == ENTRIES and len(part.powers) == DEGREE + 1
    assert all(len(row) == ENTRIES for row in part.powers)
    lowest = TABLES[name][number - 1].top if number else 0.0
    t = np.append(np.linspace(lowest, part.top, 100_000, dtype=np.float32), np.float32(part.top))
    found = interval(part, t)
    assert (np.diff(found[:-1]) >= 0).all() and found.max() < ENTRIES
    if number == 0:
        assert found.min() == 0
        return
    assert found[t > lowest].min() == 1, "the first interval is for what is done"
    assert interval(part, np.array([part.done], np.float32))[0] == 0
    assert not any(row[0] for row in part.powers) and part.centres[0] == 0
    assert 2.0**-126 <= part.scale < 1, "a subnormal factor would be slow on x86"


@pytest.mark.parametrize("name, last", [("gelu", 14.357), ("gelu_slope", 14.542)])
def test_what_vanishes_is_not_rounded_to_zero(name: str, last: float) -> None:
    """x86 takes a hundred cycles for each such rounding: beyond the last float the polynomial is zero itself."""
    part = TABLES[name][-1]
    assert part.top > last
    zeros = [n for n in range(1, ENTRIES) if not any(row[n] for row in part.powers)]
    assert zeros == list(range(zeros[0], ENTRIES)) and edges(part)[zeros[0] - 1] < last + 0.15
    far = np.array([-part.top, -15.3, -100.0, -3e38, -np.inf], np.float32)
    result = Compiled(FUNCTIONS[name], np.float32, 4)(far)
    assert not result.any() and np.signbit(result).all()


def test_gelu_is_right_beside_every_edge() -> None:
    places = [edge for part in GELU for edge in [*edges(part), part.top, part.done] if 0 < edge < 14.5]
    x = np.concatenate([floats_around(sign * place) for place in places for sign in (1, -1)])
    errors = ulp_errors(Compiled(gelu_float, np.float32, 8)(x), reference("gelu", x.astype(np.longdouble)))
    assert errors.max() <= 2, x[errors.argmax()]


def native_options() -> dict[str, Any]:
    isa = choose_isa("native", machine())
    return {"lookups": isa.lookups, "destructive_fma": isa.architecture == "aarch64"}


@pytest.mark.parametrize("lanes", [1, 4, 8, 16, 32])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_bits_from_registers_and_from_memory(name: str, lanes: int, rng: np.random.Generator) -> None:
    """Also where lanes of several parts meet, and NaNs of both signs beside them."""
    mixed = rng.permutation(np.concatenate([rng.normal(0, 4, 3000), rng.uniform(-16, 16, 3000), [np.nan, -np.nan, 0.0,
                                            -0.0, np.inf, -np.inf, 1e-45, -1e-45, 1e-30, -1e-30]])).astype(np.float32)
    expected = Compiled(FUNCTIONS[name], np.float32, 1)(mixed)
    found = Compiled(FUNCTIONS[name], np.float32, lanes, **native_options())(mixed)
    nan = np.isnan(mixed)
    assert np.isnan(found[nan]).all() and np.isnan(expected[nan]).all()
    np.testing.assert_array_equal(found[~nan].view(np.int32), expected[~nan].view(np.int32))


def test_values_of_rows_beside_those_of_columns() -> None:
    """One lane and many in one kernel: each has a table as it needs it."""
    x = mo.asarray(np.linspace(-9, 3, 40, dtype="f").reshape(4, 10))
    f = mo.compile(lambda x: mo.gelu(mo.gelu(x).sum(axis=-1, keepdims=True) - x * 2).sum(axis=-1)
                   + mo.gelu(x.sum(axis=-1)))
    found = f(x).numpy()
    with mo.settings(isa="scalar"):
        np.testing.assert_array_equal(f(x).numpy().view(np.int32), found.view(np.int32))


@pytest.mark.parametrize("architecture, isa, word", [("x86_64", "avx2", "vpermps"), ("x86_64", "avx512", "vpermps"),
                                                     ("aarch64", "neon", "tbl")])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_are_looked_up_in_registers(name: str, architecture: str, isa: str, word: str) -> None:
    (kernel,) = kernels_of(build(name, parameter(0, (1000,), float32)))
    text = assembly(kernel, architecture, isa)
    assert text.count(f"\t{word}\t") >= DEGREE + 2
    assert "gather" not in text
