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
NAMED = {"lstm": "lstm_with_peepholes", "gru": "gru_bidirectional", "rnn": "rnn_seq_length", "if_": "if_opt",
         "loop": "loop16_seq_none", "scan": "scan9_multi_state", "sequence_map": "sequence_map_add_2_sequences",
         "optionalgetelement": "optional_get_element_optional_sequence", "qlinearconv": "qlinearconv",
         "qlinearmatmul": "qlinearmatmul_3D_int8_float32", "quantizelinear": "quantizelinear_axis",
         "dynamicquantizelinear": "dynamicquantizelinear", "matmulinteger": "matmulinteger",
         "convinteger": "convinteger_with_padding"}


def drawn() -> list[str]:
    """The modules of operators whose cases are named, and others, all alike."""
    others = sorted({name for name in cases.modules() if name not in (*NAMED, *OPEN)})
    return [*NAMED, *random.Random(SEED).sample(others, COUNT - len(NAMED))]


@pytest.mark.parametrize("module", drawn())
def test_a_case_of_onnx_passes(module: str) -> None:
    """The one that is named, or one of the module's. It is made here: making all takes ten seconds."""
    found = {case.name.removeprefix("test_"): case for case in cases.of_module(module)}
    comparable = sorted(name for name in found if not any(word in name for word in OPEN))
    name = NAMED.get(module) or random.Random(f"{SEED} {module}").choice(comparable)
    told = cases.outcome(found[name], cases.through_morpho)
    assert not told, f"{name}: {told}"


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
