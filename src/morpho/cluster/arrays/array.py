"""`cluster.array`: an array of which each rank has a block. Elementwise work is local, reductions go along the grid, a
transpose moves nothing; `gather()` is the only thing that puts the whole array anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.cluster import world
from morpho.cluster.arrays.layout import ALL, Cuts, Grid, check_cuts, usual_cuts
from morpho.cluster.parallel.replicas import from_buffer, to_buffer
from morpho.runtime.groups.group import Group

_MOVE = 7300  # a tag
Scalar = int | float | complex


def array(data: Any, *, grid: Grid | tuple[int, int] | None = None, cuts: Cuts | None = None,
          group: Group | None = None) -> DistributedArray:
    """A distributed array from one that every rank has, or of which `data(block)` makes a block, given as slices, with
    `data.shape`. The grid is nearly square unless given; `cuts` names for each axis the grid axes that cut it: a matrix
    goes in blocks, a vector over all ranks.

    >>> x = mo.cluster.array(np.arange(6.0).reshape(2, 3))
    >>> (x * 2 + 1).sum().item(), x.T.gather().shape
    (36.0, (3, 2))
    """
    chosen = grid if isinstance(grid, Grid) else Grid.of(world.init() if group is None else group, grid)
    shape = tuple(int(n) for n in data.shape) if hasattr(data, "shape") else np.shape(data)
    wanted = check_cuts(shape, usual_cuts(len(shape)) if cuts is None else cuts)
    block = chosen.block(shape, wanted, chosen.group.rank)
    if callable(data) and not isinstance(data, mo.Tensor | np.ndarray):
        local = mo.asarray(data(block))
    else:
        local = mo.asarray(data if isinstance(data, mo.Tensor) else np.asarray(data))[block] if shape else \
            mo.asarray(data)
    return DistributedArray(local, shape, wanted, chosen)


class DistributedArray:
    """An array in blocks; made by `cluster.array`. `local` is this rank's block, a tensor.

    >>> x = mo.cluster.array(np.arange(6.0).reshape(2, 3))
    >>> type(x).__name__, x.shape, x.local.shape
    ('DistributedArray', (2, 3), (2, 3))
    """

    __array_priority__ = 1000  # NumPy leaves operators to this class

    def __init__(self, local: mo.Tensor, shape: tuple[int, ...], cuts: Cuts, grid: Grid) -> None:
        self.local, self.shape, self.cuts, self.grid = local, shape, cuts, grid
        wanted = tuple(part.stop - part.start for part in grid.block(shape, cuts, grid.group.rank))
        if tuple(local.shape) != wanted:
            raise fail(ShapeError, "cluster.array", f"a block of {tuple(local.shape)} is given where {wanted} is held")

    @property
    def dtype(self) -> Any:
        return self.local.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def T(self) -> DistributedArray:
        """The axes in reverse; no byte moves: the block of each rank is transposed where it is."""
        return DistributedArray(mo.permute_dims(self.local, tuple(reversed(range(self.ndim)))), self.shape[::-1],
                                self.cuts[::-1], self.grid)

    # -- elementwise ---------------------------------------------------------------------------------------------------
    def map(self, function: Callable[..., mo.Tensor], *others: Any) -> DistributedArray:
        """An elementwise function of this array and others of its shape, or numbers, block by block.

        >>> mo.cluster.array(np.zeros((2, 2))).map(mo.exp).gather().tolist()
        [[1.0, 1.0], [1.0, 1.0]]
        """
        given = [self._beside(other) for other in others]
        return DistributedArray(function(self.local, *given), self.shape, self.cuts, self.grid)

    def _beside(self, other: Any) -> Any:
        if isinstance(other, DistributedArray):
            if other.shape != self.shape:
                raise fail(ShapeError, "cluster.array", f"shapes {self.shape} and {other.shape} are not equal",
                           "distributed arrays do not broadcast")
            return other.redistribute(self.cuts, self.grid).local
        if isinstance(other, Scalar | np.generic) or np.ndim(other) == 0:
            return other
        raise fail(ArgumentError, "cluster.array", f"a {type(other).__name__} is neither a number nor such an array",
                   "make one with cluster.array")

    def __add__(self, other: Any) -> DistributedArray:
        return self.map(lambda a, b: a + b, other)

    def __sub__(self, other: Any) -> DistributedArray:
        return self.map(lambda a, b: a - b, other)

    def __mul__(self, other: Any) -> DistributedArray:
        return self.map(lambda a, b: a * b, other)

    def __truediv__(self, other: Any) -> DistributedArray:
        return self.map(lambda a, b: a / b, other)

    def __pow__(self, other: Any) -> DistributedArray:
        return self.map(lambda a, b: a ** b, other)

    def __rsub__(self, other: Any) -> DistributedArray:
        return self.map(lambda a, b: b - a, other)

    def __rtruediv__(self, other: Any) -> DistributedArray:
        return self.map(lambda a, b: b / a, other)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> DistributedArray:
        return self.map(lambda a: -a)

    def __matmul__(self, other: DistributedArray) -> DistributedArray:
        if _product is None:
            raise fail(ArgumentError, "matmul", "morpho.cluster.arrays.products is not imported")
        return _product(self, other)

    # -- reductions ----------------------------------------------------------------------------------------------------
    def sum(self, axis: int | None = None) -> Any:
        """Over one axis, a distributed array; over all of them, a tensor that every rank has."""
        return self._reduced("sum", mo.sum, axis)

    def max(self, axis: int | None = None) -> Any:
        """The largest along an axis, or of all."""
        return self._reduced("max", mo.max, axis)

    def min(self, axis: int | None = None) -> Any:
        """The least along an axis, or of all."""
        return self._reduced("min", mo.min, axis)

    def mean(self, axis: int | None = None) -> Any:
        """The mean along an axis, or of all."""
        total = self.sum(axis)
        count = math.prod(self.shape) if axis is None else self.shape[axis]
        return total * (1 / float(count) if count else math.nan)

    def _reduced(self, op: str, function: Callable[..., mo.Tensor], axis: int | None) -> Any:
        if axis is not None and not -self.ndim <= axis < self.ndim:
            raise fail(ShapeError, "cluster.array", f"{self.shape} has no axis {axis} to take the {op} along")
        axis = axis if axis is None else axis % self.ndim
        if op != "sum" and 0 in (self.shape if axis is None else self.shape[axis:axis + 1]):  # so on every rank
            raise fail(ShapeError, "cluster.array", f"{self.shape} has nothing to take the {op} of")
        found = self.local
        if op != "sum" and 0 in (found.shape if axis is None else found.shape[axis:axis + 1]):  # others have some
            kept = () if axis is None else (*found.shape[:axis], *found.shape[axis + 1:])
            mine = mo.full(kept, _identity(op, found.dtype), dtype=found.dtype)
        else:
            mine = function(found) if axis is None else function(found, axis=axis)
        if axis is None:
            return self._over(tuple(sorted({a for cut in self.cuts for a in cut})), op, mine)
        rest = [n for n in range(self.ndim) if n != axis]
        total = self._over(self.cuts[axis], op, mine)
        return DistributedArray(total, tuple(self.shape[n] for n in rest), tuple(self.cuts[n] for n in rest), self.grid)

    def _over(self, cut: tuple[int, ...], op: str, value: mo.Tensor) -> mo.Tensor:
        """A reduction over the ranks along some axes of the grid."""
        if not cut or self.grid.parts(cut) == 1:
            return value
        buffer = to_buffer(value)
        self.grid.along[cut if len(cut) == 1 else ALL].all_reduce(buffer, op, dtype=value.dtype)
        return from_buffer(buffer, value.dtype)

    # -- moving --------------------------------------------------------------------------------------------------------
    def redistribute(self, cuts: Cuts, grid: Grid | None = None) -> DistributedArray:
        """The same array in other blocks: every rank sends each other one what both have."""
        target = self.grid if grid is None else grid
        check_cuts(self.shape, cuts)
        if target.group is not self.grid.group:
            raise fail(ArgumentError, "cluster.array", "the arrays are on grids of different groups")
        if (cuts, target.rows) == (self.cuts, self.grid.rows):
            return self
        group = self.grid.group
        own, wanted = self._block(group.rank), target.block(self.shape, cuts, group.rank)
        mine = to_buffer(self.local)
        into = np.empty([part.stop - part.start for part in wanted], mine.dtype)
        sends = []
        for rank in range(group.size):
            if rank != group.rank and self._gives(group.rank, rank, target, cuts):
                piece = _common(own, target.block(self.shape, cuts, rank))
                sends.append(group.send(np.ascontiguousarray(mine[_within(piece, own)]), rank, _MOVE, wait=False))
        for rank in range(group.size):
            if not self._gives(rank, group.rank, target, cuts):
                continue
            piece = _common(self._block(rank), wanted)
            if rank == group.rank:
                into[_within(piece, wanted)] = mine[_within(piece, own)]
            else:
                part = np.empty([p.stop - p.start for p in piece], mine.dtype)
                group.recv(part, rank, _MOVE)
                into[_within(piece, wanted)] = part
        for send in sends:
            send.wait()
        return DistributedArray(from_buffer(into, self.dtype), self.shape, cuts, target)

    def _block(self, rank: int) -> tuple[slice, ...]:
        return self.grid.block(self.shape, self.cuts, rank)

    def _gives(self, source: int, to: int, target: Grid, cuts: Cuts) -> bool:
        """Whether a rank gives another one what it has: the receiver's own first, else the first rank that has it."""
        block = self._block(source)
        piece = _common(block, target.block(self.shape, cuts, to))
        if any(part.stop <= part.start for part in piece):
            return False
        holders = [rank for rank in range(self.grid.group.size) if self._block(rank) == block]
        return source == (to if to in holders else holders[0])

    def gather(self) -> np.ndarray:
        """The whole array, on every rank."""
        whole = self.redistribute(((),) * self.ndim)
        return whole.local.numpy()

    def __repr__(self) -> str:
        return f"DistributedArray{self.shape} of {self.dtype}, {self.grid.rows} x {self.grid.columns} ranks"


_product: Callable[[DistributedArray, DistributedArray], DistributedArray] | None = None


def set_product(function: Callable[[DistributedArray, DistributedArray], DistributedArray]) -> None:
    """Say what `@` is: `products.py` is made of these arrays."""
    global _product
    _product = function


def _identity(op: str, dtype: mo.DType) -> float | int | bool:
    """The identity of a maximum or minimum: a rank's that has nothing to take it of.

    >>> _identity("max", mo.float32), _identity("min", mo.int8)
    (-inf, 127)
    """
    if dtype is mo.bool:
        return op == "min"
    if np.issubdtype(dtype.numpy, np.integer) and dtype is not mo.bfloat16:
        limits = np.iinfo(dtype.numpy)
        return int(limits.min if op == "max" else limits.max)
    return -math.inf if op == "max" else math.inf


def _common(a: tuple[slice, ...], b: tuple[slice, ...]) -> tuple[slice, ...]:
    """The block that two blocks have in common."""
    return tuple(slice(max(p.start, q.start), min(p.stop, q.stop)) for p, q in zip(a, b, strict=True))


def _within(piece: tuple[slice, ...], block: tuple[slice, ...]) -> tuple[slice, ...]:
    """A piece as counted from the beginning of a block."""
    return tuple(slice(p.start - q.start, p.stop - q.start) for p, q in zip(piece, block, strict=True))
