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
from morpho.cluster.training.tree import SHARDS, held, ordered_sum
from morpho.runtime.groups.group import Group

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
        self.ordered, self.shards, self.clip, self.steps = ordered, shards, clip, 0
        self._key = mo.random.key(seed)
        first = world.init() if group is None else group
        self._survivors = Survivors(first, states_of(model, optimiser),
                                    world.terms().least if least is None else least,
                                    getattr(optimiser, "regroup", None))
        self._numbers = np.zeros(3)  # the last loss, who asked to stop, and for more ranks: what one behind must know
        self._asks = False
        self._begin()
        self._used: list[Any] = []
        self._compile(bucket_bytes, compress)

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
                mo.nn.random.set_state(mo.random.fold_in(self._key, wanted * self.shards))  # whatever its shards were
                return float(self._numbers[0])

    # -- ordered -------------------------------------------------------------------------------------------------------
    def _ordered(self, batch: tuple[np.ndarray, ...], rows: int) -> np.ndarray:
        count = min(self.shards, rows)
        total = ordered_sum(self.group, count, lambda shard: self._shard(batch, rows, count, shard))
        self._apply(mo.asarray(total[:-3]))
        return total[-3:]

    def _shard(self, batch: tuple[np.ndarray, ...], rows: int, count: int, shard: int) -> np.ndarray:
        """The gradients of a shard, its loss and its wishes, in one array, counting for its share of the rows."""
        first, end = held(rows, count, shard)
        mo.nn.random.set_state(mo.random.fold_in(self._key, self.steps * self.shards + shard))
        share = mo.asarray(np.float32((end - first) / rows))
        found = self._gradients(share, self._wishes(), *[mo.asarray(part[first:end]) for part in batch])
        return np.array(found.numpy(), copy=True)

    def _wishes(self) -> mo.Tensor:
        """What this rank asks for: to stop, and for more ranks."""
        return mo.asarray(np.asarray([self._asks, world.wants_more()], np.float32))

    def _compile(self, bucket_bytes: int, compress: str) -> None:
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        wide = mo.float64 if any(parameter.dtype is mo.float64 for parameter in parameters) else mo.float32

        def gradients(share: mo.Tensor, wishes: mo.Tensor, *rows: mo.Tensor) -> mo.Tensor:
            loss = self.loss_of(*rows) * share
            loss.backward()
            self._used = [parameter for parameter in parameters if parameter.grad is not None]
            parts = [parameter.grad.astype(wide).reshape((-1,)) for parameter in self._used]
            for parameter in parameters:
                parameter.grad = None
            return mo.concat([*parts, loss.astype(wide).reshape((1,)), wishes.astype(wide)])

        def apply(flat: mo.Tensor) -> None:
            place = 0
            for parameter in self._used:
                part = flat[place:place + parameter.size]
                parameter.grad = part.reshape(parameter.shape).astype(parameter.dtype)
                place += parameter.size
            self._update()

        self._gradients, self._apply = mo.compile(gradients), mo.compile(apply)
        if not self.ordered:
            self._replica = DistributedDataParallel(self.model, bucket_bytes, self.group, compress)
            self._whole = mo.compile(self._plain_step)

    def _update(self) -> None:
        if self.clip:
            mo.optim.clip_grad_norm([p for p in self.model.parameters() if p.grad is not None], self.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()

    # -- plain ---------------------------------------------------------------------------------------------------------
    def _plain_step(self, share: mo.Tensor, wishes: mo.Tensor, *rows: mo.Tensor) -> mo.Tensor:
        loss = self.loss_of(*rows) * share
        loss.backward()
        means = all_reduce(mo.concat([loss.detach().astype(mo.float32).reshape((1,)), wishes]), "mean", self.group)
        self._update()
        return means

    def _plain(self, batch: tuple[np.ndarray, ...], rows: int) -> np.ndarray:
        ranks, rank = self.group.size, self.group.rank
        if rows < ranks:
            raise fail(ArgumentError, "Trainer", f"{rows} rows are not enough for {ranks} ranks")
        first, end = held(rows, ranks, rank)
        mo.nn.random.set_state(mo.random.fold_in(self._key, self.steps * ranks + rank))
        share = mo.asarray(np.float32((end - first) * ranks / rows))
        rows_here = [mo.asarray(part[first:end]) for part in batch]
        means: np.ndarray = self._whole(share, self._wishes(), *rows_here).numpy()
        return means


def _failure(save: Callable[[], Any]) -> Exception | None:
    """What the system says against saving."""
    try:
        save()
    except PeerLost:
        raise
    except (MorphoError, OSError) as error:
        return error
    return None
