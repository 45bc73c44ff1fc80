"""Code for machines that are not here: compiled and inspected, not run. Vector registers used, no library called."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from elementwise_cases import PLAIN, Elementwise
from programs import random_program
from running import Native, parameter

from morpho.backends.code.compiler import llvm
from morpho.backends.code.emit import INTERRUPTS
from morpho.backends.kernels.attention.attention import AttentionBackwardKernel
from morpho.backends.kernels.gemm.gemm import GemmKernel
from morpho.backends.kernels.generators import generate
from morpho.backends.kernels.loops.loop_spec import LoopKernel
from morpho.base.dtypes import DType, bfloat16, bool_, float16, float32, float64, int8, int32, int64
from morpho.base.machine import Isa, choose_isa, foreign_machine
from morpho.base.settings import settings
from morpho.ir.node import Node, build
from morpho.ops.sources import pick
from morpho.program.program import Step

TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
TARGETS = [("x86_64", "avx2"), ("x86_64", "avx512"), ("x86_64", "scalar"), ("aarch64", "neon"), ("aarch64", "scalar")]
ADDRESS = re.compile(r"\bmovabsq\s+\$([^\d\s,-][^\s,]*)")  # x86 code calls what it has the whole address of
CALL = re.compile(r"^\s+(?:callq?|bl|blr|b|jmpq?)\s+([^\s,]+)", re.MULTILINE)


@cache
def target(architecture: str, name: str) -> Isa:
    return choose_isa(name, foreign_machine(architecture))


def kernels_of(*nodes: Node) -> list[Any]:
    with settings(isa="vector128"):  # kernels for matrix units are of no use elsewhere
        return [step.kernel for step in Native(nodes).program.steps if isinstance(step, Step)]


def assembly(kernel: Any, architecture: str, name: str) -> str:
    isa = target(architecture, name)
    return llvm.assembly(generate(kernel, isa, "kernel"), isa, TRIPLES[architecture])


def library_calls(text: str) -> set[str]:
    """Names called or jumped to that are neither labels of the function itself nor functions beside it."""
    found = {name for name in [*CALL.findall(text), *ADDRESS.findall(text)]
             if not name.startswith((".L", "*", "%", "LBB"))}
    own = {*re.findall(r"^(\w+):", text, re.MULTILINE), INTERRUPTS}
    return {name for name in found - own if not re.fullmatch(r"x\d+", name)}


def elementwise_kernel(case: Elementwise, dtype: DType) -> Any:
    nodes = [parameter(i, (100,), kind) for i, kind in enumerate(case.inputs(dtype))]
    (kernel,) = kernels_of(case.build(*nodes))
    return kernel


NATIVE = [case for case in PLAIN if set(case.kinds) & set("biuf")]


def dtype_of(case: Elementwise) -> DType:
    return next(d for d in (float32, int32, *case.dtypes) if d in case.dtypes)


@pytest.mark.sampled
@pytest.mark.parametrize("architecture, name", TARGETS, ids=lambda x: x)
def test_no_elementwise_op_calls_a_library(architecture: str, name: str) -> None:
    """exp, fma, floor, ... are instructions of ours on every target, the least one included."""
    wrong = {}
    for case in NATIVE:
        calls = library_calls(assembly(elementwise_kernel(case, dtype_of(case)), architecture, name))
        if calls:
            wrong[case.op] = calls
    assert not wrong


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [float16, bfloat16, float64, int8, int64], ids=str)
@pytest.mark.parametrize("architecture, name", TARGETS, ids=lambda x: x)
def test_no_dtype_calls_a_library(architecture: str, name: str, dtype: DType) -> None:
    wrong = {}
    for op in ("add", "multiply", "divide", "exp", "floor", "maximum", "sqrt", "gelu", "pow", "floor_divide", "less"):
        case = next(case for case in PLAIN if case.op == op)
        if dtype not in case.dtypes:
            continue
        calls = library_calls(assembly(elementwise_kernel(case, dtype), architecture, name))
        if calls:
            wrong[op] = calls
    assert not wrong


@pytest.mark.parametrize("architecture, name", TARGETS, ids=lambda x: x)
def test_the_sign_of_a_number_rounded_twice(architecture: str, name: str) -> None:
    """erfc in double, rounded to float16; erf of that takes its sign, which LLVM finds in the double."""
    (kernel,) = kernels_of(build("erf", build("erfc", parameter(0, (100,), float16))))
    assert not library_calls(assembly(kernel, architecture, name))


def test_no_random_kernel_calls_a_library(session_seed: int, sample: Callable[..., Any]) -> None:
    for seed in sample(range(session_seed, session_seed + 60)):
        for kernel in kernels_of(*random_program(seed).static(1 + seed % 8)):
            if isinstance(kernel, LoopKernel):
                assert not library_calls(assembly(kernel, "x86_64", "scalar")), f"seed {seed}"


def conv(dtype: DType) -> Node:
    x, weight = parameter(0, (2, 4, 9, 9), dtype), parameter(1, (6, 2, 3, 3), dtype)
    return build("conv", x, weight, before=(1, 1), after=(1, 1), steps=(1, 2), dilations=(1, 1), groups=2)


def attention(dtype: DType, mask: DType | None = None, backward: bool = False) -> Node:
    """Four heads that share two, with a mask where one is given; or the gradient."""
    shapes = [((4, 40, 24), dtype), ((2, 70, 24), dtype), ((2, 70, 24), dtype)]
    if backward:
        shapes += [((4, 40, 24), dtype), ((4, 40), dtype.compute), ((4, 40), dtype.compute)]
    if mask is not None:
        shapes.append(((4, 40, 70), mask))
    inputs = [parameter(i, shape, kind) for i, (shape, kind) in enumerate(shapes)]
    return pick(build("attention_backward" if backward else "attention", *inputs, scale=0.2, causal=True, window=0,
                      offset=0, masked=mask is not None, moving=False), 0)


def row_programs() -> dict[str, Node]:
    x = parameter(0, (5, 100), float32)
    half = parameter(0, (5, 100), float16)
    return {
        "softmax": build("softmax", x, axes=(1,)),
        "layer_norm": build("layer_norm", x, axes=(1,), eps=1e-5),
        "half softmax": build("softmax", half, axes=(1,)),
        "sum": build("sum", x, axes=(1,)),
        "columns": build("sum", x, axes=(0,)),
        "max": build("max", x, axes=(1,)),
        "scan": build("cumulative_sum", x, axis=1),
        "matmul": build("matmul", x, parameter(1, (100, 33), float32)),
        "bfloat16 matmul": build("matmul", parameter(0, (5, 64), bfloat16), parameter(1, (64, 33), bfloat16)),
        "conv": conv(float32),
        "bfloat16 conv": conv(bfloat16),
        "windows": build("sum", build("window", x, axes=(0, 1), sizes=(3, 2), steps=(1, 2), dilations=(1, 1)),
                         axes=(2, 3)),
        "attention": attention(float32),
        "half attention": attention(float16, bool_),
        "bfloat16 attention": attention(bfloat16, bfloat16),
        "double attention": attention(float64),
        "attention's gradient": attention(float32, float32, backward=True),
        "gather": build("gather", x, parameter(1, (7, 100), int64), axis=0),
        "cast": build("cast", parameter(0, (100,), float64), dtype=float16),
        "to int": build("cast", x, dtype=int8),
    }


@pytest.mark.sampled
@pytest.mark.parametrize("architecture, name", TARGETS, ids=lambda x: x)
def test_rows_products_and_scans_call_no_library(architecture: str, name: str) -> None:
    wrong = {}
    for label, node in row_programs().items():
        for kernel in kernels_of(node):
            calls = library_calls(assembly(kernel, architecture, name))
            calls = {call for call in calls if not call.startswith(("memset", "memcpy"))}
            if calls:
                wrong[label] = calls
    assert not wrong


@pytest.mark.sampled
@pytest.mark.parametrize("part", ["queries", "keys", "heads"])
@pytest.mark.parametrize("architecture, name", TARGETS, ids=lambda x: x)
def test_every_part_of_attention_s_gradient_calls_no_library(architecture: str, name: str, part: str) -> None:
    kernel = AttentionBackwardKernel(part, float32, 1, bool_, True)
    calls = library_calls(assembly(kernel, architecture, name))
    assert not {call for call in calls if not call.startswith(("memset", "memcpy"))}


REGISTERS = {("x86_64", "avx2"): r"%ymm", ("x86_64", "avx512"): r"%zmm", ("aarch64", "neon"): r"\bv\d+\.4s|\bq\d+"}


@pytest.mark.parametrize("op", ["add", "exp", "gelu", "maximum"])
@pytest.mark.parametrize("place", REGISTERS, ids=lambda place: place[1])
def test_the_widest_registers_are_used(place: tuple[str, str], op: str) -> None:
    case = next(case for case in PLAIN if case.op == op)
    text = assembly(elementwise_kernel(case, float32), *place)
    light = op in ("add", "maximum") and place[1] == "avx512"  # half vectors: they move more than they compute
    assert re.search(r"%ymm" if light else REGISTERS[place], text), text[:2000]


@pytest.mark.sampled
@pytest.mark.parametrize("label", ["softmax", "sum", "matmul", "columns", "attention", "attention's gradient"])
@pytest.mark.parametrize("place", REGISTERS, ids=lambda place: place[1])
def test_rows_use_the_widest_registers(place: tuple[str, str], label: str) -> None:
    texts = [assembly(kernel, *place) for kernel in kernels_of(row_programs()[label])]
    assert any(re.search(REGISTERS[place], text) for text in texts)


EXACT = {"floor", "ceil", "trunc", "roundeven", "fma"}  # each has one right answer, so a library has our bits


def test_the_least_x86_machine_calls_exact_functions_only() -> None:
    """Without FMA and SSE 4.1 some instructions are missing; what stands in for them rounds correctly."""
    isa = choose_isa("scalar", foreign_machine("x86_64", frozenset()))
    called: set[str] = set()
    for case in NATIVE:
        for dtype in {dtype_of(case), *({float16} & set(case.dtypes))}:
            source = generate(elementwise_kernel(case, dtype), isa, "kernel")
            text = llvm.assembly(source, isa, TRIPLES["x86_64"])
            assert not re.search(r"%[yz]mm", text)
            called |= {name.removesuffix("@PLT").removesuffix("f") for name in library_calls(text)}
    assert called <= EXACT, called - EXACT


def test_nothing_is_contracted_or_reassociated() -> None:
    """x * y + z stays a product and a sum on machines that have an fma; no fast-math flag is ever written."""
    x, y, z = (parameter(i, (100,), float32) for i in range(3))
    (kernel,) = kernels_of(build("add", build("multiply", x, y), z))
    for architecture, name in TARGETS:
        isa = target(architecture, name)
        source = generate(kernel, isa, "kernel")
        assert not re.search(r"\b(?:fast|contract|reassoc|nnan|ninf|nsz|arcp|afn)\b", source)
        text = llvm.assembly(source, isa, TRIPLES[architecture])
        assert not re.search(r"\bv?fn?m(?:add|la|sub)", text)


@pytest.mark.parametrize("architecture, name", TARGETS, ids=lambda x: x)
def test_every_target_gives_object_code(architecture: str, name: str) -> None:
    isa = target(architecture, name)
    for kernel in kernels_of(row_programs()["softmax"]):
        code = llvm.compile_text(generate(kernel, isa, "kernel"), isa, TRIPLES[architecture])
        assert code.startswith(b"\x7fELF")


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, int8], ids=str)
@pytest.mark.parametrize("architecture, name", TARGETS, ids=lambda x: x)
def test_scatters_and_lookups_call_no_library(architecture: str, name: str, dtype: DType) -> None:
    base, value = parameter(0, (9, 100), dtype), parameter(1, (7, 100), dtype)
    row = parameter(2, (7, 1), int64)
    index = build("expand", row, shape=(7, 100))
    nodes = [build("scatter", base, index, value, axis=0, mode=mode) for mode in ("set", "add")]
    nodes += [build("scatter", base, parameter(3, (7, 100), int32), value, axis=0, mode="add")]
    nodes += [build("gather", base, index, axis=0)]
    for kernel in kernels_of(*nodes):
        assert not library_calls(assembly(kernel, architecture, name)), kernel


@pytest.mark.parametrize("name", ["scalar", "avx2", "avx512"])
def test_x86_code_holds_whole_addresses(name: str) -> None:
    """Constants and other functions may lie anywhere in memory: nothing is found by its distance, which has 32 bits."""
    x = parameter(0, (7, 300), float32)
    kernels = [*kernels_of(build("gelu", x)), *kernels_of(build("softmax", x, axes=(1,))), GemmKernel(float32, "rows")]
    for kernel in kernels:
        text = assembly(kernel, "x86_64", name)
        assert "(%rip)" not in text and not re.search(r"\bcallq?\s+[^*\s]", text), kernel
    assert any("movabsq" in assembly(kernel, "x86_64", name) for kernel in kernels)


def test_wide_panels_are_asked_for_ahead_of_time() -> None:
    found = {name: "prefetch" in assembly(GemmKernel(float32, "rows"), "x86_64", name) for name in ("avx2", "avx512")}
    assert found == {"avx2": False, "avx512": True}


def test_the_lanes_of_two_reductions_stay_in_registers() -> None:
    """One walk of a block for each, where all lanes would not fit; afterwards the lanes are stored once."""
    x = parameter(0, (7, 4096), float32)
    (kernel,) = kernels_of(build("max", x, axes=(1,)), build("sum", x, axes=(1,)))
    stored = re.findall(r"vmov\w+\s+%ymm\d+, .*\(%rsp\)", assembly(kernel, "x86_64", "avx2"))
    zeros = 32 // 8  # the chunk on the stack for the end of a row
    assert len(stored) == 2 * 64 // 8 + zeros
