"""The suite of kernels: answers of the cases, a tiny run of a theme with the NumPy peer, what is left out and said."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.harness.results import ThemeResult
from benchmarks.harness.rounds import Pace
from benchmarks.harness.run import SUITES, choose_peers, choose_themes, finish
from benchmarks.harness.run import Options as RunOptions
from benchmarks.harness.session import Session
from benchmarks.kernels import attention, cases, gpt2, gpt2_compile, layers, low_precision, matmul, mlp
from benchmarks.kernels.board import Board, same
from benchmarks.kernels.fma_peak import CHAINS, UNROLL, FmaPeak, kernel_text
from benchmarks.peers.numpy import kernels as numpy_peer

FAST = Pace(rounds=2, round_seconds=0.0005, pause_seconds=0.0)
SHAPES = {"attention": (2, 3, 40, 16), "attention_causal": (2, 3, 40, 16), "conv_bn_relu": (1, 4, 7, 7, 6, 3),
          "mlp": (1, 64), "read_sweep": (4096,)}
NEEDS_SCIPY = ("linear_gelu", "mlp")


@pytest.fixture
def session():
    """Morpho and NumPy, one thread, next to no rounds."""
    opened = Session(choose_peers("numpy", SUITES["kernels"]), threads=1, quick=True, pace=FAST)
    yield opened
    opened.close()


@pytest.mark.parametrize("name", numpy_peer.FUNCTIONS)
def test_numpy_agrees_with_the_answers(name):
    if name in NEEDS_SCIPY:
        pytest.importorskip("scipy")
    inputs = cases.make_inputs(name, SHAPES.get(name, (6, 16, 10)))
    prepared = numpy_peer.prepare(name, inputs)
    assert cases.check(name, inputs, numpy_peer.to_numpy(prepared.function(*prepared.arguments))) <= 1.0


def test_a_wrong_value_is_found_and_a_variant_is_the_same_case():
    inputs = cases.make_inputs("linear@F.linear", (6, 16, 10))
    wrong = inputs["x"] @ inputs["weight"]
    assert cases.check("linear@F.linear", inputs, (wrong,)) <= 1.0
    wrong[3, 4] += 1e-3
    with pytest.raises(ValueError, match="wrong result"):
        cases.check("linear", inputs, (wrong,))
    with pytest.raises(ValueError, match="shape"):
        cases.check("linear", inputs, (wrong[:2],))


def test_integer_products_must_be_exact():
    inputs = cases.make_inputs("linear_int8", (6, 16, 10))
    right = inputs["x"].astype(np.int32) @ inputs["weight"].astype(np.int32)
    assert cases.check("linear_int8", inputs, (right,)) == 0.0
    with pytest.raises(ValueError, match="wrong result"):
        cases.check("linear_int8", inputs, (right + 1,))


def test_values_are_rounded_to_the_type_to_nearest_even():
    given = np.array([1.0, 1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, 1.0 + 2.0**-8 + 2.0**-20, -3.0], np.float32)
    np.testing.assert_array_equal(cases.rounded(given, "bfloat16"), np.float32([1, 1, 1 + 2.0**-6, 1 + 2.0**-7, -3]))
    np.testing.assert_array_equal(cases.rounded(given, "float32"), given)


def test_the_peak_kernel_does_what_it_counts():
    assert "fma.v4f32" in kernel_text(4)
    assert kernel_text(4).count("call <4 x float> @llvm.fma.v4f32") == CHAINS * UNROLL
    for threads in (1, 2):
        assert FmaPeak(64, 64, 64, threads)() == 1.0


def test_a_tiny_case_against_numpy(session):
    result = ThemeResult("tiny")
    columns = {**same("numpy", "torch", "unfused"), "peak": ("morpho", "fma_peak")}
    board = Board(session, result, "tiny", columns, {"of the peak": lambda row: str(matmul.share_of_peak(row))})
    row = board.measure("linear 4x32x16", "linear", (4, 32, 16), 0.5)
    assert result.errors == []
    assert set(row.timings) == {"morpho", "unfused", "numpy", "peak"}, "torch was not asked for"
    assert all(timing.error_share <= 1.0 and len(timing.rounds) == 2 for timing in row.timings.values())
    assert row.over_best == row.over("numpy") == row.over_numpy, "neither the peak nor unfused code is a competitor"
    assert set(result.ratios) == {f"linear 4x32x16 vs {other}" for other in ("numpy", "best", "unfused", "peak")}
    [line] = board.table.rows
    assert len(line) == len(board.table.headings)
    assert line[-2:] == ["0.5x", "PASS" if row.over_best >= 0.5 else "MISS"]
    assert line[board.table.headings.index("best peer")] == "numpy"
    assert line[board.table.headings.index("of the peak")] == "None", "too short for threads of Python"
    board.worst("worst", 0.0)
    assert result.targets[0].verdict == "PASS"


def test_what_would_take_too_long_is_left_out_and_said(session):
    result = ThemeResult("tiny")
    board = Board(session, result, "tiny", same("numpy"))
    board.rates["numpy", "float32"] = 1.0
    row = board.measure("linear 4x32x16", "linear", (4, 32, 16), 0.5, flops=4096.0)
    assert set(row.timings) == {"morpho"}
    assert result.notes == ["linear 4x32x16: numpy is left out, a call would take about 4096 s"]
    assert board.table.rows[0][-1] == "N/A"
    assert board.rates["morpho", "float32"] < 1.0


def test_a_theme_runs_and_its_json_is_complete(session, monkeypatch, tmp_path):
    monkeypatch.setattr(layers, "SHAPES", ((4, 16, 8),))
    monkeypatch.setattr(layers, "CONVOLUTIONS", ((1, 4, 7, 7, 6, 3),))
    monkeypatch.setattr(layers, "TITLES", {"linear_relu": "relu"})
    result = layers.run(session)
    assert result.errors == []
    assert "linear_relu 4x16x8 vs unfused" in result.ratios
    finish(RunOptions(json=tmp_path / "out.json"), {"machine": {"cpu": "test"}}, [result])
    [theme] = json.loads((tmp_path / "out.json").read_text())["themes"]
    assert {target["verdict"] for target in theme["targets"]} <= {"PASS", "MISS", "N/A"}
    assert theme["figures"]["linear_relu 4x16x8"]["morpho"]["seconds"] > 0


def test_what_morpho_lacks_is_left_out_with_a_note(session, monkeypatch):
    monkeypatch.setattr(session, "why_not", lambda peer, case: f"there is no mo.{case}")
    for theme in (attention, gpt2, gpt2_compile, low_precision):
        result = theme.run(session)
        assert result.tables == result.errors == []
        assert all("is left out: there is no mo." in note for note in result.notes)
        assert result.notes


def test_the_issues_cases_are_all_there():
    assert {(m, k, n) for m, k, n in matmul.shapes(quick=False)} >= {(128, 768, 50257), (1, 3072, 768), (16, 768, 2304)}
    assert len(matmul.shapes(quick=False)) == 30
    assert matmul.SQUARES == (256, 512, 1000, 2048)
    assert {case for case, _ in attention.CASES} | set(layers.TITLES) | set(gpt2.CASES) <= set(cases.CASES)
    assert mlp.SHAPE == (1, 64)
    assert choose_themes("gpt2", SUITES["kernels"]) == ["gpt2", "gpt2_compile"]
    assert list(choose_peers("", SUITES["kernels"])) == list(SUITES["kernels"].peers)
