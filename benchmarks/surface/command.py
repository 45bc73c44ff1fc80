"""The whole surface: every public function and its gradient beside eager PyTorch, NumPy and SciPy.

    morpho bench surface --quick                     # float32 at one size, gradients, and two dtypes more: a look
    morpho bench surface --threads 1,2 --json FOLDER # everything, at one and at two threads, into FOLDER
    morpho bench surface --json FOLDER --resume      # go on where a run ended
    morpho bench surface --only topk,fft --dtypes float32 --sizes 1M
    morpho bench surface --device cuda:0             # beside PyTorch on the same device
    morpho bench surface --gate                      # counts of kernels, steps and bytes beside the stored ones
    morpho bench surface --page FOLDER               # write docs/surface.md from the results of a folder

Each thread count has a process of its own. A case that ends its process is stored as such, and the run goes on.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COUNTS = Path(__file__).with_name("counts.json")
COUNTED = ("kernels", "host_steps", "copies", "bytes_moved", "arena_bytes")
EVEN, CLIFF = 0.95, 0.8
PEERS = ("torch", "numpy", "scipy")


@dataclass
class Options:
    """What the command line asks for."""

    only: str = ""
    threads: str = "2"
    dtypes: str = ""
    sizes: str = ""
    against: str = ",".join(PEERS)
    device: str = "cpu"
    folder: Path | None = None
    quick: bool = False
    resume: bool = False
    within_s: float = 0.0
    gate: bool = False
    store: bool = False
    page: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """A measured case beside its best peer."""

    ratio: float
    peer: str
    row: dict[str, Any]

    @property
    def key(self) -> str:
        return str(self.row["key"])


def run(options: Options) -> int:
    """0; 1 where the gate fails, 2 for a wrong option, 3 where the time did not suffice."""
    if options.page is not None:
        from benchmarks.surface.page import write

        return write(options.page)
    if options.gate or options.store:
        return gate(options)
    words = options.threads.split(",")
    if not all(word.isdigit() and int(word) for word in words):
        print(f"[bench] --threads {options.threads} is no list of numbers such as 1,2", file=sys.stderr)
        return 2
    if unknown := set(options.against.split(",")) - set(PEERS):
        print(
            f"[bench] {sorted(unknown)[0]!r} is no peer here: --against takes some of {','.join(PEERS)}",
            file=sys.stderr,
        )
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        status = 0
        for word in words:
            results = folder / f"threads-{word}.jsonl"
            if results.exists() and not options.resume:
                results.unlink()
            status = max(status, _measure(options, int(word), results))
            report(f"{word} threads", outcomes(read(results)), read(results))
    return status


def _measure(options: Options, threads: int, results: Path) -> int:
    """Run the worker until no case is left, past those that end its process."""
    command = [sys.executable, "-m", "benchmarks.surface.measure", str(results), "--threads", str(threads)]
    for name in ("only", "dtypes", "sizes", "against", "device"):
        command += [f"--{name}", getattr(options, name)]
    command += ["--quick"] * options.quick + (["--within", str(options.within_s)] if options.within_s else [])
    environment = {
        **os.environ,
        **dict.fromkeys(
            ("MORPHO_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads)
        ),
    }
    for _ in range(100):
        before = len(results.read_text().splitlines()) if results.exists() else 0
        status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        lines = results.read_text().splitlines() if results.exists() else []
        if status in (0, 2, 3) or len(lines) == before:
            return status if status in (0, 3) else 2
    return 2


def read(results: Path) -> list[dict[str, Any]]:
    """The rows of a file, each case once; one that began and did not end ended its process."""
    rows: dict[str, dict[str, Any]] = {}
    for line in results.read_text().splitlines() if results.exists() else ():
        row = json.loads(line)
        if row.pop("begun", False):
            rows.setdefault(row["key"], {"key": row["key"], "refused": "ended the process"})
        else:
            rows[row["key"]] = row
    return list(rows.values())


def outcomes(rows: Iterable[dict[str, Any]]) -> list[Outcome]:
    """Ratios of cases that a peer has with the same result, losses first. Above 1 Morpho takes less time."""
    ratios = []
    for row in rows:
        peers = {
            name: us
            for name, us in row.get("us", {}).items()
            if name != "morpho" and name not in row.get("differs", {})
        }
        if peers:
            best = min(peers, key=lambda name: peers[name])
            ratios.append(Outcome(peers[best] / row["us"]["morpho"], best, row))
    return sorted(ratios, key=lambda outcome: outcome.ratio)


def geometric_mean(ratios: Iterable[float]) -> float:
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


def share_below(results: list[Outcome], bound: float) -> float:
    return sum(outcome.ratio < bound for outcome in results) / max(len(results), 1)


def report(title: str, results: list[Outcome], rows: list[dict[str, Any]]) -> None:
    """The summary and all losses, the worst first."""
    print(
        f"{title}: {len(results)} cases with a peer, geometric mean {geometric_mean(o.ratio for o in results):.2f}x; "
        f"{share_below(results, EVEN):.1%} below {EVEN}x, {share_below(results, CLIFF):.1%} below {CLIFF}x"
    )
    for outcome in results:
        if outcome.ratio >= EVEN:
            break
        print(f"  {outcome.ratio:6.2f}x {outcome.peer:5s} {outcome.row['us']['morpho']:12.1f} us  {outcome.key}")
    for row in rows:
        if row.get("refused"):
            print(f"  not measured: {row['key']}: {row['refused']}")
        for peer, problem in row.get("differs", {}).items():
            print(f"  another result than {peer}: {row['key']}: {problem}")


def counted() -> dict[str, dict[str, int]]:
    """Kernels, steps and bytes of one case of every function and gradient, lowered for a fixed machine."""
    import morpho as mo
    from benchmarks.gate import capture, counts
    from benchmarks.gate.targets import TARGETS
    from benchmarks.surface.cases import cases
    from benchmarks.surface.measure import Libraries, calls_of

    libraries, table, names = Libraries((), 1, "cpu"), {}, set()
    for case in cases():
        name = (case.form.name, case.slope)
        if name in names or case.dtype != "float32" or not case.form.quick or case.form.options.get("lazy"):
            continue
        names.add(name)
        try:
            with mo.settings(record=False):
                call, arguments = calls_of(case, libraries)["morpho"]
            program = capture.trace(lambda call=call, arguments=arguments: call(*arguments)).lowered(
                TARGETS["avx512"]
            )
        except Exception:  # refused, or no compiled function: nothing to count
            continue
        every = counts.of_program(program)
        table[case.key] = {count: every[count] for count in COUNTED}
    return table


def gate(options: Options) -> int:
    """1 where a count is above the stored one, or a stored case is gone."""
    table = counted()
    if options.store:
        COUNTS.write_text(
            "{\n"
            + ",\n".join(f"{json.dumps(key)}: {json.dumps(row)}" for key, row in sorted(table.items()))
            + "\n}\n"
        )
        print(f"{len(table)} cases stored")
        return 0
    stored = json.loads(COUNTS.read_text())
    worse = [
        f"{key}: {name} {table[key][name]}, stored {count}"
        for key, row in stored.items()
        if key in table
        for name, count in row.items()
        if table[key][name] > count
    ]
    worse += [f"{key}: is not counted any more" for key in stored if key not in table]
    print("\n".join(worse) or f"{len(table)} cases: no count is above the stored one")
    return int(bool(worse))
