"""What a training step of a small GPT would hold: plain, with a checkpoint around each block, and under budgets.

Everything is predicted from the plan: nothing is compiled or run, so the figures do not depend on the machine's speed.

    python benchmarks/step_memory.py [--layers 6] [--batch 8] [--shares 0.75 0.6]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.backends.cpu.driver.threads import wanted_threads
from morpho.backends.cpu.lowering.lower_graph import build_program
from morpho.base.dtypes import float32, int64
from morpho.base.errors import MemoryLimit
from morpho.base.target import current_target
from morpho.cost.estimate import graph_cost
from morpho.ir.graph import Graph
from morpho.ir.node import build
from morpho.ops.algebra import constant_like
from morpho.passes.pipeline import optimise
from morpho.passes.remat.remat import Budget
from morpho.program.footprint import footprint
from morpho.program.plan_memory import plan_memory
from morpho.program.program import Program
from morpho.runtime.plans import evaluate  # noqa: F401  (tells the fuser what has native code)
from morpho.tensor.autodiff.gradient import pull_back
from morpho.tensor.core import Tensor

LENGTH, WIDTH, HEADS, VOCABULARY = 256, 384, 6, 8192
SHAPES = {"gain1": (WIDTH,), "bias1": (WIDTH,), "qkv": (WIDTH, 3 * WIDTH), "qkv_bias": (3 * WIDTH,),
          "out": (WIDTH, WIDTH), "out_bias": (WIDTH,), "gain2": (WIDTH,), "bias2": (WIDTH,), "up": (WIDTH, 4 * WIDTH),
          "up_bias": (4 * WIDTH,), "down": (4 * WIDTH, WIDTH), "down_bias": (WIDTH,)}


def block(p: dict[str, Tensor], x: Tensor, batch: int) -> Tensor:
    """x is (batch * length, width)."""
    h = mo.layer_norm(x, p["gain1"], p["bias1"]) @ p["qkv"] + p["qkv_bias"]
    q, k, v = (mo.permute_dims(mo.reshape(h[:, i * WIDTH:(i + 1) * WIDTH], (batch, LENGTH, HEADS, -1)), (0, 2, 1, 3))
               for i in range(3))
    seen = mo.permute_dims(mo.attention(q, k, v, causal=True), (0, 2, 1, 3))
    x = x + (mo.reshape(seen, x.shape) @ p["out"] + p["out_bias"])
    h = mo.gelu(mo.layer_norm(x, p["gain2"], p["bias2"]) @ p["up"] + p["up_bias"])
    return x + (h @ p["down"] + p["down_bias"])


class Step:
    """One training step: forward, backward, clipping by the global norm, Adam; weights and moments in place."""

    def __init__(self, layers: int, batch: int, run: Callable[..., Any]) -> None:
        self.inputs = 0
        table, places = self.parameter((VOCABULARY, WIDTH)), self.parameter((LENGTH, WIDTH))
        blocks = [{name: self.parameter(shape) for name, shape in SHAPES.items()} for _ in range(layers)]
        leaves = [table, places, *[leaf for p in blocks for leaf in p.values()]]
        moments = [[self.parameter(leaf.shape) for leaf in leaves] for _ in range(2)]
        ids, targets = (self.parameter((batch, LENGTH), int64) for _ in range(2))
        x = mo.reshape(mo.embedding(table, ids) + places, (batch * LENGTH, WIDTH))
        for p in blocks:
            x = run(block, p, x, batch)
        loss = mo.cross_entropy(mo.layer_norm(x) @ table.T, mo.reshape(targets, (-1,)))
        found = pull_back([loss.node], [constant_like(loss.node, 1)], [leaf.node for leaf in leaves])
        slopes = [Tensor.of_node(node) for node in found]
        scale = mo.minimum(1 / mo.sqrt(sum(mo.square(slope).sum() for slope in slopes)), 1.0)
        outputs, self.updates = [loss], []
        for i, (leaf, slope) in enumerate(zip(leaves, slopes, strict=True)):
            first = 0.9 * moments[0][i] + 0.1 * (slope * scale)
            second = 0.99 * moments[1][i] + 0.01 * mo.square(slope * scale)
            for part, value in enumerate((leaf - 1e-3 * first / (mo.sqrt(second) + 1e-8), first, second)):
                self.updates.append((len(outputs), part * len(leaves) + i))
                outputs.append(value)
        self.graph = Graph(tuple(output.node for output in outputs))

    def parameter(self, shape: tuple[int, ...], dtype: Any = float32) -> Tensor:
        self.inputs += 1
        return Tensor.of_node(build("parameter", index=self.inputs - 1, shape=shape, dtype=dtype))

    def program(self, graph: Graph) -> Program:
        program = build_program(graph, True, self.inputs, current_target())
        plan_memory(program)
        return program

    def bytes_of(self, graph: Graph) -> int:
        return footprint(self.program(graph), self.updates, wanted_threads()).total

    def show(self, name: str, plain_flops: int, budget: Budget | None = None) -> int:
        """Print one line; the operations."""
        try:
            graph, _ = optimise(self.graph, 3, updates=self.updates, budget=budget, measure=self.bytes_of)
        except MemoryLimit as error:
            print(f"{name:24s} {error}")
            return 0
        flops = graph_cost(graph).flops
        held = footprint(self.program(graph), self.updates, wanted_threads())
        print(f"{name:24s} {held.total / 1e6:8.1f} MB  arena {held.arena / 1e6:8.1f} MB  "
              f"{flops / (plain_flops or flops):6.3f} x the operations")
        return flops


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--shares", type=float, nargs="*", default=[0.75, 0.6])
    chosen = parser.parse_args()
    plain = Step(chosen.layers, chosen.batch, lambda function, *args: function(*args))
    flops = plain.show("plain", 0)
    Step(chosen.layers, chosen.batch, mo.checkpoint).show("checkpoint per block", flops)
    for share in chosen.shares:
        plain.show(f"budget of {share:.0%}", flops, Budget(share=share))


if __name__ == "__main__":
    main()
