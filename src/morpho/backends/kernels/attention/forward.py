"""The generator of the forward kernel: on matrix units where there are any, else on vectors, with the same bits."""

from __future__ import annotations

from morpho.backends.kernels.attention.amx.amx_forward_code import AmxForwardCode
from morpho.backends.kernels.attention.attention import AttentionKernel
from morpho.backends.kernels.attention.forward_code import ForwardCode
from morpho.base.dtypes import bfloat16
from morpho.base.machine import Isa


def generate(kernel: AttentionKernel, isa: Isa, name: str) -> str:
    """The LLVM module of an `AttentionKernel`."""
    on_units = isa.matrix_units and kernel.dtype is bfloat16
    return (AmxForwardCode if on_units else ForwardCode)(kernel, isa).module(name)
