"""The suite of programs: Morpho computes what NumPy defines, in one native function; tables, ratios and targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.harness.rounds import Timing
from benchmarks.harness.run import SUITES
from benchmarks.peers.morpho import programs as morpho_peer
from benchmarks.peers.numpy import programs as numpy_peer
from benchmarks.probes import first_programs
from benchmarks.programs import board, cases, summary


@pytest.mark.sampled
@pytest.mark.parametrize("name", cases.PROGRAMS)
def test_morpho_computes_what_is_defined(name: str) -> None:
    program = cases.PROGRAMS[name]
    inputs = cases.make_inputs(name, program.small)
    kept = {key: array.copy() for key, array in inputs.items()}
    prepared = morpho_peer.prepare(name, inputs)
    for _ in range(2):
        assert cases.check(name, inputs, morpho_peer.to_numpy(prepared.function(*prepared.arguments))) <= 1.0
    assert all(np.array_equal(inputs[key], kept[key]) for key in kept), "an argument was written"
    if program.native:
        stats = prepared.function.stats
        assert stats["host_steps"] == 0 and stats["fallbacks"] == 0 and prepared.function.native_calls == 2


# kernels of small programs, and the words of explain() for a loop that is one of them
KERNELS = {"equation_of_state": (1, ""), "kalman": (3, "scan in registers"), "rk4": (2, "scan in registers"),
           "crc16": (2, "scan in registers"), "seidel_2d": (6, "scan in registers"), "durbin": (8, "scan in registers"),
           "deriche": (21, "scan by element"), "collatz": (3, "scan by element"), "jacobi_1d": (4, "turns"),
           "jacobi_2d": (4, "turns"), "heat_3d": (4, "turns"), "fdtd_2d": (7, "turns")}


@pytest.mark.parametrize("name", KERNELS)
def test_a_loop_is_few_kernels(name: str) -> None:
    """A sweep of a stencil is one kernel for each array that it writes; a recurrence is one with its loop."""
    inputs = cases.make_inputs(name, cases.PROGRAMS[name].small)
    prepared = morpho_peer.prepare(name, inputs)
    prepared.function(*prepared.arguments)
    most, words = KERNELS[name]
    assert prepared.function.stats["kernels"] <= most and words in prepared.function.explain()


def test_there_are_programs_of_every_kind_and_morpho_has_them_all() -> None:
    assert len(cases.PROGRAMS) >= 50 and len(cases.CLASSES["ocean"]) == 3
    assert [*morpho_peer.FUNCTIONS] == [*cases.PROGRAMS]
    assert set(cases.CLASSES) | {"first_calls", "summary"} == set(SUITES["programs"].themes)


@pytest.mark.parametrize("name", ["lu", "crc16", "nbody"])
def test_definitions_check_themselves_and_wrong_answers_are_found(name: str) -> None:
    inputs = cases.make_inputs(name, cases.PROGRAMS[name].small)
    prepared = numpy_peer.prepare(name, inputs)
    results = numpy_peer.to_numpy(prepared.function(*prepared.arguments))
    assert cases.check(name, inputs, results) == 0.0
    with pytest.raises(ValueError, match="wrong result"):
        cases.check(name, inputs, (*results[:-1], results[-1] + 1))
    with pytest.raises(ValueError, match="results"):
        cases.check(name, inputs, (*results, results[0]))
    with pytest.raises(ValueError, match="shape"):
        cases.check(name, inputs, (*results[:-1], np.zeros((3, 3, 3))))


def test_definitions_are_right() -> None:
    """Where NumPy has its own."""
    fft = cases.make_inputs("stockham_fft", (32,))
    assert np.allclose(cases.of("stockham_fft").definition(**fft), np.fft.fft(fft["x"]))
    square = cases.make_inputs("cholesky", (8,))
    assert np.allclose(cases.of("cholesky").definition(**square), np.linalg.cholesky(square["a"]))
    q, r = cases.of("gramschmidt").definition(**cases.make_inputs("gramschmidt", (9, 5)))
    assert np.allclose(q.T @ q, np.eye(5)) and np.allclose(r, np.triu(r))
    density = cases.of("equation_of_state").definition(*(np.asarray(x) for x in (35.0, 25.0, 1000.0)))
    assert abs(density - 1062.53817) < 1e-5  # the check value that UNESCO gives
    assert cases.of("crc16").definition(np.frombuffer(b"123456789", np.uint8)) == 0x6F91


class Fake:
    """A session whose peers take fixed seconds; Numba lacks one program."""

    quick, threads = True, 2
    modules = {"morpho": "", "numpy": "", "jax": "", "numba": ""}
    seconds = {"morpho": 2.0, "numpy": 8.0, "jax": 3.0, "numba": 1.0, "numba_parallel": 4.0}

    def worker(self, name: str) -> bool:
        return name in self.modules

    def why_not(self, peer: str, case: str) -> str | None:
        return "not written" if peer == "numba" and case.startswith("adi") else None

    def measure_mixed(self, labels: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Timing]:
        return {label: Timing(label, [self.seconds[label]], 1) for label in labels}


def test_a_class_is_a_table_with_ratios_and_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "OVER_BEST", seen := {})
    monkeypatch.setattr(summary, "OVER_BEST", seen)
    result = board.measure("carried", cases.CLASSES["carried"], Fake())  # type: ignore[arg-type]
    first, second = result.tables[0].rows
    assert first == ["seidel_2d", "2 s", "4.00x", "1.50x", "0.50x", "-", "2.00x", "0.50x", "numba"]
    assert second == ["adi", "2 s", "4.00x", "1.50x", "-", "-", "-", "1.50x", "jax"]
    assert [target.verdict for target in result.targets] == ["MISS", "MISS", "MISS", "PASS"]
    assert result.ratios["adi vs best"] == 1.5
    overall = summary.run(Fake())  # type: ignore[arg-type]
    assert overall.tables[0].rows == [["seidel_2d", "0.50x"]] and overall.targets[0].verdict == "MISS"


def test_first_calls_are_timed_in_the_order_given(monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(morpho_peer, "callable_of", lambda name, inputs: ((lambda *given: name), ()))
    monkeypatch.setattr(morpho_peer, "to_numpy", lambda result: 1 / 0 if result == "lu" else ())
    assert [*first_programs.main("morpho", ["rk4", "lu", "crc16"])] == ["rk4", "crc16"]
    assert "lu: ZeroDivisionError" in capsys.readouterr().err
