"""Training a language model on a text file: what `morpho train` does, as a library.

A run is a folder: `config.json`, `tokenizer.json` and `model.safetensors` (the model as it is now, for `morpho run`),
`run.json` (the settings), `tokens.bin` (the corpus as numbers), `losses.jsonl`, and `checkpoints/`. Step n reads batch
n, which follows from the seed and n alone, so a run that goes on from a checkpoint has the bits of one never stopped.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.checks import shown
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import LanguageModel
from morpho.models.training.checkpoints import Checkpoints, LossLog
from morpho.models.training.settings import Progress, Settings, read_text
from morpho.optim.ordered import OrderedStep, shards_of
from morpho.weights import FileFault, FolderInUse, MissingFile, load_tokenizer, save, save_tokenizer, train_bpe
from morpho.weights.atomic import FolderLock, atomic_file, remove_leftovers, storing
from morpho.weights.files import INDEX
from morpho.weights.files import SINGLE as MODEL
from morpho.weights.text.tokenizer import Tokenizer

RULE = "shards"  # how a step sums its rows and draws: `OrderedStep`; a run of an earlier version says nothing
log = logging.getLogger("morpho")
HELD_OUT = 0.02  # share of the tokens, at the end, that training does not see
MOST_HELD_OUT = 1 << 16
START = "start.safetensors"  # the weights that a run with `start` begins from


class Run:
    """A training run in a folder.

    data: the text, for a new run. settings: for a new run. resume: go on from the last checkpoint, up to `steps` where
    they are given, else as far as was planned.
    tokenizer: a `tokenizer.json` to use instead of training one. start: a folder whose model to begin from.
    """

    rule = RULE

    def __init__(self, folder: str | os.PathLike[str], data: str | os.PathLike[str] | None = None,
                 settings: Settings | None = None, *, resume: bool = False, steps: int | None = None,
                 keep: int = 3,
                 tokenizer: str | os.PathLike[str] | None = None, start: str | os.PathLike[str] | None = None,
                 say: Callable[[str], Any] = lambda text: None) -> None:
        self.folder, self.say = Path(folder), say
        self.checkpoints = Checkpoints(self.folder / "checkpoints", keep)
        self.log = LossLog(self.folder / "losses.jsonl")
        text = None if resume else self._text(data, settings or Settings())
        is_new = not self.folder.exists()
        self._alone = FolderLock(self._existing(resume) / ".lock", "train")
        try:
            with self._alone:
                self._tidy()
                if text is None:
                    self.settings = self._known_settings(steps)
                else:
                    self._begin(text, settings or Settings(), tokenizer, start)
                self._load(resume)
                self._mark = self._marked()
        except BaseException:
            if is_new and {path.name for path in self.folder.iterdir()} <= {".lock"}:  # nothing was begun
                shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self._compile()

    def _load(self, resume: bool) -> None:
        """What the folder holds: tokens, model, optimiser and, on `resume`, where they were."""
        self.tokenizer = load_tokenizer(self.folder / "tokenizer.json")
        self.tokens = self._read_tokens()
        held = min(int(len(self.tokens) * HELD_OUT), MOST_HELD_OUT)
        self.train_tokens = self.tokens[:len(self.tokens) - held]
        self.held_tokens = self.tokens[len(self.tokens) - held:]
        if len(self.train_tokens) < self.settings.context + 2:
            raise fail(ArgumentError, "train", f"the text has {len(self.tokens)} tokens, too few for a context of "
                                               f"{self.settings.context}", "use a longer text or a smaller --context")
        mo.nn.seed(self.settings.seed)
        self.model = mo.models.from_config(self._json("config.json"))
        self.optimiser = self._optimiser()
        self.step, self.losses = 0, []  # type: ignore[var-annotated]
        if self.checkpoints.steps():
            self._restore()
        elif (self.folder / START).exists():
            self.model.load_state_dict(mo.weights.load(self.folder / START))
        if resume:
            self.log.mend([{"step": n + 1, "loss": loss, "lr": self.settings.rate(n)}
                           for n, loss in enumerate(self.losses)])

    # -- one process at a time -----------------------------------------------------------------------------------------
    def _existing(self, resume: bool) -> Path:
        """The folder, which a new run makes."""
        try:
            if resume and not (self.folder / "run.json").is_file():
                raise fail(MissingFile, "train", f"{self.folder} holds no run to resume", "begin one without --resume")
            self.folder.mkdir(parents=True, exist_ok=True)
        except MissingFile:
            raise
        except OSError as error:
            raise fail(ArgumentError, "train", f"{self.folder} cannot be a folder: {error.strerror}",
                       "choose another one with --out") from None
        return self.folder

    def _tidy(self) -> None:
        """What a killed run left half written goes; nobody else writes here now."""
        with storing(self.folder):
            remove_leftovers(self.folder)
            self.checkpoints.tidy()

    def _marked(self) -> Any:
        """What changes when another process trains here."""
        found = os.stat(self.folder / "run.json")
        return found.st_ino, found.st_mtime_ns, self.checkpoints.steps()[-1:]

    def _check_mark(self) -> None:
        if self._marked() != self._mark:
            raise fail(FolderInUse, "train", f"another process trained in {self.folder} since this run was opened",
                       "open it again with --resume (resume=True), which goes on from where that one is")

    # -- a new run -----------------------------------------------------------------------------------------------------
    def _text(self, data: Any, settings: Settings) -> str:
        """The text of a new run; mistakes are said before anything is written."""
        if data is None:
            raise fail(ArgumentError, "train", "a new run needs a text", "give one with --data")
        settings.check()
        return read_text(data)

    def _begin(self, text: str, settings: Settings, tokenizer: Any, start: Any) -> None:
        if self.checkpoints.steps():
            raise fail(ArgumentError, "train", f"{self.folder} holds a run already",
                       "go on with --resume, or choose another folder")
        if (self.folder / MODEL).exists() or (self.folder / INDEX).exists():
            raise fail(ArgumentError, "train", f"{self.folder} holds a model already, which would be written over",
                       "choose another folder; --start FOLDER begins from that model")
        with storing(self.folder):  # without run.json there is no run, however far this comes
            for old in ("run.json", START, "losses.jsonl"):
                (self.folder / old).unlink(missing_ok=True)
        if start is not None:
            settings, found = self._take_over(Path(start), settings)
        elif tokenizer is not None:
            found = load_tokenizer(tokenizer)
        else:
            self.say(f"learning {settings.vocabulary} tokens from {len(text):,} characters")
            found = train_bpe(text, settings.vocabulary)
        self.settings = settings.check()
        if found.vocab_size > 1 << 16:
            raise fail(ArgumentError, "train", f"a vocabulary of {found.vocab_size} is more than the 65536 tokens that "
                                               f"a token file holds")
        self.say("turning the text into tokens")
        self._write_tokens(text, found)
        if start is None:
            save_tokenizer(self.folder / "tokenizer.json", found)
            self._write_json("config.json", settings.model_config(found.vocab_size, found.eos))
        self._write_json("run.json", {"settings": dataclasses.asdict(settings),
                                      "text": hashlib.sha256(text.encode()).hexdigest(), "rule": self.rule})

    def _take_over(self, start: Path, settings: Settings) -> tuple[Settings, Tokenizer]:
        """Begin from another model: its form and its tokenizer are kept."""
        model = mo.models.load(start)
        config = json.loads((start / "config.json").read_text(encoding="utf-8"))
        if not isinstance(model, LanguageModel):
            raise fail(ArgumentError, "train", f"{start} is a {type(model).__name__}, which makes no text",
                       "begin from a GPT-2, a Llama form or a run of `morpho train`")
        tokenizer = load_tokenizer(start / "tokenizer.json")
        with atomic_file(self.folder / "tokenizer.json") as target:
            target.write((start / "tokenizer.json").read_bytes())
        self._write_json("config.json", config)
        save(self.folder / START, model.state_dict())
        return dataclasses.replace(settings, context=min(settings.context, model.context)), tokenizer

    def _write_json(self, name: str, content: Any) -> None:
        with atomic_file(self.folder / name) as file:
            file.write(json.dumps(content, indent=1).encode())

    def _write_tokens(self, text: str, tokenizer: Tokenizer) -> None:
        ids = np.array(tokenizer.encode(text), np.uint16)
        with atomic_file(self.folder / "tokens.bin") as file:
            file.write(ids.tobytes())

    # -- going on ------------------------------------------------------------------------------------------------------
    def _known_settings(self, steps: int | None) -> Settings:
        known = self._json("run.json")
        settings = Settings.known(known.get("settings"), self.folder / "run.json")
        done = max(self.checkpoints.steps(), default=0)
        if steps is not None and steps < done:
            raise fail(ArgumentError, "train", f"the run in {self.folder} is at step {done} already, beyond {steps}",
                       f"give --steps {2 * done} to go on, or begin another run")
        if steps is not None and steps != settings.steps:  # another plan: the rate follows it from here on
            settings = dataclasses.replace(settings, steps=steps)
            known = {**known, "settings": dataclasses.asdict(settings)}
            self._write_json("run.json", known)
        if known.get("rule") != self.rule:
            if done:
                log.warning("the run in %s was begun with steps that add their rows in another order, and draw other "
                            "dropout masks: from step %d on it differs from one never stopped", self.folder, done)
            self._write_json("run.json", {**known, "rule": self.rule})
        return settings.check()

    def _restore(self) -> None:
        found = self.checkpoints.read()
        try:
            step, losses = found.numbers.get("step"), found.numbers.get("losses")
            if type(step) is not int or step < 0:
                raise ValueError(f"run.json has numbers.step = {shown(step)}, which is to be a number of steps")
            if not isinstance(losses, list) or len(losses) != step or not all(
                    type(loss) in (int, float) and math.isfinite(loss) for loss in losses):
                raise ValueError(f"run.json has numbers.losses = {shown(losses)}, which is to be a number of each step")
            self.model.load_state_dict(found.model)
            self.optimiser.load_state_dict(found.optimiser)
            mo.nn.random.set_state(found.key)
            self.step, self.losses = step, [float(loss) for loss in losses]
        except (KeyError, TypeError, ValueError) as error:  # Morpho's own among them
            place = self.checkpoints.path(self.checkpoints.steps()[-1])
            raise fail(FileFault, "resume", f"the checkpoint {place} does not fit this run: "
                                            f"{getattr(error, 'message', '') or repr(error)}",
                       "remove that folder to go on from the one before it") from None
        self.checkpoints.publish(self.folder / MODEL)  # a run may be killed after the one and before the other

    def _json(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise ValueError("it is not an object")
        except FileNotFoundError:
            raise fail(MissingFile, "train", f"{self.folder} has no {name}", "it is no run of `morpho train`") from None
        except (OSError, ValueError, RecursionError) as error:
            raise fail(FileFault, "train", f"{path} cannot be read: {error}", "begin another run") from None
        return found

    def _read_tokens(self) -> np.ndarray:
        path = self.folder / "tokens.bin"
        try:
            return np.memmap(path, np.uint16, "r")
        except (OSError, ValueError) as error:
            raise fail(FileFault, "train", f"{path} cannot be read: {error}", "begin another run") from None

    def _optimiser(self) -> Any:
        """AdamW; vectors (norms and biases) do not decay."""
        parameters = list(self.model.parameters())
        matrices, vectors = ([p for p in parameters if (p.ndim > 1) is wanted] for wanted in (True, False))
        groups = [{"params": group, "weight_decay": decay}
                  for group, decay in ((matrices, self.settings.weight_decay), (vectors, 0.0)) if group]
        return mo.optim.AdamW(groups, lr=self.settings.lr, betas=(0.9, self.settings.beta2))

    def _compile(self) -> None:
        model, optimiser, settings = self.model, self.optimiser, self.settings

        def loss_of(ids: mo.Tensor) -> mo.Tensor:  # (batch, context + 1) -> ()
            return mo.cross_entropy(model(ids[:, :-1]), ids[:, 1:])

        self._ordered = OrderedStep(model, optimiser, loss_of, shards=shards_of(settings.accumulate),
                                    clip=settings.clip, seed=settings.seed)
        self.evaluate = mo.compile(loss_of)

    def train_step(self, ids: np.ndarray) -> float:
        """Train on the rows of a step, (accumulate, batch, context + 1); their mean loss before it."""
        return self._ordered.alone(self.step, ids.reshape(-1, ids.shape[-1]))

    # -- the loop ------------------------------------------------------------------------------------------------------
    def batch(self, step: int) -> np.ndarray:
        """The windows of a step: (accumulate, batch, context + 1), from the seed and the step alone."""
        s = self.settings
        rng = np.random.Generator(np.random.Philox(key=[s.seed, step]))
        starts = rng.integers(0, len(self.train_tokens) - s.context, s.accumulate * s.batch)
        rows = np.stack([self.train_tokens[start:start + s.context + 1] for start in starts])
        return rows.astype(np.int64).reshape(s.accumulate, s.batch, s.context + 1)

    def held_out_loss(self, batches: int = 4) -> float | None:
        """The mean loss on text that training does not see; None where there is too little of it."""
        s, width = self.settings, self.settings.context + 1
        rows = len(self.held_tokens) // width
        count = min(batches, rows // s.batch)
        if not count:
            return None
        windows = self.held_tokens[:count * s.batch * width].reshape(count, s.batch, width).astype(np.int64)
        self.model.eval()
        try:
            return float(np.mean([self.evaluate(mo.asarray(window)).item() for window in windows]))
        finally:
            self.model.train()

    def advance(self, until: int | None = None, *, save_every: int = 200, check_every: int = 100,
                stopped: Callable[[], bool] = lambda: False) -> Iterator[Progress]:
        """Train up to a step, saving now and then and at the end, or when `stopped()`; yields after every step."""
        with self._alone:
            self._check_mark()
            yield from self._steps(until, save_every, check_every, stopped)

    def _steps(self, until: int | None, save_every: int, check_every: int,
               stopped: Callable[[], bool]) -> Iterator[Progress]:
        last = self.settings.steps if until is None else min(until, self.settings.steps)
        saved = self.step
        self.model.train()
        while self.step < last and not stopped():
            started = time.perf_counter()
            rate = self.settings.rate(self.step)
            for group in self.optimiser.param_groups:
                group["lr"] = rate
            rows = self.batch(self.step)
            fetched = time.perf_counter()
            loss = float(self.train_step(rows))
            stepped = time.perf_counter()
            if not math.isfinite(loss):
                raise fail(ArgumentError, "train", f"the loss is {loss} at step {self.step}",
                           "use a smaller --lr, or go on from the last checkpoint with --resume")
            self.step += 1
            self.losses.append(round(loss, 5))
            held = self.held_out_loss() if check_every and (self.step % check_every == 0 or self.step == last) else None
            self._log(loss, held, rate)  # before the checkpoint, which says that the step was made
            checked = time.perf_counter()
            if save_every and self.step % save_every == 0:
                self.save()
                saved = self.step
            parts = {"data": fetched - started, "step": stepped - fetched, "check": checked - stepped,
                     "save": time.perf_counter() - checked}
            yield Progress(self.step, self.settings.steps, loss, held, rate, rows[..., 1:].size, stepped - started,
                           parts)
        if saved != self.step:
            self._save_last()

    def _save_last(self) -> None:
        self.save()

    def _log(self, loss: float, held: float | None, rate: float) -> None:
        record = {"step": self.step, "loss": round(loss, 5), "lr": rate}
        if held is not None:
            record["held_out"] = round(held, 5)
        self.log.add(record)

    def save(self) -> Path:
        """Write a checkpoint, and the model for `morpho run`."""
        with self._alone:
            self._check_mark()
            place = self.checkpoints.write(self.step, self.model, self.optimiser,
                                           {"step": self.step, "losses": self.losses})
            self._mark = self._marked()
            self.checkpoints.publish(self.folder / MODEL)
        return place

    def sample(self, prompt: str = "", tokens: int = 60, temperature: float = 0.8, seed: int = 0) -> str:
        """Some text by the model as it is now."""
        ids = self.tokenizer.encode(prompt) if prompt else [int(self.train_tokens[0])]
        self.model.eval()
        try:
            found = mo.models.generate(self.model, ids, max_new_tokens=tokens, temperature=temperature, top_k=50,
                                       seed=seed)
            return self.tokenizer.decode([*ids, *found])
        finally:
            self.model.train()
