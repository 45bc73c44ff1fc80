"""A real engine, one request at a time, over `mo.models.Generator`: what the server is tested with where batching does
not matter, and where steps must be held (`gate`) or fail (`fault`)."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import fail
from morpho.models.text.sampling import Sampling
from morpho.serve.engine.request import EngineStats, Event, QueueFull, Request, Usage

MOST_WAITING = 8


class OneStream:
    """The events of one request."""

    def __init__(self, request: Request) -> None:
        self.request, self.cancelled = request, threading.Event()
        self._events: queue.Queue[Event] = queue.Queue()
        self._call: Callable[[Event], None] | None = None
        self._lock = threading.Lock()

    def push(self, event: Event) -> None:
        with self._lock:
            if self._call is None:
                self._events.put(event)
            else:
                self._call(event)

    def on_event(self, call: Callable[[Event], None]) -> None:
        with self._lock:
            while not self._events.empty():
                call(self._events.get())
            self._call = call

    def __iter__(self) -> Iterator[Event]:
        left = self.request.params.n
        while left:
            event = self._events.get()
            left -= event.finish is not None
            yield event

    def cancel(self) -> None:
        self.cancelled.set()


class OneStreamEngine:
    """Requests in order, each alone."""

    def __init__(self, network: Any, tokenizer: Any) -> None:
        self.network, self.tokenizer = network, tokenizer
        self.generator = mo.models.Generator(network)
        self.gate = threading.Semaphore(1 << 30)  # one is taken for each token
        self.fault: BaseException | None = None
        self.shown_stages: list[dict[str, Any]] = []
        self.alive, self.last_error = True, None
        self.counts = dict.fromkeys(EngineStats.__dataclass_fields__, 0)
        self.counts.update(pages_total=64, page_tokens=16)
        self._queue: queue.Queue[OneStream | None] = queue.Queue()
        self.current: OneStream | None = None
        self.steps_after_cancel = 0
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> OneStream:
        if self._queue.qsize() >= MOST_WAITING:
            self.counts["rejected"] += 1
            error = fail(QueueFull, "serve", f"{MOST_WAITING} requests wait already")
            error.retry_after_s = 2.5
            raise error
        stream = OneStream(request)
        self._queue.put(stream)
        return stream

    def unready(self) -> str | None:
        return None

    def stages(self) -> list[dict[str, Any]]:
        return self.shown_stages

    def stats(self) -> EngineStats:
        return EngineStats(**{**self.counts, "waiting": self._queue.qsize(), "running": int(self.current is not None)})

    def shutdown(self, drain: bool = True, timeout_s: float | None = None) -> None:
        self._queue.put(None)
        if not drain and self.current is not None:
            self.current.cancel()
        self._thread.join(timeout_s)
        self.alive = False

    def _work(self) -> None:
        while (stream := self._queue.get()) is not None:
            self.current = stream
            try:
                for index in range(stream.request.params.n):
                    self._one(stream, index)
            except BaseException as error:
                self.alive, self.last_error = False, str(error)
                stream.push(Event(index, "", finish="error", error=str(error)))
                return
            finally:
                self.current = None

    def _one(self, stream: OneStream, index: int) -> None:
        request, params = stream.request, stream.request.params
        sampling = Sampling(params.temperature, params.top_k or None, params.top_p)
        rng, decoder = np.random.default_rng(params.seed), self.tokenizer.stream()
        ends = self.network.eos_token_id
        ends = {*([] if ends is None else [ends] if isinstance(ends, int) else ends)} if not params.ignore_eos else {}
        most = min(params.max_tokens or 1 << 30, self.network.context - len(request.prompt))
        logits, made, text = self.generator.start([*request.prompt]), 0, ""
        self.counts["prompt_tokens"] += len(request.prompt)
        finish = "length"
        while made < most:
            self.gate.acquire()
            if stream.cancelled.is_set():
                finish = "cancelled"
                break
            if self.fault is not None:
                raise self.fault
            scores = logits - logits.max()
            scores = scores - np.log(np.exp(scores.astype(np.float64)).sum())
            token = sampling.choose(logits, (), rng)
            if token in ends:
                finish = "stop"
                break
            made += 1
            self.counts["steps"] += 1
            self.counts["generated_tokens"] += 1
            new = decoder.push(token)
            text += new
            place = next((text.find(stop) for stop in params.stop if stop in text), -1)
            if place >= 0:
                finish = "stop"
                break
            top = np.argsort(-scores)[:params.logprobs or 0]
            stream.push(Event(index, new, token, float(scores[token]) if params.logprobs is not None else None,
                              tuple((int(each), float(scores[each])) for each in top)))
            if made < most:
                logits = self.generator.step(token)
        self.counts["cancelled" if finish == "cancelled" else "finished"] += 1
        stream.push(Event(index, "", finish=finish, usage=Usage(len(request.prompt), made)))
