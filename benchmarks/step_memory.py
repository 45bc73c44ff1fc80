"""What a training step of the GPT would hold: plain, with a checkpoint around each block, and under budgets.

Everything is predicted from the plan for a fixed machine: nothing is compiled or run.

    python -m benchmarks.step_memory [--layers 6] [--batch 8] [--shares 0.75 0.6]
"""

from __future__ import annotations

import argparse

from benchmarks.gate.capture import trace
from benchmarks.gate.targets import TARGETS, THREADS
from benchmarks.peers.morpho import gpt as peer
from benchmarks.train import gpt
from morpho.base.errors import MemoryLimit
from morpho.program.footprint import footprint
from morpho.program.program import Step


def show(name: str, size: tuple[int, ...], plain_flops: int, case: str = "gpt_step", share: float | None = None) -> int:
    """Print one line; the operations."""
    step, arguments = peer.prepare(case, gpt.make_inputs(case, size))
    traced = trace(lambda: (peer.compile_step(case, share) if share else step)(*arguments))
    try:
        program = traced.lowered(TARGETS["avx2"])
    except MemoryLimit as error:
        print(f"{name:24s} {error}")
        return 0
    flops = sum(each.cost.flops for each in program.steps if isinstance(each, Step))
    held = footprint(program, traced.named["updates"], THREADS)
    print(f"{name:24s} {held.total / 1e6:8.1f} MB  arena {held.arena / 1e6:8.1f} MB  "
          f"{flops / (plain_flops or flops):6.3f} x the operations")
    return flops


def main(words: list[str] | None = None, size: tuple[int, ...] = gpt.SIZE) -> None:
    """A line for each way."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=size[0])
    parser.add_argument("--batch", type=int, default=size[4])
    parser.add_argument("--shares", type=float, nargs="*", default=[0.75, 0.6])
    chosen = parser.parse_args(words)
    size = (chosen.layers, *size[1:4], chosen.batch, size[5])
    flops = show("plain", size, 0)
    show("checkpoint per block", size, flops, "gpt_step_checkpoint")
    for share in chosen.shares:
        show(f"budget of {share:.0%}", size, flops, share=share)


if __name__ == "__main__":
    main()
