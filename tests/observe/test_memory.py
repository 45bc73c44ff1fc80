"""`mo.memory`: who holds what by line, fragmentation, leaks; the soak in its quick form."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from benchmarks.observe import soak
from morpho.observe.memory.leaks import counts, watch_for_leaks
from morpho.runtime.memory import watch

HERE = Path(__file__).name


def test_lines_hold_memory_until_it_is_let_go() -> None:
    with mo.memory.track() as seen:
        x = mo.ones((512, 512)).realise()
        y = (x + 1).realise()
        held = {one.line: one for one in mo.memory.report().held if HERE in one.line}
        assert sum(one.bytes for one in held.values()) >= x.nbytes + y.nbytes and len(held) == 2
        del y
        after = [one for one in mo.memory.report().held if HERE in one.line and one.bytes >= x.nbytes]
        assert len(after) == 1
    assert seen.peak_bytes >= 2 * x.nbytes
    before = mo.memory.report().live_bytes
    del x
    assert mo.memory.report().live_bytes <= before - 512 * 512 * 4


def test_nothing_is_noted_outside() -> None:
    kept = mo.ones((300, 300)).realise()
    with mo.memory.track():
        pass
    again = (kept + 1).realise()
    assert not any(HERE in one.line and one.bytes >= again.nbytes for one in mo.memory.report().held)


def test_a_report_in_words() -> None:
    with mo.memory.track():
        x = mo.ones((256, 256)).realise()
        report = mo.memory.report()
    text = str(report)
    assert "in use" in text and "fragmentation" in text and HERE in text
    assert 0 <= report.fragmentation <= 1 and report.rss_bytes >= 0 and report.live_bytes >= x.nbytes


def test_arenas_of_compiled_functions_are_told() -> None:
    f = mo.compile(lambda x: mo.cumulative_sum(mo.softmax(x @ x, axis=-1), axis=0) @ x)
    f(mo.ones((256, 256)))
    assert mo.memory.report().arena_bytes > 0


def test_a_leak_is_found_and_named() -> None:
    kept: list[mo.Tensor] = []
    ones = np.ones(10_000, np.float32)
    found = {leak.what: leak for leak in watch_for_leaks(lambda: kept.append(mo.asarray(ones, copy=True)), 20, 2)}
    assert found["live bytes"].per_step >= 40_000 and found["tensors"].after - found["tensors"].before >= 20


@pytest.mark.parametrize(("wrong", "said"), [
    ((3, 10), "takes a function"), ((print, 0), "steps"), ((print, 2.5), "steps"), ((print, 5, -1), "warm_up"),
    ((print, True), "steps"), ((None, 1), "takes a function")])
def test_wrong_calls_are_one_sentence(wrong: tuple[Any, ...], said: str) -> None:
    with pytest.raises(mo.errors.ArgumentError, match=said):
        mo.memory.watch_for_leaks(*wrong)


def test_a_program_that_repeats_itself_collects_nothing() -> None:
    f = mo.compile(lambda x: mo.tanh(x) + 1)
    x = mo.ones(5000)
    assert watch_for_leaks(lambda: float(mo.sum(f(x))), 200) == []
    assert set(counts()) >= {"nodes", "programs", "plans", "live bytes"}


def test_the_soak_in_its_quick_form() -> None:
    """Every part of it, a few dozen steps: counters are flat. The long run is a command."""
    assert soak.main(["--steps", "24", "--quiet"]) == 0


def test_a_large_result_is_held_by_the_line_that_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a compiled function, sizes known and dynamic; and Morpho's frames in between are not looked at."""
    looked: list[str] = []

    class Counted(dict[str, bool]):
        def get(self, name: str, default: Any = None) -> Any:
            looked.append(name)
            return super().get(name, default)

    plain = mo.compile(lambda x: x * 2)
    dynamic = mo.compile(lambda x: x * 2, dynamic={"x": {0: mo.Dim("n", 1, 1024)}})
    x = mo.ones((256, 256)).realise()
    for f in (plain, dynamic):
        f(x)
        with mo.memory.track():
            f(x)  # by now the file is known
            monkeypatch.setattr(watch, "known_files", Counted(watch.known_files))
            looked.clear()
            kept = f(x)
            monkeypatch.undo()
            (line,) = [one.line for one in mo.memory.report().held if HERE in one.line and one.bytes >= kept.nbytes]
        assert linecache.getline(__file__, int(line.rpartition(":")[2])).strip() == "kept = f(x)"
        assert not {*looked} - {__file__} and kept.shape == (256, 256)
