"""The dot product of AVX-512 VNNI as a plain LLVM function, for machines without it."""

from __future__ import annotations

import re

from morpho.backends.cpu.codegen.emit import Emitter

NAME = "llvm.x86.avx512.vpdpbusd.512"


def emulated(text: str) -> str:
    """A module with VNNI's instruction as one that any machine can run: unsigned bytes times signed ones, in fours."""
    if NAME not in text:
        return text
    e = Emitter(16)
    total = e.argument("%total", "i32")
    groups = {name: e.assign(f"bitcast <64 x i8> {name} to <16 x i32>", "i32", 16) for name in ("%u", "%s")}
    for j in range(4):
        unsigned, signed = ((groups[name] << (24 - 8 * j)).shift_right(24, name == "%s") for name in ("%u", "%s"))
        total = total + unsigned * signed
    text = re.sub(rf"^declare .*@{re.escape(NAME)}\(.*$", "", text, flags=re.MULTILINE)
    text = text.replace(f"@{NAME}(", "@emulated(")
    return (text + "define internal <16 x i32> @emulated(<16 x i32> %total, <64 x i8> %u, <64 x i8> %s) {\nentry:\n"
            + e.text() + f"\n  ret <16 x i32> {total.name}\n}}\n")
