"""Calls like the one before skip the checks, and no other call does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from morpho.onnx.run.network import Network


def test_a_call_like_the_last_is_not_checked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = mo.onnx.load(mo.onnx.save(lambda x, y: (x @ y, x - 1), tmp_path / "m.onnx", mo.ones((2, 3)),
                                        mo.ones((3, 2))))
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 3)).astype(np.float32), rng.standard_normal((3, 2)).astype(np.float32)
    first = [value.numpy() for value in network(x, y)]
    checked: list[int] = []
    bound = Network._bound
    monkeypatch.setattr(Network, "_bound", lambda self, *given: checked.append(1) or bound(self, *given))
    for call in (lambda: network(x, y), lambda: network(x=x, y=y), lambda: network.run({"y": y, "x": x}).values()):
        assert all(np.array_equal(a, b) for a, b in zip(first, [value.numpy() for value in call()], strict=True))
    assert not checked and network.stats["compiled_calls"] == 4
    changed = x.copy()
    changed[0, 0] += 1
    assert network(changed, y)[1].numpy()[0, 0] == changed[0, 0] - 1  # other elements are read anew
    others = [x.tolist(), mo.asarray(x), np.asfortranarray(x), x[:, ::-1].copy()[:, ::-1], x.astype(">f4")]
    for other in others:
        assert all(np.array_equal(a, b.numpy()) for a, b in zip(first, network(other, y), strict=True))
    assert len(checked) == len(others)
    for wrong in ((x,), (x, y, y), (x.astype(np.float64), y), (y, x)):
        with pytest.raises(mo.errors.MorphoError):
            network(*wrong)
    with pytest.raises(mo.errors.MorphoError, match="twice"):
        network(x, y, x=x)


def test_the_value_of_a_static_input_is_looked_at(tmp_path: Path) -> None:
    building = pytest.importorskip("onnx_building", reason="models are built with the onnx package")
    data = building.model([building.helper.make_node("Reshape", ["x", "shape"], ["y"])],
                          [building.value("x", [4, 3]), building.value("shape", [2], building.INT64)],
                          [building.value("y", ["a", "b"])])
    network = mo.onnx.loads(data)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    for shape in ((2, 6), (2, 6), (6, 2), (2, 6), (3, 4)):
        assert network(x, np.asarray(shape)).shape == shape
