"""How many elements of a row a loop kernel computes at a time."""

from __future__ import annotations

from math import prod

from morpho.backends.code import scalars
from morpho.backends.code.vector_math import BY_TABLE, is_by_table
from morpho.backends.kernels.loops.loop_spec import TREE_LANES, LoopKernel
from morpho.base.machine import Isa
from morpho.ops.elementwise import COSTLY

LONG_CHAIN = 8
MANY_LOADS = 8  # of a long chain, as of a stencil of stencils
LARGE_WINDOW = 8  # elements of a window whose products and sums fill the registers
MOVES = ("load", "index", "constant")
SHORT_ROW_VECTORS = 2  # of a chunk of a short row: the last chunk, which is masked, is one of few


def function_flops(kernel: LoopKernel) -> int:
    """Operations per element that are inside polynomials."""
    return sum(i.flops for i in kernel.instructions if i.full and i.flops >= COSTLY)


def may_be_pipelined(kernel: LoopKernel) -> bool:
    """Whether a loop has a long chain of operations, but not so many that they do not fit the registers twice: sine and
    power are too long."""
    return COSTLY <= function_flops(kernel) <= 4 * COSTLY


def vectors_of_functions(kernel: LoopKernel, isa: Isa) -> int:
    """Vectors side by side where polynomials are computed: they wait for themselves, but more may not fit the
    registers."""
    heavy = [i for i in kernel.instructions if i.full and i.flops >= COSTLY]
    names = [i.name for i in heavy]
    by_table = [i.name for i in heavy if is_by_table(i.name, scalars.register_type(i.dtype))]
    if isa.architecture == "aarch64":
        # The more vectors, the fewer loads of tables for each.
        return 4 if function_flops(kernel) == COSTLY or names == ["gelu_tanh"] or by_table else 2
    # Constants take no registers of their own on AVX-512.
    alone = len(names) == 1 and names[0] in BY_TABLE and not any(i.reduces for i in kernel.instructions)
    return 4 if alone and isa.vector_bits == 512 else 2


def choose_lanes(kernel: LoopKernel, isa: Isa) -> int:
    """Elements per chunk: some vectors of the widest dtype, so that independent work overlaps."""
    if isa.vector_bits == 0:
        return 1
    moving = [i for i in kernel.instructions if i.full or i.reduces] or kernel.instructions
    widest = max((i.dtype.itemsize for i in moving), default=4)  # values of rows are one at a time
    heavy = any(i.flops >= COSTLY for i in kernel.instructions)
    if heavy:  # half floats are float32 in registers: long bodies would not fit, and take long to compile
        widest = max(widest, max(i.dtype.compute.itemsize for i in moving))
    vectors = vectors_of_functions(kernel, isa) if heavy else 4
    if is_long_chain(kernel) and (isa.architecture == "aarch64" or isa.vector_bits == 512):
        # It waits for itself; 32 registers hold more of them side by side, but not what many loads are kept for.
        loads = sum(i.name == "load" and i.full for i in kernel.instructions)
        vectors = 8 if loads <= MANY_LOADS else 2
    if kernel.short:  # rows of images are short, and an unrolled window takes the registers
        vectors = 1 if prod(kernel.short) >= LARGE_WINDOW else 2
    if kernel.short_rows:
        vectors = min(vectors, SHORT_ROW_VECTORS)
    return min(TREE_LANES, isa.vector_bits // 8 // widest * vectors)


def is_light(kernel: LoopKernel) -> bool:
    """Whether a kernel moves more than it computes: a map with at most an operation for two loads or stores."""
    full = [i for i in kernel.instructions if i.full]
    moved = sum(i.name == "load" for i in full) + len(kernel.stores)
    computed = [i for i in full if i.name not in MOVES]
    plain = all(i.name != "gather" and i.dtype.compute is i.dtype for i in full)
    return plain and not any(i.reduces for i in kernel.instructions) and 2 * sum(i.flops for i in computed) <= moved


def is_long_chain(kernel: LoopKernel) -> bool:
    """Whether a kernel is one of many short operations and nothing else."""
    flops = sum(i.flops for i in kernel.instructions if i.full)
    return flops >= LONG_CHAIN and not any(i.flops >= COSTLY or i.reduces for i in kernel.instructions)
