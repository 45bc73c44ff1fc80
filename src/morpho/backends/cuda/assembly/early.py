"""Memory that a kernel touches before the kernels ahead of it are over, read from its text.

All but the first launch of a program may come before the one ahead of it has ended (`driver/early_launch.py`). A kernel
waits for that one, which has waited for the one ahead of it, and so on: behind its wait everything is as if kernels ran
one by one. Before its wait it may write nothing but shared memory, and read only what no kernel of its program has
written: inputs of the program. Kernels wait in their first instruction, but for those that say themselves when; of
these, `check_early` looks at every operand before a program is loaded.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from morpho.backends.cuda.codegen.grid import Header
from morpho.base.errors import CompileError, fail
from morpho.program.program import Program, Step

WAIT = "@gpu.grid_wait("
HINT = "@gpu.prefetch("  # reads nothing: the line comes to the cache in which all multiprocessors write
_STEP = re.compile(r"(%[\w.]+) = getelementptr (\w+), ptr (%[\w.]+), i64 (%?[\w.]+)")
_POINTER = re.compile(r"(%[\w.]+) = load ptr, ptr (%[\w.]+)")
_CHOICE = re.compile(r"(%[\w.]+) = select i1 [^,]+, ptr (%[\w.]+), ptr (%[\w.]+)")
_STORE = re.compile(r"store [^,]+, ptr (%[\w.]+)")
_NAME = re.compile(r"ptr (%[\w.]+)")


class Early(NamedTuple):
    """Operands, by position, that a kernel reads and writes before its wait."""

    reads: frozenset[int]
    writes: frozenset[int]


def before_wait(text: str) -> Early:
    """Memory that a kernel touches early; none if it waits first.

    >>> lines = ["%a = getelementptr i64, ptr %p, i64 8", "%b = load ptr, ptr %a, align 8", "%c = load i8, ptr %b"]
    >>> before_wait("\\n".join([*lines, "call void @gpu.grid_wait(ptr %ctx)"])).reads
    frozenset({0})
    """
    if WAIT not in text:
        return Early(frozenset(), frozenset())
    words: dict[str, int | None] = {"%p": 0}  # pointers to the words of the launch: which one, if it is known
    operands: dict[str, int] = {}
    reads, writes = set(), set()
    for line in text[text.index("entry:"):text.index(WAIT)].splitlines():
        if (step := _STEP.search(line)) is not None:
            name, _, base, number = step.groups()
            if base in words:
                at = words[base]
                words[name] = at + int(number) if at is not None and number.isdigit() else None
            elif base in operands:
                operands[name] = operands[base]
        elif (loaded := _POINTER.search(line)) is not None and loaded[2] in words:
            at = words[loaded[2]]
            assert at is not None, f"an operand whose number is not known: {line}"
            operands[loaded[1]] = at - int(Header.SIZE)
        elif (choice := _CHOICE.search(line)) is not None:
            for other in choice.groups()[1:]:
                if other in operands:
                    operands[choice[1]] = operands[other]
        elif (stored := _STORE.search(line)) is not None:
            writes |= {operands[stored[1]]} if stored[1] in operands else set()
        elif HINT not in line:
            reads |= {operands[name] for name in _NAME.findall(line) if name in operands}
    return Early(frozenset(reads), frozenset(writes))


def check_early(step: Step, program: Program, text: str) -> None:
    """Refuse a step whose kernel touches memory before its wait that a kernel of its program may write. A state that is
    written in place is an input too: its writer comes behind all who read it (`program/footprint.py`)."""
    found = before_wait(text)
    kinds = {number: program.slots[view.slot].kind for number, view in enumerate(step.views) if view is not None}
    wrong = sorted(found.writes | {number for number in found.reads if kinds.get(number) != "input"})
    if wrong:
        raise fail(CompileError, "compile", f"the kernel of {step.label} touches operand {wrong[0]} before those ahead "
                   "of it are over", "this is a defect of Morpho; please report it with the program")
