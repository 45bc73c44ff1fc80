"""A program's launches as one native function that the entry of a compiled function calls like a kernel of the CPU's.

It takes the addresses of inputs and results, in that order. A call is captured as a CUDA graph, which later ones with
the same addresses replay; where addresses do not come again, launches go one by one. Memory for temporaries is the
call's own: what was queued before it in the same stream is over when it is used again.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from morpho.backends.cuda.driver.launch_code import LaunchTable, entry_address

GRAPHS = 8  # of a program, for as many sets of addresses
LEAST_LAUNCHES = 2  # of a program that is worth one


class Field(IntEnum):
    """The words that `launch_entry` reads."""

    SET_CURRENT = 0
    CONTEXT = 1
    PLACES = 2  # inputs and results
    WHICH = 3  # table: the slot of each, or -1
    SLOTS = 4
    TABLE = 5
    COUNT = 6
    SCRATCH = 7
    FAULTS = 8
    STREAM = 9
    LAUNCH = 10
    MAPS = 11
    MAPPED = 12
    ENCODE = 13
    COUNTER = 14  # address: launches so far
    GRAPHS = 15  # how many may be kept
    KEPT = 16  # table: per graph its handle and the addresses it is for
    REPLAY = 17
    REPLAYED = 18  # how often graphs were
    BEGIN = 19
    FINISH = 20
    INSTANTIATE = 21
    DESTROY = 22
    DROP = 23
    TURN = 24  # the graph that is replaced next
    MADE = 25  # room for a handle
    CAPTURED = 26  # how many graphs were made
    SIZE = 27


class NativeCall:
    """The function and its table. `arena` is given back to the device when nobody holds this any more."""

    def __init__(self, device: Any, table: LaunchTable, which: Sequence[int], slots: Sequence[int],
                 arena: tuple[int, int, int], faults: Any) -> None:
        self.device, self.table, self.faults, self.arena = device, table, faults, arena
        self.which = (ctypes.c_int64 * max(1, len(which)))(*which)
        self.kept = (ctypes.c_int64 * (GRAPHS * (len(which) + 1)))()
        table.slots[:len(slots)] = list(slots)
        self.words = (ctypes.c_int64 * int(Field.SIZE))()
        entry = device.native_entries()
        values = {
            Field.SET_CURRENT: entry["cuCtxSetCurrent"], Field.CONTEXT: entry["context"], Field.PLACES: len(which),
            Field.WHICH: ctypes.addressof(self.which), Field.SLOTS: table.slots_address,
            Field.TABLE: table.table_address, Field.COUNT: table.count, Field.SCRATCH: arena[2],
            Field.FAULTS: 0 if faults is None else faults.address, Field.STREAM: entry["stream"],
            Field.LAUNCH: entry["cuLaunchKernel"], Field.MAPS: ctypes.addressof(table.maps),
            Field.MAPPED: table.mapped, Field.ENCODE: entry["cuTensorMapEncodeTiled"],
            Field.COUNTER: entry["counter"], Field.KEPT: ctypes.addressof(self.kept),
            Field.GRAPHS: GRAPHS if table.count >= LEAST_LAUNCHES and entry["cuGraphLaunch"] else 0,
            Field.REPLAY: entry["cuGraphLaunch"],
            Field.BEGIN: entry["cuStreamBeginCapture_v2"], Field.FINISH: entry["cuStreamEndCapture"],
            Field.INSTANTIATE: entry["cuGraphInstantiateWithFlags"], Field.DESTROY: entry["cuGraphExecDestroy"],
            Field.DROP: entry["cuGraphDestroy"]}
        for field, value in values.items():
            self.words[field] = value

    @property
    def function(self) -> int:
        """Its address: called with addresses and a table whose first word is `context`."""
        return entry_address()

    @property
    def context(self) -> int:
        """The address of its words."""
        return ctypes.addressof(self.words)

    @property
    def graphs(self) -> int:
        """Graphs that are kept now."""
        step = len(self.kept) // GRAPHS
        return sum(1 for number in range(GRAPHS) if self.kept[number * step])

    def __del__(self) -> None:
        if sys.is_finalizing() or not hasattr(self, "words"):
            return
        step = len(self.kept) // GRAPHS
        for number in range(GRAPHS):
            if self.kept[number * step]:
                self.device.destroy_graph(self.kept[number * step])
        if self.arena[1]:
            self.device.free(self.arena[0], self.arena[1])
