"""The function of a `RegisterLoop`: what no turn changes, then a loop with every carried scalar in a register."""

from __future__ import annotations

from collections.abc import Iterable

from morpho.backends.code import elementwise, scalars
from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.code.kernel_abi import FAULT_INDEX, SIGNATURE
from morpho.backends.kernels.loops.sequential.register_loop import Carry, RegisterLoop
from morpho.base.machine import Isa

STRETCH = 1 << 16  # instructions between the first two polls; each takes from 0.3 to some 500 ns
LEAST_TURNS = 16
ROOM = "  %stretch = alloca i64, align 8\n"


def generate(kernel: RegisterLoop, isa: Isa, name: str) -> str:
    """The LLVM module of a `RegisterLoop`."""
    return RegisterLoopCode(kernel, isa).text(name)


class RegisterLoopCode:
    """One such function being written."""

    def __init__(self, kernel: RegisterLoop, isa: Isa) -> None:
        self.kernel, self.e = kernel, Emitter(1, isa.native_half, architecture=isa.architecture)
        self.values: dict[int, Value] = {}
        self.faults: list[tuple[Value, int]] = []  # with their status

    def text(self, name: str) -> str:
        e, kernel = self.e, self.kernel
        self.bases = [e.load_pointer("%buffers", number) for number in range(len(kernel.operands))]
        numbers = kernel.record.load(e)
        self.all_turns(numbers["turns"], kernel.record.loaded("strides", numbers))
        e.line("ret i32 0")
        return defined(f"i32 @{name}({SIGNATURE}) nounwind", ROOM, e.text()) + "\n".join(sorted(e.declarations))

    def all_turns(self, turns: Value, strides: list[Value]) -> None:
        """The loop, from the first values of what is carried to the last ones in their places."""
        e, kernel = self.e, self.kernel
        self.pointers, self.values = list(self.bases), {}
        self.write(self.invariant())
        firsts = [self.first(carry) for carry in kernel.carries]
        head, body, done, stretch, pause, on = (e.fresh(n) for n in ("head", "body", "done", "stretch", "pause", "on"))
        first_turns = max(LEAST_TURNS, STRETCH // max(1, len(kernel.instructions)))
        e.store(e.constant(first_turns, "i64", 1), "%stretch")
        before = e.block
        e.branch(stretch)
        e.label(stretch)  # some turns, then a poll: the loop itself has none
        start = Value(e, "%" + e.fresh("t"), "i64", 1)
        olds = [Value(e, "%" + e.fresh("c"), first.element, first.lanes) for first in firsts]
        outer = len(e.lines)  # the phis go here once the values of the back edge are known
        stop = start + e.load("%stretch", "i64", 1)
        if kernel.test is None:
            stop = e.select(e.icmp("slt", stop, turns), stop, turns)
        e.branch(head)
        e.label(head)
        turn = Value(e, "%" + e.fresh("t"), "i64", 1)
        phis = [Value(e, "%" + e.fresh("c"), first.element, first.lanes) for first in firsts]
        place = len(e.lines)
        self.values |= {carry.value: phi for carry, phi in zip(kernel.carries, phis, strict=True)}
        if kernel.test is not None:
            self.write(sorted(kernel.needed_for([kernel.test])))
            e.branch_if(self.values[kernel.test], on, done)
            e.label(on)
        e.branch_if(e.icmp("slt", turn, stop), body, pause)
        e.label(body)
        self.counter = turns - 1 - turn if kernel.backwards else turn
        self.pointers = [e.offset(base, scalars.memory_type(operand.dtype), turn * stride) if operand.moves else base
                         for base, operand, stride in zip(self.bases, kernel.operands, strides, strict=True)]
        self.write(range(len(kernel.instructions)))
        self.return_fault()
        for store in kernel.stores:
            self.store(self.values[store.value], store.operand, store.offset)
        following = turn + 1
        carried = [self.next(carry) for carry in kernel.carries]
        latch = e.block
        e.branch(head)
        news = [f"  {turn.name} = phi i64 [ {start.name}, %{stretch} ], [ {following.name}, %{latch} ]"]
        for phi, old, new in zip(phis, olds, carried, strict=True):
            news.append(f"  {phi.name} = phi {phi.type} [ {old.name}, %{stretch} ], [ {new.name}, %{latch} ]")
        e.lines[place:place] = news
        e.label(pause)
        if kernel.test is None:
            more = e.fresh("more")
            e.branch_if(e.icmp("slt", turn, turns), more, done)
            e.label(more)
        e.poll("%stretch", first_turns)
        latch = e.block
        e.branch(stretch)
        news = [f"  {start.name} = phi i64 [ 0, %{before} ], [ {turn.name}, %{latch} ]"]
        for old, first, phi in zip(olds, firsts, phis, strict=True):
            news.append(f"  {old.name} = phi {old.type} [ {first.name}, %{before} ], [ {phi.name}, %{latch} ]")
        e.lines[outer:outer] = news
        e.label(done)
        self.pointers = self.bases
        for phi, carry in zip(phis, kernel.carries, strict=True):
            self.store(phi, carry.operand, carry.offset)

    def first(self, carry: Carry) -> Value:
        """Initial value of a carry."""
        return self.load(carry.operand, carry.offset)

    def next(self, carry: Carry) -> Value:
        """And into the next."""
        return self.values[carry.following]

    def invariant(self) -> list[int]:
        """Instructions that have the same value at every turn; not those that may fail if there is a turn."""
        found: set[int] = set()
        for number, instruction in enumerate(self.kernel.instructions):
            moves = instruction.name in ("carry", "counter", "lookup", "fault") or (
                instruction.name == "load" and self.kernel.operands[instruction.attributes[0]].moves)
            if not moves and all(child in found for child in instruction.inputs):
                found.add(number)
        return sorted(found)

    def write(self, numbers: Iterable[int]) -> None:
        """Instructions that are not written yet."""
        for number in numbers:
            if number not in self.values:
                self.values[number] = self.one(number)

    def read(self, number: int) -> Value:
        """An instruction's value for another one."""
        return self.values[number]

    def one(self, number: int) -> Value:
        e, (name, dtype, inputs, attributes) = self.e, self.kernel.instructions[number]
        arguments = [self.read(child) for child in inputs]
        if name == "constant":
            return e.constant(attributes[0], scalars.register_type(dtype))
        if name == "counter":
            return self.counter if e.lanes == 1 else e.splat(self.counter)
        if name == "load":
            return self.load(*attributes)
        if name == "lookup":
            return self.look_up(number, arguments[0], *attributes)
        if name == "fault":
            self.faults.append((arguments[0], attributes[0]))
            return arguments[0]
        if name == "fma":
            return e.intrinsic("fma", *arguments)
        return elementwise.emit(e, name, arguments, self.kernel.instructions[inputs[-1]].dtype, dtype)

    def load(self, operand: int, offset: int) -> Value:
        e, dtype = self.e, self.kernel.operands[operand].dtype
        memory = scalars.memory_type(dtype)
        return scalars.from_memory(e, e.load(e.offset(self.pointers[operand], memory, offset), memory, 1), dtype)

    def store(self, value: Value, operand: int, offset: int) -> None:
        e, dtype = self.e, self.kernel.operands[operand].dtype
        place = e.offset(self.pointers[operand], scalars.memory_type(dtype), offset)
        e.store(scalars.to_memory(e, value, dtype), place)

    def look_up(self, number: int, index: Value, operand: int, offset: int, stride: int, size: int) -> Value:
        """An element by index; one outside is remembered, and element 0 read instead."""
        e = self.e
        source = self.kernel.instructions[self.kernel.instructions[number].inputs[0]].dtype
        wide = e.convert("sext" if source.kind == "i" else "zext", index, "i64")
        inside = e.icmp("ult", wide, size)
        self.faults.append((inside ^ True, FAULT_INDEX))
        at = e.select(inside, wide, e.constant(0, "i64", 1)) * stride + offset
        dtype = self.kernel.operands[operand].dtype
        memory = scalars.memory_type(dtype)
        return scalars.from_memory(e, e.load(e.offset(self.pointers[operand], memory, at), memory, 1), dtype)

    def return_fault(self) -> None:
        """Leave where an index was outside, or a matrix has no factors."""
        e = self.e
        for code in dict.fromkeys(code for _, code in self.faults):
            bad, *others = (fault for fault, own in self.faults if own == code)
            for other in others:
                bad = bad | other
            with e.leave_if(bad):
                e.line(f"ret i32 {code}")
