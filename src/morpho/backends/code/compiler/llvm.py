"""The CPU backend: LLVM text to object code, object code to addresses. LLVM is loaded at the first compile.

LLVM sits behind one lock: its objects are not safe to share, and compiling is short.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import re
import struct
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from morpho.backends.code.elementwise import BY_USER
from morpho.base.errors import CompileError, MemoryLimit, MorphoError, fail
from morpho.base.machine import Isa, machine

lock = threading.RLock()
_engines: list[Any] = []  # code stays where it is for the life of the process; the last one takes more
_names: set[str] = set()  # of functions in the last one
symbols: dict[str, int] = {}  # addresses of what code refers to by name


@cache
def binding() -> Any:
    """llvmlite, with the native target ready."""
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise fail(CompileError, "compile", f"LLVM could not be loaded ({error})",
                   "reinstall llvmlite, or use mo.settings(device='reference')") from error
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return llvm


@cache
def _target_machine(isa: Isa, triple: str | None) -> Any:
    llvm = binding()
    if triple is None:
        target = llvm.Target.from_default_triple()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        target = llvm.Target.from_triple(triple)
    return target.create_target_machine(**target_options(isa, foreign=triple is not None))


def target_options(isa: Isa, foreign: bool = False) -> dict[str, Any]:
    """Options for LLVM: the processor, and how code names its constants and functions.

    x86 code would reach 2 GB only, and LLVM puts code and constants wherever pages are free: in a process that holds
    arrays of gigabytes they may lie further apart, and what is read then is anything. So code holds whole addresses,
    as it does on AArch64.
    """
    whole = {"reloc": "static", "codemodel": "large"}
    default = {"reloc": "pic", "codemodel": "small" if foreign else "jitdefault"}
    return {"cpu": isa.llvm_cpu, "features": isa.llvm_features, "opt": 2,
            **(whole if isa.architecture == "x86_64" else default)}


def _module(text: str, triple: str | None) -> Any:
    llvm = binding()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise _rejected(text, error) from error
    if triple is not None:
        module.triple = triple
    return module


def _rejected(text: str, error: Exception) -> MorphoError:
    """Error for rejected code: a module with code of a user's emitters is most likely the user's defect."""
    names = dict.fromkeys(re.findall(rf"; {BY_USER}(.*)", text))
    if not names:
        return fail(CompileError, "compile", f"LLVM rejects generated code: {error}",
                    "this is a defect of Morpho; please report it with the program")
    listed = ", ".join(map(repr, names))
    return fail(CompileError, "compile", f"LLVM rejects code with what the emitter of {listed} writes: {error}",
                "look at the function given to mo.extend.op as emit")


SHT_NOBITS = 8  # the kind of an ELF section that has a size and no bytes
CODE_BYTES = 64 << 20  # addresses that LLVM has for its work: where it gets none, it ends the process


def _check_room(tables: int = 0) -> None:
    """An error where the system gives LLVM no more memory, of which code itself has tables of so many bytes."""
    room = CODE_BYTES + tables
    try:
        mmap.mmap(-1, room).close()
    except (OSError, OverflowError) as error:
        raise fail(MemoryLimit, "compile", f"the system gives no {room >> 20} MB for compiling code ({error})",
                   "free tensors, or raise the limit of the process (ulimit -v)") from None


def _zeroed_bytes(code: bytes) -> int:
    """Bytes of the tables that object code (ELF of 64 bits) wants zeroed where it is loaded: work spaces, which may be
    as large as what they are for."""
    if code[:5] != b"\x7fELF\x02" or len(code) < 64:
        return 0
    (first,), (size, count) = struct.unpack_from("<Q", code, 0x28), struct.unpack_from("<HH", code, 0x3A)
    starts = [start for start in range(first, first + size * count, size or 1) if start + 0x28 <= len(code)]
    kinds = [struct.unpack_from("<I", code, start + 4)[0] for start in starts]
    return sum(struct.unpack_from("<Q", code, start + 0x20)[0] for start, kind in zip(starts, kinds, strict=True)
               if kind == SHT_NOBITS)


def compile_text(text: str, isa: Isa, triple: str | None = None) -> bytes:
    """Object code for a module of LLVM text."""
    _check_room()
    with lock:
        return bytes(_target_machine(isa, triple).emit_object(_module(text, triple)))


def assembly(text: str, isa: Isa, triple: str | None = None) -> str:
    """The machine code of a module in words, for people and for tests of other architectures."""
    with lock:
        return str(_target_machine(isa, triple).emit_assembly(_module(text, triple)))


def load(code: bytes | Sequence[bytes], isa: Isa, names: list[str]) -> list[int]:
    """Put object code into memory and give the addresses of its functions.

    An engine takes LLVM a millisecond to make, so the last one serves as long as names are new to it.
    """
    llvm = binding()
    parts = (code,) if isinstance(code, bytes) else code
    _check_room(sum(map(_zeroed_bytes, parts)))
    with lock:
        if not _engines or not _names.isdisjoint(names):
            _start_engine(isa)
        engine = _engines[-1]
        try:
            for part in parts:
                engine.add_object_file(llvm.ObjectFileRef.from_data(part))
            engine.finalize_object()
        except RuntimeError as error:
            _start_engine(isa)  # parts may be in the old one
            raise fail(CompileError, "load", f"object code could not be loaded: {error}") from error
        addresses = [engine.get_function_address(name) for name in names]
        _names.update(names)
        if not all(addresses):
            raise fail(CompileError, "load", f"object code lacks {names}")
        return addresses


def _start_engine(isa: Isa) -> None:
    llvm = binding()
    for name, address in symbols.items():
        llvm.add_symbol(name, address)
    _engines.append(llvm.create_mcjit_compiler(llvm.parse_assembly(""), _fresh_machine(isa)))
    _names.clear()


def _fresh_machine(isa: Isa) -> Any:
    """An engine owns its target machine."""
    return binding().Target.from_default_triple().create_target_machine(
        cpu=isa.llvm_cpu, features=isa.llvm_features, opt=2)


def host() -> str:
    """Key of the host besides the ISA: the architecture and the pointer size."""
    return f"{machine().architecture}-{platform.system()}-{ctypes.sizeof(ctypes.c_void_p) * 8}"
