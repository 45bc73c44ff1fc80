"""Steps of optimisers: Adagrad, Adam, Momentum."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.onnx.operators.registry import Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import cast, scalar, tensor

FAMILY = Family("optimisers", "ai.onnx.preview.training")


def _grouped(inputs: Any, kinds: int) -> list[list[Any]]:
    """Variables, then their gradients, then their states: one list for each variable."""
    count = len(inputs) // kinds
    return [[tensor(inputs[kind * count + at]) for kind in range(kinds)] for at in range(count)]


def _in_order(results: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(value for kind in zip(*results) for value in kind)


@FAMILY.op("Momentum")
def momentum(call: Call, rate: Any, steps: Any, *inputs: Any) -> Any:
    alpha, beta, decay = call.need("alpha"), call.need("beta"), call.need("norm_coefficient")
    nesterov = call.choice("mode", "standard", ("standard", "nesterov")) == "nesterov"
    results = []
    for x, gradient, speed in _grouped(inputs, 3):
        gradient = scalar(decay, x) * x + gradient
        share = mo.where(mo.reshape(tensor(steps), ()) > 0, scalar(beta, x), scalar(1, x))
        speed = scalar(alpha, x) * speed + share * gradient
        way = gradient + scalar(alpha, x) * speed if nesterov else speed
        results.append((x - mo.reshape(tensor(rate), ()) * way, speed))
    return _in_order(results)


@FAMILY.op("Adagrad")
def adagrad(call: Call, rate: Any, steps: Any, *inputs: Any) -> Any:
    results = []
    for x, gradient, squares in _grouped(inputs, 3):
        now = cast(mo.reshape(tensor(rate), ()), x.dtype) / (
            scalar(1, x) + cast(mo.reshape(tensor(steps), ()), x.dtype) * scalar(call.get("decay_factor", 0.0), x))
        gradient = scalar(call.get("norm_coefficient", 0.0), x) * x + gradient
        squares = squares + gradient * gradient
        results.append((x - now * gradient / (mo.sqrt(squares) + scalar(call.get("epsilon", 1e-6), x)), squares))
    return _in_order(results)


@FAMILY.op("Adam")
def adam(call: Call, rate: Any, steps: Any, *inputs: Any) -> Any:
    alpha, beta = call.get("alpha", 0.9), call.get("beta", 0.999)
    results = []
    for x, gradient, mean, squares in _grouped(inputs, 4):
        gradient = scalar(call.get("norm_coefficient", 0.0), x) * x + gradient
        mean = scalar(alpha, x) * mean + scalar(1 - alpha, x) * gradient
        squares = scalar(beta, x) * squares + scalar(1 - beta, x) * gradient * gradient
        count = cast(mo.reshape(tensor(steps), ()), x.dtype)
        now = cast(mo.reshape(tensor(rate), ()), x.dtype)
        unbiased = now * mo.sqrt(scalar(1, x) - mo.pow(scalar(beta, x), count)) / (
            scalar(1, x) - mo.pow(scalar(alpha, x), count))
        now = mo.where(count > 0, unbiased, now)
        x = x - now * mean / (mo.sqrt(squares) + scalar(call.get("epsilon", 1e-6), x))
        results.append(((scalar(1 - call.get("norm_coefficient_post", 0.0), x)) * x, mean, squares))
    return _in_order(results)
