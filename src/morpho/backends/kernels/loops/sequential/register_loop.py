"""A loop whose body is so small that all its values live in registers: one kernel for every turn of it.

Tensors of a few elements are taken apart into scalars, each an instruction; moves of elements cost nothing. The order
of operations inside a reduction or product is that of docs/numerics.md, so the bits are those of the plain steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from morpho.backends.code.kernel_abi import Record
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

LOADS = frozenset({"load", "lookup"})


class Instruction(NamedTuple):
    """One scalar. `name` is an elementwise op, `fma`, or one of: `constant` (attributes: its value), `carry` (its
    number), `counter`, `load` (operand, offset in elements), `lookup` (operand, offset, stride, size; at an index),
    `fault` (the status that the loop ends with where its input is true), in a `LaneLoop` also `lane` (the number of
    its element) and `pick` (an operand, and factor and constant of the turn's number: an element that all lanes see as
    it was before the turn)."""

    name: str
    dtype: DType
    inputs: tuple[int, ...] = ()
    attributes: tuple[Any, ...] = ()


class Operand(NamedTuple):
    """Memory: the dtype of its elements, and whether a turn sees another part of it than the one before."""

    dtype: DType
    moves: bool


class Carry(NamedTuple):
    """A scalar that goes from turn to turn: its value in a turn and the next one, and where it begins and ends."""

    value: int
    following: int
    operand: int
    offset: int


class Store(NamedTuple):
    """A scalar that every turn writes."""

    value: int
    operand: int
    offset: int


@dataclass(frozen=True)
class RegisterLoop(Kernel):
    """The loop as data. With a `test` it ends when that value is false; it is computed before a turn."""

    instructions: tuple[Instruction, ...]
    operands: tuple[Operand, ...]
    carries: tuple[Carry, ...]
    stores: tuple[Store, ...]
    test: int | None = None
    backwards: bool = False

    role = "scan"

    @property
    def flops(self) -> int:
        """Operations of one turn."""
        return len(self.instructions)

    @property
    def may_fault(self) -> bool:
        """Whether it looks up elements by index, or factorises matrices."""
        return any(instruction.name in ("lookup", "fault") for instruction in self.instructions)

    @property
    def op_names(self) -> frozenset[str]:
        """Elementwise ops whose emitters its code uses."""
        return frozenset(instruction.name for instruction in self.instructions)

    @property
    def record(self) -> Record:
        """The number of turns, and how far every operand moves at each, in elements."""
        return Record(f"turns strides[{len(self.operands)}]")

    def needed_for(self, wanted: list[int]) -> set[int]:
        """The instructions that some values are made of."""
        found: set[int] = set()
        stack = list(wanted)
        while stack:
            number = stack.pop()
            if number not in found:
                found.add(number)
                stack += self.instructions[number].inputs
        return found
