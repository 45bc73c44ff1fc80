"""Any kernel of the CPU on a grid: its scalar code is called by every thread for a row, or a piece of one.

This is the way of everything that has no kernel of its own for GPUs: the CPU's bits, parallel over rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import ISA, SCRATCH_BYTES, Launch, Sizes, WithoutMaps
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.kernels.gemm.gemm import EPILOGUE, PROLOGUE
from morpho.backends.kernels.generators import generate
from morpho.program.kernel import Kernel

THREADS = 128
WAVES = 16  # blocks of a multiprocessor in a grid, at most: threads take several items


@dataclass(frozen=True)
class GenericKernel(WithoutMaps):
    """A kernel of the CPU, with those that it calls; `places` and `numbers` count its operands and values."""

    body: Kernel
    epilogue: Kernel | None
    prologue: Kernel | None
    places: int
    numbers: int
    by_columns: bool  # whether a thread takes a column

    def alignments(self) -> tuple[tuple[int, int], ...]:
        return ()

    def unaligned(self) -> GenericKernel:
        return self

    def kernel(self) -> Kernel:
        return self.body

    def launch(self, sizes: Sizes) -> Launch:
        """Threads take rows, or columns of rows."""
        pieces = sizes.columns if self.by_columns else 1
        items = max(sizes.rows * pieces, 1)
        blocks = min(-(-items // THREADS), WAVES * sizes.multiprocessors)
        threads = min(THREADS, max(32, items))
        stride = -(-sizes.scratch_bytes // 64) * 64
        if stride:
            fit = max(SCRATCH_BYTES // stride, 1)
            threads = min(threads, fit)
            blocks = max(1, min(blocks, fit // threads))
        return Launch(Geometry(blocks, threads), pieces, 1 if self.by_columns else sizes.columns, stride)

    def text(self) -> str:
        """The bodies as functions, and the entry that calls the first."""
        parts = [function_text(self.body, "body")]
        e, first = GridEmitter(), int(Header.SIZE)
        buffers = e.offset("%p", "i64", first)
        values = e.offset("%p", "i64", first + self.places)
        if self.epilogue is not None or self.prologue is not None:
            values = self._with_functions(e, values, parts)
        rows, columns = e.word(Header.ROWS), e.word(Header.COLUMNS)
        pieces, grain = e.word(Header.PIECES), e.word(Header.GRAIN)
        thread = e.ask("block") * e.ask("threads") + e.ask("thread")
        scratch = e.offset(e.address(Header.SCRATCH), "i8", thread * e.word(Header.SCRATCH_STRIDE))
        with e.loop(thread, rows * pieces, e.ask("blocks") * e.ask("threads")) as loop:
            if self.by_columns:
                row = e.select(e.icmp("eq", rows, 1), e.constant(0, "i64", 1), _divided(e, loop.index, pieces))
                start = (loop.index - row * pieces) * grain
                end = e.intrinsic("smin", start + grain, columns)
            else:
                row, start, end = loop.index, e.constant(0, "i64", 1), columns
            status = e.assign(f"call i32 @body(ptr {buffers}, ptr {values}, i64 {row.name}, i64 {(row + 1).name}, "
                              f"i64 {start.name}, i64 {end.name}, ptr {scratch})", "i32", 1)
            if any(kernel is not None and _may_fault(kernel) for kernel in (self.body, self.epilogue, self.prologue)):
                e.report(status)
        main = entry("kernel_main", first + self.places + self.numbers, e.text(), " nounwind")
        return joined([*parts, main + e.outside()])

    def _with_functions(self, e: GridEmitter, values: str, parts: list[str]) -> str:
        """The numbers in memory of the thread's own, with the addresses of the functions that the kernel calls."""
        name = "%" + e.fresh("own")
        e.line(f"{name} = alloca [{self.numbers} x i64], align 8")
        with e.loop(0, self.numbers) as loop:
            e.store(e.load(e.offset(values, "i64", loop.index), "i64", 1), e.offset(name, "i64", loop.index))
        for kernel, called, at in ((self.epilogue, "after", EPILOGUE), (self.prologue, "before", PROLOGUE)):
            if kernel is not None:
                parts.append(function_text(kernel, called))
                e.line(f"store ptr @{called}, ptr {e.offset(name, 'i64', at)}, align 8")
        return name


def _may_fault(kernel: Kernel) -> bool:
    return kernel.may_fault or type(kernel).__name__ == "MatrixKernel" or kernel.role == "scatter"


def _divided(e: GridEmitter, index: Value, by: Value) -> Value:
    """A quotient of numbers that are mostly below 2**32, where a GPU divides five times as fast."""
    narrow = e.icmp("ult", (index | by).shift_right(32), 1)
    cell = "%" + e.fresh("q")
    e.line(f"{cell} = alloca i64, align 8")
    for short in e.both(narrow):
        if short:
            q = e.instruction("udiv", e.convert("trunc", index, "i32"), e.convert("trunc", by, "i32"))
            e.store(e.convert("zext", q, "i64"), cell)
        else:
            e.store(e.instruction("udiv", index, by), cell)
    return e.load(cell, "i64", 1)


def function_text(kernel: Kernel, name: str) -> str:
    """The CPU's text of a kernel. Values hidden from LLVM's loop passes there are plain here: see `verify.py`."""
    text = re.sub(r'call (\w+) asm "", "=r,0"\(\1 ([^)]+)\)', r"freeze \1 \2", generate(kernel, ISA, name))
    return re.sub(rf"^define i32 @{name}\(", f"define internal i32 @{name}(", text, flags=re.MULTILINE)


_TOP = re.compile(r"^(?=define |declare |@[\w.$\"-]+ = )", re.MULTILINE)


def joined(modules: list[str]) -> str:
    """Several modules as one: what stands in both stands there once."""
    found: dict[str, None] = {}
    for module in modules:
        for part in _TOP.split(module):
            if part.strip():
                found.setdefault(part.rstrip())
    return "\n".join(found) + "\n"
