"""Tensors on another device: residency, mixing, compiled functions, states, gradients, training, late errors."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import nn, optim
from morpho.backends.registry import backend_of
from morpho.base.errors import DeviceError, MorphoError


def draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype("f")


def test_where_a_tensor_lies(device: str, rng: np.random.Generator) -> None:
    a = draw(rng, 3, 4)
    x = mo.asarray(a).to(device)
    assert x.device == device and mo.asarray(a).device == "cpu"
    assert (x * 2 + 1).device == device and mo.exp(x).realise().device == device
    np.testing.assert_array_equal(x.numpy(), a)
    np.testing.assert_allclose((x[1:, ::-2].T * 2 + 1).numpy(), a[1:, ::-2].T * 2 + 1, rtol=1e-6)
    assert x.to("cpu").device == "cpu" and x.to(device) is x
    assert mo.zeros_like(x).device == device and mo.ones(3, device=device).device == device
    assert mo.asarray(a, device=device).device == device and mo.arange(4, device=device).tolist() == [0, 1, 2, 3]
    assert x.astype(mo.float64).device == device and x.to(mo.float16).dtype is mo.float16
    assert float(mo.sum(x)) == pytest.approx(float(a.sum()), rel=1e-5) and "Tensor(" in repr(x)
    assert x.to_device("cpu").numpy().tobytes() == a.tobytes()


def test_mixing_devices_is_an_error_that_names_both(device: str) -> None:
    x, y, z = mo.ones(3, device=device), mo.ones(3), mo.ones(3, device="delayed:1")
    for left, right, names in ((x, y.realise(), (device, "cpu")), (x, z, (device, "delayed:1"))):
        with pytest.raises(DeviceError) as error:
            left + right
        assert all(name in str(error.value) for name in names) and "test_devices.py" in str(error.value)
    with pytest.raises(DeviceError, match=r"delayed:0.*delayed:1"):
        mo.compile(lambda a, b: a * b)(x, z)
    assert (x + 1.5).tolist() == [2.5] * 3  # numbers go with any device
    with pytest.raises(DeviceError, match="the devices are: cpu"):
        mo.ones(3, device="cuda:7")
    with pytest.raises(DeviceError, match="there are 2"):
        mo.ones(3).to("delayed:2")


def test_a_default_device(device: str) -> None:
    outside = mo.ones(2).realise()
    with mo.device(device):
        x = mo.zeros((2, 2))
        assert x.device == device and mo.asarray([1.0, 2.0]).device == device
        assert (outside * 2).device == "cpu" and (outside * 2).tolist() == [2, 2]
        y = mo.compile(lambda: mo.arange(3) * 2)()
        assert y.device == device and y.tolist() == [0, 2, 4]
    assert (x + 1).device == device and mo.zeros(2).device == "cpu"


def test_the_reference_computes_on_the_memory_of_the_cpu(rng: np.random.Generator) -> None:
    x = mo.asarray(draw(rng, 4, 4))
    f = mo.compile(lambda x: mo.softmax(x @ x))
    native = f(x).numpy()
    with mo.device("reference"):
        np.testing.assert_allclose(f(x).numpy(), native, rtol=1e-5)
        assert f(x).device == "cpu" and "reference" in f.explain()


def test_compiled_functions(device: str, rng: np.random.Generator) -> None:
    a, w = draw(rng, 5, 8), draw(rng, 8, 3)
    captured = mo.asarray(w).to(device)
    f = mo.compile(lambda x: (mo.gelu(x @ captured), {"sum": mo.sum(x, axis=0)}))
    got, more = f(mo.asarray(a).to(device))
    want, rest = f.__wrapped__(mo.asarray(a).to(device))
    assert got.device == device
    np.testing.assert_array_equal(got.numpy(), want.numpy())
    np.testing.assert_array_equal(more["sum"].numpy(), rest["sum"].numpy())
    target = mo.empty((5, 3), device=device)
    again = mo.compile(lambda x: mo.gelu(x @ captured))(mo.asarray(a).to(device), out=target)
    assert again is target and target.numpy().tobytes() == got.numpy().tobytes()
    assert f.stats["native_calls"] == 0 and f.stats["recompiles"] == 0
    on_cpu = mo.compile(lambda x: x * 2)
    assert on_cpu(mo.asarray(a)).device == "cpu" and on_cpu(mo.asarray(a).to(device)).device == device
    assert on_cpu.stats["recompiles"] == 1


def test_dynamic_sizes(device: str, rng: np.random.Generator) -> None:
    f = mo.compile(lambda x: mo.softmax(x, axis=0) * x.shape[0], dynamic={"x": {0: mo.Dim("n", 1, 50)}})
    for count in (1, 7, 50):
        a = draw(rng, count, 3)
        np.testing.assert_allclose(f(mo.asarray(a).to(device)).numpy(), f(mo.asarray(a)).numpy(), rtol=1e-5)


def test_states(device: str) -> None:
    state = mo.State(mo.zeros(3, device=device))

    @mo.compile
    def step(x: Any) -> Any:
        state.value = state.value + x
        return state.value * 2

    x = mo.ones(3, device=device)
    for turn in range(1, 4):
        assert step(x).tolist() == [2.0 * turn] * 3
    assert state.value.device == device and state.value.tolist() == [3, 3, 3]


def test_gradients(device: str, rng: np.random.Generator) -> None:
    a, w = mo.asarray(draw(rng, 4, 5)), mo.asarray(draw(rng, 5, 2))

    def loss(w: Any, a: Any) -> Any:
        return mo.sum(mo.tanh(a @ w) ** 2)

    want = mo.grad(loss)(w, a).numpy()
    got = mo.grad(loss)(w.to(device), a.to(device))
    assert got.device == device
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)
    leaf = w.to(device).requires_grad_()
    loss(leaf, a.to(device)).backward()
    assert leaf.grad.device == device
    np.testing.assert_allclose(leaf.grad.numpy(), want, rtol=1e-4, atol=1e-5)


def test_a_training_step(device: str, rng: np.random.Generator) -> None:
    losses = {}
    data, target = draw(rng, 16, 4), draw(rng, 16, 1)
    for where in ("cpu", device):
        nn.seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1)).to(where)
        optimizer = optim.AdamW(model.parameters(), lr=0.01)
        x, y = mo.asarray(data).to(where), mo.asarray(target).to(where)

        @mo.compile
        def step(x: Any, y: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            found = nn.mse_loss(model(x), y)
            optimizer.zero_grad()
            found.backward()
            optimizer.step()
            return found

        losses[where] = [float(step(x, y)) for _ in range(5)]
        assert all(p.device == where for p in model.parameters())
    np.testing.assert_allclose(losses[device], losses["cpu"], rtol=1e-4)
    assert losses[device][-1] < losses[device][0]


def test_nothing_waits_before_a_value_is_asked_for(device: str) -> None:
    x = mo.ones(1000, device=device)
    for _ in range(30):
        x = (x + 1).realise()
    assert not x._storage.event.done()
    assert x.numpy()[0] == 31


def test_an_error_comes_with_the_value_and_with_what_follows_from_it(device: str) -> None:
    table, good = mo.ones(4, device=device), mo.asarray([1, 3], device=device)
    bad = mo.asarray([1, 9], device=device)
    wrong = mo.take(table, bad, axis=0).realise()  # queued: nothing is known yet
    after = (wrong * 2).realise()
    for tensor in (after, wrong):
        with pytest.raises((MorphoError, IndexError)):
            tensor.numpy()
    assert mo.take(table, good, axis=0).tolist() == [1, 1]  # the device goes on


def test_memory_is_given_back(device: str) -> None:
    device = "delayed:1"  # errors of other tests may hold what they tell of
    backend: Any = backend_of(device)
    gc.collect()
    backend._queue(0, lambda: None).wait()
    before = len(backend.memory)
    x = mo.ones(100, device=device)
    y = (x * 2).realise()
    assert len(backend.memory) >= before + 2
    del x, y
    backend._queue(0, lambda: None).wait()  # what was queued holds its operands
    gc.collect()
    backend._queue(0, lambda: None).wait()
    assert len(backend.memory) <= before


def test_a_backend_of_a_user_s_own(device: str) -> None:
    import delayed

    class Mine(delayed.DelayedBackend):
        def __init__(self) -> None:
            super().__init__(0)
            self.device = "mine"

    mo.extend.backend("mine", Mine())
    try:
        assert (mo.ones(3, device="mine") * 2).tolist() == [2, 2, 2]
    finally:
        mo.extend.remove("mine")
    with pytest.raises(DeviceError, match="mine"):
        mo.ones(3, device="mine")
