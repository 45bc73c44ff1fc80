"""Small functions of the GPU's own units, which the emulator has too: powers, logarithms, pairs of half floats."""

from __future__ import annotations

import math

from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import GridEmitter
from morpho.base.dtypes import DType, bfloat16


def exp2(e: GridEmitter, x: Value) -> Value:
    """2**x, to two units in the last place; results below the least normal number are zero."""
    return e.assign(f"call float @gpu.exp2(ptr %ctx, float {x.name})", "float", 1)


def log2(e: GridEmitter, x: Value) -> Value:
    """The logarithm, to one unit in the last place or 1e-7."""
    return e.assign(f"call float @gpu.log2(ptr %ctx, float {x.name})", "float", 1)


def pack(e: GridEmitter, dtype: DType, low: Value, high: Value) -> str:
    """Two numbers as half floats of one register."""
    kind = "bf16" if dtype is bfloat16 else "f16"
    return e.assign(f"call i32 @gpu.pack_{kind}(ptr %ctx, float {low.name}, float {high.name})", "i32", 1).name


def zero_or(e: GridEmitter, x: Value) -> Value:
    """x, or zero for -inf."""
    return e.select(e.fcmp("oeq", x, -math.inf), 0.0, x)


def shrunk(e: GridEmitter, before: Value, top: Value, factor: Value) -> Value:
    """By what sums taken below the largest score `before` shrink when `top` is the largest one: exactly 1 where it has
    not changed. Blocks of keys that a row does not see, and other rows of its tile do, leave the row as it was."""
    return exp2(e, (before - zero_or(e, top)) * factor)
