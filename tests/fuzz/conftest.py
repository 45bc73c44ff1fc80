"""Little programs take the ways of large ones."""

from __future__ import annotations

import pytest

from morpho.kernels import prologue


@pytest.fixture(autouse=True)
def _prologues_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prologue, "ENOUGH_ROWS", 1)
    monkeypatch.setattr(prologue, "ITEMS_PER_THREAD", 1)
