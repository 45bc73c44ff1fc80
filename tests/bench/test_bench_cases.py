"""NumPy's own peer agrees with the float64 answers: it guards the cases without the heavy peers."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.core.cases import CASES, check, make_inputs
from benchmarks.peers.numpy import core as numpy_peer

NEEDS_SCIPY = ("gelu", "bias_gelu_residual")


@pytest.mark.parametrize("name", [*numpy_peer.CASES, "add"])
def test_numpy_agrees(name):
    if name in NEEDS_SCIPY:
        pytest.importorskip("scipy")
    inputs = make_inputs(name, (64,) if name in ("add", "chain20") else (8, 64))
    prepared = numpy_peer.prepare(name, inputs)
    results = numpy_peer.to_numpy(prepared.function(*prepared.arguments, **prepared.keywords))
    assert check(name, inputs, results) <= 1.0


def test_inputs_repeat():
    first, second = make_inputs("softmax", (4, 8)), make_inputs("softmax", (4, 8))
    np.testing.assert_array_equal(first["x"], second["x"])


@pytest.mark.parametrize("bad", [np.nan, 1e3])
def test_a_wrong_value_is_found(bad):
    inputs = make_inputs("add", (32,))
    wrong = inputs["a"] + inputs["b"]
    wrong[7] = bad
    with pytest.raises(ValueError, match="wrong result"):
        check("add", inputs, (wrong,))
    with pytest.raises(ValueError, match="shape"):
        check("add", inputs, (wrong[:8],))


def test_every_fusion_case_exists():
    from benchmarks.core.fusion import NAMES

    assert len(NAMES) == 12
    assert set(NAMES) <= set(CASES)
