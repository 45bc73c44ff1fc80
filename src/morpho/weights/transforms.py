"""Transforms of tensors on their way into a model; lazy, and on quantised weights where rows stay whole.

A transform takes the tensors it has and how many are wanted in the end, and gives tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from morpho.backends.registry import HOST
from morpho.base.errors import ShapeError, ValueFault, fail
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor
from morpho.tensor.functions.move import concat as concat_tensors
from morpho.tensor.functions.move import permute_dims, stack
from morpho.tensor.functions.move import reshape as reshape_tensor
from morpho.tensor.functions.products.quantised import Quantised

Weight: TypeAlias = Tensor | Quantised
Transform: TypeAlias = Callable[[list[Weight], int], list[Weight]]


def transpose(tensors: list[Weight], wanted: int) -> list[Weight]:
    """Each matrix transposed: files whose layers multiply from the other side.

    >>> from morpho.weights import transpose
    >>> transpose([mo.ones((2, 3))], 1)[0].shape
    (3, 2)
    """
    return [permute_dims(tensor, tuple(reversed(range(tensor.ndim)))) for tensor in map(_plain, tensors)]


def reshape(*shape: int) -> Transform:
    """Each tensor in another shape: `reshape(-1)`.

    >>> mo.weights.reshape(-1)([mo.ones((2, 3))], 1)[0].shape
    (6,)
    """
    return lambda tensors, wanted: [reshape_tensor(_plain(tensor), shape) for tensor in tensors]


def split(axis: int = 0, sizes: Sequence[int] | None = None) -> Transform:
    """Each tensor cut along an axis: into equal parts, as many as names are wanted, or into parts of these sizes.

    >>> from morpho.weights import split
    >>> [part.shape for part in split(0, sizes=[1, 3])([mo.ones((4, 2))], 2)]
    [(1, 2), (3, 2)]
    """
    def apply(tensors: list[Weight], wanted: int) -> list[Weight]:
        found: list[Weight] = []
        for tensor in tensors:
            total = tensor.shape[axis]
            parts = list(sizes) if sizes is not None else [total // wanted] * wanted
            if sum(parts) != total:
                raise fail(ShapeError, "split", f"{total} along axis {axis} of {tensor.shape} is not cut into {parts}")
            starts = [sum(parts[:place]) for place in range(len(parts))]
            found += [_piece(tensor, axis, start, start + size) for start, size in zip(starts, parts)]  # type: ignore[arg-type]
        return found
    return apply


def concat(axis: int = 0) -> Transform:
    """All tensors as one, along an axis.

    >>> from morpho.weights import concat
    >>> concat(1)([mo.ones((2, 3)), mo.ones((2, 1))], 1)[0].shape
    (2, 4)
    """
    def apply(tensors: list[Weight], wanted: int) -> list[Weight]:
        first = tensors[0]
        if not any(isinstance(tensor, Quantised) for tensor in tensors):
            return [concat_tensors(tensors, axis=axis)]
        kinds = {(tensor.kind, tensor.shape[1]) if isinstance(tensor, Quantised) else None for tensor in tensors}
        if axis != 0 or None in kinds or len(kinds) != 1:
            raise fail(ValueFault, "concat", "quantised weights of one kind and width are joined along their rows only",
                       "dequantise() them first")
        rows = concat_tensors([tensor.data for tensor in tensors], axis=0)
        return [Quantised.of_tensor(rows, (rows.shape[0], first.shape[1]), first.kind)]  # type: ignore[arg-type, union-attr]
    return apply


def unpermute(heads: int) -> Transform:
    """Rows of a query or key projection from GGUF's order (pairs that rotate stand side by side) to the one in which
    the halves of each head rotate together, which is what checkpoints outside of GGUF have.

    >>> from morpho.weights import unpermute
    >>> unpermute(1)([mo.reshape(mo.arange(4), (4, 1))], 1)[0].tolist()
    [[0], [2], [1], [3]]
    """
    def apply(tensors: list[Weight], wanted: int) -> list[Weight]:
        return [_unpermuted(tensor, heads) for tensor in tensors]
    return apply


def permute(*axes: int) -> Transform:
    """Each tensor with its axes in another order.

    >>> from morpho.weights.transforms import permute
    >>> permute(0, 2, 1)([mo.ones((2, 3, 4))], 1)[0].shape
    (2, 4, 3)
    """
    return lambda tensors, wanted: [permute_dims(_plain(tensor), axes) for tensor in tensors]


def spread(axis: int) -> Transform:
    """Each tensor dealt out along an axis, as to players: with two names, every other row to each.

    >>> from morpho.weights.transforms import spread
    >>> [part.tolist() for part in spread(0)([mo.arange(4)], 2)]
    [[0, 2], [1, 3]]
    """
    def apply(tensors: list[Weight], wanted: int) -> list[Weight]:
        before = (slice(None),) * axis
        return [_plain(tensor)[(*before, slice(first, None, wanted))] for tensor in tensors for first in range(wanted)]
    return apply


def interleaved(axis: int) -> Transform:
    """Tensors put together as `spread` takes them apart.

    >>> from morpho.weights.transforms import interleaved
    >>> interleaved(0)([mo.asarray([0, 2]), mo.asarray([1, 3])], 1)[0].tolist()
    [0, 1, 2, 3]
    """
    def apply(tensors: list[Weight], wanted: int) -> list[Weight]:
        plain = [_plain(tensor) for tensor in tensors]
        shape = [*plain[0].shape]
        shape[axis] *= len(plain)
        return [reshape_tensor(stack(plain, axis=axis + 1), tuple(shape))]
    return apply


def rows_in_pieces(pieces: int, order: Sequence[int], back: bool = False) -> Transform:
    """Rows that lie as parts within pieces, put as whole parts in another order; `back` undoes it.

    >>> from morpho.weights.transforms import rows_in_pieces
    >>> rows_in_pieces(2, (1, 0))([mo.arange(4)], 1)[0].tolist()
    [1, 3, 0, 2]
    >>> rows_in_pieces(2, (1, 0), back=True)([mo.asarray([1, 3, 0, 2])], 1)[0].tolist()
    [0, 1, 2, 3]
    """
    def apply(tensors: list[Weight], wanted: int) -> list[Weight]:
        moved = []
        for tensor in map(_plain, tensors):
            rows, rest = tensor.shape[0], tensor.shape[1:]
            if rows % (pieces * len(order)):
                raise fail(ShapeError, "rows_in_pieces", f"{rows} rows are not {pieces} pieces of {len(order)} parts")
            sizes = (pieces, len(order)) if not back else (len(order), pieces)
            parts = reshape_tensor(tensor, (*sizes, rows // (pieces * len(order)), *rest))
            axis = 0 if back else 1
            places = [order.index(place) for place in range(len(order))] if back else order
            picked = stack([parts[(slice(None),) * axis + (place,)] for place in places], axis=axis)
            axes = (1, 0, *range(2, picked.ndim))
            moved.append(reshape_tensor(permute_dims(picked, axes), (rows, *rest)))
        return moved  # type: ignore[return-value]
    return apply


E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def of_mxfp4(tensors: list[Weight], wanted: int) -> list[Weight]:
    """Values of 4 bits with an exponent for 32 of them: (..., groups, 16) bytes, of which the lower half is first, and
    (..., groups) exponents.

    >>> from morpho.weights.transforms import of_mxfp4
    >>> found = of_mxfp4([mo.full((1, 1, 16), 0x92, dtype=mo.uint8), mo.full((1, 1), 128, dtype=mo.uint8)], 1)[0]
    >>> found.shape, found[0, :2].tolist()
    ((1, 32), [2.0, -1.0])
    """
    blocks, scales = (_plain(tensor).numpy() for tensor in tensors)
    if blocks.dtype != np.uint8 or scales.dtype != np.uint8 or blocks.shape != (*scales.shape, 16):
        raise fail(ShapeError, "of_mxfp4", f"blocks of {blocks.shape} {blocks.dtype} and scales of {scales.shape} "
                                           f"{scales.dtype} are not 16 bytes for each exponent")
    table = np.array([*E2M1, *(-value for value in E2M1)], np.float32)
    values = np.stack([table[blocks & 15], table[blocks >> 4]], axis=-1).reshape(*scales.shape, 32)
    values = np.ldexp(values, (scales.astype(np.int32) - 127)[..., None])
    return [asarray(values.reshape(*scales.shape[:-1], -1), copy=False)]


def shift(by: float) -> Transform:
    """A number added to each tensor: norms whose weight is kept less 1.

    >>> from morpho.weights.transforms import shift
    >>> shift(-1.0)([mo.ones((2,))], 1)[0].tolist()
    [0.0, 0.0]
    """
    return lambda tensors, wanted: [_plain(tensor) + by for tensor in tensors]


def heads_together(heads: int) -> Transform:
    """Rows of all queries, all keys, all values put so that those of a head stand side by side.

    >>> from morpho.weights.transforms import heads_together
    >>> heads_together(2)([mo.arange(6)], 1)[0].tolist()
    [0, 2, 4, 1, 3, 5]
    """
    def apply(tensors: list[Weight], wanted: int) -> list[Weight]:
        return [_reordered(tensor, (3, heads)) for tensor in tensors]
    return apply


def _reordered(tensor: Weight, parts: tuple[int, int]) -> Weight:
    """Rows that are (a, b, rest) put as (b, a, rest)."""
    rows = tensor.shape[0]
    if rows % (parts[0] * parts[1]):
        raise fail(ShapeError, "heads_together", f"{rows} rows are not {parts[0]} times {parts[1]} heads")
    data = tensor.data if isinstance(tensor, Quantised) else tensor
    rest = data.shape[1:]
    apart = reshape_tensor(data, (*parts, rows // (parts[0] * parts[1]), *rest))
    found = reshape_tensor(permute_dims(apart, (1, 0, *range(2, apart.ndim))), (rows, *rest))
    return Quantised.of_tensor(found, tensor.shape, tensor.kind) if isinstance(tensor, Quantised) else found


def _unpermuted(tensor: Weight, heads: int) -> Weight:
    rows = tensor.shape[0]
    if rows % (2 * heads):
        raise fail(ShapeError, "unpermute", f"{rows} rows are not {heads} heads of pairs")
    if isinstance(tensor, Quantised):
        return _Later(tensor, heads)
    data = tensor
    rest = data.shape[1:]
    paired = reshape_tensor(data, (heads, rows // heads // 2, 2, *rest))  # (heads, pairs, 2, ...)
    order = (0, 2, 1, *range(3, 3 + len(rest)))
    return reshape_tensor(permute_dims(paired, order), (rows, *rest))  # (heads, 2, pairs, ...) as rows


class _Later(Quantised):
    """Quantised weights whose rows are put in order when somebody first asks for them: a program for each of a model's
    many would take longer than the copy, and copies at once would read layers that a pipeline's worker leaves out."""

    __slots__ = ("_given", "_heads", "_made")
    _made: Tensor | None

    def __init__(self, given: Quantised, heads: int) -> None:
        self.shape, self.kind = given.shape, given.kind
        self._given, self._heads, self._made = given, heads, None

    @property
    def data(self) -> Tensor:  # type: ignore[override]
        if self._made is None:
            given = self._given.data
            rows = given.numpy()
            pairs = rows.reshape(self._heads, self.shape[0] // self._heads // 2, 2, -1).swapaxes(1, 2)
            made = asarray(pairs.reshape(rows.shape), copy=False)  # which is memory of its own
            self._made = made if given.device == HOST else made.to(given.device)
        return self._made


def _piece(tensor: Weight, axis: int, start: int, stop: int) -> Weight:
    if isinstance(tensor, Quantised):
        if axis != 0:
            raise fail(ValueFault, "split", "quantised weights are cut between rows only", "dequantise() them first")
        return Quantised.of_tensor(tensor.data[start:stop], (stop - start, tensor.shape[1]), tensor.kind)
    index = [slice(None)] * tensor.ndim
    index[axis] = slice(start, stop)
    return tensor[tuple(index)]


def _plain(tensor: Weight) -> Tensor:
    if isinstance(tensor, Quantised):
        raise fail(ValueFault, "transpose", "quantised weights keep their rows", "dequantise() them first")
    return tensor
