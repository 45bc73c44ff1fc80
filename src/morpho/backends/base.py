"""The seam between Morpho and a device: three protocols. Implement these and graphs run there.

A **Backend** owns its memory, its queue and its way from a graph to code. Nothing above this file holds an address it
could read through, or assumes that a call has finished. A backend is registered under the kind of its devices
(`backends/registry.py`, for users `mo.extend.backend`); `cuda:1` is device 1 of the kind `cuda`.

What a backend must do, in the order in which the runtime calls it:

1. `allocate(nbytes)` gives a `Buffer`; `copy_in` fills it, `copy_out` reads it, `copy_between` moves bytes within the
   device. All three are queued: they return an `Event`.
2. `lower(graph)` gives a program, whatever this backend calls so. The graph holds parameters (`index`, `shape`,
   `dtype`, and `strides` in elements where they are not the contiguous ones) and operations; every operation's
   meaning is its record's `reference` (`ops/`). An operation without code of its own may be computed by that, on the
   host.
3. `compile(program)` gives bytes that hold everything: they may be kept on disk and loaded by another process.
4. `load(bytes)` gives an `Executable`, whose `enqueue` queues one run.
5. `synchronize()` waits for all that was queued, and raises what failed.

Work of one stream runs in the order in which it was queued; streams are numbered from 0 and know nothing of each other.
An error on the device belongs to the event of its run, to every event that depends on its results, and to nothing else.

The smallest complete implementation is `backends/reference/backend.py`; one whose memory the host cannot see and whose
queue runs late is `tests/backends/delayed.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from morpho.base.target import Target
from morpho.ir.graph import Graph

Bytes = bytes | bytearray | memoryview


@runtime_checkable
class Buffer(Protocol):
    """Memory on a device: `nbytes` from `address` on, alive as long as `owner` is.

    `address` is a number of the device's own: above the seam it is added to and handed back, never followed.
    """

    @property
    def device(self) -> str:
        """The device it lies on."""
        ...

    @property
    def nbytes(self) -> int:
        """How much there is."""
        ...

    @property
    def address(self) -> int:
        """Where it begins, as the device counts."""
        ...

    @property
    def owner(self) -> Any:
        """Whoever keeps it alive."""
        ...


@runtime_checkable
class Event(Protocol):
    """The end of something queued."""

    def done(self) -> bool:
        """Whether it is over; an error counts as over."""
        ...

    def wait(self) -> None:
        """Return when it is over; raise what failed."""
        ...


@runtime_checkable
class Executable(Protocol):
    """A loaded program."""

    def enqueue(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], sizes: Mapping[str, int],
                stream: int = 0) -> Event:
        """Queue one run: `inputs` by the parameters' `index`, `outputs` contiguous and in the graph's order, `sizes`
        the numbers of its dynamic dimensions. Returns before the run has begun, if it likes."""
        ...


@runtime_checkable
class Backend(Protocol):
    """One device: its memory, its queue, and its way from a graph to code."""

    @property
    def device(self) -> str:
        """Device name: the kind, and a number behind a colon where there may be several."""
        ...

    @property
    def target(self) -> Target:
        """The target that `lower` generates code for."""
        ...

    @property
    def host_memory(self) -> bool:
        """Whether tensors of the CPU can be its inputs and outputs as they are."""
        ...

    def allocate(self, nbytes: int) -> Buffer:
        """Memory for so many bytes, aligned to `base.target.ALIGNMENT_BYTES`, of undefined contents."""
        ...

    def release(self, buffer: Buffer) -> None:
        """Take memory back, once what was queued with it is over. The runtime calls it when the owner dies."""
        ...

    def copy_in(self, target: Buffer, source: Bytes, stream: int = 0) -> Event:
        """Queue a copy from the host. `source` may be changed as soon as the call returns."""
        ...

    def copy_out(self, source: Buffer, target: memoryview | bytearray, stream: int = 0) -> Event:
        """Queue a copy to the host; `target` holds the bytes when the event is over."""
        ...

    def copy_between(self, source: Buffer, target: Buffer, stream: int = 0) -> Event:
        """Queue a copy of `source.nbytes` bytes within the device."""
        ...

    def lower(self, graph: Graph) -> Any:
        """The graph as a program of this backend."""
        ...

    def compile(self, program: Any) -> bytes:
        """The program as bytes that `load` takes, in this process or another."""
        ...

    def load(self, code: bytes) -> Executable:
        """The program of those bytes, ready to run."""
        ...

    def synchronize(self) -> None:
        """Wait for everything queued on every stream; raise the first error that nobody has seen."""
        ...


class Finished:
    """The event of what ran before `enqueue` returned."""

    def done(self) -> bool:
        """Always."""
        return True

    def wait(self) -> None:
        """Nothing to wait for."""


FINISHED = Finished()


class CodeStore(Protocol):
    """Where compiled code is kept between processes; the runtime's folder implements it."""

    def get(self, key: str) -> bytes | None:
        """Return the value stored under a key, or None."""
        ...

    def put(self, key: str, data: bytes) -> bool:
        """Keep bytes under a key; whether they were kept."""
        ...

    def reject(self, key: str, reason: str) -> None:
        """Say that what was found is of no use, and drop it."""
        ...
