# ruff: noqa: E501 (lines of LLVM's language)
"""Hopper's own functions on the CPU: barriers with a count of bytes, boxes of the copy engine, and warpgroups.

A barrier is a word of shared memory: arrivals that are wanted (bits 0-7) and still missing (8-15), bytes still to come
(16-47, a signed number), and its phase (48). A box lies in shared memory as the GPU's copy engine leaves it: chunks of
16 bytes of a line of 128, in the order of their number xor the line's, modulo 8; `wgmma` reads them through the same map
of addresses, from its descriptor's strides. The four warps of a warpgroup multiply together: none goes on before all
have read, as on the GPU, where one thread of them then says that a stage may be filled again.
"""

from __future__ import annotations

import re
from functools import cache

from morpho.backends.code import scalars
from morpho.backends.code.compiler.code import stored_text
from morpho.backends.code.emit import Emitter, Value
from morpho.backends.code.native import module, native
from morpho.backends.code.typed import (
    Bytes,
    Volatile,
    Words,
    i64,
    u32,
)
from morpho.backends.cuda.emulator.runtime import give_way, in_vain, shared
from morpho.base.dtypes import DType, bfloat16, float16

_WGMMA = re.compile(r"@gpu\.wgmma_(bf16|f16)_(\d+)_([01])([01])\(")
_WEIGHTED = re.compile(r"@gpu\.wgmma_rs_(bf16|f16)_(\d+)_(\d+)\(")
_SCORES = re.compile(r"@gpu\.scores_(bf16|f16)_(\d+)_(\d+)_(\d+)_(\d+)\(")
_WEIGHTED_TWO = re.compile(r"@gpu\.wgmma_rs_two_(bf16|f16)_(\d+)_(\d+)_(\d+)\(")
_SCORES_TWO = re.compile(r"@gpu\.scores_two_(bf16|f16)_(\d+)_(\d+)_(\d+)_(\d+)_(\d+)\(")
_ATTEND = re.compile(r"@gpu\.attend_(bf16|f16)_(\d+)_(\d+)_(\d+)_(\d+)_(\d+)\(")
_TMA = re.compile(r"@gpu\.tma_load_(\d)\(")
_REGISTERS = re.compile(r"@gpu\.registers_(up|down)_(\d+)\(")
DEPTH = 64
TOGETHER = "call void @emu.group_barrier(ptr %c)"


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


@cache
def barriers_text() -> str:
    return stored_text("emulator barriers", lambda: module(
        internal=(mbarrier_init, mbarrier_ready, mbarrier_arrive, mbarrier_expect, mbarrier_wait),
        elsewhere=(shared, give_way, in_vain)))


def _tma_load(rank: int) -> str:
    """Two nested loops over a box of lines; what lies outside the operand is zero. Lines are 128 bytes of 16-bit
    numbers, and boxes are one along the other axes."""
    e = Emitter(1)
    words = e.load_pointer("%c", 14)  # Context.WORDS
    table = e.offset(words, "i8", e.convert("zext", e.argument("%map", "i32"), "i64"))
    address = e.load_pointer(table)
    sizes, strides, box = ([e.load(e.offset(table, "i64", first + n), "i64", 1) for n in range(count)]
                           for first, count in ((1, rank), (1 + rank, rank - 1), (2 * rank, rank)))
    start = [e.convert("sext", e.argument(f"%x{n}", "i32"), "i64") for n in range(rank)]
    target = "%" + e.fresh("t")
    e.line(f"{target} = call ptr @emu.at(ptr %c, i32 %offset)")
    with e.loop(0, box[1]) as lines, e.loop(0, box[0]) as elements:
        at = [start[0] + elements.index, start[1] + lines.index, *start[2:]]
        inside, offset = e.constant(True, "i1", 1), at[0] * 2
        for place, size in zip(at, sizes, strict=True):
            inside = inside & e.icmp("sge", place, 0) & e.icmp("slt", place, size)
        for place, stride in zip(at[1:], strides, strict=True):
            offset = offset + place * stride
        offset = e.select(inside, offset, 0)
        value = e.select(inside, e.load(e.offset(address, "i8", offset), "i16", 1), 0)
        chunk = elements.index.shift_right(3) ^ (lines.index & 7)
        e.store(value, e.offset(target, "i16", lines.index * 64 + chunk * 8 + (elements.index & 7)))
    nbytes = box[0] * box[1] * -2
    e.line(f"call void @emu.mbarrier(ptr %c, i32 %barrier, i64 0, i64 {nbytes.name})")
    axes = ", ".join(f"i32 %x{n}" for n in range(rank))
    return (f"define internal void @gpu.tma_load_{rank}(ptr %c, i32 %map, i32 %offset, i32 %barrier, {axes}) "
            f"noinline {{\nentry:\n{e.text()}\n  ret void\n}}\n" + "\n".join(sorted(e.declarations)) + "\n")


def _element(e: Emitter, place: str, line: Value, k: Value, turned: bool, dtype: DType, lines: int = DEPTH) -> Value:
    """A number of an operand: lines along k, or parts of so many lines that are values of k."""
    if turned:
        part, along, down = line.shift_right(6) * (64 * lines), line & 63, k
    else:
        part, along, down = e.constant(0, "i64", 1), k, line
    chunk = along.shift_right(3) ^ (down & 7)
    bits = e.load(e.offset(place, "i16", part + down * 64 + chunk * 8 + (along & 7)), "i16", 1)
    stored = bits if dtype is bfloat16 else e.convert("bitcast", bits, "half")
    return e.convert("fpext", scalars.from_memory(e, stored, dtype), "double")


def _wgmma(kind: str, columns: int, left: bool, right: bool) -> str:
    """Every thread its own results: four times 16 values of k, each sum in float64 and rounded once."""
    e, dtype = Emitter(1), bfloat16 if kind == "bf16" else float16
    count = columns // 2
    places = ["%" + e.fresh("s") for _ in range(2)]
    for place, name in zip(places, ("%left", "%right"), strict=True):
        e.line(f"{place} = call ptr @emu.at(ptr %c, i32 {name})")
    thread = e.assign("call i64 @gpu.thread(ptr %c)", "i64", 1)
    lane = thread & 31
    row0, pair = (thread.shift_right(5) & 3) * 16 + lane.shift_right(2), (lane & 3) * 2
    e.line(f"%sums = alloca [{count} x float]")
    for n in range(count):
        e.line(f"store float %x{n}, ptr {e.offset('%sums', 'float', n)}")
    with e.loop(0, count) as loop:
        row = row0 + (loop.index & 2) * 4
        column = loop.index.shift_right(2) * 8 + pair + (loop.index & 1)
        first = e.load(e.offset("%sums", "float", loop.index), "float", 1)
        with e.loop(0, DEPTH, 16, carried=[first]) as steps:
            wide = e.convert("fpext", steps.values[0], "double")
            with e.loop(steps.index, steps.index + 16, carried=[wide]) as ks:
                a = _element(e, places[0], row, ks.index, left, dtype)
                b = _element(e, places[1], column, ks.index, right, dtype)
                ks.next(ks.values[0] + a * b)
            steps.next(e.convert("fptrunc", ks.values[0], "float"))
        e.store(steps.values[0], e.offset("%sums", "float", loop.index))
    e.line(TOGETHER)
    struct, text = "{ " + ", ".join(["float"] * count) + " }", "poison"
    for n in range(count):
        value = e.load(e.offset("%sums", "float", n), "float", 1)
        name = "%" + e.fresh("r")
        e.line(f"{name} = insertvalue {struct} {text}, float {value.name}, {n}")
        text = name
    given = ", ".join(f"float %x{n}" for n in range(count))
    return (f"define internal {struct} @gpu.wgmma_{kind}_{columns}_{int(left)}{int(right)}(ptr %c, i32 %left, i32 %right, "
            f"{given}) alwaysinline {{\nentry:\n{e.text()}\n  ret {struct} {text}\n}}\n")


def _weighted(kind: str, columns: int, keys: int) -> str:
    """As `_wgmma` with A in registers: lanes of a warp show each other theirs."""
    e, dtype = Emitter(1), bfloat16 if kind == "bf16" else float16
    count, weights = columns // 2, keys // 4
    place = "%" + e.fresh("s")
    e.line(f"{place} = call ptr @emu.at(ptr %c, i32 %right)")
    thread = e.assign("call i64 @gpu.thread(ptr %c)", "i64", 1)
    mine = "%" + e.fresh("shown")
    e.line(f"{mine} = call ptr @emu.exchange(ptr %c, i64 {thread.name})")
    for n in range(weights):
        e.line(f"store volatile i32 %w{n}, ptr {e.offset(mine, 'i32', n)}")
    e.line("call void @gpu.warp_barrier(ptr %c)")
    lane = thread & 31
    pair, quad = (lane & 3) * 2, thread & -4
    e.line(f"%sums = alloca [{count} x float]")
    for n in range(count):
        e.line(f"store float %x{n}, ptr {e.offset('%sums', 'float', n)}")
    with e.loop(0, count) as loop:
        lower = (loop.index & 2).shift_right(1)
        column = loop.index.shift_right(2) * 8 + pair + (loop.index & 1)
        first = e.load(e.offset("%sums", "float", loop.index), "float", 1)
        with e.loop(0, keys, 16, carried=[first]) as steps:
            wide = e.convert("fpext", steps.values[0], "double")
            with e.loop(0, 16, carried=[wide]) as ks:
                owner = quad + (ks.index & 7).shift_right(1)
                theirs = "%" + e.fresh("shown")
                e.line(f"{theirs} = call ptr @emu.exchange(ptr %c, i64 {owner.name})")
                register = steps.index.shift_right(2) + lower + ks.index.shift_right(3) * 2
                bits = e.load(e.offset(theirs, "i16", register * 2 + (ks.index & 1)), "i16", 1)
                stored = bits if dtype is bfloat16 else e.convert("bitcast", bits, "half")
                a = e.convert("fpext", scalars.from_memory(e, stored, dtype), "double")
                ks.next(ks.values[0] + a * _element(e, place, column, steps.index + ks.index, True, dtype, keys))
            steps.next(e.convert("fptrunc", ks.values[0], "float"))
        e.store(steps.values[0], e.offset("%sums", "float", loop.index))
    e.line(TOGETHER)
    struct, text = "{ " + ", ".join(["float"] * count) + " }", "poison"
    for n in range(count):
        value = e.load(e.offset("%sums", "float", n), "float", 1)
        name = "%" + e.fresh("r")
        e.line(f"{name} = insertvalue {struct} {text}, float {value.name}, {n}")
        text = name
    given = ", ".join([*(f"float %x{n}" for n in range(count)), *(f"i32 %w{n}" for n in range(weights))])
    return (f"define internal {struct} @gpu.wgmma_rs_{kind}_{columns}_{keys}(ptr %c, i32 %right, {given}) noinline "
            f"{{\nentry:\n{e.text()}\n  ret {struct} {text}\n}}\n")


def _scores(kind: str, keys: int, parts: int, left_part: int, right_part: int) -> str:
    """Products of all parts of the depth, one after another, from zero on."""
    count = keys // 2
    struct, name = "{ " + ", ".join(["float"] * count) + " }", f"wgmma_{kind}_{keys}_00"
    lines, values = [], ["0.0"] * count
    for part in range(parts):
        lines += [f"  %l{part} = add i32 %left, {part * left_part}", f"  %r{part} = add i32 %right, {part * right_part}"]
        given = ", ".join(f"float {value}" for value in values)
        lines.append(f"  %s{part} = call {struct} @gpu.{name}(ptr %c, i32 %l{part}, i32 %r{part}, {given})")
        if part + 1 < parts:
            values = [f"%v{part}_{n}" for n in range(count)]
            lines += [f"  {value} = extractvalue {struct} %s{part}, {n}" for n, value in enumerate(values)]
    return (f"define internal {struct} @gpu.scores_{kind}_{keys}_{parts}_{left_part}_{right_part}(ptr %c, i32 %left, "
            f"i32 %right) noinline {{\nentry:\n" + "\n".join(lines) + f"\n  ret {struct} %s{parts - 1}\n}}\n")


def _floats(count: int) -> str:
    return "{ " + ", ".join(["float"] * count) + " }"


def _both(calls: list[str], counts: tuple[int, int]) -> str:
    """Lines that call two functions and give their results one after another."""
    lines, text, at = [], "poison", 0
    for which, (call, count) in enumerate(zip(calls, counts, strict=True)):
        lines.append(f"  %s{which} = call {_floats(count)} {call}")
        for n in range(count):
            lines.append(f"  %v{at} = extractvalue {_floats(count)} %s{which}, {n}")
            lines.append(f"  %r{at} = insertvalue {_floats(sum(counts))} {text}, float %v{at}, {at}")
            text, at = f"%r{at}", at + 1
    return "\n".join([*lines, f"  ret {_floats(sum(counts))} {text}"])


def _scores_two(kind: str, keys: int, first: int, second: int, left_part: int, right_part: int) -> str:
    """One after the other."""
    calls = [f"@gpu.scores_{kind}_{keys}_{parts}_{left_part}_{right_part}(ptr %c, i32 {left}, i32 {right})"
             for parts, left, right in ((first, "%pa", "%pb"), (second, "%pc", "%pd"))]
    return (f"define internal {_floats(keys)} @gpu.scores_two_{kind}_{keys}_{first}_{second}_{left_part}_{right_part}"
            f"(ptr %c, i32 %pa, i32 %pb, i32 %pc, i32 %pd) noinline {{\n{_both(calls, (keys // 2, keys // 2))}\n}}\n")


def _weighted_two(kind: str, first: int, second: int, keys: int) -> str:
    """One after the other."""
    counts, weights = (first // 2, second // 2), keys // 4
    calls, start = [], 0
    for which, (columns, place) in enumerate(((first, "%pa"), (second, "%pb"))):
        given = ", ".join([*(f"float %x{start + n}" for n in range(columns // 2)),
                           *(f"i32 %w{which * weights + n}" for n in range(weights))])
        calls.append(f"@gpu.wgmma_rs_{kind}_{columns}_{keys}(ptr %c, i32 {place}, {given})")
        start += columns // 2
    given = ", ".join([*(f"float %x{n}" for n in range(start)), *(f"i32 %w{n}" for n in range(2 * weights))])
    return (f"define internal {_floats(start)} @gpu.wgmma_rs_two_{kind}_{first}_{second}_{keys}(ptr %c, i32 %pa, i32 %pb, "
            f"{given}) noinline {{\n{_both(calls, counts)}\n}}\n")


def _attend(kind: str, keys: int, parts: int, left_part: int, right_part: int, columns: int) -> str:
    """One after the other."""
    held = ", ".join([*(f"float %x{n}" for n in range(columns // 2)), *(f"i32 %w{n}" for n in range(keys // 4))])
    calls = [f"@gpu.scores_{kind}_{keys}_{parts}_{left_part}_{right_part}(ptr %c, i32 %pa, i32 %pb)",
             f"@gpu.wgmma_rs_{kind}_{columns}_{keys}(ptr %c, i32 %pd, {held})"]
    name = f"attend_{kind}_{keys}_{parts}_{left_part}_{right_part}_{columns}"
    return (f"define internal {_floats((keys + columns) // 2)} @gpu.{name}(ptr %c, i32 %pa, i32 %pb, i32 %pd, {held}) "
            f"noinline {{\n{_both(calls, (keys // 2, columns // 2))}\n}}\n")


def functions(text: str) -> str:
    """Those that a kernel's text calls."""
    found = barriers_text() if "@gpu.mbarrier_" in text else ""
    for rank in sorted(set(_TMA.findall(text))):
        found += _tma_load(int(rank))
    for kind, *sizes in sorted(set(_SCORES_TWO.findall(text))):
        found += _scores_two(kind, *map(int, sizes))
    for kind, *sizes in sorted(set(_WEIGHTED_TWO.findall(text))):
        found += _weighted_two(kind, *map(int, sizes))
    for kind, *sizes in sorted(set(_ATTEND.findall(text))):
        found += _attend(kind, *map(int, sizes))
    text += found
    for kind, columns, keys in sorted(set(_WEIGHTED.findall(text))):
        found += _weighted(kind, int(columns), int(keys))
    scores = sorted(set(_SCORES.findall(text)))
    for kind, columns, left, right in sorted({*_WGMMA.findall(text), *((kind, keys, "0", "0") for kind, keys, *_ in scores)}):
        found += _wgmma(kind, int(columns), left == "1", right == "1")
    for kind, *sizes in scores:
        found += _scores(kind, *map(int, sizes))
    for way, count in sorted(set(_REGISTERS.findall(text))):
        found += f"define internal void @gpu.registers_{way}_{count}(ptr %c) {{\n  ret void\n}}\n"
    return found
