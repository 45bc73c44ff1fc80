"""Kernels of your own, written in Python over tiles: one source for the CPU and for GPUs (docs/kernels.md).

>>> import morpho as mo
>>> @mo.kernel(grid=lambda a, block, **_: mo.kernel.cdiv(a.shape[0], block), out="a")
... def add(a, b, out, *, block: mo.kernel.Const):
...     start = mo.kernel.program_id(0) * block
...     x = mo.kernel.load(a[start:], block)
...     mo.kernel.store(out[start:], x + mo.kernel.load(b[start:], block))
>>> add(mo.asarray([1.0, 2.0, 3.0]), mo.asarray([0.5, 0.5, 0.5]), block=2)
Tensor([1.5, 2.5, 3.5], dtype=float32)
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from morpho.kernel.call import Const, Kernel, New, cdiv, new, next_power_of_2
from morpho.ops.tiles.functions import (
    arange,
    atomic_add,
    atomic_max,
    atomic_min,
    cummax,
    cummin,
    cumprod,
    cumsum,
    dot,
    full,
    load,
    max,
    maximum,
    min,
    minimum,
    num_programs,
    prod,
    program_id,
    sort,
    store,
    sum,
    where,
    zeros,
)

__all__ = ["Const", "Kernel", "New", "arange", "atomic_add", "atomic_max", "atomic_min", "cdiv", "cummax", "cummin",
           "cumprod", "cumsum", "dot", "full", "kernel", "load", "max", "maximum", "min",
           "minimum", "new", "next_power_of_2", "num_programs", "prod", "program_id", "sort", "store", "sum", "where",
           "zeros"]


def kernel(*, grid: Any, out: Any = None,
           vjp: Callable[..., Any] | None = None) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a function a kernel: arrays are its positional arguments, constants those by keyword.

    Args:
        grid: How many programs run: a number, a tuple of up to three, or a function of the kernel's arguments by name.
        out: Results that a call leaves out: the name of an argument they are like, a `new`, a tuple of these, or a
            function of the arguments by name that returns them.
        vjp: The gradient: a function `(inputs, outputs, cotangents)` of tensors that returns one gradient, or None,
            for each input.

    >>> @mo.kernel(grid=1, out=mo.kernel.new((), "float32"))
    ... def total(x, out, *, block: mo.kernel.Const):
    ...     mo.kernel.store(out, mo.sum(mo.kernel.load(x[:], block)))
    >>> total(mo.asarray([1.0, 2.0, 3.0]), block=4).item()
    6.0
    """
    def wrap(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, grid, out, vjp)

    return wrap


class _Decorator(types.ModuleType):
    """This module, which is the decorator too: `@mo.kernel(...)` and `mo.kernel.load`."""

    __call__ = staticmethod(kernel)


sys.modules[__name__].__class__ = _Decorator
