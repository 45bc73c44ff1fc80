"""10. Plans that know the links over plans that do not: nodes at several sites, links between them of 10 ms.

    morpho bench cluster --only topology

Nodes are as fast as this machine's, and listed as they were bought: every other one at another site. So many of them
must share the model as their memory says. The uniform plan gives each node as many layers, in the order of the list;
the other one is the planner's for one text. Delays are the transport's shim's, text is compared with one process's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.cluster.setup import PROMPT, alone, folder, pipeline, tokens_per_s
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from morpho.cluster.frontend.local import card_of, local_cluster
from morpho.plan import Cluster, Constraints, Plan, solve

HERE_S, AWAY_S, RATE = 1e-4, 1e-2, 125e6  # latency within a site and between two, bytes per second of each link


@dataclass(frozen=True)
class Sites:
    """Nodes by turns at so many sites, each with memory for a share of the model's layers."""

    nodes: int
    sites: int
    share: float

    def cluster(self, place: Path) -> Cluster:
        """As the planner sees it."""
        plain, card, numbers = local_cluster(self.nodes), card_of(place, context=256), range(self.nodes)
        room = int(card.memory_bytes(0, round(self.share * card.depth)) / (1 - Constraints().headroom)) + 1
        late = tuple(tuple(0.0 if a == b else HERE_S if a % self.sites == b % self.sites else AWAY_S for b in numbers)
                     for a in numbers)
        rates = tuple(tuple(0.0 if a == b else RATE for b in numbers) for a in numbers)
        return replace(plain, nodes=tuple(replace(node, memory_bytes=room) for node in plain.nodes), latency_s=late,
                       bandwidth_bytes_per_s=rates)


CASES = {"two sites, two nodes hold the model": Sites(4, 2, 0.75),
         "two sites, three nodes hold the model": Sites(6, 2, 0.5),
         "three sites, three nodes hold the model": Sites(6, 3, 0.5)}


def delays(cluster: Cluster) -> dict[str, dict[str, float]]:
    """The links of a cluster as the transport's shims."""
    names = [node.name for node in cluster.nodes]
    return {f"{a} -> {b}": {"latency_s": cluster.latency_s[i][j], "bytes_per_s": cluster.bandwidth_bytes_per_s[i][j]}
            for i, a in enumerate(names) for j, b in enumerate(names) if i != j}


def rate(place: Path, found: Plan, count: int) -> tuple[float, bool]:
    """Tokens per second of one text, and whether it is that of one process."""
    with pipeline(place, found, streams=1, shims=delays(found.cluster)) as made:
        text = [*made.generate(PROMPT, max_new_tokens=16, temperature=0)]
        return max(tokens_per_s(made, 1, count) for _ in range(2)), text == alone(place, 16, None)


def run(session: Session) -> ThemeResult:
    """Both plans on each cluster."""
    result = ThemeResult("topology")
    table = Table("Tokens per second, one text", ["cluster", "uniform", "stages", "planned", "stages", "planned over "
                                                  "uniform", "predicted"])
    result.tables.append(table)
    count, place = (12, folder(6, 128)) if session.quick else (48, folder(12, 512))
    equal = 0
    for name, sites in [*CASES.items()][:1 if session.quick else None]:
        cluster = sites.cluster(place)
        card = card_of(place, context=256)
        plans = [solve(card, cluster, strategy, "latency") for strategy in ("uniform", "optimal")]
        (plain, same), (planned, too) = (rate(place, each, count) for each in plans)
        equal += same + too
        said = plans[0].predicted.latency_s / plans[1].predicted.latency_s
        table.rows.append([name, f"{plain:.1f}", str(len(plans[0].stages)), f"{planned:.1f}",
                           str(len(plans[1].stages)), f"{planned / plain:.2f}x", f"{said:.2f}x"])
        print("  " + ", ".join(table.rows[-1]), flush=True)
        result.targets.append(Target(f"planned over uniform, {name}", planned / plain, 2.0))
    result.targets.append(Target("texts that differ", 2 * len(table.rows) - equal, 0, False))
    return result
