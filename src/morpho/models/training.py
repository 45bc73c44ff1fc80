"""Training a language model on a text file: what `morpho train` does, as a library.

A run is a folder: `config.json`, `tokenizer.json` and `model.safetensors` (the model as it is now, for `morpho run`),
`run.json` (the settings), `tokens.bin` (the corpus as numbers), `losses.jsonl`, and `checkpoints/`. Step n reads batch
n, which follows from the seed and n alone, so a run that goes on from a checkpoint has the bits of one never stopped.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import lzma
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import LanguageModel
from morpho.models.checkpoints import Checkpoints
from morpho.weights import MissingFile, load_tokenizer, save, save_tokenizer, train_bpe
from morpho.weights.atomic import atomic_file
from morpho.weights.text.tokenizer import Tokenizer

HELD_OUT = 0.02  # share of the tokens, at the end, that training does not see
MOST_HELD_OUT = 1 << 16


@dataclass(frozen=True)
class Settings:
    """Everything that decides a run. Small enough for two cores by default."""

    layers: int = 4
    width: int = 256
    heads: int = 4
    kv_heads: int = 0  # 0: as many as heads
    hidden: int = 0  # 0: 8/3 of the width, rounded up to 64
    vocabulary: int = 2048
    context: int = 256
    batch: int = 8
    accumulate: int = 1
    steps: int = 1000
    lr: float = 1e-3
    least_lr: float = 0.1  # of lr, at the end
    warmup: int = 50
    weight_decay: float = 0.1
    beta2: float = 0.95
    clip: float = 1.0
    dropout: float = 0.0
    seed: int = 0

    def check(self) -> Settings:
        """Itself, or an error that names the field."""
        for name in ("layers", "width", "heads", "vocabulary", "context", "batch", "accumulate", "steps"):
            if getattr(self, name) < 1:
                raise fail(ArgumentError, "train", f"{name}={getattr(self, name)} is not positive")
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise fail(ArgumentError, "train", f"a width of {self.width} does not divide into {self.heads} heads of an "
                                               f"even size", "choose a width that is a multiple of 2 * heads")
        if self.kv_heads and self.heads % self.kv_heads:
            raise fail(ArgumentError, "train", f"{self.heads} heads do not divide into {self.kv_heads} groups")
        if self.vocabulary < 257:
            raise fail(ArgumentError, "train", f"vocabulary={self.vocabulary} is too small",
                       "257 is one token per byte and one for the end of a text")
        if not 0 <= self.dropout < 1:
            raise fail(ArgumentError, "train", f"dropout={self.dropout} does not lie in [0, 1)")
        if not self.lr > 0:
            raise fail(ArgumentError, "train", f"lr={self.lr} is not positive")
        return self

    def rate(self, step: int) -> float:
        """The learning rate of a step: a rise, then half a cosine."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        share = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.lr * (self.least_lr + (1 - self.least_lr) * 0.5 * (1 + math.cos(math.pi * min(1.0, share))))

    def model_config(self, vocabulary: int, eos: int | None) -> dict[str, Any]:
        """The model, in the form of Llama's config.json."""
        hidden = self.hidden or -(-8 * self.width // (3 * 64)) * 64
        return {"model_type": "prenorm", "width": self.width, "layers": self.layers, "heads": self.heads,
                "kv_heads": self.kv_heads or self.heads, "hidden": hidden, "vocab_size": vocabulary,
                "max_seq_len": self.context, "attention_bias": False, "dropout": self.dropout, "eos_token_id": eos}


@dataclass(frozen=True)
class Progress:
    """Where a run is after a step."""

    step: int
    steps: int
    loss: float
    held_out: float | None
    rate: float
    tokens: int  # of this step
    seconds: float  # of this step


def read_text(path: str | os.PathLike[str]) -> str:
    """A text file, UTF-8, also compressed as .xz."""
    place = Path(path)
    if not place.is_file():
        what = f"{place} is no file of text" if place.exists() else f"there is no text file {place}"
        raise fail(MissingFile, "train", what, "give one with --data")
    try:
        raw = lzma.decompress(place.read_bytes()) if place.suffix == ".xz" else place.read_bytes()
        text = raw.decode("utf-8")
    except (UnicodeDecodeError, lzma.LZMAError) as error:
        raise fail(ArgumentError, "train", f"{place} is not a text in UTF-8: {error}") from None
    if not text.strip():
        raise fail(ArgumentError, "train", f"{place} is empty", "give a text with --data")
    return text


class Run:
    """A training run in a folder.

    data: the text, for a new run. settings: for a new run. resume: go on from the last checkpoint, up to `steps` where
    they are given, else as far as was planned.
    tokenizer: a `tokenizer.json` to use instead of training one. start: a folder whose model to begin from.
    """

    def __init__(self, folder: str | os.PathLike[str], data: str | os.PathLike[str] | None = None,
                 settings: Settings | None = None, *, resume: bool = False, steps: int | None = None,
                 keep: int = 3,
                 tokenizer: str | os.PathLike[str] | None = None, start: str | os.PathLike[str] | None = None,
                 say: Callable[[str], Any] = lambda text: None) -> None:
        self.folder, self.say = Path(folder), say
        self.checkpoints = Checkpoints(self.folder / "checkpoints", keep)
        if resume:
            self.settings = self._known_settings(steps)
        else:
            self._begin(data, settings or Settings(), tokenizer, start)
        self.tokenizer = load_tokenizer(self.folder / "tokenizer.json")
        self.tokens = np.memmap(self.folder / "tokens.bin", np.uint16, "r")
        held = min(int(len(self.tokens) * HELD_OUT), MOST_HELD_OUT)
        self.train_tokens = self.tokens[:len(self.tokens) - held]
        self.held_tokens = self.tokens[len(self.tokens) - held:]
        if len(self.train_tokens) < self.settings.context + 2:
            raise fail(ArgumentError, "train", f"the text has {len(self.tokens)} tokens, too few for a context of "
                                               f"{self.settings.context}", "use a longer text or a smaller --context")
        mo.nn.seed(self.settings.seed)
        self.model = mo.models.from_config(self._config())
        self.optimiser = self._optimiser()
        self.step, self.losses = 0, []  # type: ignore[var-annotated]
        if resume:
            self._restore()
        elif (self.folder / "start.safetensors").exists():
            self.model.load_state_dict(mo.weights.load(self.folder / "start.safetensors"))
        self._compile()

    # -- a new run -----------------------------------------------------------------------------------------------------
    def _begin(self, data: Any, settings: Settings, tokenizer: Any, start: Any) -> None:
        if self.checkpoints.steps():
            raise fail(ArgumentError, "train", f"{self.folder} holds a run already",
                       "go on with --resume, or choose another folder")
        if data is None:
            raise fail(ArgumentError, "train", "a new run needs a text", "give one with --data")
        settings.check()
        text = read_text(data)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise fail(ArgumentError, "train", f"{self.folder} cannot be a folder: {error.strerror}",
                       "choose another one with --out") from None
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
                                      "text": hashlib.sha256(text.encode()).hexdigest()})

    def _take_over(self, start: Path, settings: Settings) -> tuple[Settings, Tokenizer]:
        """Begin from another model: its form and its tokenizer are kept."""
        with open(start / "config.json", encoding="utf-8") as file:
            config = json.load(file)
        model = mo.models.load(start)
        if not isinstance(model, LanguageModel):
            raise fail(ArgumentError, "train", f"{start} is a {type(model).__name__}, which makes no text",
                       "begin from a GPT-2, a Llama form or a run of `morpho train`")
        tokenizer = load_tokenizer(start / "tokenizer.json")
        with atomic_file(self.folder / "tokenizer.json") as target:
            target.write((start / "tokenizer.json").read_bytes())
        self._write_json("config.json", config)
        save(self.folder / "start.safetensors", model.state_dict())
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
        try:
            with open(self.folder / "run.json", encoding="utf-8") as file:
                known = json.load(file)
        except (FileNotFoundError, NotADirectoryError):
            raise fail(MissingFile, "train", f"{self.folder} holds no run to resume",
                       "begin one without --resume") from None
        settings = Settings(**known["settings"])
        done = max(self.checkpoints.steps(), default=0)
        if steps is not None and steps < done:
            raise fail(ArgumentError, "train", f"the run in {self.folder} is at step {done} already, beyond {steps}",
                       f"give --steps {2 * done} to go on, or begin another run")
        if steps is not None and steps != settings.steps:  # another plan: the rate follows it from here on
            settings = dataclasses.replace(settings, steps=steps)
            self._write_json("run.json", {**known, "settings": dataclasses.asdict(settings)})
        return settings.check()

    def _restore(self) -> None:
        if not self.checkpoints.steps():
            return  # killed before the first one: the settings are there, and step 0 needs nothing else
        found = self.checkpoints.read()
        self.model.load_state_dict(found.model)
        self.optimiser.load_state_dict(found.optimiser)
        mo.nn.random.set_state(found.key)
        self.step, self.losses = int(found.numbers["step"]), list(found.numbers["losses"])

    def _config(self) -> dict[str, Any]:
        with open(self.folder / "config.json", encoding="utf-8") as file:
            return json.load(file)  # type: ignore[no-any-return]

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

        @mo.compile
        def train(ids: mo.Tensor) -> mo.Tensor:  # (accumulate, batch, context + 1) -> ()
            total = mo.zeros(())
            for part in range(settings.accumulate):
                loss = loss_of(ids[part]) * (1 / settings.accumulate)
                loss.backward()
                total = total + loss
            if settings.clip:
                mo.optim.clip_grad_norm(model.parameters(), settings.clip)
            optimiser.step()
            optimiser.zero_grad()
            return total

        self.train_step, self.evaluate = train, mo.compile(loss_of)

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
        last = self.settings.steps if until is None else min(until, self.settings.steps)
        saved = self.step
        self.model.train()
        while self.step < last and not stopped():
            started = time.perf_counter()
            rate = self.settings.rate(self.step)
            for group in self.optimiser.param_groups:
                group["lr"] = rate
            rows = self.batch(self.step)
            loss = self.train_step(mo.asarray(rows)).item()
            seconds = time.perf_counter() - started
            if not math.isfinite(loss):
                raise fail(ArgumentError, "train", f"the loss is {loss} at step {self.step}",
                           "use a smaller --lr, or go on from the last checkpoint with --resume")
            self.step += 1
            self.losses.append(round(loss, 5))
            held = self.held_out_loss() if check_every and (self.step % check_every == 0 or self.step == last) else None
            if save_every and self.step % save_every == 0:
                self.save()
                saved = self.step
            self._log(loss, held, rate)
            yield Progress(self.step, self.settings.steps, loss, held, rate, rows[..., 1:].size, seconds)
        if saved != self.step:
            self.save()

    def _log(self, loss: float, held: float | None, rate: float) -> None:
        record = {"step": self.step, "loss": round(loss, 5), "lr": rate}
        if held is not None:
            record["held_out"] = round(held, 5)
        with open(self.folder / "losses.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def save(self) -> Path:
        """Write a checkpoint, and the model for `morpho run`."""
        place = self.checkpoints.write(self.step, self.model, self.optimiser,
                                       {"step": self.step, "losses": self.losses})
        save(self.folder / "model.safetensors", self.model.state_dict())
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
