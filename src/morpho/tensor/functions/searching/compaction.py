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
from morpho.tensor.core import Tensor, evaluate

TILE = 2048


def list_selected(ranks: Any, mask: Any, out: Any, *, tile: int) -> None:
    """Position i to place ranks[i] - 1 where the mask holds."""
    start = program_id(0) * tile
    keep = load(mask[start:], tile, other=False)
    store(out[load(ranks[start:], tile) - 1], start + arange(tile), mask=keep)


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


def compacted(mask: Tensor) -> Tensor:
    """Positions at which a mask holds, in the mask read as a line."""
    line = reshape(mask.node, (product(mask.shape),))
    assert line.dtype is bool_
    ranks = Tensor.of_node(build("cumulative_sum", cast(line, int32), axis=0)).realise()
    evaluate.counts.syncs += 1
    total = int(ranks[-1].item())
    if total == 0:
        return Tensor.of_node(expand(constant(0, int64), (0,)))
    return Tensor.of_node(on_grid("list_selected", ranks.node, line, total))


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
