"""Numbers of a launch as expressions of the dynamic sizes, found by running the host's own arithmetic on them.

A grid, the numbers of a kernel and the places of its operands are computed by ordinary Python (`DeviceKernel.launch`,
`maps`, `flatten.py`). Run on `Traced` numbers, that arithmetic is written down once; every comparison it makes becomes
a guard. For all sizes that meet the guards native code computes the same numbers (`launch_code.py`), without Python.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any


class Operation(IntEnum):
    """Operation of an instruction on its two numbers; quotients are rounded down."""

    ADD = 0
    SUBTRACT = 1
    MULTIPLY = 2
    DIVIDE = 3
    REMAINDER = 4
    LESS = 5
    LESS_OR_EQUAL = 6
    EQUAL = 7


COMPUTED: dict[Operation, Callable[[int, int], int]] = {
    Operation.ADD: operator.add, Operation.SUBTRACT: operator.sub, Operation.MULTIPLY: operator.mul,
    Operation.DIVIDE: operator.floordiv, Operation.REMAINDER: operator.mod, Operation.LESS: operator.lt,
    Operation.LESS_OR_EQUAL: operator.le, Operation.EQUAL: operator.eq}


class SizeTrace:
    """The instructions of one run of that arithmetic, and the outcomes of its comparisons.

    >>> trace = SizeTrace({"n": 300})
    >>> blocks = -(-trace.sizes["n"] // 128) * 12
    >>> blocks.value, max(blocks, 1).value, trace.guards_hold({"n": 301}), trace.number(blocks, {"n": 100})
    (36, 36, True, 12)
    >>> min(blocks, 132) is blocks, trace.guards_hold({"n": 2000})
    (True, False)
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.symbols = list(sizes)
        self.rows: list[tuple[str | int | Operation, int, int]] = []  # symbol, constant, operation of two rows
        self.guards: dict[int, int] = {}  # row -> 1 or 0
        self._known: dict[tuple[bool, Any, int, int], Traced] = {}
        self.sizes = {name: self._row((name, 0, 0), value) for name, value in sizes.items()}

    def _row(self, row: tuple[Any, int, int], value: int) -> Traced:
        key = isinstance(row[0], Operation), *row  # an operation's number is no constant
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Traced(self, len(self.rows), value)
            self.rows.append(row)
        return found

    def constant(self, value: int) -> Traced:
        """A number that is the same for all sizes."""
        return self._row((int(value), 0, 0), int(value))

    def result(self, operation: Operation, left: Any, right: Any) -> Any:
        """Result of an operation: a number, or one more row."""
        a, b = plain(left), plain(right)
        value = int(COMPUTED[operation](a, b))
        if operation is Operation.ADD and ((a == 0 and not is_traced(left)) or (b == 0 and not is_traced(right))):
            return right if not is_traced(left) else left
        if operation is Operation.SUBTRACT and b == 0 and not is_traced(right):
            return left
        if operation in (Operation.MULTIPLY, Operation.DIVIDE) and b == 1 and not is_traced(right):
            return left
        if operation is Operation.MULTIPLY:
            if any(number == 0 and not is_traced(number) for number in (left, right)):
                return 0
            if a == 1 and not is_traced(left):
                return right
        rows = [number.row if is_traced(number) else self.constant(number).row for number in (left, right)]
        return self._row((operation, rows[0], rows[1]), value)

    def decided(self, operation: Operation, left: Any, right: Any) -> bool:
        """The outcome of a comparison, which holds for all sizes that this trace is for."""
        found = self.result(operation, left, right)
        self.guards[found.row] = found.value
        return bool(found.value)

    # -- in Python, for tests and messages -----------------------------------------------------------------------------
    def values(self, sizes: Mapping[str, int]) -> list[int]:
        """All rows at other sizes, as native code computes them."""
        found: list[int] = []
        for kind, left, right in self.rows:
            if isinstance(kind, Operation):
                a, b = found[left], found[right]
                divides = kind in (Operation.DIVIDE, Operation.REMAINDER)
                found.append(int(COMPUTED[kind](a, 1 if divides and b == 0 else b)))
            else:
                found.append(sizes[kind] if isinstance(kind, str) else kind)
        return found

    def number(self, traced: Any, sizes: Mapping[str, int]) -> int:
        """A number at other sizes."""
        return self.values(sizes)[traced.row] if is_traced(traced) else int(traced)

    def guards_hold(self, sizes: Mapping[str, int]) -> bool:
        """Whether the trace is for these sizes."""
        values = self.values(sizes)
        return all(values[row] == wanted for row, wanted in self.guards.items())


class Traced:
    """A number at the sizes of its trace, and the row that computes it at others. Where Python needs a plain number (an
    index, a key), the trace is for sizes alone that give the same."""

    __slots__ = ("row", "trace", "value")

    def __init__(self, trace: SizeTrace, row: int, value: int) -> None:
        self.trace, self.row, self.value = trace, row, value

    def __add__(self, other: Any) -> Any:
        return self.trace.result(Operation.ADD, self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self.trace.result(Operation.SUBTRACT, self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.trace.result(Operation.SUBTRACT, other, self)

    def __mul__(self, other: Any) -> Any:
        return self.trace.result(Operation.MULTIPLY, self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return self.trace.result(Operation.DIVIDE, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self.trace.result(Operation.DIVIDE, other, self)

    def __mod__(self, other: Any) -> Any:
        return self.trace.result(Operation.REMAINDER, self, other)

    def __rmod__(self, other: Any) -> Any:
        return self.trace.result(Operation.REMAINDER, other, self)

    def __neg__(self) -> Any:
        return self.trace.result(Operation.SUBTRACT, 0, self)

    def __lt__(self, other: Any) -> bool:
        return self.trace.decided(Operation.LESS, self, other)

    def __le__(self, other: Any) -> bool:
        return self.trace.decided(Operation.LESS_OR_EQUAL, self, other)

    def __gt__(self, other: Any) -> bool:
        return self.trace.decided(Operation.LESS, other, self)

    def __ge__(self, other: Any) -> bool:
        return self.trace.decided(Operation.LESS_OR_EQUAL, other, self)

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, int) or is_traced(other)) and self.trace.decided(Operation.EQUAL, self, other)

    def __bool__(self) -> bool:
        return not self.trace.decided(Operation.EQUAL, self, 0)

    def __index__(self) -> int:
        self.trace.decided(Operation.EQUAL, self, self.value)
        return self.value

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __repr__(self) -> str:
        return str(self.value)


def is_traced(number: object) -> bool:
    """Whether a number may be another one at other sizes."""
    return isinstance(number, Traced)


def plain(number: Any) -> int:
    """A number at the sizes of its trace.

    >>> plain(3), plain(SizeTrace({"n": 5}).sizes["n"] * 2)
    (3, 10)
    """
    return int(number.value) if isinstance(number, Traced) else int(number)
