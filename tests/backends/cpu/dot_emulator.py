"""The dot product of AVX-512 VNNI as a plain LLVM function, for machines without it."""

from __future__ import annotations

import re

from morpho.backends.code.emit import Emitter

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


SDOT, SMMLA = "llvm.aarch64.neon.sdot.v4i32.v16i8", "llvm.aarch64.neon.smmla.v4i32.v16i8"


def _sums(name: str, products: list[tuple[list[int], list[int]]]) -> str:
    """A function that adds products of signed bytes, by the places of each lane's two factors."""
    lines = [f"define internal <4 x i32> @{name}(<4 x i32> %t0, <16 x i8> %a, <16 x i8> %b) {{\nentry:",
             "  %x = sext <16 x i8> %a to <16 x i32>", "  %y = sext <16 x i8> %b to <16 x i32>"]
    for number, places in enumerate(products):
        for side, name, chosen in zip("lr", "xy", places, strict=True):
            mask = ", ".join(f"i32 {place}" for place in chosen)
            lines.append(f"  %{side}{number} = shufflevector <16 x i32> %{name}, <16 x i32> poison, <4 x i32> <{mask}>")
        lines += [f"  %p{number} = mul <4 x i32> %l{number}, %r{number}",
                  f"  %t{number + 1} = add <4 x i32> %t{number}, %p{number}"]
    return "\n".join([*lines, f"  ret <4 x i32> %t{len(products)}\n}}\n"])


def emulated_neon(text: str) -> str:
    """A module with AArch64's `sdot` and `smmla` as one that any machine can run."""
    if "llvm.aarch64.neon" not in text:
        return text
    text = re.sub(r"^declare .*@llvm\.aarch64\.neon\..*$", "", text, flags=re.MULTILINE)
    text = text.replace(f"@{SDOT}(", "@emulated_sdot(").replace(f"@{SMMLA}(", "@emulated_smmla(")
    rows = [([k, k, 8 + k, 8 + k], [k, 8 + k, k, 8 + k]) for k in range(8)]  # two of each side, all four products
    groups = [([j + 4 * lane for lane in range(4)],) * 2 for j in range(4)]
    return text + _sums("emulated_sdot", groups) + _sums("emulated_smmla", rows)
