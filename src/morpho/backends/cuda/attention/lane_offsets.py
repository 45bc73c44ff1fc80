"""Where a lane reads fragments in swizzled shared memory, in 32 bits and once per kernel: what differs between the
fragments of a block are constants, which go into the instruction. Blocks begin at lines that are multiples of 16."""

from __future__ import annotations

from morpho.backends.cpu.codegen.emit import Value
from morpho.backends.cuda.codegen.grid import GridEmitter
from morpho.backends.cuda.gemm.fragments import CHUNK, FOUR


class LaneOffsets:
    """Of lines of `length` elements (`gemm/fragments.py` says how they are swizzled)."""

    def __init__(self, e: GridEmitter, lane: Value, length: int) -> None:
        self.e = e
        self.line_bytes, chunks = 2 * length, length // CHUNK
        mask = min(7, chunks - 1)
        low = e.convert("trunc", lane, "i32")
        self.rows = self._of(low, low & 15, low.shift_right(4), mask, length)
        self.lines = self._of(low, (low & 7) + (low.shift_right(4) << 3), low.shift_right(3) & 1, mask, length)

    def _of(self, lane: Value, line: Value, chunk: Value, mask: int, length: int) -> list[Value]:
        """For each 16 elements of a line, the bytes from where the block begins."""
        return [line * self.line_bytes + (((chunk + 2 * step) ^ (lane & mask)) << 4) for step in range(length // 16)]

    def read(self, at: Value, turned: bool) -> list[str]:
        """Four matrices of 8 x 8, whose lines the lanes point at."""
        e, name = self.e, "%" + self.e.fresh("f")
        e.line(f"{name} = call {FOUR} @gpu.ldmatrix{'_trans' if turned else ''}(ptr %ctx, i32 {at.name})")
        return [e.assign(f"extractvalue {FOUR} {name}, {n}", "i32", 1).name for n in range(4)]

    def by_rows(self, base: Value, row: int, step: int) -> list[str]:
        """A's 16 x 16: rows are lines, k lies along them."""
        return self.read(self.rows[step] + base + row * self.line_bytes, False)

    def of_lines(self, base: Value, column: int, step: int) -> list[str]:
        """B's 16 x 16: columns are lines, k lies along them."""
        return self.read(self.lines[step] + base + column * self.line_bytes, False)

    def across_lines(self, base: Value, column: int, step: int) -> list[str]:
        """B's 16 x 16: k goes from line to line, columns lie along them."""
        return self.read(self.rows[column // 16] + base + 16 * step * self.line_bytes, True)
