"""Running sums, products and extremes of long lines on a GPU, written as kernels over tiles.

A line of one tile is scanned by one program. A longer one takes two launches: the total of each tile, then each tile
scanned behind the totals before it. The order of additions is fixed by the tile alone, so the bits do not depend on the
grid; they are not those of one chain. A tile is 128 segments of 31 elements: an odd number, since neighbouring threads
then read different banks of shared memory.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from morpho.backends.lowering.lower_tiles import add_step
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import product, upper
from morpho.base.dtypes import DType
from morpho.ir.node import Node
from morpho.ops.tiles.functions import (
    cummax,
    cummin,
    cumprod,
    cumsum,
    load,
    max,
    maximum,
    min,
    minimum,
    prod,
    program_id,
    store,
    sum,
)
from morpho.ops.tiles.interpret import first_value
from morpho.ops.tiles.ir import SEGMENTS, TileProgram
from morpho.ops.tiles.translate import translate
from morpho.program.view import View

MOST_SEGMENT = 31
TILE = SEGMENTS * MOST_SEGMENT
LEAST = 256  # elements of a line; shorter ones are a thread's each
BEFORE = 1024  # totals that are added up at once
MANY_LINES = 1 << 13  # that lie across: a thread each keeps the device busy
DEPTH = 1 << 28  # elements of a line: its totals are summed by every program
RUNNING = {"sum": cumsum, "prod": cumprod, "max": cummax, "min": cummin}


def scan_rows(x: Any, out: Any, *, tile: int, running: Any, none: Any, wide: DType) -> None:
    """One tile a line."""
    store(out[:], running(load(x[:], tile, other=none).astype(wide)))


def totals(x: Any, out: Any, *, tile: int, total: Any, none: Any, wide: DType) -> None:
    """The total of each tile."""
    i = program_id(0)
    store(out[i], total(load(x[i * tile:], tile, other=none).astype(wide)))


def scan_tiles(x: Any, sums: Any, out: Any, *, tile: int, running: Any, total: Any, none: Any, wide: DType,
               several: int) -> None:
    """Each tile behind the totals of those before it."""
    i = program_id(0)
    before = total(load(sums[:i], several, other=none))
    for start in range(several, i, several):
        part = total(load(sums[start:i], several, other=none))
        before = total_of_two(before, part, total)
    tile_values = running(load(x[i * tile:], tile, other=none).astype(wide))
    store(out[i * tile:], total_of_two(before, tile_values, total))


def total_of_two(a: Any, b: Any, total: Any) -> Any:
    """Two values, or a value and a tile, as one."""
    if total is sum:
        return a + b
    if total is prod:
        return a * b
    return maximum(a, b) if total is max else minimum(a, b)


@lru_cache(maxsize=64)
def programs(name: str, dtype: DType, tile: int, several: int) -> tuple[TileProgram, ...]:
    """The kernel of short lines, or the two of long ones (`several` totals at once)."""
    wide = dtype.compute
    none = first_value(name, wide.numpy).item()
    total = {"sum": sum, "prod": prod, "max": max, "min": min}[name]
    known: dict[str, Any] = {"tile": tile, "none": none, "wide": wide}
    if not several:
        return (translate(scan_rows, [("x", dtype, 1), ("out", dtype, 1)], {**known, "running": RUNNING[name]}),)
    return (translate(totals, [("x", dtype, 1), ("out", wide, 1)], {**known, "total": total}),
            translate(scan_tiles, [("x", dtype, 1), ("sums", wide, 1), ("out", dtype, 1)],
                      {**known, "running": RUNNING[name], "total": total, "several": several}))


def tile_of(length: int) -> int:
    """Elements of the tile of a short line: an odd number of elements in each segment."""
    return SEGMENTS * (-(-length // SEGMENTS) | 1)


def is_scanned_by_tiles(node: Node) -> bool:
    """Whether lines are long enough for a block each, and their totals few enough."""
    length = node.shape[node["axis"]]
    running = node.op.name.removeprefix("cumulative_") in RUNNING
    return running and isinstance(length, int) and LEAST <= length < DEPTH


def lower_scan(low: Lowering, node: Node) -> bool:
    """One launch or two; neighbouring threads take neighbouring lines that lie across, if they are many."""
    axis, name = node["axis"], node.op.name.removeprefix("cumulative_")
    length = int(node.shape[axis])
    source, outer = low.view(node.inputs[0]), [d for d in range(len(node.shape)) if d != axis]
    if source.strides[axis] != 1 and upper(product(tuple(node.shape[d] for d in outer))) >= MANY_LINES:
        return False
    target = low.new_slot(node.shape, node.dtype)
    levels = tuple((node.shape[d], (True, True)) for d in outer)

    def line(view: View) -> View:
        order = [*outer, axis]
        return View(view.slot, view.offset, tuple(view.shape[d] for d in order),
                    tuple(view.strides[d] for d in order), view.dtype)

    if length <= TILE:
        (program,) = programs(name, node.dtype, tile_of(length), 0)
        add_step(low, node, program, [line(source), line(target)], (1,), levels, True, node.op.name)
    else:
        tiles = -(-length // TILE)
        first, second = programs(name, node.dtype, TILE, BEFORE if tiles > 128 else 128)
        sums = low.new_slot((*[node.shape[d] for d in outer], tiles), node.dtype.compute)
        add_step(low, node, first, [line(source), sums], (tiles,), levels, True, node.op.name)
        three = tuple((size, (True, True, True)) for size, _ in levels)
        add_step(low, node, second, [line(source), sums, line(target)], (tiles,), three, True, node.op.name)
    low.views[node.serial] = [target]
    return True
