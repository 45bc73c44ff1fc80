"""Every record in forward mode: along a tangent as central differences have it, and the transpose of its gradient."""

from __future__ import annotations

import numpy as np
import pytest
from cases import SHAPED
from elementwise_cases import PLAIN, Elementwise
from running import by_reference, parameter
from shaped_case import Shaped
from test_gradients import LENGTHS, generator

from morpho.base.dtypes import bool_, complex128, float64
from morpho.ir.node import Node
from morpho.ir.op import REGISTRY, NoGradient
from morpho.ops.algebra import add, conj, constant_like, mul, zeros_like
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
