"""The kernels of attention and of its gradient, as programs have them."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.cuda.attention.backward import BackwardGrid
from morpho.backends.cuda.attention.backward_spec import BackwardSpec
from morpho.backends.cuda.attention.forward import AttentionGrid
from morpho.backends.cuda.attention.hopper import HopperAttention
from morpho.backends.cuda.attention.hopper_backward import HopperBackward
from morpho.backends.cuda.attention.paged import PagedAttention
from morpho.backends.cuda.attention.spec import AttentionSpec
from morpho.program.program import Step


@dataclass(frozen=True)
class AttentionKernel(AttentionSpec):
    """An `AttentionSpec` that knows its grid."""

    def device_kernel(self, step: Step) -> AttentionGrid | HopperAttention:
        if self.paged:
            return PagedAttention(self, True)
        return HopperAttention(self) if self.way == "wgmma" else AttentionGrid(self, True)


@dataclass(frozen=True)
class AttentionBackward(BackwardSpec):
    """A `BackwardSpec` that knows its grid."""

    def device_kernel(self, step: Step) -> BackwardGrid:
        return HopperBackward(self) if self.way == "wgmma" else BackwardGrid(self)
