"""The doctor: examines everything, imports nothing, never faints."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from morpho.base import machine as machines
from morpho.base import settings as base_settings
from morpho.base.settings import describe, settings
from morpho.cli.machine import doctor

ROOT = Path(__file__).resolve().parents[2]


def _find(rows: list[doctor.Row], section: str, name: str) -> doctor.Row:
    return next(row for row in rows if (row.section, row.name) == (section, name))


def test_the_report_is_rows_of_text() -> None:
    rows = doctor.report()
    for section, name, value, advice in rows:
        assert section and name and value
        assert all(isinstance(text, str) for text in (section, name, value, advice))
    sections = list(dict.fromkeys(row.section for row in rows))
    assert sections == ["machine", "devices", "instructions", "versions", "cache", "pool", "settings", "optional"]
    assert not [row for row in rows if row.name == "error"]
    assert {row.name for row in rows if row.section == "settings"} == set(describe)


def test_cores_say_why_some_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr(machines, "allowed_cores", lambda: 8)
    monkeypatch.setattr(machines, "quota_cores", lambda: 2.5)
    row = doctor._core_row(3)
    assert row.value == "3 usable of 64 present"
    assert row.advice.startswith("the affinity mask allows 8 and the cgroup quota grants 2.5;")


def test_a_narrow_choice_is_pointed_out() -> None:
    with settings(isa="scalar"):
        row = _find(doctor.report(), "instructions", "chosen")
    assert row.value.startswith("scalar") and "narrower than" in row.advice


def test_an_impossible_choice_is_reported_not_raised() -> None:
    wrong = "avx2" if machines.machine().architecture == "aarch64" else "neon"
    with settings(isa=wrong):
        rows = doctor.report()
    assert f"{wrong} is for" in _find(rows, "instructions", "error").value
    assert _find(rows, "versions", "python").value.startswith(f"{sys.version_info.major}.")


def test_a_wrong_variable_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops several sections, each of which points to the first."""
    monkeypatch.setenv("MORPHO_LEVEL", "9")
    monkeypatch.setattr(base_settings, "_base", None)
    errors = [row for row in doctor.report() if row.name == "error"]
    assert len(errors) >= 3
    assert [row.section for row in errors if "level 9" in row.value] == ["instructions"]
    assert {row.value for row in errors[1:]} == {"the same as under instructions"}
    assert errors[0].value.endswith("At the environment's MORPHO_* variables.")


def test_the_cache_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "object").write_bytes(b"x" * 1500)
    with settings(cache_dir=str(tmp_path), cache=False):
        rows = doctor.report()
    assert _find(rows, "cache", "size").value.startswith("1.5 kB of ")
    assert _find(rows, "cache", "writable").value == "yes"
    assert "switched off" in _find(rows, "cache", "folder").advice
    with settings(cache_dir="/proc/nowhere/at/all"):
        row = _find(doctor.report(), "cache", "writable")
    assert (row.value, bool(row.advice)) == ("no", True)


def test_missing_parts_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_found", lambda distribution, module: "")
    rows = {row.name: row for row in doctor.report() if row.section == "optional"}
    assert list(rows) == list(doctor.OPTIONAL)
    for name, row in rows.items():
        assert row.value == f"not installed (for {doctor.OPTIONAL[name].purpose})"
        wanted = "pip install -e '.[bench]'" if name == "bench" else f"pip install 'morpho-tensor[{name}]'"
        assert row.advice == wanted
    monkeypatch.setattr(doctor, "_found", lambda distribution, module: "1.2" if distribution == "gguf" else "")
    row = _find(doctor.report(), "optional", "models")
    assert row.value.startswith("gguf 1.2; missing: tokenizers, jinja2 (for ") and row.advice
    monkeypatch.setattr(doctor, "_found", lambda distribution, module: "1.2")
    assert not [row for row in doctor.report() if row.section == "optional" and row.advice]


def test_present_parts_say_their_version() -> None:
    assert doctor._found("numpy", "numpy")[0].isdigit()
    assert doctor._found("no-such-distribution", "no_such_module") == ""
    assert doctor._found("no-such-distribution", "json") == "found"
    assert doctor._found("no-such-distribution", "no_such.module") == ""


def test_the_optional_parts_are_those_of_the_project() -> None:
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(doctor.OPTIONAL) == set(extras) - {"test", "docs"}  # these two are for work on the checkout
    for extra, (_, parts) in doctor.OPTIONAL.items():
        for distribution, _ in parts:
            assert any(line.startswith(distribution) for line in extras[extra]), (extra, distribution)


def test_a_broken_section_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> machines.Machine:
        raise OSError("no such machine")

    monkeypatch.setattr(machines, "machine", broken)
    rows = doctor.report()
    assert "no such machine" in _find(rows, "machine", "error").value
    assert any(row.section == "optional" for row in rows)


def test_the_report_loads_neither_llvm_nor_extras() -> None:
    code = (
        "import sys\nfrom morpho.cli.machine.doctor import report\nreport()\n"
        "heavy = {'llvmlite', 'rich', 'torch', 'jax', 'mpi4py', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert [row for row in report(llvm=True) if row.name == 'LLVM']"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_show_prints_brackets_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_found", lambda distribution, module: "")
    doctor.show(llvm=False)
    text = capsys.readouterr().out
    assert "processor" in text and "morpho-tensor[models]" in text


def test_show_without_rich(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    doctor.show(llvm=False)
    assert "processor" in capsys.readouterr().out


LONG = "/a-home/" + "folder-of-projects/" * 8 + "cache"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_path_is_shown_in_one_piece(is_terminal: bool) -> None:
    from rich.console import Console

    file = io.StringIO()
    rows = [doctor.Row("cache", "folder", f"it is {LONG}", f"look at {LONG} or elsewhere")]
    doctor._show_with(Console(file=file, width=80, force_terminal=is_terminal, color_system=None), rows)
    assert file.getvalue().count(LONG) == 2
    assert len(file.getvalue().strip().splitlines()) == (6 if is_terminal else 3)
