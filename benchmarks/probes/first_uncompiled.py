"""Processor time of first runs of programs that nobody compiled, in this process, after one operation and a look.

    MORPHO_CACHE_DIR=/tmp/empty python -m benchmarks.probes.first_uncompiled morpho "session of 200 cells"
"""

from __future__ import annotations

import importlib
import json
import sys
import time

from benchmarks.eager.programs import PROGRAMS, chain


def main(library: str, names: list[str]) -> None:
    """Print seconds of the first run of each program, in this order."""
    lib = importlib.import_module(library)
    tensor = lib.asarray if library == "morpho" else lib.tensor
    chain(lib, tensor, 2)[1]()
    seconds = {}
    for name in names:
        call = PROGRAMS[name](lib, tensor)[1]
        start = time.process_time()
        call()
        seconds[name] = time.process_time() - start
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
