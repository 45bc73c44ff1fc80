"""Types and habits of NumPy and PyTorch: devices, dtypes as functions, streams of draws, modules by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo


def test_a_device_is_one() -> None:
    device = mo.device("cpu")
    assert device == "cpu" and device.type == "cpu" and device.index is None and repr(device) == "device('cpu')"
    assert mo.ones(2).to(device).device == "cpu" and mo.zeros(2, device=device).device == "cpu"
    assert mo.nn.Linear(2, 3).to(device).weight.device == "cpu"
    for _ in range(2):
        with mo.device("reference"), mo.device("reference"):
            assert (mo.ones(2) + 1).tolist() == [2.0, 2.0]
    with pytest.raises(mo.errors.DeviceError):
        mo.device("nonsense")


def test_a_dtype_makes_a_tensor() -> None:
    assert mo.float32(3).dtype is mo.float32 and mo.int8([1, 2]).tolist() == [1, 2] and mo.float64(1).shape == ()
    assert mo.float is mo.float32 and mo.long is mo.int64 and mo.double is mo.float64 and mo.dtype("int8") is mo.int8


def test_one_stream_of_draws() -> None:
    def draws() -> list[object]:
        mo.manual_seed(5)
        return [mo.rand(2).tolist(), mo.randn(1, 2).tolist(), mo.randperm(4).tolist(), mo.nn.Linear(1,
            2).weight.tolist(),
                mo.randint(0, 9, (3,)).tolist(), mo.ones(2).uniform_().tolist(), mo.multinomial(mo.ones(4), 2).tolist()]

    assert draws() == draws()
    first, second = (mo.Generator().manual_seed(3) for _ in range(2))
    assert mo.rand(2, generator=first).tolist() == mo.rand(2, generator=second).tolist()


def test_generators_draw_as_numpy_s_are_asked_to() -> None:
    ours, theirs = mo.random.default_rng(1), np.random.default_rng(1)
    with mo.device("reference"):
        for name, args in (("normal", (1.0, 2.0)), ("integers", (0, 9)), ("gamma", (2.0, 3.0)), ("triangular", (0.0,
            1.0, 2.0)),
                           ("exponential", (2.0,)), ("uniform", (-1.0, 3.0)), ("standard_t", (5.0,)), ("wald", (1.0,
                               2.0)),
                           ("zipf", (3.0,)), ("hypergeometric", (5, 6, 4)), ("negative_binomial", (3, 0.4))):
            one, other = getattr(ours, name)(*args, size=1000).numpy(), getattr(theirs, name)(*args, size=1000)
            assert one.dtype == other.dtype and abs(np.median(one) - np.median(other)) <= 0.2 * other.std(), name
        line = mo.arange(6)
        ours.shuffle(line)
        assert sorted(line.tolist()) == list(range(6)) and len(ours.choice(5, 3, replace=False).tolist()) == 3


def test_meanings_that_differ_are_refused_with_both_spellings() -> None:
    x = mo.ones((2, 3))
    for call in (lambda: x.std(dim=0), lambda: x.repeat(2, 1, 1), lambda: x.split(1), lambda: x.transpose(0, 1),
                 lambda: mo.max(x, x), lambda: mo.pad(x, pad=(1, 1)), lambda: x.sort(descending=True)):
        with pytest.raises(mo.errors.ArgumentError, match=r"NumPy.*PyTorch|PyTorch.*NumPy"):
            call()
    assert x.repeat(2, 1).shape == (2, 6) and x.max(1).shape == (2,) and len(x.max(dim=1)) == 2


def test_modules_by_name() -> None:
    model = mo.nn.Sequential(mo.nn.Linear(2, 3), mo.nn.ReLU())
    assert model.get_submodule("0") is model[0] and model.get_parameter("0.weight") is model[0].weight
    assert model.half().get_parameter("0.bias").dtype is mo.float16 and model.double()[0].weight.dtype is mo.float64
    with pytest.raises(AttributeError, match="has no '7'"):
        model.get_submodule("7")
    normed = mo.nn.utils.weight_norm(mo.nn.Linear(2, 3))
    before = normed(mo.ones((1, 2))).numpy()
    mo.nn.utils.remove_weight_norm(normed)
    np.testing.assert_allclose(normed(mo.ones((1, 2))).numpy(), before, rtol=1e-6)
    mo.testing.assert_allclose(mo.ones(2), [1.0, 1.0])
    assert mo.nn.utils.parameters_to_vector(normed.parameters()).shape == (9,)


def test_modules_of_pytorch_are_imported() -> None:
    space: dict[str, Any] = {}
    exec("import morpho.optim.lr_scheduler as s\nfrom morpho.utils.data import DataLoader, TensorDataset\n"
         "import morpho.nn.functional as F\nfrom morpho.func import vmap, functional_call\n"
         "import morpho.nn.utils as u\nfrom morpho.cuda.amp import GradScaler", space)
    assert space["s"].StepLR is mo.optim.StepLR and space["DataLoader"] is mo.data.DataLoader
    assert space["F"].relu is mo.relu and space["GradScaler"] is mo.amp.GradScaler


def test_other_words_are_taken_where_operations_are_computed_at_once() -> None:
    for number in range(40):  # values that are looked at each time
        x = mo.exp(mo.asarray([[1.0, 2.0], [3.0, float(number % 3)]]))
        column = np.exp(x.numpy()).sum(axis=0, keepdims=True)
        np.testing.assert_allclose(mo.sum(mo.exp(x), dim=0, keepdim=True).numpy(), column, rtol=1e-5)
        np.testing.assert_allclose(mo.prod(x, 1).numpy(), np.prod(x.numpy(), 1), rtol=1e-5)
