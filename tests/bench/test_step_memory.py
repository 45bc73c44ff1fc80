"""`benchmarks/step_memory.py` on a small network: checkpoints hold less than the plain step."""

from __future__ import annotations

import re

import pytest

from benchmarks import step_memory


def test_the_lines_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    step_memory.main(["--layers", "2", "--batch", "8", "--shares"], size=(6, 96, 6, 64, 8, 128))
    rows = re.findall(r"([\d.]+) MB  arena +([\d.]+) MB +([\d.]+) x", capsys.readouterr().out)
    totals, arenas, flops = (list(map(float, column)) for column in zip(*rows, strict=True))
    assert len(rows) == 2 and totals[1] < totals[0]
    assert arenas[1] < 0.8 * arenas[0], arenas
    assert flops[0] == 1 < flops[1] < 1.4
