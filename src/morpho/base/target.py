"""What is in force here: what the settings choose, or what the machine has."""

from __future__ import annotations

from functools import cache

from morpho.base import settings
from morpho.base.machine import Isa, choose_isa, machine


def isa_named(name: str) -> Isa:
    """An instruction set of this machine, by the name it has in the settings."""
    return _chosen(name, machine())


_chosen = cache(choose_isa)


def current_isa() -> Isa:
    """The instruction set that code is made for."""
    return isa_named(settings.get().isa)


def wanted_threads() -> int:
    """How many threads a program may use here: the setting, or every core this process really has."""
    return settings.get().threads or machine().cores
