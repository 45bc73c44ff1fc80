"""Distributions of counts: Poisson's and the binomial by Hoermann's transformed rejection (1993), or where the mean is
small by adding up probabilities; all in float64, until every element has been accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from morpho.base.dtypes import as_dtype, float64, int64
from morpho.base.errors import DTypeError, ValueFault, fail
from morpho.tensor.control.loops import while_loop
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import reduce, special
from morpho.tensor.functions.create import zeros
from morpho.tensor.functions.move import broadcast_to
from morpho.tensor.functions.random.gamma import FIRST_TURN
from morpho.tensor.functions.random.keys import fold_in, open_unit, parameter, shape_with, with_keys
from morpho.tensor.operands import as_node
from morpho.tensor.scalars import is_scalar

SMALL = 10.0  # mean from which rejection is used


def _wide(name: str, key: Any, value: Any, sizes: Any) -> Tensor:
    return broadcast_to(parameter(name, value, float64), with_keys(name, key, sizes))


def _count_dtype(name: str, dtype: Any) -> Any:
    target = as_dtype(dtype)
    if not (target.is_integer or target.is_float):
        raise fail(DTypeError, name, f"dtype {target} does not count", "use an integer or floating dtype")
    return target


def _rejected(name: str, key: Any, sizes: Any, ready: Tensor, propose: Callable[..., tuple[Tensor, Tensor]]) -> Tensor:
    """Turns of two uniform numbers each until every element has one that was accepted, or needs none."""

    def turn(state: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        number, found, done = state
        here = fold_in(key, number)
        u, v = (open_unit(name, fold_in(here, part), sizes, float64, 0) for part in (0, 1))
        value, fits = propose(u - 0.5, v)
        taken = ew.logical_and(fits, ew.logical_not(done))
        return number + 1, ew.where(taken, value, found), ew.logical_or(done, taken)

    first = (Tensor.of_node(as_node(FIRST_TURN, name)), zeros(ready.shape, dtype=float64), ready)
    return while_loop(lambda state: ew.logical_not(reduce.all(state[2])), turn, first)[1]  # type: ignore[no-any-return]


def _added_up(key: Any, name: str, sizes: Any, ready: Tensor, first: Tensor, ratio: Callable[[Tensor], Tensor],
              most: Any) -> Tensor:
    """The count at which probabilities, each `ratio(k)` times the one before, add up to more than a uniform number."""
    u = open_unit(name, fold_in(key, 0), sizes, float64, 0)

    def turn(state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        count, share, total, done = state
        done = ew.logical_or(done, ew.logical_or(ew.less(u, total), ew.greater_equal(count, most)))
        after = ew.where(done, count, count + 1)
        share = ew.where(done, share, share * ratio(after))
        return after, share, ew.where(done, total, total + share), done

    start = (zeros(ready.shape, dtype=float64), first, first, ready)
    return while_loop(lambda state: ew.logical_not(reduce.all(state[3])), turn, start)[0]  # type: ignore[no-any-return]


def poisson(key: Any, lam: Any, shape: Any = None, *, dtype: Any = int64) -> Tensor:
    """Counts of Poisson's distribution of mean `lam`; 0 where that is negative or NaN.

    >>> mo.random.poisson(mo.random.key(0), 4.0, (3,)).dtype
    int64
    """
    name = "random.poisson"
    target = _count_dtype(name, dtype)
    if is_scalar(lam) and not 0 <= lam < 1e18:
        raise fail(ValueFault, name, f"lam {lam} is not a mean of 0..1e18")
    sizes = shape_with(name, shape, lam)
    mean = _wide(name, key, lam, sizes)
    valid = ew.logical_and(ew.greater_equal(mean, 0), ew.less(mean, 1e18))
    mean = ew.where(valid, mean, 0.0)
    few = ew.less(mean, SMALL)
    low = ew.where(few, mean, 1.0)
    small = _added_up(key, name, sizes, ew.logical_not(few), ew.exp(ew.negative(low)), lambda k: low / k, 1000.0)
    high = ew.where(few, SMALL, mean)
    b = 0.931 + 2.53 * ew.sqrt(high)
    a = -0.059 + 0.02483 * b
    inverse_alpha, accepted = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)

    def propose(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        room = 0.5 - ew.abs(u)
        k = ew.floor((2 * a / room + b) * u + high + 0.43)
        quick = ew.logical_and(ew.greater_equal(room, 0.07), ew.less_equal(v, accepted))
        outside = ew.logical_or(ew.less(k, 0), ew.logical_and(ew.less(room, 0.013), ew.greater(v, room)))
        count = ew.maximum(k, 0)
        bound = count * ew.log(high) - high - special.lgamma(count + 1)
        fits = ew.less_equal(ew.log(v * inverse_alpha / (a / (room * room) + b)), bound)
        return k, ew.logical_or(quick, ew.logical_and(ew.logical_not(outside), fits))

    large = _rejected(name, key, sizes, few, propose)
    return ew.astype(ew.where(few, small, large), target)


def binomial(key: Any, n: Any, p: Any, shape: Any = None, *, dtype: Any = int64) -> Tensor:
    """How many of n trials succeed, each with probability p; 0 where they are no counts and probabilities.

    >>> mo.random.binomial(mo.random.key(0), 10, 0.5, (3,)).dtype
    int64
    """
    name = "random.binomial"
    target = _count_dtype(name, dtype)
    if is_scalar(p) and not 0 <= p <= 1:
        raise fail(ValueFault, name, f"the probability {p} is not between 0 and 1")
    if is_scalar(n) and not 0 <= n < 1e15:
        raise fail(ValueFault, name, f"n {n} is not a count of 0..1e15")
    sizes = shape_with(name, shape, n, p)
    trials, chance = ew.floor(_wide(name, key, n, sizes)), _wide(name, key, p, sizes)
    valid = ew.logical_and(ew.greater_equal(trials, 0), ew.logical_and(ew.greater_equal(chance, 0),
                                                                       ew.less_equal(chance, 1)))
    trials, chance = ew.where(valid, trials, 0.0), ew.where(valid, chance, 0.0)
    turned = ew.greater(chance, 0.5)
    share = ew.where(turned, 1 - chance, chance)
    few = ew.less(trials * share, SMALL)
    small = _few_successes(name, key, sizes, few, trials, share)
    large = _many_successes(name, key, sizes, few, ew.where(few, 100.0, trials), ew.where(few, 0.5, share))
    found = ew.where(few, small, large)
    return ew.astype(ew.where(turned, trials - found, found), target)


def _few_successes(name: str, key: Any, sizes: Any, few: Tensor, n: Tensor, p: Tensor) -> Tensor:
    low = ew.where(few, p, 0.0)
    odds = low / (1 - low)
    first = ew.exp(n * ew.log1p(ew.negative(low)))
    return _added_up(key, name, sizes, ew.logical_not(few), first, lambda k: odds * (n - k + 1) / k, n)


def _many_successes(name: str, key: Any, sizes: Any, few: Tensor, n: Tensor, p: Tensor) -> Tensor:
    spread = ew.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha, accepted = (2.83 + 5.1 / b) * spread, 0.92 - 4.2 / b
    mode = ew.floor((n + 1) * p)
    at_mode = special.lgamma(mode + 1) + special.lgamma(n - mode + 1)
    odds = ew.log(p) - ew.log1p(ew.negative(p))

    def propose(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        room = 0.5 - ew.abs(u)
        k = ew.floor((2 * a / room + b) * u + n * p + 0.5)
        quick = ew.logical_and(ew.greater_equal(room, 0.07), ew.less_equal(v, accepted))
        inside = ew.logical_and(ew.greater_equal(k, 0), ew.less_equal(k, n))
        count = ew.minimum(ew.maximum(k, 0), n)
        bound = at_mode - special.lgamma(count + 1) - special.lgamma(n - count + 1) + (count - mode) * odds
        fits = ew.less_equal(ew.log(v * alpha / (a / (room * room) + b)), bound)
        return k, ew.logical_or(quick, ew.logical_and(inside, fits))

    return _rejected(name, key, sizes, few, propose)


def geometric(key: Any, p: Any, shape: Any = None, *, dtype: Any = int64) -> Tensor:
    """How many trials it takes to the first success, each with probability p.

    >>> mo.random.geometric(mo.random.key(0), 0.5, (3,)).dtype
    int64
    """
    name = "random.geometric"
    target = _count_dtype(name, dtype)
    if is_scalar(p) and not 0 < p <= 1:
        raise fail(ValueFault, name, f"the probability {p} is not above 0 and up to 1")
    sizes = shape_with(name, shape, p)
    chance = _wide(name, key, p, sizes)
    u = open_unit(name, key, sizes, float64, 0)
    found = ew.floor(ew.log(u) / ew.log1p(ew.negative(ew.minimum(chance, 1.0)))) + 1
    return ew.astype(ew.where(ew.greater_equal(chance, 1), 1.0, found), target)
