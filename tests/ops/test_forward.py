"""Every record in forward mode: along a tangent as central differences have it, and the transpose of its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import SHAPED
from elementwise_cases import PLAIN, Elementwise
from running import by_reference, parameter
from shaped_case import Shaped
from test_gradients import LENGTHS, generator

import morpho as mo
from morpho.base.dtypes import DType, bool_, complex128, float64, int64
from morpho.base.errors import ArgumentError
from morpho.ir.node import Node
from morpho.ir.op import REGISTRY, NoGradient
from morpho.ops.algebra import add, cast, conj, constant_like, mul, zeros_like
from morpho.ops.reductions.contract import transpose
from morpho.tensor.autodiff.forward import push_forward
from morpho.tensor.autodiff.gradient import pull_back

STEP = 1e-6
VARYING = (float64, complex128)
SYMMETRIC = ("cholesky", "eigvalsh", "eigh")  # defined on symmetric matrices: differences must stay among them


def drawn(rng: np.random.Generator, shape: tuple[int, ...], complex_too: bool) -> np.ndarray:
    found = rng.normal(0, 1, shape)
    return found + 1j * rng.normal(0, 1, shape) if complex_too else found


def check(node: Node, leaves: list[Node], arrays: list[np.ndarray], rng: np.random.Generator,
          tolerance: float = 2e-5) -> None:
    """<u, J v> is <J^T u, v>, and J v the difference of values along v; inner products are real parts."""
    moving = [i for i, leaf in enumerate(leaves) if leaf.dtype in VARYING]
    along = {i: parameter(len(leaves) + n, leaves[i].shape, leaves[i].dtype) for n, i in enumerate(moving)}
    seed = parameter(len(leaves) + len(moving), node.shape, node.dtype)
    (pushed,) = push_forward([node], {leaves[i].serial: one for i, one in along.items()})
    pushed = zeros_like(node) if pushed is None else pushed
    pulled = pull_back([node], [seed], [leaves[i] for i in moving])
    tangents = [drawn(rng, leaves[i].shape, leaves[i].dtype.is_complex) for i in moving]
    cotangent = drawn(rng, node.shape, node.dtype.is_complex)
    got, *parts = by_reference([pushed, *pulled], [*arrays, *tangents, cotangent])
    values = []
    for sign in (1, -1):
        moved = list(arrays)
        for i, tangent in zip(moving, tangents, strict=True):
            moved[i] = arrays[i] + sign * STEP * tangent
        values += by_reference([node], moved)
    want = (values[0] - values[1]) / (2 * STEP)
    scale = 1 + np.max(np.abs(want), initial=0)
    assert got.shape == node.shape and pushed.dtype is node.dtype
    assert np.allclose(got, want, rtol=tolerance, atol=tolerance * scale), (node, got, want)
    forward = np.sum(np.conj(cotangent) * got).real
    backward = sum(np.sum(np.conj(part) * tangent).real for part, tangent in zip(parts, tangents, strict=True))
    assert np.isclose(forward, backward, rtol=1e-9, atol=1e-9 * (1 + abs(forward))), (node, forward, backward)


DIFFERENTIABLE = [case for case in PLAIN if not isinstance(REGISTRY[case.op].vjp, NoGradient)]


def has(case: Elementwise) -> list[object]:
    return [pytest.param(case, dtype, id=f"{case.op}-{dtype}") for dtype in VARYING if dtype in case.dtypes]


Program = tuple[Node, list[Node], list[np.ndarray]]


def elementwise_program(case: Elementwise, dtype: object, rng: np.random.Generator) -> Program:
    kinds = case.inputs(dtype)
    leaves = [parameter(i, (7,), kind) for i, kind in enumerate(kinds)]
    arrays = [rng.random(7) < 0.5 if kind is bool_ else rng.uniform(*case.domain, 7) for kind in kinds]
    if dtype is complex128:
        arrays = [array if kind is bool_ else array + 1j * rng.uniform(0.2, 0.8, 7)
                  for array, kind in zip(arrays, kinds, strict=True)]
    if case.op == "remainder":  # away from the steps, where it is not continuous
        arrays[0] = arrays[1] * (rng.integers(0, 3, 7) + rng.uniform(0.2, 0.8, 7))
    return case.build(*leaves), leaves, arrays


@pytest.mark.parametrize("case, dtype", [one for case in DIFFERENTIABLE for one in has(case)])
def test_elementwise(case: Elementwise, dtype: object, session_seed: int) -> None:
    rng = generator(session_seed, case.op, dtype, "forward")
    node, leaves, arrays = elementwise_program(case, dtype, rng)
    check(node, leaves, arrays, rng)


SHAPED_PAIRS = [pytest.param(case, dtype, id=f"{case}-{dtype}") for case in SHAPED
                for dtype in VARYING if dtype in case.dtypes and case.gradient]


def shaped_program(case: Shaped, dtype: object, rng: np.random.Generator) -> Program | None:
    """The case on small arrays; None where it has no gradient."""
    specs = case.specs(dtype, LENGTHS.get(str(case), 3))
    leaves = [parameter(i, shape, kind) for i, (shape, kind) in enumerate(specs)]
    node = case.make(*leaves)
    record = node.inputs[0].op if node.op.name == "pick" else node.op
    if isinstance(record.vjp, NoGradient) and record.composition is None:
        return None
    if dtype is complex128 and record.name in ("eigh", "svd") and node.dtype.is_complex:
        return None  # vectors of which each has a factor of its own, which LAPACK chooses: test_complex_gradients.py
    arrays = []
    for position, (shape, kind) in enumerate(specs):
        if case.draw is not None and (kind is not float64 or len(shape) == 3):
            arrays.append(case.draw(rng, position, shape, kind))
        else:
            arrays.append(rng.uniform(0.5, 2, shape) * rng.choice([-1, 1], shape))
    if record.name in SYMMETRIC:
        turned = transpose(leaves[0])
        turned = conj(turned) if dtype is complex128 else turned
        node = case.make(mul(add(leaves[0], turned), constant_like(leaves[0], 0.5)))
    return node, leaves, arrays


@pytest.mark.parametrize("case, dtype", SHAPED_PAIRS)
def test_shaped(case: Shaped, dtype: object, session_seed: int) -> None:
    rng = generator(session_seed, str(case), dtype, "forward")
    program = shaped_program(case, dtype, rng)
    if program is not None:
        check(*program, rng)


# -- second derivatives ------------------------------------------------------------------------------------------------
def check_twice(node: Node, leaves: list[Node], arrays: list[np.ndarray], rng: np.random.Generator) -> None:
    """Gradients are programs: along a tangent they change as differences have it."""
    moving = [i for i, leaf in enumerate(leaves) if leaf.dtype in VARYING]
    seed = parameter(len(leaves), node.shape, node.dtype)
    pulled = pull_back([node], [seed], [leaves[i] for i in moving])
    along = {i: parameter(len(leaves) + 1 + n, leaves[i].shape, leaves[i].dtype) for n, i in enumerate(moving)}
    pushed = push_forward(pulled, {leaves[i].serial: one for i, one in along.items()})
    found = [zeros_like(one) if two is None else two for one, two in zip(pulled, pushed, strict=True)]
    tangents = [drawn(rng, leaves[i].shape, leaves[i].dtype.is_complex) for i in moving]
    cotangent = drawn(rng, node.shape, node.dtype.is_complex)
    got = by_reference(found, [*arrays, cotangent, *tangents])
    values = []
    for sign in (1, -1):
        moved = list(arrays)
        for i, tangent in zip(moving, tangents, strict=True):
            moved[i] = arrays[i] + sign * STEP * tangent
        values.append(by_reference(pulled, [*moved, cotangent]))
    for one, ahead, behind in zip(got, *values, strict=True):
        want = (ahead - behind) / (2 * STEP)
        scale = 1 + np.max(np.abs(want), initial=0) + np.max(np.abs(ahead), initial=0)
        assert np.allclose(one, want, rtol=1e-4, atol=1e-4 * scale), (node, one, want)


@pytest.mark.parametrize("case, dtype", [one for case in DIFFERENTIABLE for one in has(case)])
def test_elementwise_twice(case: Elementwise, dtype: object, session_seed: int) -> None:
    rng = generator(session_seed, case.op, dtype, "twice")
    node, leaves, arrays = elementwise_program(case, dtype, rng)
    check_twice(node, leaves, arrays, rng)


@pytest.mark.parametrize("case, dtype", SHAPED_PAIRS)
def test_shaped_twice(case: Shaped, dtype: object, session_seed: int) -> None:
    rng = generator(session_seed, str(case), dtype, "twice")
    program = shaped_program(case, dtype, rng)
    if program is not None:
        check_twice(*program, rng)


def from_floats(specs: list[tuple[tuple[int, ...], DType]]) -> tuple[list[Node], dict[int, Node]]:
    """Operands of a case, of which the integers and booleans are made of floats; tangents of all those floats."""
    floats = [parameter(i, shape, kind if kind.is_inexact else float64) for i, (shape, kind) in enumerate(specs)]
    tangents = {leaf.serial: parameter(len(specs) + i, leaf.shape, leaf.dtype) for i, leaf in enumerate(floats)}
    return [leaf if kind.is_inexact else cast(leaf, kind) for leaf, (_, kind) in zip(floats, specs, strict=True)], \
        tangents


def pushed_or_missing(node: Node, tangents: dict[int, Node]) -> None:
    """A tangent for what varies, none for integers; only what says that it has no gradient may have no tangent."""
    try:
        (one,) = push_forward([node], tangents)
    except ArgumentError as error:
        assert "has no gradient" in str(error)  # schur, semirings other than plus_times
        return
    assert one is None or (node.dtype.is_inexact and one.shape == node.shape and one.dtype is node.dtype)
    (through,) = push_forward([cast(cast(node, int64), float64)], tangents) if not node.dtype.is_complex else (None,)
    assert through is None


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.op)
def test_operands_made_of_what_varies(case: Elementwise) -> None:
    """Integers and booleans that are made of the argument have no tangent, whatever the operation."""
    for dtype in case.dtypes:
        operands, tangents = from_floats([((7,), kind) for kind in case.inputs(dtype)])
        pushed_or_missing(case.build(*operands), tangents)


@pytest.mark.parametrize("case", SHAPED, ids=str)
def test_shaped_operands_made_of_what_varies(case: Shaped) -> None:
    for dtype in list(case.dtypes)[:2]:
        specs = case.specs(dtype, LENGTHS.get(str(case), 3))
        operands, tangents = from_floats(specs)
        pushed_or_missing(case.make(*operands), tangents)


COUNTED: dict[str, Any] = {
    "cast": lambda x: x.astype(mo.int32), "any": mo.any, "all": mo.all, "count": mo.count_nonzero,
    "one_hot": lambda x: mo.one_hot(x.astype(mo.int32), 4), "gcd": lambda x: mo.gcd(x.astype(mo.int64), 4),
    "norm 0": lambda x: mo.linalg.vector_norm(x, ord=0), "argsort": mo.argsort, "floor": mo.floor,
    "searchsorted": lambda x: mo.searchsorted(mo.sort(x), x), "histogram": lambda x: mo.histogram(x, 3)[0],
}


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_counted_has_no_tangent(name: str) -> None:
    function, x, v = COUNTED[name], mo.asarray([0.5, 1.0, 2.0]), mo.ones(3)
    value, tangent = mo.jvp(function, (x,), (v,))
    assert tangent.dtype is value.dtype and tangent.shape == value.shape and not np.any(tangent.numpy())
    assert not np.any(mo.linearize(function, x)[1](v).numpy())

    def whole(x: mo.Tensor) -> mo.Tensor:
        return (mo.take(x, mo.clip(x, 0, 2).astype(mo.int32)) ** 2).sum() * function(x).astype(mo.float32).sum()

    gradient = mo.grad(whole)(x).numpy()
    assert np.allclose(mo.jacfwd(whole)(x).numpy(), gradient) and np.isclose(
        mo.jvp(whole, (x,), (v,))[1].item(), gradient.sum())
    assert np.allclose(mo.hvp(whole, (x,), (v,))[0].numpy(), mo.hessian(whole)(x).numpy().sum(axis=1))


@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_the_exponential_of_matrices(kind: str, rng: np.random.Generator) -> None:
    a, v = (mo.asarray(rng.normal(0, 1, (2, 2)).astype(kind)) for _ in range(2))
    step = 1e-6
    want = (mo.linalg.expm(a + step * v) - mo.linalg.expm(a - step * v)) / (2 * step)
    got = mo.jvp(mo.linalg.expm, (a,), (v,))[1]
    assert np.allclose(got.numpy(), want.numpy(), rtol=1e-6, atol=1e-8)
    if kind == "float64":
        f = lambda x: (mo.linalg.expm(x) ** 2).sum()
        hessian = mo.hessian(f)(a).numpy().reshape(4, 4)
        along = ((mo.grad(f)(a + step * v) - mo.grad(f)(a - step * v)) / (2 * step)).numpy().ravel()
        assert np.allclose(hessian, hessian.T) and np.allclose(hessian @ v.numpy().ravel(), along, rtol=1e-5)
