"""`morpho train` on several ranks: the same flags, the same files. Rank 0 writes them; every rank reads them. Where
rank 0 dies, the next one writes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import GroupError, MorphoError, PeerLost, fail
from morpho.cluster.training.trainer import Trainer
from morpho.models.training import Run, Settings
from morpho.models.training.checkpoints import Checkpoints, LossLog
from morpho.models.training.run import RULE
from morpho.models.training.settings import Progress
from morpho.optim.ordered import shards_of
from morpho.runtime.groups.group import Group
from morpho.weights.atomic import FolderLock
from morpho.weights.errors import StorageError
from morpho.weights.files import SINGLE as MODEL

_MESSAGE_BYTES = 2048


class DistributedRun(Run):
    """A training run in a folder, by all ranks of a group; the losses and weights of any number of them, ordered, are
    the same bits. Everything else is as of `Run`."""

    def __init__(self, group: Group, folder: str | os.PathLike[str], data: str | os.PathLike[str] | None = None,
                 settings: Settings | None = None, *, ordered: bool = True, keep: int = 3,
                 say: Callable[[str], Any] = lambda text: None, **options: Any) -> None:
        self._first, self.ordered = group, ordered
        self.rule = RULE if ordered else f"{group.size} parts"
        self._failed = False  # something could not be written
        _by_rank_0(group, lambda: Run.__init__(self, folder, data, settings, keep=keep, say=say, **options))
        if group.rank:
            self._join(Path(folder), keep, say)

    def _join(self, folder: Path, keep: int, say: Callable[[str], Any]) -> None:
        """Read what rank 0 has written."""
        self.folder, self.say = folder, say
        self.checkpoints, self.log = Checkpoints(folder / "checkpoints", keep), LossLog(folder / "losses.jsonl")
        self.settings = Settings.known(self._json("run.json").get("settings"), folder / "run.json").check()
        self._alone = FolderLock(folder / ".lock", "train")  # taken where this rank becomes the one that writes
        self._load(False)
        self._mark = self._marked()
        self._compile()

    def _compile(self) -> None:
        super()._compile()
        model = self.model

        def loss_of(ids: mo.Tensor) -> mo.Tensor:  # (rows, context + 1) -> ()
            return mo.cross_entropy(model(ids[:, :-1]), ids[:, 1:])

        self._trainer: Trainer | None = None
        self._loss_of = loss_of

    def train_step(self, ids: np.ndarray) -> float:
        if self._trainer is None:
            settings = self.settings
            self._trainer = Trainer(self.model, self.optimiser, self._loss_of, self._first, ordered=self.ordered,
                                    shards=shards_of(settings.accumulate), clip=settings.clip, seed=settings.seed)
            self._trainer.steps = self.step
        return float(np.float32(self._trainer.step(ids.reshape(-1, ids.shape[-1]))))

    @property
    def group(self) -> Group:
        """The ranks that live."""
        return self._first if self._trainer is None else self._trainer.group

    # -- who writes ----------------------------------------------------------------------------------------------------
    def advance(self, until: int | None = None, *, save_every: int = 200, check_every: int = 100,
                stopped: Callable[[], bool] = lambda: False) -> Iterator[Progress]:
        """As of `Run`; a request to stop, of any rank, stops all after the same step. Where there is room for more
        ranks, all are ended with what they know saved, and started anew by the launcher."""
        last = self.settings.steps if until is None else min(until, self.settings.steps)
        try:
            self._begin_to_write()
            while True:
                yield from self._steps(until, save_every, check_every, lambda: self._stopping(stopped()))
                if self._trainer is None:
                    break
                if self._trainer.stopping or self.step >= last:
                    self._trainer.finish(self._saved)
                    break
                self._trainer.widen(self._saved)
        finally:
            if self._alone._depth:
                self._alone.__exit__()

    def _stopping(self, asked: bool) -> bool:
        """Whether a rank was asked to stop, known to all of them after the same step."""
        if self._trainer is None:
            return False
        if asked:
            self._trainer.ask_to_stop()
        return self._trainer.stopping or self._trainer.widening

    def _begin_to_write(self) -> None:
        """Have rank 0 write, unless another process trained here since the run was opened."""
        def alone() -> None:
            self._become_writer()
            self._check_mark()

        if self._trainer is None:
            try:
                _by_rank_0(self.group, alone)
            except PeerLost:  # the trainer's first collective recovers
                pass
        elif self.group.rank == 0:
            self._become_writer()

    def _become_writer(self) -> None:
        """Be the one that writes."""
        if not self._alone._depth:
            self._alone.__enter__()
            self._tidy()

    def _save_last(self) -> None:
        """Not yet: `advance` does it, by whoever lives then."""

    def _saved(self) -> None:
        """Have a checkpoint of this step, and the lines of all steps."""
        if self._failed:
            self.log.mend(self._lines(self.losses))
        self._write_on(self.losses)
        if self.step in self.checkpoints.steps():  # rank 0 may have died between the checkpoint and the model
            self.checkpoints.publish(self.folder / MODEL)
        else:
            self._write()

    def _write_on(self, losses: Sequence[float]) -> None:
        """Write from now on, where rank 0 died: its lines may be halves, or behind."""
        if not self._alone._depth:
            self._become_writer()
            self.log.mend(self._lines(losses))

    def _lines(self, losses: Sequence[float]) -> list[dict[str, Any]]:
        return [{"step": n + 1, "loss": known, "lr": self.settings.rate(n)} for n, known in enumerate(losses)]

    def _unless_refused(self, write: Callable[[], Any]) -> None:
        """Write; where the system refuses, on a full disk, have all ranks stop together after the next step: the others
        would train on, and meet the same disk."""
        try:
            write()
        except StorageError as error:
            if self._trainer is None:
                raise
            self._failed = True
            self.say(f"{error.message}; stopping after the next step")
            self._trainer.ask_to_stop()

    def _log(self, loss: float, held: float | None, rate: float) -> None:
        if self.group.rank == 0:
            self._unless_refused(lambda: self._write_on(self.losses[:-1]))
            self._unless_refused(lambda: super(DistributedRun, self)._log(loss, held, rate))

    def held_out_loss(self, batches: int = 4) -> float | None:
        """As of `Run`, on rank 0."""
        return super().held_out_loss(batches) if self.group.rank == 0 else None

    def save(self) -> Path:
        """As of `Run`: written once, by rank 0."""
        if self.group.rank:
            return self.checkpoints.path(self.step)
        self._unless_refused(self._write)
        return self.checkpoints.path(self.step)

    def _write(self) -> None:
        self._mark = self._marked()
        super().save()


def _by_rank_0(group: Group, act: Callable[[], Any]) -> None:
    """Have rank 0 do something while all wait; where it cannot, that is an error of all ranks."""
    failure = ""
    if group.rank == 0:
        try:
            act()
        except (MorphoError, OSError) as error:
            failure = str(error) or type(error).__name__
            _tell(group, failure)
            raise
    if _tell(group, failure):  # rank 0 says it to the user
        raise fail(GroupError, "train", "rank 0 could not open the run", line="")


def _tell(group: Group, text: str) -> str:
    """Send a text of rank 0 to every rank."""
    buffer = np.zeros(_MESSAGE_BYTES, np.uint8)
    raw = text.encode()[:_MESSAGE_BYTES]
    buffer[:len(raw)] = np.frombuffer(raw, np.uint8)
    group.broadcast(buffer, 0)
    return bytes(buffer).rstrip(b"\0").decode(errors="replace")


def is_finished(folder: Path) -> bool:
    """Whether the run in a folder has made all its steps.

    >>> import tempfile
    >>> is_finished(Path(tempfile.mkdtemp()))
    False
    """
    try:
        planned = json.loads((folder / "run.json").read_text(encoding="utf-8"))["settings"]["steps"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(max(Checkpoints(folder / "checkpoints").steps(), default=0) >= planned)
