"""`associative_scan`: every prefix of an associative operation, in a logarithmic number of steps over whole tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.base.shapes import normalise_axis
from morpho.base.trees import unflatten
from morpho.tensor.control.body_trace import check_tensors, leaves_of
from morpho.tensor.core import Tensor
from morpho.tensor.functions.move import concat, flip, reshape, stack

Combine = Callable[[list[Tensor], list[Tensor]], list[Tensor]]


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """`fn` of the first element, of the first two, of the first three, ... along an axis.

    `fn(a, b)` must be associative and takes slices of any length along that axis, so it runs about 2 log2(n) times on
    whole tensors where `mo.scan` runs n times on single slices. The order of the operations is a fixed tree, so results
    differ from a `mo.scan` by rounding where `fn` is not exactly associative, as an addition of floats.

    >>> mo.associative_scan(mo.maximum, mo.asarray([1, 3, 2, 5, 4])).tolist()
    [1, 3, 3, 5, 5]
    """
    tensors, structure = leaves_of(elems)
    check_tensors("associative_scan", structure, "elems")
    if not tensors:
        raise fail(ArgumentError, "associative_scan", "elems holds no tensor")
    along = normalise_axis(axis, tensors[0].ndim, "associative_scan")
    sizes = [tensor.shape[along] if tensor.ndim > along else None for tensor in tensors]
    if any(size != sizes[0] or not isinstance(size, int) for size in sizes):
        raise fail(ShapeError, "associative_scan", f"axis {axis} of elems must have one known length, not {sizes}")

    def combine(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
        found, shape = leaves_of(fn(unflatten(structure, iter(left)), unflatten(structure, iter(right))))
        if shape != structure:
            raise fail(ArgumentError, "associative_scan", f"fn takes {structure} and returns {shape}")
        return found

    given = [flip(tensor, axis=along) for tensor in tensors] if reverse else tensors
    found = _prefixes(combine, given, along)
    return unflatten(structure, iter([flip(tensor, axis=along) for tensor in found] if reverse else found))


def _part(tensor: Tensor, axis: int, start: int, stop: int | None = None, step: int = 1) -> Tensor:
    return tensor[(slice(None),) * axis + (slice(start, stop, step),)]


def _prefixes(combine: Combine, tensors: list[Tensor], axis: int) -> list[Tensor]:
    """Pairs are combined, the prefixes of those found, and the elements between them added to their left neighbours."""
    count = tensors[0].shape[axis]
    assert isinstance(count, int)
    if count < 2:
        return tensors
    even = count - count % 2
    pairs = combine([_part(t, axis, 0, even, 2) for t in tensors], [_part(t, axis, 1, even, 2) for t in tensors])
    odd = _prefixes(combine, pairs, axis)  # prefixes that end at elements 1, 3, 5, ...
    first = [_part(t, axis, 0, 1) for t in tensors]
    if count > 2:
        left = [_part(t, axis, 0, (count - 1) // 2) for t in odd]
        later = combine(left, [_part(t, axis, 2, None, 2) for t in tensors])
        first = [concat([one, other], axis=axis) for one, other in zip(first, later, strict=True)]
    return [_interleaved(a, b, axis) for a, b in zip(first, odd, strict=True)]


def _interleaved(even: Tensor, odd: Tensor, axis: int) -> Tensor:
    """even[0], odd[0], even[1], odd[1], ...; `even` may have one more."""
    count = odd.shape[axis]
    assert isinstance(count, int)
    both = stack([_part(even, axis, 0, count), odd], axis=axis + 1)
    shape = (*odd.shape[:axis], 2 * count, *odd.shape[axis + 1:])
    flat = reshape(both, shape)
    return flat if even.shape[axis] == count else concat([flat, _part(even, axis, count)], axis=axis)
