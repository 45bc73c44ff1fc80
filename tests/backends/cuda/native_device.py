"""An emulated device whose programs are launched from native code, as the driver's are."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from morpho.backends.cuda.driver.free_blocks import FreeBlocks
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.cuda.driver.launch_code import LaunchTable
from morpho.backends.cuda.driver.memory import size_class
from morpho.backends.cuda.emulator.device import EmulatedDevice

ENTRY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p,
                         ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
WORDS = 512  # of a launch, at most


class Handle:
    """A kernel of the emulator with a number, as the driver's have."""

    def __init__(self, kernel: Any, value: int) -> None:
        self.kernel, self.value = kernel, value


INT, POINTER = ctypes.c_int, ctypes.c_void_p


class Native(EmulatedDevice):
    """An emulated device whose launches and graphs come from native code, to functions with the driver's names."""

    def __init__(self) -> None:
        super().__init__()
        free = weakref.WeakMethod(self.free)  # the stacks are never freed, this device is

        def more(address: int, nbytes: int) -> None:
            found = free()
            if found is not None:
                found(address, nbytes)

        self.pool = FreeBlocks(more)
        self.sizes: dict[int, int] = {}
        self.given_back = 0  # blocks, through Python
        self.kernels: list[Handle] = []
        self.entry = ENTRY(self._launched)
        self.from_table = self.replays = 0
        self.recorded: list[Any] | None = None
        self.graphs: list[list[Any]] = []
        self.counter = ctypes.c_int64(0)
        kinds = {"cuCtxSetCurrent": (POINTER,), "cuGraphLaunch": (POINTER, POINTER),
                 "cuStreamBeginCapture_v2": (POINTER, INT), "cuStreamEndCapture": (POINTER, ctypes.POINTER(POINTER)),
                 "cuGraphInstantiateWithFlags": (ctypes.POINTER(POINTER), POINTER, ctypes.c_uint64),
                 "cuGraphExecDestroy": (POINTER,), "cuGraphDestroy": (POINTER,),
                 "cuTensorMapEncodeTiled": (POINTER, INT, INT, POINTER, POINTER, POINTER, POINTER, POINTER, *[INT] * 4)}
        self.functions = {name: ctypes.CFUNCTYPE(INT, *given)(getattr(self, name)) for name, given in kinds.items()}

    def allocate(self, nbytes: int) -> int:
        """By size class, from the stacks that native code takes from."""
        size = size_class(nbytes)
        address = self.pool.take(size)
        if not address:
            address = super().allocate(size)
            self.sizes[address] = size
            self.pool.use(size)
        return address

    def free(self, address: int, nbytes: int) -> None:
        self.given_back += 1
        if not self.pool.give(self.sizes[address], address):
            super().free(address, nbytes)

    def free_bytes(self) -> int:
        return self.properties.memory_bytes - self.pool.used_bytes

    def free_blocks(self, nbytes: int) -> int:
        return self.pool.stack(size_class(nbytes))

    def load(self, image: bytes, name: str) -> Any:
        self.kernels.append(Handle(super().load(image, name), len(self.kernels) + 1))
        return self.kernels[-1]

    def launch(self, function: Any, geometry: Geometry, words: Any, stream: int) -> None:
        super().launch(function.kernel, geometry, words, stream)

    def launch_entry(self) -> int:
        return ctypes.cast(self.entry, ctypes.c_void_p).value or 0

    def native_entries(self) -> dict[str, int]:
        found = {name: ctypes.cast(function, ctypes.c_void_p).value or 0 for name, function in self.functions.items()}
        return {**found, "cuLaunchKernel": self.launch_entry(), "context": 1, "stream": 2,
                "counter": ctypes.addressof(self.counter)}

    def _launched(self, function: int, blocks: int, y: int, z: int, threads: int, ty: int, tz: int, shared: int,
                  stream: int, arguments: Any, extra: Any) -> int:
        words = (ctypes.c_int64 * WORDS).from_address(arguments[0])
        if self.recorded is not None:
            self.recorded.append((function, Geometry(blocks, threads, shared), (ctypes.c_int64 * WORDS)(*words)))
        else:
            super().launch(self.kernels[function - 1].kernel, Geometry(blocks, threads, shared), words, 0)
        return 0

    def launch_all(self, table: LaunchTable, slots: list[int], scratch: int, faults: int, stream: int) -> bool:
        self.from_table += 1
        return table.launch(slots, scratch, faults, None, self.launch_entry(),
                            self.native_entries()["cuTensorMapEncodeTiled"]) == 0

    def cuCtxSetCurrent(self, context: int) -> int:
        return 0

    def cuStreamBeginCapture_v2(self, stream: int, mode: int) -> int:
        self.recorded = []
        return 0

    def cuStreamEndCapture(self, stream: int, graph: Any) -> int:
        assert self.recorded is not None
        self.graphs.append(self.recorded)
        self.recorded, graph[0] = None, len(self.graphs)
        return 0

    def cuGraphInstantiateWithFlags(self, made: Any, graph: int, flags: int) -> int:
        made[0] = graph
        return 0

    def cuGraphLaunch(self, graph: int, stream: int) -> int:
        self.replays += 1
        for work in self.graphs[graph - 1]:
            if callable(work):  # a library's
                work()
            else:
                function, geometry, words = work
                super().launch(self.kernels[function - 1].kernel, geometry, words, 0)
        return 0

    def cuGraphExecDestroy(self, graph: int) -> int:
        return 0

    def cuGraphDestroy(self, graph: int) -> int:
        return 0

    def cuTensorMapEncodeTiled(self, target: int, kind: int, rank: int, address: int, sizes: int, strides: int,
                               box: int, *rest: int) -> int:
        """As the emulator writes one: the address, then the numbers as they are."""
        given = [(ctypes.c_uint64 * rank).from_address(sizes), (ctypes.c_uint64 * (rank - 1)).from_address(strides),
                 (ctypes.c_uint32 * rank).from_address(box)]
        values = [address, *(int(number) for numbers in given for number in numbers)]
        (ctypes.c_int64 * len(values)).from_address(target)[:] = values
        return 0
