"""A matrix unit in software: the instructions of AMX as LLVM functions, for machines without them.

The registers are memory of the function that uses them, so that threads do not share them. Code for it has an
instruction set of its own (`emulated_isa`): under the name of a real one, the process would keep the emulation.
"""

from __future__ import annotations

import re
from dataclasses import replace

from morpho.backends.code.emit import Emitter, Value
from morpho.base.machine import Isa, choose_isa, machine

NAME = "emulated_amx"
BYTES = 1024  # of a tile


def emulated_isa() -> Isa:
    """This machine with vectors of 512 bits and a matrix unit."""
    return replace(choose_isa("vector512", machine()), name=NAME, matrix_units=True)


def _tile(e: Emitter, name: str) -> str:
    number = e.convert("zext", e.argument(name, "i8", 1), "i64")
    return e.offset("%unit", "i8", number * BYTES)


def _function(name: str, arguments: str, e: Emitter) -> str:
    return f"define internal void @emulated_{name}(ptr %unit, {arguments}) {{\nentry:\n{e.text()}\n  ret void\n}}\n"


def _shape(e: Emitter, name: str) -> tuple[Value, Value]:
    """Lines of a tile, and bytes of one, as they were configured."""
    number = e.convert("zext", e.argument(name, "i8", 1), "i64")
    return tuple(e.convert("zext", e.load(e.offset("@tile_shapes", "i8", place), "i8", 1), "i64")  # type: ignore
                 for place in (number + 48, number * 2 + 16))


def _move(name: str, inwards: bool) -> str:
    e = Emitter(1)
    tile, stride = _tile(e, "%t"), e.argument("%stride", "i64", 1)
    lines, wide = _shape(e, "%t")
    with e.loop(0, lines) as loop, e.loop(0, wide, 32) as part:  # lines have 32 or 64 bytes here
        places = [e.offset("%p", "i8", stride * loop.index + part.index),
                  e.offset(tile, "i8", loop.index * 64 + part.index)]
        source, target = places if inwards else reversed(places)
        e.store(e.load(source, "i8", 32), target)
    return _function(name, "i8 %t, ptr %p, i64 %stride", e)


def _bfloat(e: Emitter, place: str) -> Value:
    return e.from_bits(e.convert("zext", e.load(place, "i16", 1), "i32") << 16, "float")


def _multiply_bfloats() -> str:
    """Two chains from zero, of even and of odd values of k, added, then added to the sum."""
    e = Emitter(1)
    c, a, b = (_tile(e, name) for name in ("%c", "%a", "%b"))
    zero = e.constant(0.0, "float")
    with e.loop(0, 16) as rows, e.loop(0, 16) as columns:
        with e.loop(0, 16, carried=[zero, zero]) as pairs:
            left = e.offset(a, "i16", rows.index * 32 + pairs.index * 2)
            right = e.offset(b, "i16", pairs.index * 32 + columns.index * 2)
            pairs.next(*[e.fma(_bfloat(e, e.offset(left, "i16", odd)), _bfloat(e, e.offset(right, "i16", odd)), total)
                         for odd, total in enumerate(pairs.values)])
        place = e.offset(c, "float", rows.index * 16 + columns.index)
        e.store(e.load(place, "float", 1) + (pairs.values[0] + pairs.values[1]), place)
    return _function("tdpbf16ps", "i8 %c, i8 %a, i8 %b", e) + "\n".join(sorted(e.declarations)) + "\n"


def _multiply_bytes(signs: str) -> str:
    e = Emitter(1)
    c, a, b = (_tile(e, name) for name in ("%c", "%a", "%b"))
    with e.loop(0, 16) as rows, e.loop(0, 16) as columns:
        place = e.offset(c, "i32", rows.index * 16 + columns.index)
        with e.loop(0, _shape(e, "%a")[1], carried=[e.load(place, "i32", 1)]) as loop:
            group = loop.index.shift_right(2)
            left = e.load(e.offset(a, "i8", rows.index * 64 + loop.index), "i8", 1)
            right = e.load(e.offset(b, "i8", group * 64 + columns.index * 4 + (loop.index & 3)), "i8", 1)
            wide = [e.convert({"s": "sext", "u": "zext"}[sign], byte, "i32")
                    for sign, byte in zip(signs, (left, right), strict=True)]
            loop.next(loop.values[0] + wide[0] * wide[1])
        e.store(loop.values[0], place)
    return _function(f"tdpb{signs}d", "i8 %c, i8 %a, i8 %b", e)


def _zero() -> str:
    e = Emitter(1)
    e.store(e.constant(0, "i8", BYTES), _tile(e, "%t"))
    return _function("tilezero", "i8 %t", e)


def _with_registers(function: re.Match[str]) -> str:
    """A function with registers of its own, which every tile instruction in it is given."""
    text = function[0]
    if "@llvm.x86.t" not in text:
        return text
    text = re.sub(r"@llvm\.x86\.(t\w+)\((?=\))", r"@emulated_\1(ptr %unit", text)
    text = re.sub(r"@llvm\.x86\.(t\w+)\(", r"@emulated_\1(ptr %unit, ", text)
    return text.replace("entry:\n", "entry:\n  %unit = alloca [8192 x i8], align 64\n", 1)


def emulated(text: str) -> str:
    """A module with tile instructions as one that any machine can run."""
    if "llvm.x86.t" not in text:
        return text
    text = re.sub(r"^declare void @llvm\.x86\.(?:t\w+|ldtilecfg)\(.*\)$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^define .*?^}$", _with_registers, text, flags=re.MULTILINE | re.DOTALL)
    text = text.replace("@llvm.x86.ldtilecfg", "@emulated_ldtilecfg")
    parts = [_zero(), _move("tileloadd64", True), _move("tilestored64", False), _multiply_bfloats(),
             *map(_multiply_bytes, ("ss", "su", "us", "uu")),
             "define internal void @emulated_ldtilecfg(ptr %p) {\n  ret void\n}\n",
             "define internal void @emulated_tilerelease(ptr %unit) {\n  ret void\n}\n"]
    found = text + "".join(parts)
    lines = found.splitlines()  # an intrinsic may be declared twice
    declared: set[str] = set()
    return "\n".join(line for line in lines if not (line.startswith("declare")
                                                    and (line in declared or declared.add(line)))) + "\n"
