"""Nodes: interned, weak, of any depth; graphs: digests, verification, printing, rewriting."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from callers import together

import morpho.ops  # noqa: F401  (fills the registry)
from morpho.base.dims import Dim
from morpho.base.dtypes import bool_, float32, float64, int32, int64
from morpho.base.errors import ArgumentError, CompileError, MorphoError
from morpho.ir.graph import Graph, Unkeyed
from morpho.ir.node import Node, build, live_nodes, make, rebuild, toposort
from morpho.ir.op import REGISTRY, NoGradient, Op, Spec, register
from morpho.ir.printing import to_dot, to_text
from morpho.ir.rewrite import RuleTable, rewrite
from morpho.ir.verify import IllegalGraph, verify


def parameter(index: int = 0, shape: tuple[int, ...] = (4,), dtype: object = float32) -> Node:
    return build("parameter", index=index, shape=shape, dtype=dtype)


def constant(value: object, dtype: object) -> Node:
    return build("constant", value=value, dtype=dtype)


def chain(depth: int) -> Node:
    node = parameter()
    for _ in range(depth):
        node = build("negative", node)
    return node


# -- interning -------------------------------------------------------------------------------------------------------
def test_equal_programs_are_the_same_object() -> None:
    def program() -> Node:
        x, y = parameter(0), parameter(1)
        return build("multiply", build("add", x, y), build("exp", x))

    first = program()
    assert program() is first
    x, y = parameter(0), parameter(1)
    assert build("subtract", x, y) is not build("subtract", y, x)  # a - b is not b - a
    assert parameter(0, (4,)) is not parameter(0, (5,)) and parameter(0, dtype=float64) is not parameter(0)


def test_constants_are_told_apart_by_their_bits() -> None:
    assert constant(math.nan, float32) is constant(float("nan"), float32)
    assert constant(0.0, float32) is not constant(-0.0, float32)
    assert constant(1.0, float32) is constant(1.0, float32)
    assert constant(1.0, float32) is not constant(1.0, float64)
    kept = [constant(1, int64), constant(1, int32), constant(True, bool_), constant(1.0, float32)]
    assert len({node.serial for node in kept}) == 4
    same_number = [make(REGISTRY["constant"], (), {"value": value, "dtype": float64}) for value in (1, True, 1.0)]
    assert len({node.serial for node in same_number}) == 3


def test_the_table_is_weak() -> None:
    before = live_nodes()
    node = build("exp", build("log", parameter(7, (3, 3))))
    assert live_nodes() == before + 3
    serial = node.serial
    del node
    assert live_nodes() == before
    assert build("exp", build("log", parameter(7, (3, 3)))).serial > serial  # serial numbers are not used again


def test_threads_building_the_same_program_get_the_same_node() -> None:
    found: list[Node] = []

    def work(_: int) -> None:
        for _ in range(20):
            node = parameter(3, (11,))
            for _ in range(20):
                node = build("exp", build("negative", node))
            found.append(node)

    together(work)
    assert len({id(node) for node in found}) == 1 and len(found) == 160


def test_rebuilding_keeps_the_line_and_not_the_value() -> None:
    node = build("exp", parameter())
    node.payload = object()
    again = rebuild(node, [parameter(5)])
    assert again.payload is None and again.origin == node.origin and "test_nodes.py:" in again.origin
    assert rebuild(node, node.inputs) is node
    node.payload = None


# -- depth -----------------------------------------------------------------------------------------------------------
def test_a_deep_chain_is_walked_without_recursion() -> None:
    node = chain(50_000)
    order = toposort([node])
    assert len(order) == 50_001 and order[-1] is node and order[0].op.name == "parameter"
    graph = Graph((node,))
    assert len(graph) == 50_001 and len(graph.digest()) == 64
    assert len(graph.map(lambda n: n)) == 50_001
    verify(graph)


def test_a_very_deep_chain_is_freed_without_recursion() -> None:
    program = """
import threading
import morpho.ops
from morpho.ir.node import build, live_nodes
from morpho.base.dtypes import float32
def work():
    node = build("parameter", index=0, shape=(4,), dtype=float32)
    for _ in range(50_000):
        node = build("negative", node)
    assert live_nodes() == 50_001
    del node
    assert live_nodes() == 0, live_nodes()
    print("freed")
threading.stack_size(256 * 1024)
thread = threading.Thread(target=work); thread.start(); thread.join()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "freed"), done.stderr


def test_order_and_sharing_in_a_walk() -> None:
    x = parameter()
    shared = build("exp", x)
    top = build("add", build("negative", shared), shared)
    order = toposort([top, shared])
    assert len(order) == 4 and [n.op.name for n in order].count("exp") == 1
    place = {n.serial: i for i, n in enumerate(order)}
    assert all(place[c.serial] < place[n.serial] for n in order for c in n.inputs)
    users = Graph((top,)).users
    assert len(users[shared.serial]) == 2 and users[top.serial] == []


# -- digests ---------------------------------------------------------------------------------------------------------
DIGEST = """
import morpho.ops
from morpho.base.dims import Dim
from morpho.base.dtypes import float32
from morpho.ir.graph import Graph
from morpho.ir.node import build
def digest(extra):
    for _ in range(extra):
        build("parameter", index=99, shape=(1,), dtype=float32)
    x = build("parameter", index=0, shape=(Dim("n", 1, 9), 4), dtype=float32)
    y = build("sum", build("add", x, build("exp", x)), axes=(1,))
    return Graph((y, x)).digest()
"""


def test_digests_are_the_same_in_every_process() -> None:
    space: dict[str, object] = {}
    exec(DIGEST, space)
    here = space["digest"](5)  # type: ignore[operator]
    for seed in ("0", "1"):
        done = subprocess.run([sys.executable, "-c", DIGEST + "print(digest(0))"], capture_output=True, text=True,
                              check=True, env={**__import__("os").environ, "PYTHONHASHSEED": seed})
        assert done.stdout.strip() == here


def test_digests_tell_programs_apart() -> None:
    x, y = parameter(0), parameter(1)
    programs = [(build("subtract", x, y),), (build("subtract", y, x),), (build("add", x, y),), (x, y), (y, x), (x,),
                (constant(0.0, float32),), (constant(-0.0, float32),), (constant(1, int64),), (constant(1, int32),),
                (parameter(0, (5,)),), (parameter(0, (4,), float64),), (parameter(0, (Dim("n", 1, 8),)),),
                (parameter(0, (Dim("n", 1, 9),)),), (parameter(0, (Dim("m", 1, 9),)),)]
    digests = [Graph(outputs).digest() for outputs in programs]
    assert len(set(digests)) == len(programs)


def test_an_attribute_without_a_text_has_no_digest() -> None:
    opaque = build("parameter", index=0, shape=(4,), dtype=float32, strides=frozenset({1}))
    with pytest.raises(Unkeyed, match="frozenset"):
        Graph((opaque,)).digest()


# -- verification ----------------------------------------------------------------------------------------------------
def forged(**changes: object) -> Graph:
    """A graph whose last node was tampered with."""
    good = build("add", parameter(0), parameter(1))
    node = object.__new__(Node)
    for name in ("op", "inputs", "attributes", "outputs", "device", "serial", "origin", "payload"):
        setattr(node, name, changes.get(name, getattr(good, name)))
    return Graph((node,))


def test_a_legal_graph_passes() -> None:
    verify(forged())
    x = parameter(0, (2, 3))
    verify(Graph((build("sum", build("exp", x), axes=(0,)), x)))


@pytest.mark.parametrize(("changes", "said"), [
    ({"outputs": (Spec((5,), float32),)}, "but infers"),
    ({"outputs": (Spec((4,), float64),)}, "but infers"),
    ({"op": Op("add", "elementwise", lambda i, a: i[0], NoGradient("none"), None)}, "not registered"),
    ({"device": "moon"}, "mixes devices"),
])
def test_illegal_graphs_are_caught_by_name(changes: dict, said: str) -> None:
    with pytest.raises(IllegalGraph, match=rf"after fuse: <add .*{said}"):
        verify(forged(**changes), "fuse")


def test_a_data_leaf_without_data() -> None:
    leaf = make(REGISTRY["data"], (), {"number": -5, "shape": (3,), "dtype": float32})
    with pytest.raises(IllegalGraph, match="without data"):
        verify(Graph((leaf,)))


def test_a_missing_expand() -> None:
    with pytest.raises((IllegalGraph, MorphoError), match=r"shape|expand"):
        verify(Graph((build("add", parameter(0, (4,)), parameter(1, (1,))),)))


# -- printing --------------------------------------------------------------------------------------------------------
def test_text() -> None:
    x = parameter(0, (2, 3))
    text = to_text(Graph((build("sum", build("exp", x), axes=(1,)), x)))
    lines = text.splitlines()
    assert len(lines) == 4 and lines[-1] == "return %2, %0"
    assert lines[1].startswith("%1 = exp [%0] : float32[2, 3]") and "axes=(1,)" in lines[2]
    assert repr(x).startswith("<parameter float32[2, 3] #")


def test_dot() -> None:
    x = parameter(0, (2, 3))
    top = build("exp", x)
    text = to_dot(Graph((top,)))
    assert text.startswith("digraph") and f"n{x.serial} -> n{top.serial};" in text
    assert text.count("peripheries=2") == 1 and text.count('"') % 2 == 0


# -- rewriting and the registry --------------------------------------------------------------------------------------
def test_rules_run_to_a_fixpoint_and_are_counted() -> None:
    table = RuleTable()

    @table.rule("negative")
    def twice(node: Node) -> Node | None:
        return node.inputs[0].inputs[0] if node.inputs[0].op.name == "negative" else None

    applied: dict[str, int] = {}
    found = rewrite(Graph((chain(101),)), table, applied)
    assert found.outputs[0] is build("negative", parameter()) and applied["twice"] == 50


def test_rules_that_never_settle_are_an_error() -> None:
    table = RuleTable()

    @table.rule("exp")
    def forth(node: Node) -> Node:
        return build("log", node.inputs[0])

    @table.rule("log")
    def back(node: Node) -> Node:
        return build("exp", node.inputs[0])

    with pytest.raises(CompileError, match="the rules back and forth rewrite exp without end"):
        rewrite(Graph((build("exp", parameter()),)), table)


def test_a_rule_that_applies_to_its_own_result_is_named() -> None:
    table = RuleTable()

    @table.rule("exp")
    def deeper(node: Node) -> Node:
        return build("negative", build("exp", build("negative", node.inputs[0])))

    with pytest.raises(CompileError, match="the rule deeper rewrites exp without end"):
        rewrite(Graph((build("exp", parameter()),)), table)


def test_the_registry_refuses_doubles_and_unknown_kinds() -> None:
    with pytest.raises(ArgumentError, match="registered already"):
        register(Op("add", "elementwise", lambda i, a: i[0], NoGradient("none"), None))
    with pytest.raises(ArgumentError, match="kind 'magic'"):
        register(Op("unheard_of", "magic", lambda i, a: i[0], NoGradient("none"), None))
    assert "unheard_of" not in REGISTRY
