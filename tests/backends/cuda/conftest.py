"""The emulated GPU of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from native_device import Native

from morpho.backends import registry
from morpho.backends.cuda.backend import CudaBackend
from morpho.backends.cuda.emulator.install import install


@pytest.fixture
def gpu() -> str:
    """A GPU whose grid runs on the CPU."""
    return install()


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Iterator[Native]:
    found = Native()
    monkeypatch.setitem(registry._kinds, "cuda", registry.Kind(lambda n: CudaBackend("cuda:0", found), lambda: 1, True))
    registry._made.pop("cuda:0", None)
    yield found
    registry._made.pop("cuda:0", None)
