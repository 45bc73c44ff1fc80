"""libcuda's functions over the emulated device, for the code that calls the driver: each can be made to fail."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from morpho.backends.cuda.driver import device
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.cuda.driver.library import Library
from morpho.backends.cuda.emulator.addresses import on_device
from morpho.backends.cuda.emulator.device import EmulatedDevice

INT, LONG, POINTER = ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p
ATTRIBUTES = {16: 4, 75: 8, 76: 0, 97: 163 << 10, 38: 1 << 20}  # an Ampere's
REFUSED = 999
NATIVE = {"cuCtxSetCurrent": (POINTER,), "cuLaunchKernel": (POINTER, *[ctypes.c_uint] * 7, POINTER, POINTER, POINTER),
          "cuGraphLaunch": (POINTER, POINTER), "cuStreamBeginCapture_v2": (POINTER, INT),
          "cuStreamEndCapture": (POINTER, POINTER), "cuGraphInstantiateWithFlags": (POINTER, POINTER, LONG),
          "cuGraphExecDestroy": (POINTER,), "cuGraphDestroy": (POINTER,)}


def number(value: Any) -> int:
    """Of an argument of any kind of ctypes'."""
    return int(getattr(value, "value", value) or 0)


def put(place: Any, value: int, kind: Any = ctypes.c_uint64) -> None:
    """Write what a function gives, to a reference or an address."""
    if hasattr(place, "_obj"):
        place._obj.value = value
    else:
        kind.from_address(number(place)).value = value


class FakeDriver:
    """Functions return statuses. `fails[name]`: the numbers of its calls that fail, the first being 0."""

    def __init__(self) -> None:
        self.under = EmulatedDevice(capability=(8, 0))
        self.fails: dict[str, set[int]] = {}
        self.seen: dict[str, int] = {}
        self.last = 0
        kinds = ("event", "stream", "module", "graph", "exec", "memory")
        self.alive: dict[str, set[int]] = {name: set() for name in kinds}
        self.kernels: dict[int, Any] = {}
        self.nodes: dict[int, list[Any]] = {}
        self.recorded: list[Any] | None = None
        self.pinned: list[Any] = []
        self.native = {name: ctypes.CFUNCTYPE(INT, *kinds)(self._counted(name)) for name, kinds in NATIVE.items()}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        found = self.__dict__.get("native", {}).get(name)
        if found is None and f"_{name}" not in dir(type(self)):
            raise AttributeError(name)
        return found or self._counted(name)

    def _counted(self, name: str) -> Any:
        inner = getattr(self, f"_{name}")

        def called(*arguments: Any) -> int:
            turn = self.seen[name] = self.seen.get(name, -1) + 1
            if turn in self.fails.get(name, ()):
                if name == "cuStreamEndCapture":
                    self.recorded = None
                return REFUSED
            return inner(*arguments) or 0

        return called

    def made(self, kind: str) -> int:
        """A handle."""
        self.last += 1
        self.alive[kind].add(self.last)
        return self.last

    # -- the driver's functions ----------------------------------------------------------------------------------------
    def _cuGetErrorString(self, status: int, place: Any) -> None:
        place._obj.value = b"refused"

    def _cuDeviceGet(self, place: Any, which: int) -> None:
        put(place, 0)

    def _cuDevicePrimaryCtxRetain(self, place: Any, handle: int) -> None:
        put(place, 1)

    def _cuCtxSetCurrent(self, context: Any) -> None:
        pass

    def _cuDeviceGetAttribute(self, place: Any, which: int, handle: int) -> None:
        put(place, ATTRIBUTES[which])

    def _cuDeviceGetName(self, place: Any, size: int, handle: int) -> None:
        place.value = b"fake"

    def _cuDeviceTotalMem_v2(self, place: Any, handle: int) -> None:
        put(place, 8 << 30)

    def _cuDriverGetVersion(self, place: Any) -> None:
        put(place, 12000)

    def _cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        put(free, self.under.free_bytes())
        put(total, 8 << 30)

    def _cuStreamCreate(self, place: Any, flags: int) -> None:
        put(place, self.made("stream"))

    def _cuStreamSynchronize(self, stream: Any) -> None:
        assert number(stream) in self.alive["stream"]

    def _cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:
        assert number(event) in self.alive["event"]

    def _cuEventCreate(self, place: Any, flags: int) -> None:
        put(place, self.made("event"))

    def _cuEventRecord(self, event: Any, stream: Any) -> None:
        assert number(event) in self.alive["event"]

    _cuEventQuery = _cuEventSynchronize = lambda self, event: None

    def _cuEventElapsedTime(self, place: Any, first: Any, last: Any) -> None:
        place._obj.value = 1.0

    def _cuEventDestroy_v2(self, event: Any) -> None:
        self.alive["event"].remove(number(event))

    def _cuMemAlloc_v2(self, place: Any, nbytes: Any) -> None:
        address = self.under.allocate(number(nbytes))
        self.alive["memory"].add(address)
        put(place, address)

    def _cuMemFree_v2(self, address: Any) -> None:
        self.alive["memory"].remove(number(address))
        self.under.free(number(address), 0)

    def _cuMemHostAlloc(self, place: Any, nbytes: Any, flags: int) -> None:
        self.pinned.append((ctypes.c_uint8 * number(nbytes))())
        put(place, ctypes.addressof(self.pinned[-1]))

    def _cuMemcpyHtoDAsync_v2(self, target: Any, source: Any, nbytes: Any, stream: Any) -> None:
        self.under.copy_in(number(target), ctypes.string_at(number(source), number(nbytes)), 0)

    def _cuMemcpyDtoHAsync_v2(self, target: Any, source: Any, nbytes: Any, stream: Any) -> None:
        room = (ctypes.c_uint8 * number(nbytes)).from_address(number(target))
        self.under.copy_out(number(source), memoryview(room), 0)

    def _cuMemcpyDtoDAsync_v2(self, target: Any, source: Any, nbytes: Any, stream: Any) -> None:
        self.under.copy(number(source), number(target), number(nbytes), 0)

    def _cuMemsetD8Async(self, target: Any, value: Any, nbytes: Any, stream: Any) -> None:
        self.under.zero(number(target), number(nbytes), 0)

    def _cuModuleLoadDataEx(self, place: Any, image: bytes, count: int, options: Any, values: Any) -> None:
        handle = self.made("module")
        self.kernels[handle] = self.under.load(image[:-1], "kernel_main")
        put(place, handle)

    def _cuModuleUnload(self, module: Any) -> None:
        self.alive["module"].remove(number(module))

    def _cuModuleGetFunction(self, place: Any, module: Any, name: bytes) -> None:
        put(place, number(module))

    def _cuFuncGetAttribute(self, place: Any, which: int, function: Any) -> None:
        put(place, 0)

    def _cuFuncSetAttribute(self, function: Any, which: int, value: int) -> None:
        pass

    def _cuLaunchKernel(self, function: Any, blocks: int, y: int, z: int, threads: int, ty: int, tz: int, shared: int,
                        stream: Any, arguments: Any, extra: Any) -> None:
        kernel, words = self.kernels[number(function)], []
        place = POINTER.from_address(number(ctypes.cast(arguments, POINTER))).value or 0
        for word in (ctypes.c_int64 * kernel[3]).from_address(place):
            held = any(ctypes.addressof(room) <= word < ctypes.addressof(room) + len(room) for room in self.pinned)
            words.append(on_device(word) if held else word)
        work = kernel, Geometry(blocks, threads, shared), (ctypes.c_int64 * len(words))(*words)
        if self.recorded is None:
            self.under.launch(*work, 0)
        else:
            self.recorded.append(work)

    def _cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> None:
        assert self.recorded is None
        self.recorded = []

    def _cuStreamEndCapture(self, stream: Any, place: Any) -> None:
        assert self.recorded is not None
        handle = self.made("graph")
        self.nodes[handle], self.recorded = self.recorded, None
        put(place, handle)

    def _cuGraphInstantiateWithFlags(self, place: Any, graph: Any, flags: int) -> None:
        handle = self.made("exec")
        self.nodes[handle] = self.nodes[number(graph)]
        put(place, handle)

    def _cuGraphLaunch(self, handle: Any, stream: Any) -> None:
        assert number(handle) in self.alive["exec"]
        for work in self.nodes[number(handle)]:
            self.under.launch(*work, 0)

    def _cuGraphExecDestroy(self, handle: Any) -> None:
        self.alive["exec"].remove(number(handle))

    def _cuGraphDestroy(self, handle: Any) -> None:
        self.alive["graph"].remove(number(handle))


@cache
def built(text: str) -> bytes:
    """Code of this machine's, made once."""
    return EmulatedDevice(capability=(8, 0)).build(text)


class OverFake(device.CudaDevice):
    """The device that talks to the driver, over the fake one. Kernels are the emulator's."""

    def build(self, text: str) -> bytes:
        """Code of this machine's."""
        return built(text)


def fake(driver: FakeDriver, patch: Any) -> OverFake:
    """The device over a fake driver."""
    patch.setattr(device, "library", lambda: Library(driver))
    patch.setattr(device, "assembler", lambda: None)
    return OverFake(0)
