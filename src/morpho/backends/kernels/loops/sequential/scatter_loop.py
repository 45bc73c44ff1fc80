"""Scatters along a line whose indices and values are computed by the very loop that puts them in their places.

One walk over memory where there were three (indices, values, scatter), and several scatters share it: counts and
weights of a histogram, both ends of the edges of a mesh. Values go to their places one by one, in order: the sum at
each place is one chain, with the bits of a `ScatterKernel`. What is summed up at a place stays in a register as long as
the next index is the same, as in sorted rows of a sparse matrix: through memory every addition would wait for the store
before it. All of it is scalar code: gathers of vectors, and vectors taken apart through memory, were slower (notes/).

Several threads never divide the values of a place, so that its chain stays whole and in order, whatever their number:
`scatter_range_code.py` says how they share a loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from morpho.backends.code.kernel_abi import Record
from morpho.backends.kernels.loops.loop_spec import Instruction, LoopKernel, constant_value
from morpho.backends.kernels.loops.sequential.scatter import IN_ORDER
from morpho.program.kernel import Kernel, Role


class Scatter(NamedTuple):
    """Values put or combined (`mode`) at indices of a target; numbers of the loop's instructions and of its access."""

    mode: str
    indices: int
    value: int
    target: int


def is_zero(instruction: Instruction) -> bool:
    """Whether an instruction is the number 0."""
    return instruction.name == "constant" and constant_value(str(instruction.extra), instruction.dtype) == 0


@dataclass(frozen=True)
class ScatterLoop(Kernel):
    """A map without results of its own, and where its values go. Rows and columns go by in ascending order: a call goes
    over all of them. The targets are accesses of the loop, of the kind of a gather's base: a size and a stride each.
    Where threads may share it, its rows are shares of its only row of columns: it `divides` the columns where indices
    are "sorted", or else the targets by "ranges"."""

    loop: LoopKernel
    scatters: tuple[Scatter, ...]
    sizes: tuple[int, ...]  # of the loop's `gathered` accesses: the first of them whose axis is as long
    units: tuple[bool, ...]  # and whether their elements lie side by side
    divides: str = ""

    may_fault = True

    @property
    def transposed(self) -> bool:
        """A thread takes all of its share at once: every piece is a walk over all indices."""
        return bool(self.divides)

    @property
    def role(self) -> Role:
        """Faults of one that also looks up elements may come from either."""
        targets = {scatter.target for scatter in self.scatters}
        return "lookup_scatter" if set(self.loop.gathered) - targets else "scatter"

    @property
    def flops(self) -> int:
        """Operations for every value; each takes the time of some more, one after the other."""
        return self.loop.flops + (2 + (IN_ORDER if self.divides else 0)) * len(self.scatters)

    @property
    def gathered(self) -> tuple[int, ...]:
        """The targets too: only some of their elements are touched."""
        return self.loop.gathered

    @property
    def op_names(self) -> frozenset[str]:
        """Elementwise ops whose emitters its code uses."""
        return self.loop.op_names

    @cached_property
    def wraps(self) -> dict[int, int]:
        """Indices that may count from the end, `i < 0 ? i + n : i`, and their i: most are 0 or more."""
        found, parts = {}, self.loop.instructions
        for number, one in enumerate(parts):
            if one.name == "where" and one.full:
                negative, (added, plain) = parts[one.inputs[0]], one.inputs[1:]
                if (negative.name == "less" and negative.inputs[0] == plain and parts[added].name == "add"
                        and plain in parts[added].inputs and is_zero(parts[negative.inputs[1]])):
                    found[number] = plain
        return found

    @cached_property
    def unusual(self) -> frozenset[int]:
        """Instructions that only an index below 0 needs: those of `wraps` that nothing but lookups reads."""
        parts, scattered = self.loop.instructions, {n for s in self.scatters for n in (s.indices, s.value)}
        found = {number for number in self.wraps if number not in scattered and all(
            one.name == "gather" for one in parts if number in one.inputs)}
        found |= {part for number in found for part in parts[number].inputs[:2] if part not in scattered and all(
            user in found for user, one in enumerate(parts) if part in one.inputs)}
        return frozenset(found)

    @property
    def record(self) -> Record:
        """The loop's; its columns and the shares, where the kernel is called over those."""
        return self.loop.record.extended("columns shares") if self.divides else self.loop.record
