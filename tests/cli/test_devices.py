"""`morpho doctor` and `morpho test-device`, where there is a GPU and where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from morpho.backends.cuda.driver import library
from morpho.backends.cuda.emulator.install import install
from morpho.cli.machine import device_test, doctor
from morpho.cli.main import app


def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_found", lambda: (None, "no NVIDIA driver is installed (libcuda.so.1 was not found)"))


def test_doctor_says_why_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    (row,) = [row for row in doctor.report() if row.section == "devices"]
    assert row.value.startswith("none: no NVIDIA driver")


def test_a_device_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    for arguments in (["test-device"], ["bench", "gpu"], ["run", "--device", "cuda", "Once"],
                      ["train", "--device", "cuda", "--out", "nowhere"]):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 1 and "no NVIDIA driver is installed" in str(done.exception or done.output)


def test_programs_on_an_emulated_gpu_are_right(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                               tmp_path: Path) -> None:
    monkeypatch.setattr(device_test, "CHECKOUT", tmp_path)  # the table of all ops has tests of its own
    chosen = ("arithmetic", "sum of all", "product on tensor cores", "random numbers", "quantised weights",
              "product of bytes")
    monkeypatch.setattr(device_test, "PROGRAMS", [p for p in device_test.PROGRAMS if p.name in chosen])
    assert device_test.test_device(install()) == 0
    said = capsys.readouterr().out
    assert "arithmetic                  bfloat16  right" in said
    assert "12 of 12 results on cuda_emulated:0 are right" in said
    broken = device_test.Program("broken", lambda x: x + (1 if x.device == "cpu" else 2))
    monkeypatch.setattr(device_test, "PROGRAMS", [broken])
    assert device_test.test_device(install()) == 1 and "off by" in capsys.readouterr().out


def test_run_on_a_device_gives_the_same_text() -> None:
    said = {}
    for device in ("", "reference"):
        chosen = ["--device", device] if device else []
        done = CliRunner().invoke(app, ["run", "Once", "--tokens", "3", "--seed", "1", *chosen])
        assert done.exit_code == 0, done.output
        said[device] = done.output.splitlines()[0]
    assert said[""] == said["reference"]
    done = CliRunner().invoke(app, ["run", "Once", "--device", "reference", "--nodes", "2"])
    assert done.exit_code == 1 and "--device is for one process" in str(done.exception or done.output)
