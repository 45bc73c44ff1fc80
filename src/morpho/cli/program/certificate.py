"""`morpho certificate FILE`: check an error bound that `mo.certify` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXIT_REFUSED = 3


def certificate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `mo.certify(...).save(FILE)` wrote.")],
    expected: Annotated[str | None, typer.Option("--hash", metavar="SHA256", help="Accept this program only.")] = None,
) -> None:
    """Check an error bound by deriving it again in rational numbers; ends with 0 if it is accepted and 3 if not."""
    import json

    from morpho.base.errors import ArgumentError, fail
    from morpho.tensor.tools.bound_checker import Refused
    from morpho.tensor.tools.certify import CHECKER

    try:
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise fail(ArgumentError, "certificate", f"{file} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise fail(ArgumentError, "certificate", f"{file} is not JSON: {error}") from None
    try:
        CHECKER.check(document, expected)
    except Refused as reason:
        typer.echo(f"refused: {reason}")
        raise typer.Exit(EXIT_REFUSED) from None
    for claim in document["bounds"]:
        low, high = map(float.fromhex, claim["range"])
        typer.echo(f"|computed - real| <= {float.fromhex(claim['error']):.6g} for results from {low:.6g} to {high:.6g}")
    typer.echo(f"accepted: program {document['hash']}")
