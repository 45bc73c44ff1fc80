"""`morpho dashboard`, and the option `--dashboard` of other commands."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from morpho.base import settings
from morpho.base.errors import ArgumentError, fail

PORT = 8750
AT = "tcp:"  # what stands before an address that ranks report to, instead of a folder


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
def watching_ranks(folders: Sequence[Path] = (), hosts: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, str]]]:
    """While the block runs, the page of ranks that this process starts. Where they tell how they stand, and what they
    need to know for that in their environment: those of this machine a folder, those of `hosts` an address here."""
    with tempfile.TemporaryDirectory(prefix="morpho-ranks-") as folder, watching(True, folders, Path(folder)):
        if not hosts:
            yield folder, {}
            return
        from morpho.observe.monitor.inbox import Inbox, own_addresses

        addresses = own_addresses(hosts)
        if not addresses:
            raise fail(ArgumentError, "launch", f"--dashboard: no address of this machine is known that "
                       f"{hosts[0]} could report to", "name hosts by their addresses", line="")
        with Inbox(Path(folder), addresses) as inbox:
            yield f"{AT}{inbox.address}", {settings.RANKS_SECRET: inbox.secret}
