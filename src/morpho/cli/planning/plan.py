"""`morpho plan`: the plan of a model on a cluster as tables, what-ifs, comparisons, pictures; `plan check`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from morpho import plan as planner
from morpho.base.errors import ArgumentError, MorphoError, ValueFault, fail
from morpho.base.units import format_bytes, format_seconds, parse_seconds
from morpho.plan.model.strict_json import read_limited
from morpho.plan.replan.what_if import changed
from morpho.plan.show.drawing import require_ending
from morpho.plan.show.pictures import batches, certainty
from morpho.weights.atomic import write_text
from morpho.weights.errors import StorageError


@dataclass
class Wishes:
    """Options of the command line besides the plan itself."""

    json: str | None = None
    pictures: dict[str, Path] = field(default_factory=dict)  # "cluster", "token", "steady", "front" -> file
    what_if: Sequence[str] = ()
    compare: bool = False
    explain: bool = False
    simulate: bool = False
    jitter: float = 0.0
    slow: Sequence[str] = ()
    fail: Sequence[str] = ()
    shared: Sequence[str] = ()


def show(card: planner.ModelCard, cluster: planner.Cluster, constraints: planner.Constraints, strategy: str,
         objective: str, seed: int, options: dict[str, Any], wishes: Wishes, console: Console | None = None) -> None:
    """Solve and print."""
    console = console or Console()
    for change in wishes.what_if:  # mistakes are said before anything is solved or printed
        changed(cluster, change)
    for path in wishes.pictures.values():
        require_ending(path)
    if "front" in wishes.pictures and objective != "balanced":
        raise fail(ArgumentError, "plan", f"the objective {objective!r} has no Pareto front",
                   "add --objective balanced", line="")
    p = planner.solve(card, cluster, strategy, objective, seed, constraints, **options)
    if wishes.json == "-":
        print(p.to_json())
        return
    show_plan(p, console)
    if wishes.compare:
        show_comparison(p, options, console)
    if wishes.what_if:
        show_what_if(p, wishes.what_if, console)
    if wishes.simulate:
        show_simulation(p, wishes, console)
    if wishes.explain:
        console.print(Text(str(planner.explain(p))), soft_wrap=True)
        console.print()
    if wishes.json:
        write(Path(wishes.json), p.to_json() + "\n")
        console.print(Text(f"wrote {wishes.json}"))
    for what, path in wishes.pictures.items():
        console.print(Text(f"wrote {planner.plot(p, path, what)}"))


def write(path: Path, text: str) -> None:
    """Write a file the user named."""
    try:
        write_text(path, text)
    except StorageError as error:
        raise fail(ArgumentError, "plan", error.message, "give a path in a folder of yours") from None


# --------------------------------------------------------------------------------------------------------- tables


def table_of(title: str, *columns: str) -> Table:
    """An empty table; a column whose name begins with < stands to the left."""
    table = Table(title=title, title_justify="left", title_style="bold cyan", box=None, pad_edge=False,
                  header_style="bold")
    for column in columns:
        table.add_column(column.lstrip("<"), justify="left" if column.startswith("<") else "right", overflow="fold")
    return table


def calls(card: planner.ModelCard) -> bool:
    """Whether a pass is one call of a function, as for an ONNX file, and speaks of no tokens."""
    return card.phase == "prefill" and card.tokens_per_pass == 1


def show_plan(p: planner.Plan, console: Console) -> None:
    """Stages, prediction, certainty, notes."""
    card, predicted = p.card, p.predicted
    table = table_of(f"{card.name} ({card.dtype}) on {p.cluster.name}" + (
                         "" if calls(card) else f", batch {card.batch}, context {card.context}"),
                     "stage", "<machine", "<layers", "memory", "of", "compute", "send", "<bound by")
    for position, stage in enumerate(p.stages):
        last = position + 1 == len(p.stages)
        machine = " | ".join("+".join(copy) for copy in stage.replicas)
        binds = stage.binds + (", memory" if stage.memory_tight else "")
        slowest = position == predicted.bottleneck
        table.add_row(("> " if slowest else "") + str(position + 1), Text(machine),
                      Text(f"[{stage.start}, {stage.end})"),
                      format_bytes(stage.memory_needed_bytes), format_bytes(stage.memory_available_bytes),
                      format_seconds(stage.compute_s), "" if last else format_seconds(stage.link_s),
                      binds, style="bold" if slowest else "")
    console.print(table)
    binding = p.stages[predicted.bottleneck]
    console.print(Text(f"bottleneck: stage {predicted.bottleneck + 1} on {binding.node}, by {binding.binds}"))
    used = {name for stage in p.stages for copy in stage.replicas for name in copy}
    unused = [node.name for node in p.cluster.nodes if node.name not in used]
    if unused:
        console.print(Text(f"not used: {', '.join(unused)}"))
    console.print()
    if card.phase == "decode":
        rest = (f" with {batches(predicted.in_flight)} in flight; first token after "
                f"{format_seconds(predicted.first_token_s)}, then one every {format_seconds(predicted.latency_s)}")
    else:
        rest = f" with {batches(predicted.in_flight)} in flight; a batch takes {format_seconds(predicted.latency_s)}"
    unit = "calls/s" if calls(card) else "tokens/s"
    console.print(Text(f"{predicted.tokens_per_s:.4g} {unit}", style="bold").append(rest, style="not bold"),
                  soft_wrap=True)
    console.print(Text(f"{p.strategy}, {p.objective}: {certainty(p)}", style="green" if p.optimal else "yellow"))
    filled = planner.quality(p).filled
    if filled < 0.995 and card.phase == "decode":
        console.print(Text(f"note: memory is planned for {card.micro_batches} of them, which gives "
                           f"{filled * predicted.tokens_per_s:.4g} tokens/s; for the full rate plan with "
                           f"--micro-batches {predicted.in_flight}"), soft_wrap=True)
    for note in (*card.notes, *p.notes):
        console.print(Text(f"note: {note}"), soft_wrap=True)
    console.print()


def show_comparison(p: planner.Plan, options: dict[str, Any], console: Console) -> None:
    """Every strategy side by side, with its distance from the best bound that any of them proved."""
    found: list[tuple[str, planner.Plan | str, float]] = []
    # One bound serves all times; a balanced plan's score needs bounds of its own.
    own_bound = p.objective == "balanced"
    for name in planner.strategies():
        began = time.perf_counter()
        try:
            other: planner.Plan | str = p if name == p.strategy else planner.solve(
                p.card, p.cluster, name, p.objective, p.seed, p.constraints, own_bound or name == "optimal", **options)
        except MorphoError as error:
            other = short_reason(str(error))
        found.append((name, other, time.perf_counter() - began))
    bound = max((other.lower_bound for _, other, _ in found if isinstance(other, planner.Plan)), default=0.0)
    table = table_of("every strategy", "<strategy", "tokens/s", "one token", "first token", "nodes", "above bound", "<")
    for name, other, seconds in sorted(found, key=lambda row: _order(row[1])):
        if isinstance(other, str):
            table.add_row(name, "-", "-", "-", "-", "-", Text(other))
            continue
        gap = other.gap if p.objective == "balanced" else other.objective_value_s / bound - 1 if bound > 0 else math.inf
        above = f"{100 * gap:.2f} %" if math.isfinite(gap) else "unknown"
        took = "" if other is p else f"in {format_seconds(seconds)}"
        table.add_row(name, f"{other.predicted.tokens_per_s:.4g}", format_seconds(other.predicted.latency_s),
                      format_seconds(other.predicted.first_token_s), str(other.predicted.nodes_used), above,
                      Text("proven optimal" if other.optimal else took))
    console.print(table)
    console.print()


def _order(other: planner.Plan | str) -> float:
    return other.objective_value_s if isinstance(other, planner.Plan) else float("inf")


def short_reason(sentence: str) -> str:
    """An error without its operation, place and hint."""
    return sentence.split("] ", 1)[-1].split(" At ", 1)[0].split(" Hint: ", 1)[0].rstrip(".")


def show_what_if(p: planner.Plan, changes: Sequence[str], console: Console) -> None:
    """The plan after each change, beside the plan as it is."""
    table = table_of("what if", "<change", "tokens/s", "", "one token", "", "<stages")
    before = p.predicted
    table.add_row("as it is", f"{before.tokens_per_s:.4g}", "", format_seconds(before.latency_s), "", stages_of(p))
    for answer in planner.what_if(p, *changes):
        if answer.plan is None:
            table.add_row(Text(answer.change), "-", "", "-", "", Text(short_reason(answer.problem)))
            continue
        after = answer.plan.predicted
        table.add_row(Text(answer.change), f"{after.tokens_per_s:.4g}",
                      percent(after.tokens_per_s, p.predicted.tokens_per_s), format_seconds(after.latency_s),
                      percent(after.latency_s, p.predicted.latency_s),
                      stages_of(answer.plan) if where(answer.plan) != where(p) else "the same")
    console.print(table)
    console.print()


def percent(after: float, before: float) -> str:
    """A change in percent."""
    return f"{100 * (after / before - 1):+.1f} %" if before else ""


def where(p: planner.Plan) -> list[tuple[str, int, int]]:
    """Layers of each node."""
    return [(stage.node, stage.start, stage.end) for stage in p.stages]


def stages_of(p: planner.Plan) -> Text:
    """Machines and where they are cut, in a line."""
    return Text(", ".join(f"{stage.node} [{stage.start}, {stage.end})" for stage in p.stages))


def show_simulation(p: planner.Plan, wishes: Wishes, console: Console) -> None:
    """The plan played through, beside the closed form."""
    fails = {name: parse_seconds(value) for name, value in pairs(wishes.fail, "--fail", "node=10s")}
    slow = {name: number(value, "--slow") for name, value in pairs(wishes.slow, "--slow", "node=2")}
    failover = {failure.node: (failure.plan, failure.reload_s) for failure in planner.failures(p)
                if failure.plan is not None} if fails else {}
    trace = planner.simulate(p, passes=200, seed=p.seed, jitter=wishes.jitter, slow=slow, fails=fails,
                             failover=failover, shared=[group.split(",") for group in wishes.shared])
    table = table_of(f"simulated, {len(trace.passes)} passes", "<", "predicted", "simulated", "")
    table.add_row("tokens/s", f"{p.predicted.tokens_per_s:.4g}", f"{trace.tokens_per_s:.4g}",
                  percent(trace.tokens_per_s, p.predicted.tokens_per_s))
    table.add_row("one token, waiting included", format_seconds(p.predicted.latency_s), format_seconds(trace.latency_s),
                  percent(trace.latency_s, p.predicted.latency_s))
    table.add_row("99 of 100 tokens within", "", format_seconds(trace.percentile_s(99)), "")
    if trace.lost_passes:
        table.add_row("passes lost to failures", "", str(trace.lost_passes), "")
        table.add_row("tokens/s, failures included", "", f"{trace.overall_tokens_per_s:.4g}", "")
    console.print(table)
    console.print()


MOST_PLAN_BYTES = 256_000_000


def check(path: Path, model: str = "", cluster: Path | None = None, console: Console | None = None) -> bool:
    """Print what the checker finds and whether all is well; with model or cluster, whether it is a plan for them."""
    console = console or Console()
    try:
        if path.stat().st_size > MOST_PLAN_BYTES:
            raise fail(ValueFault, "plan", f"{path} has {format_bytes(path.stat().st_size)}", "no plan is so large")
        text = read_limited(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise fail(ArgumentError, "plan", f"{path} cannot be read: {reason}",
                   "give a file written with --json") from None
    try:
        p = planner.Plan.from_json(text)
    except MorphoError as error:
        raise fail(type(error), "plan", f"{path}: {error.message}", error.hint) from None
    card = planner.ModelCard.from_config(model, p.card.batch, p.card.context, p.card.dtype, p.card.micro_batches
                                         ) if model else None
    report = planner.check(p, card=card, cluster=planner.Cluster.load(cluster) if cluster else None)
    for line in report.lines:
        bad = not line.startswith(("ok", "open"))
        console.print(Text(line, style="bold red" if bad else "yellow" if line.startswith("open") else ""),
                      soft_wrap=True)
    console.print(Text("the plan is what it says" if report.ok else "the plan is not what it says",
                       style="bold green" if report.ok else "bold red"))
    return report.ok


# ------------------------------------------------------------------------------------------------------- arguments


def pairs(texts: Iterable[str], option: str, example: str) -> list[tuple[str, str]]:
    """`name=value` options."""
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise fail(ArgumentError, "plan", f"{option} {text!r} is not understood", f"write {option} {example}",
                       line="")
        found.append((name, value))
    return found


def number(text: str, option: str) -> float:
    """A positive number on the command line."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value > 0:
        raise fail(ValueFault, "plan", f"{option} has the value {text!r}", "give a positive number", line="")
    return value


def pins(texts: Iterable[str]) -> dict[int, str]:
    """`LAYER=NODE` or `FIRST:END=NODE` (half open), as `Constraints.pinned` has it."""
    found: dict[int, str] = {}
    for layers, node in pairs(texts, "--pin", "0=node or 0:4=node"):
        first, colon, end = layers.partition(":")
        if not first.isdecimal() or (colon and not end.isdecimal()):
            raise fail(ArgumentError, "plan", f"--pin {layers}={node} is not understood",
                       "write --pin 0=node or 0:4=node", line="")
        for layer in range(int(first), int(end) if colon else int(first) + 1):
            if found.setdefault(layer, node) != node:
                raise fail(ArgumentError, "plan", f"layer {layer} is pinned to {found[layer]} and to {node}",
                           "pin it once", line="")
    return found

