"""`morpho train`: a model from a text file, with progress, samples, and a run that can be stopped and resumed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from morpho.backends.registry import canonical
from morpho.base import settings as settings_in_force
from morpho.base.errors import GroupError
from morpho.base.target import current_isa
from morpho.cli.server.dashboard import watching
from morpho.cluster.groups.one import OneGroup
from morpho.cluster.training.run import DistributedRun
from morpho.cluster.world import init, terms
from morpho.models.training import Run, Settings
from morpho.observe.runs import Events, RunLog
from morpho.observe.runs.known import remember
from morpho.observe.runs.log import count_step
from morpho.weights.atomic import atomic_file

BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 60


@dataclass(frozen=True)
class Habits:
    """Options of a run besides its steps; a resumed run keeps them unless they are given again."""

    save_every: int = 200
    sample_every: int = 200
    keep: int = 3
    prompt: str = ""

    FILE: ClassVar[str] = "habits.json"

    def kept(self, folder: Path, given: Collection[str]) -> Habits:
        """Options of the run in a folder, with those of `given` in their place."""
        try:
            known = json.loads((folder / self.FILE).read_text(encoding="utf-8"))
            taken = {name: known[name] for name, value in asdict(self).items()
                     if name not in given and type(known.get(name)) is type(value)}
        except (OSError, ValueError, TypeError):
            return self  # a run of the library, or of an earlier version
        return replace(self, **taken)

    def keep_in(self, folder: Path) -> None:
        """Write them beside the run."""
        with atomic_file(folder / self.FILE) as file:
            file.write(json.dumps(asdict(self), indent=1).encode())


def train(data: Path | None, out: Path, settings: Settings, habits: Habits, *, device: str = "",
          **options: Any) -> None:
    """Train, on the device of the settings or another one, showing how it goes; see `_train`."""
    with settings_in_force.settings(device=canonical(device, "train")) if device else nullcontext():
        _train(data, out, settings, habits, **options)


def _was_begun(out: Path) -> bool:
    """Whether these are ranks that were started anew, and an earlier start of the same launch began the run: another
    one that was there before must not be taken for it."""
    try:
        return terms().starts > 0 and (out / "run.json").stat().st_mtime >= terms().began_s
    except OSError:
        return False


def _train(data: Path | None, out: Path, settings: Settings, habits: Habits, *, resume: bool, steps: int | None,
           start: Path | None, until: int | None, given: Collection[str] = (), nodes: int | None = None,
           tensorboard: Path | None = None, dashboard: bool = False) -> None:
    """Train, showing how it goes. `given` are the options of `habits` that the user named. As one of the processes that
    an MPI launcher started, or with `nodes` 1, by shards: the bits do not depend on the number of processes."""
    settings_in_force.get(), current_isa()  # mistakes in these are not mistakes in the run's files
    console = Console(stderr=True)
    resume = resume or _was_begun(out)
    habits = habits.kept(out, given) if resume else habits
    ranks = settings_in_force.world_size() is not None
    group = init() if ranks else OneGroup() if nodes == 1 else None
    console.quiet = group is not None and group.rank > 0
    options: dict[str, Any] = {"resume": resume, "steps": steps, "keep": habits.keep, "start": start,
                               "say": lambda text: console.print(text, style="dim")}
    try:
        run = (Run(out, data, settings, **options) if group is None else
               DistributedRun(group, out, data, settings, **options))
    except GroupError:
        if not console.quiet:
            raise
        raise SystemExit(2) from None  # rank 0 says it
    if not console.quiet:
        habits.keep_in(out)
    s = run.settings
    console.print(f"{run.model.parameter_count():,} parameters, {len(run.train_tokens):,} tokens; {s.steps} steps of "
                  f"{s.accumulate * s.batch} x {s.context} tokens, from step {run.step}")
    if run.step >= s.steps:
        console.print(f"the run is finished: morpho run {out} \"Once\"; go on with --resume "
                      f"--steps {2 * max(s.steps, run.step)}")
        return
    try:
        with watching(dashboard and not console.quiet, [out]), _stop_on_interrupt(console) as stopped, \
                Told(out, run.step, console, tensorboard) as told:
            _loop(run, console, stopped, habits, until, told)
    except GroupError:  # of all ranks
        if not console.quiet:
            raise
        raise SystemExit(2) from None
    console.print(loss_curve(run.losses))
    if run.step < s.steps:
        console.print(f"saved at step {run.step}; go on with: morpho train --out {out} --resume")
    else:
        console.print(f"done: morpho run {out} \"Once\"")


class Told:
    """Files that a run writes for its viewers: `metrics.jsonl`, and event files for TensorBoard where they are asked
    for; of several ranks one that is not quiet writes."""

    def __init__(self, folder: Path, begin: int, console: Console, tensorboard: Path | None) -> None:
        self._console, self._folder, self._begin = console, folder, begin
        self._log: RunLog | None = None
        self._events = Events(tensorboard) if tensorboard is not None and not console.quiet else None

    def __enter__(self) -> Told:
        if not self._console.quiet:
            remember(self._folder)
        return self

    def step(self, now: Any) -> None:
        """One step was made."""
        if self._console.quiet:
            count_step(now.loss, now.tokens, now.seconds)
            return
        if self._log is None:  # also of a rank that takes over from one that died
            self._log = RunLog(self._folder, now.step - 1, lambda text: self._console.print(text, style="dim"))
        self._log.step(now.step, now.loss, now.rate, tokens=now.tokens, seconds=now.seconds, held_out=now.held_out,
                       parts=now.parts)
        if self._events is not None:
            self._events.step(now.step, {
                "loss/train": now.loss, "loss/held_out": now.held_out, "rate/learning": now.rate,
                "speed/tokens_per_s": now.tokens / now.seconds,
                **{f"seconds/{name}": value for name, value in now.parts.items()}})

    def __exit__(self, *ended: object) -> None:
        for writer in (self._log, self._events):
            if writer is not None:
                writer.close()


def _loop(run: Run, console: Console, stopped: Any, habits: Habits, until: int | None, told: Told) -> None:
    columns = (TextColumn("step {task.completed}/{task.total}"), BarColumn(), TextColumn("loss {task.fields[loss]}"),
               TextColumn("{task.fields[rate]} tokens/s"), TimeRemainingColumn())
    smooth, recent = run.losses[-1] if run.losses else None, None
    with Progress(*columns, console=console, transient=not console.is_terminal) as bar:
        task = bar.add_task("", total=run.settings.steps, completed=run.step, loss="-", rate="-")
        checks = max(1, min(100, run.settings.steps // 10))
        for now in run.advance(until, save_every=habits.save_every, check_every=checks, stopped=stopped):
            console.quiet = isinstance(run, DistributedRun) and run.group.rank > 0  # who died was perhaps rank 0
            told.step(now)
            smooth = now.loss if smooth is None else 0.9 * smooth + 0.1 * now.loss
            if now.step > 1:  # the first step compiles
                speed = now.tokens / now.seconds
                recent = speed if recent is None else 0.9 * recent + 0.1 * speed
            rate = f"{recent:,.0f}" if recent else "-"
            bar.update(task, completed=now.step, loss=f"{smooth:.3f}", rate=rate)
            if now.held_out is not None:
                bar.print(f"step {now.step}: loss {smooth:.3f}, on held-out text {now.held_out:.3f}, {rate} tokens/s")
            if habits.sample_every and not console.quiet and now.step % habits.sample_every == 0:
                bar.print(f"step {now.step}, a sample:")
                bar.print(run.sample(habits.prompt).strip(), style="italic", markup=False)


@contextmanager
def _stop_on_interrupt(console: Console) -> Iterator[Any]:
    """The first Ctrl-C, or a request to terminate, ends the loop after the step it is in; a second one is Python's."""
    asked: list[int] = []
    before: dict[int, Any] = {}

    def interrupted(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        signal.signal(number, before[number])
        _say_now(console, "stopping after this step; once more to stop at once, without saving")

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, interrupted)
    try:
        yield lambda: bool(asked)
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)


def _say_now(console: Console, text: str) -> None:
    """Say something from a signal handler: what the console was writing when the signal came cannot be entered again,
    so this goes to its file directly."""
    try:
        os.write(console.file.fileno(), f"\r{text}\n".encode())
    except (OSError, ValueError):  # no file behind it, or none that takes anything
        with suppress(OSError, ValueError, RuntimeError):
            console.print(text)


def loss_curve(losses: list[float], width: int = WIDTH, height: int = 8) -> str:
    """The losses as a picture of text, each column the mean of its steps."""
    if not losses:
        return ""
    width = min(width, len(losses))
    edges = [i * len(losses) // width for i in range(width + 1)]
    means = [sum(losses[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    levels = [round((mean - low) / ((high - low) or 1) * (height * 8 - 1)) + 1 for mean in means]
    rows = []
    for row in reversed(range(height)):
        label = f"{high:8.3f} " if row == height - 1 else f"{low:8.3f} " if row == 0 else " " * 9
        rows.append(label + "".join(BARS[max(0, min(8, level - 8 * row))] for level in levels))
    return "\n".join([*rows, " " * 9 + f"1{' step ':^{max(6, width - 2)}}{len(losses)}"])
