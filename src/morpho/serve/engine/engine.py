"""The engine: a thread that takes requests, computes step after step, and tells what is new.

>>> from morpho.serve.engine.engine import Engine
>>> from morpho.serve.engine.request import Request, SamplingParams
>>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=128)
>>> with Engine(model, pages=4) as engine:
...     stream = engine.submit(Request((1, 2, 3), SamplingParams(temperature=0.0, max_tokens=4), "a"))
...     tokens = [event.token for event in stream]
>>> tokens == [*mo.models.generate(model, [1, 2, 3], max_new_tokens=4)]
True
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from morpho.base.dtypes import as_dtype
from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.models.base import LanguageModel
from morpho.models.text.generators import device_of
from morpho.ops.neural.paged import PAGE
from morpho.serve.engine.adapters import AdapterBank
from morpho.serve.engine.commitment import Chain, header_of, place_of
from morpho.serve.engine.drafts import DraftModel
from morpho.serve.engine.grammar import Grammars
from morpho.serve.engine.pages import Pages
from morpho.serve.engine.prefix_file import LOG, PrefixFile
from morpho.serve.engine.request import EngineStats, QueueFull, Request, check_request
from morpho.serve.engine.runner import ModelRunner, check_served, page_bytes
from morpho.serve.engine.scheduler import Scheduler
from morpho.serve.engine.sequence import Group, Sequence
from morpho.serve.engine.slots import SlotRunner, check_adapters, in_slots
from morpho.serve.engine.stepper import Stepper
from morpho.serve.engine.stream import RequestStream
from morpho.tensor.state.variable import Variable

Runner = ModelRunner | SlotRunner
KV_BYTES = 1 << 29  # of the cache, where nobody says how many
FAILURES = 3  # steps that fail, without a text that ends well in between, before the engine gives up


class Engine:
    """Answers requests with a model, many at once; each gets the tokens, and the bits of logits, that it gets alone.

    - `kv_bytes` limits the cache of keys and values, or `pages` says its pages of 64 tokens.
    - `max_batch` texts run at once, `max_waiting` requests wait; one more is a `QueueFull`.
    - `max_length` is the most tokens of a prompt and its answer, the model's context by default.
    - While texts run, prompts are read in pieces that take `stall` times as long as a step, or of `prefill_tokens`.
    - `drafted` tokens are guessed from the text (0: none) while at most `draft_rows` texts run.
    - `draft` is a smaller model of the same vocabulary that guesses where the text itself does not. Guesses that make
      no more tokens a second than steps without them rest for a while.
    - `warm` compiles what the first token needs at once, and the rest while nobody asks for anything.
    - `adapters` is how many LoRA adapters there is room for, of rank `adapter_rank` at most.
    - `prefix_file` keeps the shared prefixes of prompts from one engine to the next; only for models in pages.
    - `autocast` is the dtype of products, attention and caches, as in `mo.amp.autocast`; only for models in pages.
    """

    def __init__(self, model: LanguageModel, tokenizer: Any = None, *, kv_bytes: int | None = None,
                 pages: int | None = None, max_batch: int = 64, max_waiting: int = 256, max_length: int | None = None,
                 chunk: int = 512, prefill_tokens: int | None = None, stall: float = 1.5, drafted: int = 4,
                 draft_rows: int = 2, adapters: int = 8, adapter_rank: int = 16, warm: bool = False,
                 autocast: Any = None, prefix_file: str | Path | None = None,
                 draft: LanguageModel | None = None) -> None:
        for name, given in (("max_batch", max_batch), ("max_waiting", max_waiting), ("chunk", chunk)):
            if given < 1:
                raise fail(ArgumentError, "serve", f"{name}={given} is not a positive number")
        check_served(model)
        self.tokenizer, self.max_waiting = tokenizer, max_waiting
        self.adapters = AdapterBank(model, adapters, adapter_rank)
        self.runner, held = self._parts(model, kv_bytes, pages, max_batch, max_length, chunk, max(drafted, 1),
                                        draft_rows, None if autocast is None else as_dtype(autocast))
        self.model, self.max_length = model, min(self.runner.max_length, held.total * held.page_tokens)
        drafted = 0 if isinstance(self.runner, SlotRunner) else drafted
        guesser = None
        if draft is not None:
            if not drafted:
                raise fail(ArgumentError, "serve", f"a {type(model).__name__} in slots, or drafted=0, makes no guesses",
                           "leave out draft")
            guesser = DraftModel(draft, draft_rows, self.max_length, int(model.config["vocab_size"]))
        self.scheduler = Scheduler(held, max_batch, self.runner.chunk, prefill_tokens, stall, drafted, draft_rows,
                                   guesser)
        self.stepper = Stepper(self.runner, self.scheduler)
        ends = model.eos_token_id
        self.ends: tuple[int, ...] = () if ends is None else (ends,) if isinstance(ends, int) else tuple(ends)
        self.vocabulary = int(model.config["vocab_size"])
        self.grammars = Grammars(tokenizer, self.vocabulary, self.ends)
        self.last_error: str | None = None
        self._changed = threading.Condition()
        self._new: list[Sequence] = []
        self._calls: list[Callable[[], None]] = []  # to be run between steps
        self._open, self._stop, self._alive = True, False, True
        self._rejected = 0
        self._place: tuple[Any, dict[str, Any]] | None = None
        self._cold: list[str] = []  # functions that are compiled when there is nothing else to do
        if warm:
            self.runner.warm("prefill")
            self._cold = self.runner.cold(bool(drafted))
        self.prefixes: PrefixFile | None = None
        if prefix_file is not None and isinstance(self.runner, ModelRunner):
            self.prefixes = PrefixFile(Path(prefix_file), self.runner)
            self.prefixes.load(held)
        self._thread = threading.Thread(target=self._run, name="morpho-engine", daemon=True)
        self._thread.start()

    def _parts(self, model: LanguageModel, kv_bytes: int | None, pages: int | None, max_batch: int,
               max_length: int | None, chunk: int, drafted: int, draft_rows: int,
               autocast: Any) -> tuple[Runner, Pages]:
        """Runner, and the holder of keys and values: pages, or slots for models that cannot use pages."""
        if in_slots(model):
            if autocast is not None:
                raise fail(ArgumentError, "serve", f"a {type(model).__name__} is served in slots, without autocast",
                           f"convert it: model.to(dtype={str(autocast)!r})")
            slots = SlotRunner(model, kv_bytes or KV_BYTES, max_batch, max_length)
            return slots, slots.pages
        count = pages if pages is not None else (kv_bytes or KV_BYTES) // page_bytes(model, autocast)
        if count < 1:
            raise fail(ArgumentError, "serve",
                       f"a cache of {kv_bytes} bytes holds no page of {page_bytes(model, autocast)}",
                       "give more kv_bytes")
        runner = ModelRunner(model, count, max_batch, max_length, chunk, drafted, draft_rows, self.adapters, autocast)
        return runner, Pages(count, PAGE)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown(drain=error[0] is None)

    @property
    def alive(self) -> bool:
        """Whether requests are answered."""
        return self._alive and self._thread.is_alive()

    # -- requests ---------------------------------------------------------------------------------------------------
    def submit(self, request: Request) -> RequestStream:
        """Begin with a request; from any thread."""
        self._check(request)
        request = _seeded(request)
        params = request.params
        matchers = [None if params.grammar is None else self.grammars.matcher(params.grammar) for _ in range(params.n)]
        stream = RequestStream(request, self._wake)
        group = Group(request, stream, matchers)
        stops = frozenset({*params.stop_token_ids, *(() if params.ignore_eos else self.ends)})
        room = min(self.max_length - len(request.prompt), self.runner.length)
        most = room if params.max_tokens is None else min(room, params.max_tokens)
        adapter = None if request.adapter is None else self.adapters.number(request.adapter)
        chains = [self._chain(request, index, most, stops) for index in range(params.n)]
        made = [Sequence(group, index, self.tokenizer, stops, most, adapter, self.model.defaults, chains[index])
                for index in range(params.n)]
        if most == 0 and params.prompt_logprobs is None:
            for sequence in made:
                sequence.end("length")
            return stream
        with self._changed:
            waits = len(self._new) + len(self.scheduler.waiting)
            if not self._open or not self.alive or waits >= self.max_waiting:
                self._rejected += 1
                raise self._full(waits)
            self.stepper.siblings[id(group)] = made[1:]
            self._new.append(made[0])
            self._changed.notify()
        return stream

    def _chain(self, request: Request, index: int, most: int, stops: frozenset[int]) -> Chain | None:
        """The commitment of a text, where its request asks for one."""
        if not request.params.commitment:
            return None

        def header() -> dict[str, Any]:  # on the engine's thread, whose weights do not change meanwhile
            return header_of(request, index, most, [*stops], {
                **self.place(), "adapter": None if request.adapter is None else self.adapters.digests[request.adapter]})
        return Chain(request.params, index, header)

    def place(self) -> dict[str, Any]:
        """Digest of the weights in use, precision and device, as commitments hold them; hashed at the first call."""
        frozen = getattr(self.runner, "frozen", None)
        version = () if frozen is None else frozen.versions
        if self._place is None or self._place[0] != version:
            values = None if frozen is None else frozen.values
            autocast = getattr(self.runner, "autocast", None)
            self._place = version, place_of(self.model, values, device_of(self.model), autocast)
        return self._place[1]

    def _check(self, request: Request) -> None:
        check_request(request, self.vocabulary, self.max_length, self.tokenizer)
        if len(request.prompt) > self.runner.length:
            raise fail(ArgumentError, "serve", f"the prompt has {len(request.prompt)} tokens, and the encoder takes "
                                               f"{self.runner.length} at most", "cut it")
        if request.params.prompt_logprobs is not None and hasattr(self.model, "remember"):
            raise fail(ArgumentError, "serve", "the prompt of a model with an encoder has no log-probabilities",
                       "ask without prompt_logprobs")
        if request.adapter is not None:
            self.adapters.number(request.adapter)

    def _full(self, waits: int) -> QueueFull:
        message, hint = f"{waits} requests wait already", "come again later"
        if not self._open or not self.alive:
            message, hint = "the engine is shutting down" if self.alive else "the engine is dead", ""
        error = fail(QueueFull, "serve", message, hint)
        assert isinstance(error, QueueFull)
        error.retry_after_s = max(1.0, min(60.0, self.stepper.request_s * waits / self.scheduler.max_batch))
        return error

    def add_adapter(self, name: str, folder: str | Path) -> None:
        """Load a LoRA adapter from a folder as PEFT writes it; requests name it."""
        check_adapters(self.model, [name])

        def add() -> None:
            before = self.adapters.products
            self.adapters.load(name, folder)
            if before != self.adapters.products:
                self.runner.forget_adapted()
        self._between_steps(add)

    def refresh(self) -> None:
        """Take over weights of the model that have changed. Texts that run go on with them, computed anew."""
        self._between_steps(self._take_over)

    def take_weights(self, model: LanguageModel) -> None:
        """Take over the weights of another model of the same names, shapes and dtypes, between two steps."""
        mine, others = (dict(each._variables(Variable)) for each in (self.model, model))
        for name in {**mine, **others}:
            pair = [each[name].state.value if name in each else None for each in (mine, others)]
            said = ["nothing" if one is None else f"{one.dtype}{tuple(one.shape)}" for one in pair]
            if said[0] != said[1]:
                raise fail(ArgumentError, "serve", f"{name} is {said[0]} here, and {said[1]} in the new weights",
                           "a model of another form is another model: serve it beside this one")

        def take() -> None:
            for name, variable in mine.items():
                variable.assign(others[name].state.value)
            self._take_over()
        self._between_steps(take)

    def _take_over(self) -> None:
        """Use the weights as they are, between two steps."""
        if not self.runner.refresh():
            return
        self._place = None
        for sequence in list(self.scheduler.running):
            if sequence.chain is not None and sequence.made:
                self.stepper.end(sequence, "error", "the weights changed while a text with a commitment was written")
            else:
                self.scheduler.preempt(sequence)
        self.scheduler.pages.clear()
        if self.prefixes is not None:
            self.prefixes.renew()

    def _between_steps(self, call: Callable[[], None]) -> None:
        if threading.current_thread() is self._thread:
            raise fail(ArgumentError, "serve", "a reader of events cannot change the engine", "do it in a thread")
        done, failed = threading.Event(), []

        def run() -> None:
            try:
                call()
            except Exception as error:
                failed.append(error)
            finally:
                done.set()
        with self._changed:
            if not self.alive:
                raise fail(ArgumentError, "serve", "the engine is dead")
            self._calls.append(run)
            self._changed.notify()
        done.wait()
        if failed:
            raise failed[0]

    # -- state ------------------------------------------------------------------------------------------------------
    def unready(self) -> str | None:
        return None

    def stages(self) -> list[dict[str, Any]]:
        return []

    def stats(self) -> EngineStats:
        """How it stands, in numbers."""
        scheduler, stepper = self.scheduler, self.stepper
        pages = scheduler.pages
        return EngineStats(
            running=len(scheduler.running), waiting=len(scheduler.waiting) + len(self._new),
            batch_size=stepper.batch_size, pages_used=pages.used, pages_cached=pages.cached, pages_total=pages.total,
            page_tokens=pages.page_tokens, steps=stepper.steps, prompt_tokens=stepper.prompt_tokens,
            generated_tokens=stepper.generated, prefix_hits=scheduler.prefix_hits, evictions=pages.evictions,
            preemptions=scheduler.preemptions, drafted=scheduler.guessed, accepted=stepper.accepted,
            finished=stepper.ended["stop"] + stepper.ended["length"], cancelled=stepper.ended["cancelled"],
            rejected=self._rejected, errors=stepper.ended["error"], recompiles=self.runner.recompiles)

    def shutdown(self, drain: bool = True, timeout_s: float | None = None) -> None:
        """Take no more requests, finish those there are (or cancel them, without `drain`, and after `timeout_s`)."""
        with self._changed:
            self._open = False
            self._stop = not drain
            self._changed.notify()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            with self._changed:
                self._stop = True
                self._changed.notify()
            self._thread.join()
        self.grammars.close()

    # -- the thread -------------------------------------------------------------------------------------------------
    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        failures = answered = 0
        while failures < FAILURES:
            try:
                if not self._turn():
                    break
            except Exception as error:  # a step that fails ends its texts, not the engine
                before, answered = answered, self.stepper.ended["stop"] + self.stepper.ended["length"]
                failures = failures + 1 if answered == before else 1
                self.last_error = f"{type(error).__name__}: {error}"
                self.stepper.fail_all(self.last_error)
        with self._changed:
            self._alive = False
            calls, self._calls = self._calls, []
            self._take_new()
        self.stepper.end_all("cancelled" if failures < FAILURES else "error", self.last_error)
        if self.prefixes is not None and failures < FAILURES:
            self._save_prefixes(self.prefixes)
        for call in calls:
            call()

    def _save_prefixes(self, prefixes: PrefixFile) -> None:
        try:
            prefixes.save(self.scheduler.pages)
        except (MorphoError, OSError) as error:
            self.last_error = f"{type(error).__name__}: {error}"
            LOG.error("prefixes_not_saved", extra={"file": str(prefixes.path), "error": str(error)})

    def _take_new(self) -> None:
        self.scheduler.waiting.extend(self._new)
        self._new = []

    def _turn(self) -> bool:
        """Wait for something to do, and do one step of it; False at the end."""
        with self._changed:
            self._changed.wait_for(self._wanted)
            self._take_new()
            calls, self._calls = self._calls, []
            idle = not self.scheduler.waiting and not self.scheduler.running
            if self._stop or (not self._open and idle and not calls):
                for call in calls:
                    call()
                return False
        for call in calls:
            call()
        if idle and self._cold:
            self.runner.warm(self._cold.pop(0))
        self.stepper.sweep(time.monotonic())
        self.stepper.step()
        return True

    def _wanted(self) -> bool:
        return bool(self._new or self._calls or self.scheduler.waiting or self.scheduler.running or self._cold
                    or not self._open)


def _seeded(request: Request) -> Request:
    """A request whose texts can be drawn again: with a commitment, one without a seed gets a random one."""
    params = request.params
    if not params.commitment or params.seed is not None:
        return request
    return replace(request, params=replace(params, seed=secrets.randbits(48)))
