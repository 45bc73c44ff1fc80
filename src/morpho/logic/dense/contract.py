"""Contraction over a semiring: the body of a rule as one product over all of its variables, without that product.

(+, x) and (or, and) are einsum: pairs in its planned order, each one matrix product. The other semirings join pairs in
the same order, each as one kernel that combines and reduces in registers: no intermediate has the summed variable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.logic.semantics.semirings import Semiring
from morpho.logic.semantics.truth_values import LOGICS

Labels = tuple[int, ...]


@dataclass(frozen=True)
class TensorSemiring:
    """A semiring over tensors: `reduce` is plus along axes."""

    ring: Semiring
    plus: Callable[[Any, Any], Any]
    times: Callable[[Any, Any], Any]
    reduce: Callable[[Any, Labels], Any]
    einsum: bool = False


def _product_or(x: Any, axes: Labels) -> Any:
    return 1 - mo.prod(1 - x, axis=axes)


_TABLE: dict[str, tuple[Any, Any, Any, bool]] = {
    "boolean": (mo.logical_or, mo.logical_and, lambda x, axes: mo.any(x, axis=axes), True),
    "plus_times": (mo.add, mo.multiply, lambda x, axes: mo.sum(x, axis=axes), True),
    "max_times": (mo.maximum, mo.multiply, lambda x, axes: mo.max(x, axis=axes), False),
    "max_min": (mo.maximum, mo.minimum, lambda x, axes: mo.max(x, axis=axes), False),
    "min_plus": (mo.minimum, mo.add, lambda x, axes: mo.min(x, axis=axes), False),
    "log_sum_exp": (mo.logaddexp, mo.add, lambda x, axes: mo.logsumexp(x, axis=axes), False),
    "product": (lambda a, b: a + b - a * b, mo.multiply, _product_or, False),
    "lukasiewicz": (lambda a, b: mo.minimum(a + b, mo.ones_like(a)), lambda a, b: mo.maximum(a + b - 1, 0 * a),
                    lambda x, axes: mo.minimum(mo.sum(x, axis=axes), mo.asarray(1, dtype=x.dtype)), False),
}
_TABLE["ltn"] = (_TABLE["product"][0], mo.multiply, LOGICS["ltn"].exists, False)
_TABLE |= {"or_and": _TABLE["boolean"], "goedel": _TABLE["max_min"]}


def tensor_semiring(ring: Semiring) -> TensorSemiring:
    """The operations of a semiring on tensors."""
    if ring.name not in _TABLE:
        raise fail(ArgumentError, "logic", f"semiring {ring.name} has no operations on tensors", "run it on tuples")
    plus, times, reduce, is_einsum = _TABLE[ring.name]

    def along(x: Any, axes: Labels) -> Any:
        if all(x.shape[axis] != 0 for axis in axes):
            return reduce(x, axes)
        rest = tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
        return mo.full(rest, ring.zero, dtype=x.dtype)  # of nothing

    return TensorSemiring(ring, plus, times, along, is_einsum)


def contract(semiring: TensorSemiring, operands: Sequence[Any], labels: Sequence[Labels], output: Labels) -> Any:
    """Times over all operands, plus over every label that the output lacks."""
    if semiring.einsum:
        arguments: list[Any] = []
        for operand, own in zip(operands, labels):
            arguments += [operand, list(own)]
        return mo.einsum(*arguments, list(output))
    parts = [_diagonal(operand, own) for operand, own in zip(operands, labels)]
    if not semiring.ring.distributive:  # every derivation counts by itself: all at once
        return _joined(semiring, parts, output)
    parts = [_summed(semiring, part, parts, output) for part in parts]
    while len(parts) > 1:
        one, two = _cheapest(parts)
        rest = [part for number, part in enumerate(parts) if number not in (one, two)]
        needed = {label for _, own in rest for label in own} | set(output)
        mine = [label for _, own in (parts[one], parts[two]) for label in own]
        kept = tuple(dict.fromkeys(label for label in mine if label in needed))
        parts = [*rest, (_joined(semiring, [parts[one], parts[two]], kept), kept)]
    return _joined(semiring, parts, output)


def _cheapest(parts: Sequence[tuple[Any, Labels]]) -> tuple[int, int]:
    """The pair whose join goes over the fewest combinations."""
    def size(pair: tuple[int, int]) -> int:
        sizes = {label: length for number in pair for label, length in zip(parts[number][1], parts[number][0].shape)}
        total = 1
        for length in sizes.values():
            total *= length
        return total

    return min(((a, b) for a in range(len(parts)) for b in range(a + 1, len(parts))), key=size)


def _summed(semiring: TensorSemiring, part: tuple[Any, Labels], parts: Sequence[tuple[Any, Labels]],
            output: Labels) -> tuple[Any, Labels]:
    """A label that stands nowhere else is summed before anything is joined."""
    x, own = part
    others = {label for other in parts if other is not part for label in other[1]} | set(output)
    axes = tuple(axis for axis, label in enumerate(own) if label not in others)
    return (semiring.reduce(x, axes), tuple(label for label in own if label in others)) if axes else part


def _joined(semiring: TensorSemiring, parts: Sequence[tuple[Any, Labels]], output: Labels) -> Any:
    """One kernel: operands broadcast over all labels, joined, reduced."""
    inner = [label for label in dict.fromkeys(label for _, own in parts for label in own) if label not in output]
    space = (*output, *inner)
    total = None
    for x, own in parts:
        order = sorted(range(len(own)), key=lambda axis: space.index(own[axis]))
        if order != list(range(len(own))):
            x = mo.permute_dims(x, tuple(order))
        wide = mo.reshape(x, tuple(x.shape[sorted(own, key=space.index).index(label)] if label in own else 1
                                   for label in space))
        total = wide if total is None else semiring.times(total, wide)
    axes = tuple(range(len(output), len(space)))
    return semiring.reduce(total, axes) if axes else total


def _diagonal(x: Any, own: Labels) -> tuple[Any, Labels]:
    """Axes with the same label as one."""
    for label in dict.fromkeys(own):
        while own.count(label) > 1:
            first = own.index(label)
            second = own.index(label, first + 1)
            rest = [axis for axis in range(len(own)) if axis not in (first, second)]
            x = mo.permute_dims(x, (*rest, first, second))
            size = x.shape[-1]
            flat = mo.reshape(x, (*x.shape[:-2], size * size))
            x = flat[..., :: size + 1]
            own = (*(own[axis] for axis in rest), label)
    return x, own
