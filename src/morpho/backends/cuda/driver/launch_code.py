"""All launches of a program in one native call: addresses into the words of every kernel, then `cuLaunchKernel` each.

All but the first may be let come to the multiprocessors before the one before them is over (programmatic dependent
launch, `early_launch.py`): kernels wait for it themselves, and what they read before that no kernel of the program
writes.

Python's own calls cost several microseconds per kernel; this is compiled once per process and takes a table.
`launch_entry` is what the native entry of a compiled function calls like a kernel.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

from morpho.backends.code.compiler.code import addresses_of
from morpho.backends.code.native import native
from morpho.backends.code.typed import NULL, Address, Words, i1, i32, i64, u32
from morpho.backends.cuda.driver.regions.traced import Operation, Traced, is_traced, plain
from morpho.backends.cuda.driver.tensor_map import MapArguments, TensorMap
from morpho.base.target import isa_named

MISALIGNED = -1
LIBRARY = 100000  # from which on a status is cuBLASLt's
PRODUCT_WORDS = 21  # of a product by that library: what is told to it stands behind the addresses of a, b and c
GRAPHS, PAST = 8, 4  # of a program, for as many sets of addresses and sizes; sets that came last, without a graph
RETRY, RAISED = -3, -2  # what Python tells native code: it knows these sizes now; an error is kept for who asked


class Launch(IntEnum):
    """The words of a launch in the table."""

    FUNCTION = 0
    BLOCKS = 1  # -1: a product by the library
    THREADS = 2
    SHARED = 3
    WORDS = 4  # address: what the kernel is given
    ARGUMENTS = 5  # address: that of those words
    OPERANDS = 6  # table: where they lie
    COUNT = 7  # of operands
    FAULT = 8  # byte offset of its word among those of the run, or -1
    FIRST = 9  # the word of its first operand
    EARLY = 10  # whether it may come before the one ahead of it is over
    SIZE = 11


class Operand(IntEnum):
    """Where an operand lies."""

    SLOT = 0  # -1: nowhere
    OFFSET = 1
    MASK = 2  # bits of its address that must be 0
    SIZE = 3


class Map(IntEnum):
    """The words of a tensor map in its table."""

    TARGET = 0
    ADDRESS = 1  # of the word that holds its operand's address
    LAST = 2  # the address that it was made for
    KIND = 3  # and its rank, above eight bits
    SIZES = 4
    STRIDES = 5
    BOX = 6
    STEPS = 7
    SIZE = 8


SCRATCH_WORD, FAULT_WORD = 4, 6  # among the words of a kernel
ENTRY_WORDS, EARLY, MAP_ROW = int(Launch.SIZE), int(Launch.EARLY), int(Map.SIZE)


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
    ASK = 27  # Python, for sizes of no region, and operands that do not lie as their kernels need
    SYMBOLS = 28  # dynamic sizes
    REGIONS = 29  # of those: the first one, or 0
    SEEN = 30  # keys that came and have no graph
    COUNTS = 31  # launches of each graph
    SIZE = 31 + GRAPHS


class RegionWord(IntEnum):
    """The words of a region."""

    SYMBOLS = 0
    VALUES = 1  # table: sizes first, then whatever is computed
    ROWS = 2
    ROW_TABLE = 3  # per row an operation, two values, and the value it gives
    GUARDS = 4
    GUARD_TABLE = 5  # per guard a value and what it must be
    PATCHES = 6
    PATCH_TABLE = 7  # per patch an address and the value that goes there
    NEXT = 8
    TABLE = 9
    COUNT = 10
    SLOTS = 11
    MAPS = 12
    MAPPED = 13
    SIZE = 14


Encode = Callable[[Address, i32, i32, Address, Address, Address, Address, Address, i32, i32, i32, i32], i32]
LaunchKernel = Callable[[Address, i32, i32, i32, i32, i32, i32, i32, Address, Address, Address], i32]
Product = Callable[[Address, Address, Address, Address, Address, Address, Address, Address, Address, Address, Address,
                    Address, Address, Address, i64, Address], i32]
Ask = Callable[[Words, Words, i32], i32]
Replay = Callable[[Address, Address], i32]  # a graph in a stream
OnHandle = Callable[[Address], i32]


@native()
def same_key(row: Words, addresses: Words, n: i64, sizes: Words, m: i64) -> i1:
    """Whether a graph was captured for these addresses and sizes."""
    for i in range(n):
        if row[i + 1] != addresses[i]:
            return False
    for i in range(m):  # noqa: SIM110 (`all` is not native)
        if row[n + i + 1] != sizes[i]:
            return False
    return True


@native()
def keep_key(row: Words, addresses: Words, n: i64, sizes: Words, m: i64) -> None:
    for i in range(n):
        row[i + 1] = addresses[i]
    for i in range(m):
        row[n + i + 1] = sizes[i]


@native()
def fit_region(region: Words, sizes: Words) -> i64:
    """Compute a region's numbers for sizes; where its guards hold, put the numbers where launches read them."""
    values: Words = region[RegionWord.VALUES]
    for i in range(region[RegionWord.SYMBOLS]):
        values[i] = sizes[i]
    rows: Words = region[RegionWord.ROW_TABLE]
    for i in range(region[RegionWord.ROWS]):
        row = rows + i * 4
        a, b = values[row[1]], values[row[2]]
        divisor = 1 if b == 0 else b
        match row[0]:
            case Operation.SUBTRACT:
                result = a - b
            case Operation.MULTIPLY:
                result = a * b
            case Operation.DIVIDE:
                result = a // divisor
            case Operation.REMAINDER:
                result = a % divisor
            case Operation.LESS:
                result = i64(a < b)
            case Operation.LESS_OR_EQUAL:
                result = i64(a <= b)
            case Operation.EQUAL:
                result = i64(a == b)
            case _:
                result = a + b
        values[row[3]] = result
    guards: Words = region[RegionWord.GUARD_TABLE]
    for i in range(region[RegionWord.GUARDS]):
        if values[guards[i * 2]] != guards[i * 2 + 1]:
            return 0
    patches: Words = region[RegionWord.PATCH_TABLE]
    for i in range(region[RegionWord.PATCHES]):
        word: Words = patches[i * 2]
        word[0] = values[patches[i * 2 + 1]]
    return 1


@native()
def launch_program(table: Words, count: i64, slots: Words, scratch: i64, faults: i64, stream: Address,
                   launch: LaunchKernel, maps: Words, mapped: i64, encode: Encode) -> i64:
    """Put addresses into the words of every kernel, encode maps whose address changed, and launch."""
    if count == 0:
        return 0
    for i in range(count):
        entry = table + i * Launch.SIZE
        words: Words = entry[Launch.WORDS]
        operands: Words = entry[Launch.OPERANDS]
        words[SCRATCH_WORD] = scratch
        fault = entry[Launch.FAULT]
        words[FAULT_WORD] = faults + fault if fault >= 0 else 0
        for j in range(entry[Launch.COUNT]):
            operand = operands + j * Operand.SIZE
            slot = operand[Operand.SLOT]
            address = slots[slot] + operand[Operand.OFFSET] if slot >= 0 else 0
            if address & operand[Operand.MASK]:
                return MISALIGNED
            words[entry[Launch.FIRST] + j] = address
    for i in range(mapped):
        status = encode_map(maps + i * Map.SIZE, encode)
        if status:
            return status
    for i in range(count):
        entry = table + i * Launch.SIZE
        if entry[Launch.BLOCKS] < 0:
            status = launch_product(entry, stream)
        else:
            status = launch_kernel(entry, i, table, stream, launch)
        if status:
            return status
    return 0


@native()
def encode_map(row: Words, encode: Encode) -> i64:
    operand: Words = row[Map.ADDRESS]
    now, kind = operand[0], row[Map.KIND]
    if now == row[Map.LAST]:
        return 0
    status = encode(Address(row[Map.TARGET]), i32(kind & 255), i32(kind >> 8), Address(now), Address(row[Map.SIZES]),
                    Address(row[Map.STRIDES]), Address(row[Map.BOX]), Address(row[Map.STEPS]), 0, 3, 3, 0)
    row[Map.LAST] = 0 if status else now
    return i64(u32(status))


@native()
def launch_kernel(entry: Words, number: i64, table: Words, stream: Address, launch: LaunchKernel) -> i64:
    early = NULL if number == 0 or entry[Launch.EARLY] == 0 else table  # any address says yes
    return i64(u32(launch(Address(entry[Launch.FUNCTION]), i32(entry[Launch.BLOCKS]), 1, 1, i32(entry[Launch.THREADS]),
                          1, 1, i32(entry[Launch.SHARED]), stream, Address(entry[Launch.ARGUMENTS]), early)))


@native()
def launch_product(entry: Words, stream: Address) -> i64:
    """A product by the library: three operands, then what the library was told when it was prepared."""
    words: Words = entry[Launch.WORDS]
    product: Product = entry[Launch.FUNCTION]
    b, a, c = Address(words[8]), Address(words[9]), Address(words[10])
    handle, descriptor, alpha = Address(words[11]), Address(words[12]), Address(words[13])
    a_layout, b_layout, beta = Address(words[14]), Address(words[15]), Address(words[16])
    c_layout, algorithm, workspace = Address(words[17]), Address(words[18]), Address(words[19])
    status = product(handle, descriptor, alpha, a, a_layout, b, b_layout, beta, c, c_layout, c, c_layout, algorithm,
                     workspace, words[20], stream)
    return i64(u32(status)) + LIBRARY if status else 0


@native()
def launch_entry(addresses: Words, values: Words, r0: i64, r1: i64, c0: i64, c1: i64, none: Address) -> i32:
    """Replay a graph that was captured for these addresses and sizes; else launch, and perhaps capture one.

    `values`: the address of the words (`Field`), then the dynamic sizes. Static programs are captured at their first
    calls, programs of dynamic sizes when sizes and addresses come again; both later on as long as graphs are replayed
    more often than they are made. The oldest graph makes room.
    """
    context: Words = values[0]
    sizes = values + 1
    set_current: OnHandle = context[Field.SET_CURRENT]
    status = set_current(Address(context[Field.CONTEXT]))
    if status:
        return status
    n, m, graphs = context[Field.PLACES], context[Field.SYMBOLS], context[Field.GRAPHS]
    stream: Address = context[Field.STREAM]
    kept: Words = context[Field.KEPT]
    counter: Words = context[Field.COUNTER]
    ask: Ask = context[Field.ASK]
    replay: Replay = context[Field.REPLAY]
    width = n + m + 1
    capture = False
    if graphs:
        for g in range(graphs):
            graph: Address = kept[g * width]
            if graph and same_key(kept + g * width, addresses, n, sizes, m):
                context[Field.REPLAYED] += 1
                counter[0] += context[Field.COUNTS + g]
                return replay(graph, stream)
        capture = context[Field.CAPTURED] < graphs or context[Field.REPLAYED] > context[Field.CAPTURED] * 4
        if capture and m:
            capture = came_before(context, kept + graphs * width, width, addresses, n, sizes, m)
    slots, table, count = Words(context[Field.SLOTS]), Words(context[Field.TABLE]), context[Field.COUNT]
    maps, mapped = Words(context[Field.MAPS]), context[Field.MAPPED]
    if m:
        region = find_region(context, sizes)
        why: i32 = 0
        while region is None:
            answer = ask(addresses, values, why)
            if answer != RETRY:
                return answer
            why = 1
            region = find_region(context, sizes)
        slots, table, count = Words(region[RegionWord.SLOTS]), Words(region[RegionWord.TABLE]), region[RegionWord.COUNT]
        maps, mapped = Words(region[RegionWord.MAPS]), region[RegionWord.MAPPED]
    which: Words = context[Field.WHICH]
    for i in range(n):
        if which[i] >= 0:
            slots[which[i]] = addresses[i]
    counter[0] += count
    scratch, faults = context[Field.SCRATCH], context[Field.FAULTS]
    launch: LaunchKernel = context[Field.LAUNCH]
    encode: Encode = context[Field.ENCODE]
    if capture:
        context[Field.CAPTURED] += 1
        begin: Callable[[Address, i32], i32] = context[Field.BEGIN]
        finish: Callable[[Address, Words], i32] = context[Field.FINISH]
        drop: OnHandle = context[Field.DROP]
        if begin(stream, 2) == 0:
            launched = launch_program(table, count, slots, scratch, faults, stream, launch, maps, mapped, encode)
            status = finish(stream, context + Field.MADE)
            made: Address = context[Field.MADE]
            if launched:
                if status == 0:
                    drop(made)
                return ask(addresses, values, 2) if launched == MISALIGNED else i32(launched)
            row = kept + context[Field.TURN] * width
            if status == 0 and instantiated(context, row, made):
                keep_key(row, addresses, n, sizes, m)
                context[Field.COUNTS + context[Field.TURN]] = count
                turn = context[Field.TURN] + 1
                context[Field.TURN] = 0 if turn == graphs else turn
                return replay(Address(row[0]), stream)
            context[Field.GRAPHS] = 0
    launched = launch_program(table, count, slots, scratch, faults, stream, launch, maps, mapped, encode)
    return ask(addresses, values, 2) if launched == MISALIGNED else i32(launched)


@native()
def came_before(context: Words, past: Words, width: i64, addresses: Words, n: i64, sizes: Words, m: i64) -> i1:
    """Whether these addresses and sizes came a few calls ago; they are remembered now."""
    for i in range(PAST):
        if same_key(past + i * width, addresses, n, sizes, m):
            return True
    keep_key(past + (context[Field.SEEN] & (PAST - 1)) * width, addresses, n, sizes, m)
    context[Field.SEEN] += 1
    return False


@native()
def find_region(context: Words, sizes: Words) -> Words:
    region: Words = context[Field.REGIONS]
    while region and not fit_region(region, sizes):
        region = Words(region[RegionWord.NEXT])
    return region


@native()
def instantiated(context: Words, row: Words, made: Address) -> i1:
    """Make a graph of what was captured, in the place of the oldest; whether that worked."""
    instantiate: Callable[[Words, Address, i64], i32] = context[Field.INSTANTIATE]
    destroy: OnHandle = context[Field.DESTROY]
    drop: OnHandle = context[Field.DROP]
    if row[0]:
        oldest: Address = row[0]
        row[0] = 0
        destroy(oldest)
    status = instantiate(row, made, 0)
    drop(made)
    if status:
        row[0] = 0
    return status == 0


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
    return addresses_of("launches", launch_program, launch_entry, fit_region, isa=isa_named("native"))


def entry_address() -> int:
    """Of the function that a program's native entry calls like a kernel (`native_call.py`)."""
    return _addresses()[1]


@cache
def region_fitter() -> Any:
    """`fit_region`: the function that computes a region's numbers for given sizes; 0 where they are not its own."""
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
