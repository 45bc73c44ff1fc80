"""Quantised weights and bytes: GGUF's blocks, products with the bits of dequantised weights, exact int8 products."""

from __future__ import annotations

import struct
from typing import Any

import dot_emulator
import numpy as np
import oracle
import pytest
from test_cross_compile import TRIPLES, library_calls

import morpho as mo
from morpho.backends.code.compiler import code, llvm
from morpho.backends.kernels.gemm import tiling
from morpho.backends.kernels.generators import generate
from morpho.backends.kernels.quantised import int8_code
from morpho.backends.kernels.quantised.int8 import Int8GemmKernel, Int8PackKernel
from morpho.backends.kernels.quantised.quantised import QuantisedGemmKernel, QuantisedPackKernel
from morpho.base.dtypes import int32
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, ValueFault
from morpho.base.machine import ISAS, available_isas, choose_isa, foreign_machine, machine
from morpho.runtime.plans.evaluate import counts

KINDS = ["q8_0", "q4_1"]
BLOCK_BYTES = {"q8_0": 34, "q4_1": 20, "q4_0": 18}


def draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def random_weight(rng: np.random.Generator, n: int, k: int, kind: str) -> mo.Quantised:
    """Every code there is, scales of any size and sign, some of them subnormal or zero."""
    rows = rng.integers(0, 256, (n, k // 32, BLOCK_BYTES[kind])).astype(np.uint8)
    headers = (BLOCK_BYTES[kind] - (32 if kind == "q8_0" else 16)) // 2
    numbers = rng.standard_normal((n, k // 32, headers)) * 10.0 ** rng.integers(-8, 2, (n, k // 32, headers))
    rows[..., :2 * headers] = numbers.astype("<f2").view(np.uint8).reshape(n, k // 32, -1)
    return mo.Quantised.from_bytes(rows.tobytes(), (n, k), kind)


def by_hand(data: bytes, shape: tuple[int, int], kind: str) -> np.ndarray:
    """The values of a weight, number by number; float64 of what is exact, then one rounding."""
    values = []
    for start in range(0, len(data), BLOCK_BYTES[kind]):
        block = data[start:start + BLOCK_BYTES[kind]]
        if kind == "q8_0":
            (scale,) = struct.unpack("<e", block[:2])
            values += [scale * code for code in struct.unpack("<32b", block[2:])]
        else:
            scale, least = struct.unpack("<2e", block[:4])
            codes = [byte & 15 for byte in block[4:]] + [byte >> 4 for byte in block[4:]]
            values += [scale * code + least for code in codes]
    exact = np.array(values, np.float64).reshape(shape)
    assert kind != "q8_0" or np.array_equal(exact, exact.astype(np.float32)), "d * q is a float32"
    return exact.astype(np.float32)


# -- weights ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_values_of_blocks(rng: np.random.Generator, kind: str) -> None:
    weight = random_weight(rng, 5, 96, kind)
    values = weight.dequantise()
    assert values.shape == (5, 96) and values.dtype is mo.float32
    assert values.numpy().tobytes() == by_hand(weight.data.numpy().tobytes(), (5, 96), kind).tobytes()
    assert weight.nbytes == 5 * 3 * BLOCK_BYTES[kind] and weight.T.shape == (96, 5) and weight.T.T is weight
    assert repr(weight) == f"Quantised((5, 96), '{kind}', {weight.nbytes} bytes)" and repr(weight.T).endswith(".T")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 300])
def test_quantising_is_off_by_half_a_step(rng: np.random.Generator, kind: str, rows: int) -> None:
    array = draw(rng, rows, 64)
    found = mo.quantise(array, kind).dequantise().numpy()
    blocks = array.reshape(rows, 2, 32)
    reach = np.abs(blocks).max(-1) / 127 if kind == "q8_0" else (blocks.max(-1) - blocks.min(-1)) / 15
    # Half a step, the rounding of the scale to float16 at the farthest code, and that of the least value.
    limit = reach * 0.5 + reach * (127 if kind == "q8_0" else 15) * 2.0**-11 + np.abs(blocks).max(-1) * 2.0**-11
    assert np.all(np.abs(found.reshape(blocks.shape) - blocks) <= 1.001 * limit[..., None])


def test_known_blocks() -> None:
    """Bytes by hand: a scale of 1 (largest 127, or a span of 15), halves away from zero."""
    ramp = np.array([127, -127, 0.5, -0.5, 2.5, -2.49, *range(26)], np.float32)[None]
    data = mo.quantise(ramp, "q8_0").data.numpy().tobytes()
    assert struct.unpack("<e32b", data) == (1.0, 127, -127, 1, -1, 3, -2, *range(26))
    ramp = np.array([*range(16), *range(15, -1, -1)], np.float32)[None] - 4
    data = mo.quantise(ramp, "q4_1").data.numpy().tobytes()
    assert struct.unpack("<2e", data[:4]) == (1.0, -4.0)
    assert list(data[4:]) == [i | (15 - i) << 4 for i in range(16)]
    for kind in KINDS:  # blocks of one value, zero too
        flat = np.repeat(np.array([0.0, 0.25], np.float32), 32)[None]
        assert np.allclose(mo.quantise(flat, kind).dequantise().numpy(), flat, rtol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_half_and_integer_weights_and_memory_views(rng: np.random.Generator, kind: str) -> None:
    array = rng.integers(-9, 9, (3, 64))
    plain = mo.quantise(array.astype(np.float32), kind)
    for given in (array, mo.asarray(array).astype(mo.bfloat16), mo.asarray(array, dtype=mo.float16), array.tolist()):
        assert mo.quantise(given, kind).data.numpy().tobytes() == plain.data.numpy().tobytes()
    data = plain.data.numpy()
    for given in (data.tobytes(), bytearray(data.tobytes()), memoryview(data), data.copy(), plain.data):
        again = mo.Quantised.from_bytes(given, [3, 64], kind)
        assert again.dequantise().numpy().tobytes() == plain.dequantise().numpy().tobytes()


def test_small_scales_round_to_zero_without_a_word() -> None:
    """Weights below the least float16 are zeros, and no code is out of range."""
    for kind in KINDS:
        tiny = np.array([[1e-40, -1e-40] * 16, [1e-7, -1e-7] * 16], np.float32)
        assert np.abs(mo.quantise(tiny, kind).dequantise().numpy()).max() <= 2e-7


def test_bytes_are_copied(rng: np.random.Generator) -> None:
    data = bytearray(mo.quantise(draw(rng, 2, 32), "q8_0").data.numpy().tobytes())
    weight = mo.Quantised.from_bytes(data, (2, 32), "q8_0")
    before = weight.dequantise().numpy().tobytes()
    data[:] = bytes(len(data))
    assert weight.dequantise().numpy().tobytes() == before


# -- products --------------------------------------------------------------------------------------------------------
def check_product(x: Any, weight: mo.Quantised) -> np.ndarray:
    """The bits of a product with the dequantised weights, which are near the float64 product."""
    found, plain = (x @ weight.T).numpy(), (x @ weight.dequantise().T).numpy()
    assert found.tobytes() == plain.tobytes()
    wide = x.numpy().astype(np.float64) @ weight.dequantise().numpy().astype(np.float64).T
    sizes = np.abs(x.numpy()).astype(np.float64) @ np.abs(weight.dequantise().numpy()).astype(np.float64).T
    assert np.all(np.abs(found - wide) <= sizes * x.shape[-1] * 2.0**-24)
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", range(1, 18))
def test_bits_of_the_dequantised_product(small_blocks: None, rng: np.random.Generator, kind: str, m: int) -> None:
    for n, k in ((1, 64), (29, 96), (53, 32)):
        weight = random_weight(rng, n, k, kind)
        x = mo.asarray(draw(rng, m, k))
        results = []
        for threads in (1, 2):
            with mo.settings(threads=threads):
                results.append(check_product(x, weight).tobytes())
        assert results[0] == results[1]
        rule = oracle.matmul_by_rule(x.numpy(), weight.dequantise().numpy().T, mo.float32)
        assert results[0] == rule.astype(np.float32).tobytes()


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("isa", [name for name in available_isas(machine()) if name != "neon"])
def test_every_instruction_set_has_the_same_bits(small_blocks: None, rng: np.random.Generator, kind: str,
                                                 isa: str) -> None:
    weight = random_weight(rng, 101, 96, kind)
    for m in (1, 3, 21):
        x = mo.asarray(draw(rng, m, 96))
        native = mo.compile(lambda x: x @ weight.T)(x).numpy().tobytes()
        with mo.settings(isa=isa):
            f = mo.compile(lambda x: x @ weight.T)
            assert f(x).numpy().tobytes() == native and f.stats["isa"] == isa


@pytest.mark.parametrize("kind", KINDS)
def test_large_products_over_blocks_of_their_own_size(rng: np.random.Generator, kind: str) -> None:
    weight = random_weight(rng, 70, 1120, kind)
    x = mo.asarray(draw(rng, 150, 1120))
    whole = check_product(x, weight)
    for row in (0, 8, 149):  # few rows: numbers are made in registers
        assert (x[row:row + 1] @ weight.T).numpy().tobytes() == whole[row:row + 1].tobytes()
        assert (x[row] @ weight.T).numpy().tobytes() == whole[row].tobytes()
    assert (x[5:8] @ weight.T).numpy().tobytes() == whole[5:8].tobytes()


@pytest.mark.parametrize("dtype", [mo.float16, mo.bfloat16], ids=str)
@pytest.mark.parametrize("m", [2, 9])
def test_half_floats_widen_and_round_once(rng: np.random.Generator, dtype: Any, m: int) -> None:
    for kind in KINDS:
        weight = random_weight(rng, 25, 64, kind)
        x = mo.asarray(draw(rng, m, 64)).astype(dtype)
        found = x @ weight.T
        wanted = (x.astype(mo.float32) @ weight.dequantise().T).astype(dtype)
        assert found.dtype is dtype and found.numpy().tobytes() == wanted.numpy().tobytes()


@pytest.mark.parametrize("m", [1, 4, 13])
@pytest.mark.parametrize("how", ["columns", "steps", "back"])
def test_any_strides_of_the_left_side_without_a_copy(rng: np.random.Generator, m: int, how: str) -> None:
    array, weight = draw(rng, m, 64), random_weight(rng, 19, 64, "q4_1")
    if how == "columns":
        x = mo.asarray(np.ascontiguousarray(array.T)).T
    elif how == "back":
        x = mo.asarray(np.ascontiguousarray(array[::-1, ::-1]))[::-1, ::-1]
    else:
        room = np.zeros((2 * m, 192), np.float32)
        room[::2, ::3] = array
        x = mo.asarray(room)[::2, ::3]
    f = mo.compile(lambda x: x @ weight.T)
    assert f(x).numpy().tobytes() == (mo.asarray(array) @ weight.T).numpy().tobytes()
    assert f.stats["copies"] == 0 and f.stats["fallbacks"] == 0


@pytest.mark.parametrize("shape", [(2, 3, 5, 64), (4, 1, 64), (0, 64), (2, 0, 64), (64,)], ids=str)
def test_batches_and_empty_ones(rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    weight = random_weight(rng, 13, 64, "q8_0")
    x = mo.asarray(draw(rng, *shape))
    found = mo.matmul(x, weight)
    assert found.shape == (*shape[:-1], 13)
    assert found.numpy().tobytes() == (x @ weight.dequantise().T).numpy().tobytes()
    assert (x.numpy() @ weight).numpy().tobytes() == found.numpy().tobytes(), "NumPy leaves the product to Morpho"


@pytest.mark.parametrize("shape", [(0, 64), (3, 0)], ids=str)
def test_empty_weights(shape: tuple[int, int]) -> None:
    for kind in KINDS:
        weight = mo.quantise(np.zeros(shape, np.float32), kind)
        found = mo.ones((2, shape[1])) @ weight.T
        assert found.numpy().tolist() == np.zeros((2, shape[0])).tolist()


def test_dynamic_rows_have_the_bits_of_fixed_ones(small_blocks: None, rng: np.random.Generator) -> None:
    weight = random_weight(rng, 37, 96, "q4_1")
    f = mo.compile(lambda x: mo.relu(x @ weight.T), dynamic={"x": {0: mo.Dim("m", 0, 50)}})
    for rows in (50, 1, 17, 0, 8):
        x = mo.asarray(draw(rng, rows, 96))
        assert f(x).numpy().tobytes() == mo.relu(x @ weight.T).numpy().tobytes()
    assert f.recompiles == 0


EPILOGUES = {
    "bias gelu": lambda x, w, b, r: mo.gelu(x @ w.T + b),
    "residual": lambda x, w, b, r: r + (x @ w.T + b),
    "norm after residual": lambda x, w, b, r: mo.layer_norm(r + (x @ w.T + b), b, b),
    "half": lambda x, w, b, r: (x @ w.T * 2.0).astype(mo.float16),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("lead", [(45,), (3, 15), (2,)], ids=str)
def test_what_follows_is_part_of_the_product(small_blocks: None, rng: np.random.Generator, name: str,
                                             lead: tuple[int, ...]) -> None:
    weight = random_weight(rng, 40, 64, KINDS[len(lead) % 2])
    x, b, r = (mo.asarray(draw(rng, *shape), copy=True) for shape in ((*lead, 64), (40,), (*lead, 40)))
    f = mo.compile(lambda x, r: EPILOGUES[name](x, weight, b, r))
    found = f(x, r).numpy().tobytes()
    for level in range(4):
        with mo.settings(level=level):
            assert mo.compile(lambda x, r: EPILOGUES[name](x, weight, b, r))(x, r).numpy().tobytes() == found
    assert found == EPILOGUES[name](x, weight.dequantise().realise(), b, r).numpy().tobytes()
    if name != "norm after residual" or lead != (2,):
        assert f.stats["kernels"] == 1 and f.stats["prepared_steps"] == 1, f.explain()
    assert f.stats["host_steps"] == 0 and f.stats["fallbacks"] == 0


def test_weights_are_packed_once_and_stay_small(rng: np.random.Generator) -> None:
    n, k = 48, 640
    for kind in KINDS:
        weight = random_weight(rng, n, k, kind)
        f = mo.compile(lambda x, weight=weight: mo.tanh(x @ weight.T) + (x @ weight.T) ** 2)
        x = mo.asarray(draw(rng, 1, k), copy=True)
        wanted = f(x).numpy().tobytes()
        before = counts.kernels_run
        for _ in range(3):
            assert f(x).numpy().tobytes() == wanted
        assert f.stats["kernels"] == 1 and f.stats["prepared_steps"] == 1 and f.native_calls >= 2
        assert counts.kernels_run - before <= 3, "a call runs the product alone"
        assert weight.nbytes <= f.stats["prepared_bytes"] <= 1.2 * weight.nbytes + 4096


def test_weights_may_be_arguments_of_a_compiled_function(rng: np.random.Generator) -> None:
    f = mo.compile(lambda x, w: x @ w.T)
    x = mo.asarray(draw(rng, 2, 32))
    for weight in (random_weight(rng, 5, 32, "q8_0"), random_weight(rng, 5, 32, "q4_1")):
        assert f(x, weight).numpy().tobytes() == (x @ weight.T).numpy().tobytes()


def test_algorithms_and_the_reference_backend(rng: np.random.Generator) -> None:
    weight, x = random_weight(rng, 31, 64, "q4_1"), mo.asarray(draw(rng, 6, 64))
    plain = (x @ weight.T).numpy()
    for algorithm in ("auto", "kernel", "parallel"):
        assert mo.matmul(x, weight, algorithm=algorithm).numpy().tobytes() == plain.tobytes()
    assert mo.matmul(x.astype(mo.float64), weight, dtype=mo.float32).numpy().tobytes() == plain.tobytes()
    with mo.settings(device="reference"):
        np.testing.assert_allclose(mo.gelu(x @ weight.T).numpy(), mo.gelu(mo.asarray(plain)).numpy(),
                                   rtol=1e-4, atol=1e-4)


def test_gradient(rng: np.random.Generator) -> None:
    weight = random_weight(rng, 7, 32, "q8_0")
    x, c = mo.asarray(draw(rng, 2, 3, 32)), mo.asarray(draw(rng, 2, 3, 7))
    found = mo.grad(lambda x: ((x @ weight.T) * c).sum())(x)
    assert found.numpy().tobytes() == (c @ weight.dequantise()).numpy().tobytes()
    half = mo.grad(lambda x: (x @ weight.T).astype(mo.float32).sum())(x.astype(mo.float16))
    assert half.dtype is mo.float16 and half.shape == x.shape


ERRORS = {
    "unknown layout": (ArgumentError, "q5_0", lambda w: mo.quantise(np.zeros((1, 32)), "q5_0")),
    "unknown layout of bytes": (ArgumentError, "q5_0", lambda w: mo.Quantised.from_bytes(b"", (0, 32), "q5_0")),
    "a vector": (ShapeError, "not a matrix", lambda w: mo.quantise(np.zeros(32), "q8_0")),
    "no whole blocks": (ShapeError, "blocks of 32", lambda w: mo.quantise(np.zeros((2, 33)), "q8_0")),
    "complex": (DTypeError, "complex", lambda w: mo.quantise(np.zeros((2, 32), np.complex64), "q8_0")),
    "NaN": (ValueFault, "NaN", lambda w: mo.quantise(np.full((1, 32), np.nan), "q4_1")),
    "too large": (ValueFault, "float16", lambda w: mo.quantise(np.full((1, 32), 1e30), "q8_0")),
    "length": (ShapeError, "33 bytes are given", lambda w: mo.Quantised.from_bytes(bytes(33), (1, 32), "q8_0")),
    "shape of bytes": (ShapeError, "not a matrix", lambda w: mo.Quantised.from_bytes(b"", (0, 32, 1), "q8_0")),
    "numbers for bytes": (DTypeError, "4 bytes",
                          lambda w: mo.Quantised.from_bytes(np.zeros(17, np.float32), (2, 32), "q8_0")),
    "strided": (DTypeError, "contiguous",
                lambda w: mo.Quantised.from_bytes(np.zeros(68, np.uint8)[::2], (1, 32), "q8_0")),
    "far apart": (ValueFault, "float16",
                  lambda w: mo.quantise(np.array([[3e38, -3e38] * 16], np.float32), "q4_1")),
    "beyond float32": (ValueFault, "float32", lambda w: mo.quantise(np.full((1, 32), 1e300), "q8_0")),
    "no bytes": (DTypeError, "list", lambda w: mo.Quantised.from_bytes([1, 2], (1, 32), "q8_0")),
    "called": (ArgumentError, "mo.quantise", lambda w: mo.Quantised()),
    "inner sizes": (ShapeError, "do not align", lambda w: mo.ones((2, 32)) @ w.T),
    "a number": (ShapeError, "do not align", lambda w: mo.matmul(mo.asarray(1.0), w)),
    "float64": (DTypeError, "float64", lambda w: mo.ones((2, 64), dtype=mo.float64) @ w.T),
    "integers": (DTypeError, "int64", lambda w: mo.ones((2, 64), dtype=mo.int64) @ w.T),
    "on the left": (ArgumentError, "on the left", lambda w: w.T @ mo.ones((3, 2))),
    "blas": (ArgumentError, "blas", lambda w: mo.matmul(mo.ones((2, 64)), w, algorithm="blas")),
    "elsewhere": (DTypeError, "Quantised", lambda w: mo.ones((3, 64)) + w),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    kind, said, wrong = ERRORS[name]
    with pytest.raises(kind, match=said):
        wrong(mo.quantise(np.ones((3, 64)), "q8_0"))


# -- bytes -----------------------------------------------------------------------------------------------------------
BYTES = [(np.int8, np.int8), (np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.uint8)]


def draw_bytes(rng: np.random.Generator, dtype: Any, *shape: int) -> np.ndarray:
    """All values, the extreme ones often."""
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max, shape, np.int64, endpoint=True)
    return np.where(rng.random(shape) < 0.2, rng.choice([info.min, info.max], shape), values).astype(dtype)


def product_of_bytes(x: Any, y: Any) -> Any:
    return mo.matmul(x, y, dtype=mo.int32)


@pytest.mark.sampled
@pytest.mark.parametrize("left, right", BYTES, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("isa", ["native", "scalar", "vector128", "vector256", "vector512"])
def test_products_of_bytes_are_exact(small_blocks: None, rng: np.random.Generator, left: Any, right: Any,
                                     isa: str) -> None:
    with mo.settings(isa=isa):
        for m, n, k in ((1, 29, 70), (17, 53, 67), (7, 1, 33), (8, 12, 32), (3, 5, 1), (4, 6, 0)):
            a, b = draw_bytes(rng, left, m, k), draw_bytes(rng, right, k, n)
            f = mo.compile(product_of_bytes)
            found = f(mo.asarray(a), mo.asarray(b))
            assert found.dtype is mo.int32 and f.stats["rules"] == {**f.stats["rules"], "product_of_bytes": 1}
            assert np.array_equal(found.numpy(), a.astype(np.int64) @ b.astype(np.int64)), (m, n, k)


@pytest.mark.parametrize("left, right", BYTES, ids=lambda dtype: dtype.__name__)
def test_strides_batches_and_threads_of_bytes(small_blocks: None, rng: np.random.Generator, left: Any,
                                              right: Any) -> None:
    a, b = draw_bytes(rng, left, 2, 3, 19, 45), draw_bytes(rng, right, 3, 45, 31)
    wanted = np.matmul(a.astype(np.int64), b.astype(np.int64))
    turned = mo.asarray(np.ascontiguousarray(np.swapaxes(a, -1, -2))).mT
    back = mo.asarray(np.ascontiguousarray(b[:, ::-1, ::-1]))[:, ::-1, ::-1]
    spread = np.zeros((3, 90, 62), right)
    spread[:, ::2, ::2] = b
    for x in (mo.asarray(a), turned):
        for y in (mo.asarray(b), back, mo.asarray(np.ascontiguousarray(np.swapaxes(b, -1, -2))).mT,
                  mo.asarray(spread)[:, ::2, ::2]):
            for threads in (1, 2):
                with mo.settings(threads=threads):
                    assert np.array_equal(product_of_bytes(x, y).numpy(), wanted)


def test_sums_of_bytes_wrap(rng: np.random.Generator) -> None:
    for left, right in BYTES:
        a = np.full((2, 140_001), np.iinfo(left).max if left is np.uint8 else -128, left)
        b = np.full((140_001, 3), np.iinfo(right).max if right is np.uint8 else -128, right)
        wide = a.astype(np.int64) @ b.astype(np.int64)
        assert np.abs(wide).max() > 2**31
        assert np.array_equal(product_of_bytes(mo.asarray(a), mo.asarray(b)).numpy(), wide.astype(np.int32))


def test_dynamic_sizes_of_bytes(small_blocks: None, rng: np.random.Generator) -> None:
    m, n, k = mo.Dim("m", 1, 50), mo.Dim("n", 1, 60), mo.Dim("k", 0, 90)
    f = mo.compile(product_of_bytes, dynamic={"x": {1: m, 2: k}, "y": {1: k, 2: n}})
    for rows, columns, inner in [(50, 60, 90), (1, 1, 1), (17, 13, 33), (3, 60, 0), (8, 12, 64)]:
        a, b = draw_bytes(rng, np.uint8, 2, rows, inner), draw_bytes(rng, np.int8, 2, inner, columns)
        found = f(mo.asarray(a), mo.asarray(b)).numpy()
        assert np.array_equal(found, np.matmul(a.astype(np.int64), b.astype(np.int64)))
    assert f.recompiles == 0


def test_bytes_with_what_follows_packed_once(small_blocks: None, rng: np.random.Generator) -> None:
    """The usual end of a quantised layer: scales of rows and columns, and a bias."""
    weight = mo.asarray(draw_bytes(rng, np.int8, 30, 70).T, copy=True)
    scale, bias = (mo.asarray(draw(rng, 30), copy=True) for _ in range(2))

    def layer(x: Any) -> Any:
        return mo.relu((x.astype(mo.int32) @ weight.astype(mo.int32)).astype(mo.float32) * scale + bias)

    f = mo.compile(layer)
    x = mo.asarray(draw_bytes(rng, np.uint8, 21, 70), copy=True)
    with mo.settings(level=0):
        plain = mo.compile(layer)(x)
    assert f(x).numpy().tobytes() == plain.numpy().tobytes()
    assert f.stats["kernels"] == 1 and f.stats["prepared_steps"] == 1
    assert f.stats["prepared_bytes"] < 4 * 30 * 70, "bytes stay bytes"


def test_other_integers_keep_their_kernel(rng: np.random.Generator) -> None:
    """Strides and batches of the plain integer kernel, whose sums wrap in their own dtype."""
    for dtype in (mo.int16, mo.int32, mo.int64, mo.uint8):
        a = rng.integers(0, 2**40, (2, 3, 9, 11)).astype(dtype.numpy)
        b = rng.integers(0, 2**40, (3, 11, 37)).astype(dtype.numpy)
        wanted = np.matmul(a, b)
        back = mo.asarray(np.ascontiguousarray(b[..., ::-1]))[..., ::-1]
        turned = mo.asarray(np.ascontiguousarray(np.swapaxes(a, -1, -2))).mT
        f = mo.compile(lambda x, y: x @ y)
        for x, y in ((mo.asarray(a), mo.asarray(b)), (turned, back)):
            assert f(x, y).numpy().tobytes() == wanted.tobytes()
        assert "product_of_bytes" not in f.stats["rules"]


@pytest.mark.parametrize("kind", KINDS)
def test_few_rows_of_a_number_that_varies_are_multiplied_in_registers(kind: str, rng: np.random.Generator) -> None:
    """One function for any number of rows has the bits of one for each, and unpacks no panel for few of them."""
    weight = random_weight(rng, 70, 96, kind)
    any_rows = mo.compile(lambda x: mo.matmul(x, weight), dynamic={"x": {0: mo.Dim("m", 1, 40)}})
    for rows in (1, 2, 3, 4, 5, 7, 13, 40):
        x = mo.asarray(draw(rng, rows, 96))
        alone = mo.compile(lambda x: mo.matmul(x, weight))(x).numpy()
        assert np.array_equal(any_rows(x).numpy().view(np.int32), alone.view(np.int32)), rows
    kernel = QuantisedGemmKernel(mo.float32, "rows", kind, 0, may_be_few=True)
    text = generate(kernel, choose_isa("avx2", foreign_machine("x86_64")), "kernel")
    body = text[text.index("define i32 @kernel"):]
    few = body[:body.index("call void @unpack")]
    assert "@few1" in few and "@micro1" not in few


# -- code for other machines -----------------------------------------------------------------------------------------
DOT = frozenset({"asimd", "asimddp", "fphp", "asimdhp"})
VNNI = ISAS["avx512"].needs | {"avx512_vnni"}
TARGETS = [("x86_64", "avx2", None, "pmaddwd"), ("x86_64", "avx512", None, "pmaddwd"),
           ("x86_64", "avx512", VNNI, "vpdpbusd"), ("x86_64", "scalar", None, ""),
           ("aarch64", "neon", DOT, "dot"), ("aarch64", "neon", None, "mla"), ("aarch64", "scalar", DOT, "")]


@pytest.mark.sampled
@pytest.mark.parametrize("architecture, name, features, said", TARGETS,
                         ids=[f"{row[0]} {row[1]} {row[3]}" for row in TARGETS])
def test_code_for_machines_that_are_not_here(architecture: str, name: str, features: Any, said: str) -> None:
    isa = choose_isa(name, foreign_machine(architecture, features))
    width = tiling.register_tile(int32, isa).width
    kernels = [Int8GemmKernel(int32, "rows", True, True), Int8GemmKernel(int32, "rows", False, True),
               Int8PackKernel("columns", width)]
    for kind in KINDS:
        kernels += [QuantisedPackKernel(kind, width), QuantisedGemmKernel(mo.float16, "rows", kind, 4),
                    QuantisedGemmKernel(mo.float32, "columns", kind, 0)]
    for kernel in kernels:
        text = llvm.assembly(generate(kernel, isa, "kernel"), isa, TRIPLES[architecture])
        assert not library_calls(text), kernel
        if isinstance(kernel, Int8GemmKernel):
            assert said in text


@pytest.mark.parametrize("types", [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")])
def test_dot_products_of_different_signs_are_exact(types: tuple[str, str], rng: np.random.Generator,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """VNNI's instruction in software: the left operand is moved where signs are equal, and that is put right."""
    plain = llvm.compile_text
    for known in ("_addresses", "_by_key"):  # other tests have compiled the kernel for the machine as it is
        monkeypatch.setattr(code, known, {})
    monkeypatch.setattr(int8_code, "by_dot", lambda isa: "vnni")
    monkeypatch.setattr(llvm, "compile_text", lambda text, *rest: plain(dot_emulator.emulated(text), *rest))
    a, b = (rng.integers(np.iinfo(t).min, np.iinfo(t).max, shape, endpoint=True).astype(t)
            for t, shape in zip(types, ((21, 67), (67, 53)), strict=True))
    called: list[str] = []
    monkeypatch.setattr(int8_code.Int8MicroKernel, "mixed_dot", counted(int8_code.Int8MicroKernel.mixed_dot, called))
    with mo.settings(isa="vector512", cache=False):
        f = mo.compile(lambda a, b: mo.matmul(a, b, dtype=mo.int32))
        got = f(mo.asarray(a), mo.asarray(b)).numpy()
    assert called and np.array_equal(got, a.astype(np.int32) @ b.astype(np.int32))


def counted(function: Any, calls: list[str]) -> Any:
    """A function that says when it is called."""
    def call(*arguments: Any) -> Any:
        calls.append("called")
        return function(*arguments)

    return call


def test_batches_of_two_axes_and_bytes_that_do_not_lie_side_by_side(rng: np.random.Generator) -> None:
    x = mo.asarray(rng.standard_normal((3, 2, 40, 64)).astype("f"), copy=True)
    weight = mo.quantise(mo.asarray(rng.standard_normal((48, 64)).astype("f")), "q8_0")
    turned = mo.permute_dims(mo.permute_dims(weight.data, (1, 0)).realise() + 0, (1, 0))
    for given in (weight, mo.Quantised.of_tensor(turned, weight.shape, weight.kind)):
        found = (mo.permute_dims(x, (1, 0, 2, 3)) @ given.T).numpy()
        exact = x.numpy().transpose(1, 0, 2, 3).astype(np.float64) @ weight.dequantise().numpy().T
        np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-3)
