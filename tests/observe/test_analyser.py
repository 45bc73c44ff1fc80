"""The analyser on recorded traces of programs with a known bottleneck, and on traces written by hand. Nothing is timed:
`python -m benchmarks.observe.verdicts` runs the programs, and `--record` stores their traces here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import morpho as mo
from benchmarks.observe import verdicts
from benchmarks.observe.pathologies import all_pathologies
from benchmarks.observe.verdicts import by_another, slug
from morpho.observe.analyse.analyser import analyse, headline
from morpho.observe.analyse.verdict import KINDS
from morpho.observe.record.session import joined
from morpho.observe.trace.model import OpRow, SpanRow, Trace

TRACES = Path(__file__).parent / "traces"
STORED = sorted(TRACES.glob("*.json"))
MACHINE = {"flops_per_s": 1e11, "bytes_per_s": 1e10, "threads": 2, "l2_bytes": 1 << 20}


def stored(path: Path) -> tuple[tuple[str, ...], Trace]:
    """The right verdicts of a program, and its trace."""
    read = json.loads(path.read_text(encoding="utf-8"))
    return tuple(read["kinds"]), Trace.of(read["trace"], path.name)


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_the_right_verdict_comes_first(path: Path) -> None:
    kinds, trace = stored(path)
    found = analyse(trace)
    assert found[0].kind in kinds, [(one.kind, round(one.share, 2)) for one in found]
    assert found[0].advice and (0 < found[0].gain <= 1) == bool(trace.ops or trace.spans)


def test_every_program_has_a_trace_and_every_kind_a_program() -> None:
    programs = all_pathologies()
    assert len(programs) >= 50
    assert 25 <= sum(map(by_another, programs.values())) <= len(programs)
    assert {slug(name) for name in programs} == {path.stem for path in STORED}
    assert {kind for path in STORED for kind in stored(path)[0]} == set(KINDS)
    for name, one in programs.items():
        assert stored(TRACES / f"{slug(name)}.json")[0] == one.kinds


def test_the_table_of_all_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert verdicts.main(["--stored"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    right, count = map(int, re.match(r"(\d+) of (\d+) first verdicts right", last).groups())
    assert count == len(STORED) and right >= 0.9 * count and "who had not read the analyser" in last


def test_a_script_without_morpho_is_told_so() -> None:
    found = analyse(trace({"python": 0.99}, stacks={"main (a.py:1);slow (a.py:7)": 0.8, "main (a.py:1)": 0.1}))
    assert str(found[0]) == ("no kernel of Morpho ran: 990 ms are Python and other libraries, most of it in "
                             "slow (a.py:7); there is no gain to promise: use tensor operations there, or a profiler "
                             "of Python.")
    assert found[0].kind == "python" and found[0].gain == 0 and len(found) == 1


def trace(seconds: dict[str, float], **more: object) -> Trace:
    """A trace of one second."""
    return Trace(wall_s=1.0, seconds=seconds, machine=MACHINE, **more)  # type: ignore[arg-type]


def kernel(**more: object) -> OpRow:
    """A balanced kernel of most of a second."""
    row = {"name": "exp", "line": "a.py:3", "calls": 100, "seconds": 0.8, "busy_s": 1.5, "threads": 2, "shared_s": 0.8,
           "flops": 1e8, "bytes": 7e9, "limit_s": 0.7, "bound": "memory", "dtype": "float32", **more}
    return OpRow(**row)  # type: ignore[arg-type]


def first(seconds: dict[str, float], *ops: OpRow, **more: object) -> tuple[str, str]:
    found = analyse(trace(seconds, ops=list(ops), **more))
    return found[0].kind, str(found[0])


def test_the_sentence_names_operation_share_and_gain() -> None:
    kind, text = first({"kernels": 0.8, "python": 0.2}, kernel())
    assert kind == "memory"
    assert text == ("80 % of the time waits for memory, most of it exp (a.py:3) at 87 % of memory bandwidth "
                    "(8.8 GB/s); bfloat16 values would save about 40 %.")


@pytest.mark.parametrize(("row", "kind", "words"), [
    (kernel(), "memory", "bfloat16 values"),
    (kernel(dtype="float64"), "memory", "float32 values"),
    (kernel(gathers=True), "memory", "indices"),
    (kernel(apart=True), "memory", "side by side"),
    (kernel(product=True), "memory", "several vectors"),
    (kernel(dtype="int8"), "memory", "one pass"),
    (kernel(name="cast", dtype="float64"), "memory", "cast once outside"),
    (kernel(bound="compute", product=True, flops=7e10), "compute", "fewer operations"),
    (kernel(bound="compute", product=True, limit_s=0.1), "compute", "larger product"),
    (kernel(bound="compute", product=True, limit_s=0.1, flops=3e11), "compute", "other processes"),
    (kernel(bound="compute", dtype="float64"), "compute", "float32"),
    (kernel(name="conv", bound="compute", product=True, sizes="9000 x 441 x 1", limit_s=0.1), "compute", "in turn"),
    (kernel(name="conv", bound="compute", product=True, sizes="9000 x 441 x 64", limit_s=0.1), "compute", "larger"),
    (kernel(bytes=1e6, limit_s=0.01), "compute", "computing it once"),
    (kernel(tail_s=0.7), "imbalance", "rows of equal cost"),
    (kernel(shared_s=0.0, busy_s=0.8), "imbalance", "one of 2 threads"),
    (kernel(parts=3, limit_s=0.3), "imbalance", "has 3 rows for 2 threads; more rows than threads"),
    (kernel(parts=3), "memory", "bfloat16"),  # at the limit in spite of that
    (kernel(parts=64, limit_s=0.3), "memory", "bfloat16"),
    (kernel(name="scan in registers", shared_s=0.0, busy_s=0.8), "imbalance", "(steps, batch, ...)"),
    (kernel(calls=10**6, limit_s=0.01, bytes=1e8), "python", "Python"),
    (kernel(calls=10**6, limit_s=0.8, bytes=7e9), "python", "Python"),  # 7 kB: no matter of memory's bandwidth
])
def test_kernels_by_what_binds_them(row: OpRow, kind: str, words: str) -> None:
    found, text = first({"kernels": 0.8, "python": 0.05}, row)
    assert found == kind and words in text


def test_cores_that_a_setting_leaves_idle_are_named() -> None:
    row = kernel(bound="compute", product=True, flops=7e10, threads=1)
    one = trace({"kernels": 0.8}, ops=[row])
    one.machine = {**MACHINE, "threads": 1, "cores": 2}
    assert headline(one) == ("80 % of the time is arithmetic, most of it exp (a.py:3) at 87 % of the machine's peak, "
                             "on 1 of 2 cores; the other cores: the setting `threads` is 1, would save about 40 %.")
    one.machine = {**MACHINE, "threads": 2, "cores": 2}
    assert "cores" not in headline(one)


def test_reading_across_rows_is_named() -> None:
    assert "which it reads across rows; what is read side by side" in first({"kernels": 0.8}, kernel(apart=True))[1]


def test_one_call_says_nothing_about_threads_that_wait() -> None:
    """Its other thread may have lost its core to another process."""
    row = {"seconds": 0.8, "bound": "compute", "limit_s": 0.1, "tail_s": 0.7}
    assert first({"kernels": 0.8}, kernel(calls=1, **row))[0] == "compute"
    assert first({"kernels": 0.8}, kernel(calls=3, **row))[0] == "imbalance"


def test_the_best_of_turns_written_out_says_how_long_threads_wait() -> None:
    rows = [kernel(calls=1, seconds=0.1, shared_s=0.1, tail_s=tail) for tail in (0.08, 0.07, 0.0, 0.09)]
    (row,) = joined(rows)
    assert (row.calls, row.tail_s) == (4, 0.0)
    rows = [kernel(calls=1, seconds=0.1, shared_s=0.1, tail_s=tail) for tail in (0.08, 0.07, 0.09)]
    assert joined(rows)[0].tail_s == pytest.approx(0.3 * 0.7)


def test_weights_packed_at_every_call_are_told() -> None:
    rows = kernel(name="pack", seconds=0.6), kernel(name="matmul", seconds=0.2)
    assert "packed once" in first({"kernels": 0.8}, *rows)[1]


def test_unfused_operations_are_told_to_be_compiled() -> None:
    rows = [kernel(name=name, seconds=0.2, program="eager") for name in ("add", "multiply", "exp")]
    assert "mo.compile" in first({"kernels": 0.6}, *rows)[1]


def test_functions_that_take_turns_are_told_to_be_one() -> None:
    rows = [kernel(name=name, seconds=0.2, program=name) for name in ("curvature", "force", "advance")]
    assert "one compiled function around these 3" in first({"kernels": 0.6}, *rows)[1]
    rows = [kernel(line=f"a.py:{line}", seconds=0.2, program="<lambda>", calls=50 * line) for line in (2, 4)]
    assert "one compiled function around these 2" in first({"kernels": 0.4}, *rows)[1]
    chain = [kernel(seconds=0.2, program=name, takes=takes, gives=gives) for name, takes, gives in (
        ("f", "float32 9", "float32 8"), ("g", "float32 8, int32 5", "float32 7"), ("h", "float32 7", ""))]
    assert "around these 3, if results of one are arguments of another" in first({"kernels": 0.6}, *chain)[1]
    apart = [kernel(seconds=0.2, program=name, takes="float32 4000000", gives=gives)
             for name, gives in (("f", ""), ("g", "float32 2000"))]
    assert "bfloat16 values" in first({"kernels": 0.4}, *apart)[1]
    once, often = kernel(seconds=0.2, program="f"), kernel(seconds=0.2, program="g", calls=70)
    assert "bfloat16 values" in first({"kernels": 0.4}, once, often)[1]  # of two loops


def test_matrix_units_are_advised_where_there_are_some() -> None:
    row = kernel(bound="compute", product=True, flops=7e10)
    found = trace({"kernels": 0.8}, ops=[row])
    found.machine = {**MACHINE, "isa": "avx512_amx"}
    assert "autocast" in headline(found)


def spans(kind: str, count: int, seconds: float, **detail: object) -> list[SpanRow]:
    return [SpanRow(kind, kind, 1, i * seconds, seconds, dict(detail)) for i in range(count)]


@pytest.mark.parametrize(("seconds", "more", "kind", "words"), [
    ({"data": 0.7}, {"spans": spans("data", 10, 0.07)}, "data", "num_workers=2"),
    ({"data": 0.7}, {"spans": spans("data", 10, 0.07, workers=3)}, "data", "num_workers=6"),
    ({"network": 0.7}, {"spans": spans("network", 10, 0.07)}, "network", "larger collectives"),
    ({"network": 0.7}, {"spans": [SpanRow("network", name, 1, 0.1 * i, 0.1) for i in range(4)
                                  for name in ("barrier", "wait", "wait")]}, "network", "4 x barrier; fewer barriers"),
    ({"transfer": 0.7}, {"spans": spans("transfer", 10, 0.07, bytes=10)}, "transfers", "on the device"),
    ({"transfer": 0.7}, {"spans": [SpanRow("transfer", "mo.asarray", 1, 0.0, 0.7, {"bytes": 10, "line": "a.py:7"})]},
     "transfers", "mo.asarray (most often in a.py:7); the array itself as an argument"),
    ({"transfer": 0.7}, {"spans": [SpanRow("transfer", "mo.asarray", 1, 0.0, 0.7, {"bytes": 10, "converts": True})]},
     "transfers", "converted once, outside of the loop"),
    ({"python": 0.9}, {"counters": {"realisations": 100}}, "python", "mo.compile"),
    ({"python": 0.9}, {"counters": {"realisations": 100, "syncs": 90}}, "python", "read once"),
    ({"python": 0.9}, {"counters": {"native_calls": 100}}, "python", "mo.fori_loop"),
    ({"python": 0.9}, {}, "python", "no kernel of Morpho ran"),
    ({"python": 0.9}, {"spans": spans("network", 10, 0.01)}, "python", "no kernel of Morpho ran"),
    ({"device": 0.9}, {}, "compute", "device"),
    ({"compile": 0.7}, {"spans": spans("compile", 3, 0.1)}, "cold", "warm-up"),
    ({"compile": 0.7}, {"spans": spans("compile", 30, 0.02)}, "recompiles", "uncompiled, new program each time: 24"),
    ({"compile": 0.7}, {"spans": spans("compile", 30, 0.02, first=True)}, "cold", "compiles for the first time"),
    ({"trace": 0.7}, {"spans": spans("trace", 7, 0.1)}, "recompiles", "mo.Dim"),
    ({"trace": 0.1}, {"spans": spans("trace", 1, 0.1)}, "cold", "warm-up"),
    ({"compile": 0.7}, {"spans": spans("compile", 3, 0.1), "counters": {"code_compiled": 2, "code_disk_hits": 1}},
     "cold", "2 kernels by LLVM; a warm-up call before what is measured, and a cache folder"),
    ({"compile": 0.7}, {"spans": spans("compile", 3, 0.1), "counters": {"code_compiled": 0, "code_disk_hits": 4}},
     "cold", "first calls, whose code is in the cache: 3 programs; a warm-up call before what is measured (imports and "
     "plans are made once in a process) would save"),
])
def test_waiting_by_its_kind(seconds: dict[str, float], more: dict[str, object], kind: str, words: str) -> None:
    found, text = first(seconds, **more)
    assert found == kind and words in text


def test_a_device_asked_at_every_step_is_a_matter_of_transfers() -> None:
    rows = [*spans("device", 10, 0.05, on_device=True), *[SpanRow("transfer", "from x", 1, 0.0, 0.01)] * 10]
    assert first({"device": 0.5, "transfer": 0.1}, spans=rows)[0] == "transfers"


def test_host_and_collective_steps() -> None:
    assert first({"host": 0.6}, kernel(kind="host", name="eigh"))[0] == "host"
    assert first({"network": 0.6}, kernel(kind="collective", name="all_reduce"))[0] == "network"


def test_nothing_is_no_bottleneck() -> None:
    assert analyse(Trace(wall_s=1.0, seconds={"data": 0.001})) == []
    assert headline(Trace()) == "Nothing was recorded."


def test_ranks_that_compile_at_once_do_not_take_more_than_all_of_the_time() -> None:
    """Spans of two ranks overlap: neither lies inside the other."""
    spans = [SpanRow("compile", "", 1, 0.01 * n, 0.005) for n in range(6)]
    spans += [SpanRow("compile", "", 1, 0.1, 0.2), SpanRow("compile", "", 2, 0.2, 0.7, rank=1),
              SpanRow("trace", "f", 1, 0.35, 0.6)]
    found = analyse(trace({"compile": 0.8, "python": 0.2}, spans=spans, ranks=2))
    assert sum(one.share for one in found) <= 1.01 and all(0 <= one.share <= 1 for one in found), found


@pytest.mark.parametrize(("line", "words"), [
    ("/home/me/a.py:11 numpy", "most of it NumPy in a.py:11; the same with Morpho's operations"),
    ("/home/me/a.py:15", "most of it Python in a.py:15; less of it there"),
    ("/home/me/a.py:15 json", "most of it json in a.py:15; less of it there"),
])
def test_python_between_calls_is_named_by_its_line(line: str, words: str) -> None:
    kind, text = first({"python": 0.9}, counters={"native_calls": 100}, lines={line: 0.7, "/home/me/a.py:3": 0.1})
    assert kind == "python" and words in text
    assert analyse(trace({"python": 0.9}, counters={"native_calls": 100}, lines={line: 0.7}))[0].line.endswith("a.py:11"
                   if "numpy" in line else "a.py:15")


def test_a_conversion_is_not_called_python(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("import json\nx = mo.asarray(a.astype(np.float32))\ny = json.loads(text)\n")
    for number, words in ((2, "the conversion of arrays in a.py:2; the array converted once"), (3, "Python in a.py:3")):
        more = {"counters": {"native_calls": 100}, "lines": {f"{script}:{number}": 0.7}}
        assert f"most of it {words}" in first({"python": 0.9}, **more)[1]


def test_a_line_that_only_calls_is_not_blamed() -> None:
    many, kernels = {"native_calls": 100_000}, {"kernels": 0.5, "python": 0.4}
    assert "most of it Python" not in first({"python": 0.9}, counters=many, lines={"a.py:3": 0.8})[1]
    found = analyse(trace(kernels, counters={"native_calls": 100}, lines={"a.py:3": 0.6}))  # samples of native calls
    assert found and "most of it Python" not in str(found[0])


def test_functions_of_one_name_are_told_apart_by_their_lines() -> None:
    def traced(count: int, **detail: object) -> list[SpanRow]:
        return [SpanRow("trace", "<lambda>", 1, 0.1 * i, 0.1, {"recompiles": 0, "line": f"a.py:{i}", **detail})
                for i in range(count)]

    assert first({"trace": 0.7}, spans=traced(7))[0] == "cold"
    formulas = [SpanRow("trace", "<lambda>", 1, 0.1 * i, 0.1,
                        {"recompiles": 0, "line": "a.py:3", "program": f"{i // 2}"}) for i in range(8)]
    assert [one.kind for one in analyse(trace({"trace": 0.8}, spans=formulas))] == ["cold"]  # compiled for one call
    assert first({"trace": 0.7}, spans=traced(7, line="a.py:3", program="1"))[0] == "recompiles"
    begun = SpanRow("trace", "<lambda>", 1, 0.0, 0.1, {"recompiles": 0, "line": "a.py:3", "program": "1"})
    again = first({"trace": 0.7}, spans=[begun, *traced(7, line="a.py:3", program="2", recompiles=1)[1:]])
    assert again[0] == "recompiles" and "was compiled 7 times" in again[1]
    kind, text = first({"trace": 0.7}, spans=traced(7, line="a.py:3"))
    assert kind == "recompiles" and "was made and compiled 7 times; mo.compile called once, outside the loop" in text
    assert first({"trace": 0.7}, spans=traced(7, line=mo.__file__ + ":3"))[0] == "cold"  # none of the user's functions
