"""The tables of a program's loops and branches, as `control_code.py` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from morpho.backends.driver.abi import ControlField, ControlKind, StepField
from morpho.base.dims import Dim, Size
from morpho.program.program import AnyStep, Control, Cursor, Program
from morpho.program.view import View

_KINDS = {"loop": ControlKind.LOOP, "end": ControlKind.END, "test": ControlKind.TEST, "branch": ControlKind.BRANCH,
          "case": ControlKind.CASE, "join": ControlKind.JOIN, "size": ControlKind.SIZE}


class Numbers(Protocol):
    """Indices of numbers that may depend on dynamic sizes."""

    def one(self, size: Size) -> int:
        """The index of a number."""
        ...


class Owner(Protocol):
    """The executable whose tables these are."""

    @property
    def steps(self) -> Sequence[AnyStep]: ...
    @property
    def program(self) -> Program: ...
    @property
    def table(self) -> Numbers: ...
    @property
    def slot_number(self) -> Mapping[int, int]: ...
    def lies(self, place: View) -> list[int]:
        """Slot and byte offset of a place."""
        ...


class ControlTables:
    """Rows and tables for every `Control` of an executable; the arrays live as long as this does."""

    def __init__(self, executable: Owner) -> None:
        self.executable = executable
        self.arrays: list[np.ndarray] = []
        found = [(place, step) for place, step in enumerate(executable.steps)
                 if isinstance(step, Control) and step.kind != "memory"]
        self.places = {(step.kind, step.number): place for place, step in found if step.kind != "case"}
        self.cases: dict[int, list[int]] = {}
        for place, step in found:
            if step.kind == "case":
                self.cases.setdefault(step.number, []).append(place)
        self.loops = {step.number: step for _, step in found if step.kind == "loop"}
        self.counted: dict[str, np.ndarray] = {}  # tables of sizes that are data, by symbol
        self.numbers = {number: place for place, number in enumerate(sorted({step.number for _, step in found}))}

    @property
    def count(self) -> int:
        """How many loops and branches there are."""
        return len(self.numbers)

    def row(self, place: int, step: Control) -> list[int]:
        """The words of a step that is no kernel."""
        words = [0] * int(StepField.SIZE)
        words[StepField.FUNCTION], words[StepField.TOGETHER] = self._kept(self._table(place, step)), _KINDS[step.kind]
        if isinstance(step.turns, Dim) and step.kind == "size":
            self.counted[next(iter(step.turns.symbols))] = self.arrays[-1]
        return words

    def finish(self, program: int, symbols: Sequence[str], places: Sequence[int]) -> None:
        """Tell the sizes that are data where the program's numbers are, once all of them are known."""
        at = self._kept(list(places))
        for name, table in self.counted.items():
            table[ControlField.PROGRAM], table[ControlField.SYMBOL] = program, symbols.index(name) + 1
            table[ControlField.SYMBOLS], table[ControlField.SYMBOL_TABLE] = len(symbols), at

    def _kept(self, words: list[int]) -> int:
        self.arrays.append(np.array(words or [0], np.int64))
        return int(self.arrays[-1].ctypes.data)

    def _table(self, place: int, step: Control) -> list[int]:
        words = [0] * int(ControlField.SIZE)
        words[ControlField.COUNTER] = self.numbers[step.number]
        words[ControlField.LENGTH] = self._length(place, step)
        words[ControlField.VALUE_SLOT] = -1
        loop = self.loops.get(step.number)
        told = step if step.kind in ("test", "branch", "size") else loop
        if told is not None and told.value is not None:
            words[ControlField.VALUE_SLOT:ControlField.VALUE_OFFSET + 1] = self.executable.lies(told.value)
        if loop is not None:
            self._fill_loop(words, loop)
        if step.kind == "branch":
            cases = [case + 1 - place for case in self.cases[step.number]]
            words[ControlField.CASES], words[ControlField.CASE_TABLE] = len(cases), self._kept(cases)
        return words

    def _length(self, place: int, step: Control) -> int:
        if step.kind in ("loop", "end"):
            return self.places["end", step.number] - self.places["loop", step.number]
        if step.kind == "test":
            return self.places["end", step.number] + 1 - place
        return self.places["join", step.number] - place if step.kind == "case" else 0

    def _fill_loop(self, words: list[int], loop: Control) -> None:
        words[ControlField.TURNS] = -1 if loop.turns is None else self.executable.table.one(loop.turns)
        words[ControlField.BACKWARDS] = int(loop.backwards)
        moving = [word for cursor in loop.moving for word in self._moving(cursor)]
        carried = [word for first, second in loop.carried for word in self._carried(loop, first, second)]
        words[ControlField.MOVING], words[ControlField.MOVING_TABLE] = len(loop.moving), self._kept(moving)
        words[ControlField.CARRIED], words[ControlField.CARRIED_TABLE] = len(loop.carried), self._kept(carried)

    def _moving(self, cursor: Cursor) -> list[int]:
        executable = self.executable
        stride = executable.table.one(cursor.stride * cursor.base.dtype.itemsize)
        return [executable.slot_number[cursor.slot], *executable.lies(cursor.base), stride]

    def _carried(self, loop: Control, home: Cursor, other: Cursor) -> list[int]:
        """The value begins in its own memory, or, where the turns are odd in number, in the other: so that it ends in
        its own."""
        executable = self.executable
        odd = isinstance(loop.turns, int) and loop.turns % 2 == 1
        first, second = (other.base, home.base) if odd else (home.base, other.base)
        nbytes = executable.table.one(executable.program.slots[home.base.slot].elements * home.base.dtype.itemsize)
        return [executable.slot_number[home.slot], executable.slot_number[other.slot], *executable.lies(first),
                *executable.lies(second), *executable.lies(home.base), nbytes]
