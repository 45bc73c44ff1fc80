"""Interface of a kernel for programs: its capabilities, not its code.

A step of a program calls a kernel over rows and columns. Whoever plans and runs the steps (threads, memory,
co-scheduling, estimates) asks these questions only, so a backend's kernel is any hashable value that answers them:
write a frozen dataclass that derives from `Kernel`, with the sizes and layouts its code depends on as fields, and
override what differs from the defaults. Equal kernels have equal code. How the code is made is the backend's affair
(`backends/kernels/generators.py` for this machine's processor).

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Saxpy(Kernel):
...     dtype: str
...     flops = 2
>>> Saxpy("float32").flops, Saxpy("float32").may_fault, Saxpy("float32") == Saxpy("float32")
(2, False, True)
"""

from __future__ import annotations

from typing import Literal, Protocol

Role = Literal["loop", "gemm", "gemv", "pack", "attention", "scan", "scatter", "lookup_scatter"]


class Kernel(Protocol):
    """The capabilities of a kernel. What is not overridden holds for most of them."""

    @property
    def role(self) -> Role:
        """Role of a kernel: `gemm` and `gemv` are products (of packed, of unpacked right operands), whose rows x
        columns are multiply-adds; `pack` writes the right operand of a `gemm`."""
        return "loop"

    @property
    def flops(self) -> int:
        """Operations per column of a row, to estimate time and to decide on threads."""
        return 1

    @property
    def scratch_bytes(self) -> int:
        """Scratch memory of one thread that does not depend on the step's sizes."""
        return 0

    @property
    def scratch_bytes_per_column(self) -> int:
        """Scratch memory of one thread for every column of the step."""
        return 0

    @property
    def may_fault(self) -> bool:
        """Whether it checks indices and may return a fault."""
        return False

    @property
    def transposed(self) -> bool:
        """Whether its vectors run along the rows: threads then get few, large pieces of them."""
        return False

    @property
    def one_by_one(self) -> bool:
        """Whether rows are so large that threads take them one at a time."""
        return False

    @property
    def uneven(self) -> bool:
        """Whether rows differ in work, so that a thread begins with every n-th piece."""
        return False

    @property
    def on_matrix_unit(self) -> bool:
        """Of a product: whether a matrix unit multiplies."""
        return False

    @property
    def gathered(self) -> tuple[int, ...]:
        """Operands, by position, of which only looked-up elements are read."""
        return ()

    @property
    def op_names(self) -> frozenset[str]:
        """Elementwise ops whose emitters its code uses: where a user replaces one, the code is made anew."""
        return frozenset()

    def __hash__(self) -> int:
        """Kernels are keys of the caches of code."""
        return object.__hash__(self)
