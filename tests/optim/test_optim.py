"""Optimisers by their formulas in NumPy, resumed to the same bits, in few kernels, without compiling anew."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, MorphoError


def formula(name: str, p: np.ndarray, gradients: list[np.ndarray]) -> np.ndarray:
    """Each rule as its paper has it, one array, in float64."""
    m, v = np.zeros_like(p), np.zeros_like(p)
    rows, columns = np.zeros((len(p), 1)), np.zeros((1, p.shape[1]))
    for t, g in enumerate(gradients, start=1):
        if name == "SGD":
            m = 0.9 * m + (g + 0.1 * p)
            p = p - 0.02 * m
        elif name == "AdamW":
            p = p * (1 - 0.02 * 0.1)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            p = p - 0.02 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        elif name == "Lion":
            p = p * (1 - 0.02 * 0.1) - 0.02 * np.sign(0.9 * m + 0.1 * g)
            m = 0.99 * m + 0.01 * g
        else:
            share, size = t**-0.8, max(np.sqrt(np.mean(p * p)), 1e-3)
            p = p * (1 - 0.02 * 0.1)
            rows = (1 - share) * rows + share * np.mean(g * g, axis=1, keepdims=True)
            columns = (1 - share) * columns + share * np.mean(g * g, axis=0, keepdims=True)
            step = g / np.sqrt(rows * columns / np.mean(rows))
            p = p - size * min(0.02, t**-0.5) / max(1.0, np.sqrt(np.mean(step * step))) * step
    return p


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Lion", "Adafactor"])
def test_rules_are_their_formulas(name: str, rng: np.random.Generator) -> None:
    """float64, against NumPy; PyTorch need not be there."""
    start, gradients = rng.normal(size=(4, 3)), [rng.normal(size=(4, 3)) for _ in range(6)]
    w = mo.nn.Parameter(mo.asarray(start))
    opt = getattr(mo.optim, name)([w], lr=0.02, weight_decay=0.1, **({"momentum": 0.9} if name == "SGD" else {}))
    for gradient in gradients:
        w.grad = gradient
        opt.step()
    np.testing.assert_allclose(w.numpy(), formula(name, start, gradients), rtol=1e-10)


def model_and_step(name: str = "AdamW", **settings: Any) -> tuple[Any, Any, Any]:
    mo.nn.seed(3)
    model = mo.nn.Sequential(mo.nn.Linear(6, 8), mo.nn.Tanh(), mo.nn.Linear(8, 2))
    opt = getattr(mo.optim, name)(model.parameters(), **{"lr": 0.01, **settings})

    @mo.compile
    def step(x: mo.Tensor) -> mo.Tensor:
        loss = mo.mean(mo.square(model(x)))
        loss.backward()
        mo.optim.clip_grad_norm(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        return loss

    return model, opt, step


def test_a_rate_that_changes_compiles_nothing() -> None:
    """A schedule beside a compiled step: one trace, and the rate takes effect."""
    model, opt, step = model_and_step("SGD", lr=1.0)
    schedule = mo.optim.ExponentialLR(opt, 0.0)
    x = mo.ones((4, 6))
    step(x)
    before = model.state_dict()["0.weight"].numpy(copy=True)
    schedule.step()
    for _ in range(3):
        step(x)
    assert step.stats["recompiles"] == 0 and step.stats["specialisations"] == 1
    np.testing.assert_array_equal(model.state_dict()["0.weight"].numpy(), before)  # the rate is 0 now
    opt.param_groups[0]["momentum"]  # looking changes nothing
    opt.param_groups[0]["weight_decay"] = 0.1
    step(x)
    assert step.stats["recompiles"] == 1  # another program, and known to be


def test_one_kernel_changes_a_parameter() -> None:
    """Clipping and AdamW of all parameters: one kernel each reads and writes them; norms need one each beside it."""
    model, _, step = model_and_step()
    step(mo.ones((4, 6)))
    lines = [line for line in step.explain().splitlines() if "test_optim.py" in line]
    updates = [line for line in lines if "multiply+multiply+multiply+add+multiply" in line]
    parameters = len(list(model.parameters()))
    assert 0 < len(updates) <= parameters, step.explain()
    with_clip = step.stats["kernels"]
    assert not any("copy" in line for line in lines), step.explain()

    def plain(x: mo.Tensor) -> mo.Tensor:
        loss = mo.mean(mo.square(model(x)))
        loss.backward()
        gradients = [p.grad for p in model.parameters()]
        model.zero_grad()
        return loss, gradients  # type: ignore[return-value]

    backward = mo.compile(plain)
    backward(mo.ones((4, 6)))
    # gradients, then at most a norm and an update per parameter and one kernel for the numbers they share
    assert with_clip <= backward.stats["kernels"] + 2 * parameters + 1


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Lion", "Adafactor"])
def test_resumed_equals_uninterrupted(name: str) -> None:
    """States through JSON and arrays, into a fresh model and optimiser: the same bits."""
    settings = {"momentum": 0.9} if name == "SGD" else {}
    x = mo.arange(24, dtype=mo.float32).reshape((4, 6)) / 24
    model, opt, step = model_and_step(name, **settings)
    schedule = mo.optim.WarmupCosineLR(opt, 2, 8)
    for _ in range(3):
        step(x)
        schedule.step()
    saved = opt.state_dict()
    tensors = {key: value.numpy(copy=True) for key, value in saved.pop("slots").items()}
    numbers = json.loads(json.dumps({**saved, "schedule": schedule.state_dict()}))
    weights = {key: value.numpy(copy=True) for key, value in model.state_dict().items()}
    for _ in range(3):
        step(x)
        schedule.step()

    other, opt2, step2 = model_and_step(name, **{**settings, "lr": 0.7})
    schedule2 = mo.optim.WarmupCosineLR(opt2, 2, 8)
    other.load_state_dict(weights)
    opt2.load_state_dict({"count": numbers["count"], "param_groups": numbers["param_groups"], "slots": tensors})
    schedule2.load_state_dict(numbers["schedule"])
    for _ in range(3):
        step2(x)
        schedule2.step()
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), other.state_dict()[key].numpy())


def test_eager_equals_compiled() -> None:
    """The same bits step by step and as one native function."""
    x = mo.ones((4, 6))
    model, _, step = model_and_step()
    other, _, compiled = model_and_step()
    for _ in range(3):
        compiled(x)
        step.__wrapped__(x)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_a_parameter_that_begins_later_begins_anew() -> None:
    """A frozen layer that is trained from step 3 on takes the step of a first one, compiled or not."""
    a, b, fresh = mo.nn.Parameter([1.0]), mo.nn.Parameter([1.0]), mo.nn.Parameter([1.0])
    opt, other = mo.optim.Adam([a, b], lr=0.1), mo.optim.Adam([fresh], lr=0.1)

    @mo.compile
    def step(both: bool) -> None:
        (a * a + (b * b if both else 0)).sum().backward()
        opt.step()
        opt.zero_grad()

    for both in (False, False, True):
        step(both)
    (fresh * fresh).sum().backward()
    other.step()
    assert b.item() == fresh.item() and opt.state_dict()["count"] == [3, 1]
    step(False)
    assert opt.state_dict()["count"] == [4, 1]
    saved = opt.state_dict()
    opt.load_state_dict(saved)
    step(True)
    assert opt.state_dict()["count"] == [5, 2]


def test_half_parameters_are_changed_in_float32() -> None:
    """Slots of a bfloat16 parameter are float32: small shares are not lost to rounding."""
    w = mo.nn.Parameter(mo.ones(4, dtype=mo.bfloat16))
    opt = mo.optim.AdamW([w], lr=0.01)
    for _ in range(3):
        w.grad = mo.full(4, 0.5, dtype=mo.bfloat16)
        opt.step()
    assert w.dtype is mo.bfloat16
    assert {str(value.dtype) for value in opt.state_dict()["slots"].values()} == {"float32"}
    np.testing.assert_allclose(opt.state_dict()["slots"]["0.square"].numpy(), 0.25 * (1 - 0.999**3), rtol=1e-5)


def test_groups_can_be_added() -> None:
    """With settings of their own, after steps of the others; a compiled step knows."""
    a, b = mo.nn.Parameter([1.0]), mo.nn.Parameter([1.0])
    opt = mo.optim.SGD([a], lr=0.5)

    @mo.compile
    def step() -> None:
        a.grad = b.grad = None
        (a + b).sum().backward()
        opt.step()

    step()
    opt.add_param_group({"params": [b], "lr": 0.25})
    step()
    assert (a.item(), b.item()) == (0.0, 0.75)
    schedule = mo.optim.ExponentialLR(opt, 0.5)
    opt.load_state_dict(opt.state_dict())
    opt.add_param_group({"params": [mo.nn.Parameter([1.0])], "lr": 8.0})  # after a state was loaded; under a schedule
    schedule.step()
    assert schedule.get_last_lr() == [0.25, 0.125, 4.0] and opt.state_dict()["count"] == [2, 1, 0]


ERRORS = [
    (lambda w: mo.optim.SGD([w], rate=1.0), "no setting 'rate'"),
    (lambda w: mo.optim.SGD([w], lr=-1.0), "lr=-1.0"),
    (lambda w: mo.optim.SGD([w], nesterov=True), "nesterov"),
    (lambda w: mo.optim.Adam([w], betas=(0.9, 1.0)), "betas"),
    (lambda w: mo.optim.Lion([w], betas=(0.9,)), "betas"),
    (lambda w: mo.optim.Adafactor([w], d=0.5), "d=0.5"),
    (lambda w: mo.optim.SGD([]), "no parameters"),
    (lambda w: mo.optim.SGD([w, w]), "two groups"),
    (lambda w: mo.optim.SGD([mo.ones(1)]), "not a Parameter"),
    (lambda w: mo.optim.clip_grad_norm([w], 1.0), "no parameter has a gradient"),
    (lambda w: mo.optim.clip_grad_value([w], -1.0), "-1.0"),
    (lambda w: mo.optim.SGD([w]).load_state_dict({"slots": {"0.x": w}, "param_groups": [{}], "count": 0}), "belongs"),
    (lambda w: mo.optim.StepLR(w, 3), "not an optimiser"),
    (lambda w: mo.optim.StepLR(mo.optim.SGD([w]), 0), "step_size=0"),
    (lambda w: mo.optim.WarmupCosineLR(mo.optim.SGD([w]), 5, 5), "does not fit"),
    (lambda w: mo.optim.SequentialLR(mo.optim.SGD([w]), [], []), "no schedule"),
    (lambda w: mo.optim.ReduceLROnPlateau(mo.optim.SGD([w]), "least"), "least"),
    (lambda w: mo.optim.LambdaLR(mo.optim.SGD([w]), []), "0 functions"),
]


@pytest.mark.parametrize(("wrong", "message"), ERRORS)
def test_errors_say_what_is_wrong(wrong: Any, message: str) -> None:
    """Each names the setting, and is raised before anything changes."""
    with pytest.raises(MorphoError, match=message.replace(".", r"\.")):
        wrong(mo.nn.Parameter([1.0]))


def test_a_schedule_inside_a_compiled_function_is_refused() -> None:
    """It would go on once, when the function is traced."""
    w = mo.nn.Parameter([1.0])
    opt = mo.optim.SGD([w], lr=0.1)
    schedule = mo.optim.ExponentialLR(opt, 0.5)
    with pytest.raises(ArgumentError, match="once only"):
        mo.compile(lambda x: (schedule.step(), x)[1])(mo.ones(1))
    with pytest.raises(ArgumentError, match="once only"):
        mo.compile(lambda x: (opt.param_groups[0].__setitem__("lr", 0.3), x)[1])(mo.ones(1))
