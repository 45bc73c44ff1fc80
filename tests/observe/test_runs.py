"""What runs write: `metrics.jsonl`, event files read back by their format, and runs read however they went."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from dashboards import written_run
from typer.testing import CliRunner

from morpho.base.errors import ArgumentError
from morpho.cli.main import app
from morpho.models import training
from morpho.observe.runs import FILE, RunLog, read_run, reading
from morpho.observe.runs.known import folders
from morpho.observe.runs.reading import RunReader
from morpho.observe.runs.tensorboard import Events
from morpho.weights.errors import MissingExtra

TINY = ["--layers", "1", "--width", "16", "--heads", "2", "--vocabulary", "270", "--context", "16", "--batch", "2",
        "--steps", "6", "--warmup", "1", "--seed", "1", "--sample-every", "0"]


# -- the record format of event files, from its description ------------------------------------------------------------
def crc32c(data: bytes) -> int:
    """Castagnoli's polynomial, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(content: bytes) -> Iterator[bytes]:
    """The payloads of a file of records: length, its checksum, payload, its checksum."""
    place = 0
    while place < len(content):
        head = content[place:place + 8]
        (length,), (check,) = struct.unpack("<Q", head), struct.unpack_from("<I", content, place + 8)
        payload = content[place + 12:place + 12 + length]
        assert masked(head) == check and len(payload) == length
        assert masked(payload) == struct.unpack_from("<I", content, place + 12 + length)[0]
        place += 16 + length
        yield payload


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field of a protocol buffer."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(message):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            yield number, varint()
        elif kind == 2:
            length = varint()
            yield number, message[place:place + length]
            place += length
        else:
            size, form = (8, "<d") if kind == 1 else (4, "<f")
            yield number, struct.unpack_from(form, message, place)[0]
            place += size


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) by tag: event.step is field 2, .summary 5, summary.value 1, value.tag 1 and .simple_value 2."""
    found: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(folder.glob("events.out.tfevents.*")):
        for payload in records(file.read_bytes()):
            event = dict(fields(payload))
            for _, value in fields(event.get(5, b"")):
                parts = dict(fields(value))
                found.setdefault(parts[1].decode(), []).append((event.get(2, 0), parts[2]))
    return found


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283


# -- a run from the command line ---------------------------------------------------------------------------------------
def test_train_writes_its_figures_and_shows_them_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")
    text, out, events = tmp_path / "text.txt", tmp_path / "model", tmp_path / "events"
    text.write_text("Once upon a time there was a cat, and the cat was fat. " * 60, encoding="utf-8")
    shown: list[dict[str, Any]] = []
    printed: list[str] = []
    plain = training.Run.batch

    def batch(self: training.Run, step: int) -> object:
        if step == 2:
            address = printed[-1].split()[-1]
            url, _, token = address.partition("/#token=")
            with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as client:
                shown.append(client.get("/api/live").json())
                shown.append(client.get("/api/runs").json())
        return plain(self, step)

    monkeypatch.setattr(training.Run, "batch", batch)
    monkeypatch.setattr("morpho.cli.server.dashboard.print", lambda text, **more: printed.append(text), raising=False)
    words = ["train", "--data", str(text), "--out", str(out), *TINY, "--until", "4", "--tensorboard", str(events),
             "--dashboard"]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0, found.output
    live, runs = shown
    assert live["process"] and live["samples"] and live["metrics"]["morpho_train_tokens"]["values"][0]["value"] >= 32
    assert [run["name"] for run in runs["runs"]] == ["model"]
    found = CliRunner().invoke(app, ["train", "--out", str(out), "--resume", "--tensorboard", str(events)])
    assert found.exit_code == 0, found.output
    lines = [json.loads(line) for line in (out / FILE).read_text().splitlines()]
    losses = [json.loads(line) for line in (out / "losses.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines if "event" in line] == ["begin", "resume"]
    steps = [line for line in lines if "event" not in line]
    assert [(line["step"], line["loss"], line["lr"]) for line in steps] \
        == [(line["step"], line["loss"], line["lr"]) for line in losses]
    assert set(steps[0]["parts"]) == {"data", "step", "check", "save"} and steps[0]["resources"]["rss_bytes"] > 1 << 20
    written = scalars(events)
    assert [step for step, _ in written["loss/train"]] == [1, 2, 3, 4, 5, 6]
    assert [value for _, value in written["loss/train"]] == pytest.approx([line["loss"] for line in losses], abs=1e-4)
    assert {"rate/learning", "speed/tokens_per_s", "seconds/step", "loss/held_out"} <= set(written)
    assert out.resolve() in folders()
    record = read_run(out)
    assert record is not None and len(record.steps) == 6 and record.settings["layers"] == 1 and not record.is_live


# -- reading -----------------------------------------------------------------------------------------------------------
def test_steps_made_again_count_once_and_half_a_line_not_at_all(tmp_path: Path) -> None:
    now = [100.0]
    for begin, steps in ((0, 5), (3, 4)):  # killed after step 5, of which a checkpoint had 3
        with RunLog(tmp_path, begin, clock=lambda: now[0]) as log:
            for step in range(begin + 1, begin + 1 + steps):
                now[0] += 1
                log.step(step, 10 * (begin + 1) + step, 0.1, tokens=10, seconds=0.5)
    with open(tmp_path / FILE, "ab") as file:
        file.write(b'not json\n[1]\n{"step":99,"lo')
    record = read_run(tmp_path)
    assert record is not None
    assert [(one["step"], one["loss"]) for one in record.steps] \
        == [(1, 11), (2, 12), (3, 13), (4, 44), (5, 45), (6, 46), (7, 47)]
    assert record.begun == 100 and record.ended == 109
    assert record.summary()["tokens_per_s"] == 20


def test_lines_that_were_read_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a million steps is looked at every few seconds."""
    def line(step: int, loss: float) -> bytes:
        return json.dumps({"step": step, "loss": loss, "time": 100.0 + step}).encode() + b"\n"

    parsed: list[bytes] = []
    lines = reading._lines
    monkeypatch.setattr(reading, "_lines", lambda content: lines(parsed.append(content) or content))
    path, reader = tmp_path / FILE, RunReader(tmp_path)
    path.write_bytes(b"".join(line(step, 1.0) for step in range(1, 101)))
    assert len(reader.read().steps) == 100
    with path.open("ab") as file:
        file.write(line(101, 2.0) + line(102, 3.0)[:9])
    assert reader.read().steps[-1]["step"] == 101 and parsed[-1] == line(101, 2.0) + line(102, 3.0)[:9]
    with path.open("ab") as file:
        file.write(line(102, 3.0)[9:])
    assert [one["loss"] for one in reader.read().steps[-2:]] == [2.0, 3.0] and parsed[-1] == line(102, 3.0)
    with path.open("ab") as file:
        file.write(b'{"event":"resume","step":50,"time":300}\n' + line(51, 9.0))
    assert [one["step"] for one in reader.read().steps] == list(range(1, 52))
    path.write_bytes(line(1, 7.0))  # another run in its place: shorter, then longer, then another file
    assert [one["loss"] for one in reader.read().steps] == [7.0] == [one["loss"] for one in read_run(tmp_path).steps]
    path.write_bytes(b"x" * 40 + line(2, 5.0) * 3)
    assert [one["step"] for one in reader.read().steps] in ([2], [])
    (tmp_path / "new").write_bytes(line(8, 5.0) * 200)
    (tmp_path / "new").rename(path)
    assert [one["step"] for one in reader.read().steps] == [8]


def test_of_a_file_that_is_too_large_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_BYTES", 1000)
    rows = [json.dumps({"step": step, "loss": 1.0}) + "\n" for step in range(1, 201)]
    (tmp_path / FILE).write_text("".join(rows))
    steps = [one["step"] for one in read_run(tmp_path).steps]
    assert steps and steps == list(range(steps[0], 201)) and len("".join(rows[steps[0] - 1:])) <= 1000


@pytest.mark.parametrize("name", [FILE, "losses.jsonl", "run.json"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    if name == "run.json":
        (tmp_path / FILE).write_text('{"step":1,"loss":3.0}\n')
    os.mkfifo(tmp_path / name)
    record = read_run(tmp_path)
    assert record is None if name != "run.json" else len(record.steps) == 1


def test_curves_are_bounded_and_mean_what_they_stand_for(tmp_path: Path) -> None:
    record = read_run(written_run(tmp_path / "run", steps=2000, planned=2000))
    assert record is not None
    curves = record.curves(most=100)
    assert len(curves["loss"]) == 100 == len(curves["tokens_per_s"]) and curves["loss"][-1][0] == 2000
    first = [one["loss"] for one in record.steps[:20]]
    assert curves["loss"][0][1] == pytest.approx(sum(first) / 20)
    assert curves["parts"]["step"] == pytest.approx(0.18)
    json.dumps(curves, allow_nan=False)


def test_a_run_of_an_earlier_version_is_read_from_its_losses(tmp_path: Path) -> None:
    (tmp_path / "losses.jsonl").write_text('{"step":1,"loss":3.0,"lr":0.1}\n{"step":2,"loss":2.0,"lr":0.1}\n')
    record = read_run(tmp_path)
    assert record is not None and record.summary()["step"] == 2 and record.summary()["tokens_per_s"] is None
    assert read_run(tmp_path / "nothing") is None


def test_a_log_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    said: list[str] = []
    with RunLog(tmp_path, say=said.append) as log:
        for step in range(3):
            log.step(step, 1.0, 0.1, tokens=1, seconds=0.1)
    assert len(said) == 1 and "training goes on without it" in said[0]


def test_event_files_need_a_folder_and_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match="cannot take event files"):
        Events(tmp_path / "file")
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(MissingExtra, match=r"\[tensorboard\]"):
        Events(tmp_path)
