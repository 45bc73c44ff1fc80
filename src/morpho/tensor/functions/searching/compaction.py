"""Elements that a mask selects, on a GPU: their positions by a running count and one kernel over tiles. Only the number
of them goes to the host, since it is a size.

On a CPU NumPy does this where the values are (`search.py`); in compiled functions the size is a number of the program
(`selection.py`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from morpho.base.dims import product
from morpho.base.dtypes import DType, bool_, int32, int64
from morpho.ir.node import Node, build
from morpho.ops.algebra import add, cast, constant, constant_like, expand, reshape
from morpho.ops.tiles import record
from morpho.ops.tiles.functions import arange, load, program_id, store
from morpho.ops.tiles.ir import TileProgram
from morpho.ops.tiles.translate import translate
from morpho.runtime.memory.buffer import Buffer
from morpho.tensor import recording
from morpho.tensor.core import Tensor, evaluate, realise

TILE = 2048


def list_selected(ranks: Any, mask: Any, out: Any, *, tile: int) -> None:
    """Position i to place ranks[i] - 1 where the mask holds."""
    start = program_id(0) * tile
    keep = load(mask[start:], tile, other=False)
    store(out[load(ranks[start:], tile) - 1], start + arange(tile), mask=keep)


def select_values(ranks: Any, mask: Any, values: Any, out: Any, *, tile: int) -> None:
    """Value i to place ranks[i] - 1 where the mask holds."""
    start = program_id(0) * tile
    keep = load(mask[start:], tile, other=False)
    store(out[load(ranks[start:], tile) - 1], load(values[start:], tile), mask=keep)


def put(index: Any, values: Any, out: Any, *, tile: int) -> None:
    """Values at different indices."""
    start = program_id(0) * tile
    inside = start + arange(tile) < index.shape[0]
    store(out[load(index[start:], tile)], load(values[start:], tile), mask=inside)


@lru_cache(maxsize=16)
def program(name: str, index: DType, value: DType) -> TileProgram:
    function, names = (list_selected, ("ranks", "mask")) if name == "list_selected" else (put, ("index", "values"))
    arrays = [*zip(names, (index, value), (1, 1), strict=True), ("out", int64, 1)]
    return translate(function, arrays, {"tile": TILE})


def on_grid(name: str, index: Node, value: Node, size: int) -> Node:
    """One of the kernels, on lines, with a result of `size`."""
    grid = (-(-int(index.shape[0]) // TILE),)
    return record.apply(program(name, index.dtype, value.dtype), [index, value], grid, [((size,), int64)], name)


def part(node: Node, start: int, size: int) -> Node:
    return build("slice", node, starts=(start,), sizes=(size,), steps=(1,))


def _ranks(mask: Tensor) -> tuple[Node, Node, int, Tensor]:
    """A mask as a line, how many hold up to each place, the length, and how many hold."""
    count = int(product(mask.shape))
    line = reshape(mask.node, (count,))
    assert line.dtype is bool_
    ranks = build("cumulative_sum", cast(line, int32), axis=0)
    return line, ranks, count, Tensor.of_node(part(ranks, count - 1, 1))


def _positions(mask: Tensor) -> tuple[Tensor, Tensor]:
    line, ranks, count, total = _ranks(mask)
    return Tensor.of_node(on_grid("list_selected", ranks, line, count)), total


def _values(mask: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    line, ranks, count, total = _ranks(mask)
    grid = (-(-count // TILE),)
    arrays = [("ranks", int32, 1), ("mask", bool_, 1), ("values", x.dtype, 1), ("out", x.dtype, 1)]
    values = record.apply(_selecting(tuple(arrays)), [ranks, line, reshape(x.node, (count,))], grid,
                          [((count,), x.dtype)], "select_values")
    return Tensor.of_node(values), total


@lru_cache(maxsize=16)
def _selecting(arrays: tuple[tuple[str, DType, int], ...]) -> TileProgram:
    return translate(select_values, list(arrays), {"tile": TILE})


def _beginning(function: Any, *tensors: Tensor) -> Tensor:
    """The first elements of a line, as many as the function's other result says. The program has the room of all, so
    that it is the same for every number of them; that alone goes to the host."""
    whole, total = recording.apply(function, tensors) or function(*tensors)
    realise(whole, total)
    evaluate.counts.syncs += 1
    buffer = whole.elements()
    return Tensor.of_buffer(Buffer(buffer.storage, buffer.address, (int(total.item()),), (1,), buffer.dtype,
                                   buffer.writable))


def compacted(mask: Tensor) -> Tensor:
    """Positions at which a mask holds, in the mask read as a line."""
    return _beginning(_positions, mask)


def masked(x: Tensor, mask: Tensor) -> Tensor:
    """x[mask] of a mask of the shape of x."""
    return _beginning(_values, mask, x)


def unique_on_device(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sorted values, first positions, which value each element is, how often each occurs."""
    line = reshape(x.node, (product(x.shape),))
    count = int(product(x.shape))
    order = Tensor.of_node(build("argsort", line, axis=0, descending=False, stable=True)).realise().node
    ordered = build("gather", line, order, axis=0)
    changes = build("not_equal", part(ordered, 1, count - 1), part(ordered, 0, count - 1))
    begins = build("concatenate", expand(constant(True, bool_), (1,)), changes, axis=0)
    begins = Tensor.of_node(begins).realise().node
    places = compacted(Tensor.of_node(begins)).node
    which = build("cumulative_sum", cast(begins, int64), axis=0)
    inverse = on_grid("put", order, add(which, constant_like(which, -1)), count)
    ends = build("concatenate", part(places, 1, int(places.shape[0]) - 1),
                 expand(constant(count, int64), (1,)), axis=0)
    parts = (build("gather", ordered, places, axis=0), build("gather", order, places, axis=0),
             reshape(inverse, x.shape), build("subtract", ends, places))
    return tuple(map(Tensor.of_node, parts))  # type: ignore[return-value]
