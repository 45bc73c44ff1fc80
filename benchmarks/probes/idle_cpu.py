"""CPU used by this process in two seconds of doing nothing, after a compiled call on several threads."""

from __future__ import annotations

import json
import time

import numpy as np

import morpho as mo

IDLE_S = 2.0


def main() -> None:
    """Print the share of one core that idling costs."""
    x = mo.asarray(np.ones(1 << 22, dtype=np.float32))
    function = mo.compile(lambda x: mo.exp(x) * 2.0 + 1.0)
    for _ in range(5):
        function(x)
    cpu, wall = time.process_time(), time.perf_counter()
    time.sleep(IDLE_S)
    print(json.dumps({"idle_share": (time.process_time() - cpu) / (time.perf_counter() - wall)}))


if __name__ == "__main__":
    main()
