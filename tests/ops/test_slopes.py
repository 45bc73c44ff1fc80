"""Gradients at the edges: NaN where the function has no derivative, its limit at an infinity, nothing hidden."""

from __future__ import annotations

import math

import numpy as np
import pytest

import morpho as mo
from morpho.ir.node import build
from morpho.ir.op import ONE, REGISTRY, NoGradient
from morpho.tensor.core import Tensor

INF, NAN = math.inf, math.nan
EDGES = [-INF, -3e38, -200.0, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 100.0, 200.0, 3e38, INF, NAN]
UNARY = sorted(name for name, op in REGISTRY.items() if op.kind == "elementwise" and op.arity == ONE
               and not isinstance(op.vjp, NoGradient) and name not in ("negative", "cast"))


def slopes(function: object, values: object) -> list[float]:
    return mo.grad(lambda x: function(x).sum())(mo.asarray(values, dtype=mo.float32)).tolist()  # type: ignore[operator]


@pytest.mark.parametrize("name", UNARY)
def test_where_a_function_has_no_value_it_has_no_slope(name: str) -> None:
    def apply(x: Tensor) -> Tensor:
        return Tensor.of_node(build(name, x.node))

    values = apply(mo.asarray(EDGES)).tolist()
    for x, y, slope in zip(EDGES, values, slopes(apply, EDGES), strict=True):
        assert math.isnan(slope) or not math.isnan(y), f"{name} at {x} is {y} and its slope {slope}"


@pytest.mark.parametrize(("function", "below", "above"), [
    (mo.silu, 0, 1), (mo.mish, 0, 1), (mo.gelu, 0, 1), (lambda x: mo.gelu(x, approximate="tanh"), 0, 1),
    (mo.softplus, 0, 1), (mo.sigmoid, 0, 0), (mo.tanh, 0, 0), (mo.erf, 0, 0), (mo.atan, 0, 0), (mo.elu, 0, 1),
    (lambda x: mo.selu(x) / 1.0507009873554805, 0, 1), (mo.relu, 0, 1), (mo.exp, 0, INF), (mo.asinh, 0, 0),
    (lambda x: mo.grad(lambda y: mo.gelu(y).sum())(x), 0, 0),
])
def test_the_slope_at_an_infinity_is_its_limit(function: object, below: float, above: float) -> None:
    for far in (INF, 3e38, 1e30, 200.0):
        found = slopes(function, [-far, far])
        assert found == pytest.approx([below, above], abs=1e-30 if far > 200 else 0.01), (far, found)


def test_powers() -> None:
    def exponent(base: float, power: float) -> float:
        return mo.grad(lambda y: mo.asarray(base) ** y)(mo.asarray(power)).item()

    assert math.isnan(exponent(-2.0, 2.0)) and math.isnan(exponent(-2.0, 0.5)) and math.isnan(exponent(-0.5, INF))
    assert math.isnan(mo.grad(lambda x: (-2.0) ** x)(mo.asarray(3.0)).item())
    assert exponent(0.0, 2.0) == exponent(0.0, 0.0) == exponent(INF, -1.0) == 0 and exponent(0.0, -1.0) == -INF
    assert exponent(2.0, 3.0) == pytest.approx(8 * math.log(2)) and exponent(INF, 1.0) == INF


def test_the_larger_of_a_number_and_nan() -> None:
    for function in (mo.maximum, mo.minimum):
        pair = mo.grad(lambda a, b, f=function: f(a, b).sum(), argnums=(0, 1))
        a, b = pair(mo.asarray([NAN, 1.0, 2.0, 3.0]), mo.asarray([1.0, NAN, 2.0, 4.0]))
        assert a.tolist()[:3] == [1, 1, 0.5] and b.tolist()[:3] == [1, 1, 0.5]
    assert a.tolist()[3] == 1 and b.tolist()[3] == 0
    assert slopes(mo.relu, [NAN, 0.0, -1.0, 1.0]) == [1, 0.5, 0, 1]


def test_an_extreme_that_is_nan_hides_nothing() -> None:
    for function in (mo.max, mo.min):
        found = np.array(slopes(lambda x, f=function: f(x, axis=1), [[NAN, 1.0], [2.0, 2.0], [INF, 1.0]]))
        assert np.isnan(found[0]).all() and not np.isnan(found[1:]).any() and found[1].tolist() == [0.5, 0.5]


def test_the_rest_of_a_division() -> None:
    both = mo.grad(lambda a, b: mo.remainder(a, b).sum(), argnums=(0, 1))
    a, b = both(mo.asarray([0.5, 7.0, -7.0, INF]), mo.asarray([-INF, 3.0, 3.0, 2.0]))
    assert a.tolist() == [1] * 4 and b.tolist()[:3] == [1, -2, 3] and math.isnan(b.tolist()[3])
