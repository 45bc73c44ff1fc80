"""The table of op cases of the tests on a device, against the CPU's bits: `python -m benchmarks.gpu.table cuda:0 150`.

Runs for so many seconds at most in several processes; prints what differs and a summary. Packages that only tests need
may be missing: the table needs none of them.
"""

from __future__ import annotations

import json
import os
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu.workers import failed, parent, worker

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
    sys.path[:0] = [str(ROOT / "tests" / part) for part in ("", "ops", "backends/cuda")]
    for name in ("pytest", "mpmath", "hypothesis", "scipy", "scipy.special"):
        try:
            __import__(name)
        except ImportError:
            sys.modules[name] = _Anything(name)
    import numpy as np
    from cuda_table import all_cases

    return list(all_cases(np.random.default_rng(0)))


def runner(device: str) -> Callable[[int], dict[str, Any]]:
    """What runs a case of the table by its number."""
    table = cases()
    from running import Native, difference, equal_bits

    from morpho.ir.graph import Graph
    from morpho.runtime.memory.device_memory import upload
    from morpho.runtime.plans import on_device

    def run(number: int) -> dict[str, Any]:
        name, node, arrays, kinds, sizes = table[number]
        try:
            want = Native([node])(arrays, sizes)[0]
            buffers = [upload(array, kind, device) for array, kind in zip(arrays, kinds, strict=True)]
            got = on_device.run(Graph((node,)), device, buffers, sizes)[0].numpy()
        except Exception as error:
            return {"name": name, "failed": f"{type(error).__name__}: {error}"[:600]}
        if equal_bits(got, want, node.dtype):
            return {"name": name}
        return {"name": name, "failed": f"bits: {difference(got, want, node.dtype)}"[:400]}

    return run


def main(device: str = "cuda:0", seconds: float = 150, log: str = "") -> int:
    """Run what there is time for; how many cases differ or fail."""
    count, started = len(cases()), time.perf_counter()
    rows = parent("benchmarks.gpu.table", device, count, seconds, max(1, (os.cpu_count() or 2) - 2))
    wrong = list(failed(rows))
    print(f"table on {device}: {len(rows)} of {count} cases in {time.perf_counter() - started:.0f} s, "
          f"{len(wrong)} differ or fail")
    for row in wrong[:40]:
        print("  ", row["name"], row["failed"][:240])
    if log:
        Path(log).write_text(json.dumps({"done": len(rows), "of": count, "wrong": wrong}, indent=1))
    return len(wrong)


def prepare(device: str) -> None:
    """An emulated device is made known first."""
    if device.startswith("cuda_emulated"):
        from morpho.backends.cuda.emulator.install import install

        install()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        prepare(sys.argv[2])
        worker(sys.argv[2], sys.argv[3], runner(sys.argv[2]))
    else:
        chosen = sys.argv[1] if len(sys.argv) > 1 else "cuda:0"
        sys.exit(1 if main(chosen, float(sys.argv[2]) if len(sys.argv) > 2 else 150, *sys.argv[3:4]) else 0)
