"""Random numbers have the distributions they say: Kolmogorov and Smirnov's distance for continuous ones, chi-square for
counts, with fixed keys and generous bounds; shapes, keys, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, ValueFault

N = 40_000
KEY = mo.random.key(2024)


def below(function: Callable[..., Any], *arguments: Any) -> np.ndarray:
    return function(*[mo.asarray(np.asarray(a, np.float64)) for a in arguments]).numpy()


def normal_below(x: np.ndarray) -> np.ndarray:
    return below(mo.special.ndtr, x)


def t_below(x: np.ndarray, df: float) -> np.ndarray:
    tail = 0.5 * below(mo.special.betainc, np.full_like(x, df / 2), np.full_like(x, 0.5), df / (df + x * x))
    return np.where(x > 0, 1 - tail, tail)


CONTINUOUS: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "uniform": (lambda k: mo.random.uniform(k, (N,)), lambda x: x),
    "normal": (lambda k: mo.random.normal(k, (N,), mean=2.0, std=3.0), lambda x: normal_below((x - 2) / 3)),
    "exponential": (lambda k: mo.random.exponential(k, (N,), rate=2.0), lambda x: -np.expm1(-2 * x)),
    "laplace": (lambda k: mo.random.laplace(k, (N,), loc=1.0),
                lambda x: np.where(x < 1, np.exp(x - 1) / 2, 1 - np.exp(1 - x) / 2)),
    "cauchy": (lambda k: mo.random.cauchy(k, (N,), scale=2.0), lambda x: 0.5 + np.arctan(x / 2) / math.pi),
    "gumbel": (lambda k: mo.random.gumbel(k, (N,)), lambda x: np.exp(-np.exp(-x))),
    "logistic": (lambda k: mo.random.logistic(k, (N,)), lambda x: 1 / (1 + np.exp(-x))),
    "lognormal": (lambda k: mo.random.lognormal(k, (N,)), lambda x: normal_below(np.log(x))),
    "weibull": (lambda k: mo.random.weibull(k, (N,), concentration=1.5), lambda x: -np.expm1(-x**1.5)),
    "pareto": (lambda k: mo.random.pareto(k, (N,), concentration=3.0, scale=2.0), lambda x: 1 - (2 / x) ** 3),
    "truncated": (lambda k: mo.random.truncated_normal(k, -0.5, 2.0, (N,)),
                  lambda x: (normal_below(x) - normal_below(np.array(-0.5)))
                  / (normal_below(np.array(2.0)) - normal_below(np.array(-0.5)))),
    "tail": (lambda k: mo.random.truncated_normal(k, 8.0, 12.0, (N,), dtype="float64"),
             lambda x: 1 - normal_below(-x) / normal_below(np.array(-8.0))),
    "gamma": (lambda k: mo.random.gamma(k, 2.5, (N,), rate=2.0),
              lambda x: below(mo.special.gammainc, np.full_like(x, 2.5), 2 * x)),
    "gamma below 1": (lambda k: mo.random.gamma(k, 0.3, (N,), dtype="float64"),
                      lambda x: below(mo.special.gammainc, np.full_like(x, 0.3), x)),
    "chisquare": (lambda k: mo.random.chisquare(k, 3.0, (N,)),
                  lambda x: below(mo.special.gammainc, np.full_like(x, 1.5), x / 2)),
    "student_t": (lambda k: mo.random.student_t(k, 4.0, (N,)), lambda x: t_below(x, 4.0)),
    "beta": (lambda k: mo.random.beta(k, 0.5, 2.0, (N,), dtype="float64"),
             lambda x: below(mo.special.betainc, np.full_like(x, 0.5), np.full_like(x, 2.0), x)),
    "dirichlet": (lambda k: mo.random.dirichlet(k, [1.0, 2.0, 3.0], (N,))[:, 1],
                  lambda x: below(mo.special.betainc, np.full_like(x, 2.0), np.full_like(x, 4.0), x)),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str) -> None:
    draw, cdf = CONTINUOUS[name]
    x = np.sort(draw(KEY).numpy().astype(np.float64))
    assert x.shape == (N,) and np.isfinite(x).all()
    shares = cdf(x)
    steps = np.arange(N + 1) / N
    distance = max(np.max(steps[1:] - shares), np.max(shares - steps[:-1]))
    assert distance < 2.2 / math.sqrt(N)  # of draws that are right one in 10,000 is above


def binomial_shares(n: int, p: float) -> np.ndarray:
    k = np.arange(n + 1)
    logs = np.array([math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in k])
    return np.exp(logs + k * math.log(p) + (n - k) * math.log1p(-p))


def poisson_shares(mean: float) -> np.ndarray:
    k = np.arange(int(mean + 12 * math.sqrt(mean) + 20))
    return np.exp(k * math.log(mean) - mean - np.array([math.lgamma(i + 1) for i in k]))


COUNTS: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "poisson few": (lambda k: mo.random.poisson(k, 2.5, (N,)), poisson_shares(2.5)),
    "poisson many": (lambda k: mo.random.poisson(k, 40.0, (N,)), poisson_shares(40.0)),
    "binomial few": (lambda k: mo.random.binomial(k, 12, 0.3, (N,)), binomial_shares(12, 0.3)),
    "binomial many": (lambda k: mo.random.binomial(k, 200, 0.4, (N,)), binomial_shares(200, 0.4)),
    "binomial turned": (lambda k: mo.random.binomial(k, 100, 0.85, (N,)), binomial_shares(100, 0.85)),
    "geometric": (lambda k: mo.random.geometric(k, 0.4, (N,)), np.array([0.0, *[0.4 * 0.6**i for i in range(60)]])),
    "categorical": (lambda k: mo.random.categorical(k, np.log(np.array([0.1, 0.2, 0.3, 0.4])), shape=(N,)),
                    np.array([0.1, 0.2, 0.3, 0.4])),
    "choice": (lambda k: mo.random.choice(k, 4, (N,), p=[0.1, 0.0, 0.5, 0.4]), np.array([0.1, 0.0, 0.5, 0.4])),
    "choice even": (lambda k: mo.random.choice(k, 5, (N,)), np.full(5, 0.2)),
    "randint": (lambda k: mo.random.randint(k, (N,), 0, 7), np.full(7, 1 / 7)),
    "multinomial": (lambda k: mo.random.multinomial(k, 12, [0.3, 0.7], (N,))[:, 0], binomial_shares(12, 0.3)),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str) -> None:
    draw, shares = COUNTS[name]
    x = draw(KEY).numpy()
    assert x.min() >= 0 and x.max() < len(shares)
    found, wanted = np.bincount(x, minlength=len(shares)), shares / shares.sum() * x.size
    many = wanted >= 8
    pairs = [*zip(found[many], wanted[many], strict=True), (found[~many].sum(), wanted[~many].sum())]
    chi = sum((f - w) ** 2 / w for f, w in pairs if w > 0)
    free = sum(w > 0 for _, w in pairs) - 1
    assert found[shares == 0].sum() == 0
    assert chi < free + 4.5 * math.sqrt(2 * max(free, 1)) + 8


def test_without_putting_back() -> None:
    keys = mo.random.split(KEY, 12)
    picks = np.array([mo.random.choice(key, 3, (2,), replace=False,
                                       p=[0.2, 0.3, 0.5]).numpy() for key in mo.unstack(keys)])
    assert (picks[:, 0] != picks[:, 1]).all()
    assert sorted(mo.random.choice(KEY, mo.asarray([5, 6, 7]), (3,), replace=False).tolist()) == [5, 6, 7]
    assert mo.random.choice(KEY, mo.ones((2, 5)), (3,), axis=1).shape == (2, 3)


def test_moments_of_vectors() -> None:
    cov = np.array([[2.0, 0.6], [0.6, 1.0]])
    x = mo.random.multivariate_normal(KEY, [1.0, -1.0], cov, (N,)).numpy()
    assert np.abs(np.cov(x.T) - cov).max() < 0.05 and np.abs(x.mean(0) - [1, -1]).max() < 0.05
    shares = mo.random.dirichlet(KEY, mo.asarray([0.01, 0.01]), (500,)).numpy()
    assert np.isfinite(shares).all() and np.allclose(shares.sum(1), 1)


def test_draws_follow_from_the_key_and_the_place() -> None:
    """A stack of keys draws what each draws alone; compiled or not; a longer draw begins with the shorter one."""
    keys = mo.random.split(KEY, 3)
    for draw in (lambda k: mo.random.gamma(k, 1.5, (8,)), lambda k: mo.random.poisson(k, 30.0, (8,)),
                 lambda k: mo.random.binomial(k, 50, 0.5, (8,)),
                 lambda k: mo.random.gumbel(k, (8,)), lambda k: mo.random.truncated_normal(k, -1.0, 1.0, (8,))):
        stacked = draw(keys).numpy()
        for row, key in zip(stacked, mo.unstack(keys), strict=True):
            np.testing.assert_array_equal(row, draw(key).numpy())
    np.testing.assert_array_equal(mo.random.gamma(KEY, 1.5, (100,)).numpy()[:8],
                                  mo.random.gamma(KEY, 1.5, (8,)).numpy())
    compiled = mo.compile(lambda k: mo.random.gamma(k, 1.5, (8,)), whole=True)
    np.testing.assert_array_equal(compiled(KEY).numpy(), mo.random.gamma(KEY, 1.5, (8,)).numpy())
    assert mo.random.fold_in(KEY, 1).tolist() != mo.random.fold_in(KEY, 2).tolist() != mo.random.split(KEY)[0].tolist()
    assert mo.random.fold_in(KEY, mo.asarray(3)).tolist() == mo.random.fold_in(KEY, 3).tolist()


@pytest.mark.parametrize(("lower", "upper"), [(-40.0, -39.0), (1000.0, 1000.001), (100.0, math.inf)])
def test_a_normal_tail_whose_share_is_no_float(lower: float, upper: float) -> None:
    """There it is nearly exponential: of rate a at the end a that is nearer to 0."""
    near, width = min(abs(lower), abs(upper)), upper - lower
    x = mo.random.truncated_normal(KEY, lower, upper, (4000,), dtype="float64").numpy()
    distance = np.sort(np.abs(x) - near)
    shares = -np.expm1(-distance * near - distance**2 / 2) / -np.expm1(-width * near - width**2 / 2)
    assert distance[0] >= 0 and np.abs(shares - np.arange(4000) / 4000).max() < 0.03
    both = mo.random.truncated_normal(KEY, mo.asarray([lower, -1.0]), mo.asarray([upper, 1.0]), (4000, 2)).numpy()
    assert abs(np.abs(both[:, 0]).mean() - np.abs(x).mean()) < 0.01 and abs(both[:, 1].mean()) < 0.05


def test_plain_numbers_are_not_rounded_to_float32() -> None:
    for draw in (lambda *p: mo.random.gamma(KEY, *p[:1], (5,), dtype="float64"),
                 lambda *p: mo.random.beta(KEY, *p, (5,), dtype="float64"),
                 lambda *p: mo.random.truncated_normal(KEY, *p, (5,), dtype="float64"),
                 lambda *p: mo.random.poisson(KEY, p[0] * 1e16, (5,))):
        given = draw(*[mo.asarray(v, dtype="float64") for v in (0.1, 0.2)])
        np.testing.assert_array_equal(draw(0.1, 0.2).numpy(), given.numpy())


def test_parameters_that_are_tensors() -> None:
    alpha = mo.asarray([0.5, 50.0, 1000.0])
    assert mo.random.gamma(KEY, alpha).shape == (3,) and mo.random.gamma(KEY, alpha, (4, 3)).shape == (4, 3)
    means = mo.random.poisson(KEY, mo.asarray([1.0, 100.0, 10000.0]), (2000, 3)).numpy().mean(0)
    np.testing.assert_allclose(means, [1, 100, 10000], rtol=0.1)
    assert mo.random.poisson(KEY, mo.asarray([-1.0, mo.nan])).tolist() == [0, 0]
    found = mo.random.binomial(KEY, mo.asarray([10, 1000]), mo.asarray([1.0, 0.0]))
    assert found.tolist() == [10, 0]
    assert mo.random.exponential(KEY, dtype="float16").dtype is mo.float16
    slope = mo.grad(lambda loc: mo.random.laplace(KEY, (5,), loc=loc).sum())(mo.asarray(0.5))
    assert slope.item() == 5.0


@pytest.mark.parametrize(("call", "error", "said"), [
    (lambda: mo.random.exponential(KEY, (2,), rate=0.0), ValueFault, "rate 0.0 is not positive"),
    (lambda: mo.random.gamma(KEY, -1.0), ValueFault, "alpha -1.0 is not positive"),
    (lambda: mo.random.poisson(KEY, -1.0), ValueFault, "lam -1.0"),
    (lambda: mo.random.binomial(KEY, 3, 1.5), ValueFault, "probability 1.5"),
    (lambda: mo.random.truncated_normal(KEY, 1.0, 0.0), ValueFault, "lower 1.0 is not below"),
    (lambda: mo.random.choice(KEY, 3, (4,), replace=False), ValueFault, "4 elements cannot be picked from 3"),
    (lambda: mo.random.choice(KEY, 3, (4,), p=[0.5, 0.5]), ShapeError, "one for each of 3"),
    (lambda: mo.random.choice(KEY, 2, p=[-0.5, 1.5]), ValueFault, "negative"),
    (lambda: mo.random.choice(KEY, 0), ValueFault, "nothing to pick"),
    (lambda: mo.random.categorical(KEY, [1, 2]), DTypeError, "not floats"),
    (lambda: mo.random.gamma(KEY, mo.ones(3), (2,)), ShapeError, r"\(3,\)"),
    (lambda: mo.random.geometric(KEY, 0.0), ValueFault, "probability 0.0"),
    (lambda: mo.random.multinomial(KEY, -1, [1.0]), ArgumentError, "-1 trials"),
    (lambda: mo.random.fold_in(KEY, 0.5), DTypeError, "not an integer"),
    (lambda: mo.random.dirichlet(KEY, 1.0), ShapeError, "no vector"),
    (lambda: mo.grad(lambda a: mo.random.gamma(KEY, a).sum())(mo.asarray([2.0])), ArgumentError,
     "no gradient with respect to alpha"),
    (lambda: mo.random.poisson(KEY, 1.0, dtype="bool"), DTypeError, "does not count"),
])
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call()


REFUSED: dict[str, tuple[Any, list[Any], list[Any]]] = {  # a function, what it refuses, what it takes
    "histogram": (mo.histogram, [[1.0, mo.nan, 2.0], [1.0, mo.inf]], [[1.0, 2.0]]),
    "histogram2d": (lambda x: mo.histogram2d(x, x, 2), [[1.0, mo.nan, 2.0]], [[1.0, 2.0]]),
    "histogram_bin_edges": (mo.histogram_bin_edges, [[mo.nan], [-mo.inf, 0.0]], [[1.0]]),
    "random.choice": (lambda p: mo.random.choice(KEY, 3, (4,), p=p),
                      [[0.1, 0.1, 0.1], [0.5, 0.5, 0.5], [0.6, 0.6, -0.2]],
                      [[0.3, 0.3, 0.4], [0.1, 0.2, 0.7]]),
    "random.multinomial": (lambda p: mo.random.multinomial(KEY, 5, p), [[0.2, 0.2], [mo.nan, 1.0]], [[0.1] * 10]),
    "random.categorical": (lambda x: mo.random.categorical(KEY, x, shape=(2,)), [[mo.nan, 1.0], [-mo.inf, -mo.inf]],
                           [[-mo.inf, 1.0], [0.0, mo.inf]]),
    "random.dirichlet": (lambda a: mo.random.dirichlet(KEY, a), [[0.0, 0.0], [1.0, -1.0], [mo.nan]], [[1.0, 2.0]]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_are_refused_when_they_are_known(name: str) -> None:
    """One sentence with the function's name, lazily, in a compiled function, and of what is no tensor."""
    function, refused, taken = REFUSED[name]
    compiled = mo.compile(function)

    def values(result: Any) -> list[Any]:
        return [one.numpy() for one in (result if isinstance(result, tuple) else (result,))]

    for value in refused:
        for call, given in ((function, mo.asarray(value)), (compiled, mo.asarray(value)), (function, value)):
            with pytest.raises(ValueFault, match=rf"\[{name}\]"):
                values(call(given))
    for value in taken:
        assert all(np.array_equal(*pair) for pair in zip(values(function(value)), values(compiled(mo.asarray(value)))))


def test_data_with_nan_has_bins_over_a_given_range() -> None:
    assert mo.histogram([1.0, mo.nan, 3.0], 2, range=(0, 4))[0].tolist() == [1, 1]
