"""After a rank died: who lives, who is behind, and the same state for all.

A step changes nothing before its last collective has come to its end, so a rank that was told of the death either has
not made the step or has made all of it. The ranks compare how far they are; those that are one step behind take the
state of one that is not. No step is lost, and none is made twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import numpy as np

import morpho as mo
from morpho.base.errors import GroupError, PeerLost, fail
from morpho.cluster import world
from morpho.cluster.parallel.replicas import broadcast_states
from morpho.runtime.groups import registry
from morpho.runtime.groups.group import Group
from morpho.runtime.metrics import metrics

log = logging.getLogger("morpho")
MOST_TRIES = 16  # deaths during the recovery from others
_lost = metrics.counter("morpho_ranks_lost", "Ranks that died while this one lived.")


class Survivors:
    """A group that loses ranks and goes on: `recover` after every `PeerLost`."""

    def __init__(self, group: Group, states: Sequence[mo.State], least: int = 1,
                 regroup: Callable[[Group, Sequence[int]], None] | None = None) -> None:
        self.group, self.states, self.least = group, states, least
        self._regroup = regroup  # of state that is shared out: told the new group and the old ranks of its members
        self.recoveries: list[float] = []  # seconds that each took

    def is_over(self) -> bool:
        """Whether every rank that lives asks this; where one recovers instead, all must, and this is their agreement to
        do so: `recover(..., agreed=True)` follows."""
        return self._agreed(True)

    def _agreed(self, over: bool) -> bool:
        """Last meeting of all ranks before the group is given up. Agreement is the only thing that a
        revoked group still does together: a rank that waits at its end must not wait there for one that recovers."""
        try:
            return self.group.agree(over)
        except PeerLost:
            return False

    def recover(self, steps: int, numbers: np.ndarray, agreed: bool = False) -> int:
        """The group of those that live, and how many steps they have made; `numbers` (float64) go from who is ahead to
        who is behind, as the states do."""
        started = time.perf_counter()
        for attempt in range(MOST_TRIES):
            try:
                if attempt or not agreed:
                    self.group.revoke()
                    self._agreed(False)
                steps = self._once(steps, numbers)
                self.recoveries.append(time.perf_counter() - started)
                return steps
            except PeerLost:
                continue  # another one died meanwhile
        raise fail(GroupError, "cluster", f"ranks died {MOST_TRIES} times during one recovery")

    def _once(self, steps: int, numbers: np.ndarray) -> int:
        old = self.group
        new = old.shrink()
        registry.rebind(old, new)
        if world.current() is old:
            world.become(new)
        self.group = new
        _lost.add(old.size - new.size)
        log.warning("rank %d of %d goes on as rank %d of %d, at step %d", old.rank, old.size, new.rank, new.size, steps)
        if new.size < self.least:
            raise fail(GroupError, "cluster", f"{new.size} ranks live, and {self.least} are the least",
                       "start again with more, or allow fewer")
        known = np.empty((new.size, 2), np.int64)
        new.all_gather(np.asarray([steps, old.rank], np.int64), known)
        made = known[:, 0]
        if self._regroup is not None:
            if made.min() < made.max():
                raise fail(GroupError, "cluster", "ranks that keep parts of the state are a step apart",
                           "go on from the last checkpoint")
            self._regroup(new, known[:, 1].tolist())
        elif made.min() < made.max():
            ahead = int(made.argmax())
            broadcast_states(new, self.states, ahead)
            new.broadcast(numbers, ahead)
        return int(made.max())
