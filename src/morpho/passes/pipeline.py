"""The straight line of passes from a traced graph to groups, and the levels as lists of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from morpho.base.errors import ArgumentError, CompileError, fail
from morpho.ir.graph import Graph
from morpho.ir.node import keeping_lines
from morpho.ir.op import foreign
from morpho.ir.printing import to_text
from morpho.ir.verify import verify
from morpho.ops.order import unmarked
from morpho.passes.canonical import cse, inline, inline_user, sink_views
from morpho.passes.fold import fold
from morpho.passes.fusion.epilogue import epilogue
from morpho.passes.fusion.fuse import fuse
from morpho.passes.fusion.prologue import prologue
from morpho.passes.memory.liveness import Updates
from morpho.passes.memory.schedule import schedule
from morpho.passes.remat.remat import Budget, Recomputed, remat
from morpho.passes.simplify import simplify

Pass = Callable[[Graph], Graph]

PASSES: dict[str, Pass] = {
    "user": inline_user,  # registered compositions that are not one kernel by themselves
    "inline": inline,  # fused ops into plain ones, so that the fuser may join them with their neighbours
    "fold": fold,  # arithmetic on constants
    "simplify": simplify,  # rules that keep every bit
    "cse": cse,  # one order for commutative operands: equal nodes are one by interning
    "views": sink_views,  # movement down to the leaves, where it is free
    "tidy": simplify,  # what the views pass brought together
    "fuse": fuse,  # groups of one kernel each
    "epilogue": epilogue,  # products with the groups that follow them
    "prologue": prologue,  # groups that products may compute themselves
    "single": lambda graph: fuse(graph, only_single=True),  # at O0, or without fuse: a kernel per operation
    "remat": lambda graph: graph,  # with a budget of memory: values computed again instead of being kept
    "schedule": schedule,  # the order of the kernels, so that little is alive at once
}

LEVELS: dict[int, tuple[str, ...]] = {
    0: ("user",),
    1: ("user", "fold", "simplify", "schedule"),
    2: ("inline", "fold", "simplify", "cse", "fuse", "epilogue", "prologue", "schedule"),
    3: ("inline", "fold", "simplify", "cse", "views", "tidy", "fuse", "epilogue", "prologue", "schedule"),
}

# What cannot be switched off, and why.
NEEDED = {
    "user": "registered compositions that are no kernel must become what they stand for",
    "single": "without it or fuse there would be no kernels",
    "dce": "what no output needs is not part of a graph to begin with",
}

MEMORY = "memory"  # the plan of the arena, which is switched off likewise
checking = False  # tests switch it on: the verifier runs after every pass


@dataclass
class Report:
    """What the passes did: nodes before and after, milliseconds, rules applied, and texts when asked for."""

    passes: dict[str, dict[str, float]] = field(default_factory=dict)
    rules: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    recomputed: Recomputed | None = None


def switched_off(names: str) -> set[str]:
    """What a setting of `passes_off` names: passes, or the plan of the arena, which is made after them."""
    off = {name.strip() for name in names.split(",") if name.strip()}
    possible = [name for name in PASSES if name not in NEEDED] + [MEMORY]
    if off & NEEDED.keys():
        name = sorted(off & NEEDED.keys())[0]
        raise fail(ArgumentError, "settings", f"passes_off: {name!r} cannot be left out: {NEEDED[name]}",
                   "these can: " + ", ".join(possible))
    if off - set(possible):
        raise fail(ArgumentError, "settings", f"passes_off names unknown passes {sorted(off - set(possible))}",
                   "the passes are " + ", ".join(possible))
    return off


def chosen_passes(level: int, passes_off: str = "") -> list[str]:
    """The names of the passes of a level without those switched off."""
    off = switched_off(passes_off)
    names = [name for name in LEVELS[level] if name not in off]
    if "fuse" not in names:
        names = [name for name in names if name not in ("epilogue", "prologue")]
    if "fuse" not in names:  # nothing would put a fused op together again, and it is one kernel at every level
        names = ["user" if name == "inline" else name for name in names]
        names.insert(names.index("schedule") if "schedule" in names else len(names), "single")
    if "inline" not in names and "user" not in names:  # ops that are no kernel must become what they stand for
        names.insert(0, "user")
    return names


def optimise(graph: Graph, level: int, switched_off: str = "", keep_texts: bool = False,
             updates: Updates = (), budget: Budget | None = None, measure: Callable[[Graph], int] | None = None,
             ) -> tuple[Graph, Report]:
    """Run the passes of a level; every native node stands in a group then.

    `updates` are (output, input) pairs where the output may take the input's memory. With a `budget`, values are
    computed again until the bytes that `measure` finds are within it."""
    report = Report()
    graph, _ = unmarked(graph)
    names = chosen_passes(level, switched_off)
    if budget is not None:  # judged by orders as they will be
        off = switched_off.replace(" ", "").split(",")
        names = [name for name in names if name != "schedule"] + ([] if "schedule" in off else ["schedule"]) + ["remat"]
    if keep_texts:
        report.texts["traced"] = to_text(graph)
    for name in names:
        started, before = time.perf_counter(), len(graph)
        with keeping_lines():
            if name == "remat" and budget is not None and measure is not None:
                graph, report.recomputed = remat(graph, budget, measure, updates, "remat" not in off,
                                                 "schedule" not in off)
            else:
                graph = _run(name, graph, report, updates)
        report.passes[name] = {"before": before, "after": len(graph), "ms": 1e3 * (time.perf_counter() - started)}
        if keep_texts:
            report.texts[name] = to_text(graph)
        if checking:
            verify(graph, name)
    return graph, report


def _run(name: str, graph: Graph, report: Report, updates: Updates) -> Graph:
    """One pass, with what some of them take besides the graph."""
    if PASSES[name] is simplify:
        return simplify(graph, report.rules)
    if PASSES[name] is schedule:
        return schedule(graph, updates)
    found = PASSES[name](graph)
    if name in foreign:
        _check_result(name, graph, found)
    return found


def _check_result(name: str, graph: Graph, found: object) -> None:
    """A user's pass must give a graph with the same outputs: their memory is planned by shape and dtype."""
    if not isinstance(found, Graph):
        raise fail(CompileError, name, f"the pass returned {type(found).__name__}, not a Graph",
                   "return the graph, changed or not")
    before, after = ([node.outputs for node in outputs] for outputs in (graph.outputs, found.outputs))
    if before != after:
        raise fail(CompileError, name, f"the pass turned outputs {before} into {after}")
