"""Logics of truth values by name: connectives and quantifiers over tensors.

Every connective is exact on 0 and 1, stays within [0, 1], and is monotone where logic is (property tests);
quantifiers of `ltn` are means of order p, so that they say how many, and are exact where all agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Logic:
    """Connectives and quantifiers of a logic.

    >>> logic = mo.logic.logic("product")
    >>> float(logic.both(mo.asarray(0.5), mo.asarray(0.5))), float(logic.either(mo.asarray(0.5), mo.asarray(0.5)))
    (0.25, 0.75)

    name: what it is called
    both: and
    either: or
    implies: its residuum, or what the literature uses with it
    exists: `or` over axes of a tensor
    forall: `and` over axes of a tensor
    """

    name: str
    both: Callable[[Any, Any], Any]
    either: Callable[[Any, Any], Any]
    implies: Callable[[Any, Any], Any]
    exists: Callable[[Any, Axes], Any]
    forall: Callable[[Any, Axes], Any]

    def negate(self, a: Any) -> Any:
        """Not: 1 - a, in all of these logics."""
        return 1 - a

    def iff(self, a: Any, b: Any) -> Any:
        """Both imply each other."""
        return self.both(self.implies(a, b), self.implies(b, a))

    def if_then_else(self, test: Any, yes: Any, no: Any) -> Any:
        """(test and yes) or (not test and no)."""
        return self.either(self.both(test, yes), self.both(self.negate(test), no))

    def at_least(self, number: int, x: Any, axes: Axes) -> Any:
        """The truth of the number-th truest: how true it is that so many are."""
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        flat = mo.permute_dims(x, (*kept, *axes)).reshape((*(x.shape[axis] for axis in kept), -1))
        if number <= 0:
            return mo.ones(flat.shape[:-1], dtype=x.dtype)
        if number > flat.shape[-1]:
            return mo.zeros(flat.shape[:-1], dtype=x.dtype)
        return mo.sort(flat, axis=-1, descending=True)[..., number - 1]


def _safe_divided(b: Any, a: Any) -> Any:
    return mo.where(a <= b, mo.ones_like(a), b / mo.where(a > 0, a, mo.ones_like(a)))


def _clipped(x: Any) -> Any:
    return mo.clip(x, 0, 1)


def _power_mean(x: Any, axes: Axes, p: float) -> Any:
    mean = mo.mean(x**p, axis=axes)
    some = mean > 0
    return mo.where(some, mo.where(some, mean, mo.ones_like(mean)) ** (1 / p), mo.zeros_like(mean))


def _lukasiewicz_forall(x: Any, axes: Axes) -> Any:
    return mo.maximum(1 - mo.sum(1 - x, axis=axes), mo.asarray(0, dtype=x.dtype))


def _ltn(p: float) -> Logic:
    return Logic("ltn", mo.multiply, lambda a, b: _clipped(a + b - a * b), lambda a, b: _clipped(1 - a + a * b),
                 lambda x, axes: _clipped(_power_mean(x, axes, p)),
                 lambda x, axes: _clipped(1 - _power_mean(1 - x, axes, p)))


LOGICS = {one.name: one for one in (
    Logic("boolean", mo.minimum, mo.maximum, lambda a, b: mo.maximum(1 - a, b),
          lambda x, axes: mo.max(x, axis=axes), lambda x, axes: mo.min(x, axis=axes)),
    Logic("goedel", mo.minimum, mo.maximum, lambda a, b: mo.where(a <= b, mo.ones_like(a * b), b * mo.ones_like(a)),
          lambda x, axes: mo.max(x, axis=axes), lambda x, axes: mo.min(x, axis=axes)),
    Logic("product", mo.multiply, lambda a, b: _clipped(a + b - a * b),
          lambda a, b: _safe_divided(b + 0 * a, a + 0 * b),
          lambda x, axes: 1 - mo.prod(1 - x, axis=axes), lambda x, axes: mo.prod(x, axis=axes)),
    Logic("lukasiewicz", lambda a, b: mo.maximum(a + b - 1, 0 * a), lambda a, b: mo.minimum(a + b, 1 + 0 * a),
          lambda a, b: mo.minimum(1 - a + b, 1 + 0 * a),
          lambda x, axes: mo.minimum(mo.sum(x, axis=axes), mo.asarray(1, dtype=x.dtype)), _lukasiewicz_forall),
    _ltn(2.0),
)}


def logic(name: str | Logic, p: float = 2.0) -> Logic:
    """A logic by its name: boolean, goedel, product, lukasiewicz, or ltn with its order p.

    >>> mo.logic.logic("Łukasiewicz").name
    'lukasiewicz'
    """
    if isinstance(name, Logic):
        return name
    plain = str(name).lower().replace("ł", "l").replace("ö", "oe")
    plain = {"godel": "goedel", "bool": "boolean"}.get(plain, plain)
    if plain not in LOGICS:
        raise fail(ArgumentError, "logic", f"logic {name!r} is not known", f"those are {', '.join(LOGICS)}")
    if p < 1:
        raise fail(ArgumentError, "logic", f"p={p} is less than 1, and a mean of that order is not monotone")
    return _ltn(p) if plain == "ltn" else LOGICS[plain]
