"""The device of these tests is there before any of them runs."""

from __future__ import annotations

import delayed
import pytest

import morpho as mo


@pytest.fixture
def device() -> str:
    """A device whose memory the host does not see."""
    delayed.install()
    assert "delayed:0" in mo.devices()
    return "delayed:0"
