"""Writing code for one thread of a grid.

A kernel is `define void @kernel_x(ptr %p, ptr %ctx)`: `%p` are the words it was launched with, `%ctx` the grid, of
which it asks by the functions `@gpu.*`. On a GPU these are intrinsics (`assembly/intrinsics.py`), on the CPU the
emulator's (`emulator/runtime.py`); all the rest is the same text.

The words: a header (`Header`), the addresses of the operands, then the kernel's numbers.
"""

from __future__ import annotations

import re
from enum import IntEnum

from morpho.backends.code.emit import BITS, Emitter, Value, defined, literal

ENTRY = re.compile(r"define void @(kernel_\w+)\(ptr %p, ptr %ctx\) #(\d+)")
WARP = 32


class Header(IntEnum):
    """The first words of every launch."""

    ROWS = 0
    COLUMNS = 1
    PIECES = 2  # of a row
    GRAIN = 3  # columns of a piece
    SCRATCH = 4  # address
    SCRATCH_STRIDE = 5  # bytes of one thread
    FAULT = 6  # address of the status
    EXTRA = 7
    SIZE = 8


DECLARED = {
    "thread": "i64", "block": "i64", "threads": "i64", "blocks": "i64", "shared": "ptr",
}


class GridEmitter(Emitter):
    """An emitter for one thread."""

    def __init__(self) -> None:
        super().__init__(1, native_half=True, architecture="nvptx64")
        self.near_table = self.table_in_memory

    def table_in_memory(self, name: str, numbers: tuple[float, ...]) -> str:
        """Numbers of which a lane reads some neighbours: a constant of the module, 512 bytes of them."""
        given = ", ".join(f"float {literal(number, 'float')}" for number in [*numbers, *[0.0] * 128][:128])
        self.declarations.add(f"@{name}.near = internal constant [128 x float] [{given}], align 16")
        return f"@{name}.near"

    def ask(self, what: str) -> Value:
        """A number of the grid: thread, block, threads, blocks."""
        return self.assign(f"call {DECLARED[what]} @gpu.{what}(ptr %ctx)", DECLARED[what], 1)

    def shared(self) -> str:
        """The block's shared memory."""
        return self.ask("shared").name

    def word(self, index: int | Value, element: str = "i64") -> Value:
        """A word of the launch."""
        return self.load(self.offset("%p", "i64", index), element, 1, align=8)

    def address(self, index: int) -> str:
        """A word of the launch that is an address."""
        return self.load_pointer(self.offset("%p", "i64", index))

    def barrier(self) -> None:
        """All threads of the block."""
        self.line("call void @gpu.barrier(ptr %ctx)")

    def shuffle_xor(self, x: Value, mask: int) -> Value:
        """The value of the lane whose number differs in these bits."""
        if x.element == "i1" or BITS[x.element] < 32:
            wide = self.convert("zext", self.bits(x) if x.is_float else x, "i32")
            moved = self.convert("trunc", self.shuffle_xor(wide, mask), f"i{BITS[x.element]}")
            return self.from_bits(moved, x.element) if x.is_float else moved
        if BITS[x.element] == 64:
            bits = self.bits(x) if x.is_float else x
            low = self.shuffle_xor(self.convert("trunc", bits, "i32"), mask)
            high = self.shuffle_xor(self.convert("trunc", bits.shift_right(32), "i32"), mask)
            both = self.convert("zext", low, "i64") | (self.convert("zext", high, "i64") << 32)
            return self.from_bits(both, x.element) if x.is_float else both
        bits = self.bits(x) if x.is_float else x
        moved = self.assign(f"call i32 @gpu.shuffle_xor(ptr %ctx, i32 {bits.name}, i32 {mask})", "i32", 1)
        return self.from_bits(moved, x.element) if x.is_float else moved

    def ask_for(self, pointer: str) -> None:
        """Have a line of memory come to the cache that all multiprocessors share, whoever writes it meanwhile: a
        kernel may ask before those ahead of it are over."""
        self.line(f"call void @gpu.prefetch(ptr %ctx, ptr {pointer})")

    def wait_for_others(self) -> None:
        """Let the next kernel come; go on when those ahead of this one are over."""
        self.line("call void @gpu.grid_wait(ptr %ctx)")

    def report(self, status: Value) -> None:
        """Put a fault among those of the run."""
        with self.when(self.icmp("ne", status, 0)):
            self.line(f'atomicrmw or ptr {self.address(Header.FAULT)}, i32 {status.name} syncscope("device") monotonic')


def entry(name: str, words: int, body: str, attributes: str = "") -> str:
    """The head of a kernel around the lines of its body."""
    return defined(f"void @{name}(ptr %p, ptr %ctx) #{words}{attributes}", body, "\n  ret void")
