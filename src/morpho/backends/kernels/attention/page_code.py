"""The function of a `PageWriteKernel`."""

from __future__ import annotations

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.attention.pages import BASE, NEW, PLACES, TARGET, PageWriteKernel
from morpho.base.machine import Isa


def generate(kernel: PageWriteKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `PageWriteKernel`."""
    return PageCode(kernel, isa).module(name)


class PageCode:
    def __init__(self, kernel: PageWriteKernel, isa: Isa) -> None:
        self.kernel, self.memory = kernel, scalars.memory_type(kernel.dtype)
        self.lanes = max(1, isa.vector_bits // BITS[self.memory])
        self.e = Emitter(self.lanes, isa.native_half)

    def module(self, name: str) -> str:
        e, record = self.e, self.kernel.record
        self.n = record.load(e)
        self.pool, self.new, self.places = (record.loaded(field, self.n) for field in ("pool", "new", "places"))
        self.buffers = [e.load_pointer("%buffers", i) for i in range(4)]
        with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as heads:
            apart = e.assign(f"icmp ne ptr {self.buffers[BASE]}, {self.buffers[TARGET]}", "i1", 1)
            with e.when(apart):
                self.copy_old(heads.index)
            self.write_new(heads.index)
        e.line("ret i32 0")
        return defined(f"i32 @{name}({SIGNATURE}) nounwind", e.text()) + "\n".join(sorted(e.declarations)) + "\n"

    def copy_old(self, head: Value) -> None:
        e, n = self.e, self.n
        one = e.constant(1, "i64", 1)
        with e.loop(0, n["pages"]) as pages, e.loop(0, n["page"]) as lines:
            at = pages.index * self.pool[0] + head * self.pool[1] + lines.index * self.pool[2]
            self.copy_line(self.at(BASE, at), one, self.at(TARGET, at))

    def write_new(self, head: Value) -> None:
        e, n = self.e, self.n
        with e.loop(0, n["batch"]) as rows, e.loop(0, n["count"]) as lines:
            index = rows.index * self.places[0] + lines.index * self.places[1]
            place = e.load(e.offset(self.buffers[PLACES], "i64", index), "i64", 1)
            with e.when(e.icmp("ult", place, n["pages"] * n["page"])):  # a negative one is a large one here
                page = e.instruction("udiv", place, n["page"])
                line = place - page * n["page"]
                source = rows.index * self.new[0] + head * self.new[1] + lines.index * self.new[2]
                target = page * self.pool[0] + head * self.pool[1] + line * self.pool[2]
                self.copy_line(self.at(NEW, source), self.new[3], self.at(TARGET, target))

    def at(self, operand: int, index: Value) -> str:
        return self.e.offset(self.buffers[operand], self.memory, index)

    def copy_line(self, source: str, step: Value, target: str) -> None:
        e, depth = self.e, self.n["depth"]
        whole = e.select(e.icmp("eq", step, 1), depth & -self.lanes, 0)
        with e.loop(0, whole, self.lanes) as loop:
            e.store(e.load(e.offset(source, self.memory, loop.index), self.memory, self.lanes),
                    e.offset(target, self.memory, loop.index))
        with e.loop(whole, depth) as loop:
            e.store(e.load(e.offset(source, self.memory, loop.index * step), self.memory, 1),
                    e.offset(target, self.memory, loop.index))
