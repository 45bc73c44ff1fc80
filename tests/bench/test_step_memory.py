"""`benchmarks/step_memory.py` on a small network: checkpoints hold less than the plain step."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "step_memory.py"


def test_the_lines_it_prints(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    specification = importlib.util.spec_from_file_location("memory_benchmark", PATH)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    monkeypatch.setattr(module, "VOCABULARY", 512)
    monkeypatch.setattr(sys, "argv", ["step_memory.py", "--layers", "2", "--batch", "8", "--shares"])
    module.main()
    rows = re.findall(r"([\d.]+) MB  arena +([\d.]+) MB +([\d.]+) x", capsys.readouterr().out)
    totals, arenas, flops = (list(map(float, column)) for column in zip(*rows, strict=True))
    assert len(rows) == 2 and totals[1] < totals[0]
    assert arenas[1] < 0.7 * arenas[0], arenas
    assert flops[0] == 1 < flops[1] < 1.4
