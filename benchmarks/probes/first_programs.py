"""Seconds of the first call of each program, for one peer, in this process.

    python -m benchmarks.probes.first_programs morpho gemm jacobi_2d
"""

from __future__ import annotations

import importlib
import json
import sys
import time

from benchmarks.peers import peers_of
from benchmarks.programs import cases


def main(peer: str, names: list[str]) -> dict[str, float]:
    """By name; those that the peer does not do, or fails at, are left out."""
    module = importlib.import_module(peers_of("programs")[peer])
    module.load(1)
    found: dict[str, float] = {}
    for name in names:
        inputs = cases.make_inputs(name, cases.PROGRAMS[name].large)
        try:
            function, arguments = module.callable_of(name, inputs)
            start = time.perf_counter()
            module.to_numpy(function(*arguments))
            found[name] = time.perf_counter() - start
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2:])))
