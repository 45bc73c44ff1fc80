"""Sizes that are data: `counted` takes the first elements of a line, as many as a value says when the program runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morpho.base.dims import Dim, bounds, upper
from morpho.base.dtypes import int64
from morpho.base.errors import ArgumentError, CompileError, DTypeError, fail
from morpho.ir.op import TWO, Attributes, NoGradient, Op, Spec, register


def _infer_counted(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    """`size` is a symbol of its own, which becomes a number here; everything of that size is computed after it. The
    number is a result too: a program that has the size asks for it, so that no pass finds this to be of no use."""
    line, count = inputs
    size = attributes["size"]
    if line.dtype is not int64 or count != Spec((), int64) or len(line.shape) != 1:
        raise fail(DTypeError, "counted", f"a line of int64 and a count are wanted, not {line} and {count}")
    if not isinstance(size, Dim) or size.line is None or bounds(size)[1] > upper(line.shape[0]):
        raise fail(ArgumentError, "counted", f"the size {size} is no symbol of at most {line.shape[0]}")
    return Spec((size,), int64), Spec((), int64)


def _reference_counted(attributes: Attributes, line: Any, count: Any) -> Any:
    return line[:int(count)], count


def _batch_counted(node: Any, inputs: Sequence[Any], batched: Sequence[bool], rows: Any) -> Any:
    raise fail(CompileError, "vmap", "rows select different numbers of elements, and an axis has one size",
               "use mo.where, or multiply by the mask")


COUNTED = register(Op("counted", "scan", _infer_counted, NoGradient("positions are whole numbers"), _reference_counted,
                      flops=0, arity=TWO, batch=_batch_counted))
