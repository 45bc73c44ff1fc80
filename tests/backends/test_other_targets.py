"""The target is data: elementwise and reduction cases for wasm32 have the CPU's bits; others lower as text."""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from case_values import operands
from cases import SHAPED
from elementwise_cases import PLAIN
from running import Native, difference, equal_bits, parameter
from test_ops import draw_inputs

import morpho as mo
from morpho.backends.kernels.generators import generate
from morpho.ir.graph import Graph
from morpho.ir.op import REGISTRY

wasm = pytest.importorskip("wasm", reason="wasmtime is not installed", exc_type=ImportError)

NATIVE = [case for case in PLAIN if REGISTRY[case.op].kind == "elementwise"]
REDUCTIONS = [case for case in SHAPED if REGISTRY[case.op].kind == "reduce"]


def compare(node: Any, arrays: list[Any], where: str) -> bool:
    native = Native([node])
    if not native.program.is_native or any(step.epilogue is not None for step in native.program.steps):
        return False  # it runs on the host, or is a product
    (want,) = native(arrays)
    program = wasm.lowered(Graph((node,)), len(arrays))
    (got,) = wasm.run(program, arrays, {})
    assert equal_bits(got, want, node.dtype), f"{where}: {difference(got, want, node.dtype)}"
    return True


@pytest.mark.sampled
@pytest.mark.parametrize("case", NATIVE, ids=lambda case: f"{case.op}{case.attributes or ''}")
def test_elementwise_cases_have_the_bits_of_the_cpu(rng: np.random.Generator, case: Any) -> None:
    for dtype in [d for d in case.dtypes if d in (mo.float32, mo.int32)] or case.dtypes[:1]:
        kinds = case.inputs(dtype)
        arrays = [np.ascontiguousarray(a[:37]) for a in operands(rng, kinds, 37)]
        node = case.build(*[parameter(i, (arrays[0].size,), kind) for i, kind in enumerate(kinds)])
        compare(node, arrays, f"{case.op} {dtype}")


@pytest.mark.sampled
@pytest.mark.parametrize("case", REDUCTIONS, ids=str)
def test_reductions_have_the_bits_of_the_cpu(rng: np.random.Generator, case: Any) -> None:
    for dtype in [d for d in case.dtypes if d in (mo.float32, mo.int32)] or case.dtypes[:1]:
        length = case.lengths[min(1, len(case.lengths) - 1)]
        arrays = draw_inputs(case, dtype, length, rng)
        specs = case.specs(dtype, length)
        node = case.make(*[parameter(i, a.shape, kind) for i, (a, (_, kind)) in enumerate(zip(arrays, specs))])
        compare(node, arrays, f"{case} {dtype}")


def test_fused_chains_run_there_too(rng: np.random.Generator) -> None:
    x = mo.Tensor.of_node(parameter(0, (5, 70), mo.float32))
    node = mo.sum(mo.exp(x * 0.5 - 1.0) * x, axis=1).node
    assert compare(node, [rng.standard_normal((5, 70)).astype("f")], "chain")


@pytest.mark.parametrize(("triple", "cpu"), [("amdgcn-amd-amdhsa", "gfx90a"), ("spirv64-unknown-unknown", "")])
def test_others_lower_as_text(triple: str, cpu: str) -> None:
    """Nothing more is promised without the hardware."""
    x = mo.Tensor.of_node(parameter(0, (5, 70), mo.float32))
    program = wasm.lowered(Graph((mo.sqrt(x * x + 1.0).node,)), 1)
    text = generate(program.steps[0].kernel, wasm.ISA, "kernel")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError:
        pytest.skip(f"this LLVM has no target {triple}")
    machine = target.create_target_machine(cpu=cpu, opt=1)
    if triple.startswith("amdgcn"):  # whose stack is an address space of its own
        text = re.sub(r"( *)(%\w+) = alloca (.*), align (\d+)",
                      r"\1\2.s = alloca \3, align \4, addrspace(5)\n"
                      r"\1\2 = addrspacecast ptr addrspace(5) \2.s to ptr", text)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = triple, str(machine.target_data)
    assert "kernel" in machine.emit_assembly(module)
