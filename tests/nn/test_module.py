"""Modules as trees: names, sharing, modes, copies, state dicts, hooks, tables, and mistakes that are said."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import nn
from morpho.base.errors import ArgumentError, DTypeError, ShapeError


class Net(nn.Module):
    """Without super().__init__(), with modules in attributes, lists and dicts."""

    def __init__(self) -> None:
        self.first = nn.Linear(2, 3)
        self.blocks = [nn.Linear(3, 3, bias=False), nn.BatchNorm1d(3)]
        self.heads = {"out": nn.Linear(3, 1)}
        self._scale = nn.Parameter(mo.ones(1))

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        for block in self.blocks:
            x = block(self.first(x) if block is self.blocks[0] else x)
        return self.heads["out"](x) * self._scale


def test_names_are_those_of_the_tree() -> None:
    net = Net()
    assert [name for name, _ in net.named_parameters()] == [
        "_scale", "first.weight", "first.bias", "blocks.0.weight", "blocks.1.weight", "blocks.1.bias",
        "heads.out.weight", "heads.out.bias"]
    assert [name for name, _ in net.named_buffers()] == [
        "blocks.1.running_mean", "blocks.1.running_var", "blocks.1.num_batches_tracked"]
    assert [name for name, _ in net.named_children()] == ["first", "blocks.0", "blocks.1", "heads.out"]
    assert len(list(net.modules())) == 5 and net.parameter_count() == 29
    assert [type(module).__name__ for module in net.children()] == ["Linear", "Linear", "BatchNorm1d", "Linear"]


def test_super_init_may_be_called() -> None:
    class Usual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

    assert len(list(Usual().parameters())) == 2


def test_a_deep_copy_shares_nothing_but_keeps_its_own_sharing() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[1].weight = model[0].weight
    model[0].bias.requires_grad_(False)
    other = copy.deepcopy(model.eval())
    assert other[1].weight is other[0].weight and other[0].weight is not model[0].weight
    assert not other[0].bias.requires_grad and other[1].bias.requires_grad and not other[2].training
    before = model[0].weight.numpy(copy=True)
    other[0].weight.assign(mo.zeros((2, 2)))
    assert np.array_equal(model[0].weight.numpy(), before) and not other[1].weight.numpy().any()
    tensor = mo.asarray([1.0, 2.0])
    same = copy.deepcopy({"a": tensor, "b": tensor, "lazy": tensor + 1, "state": mo.State(tensor)})
    same["a"][0] = 5.0
    assert same["a"] is same["b"] and tensor.tolist() == [1.0, 2.0] and same["lazy"].tolist() == [2.0, 3.0]
    assert same["state"].value.tolist() == [1.0, 2.0]


def test_shared_weights_have_one_name_and_load_under_any() -> None:
    model = nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 4, bias=False))
    model[1].weight = model[0].weight
    assert list(model.state_dict()) == ["0.weight"] and model.parameter_count() == 12
    value = np.arange(12, dtype=np.float32).reshape(4, 3)
    for names in (["0.weight"], ["1.weight"], ["0.weight", "1.weight"]):
        model[0].weight.assign(mo.zeros((4, 3)))
        model.load_state_dict(dict.fromkeys(names, value))
        assert np.array_equal(model[1].weight.numpy(), value)


def test_state_dicts_say_everything_that_does_not_fit() -> None:
    model = nn.Linear(2, 3)
    before = model.weight.numpy(copy=True)
    with pytest.raises(ArgumentError, match="1 missing: bias; 1 unknown: extra; 1 of another shape: weight is"):
        model.load_state_dict({"weight": mo.ones((3, 3)), "extra": mo.ones(1)})
    assert np.array_equal(model.weight.numpy(), before)
    model.load_state_dict({"bias": np.ones(3), "extra": mo.ones(1)}, strict=False)  # NumPy, and converted
    assert model.bias.dtype is mo.float32 and model.bias.numpy().tolist() == [1.0] * 3
    values = model.state_dict()
    model.bias.assign(mo.zeros(3))
    assert values["bias"].numpy().tolist() == [1.0] * 3  # as they were


def test_buffers_that_are_not_kept() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            self.table = nn.Buffer(mo.arange(3), persistent=False)
            self.count = nn.Buffer([0])

    model = Positions()
    assert list(model.state_dict()) == ["count"] and len(list(model.buffers())) == 2
    assert not copy.deepcopy(model).table.persistent
    with pytest.raises(DTypeError, match=r"use nn\.Buffer"):
        nn.Parameter(mo.arange(3))


def test_modes_reach_everything() -> None:
    net = Net()
    assert all(not module.training for module in net.eval().modules())
    assert all(module.training for module in net.train().modules())
    net.requires_grad_(False)
    assert not any(parameter.requires_grad for parameter in net.parameters())
    with pytest.raises(ArgumentError, match="nothing that this value was computed from requires a gradient"):
        net(mo.ones((2, 2))).sum().backward()
    assert net.astype(mo.float64)(mo.ones((2, 2), dtype=mo.float64)).dtype is mo.float64
    assert next(net.buffers()).dtype is mo.float64 and list(net.buffers())[-1].dtype is mo.int64


def test_a_compiled_function_sees_the_mode() -> None:
    layer = nn.Dropout(0.9)
    call = mo.compile(lambda x: layer(x))
    assert (call(mo.ones(50)).numpy() == 0).any()
    layer.eval()
    assert (call(mo.ones(50)).numpy() == 1).all()


def test_sizes_of_a_module_are_named_by_what_forward_takes() -> None:
    call = mo.compile(nn.Linear(3, 4), dynamic={"x": {0: mo.Dim("n", 1, 64)}})
    assert [call(mo.ones((rows, 3))).shape[0] for rows in (2, 5, 9)] == [2, 5, 9] and call.stats["recompiles"] == 0
    assert [*inspect.signature(nn.Linear(3, 4)).parameters] == ["x"]
    with pytest.raises(ArgumentError, match=r"\[Linear\] too many positional arguments"):
        call(mo.ones((2, 3)), 1)
    assert "in_features" in inspect.signature(nn.Linear).parameters
    assert [*inspect.signature(nn.MSELoss).parameters] == ["reduction"]
    assert mo.compile(nn.MSELoss())(mo.ones(3), mo.zeros(3)).item() == 1.0


def test_hooks() -> None:
    layer = nn.Linear(2, 2)
    seen: list[Any] = []
    first = layer.register_forward_hook(lambda module, inputs, result: seen.append((module, inputs[0], result)))
    double = layer.register_forward_hook(lambda module, inputs, result: result * 2)
    before = layer.register_forward_pre_hook(lambda module, inputs: inputs[0] + 1)
    x = mo.zeros((1, 2))
    y = layer(x)
    assert seen[0][0] is layer and np.array_equal(seen[0][1].numpy(), np.ones((1, 2)))
    assert np.array_equal(y.numpy(), 2 * seen[0][2].numpy())
    for handle in (first, double, before):
        handle.remove()
    assert np.array_equal(layer(x).numpy()[0], layer.bias.numpy()) and len(seen) == 1


def test_apply_reaches_every_module() -> None:
    net = Net()
    names: list[str] = []
    assert net.apply(lambda module: names.append(type(module).__name__)) is net
    assert names == ["Net", "Linear", "Linear", "BatchNorm1d", "Linear"]


def test_summary_with_shapes() -> None:
    """No value is computed and nothing is changed."""
    from morpho.runtime.plans.evaluate import counts

    net = Net()
    net.blocks[0].eval()
    before = counts.realisations
    lines = net.summary((5, 2)).splitlines()
    assert counts.realisations == before
    assert lines[0].split() == ["module", "kind", "output", "shapes", "parameters"]
    assert lines[1].split() == ["(self)", "Net", "(5,1)", "(1,)", "1"]
    assert lines[2].split() == ["first", "Linear", "(5,3)", "(3,2)", "(3,)", "9"]
    assert lines[-1].split() == ["total", "29"]
    assert net.training and not net.blocks[0].training and net.blocks[1].num_batches_tracked.item() == 0
    assert "output" not in net.summary() and net.summary(mo.ones((4, 2))).count("(4,3)") == 3
    with pytest.raises(ArgumentError, match="does not take these inputs"):
        net.summary((5, 7))
    assert "(2,3,8) (1,3,8)" in nn.GRU(4, 8).summary((2, 3, 4))


def test_repr_shows_the_tree() -> None:
    text = repr(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.Flatten(), nn.GRU(2, 3)))
    assert text.splitlines() == [
        "Sequential()", "  0: Conv2d(3, 8, 3, padding=1, bias=False)", "  1: BatchNorm2d(8, eps=1e-05, momentum=0.1)",
        "  2: Flatten()", "  3: GRU(2, 3)"]


def test_containers() -> None:
    model = nn.Sequential(nn.Linear(2, 2), mo.relu)
    model.append(nn.Linear(2, 1)).append(mo.sigmoid)
    assert len(model) == 4 and isinstance(model[-1], nn.Lambda) and isinstance(model[:2], nn.Sequential)
    assert model[:2](mo.ones((1, 2))).shape == (1, 2)
    model[0] = nn.Identity(7, any="thing")
    del model[1]
    model.insert(1, nn.Tanh())
    assert [type(layer).__name__ for layer in model] == ["Identity", "Tanh", "Linear", "Lambda"]
    assert [name for name, _ in model.named_parameters()] == ["2.weight", "2.bias"]
    assert len(nn.FusedMLP(2, 3)[:2]) == 2
    heads = nn.ModuleDict({"a": nn.Linear(1, 1)})
    heads["b"] = nn.ReLU()
    assert heads.keys() == ["a", "b"] and "b" in heads and len(heads) == 2 and heads.items()[1][1] is heads["b"]
    del heads["b"]
    with pytest.raises(KeyError):
        heads["b"]
    with pytest.raises(ArgumentError, match="cannot be the name"):
        heads["forward"] = nn.ReLU()
    weights = nn.ParameterList([mo.ones(2), nn.Parameter(mo.zeros(3))])
    assert len(weights) == 2 and [p.shape for p in weights] == [(2,), (3,)] and weights[1].size == 3


def test_mistakes_are_said() -> None:
    x = mo.ones((2, 2))
    with pytest.raises(ArgumentError, match=r"ReLU is a class and not a module.*write ReLU\(\.\.\.\)"):
        nn.Sequential(nn.Linear(2, 2), nn.ReLU)
    with pytest.raises(ArgumentError, match=r"True or False.*write ReLU\(\)\(x\)"):
        nn.ReLU(x)
    with pytest.raises(ArgumentError, match=r"write GELU\(\)\(x\)"):
        nn.GELU(x)
    with pytest.raises(ArgumentError, match="int is not a module"):
        nn.ModuleList([3])
    with pytest.raises(ArgumentError, match=r"wrap a function in nn\.Lambda"):
        nn.ModuleList([mo.relu])
    with pytest.raises(ArgumentError, match=r"weight is a Parameter and is given a plain tensor.*assign"):
        nn.Linear(2, 2).weight = x
    with pytest.raises(ArgumentError, match=r"has no forward\(\)"):
        nn.Module()(x)
    with pytest.raises(AttributeError, match=r"no attribute 'wieght'\. Hint: there is 'weight'"):
        nn.Linear(2, 2).wieght  # noqa: B018
    with pytest.raises(TypeError, match=r"'gpu' is neither a device nor a dtype.*devices are cpu"):
        nn.Linear(2, 2).to("gpu")
    with pytest.raises(ShapeError):
        nn.Linear(2, 2).weight.assign(mo.ones(3))


def test_a_converted_model_is_seen_by_compiled_functions() -> None:
    model, x = nn.Linear(3, 2), mo.ones((1, 3)).realise()
    f, g = mo.compile(lambda x: model(x)), mo.compile(model)
    first = f(x).numpy()
    g(x)
    model.astype(mo.float64)
    assert f(x).dtype is g(x).dtype is mo.float64
    model.astype(mo.float32)
    for parameter in model.parameters():
        parameter.assign(parameter * 2)
    assert f(x).tolist() == g(x).tolist() == (first * 2).tolist()
