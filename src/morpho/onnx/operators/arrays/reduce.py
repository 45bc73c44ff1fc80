"""Reductions and running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from morpho.onnx.operators.registry import Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import dtype_of, is_static, tensor

FAMILY = Family("reductions")


def _sum(x: Any, **where: Any) -> Any:
    return mo.sum(x, dtype=x.dtype, **where)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceSum": _sum, "ReduceMean": lambda x, **where: _mean(x, **where),
    "ReduceProd": lambda x, **where: mo.prod(x, dtype=x.dtype, **where),
    "ReduceMax": lambda x, **where: _extreme(mo.max, mo.any, x, **where),
    "ReduceMin": lambda x, **where: _extreme(mo.min, mo.all, x, **where),
    "ReduceL1": lambda x, **where: _sum(mo.abs(x), **where),
    "ReduceL2": lambda x, **where: _root(x, **where),
    "ReduceSumSquare": lambda x, **where: _sum(mo.square(x), **where),
    "ReduceLogSum": lambda x, **where: mo.log(_sum(x, **where)),
    "ReduceLogSumExp": lambda x, **where: _log_sum_exp(x, **where),
}
ON_SHAPES: dict[str, Callable[..., Any]] = {"ReduceSum": np.sum, "ReduceProd": np.prod, "ReduceMax": np.max,
                                            "ReduceMin": np.min}


def _mean(x: Any, **where: Any) -> Any:
    if x.dtype.is_integer:
        return mo.astype(mo.trunc(mo.mean(mo.astype(x, mo.float64), **where)), x.dtype)
    return mo.mean(x, **where)


def _root(x: Any, **where: Any) -> Any:
    if x.dtype.is_integer:
        return mo.astype(mo.sqrt(mo.sum(mo.square(mo.astype(x, mo.float64)), **where)), x.dtype)
    return mo.sqrt(_sum(mo.square(x), **where))


def _log_sum_exp(x: Any, **where: Any) -> Any:
    if x.dtype.is_integer:
        return mo.astype(_log_sum_exp(mo.astype(x, mo.float64), **where), x.dtype)
    return mo.logsumexp(x, **where)


def _extreme(function: Callable[..., Any], of_bools: Callable[..., Any], x: Any, **where: Any) -> Any:
    if x.dtype is mo.bool:
        return of_bools(x, **where)
    axes = where["axis"] if where["axis"] is not None else range(len(x.shape))
    axes = (axes,) if isinstance(axes, int) else axes
    if any(isinstance(x.shape[axis], int) and x.shape[axis] == 0 for axis in axes):
        return _neutral(function is mo.max, x, axes, where["keepdims"])
    return function(x, **where)


def _neutral(largest: bool, x: Any, axes: Any, keep: bool) -> Any:
    """The extreme of nothing: the dtype's least or largest value."""
    axes = {axis % len(x.shape) for axis in axes}
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape) if keep or axis not in axes]
    if x.dtype.is_float:
        return mo.full(shape, -mo.inf if largest else mo.inf, dtype=x.dtype)
    info = mo.iinfo(x.dtype)
    return mo.full(shape, info.min if largest else info.max, dtype=x.dtype)


def _reduction(name: str) -> Callable[..., Any]:
    def apply(call: Call, x: Any, axes: Any = None) -> Any:
        chosen = call.axes((x, axes), 1)
        keep = bool(call.get("keepdims", 1))
        if not chosen and call.get("noop_with_empty_axes", 0):
            return _of_elements(name, tensor(x))
        axis = tuple(call.axis(place, len(x.shape)) for place in chosen) if chosen else None
        if len(set(axis or ())) != len(axis or ()):
            raise call.error(f"axes {chosen} name one twice")
        if is_static(x) and name in ON_SHAPES and x.dtype != object and x.size:
            return np.asarray(ON_SHAPES[name](x, axis=axis, keepdims=keep)).astype(x.dtype)
        if is_static(x) and x.dtype == object and name == "ReduceProd":
            return np.asarray(np.prod(x, axis=axis, keepdims=keep), object)
        x = tensor(x)
        if not x.shape:
            return _of_elements(name, x)
        if name == "ReduceMean" and x.dtype is mo.float16:
            return mo.astype(mo.mean(mo.astype(x, mo.float32), axis=axis, keepdims=keep), mo.float16)
        return FUNCTIONS[name](x, axis=axis, keepdims=keep)

    return apply


def _of_elements(name: str, x: Any) -> Any:
    """The reduction of each element alone."""
    functions = {"ReduceL1": mo.abs, "ReduceL2": mo.abs, "ReduceSumSquare": mo.square, "ReduceLogSum": mo.log}
    return functions[name](x) if name in functions else x


for _name in FUNCTIONS:
    FAMILY.op(_name)(_reduction(_name))


@FAMILY.op("CumSum", "CumProd")
def cumulative(call: Call, x: Any, axis: Any) -> Any:
    at = call.axis(int(call.integers(axis, "its axis")[0]), len(x.shape))
    x = tensor(x)
    function = mo.cumulative_sum if call.node.op == "CumSum" else mo.cumulative_prod
    if call.get("reverse", 0):
        x = mo.flip(x, axis=at)
    found = function(x, axis=at, dtype=dtype_of(x), include_initial=bool(call.get("exclusive", 0)))
    if call.get("exclusive", 0):
        found = found[(slice(None),) * at + (slice(0, x.shape[at]),)]
    return mo.flip(found, axis=at) if call.get("reverse", 0) else found
