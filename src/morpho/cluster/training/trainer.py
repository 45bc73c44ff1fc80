"""`Trainer`: data parallel steps on a global batch, with the bits of one rank, which go on when ranks die.

Ordered, the batch is cut into a fixed number of shards; each has its gradient by itself, in the same compiled function
on whichever rank, and the fixed tree of `tree.py` adds them: weights and losses have the same bits on 1, 2, 4 or 8
ranks, and before and after a death. Plain, every rank has one part of the batch and the reductions overlap with the
backward pass: faster, and equal to a tolerance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, GroupError, MorphoError, PeerLost, fail
from morpho.cluster import world
from morpho.cluster.collectives import all_reduce
from morpho.cluster.launch.told import AGAIN
from morpho.cluster.parallel.data_parallel import DistributedDataParallel
from morpho.cluster.parallel.replicas import broadcast_states, states_of
from morpho.cluster.training.survival import Survivors
from morpho.optim.ordered import OrderedStep
from morpho.runtime.groups.group import Group
from morpho.runtime.groups.tree import SHARDS, held, ordered_sum, sum_alone

log = logging.getLogger("morpho")


class Trainer:
    """Steps of data parallel training.

    model, optimiser: as for one process. loss_of: `loss_of(*arrays)`, the mean loss of some rows. ordered: the same
    bits for any number of ranks; otherwise faster. clip: the most norm of all gradients together, 0: any. seed: of what
    the model draws (dropout), which follows from the seed, the step and the shard alone. least: ranks without which
    training ends; by default what `morpho launch --elastic` says, else 1.

    >>> model = mo.nn.Linear(2, 1)
    >>> rule = mo.optim.SGD(model.parameters(), lr=0.1)
    >>> trainer = mo.cluster.Trainer(model, rule, lambda x, y: mo.mean(mo.square(model(x) - y)))
    >>> x, y = np.ones((16, 2), np.float32), np.zeros((16, 1), np.float32)
    >>> trainer.step(x, y) > trainer.step(x, y)
    True
    """

    def __init__(self, model: mo.nn.Module, optimiser: Any, loss_of: Callable[..., mo.Tensor],
                 group: Group | None = None, *, ordered: bool = True, shards: int = SHARDS, clip: float = 0.0,
                 seed: int = 0, least: int | None = None, bucket_bytes: int = 25_000_000, compress: str = "") -> None:
        if shards < 1:
            raise fail(ArgumentError, "Trainer", f"shards={shards} is not positive")
        self.model, self.optimiser, self.loss_of = model, optimiser, loss_of
        self.ordered, self.shards, self.steps = ordered, shards, 0
        first = world.init() if group is None else group
        self._survivors = Survivors(first, states_of(model, optimiser),
                                    world.terms().least if least is None else least,
                                    getattr(optimiser, "regroup", None))
        self._numbers = np.zeros(3)  # the last loss, who asked to stop, and for more ranks: what one behind must know
        self._asks = False
        self._begin()
        self._step = OrderedStep(model, optimiser, loss_of, shards=shards, clip=clip, seed=seed)
        if not ordered:
            self._replica = DistributedDataParallel(model, bucket_bytes, self.group, compress)
            self._whole = mo.compile(self._plain_step)
        elif first.size > shards and first.rank == 0:
            log.warning("%d ranks share %d shards, so that some have nothing to do: give shards=%d or more", first.size,
                        shards, first.size)

    def _begin(self) -> None:
        """Rank 0's values for everybody."""
        while True:
            try:
                broadcast_states(self.group, self._survivors.states)
                return
            except PeerLost:
                self._survivors.recover(0, self._numbers)

    @property
    def group(self) -> Group:
        """The ranks that live."""
        return self._survivors.group

    @property
    def recoveries(self) -> list[float]:
        """Seconds that each recovery from a death took."""
        return self._survivors.recoveries

    def ask_to_stop(self) -> None:
        """Have `stopping` true on all ranks after the same step, the next one."""
        self._asks = True

    @property
    def stopping(self) -> bool:
        """Whether a rank had asked to stop before the last step."""
        return bool(self._numbers[1])

    @property
    def widening(self) -> bool:
        """Whether, before the last step, the launcher had room for more ranks than live: `widen` lets them come. Equal
        on all ranks."""
        return bool(self._numbers[2])

    def widen(self, save: Callable[[], Any]) -> None:
        """End all ranks once `save` was called on rank 0, so that `morpho launch --elastic` starts them anew, as many
        as there can be: call it after a step at which `widening` is true. The script must go on from what was saved. It
        returns where nothing could be saved: training goes on, and is `widening` once more later."""
        failure = self._at_its_end(save)
        if failure is None:
            raise SystemExit(AGAIN)
        if self.group.rank == 0:
            log.warning("no ranks are added, since nothing can be saved: %s", failure)
        world.not_now()
        self._numbers[2] = 0

    def finish(self, save: Callable[[], Any] | None = None) -> None:
        """Return when every rank that lives has made all its steps, and rank 0 has called `save`: call it after the
        last one. A rank that learns of a death in that step may need the others' state, and where rank 0 dies, the next
        one saves. Where the system refuses to, all ranks have an error: rank 0 that of `save`."""
        failure = self._at_its_end(save or (lambda: None))
        if failure is not None:
            raise failure

    def _at_its_end(self, save: Callable[[], Any]) -> Exception | None:
        """Come together after a step, once rank 0, or the next one where that dies of it, has called `save`; why that
        could not be done, on all ranks or none."""
        failure, done = None, np.zeros(1, np.uint8)
        while True:
            agreed = False
            try:
                if self.group.rank == 0:
                    failure = _failure(save)
                    done[0] = failure is None
                self.group.broadcast(done, 0)
                agreed = True
                if self._survivors.is_over():
                    break
            except PeerLost:
                pass
            self.steps = self._survivors.recover(self.steps, self._numbers, agreed=agreed)
        if done[0]:
            return None
        return failure or fail(GroupError, "train", "rank 0 could not save", line="")

    def step(self, *batch: np.ndarray) -> float:
        """One step on the global batch, given whole to every rank, which takes its rows; the mean loss of all rows,
        before the step. Where ranks die, the others make the step with the rows redistributed."""
        rows = len(batch[0])
        if any(len(part) != rows for part in batch) or not rows:
            raise fail(ArgumentError, "Trainer", f"the arrays of a batch have {[len(part) for part in batch]} rows")
        wanted = self.steps + 1
        while True:
            try:
                self._numbers[:] = self._ordered(batch, rows) if self.ordered else self._plain(batch, rows)
                self.steps = wanted
            except PeerLost:
                self.steps = self._survivors.recover(self.steps, self._numbers)
            if self.steps == wanted:
                self._step.leave(self.steps - 1)
                return float(self._numbers[0])

    # -- ordered -------------------------------------------------------------------------------------------------------
    def _ordered(self, batch: tuple[np.ndarray, ...], rows: int) -> np.ndarray:
        count, group, wishes = self._step.count(rows), self.group, np.asarray(self._wishes(), np.float32)
        if group.size == 1:
            return self._step.apply(sum_alone(
                count, lambda shard: self._step.gradient(self.steps, shard, batch, wishes), self._step.add))
        if count < group.size:  # ranks without a shard say their wishes too
            group.all_reduce(wishes)

        def shard(number: int) -> np.ndarray:
            return np.array(self._step.gradient(self.steps, number, batch, wishes).numpy(), copy=True)

        return self._step.apply(ordered_sum(group, count, shard))

    def _wishes(self) -> tuple[bool, bool]:
        """Wishes of this rank: to stop, and for more ranks."""
        return self._asks, world.wants_more()

    # -- plain ---------------------------------------------------------------------------------------------------------
    def _plain_step(self, share: mo.Tensor, wishes: mo.Tensor, *rows: mo.Tensor) -> mo.Tensor:
        loss = self.loss_of(*rows) * share
        loss.backward()
        means = all_reduce(mo.concat([loss.detach().astype(mo.float32).reshape((1,)), wishes]), "mean", self.group)
        self._step.update()
        return means

    def _plain(self, batch: tuple[np.ndarray, ...], rows: int) -> np.ndarray:
        ranks, rank = self.group.size, self.group.rank
        first, end = held(rows, ranks, rank)
        mo.nn.random.set_state(mo.random.fold_in(self._step.key, self.steps * ranks + rank))
        share = mo.asarray(np.float32((end - first) * ranks / rows))
        rows_here = [mo.asarray(part[first:end] if first < end else part[:1]) for part in batch]  # a row that counts 0
        means: np.ndarray = self._whole(share, mo.asarray(np.asarray(self._wishes(), np.float32)), *rows_here).numpy()
        return means


def _failure(save: Callable[[], Any]) -> Exception | None:
    """Error of the system in saving, if there was one."""
    try:
        save()
    except PeerLost:
        raise
    except (MorphoError, OSError) as error:
        return error
    return None
