"""What tests of products share."""

from __future__ import annotations

import pytest

from morpho.kernels import gemm


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that little matrices have several along every axis."""
    for name, size in (("MOST_DEPTH", 32), ("TILE_ROWS", 16), ("TILE_COLUMNS", 24), ("FEW_ROWS", 4)):
        monkeypatch.setattr(gemm, name, size)
