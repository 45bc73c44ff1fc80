"""Files of runs and traces with whatever in them: one damaged field hides no other run and ends no command."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from morpho.base.errors import ArgumentError
from morpho.observe.export import files
from morpho.observe.trace.merge import merged
from morpho.observe.trace.model import EventRow, MemoryRow, OpRow, SpanRow, Trace
from morpho.serve.dashboard.app import _finite
from morpho.serve.dashboard.sources import Sources

ODD = [None, True, "x", -1, 0, 1.5, [], {}, [1], {"a": 1}, 2 ** 70, 10 ** 400, math.nan, math.inf, -math.inf, 1e308,
       5e-324, "<script>"]


def _answer(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    sources = Sources([folder])
    run = sources.runs()["runs"][0]
    found = run, sources.curves([run["id"]])["curves"][run["id"]]
    return json.loads(json.dumps(_finite(found), allow_nan=False))  # what a browser can read


def test_a_run_with_odd_fields_is_shown(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{"time": 1.0, "event": "begin", "step": 0}, *(
        {"time": 1.0 + step, "step": step, "loss": 2.0, "lr": 1e-3, "tokens": 10, "seconds": 0.1, "held_out": 1.0,
         "parts": {"data": 0.1}, "resources": {"rss_bytes": 1, "threads": 2}} for step in (1, 2))]
    for number, line in enumerate(lines):
        for name in line:
            for odd in ODD:
                written = copy.deepcopy(lines)
                written[number][name] = odd
                (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, written)))
                (tmp_path / "run.json").write_text(json.dumps({"settings": {"steps": odd}}))
                run, curves = _answer(tmp_path)
                assert len(curves["loss"]) >= (0 if name in ("step", "loss") else 2), (name, odd)


def test_a_loss_of_nan_is_null_for_the_page(tmp_path: Path) -> None:
    steps = [{"time": 1.0, "step": step, "loss": loss, "held_out": loss} for step, loss in ((1, 2.0), (2, math.nan))]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, steps)))
    run, curves = _answer(tmp_path)
    assert curves["loss"] == [[1, 2.0], [2, None]] and run["best_held_out"] == 2.0 and run["loss"] is None


def _trace(rank: int = 0) -> Trace:
    return Trace(wall_s=1.0, ops=[OpRow("matmul", seconds=0.5, calls=2, limit_s=0.1)], counters={"a": 1.0},
                 seconds={"kernels": 0.5, "python": 0.5}, machine={"isa": "x"}, threads={1: "main"},
                 spans=[SpanRow("compile", "a", 1, 0.1, 0.2)], events=[EventRow("run", "a", 1, 0.0, 0.1, 0)],
                 memory=[MemoryRow(0.1, 10, 20)], holders=[("line", 1, 1)], stacks={"a;b": 0.1}, rank=rank)


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from _places(value[key], (*place, key))


def test_a_trace_with_an_odd_field_is_read_or_one_sentence(tmp_path: Path) -> None:
    plain = json.loads(json.dumps(_trace().as_json()))
    for place in _places(plain):
        for odd in ODD:
            changed = copy.deepcopy(plain)
            inner = changed
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = odd
            try:
                read = Trace.of(changed)
                both = merged([read, _trace(read.rank + 1)])
                for ending in files.ENDINGS:
                    written = files.save(both, tmp_path / f"out{ending}").read_bytes()
                    assert b"<script>" not in written or ending not in (".html", ".svg"), place
            except ArgumentError as error:
                assert "profile" in str(error)


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"version": 1, "threads": {"x": "a"}}'])
def test_no_trace_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ArgumentError):
        Trace.load(tmp_path / "a.json")
