"""Mixtures of experts: which ones a token goes through, and with what weight."""

from __future__ import annotations

import math
from typing import Any

import morpho as mo
from morpho.models.decoder.shape import Mixture, Shape
from morpho.nn import init
from morpho.nn.layers.linear import Linear
from morpho.nn.module import Module
from morpho.nn.transformer.blocks import FeedForward, activation
from morpho.tensor.state.variable import Parameter


class Router(Module):
    """Shares of a token's experts: their numbers and weights."""

    def __init__(self, shape: Shape, mixture: Mixture, dtype: Any) -> None:
        self.mixture = mixture
        self.weight = Parameter(init.normal((mixture.count, shape.width), shape.std, dtype=dtype))
        self.bias = Parameter(mo.zeros((mixture.count,), dtype=dtype)) if mixture.router_bias else None
        self.correction = Parameter(mo.zeros((mixture.count,)), False) if mixture.correction else None

    def forward(self, x: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        """(..., width) -> chosen experts and their weights, (..., used) each."""
        mixture = self.mixture
        logits = mo.matmul(x, mo.matrix_transpose(self.weight))
        logits = (logits if self.bias is None else logits + self.bias).astype(mo.float32)
        if mixture.router == "mixer":
            return _sparse_mixer(logits, mixture.jitter)
        if mixture.router in ("after", "input"):
            values, chosen = mo.topk(logits, mixture.used)
            return chosen, mo.softmax(values, axis=-1) if mixture.router == "after" else mo.sigmoid(values)
        shares = mo.sigmoid(logits) if mixture.router == "sigmoid" else mo.softmax(logits, axis=-1)
        compared = shares if self.correction is None else shares + self.correction
        if mixture.groups > 1:
            compared = _of_best_groups(compared, mixture)
        if compared is shares:
            values, chosen = mo.topk(shares, mixture.used)
        else:
            _, chosen = mo.topk(compared, mixture.used)
            values = mo.take_along_axis(shares, chosen, axis=-1)
        if mixture.normed:
            total = mo.sum(values, axis=-1, keepdims=True)
            values = values / (mo.maximum(total, mixture.least) if mixture.least else total)
        return chosen, values if mixture.scale == 1 else values * mixture.scale


def _of_best_groups(compared: mo.Tensor, mixture: Mixture) -> mo.Tensor:
    """Return the compared numbers with those of all but the best groups blanked."""
    apart = mo.reshape(compared, (*compared.shape[:-1], mixture.groups, mixture.count // mixture.groups))
    scores = mo.max(apart, axis=-1) if mixture.group_score == "max" else mo.sum(mo.topk(apart, 2)[0], axis=-1)
    _, best = mo.topk(scores, mixture.groups_used)
    here = mo.any(mo.expand_dims(best, -2) == mo.reshape(mo.arange(mixture.groups), (-1, 1)), axis=-1)
    rest = 0.0 if mixture.group_score == "max" else -mo.inf
    apart = mo.where(mo.expand_dims(here, -1), apart, mo.full((), rest, dtype=apart.dtype))
    return mo.reshape(apart, compared.shape)


def _sparse_mixer(logits: mo.Tensor, jitter: float) -> tuple[mo.Tensor, mo.Tensor]:
    """The best expert, then the best of the others, each by its share among those nearly as good."""
    chosen, values, left, none = [], [], logits, mo.full((), -mo.inf, dtype=logits.dtype)
    for _ in range(2):
        best = mo.max(left, axis=-1, keepdims=True)
        number = mo.expand_dims(mo.argmax(left, axis=-1), -1)
        far = (best - logits) / mo.maximum(mo.abs(logits), best) > 2 * jitter
        shares = mo.softmax(mo.where(far, none, left), axis=-1)
        chosen.append(number)
        values.append(mo.take_along_axis(shares, number, axis=-1))
        left = mo.where(mo.arange(logits.shape[-1]) == number, none, left)
    return mo.concat(chosen, axis=-1), mo.concat(values, axis=-1)


class Experts(Module):
    """A mixture of feed-forward parts: each token goes through some, weighted by their shares.

    A single token reads the matrices of its own experts only. For more, every expert sees every token and those that
    were not chosen count 0: the same sums in the same order, so that prefill and decoding agree to the bit."""

    def __init__(self, shape: Shape, mixture: Mixture, dtype: Any) -> None:
        self.mixture, self._function = mixture, activation(shape.activation)
        width, hidden, count = shape.width, mixture.hidden, mixture.count
        self.gate = Router(shape, mixture, dtype)
        self.gate_proj, self.up_proj = (Parameter(init.normal((count, hidden, width), shape.std, dtype=dtype))
                                        for _ in range(2))
        self.down_proj = Parameter(init.normal((count, width, hidden), shape.std, dtype=dtype))
        self.gate_bias = self.up_bias = self.down_bias = None
        if mixture.limit is not None:
            self.gate_bias, self.up_bias = (Parameter(mo.zeros((count, hidden), dtype=dtype)) for _ in range(2))
            self.down_bias = Parameter(mo.zeros((count, width), dtype=dtype))
        self.shared = FeedForward(width, mixture.shared, shape.activation, shape.mlp_bias, dtype, gated=True) \
            if mixture.shared else None
        self.shared_gate = Linear(width, 1, False, dtype) if mixture.shared_gate else None

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        routed = self._whole(self._routed(x))
        if self.shared is None:
            return routed
        shared = self.shared(x)
        return routed + (shared if self.shared_gate is None else mo.sigmoid(self.shared_gate(x)) * shared)  # type: ignore

    def _routed(self, x: mo.Tensor) -> mo.Tensor:
        chosen, values = self.gate(x)
        rows, used = x.shape[:-1], self.mixture.used
        if all(isinstance(size, int) for size in rows) and math.prod(rows) * used < self.mixture.count:
            order = mo.argsort(chosen, axis=-1)
            return self._gathered(x, *(mo.take_along_axis(part, order, axis=-1) for part in (chosen, values)))
        total = None
        for number in range(self.mixture.count):
            weight = mo.sum(mo.where(chosen == number, values, 0), axis=-1, keepdims=True)
            part = self._weighted(x, weight.astype(x.dtype), *(
                None if each is None else each[number] for each in self._matrices()))
            total = part if total is None else total + part
        return total  # type: ignore[return-value]

    def _matrices(self) -> tuple[Any, ...]:
        return self.gate_proj, self.up_proj, self.down_proj, self.gate_bias, self.up_bias, self.down_bias

    def _gathered(self, x: mo.Tensor, chosen: mo.Tensor, values: mo.Tensor) -> mo.Tensor:
        used = self.mixture.used
        flat = mo.reshape(x, (-1, 1, 1, x.shape[-1]))  # (tokens, 1, 1, width)
        picks = mo.reshape(chosen, (-1, used))
        weights = mo.reshape(values, (-1, used, 1, 1)).astype(x.dtype)
        taken = [None if each is None else mo.take(each, picks, axis=0) for each in self._matrices()]
        taken[3:] = [None if each is None else mo.expand_dims(each, -2) for each in taken[3:]]
        parts = self._weighted(flat, weights, *taken)  # (tokens, used, 1, width)
        total = parts[:, 0]
        for number in range(1, used):
            total = total + parts[:, number]
        return mo.reshape(total, (*x.shape[:-1], total.shape[-1]))

    def _weighted(self, x: mo.Tensor, weight: mo.Tensor, *matrices: Any) -> mo.Tensor:
        if self.mixture.router == "input":
            return self._part(x * weight, *matrices)
        return self._part(x, *matrices) * weight

    def _part(self, x: mo.Tensor, gate: mo.Tensor, up: mo.Tensor, down: mo.Tensor, gate_bias: Any, up_bias: Any,
              down_bias: Any) -> mo.Tensor:
        gate, up, down = (mo.matrix_transpose(part) for part in (gate, up, down))
        gated, upper, limit = mo.matmul(x, gate), mo.matmul(x, up), self.mixture.limit
        if limit is None:
            return mo.matmul(self._between(self._function(gated) * upper), down)
        gated, upper = mo.minimum(gated + gate_bias, limit), mo.clip(upper + up_bias, -limit, limit)
        inner = (upper + 1) * (gated * mo.sigmoid(gated * self.mixture.alpha))
        outer: mo.Tensor = mo.matmul(self._between(inner), down) + down_bias
        return outer

    def _between(self, inner: mo.Tensor) -> mo.Tensor:
        """Hand an expert's inner activations to its last product; shares of experts gather them first."""
        return inner

    def _whole(self, routed: mo.Tensor) -> mo.Tensor:
        """The experts' result; shares of experts put theirs together."""
        return routed
