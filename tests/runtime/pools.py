"""What tests of the pool share: sizes around its limits, and a clock that they move."""

from __future__ import annotations

from morpho.runtime.memory.pool import MAPPED_BYTES

SIZES = [0, 1, 63, 64, 65, 1000, 4096, 100_000, MAPPED_BYTES - 1, MAPPED_BYTES, MAPPED_BYTES + 1, 5_000_000]


class Clock:
    """A clock the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s
