"""`morpho bench onnx`: real networks through Morpho and ONNX Runtime, in alternating rounds of the same process.

For each: the largest difference of the outputs, time of a steady call (the least of all rounds), and load + first call
against the creation of a session + first run. Morpho's first call is with the code cache that is there: the second run
of the command is the warm one.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.onnx_files.networks import FEEDS, found

TOLERANCE = 1e-4


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds, result)."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def measured(path: Path, rounds: int, threads: int) -> dict[str, Any]:
    """The figures of one network."""
    import onnxruntime

    import morpho as mo

    feed = FEEDS[path.stem](np.random.default_rng(0))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    create_s, session = timed(lambda: onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]))
    run_s, expected = timed(lambda: session.run(None, feed))
    load_s, network = timed(lambda: mo.onnx.load(path))
    first_s, results = timed(lambda: [mo.onnx.to_numpy(value) for value in network.run(feed).values()])
    error = max((float(np.max(np.abs(a.astype(np.float64) - b))) for a, b in zip(results, expected) if a.size),
                default=0.0)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(timed(lambda: [mo.onnx.to_numpy(value) for value in network.run(feed).values()])[0])
        theirs.append(timed(lambda: session.run(None, feed))[0])
    return {"network": path.stem, "error": error, "compiled": not network.stats["host_calls"],
            "kernels": network.program.stats["kernels"] if network.program else None,
            "steady_s": min(ours), "onnxruntime_steady_s": min(theirs), "load_first_s": load_s + first_s,
            "session_first_s": create_s + run_s, "ratio": min(theirs) / min(ours)}


def main(folder: Path, path: Path | None, quick: bool, threads: int) -> int:
    """Print a row for each network; 1 where one differs."""
    import morpho as mo

    networks = found(folder)
    if not networks:
        print(f"[bench] there are no networks in {folder}. Hint: python -m benchmarks.onnx_files.networks {folder}")
        return 2
    rows = []
    with mo.settings(threads=threads):
        for each in networks:
            row = measured(each, 5 if quick else 50, threads)
            rows.append(row)
            print(f"{row['network']:32} error {row['error']:.1e}  steady {row['steady_s'] * 1e3:8.3f} ms, ONNX Runtime "
                  f"{row['onnxruntime_steady_s'] * 1e3:8.3f} ms ({row['ratio']:.2f}x)  load + first "
                  f"{row['load_first_s'] * 1e3:.0f} ms, session + first {row['session_first_s'] * 1e3:.0f} ms",
                  flush=True)
    mean = math.exp(sum(math.log(row["ratio"]) for row in rows) / len(rows))
    print(f"steady, geometric mean of {len(rows)}: {mean:.2f}x ONNX Runtime, {threads} threads")
    if path is not None:
        path.write_text(json.dumps({"networks": rows, "steady_geomean": mean, "threads": threads}, indent=1) + "\n",
                        encoding="utf-8")
    return int(any(row["error"] > TOLERANCE for row in rows))
