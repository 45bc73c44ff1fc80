"""An engine whose model runs as a pipeline of workers: the same requests, events and tokens as those of one process.

The frontend holds every request and every token it got, so that a worker that dies loses and doubles none
(`cluster.Pipeline`). Tokens become text, and stop strings are looked for, here; they are chosen by the last stage.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from functools import partial
from typing import Any

from morpho.base.errors import ArgumentError, GroupError, fail
from morpho.cluster.frontend.pipeline import Pipeline
from morpho.models.text.sampling import Sampling
from morpho.serve.engine.grammar import Grammars
from morpho.serve.engine.request import EngineStats, Finish, QueueFull, Request, check_request
from morpho.serve.engine.sequence import Group, Text
from morpho.serve.engine.stream import RequestStream
from morpho.serve.spread.choosing import to_plain

DECODER_TOKENS = 512
LOOK_EVERY_S = 0.2  # for requests that took too long


def most_tokens(model: Any, wanted: int | None = None) -> int:
    """The most tokens of a text: the model's context, or 512 of a decoder, whose relative positions have no end."""
    context = DECODER_TOKENS if hasattr(model, "remember") else int(model.context)
    return min(wanted or context, context)


class SpreadText(Text):
    """A text on its way through the stages."""

    number = 0  # the pipeline's
    made = 0


class PipelineEngine:
    """Answers requests with a pipeline, `pipeline.streams` texts at once; `max_waiting` more wait."""

    def __init__(self, pipeline: Pipeline, tokenizer: Any, max_waiting: int = 256, max_length: int | None = None
                 ) -> None:
        self.pipeline, self.tokenizer, self.max_waiting = pipeline, tokenizer, max_waiting
        model = pipeline.network.model
        self.vocabulary = int(model.config["vocab_size"])
        self.max_length = most_tokens(model, max_length)
        ends = model.eos_token_id
        self.ends: tuple[int, ...] = () if ends is None else (ends,) if isinstance(ends, int) else tuple(ends)
        self.grammars = Grammars(tokenizer, self.vocabulary, self.ends)
        self._changed = threading.Condition(pipeline.lock)  # the one that listeners are called under
        self._texts: set[SpreadText] = set()
        self._open, self._over = True, threading.Event()
        self._counts: Counter[str] = Counter()
        self._request_s = 0.0
        threading.Thread(target=self._look, name="morpho-deadlines", daemon=True).start()

    # -- state ------------------------------------------------------------------------------------------------------
    @property
    def alive(self) -> bool:
        """Whether requests are answered: as long as what is left of the workers holds the model."""
        return not self.pipeline.failure

    @property
    def last_error(self) -> str | None:
        return self.pipeline.failure or None

    def unready(self) -> str | None:
        """While stages look for each other, at the beginning and after a death, texts wait."""
        if not self.alive:
            return None
        alive = {each["node"] for each in self.stages() if each["alive"]}
        gone = [node for place in self.pipeline.places for node in place.members if node not in alive]
        if gone and self.pipeline.epoch:
            return f"{', '.join(gone)} is gone, and the other stages have not met yet"
        return None if self.pipeline.is_ready else "the stages are meeting"

    def stages(self) -> list[dict[str, Any]]:
        """The nodes, their layers, and whether they live."""
        return self.pipeline.stages()

    def stats(self) -> EngineStats:
        """How it stands; a pipeline has no pages: each text has its own cache at every stage."""
        with self._changed:
            texts, counts = len(self._texts), Counter(self._counts)
        running = min(texts, self.pipeline.streams)
        zeros = dict.fromkeys(EngineStats.__dataclass_fields__, 0)
        return EngineStats(**{**zeros, "running": running, "waiting": texts - running, "batch_size": running,
                              "steps": counts["tokens"] + counts["ends"], "prompt_tokens": counts["prompt"],
                              "generated_tokens": counts["tokens"], "rejected": counts["rejected"],
                              "finished": counts["stop"] + counts["length"], "cancelled": counts["cancelled"],
                              "errors": counts["error"], "preemptions": max(self.pipeline.epoch - 1, 0)})

    # -- requests ---------------------------------------------------------------------------------------------------
    def submit(self, request: Request) -> RequestStream:
        """Begin with a request; from any thread."""
        params, two_parts = request.params, self.pipeline.network.two_parts
        self._check(request, two_parts)
        if params.grammar is not None:  # what is wrong with it is said now, not by the last stage
            self.grammars.matcher(params.grammar)
        room = self.max_length - (0 if two_parts else len(request.prompt))
        most = room if params.max_tokens is None else min(room, params.max_tokens)
        stops = tuple(sorted({*params.stop_token_ids, *(() if params.ignore_eos else self.ends)}))
        with self._changed:
            self._admit(params.n)
            made: list[SpreadText] = []
            stream = RequestStream(request, partial(self._cancel, made))
            group = Group(request, stream, [None] * params.n)
            made += [SpreadText(group, index, self.tokenizer, most) for index in range(params.n)]
            self._counts["prompt"] += len(request.prompt) * params.n
            self._begin(made, request, most, stops)
        return stream

    def _begin(self, made: list[SpreadText], request: Request, most: int, stops: tuple[int, ...]) -> None:
        params = request.params
        seed = secrets.randbits(32) if params.seed is None else params.seed  # who draws again draws the same
        plain = {**to_plain(params, 0), "seed": seed}
        for text in made:
            if most == 0:
                text.end("length")
                continue
            self._texts.add(text)
            try:
                text.number = self.pipeline.submit(partial(self._heard, text), request.prompt, most, Sampling(), 0,
                                                   stops, {**plain, "index": text.index})
            except GroupError as error:
                self._finish(text, "error", error.message)

    def _check(self, request: Request, two_parts: bool) -> None:
        if request.adapter is not None:
            raise fail(ArgumentError, "serve", f"the adapter {request.adapter!r} cannot be used: a pipeline of workers "
                                               "has no LoRA adapters", "serve it in one process, without --nodes")
        if request.params.prompt_logprobs is not None:
            raise fail(ArgumentError, "serve", "a pipeline of workers has no log-probabilities of prompts",
                       "serve it in one process, without --nodes")
        if request.params.commitment:
            raise fail(ArgumentError, "serve", "a pipeline of workers writes no commitments",
                       "serve it in one process, without --nodes")
        check_request(request, self.vocabulary, self.max_length, self.tokenizer)
        if two_parts and len(request.prompt) > self.pipeline.chunk:
            raise fail(ArgumentError, "serve", f"the prompt has {len(request.prompt)} tokens, and an encoder's go "
                                               f"through at once, {self.pipeline.chunk} at most", "cut it")

    def _admit(self, texts: int) -> None:
        waits = max(len(self._texts) - self.pipeline.streams, 0)
        if self._open and self.alive and waits < self.max_waiting:
            return
        self._counts["rejected"] += 1
        message, hint = f"{waits} texts wait already", "come again later"
        if not self._open or not self.alive:
            over = f"the pipeline is over: {self.last_error}"
            message, hint = "the engine is shutting down" if self.alive else over, ""
        error = fail(QueueFull, "serve", message, hint)
        assert isinstance(error, QueueFull)
        error.retry_after_s = max(1.0, min(60.0, self._request_s * waits / self.pipeline.streams))
        raise error

    # -- what the pipeline says -------------------------------------------------------------------------------------
    def _heard(self, text: SpreadText, event: dict[str, Any]) -> None:
        """On the thread that hears the workers."""
        with self._changed:
            if text.finished is not None:
                return
            if event["event"] == "token":
                self._counts["tokens"] += 1
                text.made += 1
                text.take(event["token"], text.made, event.get("complete", False), event.get("logprob"),
                          tuple((token, each) for token, each in event.get("top", ())))
                if text.finished is not None:
                    self._leave(text, known=not text.text.stopped)
            elif event["error"]:
                self._finish(text, "error", event["error"])
            else:
                self._finish(text, "stop" if event["finish"] == "stop" else "length", known=True)

    def _finish(self, text: SpreadText, finish: Finish, error: str | None = None, known: bool = False) -> None:
        if text.finished is None:
            text.end(finish, error)
            self._leave(text, known)

    def _leave(self, text: SpreadText, known: bool) -> None:
        """A text has ended: its stages hear it, if they do not know."""
        assert text.finished is not None
        self._counts[text.finished] += 1
        self._counts["ends"] += 1
        self._texts.discard(text)
        if text.number and not known:
            self.pipeline.cancel(text.number)
        if not text.group.left:
            seconds = time.monotonic() - text.group.begun
            self._request_s = seconds if not self._request_s else 0.9 * self._request_s + 0.1 * seconds
        self._changed.notify_all()

    def _cancel(self, texts: list[SpreadText]) -> None:
        with self._changed:
            for text in texts:
                self._finish(text, "cancelled")

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            now = time.monotonic()
            with self._changed:
                for text in [each for each in self._texts if each.group.deadline is not None]:
                    if now > (text.group.deadline or now):
                        seconds = text.group.request.deadline_s
                        self._finish(text, "error", f"the request was not answered in {seconds} s")

    def shutdown(self, drain: bool = True, timeout_s: float | None = None) -> None:
        """Take no more requests, finish those there are (or cancel them), and end the workers."""
        with self._changed:
            self._open = False
            if drain:
                self._changed.wait_for(lambda: not self._texts, timeout_s)
            self._cancel([*self._texts])
        self._over.set()
        self.pipeline.close()
        self.grammars.close()
