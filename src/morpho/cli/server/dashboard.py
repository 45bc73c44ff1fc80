"""`morpho dashboard`, and the option `--dashboard` of other commands."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from morpho.base.errors import ArgumentError, fail

PORT = 8750


def show(folders: Sequence[Path], host: str, port: int, token_file: Path | None) -> None:
    """Serve the page until Ctrl-C."""
    for folder in folders:
        if not folder.is_dir():
            raise fail(ArgumentError, "dashboard", f"there is no folder {folder}", "give runs of `morpho train`",
                       line="")
    from morpho.serve.dashboard.server import Dashboard
    from morpho.serve.http.options import read_token

    made = Dashboard(folders, host, port, None if token_file is None else read_token(token_file))
    made.run(lambda: print(f"dashboard at {made.address} (Ctrl-C ends)", flush=True))


@contextmanager
def watching(wanted: bool, folders: Sequence[Path] = (), ranks: Path | None = None) -> Iterator[None]:
    """While the block runs, the page of this process, on the usual port or, where that is taken, on any."""
    if not wanted:
        yield
        return
    from morpho.serve.dashboard.server import Dashboard

    try:
        made = Dashboard(folders, port=PORT, ranks=ranks)
    except ArgumentError:
        made = Dashboard(folders, port=0, ranks=ranks)
    with made:
        print(f"dashboard at {made.address}", file=sys.stderr, flush=True)
        yield


@contextmanager
def watching_ranks(wanted: bool, folders: Sequence[Path] = ()) -> Iterator[Path | None]:
    """While the block runs, the page of ranks that this process starts; they tell the folder how they stand. Ranks on
    other machines are shown where they have that folder too."""
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="morpho-ranks-") as folder, watching(True, folders, Path(folder)):
        yield Path(folder)
