"""Products of floats: bits by the rule over several blocks, all strides, epilogues, constants packed once."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import oracle
import pytest

import morpho as mo
from morpho.backends.code.compiler import code
from morpho.backends.kernels.gemm import gemm, matmul, unpacked_gemm
from morpho.backends.kernels.gemm.gemm_code import GemmCode
from morpho.backends.kernels.gemm.matmul import Matrix
from morpho.backends.kernels.gemm.tiling import Register, blocks_of, choose_tiling, depth_of_block, register_tile
from morpho.backends.kernels.gemm.unpacked_gemm import UnpackedGemmKernel
from morpho.base.machine import choose_isa, machine
from morpho.base.target import target_for
from morpho.cost.dispatch_thresholds import DEFAULT
from morpho.program.view import View
from morpho.runtime import thresholds
from morpho.runtime.plans.evaluate import counts

FLOATS = [mo.float32, mo.float64, mo.float16, mo.bfloat16]


pytestmark = pytest.mark.usefixtures("packed")  # few rows too: tests/tensor/test_dispatch_thresholds.py has the others


def draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def by_rule(a: Any, b: Any, dtype: Any) -> np.ndarray:
    return oracle.matmul_by_rule(a.numpy().astype(np.float64), b.numpy().astype(np.float64), dtype)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(37, 29, 70), (17, 50, 33), (5, 25, 96), (1, 31, 65), (33, 1, 40)], ids=str)
def test_bits_by_the_rule_over_several_blocks(small_blocks: None, rng: np.random.Generator, dtype: Any,
                                              shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    if dtype is mo.float64:
        m, k = min(m, 17), min(k, 40)  # the exact oracle of float64 is slow
    a, b = mo.asarray(draw(rng, m, k)).astype(dtype), mo.asarray(draw(rng, k, n)).astype(dtype)
    expected = by_rule(a, b, dtype)
    for threads in (1, 2):
        with mo.settings(threads=threads):
            assert (a @ b).numpy().tobytes() == expected.astype((a @ b).numpy().dtype).tobytes()


@pytest.mark.sampled
@pytest.mark.parametrize("m", [1, 2, 3, 4, 7, 9])
@pytest.mark.parametrize("isa", ["native", "scalar", "vector256"])
def test_rows_of_bfloat16_have_the_bits_of_the_rule(rng: np.random.Generator, m: int, isa: str) -> None:
    """However many are summed at once, and over whole blocks of 32, parts of one, and none."""
    for k in (1, 2, 31, 32, 33, 63, 64, 65, 71, 97, 160):
        a, b = (mo.asarray(draw(rng, *shape)).astype(mo.bfloat16).realise() for shape in ((m, k), (k, 29)))
        with mo.settings(isa=isa):
            found = mo.compile(lambda x, b=b: x @ b)(a).numpy()
        assert found.tobytes() == by_rule(a, b, mo.bfloat16).astype(found.dtype).tobytes(), k


POWERS = {"magnitudes": {mo.float16: (-12, 3), mo.bfloat16: (-40, 55)},
          "subnormal": {mo.float16: (-26, 3), mo.bfloat16: (-135, 55)}}  # of two, in numbers of a kind


def half_bound(a: np.ndarray, b: np.ndarray, found: np.ndarray, dtype: Any) -> np.ndarray:
    """How far docs/numerics.md lets an element of a product of half floats be off."""
    k, magnitudes = a.shape[-1], abs(a) @ abs(b)
    if dtype is mo.float16:
        return (k - 1) * 2.0**-24 * magnitudes + 2.0**-11 * abs(found) + 2.0**-25
    return min(k - 1, k / 32 + 17) * 2.0**-24 * magnitudes + 2.0**-8 * abs(found) + 2.0**-133


def half_operands(rng: np.random.Generator, kind: str, lead: tuple[int, ...], k: int, dtype: Any) -> list[np.ndarray]:
    """Rows and columns whose sums are hard: of all magnitudes, that cancel, or with many terms too small to add."""
    a, b = rng.standard_normal((*lead, 5, k)), rng.standard_normal((*lead[-1:], k, 7))
    if kind in POWERS:
        a, b = (x * 2.0 ** rng.integers(*POWERS[kind][dtype], x.shape) for x in (a, b))
    if kind == "cancelling":  # the second half takes the first away, but for a little
        half = k // 2
        a[..., half:2 * half], b[..., half:2 * half, :] = -a[..., :half], b[..., :half, :] * (1 + 2.0**-7)
    if kind == "absorbed":  # 1 + 2**-25 + 2**-25 + ... - 1: every step of a chain may lose what it adds
        a[:], b[:] = 2.0**-12, 2.0**-13
        a[..., 0], b[..., 0, :], a[..., -1], b[..., -1, :] = 1, 1, -1, 1
    return [a, b]


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [mo.float16, mo.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["normal", "cancelling", "absorbed", *POWERS])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)], ids=str)
def test_half_floats_keep_the_bound_they_promise(rng: np.random.Generator, dtype: Any, kind: str,
                                                 lead: tuple[int, ...]) -> None:
    """Against float64 on the rounded inputs, in whole, as one row and as one column."""
    isa = "vector256" if kind == "subnormal" else "native"  # matrix units take such numbers for zero
    for k in (1, 2, 31, 32, 33, 64, 1000):
        given = half_operands(rng, kind, lead, k, dtype)
        a, b = (mo.asarray(x.astype(np.float32)).astype(dtype) for x in given)
        for left, right in ((a, b), (a[..., :1, :], b), (a, b[..., :1])):
            with mo.settings(isa=isa):
                found, x, y = (tensor.numpy().astype(np.float64) for tensor in (left @ right, left, right))
            assert (abs(found - x @ y) <= half_bound(x, y, found, dtype)).all()


@pytest.mark.sampled
@pytest.mark.parametrize("m", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("left", ["rows", "columns", "steps", "back"])
@pytest.mark.parametrize("right", ["rows", "columns", "steps", "back"])
def test_any_strides_without_a_copy(rng: np.random.Generator, m: int, left: str, right: str) -> None:
    def laid(array: np.ndarray, how: str) -> Any:
        if how == "columns":
            return mo.asarray(np.ascontiguousarray(array.T)).T
        if how == "steps":
            room = np.zeros((2 * array.shape[0], 3 * array.shape[1]), array.dtype)
            room[::2, ::3] = array
            return mo.asarray(room)[::2, ::3]
        return mo.asarray(np.ascontiguousarray(array[::-1, ::-1]))[::-1, ::-1] if how == "back" else mo.asarray(array)

    a, b = draw(rng, m, 45), draw(rng, 45, 27)
    plain = mo.asarray(a) @ mo.asarray(b)
    f = mo.compile(lambda x, y: x @ y)
    found = f(laid(a, left), laid(b, right))
    assert found.numpy().tobytes() == plain.numpy().tobytes()
    assert f.stats["copies"] == 0 and f.stats["fallbacks"] == 0
    np.testing.assert_allclose(found.numpy(), a.astype(np.float64) @ b, rtol=1e-4, atol=1e-5)


def test_a_row_alone_has_the_bits_it_has_in_a_batch(rng: np.random.Generator) -> None:
    a, b = mo.asarray(draw(rng, 150, 600)), mo.asarray(draw(rng, 600, 40))
    whole = (a @ b).numpy()
    for row in (0, 7, 8, 63, 149):
        assert (a[row:row + 1] @ b).numpy().tobytes() == whole[row:row + 1].tobytes()
        assert (a[row] @ b).numpy().tobytes() == whole[row].tobytes()
    assert (a @ b[:, 3]).numpy().tobytes() == whole[:, 3].tobytes()


@pytest.mark.sampled
@pytest.mark.parametrize("isa", ["native", "scalar", "vector256"])
@pytest.mark.parametrize("dtype", [mo.float32, mo.float64], ids=str)
@pytest.mark.parametrize("size", [(2, 2), (7, 3), (19, 4), (65, 9)], ids=str)
def test_few_rows_times_a_small_matrix_are_not_packed(rng: np.random.Generator, size: tuple[int, int], dtype: Any,
                                                      isa: str) -> None:
    a, b = draw(rng, 5, size[1]), draw(rng, *size[::-1])
    a[0] = b[0] = -0.0
    x, y = mo.asarray(a, dtype=dtype), mo.asarray(b, dtype=dtype)
    turned = mo.asarray(np.ascontiguousarray(b.T), dtype=dtype)
    with mo.settings(isa=isa):
        whole = (x @ y).numpy()
        f = mo.compile(lambda x, y, turned: (mo.relu(x @ y), x @ turned.T, turned @ x[0]))
        for rows in (1, 2):
            part = mo.asarray(a[:rows], dtype=dtype)
            with thresholds.using(DEFAULT):
                found = f(part, y, turned)
            assert found[0].numpy().tobytes() == np.maximum(whole[:rows], 0).tobytes()
            assert found[1].numpy().tobytes() == whole[:rows].tobytes()
            assert found[2].numpy().tobytes() == whole[0].tobytes()
            assert f.stats["kernels"] == 3 and " pack " not in f.explain()


def test_a_product_of_one_joins_the_loops_around_it(rng: np.random.Generator) -> None:
    """k = 1 is fma(a, b, 0.0): no kernel of its own, and signs of zeros as the chain has them."""
    a = np.array([0.0, -0.0, 1e-30, -1e-30, 3.0, -np.inf, np.nan], np.float32)[:, None]
    b = np.array([[0.0, -0.0, 1e-30, -1e-30, -2.0, np.inf]], np.float32)
    f = mo.compile(lambda x, y, w: w - (x @ y) * 0.5)
    w = draw(rng, 7, 6)
    for dtype in (mo.float32, mo.float64, mo.float16):
        x, y = mo.asarray(a).astype(dtype).realise(), mo.asarray(b).astype(dtype).realise()
        with np.errstate(all="ignore"):
            expected = x.numpy() * y.numpy()
            expected = np.where((x.numpy() == 0) | (y.numpy() == 0), expected + expected.dtype.type(0), expected)
        found = (x @ y).numpy()
        good = ~np.isnan(expected)
        assert found[good].tobytes() == expected[good].tobytes() and np.isnan(found[~good]).all()
        z = mo.asarray(w).astype(dtype).realise()
        assert np.array_equal(f(x, y, z).numpy(), (z - (x @ y) * 0.5).numpy(), equal_nan=True)
        assert f.stats["kernels"] == 1


def test_dynamic_sizes_have_the_bits_of_fixed_ones(small_blocks: None, rng: np.random.Generator) -> None:
    m, n, k = mo.Dim("m", 1, 50), mo.Dim("n", 1, 60), mo.Dim("k", 0, 90)
    f = mo.compile(lambda x, y: mo.relu(x @ y) + 1.0, dynamic={"x": {0: m, 1: k}, "y": {0: k, 1: n}})
    for rows, columns, inner in [(50, 60, 90), (1, 1, 1), (17, 13, 33), (3, 60, 0), (8, 12, 64)]:
        a, b = mo.asarray(draw(rng, rows, inner)), mo.asarray(draw(rng, inner, columns))
        assert f(a, b).numpy().tobytes() == (mo.relu(a @ b) + 1.0).numpy().tobytes()
    assert f.recompiles == 0


# -- epilogues -------------------------------------------------------------------------------------------------------
EPILOGUES = {
    "bias gelu": lambda x, w, b, r: mo.gelu(x @ w + b),
    "residual": lambda x, w, b, r: r + (x @ w + b),
    "silu and its input": lambda x, w, b, r: mo.silu(x @ w) * (x @ w),
    "two results": lambda x, w, b, r: (x @ w + b, mo.relu(x @ w + b) * r),
    "norm after residual": lambda x, w, b, r: mo.layer_norm(r + (x @ w + b), b, b),
    "softmax": lambda x, w, b, r: mo.softmax(x @ w, axis=-1),
    "half": lambda x, w, b, r: (x @ w * 2.0).astype(mo.float16),
    "row scale": lambda x, w, b, r: (x @ w) * r[..., :1],
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("dtype", [mo.float32, mo.bfloat16], ids=str)
@pytest.mark.parametrize("lead", [(45,), (3, 15), (3, 1)], ids=str)
def test_what_follows_runs_on_the_tiles_with_the_same_bits(small_blocks: None, rng: np.random.Generator, name: str,
                                                           dtype: Any, lead: tuple[int, ...]) -> None:
    x, w, b, r = (mo.asarray(draw(rng, *shape)).astype(dtype).realise()
                  for shape in ((*lead, 70), (70, 40), (40,), (*lead, 40)))
    fused, apart = mo.compile(EPILOGUES[name]), mo.compile(EPILOGUES[name])
    with mo.settings(threads=1):  # for more, the columns would be too few to pack them in the product
        found = fused(x, w, b, r)
    with mo.settings(threads=1, passes_off="epilogue"):
        plain = apart(x, w, b, r)
    with mo.settings(level=0):
        lowest = mo.compile(EPILOGUES[name])(x, w, b, r)
    for one, two, three in zip(*(part if isinstance(part, tuple) else (part,) for part in (found, plain, lowest)),
                               strict=True):
        assert one.numpy().tobytes() == two.numpy().tobytes() == three.numpy().tobytes()
    if dtype is mo.bfloat16 and choose_isa("native", machine()).matrix_units:
        return  # whose products are packed by a step of their own
    many, whole_rows = lead != (3, 1), name in ("norm after residual", "softmax")
    if whole_rows and many:
        assert fused.stats["kernels"] == 2, "pack, and the product with all that follows"
    elif not whole_rows:
        assert fused.stats["kernels"] == 1, "the product packs, with all that follows"
    assert apart.stats["kernels"] == 2


@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_rows_of_no_columns_are_reduced(dtype: str, dynamic: bool) -> None:
    """No tile of the product is there to be followed; what is freed before may lie where the results go."""
    kind = getattr(mo, dtype)
    sizes = {"y": {1: mo.Dim("n", 0, 50)}} if dynamic else None
    f = mo.compile(lambda x, y: mo.sum(x @ y, axis=-1), dynamic=sizes)
    for n in (5, 0):
        rubbish = [mo.full((40,), 7, dtype=kind).realise() for _ in range(20)]
        del rubbish
        assert f(mo.ones((40, 7), dtype=kind), mo.ones((7, n), dtype=kind)).tolist() == [7 * n] * 40


def test_a_product_that_is_used_twice_stands_alone(rng: np.random.Generator) -> None:
    x, w = mo.asarray(draw(rng, 9, 5)), mo.asarray(draw(rng, 5, 7))

    def both(x: Any, w: Any) -> Any:
        product = x @ w
        return product, mo.relu(product) + 1.0

    first, second = mo.compile(both)(x, w)
    assert first.numpy().tobytes() == (x @ w).numpy().tobytes()
    assert second.numpy().tobytes() == (mo.relu(x @ w) + 1.0).numpy().tobytes()


# -- constants -------------------------------------------------------------------------------------------------------
def linear(rng: np.random.Generator, copy: bool = True) -> tuple[Any, Any, Any]:
    weight = mo.asarray(draw(rng, 30, 20), copy=copy)
    bias = mo.asarray(draw(rng, 20), copy=copy)
    return weight, bias, mo.compile(lambda x: mo.relu(x @ weight + bias))


def test_a_captured_weight_is_packed_once(rng: np.random.Generator) -> None:
    weight, bias, f = linear(rng)
    x = mo.asarray(draw(rng, 4, 30))
    f(x)
    before = counts.kernels_run
    for _ in range(3):
        assert f(x).numpy().tobytes() == mo.relu(x @ weight + bias).numpy().tobytes()
    assert f.stats["kernels"] == 1 and f.stats["prepared_steps"] == 1 and f.stats["prepared_bytes"] > 0
    assert f.native_calls >= 2, "tensors of the surroundings do not keep calls out of the native entry"
    assert counts.kernels_run - before <= 3 * 2 + 1


def test_a_changed_weight_is_packed_again(rng: np.random.Generator) -> None:
    weight, bias, f = linear(rng)
    x = mo.asarray(draw(rng, 4, 30))
    for change in range(3):
        for _ in range(3):
            assert f(x).numpy().tobytes() == mo.relu(x @ weight + bias).numpy().tobytes()
        weight[change, change] = 7.0 + change
    mo.compile(lambda a: a * 2.0)(mo.asarray(draw(rng, 30, 20)), out=weight)
    assert f(x).numpy().tobytes() == mo.relu(x @ weight + bias).numpy().tobytes()
    assert f.recompiles == 0


def test_borrowed_weights_are_read_at_every_call(rng: np.random.Generator) -> None:
    array = draw(rng, 30, 20)
    f = mo.compile(lambda x: x @ mo.asarray(array))
    x = mo.asarray(draw(rng, 4, 30))
    first = f(x).numpy()
    array *= 2.0
    assert f(x).numpy().tobytes() == (2 * first).tobytes() and f.stats["prepared_steps"] == 0
    assert "packed at every call: 1 captured tensor borrowed" in f.explain()


def test_explain_counts_what_is_packed_at_every_call(rng: np.random.Generator) -> None:
    """A bias that NumPy owns is read, not packed; a weight that is converted first is packed, too."""
    array, bias = draw(rng, 30, 20), mo.asarray(draw(rng, 20))
    owned, borrowed = mo.asarray(array, copy=True), mo.asarray(array, copy=False)
    kept, anew = mo.compile(lambda x: x @ owned + bias), mo.compile(lambda x: x @ borrowed + bias)
    for f, words in ((kept, ()), (anew, ("packed at every call: 1 captured tensor borrowed",))):
        f(mo.asarray(draw(rng, 100, 30)))
        assert all(word in f.explain() for word in words) and ("every call" in f.explain()) == bool(words)
    half = mo.asarray(array.astype(np.float16), copy=False)
    for weigh in (lambda: half.astype("float32"), lambda: borrowed * 2.0, lambda: mo.concat([borrowed, half * 1.0])):
        f = mo.compile(lambda x, weigh=weigh: x @ weigh()[:30])
        f(mo.asarray(draw(rng, 100, 30)))
        assert "packed at every call" in f.explain(), f.explain()
    moving = mo.compile(lambda x, y: x @ (borrowed * y))
    moving(mo.asarray(draw(rng, 100, 30)), mo.asarray(draw(rng, 20)))
    with mo.settings(device="reference"):
        anew(mo.asarray(draw(rng, 100, 30)))
    assert "every call" not in moving.explain() + anew.explain()


def test_one_weight_of_two_products_is_packed_once(rng: np.random.Generator) -> None:
    weight = mo.asarray(draw(rng, 30, 30), copy=True)
    f = mo.compile(lambda x: mo.tanh(x @ weight) @ weight)
    x = mo.asarray(draw(rng, 4, 30))
    assert f(x).numpy().tobytes() == (mo.tanh(x @ weight) @ weight).numpy().tobytes()
    assert f.stats["kernels"] == 2 and f.stats["prepared_steps"] == 1


@pytest.mark.parametrize("warm", [0, 3], ids=["first call", "native"])
def test_a_captured_tensor_as_target(rng: np.random.Generator, warm: int) -> None:
    """The function reads all of it before it is written."""
    programs = {"flipped": lambda w, x: x + mo.flip(w, axis=0), "turned": lambda w, x: mo.gelu(x) * 0.0 + w.T,
                "sums": lambda w, x: x + mo.sum(w, axis=0) - w[:1], "left of a product": lambda w, x: w @ x,
                "after a product": lambda w, x: mo.relu(x @ x) + w.T}
    for name, program in programs.items():
        array, x = draw(rng, 130, 130), mo.asarray(draw(rng, 130, 130))
        weight = mo.asarray(array, copy=True)
        expected = program(mo.asarray(array), x).numpy().tobytes()
        f = mo.compile(lambda x, program=program, weight=weight: program(weight, x))
        for _ in range(warm):
            f(x)
        f(x, out=weight)
        assert weight.numpy().tobytes() == expected, name


def test_a_captured_tensor_that_comes_to_borrow(rng: np.random.Generator) -> None:
    array, x = np.ones((32, 32), np.float32), mo.ones((1, 32))
    weight = mo.zeros((32, 32)).realise()
    f = mo.compile(lambda x: x @ weight)
    f(x)
    weight[...] = mo.asarray(array)
    assert f(x).numpy()[0, 0] == 32.0
    array[:] = 2.0
    assert f(x).numpy()[0, 0] == (x @ weight).numpy()[0, 0]


def test_no_thread_has_much_more_rows_than_another() -> None:
    register = Register((8, 4, 2, 1), 3, 4)
    for rows in (1152, 384, 1536, 8192, 640, 1000):
        for threads in (2, 3, 4, 8):
            tiling = choose_tiling(rows, 384, 2048, 1, register, target_for(threads=threads), False)
            assert tiling.row_tiles * tiling.tile_rows >= rows
            most = -(-tiling.items // threads) * tiling.tile_rows * tiling.tile_panels
            assert most <= 1.25 * rows * 32 / threads or tiling.tile_rows <= 64, (rows, threads, tiling)
    two = target_for(threads=2)
    assert choose_tiling(1152, 384, 2048, 1, register, two, False).tile_rows == 96  # 12 tiles, not 9
    assert choose_tiling(384, 1152, 2048, 1, register, two, False).tile_panels == 48  # 96 panels are not 64 and 32


def test_a_panel_fits_the_first_level_cache() -> None:
    for register, l1_bytes in ((Register((8,), 3, 16), 48 << 10), (Register((8,), 3, 4), 64 << 10),
                               (Register((4,), 3, 8), 32 << 10), (Register((8,), 3, 8, 8), 48 << 10)):
        depth, line = depth_of_block(register, l1_bytes), register.width * register.item
        assert depth % 32 == 0 and depth >= 32 and depth * line <= l1_bytes * 5 // 8
        for k in (1, 100, 160, 700, 832, 850, 5000):
            blocks = blocks_of(k, register, l1_bytes, 1 << 20)
            most = l1_bytes * 5 // 8 // line
            if register.prefetches:  # a panel of wide vectors is read from the second-level cache, ahead of its use
                most = max(most, (1 << 20) // 4 // (128 * register.item))
            assert -(-k // blocks) <= most and (blocks == 1 or k > depth)
    assert blocks_of(832, Register((8,), 3, 4), 64 << 10, 1 << 20) == 1  # sums are never read again
    assert blocks_of(850, Register((8,), 3, 4), 64 << 10, 1 << 20) == 2
    assert blocks_of(1024, Register((8,), 3, 16), 48 << 10, 2 << 20) == 1
    assert blocks_of(832, Register((8,), 3, 4), 64 << 10, 512 << 10) == 2  # rows would fill the second-level cache


@pytest.mark.parametrize("m, n, k, kept", [(128, 2000, 800, True),  # one block of k stays as it is
                                           (64, 2000, 1000, True), (64, 700, 1000, False),  # no other columns
                                           (128, 2000, 1000, False)])  # too much for the second-level cache
def test_rows_stay_packed_for_the_columns_that_follow(m: int, n: int, k: int, kept: bool) -> None:
    there = target_for("vector128", machine=replace(machine(), l1_bytes=64 << 10, l2_bytes=1 << 20))
    left, right = View(0, 0, (m, k), (k, 1), mo.float32), View(1, 0, (k, n), (n, 1), mo.float32)
    product = matmul.Matmul(mo.float32, (m, n), k, Matrix(left, 0, k, 1), Matrix(right, 0, n, 1), False, there)
    assert product.packed_places == (1 if k == 800 else 2)
    assert product.room == (product.packed_bytes if kept else 0)


@pytest.mark.parametrize("constant", [True, False], ids=["packed once", "packed inside"])
def test_rows_are_packed_as_often_as_they_must_be(small_blocks: None, rng: np.random.Generator, constant: bool,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of k x tiles of rows where they stay, once more for every tile of columns where they do not."""
    count = ctypes.c_int64(0)

    def counted(writer: Any, *given: Any) -> None:
        place = f"inttoptr (i64 {ctypes.addressof(count)} to ptr)"
        writer.e.assign(f"atomicrmw add ptr {place}, i64 1 monotonic", "i64", 1)

    monkeypatch.setattr(GemmCode, "before_packing", counted)
    for known in ("_addresses", "_by_key"):  # code with that counter is for this test alone
        monkeypatch.setattr(code, known, {})
    m, n, k = 40, 900, 70  # 3 tiles of rows, 3 blocks of k
    x, w = (mo.asarray(draw(rng, *shape), copy=True) for shape in ((m, k), (k, n)))
    with mo.settings(isa="vector128", threads=1, cache=False):
        f = mo.compile(lambda x: x @ w) if constant else mo.compile(lambda x, w: x @ w)
        found = f(x) if constant else f(x, w)
        [step] = [step for step in f.current.plan.program.steps if step.epilogue is not None]
        assert isinstance(step.kernel, UnpackedGemmKernel) is not constant
    columns = step.rows if not constant else step.rows // 3
    assert columns > 1
    assert count.value == 9 * (1 if matmul.KEPT_SHARE else columns)
    assert found.numpy().tobytes() == by_rule(x, w, mo.float32).tobytes()


def test_what_changes_is_packed_inside_the_product(rng: np.random.Generator) -> None:
    """Unless the rows are many, the columns few for the threads, or the sizes dynamic; the bits are the same."""
    with mo.settings(isa="vector128", threads=2):
        for m, n, kernels in ((40, 200, 1), (256, 192, 1), (300, 200, 2), (40, 100, 1), (200, 40, 2), (20, 11, 1),
                              (20, 100, 1)):
            x, w = mo.asarray(draw(rng, m, 33)), mo.asarray(draw(rng, 33, n))
            f = mo.compile(lambda x, w: x @ w)
            with mo.settings(level=0):
                plain = mo.compile(lambda x, w: x @ w)(x, w)
            assert f(x, w).numpy().tobytes() == plain.numpy().tobytes() == by_rule(x, w, mo.float32).tobytes()
            assert f.stats["kernels"] == kernels and f.stats["products"]["packed"] == 1, (m, n)
        several = mo.compile(lambda x, w: x @ w, dynamic={"x": {0: mo.Dim("m", 1, 50)}})
        assert several(x, w).numpy().tobytes() == f(x, w).numpy().tobytes() and several.stats["kernels"] == 2


@pytest.mark.parametrize(("m", "n", "threads", "vectors", "ragged"), [
    (40, 96, 1, (3,), False),  # whole panels only
    (40, 256, 2, (3, 2), False),  # 32 vectors for each thread: ten panels and two vectors
    (36, 212, 2, (3, 2), False),  # 27 and 26 vectors
    (47, 203, 2, (3, 2, 1), True),  # 26 and 25, the last of them with three columns
])
def test_tiles_of_columns_are_whole_vectors(rng: np.random.Generator, m: int, n: int, threads: int,
                                            vectors: tuple[int, ...], ragged: bool) -> None:
    """With vectors of four; only register tiles that occur are compiled, and either operand may lie either way."""
    x, w = draw(rng, m, 30), draw(rng, 30, n)
    want = by_rule(mo.asarray(x), mo.asarray(w), mo.float32).tobytes()
    for left in (x, np.asfortranarray(x)):
        for right in (w, np.asfortranarray(w)):
            f = mo.compile(lambda x, w: x @ w)
            with mo.settings(isa="vector128", threads=threads):
                assert f(mo.asarray(left, copy=False), mo.asarray(right, copy=False)).numpy().tobytes() == want
            kernel = f.current.plan.program.steps[-1].kernel
            assert (kernel.heights, kernel.vectors, kernel.ragged) == (heights_of(m), vectors, ragged)


def test_batches_are_packed_inside_the_product(rng: np.random.Generator) -> None:
    x, w = draw(rng, 5, 20, 17), draw(rng, 5, 17, 150)
    f = mo.compile(lambda x, w: mo.relu(x @ w))
    with mo.settings(threads=2):
        found = f(mo.asarray(x), mo.asarray(w)).numpy()
    assert f.stats["kernels"] == 1
    for i in range(5):
        assert found[i].tobytes() == mo.relu(mo.asarray(x[i]) @ mo.asarray(w[i])).numpy().tobytes()


def test_what_is_made_of_constants_is_packed_once(rng: np.random.Generator) -> None:
    one, two = (mo.asarray(draw(rng, 20, 60), copy=True) for _ in range(2))
    for rows in (2, 40):
        x = mo.asarray(draw(rng, rows, 20))
        f = mo.compile(lambda x: x @ (mo.concat([one, two], axis=1) * 2.0))
        with thresholds.using(DEFAULT):
            found = f(x)
        assert f.stats["kernels"] == 1 and f.stats["prepared_steps"] >= 2
        assert np.allclose(found.numpy(), x.numpy() @ np.concatenate([one, two], axis=1) * 2, rtol=1e-4, atol=1e-4)


def test_a_matrix_that_many_products_share_is_packed_once(rng: np.random.Generator) -> None:
    w, xs = mo.asarray(draw(rng, 30, 120)), [mo.asarray(draw(rng, 9, 30)) for _ in range(3)]
    f = mo.compile(lambda w, *xs: [x @ w for x in xs])
    found = f(w, *xs)
    assert f.stats["kernels"] == 4  # one that packs
    for x, got in zip(xs, found, strict=True):
        assert got.numpy().tobytes() == (x @ w).numpy().tobytes()


def test_a_matrix_that_all_batches_share_is_packed_once(rng: np.random.Generator) -> None:
    x, w = mo.asarray(draw(rng, 4, 17, 12)), mo.asarray(draw(rng, 17, 150))
    f = mo.compile(lambda x, w: x.mT @ w)
    found = f(x, w).numpy()
    assert f.stats["kernels"] == 2
    for i in range(4):
        assert found[i].tobytes() == (x[i].mT @ w).numpy().tobytes()


def heights_of(m: int) -> tuple[int, ...]:
    """Those of register tiles with vectors of 128 bits: up to 8 on AArch64, up to 4 elsewhere."""
    heights = register_tile(mo.float32, choose_isa("vector128", machine())).heights
    highest = max(height for height in heights if height <= m)
    return tuple(height for height in heights if height == highest or (height < highest and m & height))


@pytest.mark.parametrize("m", [16, 1, 2, 12, 13, 130])
def test_products_of_one_height_have_a_kernel_for_that_alone(rng: np.random.Generator, m: int) -> None:
    x, w = mo.asarray(draw(rng, m, 9)), mo.asarray(draw(rng, 9, 40), copy=True)
    f = mo.compile(lambda x: x @ w)
    with mo.settings(isa="vector128", threads=1):
        assert f(x).numpy().tobytes() == by_rule(x, w, mo.float32).tobytes()
    heights = heights_of(m)
    assert f.current.plan.program.steps[-1].kernel.heights == (heights if len(heights) == 1 else ())


def test_plain_results_go_straight_from_registers(rng: np.random.Generator) -> None:
    """Without a copy, where nothing follows; the last columns, and what something follows, through a tile."""
    x, w = mo.asarray(draw(rng, 40, 50), copy=True), mo.asarray(draw(rng, 50, 80), copy=True)
    half = x.astype(mo.float16), w.astype(mo.float16)
    place = gemm.GEMM.at("direct_store")
    for f, arguments, expected in ((lambda x: x @ w, (x,), 1), (lambda x, w: x @ w, (x, w), 1),
                                   (lambda x: mo.relu(x @ w), (x,), 0), (lambda x, w: x @ w, half, 0),
                                   (lambda x: x @ mo.full((50, 1), 2.0), (x,), 0)):
        made = mo.compile(f)
        made(*arguments)
        products = [step for step in made.current.plan.program.steps if step.epilogue is not None]
        assert [step.values[place] for step in products] == [expected]


@pytest.mark.parametrize("transposed", [False, True], ids=["columns", "rows"])
@pytest.mark.parametrize("isa", ["vector128", "native"])
def test_columns_are_packed_group_after_group(small_blocks: None, rng: np.random.Generator, transposed: bool, isa: str,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels that are packed for one tile of rows take each other's place, those of several stay: the same bits."""
    monkeypatch.setattr(unpacked_gemm, "GROUP_SHARE", {"rows": 1 << 30, "columns": 1 << 30})  # one panel at a time
    chosen = {} if isa == "native" else {"isa": isa}
    seen = set()
    for m, n, k in ((8, 173, 70), (40, 173, 70), (16, 96, 47)):
        x, w = (mo.asarray(draw(rng, *shape)) for shape in ((m, k), (n, k) if transposed else (k, n)))
        with mo.settings(threads=1, **chosen):
            f = mo.compile((lambda x, w: x @ w.T) if transposed else (lambda x, w: x @ w))
            found = f(x, w)
            [step] = [step for step in f.current.plan.lowered.steps if step.epilogue is not None]
        assert isinstance(step.kernel, UnpackedGemmKernel)
        assert step.kernel.right == ("rows" if transposed else "columns")
        numbers = unpacked_gemm.UNPACKED_GEMM.by_name(step.values)
        seen.add(numbers["kept"])
        assert numbers["kept"] == (m > 16) and ((numbers["kept"] and not transposed) or numbers["group"] == 1)
        assert found.numpy().tobytes() == by_rule(x, w.T if transposed else w, mo.float32).tobytes()
    assert seen == {0, 1}
