"""Tensors on a GPU, an emulated one: residency, training, random numbers, faults; and what is said without one."""

from __future__ import annotations

import re
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


def test_what_is_no_tensor_follows_tensors_to_their_device(gpu: str) -> None:
    a = np.linspace(-1, 1, 12, dtype="f").reshape(3, 4)
    x = mo.asarray(a, device=gpu)

    def several(t: Any) -> Any:
        return (t * np.float32(2), np.float64(2) + t, t - [1, 2, 3, 4], t[[2, 0]], mo.maximum(t, np.float32(0)),
                t.at[0, [1, 3]].set(np.float32(5)), mo.where(t > 0, t, np.float32(7)), t[mo.triu_indices(3)],
                mo.insert(t[0], 1, 5.0), mo.repeat(t, [1, 0, 2], axis=0))

    agree(several, a, gpu)
    assert (x + a).device == gpu and x[np.array([True, False, True])].shape == (2, 4)
    read = mo.asarray(a[0])
    for g in (lambda t: t + read, mo.compile(lambda t: t + read), mo.compile(lambda t: t + a[0])):
        with pytest.raises(DeviceError, match="lie on cuda_emulated:0 and on cpu"):
            g(x)


def agree(several: Any, a: np.ndarray, gpu: str) -> None:
    """The results of a function lie on the GPU and have the CPU's bits, without and with `compile`."""
    for f in (several, mo.compile(several)):
        there, here = f(mo.asarray(a, device=gpu)), f(mo.asarray(a))
        mo.realise(*there)
        for one, other in zip(there, here, strict=True):
            assert one.device == gpu and one.numpy().tobytes() == other.numpy().tobytes()


def test_functions_with_tables_of_their_own(gpu: str, rng: np.random.Generator) -> None:
    def several(t: Any) -> Any:
        return (mo.avg_pool2d(t, 2, padding=1), mo.max_pool2d(t, 2, return_indices=True)[1], mo.median(t),
                mo.pad(t, [(0, 0), (0, 0), (2, 2), (3, 3)], mode="reflect"), mo.quantile(t, [0.1, 0.7], axis=-1),
                mo.histogram(t, 4)[0], mo.histogram(t, [-1, 0, 2])[0])

    agree(several, rng.standard_normal((1, 2, 6, 7)).astype("f"), gpu)


def test_dropout_draws_where_its_input_lies(gpu: str) -> None:
    """The sequence of keys is one for all devices: the same zeros as on the CPU, eager, compiled, and after a seed."""
    found = []
    for device in ("cpu", gpu):
        nn.seed(5)
        model = nn.Sequential(nn.Linear(4, 40), nn.Dropout(0.5)).to(device)
        f, x = mo.compile(lambda t, model=model: model(t)), mo.ones((2, 4)).to(device)
        found.append([g(x).numpy().tobytes() for g in (model, f, f)] + [nn.Linear(2, 2).weight.numpy().tobytes()])
        assert nn.Linear(2, 2).weight.device == "cpu"
        nn.seed(6)
        found[-1] += [f(x).numpy().tobytes(), f(x).numpy().tobytes()]
    assert found[0] == found[1] and len(set(found[0])) == 6


def test_results_whose_size_is_data_lie_beside_their_operand(gpu: str) -> None:
    a = np.array([3, 0, 3, 5], np.float32)
    for f in (lambda t: t[t > 1], lambda t: mo.nonzero(t)[0], mo.unique_values, mo.argwhere, mo.flatnonzero,
              mo.unique_consecutive, lambda t: t[mo.nonzero(t)]):
        there, here = f(mo.asarray(a, device=gpu)), f(mo.asarray(a))
        assert there.device == gpu and there.tolist() == here.tolist()


def test_a_tensor_that_is_written_stays_where_it_lies(gpu: str) -> None:
    here, there = mo.asarray(np.ones(3, "f")), mo.asarray(np.full(3, 2, "f"), device=gpu)
    for key in (slice(None), Ellipsis, 1):
        with pytest.raises(DeviceError, match="lie"):
            here[key] = there[key]
    assert here.device == "cpu" and here.tolist() == [1, 1, 1]
    there[1:] = np.float32(4)
    assert there.device == gpu and there.tolist() == [2, 4, 4]
    there[...] = 0.0
    assert there.device == gpu and (there + 1).tolist() == [1, 1, 1]


class Handle:
    """What a library that is loaded has."""

    def __init__(self, **functions: Any) -> None:
        self.__dict__.update(functions)


def silent(status: int, text: Any) -> int:
    return 1


@pytest.mark.parametrize(("found", "said"), [
    (OSError("libcuda.so.1: cannot open shared object file: No such file or directory"), "no NVIDIA driver is"),
    (OSError("libcuda.so.1: file too short"), r"cannot be loaded \(libcuda.so.1: file too short\)"),
    (Handle(), "is no NVIDIA driver"),
    (Handle(cuInit=lambda flags: 34, cuGetErrorString=silent, cuDeviceGetCount=None), "not start .cuInit: status 34"),
    (Handle(cuInit=lambda flags: 100, cuGetErrorString=silent, cuDeviceGetCount=None), "sees no GPU"),
    (Handle(cuInit=lambda flags: 0, cuGetErrorString=silent), "it has no cuDeviceGetCount"),
])
def test_a_driver_that_is_none_is_one_sentence(monkeypatch: pytest.MonkeyPatch, found: Any, said: str) -> None:
    def load(name: str) -> Any:
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(library.ctypes, "CDLL", load)
    library._found.cache_clear()
    try:
        assert re.search(said, library.why_not())
        with pytest.raises(DeviceError, match=said):
            mo.ones(3).to("cuda")
    finally:
        monkeypatch.undo()
        library._found.cache_clear()


def scaled(device: str) -> list[float]:
    nn.seed(1)
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.25)).to(device)
    optimiser, scaler = optim.SGD(model.parameters(), lr=0.1), mo.amp.GradScaler(growth_interval=2)

    def step(x: Any) -> Any:
        optimiser.zero_grad()
        loss = mo.mean(mo.square(model(x)))
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        return loss

    compiled, x = mo.compile(step), mo.ones((3, 4)).to(device)
    return [f(x).item() for f in (step, compiled, compiled)] + [scaler.get_scale()]


def test_a_scaler_lies_where_the_loss_does(gpu: str) -> None:
    """Loss scaling and dropout on a GPU: the CPU's losses and scales."""
    there, here = scaled(gpu), scaled("cpu")
    assert there == here and here[3] == 131072.0


def test_what_draws_elsewhere_between_calls_compiles_nothing_anew(gpu: str) -> None:
    """The sequence of keys follows to where it is drawn from: layers are made on the CPU, dropout is on the GPU."""
    found = {}
    for device in ("cpu", gpu):
        mo.nn.seed(3)
        there, here = mo.nn.Dropout(0.5).to(device), mo.nn.Dropout(0.5)
        f, g = mo.compile(lambda x, layer=there: layer(x)), mo.compile(lambda x, layer=here: layer(x))
        x, y, rows = mo.ones(40, device=device), mo.ones(40), []
        for _ in range(3):
            rows += [f(x).numpy(), mo.nn.Linear(3, 2).weight.numpy().ravel(), g(y).numpy()]
        assert f.recompiles == g.recompiles == 0
        found[device] = np.concatenate(rows)
    assert np.array_equal(found["cpu"], found[gpu])


def test_one_scaler_on_two_devices_compiles_nothing_anew(gpu: str) -> None:
    scaler = mo.amp.GradScaler(init_scale=4.0)
    f = mo.compile(lambda loss: scaler.scale(loss))
    for _ in range(3):
        assert f(mo.ones(2, device=gpu)).tolist() == scaler.scale(mo.ones(2)).tolist() == [4.0, 4.0]
    assert f.recompiles == 0
