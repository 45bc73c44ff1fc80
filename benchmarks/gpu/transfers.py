"""Transfers one way at a time: the driver alone from pageable and pinned memory, the ring with chunks of several sizes,
and PyTorch's. `python -m benchmarks.gpu.transfers [device]`.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
import morpho.tensor.jit.compile  # (the engine reads inside its objects)
from morpho.backends.cuda.driver import staging
from morpho.backends.cuda.driver.host_copy import copy_on_host
from morpho.backends.registry import backend_of


def seconds(work: Callable[[], Any], times: int = 9) -> float:
    """The median of several."""
    work()
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def main(device: str = "cuda:0") -> None:
    """Print a table."""
    gpu: Any = backend_of(device).gpu  # type: ignore[attr-defined]
    queue = gpu.stream(0)
    for nbytes in (4_000_000, 64 << 20):
        address = gpu.allocate(nbytes)
        host = np.random.default_rng(0).integers(0, 255, nbytes, dtype=np.uint8)
        pinned = ctypes.c_void_p()
        gpu.driver.call("cuMemHostAlloc", ctypes.byref(pinned), ctypes.c_size_t(nbytes), 0)

        def said(name: str, work: Callable[[], Any], nbytes: int = nbytes) -> None:
            taken = seconds(work)
            print(f"{nbytes:>10} {name:36} {1e6 * taken:8.0f} us {nbytes / taken / (1 << 30):6.1f} GiB/s", flush=True)

        def driver(name: str, *given: Any) -> None:
            gpu.driver.call(name, *given, queue)
            gpu.driver.call("cuStreamSynchronize", queue)

        for name, origin in (("pageable", int(host.ctypes.data)), ("pinned", pinned.value or 0)):
            said(f"driver, {name}, in", lambda origin=origin, address=address, nbytes=nbytes: driver(
                "cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), ctypes.c_void_p(origin), ctypes.c_size_t(nbytes)))
            said(f"driver, {name}, out", lambda origin=origin, address=address, nbytes=nbytes: driver(
                "cuMemcpyDtoHAsync_v2", ctypes.c_void_p(origin), ctypes.c_uint64(address), ctypes.c_size_t(nbytes)))
        for chunk, chunks in ((512 << 10, 4), (1 << 20, 4), (1 << 20, 8), (2 << 20, 2), (2 << 20, 4), (4 << 20, 2)):
            staging.CHUNK_BYTES, staging.CHUNKS = chunk, chunks
            ring = staging.StagingRing(gpu)
            said(f"ring, {chunk >> 10} KiB x {chunks}, in", lambda ring=ring, host=host, address=address: (
                ring.copy_in(address, host.data, 0), gpu.synchronize()))
            said(f"ring, {chunk >> 10} KiB x {chunks}, out", lambda ring=ring, host=host, address=address:
                 ring.copy_out(address, int(host.ctypes.data), host.nbytes, 0))
        with_torch(host, said)


def asked(device: str) -> None:
    """`asarray` and `numpy` of 4 MB and 64 MiB as users call them, and where the time goes."""
    backend: Any = backend_of(device)
    gpu = backend.gpu
    for nbytes in (4_000_000, 64 << 20):
        host = np.random.default_rng(0).integers(0, 255, nbytes, dtype=np.uint8)
        pinned = mo.pin(host)
        held = mo.asarray(host, device=device).realise()
        room, address = backend.host_room(nbytes), held.elements().address
        chunk = np.zeros(1 << 20, np.uint8)

        def said(name: str, work: Callable[[], Any], nbytes: int = nbytes) -> None:
            taken = seconds(work, 21)
            print(f"{nbytes:>10} {name:36} {1e6 * taken:8.0f} us {nbytes / taken / (1 << 30):6.1f} GiB/s", flush=True)

        said("asarray", lambda host=host: (mo.asarray(host, device=device), gpu.synchronize()))
        said("asarray of mo.pin", lambda pinned=pinned: (mo.asarray(pinned, device=device), gpu.synchronize()))
        said("numpy", lambda held=held: held.numpy())
        said("   a room", lambda nbytes=nbytes: backend.host_room(nbytes))
        said("   copy to it, waited for", lambda address=address, room=room: gpu.copy_out(address, room.data, 0).wait())
        said("   ring in, waited for", lambda address=address, host=host: (
            gpu.ring.copy_in(address, host.data, 0), gpu.synchronize()))
        said("   host copy of it all", lambda room=room, host=host: copy_on_host(
            room.ctypes.data, host.ctypes.data, host.nbytes))
        said("   host copy of 1 MiB", lambda chunk=chunk, host=host: copy_on_host(
            chunk.ctypes.data, host.ctypes.data, chunk.nbytes))
        said("   memmove of it all", lambda room=room, host=host: ctypes.memmove(
            room.ctypes.data, host.ctypes.data, host.nbytes))


def with_torch(host: np.ndarray, said: Callable[[str, Callable[[], Any]], None]) -> None:
    """PyTorch's, where it is."""
    try:
        import torch
    except ImportError:
        return
    there, here = torch.empty(host.nbytes, dtype=torch.uint8, device="cuda"), torch.from_numpy(host)
    pinned = here.pin_memory()
    for name, tensor in (("pageable", here), ("pinned", pinned)):
        said(f"PyTorch, {name}, in", lambda tensor=tensor: (there.copy_(tensor), torch.cuda.synchronize()))
        said(f"PyTorch, {name}, out", lambda tensor=tensor: (tensor.copy_(there), torch.cuda.synchronize()))


if __name__ == "__main__":
    asked(*(sys.argv[1:2] or ["cuda:0"]))
    main(*sys.argv[1:2])
