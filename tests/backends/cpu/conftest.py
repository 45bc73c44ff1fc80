"""What tests of products share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from morpho.backends.kernels.gemm import matmul, tiling, unpacked_gemm
from morpho.cost.dispatch_thresholds import DEFAULT
from morpho.runtime import thresholds


@pytest.fixture(params=["rows stay packed", "rows are packed anew"])
def small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks so small that little matrices have several along every axis."""
    for name, size in (("TILE_ROWS", 16), ("TILE_COLUMNS", 24)):
        monkeypatch.setattr(tiling, name, size)
    monkeypatch.setattr(unpacked_gemm, "ONE_TILE_ROWS", 16)
    monkeypatch.setattr(tiling, "depth_of_block", lambda register, l1_bytes: 32)
    monkeypatch.setattr(matmul, "KEPT_SHARE", 1 if request.param == "rows stay packed" else 0)
    with thresholds.using(replace(DEFAULT, single_k_block_rows=4, unpacked_bytes=(), unpacked_transposed_bytes=())):
        yield


@pytest.fixture
def packed() -> Iterator[None]:
    """Few rows are packed as many are."""
    with thresholds.using(replace(DEFAULT, unpacked_bytes=(), unpacked_transposed_bytes=())):
        yield
