"""Adafactor: Adam's second moment of a matrix kept as a row and a column, steps relative to the parameter's size."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.checks import check_numbers
from morpho.base.errors import ArgumentError, fail
from morpho.optim.optimizer import Optimizer, ParamGroup, Slots, at_least_zero, whole_only, zeros_for
from morpho.tensor.state.variable import Parameter


class Adafactor(Optimizer):
    """Adafactor without a first moment: for a matrix (r, c) it keeps r + c numbers.

    `eps` is the least root of the second moment (None: the dtype's precision) and the least size a parameter is taken
    to have; `d` limits the root of the mean square of an update, `beta2_decay` says how fast old gradients count less,
    `weight_decay` is that of AdamW.

    >>> w = mo.nn.Parameter([[3.0, 4.0]])
    >>> (w * w).sum().backward(); mo.optim.Adafactor([w], lr=0.1).step(); w.numpy().round(2)
    array([[2.65, 3.65]], dtype=float32)
    """

    defaults: dict[str, Any] = {"lr": 1e-2, "beta2_decay": -0.8, "eps": (None, 1e-3), "d": 1.0, "weight_decay": 0.0}

    def check(self, group: ParamGroup) -> None:
        whole_only("Adafactor", group)
        at_least_zero("Adafactor", group, "lr", "weight_decay")
        check_numbers("Adafactor", 1, d=group["d"])
        check_numbers("Adafactor", beta2_decay=group["beta2_decay"])
        if group["beta2_decay"] > 0:
            raise fail(ArgumentError, "Adafactor", f"beta2_decay={group['beta2_decay']} is positive")
        if not isinstance(group["eps"], tuple | list) or len(group["eps"]) != 2:
            raise fail(ArgumentError, "Adafactor", f"eps={group['eps']!r} are not two numbers of at least 0")
        for eps in group["eps"]:
            check_numbers("Adafactor", 0, eps=0 if eps is None else eps)

    def slots(self, parameter: Parameter, group: ParamGroup) -> Slots:
        if parameter.ndim < 2:
            return {"square": zeros_for(parameter)}
        dtype = parameter.dtype.compute
        return {"rows": mo.zeros((*parameter.shape[:-1], 1), dtype=dtype),
                "columns": mo.zeros((*parameter.shape[:-2], 1, parameter.shape[-1]), dtype=dtype)}

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: ParamGroup,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        least_root, least_size = group["eps"]
        least_root = float(mo.finfo(value.dtype).eps) if least_root is None else least_root
        share = (count ** group["beta2_decay"]).astype(value.dtype)  # of the new gradient in the second moment
        pace = mo.minimum(rate, (count ** -0.5).astype(value.dtype))
        pace = mo.maximum(_size(value), least_size) * pace
        if group["weight_decay"]:
            value = value * (1 - rate * group["weight_decay"])
        squares = mo.square(gradient)
        if value.ndim < 2:
            moment = slots["square"] + share * (squares - slots["square"])
            slots = {"square": moment}
        else:
            rows = slots["rows"] + share * (mo.mean(squares, axis=-1, keepdims=True) - slots["rows"])
            columns = slots["columns"] + share * (mo.mean(squares, axis=-2, keepdims=True) - slots["columns"])
            slots = {"rows": rows, "columns": columns}
            moment = rows * columns / mo.maximum(mo.mean(rows, axis=-2, keepdims=True), least_root)
        step = gradient / mo.sqrt(mo.maximum(moment, least_root * least_root))
        return value - pace / mo.maximum(_size(step) / group["d"], 1.0) * step, slots


def _size(x: mo.Tensor) -> mo.Tensor:
    """The root of the mean square."""
    return mo.sqrt(mo.mean(mo.square(x)))
