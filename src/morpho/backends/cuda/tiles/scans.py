"""Running sums, products and extremes of lines on a GPU.

A line of one tile is scanned by one program. A longer one takes one pass with look-back (`blocks/scan.py`). The order
of additions is fixed by the tile alone, so the bits do not depend on the grid; they are not those of one chain. A short
tile is 128 segments of up to 31 elements: an odd number, since neighbouring threads then read different banks of shared
memory.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from morpho.backends.cuda.blocks.look_back import STATUS, workspace
from morpho.backends.cuda.blocks.scan import TILE, ScanLines
from morpho.backends.cuda.blocks.threads import in_register
from morpho.backends.lowering.lower_tiles import add_step
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import product, upper
from morpho.base.dtypes import DType, int64
from morpho.ir.node import Node
from morpho.ops.tiles.functions import cummax, cummin, cumprod, cumsum, load, store
from morpho.ops.tiles.interpret import first_value
from morpho.ops.tiles.ir import SEGMENTS, TileProgram
from morpho.ops.tiles.translate import translate
from morpho.program.program import Step
from morpho.program.view import View

SHORT = SEGMENTS * 31
LEAST = 256  # elements of a line; shorter ones are a thread's each
MANY_LINES = 1 << 13  # that lie across: a thread each keeps the device busy
MOST = 1 << 40
RUNNING = {"sum": cumsum, "prod": cumprod, "max": cummax, "min": cummin}


def scan_rows(x: Any, out: Any, *, tile: int, running: Any, none: Any, wide: DType) -> None:
    """One tile a line."""
    store(out[:], running(load(x[:], tile, other=none).astype(wide)))


@lru_cache(maxsize=64)
def program(name: str, dtype: DType, tile: int) -> TileProgram:
    """The kernel of short lines."""
    wide = dtype.compute
    known = {"tile": tile, "none": first_value(name, wide.numpy).item(), "wide": wide, "running": RUNNING[name]}
    return translate(scan_rows, [("x", dtype, 1), ("out", dtype, 1)], known)


def tile_of(length: int) -> int:
    """Elements of the tile of a short line: an odd number of elements in each segment."""
    return SEGMENTS * (-(-length // SEGMENTS) | 1)


def is_long_line(node: Node) -> bool:
    """Whether the lines of a scan are long enough for a block each."""
    length = node.shape[node["axis"]]
    return (not node.dtype.is_complex and node.dtype.compute.itemsize >= 4 and isinstance(length, int)
            and LEAST <= length < MOST)


def lower_scan(low: Lowering, node: Node) -> bool:
    """One launch; neighbouring threads take neighbouring lines that lie across, if they are many."""
    axis, name = node["axis"], node.op.name.removeprefix("cumulative_")
    length = int(node.shape[axis])
    source, outer = low.view(node.inputs[0]), [d for d in range(len(node.shape)) if d != axis]
    if source.strides[axis] != 1 and upper(product(tuple(node.shape[d] for d in outer))) >= MANY_LINES:
        return False
    target = low.new_slot(node.shape, node.dtype)
    if length <= SHORT and name in RUNNING:
        def line(view: View) -> View:
            order = [*outer, axis]
            return View(view.slot, view.offset, tuple(view.shape[d] for d in order),
                        tuple(view.strides[d] for d in order), view.dtype)

        levels = tuple((node.shape[d], (True, True)) for d in outer)
        add_step(low, node, program(name, node.dtype, tile_of(length)), [line(source), line(target)], (1,), levels,
                 True, node.op.name)
    else:
        kernel, tiles = ScanLines(name, node.dtype, len(outer)), -(-length // TILE)
        lines, words = product(tuple(node.shape[d] for d in outer)), workspace(tiles, in_register(node.dtype))
        status = low.new_slot((STATUS + lines * words,), int64)
        low.copy(0, status, node)
        values = kernel.record.values(
            length=length, tiles=tiles, words=words, extents=[node.shape[d] for d in outer],
            source=[source.strides[d] for d in (*outer, axis)], target=[target.strides[d] for d in (*outer, axis)])
        low.add(Step(kernel, (source, target, status), (1, 2), values, lines * tiles, TILE, node.op.name, node.origin,
                     choice="one pass, look-back between blocks"))
    low.views[node.serial] = [target]
    return True
