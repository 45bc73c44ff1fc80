"""The OpenBLAS that NumPy carries: how many threads it may use, so that it never adds to Morpho's own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

from morpho.base.in_force import wanted_threads


@cache
def _setter() -> Callable[[int], object] | None:
    """OpenBLAS's own function for its number of threads, or None where NumPy has another BLAS."""
    import numpy

    root = Path(numpy.__file__).parent
    for folder in (root.parent / "numpy.libs", root / ".dylibs", root / ".libs"):
        for path in sorted(folder.glob("*openblas*")) if folder.is_dir() else ():
            try:
                library = ctypes.CDLL(str(path))
            except OSError:
                continue
            for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_",
                         "scipy_openblas_set_num_threads", "openblas_set_num_threads"):
                if hasattr(library, name):
                    function = getattr(library, name)
                    function.argtypes, function.restype = [ctypes.c_int], None
                    return function  # type: ignore[no-any-return]
    return None


def keep_to_budget() -> bool:
    """Let BLAS use as many threads as Morpho would; the caller waits meanwhile, so they are never both at work.

    False where the number cannot be set: then BLAS keeps what its own environment variables say.
    """
    setter = _setter()
    if setter is not None:
        setter(wanted_threads())
    return setter is not None
