"""The native loop over launches: what it hands to the driver, played by a function of this process."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends import registry
from morpho.backends.cuda.backend import CudaBackend
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.cuda.driver.launch_code import MISALIGNED, Kernel, LaunchTable
from morpho.backends.cuda.emulator.device import EmulatedDevice
from morpho.base.errors import IndexFault

ENTRY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p,
                         ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)


def test_launches_get_their_grid_and_addresses() -> None:
    seen: list[tuple[Any, ...]] = []

    def launch(function: int, *rest: Any) -> int:
        words = (ctypes.c_int64 * 11).from_address(rest[8][0])
        seen.append((function, rest[0], rest[3], rest[6], rest[7], list(words)))
        return 0 if function == 5 else 700

    entry = ENTRY(launch)
    address = ctypes.cast(entry, ctypes.c_void_p).value or 0
    words = [(ctypes.c_int64 * 11)(*range(11)) for _ in range(2)]
    table = LaunchTable([Kernel(5, 3, 64, 100, words[0], [(1, 16, 15), (-1, 0, 0)], -1, 8),
                         Kernel(6, 7, 32, 0, words[1], [(0, 8, 0)], 4, 8)], 2)
    assert table.launch([1000, 1600], 99, 500, 42, address) == 700
    assert seen[0] == (5, 3, 64, 100, 42, [0, 1, 2, 3, 99, 5, 0, 7, 1616, 0, 10])
    assert seen[1] == (6, 7, 32, 0, 42, [0, 1, 2, 3, 99, 5, 504, 7, 1008, 9, 10])
    assert table.launch([1000, 1601], 99, 500, 42, address) == MISALIGNED and len(seen) == 2
    assert LaunchTable([], 0).launch([], 0, 0, 42, address) == 0


class Handle:
    """A kernel of the emulator with a number, as the driver's have."""

    def __init__(self, kernel: Any, value: int) -> None:
        self.kernel, self.value = kernel, value


class Native(EmulatedDevice):
    """An emulated device whose launches come from the native loop."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Handle] = []
        self.entry = ENTRY(self._launched)
        self.from_table = 0

    def load(self, image: bytes, name: str) -> Any:
        self.kernels.append(Handle(super().load(image, name), len(self.kernels) + 1))
        return self.kernels[-1]

    def launch(self, function: Any, geometry: Geometry, words: Any, stream: int) -> None:
        super().launch(function.kernel, geometry, words, stream)

    def launch_entry(self) -> int:
        return ctypes.cast(self.entry, ctypes.c_void_p).value or 0

    def _launched(self, function: int, blocks: int, y: int, z: int, threads: int, ty: int, tz: int, shared: int,
                  stream: int, arguments: Any, extra: Any) -> int:
        words = (ctypes.c_int64 * 64).from_address(arguments[0])
        super().launch(self.kernels[function - 1].kernel, Geometry(blocks, threads, shared), words, 0)
        return 0

    def launch_all(self, table: LaunchTable, slots: list[int], scratch: int, faults: int, stream: int) -> bool:
        self.from_table += 1
        return table.launch(slots, scratch, faults, None, self.launch_entry()) == 0


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Native()
    monkeypatch.setitem(registry._kinds, "cuda", registry.Kind(lambda n: CudaBackend("cuda:0", found), lambda: 1, True))
    registry._made.pop("cuda:0", None)
    yield found
    registry._made.pop("cuda:0", None)


def test_programs_run_from_a_table(native: Native, rng: np.random.Generator) -> None:
    a = rng.standard_normal((6, 64)).astype("f")
    f = mo.compile(lambda x: (mo.softmax(x @ x.T, axis=-1), mo.take(x, mo.argmax(x, axis=0) % 6, axis=0)))
    there, here = f(mo.asarray(a, device="cuda")), f(mo.asarray(a))
    assert native.from_table > 0 and native.launches > 1
    for got, want in zip(there, here, strict=True):
        assert got.numpy().tobytes() == want.numpy().tobytes()
    with pytest.raises(IndexFault, match="outside its axis"):
        mo.take(mo.asarray(a, device="cuda"), mo.asarray(np.array([9]), device="cuda"), axis=0).numpy()
