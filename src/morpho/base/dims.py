"""Bounded symbolic dimensions: integer polynomials over named symbols with known bounds.

>>> n = Dim("n", 1, 4096)
>>> (n * 4 + 2) == (2 + 4 * n), upper(n * 4 + 2), evaluate(n * 4 + 2, {"n": 10})
(True, 16386, 42)
"""

from __future__ import annotations

from collections.abc import Mapping

from morpho.base.errors import ArgumentError, ShapeError, fail

Monomial = tuple[tuple[str, int, int], ...]  # sorted symbols (name, low, high), repeated for powers; () is the constant


class Dim:
    """A dimension known only within bounds, and arithmetic on it. Immutable; equal polynomials are equal.

    `Dim("n", 1, 4096)` is a new symbol of at least 1 and at most 4096.
    """

    __slots__ = ("_hash", "terms")
    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, name: str, low: int = 1, high: int = 1 << 31) -> None:
        if not name.isidentifier():
            raise fail(ArgumentError, "Dim", f"the name {name!r} is not an identifier")
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

    def __add__(self, other: Dim | int) -> Dim | int:
        terms = dict(self.terms)
        for monomial, coefficient in _terms(other):
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return Dim._of(terms)

    __radd__ = __add__

    def __neg__(self) -> Dim | int:
        return Dim._of({m: -c for m, c in self.terms})

    def __sub__(self, other: Dim | int) -> Dim | int:
        return self + (-other)

    def __rsub__(self, other: int) -> Dim | int:
        return -self + other

    def __mul__(self, other: Dim | int) -> Dim | int:
        terms: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in _terms(other):
                key = tuple(sorted(left + right))
                terms[key] = terms.get(key, 0) + a * b
        return Dim._of(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim | int) -> Dim | int:
        quotient = divide(self, other)
        if quotient is None:
            raise fail(ShapeError, "Dim", f"{self} is not known to be a multiple of {other}")
        return quotient

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Dim) and self.terms == other.terms)

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: object) -> bool:
        """Only for sorting keys of nodes; says nothing about sizes."""
        return repr(self) < repr(other)

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
    def symbols(self) -> dict[str, tuple[int, int]]:
        """Name to bounds of every symbol in it."""
        return {name: (low, high) for monomial, _ in self.terms for name, low, high in monomial}


Size = int | Dim
Shape = tuple[Size, ...]


def _terms(value: Dim | int) -> tuple[tuple[Monomial, int], ...]:
    return value.terms if isinstance(value, Dim) else (((), int(value)),)


def divide(value: Size, by: Size) -> Size | None:
    """The exact quotient, or None when it is not one; a Dim is divided by an integer or a single product."""
    if isinstance(value, int) and isinstance(by, int):
        return value // by if by and value % by == 0 else None
    if value == by:
        return 1
    if value == 0 and bounds(by)[0] > 0:
        return 0
    divisor = _terms(by)
    if len(divisor) != 1:
        return None
    monomial, coefficient = divisor[0]
    result: dict[Monomial, int] = {}
    for m, c in _terms(value):
        rest = list(m)
        for symbol in monomial:
            if symbol not in rest:
                return None
            rest.remove(symbol)
        if coefficient == 0 or c % coefficient:
            return None
        result[tuple(rest)] = c // coefficient
    return Dim._of(result)


def bounds(value: Size) -> tuple[int, int]:
    """The least and the greatest value of a size."""
    if not isinstance(value, Dim):
        return value, value
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


def is_static(shape: Shape) -> bool:
    """Whether every size of a shape is a number."""
    return all(isinstance(size, int) for size in shape)


def product(sizes: Shape) -> Size:
    """The product of sizes, 1 for none."""
    result: Size = 1
    for size in sizes:
        result = result * size
    return result
