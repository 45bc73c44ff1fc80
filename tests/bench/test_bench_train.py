"""The training benchmarks measure what they say: the right loss, learning, and one native call a step."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.results import ThemeResult
from benchmarks.run import SUITES
from benchmarks.train import cases, mlp_step
from benchmarks.train.peers import PEERS


@pytest.mark.parametrize("peer", PEERS)
def test_a_step_is_right_and_learns(peer: str) -> None:
    if peer == "torch":
        pytest.importorskip("torch", reason="the peer of this benchmark")
    module = __import__(PEERS[peer], fromlist=["prepare"])
    inputs = cases.make_inputs("mlp_step", (3, 8))
    prepared = module.prepare("mlp_step", inputs)
    if peer == "torch":
        module.torch.set_grad_enabled(True)
    (first,) = module.to_numpy(prepared.function(*prepared.arguments))
    assert cases.check("mlp_step", inputs, (first,)) <= 1
    with pytest.raises(ValueError, match="expected"):
        cases.check("mlp_step", inputs, (first * 1.01,))
    for _ in range(50):
        (last,) = module.to_numpy(prepared.function(*prepared.arguments))
    assert last < first
    if peer == "morpho":
        assert prepared.function.native_calls == 50


def test_the_theme_has_its_targets() -> None:
    class Nobody:
        def measure(self, case: str, shape: tuple[int, ...], peers: list[str]) -> dict[str, object]:
            assert set(peers) == set(PEERS) and np.prod(shape) > 0
            return {}

    result = mlp_step.run(Nobody())  # type: ignore[arg-type]
    assert isinstance(result, ThemeResult) and len(result.targets) == 2 and len(result.tables[0].rows) == 2
    assert "mlp_step" in SUITES["train"].themes
