"""`morpho train` of which ranks kill themselves: `dying_train.py START:RANK:STEP:WHERE ... -- OPTIONS`, in the start of
that number, before that step is made (`step`), or while it is saved: before a byte of it is written (`save`), or before
the model is beside the checkpoint (`publish`)."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from morpho.cli.main import app
from morpho.cluster import world
from morpho.cluster.training.run import DistributedRun
from morpho.models.training.checkpoints import Checkpoints

end = sys.argv.index("--")
deaths = [tuple(word.split(":")) for word in sys.argv[1:end]]
sys.argv = ["morpho", "train", *sys.argv[end + 1:]]
run: Any = None


def perhaps_die(where: str) -> None:
    now = (str(world.terms().starts), str(world.init().rank if run is None else run.rank), str(run.step), where)
    if now in deaths:
        os.kill(os.getpid(), signal.SIGKILL)


class Dying(DistributedRun):
    """A run that dies as it was told."""

    def __init__(self, group: Any, *arguments: Any, **options: Any) -> None:
        global run
        run, self.rank = self, group.rank  # the rank of the start, whoever is lost
        super().__init__(group, *arguments, **options)
        if self.rank == 0:
            print(f"start {world.terms().starts}: {group.size} ranks at step {self.step}", file=sys.stderr, flush=True)

    def train_step(self, ids: Any) -> Any:
        perhaps_die("step")
        return super().train_step(ids)


def at(where: str, method: Any) -> Any:
    """The method, in which a rank may die before it begins."""
    def found(self: Any, *arguments: Any) -> Any:
        perhaps_die(where)
        return method(self, *arguments)

    return found


Checkpoints.write = at("save", Checkpoints.write)  # type: ignore[method-assign]
Checkpoints.publish = at("publish", Checkpoints.publish)  # type: ignore[method-assign]
import morpho.cli.train as command  # noqa: E402

command.DistributedRun = Dying  # type: ignore[misc]
assert Path(command.__file__).name == "train.py"
app()
