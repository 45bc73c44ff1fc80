"""Programs that write in place, in every form, against NumPy."""

from __future__ import annotations

import pytest
from statements import random_statements, run_statements

FAILED = (6,)  # seeds that found something: a view of what a turn had written in place


@pytest.mark.parametrize("seed", FAILED)
def test_what_failed_once(seed: int) -> None:
    run_statements(seed)


def test_statements(session_seed: int) -> None:
    """`python benchmarks/fuzz.py --kind statements` runs as many as you like."""
    run_statements(session_seed % 100_000 // 4 * 4)
    run_statements(session_seed % 100_000 // 4 * 4 + 3)


def test_a_seed_is_one_program() -> None:
    """And every kind of statement is met."""
    texts = [random_statements(seed, seed % 4 == 3).text() for seed in range(60)]
    assert texts == [random_statements(seed, seed % 4 == 3).text() for seed in range(60)]
    for part in ("::", ":-", "m.roll", "m.concat", "m.stack", "m.pad", "m.at", "+= ", "[i]", " > ", "m.value(v"):
        assert any(part in text for text in texts), part
