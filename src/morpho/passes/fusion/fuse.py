"""Fusion: elementwise chains, and reductions with what comes before and after them, become groups of one kernel each.

A group has an iteration space (a shape) and at most one set of reduction axes. Its values are *full*, of the shape of
the space, or *row*, of the space without the reduction axes. A node joins the group of an input when its value has one
of these two forms and no path leaves the group and comes back. Every node is computed once: one that is needed outside
its group is an output of it.
"""

from __future__ import annotations

from morpho.ir.graph import Graph
from morpho.passes.fusion.fuser import Fuser
from morpho.passes.fusion.sibling_fusion import join_groups
from morpho.passes.remat.control_dependencies import settle_order


def fuse(graph: Graph) -> Graph:
    """Partition the graph into groups and put a group node in place of each."""
    fuser = Fuser(settle_order(graph))
    fuser.collect(only_single=False)
    join_groups(fuser)
    return fuser.build()


def single(graph: Graph) -> Graph:
    """A group per node: what level 0 runs, and levels without `fuse`."""
    fuser = Fuser(settle_order(graph))
    fuser.collect(only_single=True)
    return fuser.build()
