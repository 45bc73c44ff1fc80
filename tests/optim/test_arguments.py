"""Wrong settings of optimisers and schedules are refused where they are made, and `help` shows the right ones."""

from __future__ import annotations

import inspect
import json
import math
import pydoc
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import optim

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("SGD", {"lr": -1}, "lr=-1 is not a number of at least 0"), ("SGD", {"lr": "a"}, "lr='a' is not a number"),
    ("SGD", {"lr": math.nan}, "lr=nan is not"), ("SGD", {"lr": True}, "lr=True is not"),
    ("SGD", {"momentum": "a"}, "momentum='a' is not"), ("SGD", {"dampening": -1}, "dampening=-1 is not"),
    ("SGD", {"learning_rate": 1}, "no setting 'learning_rate'.*there are lr, momentum"),
    ("Adam", {"betas": (0.9, 1.0)}, r"betas=\(0.9, 1.0\) are not two numbers in \[0, 1\)"),
    ("Adam", {"betas": 0.9}, "betas=0.9 are not two"), ("AdamW", {"betas": ("a", "b")}, "betas=.* are not two numbers"),
    ("AdamW", {"weight_decay": -1}, "weight_decay=-1 is not"), ("Adam", {"eps": "a"}, "eps='a' is not"),
    ("Lion", {"betas": None}, "betas=None are not"), ("Adafactor", {"beta2_decay": "a"}, "beta2_decay='a' is not"),
    ("Adafactor", {"eps": 1}, "eps=1 are not two"), ("Adafactor", {"eps": (None, "a")}, "eps='a' is not"),
    ("Adafactor", {"d": 0.5}, "d=0.5 is not a number of at least 1"),
]


@pytest.mark.parametrize(("rule", "settings", "text"), WRONG)
def test_a_rule_refuses_wrong_settings(rule: str, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(mo.errors.ArgumentError, match=rf"^\[{rule}\] .*{text}"):
        getattr(optim, rule)([mo.nn.Parameter([1.0])], **settings)
    with pytest.raises(mo.errors.ArgumentError, match=rf"^\[{rule}\] .*{text}"):
        getattr(optim, rule)([{"params": [mo.nn.Parameter([1.0])], **settings}])


@pytest.mark.parametrize(("given", "text"), [
    ([], "a group has no parameters.*model.parameters"), (mo.nn.Linear(1, 1), "Linear is not a list.*parentheses"),
    ([mo.ones(2)], r"Tensor is not a Parameter.*nn\.Parameter\("),
    (mo.nn.Linear(1, 1).named_parameters(), "tuple is not a Parameter.*without names"),
])
def test_what_is_not_parameters(given: Any, text: str) -> None:
    with pytest.raises(mo.errors.ArgumentError, match=rf"\[SGD\] {text}"):
        optim.SGD(given)


SCHEDULES: list[tuple[str, tuple[Any, ...], str]] = [
    ("StepLR", ("a",), "step_size='a' is not a number"), ("StepLR", (2, "a"), "gamma='a' is not"),
    ("MultiStepLR", (3,), "milestones=3 is not a list"), ("MultiStepLR", ([1, "2"],), r"milestones\[1\]='2' is not"),
    ("ExponentialLR", (None,), "gamma=None is not"), ("CosineAnnealingLR", (0,), "T_max=0 is not a positive number"),
    ("LinearLR", ("a",), "start_factor='a' is not"), ("PolynomialLR", (5, "a"), "power='a' is not"),
    ("WarmupCosineLR", ("a", 5), "warmup_iters='a' is not"), ("WarmupLinearLR", (1, 5, "a"), "end_factor='a' is not"),
    ("LambdaLR", (3,), "lr_lambda=3 is not a function"), ("ConstantLR", ("a",), "factor='a' is not"),
    ("ReduceLROnPlateau", ("min", "a"), "factor='a' is not"), ("ReduceLROnPlateau", ("min", 0.5, "a"), "patience='a'"),
    ("SequentialLR", ([], [1]), "no schedule"),
]


@pytest.mark.parametrize(("schedule", "arguments", "text"), SCHEDULES)
def test_a_schedule_refuses_wrong_arguments(schedule: str, arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(mo.errors.ArgumentError, match=rf"^\[{schedule}\] .*{text}"):
        getattr(optim, schedule)(optim.SGD([mo.nn.Parameter([1.0])]), *arguments)


def test_the_rate_may_come_second_and_from_numpy() -> None:
    opt = optim.SGD([mo.nn.Parameter([1.0])], np.float64(0.25), momentum=np.float32(0.5))
    assert json.loads(json.dumps(opt.state_dict()["param_groups"]))[0]["lr"] == 0.25
    assert opt.param_groups[0]["momentum"] == 0.5 and len(opt.param_groups[0]["params"]) == 1


def test_signatures_show_the_settings() -> None:
    for name in optim.__all__:
        thing = getattr(optim, name)
        if not (inspect.isclass(thing) and issubclass(thing, optim.Optimizer)) or thing is optim.Optimizer:
            assert thing.__doc__ and "kwargs" not in str(inspect.signature(thing))
            continue
        parameters = inspect.signature(thing).parameters
        assert list(parameters)[:2] == ["params", "lr"] and list(parameters)[-1] == "maximize"
        assert {key: one.default for key, one in parameters.items() if key not in ("params", "maximize")} == \
            thing.defaults
        assert all(f"`{key}`" in thing.__doc__ or thing is optim.AdamW for key in list(parameters)[2:-1]), name
    assert "AdamW(params, lr: float = 0.001, *, betas=(0.9, 0.999)" in pydoc.render_doc(optim.AdamW)


def test_signatures_of_other_rules() -> None:
    class Plain(optim.Optimizer):
        defaults = {"lr": 0.1, "scale": 2.0}

    class Own(Plain):
        def __init__(self, model: mo.nn.Module, rate: float) -> None:
            super().__init__(model.parameters(), lr=rate)

    class Later(Own):
        pass

    plain = str(inspect.signature(Plain))
    assert plain == "(params, lr: float = 0.1, *, scale: float = 2.0, maximize: bool = False)"
    assert list(inspect.signature(Own).parameters) == list(inspect.signature(Later).parameters) == ["model", "rate"]


def test_a_rule_of_a_users_own_keeps_its_defaults() -> None:
    class Up(mo.optim.SGD):
        defaults = {**mo.optim.SGD.defaults, "maximize": True}

    class Plain(mo.optim.SGD):
        defaults = {name: value for name, value in mo.optim.SGD.defaults.items() if name != "lr"}

    layer = mo.nn.Linear(2, 1)
    assert Up(layer.parameters()).param_groups[0].settings["maximize"] is True
    assert Plain(layer.parameters()).param_groups[0].settings["lr"] == 1e-3
    assert Plain(layer.parameters(), lr=0.5).param_groups[0].settings["lr"] == 0.5
