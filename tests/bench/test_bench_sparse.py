"""The suite of sparse matrices: Morpho's way computes what is asked, and wrong answers are found."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.run import SUITES
from benchmarks.peers.morpho import sparse as peer
from benchmarks.sparse import cases


@pytest.mark.parametrize("kind", cases.KINDS)
@pytest.mark.parametrize("computation", ["spmv", "spmm", "spgemm", "dense"])
def test_morpho_computes_what_is_asked(computation: str, kind: str) -> None:
    case = f"{computation} {kind}"
    inputs = cases.make_inputs(case, (400, 5, 9))
    prepared = peer.prepare(case, inputs)
    results = peer.to_numpy(prepared.function(*prepared.arguments))
    assert cases.check(case, inputs, results) <= 1
    with pytest.raises(ValueError, match="wrong result"):
        cases.check(case, inputs, (results[0] + 10, *results[1:]))


def test_a_network_is_one_program_with_an_epilogue_in_every_layer() -> None:
    inputs = cases.make_inputs("network random", (64, 4, 3))
    prepared = peer.prepare("network random", inputs)
    results = peer.to_numpy(prepared.function(*prepared.arguments))
    assert cases.check("network random", inputs, results) <= 1
    assert prepared.function.stats["host_steps"] == 0


def test_every_kind_of_matrix_is_one() -> None:
    for kind in cases.KINDS:
        inputs = cases.make_inputs(f"spmv {kind}", (900, 6, 1))
        starts, indices = inputs["indptr"], inputs["indices"]
        assert starts[0] == 0 and starts[-1] == len(indices) == len(inputs["data"]) and np.all(np.diff(starts) > 0)
        assert indices.min() >= 0 and indices.max() < len(starts) - 1
    assert set(SUITES["sparse"].themes) == {"spmv", "spmm", "spgemm", "network"}
