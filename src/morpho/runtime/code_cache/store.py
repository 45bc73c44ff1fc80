"""The folder of compiled code that the settings choose; backends keep their code there."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from morpho.backends.code.compiler import code
from morpho.base import settings
from morpho.runtime.code_cache.disk import DiskCache


@cache
def _disk(folder: str, limit_bytes: int) -> DiskCache:
    return DiskCache(Path(folder), limit_bytes)


def open_store() -> DiskCache | None:
    """The folder of compiled code, or None when it is switched off."""
    chosen = settings.get()
    return _disk(str(chosen.cache_path), chosen.cache_bytes) if chosen.cache else None


code.open_store = open_store
