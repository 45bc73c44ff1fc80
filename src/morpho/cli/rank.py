"""A rank of `morpho launch --dashboard`: `python -m morpho.cli.rank FOLDER [--least N] SCRIPT ARGUMENTS` tells the
folder how it stands, and is a rank like any other beside that."""

from __future__ import annotations

import sys
from pathlib import Path

from morpho.base import settings
from morpho.cluster.launch import worker
from morpho.observe.monitor.ranks import RankReport


def main(words: list[str]) -> None:
    """Report, and run what a rank runs."""
    if len(words) < 2:
        raise SystemExit("usage: python -m morpho.cli.rank FOLDER [--least N] [-m MODULE | SCRIPT] [ARGUMENTS]")
    report = RankReport(Path(words[0]), settings.world_rank() or 0)
    with report:
        worker.main(words[1:])
        report.write()


if __name__ == "__main__":
    main(sys.argv[1:])
