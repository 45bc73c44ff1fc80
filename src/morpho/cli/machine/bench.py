"""``morpho bench core``, ``kernels``, ``train``, ``programs``, ``sparse``, ``linalg``, ``serve``, ``logic``, ``plan``,
``cluster``.

    morpho bench core                              # everything, against every peer that is installed
    morpho bench core --only 1,3 --quick           # small calls and fusion, quickly
    morpho bench core --json out.json --gate       # keep the figures, fail on a regression of more than 20 %
    morpho bench kernels --only matmul             # products, fused layers, attention, GPT-2; the same options
    morpho bench train --only gpt_step,resnet      # training steps, memory, generation, SmolLM2; the same options
    morpho bench programs --only carried,ocean     # array programs of science; the same options
    morpho bench serve --only streams              # texts at once, and stalls; the same options
    morpho bench sparse --threads 1                # sparse products, a sparse network; SciPy and PyTorch
    morpho bench linalg --only solves              # dense factorisations and solves; NumPy and SciPy
    morpho bench linalg --json out.json --within 200 --resume     # as much as fits into 200 s; again for the rest
    morpho bench logic --quick                     # logic programs against graph libraries and Datalog engines
    morpho bench plan --only proof                 # the planner: exactness, time to proof, rules of thumb; no peers
    morpho bench cluster --quick                   # several processes: data parallel training, a killed rank; no peers
    morpho bench onnx --networks FOLDER            # networks of ONNX files, beside ONNX Runtime
    morpho bench torch --only gpt2,res             # PyTorch's models in Morpho, beside eager and Inductor
    morpho bench gpu                               # kernels on a GPU, beside PyTorch's
    morpho bench surface --quick                   # every public function and its gradient, beside the best peer
    morpho bench tune --quick                      # the tuner: gains, exhaustive search, overhead; no peers
    morpho bench --against baseline.json           # the regression gate: the suites of that file, 1 where one is worse
    morpho bench history --case gelu --svg g.svg   # how ratios went over past runs
    morpho bench bisect v1 main CASE               # the commit that made a ratio or a count worse
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from morpho.base import settings
from morpho.base.errors import ArgumentError, fail

CHECKOUT = Path(__file__).resolve().parents[4]
INSTALL = "pip install -e '.[bench]'"
WHERE = "the benchmarks are in the repository, not in the installed package"
HOW = f"clone the repository and {INSTALL} there"


def in_checkout() -> bool:
    """Whether this Morpho runs from a checkout, which has the benchmarks."""
    return (CHECKOUT / "benchmarks" / "harness" / "run.py").exists()


def run_gpu(device: str, json: Path | None, seconds: float) -> None:
    """Run the benchmarks on a GPU; each case is said when it is done."""
    from morpho.backends.registry import canonical

    name = canonical(device, "bench")
    _find_benchmarks()
    if importlib.util.find_spec("torch") is None:
        raise fail(ArgumentError, "bench", "PyTorch is not installed, which `morpho bench gpu` compares with", INSTALL)
    from benchmarks.gpu.kernels import main

    main(name, "" if json is None else str(json), seconds)


def run_onnx(networks: Path, json: Path | None, quick: bool, threads: int) -> int:
    """Run networks of a folder through Morpho and ONNX Runtime; 1 where they differ."""
    if not in_checkout():
        raise fail(ArgumentError, "bench", WHERE, HOW)
    if importlib.util.find_spec("onnxruntime") is None:
        raise fail(ArgumentError, "bench", "onnxruntime is not installed, which `morpho bench onnx` compares with",
                   INSTALL)
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    from benchmarks.onnx_files.speed import main

    return int(main(networks, json, quick, threads))


def run_torch(only: str, json: Path | None, quick: bool, threads: int, parts: str = "", within_s: float = 0.0,
              resume: bool = False) -> int:
    """Run PyTorch's models through the `morpho` backend, eager and Inductor; each row is said when it is done. 3 where
    the time did not suffice."""
    if not in_checkout():
        raise fail(ArgumentError, "bench", WHERE, HOW)
    if importlib.util.find_spec("torch") is None:
        raise fail(ArgumentError, "bench", "PyTorch is not installed, whose models `morpho bench torch` runs", INSTALL)
    if json is not None and not json.absolute().parent.is_dir():
        raise fail(ArgumentError, "bench", f"there is no folder {json.parent} for {json.name}", "make it first")
    if unknown := set(filter(None, parts.split(","))) - {"first", "steady", "train"}:
        raise fail(ArgumentError, "bench", f"there is no part {sorted(unknown)[0]!r}", "parts are first,steady,train")
    if resume and json is None:
        raise fail(ArgumentError, "bench", "--resume goes on with the file of --json, and none is named")
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    from benchmarks.pytorch.bench import run

    return int(run(only, json, quick, threads, parts, within_s, resume))


def run_suite(suite: str, only: str | None = None, json: Path | None = None, quick: bool = False,
              peers: str | None = None, gate: bool = False, save_baseline: bool = False, threads: int = 2,
              against: Path | None = None, count: int = 0, within_s: float = 0.0, resume: bool = False) -> int:
    """Run the benchmarks of a suite, `core` to `tune`; 0, or 1 when the gate fails, 2 for a wrong option, 3 where the
    time did not suffice."""
    _find_benchmarks()
    from benchmarks.harness.run import Options, run

    return run(Options(suite=suite, only=only or "", peers=peers or "", json=json, quick=quick, threads=threads,
                       gate=gate or against is not None, save_baseline=save_baseline, baseline=against,
                       history=history_file(), count=count, within_s=within_s, resume=resume))


def _find_benchmarks() -> None:
    """The benchmarks of the checkout that this is."""
    if not in_checkout():
        raise fail(ArgumentError, "bench", WHERE, HOW)
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))


def run_conformance(**chosen: Any) -> int:
    """PyTorch's samples and NumPy's examples beside Morpho's functions of the same names."""
    _find_benchmarks()
    from benchmarks.conformance.command import Options, run

    return run(Options(**chosen))


def run_surface(**chosen: Any) -> int:
    """Every public function beside its best peer; 1 where the gate fails, 2 for a wrong option, 3 out of time."""
    _find_benchmarks()
    from benchmarks.surface.command import Options, run

    if not (chosen["gate"] or chosen["store"] or chosen["page"]) and importlib.util.find_spec("torch") is None:
        raise fail(ArgumentError, "bench", "PyTorch is not installed, which `morpho bench surface` compares with",
                   INSTALL)
    return run(Options(**chosen))


def history_file(given: Path | None = None) -> Path:
    """Where runs are noted: a line of JSON each."""
    return settings.get().cache_path / "bench_history.jsonl" if given is None else given


def run_against(against: Path, results: Path | None, quick: bool, threads: int) -> int:
    """The regression gate: run the suites that a file has ratios of, or take those of `results`, and compare."""
    _find_benchmarks()
    from benchmarks.harness.against import judge_files, run_suites

    if results is not None:
        return judge_files(against, results)
    return run_suites(against, quick, threads, history_file())


def show_history(file: Path | None, case: str, last: int, drawing: Path | None) -> int:
    """How ratios went over past runs."""
    _find_benchmarks()
    from benchmarks.harness.history import show

    return show(history_file(file), case, last, drawing)


def bisect(good: str, bad: str, case: str, counter: str, command: str) -> int:
    """The commit between two that made a case worse."""
    _find_benchmarks()
    from benchmarks.harness.bisect import find_commit

    return find_commit(CHECKOUT, good, bad, case, counter, command)
