"""What a trace becomes: Perfetto's JSON, flame graph, HTML, text, symbols for perf."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree as xml
from itertools import pairwise
from pathlib import Path

import pytest

import morpho as mo
from morpho.backends.driver import executable as driver
from morpho.observe.export import files, flame, html, perfetto, symbols, text
from morpho.observe.trace.model import EventRow, MemoryRow, OpRow, SpanRow, Trace


@pytest.fixture
def trace() -> Trace:
    """Two threads, a loop with a product in it, compiling, a device, names that must be escaped."""
    ops = [OpRow("matmul+<b>&", "dir/a.py:3", "step", seconds=0.5, busy_s=0.9, shared_s=0.5, calls=10, threads=2,
                 flops=1e9, bytes=1e8, limit_s=0.4, bound="compute"),
           OpRow("eigh", "a.py:9", "step", "host", seconds=0.1, calls=1)]
    events = [EventRow("run", "step", 11, 0.1, 0.6), EventRow("step", "matmul+<b>&", 11, 0.1, 0.5, 0),
              EventRow("work", "matmul+<b>&", 12, 0.12, 0.4, 0), EventRow("step", "eigh", 11, 0.6, 0.1, 1)]
    spans = [SpanRow("compile", "9 nodes", 11, 0.0, 0.1, {"nodes": 9, "odd": object()}),
             SpanRow("device", "gpu: 3 nodes", 0, 0.2, 0.1, {"on_device": True, "device": "gpu:0"})]
    return Trace("run & <go>", 1.0, ops, {"kernels": 0.5, "host": 0.1, "compile": 0.1, "python": 0.3},
                 {"native_calls": 10}, {"isa": "avx2", "flops_per_s": 1e9, "bytes_per_s": 1e9}, spans, events,
                 {11: "MainThread", 12: "morpho-1"}, [MemoryRow(0.0, 0, 10), MemoryRow(1.0, 5 << 20, 20 << 20)],
                 5 << 20, 0.5, [("a.py:4", 4 << 20, 2)], {"main;f (<a>.py:1);g": 0.7, "main;h": 0.3})


def test_perfetto_has_the_fields_of_the_format(trace: Trace) -> None:
    """Trace Event Format: an object with traceEvents; X has ts and dur in microseconds, C and M have args."""
    read = json.loads(json.dumps(perfetto.as_json(trace)))
    assert read["displayTimeUnit"] in ("ms", "ns") and isinstance(read["otherData"], dict)
    for event in read["traceEvents"]:
        assert {"name", "ph", "ts", "pid", "tid"} <= event.keys() and event["ph"] in ("X", "C", "M")
        assert all(isinstance(event[name], int) for name in ("pid", "tid"))
        if event["ph"] == "X":
            assert event["dur"] >= 0 and isinstance(event["cat"], str)
        elif event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
        else:
            assert event["name"] in ("process_name", "thread_name") and event["args"]["name"]
    (product,) = [e for e in read["traceEvents"] if e["name"] == "matmul+<b>&" and e["cat"] == "step"]
    assert product["ts"] == pytest.approx(1e5) and product["dur"] == pytest.approx(5e5)
    assert product["args"]["line"] == "dir/a.py:3"
    names = {e["args"]["name"] for e in read["traceEvents"] if e["ph"] == "M"}
    assert {"MainThread", "MainThread: Python", "morpho-1", "gpu:0", "run & <go>"} <= names


def test_events_of_a_track_nest(trace: Trace) -> None:
    """Perfetto draws complete events of one thread as a stack: none may reach over the end of the one around it."""
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in perfetto.events(trace):
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for found in tracks.values():
        open_until: list[float] = []
        for start, end in found:
            while open_until and open_until[-1] <= start + 1e-4:  # a tenth of a nanosecond: rounding
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-4
            open_until.append(end)


def test_a_real_profile_nests_too() -> None:
    f = mo.compile(lambda x: mo.softmax(x @ x, axis=-1))
    with mo.profile() as p:
        for _ in range(5):
            f(mo.ones((64, 64)))
    test_events_of_a_track_nest(p.trace)


def test_the_flame_graph_is_an_svg_whose_frames_add_up(trace: Trace) -> None:
    root = flame.tree(trace)
    assert root.seconds == pytest.approx(trace.wall_s)
    assert sum(child.seconds for child in root.children.values()) == pytest.approx(root.seconds)
    assert root.children["kernels"].children["step"].children["a.py:3"].children["matmul+<b>&"].seconds \
        == pytest.approx(0.5)
    assert root.children["Python"].seconds == pytest.approx(0.3)
    drawn = xml.fromstring(flame.svg(trace))
    titles = [element.text or "" for element in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert any(title.startswith("matmul+<b>&: 500 ms") for title in titles)


def test_the_page_needs_nothing_from_elsewhere(trace: Trace) -> None:
    page = html.page(trace)
    assert "run &amp; &lt;go&gt;" in page and "matmul+<b>" not in page
    outside = re.sub(r'xmlns="[^"]*"', "", page)
    assert not re.search(r"https?:|<script|<link|<img|@import|url\(", outside)
    assert "prefers-color-scheme:dark" in page and "<svg" in page
    assert page.index('class="verdict"') < page.index("<table")


def test_the_report_says_the_verdict_first(trace: Trace) -> None:
    lines = text.report(trace).splitlines()
    assert lines[0].startswith("50 % of the time is arithmetic")
    (row,) = [line for line in lines if line.strip().startswith("matmul")]
    for cell in ("a.py:3", "10", "500 ms", "50.0 %", "80 % compute", "100 MB", "1e+09", "1.8/2"):
        assert cell in row
    assert any("4.2 MB in 2 blocks  a.py:4" in line for line in lines)
    (over_time,) = [line for line in lines if line.strip().startswith("over time")]
    assert over_time.split()[2][0] == "▁" and over_time.split()[2][-1] == "█"


@pytest.mark.parametrize("ending", files.ENDINGS)
def test_files_by_their_ending(trace: Trace, ending: str, tmp_path: Path) -> None:
    trace.spans[0].detail.pop("odd")
    assert files.save(trace, tmp_path / f"a{ending}").stat().st_size > 100


def test_another_ending_is_told(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(mo.errors.ArgumentError, match="none of the endings"):
        files.save(trace, tmp_path / "a.png")


# -- symbols -----------------------------------------------------------------------------------------------------------
def test_a_perf_map_lists_kernels(tmp_path: Path) -> None:
    """Hexadecimal address and size, then the name; sizes are those of the object files."""
    f = mo.compile(lambda x: mo.tanh(x) * 3)
    f(mo.ones(100))
    lines = symbols.write_perf_map(tmp_path).read_text().splitlines()
    found = {line.split(" ", 2)[2]: line.split(" ", 2)[:2] for line in lines}
    (name,) = [name for name in found if name.startswith("morpho::tanh+multiply") and Path(__file__).name in name]
    address, nbytes = (int(word, 16) for word in found[name])
    table = next(one for one in driver.live if one is f.current.plan.executable).step_table
    assert address in table.tolist() and 16 < nbytes < 100_000
    assert [int(line.split()[0], 16) for line in lines] == sorted(int(line.split()[0], 16) for line in lines)


def test_functions_inside_a_kernel_have_names_too() -> None:
    """A product's time is mostly spent in an inner function, and its epilogue is a kernel of its own."""
    f = mo.compile(lambda x, w: mo.relu(x @ w) * 1.5)
    f(mo.ones((70, 300)), mo.ones((300, 200)))
    # A kernel that an earlier program had already is named by that one's line.
    found = [one for one in symbols.symbols() if one.name.startswith("morpho::matmul")]
    ends = [(one.address, one.address + one.nbytes) for one in found]
    assert any(" micro" in one.name for one in found) and all(end <= start for (_, end), (start, _) in pairwise(ends))
    assert any("(epilogue)" in one.name for one in found)


def test_a_jitdump_is_well_formed(tmp_path: Path) -> None:
    """Header and records as perf's specification has them, each with the code's bytes."""
    f = mo.compile(lambda x: mo.sqrt(x) * 5)
    f(mo.ones(100))
    data = symbols.write_jitdump(tmp_path).read_bytes()
    magic, version, size, machine, _, _, _, flags = struct.unpack_from("=IIIIIIQQ", data)
    assert (magic, version, size, flags) == (0x4A695444, 1, 40, 0) and machine in (62, 183)
    place, names = size, []
    while place < len(data):
        kind, total, _ = struct.unpack_from("=IIQ", data, place)
        _, _, virtual, address, nbytes, number = struct.unpack_from("=IIQQQQ", data, place + 16)
        end = data.index(b"\0", place + 56)
        names.append(data[place + 56:end].decode())
        assert kind == 0 and virtual == address and number == len(names) - 1
        assert place + total == end + 1 + nbytes
        place += total
    assert any("sqrt" in name for name in names)


@pytest.mark.skipif(shutil.which("gdb") is None, reason="there is no gdb on this machine")
def test_gdb_knows_kernels_by_their_functions() -> None:
    """By LLVM's interface for debuggers: the functions that the perf map names are symbols of the process."""
    program = ("import os, signal, morpho as mo\nf = mo.compile(lambda x: mo.tanh(x) * 3)\nf(mo.ones(100))\n"
               "from morpho.observe.export import symbols\nprint(*(one.name for one in symbols.symbols()), sep='\\n')\n"
               "os.sys.stdout.flush()\nos.kill(os.getpid(), signal.SIGTRAP)")
    words = ["gdb", "-batch", "-nx", "-ex", "run", "-ex", "info functions ^kernel_", "--args", sys.executable, "-c"]
    told = subprocess.run([*words, program], capture_output=True, text=True, timeout=120).stdout
    if "SIGTRAP" not in told:
        pytest.skip("gdb may not start processes here")
    named = set(re.findall(r"morpho::.*\[(kernel_\w+)\]", told))
    known = set(re.findall(r"^0x[0-9a-f]+ +(kernel_\w+)", told, re.MULTILINE))
    assert named and named <= known, told


def test_what_is_no_object_has_no_sizes() -> None:
    assert symbols.elf_functions(b"") == symbols.elf_functions(b"\x7fELF" + bytes(100)) == {}
