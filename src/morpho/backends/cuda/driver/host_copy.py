"""Copies within the host's memory by all threads of the engine: one core moves some 12 GB/s, a GPU's bus 50."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from morpho.backends.code.compiler.code import addresses_of
from morpho.backends.code.native import declare
from morpho.backends.code.native import native as translated
from morpho.backends.code.typed import Address, Bytes, Words, i1, i32, i64
from morpho.backends.driver.abi import ProgramField, StepField
from morpho.backends.driver.control_tables import ControlTables
from morpho.backends.driver.executable import Executable, is_ready, native
from morpho.base.dtypes import uint8
from morpho.base.target import isa_named
from morpho.cost.dispatch_thresholds import DispatchThresholds
from morpho.program.program import Program, Slot
from morpho.program.view import whole

PIECE_BITS = 16  # log2 of the bytes that a thread takes at a time
LEAST_BYTES = 128 << 10  # for which threads are asked

memcpy = declare("llvm.memcpy.p0.p0.i64", Callable[[Address, Address, i64, i1], None])


@translated()
def copy_pieces(places: Words, values: Words, first: i64, last: i64, c0: i64, c1: i64, scratch: Address) -> i32:
    """A kernel: its rows are pieces of the bytes."""
    source, target = Bytes(places[0]), Bytes(places[1])
    start, end = first << PIECE_BITS, min(values[0], last << PIECE_BITS)
    memcpy(target + start, source + start, end - start, False)
    return 0


class HostCopy(Executable):
    """A program of one step, over pieces of the bytes."""

    def __init__(self) -> None:
        (self.function,) = addresses_of("copies on the host", copy_pieces, isa=isa_named("native"))
        slots = [Slot("input", uint8, 1, 0), Slot("result", uint8, 1, 0)]
        super().__init__(Program(slots=slots, outputs=[whole(1, (1,), uint8)]), [], DispatchThresholds())
        self.words[ProgramField.STEPS] = 1

    def _build_steps(self, addresses: Iterator[int]) -> None:
        self.co_schedule, self.place_tables, self.control_tables = {}, [], ControlTables(self)
        self._add_places([whole(number, (1,), uint8) for number in range(2)])
        self.bytes_at, self.rows_at = self.table.run((0,)), self.table.run((0,))
        words = [0] * int(StepField.SIZE)
        words[StepField.FUNCTION], words[StepField.PLACES] = self.function, 2
        words[StepField.PLACE_TABLE], words[StepField.VALUES] = self.place_tables[-1].ctypes.data, self.bytes_at
        words[StepField.ROWS], words[StepField.COLUMNS] = self.rows_at, self.table.one(1)
        words[StepField.WORK] = words[StepField.LEAST] = words[StepField.WAKING] = 1 << PIECE_BITS
        words[StepField.PIECES], words[StepField.SHARE] = 2, 1 << PIECE_BITS >> 2
        self.step_table = np.array(words, np.int64)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Move bytes that do not overlap; other threads of Python's may run meanwhile."""
        self.refresh_workers()
        values = self.values.copy()
        values[self.bytes_at], values[self.rows_at] = nbytes, -(-nbytes >> PIECE_BITS)
        slots = (ctypes.c_void_p * 3)(source, target, 0)
        native().run_long(self.words.ctypes.data, ctypes.addressof(slots), values.ctypes.data, 0)


@cache
def _made() -> HostCopy:
    return HostCopy()


def copy_on_host(target: int, source: int, nbytes: int) -> None:
    """Move bytes that do not overlap by all threads; by one where they are few, or nothing was computed in this process
    yet and there are no threads."""
    if nbytes < LEAST_BYTES or not is_ready():
        ctypes.memmove(target, source, nbytes)
    else:
        _made().copy(target, source, nbytes)
