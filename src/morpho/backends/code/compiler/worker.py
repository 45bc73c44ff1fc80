"""A process that compiles LLVM text: a program of its own, with nothing of Morpho imported, so that it starts fast.

Standard input: a line of JSON (`cpu.target_options`), then modules, each behind eight bytes of its length,
little-endian. Standard output: the object code of each, as soon as it is there, in the same form.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Compile what comes in until nothing does."""
    import llvmlite.binding as llvm

    into, out = sys.stdin.buffer, sys.stdout.buffer
    options = json.loads(into.readline())
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    machine = llvm.Target.from_default_triple().create_target_machine(**options)
    while length := int.from_bytes(into.read(8), "little"):
        module = llvm.parse_assembly(into.read(length).decode())
        module.verify()
        code = bytes(machine.emit_object(module))
        out.write(len(code).to_bytes(8, "little") + code)
        out.flush()


if __name__ == "__main__":
    main()
