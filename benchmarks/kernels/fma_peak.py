"""The most multiply-adds a second this machine can do: a generated kernel that stays in registers, on every thread.

>>> FmaPeak(64, 64, 64, threads=1)()    # as many multiply-adds as that product; 1.0: all of them were done
1.0
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

from morpho.backends.code.compiler import llvm
from morpho.backends.code.emit import Emitter
from morpho.base import settings
from morpho.base.machine import Isa, choose_isa, machine

CHAINS = 12  # independent sums: enough for two units of up to six cycles, and few enough for 16 registers
UNROLL = 8
STEP = 2.0**-10  # exact until a sum reaches 2**14, where adding it no longer changes anything


def kernel_text(lanes: int) -> str:
    """``float fma_peak(i64 turns, float a, float b)``: each turn adds a * b to every lane of every chain."""
    e = Emitter(lanes)
    a, b = (e.splat(e.argument(name, "float", 1)) for name in ("%a", "%b"))
    with e.loop(0, e.argument("%turns", "i64", 1), carried=[e.constant(0.0, "float")] * CHAINS) as loop:
        sums = loop.values
        for _ in range(UNROLL):
            sums = [e.fma(a, b, value) for value in sums]
        loop.next(*sums)
    total = loop.values[0]
    for value in loop.values[1:]:
        total = e.minimum(total, value)
    result = total
    if lanes > 1:
        result = e.assign(f"extractelement {total.type} {total.name}, i64 {lanes - 1}", "float", 1)
    head = "define float @fma_peak(i64 %turns, float %a, float %b) nounwind {\nentry:\n"
    return head + e.text() + f"\n  ret float {result.name}\n}}\n" + "\n".join(sorted(e.declarations)) + "\n"


def compiled(isa: Isa) -> ctypes._CFuncPtr:
    """The native function; a call leaves Python's lock free."""
    [address] = llvm.load(llvm.compile_text(kernel_text(isa.lanes(4)), isa), isa, ["fma_peak"])
    return ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64, ctypes.c_float, ctypes.c_float)(address)


class FmaPeak:
    """A call does at least the m x k x n multiply-adds of a product, divided among threads."""

    def __init__(self, m: int, k: int, n: int, threads: int) -> None:
        isa = choose_isa(settings.get().isa, machine())
        self.function = compiled(isa)
        self.turns = -(-m * k * n // (threads * CHAINS * UNROLL * isa.lanes(4)))
        self.others = ThreadPoolExecutor(max(1, threads - 1))
        self.threads = threads

    def __call__(self) -> float:
        """The share of the sums that came out as they must."""
        waiting = [self.others.submit(self.function, self.turns, STEP, 1.0) for _ in range(self.threads - 1)]
        sums = [self.function(self.turns, STEP, 1.0), *(one.result() for one in waiting)]
        expected = min(self.turns * UNROLL * STEP, 2.0**14)
        return sum(value == expected for value in sums) / self.threads
