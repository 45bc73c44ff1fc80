"""The suite of dense linear algebra: Morpho's ways compute what is asked, and wrong answers are found."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.run import SUITES
from benchmarks.harness.session import Session
from benchmarks.linalg import cases, errors
from benchmarks.peers.morpho import linalg as peer

WAYS = [f"{computation} {way}" for computation in cases.COMPUTATIONS for way in ("lapack", "native")
        if peer.why_not(f"{computation} {way}") is None]


@pytest.mark.sampled
@pytest.mark.parametrize("case", [*WAYS, "solve refined"])
def test_morpho_computes_what_is_asked(case: str) -> None:
    inputs = cases.make_inputs(case, (40,))
    prepared = peer.prepare(case, inputs)
    results = peer.to_numpy(prepared.function(*prepared.arguments))
    assert cases.check(case, inputs, results) <= 1 and prepared.function.stats["host_steps"] == 0
    wrong = tuple(np.asarray(part) + 0.1 for part in results)
    with pytest.raises(ValueError, match="wrong result"):
        cases.check(case, inputs, wrong)


def test_backward_errors_of_hard_matrices_are_small() -> None:
    result = errors.run(Session({}, quick=True))
    assert [target.verdict for target in result.targets] == ["PASS"] and len(result.figures) == 4 * 9
    assert set(SUITES["linalg"].themes) == {"factors", "general", "solves", "errors"}
