"""NumPy's methods of ufuncs, draws without a key, and other habits of ported programs, beside NumPy's own answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.spelling.table import ABSENT, ALIASES, NOTES

A = np.arange(12.0).reshape(3, 4) - 5
K = np.array([[5, 3, 8, 1], [7, 2, 9, 4], [6, 0, 11, 10]])
B = K > 4
LONG = np.linspace(0.1, 2.0, 20)


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    with mo.settings(device="reference"):
        yield


def changed(xp: Any, x: Any, *calls: tuple[str, Any]) -> Any:
    for name, arguments in calls:
        getattr(xp, name).at(x, *arguments)
    return x


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    **{f"{name}.reduce": lambda xp, t, name=name: getattr(xp, name).reduce(t(A + 6), axis=1)
       for name in ("add", "multiply", "maximum", "minimum", "subtract", "divide", "hypot", "logaddexp", "fmax")},
    **{f"{name}.reduce of integers": lambda xp, t, name=name: getattr(xp, name).reduce(t(K))
       for name in ("bitwise_or", "bitwise_and", "bitwise_xor", "gcd", "lcm", "logical_xor")},
    "add.reduce keepdims": lambda xp, t: xp.add.reduce(t(A), axis=(0, 1), keepdims=True),
    "add.reduce all": lambda xp, t: xp.add.reduce(t(A), None, initial=10.0), "add.reduce where": lambda xp, t:
        xp.add.reduce(t(A), axis=1, where=t(B)), "maximum.reduce where": lambda xp, t: xp.maximum.reduce(
        t(A), axis=1, where=t(B), initial=-9.0), "add.reduce out": lambda xp, t: (lambda z: (xp.add.reduce(
            t(A), out=z), z))(t(np.zeros(4))), "add.reduce dtype": lambda xp, t: xp.add.reduce(t(K), dtype=np.float64),
    "logical_and.reduce": lambda xp, t: xp.logical_and.reduce(t(B), axis=1),
    "logical_or.reduce": lambda xp, t: xp.logical_or.reduce(t(B), axis=0),
    "logaddexp.reduce long": lambda xp, t: xp.logaddexp.reduce(t(LONG)),
    "subtract.reduce long": lambda xp, t: xp.subtract.reduce(t(LONG)),
    "add.reduce of none": lambda xp, t: xp.bitwise_or.reduce(t(np.zeros((0, 2), int))),
    **{f"{name}.accumulate": lambda xp, t, name=name: getattr(xp, name).accumulate(t(A + 6), 1)
       for name in ("add", "multiply", "maximum", "minimum", "subtract", "divide", "logaddexp")},
    "bitwise_xor.accumulate": lambda xp, t: xp.bitwise_xor.accumulate(t(K)),
    "divide.accumulate long": lambda xp, t: xp.divide.accumulate(t(LONG)),
    **{f"{name}.outer": lambda xp, t, name=name: getattr(xp, name).outer(t(LONG[:3]), t(A[:2] + 6))
       for name in ("add", "subtract", "multiply", "hypot", "equal", "less", "power", "arctan2")},
    "add.at": lambda xp, t: changed(xp, t(np.zeros(4)), ("add", ([0, 0, 1], 1.0))),
    "subtract.at": lambda xp, t: changed(xp, t(np.zeros(4)), ("subtract", (t([0, 0, 1]), t([1.0, 2.0, 3.0])))),
    "multiply.at": lambda xp, t: changed(xp, t(np.ones(4)), ("multiply", ([0, 0, 1], 2.0))),
    "maximum.at": lambda xp, t: changed(xp, t(np.ones(4)), ("maximum", ([0, 0, 1], [3.0, 2.0, 0.5]))),
    "power.at": lambda xp, t: changed(xp, t(np.full(4, 2.0)), ("power", ([0, 0, 1], 2.0))),
    "negative.at": lambda xp, t: changed(xp, t(np.ones(4)), ("negative", ([0, 2],))),
    "add.at pairs": lambda xp, t: changed(xp, t(np.zeros((3, 3))), ("add", (([0, 0, 2], [1, 1, 2]), 5.0))),
    "add.reduceat": lambda xp, t: xp.add.reduceat(t(LONG), [0, 4, 1, 5]),
    "maximum.reduceat": lambda xp, t: xp.maximum.reduceat(t(A), t([0, 2]), axis=1),
    "nin": lambda xp, t: (xp.add.nin, xp.sin.nin, xp.add.nout),
    "out by place": lambda xp, t: (lambda z: (xp.add(t(A), t(A), z), z))(t(np.zeros_like(A))),
    "out by place of one": lambda xp, t: (lambda z: (xp.sqrt(t(A + 6), z), z))(t(np.zeros_like(A))),
    "uint8 below 300": lambda xp, t: t(np.array([1, 255], np.uint8)) < 300,
    "uint8 and -1": lambda xp, t: (t(np.array([1, 255], np.uint8)) == -1, t(np.array([0], np.uint8)) > -1),
    "int32 and 2**40": lambda xp, t: (xp.less_equal(t(np.array([7], "i4")), 2**40), t(np.array([7], "i4")) != 2**40),
    "bool of one": lambda xp, t: (bool(t(np.array([True]))), bool(t(np.array([[0.0]])))),
    "bool sums": lambda xp, t: (t(B) + t(B), t(B) * t(B), t(B) * 2.5, t(B) < t(~B), xp.sort(t(B[0])), xp.max(t(B))),
    "truth of numbers": lambda xp, t: (xp.logical_and(t(A), 2.5), xp.logical_not(t(K)), xp.logical_xor(3, t(K))),
    "ndindex": lambda xp, t: list(xp.ndindex(2, 2)), "ndenumerate": lambda xp, t: list(xp.ndenumerate(t(A[:2]))),
    "binary_repr": lambda xp, t: (xp.binary_repr(5), xp.binary_repr(-3, width=5), xp.base_repr(255, 16)),
    "poly1d": lambda xp, t: (lambda p: (p(t(LONG)), p.deriv()(2.0), (p * p).c, (p + 1).order, p[1], p.r))(
        xp.poly1d([1.0, 2.0, -3.0])), "poly1d of polyfit": lambda xp, t: xp.poly1d(xp.polyfit(t(LONG), t(LONG * 2 + 1),
        1))(0.5), "polynomial": lambda xp, t: xp.polynomial.polynomial.polyval(t(LONG), [1.0, 2.0, 3.0]),
    "sliding_window_view": lambda xp, t: xp.lib.stride_tricks.sliding_window_view(t(A), (2, 3)),
    "sliding one axis": lambda xp, t: xp.lib.stride_tricks.sliding_window_view(t(A), 2, axis=1),
    "broadcast": lambda xp, t: (xp.broadcast(t(A[:, None]), t(A)).shape, xp.require(t(A)), xp.asfortranarray(t(A))),
    "finfo": lambda xp, t: (float(xp.finfo(np.float32).tiny), float(xp.finfo(np.float64).resolution)),
    "order of complex numbers": lambda xp, t: (t(A + 1j) > 2, t(A * 1j) <= 1j, xp.less(t(A + 1j), t(A + 2j))),
    "ranges and tuples in indices": lambda xp, t: (t(A)[[0, 2], range(2)], t(A)[:, (1, 2)], t(A)[range(2)]),
    "nditer": lambda xp, t: [float(one) for one in xp.nditer(t(A))],
}


def plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return value.numpy() if isinstance(value, mo.Tensor) else value


@pytest.mark.parametrize("name", CALLS)
def test_the_same_as_numpy(name: str) -> None:
    ours = plain(CALLS[name](mo, mo.asarray))
    theirs = plain(CALLS[name](np, np.asarray))
    pairs = list(zip(ours, theirs, strict=True)) if isinstance(theirs, list) else [(ours, theirs)]
    for own, numpys in pairs:
        if isinstance(numpys, str | list):
            assert own == numpys
            continue
        assert np.shape(own) == np.shape(numpys)
        np.testing.assert_allclose(own, numpys, rtol=1e-6, equal_nan=True)


DRAWS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "normal": (lambda r: r.normal(0, 1, 3), (3,)), "normal size": (lambda r: r.normal(size=(2, 3)), (2, 3)),
    "normal one": (lambda r: r.normal(), ()), "normal words": (lambda r: r.normal(loc=1.0, scale=0.5, size=4), (4,)),
    "uniform": (lambda r: r.uniform(-1, 1, size=(2, 2)), (2, 2)), "uniform one": (lambda r: r.uniform(), ()),
    "randint": (lambda r: r.randint(0, 10, 5), (5,)), "randint one": (lambda r: r.randint(10), ()),
    "randint size": (lambda r: r.randint(5, size=(2, 3)), (2, 3)), "choice": (lambda r: r.choice([1, 2, 3], 2), (2,)),
    "choice of count": (lambda r: r.choice(10, size=3, replace=False), (3,)),
    "choice with p": (lambda r: r.choice([1.0, 2.0], size=5, p=[0.3, 0.7]), (5,)),
    "permutation": (lambda r: r.permutation(5), (5,)), "exponential": (lambda r: r.exponential(2.0, 4), (4,)),
    "poisson": (lambda r: r.poisson(5, 10), (10,)), "binomial": (lambda r: r.binomial(10, 0.5, 4), (4,)),
    "beta": (lambda r: r.beta(2.0, 3.0, 4), (4,)), "gamma": (lambda r: r.gamma(2.0, 1.0, 4), (4,)),
    "lognormal": (lambda r: r.lognormal(0.0, 1.0, 4), (4,)),
    "dirichlet": (lambda r: r.dirichlet([1.0, 2.0], 4), (4, 2)),
    "multivariate_normal": (lambda r: r.multivariate_normal([0, 0], [[1, 0], [0, 1]], 5), (5, 2)),
    "laplace": (lambda r: r.laplace(0, 1, 5), (5,)), "geometric": (lambda r: r.geometric(0.5, 5), (5,)),
    "triangular": (lambda r: r.triangular(0, 1, 2, 5), (5,)), "weibull": (lambda r: r.weibull(2.0, 5), (5,)),
    "chisquare": (lambda r: r.chisquare(2, 5), (5,)), "standard_t": (lambda r: r.standard_t(3, 5), (5,)),
    "logistic": (lambda r: r.logistic(0, 1, 5), (5,)), "gumbel": (lambda r: r.gumbel(0, 1, 5), (5,)),
    "multinomial": (lambda r: r.multinomial(10, [0.2, 0.8]), (2,)), "pareto": (lambda r: r.pareto(3.0, 5), (5,)),
    "random_sample": (lambda r: r.random_sample(3), (3,)), "rayleigh": (lambda r: r.rayleigh(2.0, 3), (3,)),
    "RandomState": (lambda r: r.RandomState(3).rand(2), (2,)), "RandomState ints": (lambda r: r.RandomState(3).randint(
        0, 5, 4), (4,)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_without_a_key_are_one_stream(name: str) -> None:
    draw, shape = DRAWS[name]
    mo.random.seed(4)
    first = draw(mo.random)
    mo.manual_seed(4)
    again = draw(mo.random)
    assert first.shape == np.shape(draw(np.random)) == shape and first.tolist() == again.tolist()
    assert name.startswith("RandomState") or first.dtype is not mo.float64


def test_a_state_of_draws_is_taken_up_again() -> None:
    mo.manual_seed(1)
    state = mo.random.get_state()
    first = mo.random.normal(0.0, 2.0, 4).tolist()
    mo.random.set_state(state)
    assert mo.random.normal(0.0, 2.0, 4).tolist() == first


def test_what_is_nobodys_call_stays_refused() -> None:
    with pytest.raises(mo.errors.ArgumentError, match="missing a required argument: 'key'"):
        mo.random.normal(shape=(3,))
    with pytest.raises(mo.errors.ArgumentError, match="exp\\(\\) takes 1 positional argument but 3 were given"):
        mo.exp(mo.ones(2), 1, 2)
    with pytest.raises(mo.errors.ShapeError, match="no elements, and no value for none"):
        mo.subtract.reduce(mo.zeros(0))
    with pytest.raises(mo.errors.DTypeError, match="300 is out of range for uint8"):
        mo.asarray([1], dtype=mo.uint8) + 300
    with pytest.raises(mo.errors.ArgumentError, match="only a tensor of one element"):
        bool(mo.ones(2))
    with pytest.raises(mo.errors.ArgumentError, match="not written through an iterator"):
        mo.nditer(mo.ones(2), op_flags=["readwrite"])


def test_complex_numbers_of_functions() -> None:
    z = np.array([1 + 1j, -2 + 0.5j])
    np.testing.assert_allclose(mo.sigmoid(mo.asarray(z)).numpy(), 1 / (1 + np.exp(-z)))
    np.testing.assert_allclose(mo.silu(mo.asarray(z)).numpy(), z / (1 + np.exp(-z)))
    np.testing.assert_allclose(mo.logsumexp(mo.asarray(z), axis=0).numpy(), np.log(np.exp(z).sum()))
    assert mo.logsumexp(mo.asarray([[1000 + 1j, 1000.0]]), axis=1, keepdims=True).shape == (1, 1)


PAGE = Path(__file__).parents[2] / "docs" / "howto" / "from_numpy.md"


def test_the_page_lists_every_name_that_is_absent_or_differs() -> None:
    names = {name for group in ABSENT.values() for name in group.split()}
    parts = [name for name in dir(np) if not name.startswith("_")]
    absent = {name for name in parts if not name.endswith("_") and not hasattr(mo, name)}
    assert absent <= names and not {name for name in names if hasattr(mo, name)}
    methods = {name for name in dir(np.ndarray) if not name.startswith("_") and not hasattr(mo.ones((2, 2)), name)}
    differing = {name for name in NOTES if ALIASES[name].owner == "numpy"}
    text = PAGE.read_text(encoding="utf-8")
    assert not [name for name in names | methods | differing if f"`{name}`" not in text]


def test_assertions_take_tensors_anywhere() -> None:
    mo.testing.assert_equal({"a": [mo.arange(3)]}, {"a": [np.arange(3)]})
    mo.testing.assert_allclose(mo.ones(3), [1, 1, 1], rtol=1e-6)
    with pytest.raises(AssertionError):
        mo.testing.assert_array_equal(mo.ones(3), [1, 1, 2])
