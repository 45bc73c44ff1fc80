"""A process that compiles LLVM text: a program of its own, with nothing of Morpho imported, so that it starts fast.

Standard input: a line of JSON (`cpu`, `features`, `lengths`), then the modules one after another. Standard output, once
all are done: for each module eight bytes of length, little-endian, and its object code.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Compile what comes in."""
    import llvmlite.binding as llvm

    header = json.loads(sys.stdin.buffer.readline())
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=header["cpu"], features=header["features"], opt=2, reloc="pic", codemodel="jitdefault")
    found = []
    for length in header["lengths"]:
        module = llvm.parse_assembly(sys.stdin.buffer.read(length).decode())
        module.verify()
        found.append(bytes(machine.emit_object(module)))
    for code in found:
        sys.stdout.buffer.write(len(code).to_bytes(8, "little") + code)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
