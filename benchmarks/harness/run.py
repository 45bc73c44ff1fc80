"""Runs themes one after the other, prints them, writes the JSON, minds the gate."""

from __future__ import annotations

import importlib
import json as json_format
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import against, baseline, history, machine, report
from benchmarks.harness.kept import BadKept, Kept
from benchmarks.harness.results import ThemeResult
from benchmarks.harness.session import Session
from benchmarks.peers import peers_of

BUSY_LOAD = 0.5
MOST_TAKEN = 0.03  # of the time, by the host of a virtual machine


@dataclass(frozen=True)
class Suite:
    """Themes that run together: modules of one package, with the peers they compare."""

    package: str
    themes: tuple[str, ...]
    peers: dict[str, str]


SUITES = {
    "core": Suite("benchmarks.core", ("small_calls", "gelu", "fusion", "latency", "startup", "memory", "tasks",
                                      "functions", "fourier", "sorting", "draws"), peers_of("core")),
    "kernels": Suite("benchmarks.kernels", ("matmul", "low_precision", "layers", "attention", "gpt2", "gpt2_compile",
                                            "mlp"), peers_of("kernels")),
    "train": Suite("benchmarks.train", ("gpt_step", "mlp_step", "first_step", "gpt_memory", "generation", "smollm2",
                                        "resnet"), peers_of("train")),
    "programs": Suite("benchmarks.programs", ("dense", "stencils", "carried", "pointwise", "sparse", "complex_numbers",
                                              "integers", "ocean", "first_calls", "summary"), peers_of("programs")),
    "serve": Suite("benchmarks.serve", ("streams", "stalls", "clients", "overhead", "ready", "int8"),
                   peers_of("serve")),
    "sparse": Suite("benchmarks.sparse", ("spmv", "spmm", "spgemm", "network"), peers_of("sparse")),
    "linalg": Suite("benchmarks.linalg", ("factors", "general", "solves", "errors"), peers_of("linalg")),
    "logic": Suite("benchmarks.logic", ("reachability", "closure", "paths", "compile_times"), {}),
    "plan": Suite("benchmarks.plan", ("exactness", "proof", "annealing", "rules", "what_if", "grid"), {}),
    "tune": Suite("benchmarks.tune", ("gains", "exhaustive", "overhead"), {}),
    "cluster": Suite("benchmarks.cluster", ("data_parallel", "killed_rank", "cuts", "kills", "hops", "throughput",
                                            "one_node", "recut", "links", "predictions", "naive", "alarms", "topology",
                                            "scale"), {}),
    "eager": Suite("benchmarks.eager", ("uncompiled",), {}),
    "profile": Suite("benchmarks.observe", ("overhead",), {}),
}


@dataclass
class Options:
    """What the command line asks for."""

    suite: str = "core"
    only: str = ""
    peers: str = ""
    json: Path | None = None
    quick: bool = False
    threads: int = 2
    gate: bool = False
    save_baseline: bool = False
    baseline: Path | None = None
    history: Path | None = None
    count: int = 0
    resume: bool = False
    within_s: float = 0.0


class UsageError(ValueError):
    """A wrong option: one sentence."""


def choose_themes(only: str, suite: Suite = SUITES["core"]) -> list[str]:
    """Themes by number or part of their name, in their order; all when nothing is named."""
    themes = suite.themes
    chosen: list[str] = []
    for word in filter(None, (part.strip() for part in only.split(","))):
        found = [name for number, name in enumerate(themes, 1)
                 if (int(word) == number if word.isdigit() else word in name)]
        if not found:
            raise UsageError(f"[bench] no theme {word!r}: choose among 1-{len(themes)} or {', '.join(themes)}.")
        chosen += found
    return [name for name in themes if name in chosen] or list(themes)


def choose_peers(peers: str, suite: Suite = SUITES["core"]) -> dict[str, str]:
    """Modules of the peers by name; Morpho, whole and with fusion switched off, is always there."""
    names = [part.strip() for part in peers.split(",") if part.strip()]
    unknown = [name for name in names if name not in suite.peers]
    if unknown:
        raise UsageError(f"[bench] no peer {unknown[0]!r}: choose among {', '.join(suite.peers)}.")
    wanted = {*(names or suite.peers), "morpho", "unfused"}
    return {name: module for name, module in suite.peers.items() if name in wanted}


def run(options: Options) -> int:
    """Run the themes; 0 when all went well, 1 when the gate fails, 2 on a wrong option, 3 when time was too short."""
    try:
        suite = SUITES[options.suite]
        themes, modules = choose_themes(options.only, suite), choose_peers(options.peers, suite)
        if options.json and not options.json.absolute().parent.is_dir():
            raise UsageError(f"[bench] there is no folder {options.json.parent} for {options.json.name}.")
        if options.json and options.json.is_dir():
            raise UsageError(f"[bench] {options.json} is a folder: name a file in it.")
        if options.gate and options.baseline is not None:
            against.ratios_of(options.baseline)  # before an hour of measuring
        if options.resume and options.json is None:
            raise UsageError("[bench] --resume goes on with the file of --json, and none is named.")
        kept = Kept(options.json, options.resume, options.within_s)
    except (UsageError, BadKept, against.BadFile) as error:
        print(error)
        return 2
    description = machine.describe()
    introduce(description, options.threads)
    session = Session(modules, threads=options.threads, quick=options.quick, count=options.count, kept=kept)
    try:
        results = [run_theme(name, session, suite.package) for name in themes]
    finally:
        waiting = session.waiting_cpu_shares()
        session.close()
    for line in session.missing_lines():
        print(line)
    details = {"suite": options.suite, "machine": description, "threads": options.threads, "quick": options.quick,
               "missing": session.missing, "versions": session.versions, "waiting_cpu_share": waiting,
               "kept": kept.found}
    status = finish(options, details, results)
    if kept.left:
        print(f"no time was left for {kept.left} cases: the same command with --resume goes on with them")
    return status or (3 if kept.left else 0)


def introduce(description: dict[str, Any], threads: int) -> None:
    """Say what machine this is, and that a busy one is unfair to peers whose threads spin."""
    load, cores = description["load_average"][0], description["cores_usable"]
    print(f"{description['cpu']}, {cores} cores, load {load:.2f}; {threads} threads per peer")
    if load > BUSY_LOAD:
        print("note: the machine is busy; threads that spin (OpenMP, OpenBLAS) lose most by it, so that ratios flatter "
              "the others: repeat on a quiet machine before believing or storing them")
    if threads > cores:
        print(f"note: only {cores} cores are usable, so that every peer runs on {cores}")
    print(flush=True)


def run_theme(name: str, session: Session, package: str = "benchmarks.core") -> ThemeResult:
    """One theme; an exception in it is an error in its result, so that the others still run."""
    before = machine.processor_ticks()
    try:
        result = importlib.import_module(f"{package}.{name}").run(session)
    except Exception as error:
        result = ThemeResult(name, errors=[f"{type(error).__name__}: {error}"])
    taken = machine.taken_since(before)
    result.figures["taken_by_the_host"] = taken
    if taken > MOST_TAKEN:
        result.notes.append(f"the host of this virtual machine took {taken:.0%} of the processor time that was asked "
                            "for: repeat before believing")
    print(report.render_theme(result) + "\n", flush=True)
    return result


def finish(options: Options, details: dict[str, Any], results: list[ThemeResult]) -> int:
    """Write what was asked for and judge the gate."""
    ratios = {f"{result.theme}/{name}": value for result in results for name, value in result.ratios.items()}
    if options.json:
        content = {**details, "ratios": ratios, "themes": [result.as_json() for result in results]}
        options.json.write_text(json_format.dumps(content, indent=1) + "\n")
    if options.history and ratios:
        history.append(options.history, details, ratios)
    path = options.baseline or baseline.BASELINE
    status = judge(path, options, details["machine"], ratios, {result.theme for result in results})
    if options.save_baseline and ratios:
        baseline.save(path, details["machine"], ratios)
        print(f"saved {len(ratios)} ratios to {path}")
    return status


def judge(path: Path, options: Options, description: dict[str, Any], ratios: dict[str, float], themes: set[str]) -> int:
    """Compare with the stored ratios when the gate is on; missing ones count unless the run was a partial one."""
    if not options.gate:
        return 0
    stored = against.ratios_of(path) if path.exists() else baseline.load(path)
    if not stored["ratios"]:
        print(f"GATE  nothing stored in {path}: run with --save-baseline on a quiet machine first")
        return 1
    if stored["machine"] and stored["machine"].get("cpu") != description["cpu"]:
        print(f"GATE  note: stored on {stored['machine'].get('cpu')}, this is {description['cpu']}")
    partial = options.quick or options.peers
    required = set() if partial else {name for name in stored["ratios"] if name.split("/")[0] in themes}
    return against.verdict(stored["ratios"], ratios, required)
