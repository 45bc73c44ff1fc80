"""What loop kernels on a grid share: the CPU's generator of loops, for one thread that takes `lanes` columns."""

from __future__ import annotations

from morpho.backends.cpu.codegen.emit import BITS, Value
from morpho.backends.cpu.loops.loop_code import LoopCode
from morpho.backends.cpu.loops.loop_spec import Access, LoopKernel
from morpho.backends.cuda.codegen.grid import GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import ISA

WIDEST = 16  # bytes of one access of a thread
MOST_LANES = 8
LINE_BYTES, MOST_LINES = 128, 128  # of memory that a thread asks for; of a row whose threads ask for all of it


class AlignedEmitter(GridEmitter):
    """Vectors of a thread are as aligned as they are wide: one access each."""

    def load(self, pointer: str, element: str, lanes: int | None = None, align: int | None = None) -> Value:
        count = self.lanes if lanes is None else lanes
        return super().load(pointer, element, count, align or max(1, count * BITS[element] // 8))

    def store(self, value: Value, pointer: str, align: int | None = None) -> None:
        super().store(value, pointer, align or max(1, value.lanes * BITS[value.element] // 8))


def lanes_of(kernel: LoopKernel) -> int:
    """Columns that a thread takes at once: as many as one wide access holds of the widest operand."""
    moving = [a for a in kernel.accesses if a.kind in ("load", "store") and a.pattern != "zero"]
    simple = all(a.pattern in ("unit", "zero", "none") and a.other < 0 for a in kernel.accesses if a.kind != "index")
    along = all(a.pattern in ("unit", "zero") for a in kernel.accesses if a.kind == "index")
    if not moving or not simple or not along or kernel.inner_rank != 1 or kernel.gathers:
        return 1
    widest = max(max(a.dtype.itemsize for a in moving),
                 max((i.dtype.compute.itemsize // 2 for i in kernel.instructions if i.full), default=1))
    return max(1, min(MOST_LANES, WIDEST // widest))


def side_by_side(access: Access) -> bool:
    """Whether a thread's columns of an operand are one access."""
    return access.kind in ("load", "store") and access.pattern == "unit"


class LoopGrid(LoopCode):
    """The state of a loop kernel being written for a grid."""

    def __init__(self, kernel: LoopKernel, lanes: int, places: int, numbers: int) -> None:
        super().__init__(kernel, ISA)
        self.lanes, self.compact, self.pipelined, self.wide = lanes, False, False, False
        self.e: AlignedEmitter = AlignedEmitter()
        self.e.lanes = lanes
        self.places, self.count = places, numbers

    def begin_function(self) -> None:
        """The operands' addresses and the kernel's numbers."""
        e, kernel = self.e, self.kernel
        self.bases = [e.load_pointer("%buffers", n) if a.kind != "index" else ""
                      for n, a in enumerate(kernel.accesses)]
        rank = kernel.outer_rank + kernel.inner_rank
        self.outer = [self.number(d) for d in range(kernel.outer_rank)]
        self.inner = [self.number(kernel.outer_rank + d) for d in range(kernel.inner_rank)]
        self.strides = [[self.number(kernel.access_at(n) + d) for d in range(rank)]
                        for n in range(len(kernel.accesses))]
        if kernel.may_fault:
            self.fault = self.allocate("i32", 1)
            e.store(e.constant(0, "i32", 1), self.fault)

    def ask_ahead(self, thread: Value, columns: int) -> None:
        """Ask for what all rows share (weights and biases of a norm) while the kernels ahead are at work, then wait."""
        e = self.e
        for number, access in enumerate(self.kernel.accesses):
            lines = -(-columns * access.dtype.itemsize // LINE_BYTES)
            if access.kind != "load" or access.pattern != "unit" or access.other >= 0 or lines > MOST_LINES:
                continue
            with e.when(e.icmp("slt", thread, lines)):
                e.ask_for(e.offset(self.bases[number], "i8", thread * LINE_BYTES))
        e.wait_for_others()

    def end_function(self, attributes: str = "") -> str:
        """The whole text."""
        e = self.e
        if self.kernel.may_fault:
            e.report(e.load(self.fault, "i32", 1))
        text = e.text()
        body = "\n".join([*self.allocas, *self.head_lines(), *self.number_lines(text), text])
        return entry("kernel_main", self.words, body, " nounwind" + attributes) + e.outside()

    def head_lines(self) -> list[str]:
        """Where the operands' addresses and the kernel's numbers are."""
        first = int(Header.SIZE)
        return [f"  %buffers = getelementptr i64, ptr %p, i64 {first}",
                f"  %values = getelementptr i64, ptr %p, i64 {first + self.places}"]

    @property
    def words(self) -> int:
        """That it is launched with."""
        return int(Header.SIZE) + self.places + self.count

    def one_lane(self) -> None:
        """From here on a column at a time."""
        self.lanes = self.e.lanes = 1
        self.temporaries = {}
