"""Every op x dtype x backend: lengths 0-67, strides, special values; native code against reference and rules."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import complex_oracle
import numpy as np
import oracle
import pytest
from case_values import of_kinds, operands, random_values, special_values
from cases import SHAPED, covered
from elementwise_cases import CASTS, ELEMENTWISE, PLAIN, Elementwise
from running import Native, by_reference, difference, equal_bits, parameter, readable, stored, strides_of
from shaped_case import Shaped

import morpho as mo
from morpho.base.dims import Dim, evaluate
from morpho.base.dtypes import ALL, BY_NAME, DType, bfloat16, float32, float64
from morpho.base.errors import DTypeError, IndexFault
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build
from morpho.ir.op import REGISTRY
from morpho.runtime.plans import evaluate as evaluation

Array = Any
MOST = 8192
LENGTH = Dim("n", 0, MOST)


def generator(session_seed: int, *key: object) -> np.random.Generator:
    """Draws that depend on the case, not on the order of tests."""
    return np.random.default_rng(zlib.crc32(repr(key).encode(), session_seed & 0xFFFFFFFF))


# -- the table -------------------------------------------------------------------------------------------------------
def test_the_table_has_no_gaps() -> None:
    assert covered() == set(REGISTRY), "an op without a case, or a case without an op"


def test_every_record_is_complete() -> None:
    for op in REGISTRY.values():
        assert callable(op.infer) and callable(op.reference) and op.numerics, op
        assert callable(op.vjp) or op.vjp.reason, op  # type: ignore[union-attr]
        assert op.flops >= 0, op


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.op)
def test_the_promise_is_the_record_s(case: Elementwise) -> None:
    numerics = REGISTRY[case.op].numerics
    assert numerics == f"polynomial, {case.accuracy} ulp" if case.accuracy else "polynomial" not in numerics


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.op)
def test_other_dtypes_are_refused(case: Elementwise) -> None:
    for dtype in ALL:
        nodes = [parameter(i, (4,), d) for i, d in enumerate(case.inputs(dtype))]
        if dtype in case.dtypes:
            case.build(*nodes)
        else:
            with pytest.raises(DTypeError):
                case.build(*nodes)


# -- elementwise -----------------------------------------------------------------------------------------------------
def check_values(case: Elementwise, dtype: DType, node: Node, arrays: list[Array], got: Array) -> None:
    """Exact ops have the reference's bits; polynomials lie within their promise of the true value."""
    result = node.dtype
    if dtype.is_complex:
        complex_oracle.check(case.op, node.op.reference, node.attributes, arrays, got)
        return
    if not case.accuracy or not result.is_float or dtype.is_integer:
        (want,) = by_reference([node], arrays, {"n": got.size})
        assert equal_bits(got, want, result), f"{case.op} {dtype}: {difference(got, want, result)}"
        return
    numbers = [readable(a, dtype) for a in arrays]
    true = oracle.wide_function(case.op, numbers)
    if case.op in ("sin", "cos", "tan") and dtype is float64:  # beyond 2**50: tests/backends/cpu
        true = np.where(np.abs(numbers[0]) < 2.0**50, true, readable(got, result))
    promise = case.accuracy if dtype.itemsize > 2 else 0.5 + 1e-3 * 16  # computed in float32, rounded once
    if dtype is float64:
        promise = max(promise, 2)
    errors = oracle.ulps(readable(got, result), true, result)
    if case.op == "logaddexp":  # log(e**x + e**y) passes through zero: its error is relative to the larger argument
        with np.errstate(all="ignore"):
            cancels = np.abs(true) < np.maximum(np.abs(numbers[0]), np.abs(numbers[1]))
            absolute = np.abs(readable(got, result).astype(oracle.WIDE) - true)
            largest = np.maximum(np.maximum(*numbers), 0).astype(oracle.WIDE) + 1
            near = absolute <= largest * oracle.WIDE(2.0) ** -oracle.FORMATS[dtype][0]
        errors = np.where(cancels & near, 0, errors)
    if case.op == "gelu_slope":  # passes through zero near -0.75: its error is relative to Phi there
        with np.errstate(all="ignore"):
            absolute = np.abs(readable(got, result).astype(oracle.WIDE) - true)
            near = absolute <= oracle.WIDE(2.0) ** -(1 + oracle.FORMATS[dtype][0])
            errors = np.where((numbers[0] > -1.25) & (numbers[0] < -0.25) & near, 0, errors)
    worst = int(np.argmax(errors)) if errors.size else 0
    shown = [a.reshape(-1)[worst] for a in numbers]
    assert not errors.size or errors[worst] <= promise, (
        f"{case.op}({shown}) {dtype}: got {readable(got, result)[worst]!r}, true {true[worst]!r}, "
        f"{errors[worst]:.3f} ulp")
    zeros = (true == 0) & (readable(got, result) == 0)
    assert np.array_equal(np.signbit(readable(got, result)[zeros]), np.signbit(true[zeros])), f"{case.op}: sign of zero"


def elementwise_pairs() -> list[Any]:
    return [pytest.param(case, dtype, id=f"{case.op}-{dtype}") for case in PLAIN for dtype in case.dtypes]


@pytest.mark.sampled
@pytest.mark.parametrize("case, dtype", elementwise_pairs())
def test_elementwise(case: Elementwise, dtype: DType, session_seed: int) -> None:
    run_elementwise(case, dtype, generator(session_seed, case.op, dtype))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_casts(dtype: DType, session_seed: int, sample: Callable[..., Any]) -> None:
    for case in sample(CASTS):
        if not (dtype.is_complex and not case.attributes["dtype"].is_complex):
            run_elementwise(case, dtype, generator(session_seed, case.op, dtype, case.attributes["dtype"]))


def run_elementwise(case: Elementwise, dtype: DType, rng: np.random.Generator) -> None:
    """Values, then lengths, strides and the scalar path, which must repeat the bits of the first run."""
    kinds = case.inputs(dtype)
    arrays = [a[:MOST] for a in operands(rng, kinds, 130)]
    count = arrays[0].size
    node = case.build(*[parameter(i, (LENGTH,), d) for i, d in enumerate(kinds)])
    native = Native([node])
    (got,) = native(arrays, {"n": count})
    check_values(case, dtype, node, arrays, got)
    host = not native.program.is_native
    for length in (0, 1, 5, 67) if host else range(68):
        start = int(rng.integers(0, count - length + 1))
        (part,) = native([a[start:start + length] for a in arrays], {"n": length})
        assert equal_bits(part, got[start:start + length], node.dtype), f"{case.op} {dtype} length {length}"
    if host:
        return
    with mo.settings(isa="scalar"):
        (plain,) = Native([node])(arrays, {"n": count})
    assert equal_bits(plain, got, node.dtype), f"{case.op} {dtype} scalar: {difference(plain, got, node.dtype)}"
    check_strides(case, kinds, arrays, got, rng)


def check_strides(case: Elementwise, kinds: list[DType], arrays: list[Array], got: Array,
                  rng: np.random.Generator) -> None:
    """Backwards, every third, and (for the last of several inputs) a stride of 0."""
    length = 67
    views, picks = [], []
    for position, array in enumerate(arrays):
        if position == 0:
            views.append(array[length - 1::-1])
            picks.append(np.arange(length)[::-1])
        elif position == len(arrays) - 1:
            views.append(np.broadcast_to(array[5:6], (length,)))
            picks.append(np.full(length, 5))
        else:
            views.append(array[1:1 + 3 * length:3] if array.size > 3 * length else array[:length])
            picks.append(np.arange(array.size)[1:1 + 3 * length:3] if array.size > 3 * length else np.arange(length))
    node = case.build(*[parameter(i, (LENGTH,), d, strides_of(v)) for i, (d, v) in enumerate(zip(kinds, views))])
    (strided,) = Native([node])(views, {"n": length})
    plain = case.build(*[parameter(i, (LENGTH,), d) for i, d in enumerate(kinds)])
    (want,) = Native([plain])([np.ascontiguousarray(a[p]) for a, p in zip(arrays, picks)], {"n": length})
    assert equal_bits(strided, want, node.dtype), f"{case.op} strided: {difference(strided, want, node.dtype)}"


@pytest.mark.parametrize("name", ["add", "where", "exp", "less"])
def test_permuted_views(name: str, rng: np.random.Generator) -> None:
    """Two- and three-dimensional views with permuted, negative and zero strides."""
    case = next(case for case in PLAIN if case.op == name)
    kinds = case.inputs(float32)
    base = [stored(random_values(rng, d, 5 * 6 * 7).reshape(5, 6, 7), d) for d in kinds]
    for order in ((2, 1, 0), (1, 2, 0), (0, 2, 1)):
        views = [np.transpose(base[0], order)] + [np.ascontiguousarray(np.transpose(b, order))[::-1, :, ::-1]
                                                  for b in base[1:]]
        nodes = [parameter(i, v.shape, d, strides_of(v)) for i, (d, v) in enumerate(zip(kinds, views))]
        plain = [parameter(i, v.shape, d) for i, (d, v) in enumerate(zip(kinds, views))]
        (got,) = Native([case.build(*nodes)])(views)
        (want,) = Native([case.build(*plain)])([np.ascontiguousarray(v) for v in views])
        assert equal_bits(got, want, case.build(*plain).dtype), order


# -- ops with shapes of their own ------------------------------------------------------------------------------------
def shaped_pairs() -> list[Any]:
    return [pytest.param(case, dtype, id=f"{case}-{dtype}") for case in SHAPED for dtype in case.dtypes]


def draw_inputs(case: Shaped, dtype: DType, length: int, rng: np.random.Generator) -> list[Array]:
    arrays = []
    for position, (shape, kind) in enumerate(case.specs(dtype, length)):
        if case.draw is not None:
            arrays.append(np.ascontiguousarray(case.draw(rng, position, shape, kind)))
        else:
            values = random_values(rng, kind, int(np.prod(shape, dtype=np.int64)))
            if values.size > 8 and rng.random() < 0.5:
                special = special_values(kind)
                values[rng.integers(0, values.size, 3)] = special[rng.integers(0, special.size, 3)]
            arrays.append(stored(values.reshape(shape), kind))
    return arrays


@pytest.mark.sampled
@pytest.mark.parametrize("case, dtype", shaped_pairs())
def test_shaped(case: Shaped, dtype: DType, session_seed: int) -> None:
    rng = generator(session_seed, str(case), dtype)
    size = LENGTH if case.dynamic else case.lengths[0]
    node = case.make(*[parameter(i, shape, kind) for i, (shape, kind) in enumerate(case.specs(dtype, size))])
    native = Native([node])
    for length in case.lengths:
        arrays = draw_inputs(case, dtype, length, rng)
        (got,) = native(arrays, {"n": length})
        compare_shaped(case, dtype, node, arrays, got, length)
    if case.dynamic:  # the same sizes as numbers give the same bits
        fixed = case.make(*[parameter(i, a.shape, kind)
                            for i, (a, (_, kind)) in enumerate(zip(arrays, case.specs(dtype, length)))])
        (again,) = Native([fixed])(arrays)
        assert equal_bits(again, got, node.dtype), f"{case} {dtype} static: {difference(again, got, node.dtype)}"


def compare_shaped(case: Shaped, dtype: DType, node: Node, arrays: list[Array], got: Array, length: int) -> None:
    where = f"{case} {dtype} length {length}"
    shape = tuple(evaluate(size, {"n": length}) for size in node.shape)
    assert got.shape == shape, where
    if case.check == "close":
        close_to_wide(node, arrays, got, length, where)
        return
    if case.check == "spectrum":
        complex_oracle.check_spectrum(node.op.reference, node.attributes, arrays[0], got, where)
        return
    if case.check == "solved":
        wide = build_wide(node, arrays)
        error = np.max(np.abs(got - wide), initial=0) / np.max(np.abs(wide), initial=1)
        assert error <= 2000 * np.finfo(got.dtype).eps, f"{where}: error {error}"
        return
    want = by_rule(case, node, dtype, arrays) if case.check == "rule" else None
    if want is None:
        (want,) = by_reference([node], arrays, {"n": length})
    else:
        want = stored(want, node.dtype)
    assert equal_bits(got, want, node.dtype), f"{where}: {difference(got, want, node.dtype)}"


def by_rule(case: Shaped, node: Node, dtype: DType, arrays: list[Array]) -> Array | None:
    numbers = [readable(array, dtype) for array in arrays]
    if dtype.is_complex:
        if case.op == "matmul":
            return complex_oracle.matmul(*numbers, dtype)
        if case.op in ("prod", "cumulative_prod"):
            axis = node["axes"][0] if case.op == "prod" else node["axis"]
            return complex_oracle.chain(numbers[0], axis, case.op != "prod")
        kind = complex_oracle.part_dtype(dtype)
        real, imag = (by_rule(case, node, kind, [part]) for part in (arrays[0].real, arrays[0].imag))
        return complex_oracle.paired(real, imag)
    if case.op == "matmul":
        if "turned" in case.label:
            return np.stack([oracle.matmul_by_rule(a.T, b.T, dtype) for a, b in zip(*numbers)]) if len(
                numbers[0]) else np.zeros((0, 3, 5), dtype.compute.numpy)
        return oracle.matmul_by_rule(*numbers, dtype)
    if case.op == "conv":
        return oracle.conv_by_rule(node, *numbers, dtype)
    if node.op.kind == "scan":
        return oracle.scan_by_rule(case.op.removeprefix("cumulative_"), numbers[0], node["axis"], dtype)
    return oracle.reduce_by_rule(case.op, numbers[0], node["axes"], dtype, oracle.identity_of(case.op, dtype))


def close_to_wide(node: Node, arrays: list[Array], got: Array, length: int, where: str) -> None:
    """Softmax, norms and attention, against the reference in float64: a few last places of the largest magnitude."""
    dtype = node.dtype
    wide = build_wide(node, arrays)
    eps = {10: 2.0**-10, 7: 2.0**-7, 23: 2.0**-23, 52: 2.0**-52}[oracle.FORMATS[dtype][0]]
    scale = np.maximum(np.abs(wide), 1e-3 if node.op.name == "softmax" else 1.0)
    error = np.abs(readable(got, dtype).astype(np.float64) - wide)
    limit = ((0.51 if dtype.itemsize == 2 else 32) * eps + (2.0**-18 if dtype.itemsize == 2 else 0)) * scale
    limit = limit + error_of_rounded_powers(node, arrays, wide)
    with np.errstate(invalid="ignore"):
        worst = np.max(error / limit, initial=0)
    assert np.all(error <= limit), f"{where}: error {np.max(error / scale) / eps:.2f} eps, {worst:.2f} of the limit"


def error_of_rounded_powers(node: Node, arrays: list[Array], wide: Array) -> Array | float:
    """Attention of bfloat16 rounds its powers before it adds and multiplies them (docs/numerics.md, rule 14).

    Each has a factor 1 + d, |d| <= u = 2**-8 and a little. Their sum has one between 1 - u and 1 + u, whose logarithm
    is the error of the second result. The first is a mean with weights w; it moves by the mean of d (v - o), which is
    at most u times the weighted mean of |v - o|, and that at most the weighted standard deviation of v.
    """
    whole = node.inputs[0] if node.op.name == "pick" else node
    if whole.op.name not in ("attention", "paged_attention") or whole.inputs[0].dtype is not bfloat16:
        return 0.0
    unit = 2.0**-8 + 2.0**-14  # the exponential has fewer terms: 2**-16, and the factor between blocks once more
    if node["index"] == 1:
        return unit
    squares = [number**2 if place == 2 else number for place, number in enumerate(wide_numbers(whole, arrays))]
    variance = whole.op.reference(whole.attributes, *squares)[0] - wide**2
    return unit / (1 - unit) * np.sqrt(np.maximum(variance, 0))


def build_wide(node: Node, arrays: list[Array]) -> Array:
    whole = node.inputs[0] if node.op.name == "pick" else node
    if any(child.op.name != "parameter" for child in whole.inputs):
        return np.asarray(by_reference([node], arrays, {})[0])
    found = whole.op.reference(whole.attributes, *wide_numbers(whole, arrays))
    return np.asarray(found[node["index"]] if whole is not node else found)


def wide_numbers(node: Node, arrays: list[Array]) -> list[Array]:
    """What is stored in the inputs of a node, floats as float64."""
    return [readable(array, leaf.dtype).astype(np.float64) if leaf.dtype.is_float else array
            for leaf, array in zip(node.inputs, arrays, strict=True)]


# -- mistakes that others made ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", of_kinds("f"), ids=str)
@pytest.mark.parametrize("length", [1, 3, 4, 15, 16, 17, 67])
def test_nan_goes_through_relu_max_clip(dtype: DType, length: int) -> None:
    for position in {0, length // 2, length - 1}:
        numbers = np.linspace(-2, 2, length).astype(np.float32)
        numbers[position] = np.nan
        x = mo.asarray(numbers).astype(dtype)
        for result in (mo.relu(x), mo.clip(x, -1, 1), mo.maximum(x, 0), mo.minimum(x, 0)):
            found = np.isnan(result.numpy().astype(np.float32))
            assert found[position] and found.sum() == 1
        assert np.isnan(float(mo.max(x))) and np.isnan(float(mo.min(x))) and np.isnan(float(mo.sum(x)))


def test_signed_zeros_of_maximum_and_minimum() -> None:
    a, b = np.array([0.0, -0.0, 0.0, -0.0], "f"), np.array([-0.0, 0.0, 0.0, -0.0], "f")
    high, low = mo.maximum(mo.asarray(a), mo.asarray(b)).numpy(), mo.minimum(mo.asarray(a), mo.asarray(b)).numpy()
    assert not np.signbit(high[:3]).any() and np.signbit(high[3])
    assert np.signbit(low[[0, 1, 3]]).all() and not np.signbit(low[2])


def test_gelu_does_not_cancel_for_negative_numbers() -> None:
    """0.5 x (1 + erf) is 0 from about -5.5 on in float32; the true value is not."""
    x = np.linspace(-13, -4, 100).astype(np.float32)
    got = mo.gelu(mo.asarray(x)).numpy()
    assert np.all(oracle.ulps(got, oracle.wide_function("gelu", [x]), float32) <= 2)
    assert np.all(got[x > -12] < 0)


def test_gelu_backward_uses_the_same_formula() -> None:
    """The slope of gelu at very negative x keeps its last places too: Phi by erfc, not by 1 + erf."""
    from morpho.ops.algebra import constant_like

    x = np.linspace(-8, -5, 50).astype(np.float32)
    leaf = parameter(0, x.shape, float32)
    node = build("gelu", leaf)
    (slope,) = node.op.vjp(node, constant_like(node, 1.0))  # type: ignore[operator]
    (got,) = Native([slope])([x])
    wide = x.astype(np.longdouble)
    from math import pi, sqrt

    cdf = oracle.wide_function("gelu", [x]) / wide
    true = cdf + wide * np.exp(-wide * wide / 2) / np.longdouble(sqrt(2 * pi))
    assert np.max(np.abs((got - true) / true)) < 1e-4


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sine_of_huge_numbers_stays_in_range(name: str) -> None:
    x = np.array([2.0**50, 1e16, 1e100, 1.7976931348623157e308, -1e300])
    (got,) = Native([build(name, parameter(0, x.shape, float64))])([x])
    assert np.all(np.abs(got) <= 1), got


@pytest.mark.parametrize("dtype", of_kinds("f"), ids=str)
def test_a_constant_is_a_number_of_its_dtype(dtype: DType) -> None:
    """0.001 is no float16: in a register and in memory it must be the same nearest one (found by fuzzing)."""
    from morpho.ops.algebra import constant, expand

    x = parameter(0, (67,), dtype)
    number = expand(constant(0.001, dtype), (67,))
    inline, stored_first = build("multiply", x, number), build("multiply", x, build("cumulative_prod", number, axis=0))
    ones = stored(np.linspace(0.5, 3, 67), dtype)
    one, two = Native([inline, stored_first])([ones])
    assert equal_bits(one[:1], two[:1], dtype)
    (want,) = by_reference([inline], [ones])
    assert equal_bits(one, want, dtype)


@pytest.mark.parametrize("bad", [-1, 5, 1 << 40, -(1 << 40)])
def test_a_gather_outside_its_axis_is_an_error(bad: int) -> None:
    index = np.zeros((7, 3), np.int64)
    index[5, 2] = bad
    x = parameter(0, (5, 3), float32)
    node = build("gather", x, parameter(1, (7, 3), BY_NAME["int64"]), axis=0)
    native = Native([node])
    with pytest.raises(IndexFault):
        native([np.zeros((5, 3), "f"), index])
    native([np.zeros((5, 3), "f"), np.zeros((7, 3), np.int64)])


def test_nothing_fell_back_silently() -> None:
    """Every elementwise op has native code for every dtype it takes; complex ones as what their parts become."""
    from morpho.passes.complex.split import split_complex
    from morpho.passes.fusion.candidates import is_native

    before = evaluation.counts.fallbacks
    for case in ELEMENTWISE:
        for dtype in case.dtypes:
            if dtype.is_complex and not case.attributes.get("dtype", dtype).is_complex:
                continue
            node = case.build(*[parameter(i, (3,), d) for i, d in enumerate(case.inputs(dtype))])
            for part in split_complex(Graph((node,))).nodes:
                assert part.op.kind in ("source", "move") or is_native(part), (case.op, dtype, part)
    assert evaluation.counts.fallbacks == before
