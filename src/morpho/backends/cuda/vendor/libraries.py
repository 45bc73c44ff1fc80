"""Where NVIDIA's libraries are: in their wheels (`nvidia-*`, which PyTorch brings too), in a toolkit, or on the
linker's path.

Nothing is loaded before somebody asks. Without a library there is one sentence, which names the extra that has it.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from morpho.base.distribution import install
from morpho.base.errors import DeviceError, fail

VERSIONS = {"cublas": ("13", "12"), "cublasLt": ("13", "12"), "cusolver": ("12", "11"), "cusparse": ("12",),
            "nccl": ("2",), "nvJitLink": ("13", "12")}
HINT = f"{install('cuda')} brings it, or any installation of CUDA 12 or 13"
TOOLKITS = ("/usr/local/cuda/lib64", "/usr/local/cuda-13/lib64", "/usr/local/cuda-12/lib64")


def _folders() -> Iterator[Path]:
    """Folders of wheels, then of toolkits."""
    found = importlib.util.find_spec("nvidia")
    for root in (found.submodule_search_locations or ()) if found is not None else ():
        yield from sorted(Path(root).glob("*/lib"))
    yield from (Path(folder) for folder in TOOLKITS)


def places(name: str) -> Iterator[str]:
    """Names of a library to be tried, best first.

    >>> list(places("nccl"))[-1]
    'libnccl.so.2'
    """
    files = [f"lib{name}.so.{version}" for version in VERSIONS[name]]
    for folder in _folders():
        for file in files:
            if (folder / file).exists():
                yield str(folder / file)
    yield from files


@cache
def found(name: str) -> Any | None:
    """A library, or None where there is none that loads."""
    for place in places(name):
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    return None


def library(name: str) -> Any:
    """A library, or an error that says how to get it."""
    handle = found(name)
    if handle is None:
        raise fail(DeviceError, name, f"lib{name} is not installed", HINT)
    return handle


def listed() -> dict[str, str]:
    """The libraries by name, and where each was found; empty where it was not.

    >>> sorted(listed())
    ['cublas', 'cublasLt', 'cusolver', 'cusparse', 'nccl', 'nvJitLink']
    """
    return {name: getattr(found(name), "_name", "") if found(name) is not None else "" for name in VERSIONS}
