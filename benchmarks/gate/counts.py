"""The counts of a lowered program: of its steps, its memory, and the code of its kernels. Fewer is better of all."""

from __future__ import annotations

from functools import cache

from benchmarks.gate.capture import Traced
from benchmarks.gate.loops import blocks_of_assembly, blocks_of_text, loop_instructions, without_inline_assembly
from benchmarks.gate.targets import TARGETS, THREADS, lowering_for
from morpho.backends.code.compiler import llvm
from morpho.backends.kernels.generators import generate
from morpho.program.program import HostStep, Program, Step

Counts = dict[str, int]
ASSEMBLED = "loop_instructions"  # depends on LLVM's version, unlike the others


def count(traced: Traced, target: str, assemble: bool = True, **chosen: object) -> Counts:
    """All counts of a traced function on a target, under settings such as `passes_off`."""
    program = traced.lowered(TARGETS[target], **chosen)
    return {**of_program(program), **of_code(program, target, assemble)}


def of_program(program: Program) -> Counts:
    """Steps, what they move and compute, and what a call holds."""
    steps = [step for step in program.steps if isinstance(step, Step)]
    costs = [step.cost for step in steps]
    return {"kernels": len(steps), "launches": sum(step.together > 0 for step in steps),
            "host_steps": sum(isinstance(step, HostStep) for step in program.steps),
            "prepared_steps": len(program.prepare), "copies": program.copies,
            "bytes_moved": sum(cost.bytes for cost in costs), "operations": sum(cost.flops for cost in costs),
            "arena_bytes": program.arena_bytes,
            "scratch_bytes": max((step.scratch_bytes(THREADS) for step in steps), default=0),
            "buffers": sum(slot.kind != "input" for slot in program.slots)}


def of_code(program: Program, target: str, assemble: bool = True) -> Counts:
    """Instructions in the loops of the program's kernels, each kernel once."""
    kernels = dict.fromkeys(kernel for step in (*program.prepare, *program.steps) if isinstance(step, Step)
                            for kernel in step.kernels)
    with lowering_for(TARGETS[target]):
        texts = dict.fromkeys(generate(kernel, TARGETS[target].isa, "kernel") for kernel in kernels)
    found = {"code_kernels": len(texts), "loop_ir": sum(map(loop_ir, texts))}
    if assemble:
        found[ASSEMBLED] = sum(loop_assembled(text, _assembled_for(text, target)) for text in texts)
    return found


def _assembled_for(text: str, target: str) -> str:
    """Code that does not use the matrix units is the same with them and without."""
    return "avx512" if target == "amx" and "@llvm.x86.t" not in text else target


@cache
def loop_ir(text: str) -> int:
    """Of LLVM's text."""
    return loop_instructions(blocks_of_text(text))


@cache
def loop_assembled(text: str, target: str) -> int:
    """Of the machine code that LLVM makes of it."""
    chosen = TARGETS[target]
    assembly = llvm.assembly(without_inline_assembly(text), chosen.isa, chosen.triple)
    return loop_instructions(blocks_of_assembly(assembly)) + loop_instructions(blocks_of_text(text), inline=True)
