"""The prediction ledger: what each run was predicted to do and what it did, a line of JSON each, in the user's cache.

`morpho plan history` shows the errors; `corrections` is what predictions of a node were off by.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from morpho.base import settings
from morpho.plan import Plan
from morpho.plan.predict.content import content_hash
from morpho.plan.predict.generation import Overheads, generation

MOST_BYTES = 8 << 20
QUANTITIES = ("first_token_s", "token_s", "tokens_per_s")


def ledger_path() -> Path:
    """Where the ledger is kept."""
    return settings.get().cache_path / "cluster" / "history.jsonl"


def predicted(plan: Plan, streams: int, prompt_tokens: int = 0, new_tokens: int = 0, overheads: Overheads | None = None
              ) -> dict[str, Any]:
    """What a plan says of a run with so many texts at once, with what a pipeline was measured to add (`Overheads`)."""
    said = generation(plan, max(streams, 1), prompt_tokens, new_tokens, overheads)
    links = {f"{a.node} -> {b.node}": plan.card.cut_bytes(b.start, a.activation_dtype or "f32")
             for a, b in zip(plan.stages, plan.stages[1:])}
    return {"first_token_s": said.first_token_s, "token_s": said.token_s, "tokens_per_s": said.tokens_per_s,
            "link_bytes_per_token": links, "memory_bytes": {s.node: s.memory_needed_bytes for s in plan.stages},
            "stage_s": {s.node: s.compute_s for s in plan.stages}}


def record(plan: Plan, model: str, streams: int, prompt_tokens: int, measured: Mapping[str, Any], new_tokens: int = 0,
           overheads: Overheads | None = None) -> dict[str, Any]:
    """Add a run to the ledger; the context of the prediction is said beside the prompt that was measured."""
    row = {"time": time.time(), "model": model, "cluster": plan.cluster.name, "plan": content_hash(plan.cluster)[:12],
           "nodes": len(plan.cluster.nodes), "stages": [[s.node, s.start, s.end] for s in plan.stages],
           "streams": streams, "context": plan.card.context, "prompt_tokens": prompt_tokens,
           "predicted": predicted(plan, streams, prompt_tokens, new_tokens, overheads), "measured": dict(measured)}
    if settings.get().cache:
        path = ledger_path()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > MOST_BYTES:  # the older half goes
            lines = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(b"".join(lines[len(lines) // 2:]))
        with open(path, "ab") as file:
            file.write(json.dumps(row).encode() + b"\n")
    return row


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
