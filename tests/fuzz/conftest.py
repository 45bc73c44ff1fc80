"""Little programs take the ways of large ones."""

from __future__ import annotations

import ctypes

import pytest

from morpho.backends.kernels.gemm import prologue
from morpho.runtime.memory.pool import Allocation, Pool


@pytest.fixture(autouse=True)
def _prologues_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prologue, "ENOUGH_ROWS", 1)
    monkeypatch.setattr(prologue, "ITEMS_PER_THREAD", 1)


@pytest.fixture(autouse=True)
def _memory_is_dirty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that is not asked to be zero holds NaNs and odd numbers, as it may after other work."""
    acquire = Pool.acquire

    def dirty(pool: Pool, nbytes: int, zero: bool = False, device: str = "cpu") -> Allocation:
        block = acquire(pool, nbytes, zero, device)
        if not zero and device == "cpu":
            ctypes.memset(block.address, 0xFF, block.capacity)
        return block

    monkeypatch.setattr(Pool, "acquire", dirty)
