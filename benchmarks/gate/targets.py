"""The machines that programs are lowered for: fixed, so that counts are the same wherever they are taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest import mock

from morpho.base import machine as machines
from morpho.base.machine import Isa, Machine, choose_isa, foreign_machine
from morpho.base.settings import settings
from morpho.base.target import target_for

THREADS = 4
SIZES = {"cores": THREADS, "l1_bytes": 32 << 10, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20, "memory_bytes": 16 << 30}


@dataclass(frozen=True)
class GateTarget:
    """An instruction set by name, of a machine with the sizes above."""

    isa_name: str
    architecture: str

    @property
    def machine(self) -> Machine:
        """The machine as Morpho would describe it."""
        return replace(foreign_machine(self.architecture), **SIZES)

    @property
    def isa(self) -> Isa:
        """The instruction set that LLVM is told, as it is chosen on such a machine: with inline assembly, if it has."""
        machine = self.machine  # asks for this one, which must be read as what it is
        with mock.patch.object(machines, "host_architecture", lambda: self.architecture):
            return choose_isa(self.isa_name, machine)

    @property
    def triple(self) -> str:
        """LLVM's name of the machine."""
        return f"{self.architecture}-unknown-linux-gnu"


TARGETS = {name: GateTarget(name, architecture) for name, architecture in (
    ("avx2", "x86_64"), ("avx512", "x86_64"), ("amx", "x86_64"), ("neon", "aarch64"))}


@contextmanager
def lowering_for(target: GateTarget, **chosen: object) -> Iterator[None]:
    """Lower for that machine inside the block. Nothing may run there: its code is another machine's."""
    machine = target.machine
    with (mock.patch.object(machines, "host_architecture", lambda: target.architecture),
          mock.patch.object(machines, "read_machine", lambda *_: machine),
          mock.patch.object(machines, "_darwin_machine", lambda: machine)):
        _forget()
        try:
            with settings(isa=target.isa_name, threads=THREADS, **chosen):
                yield
        finally:
            _forget()


def _forget() -> None:
    """What is remembered of this machine, and of the one that took its place."""
    machines.machine.cache_clear()
    target_for.cache_clear()
