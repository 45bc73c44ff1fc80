"""The meanings of intrinsics on the CPU: of every row of `assembly/intrinsics.py` that `runtime.py` has not.

Fragments lie over a warp as the PTX manual says; sums are taken in float64 and rounded once. A lane puts its registers
into its line of the exchange, the warp meets, and every lane computes its own results from the others' registers.

A barrier of Hopper's is a word of shared memory: arrivals that are wanted (bits 0-7) and still missing (8-15), bytes
still to come (16-47, a signed number), and its phase (48). A box lies in shared memory as the GPU's copy engine leaves
it: chunks of 16 bytes of a line of 128, in the order of their number xor the line's, modulo 8; `wgmma` reads them
through the same map of addresses, from its descriptor's strides. The four warps of a warpgroup multiply together: none
goes on before all have read, as on the GPU, where one thread of them then says that a stage may be filled again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from morpho.backends.code import scalars
from morpho.backends.code.compiler.code import stored_text
from morpho.backends.code.emit import Emitter, Value
from morpho.backends.code.native import module, native
from morpho.backends.code.typed import Bytes, Volatile, Words, i64, u32
from morpho.backends.cuda.assembly.intrinsics import called, definition, row_of, struct
from morpho.backends.cuda.emulator.runtime import Context, give_way, in_vain, shared
from morpho.base.dtypes import DType, bfloat16, float16

DEPTH = 64
DTYPES = {"bf16": bfloat16, "f16": float16}
Meaning = Callable[..., Value | None]  # (emitter, *arguments, **parameters): writes the body; gives its result
MEANINGS: dict[str, tuple[Meaning, str]] = {}  # by the row's name: with attributes of the function


def meaning(name: str, attributes: str = "") -> Callable[[Meaning], Meaning]:
    def add(write: Meaning) -> Meaning:
        MEANINGS[name] = write, attributes
        return write

    return add


# -- barriers with a count of bytes ----------------------------------------------------------------------------------
@native("emu.at")
def at(context: Words, offset: u32) -> Bytes:
    return shared(context) + offset


@native("gpu.mbarrier_init")
def mbarrier_init(context: Words, offset: u32, count: u32) -> None:
    Volatile[i64](at(context, offset))[0] = i64(count) | i64(count) << 8


@native("gpu.mbarrier_ready")
def mbarrier_ready(context: Words) -> None:
    pass


@native("emu.mbarrier", inline=False)
def mbarrier_count(context: Words, offset: u32, arrived: i64, nbytes: i64) -> None:
    """Count arrivals, and bytes still to come; the phase ends when none are missing."""
    barrier = Volatile[i64](at(context, offset))
    state = barrier[0]
    wanted, missing = state & 255, (state >> 8 & 255) - arrived
    coming, phase = (state << 16 >> 32) + nbytes, state >> 48 & 1
    over = (missing | coming) == 0
    missing = wanted if over else missing
    barrier[0] = wanted | missing << 8 | (coming & 0xFFFFFFFF) << 16 | (phase ^ i64(over)) << 48


@native("gpu.mbarrier_arrive")
def mbarrier_arrive(context: Words, offset: u32) -> None:
    mbarrier_count(context, offset, 1, 0)


@native("gpu.mbarrier_expect")
def mbarrier_expect(context: Words, offset: u32, nbytes: u32) -> None:
    mbarrier_count(context, offset, 0, i64(nbytes))
    mbarrier_count(context, offset, 1, 0)


@native("gpu.mbarrier_wait", inline=False)
def mbarrier_wait(context: Words, offset: u32, parity: u32) -> None:
    barrier = Volatile[i64](at(context, offset))
    if barrier[0] >> 48 & 1 == i64(parity):
        give_way(context)
        while barrier[0] >> 48 & 1 == i64(parity):
            in_vain(context)
            give_way(context)


BARRIERS = mbarrier_init, mbarrier_ready, mbarrier_arrive, mbarrier_expect, mbarrier_wait


@cache
def barriers_text() -> str:
    return stored_text("emulator barriers", lambda: module(
        internal=(*BARRIERS, at, mbarrier_count), elsewhere=(shared, give_way, in_vain)))


# -- parts of bodies -------------------------------------------------------------------------------------------------
def _pointer(e: Emitter, call: str) -> str:
    """The address that a function gives."""
    name = "%" + e.fresh("p")
    e.line(f"{name} = call ptr {call}")
    return name


def _exchange(e: Emitter, thread: Value) -> str:
    return _pointer(e, f"@emu.exchange(ptr %c, i64 {thread.name})")


def _at(e: Emitter, offset: Value) -> str:
    return _pointer(e, f"@emu.at(ptr %c, i32 {offset.name})")


def _meet(e: Emitter) -> None:
    e.line("call void @gpu.warp_barrier(ptr %c)")


def _meet_group(e: Emitter) -> None:
    e.line("call void @emu.group_barrier(ptr %c)")


def _thread(e: Emitter) -> Value:
    return e.assign("call i64 @gpu.thread(ptr %c)", "i64", 1)


def _show(e: Emitter, thread: Value, words: Sequence[Value]) -> None:
    """Put words where all lanes of the warp see them."""
    mine = _exchange(e, thread)
    for number, word in enumerate(words):
        e.line(f"store volatile i32 {word.name}, ptr {e.offset(mine, 'i32', number)}")
    _meet(e)


def _several(e: Emitter, values: Sequence[Value]) -> Value:
    """Values as the results of a function."""
    kind, text = struct([value.element for value in values]), "poison"
    for number, value in enumerate(values):
        text = e.assign(f"insertvalue {kind} {text}, {value.element} {value.name}, {number}", kind, 1).name
    return Value(e, text, kind, 1)


def _taken(e: Emitter, values: Value, element: str, count: int) -> list[Value]:
    return [e.assign(f"extractvalue {values.element} {values.name}, {number}", element, 1) for number in range(count)]


def _call(e: Emitter, name: str, *arguments: Value) -> list[Value]:
    """The results of another row's function, which all are floats."""
    row, parameters = row_of(name)
    kinds = row.signature(parameters)[1]
    given = ", ".join(["ptr %c", *(f"{value.element} {value.name}" for value in arguments)])
    return _taken(e, e.assign(f"call {struct(kinds)} @gpu.{name}({given})", struct(kinds), 1), "float", len(kinds))


def _number(e: Emitter, place: str, dtype: DType) -> Value:
    """A half at an address, as a double."""
    bits = e.load(place, "i16", 1)
    stored = bits if dtype is bfloat16 else e.convert("bitcast", bits, "half")
    return e.convert("fpext", scalars.from_memory(e, stored, dtype), "double")


# -- copies ----------------------------------------------------------------------------------------------------------
@meaning("cp_async")
def cp_async(e: Emitter, offset: Value, source: Value, nbytes: Value) -> None:
    target = _pointer(e, "@gpu.shared(ptr %c)")
    target = e.offset(target, "i8", e.convert("zext", offset, "i64"))
    copies = e.convert("zext", e.icmp("ne", nbytes, 0), "i64")
    for half in range(2):
        e.store(e.constant(0, "i64", 1), e.offset(target, "i64", half))
    with e.loop(0, copies * 2) as loop:
        e.store(e.load(e.offset(source.name, "i64", loop.index), "i64", 1, align=1),
                e.offset(target, "i64", loop.index))


@meaning("cp_commit")
def cp_commit(e: Emitter) -> None:
    """Copies are over when they begin."""


@meaning("cp_wait_{count}")
def cp_wait(e: Emitter, count: int) -> None:
    """Copies are over when they begin."""


@meaning("registers_{way}_{count}")
def registers(e: Emitter, way: str, count: int) -> None:
    """There are enough."""


@meaning("tma_load_{rank}", "noinline")
def tma_load(e: Emitter, table: Value, offset: Value, barrier: Value, *axes: Value, rank: int) -> None:
    """Two nested loops over a box of lines; what lies outside the operand is zero. Lines are 128 bytes of 16-bit
    numbers, and boxes are one along the other axes."""
    words = e.load_pointer("%c", int(Context.WORDS))
    numbers = e.offset(words, "i8", e.convert("zext", table, "i64"))
    address = e.load_pointer(numbers)
    sizes, strides, box = ([e.load(e.offset(numbers, "i64", first + n), "i64", 1) for n in range(count)]
                           for first, count in ((1, rank), (1 + rank, rank - 1), (2 * rank, rank)))
    start = [e.convert("sext", axis, "i64") for axis in axes]
    target = _at(e, offset)
    with e.loop(0, box[1]) as lines, e.loop(0, box[0]) as elements:
        where = [start[0] + elements.index, start[1] + lines.index, *start[2:]]
        inside, distance = e.constant(True, "i1", 1), where[0] * 2
        for index, size in zip(where, sizes, strict=True):
            inside = inside & e.icmp("sge", index, 0) & e.icmp("slt", index, size)
        for index, stride in zip(where[1:], strides, strict=True):
            distance = distance + index * stride
        distance = e.select(inside, distance, 0)
        value = e.select(inside, e.load(e.offset(address, "i8", distance), "i16", 1), 0)
        chunk = elements.index.shift_right(3) ^ (lines.index & 7)
        e.store(value, e.offset(target, "i16", lines.index * 64 + chunk * 8 + (elements.index & 7)))
    nbytes = box[0] * box[1] * -2
    e.line(f"call void @emu.mbarrier(ptr %c, i32 {barrier.name}, i64 0, i64 {nbytes.name})")


# -- products by warps -----------------------------------------------------------------------------------------------
def _ldmatrix(e: Emitter, offset: Value, turned: bool) -> Value:
    thread = _thread(e)
    _show(e, thread, [offset])
    memory = _pointer(e, "@gpu.shared(ptr %c)")
    warp, lane = thread & -32, thread & 31
    group, pair = lane.shift_right(2), lane & 3

    def line(number: Value) -> str:
        start = e.assign(f"load volatile i32, ptr {_exchange(e, warp + number)}", "i32", 1)
        return e.offset(memory, "i8", e.convert("zext", start, "i64"))

    values = []
    for matrix in range(4):
        if turned:
            halves = [e.load(e.offset(line(pair * 2 + (8 * matrix + n)), "i16", group), "i16", 1) for n in range(2)]
            low, high = (e.convert("zext", half, "i32") for half in halves)
            values.append(low | (high << 16))
        else:
            values.append(e.load(e.offset(line(group + 8 * matrix), "i32", pair), "i32", 1))
    _meet(e)
    return _several(e, values)


@meaning("ldmatrix", "noinline")
def ldmatrix(e: Emitter, offset: Value) -> Value:
    return _ldmatrix(e, offset, False)


@meaning("ldmatrix_trans", "noinline")
def ldmatrix_trans(e: Emitter, offset: Value) -> Value:
    return _ldmatrix(e, offset, True)


def _mma(e: Emitter, arguments: Sequence[Value], depth: int, wide: str,
         value_of: Callable[[bool, str, int], Value]) -> Value:
    """16 x 8 sums over a warp. `value_of(right, line, k)`: a number of an operand; `line`: the exchange of the lane
    that holds it. A register has `depth / 8` neighbours in k."""
    thread = _thread(e)
    _show(e, thread, arguments[:6])
    warp, lane = thread & -32, thread & 31
    group, pair, each = lane.shift_right(2), lane & 3, depth // 8  # values of k in a register
    totals = []
    for number, given in enumerate(arguments[6:]):
        lower, column = number // 2, pair * 2 + number % 2
        total = given if given.element == wide else e.convert("fpext", given, wide)
        for k in range(depth):
            half, owner = k // (4 * each), k % (4 * each) // each
            a, b = (_exchange(e, warp + line * 4 + owner) for line in (group, column))
            total = total + (value_of(False, a, each * (lower + 2 * half) + k % each)
                             * value_of(True, b, each * (4 + half) + k % each))
        totals.append(total if given.element == wide else e.convert("fptrunc", total, given.element))
    _meet(e)
    return _several(e, totals)


@meaning("mma_{kind}", "noinline")
def mma(e: Emitter, *arguments: Value, kind: str) -> Value:
    return _mma(e, arguments, 16, "double", lambda right, line, k: _number(e, e.offset(line, "i16", k), DTYPES[kind]))


@meaning("mma_{a}8_{b}8", "noinline")
def mma_bytes(e: Emitter, *arguments: Value, a: str, b: str) -> Value:
    def byte(right: bool, line: str, k: int) -> Value:
        signed = (b if right else a) == "s"
        return e.convert("sext" if signed else "zext", e.load(e.offset(line, "i8", k), "i8", 1), "i32")

    return _mma(e, arguments, 32, "i32", byte)


@meaning("mma_tf32", "noinline")
def mma_tf32(e: Emitter, *arguments: Value) -> Value:
    def number(right: bool, line: str, k: int) -> Value:
        bits = e.load(e.offset(line, "i32", k), "i32", 1) & -8192  # what the unit reads
        return e.convert("fpext", e.from_bits(bits, "float"), "double")

    return _mma(e, arguments, 8, "double", number)


# -- numbers ---------------------------------------------------------------------------------------------------------
@meaning("to_tf32")
def to_tf32(e: Emitter, x: Value) -> Value:
    bits = e.bits(x)
    special = e.icmp("eq", bits & 0x7F800000, 0x7F800000)
    return e.select(special, bits, (bits + 4096) & -8192)


def _of_c(e: Emitter, name: str, x: Value) -> Value:
    e.declarations.add(f"declare float @{name}(float)")
    return e.assign(f"call float @{name}(float {x.name})", "float", 1)


@meaning("exp2")
def exp2(e: Emitter, x: Value) -> Value:
    return _of_c(e, "exp2f", x)


@meaning("log2")
def log2(e: Emitter, x: Value) -> Value:
    return _of_c(e, "log2f", x)


@meaning("reciprocal")
def reciprocal(e: Emitter, x: Value) -> Value:
    return 1.0 / x


def _packed(e: Emitter, values: Sequence[Value], dtype: DType) -> Value:
    """Two numbers, each rounded once, in a word."""
    halves = []
    for value in values:
        stored = scalars.to_memory(e, scalars.round_to(e, value, dtype), dtype)
        halves.append(e.convert("zext", stored if dtype is bfloat16 else e.convert("bitcast", stored, "i16"), "i32"))
    return halves[0] | (halves[1] << 16)


@meaning("pack_{kind}")
def pack(e: Emitter, low: Value, high: Value, kind: str) -> Value:
    return _packed(e, (low, high), DTYPES[kind])


@meaning("add_bf16")
def add_bf16(e: Emitter, a: Value, b: Value) -> Value:
    pairs = (a << 16, b << 16), (a & -65536, b & -65536)
    return _packed(e, [e.from_bits(one, "float") + e.from_bits(other, "float") for one, other in pairs], bfloat16)


# -- products by warpgroups ------------------------------------------------------------------------------------------
def _element(e: Emitter, place: str, line: Value, k: Value, turned: bool, dtype: DType, lines: int = DEPTH) -> Value:
    """A number of an operand: lines along k, or parts of so many lines that are values of k."""
    if turned:
        part, along, down = line.shift_right(6) * (64 * lines), line & 63, k
    else:
        part, along, down = e.constant(0, "i64", 1), k, line
    chunk = along.shift_right(3) ^ (down & 7)
    return _number(e, e.offset(place, "i16", part + down * 64 + chunk * 8 + (along & 7)), dtype)


def _sums(e: Emitter, given: Sequence[Value], depth: int,
          product: Callable[[Value, Value, Value], Value]) -> list[Value]:
    """The results of a thread: from what it has on, 16 values of k at a time in float64, rounded after each."""
    e.line(f"%sums = alloca [{len(given)} x float]")
    for number, value in enumerate(given):
        e.store(value, e.offset("%sums", "float", number))
    with e.loop(0, len(given)) as loop:
        first = e.load(e.offset("%sums", "float", loop.index), "float", 1)
        with e.loop(0, depth, 16, carried=[first]) as steps:
            with e.loop(0, 16, carried=[e.convert("fpext", steps.values[0], "double")]) as ks:
                ks.next(ks.values[0] + product(loop.index, steps.index, ks.index))
            steps.next(e.convert("fptrunc", ks.values[0], "float"))
        e.store(steps.values[0], e.offset("%sums", "float", loop.index))
    _meet_group(e)
    return [e.load(e.offset("%sums", "float", number), "float", 1) for number in range(len(given))]


@meaning("wgmma_{kind}_{columns}_{left}{right}", "alwaysinline")
def wgmma(e: Emitter, first: Value, second: Value, *given: Value, kind: str, columns: int, left: int,
          right: int) -> Value:
    places, thread = [_at(e, first), _at(e, second)], _thread(e)
    lane = thread & 31
    row0, pair = (thread.shift_right(5) & 3) * 16 + lane.shift_right(2), (lane & 3) * 2

    def product(number: Value, start: Value, k: Value) -> Value:
        row, column = row0 + (number & 2) * 4, number.shift_right(2) * 8 + pair + (number & 1)
        return (_element(e, places[0], row, start + k, bool(left), DTYPES[kind])
                * _element(e, places[1], column, start + k, bool(right), DTYPES[kind]))

    return _several(e, _sums(e, given, DEPTH, product))


@meaning("wgmma_rs_{kind}_{columns}_{keys}", "noinline")
def weighted(e: Emitter, right: Value, *given: Value, kind: str, columns: int, keys: int) -> Value:
    """As `wgmma` with A in registers: lanes of a warp show each other theirs."""
    place, thread = _at(e, right), _thread(e)
    _show(e, thread, given[columns // 2:])
    pair, quad = (thread & 3) * 2, thread & -4

    def product(number: Value, start: Value, k: Value) -> Value:
        lower, column = (number & 2).shift_right(1), number.shift_right(2) * 8 + pair + (number & 1)
        theirs = _exchange(e, quad + (k & 7).shift_right(1))
        register = start.shift_right(2) + lower + k.shift_right(3) * 2
        a = _number(e, e.offset(theirs, "i16", register * 2 + (k & 1)), DTYPES[kind])
        return a * _element(e, place, column, start + k, True, DTYPES[kind], keys)

    return _several(e, _sums(e, given[:columns // 2], keys, product))


@meaning("scores_{kind}_{keys}_{parts}_{left_part}_{right_part}", "noinline")
def scores(e: Emitter, left: Value, right: Value, kind: str, keys: int, parts: int, left_part: int,
           right_part: int) -> Value:
    """Products of all parts of the depth, one after another, from zero on."""
    values = [e.constant(0.0, "float", 1)] * (keys // 2)
    for part in range(parts):
        values = _call(e, f"wgmma_{kind}_{keys}_00", left + part * left_part, right + part * right_part, *values)
    return _several(e, values)


@meaning("scores_two_{kind}_{keys}_{first}_{second}_{left_part}_{right_part}", "noinline")
def scores_two(e: Emitter, *offsets: Value, kind: str, keys: int, first: int, second: int, left_part: int,
               right_part: int) -> Value:
    """One after the other."""
    values = []
    for parts, pair in ((first, offsets[:2]), (second, offsets[2:])):
        values += _call(e, f"scores_{kind}_{keys}_{parts}_{left_part}_{right_part}", *pair)
    return _several(e, values)


@meaning("wgmma_rs_two_{kind}_{first}_{second}_{keys}", "noinline")
def weighted_two(e: Emitter, one: Value, other: Value, *given: Value, kind: str, first: int, second: int,
                 keys: int) -> Value:
    """One after the other."""
    total, weights, values = (first + second) // 2, keys // 4, []
    for which, (place, columns, start) in enumerate(((one, first, 0), (other, second, first // 2))):
        own = given[total + which * weights:total + (which + 1) * weights]
        values += _call(e, f"wgmma_rs_{kind}_{columns}_{keys}", place, *given[start:start + columns // 2], *own)
    return _several(e, values)


@meaning("attend_{kind}_{keys}_{parts}_{left_part}_{right_part}_{columns}", "noinline")
def attend(e: Emitter, queries: Value, key: Value, value: Value, *given: Value, kind: str, keys: int, parts: int,
           left_part: int, right_part: int, columns: int) -> Value:
    """One after the other."""
    values = _call(e, f"scores_{kind}_{keys}_{parts}_{left_part}_{right_part}", queries, key)
    return _several(e, values + _call(e, f"wgmma_rs_{kind}_{columns}_{keys}", value, *given))


# -- what a kernel calls ---------------------------------------------------------------------------------------------
@cache
def _written(name: str) -> tuple[str, frozenset[str]]:
    """A function and what it must have declared."""
    row, parameters = row_of(name)
    write, attributes = MEANINGS[row.name]
    e = Emitter(1)
    text = definition(name, e, lambda values: write(e, *values, **parameters), attributes)
    return text, frozenset(e.declarations)


def functions(text: str) -> str:
    """Those that a kernel's text calls and that `runtime.py` has not, and those that they call."""
    parts, declarations, known = [], set[str](), set[str]()
    waiting = called(text)
    while waiting:
        name = waiting.pop()
        if name not in known and row_of(name)[0].name in MEANINGS:
            known.add(name)
            part, declared = _written(name)
            parts.append(part)
            declarations |= declared
            waiting += called(part)
    if "@gpu.mbarrier_" in text or "@gpu.tma_load_" in text or any("@emu.at(" in part for part in parts):
        parts.append(barriers_text())
    return "\n".join([*parts, *(line for line in sorted(declarations) if line not in text)]) + "\n"
