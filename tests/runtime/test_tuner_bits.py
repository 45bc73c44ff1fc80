"""Every alternative that the tuner may try computes the same bits as the default."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.cost.tuned_choices import PLAIN, Problem, bucket
from morpho.runtime import thresholds
from morpho.runtime.tuner import space
from morpho.runtime.tuner.slices import Slice


def tensor(rng: np.random.Generator, *shape: int, dtype: Any = mo.float32) -> Any:
    return mo.asarray(rng.standard_normal(shape).astype(np.float32), copy=True).astype(dtype)


def problems_of(function: Callable[..., Any], *args: Any) -> tuple[dict[str, Problem], Any]:
    compiled = mo.compile(function)
    compiled(*args)
    assert compiled.current is not None
    plan = compiled.current.plan
    return plan.lowered.problems, plan.constants


CASES: dict[str, Callable[[np.random.Generator], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "given": lambda r: (lambda x, w: x @ w, (tensor(r, 70, 90), tensor(r, 90, 100))),
    "epilogue": lambda r: (lambda x, w: mo.gelu(x @ w + 1), (tensor(r, 33, 65), tensor(r, 65, 50))),
    "transposed": lambda r: (lambda x, w: x @ w.T, (tensor(r, 40, 64), tensor(r, 70, 64))),
    "gemv": lambda r: (lambda x, w: x @ w, (tensor(r, 1, 300), tensor(r, 300, 200))),
    "few rows": lambda r: (lambda x, w: mo.relu(x @ w), (tensor(r, 12, 64), tensor(r, 64, 96))),
    "prologue": lambda r: (lambda x, w: mo.layer_norm(x) @ w, (tensor(r, 512, 64), tensor(r, 64, 48))),
    "bfloat16": lambda r: (lambda x, w: x @ w, (tensor(r, 40, 96, dtype=mo.bfloat16),
                                                tensor(r, 96, 64, dtype=mo.bfloat16))),
    "float64": lambda r: (lambda x, w: x @ w, (tensor(r, 20, 70, dtype=mo.float64),
                                               tensor(r, 70, 40, dtype=mo.float64))),
    "batched": lambda r: (lambda x, w: x @ w, (tensor(r, 3, 20, 40), tensor(r, 3, 40, 30))),
    "convolution": lambda r: (lambda x, w: mo.relu(mo.conv2d(x, w)), (tensor(r, 1, 8, 20, 20), tensor(r, 16, 8, 3, 3))),
    "loop": lambda r: (lambda x: mo.exp(x) * 2, (tensor(r, 300, 4000),)),
}


@pytest.mark.parametrize("name", CASES)
def test_all_alternatives_have_the_same_bits(name: str, rng: np.random.Generator, seed: int) -> None:
    """Neighbours of the default (a sample of them: each is compiled), and of a neighbour."""
    function, args = CASES[name](rng)
    problems, constants = problems_of(function, *args)
    assert problems
    draw = random.Random(seed)
    tried = 0
    for problem in problems.values():
        part = Slice(problem, constants, thresholds.current())
        expected = part.bits(PLAIN)
        assert any(any(data) for data in expected)  # not zeros alone
        near = space.neighbours(problem, PLAIN)
        for choice in draw.sample(near, min(5, len(near))):
            assert part.bits(choice) == expected, choice.said()
            tried += 1
            further = draw.choice(space.neighbours(problem, choice))
            assert part.bits(further) == expected, further.said()
    assert tried


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_the_whole_neighbourhood_has_the_same_bits(name: str, rng: np.random.Generator) -> None:
    function, args = CASES[name](rng)
    problems, constants = problems_of(function, *args)
    for problem in problems.values():
        part = Slice(problem, constants, thresholds.current())
        expected = part.bits(PLAIN)
        for choice in space.neighbours(problem, PLAIN):
            assert part.bits(choice) == expected, choice.said()


def test_a_slice_computes_what_the_program_does(rng: np.random.Generator) -> None:
    """A slice is the node itself: with other numbers in its memory its steps have the same kernels."""
    compiled = mo.compile(lambda x, w: mo.gelu(x @ w + 1))
    x, w = tensor(rng, 33, 65), tensor(rng, 65, 50)
    compiled(x, w)
    assert compiled.current is not None
    plan = compiled.current.plan
    (problem,) = plan.lowered.problems.values()
    part = Slice(problem, plan.constants, thresholds.current())
    part.call(PLAIN)
    assert problem.key in part.graph.outputs[0].op.name or part.graph.outputs[0].op.name == "gemm"
    assert [bucket(size) for size in problem.sizes] == [1, 48, 96, 64]


def test_sizes_within_a_bucket_share_a_choice_and_keep_their_bits(rng: np.random.Generator) -> None:
    """A choice found at one size serves all of its bucket."""
    from dataclasses import replace

    from morpho.cost.tuned_choices import Choice, Choices

    for rows in (33, 40, 48):
        x, w = tensor(rng, rows, 70), tensor(rng, 70, 60)
        plain = mo.compile(lambda x, w: x @ w)
        expected = plain(x, w).numpy().tobytes()
        assert plain.current is not None
        (key,) = plain.current.plan.lowered.problems
        chosen = Choices.of({key: Choice(height=4, vectors=2, tile_rows=16, k_block=32)})
        with thresholds.using(replace(thresholds.current(), choices=chosen)):
            other = mo.compile(lambda x, w: x @ w)
            assert other(x, w).numpy().tobytes() == expected
            assert "from the tuner: mc 16, kc 32, mr 4, nr 2 vectors" in other.explain()
