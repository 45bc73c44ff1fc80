"""The memory footprint of a call, and which results may reuse (donate) the memory of inputs."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.passes.memory.liveness import LOOPS, Updates
from morpho.program.plan_memory import written
from morpho.program.program import Control, HostStep, Program, Step


class Uses:
    """When slots are first written and last read, and the last step that may fail."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.first_write: dict[int, int] = {}
        self.last_read: dict[int, int] = {}
        self.last_fault = -1
        for number, step in enumerate(program.steps):
            for place in written(step):
                self.first_write.setdefault(place.slot, number)
            for place in step.reads:
                self.last_read[place.slot] = number
            loops = step.kind == "loop" if isinstance(step, Control) else isinstance(step, Step) and (
                step.label.split(" ")[0] in LOOPS)
            if step.may_fault or loops:  # a loop may be interrupted
                self.last_fault = number

    def written_after_faults(self, slot: int) -> bool:
        """Whether nothing can fail once this slot is being written, so that a fault leaves the memory it takes
        unharmed."""
        return self.last_fault < self.first_write.get(slot, 0)

    def may_alias(self, result: int, source: int) -> bool:
        """Whether a result may be written over an input: nothing reads the input after the first write, and the step
        that writes reads each element before it writes it."""
        writer = self.first_write.get(result)
        if writer is None or self.last_read.get(source, -1) > writer:
            return False
        step = self.program.steps[writer]
        reads = [place for place in step.reads if place.slot == source]
        if not reads or isinstance(step, HostStep):
            return True
        writes = [place for place in written(step) if place.slot == result]
        same = all(read.offset == write.offset and read.strides == write.strides and read.shape == write.shape
                   and read.dtype.itemsize == write.dtype.itemsize for read in reads for write in writes)
        return step.in_place and same and source not in step.operands

    def in_place(self, updates: Updates) -> dict[int, int]:
        """Of (output, input) pairs those where the output may take the input's memory."""
        slots = {slot.index: number for number, slot in enumerate(self.program.slots) if slot.kind == "input"}
        found: dict[int, int] = {}
        for output, index in updates:
            result = self.program.outputs[output].slot
            if index in slots and self.written_after_faults(result) and self.may_alias(result, slots[index]):
                found[output] = index
        return found


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of one call at the largest sizes: arguments, states and captured tensors; what was computed from constants
    once; results, without those written over inputs; temporaries; scratch of all threads."""

    inputs: int
    prepared: int
    results: int
    arena: int
    scratch: int

    @property
    def total(self) -> int:
        return self.inputs + self.prepared + self.results + self.arena + self.scratch


def footprint(program: Program, updates: Updates, threads: int) -> Footprint:
    """Memory that a call holds while it runs, if nobody else holds its states."""
    over = {program.outputs[output].slot for output in Uses(program).in_place(updates)}
    steps = [step for step in program.steps if isinstance(step, Step)]
    return Footprint(
        sum(slot.nbytes for number, slot in enumerate(program.slots)
            if slot.kind == "input" and number not in program.kept),
        sum(program.slots[slot].nbytes for slot, read in program.kept.items() if read),
        sum(slot.nbytes for number, slot in enumerate(program.slots) if slot.kind == "result" and number not in over),
        program.arena_bytes,
        max((step.scratch_bytes(threads) for step in steps), default=0))
