"""Recurrence: RNN, GRU and LSTM as one loop of the graph in each direction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import morpho as mo
from morpho.onnx.operators.registry import Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import cast, scalar, tensor

FAMILY = Family("recurrent")
Activation = Callable[[Any], Any]


def _affine(x: Any, alpha: float, beta: float) -> Any:
    return scalar(alpha, x) * x + scalar(beta, x)


# name -> (function of x, alpha, beta), and the defaults of alpha and beta
ACTIVATIONS: dict[str, tuple[Callable[[Any, float, float], Any], float, float]] = {
    "sigmoid": (lambda x, a, b: mo.sigmoid(x), 0.0, 0.0), "tanh": (lambda x, a, b: mo.tanh(x), 0.0, 0.0),
    "relu": (lambda x, a, b: mo.relu(x), 0.0, 0.0), "affine": (_affine, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: mo.where(x < 0, x * scalar(a, x), x), 0.01, 0.0),
    "thresholdedrelu": (lambda x, a, b: mo.where(x > a, x, scalar(0, x)), 1.0, 0.0),
    "scaledtanh": (lambda x, a, b: scalar(a, x) * mo.tanh(scalar(b, x) * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: mo.clip(_affine(x, a, b), 0.0, 1.0), 0.2, 0.5),
    "elu": (lambda x, a, b: mo.elu(x, alpha=a), 1.0, 0.0),
    "softsign": (lambda x, a, b: x / (scalar(1, x) + mo.abs(x)), 0.0, 0.0),
    "softplus": (lambda x, a, b: mo.softplus(x), 0.0, 0.0),
}


def _applied(function: Callable[[Any, float, float], Any], alpha: float, beta: float, x: Any) -> Any:
    return function(x, alpha, beta)


def _activations(call: Call, defaults: list[str], directions: int) -> list[list[Activation]]:
    """The activations of each direction, with alphas and betas taken in order by those that have them."""
    names = call.get("activations") or defaults * directions
    if len(names) != len(defaults) * directions:
        raise call.error(f"{len(names)} activations are given, and {len(defaults) * directions} are needed")
    alphas, betas = [*call.get("activation_alpha", [])], [*call.get("activation_beta", [])]
    made: list[Activation] = []
    for name in names:
        if name.lower() not in ACTIVATIONS:
            raise call.error(f"the activation {name!r} is not known; there are {', '.join(ACTIVATIONS)}")
        function, alpha, beta = ACTIVATIONS[name.lower()]
        has_alpha = name.lower() not in ("sigmoid", "tanh", "relu", "softsign", "softplus")
        has_beta = name.lower() in ("affine", "scaledtanh", "hardsigmoid")
        alpha = alphas.pop(0) if has_alpha and alphas else alpha
        beta = betas.pop(0) if has_beta and betas else beta
        made.append(partial(_applied, function, alpha, beta))
    return [made[at:at + len(defaults)] for at in range(0, len(made), len(defaults))]


class Cell:
    """One direction of a recurrence: its weights, and how a step makes new states of old ones."""

    def __init__(self, call: Call, gates: int, weight: Any, recurrence: Any, bias: Any, functions: list[Activation],
                 peepholes: Any) -> None:
        self.call, self.functions = call, functions
        size = recurrence.shape[-1]
        self.size, self.weight, self.recurrence = size, mo.matrix_transpose(weight), mo.matrix_transpose(recurrence)
        self.input_bias = None if bias is None else bias[:gates * size]
        self.state_bias = None if bias is None else bias[gates * size:]
        self.peepholes = None if peepholes is None else [peepholes[at * size:(at + 1) * size] for at in range(3)]
        clip = call.get("clip")
        self.clip = (lambda x: x) if clip is None else (lambda x: mo.clip(x, -clip, clip))

    def inputs(self, x: Any) -> Any:
        """Contribution of the inputs to the gates, for all steps in one product."""
        y = mo.matmul(x, self.weight)
        return y if self.input_bias is None else y + self.input_bias

    def part(self, x: Any, gate: int) -> Any:
        return x[..., gate * self.size:(gate + 1) * self.size]

    def step(self, given: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        raise NotImplementedError


class Plain(Cell):
    """RNN."""

    def step(self, given: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        total = given + mo.matmul(states[0], self.recurrence)
        total = total if self.state_bias is None else total + self.state_bias
        return (self.functions[0](self.clip(total)),)


class Gru(Cell):
    """GRU: update, reset and hidden gates."""

    def step(self, given: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        (hidden,), (f, g) = states, self.functions
        late = bool(self.call.get("linear_before_reset", 0))
        columns = self.recurrence if late else self.recurrence[:, :2 * self.size]
        memory = mo.matmul(hidden, columns)
        if self.state_bias is not None:
            memory = memory + (self.state_bias if late else self.state_bias[:2 * self.size])
        update = f(self.clip(self.part(given, 0) + self.part(memory, 0)))
        reset = f(self.clip(self.part(given, 1) + self.part(memory, 1)))
        if late:
            inner = reset * self.part(memory, 2)
        else:
            inner = mo.matmul(reset * hidden, self.recurrence[:, 2 * self.size:])
            inner = inner if self.state_bias is None else inner + self.state_bias[2 * self.size:]
        new = g(self.clip(self.part(given, 2) + inner))
        return ((scalar(1, update) - update) * new + update * hidden,)


class Lstm(Cell):
    """LSTM: input, output, forget and cell gates, with peepholes where there are any."""

    def step(self, given: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        (hidden, cell), (f, g, h) = states, self.functions
        total = given + mo.matmul(hidden, self.recurrence)
        total = total if self.state_bias is None else total + self.state_bias
        gates = [self.part(total, gate) for gate in range(4)]
        if self.peepholes is not None:
            gates[0] = gates[0] + self.peepholes[0] * cell
            gates[2] = gates[2] + self.peepholes[2] * cell
        enter = f(self.clip(gates[0]))
        forget = scalar(1, enter) - enter if self.call.get("input_forget", 0) else f(self.clip(gates[2]))
        new = forget * cell + enter * g(self.clip(gates[3]))
        leave = gates[1] if self.peepholes is None else gates[1] + self.peepholes[1] * new
        return f(self.clip(leave)) * h(new), new


def _run(cell: Cell, x: Any, states: tuple[Any, ...], lengths: Any, reverse: bool) -> tuple[Any, tuple[Any, ...]]:
    """All steps of one direction: (outputs, last states). A sequence that has ended keeps its states."""
    steps = x.shape[0]
    place = mo.arange(steps)

    def step(carried: tuple[Any, ...], given: Any) -> Any:
        total, at = given
        new = cell.step(total, carried)
        if lengths is None:
            return new, new[0]
        alive = mo.expand_dims(at < lengths, axis=1)
        kept = tuple(mo.where(alive, after, before) for after, before in zip(new, carried))
        return kept, mo.where(alive, new[0], scalar(0, new[0]))

    last, found = mo.scan(step, states, (cell.inputs(x), place), reverse=reverse)
    return found, last


def _recurrence(kind: type[Cell], gates: int, count: int, defaults: list[str]) -> Callable[..., Any]:
    """The operator of a cell: directions, layout, initial states, lengths of sequences."""
    def apply(call: Call, x: Any, weight: Any, recurrence: Any, bias: Any = None, lengths: Any = None,
              hidden: Any = None, cell: Any = None, peepholes: Any = None) -> Any:
        x, weight, recurrence = tensor(x), tensor(weight), tensor(recurrence)
        if call.get("hidden_size", recurrence.shape[-1]) != recurrence.shape[-1]:
            raise call.error(f"hidden_size is {call.get('hidden_size')}, and the weights have {recurrence.shape[-1]}")
        direction = call.choice("direction", "forward", ("forward", "reverse", "bidirectional"))
        directions, batch_first = (2 if direction == "bidirectional" else 1), bool(call.get("layout", 0))
        if weight.shape[0] != directions:
            raise call.error(f"weights of {weight.shape[0]} directions are given, and it is {direction}")
        x = mo.moveaxis(x, 0, 1) if batch_first else x
        shape = (directions, x.shape[1], recurrence.shape[-1])
        first = [mo.zeros(shape, dtype=x.dtype) if state is None else
                 (mo.moveaxis(tensor(state), 0, 1) if batch_first else tensor(state))
                 for state in (hidden, cell)[:count]]
        lengths = None if lengths is None else cast(tensor(lengths), mo.int64)
        functions = _activations(call, defaults, directions)
        outputs, ends = [], []
        for at in range(directions):
            made = kind(call, gates, weight[at], recurrence[at], None if bias is None else tensor(bias)[at],
                        functions[at], None if peepholes is None else tensor(peepholes)[at])
            y, last = _run(made, x, tuple(state[at] for state in first), lengths, at == 1 or direction == "reverse")
            outputs.append(y)
            ends.append(last)
        y = mo.stack(outputs, axis=1)
        finals = [mo.stack([end[which] for end in ends], axis=0) for which in range(count)]
        if batch_first:
            y = mo.permute_dims(y, (2, 0, 1, 3))
            finals = [mo.moveaxis(state, 0, 1) for state in finals]
        return (y, *finals)

    return apply


FAMILY.op("RNN")(_recurrence(Plain, 1, 1, ["Tanh"]))
FAMILY.op("GRU")(_recurrence(Gru, 3, 1, ["Sigmoid", "Tanh"]))
FAMILY.op("LSTM")(_recurrence(Lstm, 4, 2, ["Sigmoid", "Tanh", "Tanh"]))
