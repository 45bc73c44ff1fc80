"""A device whose grid runs on the CPU: the kernels' own text, compiled for this machine, block by block.

It is for tests of indexing, masks and barriers on machines without a GPU, not for speed. Memory is the host's, with red
zones around every block. Every access of a kernel is compared with the table of live memory (`guards.py`): one outside
is an error that names the kernel, the thread and the line. Addresses are the device's own (`addresses.py`), so that the
host cannot follow one, nor a kernel one of the host's.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import time
import weakref
from typing import Any

import numpy as np

from morpho.backends.base import FINISHED, Bytes, Event
from morpho.backends.code.compiler import llvm
from morpho.backends.cuda.assembly.verify import verify
from morpho.backends.cuda.codegen.grid import ENTRY, Header
from morpho.backends.cuda.driver.interface import Geometry, Properties
from morpho.backends.cuda.driver.launch_code import LaunchTable
from morpho.backends.cuda.driver.tensor_map import TensorMap
from morpho.backends.cuda.emulator.addresses import on_device, on_host, words_on_host
from morpho.backends.cuda.emulator.guards import SCRATCH_BYTES, guarded
from morpho.backends.cuda.emulator.meanings import functions
from morpho.backends.cuda.emulator.runtime import EXCHANGE_WORDS, LINE_BYTES, STACK_BYTES, Context, runtime_text
from morpho.base.errors import DeviceError, MemoryLimit, MorphoError, fail
from morpho.base.target import isa_named
from morpho.base.units import format_bytes

ZONE = 256  # bytes before and after every block
PATTERN = 0xFF  # NaN to all floats: what nobody has written spoils a result
# NaN to all floats too, each with a payload of its own: arithmetic hands payloads on, so that a NaN read from one zone
# and written to another would not be seen otherwise.
NANS = np.random.default_rng(0).integers(0x7FF0, 0x8000, 1024).astype(np.uint16).view(np.uint8)
ZONES = 512  # different ones
MOST_THREADS = 1024
# Where threads wait for others.
MEETING = ("call void @gpu.barrier(ptr %ctx)", "call void @gpu.warp_barrier(", "@gpu.shuffle", "@gpu.mma", "@gpu.ld",
           "@gpu.mbarrier", "@gpu.ballot", "@gpu.same_lanes", "@gpu.pause(")
TOGETHER = 3  # blocks that take turns where a kernel waits for others


def _zones(memory: np.ndarray, address: int, nbytes: int, number: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Guard zones before and behind a block, and their expected contents."""
    start = address - memory.ctypes.data
    found = []
    for first, zone in ((0, memory[:start]), (start + nbytes, memory[start + nbytes:])):
        at = number % ZONES * 2 + first % 2
        found.append((zone, NANS[at:at + len(zone)]))
    return found


class PlainWords:
    """Words that host and device share."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.address = array, on_device(array.ctypes.data)


class EmulatedDevice:
    """A GPU that is not there. Work is over when its call returns."""

    loads_in_threads = False
    dlpack_device: tuple[int, int] | None = None  # nobody else can follow its addresses

    def __init__(self, number: int = 0, capability: tuple[int, int] = (9, 0), memory_bytes: int = 8 << 30) -> None:
        self.number = number
        self.properties = Properties(f"emulated sm_{capability[0]}{capability[1]}", capability, 4, memory_bytes, 232448,
                                     1 << 20)
        self.blocks: dict[int, tuple[np.ndarray, int, int]] = {}  # address -> memory with its zones, bytes, whose zones
        self.allocations = 0
        self.lock = threading.Lock()
        self.room: dict[str, np.ndarray] = {}
        self.loaded: dict[str, Any] = {}
        self.launches = 0
        self.lines: dict[str, list[str]] = {}  # module -> the lines of its kernels that access memory
        self.shared_words: weakref.WeakValueDictionary[int, PlainWords] = weakref.WeakValueDictionary()

    # -- memory --------------------------------------------------------------------------------------------------------
    def allocate(self, nbytes: int) -> int:
        """Memory between zones; no more than the device has."""
        if nbytes > self.free_bytes():
            raise fail(MemoryLimit, "cuda", f"{format_bytes(nbytes)} are not free on the emulated device: tensors and "
                       f"programs hold {format_bytes(self.properties.memory_bytes - self.free_bytes())} of "
                       f"{format_bytes(self.properties.memory_bytes)}",
                       "drop tensors that are no longer needed, use a smaller batch, or another device")
        memory = np.full(nbytes + 3 * ZONE, PATTERN, np.uint8)
        address = on_device(-(-(memory.ctypes.data + ZONE) // ZONE) * ZONE)
        self.allocations += 1
        for zone, wanted in _zones(memory, on_host(address), nbytes, self.allocations):
            zone[:] = wanted
        self.blocks[address] = memory, nbytes, self.allocations
        return address

    def free_bytes(self) -> int:
        return self.properties.memory_bytes - sum(size for _, size, _ in list(self.blocks.values()))

    def free(self, address: int, nbytes: int) -> None:
        """Check the zones."""
        memory, size, number = self.blocks.pop(address)
        if not all(np.array_equal(*pair) for pair in _zones(memory, on_host(address), size, number)):
            raise fail(DeviceError, "cuda", "a kernel wrote outside its memory")

    def free_blocks(self, nbytes: int) -> int:
        """Every block has zones of its own."""
        return 0

    def copy_in(self, address: int, source: Bytes, stream: int) -> Event:
        data = bytes(memoryview(source).cast("B"))
        ctypes.memmove(on_host(address), data, len(data))
        return FINISHED

    def copy_ahead(self, address: int, source: Bytes) -> Event:
        return self.copy_in(address, source, 1)

    def mark(self) -> int:
        """The host's clock."""
        return time.perf_counter_ns()

    def seconds_between(self, first: int, last: int) -> float:
        """By the host's clock."""
        return (last - first) / 1e9

    def copy_out(self, address: int, target: memoryview, stream: int) -> Event:
        view = memoryview(target).cast("B")
        view[:] = ctypes.string_at(on_host(address), len(view))
        return FINISHED

    def copy(self, source: int, target: int, nbytes: int, stream: int) -> None:
        ctypes.memmove(on_host(target), on_host(source), nbytes)

    def zero(self, address: int, nbytes: int, stream: int) -> None:
        ctypes.memset(on_host(address), 0, nbytes)

    def host_room(self, nbytes: int) -> np.ndarray | None:
        """Any memory will do."""
        return None

    def host_words(self, count: int) -> PlainWords:
        """Words of this process."""
        words = PlainWords(np.zeros(count, np.uint32))
        self.shared_words[words.address] = words
        return words

    # -- code ----------------------------------------------------------------------------------------------------------
    def build(self, text: str) -> bytes:
        """Object code of this machine; its functions have names of their own."""
        verify(text)
        name = "emulated_" + hashlib.sha256(text.encode()).hexdigest()[:24]
        lines: list[str] = []
        checked = guarded(ENTRY.sub(r"define void @\1(ptr %p, ptr %ctx)", text) + functions(text), lines)
        full = checked + runtime_text().replace("@emu.run(", f"@{name}_run(")
        full = full.replace("@kernel_", f"@{name}_kernel_")
        fibers = TOGETHER if "@gpu.pause(" in text else int(any(word in text for word in MEETING))
        counts = ",".join(f"{entry}:{count}" for entry, count in ENTRY.findall(text))  # words of every kernel
        return (f"{name} {fibers} {counts}\n".encode() + "\n".join(lines).encode() + b"\0"
                + llvm.compile_text(full, isa_named("native")))

    def load(self, image: bytes, name: str) -> tuple[int, Any, int, int, str]:
        """The address of the kernel, what runs a grid of it, how many blocks take
        turns (0: its threads do not meet), the number of its words, and
        its name."""
        head, _, rest = image.partition(b"\n")
        lines, _, code = rest.partition(b"\0")
        stem, fibers, counts = head.decode().split()
        self.lines[stem] = lines.decode().split("\n")
        wanted = [f"{stem}_{name}", f"{stem}_run"]
        known = self.loaded
        if stem not in known:
            known[stem] = llvm.load(code, isa_named("native"), wanted)
        kernel, run = known[stem]
        return kernel, ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(run), int(fibers), int(
            dict(one.split(":") for one in counts.split(","))[name]), f"{stem} {name}"

    def launch(self, function: Any, geometry: Geometry, words: ctypes.Array[ctypes.c_int64], stream: int) -> None:
        """Run all blocks now."""
        kernel, run, fibers, count, name = function
        here = words_on_host(words[:count])
        if not 0 < geometry.threads <= MOST_THREADS or not 0 < geometry.blocks < 1 << 31:
            raise fail(DeviceError, "cuda", f"a grid of {geometry.blocks} blocks of {geometry.threads} threads")
        if geometry.shared_bytes > self.properties.shared_bytes:
            raise fail(DeviceError, "cuda", f"a block of {geometry.shared_bytes} bytes of shared memory")
        with self.lock:
            self.launches += 1
            together = max(1, min(fibers, geometry.blocks))
            contexts = np.zeros((together, int(Context.SIZE)), np.int64)
            for number, context in enumerate(contexts):
                context[Context.BLOCKS], context[Context.THREADS] = geometry.blocks, geometry.threads
                context[Context.SHARED] = self._room(f"shared{number}", geometry.shared_bytes + 1024, 1024)
                context[Context.KERNEL], context[Context.WORDS] = kernel, ctypes.addressof(here)
                self.room[f"shared{number}"][:] = PATTERN
                context[Context.EXCHANGE] = self._room(f"exchange{number}", geometry.threads * EXCHANGE_WORDS * 8, 64)
                context[Context.SCRATCH] = self._room("scratch", SCRATCH_BYTES, 64)
                if fibers:
                    context[Context.FIBERS], context[Context.TOGETHER] = 1, together
                    context[Context.MAIN] = self._room("main", LINE_BYTES, 64)
                    context[Context.LINES] = self._room(f"lines{number}", geometry.threads * LINE_BYTES, 64)
                    context[Context.STACKS] = self._room(f"stacks{number}", geometry.threads * STACK_BYTES, 64)
                    context[Context.DONE] = self._room(f"done{number}", geometry.threads * 8, 64)
                    context[Context.WARPS] = self._room(f"warps{number}", geometry.threads * 16, 64)
                    self.room[f"warps{number}"][:] = 0
            ranges = self._ranges(contexts[:, Context.SHARED], geometry.shared_bytes)
            contexts[:, Context.RANGES] = ranges.ctypes.data
            contexts[:, Context.HALVINGS] = (len(ranges) // 2).bit_length() - 1
            stuck = run(contexts.ctypes.data)
            for context in contexts:
                if context[Context.FAULT]:
                    raise self._outside(name, geometry, context)
            if stuck:
                raise fail(DeviceError, "cuda", "a kernel's threads do not all reach the same barrier")

    def _ranges(self, shared: np.ndarray, shared_bytes: int) -> np.ndarray:
        """First and end addresses of all live memory, sorted, padded to a power of two."""
        live = sorted([(0, 0), *((int(start), int(start) + shared_bytes) for start in shared),
                       *((on_host(address), on_host(address) + size)
                         for address, (_, size, _) in list(self.blocks.items())),
                       *((on_host(address), on_host(address) + words.array.nbytes)
                         for address, words in list(self.shared_words.items()))])
        padding = (1 << (len(live) - 1).bit_length()) - len(live)
        return np.array([*(word for pair in live for word in pair), *[2**63 - 1] * (2 * padding)], np.int64)

    def _outside(self, name: str, geometry: Geometry, context: np.ndarray) -> MorphoError:
        """An error for the first access of a kernel outside live memory."""
        address, number, thread, block = (int(word) for word in context[Context.FAULT + 1:Context.FAULT + 5])
        shared = int(context[Context.SHARED])
        places = [(abs(address - shared), f"byte {address - shared} of {geometry.shared_bytes} bytes of shared memory")]
        for start, (_, size, _) in self.blocks.items():
            distance = address - on_host(start)
            places.append((min(abs(distance), abs(distance - size)), f"byte {distance} of a block of {size} bytes"))
        module, kernel = name.split()
        return fail(DeviceError, "cuda", f"{kernel}, thread {thread} of block {block}, accesses memory outside: "
                    f"{min(places)[1]}, in `{self.lines[module][number]}`")

    def _room(self, name: str, nbytes: int, align: int) -> int:
        """Memory of the emulator's own, kept."""
        found = self.room.get(name)
        if found is None or found.nbytes < nbytes + align:
            found = self.room[name] = np.zeros(nbytes + align, np.uint8)
        return int(-(-found.ctypes.data // align) * align)

    def encode_map(self, made: TensorMap, words: ctypes.Array[ctypes.c_int64]) -> None:
        """The address, then the numbers as they are."""
        if any(stride % 16 for stride in made.strides):
            raise fail(DeviceError, "cuda", f"a tensor map with strides of {made.strides} bytes")
        values = [words[int(Header.SIZE) + made.operand], *made.sizes, *made.strides, *made.box]
        for number, value in enumerate(values, made.word):
            words[number] = value

    def launch_error(self, status: int) -> MorphoError:
        """A number of this emulator's."""
        return fail(DeviceError, "cuda", f"a launch gave {status}")

    def launch_entry(self) -> int:
        """Launches go one by one."""
        return 0

    def native_entries(self) -> dict[str, int]:
        """Launches go one by one."""
        return {}

    def destroy_graph(self, handle: int) -> None:
        """There are none."""

    def launch_all(self, table: LaunchTable, slots: list[int], scratch: int, faults: int, stream: int) -> bool:
        """Launches go one by one."""
        return False

    def stream_handle(self) -> int:
        return 1

    def let_wait(self, stream: int) -> None:
        ...

    def wait_for_stream(self, stream: int) -> None:
        ...

    def record(self, stream: int) -> Event:
        return FINISHED

    def synchronize(self) -> None:
        ...
