"""The end of a row through masks, as AVX-512 does it: the bits of the plain way, and nothing beside it is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.code.compiler import code, llvm
from morpho.backends.code.emit import Emitter
from morpho.backends.kernels.generators import generate
from morpho.base.machine import ISAS, Isa
from morpho.runtime.plans import evaluate

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "sin": lambda x, y: mo.sin(x) * y,  # long: one body for whole and short chunks
    "softmax": lambda x, y: mo.softmax(x + y),
    "sums": lambda x, y: ((x * y).sum(axis=-1), x.max(axis=-1)),
    "casts": lambda x, y: (x.astype(mo.float16), (y > x), y.astype(mo.float64)),
    "gathers": lambda x, y: (mo.take(x, mo.argsort(y[0]), axis=1) + y,
                             mo.take_along_axis(x, mo.argsort(y), axis=1) * 2),
    "rows": lambda x, y: mo.take(x, mo.asarray([2, 0, 1]), axis=0) + y[:3],
}


@pytest.fixture
def masked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Code with masks: LLVM writes them out element by element where the processor has none. Every mask is counted."""
    made: list[int] = []
    plain = Emitter.first_lanes
    monkeypatch.setattr(Emitter, "first_lanes", lambda self, count: (made.append(1), plain(self, count))[1])
    monkeypatch.setattr(Isa, "masks", True)
    for known in ("_addresses", "_by_key"):
        monkeypatch.setattr(code, known, {})
    evaluate._plans.clear()
    with mo.settings(isa="vector512", threads=1, cache=False):
        yield made
    evaluate._plans.clear()


def values(f: Callable[..., Any], *arguments: mo.Tensor) -> list[bytes]:
    found = mo.compile(f)(*arguments)
    return [part.numpy().tobytes() for part in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "float16", "bfloat16", "float64", "int64"])
def test_every_element_and_no_other(masked: list[int], dtype: str) -> None:
    """The end of a line would fall into the next one, which was written before."""
    x, y = (mo.asarray(np.arange(7 * n).reshape(7, n) % 2).astype(getattr(mo, dtype)) for n in (77, 35))
    joined = mo.compile(lambda x, y: mo.concat([mo.where(x == 0, x, y[:, :1]), mo.where(y == 0, y, y)], axis=1))(x, y)
    with mo.settings(device="reference"):
        assert mo.all(joined == mo.concat([mo.where(x == 0, x, y[:, :1]), y], axis=1))
    assert masked


@pytest.mark.sampled
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("length", [2, 15, 16, 63, 65, 100, 127])
def test_ends_have_the_same_bits(masked: list[int], name: str, length: int, rng: np.random.Generator) -> None:
    x, y = (mo.asarray(rng.normal(size=(5, length)).astype(np.float32)) for _ in range(2))
    found = values(FUNCTIONS[name], x, y)
    assert masked
    with mo.settings(isa="scalar"):
        assert found == values(FUNCTIONS[name], x, y)


def test_avx512_has_no_loop_for_the_end() -> None:
    f = mo.compile(lambda x: x * 3 - 1)
    with mo.settings(cache=False):
        f(mo.ones((3, 70)))
    (step,) = f.current.plan.program.steps
    text = llvm.assembly(generate(step.kernel, ISAS["avx512"], "kernel"), ISAS["avx512"], "x86_64-unknown-linux-gnu")
    assert text.count("{%k") >= 4 and "vmovss" not in text
    assert "zeroinitializer, ptr" in generate(step.kernel, ISAS["avx2"], "kernel")  # no garbage to compute with
    assert ISAS["amx"].masks and not ISAS["avx2"].masks and not ISAS["neon"].masks


def five_points(x: mo.Tensor) -> mo.Tensor:
    y = mo.zeros_like(x)
    y[1:-1, 1:-1] = 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1]) / x[1:-1, 1:-1]
    return y


@pytest.mark.parametrize("columns", [3, 9, 18, 40, 66, 250])
def test_chunks_of_short_rows_are_narrow(masked: list[int], columns: int, rng: np.random.Generator) -> None:
    """Many rows of a stencil end in a short chunk each: it is loaded by its mask, without a copy on the stack, and
    with the bits of any other way."""
    x = mo.asarray(rng.random((9, columns)))
    found = values(five_points, x)
    assert masked
    with mo.settings(isa="scalar"):
        assert found == values(five_points, x)


def test_a_short_row_costs_few_lanes() -> None:
    f = mo.compile(five_points)
    f(mo.ones((20, 250)))
    (kernel,) = (step.kernel for step in f.current.plan.program.steps if "divide" in step.label)
    assert kernel.short_rows
    text = generate(kernel, ISAS["avx512"], "kernel")
    assert "<32 x float>" in text and "<64 x float>" not in text
    assert "alloca" not in text and "alloca" in generate(kernel, ISAS["avx2"], "kernel")
    f(mo.ones((20, 130)))  # rows of 128: whole chunks
    assert not any(getattr(step.kernel, "short_rows", False) for step in f.current.plan.program.steps)


@pytest.mark.parametrize("at", [0, 40, 69])
@pytest.mark.parametrize("wrong", [10, -11, 1 << 40])
def test_an_index_outside_is_found_in_any_lane(masked: list[int], at: int, wrong: int) -> None:
    index = np.zeros(70, np.int64)
    index[at] = wrong
    for f in (lambda x, i: mo.take(x, i) * 2, lambda x, i: mo.segment_sum(mo.ones(70), i, 10)):
        with pytest.raises(mo.errors.MorphoError):
            mo.compile(f)(mo.ones(10), mo.asarray(index)).numpy()
