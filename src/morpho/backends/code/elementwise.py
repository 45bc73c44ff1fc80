"""LLVM code of each elementwise op: one function per op on register values of any lane count.

Integer traps are defined away: x // 0 and x % 0 are 0, the least value by -1 wraps, wide shifts give 0 or the sign.
"""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Emitter, Value
from morpho.backends.code.vector_math import FUNCTIONS as VECTOR_MATH
from morpho.backends.code.vector_math.core import any_lane
from morpho.backends.code.vector_math.exponential import exp_nonpositive
from morpho.backends.code.vector_math.modulo import next_bits, next_unless_equal
from morpho.base.dtypes import DType, bool_

Emit = Callable[..., Value]
_TABLE: dict[str, Emit] = {}
ADDED: dict[str, Emit] = {}  # by users; the code cache keys on what they write
BY_USER = "by mo.extend.op "  # before the name of such a one, in the text


def _emits(*names: str) -> Callable[[Emit], Emit]:
    def add(function: Emit) -> Emit:
        for name in names:
            _TABLE[name] = function
        return function

    return add


def add_emitter(name: str, function: Callable[..., Value]) -> None:
    """Native code for a registered op: `function(emitter, dtype, *values)`. Its source is part of the code's key."""
    _TABLE[name] = function
    ADDED[name] = function


def remove_emitter(name: str) -> None:
    if name in ADDED:
        del _TABLE[name], ADDED[name]


def supported(name: str) -> bool:
    """Whether an elementwise op has native code; a user's op may not."""
    return name in _TABLE or name in VECTOR_MATH


def emit(e: Emitter, name: str, arguments: list[Value], source: DType, target: DType) -> Value:
    """The op on register values. `source` is the dtype of its (last) input, `target` that of its result."""
    if name == "cast":
        return scalars.cast(e, arguments[0], source, target)
    if name in ADDED:
        e.line(f"; {BY_USER}{name}")  # for the error, should LLVM not take what follows
    if name in _TABLE:
        result = _TABLE[name](e, source, *arguments)
    else:
        result = VECTOR_MATH[name](e, *arguments)
    exact = name in ("where", "maximum", "minimum", "negative", "absolute", "copysign", "nextafter")
    return result if exact else scalars.round_to(e, result, target)


# -- arithmetic ------------------------------------------------------------------------------------------------------
@_emits("add")
def _add(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    return a + b


def _is(value: Value, number: float) -> bool:
    """Whether a float is this constant. LLVM makes negations of -0.0 - x, x * -1 and x / -1: see `Emitter.negated`."""
    return value.is_float and value.name == value.emitter.like(number, value).name


@_emits("subtract")
def _subtract(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    return e.negated(b) if _is(a, -0.0) else a - b


@_emits("multiply")
def _multiply(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    if _is(a, -1.0) or _is(b, -1.0):
        return e.negated(b if _is(a, -1.0) else a)
    return a * b


@_emits("multiply_from_zero")
def _multiply_from_zero(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    return e.intrinsic("fma", a, b, e.like(0.0, a))  # a register of zeros costs nothing: it need not come from memory


@_emits("divide")
def _divide(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    return e.negated(a) if _is(b, -1.0) else a / b


@_emits("square")
def _square(e: Emitter, dtype: DType, x: Value) -> Value:
    return x * x


@_emits("reciprocal")
def _reciprocal(e: Emitter, dtype: DType, x: Value) -> Value:
    return 1.0 / x


@_emits("exp_nonpositive")
def _exp_nonpositive(e: Emitter, dtype: DType, x: Value) -> Value:
    """The value of `exp`, bit by bit, up to 40: where a kernel knows that x is at most zero."""
    return exp_nonpositive(e, x)


@_emits("gcd")
def _gcd(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    """Euclid's rule on magnitudes, which are unsigned: that of the least integer is one too. No pair of 64 bits takes
    more than 92 divisions."""
    if dtype.kind == "i":
        a, b = (e.select(e.icmp("slt", x, 0), 0 - x, x) for x in (a, b))
    with e.loop(0, 96, carried=[a, b]) as loop:
        large, small = loop.values
        done = e.icmp("eq", small, 0)
        rest = e.instruction("urem", large, e.select(done, 1, small))
        loop.next(e.select(done, large, small), e.select(done, small, rest))
        loop.step = e.select(any_lane(e, small, "ugt", 0), e.constant(1, "i64", 1), 96)
    return loop.values[0]


@_emits("negative")
def _negative(e: Emitter, dtype: DType, x: Value) -> Value:
    return e.negated(x) if x.is_float else -x


@_emits("absolute")
def _absolute(e: Emitter, dtype: DType, x: Value) -> Value:
    if x.is_float:
        return e.absolute(x)
    return x if dtype.kind == "u" else e.select(e.icmp("slt", x, 0), 0 - x, x)


@_emits("sign")
def _sign(e: Emitter, dtype: DType, x: Value) -> Value:
    if x.is_float:  # NaN stays NaN, zeros become +0.0
        not_positive = e.select(e.fcmp("olt", x, 0.0), e.like(-1.0, x), e.like(0.0, x))
        return e.select(e.is_nan(x), x, e.select(e.fcmp("ogt", x, 0.0), 1.0, not_positive))
    positive = e.select(e.icmp("ne", x, 0), e.like(1, x), e.like(0, x))
    return positive if dtype.kind == "u" else e.select(e.icmp("slt", x, 0), -1, positive)


@_emits("sqrt")
def _sqrt(e: Emitter, dtype: DType, x: Value) -> Value:
    return e.square_root(x)


def _rounding(intrinsic: str) -> Emit:
    return lambda e, dtype, x: e.intrinsic(intrinsic, x)


for _name, _intrinsic in {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven"}.items():
    _TABLE[_name] = _rounding(_intrinsic)


# -- tests and comparisons -------------------------------------------------------------------------------------------
@_emits("isnan")
def _isnan(e: Emitter, dtype: DType, x: Value) -> Value:
    return e.is_nan(x)


@_emits("isinf")
def _isinf(e: Emitter, dtype: DType, x: Value) -> Value:
    return e.fcmp("oeq", e.absolute(x), float("inf"))


@_emits("isfinite")
def _isfinite(e: Emitter, dtype: DType, x: Value) -> Value:
    return e.fcmp("olt", e.absolute(x), float("inf"))


@_emits("signbit")
def _signbit(e: Emitter, dtype: DType, x: Value) -> Value:
    return e.icmp("slt", e.bits(x), 0)


def _comparison(float_predicate: str, int_predicate: str) -> Emit:
    def compare(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
        if a.is_float:
            return e.fcmp(float_predicate, a, b)
        signed = "" if int_predicate in ("eq", "ne") else "s" if dtype.kind == "i" else "u"
        return e.icmp(signed + int_predicate, a, b)

    return compare


for _name, _predicates in {"equal": ("oeq", "eq"), "not_equal": ("une", "ne"), "less": ("olt", "lt"),
                           "less_equal": ("ole", "le"), "greater": ("ogt", "gt"),
                           "greater_equal": ("oge", "ge")}.items():
    _TABLE[_name] = _comparison(*_predicates)


@_emits("maximum")
def _maximum(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    if a.is_float:
        return e.maximum(a, b)
    return e.intrinsic("smax" if dtype.kind == "i" else "umax", a, b)


@_emits("minimum")
def _minimum(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    if a.is_float:
        return e.minimum(a, b)
    return e.intrinsic("smin" if dtype.kind == "i" else "umin", a, b)


@_emits("where")
def _where(e: Emitter, dtype: DType, mask: Value, a: Value, b: Value) -> Value:
    return e.select(mask, a, b)


@_emits("copysign")
def _copysign(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    return e.copysign(a, b)


@_emits("nextafter")
def _nextafter(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    """Half floats step in their own 16 bits: a step of the float32 that holds them would be rounded away."""
    if dtype.itemsize != 2:
        return VECTOR_MATH["nextafter"](e, a, b)
    stored = scalars.to_memory(e, a, dtype)
    bits = next_bits(e, e.bits(stored), e.fcmp("ogt", b, a))
    return next_unless_equal(e, a, b, scalars.from_memory(e, e.from_bits(bits, stored.element), dtype))


# -- bits ------------------------------------------------------------------------------------------------------------
@_emits("logical_and", "bitwise_and")
def _and(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    return a & b


@_emits("logical_or", "bitwise_or")
def _or(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    return a | b


@_emits("logical_xor", "bitwise_xor")
def _xor(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    return a ^ b


@_emits("logical_not", "bitwise_invert")
def _not(e: Emitter, dtype: DType, x: Value) -> Value:
    return x ^ (1 if dtype is bool_ else -1)


@_emits("bitwise_left_shift")
def _left_shift(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    inside = e.icmp("ult", b, BITS[a.element])  # a negative shift is a huge unsigned one
    return e.select(inside, a << _count(e, b, inside), 0)


@_emits("bitwise_right_shift")
def _right_shift(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    inside = e.icmp("ult", b, BITS[a.element])
    if dtype.kind == "i":
        return a.shift_right(e.select(inside, b, BITS[a.element] - 1), arithmetic=True)
    return e.select(inside, a.shift_right(_count(e, b, inside)), 0)


def _count(e: Emitter, b: Value, inside: Value) -> Value:
    """A shift's count, within the width whatever b is. On a GPU it is masked: LLVM drops a select that PTX's own clamp
    seems to make needless, but PTX sees the low 32 bits of a count only."""
    return b & (BITS[b.element] - 1) if e.architecture == "nvptx64" else e.select(inside, b, 0)


# -- integer division and power --------------------------------------------------------------------------------------
def _safe_divisor(e: Emitter, dtype: DType, a: Value, b: Value) -> tuple[Value, Value]:
    """b with 1 in place of 0, and of -1 under the least value (whose quotient is then itself); and where b is 0."""
    zero = e.icmp("eq", b, 0)
    bad = zero
    if dtype.kind == "i":
        least = -(1 << (BITS[a.element] - 1))
        bad = zero | (e.icmp("eq", a, least) & e.icmp("eq", b, -1))
    return e.select(bad, 1, b), zero


@_emits("floor_divide")
def _floor_divide(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    if a.is_float:
        return VECTOR_MATH["floor_divide"](e, a, b)
    safe, zero = _safe_divisor(e, dtype, a, b)
    if dtype.kind == "u":
        return e.select(zero, 0, e.instruction("udiv", a, safe))
    quotient = e.instruction("sdiv", a, safe)
    rest = a - quotient * safe
    down = e.icmp("ne", rest, 0) & e.icmp("slt", rest ^ safe, 0)
    return e.select(zero, 0, quotient + e.convert("sext", down, a.element))


@_emits("remainder")
def _remainder(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    if a.is_float:
        return VECTOR_MATH["remainder"](e, a, b)
    safe, zero = _safe_divisor(e, dtype, a, b)
    rest = e.instruction("urem" if dtype.kind == "u" else "srem", a, safe)
    if dtype.kind == "i":
        other_sign = e.icmp("ne", rest, 0) & e.icmp("slt", rest ^ safe, 0)
        rest = e.select(other_sign, rest + safe, rest)
    return e.select(zero, 0, rest)


@_emits("pow")
def _power(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    if a.is_float:
        return VECTOR_MATH["pow"](e, a, b)
    width = BITS[a.element]
    result, square = e.like(1, a), a
    for bit in range(width - 1 if dtype.kind == "i" else width):
        odd = e.icmp("ne", b & (1 << bit if bit < width - 1 else -(1 << bit)), 0)
        result = e.select(odd, result * square, result)
        square = square * square
    if dtype.kind == "u":
        return result
    sign = e.select(e.icmp("ne", b & 1, 0), e.like(-1, a), e.like(1, a))
    inverse = e.select(e.icmp("eq", a, 1), e.like(1, a), e.select(e.icmp("eq", a, -1), sign, e.like(0, a)))
    return e.select(e.icmp("slt", b, 0), inverse, result)


# -- random ----------------------------------------------------------------------------------------------------------
@_emits("threefry")
def _threefry(e: Emitter, dtype: DType, key0: Value, key1: Value, counter: Value) -> Value:
    """Threefry-2x32, 20 rounds, at (counter, 0): the first word."""
    keys = (key0, key1, key0 ^ key1 ^ 0x1BD11BDA)
    x0, x1 = counter + keys[0], keys[1]
    for group in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x0 = x0 + x1
            x1 = ((x1 << rotation) | x1.shift_right(32 - rotation)) ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + (group + 1)
    return x0
