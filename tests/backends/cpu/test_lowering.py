"""Programs of single nodes: the steps they take, and that no memory is set aside for nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Native, parameter

import morpho as mo
from morpho.backends.kernels.gemm.packing import pack
from morpho.backends.lowering.lower_graph import build_program
from morpho.backends.lowering.matmul import lower_matmul
from morpho.base.dtypes import complex64, float32
from morpho.base.target import current_target
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build
from morpho.ops.algebra import constant, expand
from morpho.program.program import HostStep, Program


def program_of(node: Node, inputs: int) -> Program:
    return build_program(Graph((node,)), own_outputs=True, inputs=inputs, target=current_target())


def written(program: Program) -> set[int]:
    return {place.slot for step in program.steps
            for place in (step.outputs if isinstance(step, HostStep) else step.written)}


@pytest.mark.parametrize("dtype", [float32, complex64])
def test_a_copy_has_no_memory_but_its_own(dtype: Any) -> None:
    program = program_of(build("copy", parameter(0, (3, 4), dtype)), 1)
    assert [step.label for step in program.steps] == ["copy"]
    assert {i for i, slot in enumerate(program.slots) if slot.kind != "input"} == written(program)


def base(view: str) -> Node:
    """A constant of 4 x 6 elements, seen in different ways."""
    seven = constant(7.0, float32)
    if view == "permuted":
        return build("permute", expand(seven, (6, 4)), axes=(1, 0))
    if view == "cut":
        return build("slice", expand(seven, (8, 6)), starts=(2, 0), sizes=(4, 6), steps=(1, 1))
    if view == "reshaped":
        return build("reshape", expand(seven, (24,)), shape=(4, 6))
    return expand(seven, (4, 6))


@pytest.mark.parametrize("view", ["permuted", "cut", "reshaped", "expanded"])
def test_an_update_of_a_constant_fills_once(view: str) -> None:
    """However the constant is seen: it needs no memory of its own, from which it would then be copied."""
    node = build("update", base(view), parameter(0, (2, 3), float32), starts=(1, 2), sizes=(2, 3), steps=(1, 1))
    program = program_of(node, 1)
    assert [step.label for step in program.steps] == ["fill", "copy"]
    assert sum(slot.kind != "input" for slot in program.slots) == 1
    value, want = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((4, 6), 7, np.float32)
    want[1:3, 2:5] = value
    assert np.array_equal(Native((node,))([value])[0], want)


@pytest.mark.parametrize("op", ["matmul", "conv"])
def test_a_product_that_nothing_writes_is_no_program(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy follows every product. Were it not so, the lowering would stop, rather than leave the result unwritten."""
    if op == "matmul":
        node = build("matmul", parameter(0, (64, 40), float32), parameter(1, (40, 33), float32))
    else:
        node = build("conv", parameter(0, (1, 2, 5, 5), float32), parameter(1, (3, 2, 3, 3), float32), before=(0, 0),
                     after=(0, 0), steps=(1, 1), dilations=(1, 1), groups=1)
    program = program_of(node, 2)
    assert program.steps[-1].label == op and program.outputs[0].slot in written(program)
    monkeypatch.setattr(lower_matmul, "follows", lambda after: False)
    with pytest.raises(AssertionError, match=f"{op}: a copy reads every tile once"):
        program_of(node, 2)


@pytest.mark.parametrize(("dtype", "mask", "chosen"),
                         [("float32", (5, 1), 1), ("float32", (5, 4), 0), ("float16", (5, 1), 1), ("bool", (5, 1), 1)],
                         ids=str)
def test_a_choice_between_rows_is_known_as_one(dtype: str, mask: tuple[int, int], chosen: int) -> None:
    """So that a row that stays is not written."""
    kind = getattr(mo, dtype)
    given = mo.ones(mask, dtype=mo.bool), mo.ones((5, 4), dtype=kind), mo.zeros((5, 4), dtype=kind)
    for function, line in ((lambda m, a, b: mo.where(m, a, b), True),
                           (lambda m, a, b: mo.where(m, a == a, b == b), None),
                           (lambda m, a, b: mo.where(m, -a if dtype != "bool" else ~a, b), False)):
        f = mo.compile(function)
        f(*given)
        choices = f.current.plan.program.steps[0].kernel.choices
        if line is None:
            assert choices == ()
            continue
        assert [choice.yes is not None for choice in choices] == [line] * chosen
        assert all(choice.no is not None for choice in choices)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_floats_that_are_only_moved_keep_their_bits(dtype: str, rng: np.random.Generator) -> None:
    """They do not become float32 on the way: NaNs of all kinds stay what they are. What computes still does."""
    floats = np.arange(65536, dtype=np.uint16).view(np.float16)
    x = mo.asarray(floats).astype(getattr(mo, dtype)).realise()  # float16: borrowed, with signalling NaNs
    mask = mo.asarray(rng.random(65536) > 0.5)
    f = mo.compile(lambda m, x: mo.where(m, x, mo.flip(x)))
    found, given = f(mask, x).numpy(), x.numpy()
    assert found.tobytes() == np.where(mask.numpy(), given, given[::-1]).tobytes()
    assert {access.dtype.name for access in f.current.plan.program.steps[-1].kernel.accesses} == {"bool", "int16"}
    g = mo.compile(lambda m, x: mo.where(m, x + 1, x))
    g(mask, x)
    assert dtype in {access.dtype.name for access in g.current.plan.program.steps[-1].kernel.accesses}


def test_the_cost_of_a_look_up_is_what_is_looked_up() -> None:
    """Not the whole table; and attention of one query costs one query."""
    f = mo.compile(lambda table, rows: mo.take(table, rows, axis=0))
    f(mo.ones((10_000, 64)), mo.asarray([3, 5]))
    assert f.stats["bytes_moved"] < 10_000
    f = mo.compile(lambda x, w, table, rows: x @ w + mo.take(table, rows, axis=0) + mo.take(table, rows + 1, axis=0))
    f(mo.ones((4, 32)), mo.ones((32, 64)), mo.ones((100_000, 64)), mo.asarray([1, 2, 3, 4]))
    assert f.stats["bytes_moved"] < 40_000
    g = mo.compile(lambda q, k, v: mo.attention(q, k, v))
    g(mo.ones((1, 2, 1, 16)), mo.ones((1, 2, 50, 16)), mo.ones((1, 2, 50, 16)))
    assert g.stats["flops"] == 2 * 50 * 2 * 2 * 16


def test_no_size_that_is_divided_by_is_zero() -> None:
    """x86 would stop there. Weights of groups are packed once, also for no images."""
    images = mo.Dim("images", 0, 3)
    f = mo.compile(lambda x, w: mo.conv2d(x, w, groups=2), dynamic={"x": {0: images}})
    w = mo.ones((4, 3, 3, 3))
    for count in (2, 0):
        assert f(mo.ones((count, 6, 9, 9)), w).shape == (count, 4, 7, 7)
    (packing,) = (step for step in f.current.plan.program.steps if isinstance(step.kernel, pack.PackKernel))
    sizes = pack.PACK.by_name(packing.values)
    assert [sizes[f"batches{axis}"] for axis in range(3)] == [2, 1, 1]


def chosen(f: Any, *arguments: Any) -> list[str]:
    """The choices of a compiled function's products, as `explain()` says them."""
    f(*arguments)
    return [step.choice for step in f.current.plan.program.steps if step.choice]


def test_explain_says_which_kernel_multiplies() -> None:
    """Every product names the way it took and those that it could have taken."""
    x, w = mo.ones((40, 64)).realise(), mo.ones((64, 48)).realise()
    assert chosen(mo.compile(lambda x: x @ w), x) == ["gemm on a packed B"]
    f = mo.compile(lambda x, w: x @ w + 1)
    assert chosen(f, x, w) == ["gemm that packs B itself, not gemm on a packed B"]
    assert "matmul+add: gemm that packs B itself, not gemm on a packed B" in f.explain()
    assert chosen(mo.compile(lambda x, w: x[:1] @ w), x, w)[0].startswith("gemv on an unpacked B, not gemm that packs")
    images, kernels = mo.ones((1, 3, 20, 20)).realise(), mo.ones((4, 3, 3, 3)).realise()
    with mo.settings(isa="scalar"):
        assert chosen(mo.compile(mo.conv2d), images, kernels) == ["implicit gemm"]


def test_explain_names_the_rows_that_nodes_took() -> None:
    """Also where the plan comes from the disk."""
    x = mo.ones((6, 6)).realise()
    for _ in range(2):
        f = mo.compile(lambda x: (mo.sort(x), mo.linalg.cholesky(x @ x + 6 * mo.eye(6)), mo.sort(x + 1)))
        f(x)
        lines = f.explain().partition("\nlowering\n")[2].splitlines()
        assert {"  sort: merges in registers, or radix x2", "  cholesky: a kernel for small matrices"} <= {*lines}


def test_a_choice_survives_the_disk() -> None:
    x, w = mo.ones((40, 64)).realise(), mo.ones((64, 48)).realise()
    first, again = mo.compile(lambda x, w: mo.tanh(x @ w)), mo.compile(lambda x, w: mo.tanh(x @ w))
    assert chosen(first, x, w) == chosen(again, x, w)
