"""Functions of float32 by tables: a polynomial of degree eight on each of eight intervals, looked up in registers.

That takes half the instructions of a formula for all arguments. A function that falls over many powers of two has more
than one `Part`; the others are for arguments so rare that they may take their turn after the first. Only if there is
one of them among the lanes does the code go round again, with the next part's numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from morpho.backends.code.emit import CACHE_LINE, Emitter, Value, repeating, vector_type
from morpho.backends.code.lookup import INSIDE, Lookup
from morpho.backends.code.vector_math.core import FLOAT, any_lane

DEGREE = 8


@dataclass(frozen=True, slots=True)
class Part:
    """The function on arguments t up to `top`.

    Interval n are the t with (steepness * t + start)**2 = n + first, rounded: so they are shorter for larger t.
    `powers` are the coefficients of t - centre, from the eighth power down, each for all intervals; they give the
    function times 1 / `scale`. In every part but the first, interval 0 is for what is done already: zero.
    """

    steepness: float
    start: float
    first: int
    top: float
    scale: float
    done: float  # a t of interval 0
    centres: tuple[float, ...]
    powers: tuple[tuple[float, ...], ...]


class Layout(NamedTuple):
    """How parts lie in memory: the text of all their bytes, the length of one, and where in it each row begins."""

    text: str
    part_bytes: int
    places: dict[str, int]


@cache
def layout(parts: tuple[Part, ...], copies: int) -> Layout:
    """Parts one after another; the numbers that are addends are there `copies` times, others four times."""
    places: dict[str, int] = {}
    packed = b"".join([pack(part, following, copies, places)
                       for part, following in zip(parts, [*parts[1:], parts[-1]], strict=True)])
    text = "\\" + (packed + bytes(CACHE_LINE)).hex("\\")
    return Layout(text, len(packed) // len(parts), places)


def pack(part: Part, following: Part, copies: int, places: dict[str, int]) -> bytes:
    """The bytes of a part, in rows of 16 bytes and more."""
    last = following is part
    limit = 0xFFFFFFFF if last else struct.unpack("<I", struct.pack("<f", -part.top))[0]
    rows = {
        "start": [part.start] * copies,
        "magic": [FLOAT.magic - part.first] * copies,
        "steepness": [part.steepness] * 4,
        "top": [part.top] * 4,
        "scale": [-part.scale] * 4,
        "done": [following.done] * 4,
        "centres": part.centres,
    } | {f"power{n}": row for n, row in enumerate(part.powers)}
    packed = struct.pack("<IIII", limit, 0, 0, 0)
    for name, row in rows.items():
        places[name] = len(packed)
        packed += struct.pack(f"<{len(row)}f", *row)
    places["inside"] = len(packed)
    return packed + INSIDE * copies


class CoefficientTable:
    """Parts in memory beside the function, and how numbers of the part at some address are read.

    Where an fma overwrites its addend, addends are there for every lane, and read for each register.
    """

    def __init__(self, e: Emitter, parts: tuple[Part, ...], lanes: int, name: str) -> None:
        self.e, self.lanes = e, lanes
        self.is_by_register = e.destructive_fma and lanes > 4
        copies = lanes if self.is_by_register else 4
        self.address = f"@{name}_{copies}"  # a kernel may have values of rows beside those of columns
        text, self.part_bytes, self.places = layout(parts, copies)
        e.declarations.add(f'{self.address} = internal constant [{len(text) // 3} x i8] c"{text}", align {CACHE_LINE}')

    def row(self, part: str, name: str) -> str:
        """The address of a row."""
        return self.e.offset(part, "i8", self.places[name])

    def number(self, part: str, name: str) -> Value:
        """A number in every lane."""
        e, at = self.e, self.row(part, name)
        if not self.is_by_register:
            return e.splat(e.load(at, "float", 1), self.lanes)
        if name in ("start", "magic"):
            return e.load(at, "float", self.lanes, align=16)
        one = e.load(at, "float", 4, align=16)
        mask = repeating(4, self.lanes)
        return e.assign(f"shufflevector {one.type} {one.name}, {one.type} poison, {mask}", "float", self.lanes)


def minus_function(e: Emitter, x: Value, base: Value, parts: tuple[Part, ...], name: str,
                   base_again: Callable[[Value], Value]) -> Value:
    """base - function(|x|).

    Parts beyond the first are for x < 0; there `base_again` gives the base from what the first gave.
    """
    table = CoefficientTable(e, parts, x.lanes, name)
    if e.near_table is None:
        return by_parts(e, x, (e.absolute(x), base), table, table.address, base_again)
    part, t = parts[0], e.absolute(x)
    result = e.fma(near_polynomial(e, t, part, e.near_table(name, near_numbers(part))), rounded(-part.scale), base)
    before, again, done = e.block, e.fresh("again"), e.fresh("done")
    (limit,) = struct.unpack("<I", struct.pack("<f", -part.top))
    e.branch_if(any_lane(e, e.bits(x), "ugt", limit), again, done)
    e.label(again)
    beyond = e.fcmp("ogt", t, rounded(part.top))
    carried = (e.select(beyond, t, e.like(rounded(parts[1].done), t)), e.select(beyond, base_again(result), result))
    rare = by_parts(e, x, carried, table, e.offset(table.address, "i8", table.part_bytes), base_again)
    after = e.block
    e.branch(done)
    e.label(done)
    return e.assign(f"phi {x.type} [ {result.name}, %{before} ], [ {rare.name}, %{after} ]", x.element, x.lanes)


def by_parts(e: Emitter, x: Value, carried: tuple[Value, Value], table: CoefficientTable, start: str,
             base_again: Callable[[Value], Value]) -> Value:
    """A part after another, from the one at `start` on, of |x| and the base before it."""
    head, again, done, before = e.fresh("head"), e.fresh("again"), e.fresh("done"), e.block
    e.branch(head)
    e.label(head)
    part, place = "%" + e.fresh("part"), len(e.lines)
    seen = part if e.architecture == "nvptx64" else f"{part}.seen"
    t, left = (Value(e, "%" + e.fresh("c"), x.element, x.lanes) for _ in range(2))
    side = polynomial_of(e, at_most(e, t, table.number(part, "top")), table, part)
    result = e.fma(side, table.number(part, "scale"), left)
    e.branch_if(any_lane(e, e.bits(x), "ugt", e.load(part, "i32", 1)), again, done)
    e.label(again)
    beyond = e.fcmp("ogt", t, table.number(part, "top"))
    new_t, new_left = e.select(beyond, t, table.number(part, "done")), e.select(beyond, base_again(result), result)
    following = e.offset(part, "i8", table.part_bytes)
    e.branch(head)
    e.lines[place:place] = [
        f"  {seen} = phi ptr [ {start}, %{before} ], [ {following}, %{again} ]",
        *[f"  {new.name} = phi {x.type} [ {old.name}, %{before} ], [ {next_.name}, %{again} ]"
          for new, old, next_ in ((t, carried[0], new_t), (left, carried[1], new_left))],
        *([] if seen == part else [f'  {part} = call ptr asm "", "=r,0"(ptr {seen})'])]  # LLVM counts no addresses
    e.label(done)
    return result


# -- the first part where a lane reads all numbers of its interval at once ---------------------------------------------
# Floats from an interval to the next: its centre, nine powers, two to fill 16 bytes. The first 16 bytes of all eight
# lie in different banks of a GPU's shared memory, and so do the second and third ones.
NEAR_ENTRY = 12


def rounded(number: float) -> float:
    """The float32 that the table has."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def near_numbers(part: Part) -> tuple[float, ...]:
    """The numbers of a part, interval by interval."""
    rows = [part.centres, *part.powers, *[(0.0,) * 8] * (NEAR_ENTRY - DEGREE - 2)]
    return tuple(rounded(row[n]) for n in range(len(part.centres)) for row in rows)


def gathered(e: Emitter, parts: list[Value]) -> Value:
    """A vector of single values, or the only one."""
    if len(parts) == 1:
        return parts[0]
    text, kind = "poison", vector_type(parts[0].element, len(parts))
    for number, part in enumerate(parts):
        name = "%" + e.fresh("j")
        e.line(f"{name} = insertelement {kind} {text}, {part.type} {part.name}, i64 {number}")
        text = name
    return Value(e, text, parts[0].element, len(parts))


def near_polynomial(e: Emitter, t: Value, part: Part, entries: str) -> Value:
    """`polynomial_of` for the part whose `near_numbers` lie at an address."""
    t = at_most(e, t, e.like(rounded(part.top), t))
    root = e.fma(t, rounded(part.steepness), e.like(rounded(part.start), t))
    index = e.bits(e.fma(root, root, e.like(rounded(FLOAT.magic - part.first), t))) & 7
    found: list[list[Value]] = []
    for lane in range(t.lanes):
        one = index if t.lanes == 1 else e.assign(f"extractelement {index.type} {index.name}, i64 {lane}", "i32", 1)
        mine = e.offset(entries, "i8", e.convert("zext", one * (4 * NEAR_ENTRY), "i64"))
        fours = [e.load(e.offset(mine, "i8", 16 * n), "float", 4, align=16) for n in range(3)]
        found.append([e.assign(f"extractelement {four.type} {four.name}, i64 {n}", "float", 1)
                      for four in fours for n in range(4)])
    centre, *powers = [gathered(e, [numbers[n] for numbers in found]) for n in range(DEGREE + 2)]
    return e.polynomial(t - centre, powers)


def at_most(e: Emitter, t: Value, top: Value) -> Value:
    """The smaller one, or NaN if t is: one instruction on x86 as on AArch64."""
    return e.minimum(t, top) if e.destructive_fma else e.select(e.fcmp("olt", top, t), top, t)


def polynomial_of(e: Emitter, t: Value, table: CoefficientTable, part: str) -> Value:
    """The polynomial of the interval that t lies in."""
    root = e.fma(t, table.number(part, "steepness"), table.number(part, "start"))
    index = e.bits(e.fma(root, root, table.number(part, "magic")))
    find = Lookup(e, index, table.row(part, "inside"))
    r = t - find(table.row(part, "centres"))
    return e.polynomial(r, [find(table.row(part, f"power{n}")) for n in range(DEGREE + 1)])
