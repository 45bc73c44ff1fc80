"""`Optimizer`: what every rule has in common. A rule says what it keeps for one parameter and how it changes it; the
update of all parameters is one program, together with the gradients and the loss they come from.

    class Plain(mo.optim.Optimizer):
        defaults = {"lr": 0.1}
        def update(self, value, gradient, slots, rate, group, count):
            return value - rate * gradient, slots
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.checks import as_whole, check_numbers, shown
from morpho.base.errors import ArgumentError, fail, sentence
from morpho.tensor import recording
from morpho.tensor.autodiff.autograd import take_pending
from morpho.tensor.autodiff.grad_mode import Tracked
from morpho.tensor.jit.native.entries import entries
from morpho.tensor.state.state import assign
from morpho.tensor.state.trace import current_trace
from morpho.tensor.state.variable import LeafParameter, Parameter, Variable
from morpho.tensor.steps import Unknown, exact_key
from morpho.tensor.tools.foreign_names import missing

Slots = dict[str, mo.Tensor]


log = logging.getLogger(__name__)


@functools.cache
def _say_no_gradients(rule: str) -> None:
    log.warning("%s", sentence(rule, "step() changes nothing, because no parameter has a gradient (said once)",
                               "call loss.backward() first"))


def listed_parameters(operation: str, given: Any) -> list[Any]:
    """Parameters or groups as a list; a model, or its method without parentheses, is an error that says so."""
    if callable(given) or not isinstance(given, Iterable):
        raise fail(ArgumentError, operation, f"{type(given).__name__} is not a list of parameters",
                   "pass model.parameters(), with parentheses")
    return list(given)


def _is_leaf(one: Any) -> bool:
    """Whether a tensor that is no Parameter collects a gradient."""
    return isinstance(one, mo.Tensor) and not isinstance(one, Variable) and isinstance(
        getattr(one, "_track", None), Tracked) and one.requires_grad


IGNORED = frozenset({"foreach", "fused", "capturable", "differentiable"})  # how PyTorch computes an update


def _home(parameters: list[Parameter]) -> str:
    """Where what an optimiser keeps of its parameters lies: with them."""
    return parameters[0].device if parameters else "cpu"


class ParamGroup:
    """Parameters, `group["params"]`, with settings of their own: `group["weight_decay"] = 0.0`. The learning rate is a
    state, so changing it compiles nothing; any other setting is part of the program: another one means compiling a step
    anew.

    >>> weights, bias = mo.nn.Parameter(mo.ones(2)), mo.nn.Parameter(mo.ones(2))
    >>> opt = mo.optim.AdamW([{"params": [weights]}, {"params": [bias], "weight_decay": 0.0}], lr=0.1)
    >>> [group["weight_decay"] for group in opt.param_groups]
    [0.01, 0.0]
    """

    def __init__(self, params: list[Parameter], settings: Mapping[str, Any]) -> None:
        self.params = params
        self._settings = dict(settings)
        self.initial: float | None = None  # the rate that schedules start from
        self.rate = mo.State(mo.asarray(float(self._settings["lr"]), dtype=mo.float64, device=_home(params)))
        self._cycled: mo.State | None = None  # the momentum, once a schedule changes it

    def __getitem__(self, name: str) -> Any:
        if name == "params":
            return self.params
        if name not in self._settings:
            raise fail(ArgumentError, "optim", f"there is no setting {name!r}",
                       "there are " + ", ".join(self._settings))
        trace = current_trace()
        if trace is not None and name != "lr":
            trace.assume(self)
        return self._settings[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self[name]  # an unknown name is an error
        if name == "params":
            raise fail(ArgumentError, "optim", "the parameters of a group cannot be replaced",
                       "use add_param_group for others")
        if self._settings[name] == value:
            return
        if current_trace() is not None:
            raise fail(ArgumentError, "optim", f"{name} is set inside a compiled function: it happens once only",
                       "change settings and step schedules outside of it")
        self._settings[name] = value
        if name == "lr":
            self.rate.value = mo.asarray(float(value), dtype=mo.float64, device=_home(self.params))
        elif self._cycled is not None and name == self.momentum_name:
            self._cycled.value = mo.asarray(self._momentum(), dtype=mo.float64, device=_home(self.params))
        else:
            entries.forget()

    @property
    def momentum_name(self) -> str | None:
        """The setting that says how long gradients are remembered, where the rule has one."""
        return next((name for name in ("betas", "momentum") if name in self._settings), None)

    def _momentum(self) -> float:
        name = self.momentum_name
        return float(self._settings["betas"][0] if name == "betas" else self._settings["momentum"])

    def cycle_momentum(self) -> None:
        """From here on the momentum is a state, as the rate is: changing it compiles nothing."""
        if self._cycled is None:
            self._cycled = mo.State(mo.asarray(self._momentum(), dtype=mo.float64, device=_home(self.params)))
            entries.forget()

    def momentum_now(self) -> Any:
        """The momentum, or the first of the betas: a number, or a 0-dimensional float64 once a schedule changes it."""
        self[str(self.momentum_name)]  # part of the program, like any setting
        return self._momentum() if self._cycled is None else self._cycled.value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    @property
    def settings(self) -> dict[str, Any]:
        """All settings as a plain dict."""
        return dict(self._settings)

    def static_key(self) -> Any:
        changing = ("lr",) if self._cycled is None else ("lr", "momentum")
        kept = [(name, value) for name, value in self._settings.items() if name not in changing]
        if self._cycled is not None:
            kept = [(name, value[1:] if name == "betas" else value) for name, value in kept]
        return (self._cycled is not None, *kept)


class Optimizer:
    """Changes parameters by their gradients.

    params: what to train, or groups: dicts with "params" and settings that differ from the rest.
    settings: those of the rule, by name; every rule takes `lr` and `maximize` (go up instead of down).

    >>> w, b = mo.nn.Parameter([1.0]), mo.nn.Parameter([1.0])
    >>> opt = mo.optim.SGD([{"params": [w]}, {"params": [b], "lr": 1.0}], lr=0.5)
    >>> (w + b).sum().backward(); opt.step(); w.item(), b.item()
    (0.5, 0.0)
    """

    defaults: Mapping[str, Any] = {"lr": 1e-3}
    tells_changes = True  # of `static_key`: compiled functions need not ask at every call

    def __init_subclass__(cls, **others: Any) -> None:
        """`help(rule)` and `inspect.signature(rule)` show the settings with their defaults."""
        super().__init_subclass__(**others)
        cls.__signature__ = _signature(cls)  # type: ignore[attr-defined]

    def __init__(self, params: Iterable[Any], lr: float | None = None, **settings: Any) -> None:
        self._defaults = _with_all(self.defaults)
        settings = {name: value for name, value in settings.items() if name not in IGNORED}
        settings = settings if lr is None else {"lr": lr, **settings}
        self._check_names(settings)
        self._defaults |= {name: _plain(value) for name, value in settings.items()}
        self.param_groups: list[ParamGroup] = []
        self._slots: dict[int, dict[str, mo.State]] = {}
        self._counts: dict[int, mo.State] = {}  # by parameter: steps it took; most share one
        self._update: _Update | None = None  # of the last step, where that was recorded
        listed = listed_parameters(type(self).__name__, params)
        for group in listed if listed and isinstance(listed[0], Mapping) else [{"params": listed}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Train further parameters: `opt.add_param_group({"params": head.parameters(), "lr": 1e-2})`."""
        name = type(self).__name__
        parameters = listed_parameters(name, param_group["params"]) if "params" in param_group else []
        if not parameters:
            raise fail(ArgumentError, name, "a group has no parameters",
                       "pass model.parameters(); an iterator that was used before is empty")
        parameters = [LeafParameter(one) if _is_leaf(one) else one for one in parameters]
        known = {id(p) for other in self.param_groups for p in other.params}
        for parameter in parameters:
            if not isinstance(parameter, Parameter):
                raise fail(ArgumentError, name, f"{type(parameter).__name__} is not a Parameter",
                           "pass model.parameters(), without names" if isinstance(parameter, tuple) else
                           "call requires_grad_() on it, or make one with nn.Parameter(...)"
                           if isinstance(parameter, mo.Tensor) else "")
            if id(parameter) in known:
                raise fail(ArgumentError, name, "a parameter stands in two groups")
            known.add(id(parameter))
        own = {key: _plain(value) for key, value in param_group.items() if key != "params"}
        self._check_names(own)
        check_numbers(name, 0, lr={**self._defaults, **own}["lr"])
        made = ParamGroup(parameters, {**self._defaults, **own})
        self.check(made)
        self.param_groups.append(made)
        fresh = [count for count in self._counts.values() if count.value.item() == 0]
        count = fresh[0] if fresh else mo.State(mo.asarray(0, dtype=mo.int64, device=_home(parameters)))
        for parameter in parameters:
            self._counts[id(parameter)] = count
            with mo.device(parameter.device):
                self._slots[id(parameter)] = {key: mo.State(v) for key, v in self.slots(parameter, made).items()}
        entries.forget()

    def _check_names(self, settings: Mapping[str, Any]) -> None:
        unknown = sorted(set(settings) - set(self._defaults))
        if unknown:
            raise fail(ArgumentError, type(self).__name__, f"there is no setting {unknown[0]!r}",
                       "there are " + ", ".join(self._defaults))

    # -- what a rule defines -----------------------------------------------------------------------------------------
    def check(self, group: ParamGroup) -> None:
        """Refuse settings that make no sense."""
        at_least_zero(type(self).__name__, group, "lr", "weight_decay")

    def slots(self, parameter: Parameter, group: ParamGroup) -> Slots:
        """Initial state of a parameter; float32 beside half floats."""
        return {}

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: ParamGroup,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        """The new value and the new slots of one parameter; half floats come, and may go, as float32. `rate` is the
        learning rate in the value's dtype, `count` the number of this step, from 1, in float64; 0-dimensional both."""
        raise NotImplementedError

    # -- what they share -----------------------------------------------------------------------------------------------
    def step(self, closure: Callable[[], Any] | None = None, *, scale: mo.Tensor | None = None,
             apply: mo.Tensor | None = None) -> Any:
        """Change every parameter that has a gradient. Gradients are multiplied by `scale` first where given, and where
        the truth value `apply` is given and false everything stays as it was. A `closure` that computes the loss and
        its gradients is called before; what it returns is returned."""
        loss = None if closure is None else closure()
        self._step(scale, apply)
        return loss

    def _step(self, scale: mo.Tensor | None, apply: mo.Tensor | None) -> None:
        trace = current_trace()
        if trace is not None:
            trace.assume(self)
        moving = {id(parameter) for parameter in self.parameters() if parameter.grad is not None}
        if not moving:
            if trace is None:
                _say_no_gradients(type(self).__name__)
                return
            raise fail(ArgumentError, type(self).__name__, "no parameter has a gradient", "call loss.backward() first")
        self._separate_counts(moving)
        if trace is None and (recorded := self._recorded(moving, scale, apply)) is not None:
            assign(recorded, *take_pending())
            return
        changes: list[tuple[mo.State, mo.Tensor]] = []
        with mo.no_grad():
            counts = {id(state): state for key, state in self._counts.items() if key in moving}
            numbers = {key: state.value + 1 for key, state in counts.items()}
            for group in self.param_groups:
                for parameter in group.params:
                    if id(parameter) in moving:
                        number = numbers[id(self._counts[id(parameter)])]
                        changes += self._changes(parameter, group, number, scale)
            changes += [(state, numbers[key]) for key, state in counts.items()]
            if apply is not None:
                changes = [(state, mo.where(apply, new, state.value)) for state, new in changes]
        assign(changes, *([] if trace is not None else take_pending()))

    def _recorded(self, moving: set[int], scale: mo.Tensor | None,
                  apply: mo.Tensor | None) -> list[tuple[mo.State, mo.Tensor]] | None:
        """All changes as one operation of the recording, which is built once; None where it cannot be recorded. A rule
        of a user's own may look at other things than its arguments, so its operations are recorded one by one."""
        if not type(self).update.__module__.startswith("morpho."):
            return None
        update = self._update
        if update is None or not update.is_current(moving, scale is not None, apply is not None):
            update = self._update = _Update(self, moving, scale is not None, apply is not None)
        return update.record(scale, apply)

    def _separate_counts(self, moving: set[int]) -> None:
        """Parameters that sit a step out keep a count of their own: rules begin anew where a parameter begins."""
        resting: dict[int, mo.State] = {}
        shared = {id(self._counts[key]) for key in moving}
        for key, count in self._counts.items():
            if key not in moving and id(count) in shared:
                if id(count) not in resting:
                    resting[id(count)] = mo.State(mo.asarray(int(count._tensor.numpy()), dtype=mo.int64,
                                                            device=count._tensor.device))
                self._counts[key] = resting[id(count)]
        if resting:
            entries.forget()  # programs that knew one count look again

    def _changes(self, parameter: Parameter, group: ParamGroup, count: mo.Tensor,
                 scale: mo.Tensor | None) -> Iterator[tuple[mo.State, mo.Tensor]]:
        wide = parameter.dtype.compute
        states = self._slots[id(parameter)]
        gradient = prepared(parameter.grad, wide, scale, group)
        old = (parameter if current_trace() is None else parameter.state.value).astype(wide)
        value, slots = self.update(old, gradient, {key: state.value for key, state in states.items()},
                                   group.rate.value.astype(wide), group, count.astype(mo.float64))
        yield parameter.state, value.astype(parameter.dtype)
        for key, new in slots.items():
            yield states[key], new.astype(states[key]._tensor.dtype)

    def __repr__(self) -> str:
        first = ", ".join(f"{name}={value!r}" for name, value in self.param_groups[0].settings.items())
        return f"{type(self).__name__}({sum(1 for _ in self.parameters())} parameters, {first})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Optimizer:
        """Copy the state together with its parameters: those copied along, or new ones."""
        made: Optimizer = object.__new__(type(self))
        memo[id(self)] = made
        copied = copy.deepcopy({name: value for name, value in vars(self).items() if name != "_update"}, memo)
        vars(made).update(copied)
        made._update = None
        for name in ("_slots", "_counts"):
            vars(made)[name] = {id(memo[number]): value for number, value in copied[name].items()}
        return made

    def __getattr__(self, name: str) -> Any:
        raise missing("Optimizer", name, self, type(self).__name__)  # only what is not there comes here

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients."""
        for parameter in self.parameters():
            parameter.grad = None

    def parameters(self) -> Iterator[Parameter]:
        """Every parameter of every group."""
        return (parameter for group in self.param_groups for parameter in group.params)

    def static_key(self) -> Any:
        counts = dict.fromkeys(id(count) for count in self._counts.values())
        return (id(self), tuple(counts), *[(len(group.params), group.static_key()) for group in self.param_groups])

    # -- saving --------------------------------------------------------------------------------------------------------
    def _named_slots(self) -> dict[str, mo.State]:
        return {f"{number}.{key}": state for number, parameter in enumerate(self.parameters())
                for key, state in self._slots[id(parameter)].items()}

    def state_dict(self) -> dict[str, Any]:
        """Where training stands: "slots", tensors by number of parameter and name; "param_groups", settings, and
        "count", the steps taken, or a list of those of each parameter where they differ: plain numbers that JSON can
        hold."""
        counts = [int(self._counts[id(parameter)].value.item()) for parameter in self.parameters()]
        return {"count": counts[0] if len(set(counts)) == 1 else counts,
                "param_groups": [group.settings for group in self.param_groups],
                "slots": {name: state.value for name, state in self._named_slots().items()}}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a state that `state_dict` gave, for the same parameters in the same order. One that does not fit
        is an error, and changes nothing."""
        for key, kind in (("count", int | list), ("param_groups", list | tuple), ("slots", Mapping)):
            if key not in saved or not isinstance(saved[key], kind):
                raise fail(ArgumentError, type(self).__name__, f"{key} of the saved state is {shown(saved[key])}"
                           if key in saved else f"the saved state has no {key!r}", "give what state_dict() gave")
        own, parameters = self._named_slots(), list(self.parameters())
        counts = saved["count"] if isinstance(saved["count"], list) else [saved["count"]] * len(parameters)
        fitting = (set(own) == set(saved["slots"]) and len(saved["param_groups"]) == len(self.param_groups)
                   and len(counts) == len(parameters))
        if not fitting:
            raise fail(ArgumentError, type(self).__name__, "the saved state belongs to other parameters",
                       f"it has {len(saved['slots'])} slots for {len(counts)} parameters, and {len(own)} for "
                       f"{len(parameters)} are wanted")
        for number in counts:
            if not 0 <= (-1 if (steps := as_whole(number)) is None else steps) < 1 << 63:
                raise fail(ArgumentError, type(self).__name__, f"count of the saved state is {shown(number)}",
                           "it is a number of steps from 0 on")
        for group, settings in zip(self.param_groups, saved["param_groups"], strict=True):
            self._check_saved(group, settings)
        assign([(own[name], mo.asarray(value).to(own[name].value.device)) for name, value in saved["slots"].items()])
        states = {number: mo.State(mo.asarray(int(number), dtype=mo.int64, device=_home(parameters)))
                  for number in dict.fromkeys(counts)}
        for parameter, number in zip(parameters, counts, strict=True):
            self._counts[id(parameter)] = states[number]
        for group, settings in zip(self.param_groups, saved["param_groups"], strict=True):
            for name, value in settings.items():
                group[name] = tuple(value) if isinstance(value, list) else value
        entries.forget()

    def _check_saved(self, group: ParamGroup, settings: Any) -> None:
        """Refuse settings of a group that are not of the kind that they replace, or that the rule refuses."""
        name, usual = type(self).__name__, _with_all(self.defaults)
        if not isinstance(settings, Mapping):
            raise fail(ArgumentError, name, f"param_groups of the saved state has {shown(settings)}",
                       "it is a list of dicts of settings")
        self._check_names(settings)
        for key, value in settings.items():
            if not any(_alike(value, own) for own in (group.settings[key], usual[key])):
                raise fail(ArgumentError, name, f"{key} in param_groups of the saved state is {shown(value)}",
                           f"it is something like {shown(group.settings[key])}")
        whole = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
        check_numbers(name, 0, lr=whole.get("lr", group.settings["lr"]))
        self.check(ParamGroup(group.params, {**group.settings, **whole}))


class _Update:
    """The update of all parameters that have gradients, as one function of tensors: values, gradients and slots of each
    parameter, the groups' rates, the counts, and the scale and the condition where the step has them."""

    def __init__(self, optimizer: Optimizer, moving: set[int], has_scale: bool, has_condition: bool) -> None:
        self.generation, self.moving = entries.generation, moving
        self.has_scale, self.has_condition = has_scale, has_condition
        groups = list(optimizer.param_groups)
        pairs = [(number, one) for number, group in enumerate(groups) for one in group.params if id(one) in moving]
        self.parameters = [one for _, one in pairs]
        counts = list({id(state): state for one in self.parameters
                       for state in [optimizer._counts[id(one)]]}.values())
        slots = [optimizer._slots[id(one)] for one in self.parameters]
        own = [[one.state, *states.values()] for one, states in zip(self.parameters, slots, strict=True)]
        self.states = [state for states in own for state in states] + counts  # those that change
        self.read = [*self.states, *[group.rate for group in groups]]
        places = [next(place for place, state in enumerate(counts) if state is optimizer._counts[id(one)])
                  for one in self.parameters]
        rows = [(group, one.dtype, tuple(states), place)
                for (group, one), states, place in zip(pairs, slots, places, strict=True)]
        self.function: Callable[..., Any] | None = None
        if not any(group._cycled is not None for group in groups):  # such a momentum is read by the rule itself
            try:
                key = (type(optimizer), tuple(rows), len(counts), has_scale, has_condition,
                       *[exact_key(group.static_key()) for group in groups])
            except Unknown:
                return
            if len(_functions) >= MOST_UPDATES:
                _functions.clear()
            self.function = _functions.get(key) or _functions.setdefault(key, _function_of(
                object.__new__(type(optimizer)), [_settings_of(group) for group in groups], rows, len(counts),
                has_scale, has_condition))

    def is_current(self, moving: set[int], has_scale: bool, has_condition: bool) -> bool:
        """Whether neither parameters nor settings have changed: every change of those makes entries look again."""
        return (self.generation == entries.generation and self.moving == moving and self.has_scale is has_scale
                and self.has_condition is has_condition)

    def record(self, scale: mo.Tensor | None, apply: mo.Tensor | None) -> list[tuple[mo.State, mo.Tensor]] | None:
        """Write the update down; None where it cannot be recorded."""
        if self.function is None:
            return None
        others = [mo.asarray(one) for one in (scale, apply) if one is not None]
        results = recording.apply(self.function, [state._tensor for state in self.read],
                                  [one.grad for one in self.parameters], others)
        return None if results is None else list(zip(self.states, results, strict=True))


MOST_UPDATES = 256
_functions: dict[Any, Callable[..., Any]] = {}  # equal models with equal rules have one program: by all that decides it


def _settings_of(group: ParamGroup) -> ParamGroup:
    """A group without parameters: a rule asks it for settings alone."""
    made = object.__new__(ParamGroup)
    made.params, made._settings, made._cycled = [], dict(group._settings), None
    return made


def _function_of(rule: Optimizer, groups: list[ParamGroup], rows: list[Any], counts: int, has_scale: bool,
                 has_condition: bool) -> Callable[..., Any]:
    """The update as a function. `rows` tell of each parameter its group, dtype, slots and which of the counts it has;
    `rule` has no attributes, for updates of built-in rules read none."""
    changed = sum(1 + len(names) for _, _, names, _ in rows) + counts

    def update(*tensors: mo.Tensor) -> tuple[mo.Tensor, ...]:
        values, rates = tensors[:changed], tensors[changed:changed + len(groups)]
        gradients = tensors[changed + len(groups):]
        scale = gradients[len(rows)] if has_scale else None
        steps = [value + 1 for value in values[changed - counts:]]
        results: list[mo.Tensor] = []
        for number, (group, dtype, names, place) in enumerate(rows):
            at, wide = len(results), dtype.compute
            old = dict(zip(names, values[at + 1:at + 1 + len(names)], strict=True))
            value, new = rule.update(values[at].astype(wide), prepared(gradients[number], wide, scale, groups[group]),
                                     dict(old), rates[group].astype(wide), groups[group],
                                     steps[place].astype(mo.float64))
            results += [value.astype(dtype), *[{**old, **new}[name].astype(old[name].dtype) for name in names]]
        results += steps
        if has_condition:
            results = [mo.where(tensors[-1], one, before) for one, before in zip(results, values, strict=True)]
        return tuple(results)

    return update


def prepared(gradient: mo.Tensor, wide: Any, scale: mo.Tensor | None, group: ParamGroup) -> mo.Tensor:
    """A gradient as a rule takes it."""
    gradient = gradient.astype(wide)
    if scale is not None:
        gradient = gradient * scale.astype(wide)
    return -gradient if group["maximize"] else gradient


def _alike(value: Any, own: Any) -> bool:
    """Whether a setting may take the place of another: a number of a number, a text of a text."""
    if isinstance(own, bool | str):
        return isinstance(value, type(own))
    if isinstance(own, Real):
        return isinstance(value, Real) and not isinstance(value, bool) and value == value
    if isinstance(own, tuple | list):
        return isinstance(value, tuple | list) and len(value) == len(own) and all(map(_alike, value, own))
    return value is None or isinstance(value, bool | str) or _alike(value, 0) if own is None else True


def whole_only(name: str, group: ParamGroup) -> None:
    """Refuse parameters that are shared out among ranks, for a rule that looks at more than one element."""
    if any(parameter.across is not None and parameter.across.size > 1 for parameter in group.params):
        raise fail(ArgumentError, name, "each rank has a part of these parameters, and the rule needs the whole",
                   "use a rule that updates each element by itself, such as AdamW, or whole parameters")


def at_least_zero(name: str, group: ParamGroup, *settings: str) -> None:
    """Refuse a negative setting."""
    check_numbers(name, 0, **{setting: group.settings.get(setting, 0.0) for setting in settings})


def _plain(value: Any) -> Any:
    """A number of NumPy as Python's own, so that JSON holds it."""
    return value.item() if isinstance(value, np.generic) else value


def _with_all(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A rule's own settings and those that every rule has: `lr` first, `maximize` last."""
    return {"lr": 1e-3, **{name: value for name, value in defaults.items() if name != "maximize"},
            "maximize": defaults.get("maximize", False)}


def _signature(rule: type[Optimizer]) -> inspect.Signature:
    """Signature of a rule: parameters, `lr`, and the other settings by name; or that of its own `__init__`."""
    if rule.__init__ is not Optimizer.__init__:
        _, *rest = inspect.signature(rule.__init__).parameters.values()
        return inspect.Signature(rest)
    given, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    settings = _with_all(rule.defaults)
    return inspect.Signature([inspect.Parameter("params", given), *[
        inspect.Parameter(name, given if name == "lr" else named, default=value, annotation=_kind(value))
        for name, value in settings.items()]])


def _kind(value: Any) -> Any:
    """How the type of a setting is written."""
    return {bool: bool, float: float, int: float}.get(type(value), inspect.Parameter.empty)


def zeros_for(parameter: Parameter) -> mo.Tensor:
    """A slot as large as a parameter, in the dtype that updates are computed in."""
    return mo.zeros(parameter.shape, dtype=parameter.dtype.compute)
