"""Loops and branches of a program, decided by the host: which step comes next, and where a turn's memory lies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from morpho.base.dims import Size, evaluate
from morpho.program.program import Control, Cursor, Program
from morpho.program.view import View


class ControlFlow(ABC):
    """The state of one run: addresses of slots, turns of loops. `backends/driver/control_code.py` does the same
    natively."""

    def __init__(self, program: Program, slots: list[int], sizes: Mapping[str, int]) -> None:
        self.program, self.slots, self.sizes = program, slots, sizes
        self.turns: dict[int, int] = {}
        self.found: dict[tuple[str, int], int] = {}
        self.cases: dict[int, list[int]] = {}
        for position, step in enumerate(program.steps):
            if isinstance(step, Control):
                if step.kind == "case":
                    self.cases.setdefault(step.number, []).append(position)
                else:
                    self.found[step.kind, step.number] = position

    @abstractmethod
    def read(self, place: View, dtype: Any) -> np.ndarray:
        """One number of the device; waits for it."""

    @abstractmethod
    def write(self, place: View, number: int) -> None:
        """One number to the device."""

    @abstractmethod
    def move(self, source: int, target: int, nbytes: int) -> None:
        """Bytes within the device."""

    def number(self, size: Size) -> int:
        """A size at this call."""
        return evaluate(size, self.sizes)

    def place(self, place: View) -> int:
        """The address of a place."""
        return self.slots[place.slot] + self.number(place.offset) * place.dtype.itemsize

    def control(self, position: int, step: Control) -> int:
        """How many steps further the program goes on."""
        loop = self.program.steps[self.found["loop", step.number]] if ("loop", step.number) in self.found else None
        if step.kind == "loop":
            return self._begin(position, step)
        if step.kind == "end":
            assert isinstance(loop, Control)
            self.turns[step.number] += 1
            for home, other in loop.carried:
                first, second = home.slot, other.slot
                self.slots[first], self.slots[second] = self.slots[second], self.slots[first]
            if self._turn(loop):
                return self.found["loop", step.number] - position + 1
            self._settle(loop)
            return 1
        if step.kind == "test":
            assert isinstance(loop, Control) and step.value is not None
            if self.read(step.value, np.uint8)[0]:
                return 1
            self._settle(loop)
            return self.found["end", step.number] + 1 - position
        if step.kind == "branch":
            assert step.value is not None
            cases = self.cases[step.number]
            which = min(max(int(self.read(step.value, np.int64)[0]), 0), len(cases) - 1)
            return cases[which] + 1 - position
        return self.found["join", step.number] - position if step.kind == "case" else 1

    def _begin(self, position: int, loop: Control) -> int:
        self.turns[loop.number] = 0
        odd = isinstance(loop.turns, int) and loop.turns % 2 == 1
        for home, other in loop.carried:
            first, second = (other.base, home.base) if odd else (home.base, other.base)
            self.slots[home.slot], self.slots[other.slot] = self.place(first), self.place(second)
        if self._turn(loop):
            return 1
        self._settle(loop)
        return self.found["end", loop.number] - position + 1

    def _turn(self, loop: Control) -> bool:
        """Set the cursors of the next turn; False after the last one."""
        turn, turns = self.turns[loop.number], None if loop.turns is None else self.number(loop.turns)
        if turns is not None and turn >= turns:
            return False
        for cursor in loop.moving:
            self._move_cursor(cursor, turn)
        if loop.value is not None:
            self.write(loop.value, turn if not loop.backwards or turns is None else turns - 1 - turn)
        return True

    def _move_cursor(self, cursor: Cursor, turn: int) -> None:
        stride = self.number(cursor.stride) * cursor.base.dtype.itemsize
        self.slots[cursor.slot] = self.place(cursor.base) + turn * stride

    def _settle(self, loop: Control) -> None:
        """Carried values to where what follows the loop reads them, if they are elsewhere."""
        for home, _ in loop.carried:
            target, found = self.place(home.base), self.slots[home.slot]
            nbytes = self.number(self.program.slots[home.base.slot].elements) * home.base.dtype.itemsize
            if target != found and nbytes:
                self.move(found, target, nbytes)
