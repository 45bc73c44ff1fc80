"""Time and memory of ``import morpho`` in this process, with and without NumPy already there."""

from __future__ import annotations

import json
import sys
import time

from benchmarks.probes.resident import status_bytes


def main(numpy_first: bool) -> None:
    """Print seconds, resident bytes added, and how many modules came."""
    if numpy_first:
        import numpy  # noqa: F401
    resident, modules, start = status_bytes("VmRSS"), len(sys.modules), time.perf_counter()
    import morpho

    seconds = time.perf_counter() - start
    morpho.asarray, morpho.compile  # noqa: B018  what a lazy import put off
    usable = time.perf_counter() - start
    after = status_bytes("VmRSS")
    print(json.dumps({"seconds": seconds, "usable_s": usable, "modules": len(sys.modules) - modules,
                      "resident_bytes": after - resident if after and resident else None,
                      "llvmlite_loaded": "llvmlite" in sys.modules}))


if __name__ == "__main__":
    main("numpy" in sys.argv[1:])
