"""Where attention of bfloat16 on matrix units spends its time: the kernel with one part left out at a time, one thread.

    python -m benchmarks.probes.attention_parts [BATCH HEADS LENGTH DEPTH]

Answers are wrong where a part is missing; only its time is looked at: the least of some calls, each part in a process
of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

import morpho as mo
from morpho.backends.kernels.attention.amx.amx_forward_code import AmxForwardCode

PARTS = ("", "pack_values", "score_units", "softmax_tile2", "weight_units", "scale_results", "value_units")
CALLS = 9


def leave_out(part: str) -> None:
    plain = AmxForwardCode.call

    def call(self: Any, name: str, *arguments: Any) -> None:
        if name != part:
            plain(self, name, *arguments)

    AmxForwardCode.call = call  # type: ignore[method-assign]


def least_s(shape: tuple[int, ...]) -> float:
    rng = np.random.default_rng(0)
    q, k, v = (mo.asarray(rng.standard_normal(shape, dtype=np.float32)).astype(mo.bfloat16).realise()
               for _ in range(3))
    found = []
    with mo.settings(cache=False):
        attend = mo.compile(lambda q, k, v: mo.attention(q, k, v, causal=True))
        for _ in range(CALLS):
            started = time.perf_counter()
            attend(q, k, v)
            found.append(time.perf_counter() - started)
    return min(found)


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["--part"]:
        leave_out(words[1])
        print(least_s(tuple(int(word) for word in words[2:])))
        return
    shape = words or ["1", "4", "2048", "128"]
    whole = 0.0
    for part in PARTS:
        command = [sys.executable, "-m", "benchmarks.probes.attention_parts", "--part", part, *shape]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MORPHO_THREADS": "1"})
        if done.returncode:
            sys.exit(done.stderr)
        taken = float(done.stdout)
        whole = whole or taken
        print(f"{'x'.join(shape)} without {part or 'nothing':16s} {1e3 * taken:8.2f} ms {1 - taken / whole:7.1%} less",
              flush=True)


if __name__ == "__main__":
    main()
