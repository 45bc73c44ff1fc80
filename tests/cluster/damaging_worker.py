"""A worker whose messages are damaged now and then, as a bad cable would do it: those that $DAMAGED names, counted from
the first that it sends."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from morpho.cluster.transport import channel
from morpho.cluster.workers.worker import main

DAMAGED = {int(number) for number in os.environ["DAMAGED"].split(",")}
_whole = channel.seal
_sent = 0


def seal(out: np.ndarray, header: Any, nbytes: int) -> int:
    """A frame, perhaps with a bit that was not sent."""
    global _sent
    _sent += 1
    size = _whole(out, header, nbytes)
    if _sent in DAMAGED:
        out[size // 2] ^= 4
    return size


if __name__ == "__main__":
    channel.seal = seal
    main(sys.argv[1:])
