"""This machine as a cluster, and the card of a model wherever it lies: what a plan needs when nobody gives one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.base.machine import machine, other_load, slowed
from morpho.models.files.gguf import config_of_gguf
from morpho.models.files.json_file import read_json
from morpho.plan import Cluster, Constraints, ModelCard, Node, Plan, solve
from morpho.runtime.measure import machine_profile
from morpho.weights import load_gguf

SHARED_MEMORY_BYTES_PER_S, SHARED_MEMORY_LATENCY_S = 4e9, 3e-5  # between processes of one machine
LEAST_IN_RESERVE = 2  # so many deaths in a row cost no stage


def config_of(place: str | Path) -> dict[str, Any]:
    """The configuration of a model in a folder or a GGUF file."""
    path = Path(place)
    if path.suffix.lower() == ".gguf":
        return config_of_gguf(load_gguf(path))
    found = read_json(path / "config.json")
    if found is None:
        raise fail(ArgumentError, "pipeline", f"there is no model at {path}", "give a folder with config.json and "
                                                                              "model.safetensors, or a GGUF file")
    return found


def card_of(place: str | Path, context: int | None = None, streams: int = 1, batch: int = 1, dtype: str = ""
            ) -> ModelCard:
    """The model as the planner sees it; without a type that of its file."""
    dtype = dtype or ("q4" if str(place).lower().endswith(".gguf") else "f32")
    card = ModelCard.from_config(config_of(place), batch, context, dtype, streams)
    return card.with_(name=Path(place).name)


def local_cluster(count: int) -> Cluster:
    """This machine as so many equal nodes that share its cores and its memory.

    >>> local_cluster(2).nodes[1].name
    'worker-2'
    """
    if count < 1:
        raise fail(ArgumentError, "pipeline", f"nodes={count} are no nodes", "give 1 or more")
    mo.compile(abs)  # the tensor floor tells the runtime how Python's objects lie in memory when this is loaded
    rates, here = machine_profile(), machine()
    share = min(count, here.cores)
    nodes = [Node(f"worker-{number}", here.memory_bytes // count, rates.bytes_per_s / share,
                  {"f32": rates.flops_per_s / share}) for number in range(1, count + 1)]
    return _linked(nodes)


def _linked(nodes: Sequence[Node]) -> Cluster:
    return Cluster.uniform(nodes, SHARED_MEMORY_BYTES_PER_S, SHARED_MEMORY_LATENCY_S, "this machine")


def local_plan(place: str | Path, count: int, streams: int = 1, constraints: Constraints | None = None,
               objective: str = "throughput") -> Plan:
    """A plan over workers on this machine: at most two for each layer, and of those that it has no work for as many in
    reserve as work, or `LEAST_IN_RESERVE`. The others are left out: each would be a process that only waits."""
    card = card_of(place, streams=streams)
    if count > 2 * len(card.layers):
        raise fail(ArgumentError, "pipeline", f"{count} workers are too many for the {len(card.layers)} layers of "
                                              f"{card.name}",
                   f"give at most {2 * len(card.layers)}: those beyond one for each layer wait in reserve")
    cluster = local_cluster(count)
    found = solve(card, cluster, objective=objective, constraints=constraints)
    busy = found.predicted.nodes_used
    kept = busy + max(busy, LEAST_IN_RESERVE)
    if count > kept:
        found = solve(card, _linked(cluster.nodes[:kept]), objective=objective, constraints=constraints)
    return replace(found, notes=(*found.notes, load_note(other_load(), min(1.0, busy / machine().cores))))


def load_note(load: float, share: float = 1.0) -> str:
    """Note on the load of this machine during a prediction.

    >>> load_note(0.02)
    'measured before planning: other programs keep 2 % of the cores busy'
    >>> load_note(3.0)
    'measured before planning: other programs want 300 % of the cores; beside them times are about 4 times those said'
    """
    factor = slowed(load, share)
    verb = "keep" if load <= 1 else "want"
    text = f"measured before planning: other programs {verb} {load:.0%} of the cores".replace("%", " %")
    if factor > 1.05:
        return f"{text}; beside them times are about {factor:.2g} times those said"
    return text + (" busy" if load <= 1 else "")
