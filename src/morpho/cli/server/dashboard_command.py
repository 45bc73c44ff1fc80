"""The options of `morpho dashboard`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def dashboard(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]...", help="Runs of `morpho train`, or folders that hold some. Without one: "
                                                   "every run that this machine remembers.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8750,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The token in this file; default: a new one in the address.")
    ] = None,
) -> None:
    """Show runs, live and past, pipelines and predictions on a page: `morpho dashboard my-model`."""
    from morpho.cli.server import dashboard as part

    part.show(folders or (), host, port, token_file)
