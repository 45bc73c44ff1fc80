"""Capabilities of this machine, and the instruction sets Morpho compiles for, both as plain data.

>>> here = machine()
>>> here.cores >= 1
True
>>> choose_isa("native", here).lanes(4) in (4, 8, 16)
True

Nothing here loads LLVM or runs a program: Linux is read from `/proc` and `/sys`, macOS through `sysctl`.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from morpho.base.errors import ArgumentError, DeviceError, fail

# --------------------------------------------------------------------------------------------------- the machine


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine as this process may use it.

    `cores` is what the affinity mask and the cgroup quota leave (rounded up, at least 1), `memory_bytes` the smaller
    of the installed memory and the cgroup limit. Cache sizes are those of one instance; `l1_bytes` is the data cache;
    an `l3_bytes` of 0 means none is known. `features` are the names the operating system uses (`avx2`, `asimdhp`).
    """

    architecture: str
    cpu_name: str
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    memory_bytes: int
    features: frozenset[str]


_ARCHITECTURES = {"amd64": "x86_64", "x86-64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
_DEFAULT_L1_BYTES = 32 << 10
_DEFAULT_L2_BYTES = 512 << 10


@cache
def machine() -> Machine:
    """This machine, read once per process; `machine.cache_clear()` reads it again."""
    return _darwin_machine() if sys.platform == "darwin" else read_machine()


def read_machine(proc: Path = Path("/proc"), cpus: Path = Path("/sys/devices/system/cpu")) -> Machine:
    """The machine a `/proc` and a `/sys` tree describe; whatever is missing there comes from `os` and `platform`."""
    information = _cpu_information(proc)
    features = information.get("flags") or information.get("Features") or ""
    l1_bytes, l2_bytes, l3_bytes = _cache_bytes(cpus)
    installed_bytes = _installed_memory_bytes()
    return Machine(
        architecture=host_architecture(),
        cpu_name=_cpu_name(information),
        cores=usable_cores(allowed_cores(), quota_cores(proc)),
        l1_bytes=l1_bytes or _system_value("SC_LEVEL1_DCACHE_SIZE") or _DEFAULT_L1_BYTES,
        l2_bytes=l2_bytes or _system_value("SC_LEVEL2_CACHE_SIZE") or _DEFAULT_L2_BYTES,
        l3_bytes=l3_bytes or _system_value("SC_LEVEL3_CACHE_SIZE"),
        memory_bytes=min(installed_bytes, limit_bytes(proc) or installed_bytes),
        features=_permitted(frozenset(features.split())),
    )


def _permitted(features: frozenset[str]) -> frozenset[str]:
    """Without the matrix units where Linux does not give this process their registers, for which it must be asked."""
    if "amx_tile" not in features:
        return features
    request, tile_data, system_call = 0x1023, 18, 158  # ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA, arch_prctl of x86_64
    try:
        given = host_architecture() == "x86_64" and ctypes.CDLL(None).syscall(system_call, request, tile_data) == 0
    except (AttributeError, OSError):
        given = False
    return features if given else features - _TILES


def host_architecture() -> str:
    """`x86_64`, `aarch64`, or the platform's own word in lower case."""
    name = platform.machine().lower()
    return _ARCHITECTURES.get(name, name)


def _read(path: Path) -> str:
    """The text of a small file, or an empty string: half of `/sys` is missing somewhere."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):
        return ""


def _system_value(name: str) -> int:
    try:
        return max(os.sysconf(name), 0)
    except (AttributeError, OSError, ValueError):
        return 0


def _installed_memory_bytes() -> int:
    return _system_value("SC_PHYS_PAGES") * _system_value("SC_PAGE_SIZE")


# ------------------------------------------------------------------------------------------------------- its name


def _cpu_information(proc: Path) -> dict[str, str]:
    """The first processor of `/proc/cpuinfo` as a dict."""
    found: dict[str, str] = {}
    for line in _read(proc / "cpuinfo").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


_ARM_PARTS = {
    ("0x41", "0xd03"): "Cortex-A53",
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0x41", "0xd83"): "Neoverse-V3AE",
    ("0x41", "0xd84"): "Neoverse-V3",
    ("0x41", "0xd8e"): "Neoverse-N3",
    ("0x46", "0x001"): "A64FX",
    ("0xc0", "0xac3"): "Ampere-1",
    ("0xc0", "0xac4"): "Ampere-1A",
}


def _cpu_name(information: dict[str, str]) -> str:
    name = information.get("model name") or information.get("Model") or information.get("Hardware")
    if name:
        return name
    implementer, part = information.get("CPU implementer", ""), information.get("CPU part", "")
    if implementer and part:
        return _ARM_PARTS.get((implementer, part), f"ARM implementer {implementer} part {part}")
    return platform.processor() or "unknown"


# ----------------------------------------------------------------------------------------------------- its caches


def _cache_bytes(cpus: Path) -> tuple[int, int, int]:
    """Data cache sizes of levels 1, 2, 3 of the first processor that says so; 0 where unknown."""
    sizes = [0, 0, 0]
    for entry in sorted(cpus.glob("cpu[0-9]*/cache/index*"), key=lambda path: (len(str(path)), str(path))):
        level = _read(entry / "level")
        if _read(entry / "type") != "Instruction" and level in ("1", "2", "3") and not sizes[int(level) - 1]:
            sizes[int(level) - 1] = _size_bytes(_read(entry / "size"))
        if all(sizes):
            break
    return sizes[0], sizes[1], sizes[2]


def _size_bytes(text: str) -> int:
    """`/sys` writes 64K, 1024K, 32M."""
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    return int(number) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(unit, 0) if number.isdigit() else 0


# --------------------------------------------------------------------------------------- its cores and its memory


def other_load(seconds: float = 0.1, proc: Path = Path("/proc")) -> float:
    """Threads of other programs that want a core, per core of the machine: their mean over a short time. Where that is
    not known, the load average, which looks back a minute.

    >>> other_load(0.01) >= 0
    True
    """
    cores, counts = os.cpu_count() or 1, []
    for sample in range(5):
        if sample:
            time.sleep(seconds / 4)
        try:
            line = next(line for line in (proc / "stat").read_text().splitlines() if line.startswith("procs_running"))
            counts.append(max(0, int(line.split()[1]) - 1))  # this thread runs while it asks
        except (OSError, ValueError, IndexError, StopIteration):
            try:
                return os.getloadavg()[0] / cores
            except OSError:
                return 0.0
    return sum(counts) / len(counts) / cores


def slowed(load: float, share: float = 1.0) -> float:
    """How many times longer work that wants this share of the cores takes beside such a load, if all get equal turns.

    >>> slowed(0.5, 0.5), slowed(3.0)
    (1.0, 4.0)
    """
    return max(1.0, load + share)


def allowed_cores() -> int:
    """How many processors this process may be scheduled on: its affinity mask, not the sockets' count."""
    if hasattr(os, "sched_getaffinity"):
        try:
            return len(os.sched_getaffinity(0))
        except OSError:
            pass
    return os.cpu_count() or 1


def usable_cores(allowed: int, quota: float) -> int:
    """The cores worth a thread each: the smaller of mask and quota, rounded up, at least one.

    >>> usable_cores(8, 2.5), usable_cores(4, math.inf), usable_cores(16, 0.1)
    (3, 4, 1)
    """
    return max(1, allowed if quota == math.inf else min(allowed, math.ceil(quota)))


def quota_cores(proc: Path = Path("/proc")) -> float:
    """Cores' worth of time the cgroups grant (v1 and v2, every ancestor counts), infinite without a quota."""
    quota = math.inf
    for folder in _cgroup_folders(proc, "cpu"):
        words = _read(folder / "cpu.max").split()
        if not words:
            words = [_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")]
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[0]) > 0 and int(words[1]) > 0:
            quota = min(quota, int(words[0]) / int(words[1]))
    return quota


def limit_bytes(proc: Path = Path("/proc")) -> int:
    """The bytes of memory the cgroups allow this process, 0 without a limit."""
    limits = []
    for folder in _cgroup_folders(proc, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name)
            if text.isdigit() and int(text) < 1 << 60:
                limits.append(int(text))
    return min(limits, default=0)


def _cgroup_folders(proc: Path, controller: str) -> Iterator[Path]:
    """Every cgroup folder of this process that may hold a limit of `controller`, innermost first."""
    paths = {}
    for line in _read(proc / "self" / "cgroup").splitlines():
        number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if number == "0" and not controllers:
            paths["cgroup2"] = path
        elif controller in controllers.split(","):
            paths["cgroup"] = path
    for line in _read(proc / "self" / "mountinfo").splitlines():
        before, dash, after = line.partition(" - ")
        words, kinds = before.split(), after.split()
        if not dash or len(words) < 5 or len(kinds) < 3 or kinds[0] not in paths:
            continue
        if kinds[0] == "cgroup" and controller not in kinds[2].split(","):
            continue
        yield from _upwards(Path(words[4]), words[3], paths[kinds[0]])


def _upwards(mount: Path, root: str, path: str) -> Iterator[Path]:
    """The folders from a cgroup up to its mount; in a container the mount shows only what lies below `root`."""
    root = root.rstrip("/")
    inside = path.removeprefix(root).strip("/") if path == root or path.startswith(root + "/") else ""
    parts = [part for part in inside.split("/") if part not in ("", "..")]
    for length in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:length])


# ---------------------------------------------------------------------------------------------------------- macOS


def _sysctl(name: str) -> bytes:
    """The raw value of one `sysctl` entry, empty when there is none."""
    size = ctypes.c_size_t(0)
    library = ctypes.CDLL(None)
    if library.sysctlbyname(name.encode(), None, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        return b""
    value = ctypes.create_string_buffer(size.value)
    if library.sysctlbyname(name.encode(), value, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        return b""
    return value.raw[: size.value]


def _sysctl_text(name: str) -> str:
    return _sysctl(name).rstrip(b"\0").decode(errors="replace")


def _sysctl_number(*names: str) -> int:
    """The first of these entries that is a number above zero."""
    for name in names:
        number = int.from_bytes(_sysctl(name), sys.byteorder)
        if number:
            return number
    return 0


def _darwin_features(architecture: str) -> frozenset[str]:
    """The features under their Linux names."""
    if architecture == "aarch64":
        half = {"fphp", "asimdhp"} if _sysctl_number("hw.optional.arm.FEAT_FP16", "hw.optional.neon_fp16") else set()
        dot = {"asimddp"} if _sysctl_number("hw.optional.arm.FEAT_DotProd") else set()
        return frozenset({"fp", "asimd"} | half | dot)
    words = " ".join(_sysctl_text(f"machdep.cpu.{name}") for name in ("features", "leaf7_features", "extfeatures"))
    renamed = {"avx1.0": "avx", "lzcnt": "abm", "sse4.1": "sse4_1", "sse4.2": "sse4_2"}
    return frozenset(renamed.get(word, word) for word in words.lower().split())


def _darwin_machine() -> Machine:
    architecture = host_architecture()
    return Machine(
        architecture=architecture,
        cpu_name=_sysctl_text("machdep.cpu.brand_string") or platform.processor() or "unknown",
        cores=allowed_cores(),
        l1_bytes=_sysctl_number("hw.perflevel0.l1dcachesize", "hw.l1dcachesize") or _DEFAULT_L1_BYTES,
        l2_bytes=_sysctl_number("hw.perflevel0.l2cachesize", "hw.l2cachesize") or _DEFAULT_L2_BYTES,
        l3_bytes=_sysctl_number("hw.perflevel0.l3cachesize", "hw.l3cachesize"),
        memory_bytes=_sysctl_number("hw.memsize") or _installed_memory_bytes(),
        features=_darwin_features(architecture),
    )


# ----------------------------------------------------------------------------------------------- instruction sets


@dataclass(frozen=True, slots=True)
class Isa:
    """An instruction set to compile for: what LLVM is told, and what the machine must have to run the result.

    The processor named to LLVM is a level, not a model, so the object code of one `Isa` is the same everywhere (dot
    products of bytes are added to AVX-512 where the machine has them);
    `llvm_tune` may name a model whose timings the scheduler shall assume (the `tune-cpu` attribute of a function).
    An empty `architecture` means any: `choose_isa` fills in the host's.
    """

    name: str
    architecture: str
    vector_bits: int
    llvm_cpu: str
    llvm_features: str
    needs: frozenset[str]
    llvm_tune: str = ""
    matrix_units: bool = False  # whether bfloat16 and bytes are multiplied in tiles
    inline_asm: bool = False  # whether kernels may hold assembly of AArch64, which LLVM reads on such a host only

    def lanes(self, itemsize: int) -> int:
        """How many elements of `itemsize` bytes one vector holds; scalar code holds one.

        >>> ISAS["avx2"].lanes(4), ISAS["scalar"].lanes(4), ISAS["neon"].lanes(16)
        (8, 1, 1)
        """
        return max(1, self.vector_bits // (8 * itemsize))

    @property
    def registers(self) -> int:
        """How many vectors the registers hold."""
        return 16 if self.architecture == "x86_64" and self.vector_bits < 512 else 32

    @property
    def native_half(self) -> bool:
        """Whether float16 converts by an instruction; if not, kernels do it by integer arithmetic."""
        return self.architecture not in ("x86_64", "wasm32") or "+f16c" in self.llvm_features

    @property
    def lookups(self) -> str:
        """The instructions that pick numbers of a register by those of another; empty where there are none."""
        if self.architecture == "aarch64" and self.vector_bits:
            return "neon"
        return "avx512" if "+avx512f" in self.llvm_features else "avx2" if "+avx2" in self.llvm_features else ""

    @property
    def masks(self) -> bool:
        """Whether vectors of every element can be read and written in part."""
        return "+avx512bw" in self.llvm_features


# All that x86-64-v3 and v4 imply beyond what every x86_64 has; LLVM may use any of it.
_NEEDS_V3 = frozenset({"avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe", "popcnt"})
_NEEDS_V4 = _NEEDS_V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_TILES = frozenset({"amx_tile", "amx_bf16", "amx_int8"})
_FEATURES_V3 = "+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt"
_FEATURES_V4 = _FEATURES_V3 + ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,-prefer-256-bit"

ISAS: dict[str, Isa] = {
    isa.name: isa
    for isa in (
        Isa("scalar", "", 0, "", "", frozenset()),
        Isa("neon", "aarch64", 128, "generic", "+neon", frozenset({"asimd"})),
        Isa("avx2", "x86_64", 256, "x86-64-v3", _FEATURES_V3, _NEEDS_V3),
        Isa("avx512", "x86_64", 512, "x86-64-v4", _FEATURES_V4, _NEEDS_V4),
        Isa("amx", "x86_64", 512, "x86-64-v4", _FEATURES_V4 + ",+amx-tile,+amx-bf16,+amx-int8", _NEEDS_V4 | _TILES,
            matrix_units=True),
        Isa("vector128", "", 128, "", "", frozenset()),
        Isa("vector256", "", 256, "", "", frozenset()),
        Isa("vector512", "", 512, "", "", frozenset()),
    )
}

# Features that are used where the machine has them: what it calls them, and what LLVM does.
_OPTIONAL = {
    "x86_64": (({"fma"}, "+fma"), ({"f16c"}, "+f16c"), ({"sse4_1"}, "+sse4.1")),
    "aarch64": (({"fphp", "asimdhp"}, "+fullfp16"), ({"asimddp"}, "+dotprod"),
                ({"i8mm"}, "+i8mm")),
}
_BASELINE = {"x86_64": ("x86-64", ""), "aarch64": ("generic", "+neon")}


def _has(isa: Isa, machine: Machine) -> bool:
    return isa.architecture in ("", machine.architecture) and isa.needs <= machine.features


def available_isas(machine: Machine) -> tuple[str, ...]:
    """The names `choose_isa` takes on this machine.

    >>> available_isas(foreign_machine("aarch64"))
    ('scalar', 'neon', 'vector128', 'vector256', 'vector512')
    """
    return tuple(name for name, isa in ISAS.items() if _has(isa, machine))


def _native_name(machine: Machine) -> str:
    return next((name for name in ("amx", "avx512", "avx2", "neon") if _has(ISAS[name], machine)), "vector128")


def _baseline(isa: Isa, machine: Machine) -> Isa:
    """`isa` on the least processor of the architecture, with the optional features this machine has."""
    cpu, features = _BASELINE.get(machine.architecture, ("generic", ""))
    words, needs = [features] if features else [], isa.needs
    for names, llvm in _OPTIONAL.get(machine.architecture, ()):
        if names <= machine.features:
            words, needs = [*words, llvm], needs | names
    return replace(
        isa, architecture=machine.architecture, llvm_cpu=cpu, llvm_features=",".join(words), needs=needs,
        inline_asm=machine.architecture == "aarch64" == host_architecture(),
    )


def choose_isa(name: str, machine: Machine) -> Isa:
    """The instruction set of that name, complete for this machine; `native` is the best the machine has.

    `scalar` is compiled for the least processor of the architecture, `vector128`, `vector256` and `vector512` for the
    native instruction set with vectors of that width, which LLVM splits or joins as needed.

    >>> choose_isa("native", foreign_machine("x86_64")).name
    'amx'
    """
    name = _native_name(machine) if name == "native" else name
    if name not in ISAS:
        raise fail(ArgumentError, "isa", f"{name!r} is unknown", "use native, " + ", ".join(ISAS))
    isa = ISAS[name]
    if not _has(isa, machine):
        raise fail(DeviceError, "isa", _refusal(isa, machine), "use isa=native")
    if name in ("scalar", "neon"):
        return _baseline(isa, machine)
    if name in ("avx512", "amx") and "avx512_vnni" in machine.features:
        return replace(isa, llvm_features=isa.llvm_features + ",+avx512vnni", needs=isa.needs | {"avx512_vnni"})
    if isa.architecture:
        return isa
    native = ISAS[_native_name(machine)]
    if native.name in ("avx2", "avx512", "amx"):
        return replace(native, name=name, vector_bits=isa.vector_bits, matrix_units=False)
    return _baseline(isa, machine)


def _refusal(isa: Isa, machine: Machine) -> str:
    has = ", ".join(available_isas(machine))
    if isa.architecture != machine.architecture:
        here = f"{machine.architecture} ({machine.cpu_name})"
        return f"{isa.name} is for {isa.architecture}, this machine is {here} and has {has}"
    missing = ", ".join(sorted(isa.needs - machine.features))
    return f"{isa.name} needs {missing}, which this machine ({machine.cpu_name}) lacks; it has {has}"


def foreign_machine(architecture: str, features: frozenset[str] | None = None) -> Machine:
    """A machine to compile for without running: this one's sizes, another architecture.

    Without `features` it has everything an instruction set of that architecture needs.
    """
    if features is None:
        features = frozenset().union(*(isa.needs for isa in ISAS.values() if isa.architecture == architecture))
        features |= {"fphp", "asimdhp"} if architecture == "aarch64" else frozenset()
    return replace(machine(), architecture=architecture, cpu_name=f"generic {architecture}", features=features)
