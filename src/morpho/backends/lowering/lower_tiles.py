"""From a kernel's node to a step: programs of the grid are its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morpho.backends.kernels.tiles.cpu import written as code_of
from morpho.backends.kernels.tiles.spec import TileKernel
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import Size, product
from morpho.base.target import current_isa
from morpho.ir.node import Node
from morpho.ops.tiles import record
from morpho.ops.tiles.ir import TileProgram, decode
from morpho.program.program import Step
from morpho.program.view import View


def lower_tiles(low: Lowering, node: Node, on_gpu: bool = False) -> None:
    """The step of a kernel, and fills or copies of results that have a value before it."""
    program, fills = decode(node["program"]), node["fills"]
    places = {array.name: low.view(child) for array, child in zip(
        record.inputs_of(program, fills), node.inputs, strict=True)}
    written = [array for array in program.arrays if array.written]
    targets: list[View] = []
    for array, spec, begin in zip(written, node.outputs, fills, strict=True):
        target = low.new_slot(spec.shape, spec.dtype)
        if begin == record.INPUT:
            low.copy(places[array.name], target, node)
        elif begin != record.UNDEFINED:
            low.copy(begin, target, node)
        places[array.name] = target
        targets.append(target)
    add_step(low, node, program, [places[array.name] for array in program.arrays], node["grid"], node["levels"],
             on_gpu)
    low.views[node.serial] = list(targets)


def add_step(low: Lowering, node: Node, program: TileProgram, views: Sequence[View], grid: Sequence[Size],
             levels: record.Levels, on_gpu: bool, label: str = "") -> None:
    """The step of a program on arrays at some places. `levels`: axes around the grid, for each a size and which arrays
    have it in front of their own axes."""
    numbers: dict[str, Any] = {"grid": [*grid, 1, 1, 1][:3], "levels": [size for size, _ in levels]}
    units: list[bool] = []
    for number, (array, view) in enumerate(zip(program.arrays, views, strict=True)):
        axes = len(view.shape) - array.rank
        moves = iter(view.strides[:axes])
        numbers[f"moves{number}_"] = [next(moves) if flags[number] else 0 for _, flags in levels]
        numbers[f"shape{number}_"] = list(view.shape[axes:])
        numbers[f"strides{number}_"] = list(view.strides[axes:])
        units.append(array.rank > 0 and view.strides[-1] == 1)
    kernel = TileKernel(program.text, tuple(units), len(levels))
    rows: Size = product((*grid, *[size for size, _ in levels]))
    largest = max((product(value.shape) for one in program.operations for value in one.results), default=1)
    sizes = " x ".join(str(size) for size in grid)
    writes = tuple(number for number, array in enumerate(program.arrays) if array.written)
    low.add(Step(kernel, tuple(views), writes, kernel.record.values(**numbers), rows, largest,
                      label or program.name, node.origin, scratch=0 if on_gpu else code_of(kernel, current_isa())[1],
                      choice=f"a kernel over tiles, {sizes} programs"))
