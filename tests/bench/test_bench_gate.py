"""The gate of counts: the same twice, the stored ones, and a worse lowering is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import morpho as mo
from benchmarks.gate import __main__ as command
from benchmarks.gate import calls, capture, cases, collect, counts, stored
from benchmarks.gate.loops import blocks_of_assembly, blocks_of_text, cycles, loop_instructions
from benchmarks.gate.targets import TARGETS, lowering_for
from morpho.base.machine import machine
from morpho.base.target import current_isa

CASE = "core/bias_gelu_residual 16x256"


def counted(**chosen: Any) -> stored.Table:
    """One case on two targets, without LLVM."""
    traced = capture.trace(cases.all_cases()[CASE])
    return {CASE: {target: counts.count(traced, target, assemble=False, **chosen) for target in ("avx2", "neon")}}


def known() -> stored.Table:
    _, table = stored.load()
    return {CASE: {target: table[CASE][target] for target in ("avx2", "neon")}}


def test_counts_are_the_stored_ones_whatever_this_machine_is() -> None:
    assert stored.compare(known(), counted(), assembled=False) == []
    with mo.settings(threads=3, isa="scalar"):  # of the caller: the gate has its own
        assert stored.compare(known(), counted(), assembled=False) == []


def test_a_worse_lowering_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    worse = counted(passes_off="fuse")
    lines = [difference.line() for difference in stored.compare(known(), worse, assembled=False)]
    assert any(line.startswith(f"WORSE  {CASE}, avx2: kernels is ") for line in lines), lines
    assert any(line.startswith(f"WORSE  {CASE}, neon: bytes_moved is ") for line in lines), lines
    old = known()
    monkeypatch.setattr(stored, "load", lambda: ("another", old))
    assert command.judge(worse) == 1
    said = capsys.readouterr().out
    assert CASE in said and "FAIL" in said and "left out" in said
    assert command.judge(counted()) == 0 and "PASS" in capsys.readouterr().out


def test_a_better_count_must_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "counts.json"
    stored.save("20.1", {"a": {"avx2": {"kernels": 3}}, "b": {"avx2": {"kernels": 1}}}, path)
    assert stored.load(path) == ("20.1", json.loads(path.read_text())["cases"])
    found: stored.Table = {"a": {"avx2": {"kernels": 2}}, "c": {"calls": {"plans": 0}}}
    differences = stored.compare(stored.load(path)[1], found)
    assert [(one.case, one.is_worse) for one in differences] == [("b", True), ("a", False), ("c", False)]
    assert [one.line().split()[0] for one in differences] == ["GONE", "BETTER", "NEW"]
    assert stored.compare(stored.load(path)[1], found, only="a") == [differences[1]]
    assert stored.merged(stored.load(path)[1], {"a": found["a"]}, "a") == {
        "a": {"avx2": {"kernels": 2}}, "b": {"avx2": {"kernels": 1}}}


def test_every_case_is_stored() -> None:
    _, table = stored.load()
    names = {*cases.all_cases(), *(f"{name} (called)" for name, _ in calls.all_calls())}
    assert names == set(table)
    assert all(set(row) in ({"calls"}, set(TARGETS)) for row in table.values()) and set(TARGETS) == set(collect.ISAS)


def test_the_machine_is_another_one_inside_and_this_one_after() -> None:
    here, isa = machine(), current_isa()
    with lowering_for(TARGETS["neon"]):
        assert machine().architecture == "aarch64" and machine().cores == 4 and current_isa().name == "neon"
    assert machine() == here and current_isa() == isa


def test_calls_are_counted() -> None:
    made = dict(calls.all_calls())
    assert set(calls.count(made["core/add"]).values()) == {0}
    assert set(calls.count(made["core/function sort"]).values()) == {0}
    on_host, x = mo.compile(lambda x: mo.linalg.eigvals(x) + 1), mo.zeros((0, 0))
    found = calls.count(lambda: (lambda: on_host(x), (on_host,)))
    assert found["python_calls"] == 0 and found["host_steps"] == calls.CALLS  # a step of the native program


def test_loops_are_found_in_text_and_in_machine_code() -> None:
    graph = {"a": ["b"], "b": ["c", "e"], "c": ["d", "c"], "d": ["b"], "e": []}
    assert cycles(graph) == [{"b", "c", "d"}] and cycles({"x": ["x"], "y": []}) == [{"x"}]
    text = '''define i32 @kernel(ptr %p) {
entry:
  %a = load i64, ptr %p
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %j, %body ]
  %c = icmp slt i64 %i, 9
  br i1 %c, label %body, label %done
body:
  %w = call <4 x float> asm sideeffect "fmla v0, v1\\0Afmla v2, v3", "=w"()
  %j = add i64 %i, 1
  br label %head
done:
  ret i32 0
}
'''
    assert loop_instructions(blocks_of_text(text)) == 7
    assert loop_instructions(blocks_of_text(text), inline=True) == 2
    x86 = ["movq %rdi, %rax", ".LBB0_1:", "#APP", "cmpq $9, %rax", "jge .LBB0_3", "addq $1, %rax", "jmp .LBB0_1",
           ".LBB0_3:", "retq"]
    arm = ["mov x8, #0", ".LBB0_1:", "cmp x8, #9", "b.ge .LBB0_3", "add x8, x8, #1", "b .LBB0_1", ".LBB0_3:", "ret"]
    assert [loop_instructions(blocks_of_assembly("\n".join(["kernel:", *code]))) for code in (x86, arm)] == [4, 4]
    assert loop_instructions(blocks_of_assembly("exp:\n\tmulps %xmm0, %xmm1\n\tretq\n")) == 2, "what loops call"
