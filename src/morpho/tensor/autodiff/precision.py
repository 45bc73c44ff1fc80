"""Mixed precision, where operations are built: which ones take half floats under `amp.autocast`, and which never do.

| operations | under autocast |
|---|---|
| matmul, einsum, tensordot; attention; convolutions | in the low dtype |
| softmax, norms, losses; sums, means, variances; exp, log, pow and relatives | in float32 |
| everything else | follows its operands: a half float beside a float32 promotes to float32 |

float64, integers and complex numbers are left alone. `auto` lowers a family of operations where that was measured to be
no slower than float32 on this machine, forward and backward.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from morpho.base import settings
from morpho.base.dtypes import BY_NUMPY, DType, as_dtype, bfloat16, float32
from morpho.ir.node import Node
from morpho.ir.op import REGISTRY
from morpho.ops.algebra import cast
from morpho.tensor.autodiff.grad_mode import tracing
from morpho.tensor.core import Tensor
from morpho.tensor.operands import as_node, promoted
from morpho.tensor.scalars import is_scalar

log = logging.getLogger("morpho")
FAMILIES = ("product", "attention", "convolution")
FULL = "full"  # the class of operations that are computed in float32; records say which have it
# By family: a function and the shapes of an example that is timed; the files of these operations put them in.
EXAMPLES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {}
_lock = threading.Lock()
_known: dict[tuple[str, ...], tuple[float, float]] = {}  # seconds in bfloat16 and in float32


def lowered(operation: str, family: str, *values: Any, floating: bool = False) -> list[Node]:
    """Nodes of one dtype as `promoted` gives them; under autocast the low one, if all are floats of up to 32 bits."""
    wanted = settings.get().autocast
    if wanted:
        nodes = [None if is_scalar(value) else as_node(value, operation) for value in values]
        if all(node is not None and node.dtype.is_float and node.dtype.itemsize <= 4 for node in nodes):
            dtype = low_dtype(family, wanted)
            if dtype is not None:
                return [cast(node, dtype) for node in nodes]  # type: ignore[arg-type]
    return promoted(operation, *values, floating=floating)


def widened(node: Node) -> Node:
    """Under autocast a half float as float32."""
    if node.dtype.is_float and node.dtype.itemsize == 2 and settings.get().autocast:
        return cast(node, float32)
    return node


def in_class(operation: str, node: Node) -> Node:
    """An operand of an op by its class: under autocast a half float as float32 where its record says so."""
    return widened(node) if REGISTRY[operation].autocast == FULL else node


Composed = TypeVar("Composed", bound=Callable[..., Any])


def rounded_once(function: Composed) -> Composed:
    """Let a function that is made of several operations take half floats as float32, and round its results once: in
    between, squares and differences of half floats overflow, or vanish."""

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        kinds = {dtype for value in (*arguments, *named.values()) if (dtype := _float_dtype(value)) is not None}
        if len(kinds) != 1 or next(iter(kinds)).itemsize != 2:
            return function(*arguments, **named)
        (dtype,) = kinds
        found = function(*map(_wide, arguments), **{name: _wide(value) for name, value in named.items()})
        if isinstance(found, Tensor):
            return _rounded(found, dtype)
        return type(found)(_rounded(one, dtype) for one in found)

    return call  # type: ignore[return-value]


def _float_dtype(value: Any) -> DType | None:
    if isinstance(value, Tensor):
        return value.dtype if value.dtype.is_float else None
    return BY_NUMPY.get(value.dtype) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else None


def _wide(value: Any) -> Any:
    dtype = _float_dtype(value)
    return value if dtype is None or dtype.itemsize != 2 else Tensor.of_node(cast(as_node(value, "astype"), float32))


def _rounded(found: Tensor, dtype: DType) -> Tensor:
    return Tensor.of_node(cast(found.node, dtype)) if found.dtype is float32 else found


def low_dtype(family: str, wanted: str) -> DType | None:
    """Dtype of a family of operations under `autocast=wanted`; None for the operands' own dtype."""
    if wanted != "auto":
        return as_dtype(wanted)
    low_s, full_s = measured(family)
    pays = low_s <= full_s
    if tracing.current is not None:
        kept = "bfloat16" if pays else "float32"
        tracing.current.notes[f"autocast: {family} in {kept} (bfloat16 took {low_s / full_s:.2f}x the time of float32 "
                              "when measured)"] = None
    return bfloat16 if pays else None


def measured(family: str) -> tuple[float, float]:
    """Seconds of a small example, forward and backward, in bfloat16 and in float32; measured once for a machine, its
    instruction set and number of threads, and kept in its profile."""
    from morpho.runtime import thresholds

    key = (thresholds.profile_key(), f"bfloat16 {family}")
    with _lock:
        if key not in _known:
            found = thresholds.stored_row(*key)
            if found is None:
                found = _apart(lambda: [_seconds(family, dtype) for dtype in (bfloat16, float32)])
                thresholds.store_row(*key, found)
                log.info("autocast: %s took %.3g s in bfloat16 and %.3g s in float32 (measured once)", family, *found)
            _known[key] = (found[0], found[1])
    return _known[key]


def _apart(function: Callable[[], list[float]]) -> list[float]:
    """Run in a thread of its own: a function that is being traced here is not to record it."""
    results: list[list[float]] = []
    thread = threading.Thread(target=contextvars.copy_context().run, args=(lambda: results.append(function()),))
    thread.start()
    thread.join()
    return results[0]


def _seconds(family: str, dtype: DType) -> float:
    """The least of some runs of a family's example; the casts from and to float32 are part of it."""
    from morpho.tensor.autodiff.gradient import grad
    from morpho.tensor.functions.create import ones
    from morpho.tensor.jit.compile import compile

    function, shapes = EXAMPLES[family]
    arguments = [ones(shape) for shape in shapes]

    def loss(*inputs: Tensor) -> Tensor:
        return function(*[x.astype(dtype) for x in inputs]).astype(float32).sum()  # type: ignore[no-any-return]

    with settings.settings(autocast=""):
        step = compile(grad(loss, argnums=tuple(range(len(shapes)))))
        step(*arguments)
        times = []
        for _ in range(5):
            started = time.perf_counter()
            step(*arguments)
            times.append(time.perf_counter() - started)
    return min(times)
