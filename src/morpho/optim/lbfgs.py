"""L-BFGS: steps along the gradient times an estimate of the inverse Hessian, from the last changes of both.

The estimate is never stored: the two-loop recursion (Nocedal and Wright, algorithm 7.4) applies it to a vector. What is
computed between two evaluations of the loss depends on their values, so that a step is not part of a compiled function;
the closure may call one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import morpho as mo
from morpho.base.checks import as_whole, check_numbers, shown
from morpho.base.errors import ArgumentError, fail
from morpho.optim.line_search import Point, strong_wolfe
from morpho.optim.optimizer import Optimizer, ParamGroup, whole_only
from morpho.tensor.state.state import assign
from morpho.tensor.state.trace import current_trace

LEAST_CURVATURE = 1e-10  # a change of the gradient along a step below this says nothing of the Hessian


@dataclass
class _Memory:
    """State between steps; vectors of all parameters in a row."""

    count: int  # directions taken
    steps: list[mo.Tensor]  # changes of the parameters, the oldest first ...
    changes: list[mo.Tensor]  # ... and of the gradient with them
    scale: float = 1.0  # the first guess of the inverse Hessian is this times the identity
    length: float = 0.0  # of the last step, along its direction
    direction: mo.Tensor | None = None
    gradient: mo.Tensor | None = None  # where the last step began


class LBFGS(Optimizer):
    """L-BFGS: `opt.step(closure)`, where `closure()` drops the gradients, computes the loss, calls `backward()` on it
    and returns it; it is called up to `max_eval` times (a quarter more than `max_iter` by default).

    `max_iter` steps are taken with the last `history_size` changes; they end when the largest element of the gradient
    is at most `tolerance_grad`, or a step or the change of the loss at most `tolerance_change`. `line_search_fn` is
    None, for steps of `lr`, or "strong_wolfe". All parameters are one group.

    >>> w = mo.nn.Parameter([3.0, -2.0])
    >>> opt = mo.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     opt.zero_grad(); loss = ((w - mo.asarray([1.0, 4.0])) ** 2).sum(); loss.backward(); return loss
    >>> opt.step(closure).item(), w.numpy().round(4).tolist()
    (40.0, [1.0, 4.0])
    """

    defaults: dict[str, Any] = {"lr": 1.0, "max_iter": 20, "max_eval": None, "tolerance_grad": 1e-7,
                                "tolerance_change": 1e-9, "history_size": 100, "line_search_fn": None}

    def check(self, group: ParamGroup) -> None:
        if self.param_groups:
            raise fail(ArgumentError, "LBFGS", "all parameters are one group")
        whole_only("LBFGS", group)
        check_numbers("LBFGS", 0, **{name: group[name] for name in ("lr", "tolerance_grad", "tolerance_change")})
        for name in ("max_iter", "max_eval", "history_size"):
            if group[name] is not None and (as_whole(group[name]) or 0) < 1:
                raise fail(ArgumentError, "LBFGS", f"{name}={shown(group[name])} is not a positive whole number")
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise fail(ArgumentError, "LBFGS", f"line_search_fn={shown(group['line_search_fn'])} is unknown",
                       "use None or 'strong_wolfe'")
        self._memory = _Memory(0, [], [])

    def step(self, closure: Callable[[], Any] | None = None, *, scale: Any = None, apply: Any = None) -> Any:
        """Take up to `max_iter` steps; returns the loss before the first."""
        if closure is None or not callable(closure) or scale is not None or apply is not None:
            raise fail(ArgumentError, "LBFGS", "the loss is computed several times in a step, without a scaler",
                       "write opt.step(closure), where closure() computes the loss and its gradients")
        if current_trace() is not None:
            raise fail(ArgumentError, "LBFGS", "a step depends on values of the loss",
                       "compile what computes the loss, and call step(closure) outside of it")
        loss = closure()
        self._run(self._point(0.0, loss), closure)
        return loss

    # -- a step --------------------------------------------------------------------------------------------------------
    def _run(self, now: Point, closure: Callable[[], Any]) -> None:
        group, memory = self.param_groups[0], self._memory
        limit = group["max_eval"] or group["max_iter"] * 5 // 4
        evaluations, iterations, start = 1, 0, self._values()
        while iterations < group["max_iter"] and _largest(now.gradient) > group["tolerance_grad"]:
            iterations += 1
            memory.count += 1
            self._learn(now.gradient)
            direction, before = self._direction(now.gradient), now
            memory.direction, memory.gradient = direction, now.gradient
            length = group["lr"]
            if memory.count == 1:
                length *= min(1.0, 1.0 / max(float(_compiled("size")(now.gradient).item()), 1e-300))
            slope = _dot(now.gradient, direction)
            if slope > -group["tolerance_change"]:
                break

            def at(length: float, start: mo.Tensor = start, direction: mo.Tensor = direction) -> Point:
                self._move(_moved(start, length, direction))
                return self._point(length, closure(), direction)

            if group["line_search_fn"] is not None:
                begun = Point(0.0, now.value, now.gradient, slope)
                now, count = strong_wolfe(at, begun, length, group["tolerance_change"])
                length, evaluations = now.length, evaluations + count
                self._move(_moved(start, length, direction))
            elif iterations < group["max_iter"]:
                now, evaluations = at(length), evaluations + 1
            else:
                self._move(_moved(start, length, direction))  # the next call of `step` looks at the loss there
            memory.length, start = length, self._values()
            if (evaluations >= limit or _largest(direction) * abs(length) <= group["tolerance_change"]
                    or (now is not before and abs(now.value - before.value) < group["tolerance_change"])):
                break

    def _learn(self, gradient: mo.Tensor) -> None:
        """Remember the last step and what it did to the gradient."""
        memory = self._memory
        if memory.direction is None or memory.gradient is None:
            return
        change = _moved(gradient, -1.0, memory.gradient)
        step = _moved(mo.zeros_like(change), memory.length, memory.direction)
        curvature = _dot(change, step)
        if curvature > LEAST_CURVATURE:
            kept = self.param_groups[0]["history_size"]
            memory.steps, memory.changes = [*memory.steps, step][-kept:], [*memory.changes, change][-kept:]
            memory.scale = curvature / _dot(change, change)

    def _direction(self, gradient: mo.Tensor) -> mo.Tensor:
        """Minus the estimate of the inverse Hessian times the gradient."""
        pairs = [(step, change, 1.0 / _dot(change, step))
                 for step, change in zip(self._memory.steps, self._memory.changes, strict=True)]
        zero, shares = mo.zeros_like(gradient), []
        found = _moved(zero, -1.0, gradient)
        for step, change, inverse in reversed(pairs):
            shares.append(inverse * _dot(step, found))
            found = _moved(found, -shares[-1], change)
        found = _moved(zero, self._memory.scale, found)
        for (step, change, inverse), share in zip(pairs, reversed(shares), strict=True):
            found = _moved(found, share - inverse * _dot(change, found), step)
        return found

    # -- parameters in a row -------------------------------------------------------------------------------------------
    def _dtype(self) -> Any:
        wide = any(parameter.dtype is mo.float64 for parameter in self.parameters())
        return mo.float64 if wide else mo.float32

    def _row(self, tensors: list[mo.Tensor]) -> mo.Tensor:
        with mo.no_grad():
            return mo.concat([mo.reshape(tensor, (-1,)).astype(self._dtype()) for tensor in tensors]).realise()

    def _values(self) -> mo.Tensor:
        return self._row([parameter.state.value for parameter in self.parameters()])

    def _point(self, length: float, loss: Any, direction: mo.Tensor | None = None) -> Point:
        """The loss that was just computed and its gradient; upside down where it is to be maximised."""
        parameters = list(self.parameters())
        if all(parameter.grad is None for parameter in parameters):
            raise fail(ArgumentError, "LBFGS", "the closure leaves no gradient", "call loss.backward() in it")
        gradient = self._row([mo.zeros(p.shape, dtype=p.dtype) if p.grad is None else p.grad for p in parameters])
        value, sign = float(loss), -1.0 if self.param_groups[0]["maximize"] else 1.0
        gradient = gradient if sign > 0 else _moved(mo.zeros_like(gradient), -1.0, gradient)
        return Point(length, sign * value, gradient, 0.0 if direction is None else _dot(gradient, direction))

    def _move(self, row: mo.Tensor) -> None:
        changes, first = [], 0
        with mo.no_grad():
            for parameter in self.parameters():
                part = mo.reshape(row[first:first + int(parameter.size)], parameter.shape)
                changes.append((parameter.state, part.astype(parameter.dtype)))
                first += int(parameter.size)
        assign(changes)

    # -- saving --------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """As of every optimiser; the slots are the history."""
        memory = self._memory
        slots = {f"step.{i}": step for i, step in enumerate(memory.steps)}
        slots |= {f"change.{i}": change for i, change in enumerate(memory.changes)}
        if memory.direction is not None and memory.gradient is not None:
            numbers = mo.asarray([memory.scale, memory.length], dtype=mo.float64)
            slots |= {"direction": memory.direction, "gradient": memory.gradient, "numbers": numbers}
        return {"count": memory.count, "param_groups": [self.param_groups[0].settings], "slots": slots}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a state that `state_dict` gave, for the same parameters in the same order."""
        slots, size = saved["slots"], sum(int(parameter.size) for parameter in self.parameters())
        vectors = [value for name, value in slots.items() if name != "numbers"]
        if len(saved["param_groups"]) != 1 or any(tuple(value.shape) != (size,) for value in vectors):
            raise fail(ArgumentError, "LBFGS", "the saved state belongs to other parameters")
        self._check_names(saved["param_groups"][0])
        for name, value in saved["param_groups"][0].items():
            self.param_groups[0][name] = value
        steps, changes = ([mo.asarray(slots[f"{kind}.{i}"]) for i in range(sum(name.startswith(kind + ".")
                                                                              for name in slots))]
                          for kind in ("step", "change"))
        self._memory = _Memory(int(saved["count"]), steps, changes)
        if "direction" in slots:
            self._memory.direction = mo.asarray(slots["direction"])
            self._memory.gradient = mo.asarray(slots["gradient"])
            self._memory.scale, self._memory.length = mo.asarray(slots["numbers"]).tolist()


# Compiled once for a number of parameters: numbers that change are tensors, so that none is part of a program.
FUNCTIONS: dict[str, Callable[..., mo.Tensor]] = {
    "dot": lambda a, b: mo.sum(a * b), "moved": lambda x, share, y: x + share * y,
    "largest": lambda x: mo.max(mo.abs(x)), "size": lambda x: mo.sum(mo.abs(x)),
}


@functools.cache
def _compiled(name: str) -> Callable[..., mo.Tensor]:
    made: Callable[..., mo.Tensor] = mo.compile(FUNCTIONS[name])
    return made


def _dot(a: mo.Tensor, b: mo.Tensor) -> float:
    return float(_compiled("dot")(a, b).item())


def _moved(x: mo.Tensor, share: float, y: mo.Tensor) -> mo.Tensor:
    """x + share * y."""
    return _compiled("moved")(x, mo.asarray(share, dtype=x.dtype), y)


def _largest(x: mo.Tensor) -> float:
    return float(_compiled("largest")(x).item())
