"""A program of dynamic sizes as one native function, which the entry of a compiled function calls like a kernel.

Its launches are kept by regions: all sizes for which the host's arithmetic takes the same way (`traced.py`). A call
finds its region, computes grids, numbers and places natively and launches; Python makes a region when the first of its
sizes comes, and runs what no table can (operands that do not lie as their kernels need).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from morpho.backends.cuda.driver.launch_code import Field, LaunchTable, RegionWord, region_fitter
from morpho.backends.cuda.driver.native_call import GraphCall
from morpho.backends.cuda.driver.regions.traced import Operation, SizeTrace, is_traced, plain

MOST_REGIONS = 16


class Region:
    """Launches for all sizes that meet the guards of a trace."""

    def __init__(self, trace: SizeTrace, table: LaunchTable, scratch: Sequence[Any] = ()) -> None:
        """`scratch`: the bytes that each launch needs, numbers or traced ones."""
        self.trace, self.table = trace, table
        self.scratch_rows = {number.row for number in scratch if is_traced(number)}
        self.least_scratch = max((plain(number) for number in scratch if not is_traced(number)), default=0)
        operations = [(number, row) for number, row in enumerate(trace.rows) if isinstance(row[0], Operation)]
        constants = [row[0] if isinstance(row[0], int) and not isinstance(row[0], Operation) else 0
                     for row in trace.rows]
        guards = [word for pair in trace.guards.items() for word in pair]
        patches = [word for address, number in table.moving for word in (address, number.row)]
        self.values = _words(constants)
        rows = _words([int(word) for number, (kind, left, right) in operations
                       for word in (kind, left, right, number)])
        self.held = rows, _words(guards), _words(patches)
        at = [ctypes.addressof(words) for words in self.held]
        self.words = _words([len(trace.symbols), ctypes.addressof(self.values), len(operations), at[0],
                             len(trace.guards), at[1], len(table.moving), at[2], 0, table.table_address, table.count,
                             table.slots_address, ctypes.addressof(table.maps), table.mapped])

    @property
    def address(self) -> int:
        """Of its words."""
        return ctypes.addressof(self.words)

    def fits(self, sizes: Sequence[int]) -> bool:
        """Whether these sizes are its own; its table is for them then. Hold the table's lock until it is launched."""
        return bool(region_fitter()(self.address, _words(sizes)))

    @property
    def scratch_bytes(self) -> int:
        """The scratch of a run with the sizes that were looked at last."""
        found: list[int] = [self.least_scratch, *(self.values[row] for row in self.scratch_rows)]
        return max(found)


class DynamicCall(GraphCall):
    """A program of dynamic sizes. `region(sizes)` makes the launches of a trace at these sizes, `run(sizes,
    addresses)` queues one run through Python."""

    def __init__(self, device: Any, symbols: Sequence[Any], which: Sequence[int], arena: tuple[int, int, int],
                 faults: Any, region: Callable[[Mapping[str, int]], Region | None],
                 run: Callable[[Mapping[str, int], Sequence[int]], None], errors: dict[int, BaseException]) -> None:
        super().__init__(device, symbols, which, arena, faults, run, errors)
        self.region = region
        self.regions: list[Region] = []

    def add(self, region: Region) -> None:
        """One more region, looked at first; the oldest ones make room."""
        self.regions = [region, *self.regions[:MOST_REGIONS - 1]]
        for one, following in zip(self.regions, [*self.regions[1:], None], strict=True):
            one.words[RegionWord.NEXT] = 0 if following is None else following.address
        self.words[Field.REGIONS] = region.address

    def learn(self, sizes: Mapping[str, int]) -> bool:
        """A region for these sizes."""
        made = self.region(sizes)
        if made is not None:
            self.add(made)
        return made is not None


def _words(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(1, len(numbers)))(*numbers)
