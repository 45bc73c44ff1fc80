"""Complex numbers as pairs in registers: fused, in no host step, in loops and states, with NumPy's answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo


def drawn(rng: np.random.Generator, *shape: int, dtype: Any = np.complex64) -> np.ndarray:
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


PROGRAMS: dict[str, tuple[Callable[..., Any], int]] = {
    "product": (lambda m, a, b: a * b, 1), "quotient and numbers": (lambda m, a, b: 2j * a / b + 1, 1),
    "functions": (lambda m, a, b: m.exp(a) * m.conj(b) - m.sqrt(b), 1), "size": (lambda m, a, b: m.abs(a * b), 1),
    "sum": (lambda m, a, b: m.sum(a * b), 1), "sum of rows": (lambda m, a, b: m.sum(a * b, axis=1), 1),
    "sum of columns": (lambda m, a, b: m.sum(a + b, axis=0), 1), "mean": (lambda m, a, b: m.mean(a, axis=0), 1),
    "turned": (lambda m, a, b: a.T * b.T, 1), "every second": (lambda m, a, b: a[:, ::2] * b[:, 1::2], 1),
    "parts": (lambda m, a, b: m.real(a) * m.imag(b), 1), "equal": (lambda m, a, b: a == b, 1),
    "where": (lambda m, a, b: m.where(m.real(a) > 0, a, b), 1), "power": (lambda m, a, b: a**3 + a**-2, 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_programs_fuse(name: str, dtype: Any, rng: np.random.Generator) -> None:
    program, kernels = PROGRAMS[name]
    for rows, columns in ((5, 34), (1, 2), (33, 130)):
        x, y = drawn(rng, rows, columns, dtype=dtype), drawn(rng, rows, columns, dtype=dtype)
        f = mo.compile(lambda a, b: program(mo, a, b))
        got, want = f(mo.asarray(x), mo.asarray(y)).numpy(), program(np, x, y)
        assert got.dtype == np.asarray(want).dtype
        np.testing.assert_allclose(got, want, rtol=400 * np.finfo(dtype).eps, atol=20 * np.finfo(dtype).eps)
        assert f.stats["host_steps"] == 0 and f.stats["kernels"] <= kernels + (name == "sum"), f.explain()


def test_matrix_products(rng: np.random.Generator) -> None:
    a, b = drawn(rng, 40, 70, dtype=np.complex128), drawn(rng, 70, 30, dtype=np.complex128)
    f = mo.compile(lambda a, b: mo.conj(a) @ b)
    np.testing.assert_allclose(f(mo.asarray(a), mo.asarray(b)).numpy(), a.conj() @ b, rtol=1e-12)
    assert f.stats["host_steps"] == 0
    c = mo.compile(lambda a, b: mo.einsum("ij,kj->ik", a, b))(mo.asarray(a), mo.asarray(np.ascontiguousarray(b.T)))
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-12)


def test_indices_moves_and_updates(rng: np.random.Generator) -> None:
    x = drawn(rng, 9, 6)

    def f(m: Any, a: Any) -> Any:
        taken = m.take(a, m.asarray([3, 0, 8]), axis=0)
        return m.concat([taken, m.flip(a * 2, axis=0)[:2]], axis=0), m.roll(a, 2, axis=1)

    for got, want in zip(mo.compile(lambda a: f(mo, a))(mo.asarray(x)), f(np, x), strict=True):
        assert np.array_equal(got.numpy(), want)

    @mo.compile
    def update(a: mo.Tensor) -> mo.Tensor:
        b = a + 0
        b[1:4, 2] = a[0:3, 0] * 1j
        return b

    want = x.copy()
    want[1:4, 2] = x[0:3, 0] * np.complex64(1j)
    assert np.array_equal(update(mo.asarray(x)).numpy(), want)
    assert update.stats["host_steps"] == 0


def test_loops_and_states(rng: np.random.Generator) -> None:
    """A quadratic map, by a loop in the graph, by a Python loop, and by a state."""
    c = drawn(rng, 50)
    c *= np.float32(0.2) / (1 + np.abs(c))
    want = np.zeros_like(c)
    for _ in range(12):
        want = want * want + c

    @mo.compile
    def by_loop(c: mo.Tensor) -> mo.Tensor:
        return mo.fori_loop(0, 12, lambda i, z: z * z + c, mo.zeros_like(c))

    @mo.compile
    def by_python(c: mo.Tensor) -> mo.Tensor:
        z = mo.zeros_like(c)
        for _ in range(12):
            z = z * z + c
        return z

    one, other = by_loop(mo.asarray(c)).numpy(), by_python(mo.asarray(c)).numpy()
    np.testing.assert_allclose(one, want, rtol=1e-5)
    assert np.array_equal(one, other)
    assert by_loop.stats["host_steps"] == by_python.stats["host_steps"] == 0
    small = mo.compile(lambda c: mo.fori_loop(0, 12, lambda i, z: z * z + c, mo.asarray(0j, dtype=mo.complex64)))
    assert abs(small(mo.asarray(c[0])).item() - want[0]) < 1e-5 and small.stats["host_steps"] == 0

    z = mo.State(mo.zeros(50, dtype=mo.complex64))

    @mo.compile
    def step(c: mo.Tensor) -> None:
        z.value = z.value * z.value + c

    for _ in range(12):
        step(mo.asarray(c))
    assert np.array_equal(z.value.numpy(), one)


def test_every_level_has_the_same_bits(rng: np.random.Generator) -> None:
    x, y = drawn(rng, 7, 33), drawn(rng, 7, 33)
    found = []
    for level in (0, 1, 2, 3):
        with mo.settings(level=level):
            a, b = mo.asarray(x), mo.asarray(y)
            found.append(mo.compile(lambda a, b: mo.sum(mo.exp(a * b) / b, axis=0) @ mo.log(a.T))(a, b).numpy())
    assert all(np.array_equal(found[0], other) for other in found[1:])


def test_reference_agrees(rng: np.random.Generator) -> None:
    """The reference computes by NumPy: to a few last places of |z|."""
    x = drawn(rng, 100, dtype=np.complex128)
    found = []
    for device in ("cpu", "reference"):
        with mo.device(device):
            found.append((mo.tanh(mo.asarray(x)) * mo.asarray(x)).numpy())
    assert np.max(np.abs(found[0] - found[1]) / np.abs(found[1])) < 1e-14


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("options", [{}, {"axis": 0}, {"axis": (0, 2), "keepdims": True}, {"correction": 1.0}], ids=str)
def test_variance_of_complex_numbers_is_real(dtype: str, options: dict[str, Any], rng: np.random.Generator) -> None:
    z = (rng.normal(2, 1, (3, 4, 5)) + 1j * rng.normal(0, 3, (3, 4, 5))).astype(dtype)
    theirs = {{"correction": "ddof"}.get(name, name): value for name, value in options.items()}
    for ours, numpy in ((mo.var, np.var), (mo.std, np.std)):
        found = ours(mo.asarray(z), **options)
        assert found.dtype is mo.asarray(z.real).dtype
        assert np.allclose(found.numpy(), numpy(z, **theirs), rtol=1e-4 if dtype == "complex64" else 1e-12)
    slope = mo.grad(lambda x: mo.var(x * (1 + 2j)))(mo.asarray(z.real)).numpy()  # 5 times that of a real line
    assert np.allclose(slope, 10 * (z.real - z.real.mean()) / z.size, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("spread", [(40, 5), (40, 1), (1, 5)])
def test_what_a_batch_shares_of_a_product_is_made_once(spread: tuple[int, int], rng: np.random.Generator) -> None:
    """The right side is rearranged as it was given, not once for every matrix on the left."""
    a, b = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
            for shape in ((40, 5, 3, 4), (*spread, 4, 6)))
    f = mo.compile(mo.matmul)
    assert np.allclose(f(mo.asarray(a), mo.asarray(b)).numpy(), a @ b, rtol=1e-14)
    copied = [int(rows) * int(columns) for rows, columns in re.findall(r"kernel copy +(\d+) x (\d+)", f.explain())]
    assert copied and max(copied) <= 2 * b.size


@pytest.mark.parametrize("left", [(5, 3), (3,)])
def test_vectors_of_a_batch_times_a_shared_matrix_have_the_bits_of_each(left: tuple[int, ...],
                                                                        rng: np.random.Generator) -> None:
    """A complex product the other way round would add the same terms in another order."""
    a, b = (mo.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) for shape in (left, (7, 3)))
    rows = mo.vmap(lambda row: a @ row)(b).numpy()
    assert all(rows[n].tobytes() == (a @ b[n]).numpy().tobytes() for n in range(7))
