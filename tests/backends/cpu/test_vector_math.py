"""vector_math: accuracy against wider references, special values, and equal bits at every lane count."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ulp import Array, Compiled, float32_samples, float64_samples, special_values, ulp_errors

import morpho as mo
from morpho.backends.code.emit import Emitter
from morpho.backends.code.vector_math import (
    FUNCTIONS,
    ONE_ARGUMENT,
    TWO_ARGUMENTS,
    WITH_RARE_ARGUMENTS,
    activations,
    core,
    exponential,
    has_branches,
)
from morpho.backends.code.vector_math.exponential import exp, exp_nonpositive
from morpho.ir.op import REGISTRY

ONE_ULP = {"exp", "exp2", "log", "tanh", "erf", "sigmoid"}
SAMPLES = 1_000_000
erf, erfc = np.vectorize(math.erf, otypes=[float]), np.vectorize(math.erfc, otypes=[float])


def sigmoid(x: Array) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small / (1 + small), 1 / (1 + small))


def weighted(x: Array, factor: Array) -> Any:
    """x * factor with the limit -0.0 at -inf."""
    return np.where(np.isneginf(x), -0.0, x * factor)


def mish(x: Array) -> Any:
    n = np.exp(-np.abs(x))
    below = n * (n + 2) / (n * (n + 2) + 2)
    return weighted(x, np.where(x < 0, below, (1 + 2 * n) / (1 + 2 * n + 2 * n * n)))


def gelu_tanh(x: Array) -> Any:
    return weighted(x, sigmoid(np.clip(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x), -1e4, 1e4)))


OWN: dict[str, Callable[..., Any]] = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "pow": np.power,
    "erf": erf,
    "erfc": erfc,
    "sigmoid": sigmoid,
    "silu": lambda x: weighted(x, sigmoid(x)),
    "softplus": lambda x: np.logaddexp(x, 0),
    "gelu": lambda x: weighted(x, erfc(-x * math.sqrt(0.5)) / 2),
    "gelu_tanh": gelu_tanh,
    "mish": mish,
}
JUDGED = sorted(set(ONE_ARGUMENT) - {"gelu_slope"})  # it passes through zero: tests/ops judge it against Phi
SLOW = {"erf", "erfc", "gelu"}  # references that call Python for each element


def reference(name: str, *inputs: Array) -> Any:
    """The function in float64."""
    function = OWN[name] if name in OWN else getattr(np, name)
    with np.errstate(all="ignore"):
        return function(*[values.astype(np.float64) for values in inputs])


def float32_inputs(count: int, seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    spread = random.uniform(-110, 110, count // 4), random.uniform(-1, 1, count // 4)
    return np.concatenate([float32_samples(count // 2, seed), *[s.astype(np.float32) for s in spread]])


def same_bits(a: Array, b: Array) -> bool:
    """Equal bit for bit, any NaN being equal to any other."""
    unsigned = np.uint32 if a.dtype == np.float32 else np.uint64
    return bool(np.all((a.view(unsigned) == b.view(unsigned)) | (np.isnan(a) & np.isnan(b))))


def assert_close(name: str, got: Array, want: Any, inputs: list[Array], limit: float) -> None:
    errors = ulp_errors(got, want)
    place = int(np.argmax(errors))
    where = [float(values[place]) for values in inputs]
    assert errors[place] <= limit, f"{name}{where}: got {got[place]!r}, want {want[place]!r}, {errors[place]:.3f} ulp"
    zero = (want == 0) & (got == 0)
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero])), f"{name}: sign of zero"


@pytest.mark.parametrize("name", JUDGED)
def test_float32_accuracy(name: str) -> None:
    x = np.concatenate([float32_inputs(SAMPLES // 10 if name in SLOW else SAMPLES), special_values(np.float32)])
    got = Compiled(FUNCTIONS[name], np.float32, 8)(x)
    assert_close(name, got, reference(name, x), [x], 1.0 if name in ONE_ULP else 2.0)


def arity_of(name: str) -> int:
    arity = REGISTRY[name].arity if name in REGISTRY else None
    return int(arity[0]) if arity is not None else 2 if name in TWO_ARGUMENTS else 1


def pairs(dtype: Any, count: int) -> list[Array]:
    """Every pair of special values, random bit patterns, and pairs that give ordinary powers."""
    special = np.concatenate([special_values(dtype), np.array([1.5, 2.5, -7, 8, 1e10], dtype)])
    first, second = (axis.ravel() for axis in np.meshgrid(special, special))
    draw = float32_samples if dtype is np.float32 else float64_samples
    random = np.random.default_rng(5)
    bases, exponents = np.exp(random.normal(0, 2, count)).astype(dtype), random.normal(0, 10, count).astype(dtype)
    return [np.concatenate([first, draw(count, 1), bases]), np.concatenate([second, draw(count, 2), exponents])]


@pytest.mark.parametrize("name", ["pow", "atan2", "hypot", "logaddexp"])
def test_float32_accuracy_of_two_arguments(name: str) -> None:
    inputs = pairs(np.float32, 200_000)
    assert_close(name, Compiled(FUNCTIONS[name], np.float32, 8, 2)(*inputs), reference(name, *inputs), inputs, 2.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["remainder", "floor_divide", "nextafter"])
def test_exact_functions(name: str, dtype: Any) -> None:
    inputs = pairs(dtype, 50_000)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(*inputs)
    assert same_bits(Compiled(FUNCTIONS[name], dtype, 4, 2)(*inputs), want)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_same_bits_at_every_lane_count(name: str, dtype: Any, sample: Callable[..., Any]) -> None:
    arity = arity_of(name)
    inputs = (pairs(dtype, 300) * 2)[:arity]
    one = Compiled(FUNCTIONS[name], dtype, 1, arity)(*inputs)
    for lanes in sample((4, 8, 16) if dtype is np.float32 else (4, 8)):  # 16 doubles: more of the same, slow to compile
        assert same_bits(Compiled(FUNCTIONS[name], dtype, lanes, arity)(*inputs), one), lanes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_of_what_is_not_positive_has_the_bits_of_exp(dtype: Any) -> None:
    """Attention's shorter way, and a little beyond zero, where a rounded difference may end up."""
    samples = float32_samples(1 << 16) if dtype is np.float32 else float64_samples(1 << 16)
    edges = np.array([-0.0, 0.0, -np.inf, np.nan, 40.0, -104.0, -103.97, -87.33, -745.2, -746.0, -708.5], dtype)
    near = np.linspace(-110, 1, 40_001).astype(dtype)
    x = np.concatenate([samples[~(samples > 40)].astype(dtype), edges, near])
    for lanes in (1, 8):
        got, want = (Compiled(function, dtype, lanes)(x) for function in (exp_nonpositive, exp))
        assert np.array_equal(got.view(f"u{x.itemsize}")[~np.isnan(x)], want.view(f"u{x.itemsize}")[~np.isnan(x)])
        assert np.isnan(got[np.isnan(x)]).all()


@pytest.mark.parametrize("length", [1, 3, 7, 8, 9, 31])
def test_lengths(length: int) -> None:
    x = np.linspace(-3, 3, length, dtype=np.float32)
    assert Compiled(FUNCTIONS["exp"], np.float32, 8)(x).shape == (length,)


MPMATH_OWN: dict[str, Callable[..., Any]] = {
    "log2": lambda m, x: m.log(x, 2),
    "sigmoid": lambda m, x: 1 / (1 + m.exp(-x)),
    "exp2": lambda m, x: m.mpf(2) ** x,
    "silu": lambda m, x: x / (1 + m.exp(-x)),
    "softplus": lambda m, x: m.log1p(m.exp(x)),
    "gelu": lambda m, x: x * m.erfc(-x / m.sqrt(2)) / 2,
    "gelu_tanh": lambda m, x: x / (1 + m.exp(-2 * m.sqrt(2 / m.pi) * (x + m.mpf("0.044715") * x**3))),
    "mish": lambda m, x: x * m.tanh(m.log1p(m.exp(x))),
}


def inside_one(x: Array) -> Any:
    return np.clip(x, -0.999, 0.999)


INTO_DOMAIN: dict[str, Callable[[Array], Any]] = {
    "acosh": lambda x: 1 + np.abs(x),
    "asin": inside_one,
    "acos": inside_one,
    "atanh": inside_one,
    "log": np.abs,
    "log2": np.abs,
    "log10": np.abs,
    "log1p": lambda x: np.maximum(x, -0.999),
}


@pytest.mark.parametrize("name", JUDGED)
def test_float64_accuracy(name: str) -> None:
    mpmath = pytest.importorskip("mpmath", reason="float64 is judged against mpmath")
    random = np.random.default_rng(3)
    x = np.concatenate([random.normal(0, 2, 150), random.uniform(-1, 1, 100), np.exp(random.uniform(-40, 4, 50))])
    x = INTO_DOMAIN.get(name, np.positive)(x)
    got = Compiled(FUNCTIONS[name], np.float64, 4)(x)
    true = MPMATH_OWN.get(name, lambda m, value: getattr(m, name)(value))
    with mpmath.workprec(300):
        for value, result in zip(x.tolist(), got.tolist(), strict=True):
            want = true(mpmath, mpmath.mpf(value))
            error = abs(want - result) / math.ulp(float(want))
            assert error <= 2, f"{name}({value!r}): got {result!r}, want {float(want)!r}, {float(error):.3f} ulp"


POWER = Compiled(FUNCTIONS["pow"], np.float32, 4, 2)
FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=40))
def test_pow_agrees_with_numpy(drawn: list[tuple[float, float]]) -> None:
    x, y = (np.array(values, np.float32) for values in zip(*drawn, strict=True))
    got = POWER(x, y)
    assert_close("pow", got, reference("pow", x, y), [x, y], 2.0)


NEGATIONS = [lambda y: -y, lambda y: y * -1, lambda y: -1 * y, lambda y: y / -1, lambda y: -0.0 - y]


@pytest.mark.parametrize("isa", ["native", "scalar"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_the_sign_of_a_negated_zero(dtype: type, isa: str, sample: Callable[..., Any]) -> None:
    """A function that ends in an fma, negated: the same zero in one lane as in many."""
    x = mo.asarray(np.array([[1.0], [2.0], [3.0]], dtype))
    with mo.settings(isa=isa):
        for function in (mo.gelu, mo.silu, lambda y: mo.gelu(y, approximate="tanh"), mo.tanh, mo.expm1, mo.sin):
            for negation in sample(NEGATIONS):  # each alone: a result used twice is not folded into them
                zero = mo.rms_norm(x)  # rows of one element: the kernel works on one lane
                found = negation(function(zero - zero)).numpy()
                assert np.signbit(found).all() and not found.any()


def exact_angle(x: float) -> tuple[int, Fraction]:
    """The nearest multiple of pi/2 to a double, modulo 4, and the distance from it; pi by Machin's formula."""

    def inverse_tangent(n: int, one: int) -> int:
        term, total, k, sign = one // n, one // n, 3, -1
        while term:
            term //= n * n
            total, sign, k = total + sign * (term // k), -sign, k + 2
        return total

    one = 1 << 1400
    pi = Fraction(4 * (4 * inverse_tangent(5, one) - inverse_tangent(239, one)), one)
    turns = Fraction(x) * 2 / pi
    count = round(turns)
    return count % 4, (turns - count) * pi / 2


HUGE = [2.0**48, math.nextafter(2.0**48, 0), 2.0**49 + 0.5, 2.0**50, 2.0**52, 1e16, 1e22, 1e100, -1e300,
        6381956970095103 * 2.0**797, -6381956970095103 * 2.0**797, sys.float_info.max, -sys.float_info.max,
        2.0**1023, 5e306]


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_angles(name: str, rng: np.random.Generator) -> None:
    """Against exact arithmetic, among small angles too, and with the same bits at every lane count."""
    huge = np.array([*HUGE, *(rng.choice([-1.0, 1.0], 40) * np.exp2(rng.uniform(50, 1024, 40))),
                     *np.exp2(rng.uniform(46, 50.5, 60))])
    x = np.stack([huge, rng.uniform(-9, 9, huge.size)], axis=1).ravel()
    found = [Compiled(FUNCTIONS[name], np.float64, lanes)(x) for lanes in (1, 2, 4, 8)]
    for other in found[1:]:
        assert same_bits(found[0], other)
    np.testing.assert_array_equal(found[0][1::2], Compiled(FUNCTIONS[name], np.float64, 4)(x[1::2]))
    for value, got in zip(huge.tolist(), found[0][::2].tolist(), strict=True):
        quadrant, distance = exact_angle(value)
        sine, cosine = math.sin(float(distance)), math.cos(float(distance))
        s, c = [(sine, cosine), (cosine, -sine), (-sine, -cosine), (-cosine, sine)][quadrant]
        want = {"sin": s, "cos": c, "tan": s / c}[name]
        assert abs(got - want) <= 2.5 * math.ulp(want), (value, got, want)  # half of one by the reference
    infinite = Compiled(FUNCTIONS[name], np.float64, 4)(np.array([np.inf, -np.inf, np.nan, 1e300]))
    assert np.isnan(infinite[:3]).all() and np.isfinite(infinite[3])


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_large_floats_among_small_ones(name: str, rng: np.random.Generator) -> None:
    """Those that take their turn have the bits they have alone, and leave their neighbours alone."""
    large = (rng.choice([-1.0, 1.0], 2000) * np.exp2(rng.uniform(15.9, 128, 2000))).astype(np.float32)
    edges = np.array([2**16, np.nextafter(np.float32(2**16), np.float32(0)), np.finfo(np.float32).max], np.float32)
    large = np.concatenate([large[np.isfinite(large)], edges, -edges])
    x = np.stack([large, rng.uniform(-9, 9, large.size).astype(np.float32)], axis=1).ravel()
    found = [Compiled(FUNCTIONS[name], np.float32, lanes)(x) for lanes in (1, 4, 8, 16)]
    for other in found[1:]:
        assert same_bits(found[0], other)
    assert_close(name, found[0], reference(name, x), [x], 2.0)
    compiled = mo.compile(lambda t: getattr(mo, name)(t))
    assert same_bits(compiled(mo.asarray(x)).numpy(), found[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_of_large_quotients_among_small_ones(dtype: Any, rng: np.random.Generator) -> None:
    count, steps = 4000, 120 if dtype is np.float32 else 1000
    x = (rng.normal(0, 1, count) * np.exp2(rng.integers(-steps // 2, steps // 2, count))).astype(dtype)
    y = (rng.normal(0, 1, count) * np.exp2(rng.integers(-steps // 2, steps // 2, count))).astype(dtype)
    x[::2], y[::2] = rng.normal(0, 9, count // 2), rng.normal(0, 1, count // 2)
    x[:8], y[:8] = 2.0 ** np.finfo(dtype).nmant, [1, -1, 0.75, 1.5, 3, -0.5, np.inf, 2]
    want = np.remainder(x, y)
    for lanes in (1, 4, 8):
        assert same_bits(Compiled(FUNCTIONS["remainder"], dtype, lanes, 2)(x, y), want)
    assert same_bits(mo.compile(lambda a, b: a % b)(mo.asarray(x), mo.asarray(y)).numpy(), want)


@pytest.mark.parametrize(("table", "form"), [(exponential.FLOAT, core.FLOAT), (exponential.DOUBLE, core.DOUBLE)])
def test_the_lowest_argument_of_exp_has_the_bits_of_zero(table: Any, form: Any) -> None:
    """A product that is rounded to zero takes x86 a hundred cycles, and softmaxes of masked scores are full of them."""
    lowest = round(table.lowest * exponential.LOG2_E)
    assert lowest + form.bias + (form.mantissa + 1) == 0  # the exponent bits of 2**(k + h) in `outer_exponent`
    smallest = math.log(2.0) * (lowest + 1)  # half the smallest subnormal: below it e**x rounds to zero
    assert table.lowest < smallest


FAR = {"silu": -200.0, "sigmoid": -200.0, "softplus": -200.0, "gelu_tanh": -20.0}


@pytest.mark.parametrize("name", FAR)
def test_far_out_activations_are_exact_zeros(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands for e**-t there has the bits of zero, so that no product is rounded to it."""
    powers: list[Any] = []
    make = activations.biased_power_of_two

    def seen(*arguments: Any) -> Any:
        powers.append(make(*arguments))
        return powers[-1]

    monkeypatch.setattr(activations, "biased_power_of_two", seen)

    def power(e: Any, x: Any) -> Any:
        FUNCTIONS[name](e, x)
        return powers[-1]

    far = np.array([FAR[name], -np.inf, np.finfo(np.float32).min, -FAR[name]], np.float32)
    assert not Compiled(power, np.float32, 4)(far).any()


def test_functions_with_a_loop_are_named() -> None:
    """Those that let rare arguments take their turn are no straight bodies, which stages are made of."""
    for name, function in FUNCTIONS.items():
        looping = {}
        for element in ("float", "double"):
            e = Emitter(4)
            function(e, *[e.argument(f"%x{n}", element) for n in range(arity_of(name))])
            looping[element] = any(line.endswith(":") for line in e.lines)
        assert name in WITH_RARE_ARGUMENTS or not any(looping.values()), name
        assert all(has_branches(name, element) for element in looping if looping[element]), name
        assert not has_branches("gelu", "double") and has_branches("gelu", "float")


def test_subnormal_arguments_of_gelu_keep_their_digits() -> None:
    x = np.arange(-5000, 5000, dtype=np.int32).astype(np.float64) * 2.0**-149
    got = Compiled(ONE_ARGUMENT["gelu"], np.float32, 8)(x.astype(np.float32))
    assert ulp_errors(got, x / 2).max() <= 1  # gelu(x) = x / 2 there
