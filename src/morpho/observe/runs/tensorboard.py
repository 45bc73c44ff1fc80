"""A run for TensorBoard: event files by tensorboardX (the extra `tensorboard`)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from morpho.base.distribution import install
from morpho.base.errors import ArgumentError, fail
from morpho.weights.errors import MissingExtra


class Events:
    """Writes scalars of steps: `loss/train`, `loss/held_out`, `rate/learning`, `speed/tokens_per_s`, `seconds/...`."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise fail(MissingExtra, "train", f"event files need tensorboardX: {error}",
                       install("tensorboard")) from None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # The library names a file by the second: a run that goes on within it would write over what was there.
            self._writer: Any = SummaryWriter(str(folder), filename_suffix=f".{time.time_ns()}")
        except OSError as error:
            raise fail(ArgumentError, "train", f"{folder} cannot take event files: {error.strerror or error}",
                       "choose another folder with --tensorboard") from None

    def step(self, step: int, values: dict[str, float | None]) -> None:
        """Scalars of a step, those that there are."""
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()
