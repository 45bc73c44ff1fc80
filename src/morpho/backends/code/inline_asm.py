"""Instructions of AArch64 in a written order, where LLVM's leaves vector units idle: assembly in the LLVM text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from morpho.backends.code.emit import Emitter, Value

NEON_LANES = 4
KIND = f"<{NEON_LANES} x float>"


def run(e: Emitter, totals: Sequence[Value], instructions: Callable[..., Iterator[str]], given: Sequence[str],
        used: Iterable[str]) -> list[Value]:
    """The vectors `totals` after some instructions, which know them as $0, $1, ...

    `instructions` is called with the names of what is `given` ("ptr %p"), which they may read only. They change the
    registers `used` besides, and may read memory.
    """
    count = len(totals)
    names = [f"${2 * count + number}" for number in range(len(given))]  # after totals as results and as operands
    text = "\\0A".join(instructions(*names))
    operands = ["=w"] * count + [str(number) for number in range(count)] + ["r"] * len(given)
    operands += [f"~{{{register}}}" for register in used] + ["~{cc}", "~{memory}"]
    kinds = "{" + ", ".join([KIND] * count) + "}"
    arguments = ", ".join([*(f"{KIND} {total.name}" for total in totals), *given])
    name = "%" + e.fresh("written")
    e.line(f'{name} = call {kinds} asm sideeffect "{text}", "{",".join(operands)}"({arguments})')
    return [e.assign(f"extractvalue {kinds} {name}, {number}", "float", NEON_LANES) for number in range(count)]
