"""A program's launches as one native function that the entry of a compiled function calls like a kernel of the CPU's.

It takes the addresses of inputs and results, in that order. A call is captured as a CUDA graph, which later ones with
the same addresses replay; where addresses do not come again, launches go one by one. Memory for temporaries is the
call's own: what was queued before it in the same stream is over when it is used again.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from morpho.backends.cuda.driver.launch_code import GRAPHS, PAST, RAISED, RETRY, Field, LaunchTable, entry_address

ASK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)


class Asking:
    """Requests of native code to Python: `run(sizes, addresses)` queues one run, launch by launch. What goes wrong is
    kept among `errors`, by thread."""

    def __init__(self, names: Sequence[str], places: int, run: Callable[[Mapping[str, int], Sequence[int]], None],
                 errors: dict[int, BaseException]) -> None:
        self.names, self.places, self.run, self.errors = list(names), places, run, errors
        self.runs = 0  # through Python
        me = weakref.ref(self)  # no circle: an arena goes back as soon as nobody holds its call

        def asked(places: int, values: int, why: int) -> int:
            found = me()
            return RAISED if found is None else found._asked(places, values, why)

        self.asked = ASK(asked)

    @property
    def ask(self) -> int:
        """The address of the function."""
        return ctypes.cast(self.asked, ctypes.c_void_p).value or 0

    def _asked(self, places: int, values: int, why: int) -> int:
        """`why`: 0 where no region fits, 1 where the new one does not, 2 where an operand does not lie as its kernel
        needs."""
        try:
            numbers = (ctypes.c_int64 * (1 + len(self.names))).from_address(values)[1:]
            sizes = dict(zip(self.names, numbers, strict=True))
            if why == 0 and self.learn(sizes):
                return RETRY
            self.runs += 1
            self.run(sizes, list((ctypes.c_int64 * self.places).from_address(places)))
        except BaseException as error:  # native code lies between here and who can be told
            self.errors[threading.get_ident()] = error
            return RAISED
        return 0

    def learn(self, sizes: Mapping[str, int]) -> bool:
        """Whether native code knows what to do for these sizes now."""
        return False


class GraphCall(Asking):
    """The function and what it reads, for programs of static and of dynamic sizes. `arena` is given back to the device
    when nobody holds this any more, once this is `complete`."""

    complete = False

    def __init__(self, device: Any, symbols: Sequence[Any], which: Sequence[int], arena: tuple[int, int, int],
                 faults: Any, run: Callable[[Mapping[str, int], Sequence[int]], None],
                 errors: dict[int, BaseException]) -> None:
        super().__init__([str(symbol) for symbol in symbols], len(which), run, errors)
        self.device, self.faults, self.arena = device, faults, arena
        self.which = (ctypes.c_int64 * max(1, len(which)))(*which)
        self.width = 1 + len(which) + len(symbols)
        self.kept = (ctypes.c_int64 * ((GRAPHS + PAST) * self.width))()
        self.words = (ctypes.c_int64 * int(Field.SIZE))()
        entry = device.native_entries()
        self.set({
            Field.SET_CURRENT: entry["cuCtxSetCurrent"], Field.CONTEXT: entry["context"], Field.PLACES: len(which),
            Field.WHICH: ctypes.addressof(self.which), Field.SCRATCH: arena[2],
            Field.FAULTS: 0 if faults is None else faults.address, Field.STREAM: entry["stream"],
            Field.LAUNCH: entry["cuLaunchKernel"], Field.ENCODE: entry["cuTensorMapEncodeTiled"],
            Field.COUNTER: entry["counter"], Field.KEPT: ctypes.addressof(self.kept),
            Field.GRAPHS: GRAPHS if entry["cuGraphLaunch"] else 0, Field.REPLAY: entry["cuGraphLaunch"],
            Field.BEGIN: entry["cuStreamBeginCapture_v2"], Field.FINISH: entry["cuStreamEndCapture"],
            Field.INSTANTIATE: entry["cuGraphInstantiateWithFlags"], Field.DESTROY: entry["cuGraphExecDestroy"],
            Field.DROP: entry["cuGraphDestroy"], Field.ASK: self.ask, Field.SYMBOLS: len(symbols)})

    def set(self, values: Mapping[Field, int]) -> None:
        """Words of its own."""
        for field, value in values.items():
            self.words[field] = value

    @property
    def function(self) -> int:
        """Address of the function, which is called with addresses and a table that begins with `context`, then the
        sizes."""
        return entry_address()

    @property
    def context(self) -> int:
        """The address of its words."""
        return ctypes.addressof(self.words)

    @property
    def handles(self) -> list[int]:
        """Of the graphs that are kept now."""
        return [found for number in range(GRAPHS) if (found := self.kept[number * self.width])]

    @property
    def graphs(self) -> int:
        """Graphs that are kept now."""
        return len(self.handles)

    def __del__(self) -> None:
        if sys.is_finalizing() or not self.complete:
            return
        for handle in self.handles:
            self.device.destroy_graph(handle)
        if self.arena[1]:
            self.device.free(self.arena[0], self.arena[1])


class NativeCall(GraphCall):
    """A program of known sizes, and its table."""

    def __init__(self, device: Any, table: LaunchTable, which: Sequence[int], slots: Sequence[int],
                 arena: tuple[int, int, int], faults: Any, run: Callable[[Mapping[str, int], Sequence[int]], None],
                 errors: dict[int, BaseException]) -> None:
        super().__init__(device, (), which, arena, faults, run, errors)
        self.table = table
        table.slots[:len(slots)] = list(slots)
        self.set({Field.SLOTS: table.slots_address, Field.TABLE: table.table_address, Field.COUNT: table.count,
                  Field.MAPS: ctypes.addressof(table.maps), Field.MAPPED: table.mapped})
        if not table.count:
            self.words[Field.GRAPHS] = 0
