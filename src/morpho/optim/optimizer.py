"""`Optimizer`: what every rule has in common. A rule says what it keeps for one parameter and how it changes it; the
update of all parameters is one program, together with the gradients and the loss they come from.

    class Plain(mo.optim.Optimizer):
        defaults = {"lr": 0.1}
        def update(self, value, gradient, slots, group, count):
            return value - group.lr * gradient, slots
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.tensor.autograd import take_pending
from morpho.tensor.entries import entries
from morpho.tensor.state import assign, current_trace
from morpho.tensor.variable import Parameter

Slots = dict[str, mo.Tensor]


class Group:
    """Parameters with settings of their own: `group["weight_decay"] = 0.0`. The learning rate is a state, so changing
    it compiles nothing; any other setting is part of the program: another one means compiling a step anew."""

    def __init__(self, parameters: list[Parameter], settings: Mapping[str, Any]) -> None:
        self.parameters = parameters
        self._settings = dict(settings)
        self.rate = mo.State(mo.asarray(float(self._settings["lr"]), dtype=mo.float64))

    def __getitem__(self, name: str) -> Any:
        if name not in self._settings:
            raise fail(ArgumentError, "optim", f"there is no setting {name!r}",
                       "there are " + ", ".join(self._settings))
        trace = current_trace()
        if trace is not None and name != "lr":
            trace.assume(self)
        return self._settings[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self[name]  # an unknown name is an error
        if self._settings[name] == value:
            return
        self._settings[name] = value
        if name == "lr":
            self.rate.value = mo.asarray(float(value), dtype=mo.float64)
        else:
            entries.forget()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    @property
    def settings(self) -> dict[str, Any]:
        """All settings as a plain dict."""
        return dict(self._settings)

    def static_key(self) -> Any:
        """What a compiled step is compiled for."""
        return tuple((name, value) for name, value in self._settings.items() if name != "lr")


class Optimizer:
    """Changes parameters by their gradients.

    parameters: what to train, or groups: dicts with "params" and settings that differ from the rest.
    settings: those of the rule, by name.
    """

    defaults: Mapping[str, Any] = {"lr": 1e-3}

    def __init__(self, parameters: Iterable[Any], **settings: Any) -> None:
        name = type(self).__name__
        unknown = set(settings) - set(self.defaults)
        if unknown:
            raise fail(ArgumentError, name, f"there is no setting {sorted(unknown)[0]!r}",
                       "there are " + ", ".join(self.defaults))
        self.groups: list[Group] = []
        listed = list(parameters)
        for group in listed if listed and isinstance(listed[0], Mapping) else [{"params": listed}]:
            self.add_group(group, settings)
        self.count = mo.State(mo.asarray(0, dtype=mo.int64))  # steps so far
        self._slots: dict[int, dict[str, mo.State]] = {}
        for group in self.groups:
            for parameter in group.parameters:
                found = self.slots(parameter, group)
                self._slots[id(parameter)] = {key: mo.State(value) for key, value in found.items()}

    def add_group(self, group: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        name = type(self).__name__
        parameters = list(group["params"]) if "params" in group else []
        if not parameters:
            raise fail(ArgumentError, name, "a group has no parameters",
                       "pass model.parameters(); an iterator that was used before is empty")
        known = {id(p) for other in self.groups for p in other.parameters}
        for parameter in parameters:
            if not isinstance(parameter, Parameter):
                raise fail(ArgumentError, name, f"{type(parameter).__name__} is not a Parameter")
            if id(parameter) in known:
                raise fail(ArgumentError, name, "a parameter stands in two groups")
            known.add(id(parameter))
        own = {key: value for key, value in group.items() if key != "params"}
        unknown = set(own) - set(self.defaults)
        if unknown:
            raise fail(ArgumentError, name, f"there is no setting {sorted(unknown)[0]!r}",
                       "there are " + ", ".join(self.defaults))
        made = Group(parameters, {**self.defaults, **settings, **own})
        self.check(made)
        self.groups.append(made)

    # -- what a rule defines -----------------------------------------------------------------------------------------
    def check(self, group: Group) -> None:
        """Refuse settings that make no sense."""
        if not group["lr"] >= 0:
            raise fail(ArgumentError, type(self).__name__, f"lr={group['lr']} is negative")

    def slots(self, parameter: Parameter, group: Group) -> Slots:
        """What is kept for a parameter, at the beginning."""
        return {}

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: Group,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        """The new value and the new slots of one parameter. `rate` is the learning rate and `count` the number of this
        step, from 1; both are 0-dimensional tensors of the parameter's dtype."""
        raise NotImplementedError

    # -- what they share -----------------------------------------------------------------------------------------------
    def step(self, scale: mo.Tensor | None = None, apply: mo.Tensor | None = None) -> None:
        """Change every parameter that has a gradient. Gradients are multiplied by `scale` first where given, and where
        the truth value `apply` is given and false everything stays as it was."""
        changes: list[tuple[mo.State, mo.Tensor]] = []
        with mo.no_grad():
            count = self.count.value + 1
            for group in self.groups:
                for parameter in group.parameters:
                    if parameter.grad is not None:
                        changes += self._changes(parameter, group, count, scale)
            if not changes:
                raise fail(ArgumentError, type(self).__name__, "no parameter has a gradient",
                           "call loss.backward() first")
            changes.append((self.count, count))
            if apply is not None:
                changes = [(state, mo.where(apply, new, state.value)) for state, new in changes]
        assign(changes, *([] if current_trace() is not None else take_pending()))

    def _changes(self, parameter: Parameter, group: Group, count: mo.Tensor,
                 scale: mo.Tensor | None) -> Iterator[tuple[mo.State, mo.Tensor]]:
        dtype = parameter.dtype
        states = self._slots[id(parameter)]
        gradient = parameter.grad if scale is None else parameter.grad * scale.astype(dtype)
        value, slots = self.update(parameter.state.value, gradient, {k: s.value for k, s in states.items()},
                                   group.rate.value.astype(dtype), group, count.astype(dtype))
        yield parameter.state, value
        for key, new in slots.items():
            yield states[key], new

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for group in self.groups:
            for parameter in group.parameters:
                parameter.grad = None

    def parameters(self) -> Iterator[Parameter]:
        """Every parameter of every group."""
        return (parameter for group in self.groups for parameter in group.parameters)

    def static_key(self) -> Any:
        """What a compiled step that takes this optimiser is compiled for."""
        return (id(self), *[group.static_key() for group in self.groups])

    def state_dict(self) -> dict[str, Any]:
        """Steps so far, settings and slots: plain numbers, and tensors by number of parameter and name."""
        slots = {f"{number}.{key}": state.value for number, parameter in enumerate(self.parameters())
                 for key, state in self._slots[id(parameter)].items()}
        groups = [group.settings for group in self.groups]
        return {"count": int(self.count.value.item()), "groups": groups, "slots": slots}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a state that `state_dict` gave, for the same parameters in the same order."""
        own = {f"{number}.{key}": state for number, parameter in enumerate(self.parameters())
               for key, state in self._slots[id(parameter)].items()}
        if set(own) != set(saved["slots"]) or len(saved["groups"]) != len(self.groups):
            raise fail(ArgumentError, type(self).__name__, "the saved state belongs to other parameters")
        assign([(own[name], value) for name, value in saved["slots"].items()])
        self.count.value = mo.asarray(saved["count"], dtype=mo.int64)
        for group, settings in zip(self.groups, saved["groups"], strict=True):
            for name, value in settings.items():
                group[name] = tuple(value) if isinstance(value, list) else value


def clip_grad_norm(parameters: Iterable[Parameter], most: float | Callable[[], float]) -> mo.Tensor:
    """Scale all gradients so that their common norm is at most `most`; returns the norm they had.

    >>> w = mo.nn.Parameter([3.0, 4.0])
    >>> (0.5 * w * w).sum().backward()
    >>> mo.optim.clip_grad_norm([w], 1.0).item(), w.grad.numpy().round(3).tolist()
    (5.0, [0.6..., 0.8...])
    """
    listed = [parameter for parameter in parameters if parameter.grad is not None]
    if not listed:
        raise fail(ArgumentError, "clip_grad_norm", "no parameter has a gradient", "call loss.backward() first")
    with mo.no_grad():
        squares = [mo.sum(mo.square(p.grad.astype(mo.float32 if p.dtype.itemsize < 4 else p.dtype))) for p in listed]
        norm = mo.sqrt(mo.sum(mo.stack([square.astype(squares[0].dtype) for square in squares])))
        factor = mo.minimum(most / (norm + 1e-6), 1.0)
        for parameter in listed:
            parameter.grad = parameter.grad * factor.astype(parameter.dtype)
    return norm
