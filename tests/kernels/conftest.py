"""What tests of products share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from morpho.cost.crossovers import DEFAULT
from morpho.kernels import gemm
from morpho.runtime import measure


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks so small that little matrices have several along every axis."""
    for name, size in (("MOST_DEPTH", 32), ("TILE_ROWS", 16), ("TILE_COLUMNS", 24)):
        monkeypatch.setattr(gemm, name, size)
    with measure.using(replace(DEFAULT, one_block_rows=4, direct_bytes=(), turned_bytes=())):
        yield
