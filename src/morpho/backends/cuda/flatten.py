"""Loops whose number of turns is known, written out as launches: a program that needs no host in between.

The control flow is run once on made-up addresses: slot n lies at (n + 1) * 2^48. Whatever loops do to slots, the place
of an operand is then a slot of the program and a number of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from morpho.backends.cuda.control import ControlFlow
from morpho.backends.cuda.driver.regions.traced import plain
from morpho.program.program import Control, Program
from morpho.program.view import View

SLOT_BITS = 48
MOST_LAUNCHES = 8192
Where = list[tuple[int, int] | None]  # slot and bytes of every operand


class HostNeeded(Exception):
    """A value of the device decides what comes next, or a number is to be written there."""


class Flattening(ControlFlow):
    """One run on made-up addresses."""

    def read(self, place: View, dtype: Any) -> Any:
        """Nobody knows it yet."""
        raise HostNeeded

    def write(self, place: View, number: int) -> None:
        """A copy from the host: not among the launches."""
        raise HostNeeded

    def move(self, source: int, target: int, nbytes: int) -> None:
        """A copy within the device: not among the launches."""
        raise HostNeeded


def flattened(program: Program, steps: Sequence[Any], sizes: Mapping[str, int]) -> list[tuple[int, Where]] | None:
    """The launches of a program in order: the number of a step, and where its operands lie. None where the host must
    look in between. `steps` are prepared ones, None for what is no kernel."""
    run = Flattening(program, [(number + 1) << SLOT_BITS for number in range(len(program.slots))], sizes)
    found: list[tuple[int, Where]] = []
    number = 0
    try:
        while number < len(steps):
            step, prepared = program.steps[number], steps[number]
            if prepared is not None:
                if not prepared.empty:
                    found.append((number, [None if place is None else _parted(run.slots[place[0]] + place[1])
                                           for place in prepared.places]))
                number += 1
            elif isinstance(step, Control):
                number += run.control(number, step)
            else:
                return None
            if len(found) > MOST_LAUNCHES:
                return None
    except HostNeeded:
        return None
    return found


def _parted(address: int) -> tuple[int, int]:
    """The slot and the bytes of a made-up address; the slot is the same whatever the dynamic sizes are.

    >>> _parted((3 << SLOT_BITS) + 640)
    (2, 640)
    """
    slot = (plain(address) + (1 << (SLOT_BITS - 1))) >> SLOT_BITS
    return slot - 1, address - (slot << SLOT_BITS)
