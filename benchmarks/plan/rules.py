"""4. Rules of thumb on 400 clusters: how far each is from the optimum, for 8B in f16 and 70B in 4 bits.

    morpho bench plan --only rules
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness.results import Table, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.plan import clusters
from morpho.base.errors import MorphoError
from morpho.plan import ModelCard, solve
from morpho.plan.solve.heuristics import CHEAP_RULES

MODELS = {"8B f16": ("llama-8b", "f16"), "70B 4-bit": ("llama-70b", "q4")}
RULES = (*CHEAP_RULES, "annealing")
NAMES = {"uniform": "even", "proportional": "by speed", "proportional-memory": "by memory"}


def run(session: Session) -> ThemeResult:
    """Time over the optimum's, where a rule has a plan at all."""
    result = ThemeResult("rules")
    data = clusters.load()[:40] if session.quick else clusters.load()
    for model, (name, dtype) in MODELS.items():
        card = ModelCard.from_config(name, batch=1, context=4096, dtype=dtype)
        for objective in ("throughput", "latency"):
            _table(result, model, card, objective, data)
    result.notes.append("a rule has no plan where it does not fit: even splits pay no heed to memory")
    return result


def _table(result: ThemeResult, model: str, card: ModelCard, objective: str, data: list[dict]) -> None:
    table = Table(f"{model}, {objective}: time over the optimum's",
                  ["rule", "has a plan", "median", "mean", "95 %", "worst"])
    result.tables.append(table)
    ratios: dict[str, list[float]] = {rule: [] for rule in RULES}
    solvable = 0
    for number, entry in enumerate(data):
        machines = clusters.cluster(entry)
        try:
            best = solve(card, machines, "optimal", objective).objective_value_s
        except MorphoError:
            continue
        solvable += 1
        for rule in RULES:
            options = {"moves": 4000, "seed": number} if rule == "annealing" else {}
            try:
                found = solve(card, machines, rule, objective, bound=False, **options)
                ratios[rule].append(found.objective_value_s / best)
            except MorphoError:
                continue
    for rule, over in ratios.items():
        cells = [f"{value:.2f}x" for value in (np.median(over), np.mean(over), np.percentile(over, 95), max(over))]
        table.rows.append([NAMES.get(rule, rule), f"{len(over)} of {solvable}", *cells])
        result.figures[f"{model}, {objective}, {rule}"] = {"solvable": solvable, "ratios": over}
