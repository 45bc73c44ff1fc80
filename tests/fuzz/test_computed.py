"""Indices, masks and bounds that are results of other operations: 1,500 programs with `--exhaustive`, a fifth of them
otherwise, and as many as there is time for by `python -m benchmarks.fuzz --kind computed`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from computed import Program, check, fails, lazily, minimised, random_program

from morpho.backends.cuda.emulator.install import install

TOGETHER = 15  # programs of one compiled function
BATCHES = 100
LEVELS = (3, 2, 3, 1, 3, 0)


@pytest.mark.parametrize("part", range(4))
def test_computed_operands(part: int, session_seed: int, sample: Callable[..., Any]) -> None:
    for number in sample(range(part, BATCHES, 4)):
        first = session_seed + number * TOGETHER
        check([random_program(seed) for seed in range(first, first + TOGETHER)], LEVELS[number % len(LEVELS)])


def test_computed_operands_on_the_emulated_gpu(session_seed: int, sample: Callable[..., Any]) -> None:
    for number in sample(range(10)):
        first = session_seed + 1_000_000 + number * 4
        check([random_program(seed) for seed in range(first, first + 4)], 3, install())


def test_a_failing_program_is_minimised_to_a_few_lines() -> None:
    """With a fault put in: reading at an index that went through `mo.flip` counts as wrong."""
    program = next(program for program in map(random_program, range(1000))
                   if len(program.lines) > 6 and any("flip" in line for line in program.lines)
                   and fails(program, faulty))
    small = minimised(program, faulty)
    assert len(small.lines) <= 2 and "flip" in small.text()
    assert fails(small, faulty) and not fails(small, lazily)


def faulty(program: Program) -> list[bytes]:
    found = lazily(program)
    return [b"" for _ in found] if any("flip" in line for line in program.lines) else found


@pytest.mark.parametrize("seed", [15, 20, 54])  # an index looked up in `mo.arange` read or wrote position 0 alone
def test_programs_that_failed_once(seed: int) -> None:
    program = random_program(seed)
    assert not fails(program, lazily)
    assert all(isinstance(array, np.ndarray) for array in program.inputs.values())
