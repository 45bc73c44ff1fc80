"""float32 on tensor cores, where the user says `tf32`: operands are rounded to 11 bits on their way into slices;
sums are float32, eight values of k at a time, ascending: a row's bits do not depend on the tile."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import WARP
from morpho.backends.cuda.gemm.simt import SimtCode, SimtGemm

DEPTH = 32  # values of k of a slice
PAD = 8  # the lanes of a fragment, four values of k by eight lines, are in different banks
ROWS, COLUMNS, STEP = 16, 8, 8  # of one instruction
FOUR = "{ float, float, float, float }"


@dataclass(frozen=True)
class Tf32Gemm(SimtGemm):
    """`tile`: rows and columns of a block, then of a warp."""

    @property
    def threads(self) -> int:
        return WARP * (self.tile[0] // self.tile[2]) * (self.tile[1] // self.tile[3])

    @property
    def depth(self) -> int:
        """Values of k of a slice."""
        return DEPTH

    @property
    def pad(self) -> int:
        """Elements behind a row of a slice."""
        return PAD

    def text(self) -> str:
        return Tf32Code(self).module()


class Tf32Code(SimtCode):
    """Generator of the LLVM text of one tf32 kernel."""

    def __init__(self, kernel: Tf32Gemm) -> None:
        super().__init__(kernel)
        self.count = (self.high // ROWS) * (self.wide // COLUMNS) * 4

    def find_part(self) -> None:
        """The warp's part of the tile."""
        across = self.columns // self.wide
        warp, self.lane = self.thread.shift_right(5), self.thread & (WARP - 1)
        self.group, self.pair = self.lane.shift_right(2), self.lane & 3
        self.my_row = warp.shift_right(across.bit_length() - 1) * self.high
        self.my_column = (warp & (across - 1)) * self.wide

    def kept(self, value: Value) -> Value:
        """Rounded to 11 bits."""
        e = self.e
        return e.from_bits(e.assign(f"call i32 @gpu.to_tf32(ptr %ctx, float {value.name})", "i32", 1), "float")

    def multiply(self, depth: int, sums: list[Value]) -> list[Value]:
        """Eight values of k at once."""
        if depth % STEP:
            return sums
        e, found = self.e, list(sums)

        def part(source: str, line: Value, further: int, pitch: int) -> Value:
            place = (self.pair + (depth + further)) * pitch + line
            return e.load(e.offset(source, "i32", place), "i32", 1, align=4)

        right = [[part(self.right, self.my_column + self.group + j, further, self.columns + self.pad)
                  for further in (0, 4)] for j in range(0, self.wide, COLUMNS)]
        for i in range(self.high // ROWS):
            left = [part(self.left, self.my_row + self.group + (ROWS * i + 8 * half), further, self.rows + self.pad)
                    for further in (0, 4) for half in range(2)]
            for j, b in enumerate(right):
                at = 4 * (i * len(right) + j)
                given = ", ".join([*(f"i32 {x.name}" for x in (*left, *b)),
                                   *(f"float {x.name}" for x in found[at:at + 4])])
                name = "%" + e.fresh("d")
                e.line(f"{name} = call {FOUR} @gpu.mma_tf32(ptr %ctx, {given})")
                found[at:at + 4] = [e.assign(f"extractvalue {FOUR} {name}, {n}", "float", 1) for n in range(4)]
        return found

    def store(self, sums: list[Value]) -> None:
        """The warp's part of the tile. A lane has pairs of neighbours."""
        e, frame, kind = self.e, self.frame, scalars.memory_type(self.kernel.result)
        for number, value in enumerate(sums):
            block, place = divmod(number, 4)
            i, j = divmod(block, self.wide // COLUMNS)
            row = frame.row + self.my_row + self.group + (ROWS * i + 8 * (place // 2))
            column = frame.column + self.my_column + self.pair * 2 + (COLUMNS * j + place % 2)
            rounded = scalars.to_memory(e, scalars.round_to(e, value, self.kernel.result), self.kernel.result)
            with e.when(e.icmp("slt", row, frame.m) & e.icmp("slt", column, frame.n)):
                e.store(rounded, e.offset(frame.c, kind, row * frame.c_m + column * frame.c_n))
