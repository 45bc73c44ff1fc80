"""Kernels are data: one table finds who writes their text, for the target they are lowered for, whatever runs here."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

import pytest
from running import parameter

from morpho.backends import kernels
from morpho.backends.kernels.generators import GENERATORS, generate
from morpho.backends.lowering.lower_graph import build_program
from morpho.base.dtypes import bfloat16, float32
from morpho.base.machine import foreign_machine
from morpho.base.target import Target, target_for
from morpho.ir.graph import Graph
from morpho.ir.node import build
from morpho.passes.pipeline import optimise
from morpho.program.kernel import Kernel
from morpho.program.program import Program, Step


def kernel_types(base: type) -> set[type]:
    return {base}.union(*(kernel_types(child) for child in base.__subclasses__()))


def test_every_kernel_has_a_generator() -> None:
    for module in pkgutil.walk_packages(kernels.__path__, kernels.__name__ + "."):
        if not module.name.endswith(".worker"):
            importlib.import_module(module.name)
    found = {kind.__name__ for kind in kernel_types(Kernel) if kind.__module__.startswith(kernels.__name__)}
    assert found == GENERATORS.keys()
    for module in set(GENERATORS.values()):
        assert callable(importlib.import_module(module).generate), module


def test_kernels_are_frozen_keys() -> None:
    for kind in kernel_types(Kernel) - {Kernel}:
        if kind.__module__.startswith(kernels.__name__):
            assert dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen, kind  # type: ignore[attr-defined]


def lowered(target: Target, dtype: object = float32) -> Program:
    a, b = parameter(0, (200, 96), dtype), parameter(1, (96, 48), dtype)  # type: ignore[arg-type]
    graph, _ = optimise(Graph((build("exp", build("matmul", a, b)),)), 2)
    return build_program(graph, True, 2, target)


@pytest.mark.parametrize("architecture, isa, marks", [("aarch64", "neon", "<4 x float>"),
                                                      ("x86_64", "avx512", "<16 x float>")])
def test_a_program_is_lowered_for_a_machine_that_is_not_here(architecture: str, isa: str, marks: str) -> None:
    target = target_for(isa, threads=6, machine=foreign_machine(architecture))
    texts = [generate(kernel, target.isa, "kernel") for step in lowered(target).steps if isinstance(step, Step)
             for kernel in step.kernels]
    assert any(marks in text for text in texts)


def test_matrix_units_and_threads_are_those_of_the_target() -> None:
    amx = target_for("amx", machine=foreign_machine("x86_64"))
    kinds = {type(step.kernel).__name__ for step in lowered(amx, bfloat16).steps if isinstance(step, Step)}
    assert "AmxGemmKernel" in kinds
    few, many = (lowered(target_for("neon", threads, foreign_machine("aarch64"))).steps[-1] for threads in (1, 16))
    assert isinstance(few, Step) and isinstance(many, Step) and few.rows != many.rows
