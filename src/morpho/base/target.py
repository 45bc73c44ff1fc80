"""The target of code generation as one frozen value: instruction set, caches, threads, kind of device.

It is made once, where a plan begins (`current_target`), and passed to lowering and to code generators; nothing below
asks the settings or the machine again. A target is data: one for another machine lowers as well as this one's.

>>> from morpho.base.machine import foreign_machine
>>> there = target_for("avx512", threads=8, machine=foreign_machine("x86_64"))
>>> there.isa.name, there.vector_bits, there.threads, there.kind
('avx512', 512, 8, 'cpu')
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

from morpho.base import settings
from morpho.base.machine import Isa, Machine, choose_isa
from morpho.base.machine import machine as this_machine

ALIGNMENT_BYTES = 64  # of all memory that kernels see: a line of the cache, and a vector of AVX-512


@dataclass(frozen=True, slots=True)
class Target:
    """Machine that code is compiled for. `kind` is the device's (`cpu`, `cuda`, `wasm`)."""

    kind: str
    isa: Isa
    machine: Machine
    threads: int

    @property
    def vector_bits(self) -> int:
        """Bits of a vector register; 0 for scalar code."""
        return self.isa.vector_bits

    @property
    def l1_bytes(self) -> int:
        """The first-level data cache of one core."""
        return self.machine.l1_bytes

    @property
    def l2_bytes(self) -> int:
        """The second-level cache of one core."""
        return self.machine.l2_bytes


@lru_cache(maxsize=64)
def target_for(isa: str = "native", threads: int = 1, machine: Machine | None = None, kind: str = "cpu") -> Target:
    """The target of that instruction set, on this machine or on another."""
    machine = machine or this_machine()
    return Target(kind, choose_isa(isa, machine), machine, threads)


def isa_named(name: str) -> Isa:
    """An instruction set of this machine, by the name it has in the settings."""
    return _chosen(name, this_machine())


_chosen = cache(choose_isa)


def current_isa() -> Isa:
    """The instruction set that code is made for."""
    return isa_named(settings.get().isa)


def wanted_threads() -> int:
    """How many threads a program may use here: the setting, or every core this process really has."""
    return settings.get().threads or this_machine().cores


def current_target() -> Target:
    """The target that the settings choose here, for whoever begins a plan."""
    return Target("cpu", current_isa(), this_machine(), wanted_threads())
