"""WebAssembly: an object of LLVM as a module, and fused multiply-adds, which its instructions lack.

A relocatable object that needs nothing of others is a module already but for its memory, its stack and its exports:
LLVM writes the numbers that a linker would find into it. `module_of` adds those.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.driver.portable import PREFIX
from morpho.base.errors import CompileError, fail

PAGE = 1 << 16
STACK_BYTES = 1 << 20
MOST_PAGES = 1 << 16
_FUSED = re.compile(r"@llvm\.fma\.(v(\d+))?f(32|64)\(")


PROBE_NAME = f"{PREFIX}fused_probe"
PROBE = f"""declare float @{PREFIX}fused_f32(float, float, float)
define float @{PROBE_NAME}(float %a, float %b, float %c) {{
  %sum = call float @{PREFIX}fused_f32(float %a, float %b, float %c)
  ret float %sum
}}
"""

# -- fused multiply-adds -----------------------------------------------------------------------------------------------
def with_fused(text: str) -> tuple[str, set[str]]:
    """A module that calls functions of the library for fused multiply-adds; their names."""
    names: set[str] = set()

    def replaced(match: re.Match[str]) -> str:
        name = f"{PREFIX}fused_{match.group(1) or ''}f{match.group(3)}"
        names.add(name)
        return f"@{name}("

    return _FUSED.sub(replaced, text), names


def fused_text(name: str, how: str) -> str:
    """The function of that name: `exact` computes in pieces, `relaxed` by the instruction that may be fused, `fast`
    rounds the product too."""
    match = re.fullmatch(PREFIX + r"fused_(?:v(\d+))?f(\d+)", name)
    assert match is not None
    lanes, element = int(match.group(1) or 1), {"32": "float", "64": "double"}[match.group(2)]
    e = Emitter(lanes)
    kind = element if lanes == 1 else f"<{lanes} x {element}>"
    a, b, c = (e.argument(f"%{letter}", element) for letter in "abc")
    if how == "relaxed":
        found = _relaxed(e, a, b, c)
    elif how == "fast":
        found = a * b + c
    elif element == "float":
        found = _exact_single(e, a, b, c)
    else:
        raise fail(CompileError, "export", "float64's fused multiply-add has no exact form in WebAssembly",
                   "compute in float32, or say target='wasm32-relaxed' or target='wasm32-fast'")
    e.line(f"ret {kind} {found.name}")
    return e.outside() + defined(f"{kind} @{name}({kind} %a, {kind} %b, {kind} %c) nounwind", e.text())


def _relaxed(e: Emitter, a: Value, b: Value, c: Value) -> Value:
    """The instruction works on whole registers of 128 bits; other widths go through those."""
    width = {"float": 4, "double": 2}[a.element]
    whole, name = f"<{width} x {a.element}>", f"v{width}f{ {'float': 32, 'double': 64}[a.element]}"
    e.declarations.add(f"declare {whole} @llvm.wasm.relaxed.madd.{name}({whole}, {whole}, {whole})")

    def call(values: Sequence[str]) -> str:
        given = ", ".join(f"{whole} {value}" for value in values)
        return e.assign(f"call {whole} @llvm.wasm.relaxed.madd.{name}({given})", a.element, width).name

    if a.lanes == width:
        return Value(e, call([a.name, b.name, c.name]), a.element, width)
    if a.lanes == 1:
        one = [e.splat(each, width).name for each in (a, b, c)]
        return e.assign(f"extractelement {whole} {call(one)}, i64 0", a.element, 1)
    if a.lanes % width:
        raise fail(CompileError, "export", f"no vector of {a.lanes} {a.element} fits the registers of WebAssembly")
    parts = []
    for first in range(0, a.lanes, width):
        mask = ", ".join(f"i32 {first + lane}" for lane in range(width))
        parts.append(call([e.assign(f"shufflevector {each.type} {each.name}, {each.type} poison, <{width} x i32> "
                                    f"<{mask}>", a.element, width).name for each in (a, b, c)]))
    lanes = width
    while len(parts) > 1:
        mask = ", ".join(f"i32 {lane}" for lane in range(2 * lanes))
        kind = f"<{lanes} x {a.element}>"
        parts = [e.assign(f"shufflevector {kind} {one}, {kind} {other}, <{2 * lanes} x i32> <{mask}>", a.element,
                          2 * lanes).name for one, other in zip(parts[::2], parts[1::2], strict=True)]
        lanes *= 2
    return Value(e, parts[0], a.element, a.lanes)


def _exact_single(e: Emitter, a: Value, b: Value, c: Value) -> Value:
    """In float64, where the product is exact. The sum is rounded to odd: its last bit is set where something was cut
    off, so that rounding it again to float32 gives what rounding once does."""
    wide = [e.convert("fpext", each, "double") for each in (a, b, c)]
    product = wide[0] * wide[1]
    total = product + wide[2]
    other = total - product  # the sum's error, exactly
    error = (product - (total - other)) + (wide[2] - other)
    bits = e.convert("bitcast", total, "i64")
    inexact = e.fcmp("one", error, error * 0.0)
    even = e.icmp("eq", bits & 1, 0)
    # Towards the error: away from zero where it has the sum's sign.
    same = e.icmp("sge", bits ^ e.convert("bitcast", error, "i64"), 0)
    step = e.select(same, e.constant(1, "i64"), -1)
    odd = e.select(inexact & even, bits + step, bits)
    return e.convert("fptrunc", e.convert("bitcast", odd, "double"), "float")


# -- from an object to a module ----------------------------------------------------------------------------------------
def _number(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _leb(value: int) -> bytes:
    found = bytearray()
    while True:
        byte, value = value & 127, value >> 7
        found.append(byte | (128 if value else 0))
        if not value:
            return bytes(found)


def _signed(value: int) -> bytes:
    found = bytearray()
    while True:
        byte = value & 127
        value >>= 7
        if (value == 0 and not byte & 64) or (value == -1 and byte & 64):
            found.append(byte)
            return bytes(found)
        found.append(byte | 128)


def _name(text: str) -> bytes:
    return _leb(len(text)) + text.encode()


def _sections(data: bytes) -> list[tuple[int, bytes]]:
    sections, at = [], 8
    while at < len(data):
        kind = data[at]
        size, at = _number(data, at + 1)
        sections.append((kind, data[at:at + size]))
        at += size
    return sections


def _functions(linking: bytes) -> dict[str, int]:
    """Names and numbers of the functions that an object defines."""
    at, names = 1, {}  # behind the version
    while at < len(linking):
        kind = linking[at]
        size, at = _number(linking, at + 1)
        end = at + size
        if kind == 8:  # the table of symbols
            count, at = _number(linking, at)
            for _ in range(count):
                what = linking[at]
                flags, at = _number(linking, at + 1)
                is_defined = not flags & 0x10
                if what == 1:  # data
                    length, at = _number(linking, at)
                    at += length
                    for _ in range(3 if is_defined else 0):
                        _, at = _number(linking, at)
                    continue
                index, at = _number(linking, at)
                if what != 3 and (is_defined or flags & 0x40):
                    length, at = _number(linking, at)
                    name, at = linking[at:at + length].decode(), at + length
                    if what == 0 and is_defined:
                        names[name] = index
        at = end
    return names


def _data_end(body: bytes) -> int:
    """Behind the last byte of the data segments."""
    count, at = _number(body, 0)
    end = 0
    for _ in range(count):
        flags, at = _number(body, at)
        assert flags == 0 and body[at] == 0x41, "a data segment without an address"
        offset, at = _number(body, at + 1)
        assert body[at] == 0x0B
        size, at = _number(body, at + 1)
        end, at = max(end, offset + size), at + size
    return end


def _imports(body: bytes) -> tuple[int, int]:
    """Elements of the table that is imported; and an error where there is a function that nothing defines."""
    count, at = _number(body, 0)
    table = pages = 0
    for _ in range(count):
        names = []
        for _ in range(2):
            length, at = _number(body, at)
            names.append(body[at:at + length].decode())
            at += length
        kind, at = body[at], at + 1
        if kind == 0:
            raise fail(CompileError, "export", f"kernels call {names[1]}, which WebAssembly has not",
                       "compute it outside, and pass its result as an argument")
        if kind == 3:
            assert names[1] == "__stack_pointer", names
            at += 2
            continue
        if kind == 1:
            at += 1
        flags, at = _number(body, at)
        least, at = _number(body, at)
        if flags & 1:
            _, at = _number(body, at)
        table, pages = (least, pages) if kind == 1 else (table, least)
    return table, pages


def _elements_end(body: bytes) -> int:
    """How many places of the table the element segments fill."""
    count, at = _number(body, 0)
    end = 0
    for _ in range(count):
        flags, at = _number(body, at)
        if flags & 2:
            _, at = _number(body, at)
        assert body[at] == 0x41
        offset, at = _number(body, at + 1)
        at += 1
        if flags & 2:
            at += 1
        size, at = _number(body, at)
        for _ in range(size):
            _, at = _number(body, at)
        end = max(end, offset + size)
    return end


def module_of(data: bytes, exported: Sequence[str]) -> bytes:
    """An object as a module with a memory, a stack behind its data, and these functions for callers. `__heap_base` is
    the first byte that is the host's."""
    sections = _sections(data)
    bodies = {kind: body for kind, body in sections if kind}
    linking = next(body for kind, body in sections if kind == 0 and body[1:8] == b"linking")
    numbers = _functions(linking[8:])
    table, _ = _imports(bodies.get(2, b"\0"))
    end = _data_end(bodies.get(11, b"\0"))
    stack = -(-end // 64) * 64 + STACK_BYTES
    table = max(table, _elements_end(bodies.get(9, b"\0")), 1)
    pages = -(-stack // PAGE) + 1
    exports = [_name("memory") + b"\x02" + _leb(0), _name("__heap_base") + b"\x03" + _leb(1)]
    exports += [_name(name) + b"\0" + _leb(numbers[name]) for name in exported]
    out = {kind: body for kind, body in bodies.items() if kind != 2}
    out[4] = _leb(1) + b"\x70\x01" + _leb(table) + _leb(table)
    out[5] = _leb(1) + b"\x01" + _leb(pages) + _leb(MOST_PAGES)
    out[6] = _leb(2) + b"\x7f\x01\x41" + _signed(stack) + b"\x0b" + b"\x7f\x00\x41" + _signed(stack) + b"\x0b"
    out[7] = _leb(len(exports)) + b"".join(exports)
    order = [1, 3, 4, 5, 6, 7, 9, 12, 10, 11]
    return data[:8] + b"".join(bytes([kind]) + _leb(len(out[kind])) + out[kind] for kind in order if kind in out)
