"""Special functions: the formulas of `ops/special_functions` written out for registers, in double."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from morpho.backends.code.emit import Emitter, Value, defined, vector_type
from morpho.backends.code.vector_math import core, error_function, exponential, logarithm, power, trigonometric
from morpho.backends.code.vector_math.special_float import SINGLE
from morpho.ops.special_functions.records import FORMULAS

Number = Value | float


class Lanes:
    """The arithmetic of formulas on registers; `Arrays` of the formulas is the same on NumPy's arrays."""

    def __init__(self, e: Emitter, like: Value, short: bool = False) -> None:
        self.e, self.model = e, like
        self.short = short  # see `Arrays.short`

    def _value(self, x: Number) -> Value:
        return self.e.like(x, self.model)

    def constant(self, value: float, like: Value) -> Value:
        return self.e.like(value, like)

    # -- functions of one number ------------------------------------------------------------------------------------
    def exp(self, x: Value) -> Value:
        return exponential.exp(self.e, x)

    def expm1(self, x: Value) -> Value:
        return exponential.expm1(self.e, x)

    def log(self, x: Value) -> Value:
        return logarithm.log_short(self.e, x) if self.short else logarithm.log(self.e, x)

    def log1p(self, x: Value) -> Value:
        return logarithm.log1p(self.e, x)

    def sin(self, x: Value) -> Value:
        return trigonometric.sin(self.e, x)

    def cos(self, x: Value) -> Value:
        return trigonometric.cos(self.e, x)

    def erf(self, x: Value) -> Value:
        return error_function.erf(self.e, x)

    def erfc(self, x: Value) -> Value:
        return error_function.erfc(self.e, x)

    def sqrt(self, x: Value) -> Value:
        return self.e.square_root(x)

    def absolute(self, x: Value) -> Value:
        return self.e.absolute(x)

    def floor(self, x: Value) -> Value:
        return self.e.intrinsic("floor", x)

    def round(self, x: Value) -> Value:
        return self.e.round_even(x)

    # -- functions of two -------------------------------------------------------------------------------------------
    def pow(self, x: Value, y: Value) -> Value:
        """x**y, short of 0 < x < inf."""
        return self.exp(self.log(x) * y) if self.short else power.pow(self.e, x, y)

    def copysign(self, x: Value, sign: Value) -> Value:
        return self.e.copysign(x, sign)

    def maximum(self, a: Value, b: Value) -> Value:
        """The larger one; of NaN and a number the number: one comparison."""
        return self.e.select(self.e.fcmp("ogt", a, b), a, b)

    def minimum(self, a: Value, b: Value) -> Value:
        return self.e.select(self.e.fcmp("olt", a, b), a, b)

    # -- truths -----------------------------------------------------------------------------------------------------
    def less(self, a: Number, b: Number) -> Value:
        return self.e.fcmp("olt", self._value(a), b)

    def equal(self, a: Number, b: Number) -> Value:
        return self.e.fcmp("oeq", self._value(a), b)

    def isnan(self, x: Value) -> Value:
        return self.e.is_nan(x)

    def both(self, a: Value, b: Value) -> Value:
        return a & b

    def either(self, a: Value, b: Value) -> Value:
        return a | b

    def where(self, mask: Value, a: Value, b: Value) -> Value:
        return self.e.select(mask, a, b)

    # -- sums and repetitions ---------------------------------------------------------------------------------------
    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        return core.polynomial(self.e, x, coefficients) if self.short else self.e.polynomial(x, coefficients)

    def square_error(self, x: Value, square: Value) -> Value:
        return self.e.fma(x, x, -square)

    def product_error(self, x: Value, y: Value, product: Value) -> Value:
        error = self.e.fma(x, y, -product)
        return self.e.select(self.e.fcmp("olt", self.e.absolute(error), math.inf), error, self.constant(0.0, error))

    def repeat(self, most: int, state: Sequence[Value], step: Callable[..., Sequence[Value]],
               going: Callable[..., Value]) -> Sequence[Value]:
        """Until no lane goes on; a lane that has stopped keeps what it has."""
        e = self.e
        with e.loop(0, most, carried=list(state)) as loop:
            old = loop.values
            on = going(*old)
            number = e.splat(e.convert("sitofp", loop.index + 1, "double"), old[0].lanes)
            new = step(number, *old)
            loop.next(*[e.select(on, after, before) for after, before in zip(new, old, strict=True)])
            loop.step = e.select(_any(e, on), e.constant(1, "i64", 1), most)
        return loop.values


def _any(e: Emitter, mask: Value) -> Value:
    if mask.lanes == 1:
        return mask
    bits = e.assign(f"bitcast {mask.type} {mask.name} to i{mask.lanes}", f"i{mask.lanes}", 1)
    return e.assign(f"icmp ne i{mask.lanes} {bits.name}, 0", "i1", 1)


# Sums of many terms, and functions with zeros that no product has: short forms would lose digits of float32 too.
EXACT = frozenset({"gammainc", "gammaincc", "betainc", "bessel_y0", "bessel_y1"})
MOST_LANES = 8  # of one call: more would be several registers for each of many values


def _emitter(name: str, formula: Callable[..., Any]) -> Callable[..., Value]:
    """Calls of a function of the module: the formulas are long, and a kernel has several places for them."""

    def whole(e: Emitter, *arguments: Value, short: bool = False) -> Value:
        lanes = min(arguments[0].lanes, MOST_LANES)
        kind, function = vector_type("double", lanes), f"special.{name}.{'short.' if short else ''}{lanes}"
        e.declarations |= _function(e, function, kind, lanes, formula, len(arguments), short)
        parts = []
        for start in range(0, arguments[0].lanes, lanes):
            given = ", ".join(f"{kind} {_part(e, x, start, lanes).name}" for x in arguments)
            parts.append(e.assign(f"call {kind} @{function}({given})", "double", lanes))
        return _joined(e, parts)

    def called(e: Emitter, *arguments: Value) -> Value:
        if arguments[0].element == "double":
            return whole(e, *arguments)
        if name in SINGLE:
            return SINGLE[name](e, *arguments)
        wide = [e.convert("fpext", argument, "double") for argument in arguments]
        return e.convert("fptrunc", whole(e, *wide, short=name not in EXACT), "float")

    called.__name__, called.__doc__ = formula.__name__, formula.__doc__
    return called


def _function(outer: Emitter, name: str, kind: str, lanes: int, formula: Callable[..., Any], count: int,
              short: bool) -> set[str]:
    """The function, with all it needs."""
    e = Emitter(lanes, outer.native_half, outer.destructive_fma, lookups=outer.lookups, architecture=outer.architecture)
    arguments = [e.argument(f"%x{n}", "double") for n in range(count)]
    found = formula(Lanes(e, arguments[0], short), *arguments)
    e.line(f"ret {kind} {found.name}")
    parameters = ", ".join(f"{kind} %x{n}" for n in range(count))
    return {*e.declarations,
            defined(f"internal {kind} @{name}({parameters}) noinline nounwind", e.text()).rstrip("\n")}


def _part(e: Emitter, x: Value, start: int, lanes: int) -> Value:
    """So many lanes of a vector."""
    if x.lanes == lanes:
        return x
    mask = ", ".join(f"i32 {start + lane}" for lane in range(lanes))
    return e.assign(f"shufflevector {x.type} {x.name}, {x.type} poison, <{lanes} x i32> <{mask}>", x.element, lanes)


def _joined(e: Emitter, parts: list[Value]) -> Value:
    """Vectors side by side, two by two."""
    while len(parts) > 1:
        lanes = parts[0].lanes * 2
        mask = ", ".join(f"i32 {lane}" for lane in range(lanes))
        parts = [e.assign(f"shufflevector {a.type} {a.name}, {b.type} {b.name}, <{lanes} x i32> <{mask}>", a.element,
                          lanes) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


SPECIAL: dict[str, Callable[..., Value]] = {name: _emitter(name, formula) for name, formula in FORMULAS.items()}
