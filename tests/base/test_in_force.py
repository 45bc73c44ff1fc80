"""The threads and the instruction set in force: the settings', or the machine's."""

from __future__ import annotations

import pytest

from morpho.base.errors import MorphoError
from morpho.base.machine import choose_isa, machine
from morpho.base.settings import settings
from morpho.base.target import current_isa, isa_named, wanted_threads


def test_threads_are_those_of_the_settings_or_every_core() -> None:
    with settings(threads=3):
        assert wanted_threads() == 3
    with settings(threads=0):
        assert wanted_threads() == machine().cores


def test_the_instruction_set_is_the_settings() -> None:
    with settings(isa="scalar"):
        assert current_isa().vector_bits == 0 and current_isa() is isa_named("scalar")
    with settings(isa="native"):
        assert current_isa() == choose_isa("native", machine())


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(MorphoError, match="abacus"):
        isa_named("abacus")
