"""Whole numbers added at indices (counts, histograms) on a GPU: any order gives the same sum, so atomics may be used.

Sums of floats keep the order of their positions and have kernels without atomics (`gradients/scatter.py`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from morpho.backends.lowering.lower_tiles import add_step
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dtypes import DType
from morpho.ir.node import Node
from morpho.ops.tiles.functions import (
    arange,
    atomic_add,
    atomic_max,
    atomic_min,
    load,
    max,
    min,
    program_id,
    require,
    where,
)
from morpho.ops.tiles.ir import TileProgram
from morpho.ops.tiles.translate import translate
from morpho.program.view import View

TILE = 1024
LEAST = 512  # indices of a line that are worth a grid
ATOMICS = {"add": atomic_add, "max": atomic_max, "min": atomic_min}


def combine(index: Any, values: Any, out: Any, *, tile: int, atomic: Any) -> None:
    """Values of a tile of indices."""
    start = program_id(0) * tile
    inside = start + arange(tile) < index.shape[0]
    place = load(index[start:], tile).astype("int64")
    require((min(place) >= 0) & (max(where(inside, place, 0)) < out.shape[0]))
    atomic(out[place], load(values[start:], tile), mask=inside & (place >= 0) & (place < out.shape[0]))


@lru_cache(maxsize=64)
def program(index: DType, dtype: DType, mode: str) -> TileProgram:
    arrays = [("index", index, 1), ("values", dtype, 1), ("out", dtype, 1)]
    return translate(combine, arrays, {"tile": TILE, "atomic": ATOMICS[mode]})


def counts(node: Node) -> bool:
    """Whether the order of a scatter does not matter, and there are enough indices."""
    length = node.inputs[1].shape[node["axis"]]
    return (node["mode"] in ATOMICS and node.dtype.is_integer and node.dtype.itemsize >= 4
            and isinstance(length, int) and length >= LEAST)


def lower_scatter(low: Lowering, node: Node) -> None:
    axis, (index, value) = node["axis"], node.inputs[1:]
    length = int(index.shape[axis])
    places = [low.view(child) for child in (index, value)]
    base, target = low.number_or_place(node.inputs[0]), low.new_slot(node.shape, node.dtype)
    low.copy(base, target, node)
    outer = [d for d in range(len(node.shape)) if d != axis]
    order = [*outer, axis]
    views = [View(view.slot, view.offset, tuple(view.shape[d] for d in order),
                  tuple(view.strides[d] for d in order), view.dtype) for view in (*places, target)]
    levels = tuple((index.shape[d], (True, True, True)) for d in outer)
    add_step(low, node, program(index.dtype, node.dtype, node["mode"]), views, (-(-length // TILE),), levels, True,
             f"scatter_{node['mode']}")
    low.views[node.serial] = [target]
