"""Checks around every access of an emulated kernel: an address outside live device memory, outside the block's shared
memory, or inside the zone around a buffer is an error that names the kernel, the thread and the line of code.

A GPU ends the whole context for such an access, and only when the page is not mapped: a read a few bytes behind a
buffer passes there unseen. Pointers are followed through each function's text. Those into the thread's own stack, the
launch's words and constants need no check. All others are compared with the table of live memory before the access,
and an access outside goes to a scratch line instead, so that the emulation survives to report it.
"""

from __future__ import annotations

import re
from enum import Enum

from morpho.backends.code.emit import Emitter, defined

FUNCTION = re.compile(r"^define [^\n]*\{\n.*?^\}", re.MULTILINE | re.DOTALL)
_HEAD = re.compile(r"@([\w.]+)\(([^)]*)\)")
_RESULT = re.compile(r"^\s*(%[\w.]+) = (.*)$")
_OFFSET = re.compile(r"getelementptr (?:inbounds )?(?:\[[^\]]*\]|<[^>]*>|[\w.]+), ptr ([%@][\w.]+)")
_POINTERS = re.compile(r"(?:\bptr |\[ )([%@][\w.]+)")
_TYPE = r"(<\d+ x \w+>|\[\d+ x \w+\]|\w+)"
_LOAD = re.compile(rf"= load (?:atomic |volatile )*{_TYPE}, ptr (%[\w.]+)")
_STORE = re.compile(rf"^\s*store (?:atomic |volatile )*{_TYPE} .*, ptr (%[\w.]+)(?=,|\s|$)")
_ATOMIC = re.compile(rf"\batomicrmw (?:volatile )?\w+ ptr (%[\w.]+), {_TYPE} ")
_EXCHANGE = re.compile(rf"\bcmpxchg (?:weak )?(?:volatile )?ptr (%[\w.]+), {_TYPE} ")
_BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "i128": 16, "half": 2, "bfloat": 2, "float": 4, "double": 8,
          "ptr": 8}
SCRATCH_BYTES = 1024


class Root(Enum):
    """Origin of a pointer of a function."""

    OWN = 0  # stack, constants, the emulator's own memory
    CONTEXT = 1  # the emulator's words
    WORDS = 2  # the launch's words, which have addresses of device memory
    DEVICE = 3  # device memory or shared memory
    UNKNOWN = 4  # a number, or one of several: not checked


ARGUMENTS = {"%ctx": Root.CONTEXT, "%c": Root.CONTEXT, "%context": Root.CONTEXT, "%p": Root.WORDS,
             "%buffers": Root.WORDS, "%values": Root.WORDS, "%scratch": Root.DEVICE, "%source": Root.DEVICE,
             "%status": Root.DEVICE, "%room": Root.DEVICE}


def type_bytes(text: str) -> int:
    """Size of an LLVM type.

    >>> type_bytes("<4 x float>"), type_bytes("i64")
    (16, 8)
    """
    if text[0] in "<[":
        count, element = text[1:-1].split(" x ")
        return int(count) * type_bytes(element)
    return _BYTES[text]


def _root_of(expression: str, roots: dict[str, Root]) -> Root | None:
    """Origin of the pointer that an instruction gives; None if it gives no pointer, or it is not yet known."""
    if expression.startswith("alloca"):
        return Root.OWN
    if offset := _OFFSET.match(expression):
        return Root.OWN if offset[1][0] == "@" else roots.get(offset[1])
    if expression.startswith(("call ptr @gpu.shared", "call ptr @emu.at(")):
        return Root.DEVICE
    if expression.startswith("call ptr @emu."):
        return Root.OWN
    if load := re.match(r"load (?:volatile )?ptr, ptr ([%@][\w.]+)", expression):
        base = roots.get(load[1], Root.OWN)
        return {Root.CONTEXT: Root.OWN, Root.OWN: Root.UNKNOWN, Root.UNKNOWN: Root.UNKNOWN}.get(base, Root.DEVICE)
    if expression.startswith(("select", "phi ptr")):
        sources = [name for name in _POINTERS.findall(expression) if name in roots or name[0] == "@"]
        if not expression.startswith("phi ptr") and " ptr " not in expression:
            return None
        kinds = {roots.get(name, Root.OWN) for name in sources}
        return kinds.pop() if len(kinds) == 1 else Root.UNKNOWN if kinds else None
    if expression.startswith(("inttoptr", "call ptr")):
        return Root.UNKNOWN
    return None


def _roots(head: str, lines: list[str]) -> dict[str, Root]:
    """The root of every pointer of one function, to a fixpoint (loops carry pointers on)."""
    signature = _HEAD.search(head)
    assert signature is not None
    roots: dict[str, Root] = {}
    for argument in signature[2].split(","):
        kind, _, name = argument.strip().rpartition(" ")
        if kind.split(" ")[0] == "ptr":
            roots[name] = ARGUMENTS.get(name, Root.UNKNOWN)
    results = [match.groups() for line in lines if (match := _RESULT.match(line))]
    changed = True
    while changed:
        changed = False
        for name, expression in results:
            root = _root_of(expression, roots)
            if root is not None and roots.get(name) is not root:
                if roots.get(name) is not Root.UNKNOWN:
                    roots[name], changed = Root.UNKNOWN if name in roots else root, True
    return roots


def guarded(text: str, sources: list[str]) -> str:
    """The text with a check before every access to memory that is not the thread's own; `sources` takes the checked
    lines, by number."""

    def function(match: re.Match[str]) -> str:
        head, *lines = match[0].split("\n")
        roots = _roots(head, lines)
        checked = [head]
        for line in lines:
            access = _LOAD.search(line) or _STORE.match(line)
            pointer, kind = (access[2], access[1]) if access else (None, "")
            if access is None and (access := _ATOMIC.search(line) or _EXCHANGE.search(line)):
                pointer, kind = access[1], access[2]
            root = roots.get(pointer) if pointer else None
            if pointer is None or access is None or root is not Root.DEVICE:
                checked.append(line)
                continue
            number = len(sources)
            name = f"%guard{number}"
            sources.append(line.strip())
            checked.append(f"  {name} = call ptr @emu.guard(ptr {pointer}, i64 {type_bytes(kind)}, i64 {number})")
            at = access.start() + access[0].rindex(f"ptr {pointer}")
            checked.append(line[:at] + f"ptr {name}" + line[at + len(f"ptr {pointer}"):])
        return "\n".join(checked)

    return FUNCTION.sub(function, text)


def guard_text(now: str, halvings: int, table: int, fault: int, scratch: int, thread: int, block: int) -> str:
    """The function `@emu.guard`: an address, or that of the scratch line where an access there is a fault.

    The context at `now` has words with these numbers: the address of a sorted table of (first, end) addresses, padded
    to a power of two whose logarithm is `halvings`; five words for the first fault; the address of the scratch line.
    """
    e = Emitter(1)
    context = "%" + e.fresh("c")
    e.line(f"{context} = load volatile ptr, ptr {now}")
    address = e.assign("ptrtoint ptr %p to i64", "i64", 1)
    count, rows = e.load(e.offset(context, "i64", halvings), "i64", 1), e.load_pointer(context, table)
    one = e.constant(1, "i64", 1)
    with e.loop(0, count, carried=[e.constant(0, "i64", 1)]) as loop:
        further = loop.values[0] + (one << (count - loop.index - 1))
        before = e.icmp("ule", e.load(e.offset(rows, "i64", further * 2), "i64", 1), address)
        loop.next(e.select(before, further, loop.values[0]))
    row = loop.values[0]
    end = e.load(e.offset(rows, "i64", row * 2 + 1), "i64", 1)
    inside = e.icmp("ule", address + e.argument("%bytes", "i64"), end)
    first = e.offset(context, "i64", fault)
    known = e.load(first, "i64", 1)
    with e.when(e.icmp("eq", e.convert("zext", inside, "i64") | known, 0)):
        words = [one, address, e.argument("%number", "i64"), e.load(e.offset(context, "i64", thread), "i64", 1),
                 e.load(e.offset(context, "i64", block), "i64", 1)]
        for index, word in enumerate(words):
            e.store(word, e.offset(first, "i64", index))
    e.line(f"%target = select i1 {inside.name}, ptr %p, ptr {e.load_pointer(context, scratch)}")
    e.line("ret ptr %target")
    return defined("internal ptr @emu.guard(ptr %p, i64 %bytes, i64 %number) noinline", e.text()) + e.outside()
