"""ONNX's own test cases, sixty of them: some by name, others drawn with a fixed seed; `python -m
benchmarks.onnx_files.cases` runs all."""

from __future__ import annotations

import json
import random

import pytest

from benchmarks.onnx_files import cases

pytest.importorskip("onnx", reason="the cases come with the onnx package")
COUNT, SEED = 60, 20
# Draws of random numbers, and rounding of half floats inside a product, are not comparable.
OPEN = ("bernoulli", "fp16", "dft_inverse")
# What a drawn case may miss: control flow with sequences and optionals, recurrent and quantised operators.
NAMED = ("lstm_with_peepholes", "gru_bidirectional", "rnn_seq_length", "if_opt", "loop16_seq_none", "scan9_multi_state",
         "sequence_map_add_2_sequences", "optional_get_element_optional_sequence", "qlinearconv",
         "qlinearmatmul_3D_int8_float32", "quantizelinear_axis", "dynamicquantizelinear", "matmulinteger",
         "convinteger_with_padding")


def drawn() -> list[cases.Case]:
    """Those that are named, and others from all operators alike: first an operator, then one of its cases."""
    by_family: dict[str, list[cases.Case]] = {}
    named = []
    for case in cases.cases("node"):
        if case.name.removeprefix("test_") in NAMED:
            named.append(case)
        elif not any(word in case.name for word in OPEN):
            by_family.setdefault(case.name.split("_")[1], []).append(case)
    assert len(named) == len(NAMED)
    choice = random.Random(SEED)
    return named + [choice.choice(by_family[name]) for name in choice.sample(sorted(by_family), COUNT - len(named))]


@pytest.mark.parametrize("case", drawn(), ids=lambda case: case.name)
def test_a_case_of_onnx_passes(case: cases.Case) -> None:
    told = cases.outcome(case, cases.through_morpho)
    assert not told, told


def test_the_log_says_more_than_the_runtime() -> None:
    """The log that is kept: more cases than ONNX Runtime passes, in the same run."""
    kinds = json.loads(cases.LOG.read_text(encoding="utf-8"))["kinds"]
    assert kinds["node"]["cases"] > 1800
    for kind, entry in kinds.items():
        assert entry["morpho"]["passed"] >= entry["onnxruntime"]["passed"], kind


def test_a_wrong_result_is_told() -> None:
    """The comparison itself can fail: on values, shapes and dtypes."""
    import numpy as np

    right = np.ones(3, np.float32)
    assert not cases.differing(right, right, 1e-3, 1e-7)
    assert "differ" in cases.differing(right * 1.1, right, 1e-3, 1e-7)
    assert "shape" in cases.differing(right[:2], right, 1e-3, 1e-7)
    assert "dtype" in cases.differing(right.astype(np.float64), right, 1e-3, 1e-7)
