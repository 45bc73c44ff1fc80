"""Bounded dimensions: polynomial arithmetic agrees with arithmetic on the numbers they stand for."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morpho.base.dims import Dim, Size, bounds, divide, evaluate, is_static, larger, product, settled, smaller, upper
from morpho.base.errors import ArgumentError, ShapeError

BOUNDS = {"n": (0, 9), "m": (1, 20), "k": (3, 3)}
SYMBOLS = {name: Dim(name, *limits) for name, limits in BOUNDS.items()}
leaves = st.one_of(st.integers(-50, 50), st.sampled_from(sorted(SYMBOLS.values(), key=repr)))
sizes = st.fixed_dictionaries({name: st.integers(*limits) for name, limits in BOUNDS.items()})
trees = st.recursive(leaves, lambda inner: st.tuples(st.sampled_from("+-*"), inner, inner), max_leaves=8)
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def symbolic(tree: Any) -> Size:
    return OPERATORS[tree[0]](symbolic(tree[1]), symbolic(tree[2])) if isinstance(tree, tuple) else tree


def numeric(tree: Any, at: dict[str, int]) -> int:
    if isinstance(tree, tuple):
        return OPERATORS[tree[0]](numeric(tree[1], at), numeric(tree[2], at))
    return evaluate(tree, at)


@given(trees, sizes)
def test_arithmetic(tree: Any, at: dict[str, int]) -> None:
    found = symbolic(tree)
    value = numeric(tree, at)
    assert evaluate(found, at) == value
    low, high = bounds(found)
    assert low <= value <= high == upper(found)
    assert isinstance(found, Dim) or found == value


@given(trees, trees, trees)
def test_equal_polynomials_are_equal(a: Any, b: Any, c: Any) -> None:
    x, y, z = map(symbolic, (a, b, c))
    pairs = [(x + y, y + x), (x * y, y * x), ((x + y) * z, x * z + y * z), (x - x, 0), (x * 0, 0), (x * 1, x),
             (x - y, -(y - x)), ((x + y) + z, x + (y + z))]
    for left, right in pairs:
        assert left == right and hash(left) == hash(right) and repr(left) == repr(right)


@given(trees, st.one_of(st.integers(-9, 9), st.sampled_from(sorted(SYMBOLS.values(), key=repr))))
def test_division_undoes_multiplication(tree: Any, by: Size) -> None:
    value = symbolic(tree)
    if by == 0:
        assert divide(value, by) is None
        return
    if value == 0 and bounds(by)[0] <= 0 <= bounds(by)[1]:
        assert divide(value, by) is None  # 0 / n is not known where n may be 0
        return
    assert divide(value * by, by) == value


@given(trees, trees, sizes)
def test_a_quotient_is_exact(a: Any, b: Any, at: dict[str, int]) -> None:
    x, y = symbolic(a), symbolic(b)
    found = divide(x, y)
    if found is not None:
        assert evaluate(found, at) * evaluate(y, at) == evaluate(x, at)


@given(trees, trees)
def test_sums_divide_their_products(a: Any, b: Any) -> None:
    """Rows of two kinds side by side, as a server's, are divided by as many."""
    value, by = symbolic(a), symbolic(b)
    if by != 0 and value != 0:
        assert divide(value * by, by) == value


def test_what_a_symbol_says() -> None:
    n = Dim("n", 1, 8)
    assert repr(n * 2 - 3) == "-3+2*n" and repr(n * n) == "n*n" and repr(-n) == "-1*n"
    assert (n * 4 + 2).symbols == {"n": (1, 8)} and n.is_symbol and not (n * 2).is_symbol and not (n + 1).is_symbol
    assert (n * n).is_symbol is False
    assert is_static((1, 2)) and not is_static((1, n))
    assert product(()) == 1 and product((2, n, 3)) == n * 6
    assert (n * 6) // 3 == n * 2 and (n * 6) // n == 6
    assert n != "n" and n == Dim("n", 1, 8) and n != Dim("n", 1, 9)
    with pytest.raises(ShapeError, match="not known to be a multiple"):
        n // 2
    with pytest.raises(ShapeError, match="known only when the compiled function runs"):
        range(n)  # type: ignore[arg-type]


COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge]


@given(trees, trees, sizes, st.sampled_from(COMPARISONS))
def test_an_order_that_is_known_is_right(a: Any, b: Any, at: dict[str, int], compare: Any) -> None:
    """Where bounds leave it open it is an error, never an answer."""
    x, y = symbolic(a), symbolic(b)
    try:
        found = compare(x, y)
    except ShapeError as error:
        assert "known only when the compiled function runs" in str(error) and "Hint" in str(error)
        return
    assert found is compare(evaluate(x, at), evaluate(y, at))


@given(trees, trees, sizes)
def test_the_smaller_and_the_larger(a: Any, b: Any, at: dict[str, int]) -> None:
    x, y = symbolic(a), symbolic(b)
    for choose, expected in ((smaller, min), (larger, max)):
        try:
            found = choose(x, y)
        except ShapeError:
            continue
        assert evaluate(found, at) == expected(evaluate(x, at), evaluate(y, at))


def test_an_order_that_bounds_decide() -> None:
    n, m = Dim("n", 1, 8), Dim("m", 9, 20)
    assert n >= 1 and n >= 1 and n <= 8 and n > 0 and n < 9 and n < m and n + 1 <= m and not n > 8 and n < 8.5
    assert smaller(n, m) == n and larger(n, m) == m and larger(Dim("k", 0, 3), 0) == Dim("k", 0, 3)
    assert bool(n) and abs(n - 10) == 10 - n
    for undecided in (lambda: n > 2, lambda: n > 2, lambda: n <= n * n - 1, lambda: max(n, 3), lambda: bool(n - 1),
                      lambda: smaller(n, 4)):
        with pytest.raises(ShapeError, match=r"whether .* is known only when.*n is in 1\.\.8.*Hint: use mo.where"):
            undecided()


@pytest.mark.parametrize("use", [
    lambda n: n / 2, lambda n: 2 / n, lambda n: n * 0.5, lambda n: 1.5 + n, lambda n: n - 0.5, lambda n: 2**n,
    lambda n: n**-1, lambda n: n**0.5, lambda n: 7 // n, lambda n: 7 % n, lambda n: n % 2, lambda n: n // 1.5,
    lambda n: divmod(n, 3), lambda n: np.float32(0.5) * n, lambda n: n * np.float32(0.5), lambda n: np.sqrt(n),
    lambda n: np.float64(2) + n, lambda n: [0] * n, lambda n: float(n), lambda n: int(n), lambda n: n * (1 + 2j),
])
def test_what_is_no_size(use: Any) -> None:
    """An error that says what to do: nothing is cut off to an integer."""
    with pytest.raises(ShapeError, match=r"\[\w+\] .*\. At .*test_dims.py:\d+\. Hint: "):
        use(Dim("n", 1, 8))


def test_other_integer_arithmetic() -> None:
    n = Dim("n", 1, 8)
    assert n**0 == 1 and n**2 == n * n and (n * 6) % 3 == 0 and divmod(n * 6, 3) == (n * 2, 0) and +n == n == round(n)
    for four in (np.int64(4), np.uint8(4), 4):
        assert four * n == n * four == n * 4 and n + four == four + n == n + 4 and n - four == n - 4
        assert four - n == 4 - n and (n * 8) // four == n * 2
    assert hash(np.int64(4) * n) == hash(n * 4) and type(n * 4 - n * np.int64(4)) is int
    with pytest.raises(TypeError):
        n + "text"  # type: ignore[operator]


def test_numbers_inside_attributes() -> None:
    n = Dim("n", 1, 8)
    assert settled((1, n * 2, ("a", (n,)), None), {"n": 3}) == (1, 6, ("a", (3,)), None)


@pytest.mark.parametrize("arguments", [("2n",), ("",), ("n", -1, 3), ("n", 4, 3), (3,), (None,), ("n", 1.0, 4),
                                       ("n", "1"), ("n", True)])
def test_wrong_symbols(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ArgumentError, match=r"\[Dim\]"):
        Dim(*arguments)
