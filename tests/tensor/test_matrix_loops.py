"""Loops that solve small systems: one kernel, with the bits of the steps and of the loop written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ValueFault

L = mo.linalg


def kalman(states: int, seen: int, by: str, dtype: str) -> Callable[..., Any]:
    """A filter's turn: predict, then correct by what is seen."""
    rng = np.random.default_rng(3)
    move, look = (mo.asarray(x.astype(dtype)) for x in (np.eye(states) + rng.normal(0, 0.1, (states, states)) / states,
                                                        rng.normal(0, 1, (seen, states))))
    drift, noise = (mo.asarray(np.eye(n).astype(dtype) * size) for n, size in ((states, 0.01), (seen, 0.1)))

    def turn(carry: Any, z: mo.Tensor) -> Any:
        x, p = carry
        x, p = move @ x, move @ p @ move.T + drift
        s = look @ p @ look.T + noise
        gain = (p @ look.T @ L.inv(s) if by == "inv" else
                L.solve(s, look @ p).T if by == "solve" else
                L.solve_triangular(L.cholesky(s).T, L.solve_triangular(L.cholesky(s), look @ p), upper=True).T)
        return (x + gain @ (z - look @ x), p - gain @ look @ p), (x, *L.slogdet(s), L.det(s))

    return turn


@pytest.mark.parametrize("by", ["inv", "solve", "cholesky"])
@pytest.mark.parametrize(("states", "seen", "dtype"), [(2, 2, "float64"), (4, 3, "float32"), (2, 1, "float64")])
def test_a_kalman_filter_is_one_kernel(states: int, seen: int, by: str, dtype: str, rng: np.random.Generator) -> None:
    turn = kalman(states, seen, by, dtype)
    zs = mo.asarray(rng.normal(0, 1, (20, seen)).astype(dtype))
    first = (mo.zeros(states, dtype=dtype), mo.eye(states, dtype=dtype))
    run = mo.compile(lambda x, p, zs: mo.scan(turn, (x, p), zs))
    found = flat(run(*first, zs))
    assert "scan in registers" in run.explain() and run.stats["host_steps"] == 0 and run.stats["kernels"] <= 3
    with mo.settings(passes_off="registers"):
        steps = mo.compile(lambda x, p, zs: mo.scan(turn, (x, p), zs))
        assert flat(steps(*first, zs)) == found and "scan in registers" not in steps.explain()
    carry, rows = first, []
    for number in range(20):
        carry, row = mo.compile(turn)(carry, zs[number])
        rows.append(row)
    assert flat((carry, tuple(mo.stack(list(column)) for column in zip(*rows, strict=True)))) == found


def flat(tree: Any) -> bytes:
    return b"".join(map(flat, tree)) if isinstance(tree, tuple) else tree.numpy().tobytes()


@pytest.mark.parametrize("n", [1, 3, 6])
def test_pivots_in_registers(n: int, rng: np.random.Generator) -> None:
    """Matrices whose rows must be exchanged, with equal candidates and zeros among them."""
    a = rng.integers(-1, 2, (200, n, n)).astype(float)
    a = a[np.abs(np.linalg.det(a)) > 0.5]
    b = rng.normal(0, 1, (len(a), n, 2))
    run = mo.compile(lambda a, b: mo.scan(lambda c, x: (c + 1, (L.solve(*x), L.det(x[0]))), 0.0, (a, b))[1])
    x, det = run(mo.asarray(a), mo.asarray(b))
    assert "scan in registers" in run.explain() or n == 6
    assert np.array_equal(x.numpy(), L.solve(a, b).numpy()) and np.array_equal(det.numpy(), L.det(a).numpy())
    assert np.allclose(a @ x.numpy(), b)


def test_a_singular_matrix_in_a_loop_is_an_error(rng: np.random.Generator) -> None:
    a = rng.normal(0, 1, (9, 3, 3))
    for off in ("", "registers"):
        with mo.settings(passes_off=off):
            run = mo.compile(lambda a: mo.scan(lambda c, x: (c + L.inv(x), None), mo.zeros((3, 3)), a)[0])
            assert np.isfinite(run(mo.asarray(a.astype("f"))).numpy()).all()
            bad = a.astype("f")
            bad[7] = 1
            with pytest.raises(ValueFault, match=r"singular matrix.*test_matrix_loops\.py"):
                run(mo.asarray(bad))
            run(mo.asarray(bad[:7]))


def test_no_turn_no_error() -> None:
    run = mo.compile(lambda a, n: mo.scan(lambda c, x: (c + L.inv(a + x * 0), None), mo.zeros((2, 2)), n)[0])
    assert run(mo.ones((2, 2)), mo.zeros(0)).tolist() == [[0, 0], [0, 0]]


def test_gradients_of_a_filter(rng: np.random.Generator) -> None:
    zs = mo.asarray(rng.normal(0, 1, (6, 2)))
    turn = kalman(2, 2, "inv", "float64")

    def loss(p: mo.Tensor) -> mo.Tensor:
        (x, p), _ = mo.scan(turn, (mo.zeros(2, dtype="float64"), p), zs)
        return (x * x).sum() + p.sum()

    assert mo.testing.check_gradients(loss, mo.asarray(np.eye(2) + 0.1)) < 1e-6
