"""The pass pipeline, from a traced graph to fusion groups, and optimisation levels as lists of passes.

A pass has a name and a function `run(graph, context) -> graph`; the context holds what some of them need besides the
graph, and the report that they leave for `explain()`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from morpho.base.errors import ArgumentError, CompileError, fail
from morpho.ir.graph import Graph
from morpho.ir.node import keeping_lines
from morpho.ir.printing import to_text
from morpho.ir.verify import verify
from morpho.ops.order import unmarked
from morpho.passes.canonical import cse, inline, inline_user, sink_views
from morpho.passes.complex.split import has_complex, split_complex
from morpho.passes.fold import fold
from morpho.passes.fusion.epilogue import epilogue
from morpho.passes.fusion.fuse import fuse, single
from morpho.passes.fusion.prologue import prologue
from morpho.passes.loops.roll import roll
from morpho.passes.memory.liveness import Updates
from morpho.passes.memory.schedule import schedule
from morpho.passes.pieces import pieces
from morpho.passes.regions import optimise_bodies
from morpho.passes.remat.remat import Budget, Recomputed, remat
from morpho.passes.simplify import simplify
from morpho.passes.stencils import recompute_stencils
from morpho.passes.symmetric import halve_symmetric


@dataclass
class Report:
    """Report of the passes: nodes before and after, milliseconds, rules applied, and texts when asked for. `program`
    tells the same of the passes over the program, in steps (`program/pipeline.py`)."""

    passes: dict[str, dict[str, float]] = field(default_factory=dict)
    rules: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    recomputed: Recomputed | None = None
    program: dict[str, dict[str, float]] = field(default_factory=dict)
    rolled: list[int] = field(default_factory=list)  # turns of the loops found in what Python loops wrote


@dataclass
class Context:
    """Input of the passes besides the graph. `updates` are (output, input) pairs where the output may take the input's
    memory; with a `budget`, values are computed again until the bytes that `measure` finds are within it."""

    off: frozenset[str] = frozenset()  # what is switched off by name
    updates: Updates = ()
    budget: Budget | None = None
    measure: Callable[[Graph], int] | None = None
    report: Report = field(default_factory=Report)


@dataclass(frozen=True)
class Pass:
    """One pass. `needed` says why it cannot be switched off, if so."""

    name: str
    run: Callable[[Graph, Context], Graph]
    needed: str = ""


def graph_pass(name: str, function: Callable[[Graph], Graph], needed: str = "") -> Pass:
    """A pass that looks at nothing but the graph."""
    return Pass(name, lambda graph, context: function(graph), needed)


def user_pass(name: str, function: Callable[[Graph], Graph]) -> Pass:
    """A pass of a user's, whose result is checked."""

    def run(graph: Graph, context: Context) -> Graph:
        found = function(graph)
        _check_result(name, graph, found)
        return found

    return Pass(name, run)


def _simplify(graph: Graph, context: Context) -> Graph:
    return simplify(graph, context.report.rules)


def _schedule(graph: Graph, context: Context) -> Graph:
    return schedule(graph, context.updates)


def _remat(graph: Graph, context: Context) -> Graph:
    assert context.budget is not None and context.measure is not None, "remat runs where there is a budget"
    graph, context.report.recomputed = remat(graph, context.budget, context.measure, context.updates,
                                             "remat" not in context.off, "schedule" not in context.off)
    return graph


PASSES: dict[str, Pass] = {each.name: each for each in (
    # before all others, and before bodies are looked at: products along an axis become loops
    graph_pass("complex", split_complex, "complex numbers have no arithmetic but that of their parts"),
    # registered compositions that are not one kernel by themselves
    graph_pass("user", inline_user, "registered compositions that are no kernel must become what they stand for"),
    graph_pass("inline", inline),  # fused ops into plain ones, so that the fuser may join them with their neighbours
    graph_pass("fold", fold),  # arithmetic on constants
    Pass("simplify", _simplify),  # rules that keep every bit
    graph_pass("cse", cse),  # one order for commutative operands: equal nodes are one by interning
    graph_pass("symmetric", halve_symmetric),  # a matrix times its transpose, while that can be seen
    graph_pass("views", sink_views),  # movement down to the leaves, where it is free
    graph_pass("stencils", recompute_stencils),  # cheap values that others see shifted parts of
    Pass("tidy", _simplify),  # what the views pass brought together
    graph_pass("pieces", pieces),  # elementwise work on values put together, cut where those end
    graph_pass("fuse", fuse),  # groups of one kernel each
    graph_pass("epilogue", epilogue),  # products with the groups that follow them
    graph_pass("prologue", prologue),  # groups that products may compute themselves
    # at O0, or without fuse: a kernel per operation
    graph_pass("single", single, "without it or fuse there would be no kernels"),
    Pass("remat", _remat),  # with a budget of memory: values computed again instead of being kept
    Pass("schedule", _schedule),  # the order of the kernels, so that little is alive at once
)}

LEVELS: dict[int, tuple[str, ...]] = {
    0: ("user",),
    1: ("user", "fold", "simplify", "schedule"),
    2: ("inline", "fold", "simplify", "cse", "fuse", "epilogue", "prologue", "schedule"),
    3: ("inline", "fold", "simplify", "cse", "symmetric", "views", "stencils", "tidy", "pieces", "fuse", "epilogue",
        "prologue", "schedule"),
}

DCE = "dce"  # known from other compilers: what no output needs is not part of a graph to begin with
MEMORY = "memory"  # the plan of the arena, which is switched off likewise
REGISTERS = "registers"  # and small loops as one kernel
ROLL = "roll"  # and loops found in what a Python loop has written
MARKS = frozenset({"checkpoint", "custom"})  # that only gradients look at
checking = False  # tests switch it on: the verifier runs after every pass


def switched_off(names: str) -> set[str]:
    """Passes (or the plan of the arena, or loops in registers) that a setting of `passes_off` names."""
    off = {name.strip() for name in names.split(",") if name.strip()}
    needed = {name: each.needed for name, each in PASSES.items() if each.needed}
    needed[DCE] = "what no output needs is not part of a graph to begin with"
    possible = [name for name in PASSES if name not in needed] + [MEMORY, REGISTERS, ROLL]
    for name in sorted(off & needed.keys()):
        raise fail(ArgumentError, "settings", f"passes_off: {name!r} cannot be left out: {needed[name]}",
                   "these can: " + ", ".join(possible))
    if off - set(possible):
        raise fail(ArgumentError, "settings", f"passes_off names unknown passes {sorted(off - set(possible))}",
                   "the passes are " + ", ".join(possible))
    return off


def chosen_passes(level: int, passes_off: str = "", has_budget: bool = False) -> list[str]:
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
    if has_budget:  # judged by orders as they will be
        names = [name for name in names if name != "schedule"] + ([] if "schedule" in off else ["schedule"]) + ["remat"]
    return names


def optimise(graph: Graph, level: int, passes_off: str = "", keep_texts: bool = False,
             updates: Updates = (), budget: Budget | None = None, measure: Callable[[Graph], int] | None = None,
             ) -> tuple[Graph, Report]:
    """Run the passes of a level; every native node stands in a group then. `Context` says what the rest is for."""
    context = Context(frozenset(switched_off(passes_off)), updates, budget, measure)
    report = context.report
    given = graph

    def run(name: str, graph: Graph) -> Graph:
        started, before = time.perf_counter(), len(graph)
        with keeping_lines():
            graph = PASSES[name].run(graph, context)
        report.passes[name] = {"before": before, "after": len(graph), "ms": 1e3 * (time.perf_counter() - started)}
        if keep_texts:
            report.texts[name] = to_text(graph)
        if checking:
            verify(graph, name)
        return graph

    if any(node.op.name in MARKS for node in graph.nodes):
        graph, _ = unmarked(graph, MARKS)
    if has_complex(graph):
        if keep_texts:
            report.texts["traced"] = to_text(graph)
        graph = run("complex", graph)
    if level > 1 and ROLL not in context.off and budget is None:  # a loop is computed again as a whole
        graph, report.rolled = roll(graph)
    graph = optimise_bodies(graph, lambda body: optimise(body, level, passes_off)[0],
                            _unfused if level > 1 and not context.off & {"fuse", REGISTERS} else None)
    if keep_texts:
        report.texts.setdefault("traced", to_text(graph))
    for name in chosen_passes(level, passes_off, budget is not None):
        graph = run(name, graph)
    _check_result("compile", given, graph)  # a wrong pass is an error, no wrong answer
    return graph, report


def _unfused(graph: Graph) -> Graph:
    """The graph in plain operations, with what algebra takes out of it: not yet in kernels."""
    context = Context()
    graph, _ = unmarked(graph, MARKS)
    for name in ("complex", "inline", "fold", "simplify", "cse"):
        with keeping_lines():
            graph = PASSES[name].run(graph, context)
    return graph


def _check_result(name: str, graph: Graph, found: object) -> None:
    """Passes must give a graph with the same outputs: their memory is planned by shape and dtype."""
    if not isinstance(found, Graph):
        raise fail(CompileError, name, f"the pass returned {type(found).__name__}, not a Graph",
                   "return the graph, changed or not")
    before, after = ([node.outputs for node in outputs] for outputs in (graph.outputs, found.outputs))
    if before != after:
        raise fail(CompileError, name, f"the pass turned outputs {before} into {after}")
