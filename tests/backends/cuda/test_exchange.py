"""Device memory shared with other libraries: a fake one, over an emulated GPU that has the place of the real one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends import registry
from morpho.backends.cuda.backend import CudaBackend
from morpho.backends.cuda.emulator.device import EmulatedDevice
from morpho.base.errors import DeviceError
from morpho.tensor.interop.capsule import live_exports, open_capsule


class Watched(EmulatedDevice):
    """It says what its memory would be on a GPU, and writes down who waits for whom."""

    def __init__(self) -> None:
        super().__init__()
        self.dlpack_device = (2, 0)
        self.waits: list[tuple[str, int]] = []

    def stream_handle(self) -> int:
        return 77

    def let_wait(self, stream: int) -> None:
        self.waits.append(("they", stream))

    def wait_for_stream(self, stream: int) -> None:
        self.waits.append(("we", stream))

    def synchronize(self) -> None:
        self.waits.append(("host", 0))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    found = Watched()
    monkeypatch.setitem(registry._kinds, "cuda", registry.Kind(lambda n: CudaBackend("cuda:0", found), lambda: 1, True))
    registry._made.pop("cuda:0", None)
    yield found
    gc.collect()
    registry._made.pop("cuda:0", None)


class Other:
    """Another library's array."""

    def __init__(self, tensor: Any) -> None:
        self.tensor, self.asked = tensor, {}

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        self.asked = options
        return self.tensor.__dlpack__(**options)


def test_both_ways_without_a_copy(device: Watched) -> None:
    x = mo.asarray(np.arange(12, dtype="f").reshape(3, 4), device="cuda").realise()
    assert x.__dlpack_device__() == (2, 0)
    other, before = Other(x), live_exports()
    y = mo.from_dlpack(other)
    assert y.device == "cuda:0" and other.asked["stream"] == 77 and ("they", 77) in device.waits
    assert (y * 2).tolist() == (np.arange(12).reshape(3, 4) * 2).tolist()
    assert y.elements().address == x.elements().address and live_exports() == before + 1
    del y
    gc.collect()
    assert live_exports() == before and device.waits[-2:] == [("host", 0), ("we", 77)]


def test_streams_and_copies(device: Watched) -> None:
    x = mo.asarray(np.arange(5, dtype="f"), device="cuda").realise()
    capsules = [x.__dlpack__(max_version=(1, 0)), x.__dlpack__(max_version=(1, 0), stream=2)]
    assert device.waits[:2] == [("they", 1), ("they", 2)]
    del capsules  # nobody took them: they are given back at once
    assert device.waits[2:] == [("we", 1), ("we", 1)]  # another thread's own default stream would be another one
    count = len([w for w in device.waits if w[0] == "they"])
    x.__dlpack__(max_version=(1, 0), stream=-1)
    assert len([w for w in device.waits if w[0] == "they"]) == count
    for stream in (0, -2, True, "1", 1.0):
        with pytest.raises(DeviceError, match="is not a stream"):
            x.__dlpack__(stream=stream)
    assert np.from_dlpack(Host(x)).tolist() == [0, 1, 2, 3, 4]
    assert mo.from_dlpack(Other(x), device="cpu").device == "cpu"
    for kind in (DeviceError, ValueError, BufferError):
        with pytest.raises(kind, match="copy=False"):
            mo.from_dlpack(Other(x), device="cpu", copy=False)


def test_copies_on_the_host_are_the_consumers_own(device: Watched, gpu: str) -> None:
    for name in ("cuda", gpu):  # the emulated one's addresses are nobody's but its own
        x = mo.asarray(np.arange(5, dtype="f"), device=name).realise()
        for copy in (None, True):
            capsule = x.__dlpack__(dl_device=(1, 0), max_version=(1, 0), copy=copy)
            found = open_capsule(capsule)
            assert found.device == (1, 0) and not found.read_only
        for asked, said in (({"stream": 1}, "means nothing"), ({"copy": False}, "not on device"),
                            ({"dl_device": (4, 0)}, "not on device"), ({"dl_device": (1, 1)}, "not on device"),
                            ({"dl_device": 1}, "two numbers")):
            with pytest.raises(BufferError, match=said):
                x.__dlpack__(**{"dl_device": (1, 0), "max_version": (1, 0), **asked})
    with pytest.raises(BufferError, match="cannot address"):
        x.__dlpack__()
    with pytest.raises(BufferError, match="cannot address"):
        x.__dlpack_device__()


def test_capsules_of_versions(device: Watched) -> None:
    x = mo.ones(3, device="cuda").realise()
    for version, copies in ((None, True), ((0, 8), True), ((1, 0), False), ((1, 9), False), ((2, 0), False)):
        found = open_capsule(x.__dlpack__(max_version=version))
        assert found.read_only is True and (found.address != x.elements().address) is copies
        if copies:
            with pytest.raises(BufferError, match="read-only"):
                x.__dlpack__(max_version=version, copy=False)


class Host(Other):
    """It asks for a copy on the host."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(dl_device=(1, 0), max_version=(1, 0))


def test_the_cuda_array_interface(device: Watched) -> None:
    x = mo.asarray(np.arange(12, dtype="f").reshape(3, 4), device="cuda")
    found = x[1:, ::2].__cuda_array_interface__
    assert found["shape"] == (2, 2) and found["typestr"] == "<f4" and found["version"] == 3 and found["stream"] == 77
    assert found["data"][1] is True
    assert not hasattr(mo.ones(3), "__cuda_array_interface__")
    assert not hasattr(x.astype(mo.bfloat16), "__cuda_array_interface__")


def test_models_move_by_the_kind_of_a_device(device: Watched) -> None:
    model = mo.nn.Linear(3, 2).to("cuda")
    assert model.weight.device == "cuda:0" and model(mo.ones((1, 3), device="cuda")).device == "cuda:0"


def test_checkpoints_and_states_go_to_where_the_model_lies(device: Watched, tmp_path: Any) -> None:
    here, there = mo.nn.Linear(3, 2), mo.nn.Linear(3, 2).to("cuda")
    mo.weights.save(tmp_path / "w.safetensors", here.state_dict())
    there.load_state_dict(mo.weights.load(tmp_path / "w.safetensors"))
    assert there.weight.device == "cuda:0" and np.array_equal(there.weight.numpy(), here.weight.numpy())
    assert mo.weights.load(tmp_path / "w.safetensors", device="cuda")["bias"].device == "cuda:0"
    mine, others = (mo.optim.AdamW(model.parameters(), lr=1e-2) for model in (there, here))
    mine.load_state_dict(others.state_dict())
    assert {state.device for state in mine.state_dict()["slots"].values()} == {"cuda:0"}
    mo.sum(there(mo.ones((1, 3), device="cuda")) ** 2).backward()
    mine.step()
    assert there.weight.device == "cuda:0"


def test_a_gpu_is_a_node_of_the_planner(device: Watched, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from morpho.cli.planning import measure

    rates = {"memory_bytes": 8e9, "memory_bytes_per_s": 4e12, "f32": 2e13, "bf16": 7e14, "link_bytes_per_s": 1.5e10,
             "call_s": 2e-5}
    monkeypatch.setattr(measure, "node_rates", lambda backend: rates)
    host = {"memory_bytes": 64e9, "memory_bytes_per_s": 1e11, "f32": 1e12}
    (tmp_path / "c.toml").write_text(measure.node_block("here", host) + "".join(measure.gpu_blocks("here")))
    found = mo.plan.Cluster.load(tmp_path / "c.toml")
    assert [node.name for node in found.nodes] == ["here", "here-cuda0"]
    assert found.link("here", "here-cuda0").bandwidth_bytes_per_s == 1.5e10
