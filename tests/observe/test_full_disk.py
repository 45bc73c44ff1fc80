"""A disk without room while profiles, traces, figures, caches, choices and checkpoints are written: one sentence or a
loss that is said, and what was there before is as it was. The limit is the system's own, of a file's size."""

from __future__ import annotations

import json
import logging
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.cost.tuned_choices import Choice
from morpho.observe.export import files, symbols
from morpho.observe.runs import RunLog, known
from morpho.observe.trace.model import OpRow, SpanRow, Trace
from morpho.runtime.tuner import store
from morpho.weights.errors import StorageError

SPANS = [SpanRow("user", f"span {number}", 1, 0.001 * number, 0.001) for number in range(300)]


@contextmanager
def room(nbytes: int) -> Iterator[None]:
    """No file grows beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def refused(write: Callable[[], Any], nbytes: int = 700) -> None:
    with room(nbytes), pytest.raises(StorageError) as told:
        write()
    assert "cannot be written" in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize("ending", files.ENDINGS)
def test_an_earlier_report_is_as_it_was(ending: str, tmp_path: Path) -> None:
    found = Trace("long", 1.0, [OpRow(f"exp{number}", calls=1, seconds=0.01) for number in range(20)],
                  {"kernels": 1.0}, spans=SPANS, stacks={f"f (a.py:{number})": 0.1 for number in range(9)})
    place = files.save(Trace("short", 1.0), tmp_path / f"a{ending}")
    before = place.read_bytes()
    refused(lambda: files.save(found, place))
    assert place.read_bytes() == before and list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("write", [symbols.write_perf_map, symbols.write_jitdump])
def test_symbols_are_whole_or_not_there(write: Callable[[Path], Path], tmp_path: Path) -> None:
    mo.compile(lambda x: mo.sin(x) * 4)(mo.ones(10))
    refused(lambda: write(tmp_path), 50)
    assert not list(tmp_path.iterdir()) and write(tmp_path).stat().st_size > 50


def test_figures_of_a_run_end_with_a_whole_line(tmp_path: Path) -> None:
    said: list[str] = []
    log = RunLog(tmp_path, say=said.append)
    log.step(1, 2.0, 0.1, tokens=1, seconds=0.1)
    log._flush()
    with room(log.path.stat().st_size + 100):
        for step in range(2, 9):
            log.step(step, 2.0, 0.1, tokens=1, seconds=0.1)
        log._flush()
    log.step(9, 2.0, 0.1, tokens=1, seconds=0.1)
    log.close()
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert lines[-1]["step"] == 1 and len(said) == 1 and "training goes on without it" in said[0]


def test_the_list_of_runs_keeps_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mo.settings(cache_dir=str(tmp_path)):
        known.remember(tmp_path)
        before = known.list_path().read_bytes()
        for most in (known.MOST_BYTES, len(before) - 1):  # a line more; the older half goes first
            monkeypatch.setattr(known, "MOST_BYTES", most)
            with room(len(before) // 2):
                known.remember(tmp_path)
            assert known.list_path().read_bytes() == before and known.folders() == [tmp_path]


def test_event_files_are_given_up_and_training_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The library's thread ends by the error; nobody waits for it, in a step or at the end."""
    pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")
    from morpho.observe.runs.tensorboard import Events

    events = Events(tmp_path)
    with pytest.MonkeyPatch.context() as here, room(0):
        here.setattr("threading.excepthook", lambda failure: None)
        for step in range(100):
            events.step(step, {"loss/train": 1.0})
            if events._lost:
                break
            time.sleep(0.001)
        events.close()
    assert sum("event files" in line for line in caplog.messages) == 1


def test_a_cache_gives_values_and_keeps_those_it_had(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    large = np.arange(10_000)
    mo.cache(disk=tmp_path).put("before", 7)
    with caplog.at_level(logging.WARNING), room(1000):
        cache = mo.cache(disk=tmp_path)
        assert np.array_equal(cache.get_or_create("large", lambda: large), large)
        cache.put("small", 8)
        cache.put("larger", np.tile(large, 2))
    assert len([line for line in caplog.messages if "disk cache" in line]) == 1, caplog.messages
    again = mo.cache(disk=tmp_path)
    assert (again.get("before"), again.get("large"), again.get("small")) == (7, None, 8)
    assert again.stats()["disk"]["corrupt"] == 0 and not list(tmp_path.glob("**/*.tmp"))


def test_choices_of_the_tuner_stay(tmp_path: Path) -> None:
    rows = {f"matmul float32 {number}": store.Row(Choice(tile_rows=16), 1.3, 5) for number in range(40)}
    with mo.settings(cache_dir=str(tmp_path)):
        one = dict(list(rows.items())[:1])
        store.keep(one)
        with room(900), pytest.raises(mo.errors.MorphoError, match="cannot be written"):
            store.keep(rows)
        store._kept.cache_clear()
        assert store.kept().rows == one and [path.name for path in tmp_path.iterdir()] == [store.FILE]
    store._kept.cache_clear()


def test_a_function_is_compiled_and_an_earlier_checkpoint_is_whole(tmp_path: Path) -> None:
    place = tmp_path / "w.safetensors"
    mo.weights.save(place, {"w": mo.ones(4)})
    with mo.settings(cache_dir=str(tmp_path / "cache")), room(500):
        f = mo.compile(lambda x: mo.cos(x) * 3.5 + 0.125)
        assert f(mo.zeros(3)).tolist() == [3.625] * 3
        with pytest.raises(StorageError, match="cannot be written"):
            mo.weights.save(place, {"w": mo.ones(4000)})
    assert mo.weights.load(place)["w"].tolist() == [1.0] * 4 and not list(tmp_path.glob(".*"))
