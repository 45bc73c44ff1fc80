# mypy: disable-error-code="valid-type"
"""Running sums, products, extremes and log-sums of long lines in one pass over memory (`look_back.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from morpho.backends.code.kernel_abi import Record
from morpho.backends.code.typed import Words, i64, local
from morpho.backends.cuda.blocks.look_back import BOX_BYTES, LANE_ITEMS, STATUS, THREADS, WARPS, scans, take_tile
from morpho.backends.cuda.blocks.threads import (
    FIRST,
    BlockKernel,
    called,
    elements,
    elementwise,
    in_memory,
    in_register,
    kernel_text,
    lane,
    operand,
    place_in,
    warp,
)
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, known
from morpho.backends.cuda.driver.interface import Geometry
from morpho.base.dtypes import DType
from morpho.ops.tiles.interpret import first_value

COMBINE = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "logsumexp": "logaddexp"}
TILE = THREADS * 16  # elements


@dataclass(frozen=True)
class ScanLines(BlockKernel):
    """Lines of any strides. Buffers: the source, the target, status words that are 0."""

    name: str  # sum, prod, max, min, logsumexp
    dtype: DType
    outer_rank: int

    flops = 2

    @property
    def op_names(self) -> frozenset[str]:
        return frozenset({COMBINE[self.name]})

    @property
    def record(self) -> Record:
        along = self.outer_rank + 1
        return Record(f"length tiles words extents[{self.outer_rank}] source[{along}] target[{along}]")

    @cached_property
    def neutral(self) -> Any:
        return first_value("max" if self.name == "logsumexp" else self.name, self.dtype.compute.numpy).item()

    def launch(self, sizes: Sizes) -> Launch:
        return Launch(Geometry(known(sizes.rows), THREADS, BOX_BYTES))

    def text(self) -> str:
        kind, memory, rank = in_register(self.dtype), in_memory(self.dtype), self.outer_rank
        combine = elementwise(COMBINE[self.name], self.dtype.compute)
        if self.name == "logsumexp":  # hundreds of instructions, wanted at many places
            combine = called(combine, kind)
        neutral, scan = self.neutral, scans(kind, combine, self.neutral)
        (load, store), at = elements(self.dtype), self.record.at
        N = FIRST + 3  # the first number
        of_source, of_target = (place_in(rank, N + at("extents"), N + at(name)) for name in ("source", "target"))

        def kernel_main(p: Words, ctx: Words) -> None:
            number, length, tiles = take_tile(ctx, operand(p, 2, i64)), p[N], p[N + 1]
            line, tile = number // tiles, number % tiles
            x, y = operand(p, 0, memory) + of_source(p, line), operand(p, 1, memory) + of_target(p, line)
            status = operand(p, 2, i64) + (line * p[N + 2] + STATUS)
            first, results, items = tile * TILE + warp(ctx) * (TILE // WARPS) + lane(ctx) * 4, local(kind, 2), local(
                kind, 16)
            for row, k in LANE_ITEMS:
                items[row * 4 + k] = kind(neutral)
                if first + (row * 128 + k) < length:
                    items[row * 4 + k] = load(x + (first + (row * 128 + k)) * p[N + at("source") + rank])
            scan.scan_block(ctx, items, results)
            before = combine(scan.tiles_before(ctx, status, tile, tiles, results[1]), results[0])
            for row, k in LANE_ITEMS:
                if first + (row * 128 + k) < length:
                    store(y + (first + (row * 128 + k)) * p[N + at("target") + rank],
                          combine(before, items[row * 4 + k]))

        return kernel_text(kernel_main, N + len(self.record), THREADS)
