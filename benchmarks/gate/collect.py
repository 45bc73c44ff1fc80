"""All counts of all cases, a part of them in each of a few processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from benchmarks.gate.stored import Table

PARTS = 2  # processes, for two cores
ISAS = ("avx2", "avx512", "amx", "neon")


def llvm_version() -> str:
    """The LLVM that makes machine code here."""
    import llvmlite.binding

    return ".".join(map(str, llvmlite.binding.llvm_version_info))


def collect(only: str = "", **chosen: Any) -> Table:
    """The counts of the cases whose names begin with `only`, in this process, under settings such as `passes_off`."""
    return {**programs(only, **chosen), **calls(only)}


def programs(only: str = "", part: int = 0, parts: int = 1, assemble: bool = True, **chosen: Any) -> Table:
    """Counts of lowered programs; of every `parts`-th case from `part` on."""
    from benchmarks.gate import capture, counts
    from benchmarks.gate.cases import all_cases

    found: Table = {}
    for name, call in [item for item in all_cases().items() if item[0].startswith(only)][part::parts]:
        with naming(name):
            traced = capture.trace(call)
            found[name] = {target: counts.count(traced, target, assemble, **chosen) for target in ISAS}
    return found


def calls(only: str = "", part: int = 0, parts: int = 1) -> Table:
    """Counts of calls."""
    from benchmarks.gate.calls import all_calls, count

    found: Table = {}
    for name, make in [item for item in all_calls() if item[0].startswith(only)][part::parts]:
        with naming(name):
            found[f"{name} (called)"] = {"calls": count(make)}
    return found


@contextmanager
def naming(case: str) -> Iterator[None]:
    """An error says which case it is of."""
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"{case} cannot be counted: {type(error).__name__}: {error}") from error


def in_processes(only: str = "") -> Table:
    """The same as `collect` by several processes, with a cache folder of their own."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(PARTS) as pool:
        answers = pool.map(lambda part: _ask(part, only, folder), range(PARTS))
        return {case: row for answer in answers for case, row in answer.items()}


def _ask(part: int, only: str, folder: str) -> Table:
    settings = {name: value for name, value in os.environ.items() if not name.startswith("MORPHO_")}
    done = subprocess.run([sys.executable, "-m", "benchmarks.gate", "--part", str(part), "--only", only],
                          stdout=subprocess.PIPE, text=True, check=False,
                          env={**settings, "MORPHO_CACHE_DIR": os.path.join(folder, str(part))})
    if done.returncode:
        sys.exit("GATE  FAIL: a case cannot be counted; the line above names it")
    return json.loads(done.stdout.strip().splitlines()[-1])  # type: ignore[no-any-return]
