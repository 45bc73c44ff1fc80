"""Recurrent layers: RNN, LSTM, GRU, with PyTorch's parameters and equations, unrolled over time.

The inputs of all steps are multiplied at once; a step then has one product, that of the state before it.
"""

from __future__ import annotations

import math
from typing import Any

import morpho as mo
from morpho.base.checks import check_sizes, shown
from morpho.base.dims import product
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn import init
from morpho.nn.layers.cells import GRUSteps, LSTMSteps, States, Steps, TanhSteps, check_nonlinearity
from morpho.nn.layers.dropout import check_share, dropped
from morpho.nn.layers.linear import linear
from morpho.nn.sequences import PackedSequence, pack_padded_sequence, pad_packed_sequence
from morpho.tensor.convert import following
from morpho.tensor.state.trace import current_trace
from morpho.tensor.state.variable import Parameter


class _Recurrent(Steps):
    """Base of RNN, LSTM and GRU: layers, directions, and the loop over time."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
                 dtype: Any = mo.float32) -> None:
        check_sizes(type(self).__name__, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.bidirectional, self.dropout = batch_first, bidirectional, dropout
        check_share(type(self).__name__, dropout=dropout)
        bound, rows = 1 / math.sqrt(hidden_size), self.gates * hidden_size
        for layer in range(num_layers):
            for suffix in self._suffixes(layer):
                width = input_size if layer == 0 else hidden_size * (2 if bidirectional else 1)
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, width), "weight_hh": (rows, hidden_size)}
                if bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                for name, shape in shapes.items():
                    setattr(self, name + suffix, Parameter(init.uniform(shape, bound, dtype)))

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"] if self.bidirectional else [f"_l{layer}"]

    # -- the way through time ------------------------------------------------------------------------------------------
    def forward(self, x: mo.Tensor, hx: Any = None, lengths: Any = None) -> tuple[mo.Tensor, Any]:
        """x is (time, batch, input_size), or (batch, time, input_size) with `batch_first`; without a batch (time,
        input_size). `hx` are the states before the first step, zeros by default. Gives the last layer's outputs at all
        times, and the states after the last step, (num_layers * directions, batch, hidden_size) each.

        `lengths`, (batch,), are the steps of each sequence of a padded batch: outputs beyond them are zeros, the last
        states those after each one's own last step, and the way back begins there."""
        if isinstance(x, PackedSequence):
            return self._packed(x, hx)
        x = following(x)
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            raise fail(ShapeError, type(self).__name__,
                       f"shape {tuple(x.shape)} is not [time, batch, {self.input_size}] or [time, {self.input_size}]")
        single = x.ndim == 2
        if single:
            x = mo.expand_dims(x, axis=1)
        elif self.batch_first:
            x = mo.permute_dims(x, (1, 0, 2))  # (time, batch, input_size)
        if not isinstance(x.shape[0], int) or x.shape[0] == 0:
            raise fail(ShapeError, type(self).__name__, f"the number of steps, {x.shape[0]}, is not known and positive",
                       "make only the batch dynamic")
        seen = self._seen(lengths, x.shape[0], x.shape[1])
        ends: list[States] = []
        before = self._first_states(hx, x, single)
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                x = dropped(x, self.dropout, x.shape)
            sides = []
            for suffix in self._suffixes(layer):
                outputs, end = self._direction(x, before[len(ends)], suffix, seen)
                sides.append(outputs)
                ends.append(end)
            x = sides[0] if len(sides) == 1 else mo.concat(sides, axis=-1)
        last = tuple(mo.stack([end[i] for end in ends]) for i in range(self.kept))
        if single:
            x, last = mo.squeeze(x, axis=1), tuple(mo.squeeze(one, axis=1) for one in last)
        elif self.batch_first:
            x = mo.permute_dims(x, (1, 0, 2))
        return x, last[0] if self.kept == 1 else last

    def _packed(self, x: PackedSequence, hx: Any) -> tuple[Any, Any]:
        batch, lengths = pad_packed_sequence(x, self.batch_first)
        outputs, last = self.forward(batch, hx, lengths)
        return pack_padded_sequence(outputs, lengths, self.batch_first, enforce_sorted=x.sorted_indices is None), last

    def _first_states(self, state: Any, x: mo.Tensor, single: bool) -> list[States]:
        """The states before the first step, for every layer and direction."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        if state is None:
            zero = mo.zeros((x.shape[1], self.hidden_size), dtype=x.dtype)
            return [(zero,) * self.kept] * count
        given = (state,) if self.kept == 1 else tuple(state)
        wanted = (count, self.hidden_size) if single else (count, x.shape[1], self.hidden_size)
        if len(given) != self.kept or any(tuple(one.shape) != wanted for one in given):
            raise fail(ShapeError, type(self).__name__, f"the states are not {self.kept} of shape {wanted}")
        given = tuple(mo.expand_dims(one, axis=1) for one in given) if single else given
        return [tuple(one[i] for one in given) for i in range(count)]

    def _seen(self, lengths: Any, times: int, batch: Any) -> mo.Tensor | None:
        """Which steps are within the length of each sequence, (time, batch, 1)."""
        if lengths is None:
            return None
        name, found = type(self).__name__, following(lengths)
        if not found.dtype.is_integer or tuple(found.shape) != (batch,):
            raise fail(ShapeError, name, f"lengths {found.dtype}{tuple(found.shape)} are not an integer for each of "
                                         f"{batch} sequences")
        if current_trace() is None:
            values = found.numpy()
            if values.size and (values.min() < 1 or values.max() > times):
                raise fail(ArgumentError, name, f"lengths {shown(values.tolist())} are not all between 1 and {times}")
        return mo.expand_dims(mo.arange(times)[:, None] < found, axis=-1)

    def _direction(self, x: mo.Tensor, states: States, suffix: str,
                   seen: mo.Tensor | None) -> tuple[mo.Tensor, States]:
        """One layer in one direction: outputs at all times (time, batch, hidden), and the last states. Where a step is
        not `seen` the states stay, and the output is zero."""
        own = vars(self)
        hidden_bias = own.get("bias_hh" + suffix)
        bias = None if hidden_bias is None else self.input_bias(own["bias_ih" + suffix], hidden_bias)
        times, batch = x.shape[:2]
        rows = mo.reshape(x, (product((times, batch)), x.shape[2]))
        projected = linear(rows, own["weight_ih" + suffix], bias)
        projected = mo.reshape(projected, (times, batch, self.gates * self.hidden_size))
        outputs: list[Any] = [None] * times
        for time in reversed(range(times)) if suffix.endswith("_reverse") else range(times):
            after = self.step(projected[time], states, own["weight_hh" + suffix], hidden_bias)
            if seen is None:
                states, outputs[time] = after, after[0]
            else:
                outputs[time] = mo.where(seen[time], after[0], mo.zeros((), dtype=after[0].dtype))
                states = tuple(mo.where(seen[time], new, old) for new, old in zip(after, states, strict=True))
        return mo.stack(outputs), states

    def describe(self) -> str:
        extra = [f"{name}={value}" for name, value, plain in
                 (("num_layers", self.num_layers, 1), ("bias", self.bias, True),
                  ("batch_first", self.batch_first, False), ("bidirectional", self.bidirectional, False))
                 if value != plain]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *extra])


class RNN(TanhSteps, _Recurrent):
    """h = tanh(x W_ih.T + b_ih + h W_hh.T + b_hh), or relu instead of tanh.

    >>> outputs, last = mo.nn.RNN(4, 8)(mo.ones((5, 2, 4)))
    >>> outputs.shape, last.shape
    ((5, 2, 8), (1, 2, 8))
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh",
                 bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
                 dtype: Any = mo.float32) -> None:
        self.nonlinearity = check_nonlinearity("RNN", nonlinearity)
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, dtype)


class LSTM(LSTMSteps, _Recurrent):
    """Long short-term memory: the gates i, f, g, o in this order; c = f * c + i * g, h = o * tanh(c).

    >>> outputs, (h, c) = mo.nn.LSTM(4, 8, num_layers=2)(mo.ones((5, 2, 4)))
    >>> outputs.shape, h.shape, c.shape
    ((5, 2, 8), (2, 2, 8), (2, 2, 8))
    """


class GRU(GRUSteps, _Recurrent):
    """The gated recurrent unit: the gates r, z, n in this order; n = tanh(x W_in.T + b_in + r * (h W_hn.T + b_hn)),
    h = (1 - z) * n + z * h.

    >>> outputs, last = mo.nn.GRU(4, 8, bidirectional=True)(mo.ones((5, 2, 4)))
    >>> outputs.shape, last.shape
    ((5, 2, 16), (2, 2, 8))
    """
