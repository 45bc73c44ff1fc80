"""The machine a figure was measured on, as plain data for the JSON file."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
PACKAGES = ("numpy", "scipy", "torch", "jax", "jaxlib", "numba", "onnxruntime", "onnx", "transformers",
            "xllamacpp", "scikit-learn", "llvmlite", "morpho-tensor")


def describe() -> dict[str, Any]:
    """CPU, cores this process may use, caches, memory, versions, and the load before anything ran."""
    return {
        "cpu": cpu_name(),
        "architecture": platform.machine(),
        "cores_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "caches": caches(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "transparent_huge_pages": read_text(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "packages": versions(),
        "load_average": list(os.getloadavg()),
    }


def processor_ticks() -> tuple[int, int]:
    """What a host took from this virtual machine since it began, and all that was asked for; zeros where nothing
    says."""
    line = (read_text(Path("/proc/stat")) or "").partition("\n")[0].split()
    if len(line) < 9 or line[0] != "cpu":
        return 0, 0
    user, nice, system, _, _, irq, soft, stolen = map(int, line[1:9])
    return stolen, user + nice + system + irq + soft + stolen


def taken_since(before: tuple[int, int]) -> float:
    """The share of the processor time asked for since then that a host gave to others."""
    stolen, wanted = (now - then for now, then in zip(processor_ticks(), before, strict=True))
    return stolen / wanted if wanted > 0 else 0.0


def cpu_name() -> str:
    """The CPU's name: x86 says it in /proc/cpuinfo, Arm only its implementer and part numbers."""
    fields: dict[str, str] = {}
    for line in (read_text(Path("/proc/cpuinfo")) or "").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    if "model name" in fields:
        return fields["model name"]
    if "CPU part" in fields:
        return f"Arm implementer {fields.get('CPU implementer')} part {fields['CPU part']}"
    return platform.processor() or "unknown"


def caches() -> dict[str, str]:
    """Caches of the first core, such as {"L1 Data": "64K", "L2 Unified": "1024K"}."""
    found: dict[str, str] = {}
    for folder in sorted(CACHES.glob("index*")):
        level, kind, size = (read_text(folder / name) for name in ("level", "type", "size"))
        if level and size:
            found[f"L{level} {kind}"] = size
    return found


def versions() -> dict[str, str | None]:
    """Installed versions of the peers, None when absent; nothing is imported."""
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def read_text(path: Path) -> str | None:
    """A file's text without surrounding blanks, None when it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return None
