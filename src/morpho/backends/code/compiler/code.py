"""Compiled code: from a kernel to its address, through memory, disk and LLVM, in that order."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from morpho.backends.base import CodeStore
from morpho.backends.code import elementwise
from morpho.backends.code.compiler import llvm
from morpho.backends.kernels.generators import generate
from morpho.base.errors import MemoryLimit, MorphoError
from morpho.base.machine import Isa
from morpho.base.target import current_isa
from morpho.program.kernel import Kernel, Role

log = logging.getLogger("morpho")
FOLDERS = ("base", "ir", "ops", "cost", "passes", "program", "backends", "runtime")  # whose source decides a plan


class Counters:
    """Counters of the code cache; `snapshot` is for stats and tests."""

    def __init__(self) -> None:
        self.memory_hits = self.disk_hits = self.compiled = self.plan_hits = 0
        self.generate_ms = self.compile_ms = self.load_ms = 0.0

    def snapshot(self) -> dict[str, float]:
        return dict(self.__dict__)


counters = Counters()
_addresses: dict[tuple[Kernel, str], int] = {}
_by_key: dict[str, int] = {}  # the same by the disk key
_lock = threading.RLock()


def _hold_locks() -> None:
    """Before a fork: no other thread is in the middle of LLVM, whose state a child would inherit for good."""
    _lock.acquire()
    llvm.lock.acquire()


def _release_locks() -> None:
    llvm.lock.release()
    _lock.release()


os.register_at_fork(before=_hold_locks, after_in_parent=_release_locks, after_in_child=_release_locks)


def _no_store() -> CodeStore | None:
    return None


open_store: Callable[[], CodeStore | None] = _no_store  # the runtime's, which stands above this floor


def disk_cache() -> CodeStore | None:
    """Where compiled code is kept, or None when that is switched off."""
    return open_store()


@cache
def _version() -> str:
    """Version key of code and plans besides the program: Morpho's own source and LLVM."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        llvm = version("llvmlite")
    except PackageNotFoundError:
        llvm = "unknown"
    return f"{source_digest()}/{llvm}"


@cache
def source_digest(folders: Sequence[str] = FOLDERS) -> str:
    """A hash of the source that decides code and plans, or of other folders; read once, then known by the files' sizes
    and times."""
    import morpho.base

    package = os.path.dirname(os.path.dirname(morpho.base.__file__))
    looks = sorted(look for folder in folders for look in _sources(os.path.join(package, folder)))
    disk = disk_cache()
    key = hashlib.sha256(f"sources {looks}".encode()).hexdigest()
    known = disk.get(key) if disk is not None else None
    if known is not None and len(known) == hashlib.sha256().digest_size:
        return known.hex()
    digest = hashlib.sha256()
    for path, _, _ in looks:
        with open(path, "rb") as file:
            digest.update(file.read())
    if disk is not None:
        disk.put(key, digest.digest())
    return digest.hexdigest()


def _sources(folder: str) -> Iterator[tuple[str, int, int]]:
    """Path, size and time of change of the Python files in a folder and below."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                found = entry.stat()
                yield entry.path, found.st_size, found.st_mtime_ns
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _sources(entry.path)


def stored_text(name: str, write: Callable[[], str]) -> str:
    """LLVM text that follows from Morpho's source alone: written once for each version of it, then read from disk."""
    disk = disk_cache()
    if disk is None:
        return write()
    key = hashlib.sha256(f"text {name} {_version()}".encode()).hexdigest()
    stored = disk.get(key)
    if stored is not None:
        return stored.decode()
    text = write()
    disk.put(key, text.encode())
    return text


def code_key(identity: str, isa: Isa) -> str:
    """The disk key: the kernel, the instruction set with its features, the machine's kind, and the versions."""
    parts = (identity, isa.name, isa.llvm_cpu, isa.llvm_features, str(isa.vector_bits), llvm.host(), _version())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def known_address(kernel: Kernel, isa: Isa) -> int | None:
    """The address of a kernel whose code is in memory under its own name."""
    return _by_key[kernel.key] if isinstance(kernel, StoredKernel) else _addresses.get((kernel, isa.name))


def is_known(kernel: Kernel, isa: Isa) -> bool:
    """Whether a kernel was asked for before."""
    return (kernel, isa.name) in _addresses


def has_key(key: str) -> bool:
    """Whether the code of a disk key is in memory."""
    return key in _by_key


def adopt(stored: Mapping[str, bytes], compiled: Mapping[str, bytes], isa: Isa) -> None:
    """Put code from disk and code just compiled into memory, each all at once."""
    with _lock:
        stored = {key: code for key, code in stored.items() if key not in _by_key}
        if stored and _load(stored, isa):
            counters.memory_hits -= len(stored)  # who asks for them finds them in memory
        new = {key: code for key, code in compiled.items() if key not in _by_key}
        counters.compiled += len(compiled)
        if new:
            started = time.perf_counter()
            _by_key.update(zip(new, llvm.load(list(new.values()), isa, [function_name(key) for key in new]),
                               strict=True))
            counters.memory_hits -= len(new)
            counters.load_ms += 1e3 * (time.perf_counter() - started)


def _load(codes: Mapping[str, bytes], isa: Isa) -> bool:
    """Put the code of kernels into memory; False where it does not load. Call it with the lock held."""
    started = time.perf_counter()
    try:
        addresses = llvm.load(list(codes.values()), isa, [function_name(key) for key in codes])
    except MemoryLimit:
        raise
    except MorphoError as error:
        log.warning("compiled code could not be loaded and is compiled again: %s", error)
        return False
    _by_key.update(zip(codes, addresses, strict=True))
    counters.disk_hits += len(codes)
    counters.load_ms += 1e3 * (time.perf_counter() - started)
    return True


@dataclass(frozen=True)
class StoredKernel:
    """A kernel of a plan that came from disk: where its code lies, and the numbers an executable asks for."""

    key: str
    flops: int
    scratch_bytes_per_column: int
    scratch_bytes: int
    transposed: bool
    may_fault: bool
    one_by_one: bool
    uneven: bool
    on_matrix_unit: bool
    gathered: tuple[int, ...]
    role: Role
    op_names: frozenset[str] = frozenset()  # known when the code was made


def stored_kernel(kernel: Kernel) -> StoredKernel:
    """A kernel as a plan on disk names it."""
    if isinstance(kernel, StoredKernel):
        return kernel
    return StoredKernel(kernel_key(kernel, current_isa()), kernel.flops, kernel.scratch_bytes_per_column,
                        kernel.scratch_bytes, kernel.transposed, kernel.may_fault, kernel.one_by_one, kernel.uneven,
                        kernel.on_matrix_unit, kernel.gathered, kernel.role)


def load_kernels(keys: Sequence[str]) -> bool:
    """Take the code of kernels from disk, all of it at once; False when some of it is not there."""
    isa, disk = current_isa(), disk_cache()
    with _lock:
        missing = [key for key in dict.fromkeys(keys) if key not in _by_key]
        found = {key: code for key in missing if disk is not None and (code := disk.get(key)) is not None}
        if len(found) < len(missing) or (found and not _load(found, isa)):
            return False
        counters.memory_hits += len(set(keys)) - len(missing)
    return True


def function_name(key: str) -> str:
    """The name of a kernel's function: its own, so that many objects can be loaded together."""
    return f"kernel_{key[:32]}"


def kernel_address(kernel: Kernel, isa: Isa) -> int:
    """The address of a kernel that was not known just now."""
    with _lock:  # one thread compiles, the others find the result
        key = kernel_key(kernel, isa)
        known = _by_key.get(key)
        if known is None:
            name = function_name(key)
            (known,) = _functions(key, lambda: generate(kernel, isa, name), (name,), isa)
        else:
            counters.memory_hits += 1
        _addresses[kernel, isa.name] = _by_key[key] = known
        return known


def kernel_key(kernel: Kernel, isa: Isa) -> str:
    """The disk key of a kernel's code; with an emitter of a user's inside, of the code it writes, since that may
    change."""
    if kernel.op_names & elementwise.ADDED.keys():
        return code_key(generate(kernel, isa, "kernel"), isa)
    return _plain_key(kernel, isa)


@lru_cache(maxsize=4096)
def _plain_key(kernel: Kernel, isa: Isa) -> str:
    """The same by the kernel as text; asked for when it is offered, looked up and stored."""
    return code_key(repr(kernel), isa)


def forget(name: str) -> None:
    """Drop addresses of kernels that use an op, because its code has changed."""
    with _lock:
        for key in [k for k in _addresses if name in k[0].op_names]:
            del _addresses[key]


def native_functions(identity: str, write: Any, names: Sequence[str], isa: Isa) -> list[int]:
    """Addresses of the functions of a module, from disk if it is there, else compiled and put there."""
    return _functions(code_key(identity, isa), write, names, isa)


def addresses_of(identity: str, *parts: Any, isa: Isa) -> list[int]:
    """Addresses of `@native` functions as one module, translated and compiled once for each version of the source."""
    def write() -> str:
        from morpho.backends.code.native import module

        return module(*parts)

    return native_functions(identity, write, [part.symbol for part in parts], isa)


def _functions(key: str, write: Any, names: Sequence[str], isa: Isa) -> list[int]:
    disk = disk_cache()
    started = time.perf_counter()
    code = disk.get(key) if disk is not None else None
    if code is not None:
        try:
            addresses = llvm.load(code, isa, list(names))
        except MemoryLimit:
            raise
        except MorphoError as error:
            log.warning("compiled code %s could not be loaded and is compiled again: %s", key[:12], error)
        else:
            counters.disk_hits += 1
            counters.load_ms += 1e3 * (time.perf_counter() - started)
            return addresses
    started = time.perf_counter()
    text = write()
    middle = time.perf_counter()
    code = llvm.compile_text(text, isa)
    counters.compiled += 1
    counters.generate_ms += 1e3 * (middle - started)
    counters.compile_ms += 1e3 * (time.perf_counter() - middle)
    if disk is not None:
        disk.put(key, code)
    started = time.perf_counter()
    addresses = llvm.load(code, isa, list(names))
    counters.load_ms += 1e3 * (time.perf_counter() - started)
    return addresses
