"""A body cut into two halves: each defines what it uses, and only what cannot be had again is carried over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from running import Native, parameter

import morpho as mo
from morpho.backends.code.emit import Emitter
from morpho.backends.code.vector_math.activations import gelu_tanh
from morpho.backends.kernels.generators import generate
from morpho.backends.kernels.loops.software_pipeline import Cut, find_cut, parse
from morpho.base.dtypes import float32
from morpho.base.machine import choose_isa, foreign_machine
from morpho.ir.node import Node, build

BODY = [  # x is read, the key is made of constants and used by both halves
    "  %v0 = load <8 x float>, ptr %place0, align 4",
    "  %v1 = load <8 x i32>, ptr @of.key, align 16",
    "  %v2 = xor <8 x i32> %v1, splat (i32 7)",
    "  %v3 = bitcast <8 x float> %v0 to <8 x i32>",
    "  %v4 = xor <8 x i32> %v3, %v2",
    "  %v5 = bitcast <8 x i32> %v4 to <8 x float>",
    "  %v6 = fmul <8 x float> %v5, %v5",
    *(f"  %v{n} = fmul <8 x float> %v{n - 1}, %v{n - 2}" for n in range(7, 20)),
    "  %v20 = bitcast <8 x float> %v19 to <8 x i32>",
    "  %v21 = xor <8 x i32> %v20, %v2",
    "  %v22 = bitcast <8 x i32> %v21 to <8 x float>",
    "  %v23 = fadd <8 x float> %v22, %v0",
]


@pytest.mark.parametrize("depth", range(1, 50, 4))
def test_each_half_defines_what_it_uses(depth: int) -> None:
    lines = parse(BODY, {"%v23"})
    cut = Cut(lines, depth)
    cut.divide()
    for half, given in ((cut.first, set()), (cut.second, set(cut.crossing))):
        known = set(given)
        for line in half:
            assert {use.name for use in line.uses} <= known, line.name
            known.add(line.name)
    assert {"%v0", "%v1", "%v2"}.isdisjoint(cut.crossing)
    assert {line.name for line in cut.first} | {line.name for line in cut.second} == {line.name for line in lines}


def test_a_long_function_is_cut_near_its_middle_and_carries_little() -> None:
    e = Emitter(8, destructive_fma=True)
    result = gelu_tanh(e, e.load("%place0", "float"))
    lines = parse(e.lines, {result.name})
    cut = find_cut(lines, lambda name: True)
    busy = sum(line.slots for line in lines if not line.is_at_hand)
    assert cut is not None and len(cut.crossing) <= 7
    assert all(3 * sum(line.slots for line in half) > busy for half in (cut.first, cut.second))
    assert [line for line in cut.again if line.is_operand]


# -- what LLVM is given ------------------------------------------------------------------------------------------------
def text_of(node: Node) -> str:
    """The code of a graph of one kernel for AArch64, whatever machine this is."""
    (step,) = Native([node]).program.steps
    return generate(step.kernel, choose_isa("neon", foreign_machine("aarch64")), "kernel")  # type: ignore[union-attr]


X, BIAS, RESIDUAL = parameter(0, (64, 256), float32), parameter(1, (1, 256), float32), parameter(2, (64, 256), float32)


def two_functions(x: Node) -> Node:
    return build("tanh", build("silu", x))


def with_bias_and_residual() -> Node:
    bias = build("expand", BIAS, shape=(64, 256))
    return build("add", build("multiply", two_functions(build("add", X, bias)), RESIDUAL), RESIDUAL)


def test_constants_lie_in_one_table_and_never_side_by_side() -> None:
    text = text_of(with_bias_and_residual())
    (table,) = re.findall(r"^@of = internal global <{ (.*?) }>", text, re.MULTILINE)
    ends, at = {}, 0
    for lanes, kind in re.findall(r"<(\d+) x (?:float|i32)>|(i128)", table):
        nbytes = 16 if kind else 4 * int(lanes)
        if not kind:
            ends[at] = at + nbytes
        at += nbytes
    read = re.findall(r"load <(\d+) x \w+>, ptr getelementptr \(i8, ptr @of, i64 (\d+)\)", text)
    places = {int(place): int(place) + 4 * int(lanes) for lanes, place in read}
    assert len(places) == len(read), "each use has a place of its own"
    assert places == ends
    assert not set(places) & set(places.values()), "neighbours would be read together"


def test_constants_come_from_memory_where_registers_are_short() -> None:
    def most_reads(node: Node) -> int:
        """Reads of constants in one block: a loop's, or those before it."""
        return max(len(re.findall(r"load .*ptr @of", block)) for block in text_of(node).split(":\n"))

    plain = re.compile(r"(?:fmul|fsub|@llvm.fma).*splat \(float")
    assert plain.search(text_of(build("tanh", X)))  # LLVM holds them
    assert not plain.search(text_of(two_functions(X))) and not plain.search(text_of(with_bias_and_residual()))
    assert most_reads(two_functions(X)) > most_reads(build("tanh", X))


def test_only_numbers_that_are_used_are_read() -> None:
    text = text_of(with_bias_and_residual())
    names = re.findall(r"^  (%number\d+) = ", text, re.MULTILINE)
    assert names and all(text.count(name + ",") or text.count(name + "\n") for name in names)
    assert text.rstrip().count("ret i32 0") == 1, "a kernel that looks nothing up has no fault to tell"


def test_no_integer_is_divided_by_what_was_never_computed() -> None:
    """The first iteration finishes a chunk that was never begun: poison there is harmless, but not below a fraction."""
    isa = choose_isa("neon", foreign_machine("aarch64"))
    for f, divides in ((lambda x: mo.exp((7 // (mo.tanh(x) * 3).astype(mo.int32)).astype(mo.float32)), True),
                       (lambda x: mo.exp(mo.tanh(x) * 3), False)):
        made = mo.compile(f)
        made(mo.ones(200))
        (step,) = made.current.plan.program.steps
        text = generate(step.kernel, isa, "kernel")
        assert ("sdiv" in text) == divides and ("[ poison, " in text) != divides


# -- reductions --------------------------------------------------------------------------------------------------------
FUNCTIONS = {
    "softmax": lambda x: mo.softmax(x),
    "logsumexp": lambda x: mo.logsumexp(x, axis=-1),
    "of two": lambda x: mo.sum(mo.tanh(mo.silu(x)), axis=-1),
    "several": lambda x: (mo.max(mo.silu(x), axis=-1), mo.sum(mo.silu(x), axis=-1), mo.any(mo.silu(x) > 2, axis=-1)),
    "norm of": lambda x: mo.rms_norm(mo.sigmoid(x) * x),
    "of doubles": lambda x: mo.prod(mo.sigmoid(x.astype(mo.float64)) * 2, axis=-1),
}


@pytest.fixture
def _whole_plans() -> Iterator[None]:
    """A plan from disk has no instructions."""
    with mo.settings(cache=False):
        yield


@pytest.mark.usefixtures("_whole_plans")
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("columns", [15, 40, 41, 64, 65])
def test_rows_of_few_columns_have_the_bits_of_stages(name: str, columns: int, rng: np.random.Generator) -> None:
    """Few columns are not worth stages: up to 40 are turned. A size that is not known has them."""
    x = rng.standard_normal((40, columns)).astype(np.float32)
    few, many = mo.compile(FUNCTIONS[name]), mo.compile(FUNCTIONS[name], dynamic={"x": {1: mo.Dim("n", 1, 5000)}})
    a, b = few(mo.asarray(x)), many(mo.asarray(x))
    for one, two in zip(*([y] if isinstance(y, mo.Tensor) else y for y in (a, b)), strict=True):
        np.testing.assert_array_equal(one.numpy(), two.numpy(), strict=True)
    for made, turned, plain in ((few, columns <= 40, 40 < columns <= 64), (many, False, False)):
        kernels = [step.kernel for step in made.current.plan.program.steps]
        assert any(kernel.block_transpose for kernel in kernels) == turned
        assert any(kernel.few_columns for kernel in kernels) == plain


@pytest.mark.usefixtures("_whole_plans")
@pytest.mark.parametrize("name", ["softmax", "of two"])
def test_reductions_are_cut(name: str) -> None:
    isa = choose_isa("neon", foreign_machine("aarch64"))
    made = mo.compile(FUNCTIONS[name])
    made(mo.ones((4, 200)))
    (step,) = made.current.plan.program.steps
    assert "[ poison, " in generate(step.kernel, isa, "kernel")


@pytest.mark.usefixtures("_whole_plans")
def test_the_shorter_exponential_is_for_what_is_below_its_rows_maximum() -> None:
    def names(f: Callable[[mo.Tensor], mo.Tensor]) -> set[str]:
        made = mo.compile(f)
        made(mo.ones((4, 200)))
        return {i.name for step in made.current.plan.program.steps for i in step.kernel.instructions}

    assert "exp_nonpositive" in names(FUNCTIONS["softmax"]) & names(FUNCTIONS["logsumexp"])
    assert "exp_nonpositive" in names(lambda x: mo.exp(x - mo.max(x, axis=-1, keepdims=True)))
    for f in (lambda x: mo.exp(x - mo.max(x + 1, axis=-1, keepdims=True)),
              lambda x: mo.exp(x - mo.min(x, axis=-1, keepdims=True)), lambda x: mo.exp(x - mo.abs(x))):
        assert {"exp", "exp_nonpositive"} & names(f) == {"exp"}
