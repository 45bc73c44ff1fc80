"""Targets of an export by name: what LLVM compiles for, and the instruction set that kernels are lowered for.

>>> named("x86_64-avx2").triple, named("aarch64-neon-macos").triple
('x86_64-unknown-linux-gnu', 'arm64-apple-macosx11.0.0')
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

from morpho.base import settings
from morpho.base.errors import ArgumentError, fail
from morpho.base.machine import Isa, foreign_machine, host_architecture
from morpho.base.target import Target, current_target, target_for

WASM_ISA = Isa("wasm_simd128", "wasm32", 128, "generic", "+simd128,+bulk-memory,+sign-ext,+nontrapping-fptoint",
               frozenset())
SYSTEMS = {"linux": {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"},
           "macos": {"x86_64": "x86_64-apple-macosx11.0.0", "aarch64": "arm64-apple-macosx11.0.0"},
           "windows": {"x86_64": "x86_64-pc-windows-msvc", "aarch64": "aarch64-pc-windows-msvc"}}
SETS = {"x86_64-avx2": ("avx2", "x86_64"), "x86_64-avx512": ("avx512", "x86_64"), "x86_64-amx": ("amx", "x86_64"),
        "aarch64-neon": ("neon", "aarch64")}
WASM = ("wasm32-simd128", "wasm32-relaxed", "wasm32-fast")
MULTI = {"x86_64": ("x86_64-avx2", "x86_64-avx512")}  # one library, its code chosen when it is first called
NAMES = ("native", *SETS, *MULTI, *WASM)


@dataclass(frozen=True)
class ExportTarget:
    """A system, an instruction set or several, and LLVM's name for them."""

    name: str
    triple: str
    system: str  # linux, macos, windows or wasm
    isas: tuple[Isa, ...]  # several: the best the machine has is taken when the library is first called
    fused: str = "hardware"  # wasm: exact, relaxed or fast

    @property
    def is_wasm(self) -> bool:
        return self.system == "wasm"

    @property
    def pointer_bytes(self) -> int:
        return 4 if self.is_wasm else 8

    @property
    def is_here(self) -> bool:
        """Whether this machine links and runs it."""
        return self.system == _host_system() and self.architecture == host_architecture()

    @property
    def architecture(self) -> str:
        return self.isas[0].architecture

    def lowering(self, isa: Isa, threads: int) -> Target:
        """The target that graphs are lowered for."""
        here = current_target()
        if isa == here.isa:
            return Target("cpu", isa, here.machine, threads)
        machine = foreign_machine(isa.architecture, frozenset(isa.needs))
        return Target("wasm" if self.is_wasm else "cpu", isa, machine, threads)


def _host_system() -> str:
    return {"linux": "linux", "darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform)


def named(name: str) -> ExportTarget:
    """The target of a name; a system other than Linux is named behind it (`x86_64-avx2-windows`)."""
    if name == "native":
        isa = current_target().isa
        return _native(isa, settings.get().isa)
    return _foreign(name)


@cache
def _native(isa: Isa, _: Any) -> ExportTarget:
    system = _host_system()
    triples = SYSTEMS.get(system, {})
    if isa.architecture not in triples:
        raise fail(ArgumentError, "export", f"there is no object format for {isa.architecture} on {system}",
                   f"name a target: {', '.join(NAMES)}")
    return ExportTarget("native", triples[isa.architecture], system, (isa,))


@cache
def _foreign(name: str) -> ExportTarget:
    if name in WASM:
        fused = {"wasm32-simd128": "exact", "wasm32-relaxed": "relaxed", "wasm32-fast": "fast"}[name]
        isa = WASM_ISA if fused != "relaxed" else Isa(
            WASM_ISA.name, "wasm32", 128, "generic", WASM_ISA.llvm_features + ",+relaxed-simd", frozenset())
        return ExportTarget(name, "wasm32-unknown-unknown", "wasm", (isa,), fused)
    base, dash, system = name.rpartition("-")
    if not dash or system not in SYSTEMS:
        base, system = name, "linux"
    sets = MULTI.get(base, (base,) if base in SETS else ())
    if not sets:
        raise fail(ArgumentError, "export", f"there is no target {name!r}",
                   f"use {', '.join(NAMES)}; -macos or -windows behind a name of x86_64 and aarch64")
    isas = tuple(_isa_of(each) for each in sets)
    return ExportTarget(name, SYSTEMS[system][isas[0].architecture], system, isas)


def _isa_of(name: str) -> Isa:
    isa, architecture = SETS[name]
    # The least machine that has the set: features beyond it are not promised by the name.
    from morpho.base.machine import ISAS

    return target_for(isa, 1, foreign_machine(architecture, frozenset(ISAS[isa].needs))).isa
