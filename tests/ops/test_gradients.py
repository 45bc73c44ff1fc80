"""Every record's gradient against central differences in float64, alone, through compositions, and as native code."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from cases import SHAPED
from elementwise_cases import PLAIN, Elementwise
from running import Native, by_reference, parameter
from shaped_case import Shaped

from morpho.base.dtypes import bool_, float64, int64
from morpho.ir.node import Node, build
from morpho.ir.op import REGISTRY, NoGradient
from morpho.ops.algebra import constant_like, expand
from morpho.tensor.autodiff.gradient import pull_back

Array = Any
STEP = 1e-6


def numeric_gradient(node: Node, arrays: list[Array], which: int, cotangent: Array) -> Array:
    """The gradient of sum(node * cotangent) by central differences, element by element."""
    result = np.zeros_like(arrays[which])
    for place in np.ndindex(*arrays[which].shape):
        values = []
        for sign in (1, -1):
            moved = [array.copy() for array in arrays]
            moved[which][place] += sign * STEP
            (out,) = by_reference([node], moved)
            values.append(np.sum(out * cotangent))
        result[place] = (values[0] - values[1]) / (2 * STEP)
    return result


def check(node: Node, leaves: Sequence[Node], arrays: list[Array], rng: np.random.Generator,
          tolerance: float = 2e-5) -> None:
    """pull_back against differences; and its native code against its reference."""
    cotangent = rng.normal(0, 1, node.shape)
    seed = parameter(len(leaves), node.shape, float64)
    floats = [i for i, leaf in enumerate(leaves) if leaf.dtype is float64]
    gradients = pull_back([node], [seed], [leaves[i] for i in floats])
    everything = [*arrays, cotangent]
    found = by_reference(gradients, everything)
    native = Native(gradients)(everything)
    for i, gradient, compiled in zip(floats, found, native):
        want = numeric_gradient(node, arrays, i, cotangent)
        scale = 1 + np.max(np.abs(want), initial=0)
        assert gradient.shape == arrays[i].shape
        assert np.allclose(gradient, want, rtol=tolerance, atol=tolerance * scale), (node, i, gradient, want)
        assert np.allclose(gradient, compiled, rtol=1e-12, atol=1e-12 * scale), (node, i)


def generator(session_seed: int, *key: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(key).encode(), session_seed & 0xFFFFFFFF))


DIFFERENTIABLE = [case for case in PLAIN
                  if not isinstance(REGISTRY[case.op].vjp, NoGradient) and float64 in case.dtypes]


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=lambda case: case.op)
def test_elementwise_gradient(case: Elementwise, session_seed: int) -> None:
    rng = generator(session_seed, case.op)
    kinds = case.inputs(float64)
    leaves = [parameter(i, (7,), dtype) for i, dtype in enumerate(kinds)]
    arrays = [rng.random(7) < 0.5 if dtype is bool_ else rng.uniform(*case.domain, 7) for dtype in kinds]
    if case.op == "remainder":  # away from the steps, where it is not continuous
        arrays[0] = arrays[1] * (rng.integers(0, 3, 7) + rng.uniform(0.2, 0.8, 7))
    check(case.build(*leaves), leaves, arrays, rng)


# Complex results are in test_forward.py; the page of gradients says what a gradient of theirs is.
SHAPED_WITH = [case for case in SHAPED
               if float64 in case.dtypes and case.gradient and case.op not in ("fft", "complex")]
LENGTHS = {"slice-steps": 4, "update-steps": 4, "cross_entropy-classes": 5, "cross_entropy-all even": 5,
           "cross_entropy-smoothed, some ignored": 5}


@pytest.mark.sampled
@pytest.mark.parametrize("case", SHAPED_WITH, ids=str)
def test_shaped_gradient(case: Shaped, session_seed: int) -> None:
    rng = generator(session_seed, str(case))
    specs = case.specs(float64, LENGTHS.get(str(case), 3))
    leaves = [parameter(i, shape, dtype) for i, (shape, dtype) in enumerate(specs)]
    node = case.make(*leaves)
    arrays = []
    for position, (shape, dtype) in enumerate(specs):
        if (case.draw is not None and dtype is not float64) or (case.draw is not None and len(shape) == 3):
            arrays.append(case.draw(rng, position, shape, dtype))
        else:
            arrays.append(rng.uniform(0.5, 2, shape) * rng.choice([-1, 1], shape))
    record = node.inputs[0].op if node.op.name == "pick" else node.op
    if isinstance(record.vjp, NoGradient) and record.composition is None:
        assert record.vjp.reason
        return
    if record.name in ("cholesky", "eigvalsh", "eigh"):  # of symmetric matrices: differences must stay among them
        half = 0.5
        turned = build("permute", leaves[0], axes=(0, 2, 1))
        even = build("multiply", build("add", leaves[0], turned), constant_like(leaves[0], half))
        node = case.make(even)
    check(node, leaves, arrays, rng)


def test_no_gradient_says_why() -> None:
    for op in REGISTRY.values():
        if isinstance(op.vjp, NoGradient):
            assert len(op.vjp.reason) > 8, op


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_gradient_of_a_product_with_zeros(zeros: int, rng: np.random.Generator) -> None:
    x = rng.uniform(0.5, 2, (2, 5))
    x[0, :zeros] = 0
    leaf = parameter(0, x.shape, float64)
    check(build("prod", leaf, axes=(1,)), [leaf], [x], rng)


def test_ties_share_the_gradient() -> None:
    x = np.array([2.0, 1.0, 2.0, 0.5])
    leaf = parameter(0, x.shape, float64)
    node = build("max", leaf, axes=(0,))
    (gradient,) = by_reference(pull_back([node], [constant_like(node, 1.0)], [leaf]), [x])
    assert gradient.tolist() == [0.5, 0, 0.5, 0]


def test_steps_and_integers_stop_the_gradient() -> None:
    x = parameter(0, (4,), float64)
    for node in (build("floor", x), build("cast", build("cast", x, dtype=int64), dtype=float64),
                 build("cast", build("greater", x, constant_like(x, 0.0)), dtype=float64)):
        (gradient,) = by_reference(pull_back([node], [constant_like(node, 1.0)], [x]), [np.array([-1.5, 0.5, 1, 2])])
        assert not gradient.any()


def _attention(q: Node, k: Node, v: Node) -> Node:
    scores = build("matmul", q, build("permute", k, axes=(1, 0)))
    return build("matmul", build("softmax", scores, axes=(1,)), v)


def _twice_used(x: Node, y: Node, z: Node) -> Node:
    shared = build("tanh", build("add", x, y))
    total = build("sum", build("multiply", shared, z), axes=(1,))
    return build("multiply", shared, expand(total, shared.shape))


def _moved(x: Node, y: Node, z: Node) -> Node:
    joined = build("concatenate", build("permute", x, axes=(1, 0)), build("permute", y, axes=(1, 0)), axis=1)
    padded = build("pad", joined, before=(1, 0), after=(0, 1), value=0.0)
    cut = build("slice", padded, starts=(3, 0), sizes=(4, 7), steps=(-1, 1))
    running = build("cumulative_sum", cut, axis=1)
    return build("layer_norm", running, axes=(1,), eps=1e-3)


def _loss(x: Node, y: Node, z: Node) -> Node:
    logs = build("log_softmax", build("gelu", x), axes=(1,))
    picked = build("gather", logs, build("cast", constant_like(build("slice", x, starts=(0, 0), sizes=(3, 1),
                                                                      steps=(1, 1)), 2.0), dtype=int64), axis=1)
    return build("add", build("sum", picked, axes=(0,)),
                 build("sum", build("square", build("subtract", y, z)), axes=(0, 1)))


@pytest.mark.parametrize("function", [_attention, _twice_used, _moved, _loss], ids=lambda f: f.__name__.strip("_"))
def test_gradient_of_a_program(function: Callable[..., Node], rng: np.random.Generator) -> None:
    leaves = [parameter(i, (3, 4) if function is not _attention else (3, 3), float64) for i in range(3)]
    arrays = [rng.normal(0, 1, leaf.shape) for leaf in leaves]
    check(function(*leaves), leaves, arrays, rng)
