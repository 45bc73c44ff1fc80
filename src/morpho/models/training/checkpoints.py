"""Checkpoints of a training run: folders that are there whole or not at all, the last few of them kept.

A checkpoint holds the model, the optimiser, the keys of random draws and plain numbers. It is written under another
name, synchronised and moved into place, so that a run killed at any moment leaves only readable ones. `run.json` has
the SHA-256 of every file, itself included: a bit that a disk or a copy has changed is an error that names the file.
"""

from __future__ import annotations

import errno
import filecmp
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import morpho as mo
from morpho.base.checks import shown
from morpho.base.errors import fail
from morpho.weights import FileFault, MissingFile, load, save
from morpho.weights.atomic import TEMPORARY as HALF
from morpho.weights.atomic import atomic_file, storing, sync_folder

log = logging.getLogger("morpho")
_NAME = re.compile(r"step-(\d{8,})")
OLD = ".old"  # of a checkpoint that is being replaced
NUMBERS, MODEL, OPTIMISER = "run.json", "model.safetensors", "optimiser.safetensors"
FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """Contents of one checkpoint."""

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
        self.folder, self.keep, self._warned = Path(folder), max(1, keep), False

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, ascending."""
        if not self.folder.is_dir():
            return []
        return sorted(int(found[1]) for entry in self.folder.iterdir() if (found := _NAME.fullmatch(entry.name)))

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def write(self, step: int, model: Any, optimiser: Any, numbers: Mapping[str, Any]) -> Path:
        """Save a step; older checkpoints than the last `keep` are removed."""
        state, place = optimiser.state_dict(), self.path(step)
        text = {"format": FORMAT, "numbers": dict(numbers), "count": state["count"], "groups": state["param_groups"]}
        with storing(place):
            self.folder.mkdir(parents=True, exist_ok=True)
            self.tidy()
            waiting = self._beside(step, HALF)
            try:
                waiting.mkdir()
                save(waiting / MODEL, model.state_dict())
                save(waiting / OPTIMISER, {**state["slots"], "key": mo.nn.random.get_state()})
                text["sha256"] = {name: _sha256(waiting / name) for name in (MODEL, OPTIMISER)}
                with atomic_file(waiting / NUMBERS) as file:
                    file.write(json.dumps({**text, "self": _own_sha256(text)}).encode())
                self._move(waiting, step)
            except BaseException:
                shutil.rmtree(waiting, ignore_errors=True)
                raise
            sync_folder(self.folder)
            for old in self.steps()[:-self.keep]:
                self._remove(old)
        return place

    def read(self, step: int | None = None) -> Checkpoint:
        """The checkpoint of a step, or the last one."""
        with storing(self.folder):
            self._put_back()
        known = self.steps()
        if not known or (step is not None and step not in known):
            raise fail(MissingFile, "resume", f"{self.folder} has no checkpoint" + (f" of step {step}" if step else ""),
                       "train without --resume to begin")
        place = self.path(known[-1] if step is None else step)
        try:
            return self._read(place)
        except (OSError, ValueError) as error:  # Morpho's own among them
            raise fail(FileFault, "resume", f"the checkpoint {place.name} cannot be read: "
                       f"{getattr(error, 'message', '') or error}", self._way_out(place)) from None

    def _read(self, place: Path) -> Checkpoint:
        text = self._checked(place)
        for name, (fits, wanted) in _PARTS.items():
            if name not in text or not fits(text[name]):
                raise ValueError(f"{NUMBERS} has {f'{name} = {shown(text[name])}' if name in text else f'no {name}'}, "
                                 f"which is to be {wanted}")
        slots = dict(load(place / OPTIMISER))
        key = slots.pop("key", None)
        if key is None:
            raise ValueError(f"{OPTIMISER} has no key of random draws")
        state = {"count": text["count"], "param_groups": list(text["groups"]), "slots": slots}
        return Checkpoint(load(place / MODEL), state, key, dict(text["numbers"]))

    def _checked(self, place: Path) -> dict[str, Any]:
        """What `run.json` says, once all files have the checksums that it names."""
        text = _document(place / NUMBERS)
        stated, own = text.get("sha256"), text.pop("self", None)
        if stated is None and own is None:
            if not self._warned:
                log.warning("the checkpoint %s is of an earlier version and has no checksums: whether its files are "
                            "whole is not known", place)
                self._warned = True
            return text
        if own != _own_sha256(text):
            raise ValueError(f"{NUMBERS} does not have the checksum that was written with it")
        if not isinstance(stated, dict) or not stated.keys() <= {MODEL, OPTIMISER}:
            raise ValueError(f"{NUMBERS} has sha256 = {shown(stated)}, which is to be a text for each of its files")
        for name, sha256 in stated.items():
            if _sha256(place / name) != sha256:
                raise ValueError(f"{name} does not have the checksum that was written with it")
        return text

    def _way_out(self, place: Path) -> str:
        """How to go on without a checkpoint that cannot be read: from the last one before it that is whole."""
        for step in reversed([step for step in self.steps() if self.path(step).name < place.name]):
            try:
                self._checked(self.path(step))
            except (OSError, ValueError):
                continue
            later = [name for each in self.steps() if step < each and (name := self.path(each).name) <= place.name]
            return f"remove {', '.join(later)} to go on from step {step}, whose checkpoint is whole"
        return "there is no whole one before it: begin anew, or copy it again from where it was whole"

    def publish(self, target: Path) -> None:
        """Make `target` the weights of the last checkpoint, byte for byte; where it is, it is left alone."""
        source = self.path(self.steps()[-1]) / MODEL
        try:
            if filecmp.cmp(source, target, shallow=False):
                return
        except OSError:  # there is none yet
            pass
        with atomic_file(target) as file, open(source, "rb") as weights:
            shutil.copyfileobj(weights, file)

    def tidy(self) -> None:
        """Remove what a killed run left half written; only who alone writes here may do this."""
        self._put_back()
        for entry in [*self.folder.glob(f".step-*{OLD}"), *self.folder.glob(f".step-*{HALF}")]:
            shutil.rmtree(entry, ignore_errors=True)

    def _put_back(self) -> None:
        """A checkpoint that was about to be replaced when the run was killed."""
        for entry in [*self.folder.glob(f".step-*{OLD}")]:
            place = self.folder / entry.name.split(".")[1]
            if not place.exists():
                os.rename(entry, place)

    def _move(self, waiting: Path, step: int) -> None:
        """Put a finished checkpoint in its place. One that is there already steps aside first: a run that was resumed
        comes to the same step with the same bits."""
        place = self.path(step)
        if not place.exists():
            os.rename(waiting, place)
            return
        old = self._beside(step, OLD)
        os.rename(place, old)
        try:
            os.rename(waiting, place)
        except BaseException:
            os.rename(old, place)
            raise
        shutil.rmtree(old, ignore_errors=True)

    def _remove(self, step: int) -> None:
        """Rename first: half a folder must not look like a checkpoint."""
        gone = self._beside(step, HALF)
        os.rename(self.path(step), gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _beside(self, step: int, suffix: str) -> Path:
        return self.folder / f".step-{step:08d}.{secrets.token_hex(6)}{suffix}"


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path.name} is not JSON ({error})") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path.name} is not an object")
    return document


def _is_count(value: Any) -> bool:
    steps = value if isinstance(value, list) else [value]
    return all(type(each) is int and 0 <= each < 1 << 63 for each in steps)


def _is_setting(value: Any) -> bool:
    """What an optimiser keeps as plain data: NaN is no setting of any."""
    if isinstance(value, list):
        return all(not isinstance(each, list) and _is_setting(each) for each in value)
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and value == value)


def _is_group(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_setting(each) for each in value.values())


_PARTS: dict[str, tuple[Callable[[Any], bool], str]] = {  # key of run.json -> what fits it, in code and in words
    "format": (lambda value: type(value) is int and value == FORMAT, str(FORMAT)),
    "count": (_is_count, "a number of steps from 0 on, or a list of such"),
    "groups": (lambda value: isinstance(value, list) and all(map(_is_group, value)),
               "a list of objects whose values are numbers, texts, true, false, null or lists of them"),
    "numbers": (lambda value: isinstance(value, dict), "an object"),
}


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _own_sha256(text: Mapping[str, Any]) -> str:
    """That of `run.json` without its own."""
    return hashlib.sha256(json.dumps(text).encode()).hexdigest()


class LossLog:
    """`losses.jsonl`: a line of JSON for every step, in order, whatever the run went through.

    >>> import pathlib, tempfile
    >>> log = LossLog(pathlib.Path(tempfile.mkdtemp()) / "losses.jsonl")
    >>> for step in (1, 2, 3):
    ...     log.add({"step": step, "loss": 1 / step})
    >>> log.mend([{"step": 1, "loss": 1.0}, {"step": 2, "loss": 0.5}])      # a run that goes on after step 2
    >>> [record["step"] for record in log.read()]
    [1, 2]
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, record: Mapping[str, Any]) -> None:
        """Append a line, all of it or nothing."""
        line = json.dumps(dict(record)).encode() + b"\n"
        with storing(self.path), open(self.path, "ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            try:
                if file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                file.truncate(before)
                raise

    def read(self) -> list[dict[str, Any]]:
        """The records whose lines are whole."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [record for line in lines if (record := _record(line)) is not None]

    def mend(self, known: Sequence[Mapping[str, Any]]) -> None:
        """Have one line for each of the `known` steps and no other: lines of steps that are to be made again, halves
        of lines and second ones go, and what is missing is written from what is known."""
        found = {record["step"]: record for record in self.read()}
        wanted = [found.get(record["step"], record) for record in known]
        text = "".join(json.dumps(dict(record)) + "\n" for record in wanted).encode()
        if (self.path.read_bytes() if self.path.exists() else b"") != text:
            with atomic_file(self.path) as file:
                file.write(text)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("step"), int) else None
