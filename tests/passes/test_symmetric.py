"""A matrix times its own transpose, of which one half is computed: the same bits, and less work."""

from __future__ import annotations

import numpy as np
import pytest

import morpho as mo
from morpho.passes import symmetric


def both(function, *arrays):
    """A function's value with the pass and without it, and the operations of the two programs."""
    tensors = [mo.asarray(array) for array in arrays]
    found = []
    for off in ("", "symmetric"):
        with mo.settings(passes_off=off):
            compiled = mo.compile(lambda *given, off=off: function(*given))
            value = compiled(*tensors).numpy()
            found.append((value, compiled.explain()))
    return found


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(symmetric, "LEAST_SIZE", 24)
    monkeypatch.setattr(symmetric, "LEAST_DEPTH", 5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "k"), [(24, 5), (37, 64), (128, 33), (201, 300)])
def test_blocks_have_the_bits_of_the_whole(n, k, dtype, seed):
    x = np.random.default_rng(seed).normal(size=(k, n)).astype(dtype)
    for function, given in ((lambda x: x.T @ x, x), (lambda x: (x.T @ x) / 3 + 1, x),
                            (lambda x: x @ x.T, np.ascontiguousarray(x.T))):
        (cut, told), (whole, _) = both(function, given)
        assert cut.tobytes() == whole.tobytes() and np.array_equal(cut, cut.T)
        assert told.count("matmul") > 1, "two products"


def test_others_are_left_alone(seed):
    a, b = np.random.default_rng(seed).normal(size=(2, 40, 40)).astype(np.float32)
    for function in (lambda a, b: a.T @ b, lambda a, b: a @ a, lambda a, b: a @ b.T):
        (cut, told), (whole, plain) = both(function, a, b)
        assert cut.tobytes() == whole.tobytes()
        assert told.count(" x 40 x ") == plain.count(" x 40 x ")


def test_gradients_go_through(seed):
    x = mo.asarray(np.random.default_rng(seed).normal(size=(30, 30)).astype(np.float32))
    gradient = mo.grad(lambda x: mo.sum((x.T @ x) ** 2))
    found = []
    for off in ("", "symmetric"):
        with mo.settings(passes_off=off):
            found.append(mo.compile(lambda x, off=off: gradient(x))(x).numpy())
    assert found[0].tobytes() == found[1].tobytes()
