"""Bounded symbolic dimensions: integer polynomials over named symbols with known bounds.

>>> n = Dim("n", 1, 4096)
>>> (n * 4 + 2) == (2 + 4 * n), upper(n * 4 + 2), evaluate(n * 4 + 2, {"n": 10})
(True, 16386, 42)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from operator import add, mul, sub
from typing import Any, NamedTuple

import numpy as np

from morpho.base.checks import as_whole
from morpho.base.errors import ArgumentError, ShapeError, fail

Monomial = tuple[tuple[str, int, int], ...]  # sorted symbols (name, low, high), repeated for powers; () is the constant


class Dim:
    """A dimension known only within bounds, and arithmetic on it. Immutable; equal polynomials are equal.

    `Dim("n", 1, 4096)` is a new symbol of at least 1 and at most 4096. Sums, differences, products and exact quotients
    with integers are sizes too; an order is known where the bounds decide it. A size equals no number: `n == 3`
    compares the expression.

    >>> n = mo.Dim("n", 1, 64)
    >>> n * 2 + 1
    1+2*n
    >>> double = mo.compile(lambda x: x * 2, dynamic={"x": {0: n}})
    >>> double(mo.ones(3)).shape, double(mo.ones(5)).shape, double.stats["recompiles"]
    ((3,), (5,), 0)
    """

    __slots__ = ("_hash", "terms")
    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, name: str, low: int = 1, high: int = 1 << 31) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise fail(ArgumentError, "Dim", f"the name {name!r} is not an identifier", "use mo.Dim('n', 1, 4096)")
        for bound in (low, high):
            if as_whole(bound) is None:
                raise fail(ArgumentError, "Dim", f"the bound {bound!r} of {name} is not an integer",
                           "use mo.Dim('n', 1, 4096)")
        low, high = int(low), int(high)
        if not 0 <= low <= high:
            raise fail(ArgumentError, "Dim", f"the bounds {low} and {high} of {name} are not 0 <= low <= high")
        self.terms = ((((name, low, high),), 1),)
        self._hash = hash(self.terms)

    @staticmethod
    def _of(terms: dict[Monomial, int]) -> Dim | int:
        kept = tuple(sorted((m, c) for m, c in terms.items() if c))
        if not kept:
            return 0
        if len(kept) == 1 and kept[0][0] == ():
            return kept[0][1]
        made = object.__new__(Dim)
        made.terms = kept
        made._hash = hash(kept)
        return made

    # -- arithmetic ----------------------------------------------------------------------------------------------------
    # With anything but integers and sizes these give way: a tensor knows what to do with a size.
    def __add__(self, other: Dim | int) -> Dim | int:
        if not self._takes(other, "+"):
            return NotImplemented
        terms = dict(self.terms)
        for monomial, coefficient in _terms(other):
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return Dim._of(terms)

    __radd__ = __add__

    def __neg__(self) -> Dim | int:
        return Dim._of({m: -c for m, c in self.terms})

    def __pos__(self) -> Dim:
        return self

    def __abs__(self) -> Dim | int:
        return self if self >= 0 else -self

    def __sub__(self, other: Dim | int) -> Dim | int:
        return self + -_exact(other) if self._takes(other, "-") else NotImplemented

    def __rsub__(self, other: int) -> Dim | int:
        return -self + other if self._takes(other, "-") else NotImplemented

    def __mul__(self, other: Dim | int) -> Dim | int:
        if not self._takes(other, "*"):
            return NotImplemented
        terms: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in _terms(other):
                key = tuple(sorted(left + right))
                terms[key] = terms.get(key, 0) + a * b
        return Dim._of(terms)

    __rmul__ = __mul__

    def __pow__(self, other: int) -> Dim | int:
        if not isinstance(other, int) or other < 0:
            return self._refuse("**", other)
        result: Dim | int = 1
        for _ in range(other):
            result = result * self
        return result

    def __floordiv__(self, other: Dim | int) -> Dim | int:
        if not self._takes(other, "//"):
            return NotImplemented
        quotient = divide(self, _exact(other))
        if quotient is None:
            raise fail(ShapeError, "Dim", f"{self} is not known to be a multiple of {other}",
                       "declare another mo.Dim for the quotient and use a multiple of it for this axis")
        return quotient

    def __mod__(self, other: Dim | int) -> int:
        if not self._takes(other, "%"):
            return NotImplemented
        self.__floordiv__(other)
        return 0

    def __divmod__(self, other: Dim | int) -> tuple[Dim | int, int]:
        return self // other, 0

    def __round__(self, digits: int = 0) -> Dim:
        return self

    def __truediv__(self, other: object) -> Dim | int:
        return self._refuse("/", other)

    def __rpow__(self, other: object) -> Dim | int:
        return self._refuse("**", other)

    def __rtruediv__(self, other: object) -> Dim | int:
        return self._refuse("/", other)

    def __rfloordiv__(self, other: object) -> Dim | int:
        return self._refuse("//", other)

    def __rmod__(self, other: object) -> Dim | int:
        return self._refuse("%", other)

    def _takes(self, other: object, sign: str) -> bool:
        """Whether a size combines with this; a number that is no integer would be cut off, and is an error."""
        if isinstance(other, float | complex | np.inexact):
            self._refuse(sign, other)
        return isinstance(other, Dim | int | np.integer)

    def _refuse(self, sign: str, other: object) -> Dim | int:
        """Refuse an operand that is no size: an error for numbers; other operands may know better."""
        if not isinstance(other, Dim | int | float | complex | np.number):
            return NotImplemented  # type: ignore[no-any-return]
        raise fail(ShapeError, "Dim", f"the size {self} and {other} under {sign} make no size",
                   "start from a tensor, as in mo.divide(x.shape[0], 2) or x * x.shape[0] * 0.5")

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's numbers beside a size are integers; NumPy's functions have no value for it."""
        if function.__name__ in ("equal", "not_equal"):  # a number is no polynomial
            return np.full(np.broadcast_shapes(*[np.shape(i) for i in inputs if not isinstance(i, Dim)]),
                           function.__name__ == "not_equal")[()]
        operation = {"add": add, "subtract": sub, "multiply": mul}.get(function.__name__)
        if operation is None or not all(isinstance(i, Dim | int | np.integer) for i in inputs):
            raise fail(ShapeError, function.__name__, f"NumPy has no value for the size {self}, which is known "
                                                      "only when the compiled function runs", "use Morpho's function")
        return operation(*map(_exact, inputs))

    # -- comparison ----------------------------------------------------------------------------------------------------
    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Dim) and self.terms == other.terms)

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: Dim | int) -> bool:
        return self._known("<", other, lambda low, high: True if high < 0 else False if low >= 0 else None)

    def __le__(self, other: Dim | int) -> bool:
        return self._known("<=", other, lambda low, high: True if high <= 0 else False if low > 0 else None)

    def __gt__(self, other: Dim | int) -> bool:
        return self._known(">", other, lambda low, high: True if low > 0 else False if high <= 0 else None)

    def __ge__(self, other: Dim | int) -> bool:
        return self._known(">=", other, lambda low, high: True if low >= 0 else False if high < 0 else None)

    def __bool__(self) -> bool:
        low, high = bounds(self)
        return low > 0 or high < 0 or self._known("!=", 0, lambda low, high: None)

    def _known(self, sign: str, other: Dim | int, decide: Callable[[int, int], bool | None]) -> bool:
        """An order, from the bounds of the difference, or an error where they leave it open."""
        if not isinstance(other, Dim | int | float | np.number):
            return NotImplemented
        low, high = bounds(self - other) if isinstance(other, Dim) else (bound - other for bound in bounds(self))
        found = decide(low, high)
        if found is None:
            limits = ", ".join(f"{name} is in {least}..{most}" for name, (least, most) in self.symbols.items())
            raise fail(ShapeError, "Dim", f"whether {self} {sign} {other} is known only when the compiled function "
                                          f"runs ({limits})", "use mo.where, or bounds of mo.Dim that decide it")
        return found

    def __index__(self) -> int:
        raise fail(ShapeError, "Dim", f"the size {self} is known only when the compiled function runs",
                   "use tensor operations, not Python numbers, on a dynamic dimension")

    def __repr__(self) -> str:
        parts = []
        for monomial, coefficient in self.terms:
            names = "*".join(symbol[0] for symbol in monomial)
            factor = "" if coefficient == 1 and names else str(coefficient)
            parts.append("*".join(part for part in (factor, names) if part))
        return "+".join(parts).replace("+-", "-")

    @property
    def is_symbol(self) -> bool:
        """Whether it is one symbol and nothing else."""
        return len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1

    @property
    def line(self) -> Affine | None:
        """The size as a multiple of one symbol and a number, where it is that and the factor positive.

        >>> (2 * Dim("n") + 3).line
        Affine(symbol='n', factor=2, constant=3)
        """
        terms = {monomial: factor for monomial, factor in self.terms if monomial}
        ((monomial, factor), *others) = terms.items()
        if others or len(monomial) > 1 or factor < 1:
            return None
        return Affine(monomial[0][0], factor, constant_term(self))

    @property
    def symbols(self) -> dict[str, tuple[int, int]]:
        """Name to bounds of every symbol in it."""
        return {name: (low, high) for monomial, _ in self.terms for name, low, high in monomial}


class Affine(NamedTuple):
    """factor * symbol + constant."""

    symbol: str
    factor: int
    constant: int

    def number(self, size: int) -> int:
        """The symbol's number for a size, rounded down; whether the size is on the line, `fits` tells."""
        return (size - self.constant) // self.factor

    def fits(self, size: int) -> bool:
        return (size - self.constant) % self.factor == 0


Size = int | Dim
Shape = tuple[Size, ...]


def half_of(size: Size) -> Size | None:
    """Half of a size, where that is whole whatever its symbols are.

    >>> half_of(6), half_of(3), half_of(Dim("n") * 4), half_of(Dim("n"))
    (3, None, 2*n, None)
    """
    if isinstance(size, int):
        return None if size % 2 else size // 2
    if any(coefficient % 2 for _, coefficient in size.terms):
        return None
    return Dim._of({monomial: coefficient // 2 for monomial, coefficient in size.terms})


def _exact(value: Dim | int) -> Dim | int:
    """A NumPy integer as a Python one, which does not overflow."""
    return value if isinstance(value, Dim) else int(value)


def _terms(value: Dim | int) -> tuple[tuple[Monomial, int], ...]:
    return value.terms if isinstance(value, Dim) else (((), int(value)),)


def constant_term(value: Size) -> int:
    """The constant term beside the products of symbols.

    >>> constant_term(2 * Dim("n") + 3)
    3
    """
    return dict(_terms(value)).get((), 0)


def divide(value: Size, by: Size) -> Size | None:
    """The exact quotient, or None when it is not one.

    >>> n, m = Dim("n"), Dim("m")
    >>> divide(6 * n + 6 * m, n + m), divide(n * n - m * m, n + m), divide(n, n + m)
    (6, -1*m+n, None)
    """
    if isinstance(value, int) and isinstance(by, int):
        return value // by if by and value % by == 0 else None
    if value == by:
        return 1
    if value == 0:
        return 0 if bounds(by)[0] > 0 else None
    # Long division: the leading term of what is left by that of the divisor, until nothing is left. Terms are ordered
    # by degree, then by name, which products keep, so that an exact quotient is always found.
    monomial, coefficient = min(_terms(by), key=_leading, default=((), 0))
    found: dict[Monomial, int] = {}
    rest = value
    while rest != 0:
        leading, count = min(_terms(rest), key=_leading)
        power = _without(leading, monomial)
        if power is None or coefficient == 0 or count % coefficient:
            return None
        found[power] = count // coefficient
        rest = rest - by * Dim._of({power: found[power]})
    return Dim._of(found)


def _leading(term: tuple[Monomial, int]) -> tuple[int, Monomial]:
    return -len(term[0]), term[0]


def _without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    rest = list(monomial)
    for symbol in divisor:
        if symbol not in rest:
            return None
        rest.remove(symbol)
    return tuple(rest)


def quotient_down(value: Size, by: int) -> Size | None:
    """The quotient rounded down, where that is a size: all but the constant are multiples of `by`.

    >>> quotient_down(4 * Dim("n") - 1, 2), quotient_down(Dim("n"), 2)
    (-1+2*n, None)
    """
    return divide(value - constant_term(value) % by, by)


MOST_CORNERS = 8  # symbols up to which all combinations of their bounds are looked at


def bounds(value: Size) -> tuple[int, int]:
    """The least and the greatest value of a size.

    >>> n, m = Dim("n", 2, 9), Dim("m", 1, 4)
    >>> bounds(m * n - m), bounds(n - 5)
    ((1, 32), (-3, 4))
    """
    if not isinstance(value, Dim):
        return value, value
    low, high = _bounds_by_terms(value)
    if low >= 0:
        return low, high
    symbols, linear = value.symbols, all(len(set(monomial)) == len(monomial) for monomial, _ in value.terms)
    if not linear or len(symbols) > MOST_CORNERS:
        return low, high
    # Terms of both signs share symbols. Linear in each of them, it has its extremes where all are at their bounds.
    corners = [evaluate(value, dict(zip(symbols, corner, strict=True)))
               for corner in itertools.product(*symbols.values())]
    return min(corners), max(corners)


def _bounds_by_terms(value: Dim) -> tuple[int, int]:
    """Each term at its least or greatest: what lies within, though not always the least and the greatest."""
    low = high = 0
    for monomial, coefficient in value.terms:
        small = large = 1
        for _, least, most in monomial:
            small, large = small * least, large * most
        low += coefficient * (small if coefficient > 0 else large)
        high += coefficient * (large if coefficient > 0 else small)
    return low, high


def upper(value: Size) -> int:
    """The greatest value of a size."""
    return bounds(value)[1]


def evaluate(value: Size, sizes: Mapping[str, int]) -> int:
    """The value of a size once its symbols are known."""
    if not isinstance(value, Dim):
        return value
    total = 0
    for monomial, coefficient in value.terms:
        for name, _, _ in monomial:
            coefficient *= sizes[name]
        total += coefficient
    return total


def settled(value: Any, sizes: Mapping[str, int]) -> Any:
    """An attribute with numbers in place of its dynamic sizes, inside tuples too."""
    if isinstance(value, Dim):
        return evaluate(value, sizes)
    if not isinstance(value, tuple):
        return value
    parts = [settled(item, sizes) for item in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def smaller(left: Size, right: Size) -> Size:
    """The smaller of two sizes, where bounds decide it; at a tie they are the same."""
    return left if left <= right else right


def larger(left: Size, right: Size) -> Size:
    """The larger of two sizes, where bounds decide it."""
    return left if left >= right else right


def is_static(shape: Shape) -> bool:
    """Whether every size of a shape is a number."""
    return all(isinstance(size, int) for size in shape)


def product(sizes: Shape) -> Size:
    """The product of sizes, 1 for none."""
    result: Size = 1
    for size in sizes:
        result = result * size
    return result
