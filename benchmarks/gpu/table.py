"""The table of op cases of the tests on a device, against the CPU's bits: `python -m benchmarks.gpu.table cuda:0 150`.

Runs for so many seconds at most, cases in random order; prints what differs and a summary. Packages that only tests
need may be missing: the table needs none of them.
"""

from __future__ import annotations

import json
import random
import sys
import time
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class _Anything(types.ModuleType):
    """Stands in for a package of the tests that is not installed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) and not named else _Anything("made")


def cases() -> list[Any]:
    """The table."""
    sys.path[:0] = [str(ROOT / "tests" / part) for part in ("", "ops", "backends")]
    for name in ("pytest", "mpmath", "hypothesis", "scipy", "scipy.special"):
        try:
            __import__(name)
        except ImportError:
            sys.modules[name] = _Anything(name)
    import numpy as np
    from cuda_table import all_cases

    return list(all_cases(np.random.default_rng(0)))


def main(device: str = "cuda:0", seconds: float = 150, log: str = "") -> int:
    """Run what there is time for; how many cases differ or fail."""
    from running import Native, difference, equal_bits

    from morpho.ir.graph import Graph
    from morpho.runtime.memory.device_memory import upload
    from morpho.runtime.plans import on_device

    table = cases()
    random.Random(0).shuffle(table)
    started, done, wrong = time.perf_counter(), 0, []
    for name, node, arrays, kinds, sizes in table:
        if time.perf_counter() - started > seconds:
            break
        done += 1
        try:
            buffers = [upload(array, kind, device) for array, kind in zip(arrays, kinds, strict=True)]
            got = on_device.run(Graph((node,)), device, buffers, sizes)[0].numpy()
            want = Native([node])(arrays, sizes)[0]
            if not equal_bits(got, want, node.dtype):
                wrong.append([name, "bits", str(difference(got, want, node.dtype))[:300]])
        except Exception as error:
            wrong.append([name, type(error).__name__, str(error)[:600]])
            if "is lost" in str(error):
                break
    print(f"table on {device}: {done} of {len(table)} cases in {time.perf_counter() - started:.0f} s, "
          f"{len(wrong)} differ or fail")
    for row in wrong[:40]:
        print("  ", *row)
    if log:
        Path(log).write_text(json.dumps({"done": done, "of": len(table), "wrong": wrong}, indent=1))
    return len(wrong)


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else "cuda:0"
    if chosen.startswith("cuda_emulated"):
        from morpho.backends.cuda.emulator.install import install

        install()
    cases()  # puts the tests' folders on the path
    sys.exit(1 if main(chosen, float(sys.argv[2]) if len(sys.argv) > 2 else 150, *sys.argv[3:4]) else 0)
