"""Semirings by name: how values join along a derivation (times) and over derivations of the same tuple (plus).

`boolean` has no values at all: a tuple is there or not. `goedel` is (max, min) within [0, 1]; `product` and
`lukasiewicz` are fuzzy logics whose `or` does not distribute over their `and`, so that they run round by round and
not semi-naively. `ltn` is `product` with means of order 2 in place of `exists`: it needs the whole domain, and so
dense relations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from morpho.base.errors import ArgumentError, fail

Array = NDArray[Any]


@dataclass(frozen=True)
class Semiring:
    """`plus` and `times` with their neutral elements.

    >>> mo.logic.semiring("min_plus").times(2.0, 3.0)
    np.float64(5.0)

    name: what it is called
    plus: of the values of two derivations of a tuple
    times: of the values along one derivation
    zero: what plus ignores: the value of a tuple that is not there
    one: what times ignores: the value of a fact without a weight
    idempotent: whether a plus a is a: a tuple that did not get better need not be looked at again
    distributive: whether times distributes over plus: tuples may be added up as soon as nothing else is asked of them
    unit: whether values are within [0, 1], where negation is 1 - value; elsewhere it asks whether a tuple is there
    crisp: whether there are no values
    """

    name: str
    plus: Callable[[Any, Any], Any]
    times: Callable[[Any, Any], Any]
    zero: float
    one: float
    idempotent: bool = True
    distributive: bool = True
    unit: bool = False
    crisp: bool = False

    def plus_all(self, values: Array, starts: NDArray[np.int64]) -> Array:
        """`plus` over the runs that begin at `starts`."""
        if not len(starts):
            return values[:0]
        if isinstance(self.plus, np.ufunc):
            with np.errstate(over="ignore"):  # a sum without end becomes infinite, and is told
                return np.asarray(self.plus.reduceat(values, starts))
        if self.name in ("product", "ltn"):
            return 1.0 - np.multiply.reduceat(1.0 - values, starts)
        assert self.name == "lukasiewicz"
        return np.minimum(1.0, np.add.reduceat(values, starts))


def _probabilistic_sum(a: Any, b: Any) -> Any:
    return a + b - a * b


SEMIRINGS = {one.name: one for one in (
    Semiring("boolean", np.logical_or, np.logical_and, 0.0, 1.0, unit=True, crisp=True),
    Semiring("plus_times", np.add, np.multiply, 0.0, 1.0, idempotent=False),
    Semiring("max_times", np.maximum, np.multiply, 0.0, 1.0, unit=True),
    Semiring("max_min", np.maximum, np.minimum, -np.inf, np.inf),
    Semiring("min_plus", np.minimum, np.add, np.inf, 0.0),
    Semiring("or_and", np.logical_or, np.logical_and, 0.0, 1.0, unit=True, crisp=True),
    Semiring("log_sum_exp", np.logaddexp, np.add, -np.inf, 0.0, idempotent=False),
    Semiring("goedel", np.maximum, np.minimum, 0.0, 1.0, unit=True),
    Semiring("product", _probabilistic_sum, np.multiply, 0.0, 1.0, idempotent=False, distributive=False, unit=True),
    Semiring("lukasiewicz", lambda a, b: np.minimum(1.0, a + b), lambda a, b: np.maximum(0.0, a + b - 1.0), 0.0, 1.0,
             idempotent=False, distributive=False, unit=True),
    Semiring("ltn", _probabilistic_sum, np.multiply, 0.0, 1.0, idempotent=False, distributive=False, unit=True),
)}
ALIASES = {"(+,x)": "plus_times", "(+,*)": "plus_times", "(max,x)": "max_times", "(max,*)": "max_times",
           "(max,min)": "max_min", "(min,+)": "min_plus", "(or,and)": "or_and", "logsumexp": "log_sum_exp",
           "gödel": "goedel", "godel": "goedel", "łukasiewicz": "lukasiewicz", "viterbi": "max_times",
           "tropical": "min_plus", "bool": "boolean"}


def semiring(name: str | Semiring) -> Semiring:
    """A semiring by its name, or by its pair of operations.

    >>> mo.logic.semiring("(max, min)").name
    'max_min'
    """
    if isinstance(name, Semiring):
        return name
    plain = str(name).lower().replace(" ", "").replace("×", "x").replace("-", "_")
    found = SEMIRINGS.get(ALIASES.get(plain, plain))
    if found is None:
        raise fail(ArgumentError, "logic", f"semantics {name!r} is not known here", "those of derivations are " +
                   ", ".join(SEMIRINGS))
    return found
