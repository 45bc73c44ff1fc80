"""The kernels of one program on their way to machine code, from the moment each is known."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from morpho.backends.code.compiler import code
from morpho.backends.code.compiler.queue import CompileQueue
from morpho.backends.kernels.generators import generate
from morpho.base.target import current_isa
from morpho.program.kernel import Kernel

MANY_NODES = 600  # of a graph: it will have kernels enough for another process


class Compilation:
    """Kernels that are not in memory come from disk, or from LLVM, which works while the program is still lowered.

    >>> from morpho.backends.kernels.gemm.packing.pack import PackKernel
    >>> from morpho.base.dtypes import float32
    >>> with Compilation() as compilation:
    ...     compilation.offer(PackKernel(float32, "rows", 4))    # begins
    ...     compilation.finish()                                 # all addresses are known
    """

    def __init__(self, nodes: int = 0) -> None:
        """For a graph of so many nodes."""
        self.is_large = nodes >= MANY_NODES
        self.isa = current_isa()
        self.disk = code.disk_cache()
        self.queue = CompileQueue(self.isa)
        self.seen: set[Any] = set()
        self.stored: dict[str, bytes] = {}

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, *_: object) -> None:
        self.queue.__exit__()


    def offer(self, kernel: Any) -> None:
        """Look for a kernel, or have it compiled."""
        if kernel in self.seen or isinstance(kernel, code.StoredKernel) or code.is_known(kernel, self.isa):
            return
        self.seen.add(kernel)
        key = code.kernel_key(kernel, self.isa)
        if code.has_key(key) or key in self.stored:
            return
        found = self.disk.get(key) if self.disk is not None else None
        if found is not None:
            self.stored[key] = found
        else:
            if self.is_large:  # the first kernel to be compiled: others will follow
                self.is_large = False
                self.queue.expect_more()
            started = time.perf_counter()
            self.queue.put(key, generate(kernel, self.isa, code.function_name(key)))
            code.counters.generate_ms += 1e3 * (time.perf_counter() - started)

    def finish(self) -> None:
        """Have the addresses of all kernels offered."""
        started = time.perf_counter()
        made = self.queue.finish()
        code.counters.compile_ms += 1e3 * (time.perf_counter() - started)
        if made and self.disk is not None:
            for key, found in made.items():
                self.disk.put(key, found)
        code.adopt(self.stored, made, self.isa)


def kernel_addresses(kernels: Sequence[Kernel]) -> list[int]:
    """The addresses of kernels, compiling those that are not known yet."""
    isa = current_isa()
    known = [code.known_address(kernel, isa) for kernel in kernels]
    new = dict.fromkeys(kernel for kernel, address in zip(kernels, known, strict=True) if address is None)
    code.counters.memory_hits += sum(not isinstance(kernel, code.StoredKernel) for kernel in kernels) - len(new)
    if len(new) > 1:
        with Compilation() as compilation:
            for kernel in new:
                compilation.offer(kernel)
            compilation.finish()
    made = {kernel: code.kernel_address(kernel, isa) for kernel in new}
    return [made[kernel] if address is None else address for kernel, address in zip(kernels, known, strict=True)]
