"""Finished plans on disk: passes and LLVM are skipped by counters, and whatever is odd is made again."""

from __future__ import annotations

import gc
import json
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from subprograms import run

import morpho as mo
from morpho.backends.code.compiler import code, llvm
from morpho.base.errors import IndexFault
from morpho.ir.node import Node
from morpho.passes import pipeline
from morpho.program.program import Control
from morpho.runtime.code_cache.disk import DiskCache
from morpho.runtime.plans import evaluate, stored_plan

PROGRAM = """
    from morpho.backends.code.compiler import code
    from morpho.runtime.plans import evaluate
    rng = np.random.default_rng(7)
    w = mo.asarray(rng.random((24, 40), np.float32), copy=True)
    table = mo.asarray(rng.random((9, 24), np.float32), copy=True)
    total = mo.State(mo.zeros((5, 40)))
    def layer(ids):
        total.value = total.value + mo.gelu(table[ids] @ w) * 0.5
        return mo.softmax(total.value), total.value.sum(axis=0)
    f = mo.compile(layer)
    g = mo.compile(lambda x: mo.exp(x).sum(axis=-1) * x.shape[0], dynamic={"x": {0: mo.Dim("n", 1, 64)}})
    out = [*f(mo.asarray([0, 3, 8, 1, 3])), *f(mo.asarray([2, 2, 8, 8, 0]))]
    out += [g(mo.asarray(rng.random((n, 13), np.float32))) for n in (3, 64, 1)]
    print(b"".join(y.numpy().tobytes() for y in out).hex())
    print(evaluate.counts.optimised, code.counters.compiled, f.stats["cache"]["plan"], g.stats["cache"]["plan"])
"""


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_foreign: None) -> Iterator[None]:
    """An empty folder, and no code in memory."""
    monkeypatch.setattr(code, "_addresses", {})
    monkeypatch.setattr(code, "_by_key", {})
    with mo.settings(cache_dir=str(tmp_path / "code")):
        yield


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """What Morpho logs meanwhile."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("morpho").addHandler(handler)
    yield said
    logging.getLogger("morpho").removeHandler(handler)


def body(x: Any) -> Any:
    """A product, a reduction and an elementwise chain: several kernels and a temporary."""
    y = mo.tanh(x @ mo.matrix_transpose(x) + 1.5)
    return mo.softmax(y, axis=-1) * 2, y.sum(axis=0)


def compiled(x: Any, function: Callable[..., Any] = body, **options: Any) -> tuple[Any, list[np.ndarray]]:
    """A new compiled function and its results, in a process that has forgotten all code."""
    code._addresses.clear()
    code._by_key.clear()
    made = mo.compile(function, **options)
    found = made(x)
    return made, [y.numpy() for y in (found if isinstance(found, tuple) else (found,))]


def is_hit(made: Any) -> bool:
    """Whether the plan came from disk, by every counter."""
    cache = made.stats["cache"]
    if cache["plan"]:
        assert cache["compiled"] == 0 and cache["disk"] >= 1
    return bool(cache["plan"])


def example() -> Any:
    return mo.asarray(np.linspace(-1, 1, 6 * 5, dtype=np.float32).reshape(6, 5))


def disk() -> DiskCache:
    found = code.disk_cache()
    assert found is not None
    return found


def key_of(made: Any) -> str:
    plan = made.current.plan
    key = stored_plan.plan_key(plan.graph, True, len(plan.graph.parameters), ())
    assert key is not None
    return key


# -- hits ------------------------------------------------------------------------------------------------------------
def test_a_second_process_runs_neither_passes_nor_llvm(tmp_path: Path) -> None:
    """With a captured constant that is packed, a state, an index and a dynamic size."""
    folder = str(tmp_path / "shared")
    first, said = run(PROGRAM, MORPHO_CACHE_DIR=folder)
    assert not said
    bits, counts = first.splitlines()
    eager = int(counts.split()[0]) - 2  # graphs of eager expressions, which are not kept
    assert counts.split()[2:] == ["0", "0"]
    again, said = run(PROGRAM, MORPHO_CACHE_DIR=folder)
    assert not said and again.splitlines()[0] == bits
    assert [int(n) for n in again.splitlines()[1].split()] == [eager, 0, 1, 1]


def test_a_hit_runs_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    x = example()
    first, expected = compiled(x)
    assert not is_hit(first)

    def refuse(*_: object) -> None:
        raise AssertionError("a pass ran")

    before = evaluate.counts.optimised
    with monkeypatch.context() as patch:
        patch.setattr(evaluate, "optimise", refuse)
        again, found = compiled(x)
        assert is_hit(again)
        again.explain()
    assert evaluate.counts.optimised == before
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a, b)
    again(x, out=(mo.empty((6, 6)), mo.empty(6)))
    again(x, out=(mo.empty((6, 6)), mo.empty(6)))
    assert again.stats["native_calls"] == 2


@pytest.mark.parametrize("function", [lambda x: x * 0 + 1, lambda x: mo.logsumexp(mo.astype(x[:0], "float32"))],
                         ids=["times zero", "no elements"])
def test_an_input_that_passes_drop(function: Callable[..., Any], warnings: list[str]) -> None:
    """No step reads it, so that the plan does not know its dtype."""
    x = mo.asarray([1, 2, 3], copy=True)
    _, expected = compiled(x, function)
    again, found = compiled(x, function)
    assert is_hit(again) and not warnings
    np.testing.assert_array_equal(found[0], expected[0])


def test_stats_and_drawings_are_those_of_the_first() -> None:
    x = example()
    first, again = compiled(x)[0], compiled(x)[0]
    assert not is_hit(first) and is_hit(again)
    before = evaluate.counts.optimised
    one, other = first.stats, again.stats
    for stats in (one, other):
        for name in ("cache", "compile_ms"):
            del stats[name]
        for row in [*stats["passes"].values(), *stats["program"].values()]:
            del row["ms"]
    assert one == other and one["kernels"] >= 2 and one["flops"] > 0
    assert evaluate.counts.optimised == before
    assert again.dot() == first.dot() and again.dot()
    assert evaluate.counts.optimised == before + 1  # once, because someone looked inside
    lowered = again.current.plan.lowered.steps
    assert [step.label for step in lowered] == [step.label for step in again.current.plan.program.steps]
    assert not any(isinstance(step.kernel, code.StoredKernel) for step in lowered)
    assert "the whole plan from disk" in again.explain() and "the whole plan" not in first.explain()


def test_what_a_program_holds_survives() -> None:
    """Every field of slots, steps and outputs is read back as it was, dynamic sizes too."""
    n, m = mo.Dim("n", 2, 50), mo.Dim("m", 1, 9)
    weights = mo.asarray(np.ones((5, 7), np.float32), copy=True)

    def function(x: Any, y: Any) -> Any:
        z = mo.concat([x, x * 2], axis=0) @ weights
        return z.sum(axis=1) * x.shape[0], mo.cumulative_sum(y, axis=0)[1:], mo.flip(y)

    x, y = mo.asarray(np.ones((4, 5), np.float32)), mo.asarray(np.ones((3, 4), np.float16))
    plans = []
    for _ in range(2):
        made = mo.compile(function, dynamic={"x": {0: n}, "y": {0: m}})
        made(x, y)
        plans.append(made.current.plan)
        assert bool(made.stats["cache"]["plan"]) == (len(plans) == 2)
    first, again = (plan.program for plan in plans)
    assert first.slots == again.slots and first.outputs == again.outputs and first.kept == again.kept
    assert len(again.prepare) == len(first.prepare) >= 1
    for a, b in zip(first.steps + first.prepare, again.steps + again.prepare, strict=True):
        for name in ("views", "writes", "values", "rows", "columns", "label", "origin", "splits_columns", "in_place",
                     "scratch", "threads"):
            assert getattr(a, name) == getattr(b, name), name
        for kernel, stored in ((a.kernel, b.kernel), (a.epilogue, b.epilogue)):
            assert (kernel is None) == (stored is None)
            assert kernel is None or code.stored_kernel(kernel) == stored


def rolled(x: Any) -> Any:
    """A Python loop that becomes one of the program."""
    for number in range(12):
        x = mo.tanh(x @ mo.matrix_transpose(x)) @ x + number
    return x


LOOPS: dict[str, Callable[..., Any]] = {
    "scan": lambda x: mo.scan(lambda c, row: (mo.tanh(mo.sort(c * row)), c.sum()), x, mo.ones((7, 6, 5)))[1],
    "slices with gaps": lambda x: mo.vmap(lambda rows: mo.scan(lambda c, row: (mo.tanh(mo.sort(c * row)), c), x[0],
                                                               rows)[1])(mo.ones((3, 6, 5)) * x),
    "slices backwards": lambda x: mo.scan(lambda c, row: (mo.sort(c + row), c), x[0], mo.flip(x, axis=1))[1],
    "while": lambda x: mo.while_loop(lambda s: s[1].sum() < 90, lambda s: (mo.sort(s[0]), s[1] + 1), (x, x * 0))[1],
    "switch": lambda x: mo.switch(mo.astype(x.sum() > 3, "int64"), [mo.sort, lambda x: mo.flip(x) * 2], x),
    "nested": lambda x: mo.fori_loop(0, 3, lambda i, x: mo.fori_loop(0, 2, lambda j, x: mo.sort(x) + j, x) * 2, x),
    "rolled": rolled,
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_and_branches_are_kept(name: str, warnings: list[str]) -> None:
    """The marks between steps are read back as they were."""
    x = example()
    first, expected = compiled(x, LOOPS[name])
    again, found = compiled(x, LOOPS[name])
    assert not is_hit(first) and is_hit(again) and not warnings
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)
    marks = [[step for step in made.current.plan.program.steps if isinstance(step, Control)] for made in (first, again)]
    assert marks[0] == marks[1] and marks[0]
    assert [line for line in first.explain().splitlines() if "Python loop" in line] == [
        line for line in again.explain().splitlines() if "Python loop" in line]


def test_a_fault_names_the_line_of_this_program() -> None:
    table = mo.asarray(np.arange(12, dtype=np.float32).reshape(4, 3), copy=True)

    def first(i: Any, j: Any) -> Any:
        return table[i] + mo.exp(table[j])

    def again(i: Any, j: Any) -> Any:
        a = table[i]
        b = table[j]
        return a + mo.exp(b)

    good, bad = mo.asarray([0, 1]), mo.asarray([0, 4])
    for function, expected in ((first, 0), (again, 1)):
        made = mo.compile(function)
        made(good, good)
        assert made.stats["cache"]["plan"] == expected
        with pytest.raises(IndexFault, match=r"out of range.*test_stored_plan\.py:\d+") as caught:
            made(good, bad)
        line = int(str(caught.value).split("test_stored_plan.py:")[1].split(".")[0])
        start = function.__code__.co_firstlineno
        assert start < line <= start + 3
        del made, caught
        gc.collect()  # equal nodes are one while one of them lives, and keep the line of the first


# -- misses ----------------------------------------------------------------------------------------------------------
def test_other_settings_are_other_plans() -> None:
    x = example()
    _, expected = compiled(x)
    for change in ({"level": 0}, {"threads": 3}, {"passes_off": "cse"}, {"isa": "scalar"}):
        with mo.settings(**change):  # type: ignore[arg-type]
            made, found = compiled(x)
            assert not is_hit(made), change
            assert is_hit(compiled(x)[0]), change
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(a, b)
    assert is_hit(compiled(x)[0])


def test_bounds_of_dynamic_sizes_are_part_of_the_key() -> None:
    for most, expected in ((8, False), (9, False), (8, True), (9, True)):
        made, _ = compiled(example(), lambda x: x.sum(axis=0), dynamic={"x": {0: mo.Dim("n", 1, most)}})
        assert is_hit(made) == expected


def test_a_constant_that_is_captured_and_one_that_is_borrowed() -> None:
    """Own memory is packed once, borrowed memory never: two plans."""
    values = np.ones((5, 8), np.float32)
    for copy, prepared in ((True, True), (False, False), (True, True)):
        w = mo.asarray(values, copy=copy)
        made, _ = compiled(example(), lambda x: x @ w)  # noqa: B023
        assert bool(made.stats["prepared_steps"]) == prepared
    assert is_hit(made)


def test_host_steps_are_not_kept() -> None:
    for _ in range(2):
        assert not is_hit(compiled(example(), lambda x: mo.linalg.eigvals(mo.diag(x.reshape(-1))))[0])


def test_what_a_user_registered_is_not_kept() -> None:
    x = example()
    cube = mo.extend.op("stored_plan_cube", lambda x: x * x * x)
    try:
        for _ in range(2):
            assert not is_hit(compiled(x, lambda x: cube(x) + 1)[0])
        compiled(x)
        assert is_hit(compiled(x)[0])  # which does not use it
    finally:
        mo.extend.remove("stored_plan_cube")

    @mo.extend.pattern("tanh")
    def no_tanh(node: Node) -> Node:
        return node.inputs[0]

    try:
        made, found = compiled(x)
        assert not is_hit(made)
        assert np.abs(found[1]).max() > 6  # it is in force: without it these are six values of at most 1
    finally:
        mo.extend.remove(no_tanh)
    mo.extend.add_pass("stored_plan_pass", lambda graph: graph)
    try:
        assert not is_hit(compiled(x)[0])
    finally:
        mo.extend.remove("stored_plan_pass")
    assert is_hit(compiled(x)[0])


def test_the_verifier_sees_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(example())
    monkeypatch.setattr(pipeline, "checking", True)
    assert not is_hit(compiled(example())[0])


def test_without_a_plan_the_kernels_still_come_from_disk_together(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(example(), lambda x: x + 1)  # with the first function a process makes code of its own, which it keeps
    first, expected = compiled(example())
    kernels = first.stats["cache"]["compiled"]
    assert kernels >= 3
    sizes = []
    load = llvm.load

    def counted(codes: Any, isa: Any, names: list[str]) -> list[int]:
        sizes.append(len(names))
        return load(codes, isa, names)

    monkeypatch.setattr(llvm, "load", counted)
    monkeypatch.setattr(pipeline, "checking", True)
    again, found = compiled(example())
    cache = again.stats["cache"]
    assert sizes == [kernels] and cache["disk"] == kernels and cache["compiled"] == cache["plan"] == 0
    assert cache["memory"] == first.stats["cache"]["memory"]
    np.testing.assert_array_equal(expected[0], found[0])


def test_code_that_is_gone_is_compiled_again() -> None:
    x = example()
    first, expected = compiled(x)
    step = first.current.plan.program.steps[0]
    path = disk().folder / (code.stored_kernel(step.kernel).key + ".morpho")
    path.unlink()
    made, found = compiled(x)
    assert not is_hit(made) and made.stats["cache"]["compiled"] == 1
    np.testing.assert_array_equal(expected[0], found[0])
    assert path.exists() and is_hit(compiled(x)[0])


# -- odd files -------------------------------------------------------------------------------------------------------
def changed(content: Any, path: tuple[Any, ...], value: Any) -> bytes:
    """The file with one entry replaced."""
    copy = json.loads(json.dumps(content))
    inner = copy
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return json.dumps(copy).encode()


def odd_files(content: Any) -> Iterator[bytes]:
    """Files with a good checksum that no writer wrote."""
    yield from (b"", b"\xff\xfe", b"null", b"[]", b"{}", b"[" * 100_000, json.dumps(content).encode()[:-3])
    temporary = next(i for i, slot in enumerate(content["slots"]) if slot[0] == "temporary")
    for path, value in (
            (("slots", 0, 0), "stack"), (("slots", 0, 0), "result"), (("slots", 0, 1), "int8"),
            (("slots", 0, 1), "float7"), (("slots", temporary, 4), 1 << 40), (("slots", temporary, 4), -64),
            (("slots", temporary, 2), [[[["q", 1, 9]], 1]]), (("slots", temporary, 2), 1.5), (("slots",), {}),
            (("steps", 0, 0), 999), (("steps", 0, 0), -1), (("steps", 0, 2, 0, 0), 999), (("steps", 0, 2, 0), 7),
            (("steps", 0, 3), [99]), (("steps", 0, 4), [1 << 70]), (("steps", 0, 4), None), (("steps", 0, 7), 3),
            (("steps", 0, 8), 1 << 20), (("steps", 0, 9), 1), (("steps", 0, 12), "all"), (("steps", 0), []),
            (("outputs",), []), (("outputs", 0, 2, 0), 7), (("outputs", 0, 1), 1 << 30), (("outputs", 0, 4), "int64"),
            (("kept",), [[0, True]]), (("kernels", 0, 0), "../../etc"), (("kernels", 0, 0), "z" * 64),
            (("kernels", 0, 1), "many"), (("figures", "flops"), 1e400), (("figures", "flops"), -1), (("bytes",), [1]),
            (("passes",), []), (("rules",), {"x": -1})):
        yield changed(content, path, value)


def test_odd_files_are_made_again_and_said_once(warnings: list[str]) -> None:
    x = example()
    first, expected = compiled(x)
    key = key_of(first)
    good = disk().get(key)
    assert good is not None
    odd = list(odd_files(json.loads(good)))
    for number, data in enumerate(odd, 1):
        assert disk().put(key, data)
        made, found = compiled(x)
        assert not is_hit(made), data[:200]
        np.testing.assert_array_equal(expected[0], found[0])
        assert disk().stats()["corrupt"] == number
        assert disk().get(key) == good  # written anew
    assert len(warnings) == 1 and "made again" in warnings[0]
    assert is_hit(compiled(x)[0])


@pytest.mark.parametrize("function", [body, LOOPS["scan"]], ids=["steps", "a loop"])
def test_no_change_of_a_file_makes_reading_fail(function: Callable[..., Any], seed: int) -> None:
    """Any entry replaced by anything is read as a plan or refused, never an exception."""
    print("seed", seed)
    rng = random.Random(seed)
    first, _ = compiled(example(), function)
    graph, key = first.current.plan.graph, key_of(first)
    content = json.loads(disk().get(key) or b"")
    values: list[Any] = [None, True, -1, 0, 3, 1 << 40, 1 << 80, 1.5, float("nan"), "", "float32", [], [[]], {}]
    refused = 0
    for _ in range(400):
        path: list[Any] = []
        inner = content
        while isinstance(inner, (dict, list)) and inner and (not path or rng.random() < 0.9):
            path.append(rng.choice(list(inner)) if isinstance(inner, dict) else rng.randrange(len(inner)))
            inner = inner[path[-1]]
        assert disk().put(key, changed(content, tuple(path), rng.choice(values)))
        refused += stored_plan.load(key, graph, 1) is None
    assert refused > 200


def test_without_a_folder_nothing_is_kept() -> None:
    with mo.settings(cache=False):
        made, _ = compiled(example())
        assert not is_hit(made) and not is_hit(compiled(example())[0])
