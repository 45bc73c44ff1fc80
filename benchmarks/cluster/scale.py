"""11. Beyond this machine, by the simulator: 64 and 1000 nodes, as fast as a worker here was measured to be.

    morpho bench cluster --only scale

Nothing of this was run on so many nodes: a pipeline of two workers is calibrated, its figures go into clusters of 64
and 1000 equal nodes on links of 1 Gbit/s, and `plan.simulate` plays the plans for them, smoothly, with a jitter of
10 % and with the death of a node.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.cluster.setup import cut_plan, even_cuts, folder, pipeline
from benchmarks.harness.results import Table, ThemeResult
from benchmarks.harness.session import Session
from morpho.cluster.frontend.calibrating import Calibration, calibrated
from morpho.cluster.frontend.local import local_cluster
from morpho.plan import Cluster, Constraints, ModelCard, mbit_per_s, simulate, solve

MODEL, DTYPE, CONTEXT = "llama-70b", "q4", 4096
WIRE_S, MEMORY_BYTES = 3e-4, 16 << 30  # a gigabit network's latency; what a small machine has
SIZES = {64: 1, 1000: 12}  # nodes, and copies of the pipeline
JITTER, PASSES, SECONDS = 0.1, 12, 10.0


def measured(quick: bool) -> Calibration:
    """A worker of this machine."""
    place = folder(6, 128) if quick else folder(12, 512)
    with pipeline(place, cut_plan(place, even_cuts(place, 2), local_cluster(2)), streams=6) as made:
        return calibrated(made, tokens=12 if quick else 48)


def cluster_of(count: int, found: Calibration) -> Cluster:
    """So many nodes like the slower of the two."""
    slower = min(found.cluster.nodes, key=lambda node: node.memory_bytes_per_s * node.efficiency)
    nodes = [replace(slower, name=f"n{number}", memory_bytes=MEMORY_BYTES) for number in range(count)]
    return Cluster.uniform(nodes, mbit_per_s(1000), WIRE_S + max(found.overheads.hop_s, 0.0))


def run(session: Session) -> ThemeResult:
    """Throughput as planned and as played."""
    result, found = ThemeResult("scale"), measured(session.quick)
    table = Table(f"{MODEL} {DTYPE}, simulated, tokens per second", [
        "nodes", "stages", "copies", "bound of the plan", "played", "with jitter", "over all, a node dying half-way"])
    result.tables.append(table)
    node, card = cluster_of(1, found).nodes[0], ModelCard.from_config(MODEL, context=CONTEXT, dtype=DTYPE)
    rate = node.memory_bytes_per_s * node.efficiency
    result.notes.append(f"measured on this machine: {rate / 1e9:.2f} GB/s of a worker's memory, "
                        f"{1e6 * found.overheads.hop_s:.0f} us a hop; assumed: 1 Gbit/s and {1e3 * WIRE_S:g} ms")
    for count, copies in [*SIZES.items()][:1 if session.quick else None]:
        plan = solve(card, cluster_of(count, found), constraints=Constraints(data=copies), seconds=SECONDS)
        half_s = plan.predicted.latency_s * PASSES / 2
        stage = plan.stages[len(plan.stages) // 2]
        victim = stage.replicas[0][0]
        after = solve(card, plan.cluster.without([victim]), constraints=plan.constraints, seconds=SECONDS)
        reload_s = sum(layer.weight_bytes for layer in card.layers[stage.start:stage.end]) / mbit_per_s(1000)
        plays = [simulate(plan, passes=PASSES), simulate(plan, passes=PASSES, jitter=JITTER),
                 simulate(plan, passes=PASSES, fails={victim: half_s}, failover={victim: (after, reload_s)})]
        table.rows.append([str(count), str(len(plan.stages)), str(len(plan.stages[0].replicas)),
                           f"{plan.predicted.tokens_per_s:.1f}",
                           *(f"{each.tokens_per_s:.1f}" for each in plays[:2]),
                           f"{plays[2].overall_tokens_per_s:.1f}, {plays[2].lost_passes} passes lost"])
        print("  " + ", ".join(table.rows[-1]), flush=True)
    return result
