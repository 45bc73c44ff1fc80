"""Scatters along a line whose indices and values are computed by the very loop that puts them in their places.

One walk over memory where there were three (indices, values, scatter), and several scatters share it: counts and
weights of a histogram, both ends of the edges of a mesh. Values go to their places one by one, in order: the sum at
each place is one chain, with the bits of a `ScatterKernel`. What is summed up at a place stays in a register as long as
the next index is the same, as in sorted rows of a sparse matrix: through memory every addition would wait for the store
before it. All of it is scalar code: gathers of vectors, and vectors taken apart through memory, were slower (notes/).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from morpho.backends.cpu.codegen.kernel_abi import Record
from morpho.backends.cpu.loops.loop_spec import LoopKernel
from morpho.program.kernel import Kernel, Role


class Scatter(NamedTuple):
    """Values put or combined (`mode`) at indices of a target; numbers of the loop's instructions and of its access."""

    mode: str
    indices: int
    value: int
    target: int
    unit: bool  # the target's elements lie side by side


@dataclass(frozen=True)
class ScatterLoop(Kernel):
    """A map without results of its own, and where its values go. Rows and columns go by in ascending order: it is
    called once, for all of them. The targets are accesses of the loop, of the kind of a gather's base: a size and a
    stride each."""

    loop: LoopKernel
    scatters: tuple[Scatter, ...]

    may_fault = True

    @property
    def role(self) -> Role:
        """Faults of one that also looks up elements may come from either."""
        targets = {scatter.target for scatter in self.scatters}
        return "lookup_scatter" if set(self.loop.gathered) - targets else "scatter"

    @property
    def flops(self) -> int:
        """Operations for every value."""
        return self.loop.flops + 2 * len(self.scatters)

    @property
    def gathered(self) -> tuple[int, ...]:
        """The targets too: only some of their elements are touched."""
        return self.loop.gathered

    @property
    def op_names(self) -> frozenset[str]:
        """Elementwise ops whose emitters its code uses."""
        return self.loop.op_names

    @property
    def record(self) -> Record:
        """The loop's."""
        return self.loop.record
