"""`morpho bench onnx`: real networks through Morpho and ONNX Runtime, in alternating rounds of the same process.

For each: the largest difference of the outputs, time of a steady call (the least of all rounds), and load + first call
in processes of their own (`start.py`), with nothing stored on disk and with everything, against the creation of ONNX
Runtime's session in the same process.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.onnx_files.networks import FEEDS, found
from benchmarks.onnx_files.start import starts

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
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    expected = session.run(None, feed)
    network = mo.onnx.load(path)
    results = [mo.onnx.to_numpy(value) for value in network.run(feed).values()]
    error = max((float(np.max(np.abs(a.astype(np.float64) - b))) for a, b in zip(results, expected) if a.size),
                default=0.0)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(timed(lambda: [mo.onnx.to_numpy(value) for value in network.run(feed).values()])[0])
        theirs.append(timed(lambda: session.run(None, feed))[0])
    return {"network": path.stem, "error": error, "compiled": not network.stats["host_calls"],
            "kernels": network.program.stats["kernels"] if network.program else None,
            "steady_s": min(ours), "onnxruntime_steady_s": min(theirs),
            "ratio": min(theirs) / min(ours), "start": starts(path, 1 if rounds < 10 else 3, threads)}


def geomean(ratios: Iterable[float]) -> float:
    """The geometric mean."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs))


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
            empty, stored = row["start"]["empty"], row["start"]["stored"]
            print(f"{row['network']:32} error {row['error']:.1e}  steady {row['steady_s'] * 1e3:8.3f} ms, ONNX Runtime "
                  f"{row['onnxruntime_steady_s'] * 1e3:8.3f} ms ({row['ratio']:.2f}x)  load + first: nothing stored "
                  f"{empty['load_first_s'] * 1e3:.0f} ms, stored {stored['load_first_s'] * 1e3:.0f}, session "
                  f"{stored['session_s'] * 1e3:.0f}, processor time {stored['load_first_cpu_s'] * 1e3:.0f} and "
                  f"{stored['session_cpu_s'] * 1e3:.0f}", flush=True)
    mean = geomean(row["ratio"] for row in rows)
    print(f"steady, geometric mean of {len(rows)}: {mean:.2f}x ONNX Runtime, {threads} threads")
    for name in ("empty", "stored"):
        parts = [row["start"][name] for row in rows]
        wall = geomean(part["session_s"] / part["load_first_s"] for part in parts)
        met = sum(part["load_first_s"] <= part["session_s"] for part in parts)
        print(f"load + first run, {'nothing stored' if name == 'empty' else name}: {wall:.2f}x a session's creation in "
              f"the geometric mean, no longer than it for {met} of {len(rows)}")
    if path is not None:
        path.write_text(json.dumps({"networks": rows, "steady_geomean": mean, "threads": threads}, indent=1) + "\n",
                        encoding="utf-8")
    return int(any(row["error"] > TOLERANCE for row in rows))
