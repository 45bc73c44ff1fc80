"""Kernels compiled in several processes: the same code, and nothing lost when a process fails."""

from __future__ import annotations

import logging
import sys

import pytest

from morpho.backends import cpu
from morpho.runtime import compile_many as many
from morpho.runtime.code import current_isa


def module(number: int) -> str:
    return f"define double @f{number}(double %x) {{\n  %y = fmul double %x, {number}.5\n  ret double %y\n}}\n"


TEXTS = [module(number) for number in range(9)]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes, however little there is to do."""
    monkeypatch.setattr(many, "_processes", lambda characters: 2)
    monkeypatch.setattr(many, "STARTING", 0)
    many._say_failed.cache_clear()


def test_shares_are_even_and_whole() -> None:
    shares = many.divide([10, 20, 30, 40, 1_000_000, 7], 3)
    assert sorted(number for share in shares for number in share) == [*range(6)]
    assert [4] in shares
    assert many.divide([1, 2], 3) == [[1, 0]] and many.divide([], 2) == [[]]


def test_a_process_gives_the_same_code(eager: None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "morpho"):
        found = many.compile_many(TEXTS, current_isa())
    assert found == [cpu.compile_text(text, current_isa()) for text in TEXTS]
    assert not caplog.records


@pytest.mark.parametrize("executable", ["/bin/false", "/no/such/python"])
def test_a_process_that_fails_is_replaced(executable: str, eager: None, monkeypatch: pytest.MonkeyPatch,
                                          caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with caplog.at_level(logging.WARNING, "morpho"):
        found = many.compile_many(TEXTS, current_isa())
    assert found == [cpu.compile_text(text, current_isa()) for text in TEXTS]
    assert len(caplog.records) == 1


def test_little_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many.subprocess, "Popen", lambda *a, **k: pytest.fail("no process is worth it"))
    assert len(many.compile_many(TEXTS[:2], current_isa())) == 2
