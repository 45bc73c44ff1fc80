"""The first training step of the GPT in this process, in parts.

    MORPHO_CACHE_DIR=/tmp/empty python -m benchmarks.probes.gpt_first_step [layers width heads vocabulary batch length]
"""

from __future__ import annotations

import json
import sys
import time


def main(size: tuple[int, ...]) -> None:
    """Print seconds: importing, building the model, the first step, later ones; and where the first one's went."""
    started = time.perf_counter()
    import morpho as mo
    from benchmarks.peers.morpho import gpt as gpt_morpho
    from benchmarks.train import gpt

    mo.compile  # noqa: B018  the import itself
    imported = time.perf_counter()
    step, arguments = gpt_morpho.prepare("gpt_step", gpt.make_inputs("gpt_step", size or gpt.SIZE))
    built = time.perf_counter()
    step(*arguments).item()
    first = time.perf_counter()
    traced, compile_ms, cache = sum(gpt_morpho.TRACE_SECONDS), step.stats["compile_ms"], step.stats["cache"]
    later = []
    for _ in range(2):
        start = time.perf_counter()
        step(*arguments).item()
        later.append(time.perf_counter() - start)
    print(json.dumps({"import_s": imported - started, "build_s": built - imported, "first_s": first - built,
                      "later_s": min(later), "trace_s": traced, "compile_ms": compile_ms, "cache": cache,
                      "kernels": step.stats["kernels"]}))


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])))
