"""Checkpoints of a training run: folders that are there whole or not at all, the last few of them kept.

A checkpoint holds the model, the optimiser, the keys of random draws and plain numbers. It is written under another
name, synchronised and moved into place, so that a run killed at any moment leaves only readable ones.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import morpho as mo
from morpho.base.errors import fail
from morpho.weights import FileFault, MissingFile, load, save
from morpho.weights.atomic import sync_folder

_NAME = re.compile(r"step-(\d{8})")
NUMBERS, MODEL, OPTIMISER = "run.json", "model.safetensors", "optimiser.safetensors"
FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """What one checkpoint holds."""

    model: Mapping[str, mo.Tensor]
    optimiser: dict[str, Any]  # as `Optimizer.state_dict` gives it
    key: mo.Tensor  # where the sequence of random keys is
    numbers: dict[str, Any]  # plain JSON: steps, losses, settings


class Checkpoints:
    """The checkpoints in a folder.

    >>> import tempfile
    >>> kept = mo.models.Checkpoints(tempfile.mkdtemp(), keep=2)
    >>> weights = mo.nn.Linear(2, 2)
    >>> rule = mo.optim.SGD(weights.parameters(), lr=0.1)
    >>> for step in (1, 2, 3):
    ...     path = kept.write(step, weights, rule, {"step": step})
    >>> kept.steps(), kept.read().numbers["step"]
    ([2, 3], 3)
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int = 3) -> None:
        self.folder, self.keep = Path(folder), max(1, keep)

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, ascending."""
        if not self.folder.is_dir():
            return []
        return sorted(int(found[1]) for entry in self.folder.iterdir() if (found := _NAME.fullmatch(entry.name)))

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def write(self, step: int, model: Any, optimiser: Any, numbers: Mapping[str, Any]) -> Path:
        """Save a step; older checkpoints than the last `keep` are removed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        state = optimiser.state_dict()
        waiting = self.folder / f".step-{step:08d}.{secrets.token_hex(6)}.tmp"
        waiting.mkdir()
        save(waiting / MODEL, model.state_dict())
        save(waiting / OPTIMISER, {**state["slots"], "key": mo.nn.random.get_state()})
        text = {"format": FORMAT, "numbers": dict(numbers), "count": state["count"], "groups": state["param_groups"]}
        with open(waiting / NUMBERS, "w", encoding="utf-8") as file:
            json.dump(text, file)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(waiting)
        place = self.path(step)
        if place.exists():  # a run that was resumed comes to the same step with the same bits
            shutil.rmtree(place)
        os.rename(waiting, place)
        sync_folder(self.folder)
        for old in self.steps()[:-self.keep]:
            self._remove(old)
        return place

    def read(self, step: int | None = None) -> Checkpoint:
        """The checkpoint of a step, or the last one."""
        known = self.steps()
        if not known or (step is not None and step not in known):
            raise fail(MissingFile, "resume", f"{self.folder} has no checkpoint" + (f" of step {step}" if step else ""),
                       "train without --resume to begin")
        place = self.path(known[-1] if step is None else step)
        try:
            with open(place / NUMBERS, encoding="utf-8") as file:
                text = json.load(file)
            slots = dict(load(place / OPTIMISER))
            key = slots.pop("key")
            state = {"count": text["count"], "param_groups": list(text["groups"]), "slots": slots}
            if text["format"] != FORMAT:
                raise ValueError(f"its format is {text['format']}, not {FORMAT}")
            return Checkpoint(load(place / MODEL), state, key, dict(text["numbers"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise fail(FileFault, "resume", f"the checkpoint {place.name} cannot be read: {error}",
                       "remove that folder to go on from the one before it") from None

    def _remove(self, step: int) -> None:
        """Rename first: half a folder must not look like a checkpoint."""
        gone = self.folder / f".step-{step:08d}.{secrets.token_hex(6)}.tmp"
        os.rename(self.path(step), gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _sweep(self) -> None:
        """What a killed run left half written."""
        for entry in self.folder.iterdir():
            if entry.name.startswith(".step-") and entry.name.endswith(".tmp"):
                shutil.rmtree(entry, ignore_errors=True)
