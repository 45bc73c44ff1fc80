"""The process of a server's worker: the cluster's own, whose last stage chooses tokens as a server does."""

from __future__ import annotations

import sys

from morpho.cluster.workers.worker import main
from morpho.serve.spread.choosing import ServedStreams

MODULE = "morpho.serve.spread.worker"

if __name__ == "__main__":
    main(sys.argv[1:], ServedStreams)
