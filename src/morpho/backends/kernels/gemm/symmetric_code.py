"""The function of a `SymmetricGemmKernel`: tiles up to the diagonal, and their mirror images."""

from __future__ import annotations

from typing import Any

from morpho.backends.code.emit import Value
from morpho.backends.code.register_transpose import transposed
from morpho.backends.kernels.gemm.gemm_code import GemmCode
from morpho.backends.kernels.gemm.microkernel import Function
from morpho.backends.kernels.gemm.symmetric import MIRRORED, SYMMETRIC_GEMM, SymmetricGemmKernel
from morpho.base.machine import Isa


def generate(kernel: SymmetricGemmKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `SymmetricGemmKernel`."""
    return SymmetricCode(kernel, isa).module(name)


class Mirror:
    """mirror(source, rows, columns, stride, target): a block of sums transposed, rounded up to whole vectors both ways;
    rows are `stride` elements apart in both."""

    ARGUMENTS = "ptr %source, i64 %rows, i64 %columns, i64 %stride, ptr %target"

    def __init__(self, element: str, lanes: int, isa: Isa) -> None:
        self.function = Function("mirror", self.ARGUMENTS, lanes, isa)
        self.e, self.element, self.lanes = self.function.e, element, lanes

    def write(self) -> str:
        e, lanes = self.e, self.lanes
        rows, columns, stride = map(self.function.number, ("%rows", "%columns", "%stride"))
        with e.loop(0, rows, lanes) as down, e.loop(0, columns, lanes) as across:
            source = e.offset("%source", self.element, down.index * stride + across.index)
            target = e.offset("%target", self.element, across.index * stride + down.index)
            lines = [e.load(e.offset(source, self.element, stride * line), self.element) for line in range(lanes)]
            for line, found in enumerate(transposed(e, lines)):
                e.store(found, e.offset(target, self.element, stride * line))
        return self.function.text()


class SymmetricCode(GemmCode):
    """A GEMM that leaves out what lies above the diagonal's tiles."""

    record = SYMMETRIC_GEMM

    def parts(self) -> list[Any]:
        return [*super().parts(), Mirror(self.element, self.register.lanes, self.isa)]

    def last_panel(self, end: Value, rows: tuple[Value, Value]) -> Value:
        """Panels up to the diagonal."""
        width = self.register.width
        return self.e.intrinsic("smin", end, self.e.instruction("udiv", rows[1] + (width - 1),
                                                                self.e.constant(width, "i64", 1)))

    def finish(self, batch: Value, rows: tuple[Value, Value], panels: tuple[Value, Value]) -> None:
        """The epilogue over the tile, and over the mirror images of what lies left of the diagonal's."""
        e, v, width = self.e, self.v, self.register.width
        top, steps = batch * v["m"], (v["stride"], e.constant(1, "i64", 1))
        first, end = panels[0] * width, e.intrinsic("smin", panels[1] * width, rows[1])
        self.call_epilogue(self.sums, (top + rows[0], top + rows[1]), (first, end), steps)
        mirrored = e.offset("%scratch", "i8", v["mirror_at"])
        left = e.intrinsic("smin", end, rows[0])
        with e.loop(first, left, MIRRORED) as blocks:
            stop = e.intrinsic("smin", blocks.index + MIRRORED, left)
            source = e.offset(self.sums, self.element, blocks.index - first)
            e.line(f"call void @mirror(ptr {source}, i64 {(rows[1] - rows[0]).name}, i64 {(stop - blocks.index).name}, "
                   f"i64 {v['stride'].name}, ptr {mirrored})")
            self.call_epilogue(mirrored, (top + blocks.index, top + stop), rows, steps)
