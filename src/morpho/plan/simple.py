"""Rules of thumb: `uniform` splits the layers evenly over the nodes in their given order."""

from __future__ import annotations

from morpho.plan.result import Stage
from morpho.plan.strategies import Request, register_strategy


def balanced_cuts(depth: int, parts: int) -> list[int]:
    """Boundaries of `parts` ranges whose sizes differ by at most one; longer ones first.

    >>> balanced_cuts(10, 4)
    [0, 3, 6, 8, 10]
    """
    small, longer = divmod(depth, parts)
    return [part * small + min(part, longer) for part in range(parts + 1)]


@register_strategy("uniform")
def uniform(request: Request) -> list[Stage]:
    """Floor or ceil of layers / nodes on each node, in the order of the cluster."""
    names = [node.name for node in request.cluster.nodes][:request.constraints.max_stages]
    cuts = balanced_cuts(request.card.depth, min(len(names), request.card.depth))
    return [Stage(name, start, end, request.constraints.activation_dtypes[0])
            for name, start, end in zip(names, cuts, cuts[1:])]
