"""The function of a `PrologueGemmKernel`: a few rows are computed, then packed, before the panels go by."""

from __future__ import annotations

from morpho.backends.code.emit import Value
from morpho.backends.kernels.gemm.gemm import PROLOGUE, PROLOGUE_GEMM
from morpho.backends.kernels.gemm.gemm_code import GemmCode
from morpho.backends.kernels.gemm.microkernel import places_of_batch
from morpho.backends.kernels.gemm.prologue import PrologueGemmKernel
from morpho.base.machine import Isa


def generate(kernel: PrologueGemmKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `PrologueGemmKernel`."""
    return PrologueCode(kernel, isa).module(name)


class PrologueCode(GemmCode):
    """State of the generator of prologue kernels."""

    record = PROLOGUE_GEMM

    def begin(self) -> None:
        e, v = self.e, self.v
        e.line(f"%before = alloca ptr, i64 {v['before_operands'].name}, align 8")
        self.copy_places("%before", v["operands"] + 2, v["before_operands"])
        self.left = e.offset("%scratch", "i8", v["left_at"])

    def item(self, index: Value) -> None:
        """One tile of rows, with all columns."""
        e, v = self.e, self.v
        batch = e.instruction("udiv", index, v["row_tiles"])
        self.batch_place = places_of_batch(e, batch, v)
        first = (index - batch * v["row_tiles"]) * v["tile_rows"]
        rows = first, e.intrinsic("smin", first + v["tile_rows"], v["m"])
        with e.when(e.icmp("slt", *rows)):  # dynamic sizes may have fewer tiles
            blocks = e.instruction("udiv", v["k"] + v["depth"] - 1, v["depth"])
            self.over_rows(rows, lambda height, row: self.compute_and_pack(batch * v["m"] + first, row, height, blocks))
            panels = e.constant(0, "i64", 1), self.panels
            with e.loop(0, blocks) as loop:
                block = self.place_block(loop.index)
                self.over_panels(batch, rows, panels, block, e.icmp("eq", loop.index, 0))
            self.finish(batch, rows, panels)

    def place_block(self, number: Value) -> tuple[Value, Value]:
        """Where a block of k starts, and how many values it has; its packed rows are those read and written next."""
        start = number * self.v["depth"]
        self.rows_at = self.e.offset("%scratch", "i8", number * self.v["room"])
        return start, self.e.intrinsic("smin", self.v["depth"], self.v["k"] - start)

    def compute_and_pack(self, top: Value, row: Value, height: int, blocks: Value) -> None:
        """Rows of a tile that begins at row `top` of the left operand."""
        e, v = self.e, self.v
        origin = e.offset(self.left, self.memory, 0 - (top + row) * v["a_m"])
        e.line(f"store ptr {origin}, ptr {e.offset('%before', 'ptr', v['before_left'])}, align 8")
        self.call_loop(PROLOGUE, "%before", e.offset("%values", "i64", v["before_numbers"]),
                       (top + row, top + row + height), (e.constant(0, "i64", 1), v["k"]), "before_scratch")
        with e.loop(0, blocks) as loop:
            start, depth = self.place_block(loop.index)
            self.pack_lines(height, e.offset(self.left, self.memory, start), row, depth)
