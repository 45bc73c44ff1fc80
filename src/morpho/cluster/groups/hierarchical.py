"""Hosts first: ranks of one host reduce among themselves through shared memory, one of each host speaks to the others.

A collective crosses a network once per host instead of once per rank. Sums are made per host, then over hosts: the bits
differ from a flat group's, as those of any plain reduction over another number of ranks do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.errors import GroupError, fail
from morpho.cluster.groups.comparing import line
from morpho.cluster.groups.in_order import InOrder
from morpho.runtime.groups.group import Group, Work, host_colors
from morpho.runtime.groups.reducing import is_half

_LOCAL = ("all_reduce", "broadcast", "barrier")  # what goes by way of hosts; the rest is the flat group's


class HierarchicalGroup(Group):
    """A group whose reductions, broadcasts and barriers go within each host first."""

    kind = "hierarchical"

    def __init__(self, flat: Group) -> None:
        self.flat, self.rank, self.size, self.epoch, self.hosts = flat, flat.rank, flat.size, flat.epoch, flat.hosts
        self.members, self.timeout_s = flat.members, flat.timeout_s
        colors = host_colors(flat.hosts)
        within = flat.split(colors[self.rank])
        if within is None:
            raise fail(GroupError, "group", "this rank has no host")
        self.within = within
        self.between = flat.split(0 if within.rank == 0 else None)  # one rank of each host
        self._leaders = [colors.index(color) for color in range(max(colors) + 1)]
        self._colors = colors
        self._order = InOrder()

    def split(self, color: int | None, key: int = 0) -> Group | None:
        return self.flat.split(color, key)

    def set_timeout(self, seconds: float) -> None:
        self.timeout_s = seconds
        for group in (self.flat, self.within, self.between):
            if group is not None:
                group.set_timeout(seconds)

    def _run(self, operation: str, wait: bool, *arguments: Any) -> Work:
        if operation not in _LOCAL or (operation == "all_reduce" and is_half(arguments[2])):
            return self.flat._run(operation, wait, *arguments)
        method = getattr(self, f"_{operation}")
        place = "" if wait and self._order.is_idle() else line()

        def act() -> None:
            self.flat.meet(operation, *arguments, place=place)
            method(*arguments)

        return self._order.run(act, wait)

    def buffer(self, count: int, dtype: Any) -> np.ndarray:
        return self.within.buffer(count, dtype)

    def _barrier(self) -> None:
        self.within.barrier()
        if self.between is not None:
            self.between.barrier()
        self.within.barrier()

    def _broadcast(self, buffer: np.ndarray, root: int) -> None:
        color = self._colors[root]
        if self._colors[self.rank] == color:  # the root's host, from the root
            self.within.broadcast(buffer, sum(c == color for c in self._colors[:root]))
        if self.between is not None:
            self.between.broadcast(buffer, color)
        if self._colors[self.rank] != color:
            self.within.broadcast(buffer, 0)

    def _all_reduce(self, buffer: np.ndarray, op: str, dtype: Any) -> None:
        inner = "sum" if op == "mean" else op
        self.within.all_reduce(buffer, inner)
        if self.between is not None:
            self.between.all_reduce(buffer, inner)
        self.within.broadcast(buffer, 0)
        if op == "mean":
            buffer /= buffer.dtype.type(self.size)

    def revoke(self) -> None:
        for group in (self.within, self.between, self.flat):
            if group is not None:
                group.revoke()

    def shrink(self) -> Group:
        self._order.settle()
        return HierarchicalGroup(self.flat.shrink())

    def agree(self, flag: bool) -> bool:
        return self.flat.agree(flag)
