"""Maps that run as one launch: the step of a program, and its kernel as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from morpho.backends.kernels.loops.loop_spec import LoopKernel
from morpho.program.kernel import Kernel
from morpho.program.program import Step

TABLE = 32  # members of a launch, at most
MOST_WORDS = 504  # addresses and numbers of a launch: 4 KiB of parameters, less the header
OWN = 3  # numbers of a member before its kernel's own: rows, columns, pieces of a row


@dataclass(frozen=True)
class GroupSpec(Kernel):
    """`count` maps of the same loop over operands of their own. Its numbers: the first block of every member, the end
    of all numbers for those that are not there; rows, columns, pieces and the loop's own numbers of each; then zeros,
    so that every launch has the same number of words and one kernel runs groups of any count."""

    loop: LoopKernel
    places: int
    numbers: int
    count: int

    @property
    def words(self) -> int:
        """Addresses and numbers of all members.

        >>> GroupSpec(None, 3, 8, 5).words
        102
        """
        return TABLE + self.count * (self.places + OWN + self.numbers)

    @property
    def flops(self) -> int:
        """Of a column of any member."""
        return self.loop.flops


@dataclass(slots=True)
class GroupStep(Step):
    """One launch of several maps; `held`: temporaries that a member reads."""

    held: frozenset[int] = frozenset()

    @property
    def operands(self) -> set[int]:
        """Values that members read while others write: no temporary takes their memory."""
        return set(self.held)

    def same_member(self, result: int, source: int) -> bool:
        """Whether the slot of a result is written by the only member that reads another slot."""
        kernel: Any = self.kernel
        writers = {at // kernel.places for at in self.writes if (v := self.views[at]) is not None and v.slot == result}
        readers = {at // kernel.places for at, v in enumerate(self.views)
                   if v is not None and v.slot == source and at not in self.writes}
        return len(writers) == 1 and readers <= writers
