"""From the text of a kernel to PTX: the grid's functions by NVPTX intrinsics, LLVM's passes, and its assembly printer.

Nothing may contract or reassociate: LLVM writes `mul.rn` and `add.rn`, which ptxas does not fuse, so elementwise
arithmetic has the CPU's bits.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from morpho.backends.code.compiler import llvm as host_llvm
from morpho.backends.cuda.assembly.intrinsics import functions
from morpho.backends.cuda.assembly.verify import verify
from morpho.backends.cuda.codegen.grid import ENTRY
from morpho.base.errors import CompileError, fail

TRIPLE = "nvptx64-nvidia-cuda"
BEGIN = re.compile(ENTRY.pattern + r"[^{]*\{\nentry:\n")
PTX_VERSION = "+ptx80"  # CUDA 12.0: every driver for Hopper knows it


@cache
def _binding() -> Any:
    llvm = host_llvm.binding()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


@cache
def _machine(architecture: str) -> Any:
    return _binding().Target.from_triple(TRIPLE).create_target_machine(cpu=architecture, features=PTX_VERSION, opt=3)


def comes_early(architecture: str) -> bool:
    """Whether a chip's kernels wait themselves for those before them (`driver/early_launch.py`).

    >>> comes_early("sm_89"), comes_early("sm_90a"), comes_early("sm_120")
    (False, True, True)
    """
    return int(architecture.removeprefix("sm_").rstrip("af")) >= 90


def device_text(text: str, architecture: str = "sm_90a") -> str:
    """A kernel's text for NVPTX: its words by value, no context, and the runtime's functions. A kernel begins by
    letting the next one come and waiting for those before it, unless it says itself when."""
    if "@gpu.grid_wait(" not in text:
        text = BEGIN.sub(r"\g<0>  call void @gpu.grid_wait(ptr %ctx)\n", text)
    align = 64 if "@gpu.tma_load_" in text else 8  # tensor maps among the words
    return ENTRY.sub(rf"define ptx_kernel void @\1(ptr byval([\2 x i64]) align {align} %p)", text).replace(
        "ptr %ctx", "ptr null") + functions(text, comes_early(architecture))


def assembly(text: str, architecture: str = "sm_90a") -> str:
    """PTX of a kernel's text."""
    llvm, full = _binding(), device_text(text, architecture)
    verify(full)
    with host_llvm.lock:
        machine = _machine(architecture)
        try:
            module = llvm.parse_assembly(full)
            module.triple, module.data_layout = TRIPLE, str(machine.target_data)
            module.verify()
        except RuntimeError as error:
            raise fail(CompileError, "compile", f"LLVM rejects generated code: {error}",
                       "this is a defect of Morpho; please report it with the program") from error
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
        builder.getModulePassManager().run(module, builder)
        return str(machine.emit_assembly(module))
