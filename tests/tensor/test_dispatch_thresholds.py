"""Which way `auto` multiplies: counters say which kernel ran, bits are equal, nothing is measured unasked."""

from __future__ import annotations

import doctest
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import morpho as mo
from morpho.backends.kernels.gemm import gemv
from morpho.backends.kernels.gemm.gemm import GEMM
from morpho.base.errors import ArgumentError
from morpho.base.target import current_isa
from morpho.cli.machine import dispatch_thresholds as cli
from morpho.cli.main import app
from morpho.cost import dispatch_thresholds as data
from morpho.cost.contraction import ContractionRates
from morpho.cost.dispatch_thresholds import DEFAULT, DispatchThresholds, defaults_for, from_row
from morpho.ir.graph import Graph
from morpho.runtime import measure, thresholds
from morpho.runtime.plans import stored_plan
from morpho.tensor.tools import measure_thresholds

SLOW_MEMORY = replace(DEFAULT, rates=ContractionRates(1e30, 1.0, 1e-9))
FAST_BLAS = replace(DEFAULT, blas_size=4)


def of_this_machine() -> DispatchThresholds:
    """Those in force where nothing was measured."""
    return defaults_for(current_isa().vector_bits)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A profile of its own."""
    with mo.settings(cache_dir=str(tmp_path)):
        thresholds._kept.cache_clear()
        yield tmp_path
    thresholds._kept.cache_clear()


def pair(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[mo.Tensor, mo.Tensor]:
    return tuple(mo.asarray(rng.standard_normal(s).astype(np.float32), copy=True) for s in ((m, k), (k, n)))  # type: ignore


def made(chosen: DispatchThresholds, function: Any, *arguments: Any) -> tuple[Any, bytes]:
    compiled = mo.compile(function)
    with thresholds.using(chosen):
        return compiled, compiled(*arguments).numpy().tobytes()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_packed_and_unpacked_have_the_same_bits(rng: np.random.Generator, turned: bool, dtype: Any) -> None:
    """Small right operands and ones that are read in blocks, all remainders of rows, columns and k, and batches."""
    def function(x: mo.Tensor, y: mo.Tensor) -> mo.Tensor:
        return mo.matmul(x[..., ::2], y.mT if turned else y)

    limits = "unpacked_transposed_bytes" if turned else "unpacked_bytes"
    for rows, k, n, batch in ((1, 37, 41, ()), (5, 37, 41, (2,)), (1, 301, 131, ()), (2, 299, 4, ()), (3, 304, 2, (3,)),
                              (4, 300, 165, ()), (9, 303, 134, (2,))):
        a = mo.asarray(rng.standard_normal((*batch, rows, 2 * k)).astype(dtype))
        b = mo.asarray(rng.standard_normal((*batch, n, k) if turned else (*batch, k, n)).astype(dtype))
        found = [made(replace(DEFAULT, **{limits: given}), function, a, b) for given in ((1 << 20,) * rows, ())]
        assert [f.stats["products"] for f, _ in found] == [{"packed": 0, "unpacked": 1, "blas": 0},
                                                           {"packed": 1, "unpacked": 0, "blas": 0}]
        assert found[0][1] == found[1][1], (rows, k, n, batch)


def test_what_follows_an_unpacked_product_is_one_kernel_with_it(rng: np.random.Generator) -> None:
    """Tile by tile, with the bits of two kernels; also where results take the memory of what they are made of."""
    def function(x: mo.Tensor, y: mo.Tensor, bias: mo.Tensor) -> mo.Tensor:
        wide = mo.cumulative_sum(bias, axis=-1)  # a value of its own that ends with the product
        return mo.gelu(x @ y + bias) * wide + mo.sum(x)

    sizes = ((1, 37, 41, ()), (4, 300, 1100, ()), (3, 70, 33, (5,)), (2, 96, 1, ()), (1, 512, 900, (2, 3)))
    for rows, k, n, batch in sizes:
        x, y = (mo.asarray(rng.standard_normal((*batch, *size)).astype("f")) for size in ((rows, k), (k, n)))
        bias = mo.asarray(rng.standard_normal((*batch, rows, n)).astype("f"))
        f, got = made(DEFAULT, function, x, y, bias)
        assert f.stats["products"] == {"packed": 0, "unpacked": 1, "blas": 0} and "packed at every" not in f.explain()
        labels = [step.label for step in f.current.plan.program.steps if step.kernel.role == "gemv"]
        assert labels == ["matmul (unpacked)" + "+add+gelu+multiply+add" * (n > 1)]  # a column is computed as a row
        for change in ({"passes_off": "epilogue"}, {"passes_off": "memory"}, {"threads": 1}, {"threads": 3},
                       {"isa": "scalar"}, {"level": 0}):
            with mo.settings(**change):  # type: ignore[arg-type]
                assert made(DEFAULT, function, x, y, bias)[1] == got, (rows, k, n, batch, change)
        expected = mo.gelu(x.numpy().astype(np.float64) @ y.numpy() + bias.numpy()).numpy()
        expected = expected * np.cumsum(bias.numpy(), -1) + x.numpy().sum()
        np.testing.assert_allclose(np.frombuffer(got, "f").reshape(bias.shape), expected, rtol=1e-3, atol=1e-2)


def test_an_index_that_is_wrong_after_an_unpacked_product(rng: np.random.Generator) -> None:
    """The status of what follows is that of the product."""
    x, y = pair(rng, 2, 30, 40)
    f = mo.compile(lambda x, y, z, i: (x @ y) * mo.take(z, i, axis=0))
    assert f(x, y, mo.ones(7), mo.asarray(np.arange(40) % 7)).shape == (2, 40)
    with pytest.raises(IndexError):
        f(x, y, mo.ones(7), mo.asarray(np.arange(40) % 8))


@pytest.mark.parametrize("isa", ["scalar", "vector128"])
def test_unpacked_products_on_other_instruction_sets(rng: np.random.Generator, isa: str) -> None:
    a, b = pair(rng, 6, 301, 131)
    want = made(DEFAULT, lambda x, y: x @ y, a, b)[1]
    with mo.settings(isa=isa):
        f, got = made(DEFAULT, lambda x, y: x @ y, a, b)
    assert got == want and f.stats["products"]["unpacked"] == 1


def test_a_row_times_a_large_matrix_is_not_packed_by_default(rng: np.random.Generator) -> None:
    a, b = pair(rng, 1, 700, 900)
    with mo.settings(threads=3):
        f, _ = made(DEFAULT, lambda x, y: x @ y, a, b)
    step = f.current.plan.program.steps[-1]
    assert f.stats["products"]["unpacked"] == 1 and step.kernel.way == "streamed"
    assert gemv.GEMV.by_name(step.values)["tiles"] == 3
    assert step.cost.flops == 2 * 700 * 900


def test_a_small_product_is_not_cut_for_threads_that_it_does_not_have(rng: np.random.Generator) -> None:
    a, b = pair(rng, 1, 200, 200)
    with mo.settings(threads=64):
        f, _ = made(DEFAULT, lambda x, y: x @ y, a, b)
    step = f.current.plan.program.steps[-1]
    assert gemv.GEMV.by_name(step.values)["tiles"] == 1


def test_one_function_has_a_program_for_each_profile(rng: np.random.Generator) -> None:
    a, b = pair(rng, 3, 20, 20)
    f = mo.compile(lambda x, y: x @ y)
    for chosen in (DEFAULT, replace(DEFAULT, unpacked_bytes=()), DEFAULT):
        with thresholds.using(chosen):
            f(a, b)
    assert f.stats["specialisations"] == 2


def test_blocks_of_k_have_the_same_bits(rng: np.random.Generator) -> None:
    a, b = pair(rng, 40, 1100, 30)
    found = [made(replace(DEFAULT, single_k_block_rows=rows), lambda x, y: x @ y, a, b) for rows in (0, 40)]
    depths = [f.current.plan.program.steps[-1].values[GEMM.at("depth")] for f, _ in found]
    assert depths[0] < 1100 <= depths[1] and found[0][1] == found[1][1]


def test_threads_share_from_the_threshold_on(rng: np.random.Generator) -> None:
    a, b = pair(rng, 48, 40, 60)
    runs, bits = [], []
    with mo.settings(threads=2):
        for points in (100, 1 << 40):
            f, found = made(replace(DEFAULT, parallel_macs=points), lambda x, y: x @ y, a, b)
            pool = f.current.plan.native_code.workers
            before = pool.runs
            with thresholds.using(replace(DEFAULT, parallel_macs=points)):
                f(a, b)
            runs.append(pool.runs - before)
            bits.append(found)
    assert runs == [1, 0] and bits[0] == bits[1]


def test_fast_takes_blas_and_says_so(rng: np.random.Generator) -> None:
    a, b = pair(rng, 8, 9, 10)
    f = mo.compile(lambda x, y: x @ y)
    with thresholds.using(FAST_BLAS):
        plain = f(a, b).numpy()
        assert f.stats["products"]["blas"] == 0 and "fast" not in f.explain()
        with mo.settings(fast=True):
            np.testing.assert_allclose(f(a, b).numpy(), plain, rtol=1e-5)
            assert f.stats["products"] == {"packed": 0, "unpacked": 0, "blas": 1}
            assert "choices\n  fast: a product 8 x 9 x 10 by blas" in f.explain()
        assert f.stats["specialisations"] == 2
        f(a, b)
        assert f.stats["products"]["blas"] == 0


def test_fast_takes_strassen(rng: np.random.Generator) -> None:
    a, b = pair(rng, 8, 9, 10)
    f = mo.compile(lambda x, y: x @ y)
    with thresholds.using(replace(FAST_BLAS, strassen_size=8)), mo.settings(fast=True):
        np.testing.assert_allclose(f(a, b).numpy(), a.numpy() @ b.numpy(), rtol=1e-4, atol=1e-5)
        assert "by strassen" in f.explain()


def test_fast_leaves_alone_what_it_must(rng: np.random.Generator) -> None:
    """Named algorithms, other dtypes, dynamic sizes, small products, whole functions, and machines not measured."""
    a, b = pair(rng, 8, 9, 10)
    cases: list[tuple[Any, Any, tuple[Any, ...]]] = [
        (FAST_BLAS, mo.compile(lambda x, y: mo.matmul(x, y, algorithm="kernel")), (a, b)),
        (FAST_BLAS, mo.compile(lambda x, y: x.astype(mo.bfloat16) @ y.astype(mo.bfloat16)), (a, b)),
        (FAST_BLAS, mo.compile(lambda x, y: x @ y, dynamic={"x": {0: mo.Dim("n", 1, 9)}}), (a, b)),
        (FAST_BLAS, mo.compile(lambda x, y: x @ y, whole=True), (a, b)),
        (replace(DEFAULT, blas_size=9), mo.compile(lambda x, y: x @ y), (a, b)),
        (DEFAULT, mo.compile(lambda x, y: x @ y), (a, b)),
    ]
    for chosen, f, arguments in cases:
        with thresholds.using(chosen), mo.settings(fast=True):
            f(*arguments)
            assert f.stats["products"]["blas"] == 0 and "fast:" not in f.explain()


def test_einsum_asks_the_profile_where_bits_allow_it(rng: np.random.Generator) -> None:
    shapes = ((40, 10), (10, 4), (4, 10))
    floats = [mo.asarray(rng.standard_normal(shape)) for shape in shapes]
    whole = [mo.asarray(rng.integers(-9, 9, shape)) for shape in shapes]
    defaults_for, other = mo.einsum_path("ab,bc,cd->ad", *floats), ((1, 2), (0, 1))
    assert defaults_for.path != other and "by this machine" not in str(defaults_for)
    expected = mo.einsum("ab,bc,cd->ad", *whole).numpy()
    with thresholds.using(SLOW_MEMORY):
        assert mo.einsum_path("ab,bc,cd->ad", *floats).path == defaults_for.path
        assert mo.einsum_path("ab,bc,cd->ad", *whole).path == other
        named = mo.einsum_path("ab,bc,cd->ad", *floats, optimize="measured")
        assert named.path == other and str(named).endswith("by this machine's rates")
        np.testing.assert_array_equal(mo.einsum("ab,bc,cd->ad", *whole).numpy(), expected)
        f = mo.compile(lambda a, b, c: mo.einsum("ab,bc,cd->ad", a, b, c))
        f(*floats)
        with mo.settings(fast=True):
            assert mo.einsum_path("ab,bc,cd->ad", *floats).path == other
            f(*floats)
    assert f.stats["specialisations"] == 2
    with pytest.raises(ArgumentError, match=r'optimize=.fastest. is unknown.*"measured"'):
        mo.einsum("ab,bc->ac", *floats[:2], optimize="fastest")


def test_the_disk_key_knows_the_profile(folder: Path, rng: np.random.Generator) -> None:
    a, b, c = (mo.asarray(rng.standard_normal(shape)) for shape in ((40, 12), (12, 30), (30, 20)))
    product = Graph(((a @ b).node,))

    def key(graph: Graph) -> str | None:
        return stored_plan.plan_key(stored(graph), True, 2, ())

    def stored(graph: Graph) -> Graph:
        from morpho.runtime.plans.abstraction import abstract

        return abstract(graph.outputs)[0]

    first = key(product)
    assert first is not None and first == key(product)
    with thresholds.using(replace(DEFAULT, unpacked_bytes=())):
        assert key(product) not in (None, first)
    orders = [Graph((mo.einsum("ab,bc,cd->ad", a, b, c, optimize=path).node,)) for path in
              ([(0, 1), (0, 1)], [(1, 2), (0, 1)])]
    assert key(orders[0]) != key(orders[1])


# -- what is kept ------------------------------------------------------------------------------------------------------
def test_wide_vectors_share_later() -> None:
    with mo.settings(isa="scalar"):
        assert thresholds.current() == defaults_for(0) == DEFAULT
    assert defaults_for(512).parallel_macs == 2 * defaults_for(256).parallel_macs == 4 * defaults_for(128).parallel_macs


def test_nothing_is_measured_unasked(folder: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setattr(measure_thresholds, "race", lambda *given: 1 / 0)
    a, b = pair(rng, 4, 5, 6)
    with mo.settings(fast=True):
        (a @ b).numpy()
        mo.compile(lambda x, y: mo.einsum("ab,bc->ac", x, y, optimize="measured"))(a, b)
    assert thresholds.current() == of_this_machine() and not thresholds.is_measured()
    assert not (folder / "profile.json").exists()


def test_what_was_measured_is_kept_by_threads(folder: Path) -> None:
    found = replace(DEFAULT, unpacked_bytes=(77, 5), single_k_block_rows=9)
    with mo.settings(threads=2):
        thresholds.store(found)
        assert thresholds.current() == found and thresholds.is_measured()
    with mo.settings(threads=3):
        assert thresholds.current() == of_this_machine()
    thresholds.store_row(thresholds.profile_key(), "", [1e9, 1e9])  # other rows of the file stay
    with mo.settings(threads=2):
        thresholds._kept.cache_clear()
        assert thresholds.current() == found
    with mo.settings(threads=2, cache=False):
        thresholds.store(DEFAULT)  # kept nowhere
    with mo.settings(threads=2):
        assert thresholds.current() == found


GOOD = json.loads(json.dumps(DEFAULT.row()))
BAD: list[Any] = [
    None, [], {}, {**GOOD, "more": 1}, {key: value for key, value in GOOD.items() if key != "blas_size"},
    {**GOOD, "direct_bytes": 5}, {**GOOD, "turned_bytes": [1] * 65}, {**GOOD, "direct_bytes": [True]},
    {**GOOD, "shared_points": 1.5}, {**GOOD, "one_block_rows": -1}, {**GOOD, "blas_size": 1 << 63},
    {**GOOD, "rates": []}, {**GOOD, "rates": {**GOOD["rates"], "bytes_per_s": 0.0}},
    {**GOOD, "rates": {**GOOD["rates"], "flops_per_s": float("inf")}}, {**GOOD, "rates": {"flops_per_s": 1.0}},
]


def test_what_was_measured_long_ago_still_loads() -> None:
    """The keys of profile.json are older than the names of the fields."""
    found = from_row({**GOOD, "direct_bytes": [7], "turned_bytes": [5], "one_block_rows": 3, "shared_points": 9})
    assert found == DispatchThresholds((7,), (5,), 3, 9)
    assert thresholds._stored_key().endswith(f" crossovers of kernels {data.KERNELS}")


@pytest.mark.parametrize("row", BAD, ids=range(len(BAD)))
def test_odd_rows_are_no_thresholds(row: Any) -> None:
    assert from_row(row) is None


def test_a_damaged_profile_is_said_and_left_alone(folder: Path) -> None:
    assert from_row(GOOD) == DEFAULT
    (folder / "profile.json").write_text(json.dumps({thresholds._stored_key(): BAD[3]}))
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("morpho").addHandler(handler)
    try:
        assert thresholds.current() == thresholds.current() == of_this_machine()
    finally:
        logging.getLogger("morpho").removeHandler(handler)
    assert len(said) == 1 and "are damaged" in said[0]


# -- measuring ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sizes and single rounds: these tests look at what is decided, not at the figures."""
    for name, value in {"ROUNDS": 1, "ROUND_S": 0.0, "SETTLE_S": 0.0, "DIRECT_ROWS": (1, 3), "DIRECT_SIZES": (8, 12),
                        "BLOCK_ROWS": (2, 4), "BLOCK_SHAPE": (16, 8), "SHARED_SIZES": (4, 8), "BLAS_SIZES": (4, 8),
                        "STRASSEN_SIZES": (8,), "CHECKED": ((1, 8, 8), (8, 8, 8))}.items():
        monkeypatch.setattr(measure_thresholds, name, value)
    monkeypatch.setattr(measure, "SWEEP_BYTES", 1 << 16)
    monkeypatch.setattr(measure, "ROUNDS", 100)
    measure._measured.cache_clear()


def test_measuring_keeps_and_shows(quick: None, folder: Path) -> None:
    with mo.settings(threads=2):
        found = CliRunner().invoke(app, ["doctor", "--measure"])
        assert found.exit_code == 0, found.output
        kept = thresholds.current()
        assert thresholds.is_measured() and kept.rates != DEFAULT.rates
        assert {*kept.unpacked_bytes, *kept.unpacked_transposed_bytes} <= {0, 4 * 8 * 8, data.MOST}
    for shown in (f"default {of_this_machine().parallel_macs}", "8 x 8 x 8", str(folder)):
        assert shown in found.output


@pytest.mark.parametrize(("first_wins", "expected"), [
    (True, {"unpacked_bytes": (data.MOST,) * 3, "single_k_block_rows": 4, "parallel_macs": 1 << 40, "blas_size": 0,
            "strassen_size": 0}),
    (False, {"unpacked_bytes": (), "single_k_block_rows": 0, "parallel_macs": 63, "blas_size": 4, "strassen_size": 8})])
def test_who_wins_decides(quick: None, folder: Path, monkeypatch: pytest.MonkeyPatch, first_wins: bool,
                          expected: dict[str, Any]) -> None:
    """With times that follow the order of the ways, not the clock."""
    monkeypatch.setattr(measure_thresholds, "race", lambda ways, settle_s=0.0: [
        float(n + 1 if first_wins else len(ways) - n) for n in range(len(ways))])
    with mo.settings(threads=2):
        found = measure_thresholds.measure_thresholds(keep=False)
    assert {name: getattr(found, name) for name in expected} == expected and not thresholds.is_measured()


@pytest.mark.parametrize(("wins", "first"), [("111", 1), ("110", 0), ("011", 2), ("000", 0), ("101", 3)])
def test_a_threshold_is_one_sided(wins: str, first: int) -> None:
    assert measure_thresholds.first_of((1, 2, 3), lambda size: wins[size - 1] == "1") == first


@pytest.mark.parametrize(("gains", "count"), [
    ([], 0), ([2.0, 2.0], 2), ([0.5, 0.5], 0), ([2.0, 0.5], 1), ([0.5, 2.0], 2), ([1.0], 1),
    ([2.0, 0.99, 1.2], 3),  # one size by a hair the other way does not decide for larger ones
    ([2.0, 0.5, 1.2], 1), ([1.01, 0.9, 1.05, 0.7], 1)])
def test_the_worst_choice_costs_least(gains: list[float], count: int) -> None:
    assert measure_thresholds.cut(gains) == count


def test_bad_values_are_errors() -> None:
    with pytest.raises(ArgumentError, match="fast=2 is not of type bool"), mo.settings(fast=2):
        pass
    for module in (data, cli):
        assert doctest.testmod(module).failed == 0
