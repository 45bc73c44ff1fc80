"""The format of a float type and the steps that every function here shares: scaling, widening, exact sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from morpho.backends.code.emit import Emitter, Value, defined, mangled


@dataclass(frozen=True, slots=True)
class Format:
    """The numbers that describe one IEEE format."""

    integer: str
    mantissa: int
    bias: int

    @property
    def magic(self) -> float:
        """1.5 * 2**mantissa: adding it rounds to an integer, which then stands in the low bits of the sum."""
        return 1.5 * 2.0**self.mantissa

    @property
    def one(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.mantissa

    @property
    def exponent_mask(self) -> int:
        """The sign and exponent bits, as a signed integer."""
        return -(1 << self.mantissa)

    @property
    def magnitude_mask(self) -> int:
        """All bits but the sign."""
        return (1 << (31 if self.integer == "i32" else 63)) - 1

    @property
    def infinity(self) -> int:
        """The bits of +inf."""
        return (2 * self.bias + 1) << self.mantissa


FLOAT = Format("i32", 23, 127)
DOUBLE = Format("i64", 52, 1023)


def format_of(x: Value) -> Format:
    """The format of a float or double value."""
    if x.element not in ("float", "double"):
        raise TypeError(f"vector_math works on float and double, not {x.element}")
    return FLOAT if x.element == "float" else DOUBLE


def through_double(function: Callable[..., Value]) -> Callable[..., Value]:
    """For float inputs run the double version and round once at the end; for double change nothing."""

    def widened(e: Emitter, *arguments: Value) -> Value:
        if arguments[0].element == "double":
            return function(e, *arguments)
        wide = [e.convert("fpext", argument, "double") for argument in arguments]
        return e.convert("fptrunc", function(e, *wide), "float")

    widened.__name__, widened.__doc__ = function.__name__, function.__doc__
    return widened


def one_by_one(e: Emitter, numbers: Value, rare: tuple[int, int], arguments: Sequence[Value],
               results: Sequence[Value], name: str, make: Callable[..., Sequence[Value]]) -> list[Value]:
    """`results`, but where `numbers` (unsigned) are from the first of `rare` on, but before the second, what
    `make(emitter, *arguments)` writes for one lane.

    For arguments too rare to be computed beside the others: they take their turn one by one in a function of their own.
    """
    kind = "{ " + ", ".join(value.element for value in results) + " }"
    e.declarations |= _function_of_one(name, [value.element for value in arguments], kind, make)
    lanes, numbers, size = numbers.lanes, numbers - rare[0], rare[1] - rare[0]  # lower ones become very large
    turns = e.select(any_lane(e, numbers, "ult", size), e.constant(lanes, "i64", 1), 0)
    with e.loop(0, turns, carried=results) as loop:
        before, turn, after = e.block, e.fresh("turn"), e.fresh("after")
        e.branch_if(e.icmp("ult", _lane(e, numbers, loop.index), size), turn, after)
        e.label(turn)
        given = [_lane(e, value, loop.index) for value in arguments]
        made, news = "%" + e.fresh("t"), []
        e.line(f"{made} = call {kind} @{name}({', '.join(f'{value.type} {value.name}' for value in given)})")
        for number, old in enumerate(loop.values):
            new = e.assign(f"extractvalue {kind} {made}, {number}", old.element, 1)
            news.append(_with_lane(e, old, new, loop.index))
        e.branch(after)
        e.label(after)
        loop.next(*[e.assign(f"phi {old.type} [ {old.name}, %{before} ], [ {new.name}, %{turn} ]", old.element, lanes)
                    for old, new in zip(loop.values, news, strict=True)])
    return loop.values


def any_lane(e: Emitter, numbers: Value, predicate: str, limit: Value | int) -> Value:
    """Whether a vector of unsigned integers has one below (`ult`) or above (`ugt`) `limit`, a scalar."""
    if numbers.lanes > 1 and e.destructive_fma:  # AArch64 has instructions for the extreme one, but none for masks
        extreme = "umin" if predicate == "ult" else "umax"
        name = f"llvm.vector.reduce.{extreme}.{mangled(numbers.element, numbers.lanes)}"
        e.declarations.add(f"declare {numbers.element} @{name}({numbers.type})")
        found = e.assign(f"call {numbers.element} @{name}({numbers.type} {numbers.name})", numbers.element, 1)
        return e.icmp(predicate, found, limit)
    mask = e.icmp(predicate, numbers, e.splat(limit, numbers.lanes) if isinstance(limit, Value) else limit)
    if mask.lanes == 1:
        return mask
    bits = e.assign(f"bitcast {mask.type} {mask.name} to i{mask.lanes}", f"i{mask.lanes}", 1)
    return e.assign(f"icmp ne i{mask.lanes} {bits.name}, 0", "i1", 1)


def magnitude(e: Emitter, x: Value) -> Value:
    """The bits of |x|, in whose order numbers are those of x, then infinity, then NaN."""
    return e.bits(x) & format_of(x).magnitude_mask


def _function_of_one(name: str, elements: Sequence[str], kind: str,
                     make: Callable[..., Sequence[Value]]) -> set[str]:
    """A function of the module, with all it needs."""
    e = Emitter(1)
    filled = "poison"
    for number, value in enumerate(make(e, *[e.argument(f"%x{n}", element) for n, element in enumerate(elements)])):
        filled_by = f"insertvalue {kind} {filled}, {value.type} {value.name}, {number}"
        filled = "%" + e.fresh("t")
        e.line(f"{filled} = {filled_by}")
    e.line(f"ret {kind} {filled}")
    parameters = ", ".join(f"{element} %x{n}" for n, element in enumerate(elements))
    text = defined(f"internal {kind} @{name}({parameters}) noinline cold nounwind", e.text())
    return {*e.declarations, text.rstrip("\n")}


def _lane(e: Emitter, x: Value, lane: Value) -> Value:
    if x.lanes == 1:
        return x
    return e.assign(f"extractelement {x.type} {x.name}, i64 {lane.name}", x.element, 1)


def _with_lane(e: Emitter, x: Value, new: Value, lane: Value) -> Value:
    if x.lanes == 1:
        return new
    return e.assign(f"insertelement {x.type} {x.name}, {new.type} {new.name}, i64 {lane.name}", x.element, x.lanes)


def positive_part(e: Emitter, x: Value) -> Value:
    """max(x, -0.0); a NaN may become -0.0, so the other operand must carry it.

    For float by the order of the bits as unsigned integers: one instruction everywhere, where x86 lacks `maximum`.
    """
    if x.element == "double":
        return e.maximum(x, -0.0)
    sign = e.constant(-(1 << 31), "i32", x.lanes)
    return e.from_bits(e.intrinsic("umin", e.bits(x), e.reread(sign)), "float")


def fast_two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """a + b as the rounded sum and its exact error; needs |a| >= |b| or a == 0."""
    total = a + b
    return total, b - (total - a)


def two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """a + b as the rounded sum and its exact error, whatever the sizes."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_difference(a: Value, b: Value) -> tuple[Value, Value]:
    """a - b as the rounded difference and its exact error, whatever the sizes."""
    total = a - b
    part = total - a
    return total, (a - (total - part)) - (b + part)


def two_product(e: Emitter, a: Value, b: Value) -> tuple[Value, Value]:
    """a * b as the rounded product and its exact error."""
    product = a * b
    return product, e.fma(a, b, -product)


def round_to_integer(e: Emitter, x: Value, factor: float, offset: int = 0) -> tuple[Value, Value]:
    """round(x * factor) as a float, and an integer whose low bits hold that number plus `offset`.

    |x * factor| must stay below 2**(mantissa - 2). The float-to-integer conversion costs nothing and is never poison.
    """
    form = format_of(x)
    shifted = e.fma(x, factor, form.magic + offset)
    return shifted - (form.magic + offset), e.bits(shifted)


def power_of_two(e: Emitter, count: Value, element: str, add: int = 0) -> Value:
    """2**(count + add) from the integer of `round_to_integer`; the result must be a normal number."""
    form = FLOAT if element == "float" else DOUBLE
    return e.from_bits((count << form.mantissa) + (form.one + (add << form.mantissa)), element)


def biased_power_of_two(e: Emitter, count: Value, element: str) -> Value:
    """2**k from the integer of `round_to_integer` that holds k plus the bias; the result must be a normal number."""
    return e.from_bits(count << (FLOAT if element == "float" else DOUBLE).mantissa, element)


def scale_exponent(e: Emitter, y: Value, count: Value) -> Value:
    """y * 2**count by adding to the exponent; y and the result must be normal numbers."""
    return e.from_bits(e.bits(y) + (count << format_of(y).mantissa), y.element)


def scale(e: Emitter, y: Value, count: Value) -> Value:
    """y * 2**count for y near one and any count, in two steps so that only the last one rounds or overflows.

    The steps are multiplications, not additions to the exponent bits, so that a NaN in y stays one whatever its bits.
    """
    form = format_of(y)
    half = (count << (form.mantissa - 1)) & form.exponent_mask
    rest = (count << form.mantissa) - half
    return y * e.from_bits(half + form.one, y.element) * e.from_bits(rest + form.one, y.element)


def polynomial(e: Emitter, x: Value, coefficients: Sequence[float], square: Value | None = None) -> Value:
    """The polynomial with `coefficients` from the highest power down, by pairs: Horner's rule in x**2.

    Half the latency of Horner's rule in x, and fewer instructions where an fma overwrites its addend (NEON), since
    only every second step has a constant there. The last step is Horner's, so that the result is rounded once at
    its full size and all other errors are smaller by a factor x.
    """
    if len(coefficients) < 5:
        return e.polynomial(x, coefficients)
    square = x * x if square is None else square
    given = list(coefficients[:-1])
    result = e.like(given.pop(0), x) if len(given) % 2 else e.fma(e.like(given.pop(0), x), x, given.pop(0))
    while given:
        result = e.fma(result, square, e.fma(e.like(given.pop(0), x), x, given.pop(0)))
    return e.fma(result, x, coefficients[-1])
