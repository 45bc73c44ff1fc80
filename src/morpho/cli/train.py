"""`morpho train`: a model from a text file, with progress, samples, and a run that can be stopped and resumed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from morpho.models.training import Run, Settings

BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 60


def train(data: Path | None, out: Path, settings: Settings, *, resume: bool, steps: int | None, save_every: int,
          sample_every: int, keep: int, start: Path | None, prompt: str, until: int | None) -> None:
    """Train, showing how it goes."""
    console = Console(stderr=True)
    run = Run(out, data, settings, resume=resume, steps=steps, keep=keep, start=start,
              say=lambda text: console.print(text, style="dim"))
    s = run.settings
    console.print(f"{run.model.parameter_count():,} parameters, {len(run.train_tokens):,} tokens; {s.steps} steps of "
                  f"{s.accumulate * s.batch} x {s.context} tokens, from step {run.step}")
    if run.step >= s.steps:
        console.print(f"the run is finished: morpho run {out} \"Once\"; go on with --resume --steps {2 * s.steps}")
        return
    with _stop_on_interrupt(console) as stopped:
        _loop(run, console, stopped, save_every, sample_every, prompt, until)
    console.print(loss_curve(run.losses))
    if run.step < s.steps:
        console.print(f"saved at step {run.step}; go on with: morpho train --out {out} --resume")
    else:
        console.print(f"done: morpho run {out} \"Once\"")


def _loop(run: Run, console: Console, stopped: Any, save_every: int, sample_every: int, prompt: str,
          until: int | None) -> None:
    columns = (TextColumn("step {task.completed}/{task.total}"), BarColumn(), TextColumn("loss {task.fields[loss]}"),
               TextColumn("{task.fields[rate]} tokens/s"), TimeRemainingColumn())
    smooth, recent = run.losses[-1] if run.losses else None, None
    with Progress(*columns, console=console, transient=not console.is_terminal) as bar:
        task = bar.add_task("", total=run.settings.steps, completed=run.step, loss="-", rate="-")
        checks = max(1, min(100, run.settings.steps // 10))
        for now in run.advance(until, save_every=save_every, check_every=checks, stopped=stopped):
            smooth = now.loss if smooth is None else 0.9 * smooth + 0.1 * now.loss
            if now.step > 1:  # the first step compiles
                speed = now.tokens / now.seconds
                recent = speed if recent is None else 0.9 * recent + 0.1 * speed
            rate = f"{recent:,.0f}" if recent else "-"
            bar.update(task, completed=now.step, loss=f"{smooth:.3f}", rate=rate)
            if now.held_out is not None:
                bar.print(f"step {now.step}: loss {smooth:.3f}, on held-out text {now.held_out:.3f}, {rate} tokens/s")
            if sample_every and now.step % sample_every == 0:
                bar.print(f"step {now.step}, a sample:")
                bar.print(run.sample(prompt).strip(), style="italic", markup=False)


@contextmanager
def _stop_on_interrupt(console: Console) -> Iterator[Any]:
    """The first Ctrl-C, or a request to terminate, ends the loop after the step it is in; a second one is Python's."""
    asked: list[int] = []
    before: dict[int, Any] = {}

    def interrupted(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        signal.signal(number, before[number])
        console.print("stopping after this step; once more to stop at once, without saving")

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, interrupted)
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
