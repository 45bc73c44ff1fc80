"""NumPy arrays as arguments: borrowed in a few steps, then served by the native entry like tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.driver import layout
from morpho.base.errors import MorphoError


def made() -> object:
    return mo.compile(lambda a, b: mo.tanh(a) * b)


def test_calls_after_the_first_are_native(rng: np.random.Generator) -> None:
    f, a, b = made(), *rng.standard_normal((2, 40)).astype(np.float32)
    expected = f(mo.asarray(a), mo.asarray(b)).numpy()
    for _ in range(3):
        assert f(a, b).numpy().tobytes() == expected.tobytes()
    assert f(a, mo.asarray(b)).numpy().tobytes() == expected.tobytes()
    out = mo.empty((40,))
    assert f(a, b, out=out) is out and out.numpy().tobytes() == expected.tobytes()
    assert f(a, b=b).numpy().tobytes() == expected.tobytes()
    assert f.stats["calls"] == 7 and f.stats["native_calls"] == 6 and f.stats["recompiles"] == 0


def test_an_array_is_read_at_every_call(rng: np.random.Generator) -> None:
    f, a, b = made(), *rng.standard_normal((2, 40)).astype(np.float32)
    f(a, b)
    for _ in range(2):
        a += 1
        np.testing.assert_allclose(f(a, b).numpy(), np.tanh(a) * b, rtol=1e-6)


def test_other_arrays_are_other_signatures(rng: np.random.Generator) -> None:
    f, a = made(), rng.standard_normal((6, 8)).astype(np.float32)
    read_only = a.copy()
    read_only.flags.writeable = False
    strange = np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(np.float32).reshape(6, 8)  # not aligned
    for one in (a, a, a[:, ::2], a.T, a[::-1], a.astype(np.float64), a.astype(">f4"), read_only, strange, a[:3], a[:0]):
        np.testing.assert_allclose(f(one, one).numpy(), np.tanh(one) * one, rtol=1e-6)
        np.testing.assert_allclose(f(one, one).numpy(), np.tanh(one) * one, rtol=1e-6)


def test_bad_arrays_are_errors(rng: np.random.Generator) -> None:
    f, a = made(), rng.standard_normal(8).astype(np.float32)
    f(a, a)
    for bad in (a.astype(object), a[:5], np.array(["x"] * 8)):
        with pytest.raises(MorphoError):
            f(a, bad)
    with pytest.raises(MorphoError, match="takes"):
        f(a)
    np.testing.assert_allclose(f(a, a).numpy(), np.tanh(a) * a, rtol=1e-6)


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(12.0).reshape(3, 4)
    for known in (True, False):
        monkeypatch.setattr(layout, "_knows_arrays", lambda known=known: known)
        for view in (array, array[1:], array[::-1], array.T, array[:0], np.float32(3).reshape(1)):
            assert layout.array_address(view) == view.ctypes.data


def test_a_function_sees_tensors_whichever_way_it_is_called(rng: np.random.Generator) -> None:
    """Beside an argument that wants a gradient the function itself runs, before and after it was compiled."""
    seen: list[str] = []

    def body(a: Any, b: Any) -> Any:
        seen.append(type(b).__name__)
        return (a * b).sum()

    f, x, b = mo.compile(body), mo.asarray(np.ones(4, np.float32)), np.arange(4, dtype=np.float32)
    for _ in range(2):
        assert mo.grad(lambda a: f(a, b))(x).numpy().tolist() == [0, 1, 2, 3]
        f(x, b)
    assert set(seen) == {"Tensor"}
