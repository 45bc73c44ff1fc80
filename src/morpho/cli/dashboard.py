"""`morpho dashboard`, and the option `--dashboard` of other commands."""

from __future__ import annotations

import sys
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
def watching(wanted: bool, folders: Sequence[Path] = ()) -> Iterator[None]:
    """While the block runs, the page of this process, on the usual port or, where that is taken, on any."""
    if not wanted:
        yield
        return
    from morpho.serve.dashboard.server import Dashboard

    try:
        made = Dashboard(folders, port=PORT)
    except ArgumentError:
        made = Dashboard(folders, port=0)
    with made:
        print(f"dashboard at {made.address}", file=sys.stderr, flush=True)
        yield
