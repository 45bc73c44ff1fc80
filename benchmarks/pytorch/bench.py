"""``morpho bench torch``: models through `torch.compile(backend="morpho")` against eager PyTorch and Inductor.

Each figure comes from processes of its own: first calls with empty caches, then alternating rounds in one process for
all three, of which medians are compared, and a training step. With one thread the processor time is compared too, which
holds on a machine that does other things. `--json FILE --within 280` ends in time, and with `--resume` the next run
goes on with the rows that the file lacks. Inductor needs a C++ compiler: where there is none its column says so, and
Morpho's is there all the same.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BACKENDS = ("eager", "morpho", "inductor")
PARTS = ("first", "steady", "train")
TRAINED = ("gpt2", "resnet18")
BARS = {"first call of gpt2 against Inductor": 10.0, "steady against eager": 1.1, "steady against Inductor": 1.0,
        "training step against eager": 1.1}


# -- in a process of its own -------------------------------------------------------------------------------------------
def compiled(model: Any, backend: str) -> Any:
    """The model as a backend runs it."""
    import torch

    if backend == "eager":
        return model
    if backend == "morpho":
        import morpho.torch  # noqa: F401
    return torch.compile(model, backend=backend)


def first_call(name: str, backend: str, quick: bool) -> dict[str, Any]:
    """Seconds from `torch.compile` to the first result."""
    import torch

    from benchmarks.pytorch.models import build

    model, arguments = build(name, quick)
    model.eval()
    if backend == "morpho":
        import morpho.torch  # noqa: F401
    with torch.no_grad():
        begin = time.perf_counter()
        compiled(model, backend)(*arguments)
        return {"seconds": time.perf_counter() - begin}


def rounds(calls: dict[str, Callable[[], Any]], count: int) -> dict[str, dict[str, float]]:
    """Medians of the seconds of each, taking turns, by the clock and of the processor."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(count):
        for name, call in calls.items():
            begin, cpu = time.perf_counter(), time.process_time()
            call()
            times[name].append((time.perf_counter() - begin, time.process_time() - cpu))
    return {"seconds": {name: statistics.median(wall for wall, _ in rows) for name, rows in times.items()},
            "cpu": {name: min(cpu for _, cpu in rows) for name, rows in times.items()}}


def steady(name: str, quick: bool) -> dict[str, Any]:
    """Medians of a call, and how far the results are from eager's."""
    import torch

    from benchmarks.pytorch.models import build, result

    model, arguments = build(name, quick)
    model.eval()
    found: dict[str, Any] = {"failed": {}, "difference": {}}
    calls: dict[str, Callable[[], Any]] = {}
    with torch.no_grad():
        expected = result(model(*arguments))
        for backend in BACKENDS:
            torch._dynamo.reset()
            try:
                call = compiled(model, backend)
                difference = (result(call(*arguments)) - expected).abs().max() / expected.abs().max()
                found["difference"][backend] = float(difference)
            except Exception as error:
                found["failed"][backend] = " ".join(str(error).split())[:200]
                continue
            calls[backend] = lambda call=call: call(*arguments)
        times = rounds(calls, 5 if quick else 15)
    return found | times | left()


def left() -> dict[str, Any]:
    """What stayed in PyTorch."""
    import morpho.torch

    return {"left": dict(morpho.torch.report().left)}


def train(name: str, quick: bool) -> dict[str, Any]:
    """Medians of forward, backward and a step of SGD."""
    import torch

    from benchmarks.pytorch.models import build, result

    calls: dict[str, Callable[[], Any]] = {}
    found: dict[str, Any] = {"failed": {}, "difference": {}}
    losses: dict[str, float] = {}
    for backend in BACKENDS:
        model, arguments = build(name, quick)
        model.train()
        optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
        call = compiled(model, backend)

        def step(call: Any = call, optimiser: Any = optimiser, arguments: Any = arguments) -> float:
            optimiser.zero_grad()
            loss = result(call(*arguments)).square().mean()
            loss.backward()
            optimiser.step()
            return float(loss.detach())

        try:
            losses[backend] = [step() for _ in range(2)][1]
        except Exception as error:
            found["failed"][backend] = " ".join(str(error).split())[:200]
            continue
        found["difference"][backend] = abs(losses[backend] / losses["eager"] - 1)
        calls[backend] = step
    return found | rounds(calls, 3 if quick else 9) | left()


# -- the command -------------------------------------------------------------------------------------------------------
def child(*words: str, folder: str, threads: int, quick: bool) -> dict[str, Any]:
    """A figure from a fresh process; what it compiles lies in the folder, which a model's first calls find empty."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "MORPHO_CACHE_DIR": f"{folder}/m",
                   "OMP_NUM_THREADS": str(threads), "MORPHO_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "0"}
    command = [sys.executable, "-m", "benchmarks.pytorch.bench", "--child", *words, *["--quick"] * quick]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["it ended without a word"])[-1][:200]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def geometric_mean(values: list[float]) -> float:
    """Of ratios."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def line(kind: str, name: str, found: dict[str, Any]) -> str:
    """One row of the report."""
    if "error" in found:
        return f"{kind:8} {name:14} failed: {found['error']}"
    cells = []
    for backend in BACKENDS:
        seconds = found["seconds"].get(backend)
        if seconds or kind != "first" or backend != "eager":
            cells.append(f"{backend} {seconds * 1e3:9.2f} ms" if seconds else f"{backend} failed")
    ratios = [f"{found['seconds'][other] / found['seconds']['morpho']:.2f}x {other}"
              for other in ("eager", "inductor") if other in found["seconds"] and "morpho" in found["seconds"]]
    if found.get("threads") == 1 and {"eager", "morpho"} <= set(found.get("cpu", {})):
        ratios.append(f"(processor time {found['cpu']['eager'] / found['cpu']['morpho']:.2f}x eager)")
    kept = ", ".join(f"{name} x {count}" for name, count in found.get("left", {}).items())
    apart = found.get("difference", {}).get("morpho")
    tail = (f"  off by {apart:.1e}" if apart is not None else "") + (f"  left in PyTorch: {kept}" if kept else "")
    failed = "".join(f"  [{backend}: {why}]" for backend, why in found.get("failed", {}).items())
    return f"{kind:8} {name:14} {'  '.join(cells)}  {' '.join(ratios)}{tail}{failed}"


def ratios(table: dict[str, dict[str, Any]], other: str) -> list[float]:
    """How many times faster than another backend, where both have a figure."""
    return [row["seconds"][other] / row["seconds"]["morpho"] for row in table.values()
            if other in row.get("seconds", {}) and "morpho" in row["seconds"]]


@dataclass
class Wanted:
    """What a run is to measure, and within which time."""

    only: str = ""
    parts: tuple[str, ...] = PARTS
    quick: bool = False
    threads: int = 2
    within_s: float = math.inf
    begin_s: float = field(default_factory=time.monotonic)

    def models(self) -> dict[str, str]:
        """Their names, with what each lacks here."""
        from benchmarks.pytorch.models import available

        words = [word for word in self.only.split(",") if word]
        return {name: lack for name, lack in available().items() if not words or any(word in name for word in words)}

    @property
    def is_over(self) -> bool:
        """Whether no further row is to begin."""
        return time.monotonic() - self.begin_s > self.within_s


def row(kind: str, name: str, folder: str, wanted: Wanted) -> dict[str, Any]:
    """One row of a table."""
    options: dict[str, Any] = {"folder": folder, "threads": wanted.threads, "quick": wanted.quick}
    if kind != "first":
        return {**child(kind, name, **options), "threads": wanted.threads}
    first = {backend: child("first", name, backend, **options) for backend in ("morpho", "inductor")}
    return {"seconds": {key: value["seconds"] for key, value in first.items() if "seconds" in value},
            "failed": {key: value["error"] for key, value in first.items() if "error" in value}}


def measure(wanted: Wanted, tables: dict[str, dict[str, Any]], store: Callable[[], None]) -> bool:
    """Fill the tables with the rows they lack, each printed and stored when it is there; whether all are."""
    for name, lack in wanted.models().items():
        if lack:
            print(f"{name}: {lack}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            for kind in wanted.parts:
                if name in tables[kind] or (kind == "train" and name not in TRAINED):
                    continue
                if wanted.is_over:
                    print("the time is over; --resume goes on with the rest")
                    return False
                tables[kind][name] = row(kind, name, folder, wanted)
                print(line(kind, name, tables[kind][name]), flush=True)
                store()
    return True


def verdicts(tables: dict[str, Any]) -> list[str]:
    """The bars, with what was measured."""
    gpt2 = {"gpt2": tables["first"]["gpt2"]} if "gpt2" in tables["first"] else {}
    figures = {"first call of gpt2 against Inductor": ratios(gpt2, "inductor"),
               "steady against eager": ratios(tables["steady"], "eager"),
               "steady against Inductor": ratios(tables["steady"], "inductor"),
               "training step against eager": ratios(tables["train"], "eager")}
    found = []
    for name, values in figures.items():
        if not values:
            found.append(f"{name}: not measured")
            continue
        mean = geometric_mean(values)
        word = "reached" if mean >= BARS[name] else "MISSED"
        found.append(f"{name}: {mean:.2f}x, geometric mean of {len(values)} (bar {BARS[name]}x: {word})")
    return found


def run(only: str = "", json_path: Path | None = None, quick: bool = False, threads: int = 2,
        parts: str = "", within_s: float = 0.0, resume: bool = False) -> int:
    """The whole report; 0, or 3 where the time did not suffice."""
    wanted = Wanted(only, tuple(part for part in PARTS if not parts or part in parts.split(",")), quick, threads,
                    within_s or math.inf)
    tables: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    if resume and json_path is not None and json_path.exists():
        held = json.loads(json_path.read_text())
        if (held["quick"], held["threads"]) == (quick, threads):
            tables.update(held["tables"])
        else:
            print(f"{json_path} is of another kind of run: nothing of it is kept")

    def store() -> None:
        if json_path is not None:
            json_path.write_text(json.dumps({"tables": tables, "verdicts": verdicts(tables), "quick": quick,
                                             "threads": threads, "load": os.getloadavg()}, indent=1) + "\n")

    done = measure(wanted, tables, store)
    store()
    print("\n".join(verdicts(tables)))
    if quick:
        print("quick: two layers and few rounds; a look, not a measurement")
    return 0 if done else 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pytorch.bench", description=__doc__)
    parser.add_argument("--child", nargs="+", default=None, help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="models whose names hold one of these words: gpt2,res")
    parser.add_argument("--json", type=Path, default=None, help="write every figure to this file")
    parser.add_argument("--quick", action="store_true", help="two layers, few rounds")
    parser.add_argument("--threads", type=int, default=2, help="threads for all of them (2)")
    parser.add_argument("--parts", default="", help="some of first,steady,train (all)")
    parser.add_argument("--within", type=float, default=0.0, help="begin no further row after so many seconds")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the file of --json holds")
    options = parser.parse_args()
    if options.child is None:
        return run(options.only, options.json, options.quick, options.threads, options.parts, options.within,
                   options.resume)
    warnings.simplefilter("ignore")
    kind, *words = options.child
    figures: dict[str, Callable[..., dict[str, Any]]] = {"first": first_call, "steady": steady, "train": train}
    print(json.dumps(figures[kind](*words, options.quick)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
