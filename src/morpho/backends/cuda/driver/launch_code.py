"""All launches of a program in one native call: addresses into the words of every kernel, then `cuLaunchKernel` each.

All but the first may be let come to the multiprocessors before the one before them is over (programmatic dependent
launch, `early_launch.py`): kernels wait for it themselves, and what they read before that no kernel of the program
writes.

Python's own calls cost several microseconds per kernel; this is compiled once per process and takes a table.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from morpho.backends.cpu.compiler import llvm
from morpho.backends.cuda.driver.entry_text import ENTRY_TEXT
from morpho.backends.cuda.driver.regions.size_text import SIZE_TEXT
from morpho.backends.cuda.driver.regions.traced import Traced, is_traced, plain
from morpho.backends.cuda.driver.tensor_map import MapArguments, TensorMap
from morpho.base.target import isa_named

MISALIGNED = -1
LIBRARY = 100000  # from which on a status is cuBLASLt's
PRODUCT_WORDS = 21  # of a product by that library: what is told to it stands behind the addresses of a, b and c
MAP_ROW = 8  # words of a tensor map in its table
ENTRY_WORDS = 11  # of a launch in the table: the fields of a `Kernel`, its words as addresses; the last: EARLY
EARLY = 10

TEXT = """
define i64 @launch_program(ptr %table, i64 %count, ptr %slots, i64 %scratch, i64 %faults, ptr %stream, ptr %launch, ptr %maps, i64 %mapped, ptr %encode) {
entry:
  %none = icmp eq i64 %count, 0
  br i1 %none, label %done, label %fill
fill:
  %i = phi i64 [ 0, %entry ], [ %i1, %filled ]
  %row = mul i64 %i, 11
  %e = getelementptr i64, ptr %table, i64 %row
  %ew = getelementptr i64, ptr %e, i64 4
  %words = load ptr, ptr %ew
  %ep = getelementptr i64, ptr %e, i64 6
  %places = load ptr, ptr %ep
  %en = getelementptr i64, ptr %e, i64 7
  %n = load i64, ptr %en
  %ef = getelementptr i64, ptr %e, i64 8
  %fault = load i64, ptr %ef
  %es = getelementptr i64, ptr %e, i64 9
  %first = load i64, ptr %es
  %ws = getelementptr i64, ptr %words, i64 4
  store i64 %scratch, ptr %ws
  %hasf = icmp sge i64 %fault, 0
  %fa = add i64 %faults, %fault
  %fw = select i1 %hasf, i64 %fa, i64 0
  %wf = getelementptr i64, ptr %words, i64 6
  store i64 %fw, ptr %wf
  %nop = icmp eq i64 %n, 0
  br i1 %nop, label %filled, label %place
place:
  %j = phi i64 [ 0, %fill ], [ %j1, %placed ]
  %pj = mul i64 %j, 3
  %p = getelementptr i64, ptr %places, i64 %pj
  %slot = load i64, ptr %p
  %po = getelementptr i64, ptr %p, i64 1
  %offset = load i64, ptr %po
  %pm = getelementptr i64, ptr %p, i64 2
  %mask = load i64, ptr %pm
  %there = icmp sge i64 %slot, 0
  %safe = select i1 %there, i64 %slot, i64 0
  %sa = getelementptr i64, ptr %slots, i64 %safe
  %base = load i64, ptr %sa
  %sum = add i64 %base, %offset
  %address = select i1 %there, i64 %sum, i64 0
  %low = and i64 %address, %mask
  %wrong = icmp ne i64 %low, 0
  br i1 %wrong, label %misaligned, label %placed
placed:
  %at = add i64 %first, %j
  %wj = getelementptr i64, ptr %words, i64 %at
  store i64 %address, ptr %wj
  %j1 = add i64 %j, 1
  %more = icmp ult i64 %j1, %n
  br i1 %more, label %place, label %filled
filled:
  %i1 = add i64 %i, 1
  %next = icmp ult i64 %i1, %count
  br i1 %next, label %fill, label %look
look:
  %nomap = icmp eq i64 %mapped, 0
  br i1 %nomap, label %run, label %map
map:
  %x = phi i64 [ 0, %look ], [ %x1, %encoded ]
  %mr = mul i64 %x, 8
  %o = getelementptr i64, ptr %maps, i64 %mr
  %mt = load ptr, ptr %o
  %o1 = getelementptr i64, ptr %o, i64 1
  %mp = load ptr, ptr %o1
  %now = load ptr, ptr %mp
  %o2 = getelementptr i64, ptr %o, i64 2
  %last = load ptr, ptr %o2
  %same = icmp eq ptr %now, %last
  br i1 %same, label %encoded, label %changed
changed:
  %o3 = getelementptr i64, ptr %o, i64 3
  %mk = load i64, ptr %o3
  %mk1 = and i64 %mk, 255
  %kind = trunc i64 %mk1 to i32
  %mk2 = lshr i64 %mk, 8
  %rank = trunc i64 %mk2 to i32
  %o4 = getelementptr i64, ptr %o, i64 4
  %sizes = load ptr, ptr %o4
  %o5 = getelementptr i64, ptr %o, i64 5
  %strides = load ptr, ptr %o5
  %o6 = getelementptr i64, ptr %o, i64 6
  %box = load ptr, ptr %o6
  %o7 = getelementptr i64, ptr %o, i64 7
  %steps = load ptr, ptr %o7
  %es2 = call i32 %encode(ptr %mt, i32 %kind, i32 %rank, ptr %now, ptr %sizes, ptr %strides, ptr %box, ptr %steps, i32 0, i32 3, i32 3, i32 0)
  store ptr %now, ptr %o2
  %refused = icmp ne i32 %es2, 0
  br i1 %refused, label %unmapped, label %encoded
encoded:
  %x1 = add i64 %x, 1
  %moremaps = icmp ult i64 %x1, %mapped
  br i1 %moremaps, label %map, label %run
unmapped:
  store ptr null, ptr %o2
  %wrongmap = zext i32 %es2 to i64
  ret i64 %wrongmap
run:
  %k = phi i64 [ 0, %look ], [ 0, %encoded ], [ %k1, %launched ]
  %rk = mul i64 %k, 11
  %q = getelementptr i64, ptr %table, i64 %rk
  %function = load ptr, ptr %q
  %qb = getelementptr i64, ptr %q, i64 1
  %blocks = load i64, ptr %qb
  %b = trunc i64 %blocks to i32
  %qt = getelementptr i64, ptr %q, i64 2
  %threads = load i64, ptr %qt
  %t = trunc i64 %threads to i32
  %qs = getelementptr i64, ptr %q, i64 3
  %shared = load i64, ptr %qs
  %s = trunc i64 %shared to i32
  %library = icmp slt i64 %blocks, 0
  br i1 %library, label %product, label %kernel
product:
  %qw = getelementptr i64, ptr %q, i64 4
  %given = load ptr, ptr %qw
  %g8p = getelementptr i64, ptr %given, i64 8
  %g8 = load ptr, ptr %g8p
  %g9p = getelementptr i64, ptr %given, i64 9
  %g9 = load ptr, ptr %g9p
  %g10p = getelementptr i64, ptr %given, i64 10
  %g10 = load ptr, ptr %g10p
  %g11p = getelementptr i64, ptr %given, i64 11
  %g11 = load ptr, ptr %g11p
  %g12p = getelementptr i64, ptr %given, i64 12
  %g12 = load ptr, ptr %g12p
  %g13p = getelementptr i64, ptr %given, i64 13
  %g13 = load ptr, ptr %g13p
  %g14p = getelementptr i64, ptr %given, i64 14
  %g14 = load ptr, ptr %g14p
  %g15p = getelementptr i64, ptr %given, i64 15
  %g15 = load ptr, ptr %g15p
  %g16p = getelementptr i64, ptr %given, i64 16
  %g16 = load ptr, ptr %g16p
  %g17p = getelementptr i64, ptr %given, i64 17
  %g17 = load ptr, ptr %g17p
  %g18p = getelementptr i64, ptr %given, i64 18
  %g18 = load ptr, ptr %g18p
  %g19p = getelementptr i64, ptr %given, i64 19
  %g19 = load ptr, ptr %g19p
  %g20p = getelementptr i64, ptr %given, i64 20
  %g20 = load i64, ptr %g20p
  %ps = call i32 %function(ptr %g11, ptr %g12, ptr %g13, ptr %g9, ptr %g14, ptr %g8, ptr %g15, ptr %g16, ptr %g10, ptr %g17, ptr %g10, ptr %g17, ptr %g18, ptr %g19, i64 %g20, ptr %stream)
  %good = icmp eq i32 %ps, 0
  br i1 %good, label %launched, label %broken
broken:
  %pw = zext i32 %ps to i64
  %told = add i64 %pw, 100000
  ret i64 %told
kernel:
  %qa = getelementptr i64, ptr %q, i64 5
  %arguments = load ptr, ptr %qa
  %qe = getelementptr i64, ptr %q, i64 10
  %may = load i64, ptr %qe
  %late = icmp eq i64 %may, 0
  %head = icmp eq i64 %k, 0
  %behind = or i1 %head, %late
  %early = select i1 %behind, ptr null, ptr %table
  %status = call i32 %launch(ptr %function, i32 %b, i32 1, i32 1, i32 %t, i32 1, i32 1, i32 %s, ptr %stream, ptr %arguments, ptr %early)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %failed, label %launched
launched:
  %k1 = add i64 %k, 1
  %again = icmp ult i64 %k1, %count
  br i1 %again, label %run, label %done
failed:
  %wide = zext i32 %status to i64
  ret i64 %wide
misaligned:
  ret i64 -1
done:
  ret i64 0
}
"""  # noqa: E501 (a line of LLVM's language)


class Kernel(NamedTuple):
    """One launch: handle, grid, its words, where operands lie (slot, byte offset, alignment mask), its fault. With -1
    blocks it is a product by a library, whose function is the handle."""

    function: int
    blocks: int
    threads: int
    shared_bytes: int
    words: Any
    places: Sequence[tuple[int, int, int]]
    fault: int  # byte offset of its word among those of the run, -1: none
    first: int  # the word of its first operand
    maps: Sequence[TensorMap] = ()  # that the copy engine reads among the words
    moving: Sequence[tuple[int, Traced]] = ()  # words whose number depends on dynamic sizes
    early: bool = True  # whether it may come before the one ahead of it is over


@cache
def _addresses() -> list[int]:
    isa = isa_named("native")
    names = ["launch_program", "launch_entry", "fit_region"]
    return list(llvm.load(llvm.compile_text(TEXT + ENTRY_TEXT + SIZE_TEXT, isa), isa, names))


def entry_address() -> int:
    """Of the function that a program's native entry calls like a kernel (`native_call.py`)."""
    return _addresses()[1]


@cache
def fit_region() -> Any:
    """The function that computes a region's numbers for given sizes; 0 where they are not its own."""
    return ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(_addresses()[2])


@cache
def _native() -> Any:
    address = _addresses()[0]
    kinds = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
             ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    return ctypes.PYFUNCTYPE(ctypes.c_int64, *kinds)(address)  # Python's lock is held: the words are the table's own


class LaunchTable:
    """The launches of a program of given sizes; `moving`: addresses of its words whose numbers are traced."""

    def __init__(self, kernels: Sequence[Kernel], slots: int) -> None:
        self.count, self.run = len(kernels), _native()
        self.table = (ctypes.c_int64 * max(1, ENTRY_WORDS * len(kernels)))()
        self.slots = (ctypes.c_int64 * max(1, slots))()
        self.held: list[Any] = []
        self.moving: list[tuple[int, Traced]] = []
        self.lock = threading.RLock()  # taken around what is filled in, too
        for number, kernel in enumerate(kernels):
            places = (ctypes.c_int64 * max(1, 3 * len(kernel.places)))()
            self._fill(places, [n for place in kernel.places for n in place])
            arguments = (ctypes.c_void_p * 1)(ctypes.addressof(kernel.words))
            self.held += [places, arguments, kernel.words]
            self.moving += [(ctypes.addressof(kernel.words) + 8 * word, value) for word, value in kernel.moving]
            self._fill(self.table, [
                kernel.function, kernel.blocks, kernel.threads, kernel.shared_bytes, ctypes.addressof(kernel.words),
                ctypes.addressof(arguments), ctypes.addressof(places), len(kernel.places), kernel.fault, kernel.first,
                kernel.early], number * ENTRY_WORDS)
        self.maps = self._mapped(kernels)
        self.mapped = len(self.maps) // MAP_ROW
        self.table_address, self.slots_address = ctypes.addressof(self.table), ctypes.addressof(self.slots)

    def _fill(self, words: Any, numbers: Sequence[Any], first: int = 0) -> None:
        """Numbers into words of eight bytes; those that depend on dynamic sizes are noted."""
        for at, number in enumerate(numbers, first):
            words[at] = plain(number)
            if is_traced(number):
                self.moving.append((ctypes.addressof(words) + 8 * at, number))

    def entry(self, number: int) -> list[int]:
        """The words of one launch: function, blocks, threads, bytes of shared memory, where its words lie, ..."""
        return list(self.table[number * ENTRY_WORDS:(number + 1) * ENTRY_WORDS])

    def _mapped(self, kernels: Sequence[Kernel]) -> ctypes.Array[ctypes.c_int64]:
        """A row for every tensor map: where it goes, the word that holds its address, the address it was made for, and
        what else the driver's function is given."""
        rows: list[int] = []
        again: list[tuple[int, Traced]] = []
        for kernel in kernels:
            start = ctypes.addressof(kernel.words)
            for made in kernel.maps:
                given = MapArguments(made)
                self.held.append(given)
                for words, numbers in ((given.sizes, made.sizes), (given.strides, made.strides)):
                    self._fill(words, numbers)
                numbers_of: list[Any] = [*made.sizes, *made.strides]
                traced = [number for number in numbers_of if is_traced(number)]
                if traced:  # made anew at every call
                    again.append((8 * (len(rows) + 2), traced[0].trace.constant(0)))
                rows += [start + 8 * made.word, start + 8 * (kernel.first + made.operand), 0,
                         given.kind | given.rank << 8,
                         *[ctypes.addressof(part) for part in (given.sizes, given.strides, given.box, given.steps)]]
        found = (ctypes.c_int64 * len(rows))(*rows)
        self.moving += [(ctypes.addressof(found) + offset, value) for offset, value in again]
        return found

    def launch(self, slots: list[int], scratch: int, faults: int, stream: Any, function: int, encode: int = 0) -> int:
        """Queue all of them; 0, the driver's status, or MISALIGNED where an address does not fit and nothing ran.
        `function` and `encode`: the addresses of `cuLaunchKernel` and `cuTensorMapEncodeTiled`."""
        with self.lock:
            self.slots[:len(slots)] = [*slots]
            return int(self.run(self.table_address, self.count, self.slots_address, scratch, faults, stream, function,
                                ctypes.addressof(self.maps), self.mapped, encode))
