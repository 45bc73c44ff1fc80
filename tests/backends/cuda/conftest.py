"""The emulated GPU of these tests."""

from __future__ import annotations

import pytest

from morpho.backends.cuda.emulator.install import install


@pytest.fixture
def gpu() -> str:
    """A GPU whose grid runs on the CPU."""
    return install()
