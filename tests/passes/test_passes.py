"""Passes: idempotent, never growing, never changing a value; outputs stay; levels; printing; rules bit by bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from case_values import special_values
from checks import check_passes, evaluate_exactly
from programs import random_program
from running import Native, by_reference, difference, equal_bits, leaf_of, parameter, stored

import morpho as mo
from morpho.base.dtypes import DType, bool_, float16, float32, float64, int8, int32, int64, uint8, uint32
from morpho.base.errors import ArgumentError, CompileError
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build
from morpho.ir.printing import to_dot, to_text
from morpho.ir.rewrite import RuleTable, rewrite
from morpho.ir.verify import IllegalGraph, verify
from morpho.ops.algebra import cast, constant, constant_like, expand, reshape
from morpho.passes import pipeline
from morpho.passes.canonical import cse, inline, sink_views
from morpho.passes.fold import fold
from morpho.passes.simplify import RULES, simplify

CANONICAL: dict[str, Callable[[Graph], Graph]] = {"fold": fold, "simplify": simplify, "cse": cse, "views": sink_views}


def x_of(shape: tuple[int, ...] = (4,), dtype: DType = float32, index: int = 0) -> Node:
    return parameter(index, shape, dtype)


def work(graph: Graph) -> int:
    """Nodes that compute: views and leaves are free."""
    return sum(node.op.kind != "source" and "view" not in node.op.properties for node in graph.nodes)


# -- canonical form --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", CANONICAL)
def test_idempotent_and_never_growing(name: str, session_seed: int) -> None:
    function = CANONICAL[name]
    for number in range(150):
        graph = inline(Graph(random_program(session_seed + number).outputs))
        once = function(graph)
        verify(once, name)
        twice = function(once)
        assert twice.outputs == once.outputs, (name, session_seed + number)
        assert work(once) <= work(graph), (name, session_seed + number)


def test_the_whole_line_is_idempotent(session_seed: int) -> None:
    """All canonical passes together settle: a second round over the result changes nothing."""
    for number in range(150):
        graph = inline(Graph(random_program(session_seed + number).outputs))
        for _ in range(4):
            before = graph.outputs
            for function in CANONICAL.values():
                graph = function(graph)
            if graph.outputs == before:
                break
        else:
            raise AssertionError(f"seed {session_seed + number} does not settle")


@pytest.mark.parametrize("name", CANONICAL)
def test_a_pass_alone_keeps_every_value(name: str, session_seed: int) -> None:
    for number in range(150):
        program = random_program(session_seed + number)
        graph = inline(Graph(program.static(3)))
        leaf = leaf_of(program.inputs(3))
        with np.errstate(all="ignore"):
            wanted = evaluate_exactly(graph.outputs, leaf)
            found = evaluate_exactly(CANONICAL[name](graph).outputs, leaf)
        for a, b, node in zip(found, wanted, graph.outputs):
            dtype = float32 if a.dtype == np.float32 else node.dtype
            assert equal_bits(np.asarray(a), np.asarray(b), dtype), (name, program.seed, difference(a, b, dtype))


def test_equal_programs_are_one_object() -> None:
    x, y = x_of(), x_of(index=1)
    assert build("add", x, y) is build("add", x, y)
    one, two = cse(Graph((build("add", x, y), build("add", y, x)))).outputs
    assert one is two


def test_a_minus_b_is_not_b_minus_a() -> None:
    x, y = x_of(), x_of(index=1)
    for name in ("subtract", "divide", "pow", "atan2", "less", "copysign", "remainder", "floor_divide"):
        one, two = cse(Graph((build(name, x, y), build(name, y, x)))).outputs
        assert one is not two, name
    arrays = [np.array([5, 7, 1, 2], "f"), np.array([1, 2, 3, 4], "f")]
    first, second = Native([build("subtract", x, y), build("subtract", y, x)])(arrays)
    assert np.array_equal(first, -second) and first[0] == 4


def test_draws_with_different_keys_stay_apart() -> None:
    counter = build("iota", shape=(8,), axis=0, dtype=uint32)

    def draw(key: int) -> Node:
        return build("threefry", expand(constant(key, uint32), (8,)), expand(constant(0, uint32), (8,)), counter)

    optimised, _ = pipeline.optimise(Graph((draw(1), draw(2), draw(1))), 3)
    assert optimised.outputs[0] is optimised.outputs[2]
    first, second, third = Native([draw(1), draw(2), draw(1)])([])
    assert not np.array_equal(first, second) and np.array_equal(first, third)


# -- outputs ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_no_output_is_lost(level: int) -> None:
    """An output that is also an intermediate, twice the same, an argument itself, a constant, a view."""
    x = x_of((3, 4))
    half = build("multiply", x, constant_like(x, 0.5))
    after = build("exp", half)
    view = build("permute", half, axes=(1, 0))
    outputs = [half, after, half, x, constant_like(x, 2.0), view, build("sum", after, axes=(1,))]
    value = np.linspace(-1, 1, 12, dtype="f").reshape(3, 4)
    with mo.settings(level=level):
        found = Native(outputs)([value])
    assert len(found) == len(outputs)
    for a, b, node in zip(found, by_reference(outputs, [value]), outputs):
        assert np.allclose(a, b, rtol=1e-6), node


def test_unused_nodes_are_gone() -> None:
    x = x_of((3,), int32)
    dead = build("multiply", build("exp", cast(x, float32)), constant_like(cast(x, float32), 3.0))
    kept = build("add", x, build("multiply", cast(dead, int32), constant_like(x, 0)))
    optimised, _ = pipeline.optimise(Graph((kept,)), 3)
    assert all(node.op.name != "group" for node in optimised.nodes) or work(optimised) <= 1
    assert Native([kept])([np.array([1, 2, 3], np.int32)])[0].tolist() == [1, 2, 3]


# -- rules -----------------------------------------------------------------------------------------------------------
FLOATS, WHOLE = (float16, float32, float64), (uint8, int32, int64)


def number(x: Node, value: float) -> Node:
    return constant_like(x, value)


RULE_PROGRAMS: dict[str, tuple[tuple[DType, ...], Callable[[Node, Node], Node]]] = {
    "multiply_by_one": (FLOATS + WHOLE, lambda x, y: build("multiply", x, number(x, 1))),
    "divide_by_one": (FLOATS, lambda x, y: build("divide", x, number(x, 1.0))),
    "divide_by_power_of_two": (FLOATS, lambda x, y: build("divide", x, number(x, 8.0))),
    "divide_by_power_of_two small": (FLOATS, lambda x, y: build("divide", x, number(x, 2.0**-10))),
    "add_nothing": (FLOATS + WHOLE, lambda x, y: build("add", x, number(x, -0.0))),
    "subtract_zero": (FLOATS + WHOLE, lambda x, y: build("subtract", x, number(x, 0))),
    "integer_minus_itself": (WHOLE, lambda x, y: build("subtract", x, x)),
    "integer_times_zero": (WHOLE, lambda x, y: build("multiply", x, number(x, 0))),
    "twice_negative": (FLOATS + WHOLE, lambda x, y: build("negative", build("negative", x))),
    "subtract_negative": (FLOATS + WHOLE, lambda x, y: build("subtract", x, build("negative", y))),
    "absolute_of_absolute": (FLOATS + WHOLE, lambda x, y: build("absolute", build("absolute", x))),
    "absolute of negative": (FLOATS + WHOLE, lambda x, y: build("absolute", build("negative", x))),
    "twice_not": ((bool_,), lambda x, y: build("logical_not", build("logical_not", x))),
    "same_operands": (FLOATS + WHOLE, lambda x, y: build("maximum", x, x)),
    "where_known": (FLOATS, lambda x, y: build("where", expand(constant(False, bool_), x.shape), x, y)),
    "relu_is_maximum": (FLOATS + WHOLE, lambda x, y: build("where", build("less_equal", x, number(x, 0)),
                                                           number(x, 0), x)),
    "where same": (FLOATS, lambda x, y: build("where", build("less", x, y), x, x)),
    "cast_to_itself": (FLOATS + WHOLE, lambda x, y: build("cast", x, dtype=x.dtype)),
    "cast_there_and_back": ((float16, float32, uint8, int32),
                            lambda x, y: build("cast", build("cast", x, dtype=float64), dtype=x.dtype)),
    "cast through": ((uint8, int32), lambda x, y: build("cast", build("cast", x, dtype=int64), dtype=float32)),
    "cast saturating": ((int32, uint8),
                        lambda x, y: build("cast", build("cast", x, dtype=float64), dtype=int8)),
    "cast to unsigned": ((int8, int32), lambda x, y: build("cast", build("cast", x, dtype=float64), dtype=uint8)),
    "cast narrow": ((int32, float32), lambda x, y: build("cast", build("cast", x, dtype=float16), dtype=x.dtype)),
    "product_of_bytes": ((int8, uint8), lambda x, y: build("matmul", *[
        reshape(build("cast", side, dtype=int32), shape) for side, shape in ((x, (1, *x.shape)), (y, (*y.shape, 1)))])),
    "product_of_one": (FLOATS, lambda x, y: build("matmul", *[reshape(side, (*side.shape, 1, 1)) for side in (x, y)])),
    "copy_is_the_value": (FLOATS, lambda x, y: build("copy", build("add", x, y))),
}


@pytest.mark.parametrize("name", RULE_PROGRAMS)
def test_a_rule_keeps_every_bit_of_special_values(name: str) -> None:
    """NaN, infinities, both zeros, subnormals and extremes, in every pair."""
    dtypes, function = RULE_PROGRAMS[name]
    applied: dict[str, int] = {}
    for dtype in dtypes:
        pairs = np.array(list(itertools.product(special_values(dtype), special_values(dtype))))
        arrays = [np.ascontiguousarray(pairs[:, i]).astype(dtype.numpy) for i in (0, 1)]
        node = function(x_of(arrays[0].shape, dtype), x_of(arrays[0].shape, dtype, 1))
        simplified = simplify(Graph((node,)), applied)
        with np.errstate(all="ignore"):
            (want,), (got,) = (by_reference(outputs, arrays) for outputs in ((node,), simplified.outputs))
        assert equal_bits(got, want, node.dtype), f"{dtype}: {difference(got, want, node.dtype)}"
        with mo.settings(level=0):
            (plain,) = Native([node])(arrays)
        (fast,) = Native([node])(arrays)
        assert equal_bits(fast, plain, node.dtype), f"{dtype}: {difference(fast, plain, node.dtype)}"
    if " " not in name:
        assert applied.get(name), f"the rule {name} did not apply: {applied}"


def test_every_arithmetic_rule_is_tested() -> None:
    names = {rule.__name__ for rules in RULES._rules.values() for rule in rules}
    views = {"reshape_of_reshape", "permute_of_permute", "expand_of_expand", "slice_of_everything", "slice_of_slice",
             "barrier_of_a_number", "barrier_of_a_barrier"}
    assert names <= {name.split(" ")[0] for name in RULE_PROGRAMS} | views, names


@pytest.mark.parametrize("function", [
    lambda x: build("add", x, number(x, 0.0)), lambda x: build("multiply", x, number(x, 0.0)),
    lambda x: build("subtract", x, x), lambda x: build("divide", x, x), lambda x: build("add", x, x),
    lambda x: build("subtract", number(x, 0.0), x), lambda x: build("divide", x, number(x, 3.0)),
    lambda x: build("subtract", x, number(x, -0.0))],
    ids=["x+0", "x*0", "x-x", "x/x", "x+x", "0-x", "x/3", "x-(-0)"])
def test_floats_are_left_alone(function: Callable[[Node], Node]) -> None:
    for dtype in FLOATS:
        node = function(x_of((4,), dtype))
        assert simplify(Graph((node,))).outputs == (node,)


def test_views_are_joined() -> None:
    x = x_of((4, 6))
    turned = build("permute", build("permute", x, axes=(1, 0)), axes=(1, 0))
    flat = build("reshape", build("reshape", build("reshape", x, shape=(24,)), shape=(2, 12)), shape=(4, 6))
    wide = build("reshape", x_of((), index=1), shape=(1, 1))
    wide = build("expand", build("expand", wide, shape=(1, 5)), shape=(4, 5))
    cut = build("slice", build("slice", x, starts=(3, 5), sizes=(4, 3), steps=(-1, -2)), starts=(1, 0), sizes=(2, 2),
                steps=(2, 1))
    outputs = simplify(Graph((turned, flat, wide, cut))).outputs
    assert outputs[0] is x and outputs[1] is x and len(Graph((outputs[2],))) == 3 and len(Graph((outputs[3],))) == 2
    value = np.arange(24.0, dtype="f").reshape(4, 6)
    assert np.array_equal(by_reference([outputs[3]], [value])[0], by_reference([cut], [value])[0])


def test_rules_that_do_not_settle_are_an_error() -> None:
    table = RuleTable()

    @table.rule("negative")
    def turn(node: Node) -> Node:
        return build("square", node.inputs[0])

    @table.rule("square")
    def back(node: Node) -> Node:
        return build("negative", node.inputs[0])

    with pytest.raises(CompileError, match="the rules back and turn rewrite negative without end"):
        rewrite(Graph((build("negative", x_of()),)), table)


@pytest.mark.parametrize("dtype", [float16, float32, float64, int32, uint8])
def test_folding_has_the_bits_of_the_kernel(dtype: DType) -> None:
    """Every pair of special values as constants, folded, against the kernel on the same values as data."""
    values = special_values(dtype)[:12] if dtype.is_float else special_values(dtype)
    names = ["add", "subtract", "multiply", "maximum"]
    names += ["divide"] if dtype.is_float else ["floor_divide", "remainder"]
    for name in names:
        node = build(name, x_of(values.shape, dtype), x_of(values.shape, dtype, 1))
        native = Native([node])
        for shift in range(len(values)):
            rolled = np.roll(values, shift)
            (want,) = native([values, rolled])
            folded = [fold(Graph((build(name, constant(a.item(), dtype), constant(b.item(), dtype)),))).outputs[0]
                      for a, b in zip(values, rolled)]
            assert all(node.op.name == "constant" for node in folded)
            got = stored(np.array([node["value"] for node in folded]), dtype)
            assert equal_bits(got, want, dtype), (name, difference(got, want, dtype))


# -- levels, switches, pictures --------------------------------------------------------------------------------------
def test_the_levels_are_lists_of_known_passes() -> None:
    assert set(pipeline.LEVELS) == {0, 1, 2, 3}
    for names in pipeline.LEVELS.values():
        assert set(names) <= set(pipeline.PASSES)
    for low, high in ((0, 1), (1, 2), (2, 3)):
        assert set(pipeline.LEVELS[low]) - {"user"} <= set(pipeline.LEVELS[high])  # inline does its work as well


def test_each_pass_can_be_switched_off() -> None:
    x = x_of((5, 6))
    node = build("softmax", build("multiply", x, number(x, 1.0)), axes=(1,))
    value = np.linspace(-3, 3, 30, dtype="f").reshape(5, 6)
    (want,) = Native([node])([value])
    for name in pipeline.LEVELS[3]:
        with mo.settings(passes_off=name):
            native = Native([node])
        assert name not in native.plan.report.passes
        assert equal_bits(native([value])[0], want, float32), name
    with pytest.raises(ArgumentError, match="unknown passes"):
        pipeline.chosen_passes(3, "fuse,inlin")
    for name in ("user", "single", "dce"):
        with pytest.raises(ArgumentError, match=f"{name!r} cannot be left out: .*these can: inline, fold"), \
                mo.settings(passes_off=f"fuse,{name}"):
            Native([node])


def test_printing_after_any_pass(session_seed: int) -> None:
    for number in range(30):
        graph = Graph(random_program(session_seed + number).outputs)
        _, report = pipeline.optimise(graph, 3, keep_texts=True)
        assert set(report.texts) - {"complex"} == {"traced", *pipeline.LEVELS[3]}
        for text in report.texts.values():
            assert text.splitlines()[-1].startswith("return %")
        for name in pipeline.LEVELS[3]:
            graph = pipeline.PASSES[name].run(graph, pipeline.Context())
            text, dot = to_text(graph), to_dot(graph)
            assert text.count("\n") >= len(graph) and dot.startswith("digraph") and dot.count("peripheries=2") >= 1
            assert dot.count("[label=") == len(graph)


def test_the_report_counts_nodes_rules_and_time() -> None:
    x = x_of((4,))
    node = build("multiply", build("negative", build("negative", x)), number(x, 1.0))
    _, report = pipeline.optimise(Graph((node,)), 3)
    assert report.rules == {"twice_negative": 1, "multiply_by_one": 1}
    assert report.passes["simplify"]["before"] > report.passes["simplify"]["after"] == 1
    assert all(row["ms"] >= 0 for row in report.passes.values())


def test_the_verifier_names_the_broken_pass() -> None:
    x = x_of((4,))
    node = build("negative", x)
    node.outputs = (x_of((5,)).spec,)
    try:
        with pytest.raises(IllegalGraph, match="after broken"):
            verify(Graph((node,)), "broken")
    finally:
        node.outputs = (x.spec,)


def test_deep_graphs_do_not_recurse() -> None:
    node: Any = x_of((3,))
    for _ in range(5000):
        node = build("negative", build("tanh", node))
    graph = Graph((node,))
    for function in CANONICAL.values():
        graph = function(graph)
    assert len(graph) == 10001


def test_checking_is_part_of_the_fuzz(session_seed: int) -> None:
    check_passes(random_program(session_seed), 3, 3, "")
