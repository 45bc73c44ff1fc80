"""Fusion: what is one kernel, at which level; groups with several outputs; no cycles; gathers read from memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from programs import random_program
from running import Native, by_reference, equal_bits, parameter, stored

import morpho as mo
from morpho.base.dtypes import DType, bfloat16, float16, float32, float64, int64
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build
from morpho.ir.verify import verify
from morpho.ops.algebra import cast, constant_like, expand, mean, reshape, sub
from morpho.passes import pipeline
from morpho.passes.canonical import inline
from morpho.passes.fusion.candidates import MOST_INPUTS
from morpho.program.program import Step
from morpho.tensor.autodiff.gradient import pull_back


def kernels(*outputs: Node, level: int = 3, off: str = "") -> int:
    with mo.settings(level=level, passes_off=off):
        return Native(outputs).program.kernels


FUSED: dict[str, Callable[[Node], Node]] = {
    "softmax": lambda x: build("softmax", x, axes=(1,)),
    "log_softmax": lambda x: build("log_softmax", x, axes=(1,)),
    "logsumexp": lambda x: build("logsumexp", x, axes=(1,)),
    "layer_norm": lambda x: build("layer_norm", x, axes=(1,), eps=1e-5),
    "rms_norm": lambda x: build("rms_norm", x, axes=(1,), eps=1e-5),
    "gelu": lambda x: build("gelu", x),
    "silu": lambda x: build("silu", x),
    "softplus": lambda x: build("softplus", x),
    "mish": lambda x: build("mish", x),
    "sigmoid": lambda x: build("sigmoid", x),
}


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [float32, float16, bfloat16, float64], ids=str)
@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("name", FUSED)
def test_one_kernel_at_every_level(name: str, level: int, dtype: DType) -> None:
    assert kernels(FUSED[name](parameter(0, (5, 67), dtype)), level=level) == 1


@pytest.mark.parametrize("off", ["fuse", "inline", "fuse,inline"])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "logsumexp"])
def test_one_kernel_with_passes_off(name: str, off: str) -> None:
    assert kernels(FUSED[name](parameter(0, (5, 67), float32)), off=off) == 1


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", [float32, float16, bfloat16], ids=str)
def test_norms_with_weight_and_bias_are_one_kernel(level: int, dtype: DType, rng: np.random.Generator) -> None:
    x, weight, bias = parameter(0, (5, 67), dtype), parameter(1, (67,), dtype), parameter(2, (67,), dtype)
    for node in (build("layer_norm", x, weight, bias, axes=(1,), eps=1e-5),
                 build("rms_norm", x, weight, axes=(1,), eps=1e-5)):
        assert kernels(node, level=level) == 1


def _with_weights(name: str, dtype: DType, shape: tuple[int, ...]) -> list[Node]:
    """The op on a tensor, followed by its inputs."""
    x, line = parameter(0, shape, dtype), shape[-1:]
    others = {"layer_norm": 2, "rms_norm": 1}.get(name, 0)
    leaves = [x, *[parameter(i + 1, line, dtype) for i in range(others)]]
    options = {"eps": 1e-5} if "norm" in name else {}
    return [build(name, *leaves, axes=(len(shape) - 1,), **options), *leaves]


ROW_OPS = ("softmax", "log_softmax", "logsumexp", "layer_norm", "rms_norm")


@pytest.mark.sampled
@pytest.mark.parametrize("shape", [(5, 67), (3, 4, 33)])
@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16], ids=str)
@pytest.mark.parametrize("name", ROW_OPS)
def test_gradients_of_row_ops_need_the_fewest_kernels(name: str, dtype: DType, shape: tuple[int, ...]) -> None:
    """One over the rows; with a weight a second one that adds up the rows, for weight and bias together."""
    node, *leaves = _with_weights(name, dtype, shape)
    slope = parameter(len(leaves), node.shape, dtype)
    backward = pull_back([node], [slope], leaves)
    assert kernels(node) == 1
    assert kernels(*backward) == (1 if len(leaves) == 1 else 2)
    assert kernels(node, *backward) == (1 if len(leaves) == 1 else 2)


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
@pytest.mark.parametrize("name", ROW_OPS)
def test_gradients_of_row_ops_have_the_same_bits_at_every_level(name: str, dtype: DType,
                                                                rng: np.random.Generator) -> None:
    node, *leaves = _with_weights(name, dtype, (7, 67))
    slope = parameter(len(leaves), node.shape, dtype)
    backward = [node, *pull_back([node], [slope], leaves)]
    arrays = [stored(rng.normal(0, 2, leaf.shape), dtype) for leaf in (*leaves, slope)]
    first = None
    for level, off in ((3, ""), (2, ""), (1, ""), (0, ""), (3, "fuse"), (3, "inline")):
        with mo.settings(level=level, passes_off=off):
            found = Native(backward)(arrays)
        first = first or found
        for one, other, out in zip(first, found, backward, strict=True):
            assert equal_bits(one, other, out.dtype)


def test_sums_that_have_nothing_in_common_stay_apart() -> None:
    """Joining them would keep both operands alive for as long as the later one."""
    x, y = parameter(0, (6, 33), float32), parameter(1, (6, 33), float32)
    assert kernels(build("sum", x, axes=(0,)), build("sum", y, axes=(0,))) == 2


def test_values_of_rows_move_into_the_reduction_that_uses_them(rng: np.random.Generator) -> None:
    x, row, other = parameter(0, (6, 33), float32), parameter(1, (6, 1), float32), parameter(2, (6, 1), float32)
    scale = build("add", build("square", row), other)  # one per row
    total = build("sum", build("multiply", x, expand(scale, x.shape)), axes=(1,))
    assert kernels(total) == 1
    assert kernels(total, scale) == 1  # and stays an output
    arrays = [rng.normal(0, 1, leaf.shape).astype("f") for leaf in (x, row, other)]
    for got, want in zip(Native([total, scale])(arrays), by_reference([total, scale], arrays), strict=True):
        assert np.allclose(got, want, rtol=1e-5, atol=1e-5)  # sums of both signs
    dear = build("multiply", x, expand(build("exp", row), x.shape))
    assert kernels(build("sum", dear, axes=(1,))) == 2  # an exp per row is better done for many rows at once
    loop = build("sum", build("multiply", x, expand(scale, x.shape)), axes=(0,))  # between the value and its use
    back = build("multiply", build("multiply", x, expand(loop, x.shape)), expand(scale, x.shape))
    rows = build("sum", back, axes=(1,))
    for got, want in zip(Native([rows])(arrays), by_reference([rows], arrays), strict=True):
        assert np.allclose(got, want, rtol=1e-4)


@pytest.mark.parametrize("rows", [5, 12, 64])
def test_a_group_that_grows_behind_a_view_is_built_first(rows: int, rng: np.random.Generator) -> None:
    """The group of the count gets a later node that needs the losses: what looks at it through a view must know."""
    def both(x: mo.Tensor, t: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        counted = (t != 3).astype("int64").sum().astype("float32")
        loss = (mo.cross_entropy(x, t, ignore_index=3, reduction="none") * (1 / counted)).sum()
        return loss, mo.Tensor.of_node(pull_back([loss.node], [constant_like(loss.node, 1)], [x.node])[0])

    f = mo.compile(both)
    f(mo.asarray(rng.normal(0, 1, (rows, 50)).astype("f")), mo.asarray(rng.integers(4, 50, rows)))
    assert f.stats["host_steps"] == f.stats["fallbacks"] == 0


def test_a_gather_of_index_numbers_reads_no_memory() -> None:
    index = parameter(0, (6, 1), int64)
    numbers = build("iota", shape=(6, 33), axis=1, dtype=int64)
    (step,) = Native([build("gather", numbers, index, axis=1)]).program.steps
    assert isinstance(step, Step) and step.may_fault and len(step.reads) == 1


def test_chains_and_reductions_on_either_side() -> None:
    x, y = parameter(0, (6, 33), float32), parameter(1, (6, 33), float32)
    chain = build("tanh", build("add", build("multiply", x, y), x))
    total = build("sum", build("square", sub(x, y)), axes=(1,))
    centred = sub(chain, expand(build("max", chain, axes=(1,)), chain.shape))
    for node in (chain, total, centred, build("sqrt", total), build("softmax", chain, axes=(1,))):
        assert kernels(node) == 1


def test_mean_and_variance_are_one_kernel() -> None:
    x = parameter(0, (6, 33), float32)
    middle = mean(x, (1,))
    variance = mean(build("square", sub(x, expand(middle, x.shape))), (1,))
    assert kernels(middle, variance) == 1
    assert kernels(build("divide", sub(x, expand(middle, x.shape)), expand(build("sqrt", variance), x.shape))) == 1


def test_sum_dot_and_max_of_the_same_rows_are_one_kernel() -> None:
    x, y = parameter(0, (6, 33), float32), parameter(1, (6, 33), float32)
    assert kernels(build("sum", x, axes=(1,)), build("sum", build("multiply", x, y), axes=(1,)),
                   build("max", x, axes=(1,))) == 1


def test_a_row_that_fits_is_read_once() -> None:
    """Softmax computes exp once: the second walk finds the kept values instead of computing them again."""
    x = parameter(0, (6, 33), float32)
    (step,) = Native([build("softmax", x, axes=(1,))]).program.steps
    kernel = step.kernel
    exps = [n for n, i in enumerate(kernel.instructions) if i.name == "exp_nonpositive"]
    computed = [n for walk in kernel.passes for n in walk.needed if n in exps and n not in walk.kept]
    assert len(exps) == len(computed) == 1


def test_groups_with_several_outputs(rng: np.random.Generator) -> None:
    x = parameter(0, (4, 9), float32)
    shared = build("exp", x)
    outputs = [shared, build("negative", shared), build("sum", shared, axes=(1,)), build("square", shared)]
    native = Native(outputs)
    assert native.program.kernels == 1
    value = rng.normal(0, 1, (4, 9)).astype("f")
    for a, b in zip(native([value]), by_reference(outputs, [value])):
        assert np.allclose(a, b, rtol=1e-6)


def test_a_path_that_leaves_the_group_is_not_closed() -> None:
    """y depends on x's sum over the other axis: fusing all three would need a value before it exists."""
    x = parameter(0, (6, 8), float32)
    scaled = build("multiply", x, constant_like(x, 3.0))
    columns = build("sum", scaled, axes=(0,))
    node = sub(scaled, expand(columns, scaled.shape))
    rows = build("sum", node, axes=(1,))
    optimised, _ = pipeline.optimise(Graph((rows, node)), 3)
    verify(optimised, "fuse")
    value = np.arange(48.0, dtype="f").reshape(6, 8)
    for a, b in zip(Native([rows, node])([value]), by_reference([rows, node], [value])):
        assert np.allclose(a, b, rtol=1e-5)


def test_a_view_knows_what_its_group_came_to_need() -> None:
    """The group of `a` reads `b` after a view of `a` was seen: what reads both that view and `b` cannot join `b`."""
    x, y = parameter(0, (3, 4), float32), parameter(1, (4,), float32)
    a, b = build("exp", x), build("sin", y)
    seen = build("slice", build("reshape", a, shape=(12,)), starts=(2,), sizes=(4,), steps=(1,))
    outputs = [seen, build("add", a, expand(reshape(b, (1, 4)), (3, 4))), build("add", b, seen)]
    native = Native(outputs)
    assert native.program.is_native and native.program.kernels == 4  # one copies the view out
    arrays = [np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4), np.linspace(1, 2, 4, dtype=np.float32)]
    for found, expected in zip(native(arrays), by_reference(outputs, arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_base_of_a_gather_lies_in_memory() -> None:
    """Its value may be computed beside the gather, but not in the same kernel (found by the fuzzer)."""
    x, index = parameter(0, (8,), float32), parameter(1, (8,), int64)
    base = build("silu", x)
    node = build("logaddexp", build("gather", base, index, axis=0), base)
    arrays = [np.linspace(-2, 2, 8, dtype="f"), np.arange(8)[::-1].copy()]
    native = Native([node])
    assert native.program.kernels == 2
    assert np.allclose(native(arrays)[0], by_reference([node], arrays)[0], rtol=1e-6)


def test_a_group_does_not_read_a_view_of_its_own_value() -> None:
    """The row backwards and its minimum: two kernels, for the first one's value is read in another order."""
    x = parameter(0, (7,), float32)
    wave = build("tanh", x)
    back = build("negative", build("slice", wave, starts=(6,), sizes=(7,), steps=(-1,)))
    node = build("multiply", back, expand(build("min", wave, axes=(0,)), (7,)))
    native = Native([node])
    assert native.program.kernels == len(native.program.steps) == 2
    value = np.linspace(-1, 2, 7, dtype="f")
    assert np.allclose(native([value])[0], by_reference([node], [value])[0], rtol=1e-6)


def test_two_groups_are_not_joined_for_a_node_that_cannot_enter() -> None:
    """One operand of `where` is a view of a row of the second group: it must be in memory first."""
    x = parameter(0, (8, 7), float32)
    squares = build("square", x)
    rows = build("slice", build("sum", squares, axes=(1,)), starts=(7, 0), sizes=(8, 1), steps=(-1, 1))
    node = build("where", build("isfinite", x), expand(rows, (8, 7)), squares)
    native = Native([node])
    assert all(isinstance(step, Step) for step in native.program.steps)
    value = np.arange(56.0, dtype="f").reshape(8, 7)
    assert np.array_equal(native([value])[0], by_reference([node], [value])[0])


def test_a_gather_from_a_constant() -> None:
    index = parameter(0, (5,), int64)
    node = build("gather", build("iota", shape=(7,), axis=0, dtype=float32), index, axis=0)
    assert Native([node])([np.array([6, 0, 3, 3, 1])])[0].tolist() == [6, 0, 3, 3, 1]


def test_no_group_reads_more_than_it_may() -> None:
    total: Node = parameter(0, (5,), float32)
    for i in range(1, 3 * MOST_INPUTS):
        total = build("add", build("exp", parameter(i, (5,), float32)), total)
    optimised, _ = pipeline.optimise(Graph((total,)), 3)
    groups = [node for node in optimised.nodes if node.op.name == "group"]
    assert len(groups) > 1 and all(len(group.inputs) <= MOST_INPUTS + 2 for group in groups)


def test_every_native_node_stands_in_one_group(session_seed: int) -> None:
    """No node is computed twice, and no graph has a cycle or breaks the grammar, at any level."""
    before = pipeline.checking
    pipeline.checking = True
    try:
        for number in range(300):
            graph = inline(Graph(random_program(session_seed + number).outputs))
            for level in (0, 2, 3):
                optimised, _ = pipeline.optimise(graph, level)
                computed = sum(node.op.kind in ("elementwise", "reduce") and not any(
                    s.dtype.is_complex for s in (*node.outputs, *(c.spec for c in node.inputs)))
                    for node in optimised.nodes)
                assert computed == 0, (session_seed + number, level)
    finally:
        pipeline.checking = before


def test_casts_inside_a_fused_op_keep_its_rounding(rng: np.random.Generator) -> None:
    """softmax of float16 widens once and rounds once, fused with its neighbours or not."""
    x = parameter(0, (4, 50), float16)
    node = build("multiply", build("softmax", build("add", x, x), axes=(1,)), constant_like(x, 3.0))
    value = rng.normal(0, 1, (4, 50)).astype(np.float16)
    (want,) = Native([node])([value])
    for level in (0, 1, 2):
        with mo.settings(level=level):
            assert equal_bits(Native([node])([value])[0], want, float16)
    wide = cast(build("add", x, x), float32)
    assert cast(wide, float32) is wide


@pytest.mark.parametrize("rows", [1, 5])
def test_a_reduced_axis_of_size_one(rng: np.random.Generator, rows: int) -> None:
    """Full and row values then have the same shape; a value computed from both is a full one."""
    def program(x: mo.Tensor) -> tuple[mo.Tensor, ...]:
        doubled = x * 2.0
        total = mo.sum(doubled, axis=1, keepdims=True)
        both = total + doubled
        flat = mo.reshape(both, (rows,)) * mo.reshape(total, (rows,))
        mixed = mo.exp(both) * total + doubled
        return total, doubled, both, flat, mixed, mo.sum(mixed, axis=1) + mo.reshape(doubled, (rows,))

    x = mo.asarray(rng.random((rows, 1)).astype(np.float32))
    with mo.settings(device="reference"):
        expected = [value.numpy() for value in program(x)]
    for found, value in zip(mo.compile(program)(x), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), value, rtol=1e-5)


@pytest.mark.parametrize(("columns", "kernels"), [(16, 2), (200, 1)])
def test_the_place_of_the_least_after_a_product(columns: int, kernels: int, rng: np.random.Generator) -> None:
    """Few columns are looked at by a kernel of their own; many as soon as they are computed."""
    a, b = rng.standard_normal((500, 8)), rng.standard_normal((8, columns))
    f = mo.compile(lambda a, b: mo.argmin(1 - a @ b, axis=1))
    np.testing.assert_array_equal(f(mo.asarray(a), mo.asarray(b)).numpy(), np.argmin(1 - a @ b, axis=1))
    labels = [step.label for step in f.current.plan.program.steps if step.label != "pack"]
    assert len(labels) == kernels


def test_a_reduction_over_images_follows_what_reads_parts_of_lines() -> None:
    """Squeeze and excite after a depthwise convolution: one kernel would look elements up one by one."""
    x = mo.asarray(np.random.default_rng(0).standard_normal((1, 3, 8, 34)).astype(np.float32))

    @mo.compile
    def parts(x: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        y = mo.tanh(x[:, :, 1:-1, 1:-1] + x[:, :, :-2, 2:])
        return y, mo.mean(y, axis=(2, 3))

    @mo.compile
    def whole(x: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        y = mo.tanh(x + x * x)
        return y, mo.mean(y, axis=(2, 3))

    got = parts(x)[1].numpy(), whole(x)[1].numpy()
    assert [f.stats["kernels"] for f in (parts, whole)] == [2, 1]
    expected = np.tanh(x.numpy()[:, :, 1:-1, 1:-1] + x.numpy()[:, :, :-2, 2:]).mean((2, 3))
    np.testing.assert_allclose(got[0], expected, rtol=1e-4, atol=1e-6)
