"""Symbols of compiled kernels for other tools: a perf map (`perf report`, `perf top`) and a jitdump (`perf inject
--jit`, which also gives `perf annotate` the machine code). gdb knows kernels already, by the name of their function.

Both list what is loaded now, so they are written at the end of a run: `perf` resolves addresses after recording.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from morpho.backends.code.compiler import code
from morpho.backends.driver import executable as driver
from morpho.base.machine import host_architecture
from morpho.base.target import current_isa
from morpho.program.program import Step
from morpho.weights.atomic import storing, write_text

MAGIC, VERSION, CODE_LOAD = 0x4A695444, 1, 0
HEADER, RECORD, LOAD = struct.Struct("=IIIIIIQQ"), struct.Struct("=IIQ"), struct.Struct("=IIQQQQ")
MACHINES = {"x86_64": 62, "aarch64": 183}  # ELF's numbers
UNKNOWN_BYTES = 4096  # of a function whose object is not at hand, unless the next one begins sooner


class Symbol(NamedTuple):
    """A function in memory."""

    address: int
    nbytes: int
    name: str


def symbols() -> list[Symbol]:
    """Every kernel of the programs alive and the driver's functions, by address."""
    names: dict[int, str] = {}
    for executable in list(driver.live):
        for number, step in enumerate(executable.steps):
            if isinstance(step, Step):
                address = executable.function_of(number)
                line = f" {step.origin}" if step.origin else ""
                names.setdefault(address, f"morpho::{step.label}{line}")
                for kernel, part in ((step.epilogue, "epilogue"), (step.prologue, "prologue")):
                    called = code.known_address(kernel, current_isa()) if kernel is not None else None
                    if called is not None:
                        names.setdefault(called, f"morpho::{step.label} ({part}){line}")
    sizes: dict[int, int] = {}
    for key, address in list(code._by_key.items()):
        name = names.get(address, "morpho::kernel")
        for inner, start, nbytes in _functions(key):  # of a product most of the time is in an inner one
            known = "" if inner == code.function_name(key) else f" {inner}"
            names[address + start] = f"{name}{known} [{code.function_name(key)}]"  # which gdb knows it by
            sizes[address + start] = nbytes
    native = driver.native()
    names |= {int(native.entry): "morpho::entry", int(native.worker): "morpho::worker"}
    found = sorted(names)
    return [Symbol(address, sizes.get(address) or min(UNKNOWN_BYTES, following - address), names[address])
            for address, following in zip(found, [*found[1:], found[-1] + UNKNOWN_BYTES] if found else [], strict=True)]


def _functions(key: str) -> list[tuple[str, int, int]]:
    """Functions of a kernel's object as the file on disk has them: name, where it lies seen from the kernel's own, and
    size; that one alone, of unknown size, where the file is not there."""
    disk, own = code.disk_cache(), code.function_name(key)
    stored = disk.get(key) if disk is not None else None
    found = elf_functions(stored) if stored else {}
    section, origin, _ = found.get(own, (0, 0, 0))
    return [(name, start - origin, nbytes) for name, (place, start, nbytes) in found.items() if place == section] \
        if own in found else [(own, 0, 0)]


def elf_functions(data: bytes) -> dict[str, tuple[int, int, int]]:
    """Section, place and size of the functions in a 64-bit little-endian ELF object, by name; none for anything
    else."""
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        return {}
    table, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    found: dict[str, tuple[int, int, int]] = {}
    for number in range(count):
        at = table + number * size
        if at + 64 > len(data):
            return found
        kind = struct.unpack_from("<I", data, at + 4)[0]
        if kind != 2:  # SHT_SYMTAB
            continue
        offset, nbytes, link = *struct.unpack_from("<QQ", data, at + 24), struct.unpack_from("<I", data, at + 40)[0]
        names = struct.unpack_from("<Q", data, table + link * size + 24)[0]
        for place in range(offset, min(offset + nbytes, len(data) - 23), 24):
            name, info, _, section, start, length = struct.unpack_from("<IBBHQQ", data, place)
            if info & 15 == 2:  # STT_FUNC
                first = names + name
                found[data[first:data.index(b"\0", first)].decode("ascii", "replace")] = section, start, length
    return found


def write_perf_map(folder: str | Path = "/tmp") -> Path:
    """`perf-PID.map` in a folder: perf looks in /tmp. A line per function: address, size, name."""
    where = Path(folder) / f"perf-{os.getpid()}.map"
    write_text(where, "".join(f"{one.address:x} {one.nbytes:x} {one.name}\n" for one in symbols()))
    return where


def write_jitdump(folder: str | Path = ".") -> Path:
    """`jit-PID.dump` in a folder, with the machine code of every kernel. It is mapped executable for a moment: that
    mapping is how `perf record` learns of the file."""
    where = Path(folder) / f"jit-{os.getpid()}.dump"
    stamp = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    with _whole(where) as file:
        file.write(HEADER.pack(MAGIC, VERSION, HEADER.size, MACHINES.get(host_architecture(), 0), 0, os.getpid(), stamp,
                               0))
        file.flush()
        marker = _marker(file.fileno())
        for number, one in enumerate(symbols()):
            name, body = one.name.encode() + b"\0", ctypes.string_at(one.address, one.nbytes)
            total = RECORD.size + LOAD.size + len(name) + len(body)
            file.write(RECORD.pack(CODE_LOAD, total, stamp) + LOAD.pack(
                os.getpid(), os.getpid(), one.address, one.address, one.nbytes, number) + name + body)
        if marker is not None:
            marker.close()
    return where


@contextmanager
def _whole(where: Path) -> Iterator[BinaryIO]:
    """A file under its own name, which perf has seen mapped; none is left where it cannot be written to the end."""
    with storing(where):
        try:
            with where.open("wb+") as file:
                yield file
        except OSError:
            where.unlink(missing_ok=True)
            raise


def _marker(descriptor: int) -> mmap.mmap | None:
    """The file's header mapped executable; None where the system does not allow it, and perf must be told by name."""
    try:
        return mmap.mmap(descriptor, HEADER.size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    except (OSError, AttributeError):
        return None
