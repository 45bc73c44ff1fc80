"""Tensors on a GPU, an emulated one: residency, training, random numbers, faults; and what is said without one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import nn, optim
from morpho.backends.cuda.driver import library
from morpho.backends.registry import backend_of
from morpho.base.errors import ArgumentError, DeviceError, IndexFault
from morpho.ir.graph import Graph
from morpho.ir.node import build


def test_without_a_gpu_one_sentence_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_found", lambda: (None, "no NVIDIA driver is installed (libcuda.so.1 was not found)"))
    assert not [name for name in mo.devices() if name.startswith("cuda:")]
    assert "no NVIDIA driver" in library.why_not()
    for call in (lambda: mo.ones(3, device="cuda"), lambda: mo.ones(3).to("cuda:0")):
        with pytest.raises(DeviceError, match=r"no NVIDIA driver is installed.*the devices are: cpu") as error:
            call()
        assert "test_gpu.py" in str(error.value)


def test_residency(gpu: str, rng: np.random.Generator) -> None:
    a = rng.standard_normal((5, 300)).astype("f")
    x = mo.asarray(a, device=gpu)
    assert x.device == gpu and (x * 2).device == gpu
    with pytest.raises(DeviceError, match="cpu"):
        _ = x + mo.asarray(a).realise()
    f = mo.compile(lambda t: mo.softmax(mo.gelu(t * 2 + 1), axis=-1))
    assert f(x).numpy().tobytes() == f(mo.asarray(a)).numpy().tobytes()
    view = x[1:, ::-3]
    here = mo.sum(mo.asarray(a)[1:, ::-3], axis=0) + 1
    assert (mo.sum(view, axis=0) + 1).numpy().tobytes() == here.numpy().tobytes()


def test_random_numbers_are_the_cpus(gpu: str) -> None:
    drawn = []
    for device in (gpu, "cpu"):
        with mo.device(device):
            x = mo.random.normal(mo.random.key(7), (100,)).realise()
            drawn.append(x.numpy())
            assert x.device == device
    assert drawn[0].tobytes() == drawn[1].tobytes()


def test_a_wrong_index_is_told_at_the_line(gpu: str) -> None:
    x, wrong = mo.ones((4, 3), device=gpu), mo.asarray(np.array([1, 9]), device=gpu)
    with pytest.raises(IndexFault, match=r"outside its axis.*test_gpu.py"):
        mo.take(x, wrong, axis=0).numpy()
    assert mo.sum(x).item() == 12  # the device goes on


def trained(device: str) -> list[Any]:
    nn.seed(0)
    model = nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.LayerNorm(20), nn.Linear(20, 5)).to(device)
    optimiser = optim.AdamW(model.parameters(), lr=1e-2)
    rng = np.random.default_rng(0)
    x = mo.asarray(rng.standard_normal((16, 12)).astype("f"), device=device)
    y = mo.asarray(rng.integers(0, 5, 16), device=device)

    @mo.compile
    def step(x: Any, y: Any) -> Any:
        loss = nn.cross_entropy(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss

    return [float(step(x, y)) for _ in range(3)] + [model[0].weight.numpy()]


def test_a_training_step_has_the_cpus_bits(gpu: str) -> None:
    there, here = trained(gpu), trained("cpu")
    assert there[:3] == here[:3] and there[2] < there[0]
    assert there[3].tobytes() == here[3].tobytes()


def test_bytes_that_are_no_code_are_refused(gpu: str) -> None:
    backend = backend_of(gpu)
    graph = Graph((build("exp", build("parameter", index=0, shape=(3,), dtype=mo.float32)),))
    code = backend.compile(backend.lower(graph))
    backend.load(code)
    for wrong in (b"", b"x" * 100, code[:40], code[:-5]):
        with pytest.raises(ArgumentError, match="no code of the cuda backend"):
            backend.load(wrong)


def test_rows_without_elements(gpu: str) -> None:
    for shape in ((0,), (0, 2), (3, 0)):
        x = mo.asarray(np.zeros(shape, np.float32), device=gpu)
        assert mo.softmax(x, axis=-1).numpy().shape == shape
        assert mo.grad(lambda t: mo.sum(mo.softmax(t, axis=-1) * t))(x).numpy().shape == shape


def test_a_model_that_moves_is_seen_by_compiled_functions(gpu: str) -> None:
    """Also one that comes back: what was compiled before has neither its old weights nor the other device's memory."""
    model, here = nn.Linear(3, 2), mo.asarray(np.ones((1, 3), np.float32))
    there = here.to(gpu)
    f = mo.compile(lambda x: model(x))
    first = f(here).numpy()
    model.to(gpu)
    with pytest.raises(DeviceError, match="lie on cpu and on cuda_emulated:0"):
        f(here)
    assert f(there).numpy().tobytes() == first.tobytes()
    model.weight.assign(model.weight * 2)
    model.bias.assign(model.bias * 2)
    assert f(there).numpy().tobytes() == (first * 2).tobytes()
    model.to("cpu")
    with pytest.raises(DeviceError, match="lie on cuda_emulated:0 and on cpu"):
        f(there)
    assert f(here).numpy().tobytes() == (first * 2).tobytes()


def test_a_state_that_moves(gpu: str) -> None:
    total, here = mo.State(mo.zeros(3)), mo.asarray(np.arange(3, dtype="f"))

    @mo.compile
    def add(x: Any) -> Any:
        total.value = total.value + x
        return total.value * 1

    assert add(here).tolist() == [0, 1, 2] and add(here).tolist() == [0, 2, 4]
    total.value = total.value.to(gpu)
    with pytest.raises(DeviceError, match="lie on"):
        add(here)
    assert add(here.to(gpu)).tolist() == [0, 3, 6]
    total.value = mo.zeros(3)
    assert add(here).tolist() == [0, 1, 2] and total.value.device == "cpu"


def test_results_into_memory_of_another_device(gpu: str) -> None:
    f, x = mo.compile(lambda t: t + 1), mo.asarray(np.arange(3, dtype="f"))
    other = gpu.replace(":0", ":1")
    for given, out in ((x, gpu), (x.to(gpu), "cpu"), (x.to(gpu), other)):
        place = mo.zeros(3, device=out).realise()
        for _ in range(2):
            with pytest.raises(DeviceError, match=rf"out= lies on {out}, the result on {given.device}"):
                f(given, out=place)
        assert place.tolist() == [0, 0, 0]
