"""Every alternative that the tuner may try computes the same bits as the default."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
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
    "attention": lambda r: (lambda q, k, v: mo.attention(q, k, v, causal=True),
                            (tensor(r, 1, 4, 100, 32), tensor(r, 1, 2, 100, 32), tensor(r, 1, 2, 100, 32))),
    "sparse": lambda r: (lambda a, x: a @ x, (mo.sparse.from_dense(np.triu(r.random((200, 200)) < 0.1).astype("f")),
                                              tensor(r, 200, 9))),
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
        for choice in draw.sample(near, min(3, len(near))):
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


def test_a_slice_is_the_node_of_the_program(rng: np.random.Generator) -> None:
    """On parameters of its own: the same operation, sizes and key."""
    compiled = mo.compile(lambda x, w: mo.gelu(x @ w + 1))
    x, w = tensor(rng, 33, 65), tensor(rng, 65, 50)
    compiled(x, w)
    assert compiled.current is not None
    plan = compiled.current.plan
    (problem,) = plan.lowered.problems.values()
    part = Slice(problem, plan.constants, thresholds.current())
    (node,) = part.graph.outputs
    assert node.op is problem.node.op and node.shape == problem.node.shape == (33, 50)
    assert all(leaf.op.name == "parameter" for leaf in part.graph.parameters)
    assert [bucket(size) for size in problem.sizes] == [1, 48, 96, 64]


def test_sizes_within_a_bucket_share_a_choice_and_keep_their_bits(rng: np.random.Generator) -> None:
    """A choice found at one size serves all of its bucket."""
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


def test_matrix_units_or_vectors_is_a_choice() -> None:
    """For a machine with AMX, whatever this one is: both ways are offered, and the chosen one is taken."""
    from morpho.backends.kernels.gemm.amx.amx import AmxGemmKernel
    from morpho.backends.lowering.lower_graph import build_program
    from morpho.base.dtypes import bfloat16
    from morpho.base.machine import foreign_machine
    from morpho.base.target import target_for
    from morpho.cost.dispatch_thresholds import DispatchThresholds
    from morpho.cost.tuned_choices import Choice, Choices
    from morpho.ir.graph import Graph
    from morpho.ir.node import build
    from morpho.program.program import Step

    target = target_for("amx", threads=2, machine=foreign_machine("x86_64"))
    a, b = (build("parameter", index=index, shape=shape, dtype=bfloat16)
            for index, shape in enumerate(((64, 96), (96, 48))))
    graph = Graph((build("matmul", a, b),))

    def kernels(choices: Choices) -> set[type]:
        program = build_program(graph, True, 2, target, (), DispatchThresholds(choices=choices))
        return {type(step.kernel) for step in program.steps if isinstance(step, Step)}

    (problem,) = build_program(graph, True, 2, target, (), DispatchThresholds()).problems.values()
    offered = space.neighbours(problem, PLAIN)
    vectors = next(way for way in problem.ways if "matrix units" not in way)
    assert Choice(way=vectors) in offered and Choice(way=vectors, threads="many") in offered, "and all threads at once"
    assert Choice(threads="many", tile_rows=16) not in offered, "other knobs one at a time"
    assert AmxGemmKernel in kernels(Choices())
    assert AmxGemmKernel not in kernels(Choices.of({problem.key: Choice(way=vectors)}))


def test_a_slice_holds_a_bounded_amount(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """Packed weights of many choices are dropped, the oldest first, and packed again when asked for."""
    from morpho.runtime.tuner import slices

    w = tensor(rng, 64, 48)
    compiled = mo.compile(lambda x: x @ w)
    compiled(tensor(rng, 40, 64))
    assert compiled.current is not None
    plan = compiled.current.plan
    (problem,) = plan.lowered.problems.values()
    part = Slice(problem, plan.constants, thresholds.current())
    expected = part.bits(PLAIN)
    monkeypatch.setattr(slices, "MOST_BYTES", 1 << 14)
    near = space.neighbours(problem, PLAIN)[:6]
    assert all(part.bits(choice) == expected for choice in near)
    assert len(part._calls) < 6 and PLAIN not in part._calls
    assert part.bits(PLAIN) == expected


@pytest.mark.parametrize(("name", "choice", "said"), [
    ("attention", {"tile_rows": 16}, "mc 16"), ("attention", {"threads": "one"}, "threads one"),
    ("sparse", {"tile_rows": 128}, "mc 128"), ("given", {"prefetch": "4"}, "prefetch 4")])
def test_a_choice_reaches_the_step_and_keeps_the_bits(name: str, choice: dict[str, Any], said: str,
                                                      rng: np.random.Generator) -> None:
    """Rows of a tile of attention, row splits of sparse products, prefetch distance: taken, and said by `explain`."""
    from morpho.cost.tuned_choices import Choice, Choices

    function, args = CASES[name](rng)
    plain = mo.compile(function)
    expected = plain(*args).numpy().tobytes()
    assert plain.current is not None and "from the tuner" not in plain.explain()
    before = {tuple(step.values) for step in plain.current.plan.lowered.steps}
    chosen = Choices.of({key: Choice(**choice) for key in plain.current.plan.lowered.problems})
    with thresholds.using(replace(thresholds.current(), choices=chosen)):
        other = mo.compile(function)
        assert other(*args).numpy().tobytes() == expected
        assert f"from the tuner: {said}" in other.explain()
        assert other.current is not None
        if "tile_rows" in choice:
            assert {tuple(step.values) for step in other.current.plan.lowered.steps} != before


def test_the_prefetch_distance_is_in_the_code() -> None:
    from morpho.backends.kernels.gemm.tiling import Register

    register = Register((8,), 3, 16)
    assert [replace(register, prefetch=word).panels_ahead for word in ("", "on", "2", "4")] == [1, 1, 2, 4]
    assert [replace(register, prefetch=word).prefetches for word in ("off", "on", "2")] == [False, True, True]
