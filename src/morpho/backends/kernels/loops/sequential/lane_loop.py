"""A loop whose turns compute every element from the same element of what is carried: each vector of elements runs
through all turns in registers.

The loop over turns is inside the one over elements: what is carried is read once and written once, not once a turn, and
a slice or a stacked result of each turn is the only memory that a turn touches. Recurrences along one axis of an array
(filters, tridiagonal systems) are such loops over the other axis. Elements are rows: threads divide them.

Where turns look at one element of what is carried, the same for all lanes, the loop over elements is inside the one
over turns: what is carried goes through the first-level cache, and one thread does it all.

A carried value that is the same in all elements (the pivots of tridiagonal systems that share their matrix) is a scalar
of the loop: it is computed once for a vector, not once a lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from morpho.backends.code.kernel_abi import Record
from morpho.backends.kernels.loops.sequential.register_loop import LOADS, RegisterLoop
from morpho.program.kernel import Kernel


@dataclass(frozen=True)
class LaneLoop(Kernel):
    """The loop of one element, and for every operand how far `apart` its elements lie: 1 side by side, 0 where all see
    the same, more where turns are side by side. Carried values that begin `alike` in all elements stay so where a turn
    makes them of nothing else."""

    loop: RegisterLoop
    apart: tuple[int, ...]
    alike: tuple[int, ...] = ()  # operands of carried values that begin with one number

    role = "scan"

    @property
    def picks(self) -> tuple[int, ...]:
        """Instructions that read an element for all lanes."""
        return tuple(number for number, one in enumerate(self.loop.instructions) if one.name == "pick")

    @cached_property
    def uniform(self) -> frozenset[int]:
        """Instructions that have one value for all elements at every turn: carried values, and what is made of them."""
        parts = self.loop.instructions
        found = {carry.value for carry in self.loop.carries if carry.operand in self.alike}
        while True:
            made = set(found)
            for number, one in enumerate(parts):
                same = all(child in made or parts[child].name == "constant" for child in one.inputs)
                if same and any(child in made for child in one.inputs) and one.name not in LOADS:
                    made.add(number)
            kept = {carry.value for carry in self.loop.carries if carry.value in found and carry.following in made}
            if kept == found:
                return frozenset(made) if found else frozenset()
            found = kept

    @property
    def transposed(self) -> bool:
        """Vectors run along the elements: a thread takes all of its own at once, in few and full ones."""
        return True

    @property
    def flops(self) -> int:
        """Operations of one turn of an element."""
        return self.loop.flops

    @property
    def op_names(self) -> frozenset[str]:
        """Elementwise ops whose emitters its code uses."""
        return self.loop.op_names

    @property
    def record(self) -> Record:
        """That of the loop: the number of turns, and how far every operand moves at each, in elements."""
        return self.loop.record
