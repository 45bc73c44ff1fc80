"""Parts of all sparse records: checks of a pattern, the row of every stored element, the chains of a sum, semirings.

A pattern is CSR's: row r holds the elements `indptr[r]` to `indptr[r + 1]`, of which number j lies in column
`indices[j]`. Every sum over a row is `CHAINS` chains: the i-th stored element of the row goes to chain i mod 4, each
chain is in stored order from zero, and the sum is (c0 + c2) + (c1 + c3). It depends on the row alone, not on the number
of threads, of columns of the right side, or on the other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from morpho.base.dtypes import DType, bool_, int32, int64
from morpho.base.errors import DTypeError, IndexFault, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import Spec
from morpho.ops.algebra import constant_like, sub

CHAINS = 4


class Semiring(NamedTuple):
    """Replacements of plus and times, in NumPy and as elementwise operations."""

    plus: str
    times: str


SEMIRINGS = {"plus_times": Semiring("add", "mul"), "min_plus": Semiring("minimum", "add"),
             "max_plus": Semiring("maximum", "add"), "max_times": Semiring("maximum", "mul"),
             "max_min": Semiring("maximum", "minimum"), "min_max": Semiring("minimum", "maximum"),
             "or_and": Semiring("logical_or", "logical_and"), "bits": Semiring("bitwise_or", "bitwise_and")}
NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add, "mul": np.multiply, "minimum": np.minimum, "maximum": np.maximum, "logical_or": np.logical_or,
    "logical_and": np.logical_and, "bitwise_or": np.bitwise_or, "bitwise_and": np.bitwise_and}


def nothing(plus: str, dtype: DType) -> Any:
    """The value of an empty sum."""
    if plus in ("add", "bitwise_or"):
        return 0
    if plus == "logical_or" or dtype is bool_:
        return plus == "minimum"
    if dtype.is_float:
        return -np.inf if plus == "maximum" else np.inf
    info = np.iinfo(dtype.numpy)
    return int(info.min if plus == "maximum" else info.max)


def check_pattern(name: str, indices: Spec, indptr: Spec, data: Spec | None = None) -> None:
    """Indices and row starts are vectors of int32 or int64, and there is a number for each index."""
    for what, spec in (("indices", indices), ("indptr", indptr)):
        if spec.dtype not in (int32, int64) or len(spec.shape) != 1:
            raise fail(DTypeError, name, f"{what} are {spec.dtype}{spec.shape}, not a vector of int32 or int64")
    if data is not None and data.shape != indices.shape:
        raise fail(ShapeError, name, f"{data.shape} values for {indices.shape} indices")


def check_number(name: str, *specs: Spec) -> None:
    """One dtype for all, and not a complex one: complex matrices are computed by their parts."""
    if any(spec.dtype is not specs[0].dtype for spec in specs) or specs[0].dtype.is_complex:
        raise fail(DTypeError, name, "dtypes " + " and ".join(str(spec.dtype) for spec in specs) + " are not taken")


def check_rank(name: str, spec: Spec) -> None:
    """A dense operand is a matrix; vectors are settled before."""
    if len(spec.shape) != 2:
        raise fail(ShapeError, name, f"shape {spec.shape} is not that of a matrix")


def rows_of(indptr: Node, count: Any) -> Node:
    """The number of the row of every stored element."""
    numbers = build("iota", shape=(count,), axis=0, dtype=indptr.dtype)
    found = build("searchsorted", indptr, numbers, side="right")
    return sub(found, constant_like(found, 1))


def row_numbers(indptr: Any) -> Any:
    """The same for a reference."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def checked(name: str, indices: Any, size: int, indptr: Any) -> Any:
    """Indices as a reference takes them; one outside is an error, as in native code."""
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        worst = int(indices.min()) if indices.min() < 0 else int(indices.max())
        raise fail(IndexFault, name, f"index {worst} is out of range for an axis of size {size}")
    if len(indptr) and (indptr[0] != 0 or indptr[-1] != indices.size or np.any(np.diff(indptr) < 0)):
        raise fail(IndexFault, name, f"indptr does not rise from 0 to {indices.size}")
    return indices.astype(np.int64)


def in_chains(terms: Any, indptr: Any, plus: str, dtype: Any) -> Any:
    """The sum over each row of the terms of its elements, by the rule of this file; an element is a row of `terms`."""
    starts, lengths = np.asarray(indptr[:-1], np.int64), np.diff(indptr)
    empty = nothing(plus, bool_ if dtype == np.bool_ else _like(dtype))
    chains = np.full((CHAINS, len(lengths), *terms.shape[1:]), empty, dtype)
    for step in range(int(lengths.max(initial=0))):
        on = lengths > step
        chain = chains[step % CHAINS]
        chain[on] = NUMPY[plus](chain[on], terms[starts[on] + step])
    join = NUMPY[plus]
    return join(join(chains[0], chains[2]), join(chains[1], chains[3]))


def _like(dtype: Any) -> Any:
    from morpho.base.dtypes import ALL

    return next(one for one in ALL if one.numpy == np.dtype(dtype) and one.name != "bfloat16")


def zero_matrix(shape: Sequence[Any], dtype: DType) -> Node:
    """Zeros that need no memory."""
    from morpho.ops.algebra import constant, expand

    return expand(constant(0, dtype), tuple(shape))
