"""The planner: where the layers of a model go on unequal machines, proven, then what if, why, and moving while it runs.

    python examples/13_plan.py [FOLDER]

Nothing is downloaded or run: model and machines are numbers. It leaves a picture, plan.svg, in
the folder or a temporary one.
"""

import sys
import tempfile
from pathlib import Path

from morpho import plan

card = plan.ModelCard.from_config("gpt2-xl", batch=8, context=1024, dtype="f16")
server = plan.Node("server", 64_000_000_000, memory_bytes_per_s=100e9, flops_per_s={"f32": 2e12, "f16": 4e12})
desks = [plan.Node(f"desk-{n}", 16_000_000_000, memory_bytes_per_s=40e9, flops_per_s={"f32": 1e12}) for n in (1, 2)]
laptop = plan.Node("laptop", 8_000_000_000, memory_bytes_per_s=50e9, flops_per_s={"f32": 0.7e12})
cluster = plan.Cluster.uniform([server, *desks, laptop], plan.mbit_per_s(1000), latency_s=2e-4, name="office")

# The best plan, and what rules of thumb would have given.
p = plan.solve(card, cluster)
for stage in p.stages:
    print(f"{stage.node:8} layers [{stage.start}, {stage.end}), {stage.compute_s * 1e3:.1f} ms, bound by {stage.binds}")
print(f"optimal: {p.predicted.tokens_per_s:.0f} tokens/s, proven: {p.optimal}")
uniform = plan.solve(card, cluster, strategy="uniform")
print(f"uniform: {uniform.predicted.tokens_per_s:.0f} tokens/s\n")
assert p.optimal and p.predicted.tokens_per_s >= uniform.predicted.tokens_per_s

# What if, and why.
for answer in plan.what_if(p, "drop desk-2", "link server-laptop 10Gbit/s 0.1ms"):
    print(f"{answer.change}: {answer.plan.predicted.tokens_per_s:.0f} tokens/s" if answer.plan else answer.problem)
print(f"\n{p.explain(relief=3)}\n")

# Played event by event, the formula holds; with jitter it is a little too good.
calm, rough = plan.simulate(p), plan.simulate(p, jitter=0.3, seed=1)
print(f"simulated: {calm.tokens_per_s:.0f} tokens/s, with jitter {rough.tokens_per_s:.0f}")
assert abs(calm.tokens_per_s / p.predicted.tokens_per_s - 1) < 0.02

# The server turns out half as fast: is moving layers worth it?
print(plan.adapt(p, {"server": 2 * next(stage.compute_s for stage in p.stages if stage.node == "server")}))
folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
print("wrote", p.plot(folder / "plan.svg"))
