"""Servers under load over HTTP: SmolLM2, 1, 4, 16 and 64 clients, each with a stream at a time; requests and tokens a
second, time to the first token, time per token; and how long each server takes until it answers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session
from benchmarks.serve import load, servers
from benchmarks.serve.streams import MISSING

CLIENTS = (1, 4, 16, 64)
NEW = 48
IDLE_S = 6
WORDS = ("sea", "wind", "stone", "bread", "light", "river", "clock", "garden")


def bodies(clients: int, requests: int, new: int, model: str) -> list[list[dict[str, Any]]]:
    """Prompts of some 30 tokens, all different, so that none is found in a cache."""
    return [[{"model": model, "max_tokens": new, "temperature": 0, "ignore_eos": True,
              "prompt": f"Story {client}-{number}. " + " ".join(WORDS[(client * 3 + number * 5 + place) % len(WORDS)]
                                                               for place in range(20)) + ". Once"}
             for number in range(requests)] for client in range(clients)]


def run(session: Session) -> ThemeResult:
    from morpho.weights.pull import is_pulled, model_path

    result = ThemeResult("clients")
    names = [name for name in servers.SERVERS if name == "morpho" or name in session.modules or name == "transformers"]
    if not is_pulled("smollm2"):
        result.notes.append(MISSING)
    rates: dict[tuple[str, int], float] = {}
    ready: dict[str, float] = {}
    if is_pulled("smollm2"):
        table = Table("SmolLM2-135M over HTTP", ["server", "clients", "requests/s", "tokens/s", "first token p50",
                                                 "p99", "per token p50", "p99"])
        for name in names:
            _measure(name, Path(model_path("smollm2")), session, table, rates, ready, result)
        result.tables.append(table)
        result.figures = {"tokens_per_s": {f"{name} {count}": rate for (name, count), rate in rates.items()},
                          "ready_s": ready}
    one, sixteen = rates.get(("morpho", 1)), rates.get(("morpho", 16))
    result.targets = [
        Target("16 clients over one, tokens/s", ratio(sixteen, one), 3.0),
        Target("16 clients over llama.cpp's server, tokens/s", ratio(sixteen, rates.get(("llama_cpp", 16))), 1.0),
        Target("time to ready", ready.get("morpho"), 1.0, at_least=False, unit=" s")]
    return result


def _measure(name: str, file: Path, session: Session, table: Table, rates: dict[tuple[str, int], float],
             ready: dict[str, float], result: ThemeResult) -> None:
    new, requests = (8, 1) if session.quick else (NEW, 3)
    try:
        if name == "morpho":  # the first start fills the cache of compiled code
            with servers.SERVERS[name](file, session.threads) as (port, model, _):  # type: ignore[attr-defined]
                load.clients(port, "/v1/completions", bodies(1, 1, 2, model))
        with servers.SERVERS[name](file, session.threads) as (port, model, took):  # type: ignore[attr-defined]
            ready[name] = took
            time.sleep(IDLE_S)  # Morpho loads what it needs for several rows when there is nothing else to do
            load.clients(port, "/v1/completions", bodies(2, 1, 4, model))
            for count in CLIENTS[:3] if session.quick else CLIENTS:
                seconds, seen = load.clients(port, "/v1/completions", bodies(count, requests, new, model))
                wrong = next((each.error for each in seen if each.error), None)
                if wrong:
                    result.errors.append(f"{name}, {count} clients: {wrong}")
                    return
                first = [each.first_s for each in seen if each.first_s]
                gaps = [(each.whole_s - each.first_s) / (each.tokens - 1) for each in seen if each.tokens > 1]
                rates[name, count] = sum(each.tokens for each in seen) / seconds
                shown = [duration(load.percentile(values, share)) for values in (first, gaps) for share in (0.5, 0.99)]
                table.rows.append([name, str(count), f"{len(seen) / seconds:.2f}", f"{rates[name, count]:.1f}", *shown])
                print(f"clients: {name}, {count} at once: {rates[name, count]:.1f} tokens/s", flush=True)
    except servers.Missing as reason:
        result.notes.append(f"{name} does not serve here: {reason}")
