"""The prediction ledger: what each run was predicted to do and what it did, a line of JSON each, in the user's cache.

`morpho plan history` shows the errors; `corrections` is what predictions of a node were off by, and `effective` the
bandwidth that `morpho plan measure` and `morpho cluster measure` write instead of the measured one.
"""

from __future__ import annotations

import json
import logging
import statistics
import time
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from morpho.base import settings
from morpho.cluster.frontend.answers import Answer
from morpho.plan import Plan
from morpho.plan.predict.content import content_hash
from morpho.plan.predict.generation import Overheads, generation

MOST_BYTES = 8 << 20
LEAST_RUNS = 3  # before they are believed more than a measurement
QUANTITIES = ("first_token_s", "token_s", "tokens_per_s")


def ledger_path() -> Path:
    """Where the ledger is kept."""
    return settings.get().cache_path / "cluster" / "history.jsonl"


def predicted(plan: Plan, streams: int, prompt_tokens: int = 0, new_tokens: int = 0, overheads: Overheads | None = None
              ) -> dict[str, Any]:
    """Predicted figures of a run with so many texts at once and these measured overheads."""
    said = generation(plan, max(streams, 1), prompt_tokens, new_tokens, overheads)
    links = {f"{a.node} -> {b.node}": plan.card.cut_bytes(b.start, a.activation_dtype or "f32")
             for a, b in zip(plan.stages, plan.stages[1:])}
    return {"first_token_s": said.first_token_s, "token_s": said.token_s, "tokens_per_s": said.tokens_per_s,
            "link_bytes_per_token": links, "memory_bytes": {s.node: s.memory_needed_bytes for s in plan.stages},
            "stage_s": {s.node: s.compute_s for s in plan.stages}, "binds": {s.node: s.binds for s in plan.stages},
            "memory_bytes_per_s": {s.node: plan.cluster.node(s.node).memory_bytes_per_s for s in plan.stages}}


def measured(answers: Iterable[Answer], said: Mapping[str, Mapping[str, Any]], stage_s: Mapping[str, float]
             ) -> dict[str, Any]:
    """Figures of a run: times of its answers, and the last reports of its workers."""
    found: dict[str, Any] = {"sent_bytes": {node: row.get("sent_bytes", 0) for node, row in said.items()},
                             "memory_bytes": {node: row.get("memory_bytes", 0) for node, row in said.items()},
                             "stage_s": dict(stage_s)}
    done = [answer for answer in answers if len(answer.times_s) > 1]
    if done:
        gaps = [b - a for answer in done for a, b in pairwise(answer.times_s)]
        begun, over = min(each.begun_s for each in done), max(each.times_s[-1] for each in done)
        found |= {"token_s": statistics.median(gaps),
                  "first_token_s": min(each.times_s[0] - each.begun_s for each in done),
                  "tokens_per_s": sum(len(each.made) for each in done) / (over - begun)}
    return found


def record(plan: Plan, model: str, streams: int, prompt_tokens: int, measured: Mapping[str, Any], new_tokens: int = 0,
           overheads: Overheads | None = None, load: float | None = None) -> dict[str, Any]:
    """Add a run to the ledger; the context of the prediction is said beside the prompt that was measured. Where the
    ledger cannot be written the run is not in it, which is said. load: of other programs when the run was planned
    (`base.machine.other_load`)."""
    row = {"time": time.time(), "model": model, "cluster": plan.cluster.name, "plan": content_hash(plan.cluster)[:12],
           "nodes": len(plan.cluster.nodes), "stages": [[s.node, s.start, s.end] for s in plan.stages],
           "streams": streams, "context": plan.card.context, "prompt_tokens": prompt_tokens, "load": load,
           "predicted": predicted(plan, streams, prompt_tokens, new_tokens, overheads), "measured": dict(measured)}
    if settings.get().cache:
        try:
            _append(ledger_path(), row)
        except OSError as error:
            logging.getLogger("morpho").warning("[cluster] the run is not in the ledger: %s", error)
    return row


def _append(path: Path, row: Mapping[str, Any]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > MOST_BYTES:  # the older half goes
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[len(lines) // 2:]))
    with open(path, "ab") as file:
        file.write(json.dumps(row).encode() + b"\n")


def rows(path: Path | None = None) -> list[dict[str, Any]]:
    """All runs there are, oldest first; lines that are no runs are left out."""
    path = path or ledger_path()
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and isinstance(row.get("predicted"), dict) and isinstance(row.get("measured"), dict):
            found.append(row)
    return found


def errors(row: Mapping[str, Any]) -> dict[str, float]:
    """Measured over predicted, minus one, of each quantity that has both.

    >>> errors({"predicted": {"token_s": 0.01}, "measured": {"token_s": 0.012}})
    {'token_s': 0.19999999999999996}
    """
    said, did = row["predicted"], row["measured"]
    return {name: did[name] / said[name] - 1 for name in QUANTITIES if said.get(name) and did.get(name)}


def corrections(found: Iterable[Mapping[str, Any]], last: int = 8) -> dict[str, float]:
    """Of each node: how much longer its stages took than predicted, the median of its last runs.

    >>> corrections([{"predicted": {"stage_s": {"a": 0.01}}, "measured": {"stage_s": {"a": 0.02}}}])
    {'a': 2.0}
    """
    factors: dict[str, list[float]] = {}
    for row in found:
        for node, seconds in row["measured"].get("stage_s", {}).items():
            expected = row["predicted"].get("stage_s", {}).get(node)
            if expected and seconds:
                factors.setdefault(node, []).append(seconds / expected)
    return {node: statistics.median(values[-last:]) for node, values in factors.items()}


def effective(found: Iterable[Mapping[str, Any]], nodes: int | None = None, last: int = 8
              ) -> dict[str, tuple[float, int]]:
    """Of each node: the memory bandwidth at which predictions of its stages would have been right, the median of its
    last runs, and how many those are; `nodes` takes runs over so many only. Nodes with too few runs are left out.

    It does not matter which figures a run was planned with: twice the time at half the bandwidth says the same.

    >>> row = {"predicted": {"stage_s": {"a": 0.01}, "binds": {"a": "memory bandwidth"},
    ...                      "memory_bytes_per_s": {"a": 8e9}}, "measured": {"stage_s": {"a": 0.02}}}
    >>> effective([row] * LEAST_RUNS)
    {'a': (4000000000.0, 3)}
    """
    rates: dict[str, list[float]] = {}
    for row in found:
        said = row["predicted"]
        if nodes is not None and row.get("nodes") != nodes:
            continue
        for node, seconds in row["measured"].get("stage_s", {}).items():
            rate, expected = said.get("memory_bytes_per_s", {}).get(node), said.get("stage_s", {}).get(node)
            if rate and expected and seconds and said.get("binds", {}).get(node) == "memory bandwidth":
                rates.setdefault(node, []).append(rate * expected / seconds)
    return {node: (statistics.median(values[-last:]), min(len(values), last)) for node, values in rates.items()
            if len(values) >= LEAST_RUNS}
