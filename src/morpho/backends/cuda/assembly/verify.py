"""Code that LLVM and ptxas both take and a GPU runs wrongly: checked in every kernel's text, on a GPU and under the
emulator.

An operand of inline assembly goes into a register of the width that its constraint names, whatever its type: under "r",
which is any register on a CPU, PTX has the low 32 bits of an address. Functions of the host, such as LAPACK's, are kept
out by lowering: a call by address may also be an epilogue that a kernel has and this program does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from morpho.base.errors import CompileError, fail

WIDTHS = {"h": {"i16", "half", "bfloat"}, "r": {"i32", "i16", "i8"}, "l": {"i64"}, "f": {"float"}, "d": {"double"}}
_CALL = re.compile(r'call (.+?) asm (?:sideeffect )?(?:alignstack )?"[^"]*", "([^"]*)"\((.*)\)')



def _kinds(text: str) -> list[str]:
    """The types of a list of arguments, or of a struct of results."""
    text = text.strip().removeprefix("{").removesuffix("}").strip()
    found = [part.split("%")[0].strip() for part in text.split(",") if part.strip() and part.strip() != "void"]
    return ["i64" if kind.startswith("ptr") else kind.split()[0] for kind in found]


def wrong_operands(text: str) -> Iterator[str]:
    """Sentences about operands of assembly whose register is of another width.

    >>> list(wrong_operands('%b = call ptr asm "", "=r,0"(ptr %a)'))
    ['an operand of type i64 in a register "r" of assembly', 'an operand of type i64 in a register "r" of assembly']
    >>> list(wrong_operands('%b = call i32 asm "mov.b32 $0, $1;", "=r,r"(i32 %a)'))
    []
    """
    for match in _CALL.finditer(text):
        results, constraints, arguments = match.groups()
        letters = [c for c in constraints.split(",") if c and not c.startswith("~")]
        outputs = [c[1:] for c in letters if c.startswith("=")]
        inputs = [outputs[int(c)] if c.isdigit() else c for c in letters if not c.startswith("=")]
        for letter, kind in zip([*outputs, *inputs], [*_kinds(results), *_kinds(arguments)], strict=False):
            if letter in WIDTHS and kind not in WIDTHS[letter]:
                yield f'an operand of type {kind} in a register "{letter}" of assembly'


def verify(text: str) -> None:
    """Refuse a kernel's text that a GPU would not run as it is meant."""
    for sentence in wrong_operands(text):
        raise fail(CompileError, "compile", f"a kernel for a GPU has {sentence}",
                   "this is a defect of Morpho; please report it with the program")
