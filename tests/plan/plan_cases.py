"""Small models and clusters that the planner's tests share."""

from __future__ import annotations

from morpho import plan


def node(name: str, speed: float = 1.0, memory: int = 1000, **more) -> plan.Node:
    """A machine that does `speed` FLOP/s and never waits for its memory."""
    return plan.Node(name, memory, 1e30, {"f32": speed}, **more)


def chain(count: int, work: float = 1.0, weight: int = 100, cut: int = 100, **more) -> plan.ModelCard:
    """Equal layers: `work` FLOPs, `weight` bytes, `cut` numbers to send."""
    layers = tuple(plan.Layer(f"layer {i}", "block", work, 0, work, 0, weight, prefill_cut_elements=cut,
                              decode_cut_elements=cut) for i in range(count))
    return plan.ModelCard("chain", layers, **more)


def ranges(found: plan.Plan) -> list[tuple[str, int, int]]:
    """Where the layers are."""
    return [(stage.node, stage.start, stage.end) for stage in found.stages]


NO_HEADROOM = plan.Constraints(headroom=0.0)
