"""A run for TensorBoard: event files by tensorboardX (the extra `tensorboard`)."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from morpho.base.distribution import install
from morpho.base.errors import ArgumentError, fail
from morpho.weights.errors import MissingExtra

_log = logging.getLogger("morpho")


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
        self._folder, self._lost = folder, False
        inner = getattr(getattr(self._writer, "file_writer", None), "event_writer", None)
        self._thread = getattr(inner, "_worker", None)  # the library's own names: where there are none nobody looks
        self._queue = getattr(inner, "_event_queue", None)

    def step(self, step: int, values: dict[str, float | None]) -> None:
        """Scalars of a step, those that there are."""
        for name, value in values.items():
            if value is not None and not self._is_lost():
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        while self._queue is not None and not self._is_lost() and not self._queue.empty():
            time.sleep(0.001)
        try:
            if not self._is_lost():
                self._writer.close()
        except OSError as error:
            self._say(error.strerror or str(error))

    def _is_lost(self) -> bool:
        """Whether the library's thread, which writes, has ended by an error: it would be waited for for ever."""
        if not self._lost and self._thread is not None and not self._thread.is_alive():
            self._say("no space, or no right to write there")
        return self._lost

    def _say(self, why: str) -> None:
        self._lost = True
        _log.warning("[train] event files in %s cannot be written any more: %s; training goes on without them",
                     self._folder, why)
