"""The records of special functions. Slopes with respect to parameters (a of gammainc, s of zeta) are not defined here;
the functions of `mo.special` say so."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from morpho.ir.node import Node, build
from morpho.ir.op import ONE, THREE, TWO, Arity, Gradient, Op, register
from morpho.ops.algebra import add, constant_like, div, mul, neg, sub, where, zeros_like
from morpho.ops.elementwise import same
from morpho.ops.special_functions import bessel, errors, gamma, incomplete
from morpho.ops.special_functions.arrays import reference

FORMULAS: dict[str, Callable[..., Any]] = {}  # by the op: what its native code is written from
NUMERICS = "float64, rounded once"
IN_FLOAT = frozenset({"cbrt", "erfcinv", "erfinv", "logit", "ndtr", "ndtri"})  # float32 has formulas of its own


def _special(name: str, formula: Callable[..., Any], vjp: Gradient, flops: int = 64, arity: Arity = ONE) -> Op:
    FORMULAS[name] = formula
    return register(Op(name, "elementwise", same(name, "f"), vjp, reference(formula), flops,
                       "polynomial, 2 ulp" if name in IN_FLOAT else NUMERICS, arity=arity,
                       autocast="full", floating=True))


def _chain(slope: Callable[[Node, Node], Node]) -> Gradient:
    return lambda node, ct: [mul(ct, slope(node.inputs[0], node))]


def _number(x: Node, value: float) -> Node:
    return constant_like(x, value)


def _trigamma_slope(x: Node) -> Node:
    """-2 zeta(3, x), by reflection below 0."""
    negative = build("less", x, zeros_like(x))
    inner = mul(_number(x, -2.0), build("zeta", _number(x, 3.0), where(negative, sub(_number(x, 1.0), x), x)))
    rest = where(negative, mul(sub(x, build("round", x)), _number(x, math.pi)), _number(x, 1.0))
    sine = build("sin", rest)
    cube = mul(sine, mul(sine, sine))
    return where(negative, sub(inner, div(mul(_number(x, 2 * math.pi**3), build("cos", rest)), cube)), inner)


def _exp_of_square(x: Node, factor: float) -> Node:
    return build("exp", mul(_number(x, factor), mul(x, x)))


def _over(x: Node, y: Node, at_zero: float) -> Node:
    """y / x, and its limit at 0."""
    zero = build("equal", x, zeros_like(x))
    return where(zero, _number(x, at_zero), div(y, where(zero, _number(x, 1.0), x)))


def _log_ndtr_slope(x: Node, y: Node) -> Node:
    """The density by the share, without underflow: sqrt(2 / pi) / erfcx(-x / sqrt(2))."""
    scaled = build("erfcx", mul(x, _number(x, -math.sqrt(0.5))))
    return div(_number(x, math.sqrt(2 / math.pi)), scaled)


_special("lgamma", gamma.lgamma, _chain(lambda x, y: build("digamma", x)), 96)
_special("digamma", gamma.digamma, _chain(lambda x, y: where(build("isnan", y), y, build("trigamma", x))), 96)
_special("trigamma", gamma.trigamma, _chain(lambda x, y: _trigamma_slope(x)), 96)
_special("erfcx", errors.erfcx,
         _chain(lambda x, y: sub(mul(mul(_number(x, 2.0), x), y), _number(x, 2 / math.sqrt(math.pi)))), 96)
_special("erfinv", errors.erfinv, _chain(lambda x, y: mul(_number(x, math.sqrt(math.pi) / 2), _exp_of_square(y, 1.0))),
         256)
_special("ndtr", errors.ndtr, _chain(lambda x, y: mul(_number(x, 1 / math.sqrt(2 * math.pi)), _exp_of_square(x, -0.5))),
         96)
_special("log_ndtr", errors.log_ndtr, _chain(_log_ndtr_slope), 128)
_special("ndtri", errors.ndtri, _chain(lambda x, y: mul(_number(x, math.sqrt(2 * math.pi)), _exp_of_square(y, 0.5))),
         256)
_special("erfcinv", errors.erfcinv,
         _chain(lambda x, y: mul(_number(x, -math.sqrt(math.pi) / 2), _exp_of_square(y, 1.0))), 256)
_special("logit", errors.logit, lambda node, ct: [div(ct, mul(node.inputs[0], sub(_number(ct, 1.0), node.inputs[0])))],
         96)
_special("cbrt", errors.cbrt, lambda node, ct: [div(ct, mul(_number(ct, 3.0), mul(node, node)))], 64)
_special("i0", bessel.i0, _chain(lambda x, y: build("i1", x)), 128)
_special("i0e", bessel.i0e, _chain(lambda x, y: sub(build("i1e", x), mul(build("sign", x), y))), 128)
_special("i1", bessel.i1, _chain(lambda x, y: sub(build("i0", x), _over(x, y, 0.5))), 128)
_special("i1e", bessel.i1e,
         _chain(lambda x, y: sub(sub(build("i0e", x), _over(x, y, 0.5)), mul(build("sign", x), y))), 128)
_special("bessel_j0", bessel.bessel_j0, _chain(lambda x, y: neg(build("bessel_j1", x))), 128)
_special("bessel_j1", bessel.bessel_j1, _chain(lambda x, y: sub(build("bessel_j0", x), _over(x, y, 0.5))), 128)
_special("bessel_y0", bessel.bessel_y0, _chain(lambda x, y: neg(build("bessel_y1", x))), 128)
_special("bessel_y1", bessel.bessel_y1, _chain(lambda x, y: sub(build("bessel_y0", x), _over(x, y, math.inf))), 128)


def _zeta_rule(node: Node, ct: Node) -> list[Node | None]:
    s, q = node.inputs
    return [None, neg(mul(ct, mul(s, build("zeta", add(s, _number(s, 1.0)), q))))]


def _gamma_density(a: Node, x: Node) -> Node:
    """x**(a - 1) exp(-x) / gamma(a)."""
    rest = sub(mul(sub(a, _number(a, 1.0)), build("log", x)), add(x, build("lgamma", a)))
    return build("exp", rest)


def _gamma_rule(sign: int) -> Gradient:
    def rule(node: Node, ct: Node) -> list[Node | None]:
        slope = mul(ct, _gamma_density(*node.inputs))
        return [None, slope if sign > 0 else neg(slope)]

    return rule


def _beta_rule(node: Node, ct: Node) -> list[Node | None]:
    """x**(a - 1) (1 - x)**(b - 1) / B(a, b)."""
    a, b, x = node.inputs
    one = _number(a, 1.0)
    log_beta = sub(add(build("lgamma", a), build("lgamma", b)), build("lgamma", add(a, b)))
    powers = add(mul(sub(a, one), build("log", x)), mul(sub(b, one), build("log1p", neg(x))))
    return [None, None, mul(ct, build("exp", sub(powers, log_beta)))]


_special("zeta", gamma.zeta, _zeta_rule, 256, TWO)
_special("gammainc", incomplete.gammainc, _gamma_rule(1), 512, TWO)
_special("gammaincc", incomplete.gammaincc, _gamma_rule(-1), 512, TWO)
_special("betainc", incomplete.betainc, _beta_rule, 512, THREE)
