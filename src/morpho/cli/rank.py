"""A rank of `morpho launch --dashboard`: `python -m morpho.cli.rank PLACE OPTIONS SCRIPT ARGUMENTS` tells a folder,
or the launcher at `tcp:ADDRESS:PORT`, how it stands, and is a rank like any other beside that."""

from __future__ import annotations

import sys
from pathlib import Path

from morpho.base import settings
from morpho.cli.server.dashboard import AT
from morpho.cluster.launch import worker
from morpho.observe.monitor.inbox import Line
from morpho.observe.monitor.ranks import RankReport


def main(words: list[str]) -> None:
    """Report, and run what a rank runs."""
    if len(words) < 2:
        raise SystemExit("usage: python -m morpho.cli.rank PLACE [OPTIONS] [-m MODULE | SCRIPT] [ARGUMENTS]")
    place = Line(words[0].removeprefix(AT), settings.ranks_secret()) if words[0].startswith(AT) else Path(words[0])
    report = RankReport(place, settings.world_rank() or 0)
    with report:
        worker.main(words[1:])
        report.write()


if __name__ == "__main__":
    main(sys.argv[1:])
