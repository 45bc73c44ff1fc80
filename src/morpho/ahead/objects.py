"""One module of LLVM text for a library, its object code, and a shared library where a linker is found."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from morpho.ahead import wasm
from morpho.ahead.functions import LINE, Constant, Lowered
from morpho.ahead.targets import ExportTarget
from morpho.backends.code.compiler import code, llvm
from morpho.backends.driver.abi import Function
from morpho.backends.driver.portable import PREFIX, Code, Place, entry_text, library_driver
from morpho.backends.kernels.generators import generate
from morpho.base.errors import CompileError, fail
from morpho.base.machine import Isa
from morpho.base.target import isa_named
from morpho.program.kernel import Kernel

LINK_SECONDS = 300
DIGEST_LANES = 4
PRIME = 0x9E37_79B9_7F4A_7C15
TURN = 29
_DEFINE = re.compile(r"^(define .*?\)[^{\n]*)\{", re.M)
_NAME = re.compile(r"^define .*?@([\w.]+)\(", re.M)


@dataclass
class Weights:
    """The constants of a library, each once: in the library or in a file of their own."""

    beside: bool
    offsets: dict[str, int] = field(default_factory=dict)  # by digest: byte of the file, or number of the constant
    arrays: list[np.ndarray] = field(default_factory=list)
    nbytes: int = 0

    def add(self, constant: Constant) -> int:
        """Where a constant lies: its number, or its byte among all."""
        digest = hashlib.sha256(constant.array.data).hexdigest()
        place = self.offsets.get(digest)
        if place is None:
            place = self.offsets[digest] = self.nbytes if self.beside else len(self.arrays)
            self.arrays.append(constant.array)
            self.nbytes += -(-constant.array.nbytes // LINE) * LINE
        return place


def place_constants(lowered: Iterable[Lowered], weights: Weights, first_byte: int = 0) -> None:
    """Say where each program finds its constants; `first_byte` is where data begin in the file."""
    for each in lowered:
        for constant in each.constants:
            at = weights.add(constant)
            slot = each.tables.slot_number[constant.slot]
            each.entry.places[slot] = Place("weights", first_byte + at) if weights.beside else \
                Place("constant", 0, f"@{PREFIX}weights{at}")


# -- text --------------------------------------------------------------------------------------------------------------
class Library:
    """The parts of a library, linked into one module: whatever is not for callers is internal."""

    def __init__(self, target: ExportTarget) -> None:
        self.target = target
        self.binding = llvm.binding()
        self.module = self.binding.parse_assembly("")
        self.public: set[str] = set()
        self.names: dict[tuple[Kernel, str], str] = {}
        self.fused: set[str] = set()

    def add(self, text: str, isa: Isa | None = None, public: Sequence[str] = ()) -> None:
        """Link a module; names of its own functions are kept apart from those of others."""
        if self.target.is_wasm:
            text, used = wasm.with_fused(text)
            self.fused |= used
        if isa is not None and len(self.target.isas) > 1:
            words = f'"target-cpu"="{isa.llvm_cpu}" "target-features"="{isa.llvm_features}"'
            text = _DEFINE.sub(rf"\1 {words} {{", text)
        part = llvm._module(text, None)
        for each in (*part.functions, *part.global_variables):
            if not each.is_declaration and each.name not in public and not each.name.startswith("llvm."):
                each.linkage = "internal"
        self.module.link_in(part)

    def kernel(self, kernel: Kernel, isa: Isa) -> str:
        """The name of a kernel's function, added once."""
        name = self.names.get((kernel, isa.name))
        if name is None:
            name = self.names[kernel, isa.name] = f"{PREFIX}kernel_{isa.name}_{len(self.names)}"
            self.add(generate(kernel, isa, name), isa, [name])
        return name

    def function(self, lowered: Lowered) -> None:
        """A program's tables, kernels and entry."""
        entry = lowered.entry
        names = [self.kernel(kernel, lowered.isa) for kernel in lowered.tables.kernels]
        tables = lowered.tables.constants(entry.name, names, self.target.pointer_bytes)
        text = entry_text(entry)
        declared = [f"declare i32 @{name}(ptr, ptr, i64, i64, i64, i64, ptr)" for name in names]
        declared += [f"declare i64 @{PREFIX}run(ptr, ptr, ptr, ptr)", f"declare void @{PREFIX}evaluate(ptr, ptr, ptr)"]
        labels = sorted({place.label for place in entry.places.values() if place.label})
        declared += [f"{label} = external constant i8" for label in labels]
        self.add("\n".join([*declared, *tables, text]), lowered.isa, [entry.name])
        self.public.add(entry.name)

    def driver(self, isa: Isa) -> None:
        """The functions that run any program."""
        text = library_driver()
        self.add(text, None, [*_NAME.findall(text), "morpho_interrupts"])

    def constants(self, arrays: Sequence[np.ndarray]) -> None:
        """Weights inside the library."""
        for number, array in enumerate(arrays):
            text = f"@{PREFIX}weights{number} = constant [{max(array.nbytes, 1)} x i8] {_bytes_text(array)}, align 64"
            self.add(text, None, [f"{PREFIX}weights{number}"])

    def finish(self) -> bytes:
        """Object code."""
        if self.target.fused == "relaxed":
            self.fused.add(f"{PREFIX}fused_f32")
            self.add(wasm.PROBE, None, [wasm.PROBE_NAME])
            self.public.add(wasm.PROBE_NAME)
        if self.fused:
            for name in sorted(self.fused):
                text = wasm.fused_text(name, self.target.fused)
                self.add_plain(text, [name])
        for each in (*self.module.functions, *self.module.global_variables):
            if not each.is_declaration and each.name not in self.public and not each.name.startswith("llvm."):
                each.linkage = "internal"
            elif not each.is_declaration and self.target.system == "windows":
                each.storage_class = "dllexport"
        machine = _machine(self.target)
        self.module.triple, self.module.data_layout = self.target.triple, str(machine.target_data)
        with llvm.lock:
            try:
                self.module.verify()
                return bytes(machine.emit_object(self.module))
            except RuntimeError as error:
                raise fail(CompileError, "export", f"LLVM rejects the library: {error}",
                           "this is a defect of Morpho; please report it with the program") from error

    def add_plain(self, text: str, public: Sequence[str]) -> None:
        """Link a module as it is."""
        self.module.link_in(llvm._module(text, None))


_TABLE = [f"\\{value:02X}" if not 32 <= value < 127 or value in (34, 92) else chr(value) for value in range(256)]


def _bytes_text(array: np.ndarray) -> str:
    """Bytes as LLVM writes them."""
    if not array.size or not array.any():
        return "zeroinitializer"
    return 'c"' + "".join([_TABLE[value] for value in array.tobytes()]) + '"'


@cache
def _machine_of(triple: str, cpu: str, features: str) -> Any:
    binding = llvm.binding()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    reloc = "static" if triple.startswith("wasm") else "pic"
    return binding.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=2, reloc=reloc,
                                                                    codemodel="small")


def _machine(target: ExportTarget) -> Any:
    isa = target.isas[0]
    if len(target.isas) > 1:  # what chooses among them runs anywhere
        return _machine_of(target.triple, "x86-64", "")
    return _machine_of(target.triple, isa.llvm_cpu, isa.llvm_features)


def dispatcher_text(name: str, symbols: Sequence[tuple[Isa, str]]) -> str:
    """name(call): the code of the best set that the processor and its system have, found at the first call."""
    declared = "\n".join(f"declare i32 @{symbol}(ptr)" for _, symbol in symbols)
    f = Function(name, "ptr %call", "i32")
    e = f.e
    known, ask = e.fresh("known"), e.fresh("ask")
    place = f"@{name}_chosen"
    e.line(f"%chosen = load atomic ptr, ptr {place} monotonic, align 8")
    e.branch_if(f.is_null("%chosen"), ask, known)
    e.label(known)
    e.line("%first = tail call i32 %chosen(ptr %call)")
    e.line("ret i32 %first")
    e.label(ask)

    def cpuid(leaf: int) -> list[Any]:
        one = "%" + e.fresh("id")
        e.line(f'{one} = call {{ i32, i32, i32, i32 }} asm "cpuid", "={{ax}},={{bx}},={{cx}},={{dx}},{{ax}},{{cx}},'
               f'~{{dirflag}},~{{fpsr}},~{{flags}}"(i32 {leaf}, i32 0)')
        return [e.assign(f"extractvalue {{ i32, i32, i32, i32 }} {one}, {number}", "i32", 1) for number in range(4)]

    features = cpuid(1)[2]
    saves = e.icmp("ne", features & (1 << 27), 0)  # OSXSAVE: the system tells which registers it keeps
    fma = e.icmp("eq", features & (1 << 12 | 1 << 22 | 1 << 23 | 1 << 28 | 1 << 29),
                 1 << 12 | 1 << 22 | 1 << 23 | 1 << 28 | 1 << 29)
    with_state, without, choose = e.fresh("state"), e.fresh("without"), e.fresh("choose")
    e.branch_if(saves, with_state, without)
    e.label(with_state)
    pair = "%" + e.fresh("x")
    e.line(f'{pair} = call {{ i32, i32 }} asm "xgetbv", "={{ax}},={{dx}},{{cx}},~{{dirflag}},~{{fpsr}},~{{flags}}"'
           "(i32 0)")
    kept = e.assign(f"extractvalue {{ i32, i32 }} {pair}, 0", "i32", 1)
    state_block = e.block
    e.branch(choose)
    e.label(without)
    e.branch(choose)
    e.label(choose)
    state = e.assign(f"phi i32 [ {kept.name}, %{state_block} ], [ 0, %{without} ]", "i32", 1)
    wide = cpuid(7)[1]
    extended = cpuid(0x8000_0001 - (1 << 32))[2]
    wanted2, wanted512 = 1 << 3 | 1 << 5 | 1 << 8, 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31
    has2 = (e.icmp("eq", state & 6, 6) & fma & e.icmp("eq", wide & wanted2, wanted2)
            & e.icmp("ne", extended & (1 << 5), 0))
    high = e.icmp("eq", wide.shift_right(16) & (wanted512 >> 16), wanted512 >> 16)
    holds = {"avx2": has2, "avx512": has2 & e.icmp("eq", state & 0xE6, 0xE6) & high}
    for isa, symbol in reversed(symbols):
        take, other = e.fresh("take"), e.fresh("other")
        e.branch_if(holds[isa.name], take, other)
        e.label(take)
        e.line(f"store atomic ptr @{symbol}, ptr {place} monotonic, align 8")
        status = e.assign(f"call i32 @{symbol}(ptr %call)", "i32", 1)
        e.line(f"ret i32 {status.name}")
        e.label(other)
    e.line(f"ret i32 {PROCESSOR}")
    return f"{declared}\n{place} = internal global ptr null, align 8\n" + f.text()


PROCESSOR = 7  # the code of a call on a processor that has none of the sets


# -- a digest of the weights -------------------------------------------------------------------------------------------
def _digest_function(name: str) -> str:
    """name(data, bytes): a number of 64 bits that a change of any byte changes; bytes are a multiple of 32."""
    f = Function(name, "ptr %data, i64 %bytes", "i64")
    e = f.e
    seeds = [e.constant(number + 1, "i64", 1) for number in range(DIGEST_LANES)]
    with e.loop(0, f.value("%bytes").shift_right(3), DIGEST_LANES, seeds) as loop:
        news = []
        for number, value in enumerate(loop.values):
            mixed = (value ^ f.word("%data", loop.index + number)) * PRIME
            news.append((mixed << TURN) | mixed.shift_right(64 - TURN))
        loop.next(*news)
    total = e.constant(0, "i64", 1)
    for value in loop.values:
        total = (total ^ value) * PRIME
        total = total ^ total.shift_right(32)
    e.line(f"ret i64 {total.name}")
    return f.text()


def digest(data: np.ndarray) -> int:
    """The same number, of bytes in this process."""
    import ctypes

    isa = isa_named("scalar")
    text = _digest_function("digest")
    (address,) = code.native_functions(text, lambda: text, ["digest"], isa)
    call = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int64)(address)
    return int(call(data.ctypes.data, data.nbytes))


def check_text(name: str, nbytes: int, wanted: int) -> str:
    """name(data, bytes): 0 where these are the weights that the library was written with, else `Code.WEIGHTS`."""
    f = Function(name, "ptr %data, i64 %bytes", "i32")
    e = f.e
    look, wrong = e.fresh("look"), e.fresh("wrong")
    e.branch_if(e.icmp("eq", f.value("%bytes"), nbytes) & (f.is_null("%data") ^ True), look, wrong)
    e.label(look)
    number = e.assign(f"call i64 @{name}_digest(ptr %data, i64 %bytes)", "i64", 1)
    signed = wanted - (1 << 64) if wanted >> 63 else wanted
    status = e.select(e.icmp("eq", number, signed), e.constant(0, "i32", 1), Code.WEIGHTS)
    e.line(f"ret i32 {status.name}")
    e.label(wrong)
    e.line(f"ret i32 {Code.WEIGHTS}")
    return _digest_function(f"{name}_digest") + "\n" + f.text()


# -- linking -----------------------------------------------------------------------------------------------------------
SHARED_NAMES = {"linux": "lib{}.so", "macos": "lib{}.dylib", "windows": "{}.dll"}
OBJECT_NAMES = {"linux": "{}.o", "macos": "{}.o", "windows": "{}.obj"}


def linker(target: ExportTarget) -> list[str] | None:
    """The command that makes a shared library of an object, or none where nothing fits."""
    if target.is_here:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler:
            return [compiler, "-shared"] if sys.platform != "darwin" else [compiler, "-dynamiclib"]
    if target.system == "linux":
        cross = shutil.which(f"{target.architecture}-linux-gnu-gcc")
        if cross:
            return [cross, "-shared"]
        lld = shutil.which("ld.lld")
        if lld:
            return [lld, "-shared"]
    return None


def link(command: list[str], objects: Sequence[tuple[str, bytes]], name: str) -> bytes:
    """The shared library of object code."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, (_, data) in enumerate(objects):
            path = Path(folder) / f"{number}.o"
            path.write_bytes(data)
            paths.append(str(path))
        made = Path(folder) / name
        extra = ["-Wl,-soname," + name] if command[0].endswith(("cc", "gcc", "clang")) and "-shared" in command else []
        try:
            subprocess.run([*command, *extra, "-o", str(made), *paths], check=True, capture_output=True, text=True,
                           timeout=LINK_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            told = getattr(error, "stderr", "") or str(error)
            raise fail(CompileError, "export", f"{command[0]} does not link the library: {told.strip()[:500]}",
                       "leave the shared library out with shared=False: the object is enough for a linker") from None
        return made.read_bytes()
