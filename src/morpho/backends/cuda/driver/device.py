"""One GPU through the driver: its context, streams, events, modules and launches."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

from morpho.backends.base import Bytes
from morpho.backends.cuda.assembly import ptx
from morpho.backends.cuda.codegen.grid import Header
from morpho.backends.cuda.driver import early_launch
from morpho.backends.cuda.driver.interface import Geometry, Properties
from morpho.backends.cuda.driver.launch_code import LIBRARY, MISALIGNED, LaunchTable
from morpho.backends.cuda.driver.library import NOT_READY, Library, library
from morpho.backends.cuda.driver.memory import LARGE, HostRooms, MemoryPool, PinnedPool, PinnedWords, size_class
from morpho.backends.cuda.driver.staging import DIRECT_BYTES, StagingRing
from morpho.backends.cuda.driver.tensor_map import PROMOTE_256B, SWIZZLE_128B, MapArguments, TensorMap
from morpho.backends.cuda.vendor.assembler import assembler
from morpho.backends.driver.entry.block_code import PoolWord
from morpho.base.errors import CompileError, DeviceError, MorphoError, fail

NON_BLOCKING, NO_TIMING = 1, 2
NATIVE = ("cuCtxSetCurrent", "cuLaunchKernel", "cuTensorMapEncodeTiled", "cuGraphLaunch", "cuStreamBeginCapture_v2",
          "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphExecDestroy", "cuGraphDestroy")
_MAXIMUM_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_MULTIPROCESSORS, _MAJOR, _MINOR, _SHARED_OPTIN, _L2 = 16, 75, 76, 97, 38  # CU_DEVICE_ATTRIBUTE_...
AHEAD = 1  # the stream of copies that run beside programs
SMALL_SHARED = 48 << 10  # bytes of shared memory that need no asking


class CudaEvent:
    """A point in a stream. It keeps alive what was queued before it and must be."""

    def __init__(self, device: CudaDevice, handle: ctypes.c_void_p, held: Any = None) -> None:
        self.device, self.handle, self.held = device, handle, held
        self.over = False

    def done(self) -> bool:
        """Whether it is over."""
        if not self.over:
            self.device.enter()
            status = self.device.driver.status("cuEventQuery", self.handle)
            if status == NOT_READY:
                return False
            self._finish()
        return True

    def wait(self) -> None:
        """Return when it is over; raise what failed."""
        if not self.over:
            self.device.enter()
            self.device.driver.call("cuEventSynchronize", self.handle)
            self._finish()
        elif self.device.driver.broken:
            raise fail(DeviceError, "cuda", f"{self.device.driver.broken}: everything on the device is lost",
                       "start the process again")

    def _finish(self) -> None:
        self.over, self.held = True, None
        self.device.events.append(self.handle)

    def __del__(self) -> None:
        if not self.over:  # nobody asks any more: what waits for it was told so already
            self.device.events.append(self.handle)


class TimedMark:
    """A point in a stream whose time the device notes."""

    def __init__(self, driver: Library, handle: ctypes.c_void_p) -> None:
        self.driver, self.handle = driver, handle

    def __del__(self) -> None:
        if not self.driver.broken:
            self.driver.status("cuEventDestroy_v2", self.handle)


class CudaDevice:
    """A GPU."""

    loads_in_threads = True

    def __init__(self, number: int) -> None:
        self.driver: Library = library()
        self.number, self.current = number, threading.local()
        self.context = ctypes.c_void_p()
        handle = ctypes.c_int()
        self.driver.call("cuDeviceGet", ctypes.byref(handle), number)
        self.handle = handle.value
        self.dlpack_device: tuple[int, int] | None = (2, number)
        self.driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.handle)
        self.enter()
        self.properties = self._properties()
        self.streams: dict[int, ctypes.c_void_p] = {}
        self.events: list[ctypes.c_void_p] = []  # that are over, to be used again
        self.modules: list[ctypes.c_void_p] = []
        self.pool = MemoryPool(self)
        self.ring, self.pinned, self.rooms = StagingRing(self), PinnedPool(self), HostRooms(self)
        self.counted = ctypes.c_int64(0)
        self._launch = self.driver.handle.cuLaunchKernel
        extended = getattr(self.driver.handle, "cuLaunchKernelEx", None)  # from CUDA 11.8 on
        early = 0
        version = ctypes.c_int()
        self.driver.call("cuDriverGetVersion", ctypes.byref(version))
        if (extended is not None and version.value >= early_launch.LEAST_DRIVER
                and ptx.comes_early(self.properties.architecture)):
            early = ctypes.cast(extended, ctypes.c_void_p).value or 0
        plain = ctypes.cast(self._launch, ctypes.c_void_p).value or 0
        self._launch_address = early_launch.launch_function(plain, early)
        encode = getattr(self.driver.handle, "cuTensorMapEncodeTiled", None)  # from CUDA 12 on
        self._encode_address = ctypes.cast(encode, ctypes.c_void_p).value or 0 if encode is not None else 0
        self._lock = threading.Lock()

    def enter(self) -> None:
        """Make the context this thread's."""
        if not getattr(self.current, "set", False):
            self.driver.call("cuCtxSetCurrent", self.context)
            self.current.set = True

    def _attribute(self, which: int) -> int:
        value = ctypes.c_int()
        self.driver.call("cuDeviceGetAttribute", ctypes.byref(value), which, self.handle)
        return value.value

    def _properties(self) -> Properties:
        name, memory = ctypes.create_string_buffer(128), ctypes.c_size_t()
        self.driver.call("cuDeviceGetName", name, 128, self.handle)
        self.driver.call("cuDeviceTotalMem_v2", ctypes.byref(memory), self.handle)
        return Properties(name.value.decode(), (self._attribute(_MAJOR), self._attribute(_MINOR)),
                          self._attribute(_MULTIPROCESSORS), memory.value, self._attribute(_SHARED_OPTIN),
                          self._attribute(_L2))

    def free_bytes(self) -> int:
        """Memory that no process holds now, and what the pool only keeps."""
        self.enter()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value + self.pool.kept_bytes

    # -- streams -------------------------------------------------------------------------------------------------------
    def stream(self, number: int) -> ctypes.c_void_p:
        """The stream of a number, made when it is first asked for."""
        self.enter()
        found = self.streams.get(number)
        if found is None:
            with self._lock:
                found = self.streams.get(number)
                if found is None:
                    found = ctypes.c_void_p()
                    self.driver.call("cuStreamCreate", ctypes.byref(found), NON_BLOCKING)
                    self.streams[number] = found
                    self.pool.free_blocks.words[PoolWord.STREAMS] = len(self.streams)
        return found

    def record(self, stream: int, held: Any = None) -> CudaEvent:
        """The end of what was queued so far."""
        queue = self.stream(stream)
        try:
            handle = self.events.pop()
        except IndexError:
            handle = ctypes.c_void_p()
            self.driver.call("cuEventCreate", ctypes.byref(handle), NO_TIMING)
        found = CudaEvent(self, handle, held)
        self.driver.call("cuEventRecord", handle, queue)
        return found

    def join_streams(self) -> None:
        """Let every stream wait for what all others have queued: memory may then pass between them."""
        if len(self.streams) > 1:
            for source in list(self.streams):
                event = self.record(source)
                for target, queue in list(self.streams.items()):
                    if target != source:
                        self.driver.call("cuStreamWaitEvent", queue, event.handle, 0)

    def stream_handle(self) -> int:
        """The driver's handle of stream 0."""
        return self.stream(0).value or 0

    def let_wait(self, stream: int) -> None:
        """Let another library's stream wait for stream 0."""
        event = self.record(0)
        self.driver.call("cuStreamWaitEvent", ctypes.c_void_p(stream), event.handle, 0)

    def wait_for_stream(self, stream: int) -> None:
        """Let stream 0 wait for another library's stream."""
        self.enter()
        handle = ctypes.c_void_p()
        self.driver.call("cuEventCreate", ctypes.byref(handle), NO_TIMING)
        try:
            self.driver.call("cuEventRecord", handle, ctypes.c_void_p(stream))
            self.driver.call("cuStreamWaitEvent", self.stream(0), handle, 0)
        finally:
            self.driver.call("cuEventDestroy_v2", handle)

    def synchronize(self) -> None:
        """Wait for all streams."""
        self.enter()
        for queue in list(self.streams.values()):
            self.driver.call("cuStreamSynchronize", queue)

    # -- memory --------------------------------------------------------------------------------------------------------
    def allocate(self, nbytes: int) -> int:
        """Memory of the pool."""
        self.enter()
        return self.pool.allocate(nbytes)

    def free(self, address: int, nbytes: int) -> None:
        """Back to the pool."""
        if self.driver.broken:
            return
        self.enter()
        try:
            self.join_streams()
        except MorphoError:  # nobody hears of it here: everything must be over instead, or the block stays
            if any(self.driver.status("cuStreamSynchronize", queue) for queue in list(self.streams.values())):
                return
        self.pool.free(address, nbytes)

    def free_blocks(self, nbytes: int) -> int:
        """The pool's."""
        return self.pool.free_blocks.stack(size_class(nbytes)) if nbytes <= LARGE else 0

    def copy_in(self, address: int, source: Bytes, stream: int) -> CudaEvent:
        """Through pinned memory, where it does not lie there."""
        view = memoryview(source).cast("B")
        if len(view) > DIRECT_BYTES and self.rooms.sizes:
            start = np.frombuffer(view, np.uint8).ctypes.data
            if self.rooms.holds(start, len(view)):
                self.driver.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), ctypes.c_void_p(start),
                                 ctypes.c_size_t(len(view)), self.stream(stream))
                event = self.record(stream)
                event.wait()  # its owner may change it when this returns
                return event
        self.ring.copy_in(address, view, stream)
        return self.record(stream)

    def copy_ahead(self, address: int, source: Bytes) -> CudaEvent:
        """In stream 1."""
        self.stream(AHEAD)
        event = self.copy_in(address, source, AHEAD)
        self.driver.call("cuStreamWaitEvent", self.stream(0), event.handle, 0)
        return event

    def mark(self) -> TimedMark:
        """An event with a time."""
        handle = ctypes.c_void_p()
        self.enter()
        self.driver.call("cuEventCreate", ctypes.byref(handle), 0)
        found = TimedMark(self.driver, handle)
        self.driver.call("cuEventRecord", handle, self.stream(0))
        return found

    def seconds_between(self, first: TimedMark, last: TimedMark) -> float:
        """By the driver, which waits for both."""
        found = ctypes.c_float()
        self.enter()
        for mark in (first, last):
            self.driver.call("cuEventSynchronize", mark.handle)
        self.driver.call("cuEventElapsedTime", ctypes.byref(found), first.handle, last.handle)
        return found.value / 1e3

    def host_room(self, nbytes: int) -> np.ndarray | None:
        """Pinned memory for a result."""
        self.enter()
        return self.rooms.take(nbytes)

    def copy_out(self, address: int, target: memoryview, stream: int) -> CudaEvent:
        """To any memory of the host; large ones are there when this returns."""
        view = target.cast("B")
        room = (ctypes.c_uint8 * len(view)).from_buffer(view)
        if len(view) > DIRECT_BYTES and not self.rooms.holds(ctypes.addressof(room), len(view)):
            self.ring.copy_out(address, ctypes.addressof(room), len(view), stream)
            return self.record(stream)
        self.driver.call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(ctypes.addressof(room)), ctypes.c_uint64(address),
                         ctypes.c_size_t(len(view)), self.stream(stream))
        return self.record(stream, room)

    def copy(self, source: int, target: int, nbytes: int, stream: int) -> None:
        """Within the device."""
        self.driver.call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(target), ctypes.c_uint64(source),
                         ctypes.c_size_t(nbytes), self.stream(stream))

    def zero(self, address: int, nbytes: int, stream: int) -> None:
        """Zero bytes."""
        self.driver.call("cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(0), ctypes.c_size_t(nbytes),
                         self.stream(stream))

    def host_words(self, count: int) -> PinnedWords:
        """Zeroed words of pinned memory."""
        return self.pinned.take(count)

    # -- code ----------------------------------------------------------------------------------------------------------
    def build(self, text: str) -> bytes:
        """PTX, which the driver assembles when it is loaded."""
        return ptx.assembly(text, self.properties.architecture).encode()

    def load(self, image: bytes, name: str) -> ctypes.c_void_p:
        """Have nvJitLink or the driver assemble PTX."""
        found = assembler()
        image = (found.code(image, self.properties.architecture) if found is not None else None) or image
        self.enter()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        log = ctypes.create_string_buffer(8192)
        options = (ctypes.c_int * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER, ..._SIZE_BYTES
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), ctypes.c_void_p(len(log)))
        status = self.driver.status("cuModuleLoadDataEx", ctypes.byref(module), image + b"\0", 2, options, values)
        if status:
            raise fail(CompileError, "load", f"the driver does not assemble a kernel: {self.driver.said(status)} "
                                             f"{log.value.decode(errors='replace').strip()}",
                       "this is a defect of Morpho; please report it with the program")
        try:
            self.driver.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            if self.properties.shared_bytes > SMALL_SHARED:
                static = ctypes.c_int()
                self.driver.call("cuFuncGetAttribute", ctypes.byref(static), 1, function)  # its own shared memory
                self.driver.call("cuFuncSetAttribute", function, _MAXIMUM_SHARED,
                                 self.properties.shared_bytes - static.value)
        except MorphoError:
            self.driver.status("cuModuleUnload", module)
            raise
        self.modules.append(module)
        return function

    def encode_map(self, made: TensorMap, words: ctypes.Array[ctypes.c_int64]) -> None:
        """By the driver."""
        given, start = MapArguments(made), ctypes.addressof(words)
        self.driver.call("cuTensorMapEncodeTiled", ctypes.c_void_p(start + 8 * made.word), given.kind, given.rank,
                         ctypes.c_void_p(words[int(Header.SIZE) + made.operand]), given.sizes, given.strides, given.box,
                         given.steps, 0, SWIZZLE_128B, PROMOTE_256B, 0)

    def launch_error(self, status: int) -> MorphoError:
        """In the driver's words."""
        if status == MISALIGNED:
            return fail(DeviceError, "cuda", "an operand does not lie on 16 bytes", "copy it first")
        if status >= LIBRARY:
            return fail(DeviceError, "cublasLt", f"cublasLtMatmul gave the status {status - LIBRARY}")
        return self.driver.error("cuLaunchKernel", status)

    def launch_entry(self) -> int:
        """The address of `cuLaunchKernel`."""
        return self._launch_address

    def native_entries(self) -> dict[str, int]:
        """Of this driver."""
        found = {}
        for name in NATIVE:
            function = getattr(self.driver.handle, name, None)
            found[name] = 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0
        return {**found, "cuLaunchKernel": self._launch_address, "context": self.context.value or 0,
                "stream": self.stream_handle(), "counter": ctypes.addressof(self.counted)}

    def destroy_graph(self, handle: int) -> None:
        """It may still run: the driver waits."""
        self.enter()
        self.driver.status("cuGraphExecDestroy", ctypes.c_void_p(handle))

    @property
    def launches(self) -> int:
        """Kernels launched so far."""
        return self.counted.value

    def launch_all(self, table: LaunchTable, slots: list[int], scratch: int, faults: int, stream: int) -> bool:
        """Queue a program's launches at once."""
        status = table.launch(slots, scratch, faults, self.stream(stream), self._launch_address, self._encode_address)
        if status == MISALIGNED:
            return False
        if status:
            raise self.driver.error("cuLaunchKernel", status)
        self.counted.value += table.count
        return True

    def launch(self, function: Any, geometry: Geometry, words: ctypes.Array[ctypes.c_int64], stream: int) -> None:
        """Queue a launch."""
        self.counted.value += 1
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(words))
        status = self._launch(function, geometry.blocks, 1, 1, geometry.threads, 1, 1, geometry.shared_bytes,
                              self.stream(stream), arguments, None)
        if status:
            raise self.driver.error("cuLaunchKernel", status)
