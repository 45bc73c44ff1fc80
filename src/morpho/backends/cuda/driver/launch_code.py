"""All launches of a program in one native call: addresses into the words of every kernel, then `cuLaunchKernel` each.

Python's own calls cost several microseconds per kernel; this is compiled once per process and takes a table.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from morpho.backends.cpu.compiler import llvm
from morpho.backends.cuda.driver.tensor_map import MapArguments, TensorMap
from morpho.base.target import isa_named

MISALIGNED = -1
MAP_ROW = 8  # words of a tensor map in its table
ENTRY_WORDS = 10  # of a launch in the table: the fields of `_entry`, in order

TEXT = """
define i64 @launch_program(ptr %table, i64 %count, ptr %slots, i64 %scratch, i64 %faults, ptr %stream, ptr %launch, ptr %maps, i64 %mapped, ptr %encode) {
entry:
  %none = icmp eq i64 %count, 0
  br i1 %none, label %done, label %fill
fill:
  %i = phi i64 [ 0, %entry ], [ %i1, %filled ]
  %row = mul i64 %i, 10
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
  %rk = mul i64 %k, 10
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
  %qa = getelementptr i64, ptr %q, i64 5
  %arguments = load ptr, ptr %qa
  %status = call i32 %launch(ptr %function, i32 %b, i32 1, i32 1, i32 %t, i32 1, i32 1, i32 %s, ptr %stream, ptr %arguments, ptr null)
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

define i32 @launch_entry(ptr %places, ptr %values, i64 %r0, i64 %r1, i64 %c0, i64 %c1, ptr %none) {
entry:
  %c = load ptr, ptr %values
  %setp = load ptr, ptr %c
  %o1 = getelementptr i64, ptr %c, i64 1
  %context = load ptr, ptr %o1
  %current = call i32 %setp(ptr %context)
  %o2 = getelementptr i64, ptr %c, i64 2
  %n = load i64, ptr %o2
  %o3 = getelementptr i64, ptr %c, i64 3
  %which = load ptr, ptr %o3
  %o4 = getelementptr i64, ptr %c, i64 4
  %slots = load ptr, ptr %o4
  %empty = icmp eq i64 %n, 0
  br i1 %empty, label %placed, label %place
place:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %w = getelementptr i64, ptr %which, i64 %i
  %slot = load i64, ptr %w
  %read = icmp sge i64 %slot, 0
  br i1 %read, label %put, label %next
put:
  %p = getelementptr i64, ptr %places, i64 %i
  %address = load i64, ptr %p
  %s = getelementptr i64, ptr %slots, i64 %slot
  store i64 %address, ptr %s
  br label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %place, label %placed
placed:
  %o5 = getelementptr i64, ptr %c, i64 5
  %table = load ptr, ptr %o5
  %o6 = getelementptr i64, ptr %c, i64 6
  %count = load i64, ptr %o6
  %o7 = getelementptr i64, ptr %c, i64 7
  %scratch = load i64, ptr %o7
  %o8 = getelementptr i64, ptr %c, i64 8
  %faults = load i64, ptr %o8
  %o9 = getelementptr i64, ptr %c, i64 9
  %stream = load ptr, ptr %o9
  %o10 = getelementptr i64, ptr %c, i64 10
  %launch = load ptr, ptr %o10
  %o11 = getelementptr i64, ptr %c, i64 11
  %maps = load ptr, ptr %o11
  %o12 = getelementptr i64, ptr %c, i64 12
  %mapped = load i64, ptr %o12
  %o13 = getelementptr i64, ptr %c, i64 13
  %encode = load ptr, ptr %o13
  %o14 = getelementptr i64, ptr %c, i64 14
  %counter = load ptr, ptr %o14
  %before = load i64, ptr %counter
  %after = add i64 %before, %count
  store i64 %after, ptr %counter
  %o15 = getelementptr i64, ptr %c, i64 15
  %graphs = load i64, ptr %o15
  %o16 = getelementptr i64, ptr %c, i64 16
  %kept = load ptr, ptr %o16
  %graphed = icmp ne i64 %graphs, 0
  br i1 %graphed, label %look, label %plain
look:
  %g = phi i64 [ 0, %placed ], [ %g1, %other ]
  %rows = add i64 %n, 1
  %at = mul i64 %g, %rows
  %row = getelementptr i64, ptr %kept, i64 %at
  %graph = load ptr, ptr %row
  %there = icmp ne ptr %graph, null
  br i1 %there, label %compare, label %other
compare:
  %j = phi i64 [ 0, %look ], [ %j1, %same ]
  %done = icmp eq i64 %j, %n
  br i1 %done, label %replay, label %one
one:
  %ja = add i64 %j, 1
  %k = getelementptr i64, ptr %row, i64 %ja
  %known = load i64, ptr %k
  %pj = getelementptr i64, ptr %places, i64 %j
  %now = load i64, ptr %pj
  %equal = icmp eq i64 %known, %now
  br i1 %equal, label %same, label %other
same:
  %j1 = add i64 %j, 1
  br label %compare
other:
  %g1 = add i64 %g, 1
  %again = icmp ult i64 %g1, %graphs
  br i1 %again, label %look, label %capture
replay:
  %o17 = getelementptr i64, ptr %c, i64 17
  %run = load ptr, ptr %o17
  %or = getelementptr i64, ptr %c, i64 18
  %times = load i64, ptr %or
  %times1 = add i64 %times, 1
  store i64 %times1, ptr %or
  %rs = call i32 %run(ptr %graph, ptr %stream)
  ret i32 %rs
capture:
  ; at the first calls, then as long as graphs are replayed more often than made
  %o26 = getelementptr i64, ptr %c, i64 26
  %made0 = load i64, ptr %o26
  %o18 = getelementptr i64, ptr %c, i64 18
  %replayed = load i64, ptr %o18
  %few = icmp ult i64 %made0, %graphs
  %four = mul i64 %made0, 4
  %worth = icmp ugt i64 %replayed, %four
  %do = or i1 %few, %worth
  %made1 = add i64 %made0, 1
  br i1 %do, label %record, label %plain
record:
  store i64 %made1, ptr %o26
  %o19 = getelementptr i64, ptr %c, i64 19
  %begin = load ptr, ptr %o19
  %o20 = getelementptr i64, ptr %c, i64 20
  %finish = load ptr, ptr %o20
  %o21 = getelementptr i64, ptr %c, i64 21
  %instantiate = load ptr, ptr %o21
  %o22 = getelementptr i64, ptr %c, i64 22
  %destroy = load ptr, ptr %o22
  %o23 = getelementptr i64, ptr %c, i64 23
  %drop = load ptr, ptr %o23
  %o24 = getelementptr i64, ptr %c, i64 24
  %turn = load i64, ptr %o24
  %bs = call i32 %begin(ptr %stream, i32 2)
  %bad = icmp ne i32 %bs, 0
  br i1 %bad, label %plain, label %begun
begun:
  %ls = call i64 @launch_program(ptr %table, i64 %count, ptr %slots, i64 %scratch, i64 %faults, ptr %stream, ptr %launch, ptr %maps, i64 %mapped, ptr %encode)
  %made = getelementptr i64, ptr %c, i64 25
  %fs = call i32 %finish(ptr %stream, ptr %made)
  %wrong = icmp ne i64 %ls, 0
  br i1 %wrong, label %failed, label %ended
failed:
  %lt = trunc i64 %ls to i32
  ret i32 %lt
ended:
  %bad2 = icmp ne i32 %fs, 0
  br i1 %bad2, label %never, label %finished
never:
  store i64 0, ptr %o15
  br label %plain
finished:
  %raw = load ptr, ptr %made
  %rows3 = add i64 %n, 1
  %at3 = mul i64 %turn, %rows3
  %row3 = getelementptr i64, ptr %kept, i64 %at3
  %oldest = load ptr, ptr %row3
  %has = icmp ne ptr %oldest, null
  br i1 %has, label %free, label %instance
free:
  store ptr null, ptr %row3
  %xs = call i32 %destroy(ptr %oldest)
  br label %instance
instance:
  %is = call i32 %instantiate(ptr %row3, ptr %raw, i64 0)
  %ds = call i32 %drop(ptr %raw)
  %bad3 = icmp ne i32 %is, 0
  br i1 %bad3, label %refused, label %keep
refused:
  store ptr null, ptr %row3
  store i64 0, ptr %o15
  br label %plain
keep:
  %y = phi i64 [ 0, %instance ], [ %y1, %keepone ]
  %kend = icmp eq i64 %y, %n
  br i1 %kend, label %launchit, label %keepone
keepone:
  %py = getelementptr i64, ptr %places, i64 %y
  %vy = load i64, ptr %py
  %y1 = add i64 %y, 1
  %ky = getelementptr i64, ptr %row3, i64 %y1
  store i64 %vy, ptr %ky
  br label %keep
launchit:
  %t1 = add i64 %turn, 1
  %wrap = icmp eq i64 %t1, %graphs
  %t2 = select i1 %wrap, i64 0, i64 %t1
  store i64 %t2, ptr %o24
  %ready = load ptr, ptr %row3
  %o17b = getelementptr i64, ptr %c, i64 17
  %runb = load ptr, ptr %o17b
  %rsb = call i32 %runb(ptr %ready, ptr %stream)
  ret i32 %rsb
plain:
  %ps = call i64 @launch_program(ptr %table, i64 %count, ptr %slots, i64 %scratch, i64 %faults, ptr %stream, ptr %launch, ptr %maps, i64 %mapped, ptr %encode)
  %pt = trunc i64 %ps to i32
  ret i32 %pt
}
"""  # noqa: E501 (a line of LLVM's language)


class Kernel(NamedTuple):
    """One launch: handle, grid, its words, where operands lie (slot, byte offset, alignment mask), its fault."""

    function: int
    blocks: int
    threads: int
    shared_bytes: int
    words: Any
    places: Sequence[tuple[int, int, int]]
    fault: int  # byte offset of its word among those of the run, -1: none
    first: int  # the word of its first operand
    maps: Sequence[TensorMap] = ()  # that the copy engine reads among the words


@cache
def _addresses() -> list[int]:
    isa = isa_named("native")
    return list(llvm.load(llvm.compile_text(TEXT, isa), isa, ["launch_program", "launch_entry"]))


def entry_address() -> int:
    """Of the function that a program's native entry calls like a kernel (`native_call.py`)."""
    return _addresses()[1]


@cache
def _native() -> Any:
    address = _addresses()[0]
    kinds = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
             ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    return ctypes.PYFUNCTYPE(ctypes.c_int64, *kinds)(address)  # Python's lock is held: the words are the table's own


class LaunchTable:
    """The launches of a program of given sizes."""

    def __init__(self, kernels: Sequence[Kernel], slots: int) -> None:
        self.count, self.run = len(kernels), _native()
        self.table = (ctypes.c_int64 * max(1, ENTRY_WORDS * len(kernels)))()
        self.slots = (ctypes.c_int64 * max(1, slots))()
        self.held: list[Any] = []
        self.lock = threading.Lock()
        for number, kernel in enumerate(kernels):
            places = (ctypes.c_int64 * max(1, 3 * len(kernel.places)))(*[n for place in kernel.places for n in place])
            arguments = (ctypes.c_void_p * 1)(ctypes.addressof(kernel.words))
            self.held += [places, arguments, kernel.words]
            self.table[number * ENTRY_WORDS:(number + 1) * ENTRY_WORDS] = [
                kernel.function, kernel.blocks, kernel.threads, kernel.shared_bytes, ctypes.addressof(kernel.words),
                ctypes.addressof(arguments), ctypes.addressof(places), len(kernel.places), kernel.fault, kernel.first]
        self.maps = self._mapped(kernels)
        self.mapped = len(self.maps) // MAP_ROW
        self.table_address, self.slots_address = ctypes.addressof(self.table), ctypes.addressof(self.slots)

    def _mapped(self, kernels: Sequence[Kernel]) -> ctypes.Array[ctypes.c_int64]:
        """A row for every tensor map: where it goes, the word that holds its address, the address it was made for, and
        what else the driver's function is given."""
        rows: list[int] = []
        for kernel in kernels:
            start = ctypes.addressof(kernel.words)
            for made in kernel.maps:
                given = MapArguments(made)
                self.held.append(given)
                rows += [start + 8 * made.word, start + 8 * (kernel.first + made.operand), 0, given.kind | given.rank << 8,
                         *map(ctypes.addressof, (given.sizes, given.strides, given.box, given.steps))]
        return (ctypes.c_int64 * len(rows))(*rows)

    def launch(self, slots: list[int], scratch: int, faults: int, stream: Any, function: int, encode: int = 0) -> int:
        """Queue all of them; 0, the driver's status, or MISALIGNED where an address does not fit and nothing ran.
        `function` and `encode`: the addresses of `cuLaunchKernel` and `cuTensorMapEncodeTiled`."""
        with self.lock:
            self.slots[:len(slots)] = [*slots]
            return int(self.run(self.table_address, self.count, self.slots_address, scratch, faults, stream, function,
                                ctypes.addressof(self.maps), self.mapped, encode))
