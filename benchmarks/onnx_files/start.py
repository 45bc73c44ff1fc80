"""The start of a network: load and first run in a process of its own, beside ONNX Runtime's session in the same one.

    python -m benchmarks.onnx_files.start MODEL.onnx THREADS      # one start, as JSON

Both libraries are imported, and Morpho has run one addition, before the clock starts. `starts` runs it with an empty
folder of compiled code (nothing stored) and then again with what that left (stored).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def clocked(function: Callable[[], Any]) -> tuple[float, float, Any]:
    """(seconds, processor seconds of this process and those it started, result)."""
    start, before = time.perf_counter(), os.times()
    result = function()
    after = os.times()
    return time.perf_counter() - start, sum(after[:4]) - sum(before[:4]), result


def start(path: Path, threads: int) -> dict[str, float]:
    """One start of each, in this process."""
    import numpy as np
    import onnxruntime

    import morpho as mo
    import morpho.onnx
    from benchmarks.onnx_files.networks import FEEDS

    (mo.ones(3) + 1).numpy()
    feed = FEEDS[path.stem](np.random.default_rng(0))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    with mo.settings(threads=threads):
        session_s, session_cpu_s, session = clocked(
            lambda: onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]))
        run_s, _, _ = clocked(lambda: session.run(None, feed))
        load_s, load_cpu_s, network = clocked(lambda: mo.onnx.load(path))
        first_s, first_cpu_s, _ = clocked(lambda: [mo.onnx.to_numpy(y) for y in network.run(feed).values()])
    return {"session_s": session_s, "session_cpu_s": session_cpu_s, "session_first_s": session_s + run_s,
            "load_first_s": load_s + first_s, "load_first_cpu_s": load_cpu_s + first_cpu_s,
            "traces": network.stats["traces"]}


def starts(path: Path, rounds: int, threads: int) -> dict[str, dict[str, float]]:
    """`empty`: one start with nothing stored; `stored`: of some with everything, the least of each figure."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "MORPHO_CACHE_DIR": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # parts of Morpho are imported when they are needed
        command = [sys.executable, "-m", "benchmarks.onnx_files.start", str(path), str(threads)]
        rows = [json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
                for _ in range(1 + rounds)]
    return {"empty": rows[0], "stored": {key: min(row[key] for row in rows[1:]) for key in rows[0]}}


if __name__ == "__main__":
    print(json.dumps(start(Path(sys.argv[1]), int(sys.argv[2]))))
