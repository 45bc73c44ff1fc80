"""Which products of a program NVIDIA's libraries compute, under `mo.settings(fast=True)`: dense ones cuBLASLt, sparse
ones cuSPARSE, where they are installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morpho.backends.cuda.driver.launch_code import Kernel
from morpho.backends.cuda.vendor.blas import Blas, blas_of
from morpho.backends.cuda.vendor.sparse import Sparse, sparse_of
from morpho.base import settings
from morpho.program.program import Step


class FastProducts:
    """The libraries of one device."""

    def __init__(self, blas: Blas | None, sparse: Sparse | None) -> None:
        self.blas, self.sparse = blas, sparse

    def library(self, step: Any) -> str:
        """Name of the library that computes a step; empty for Morpho's own kernels."""
        if self.blas is not None and Blas.serves(step):
            return "cuBLASLt"
        return "cuSPARSE" if self.sparse is not None and Sparse.serves(step) else ""

    def launch(self, step: Step, places: Sequence[tuple[int, int] | None]) -> Kernel | None:
        """A step among native launches; None where our kernel computes it."""
        return self.blas.launch(step, places) if self.blas is not None and Blas.serves(step) else None

    def all_native(self, steps: Sequence[Any]) -> bool:
        """Whether what the libraries compute of a program can be among native launches."""
        return not any(self.library(step) == "cuSPARSE" for step in steps)

    def run(self, step: Step, addresses: tuple[int, ...]) -> bool:
        """Queue a step that a library computes, of operands at these addresses; False where it is ours after all."""
        name = self.library(step)
        if name == "cuBLASLt" and self.blas is not None:
            a, b, c = addresses
            return self.blas.run(step, (a, b, c))
        return name == "cuSPARSE" and self.sparse is not None and self.sparse.run(step, addresses)


def fast_products(backend: Any, steps: Sequence[Any]) -> FastProducts | None:
    """The libraries for a program, where the user says `fast` and one of them computes a step of it."""
    if not settings.get().fast:
        return None
    blas = blas_of(backend) if any(map(Blas.serves, steps)) else None
    sparse = sparse_of(backend) if any(map(Sparse.serves, steps)) else None
    return FastProducts(blas, sparse) if blas is not None or sparse is not None else None
