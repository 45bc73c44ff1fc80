"""One step of a recurrence: the equations of RNN, LSTM and GRU, and the cells that are nothing but a step."""

from __future__ import annotations

import math
from typing import Any

import morpho as mo
from morpho.base.checks import check_sizes
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn import init
from morpho.nn.layers.linear import linear
from morpho.nn.module import Module
from morpho.tensor.convert import following
from morpho.tensor.state.variable import Parameter

States = tuple[mo.Tensor, ...]  # each (batch, hidden): h, and for LSTM c


def check_nonlinearity(name: str, nonlinearity: str) -> str:
    if nonlinearity not in ("tanh", "relu"):
        raise fail(ArgumentError, name, f"nonlinearity {nonlinearity!r} is unknown", "use 'tanh' or 'relu'")
    return nonlinearity


class Steps(Module):
    """One step of a kind of recurrence."""

    gates = 1
    kept = 1  # tensors that a step hands to the next one
    hidden_size: int

    def step(self, projected: mo.Tensor, states: States, weight: mo.Tensor, bias: mo.Tensor | None) -> States:
        """The states after a step, the output first. `projected` is the step's input times its weight, with both
        biases where they can be added together."""
        raise NotImplementedError

    def input_bias(self, given: mo.Tensor, hidden: mo.Tensor) -> mo.Tensor:
        """Bias added to all steps' products at once."""
        return given + hidden

    def _parts(self, x: mo.Tensor) -> list[mo.Tensor]:
        """The gates, side by side in the last axis, one by one."""
        return [x[:, i * self.hidden_size:(i + 1) * self.hidden_size] for i in range(self.gates)]


class TanhSteps(Steps):
    """h = tanh(x W_ih.T + b_ih + h W_hh.T + b_hh), or relu."""

    nonlinearity = "tanh"

    def step(self, projected: mo.Tensor, states: States, weight: mo.Tensor, bias: mo.Tensor | None) -> States:
        total = projected + linear(states[0], weight)
        return (mo.tanh(total) if self.nonlinearity == "tanh" else mo.relu(total),)


class LSTMSteps(Steps):
    """The gates i, f, g, o; c = f * c + i * g, h = o * tanh(c)."""

    gates, kept = 4, 2

    def step(self, projected: mo.Tensor, states: States, weight: mo.Tensor, bias: mo.Tensor | None) -> States:
        enter, forget, value, out = self._parts(projected + linear(states[0], weight))
        cell = mo.sigmoid(forget) * states[1] + mo.sigmoid(enter) * mo.tanh(value)
        return mo.sigmoid(out) * mo.tanh(cell), cell


class GRUSteps(Steps):
    """The gates r, z, n; n = tanh(x W_in.T + b_in + r * (h W_hn.T + b_hn)), h = (1 - z) * n + z * h."""

    gates = 3

    def input_bias(self, given: mo.Tensor, hidden: mo.Tensor) -> mo.Tensor:
        return given  # the other one is inside the product with r

    def step(self, projected: mo.Tensor, states: States, weight: mo.Tensor, bias: mo.Tensor | None) -> States:
        reset_x, update_x, new_x = self._parts(projected)
        reset_h, update_h, new_h = self._parts(linear(states[0], weight, bias))
        update = mo.sigmoid(update_x + update_h)
        new = mo.tanh(new_x + mo.sigmoid(reset_x + reset_h) * new_h)
        return ((1 - update) * new + update * states[0],)


class _Cell(Steps):
    """A step as a module: weight_ih, weight_hh, bias_ih, bias_hh as the layers have them, without a number."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = mo.float32) -> None:
        check_sizes(type(self).__name__, input_size=input_size, hidden_size=hidden_size)
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        bound, rows = 1 / math.sqrt(hidden_size), self.gates * hidden_size
        self.weight_ih = Parameter(init.uniform((rows, input_size), bound, dtype))
        self.weight_hh = Parameter(init.uniform((rows, hidden_size), bound, dtype))
        self.bias_ih = Parameter(init.uniform((rows,), bound, dtype)) if bias else None
        self.bias_hh = Parameter(init.uniform((rows,), bound, dtype)) if bias else None

    def forward(self, x: mo.Tensor, hx: Any = None) -> Any:
        """x is (batch, input_size) or (input_size,); `hx` the state before, zeros by default: h, for LSTM (h, c)."""
        name, x = type(self).__name__, following(x)
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise fail(ShapeError, name, f"shape {tuple(x.shape)} is not [batch, {self.input_size}] or "
                                         f"[{self.input_size}]")
        shape = (*x.shape[:-1], self.hidden_size)
        if hx is None:
            hx = (mo.zeros(shape, dtype=x.dtype),) * self.kept
        states = (hx,) if isinstance(hx, mo.Tensor) else tuple(hx)
        if len(states) != self.kept or any(tuple(one.shape) != tuple(shape) for one in states):
            raise fail(ShapeError, name, f"the states are not {self.kept} of shape {tuple(shape)}")
        single = x.ndim == 1
        if single:
            x, states = mo.expand_dims(x, axis=0), tuple(mo.expand_dims(one, axis=0) for one in states)
        added = None
        if self.bias_ih is not None and self.bias_hh is not None:
            added = self.input_bias(self.bias_ih, self.bias_hh)
        after = self.step(linear(x, self.weight_ih, added), states, self.weight_hh, self.bias_hh)
        after = tuple(mo.squeeze(one, axis=0) for one in after) if single else after
        return after[0] if self.kept == 1 else after

    def describe(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(TanhSteps, _Cell):
    """A step of `RNN`.

    >>> mo.nn.RNNCell(4, 8)(mo.ones((2, 4))).shape
    (2, 8)
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
                 dtype: Any = mo.float32) -> None:
        self.nonlinearity = check_nonlinearity("RNNCell", nonlinearity)
        super().__init__(input_size, hidden_size, bias, dtype)


class LSTMCell(LSTMSteps, _Cell):
    """A step of `LSTM`.

    >>> h, c = mo.nn.LSTMCell(4, 8)(mo.ones((2, 4)))
    >>> h.shape, c.shape
    ((2, 8), (2, 8))
    """


class GRUCell(GRUSteps, _Cell):
    """A step of `GRU`.

    >>> mo.nn.GRUCell(4, 8)(mo.ones((2, 4))).shape
    (2, 8)
    """
