"""Telling of alerts: log, functions, webhooks with retries. Whoever is told has a bounded queue and, while something is
in it, a thread by themselves: one that hangs delays no other."""

from __future__ import annotations

import http.client
import json
import logging
import math
import random
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from morpho.base.errors import ArgumentError, fail
from morpho.base.python.fork_safe import ForkSafe
from morpho.runtime.metrics import metrics

_log = logging.getLogger("morpho")
WAITING = 256  # events in a queue; more are dropped and counted
_sent = metrics.counter("morpho_alert_deliveries", "Alerts told, by how it went.", ["outcome"])
Event = dict[str, Any]


@dataclass(frozen=True)
class Webhook:
    """An address that gets each event as a POST of JSON, tried again with doubled waits where it fails.

    >>> Webhook("https://example.org/alerts", tries=3).waits()
    (1.0, 2.0)
    """

    url: str
    tries: int = 5
    first_wait_s: float = 1.0
    most_wait_s: float = 60.0
    timeout_s: float = 10.0
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            plain = self.url.isprintable() and " " not in self.url and "@" not in parts.netloc
            usable = plain and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except (ValueError, TypeError, AttributeError):
            usable = False
        if not usable:
            raise fail(ArgumentError, "monitor", f"{self.url!r} is no address of a webhook",
                       "write https://..., and passwords into headers=")
        if self.tries < 1:
            raise fail(ArgumentError, "monitor", f"tries={self.tries} is not positive")
        for name, least in (("first_wait_s", 0.0), ("most_wait_s", 0.0), ("timeout_s", 1e-3)):
            if not least <= getattr(self, name) < math.inf:
                raise fail(ArgumentError, "monitor", f"{name}={getattr(self, name)} is no time to wait")

    def waits(self) -> tuple[float, ...]:
        """Seconds before each further try."""
        return tuple(min(self.most_wait_s, self.first_wait_s * 2 ** number) for number in range(self.tries - 1))

    def post(self, event: Event) -> bool:
        """One try; False where another may go better, an error where none will."""
        plain = {name: None if value in (math.inf, -math.inf) else value for name, value in event.items()}
        request = urllib.request.Request(self.url, json.dumps(plain).encode(), method="POST",
                                         headers={"Content-Type": "application/json", **self.headers})
        try:
            with _opener.open(request, timeout=self.timeout_s):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500 and error.code not in (408, 425, 429):
                raise Refused(f"{error.code} {error.reason}") from None
            return False
        except (OSError, ValueError, http.client.HTTPException):
            return False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A webhook's address is where it is: an answer that points elsewhere is a refusal."""

    def redirect_request(self, *args: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect())


class Refused(Exception):
    """The other side says that this is not to be sent again."""


Sink = Callable[[Event], Any] | Webhook | Literal["log"]


class Delivery(ForkSafe):
    """A queue for each sink, and a thread that is there while something is in it. `sleep` is for tests."""

    _make_lock = staticmethod(threading.Condition)

    def __init__(self, sleep: Callable[[float], Any] = time.sleep) -> None:
        super().__init__()
        self._queues: dict[Hashable, deque[tuple[Sink, Event]]] = {}
        self._sleep = sleep

    def send(self, sink: Sink, event: Event) -> None:
        """Have a sink told; never waits. Where too many wait for it already the event is dropped and counted."""
        key = _key(sink)
        with self._lock:
            waiting = self._queues.get(key)
            new = waiting is None
            if waiting is None:
                waiting = self._queues[key] = deque()
            full = len(waiting) >= WAITING
            if not full:
                waiting.append((sink, event))
        if full:
            _sent.add(1, "dropped")
        elif new:
            threading.Thread(target=self._run, args=(key, waiting), name="morpho-alerts", daemon=True).start()

    def busy(self) -> bool:
        """Whether something is still to be told."""
        with self._lock:
            return bool(self._queues)

    def drain(self) -> None:
        """Return when all is told that was sent before; for tests and the end of programs."""
        with self._lock:
            self._lock.wait_for(lambda: not self._queues)

    def _run(self, key: Hashable, waiting: deque[tuple[Sink, Event]]) -> None:
        while True:
            with self._lock:
                if not waiting:
                    self._queues.pop(key, None)
                    self._lock.notify_all()
                    return
                sink, event = waiting.popleft()
            try:
                _sent.add(1, self._tell(sink, event))
            except Exception:
                _sent.add(1, "failed")
                _log.warning("[monitor] the alert %s could not be told", event.get("alert"), exc_info=True)

    def _after_fork_in_child(self) -> None:
        super()._after_fork_in_child()
        self._queues = {}  # their threads are the parent's, which tells what was waiting

    def _tell(self, sink: Sink, event: Event) -> str:
        if isinstance(sink, Webhook):
            return self._post(sink, event)
        if callable(sink):
            sink(event)
        else:
            _log.warning("[monitor] %s: %s of %s%s is %.6g, the bound is %.6g", event["state"], event["of"],
                         event["metric"], event["labels"] or "", event["value"], event["bound"],
                         extra={"alert": event})
        return "told"

    def _post(self, hook: Webhook, event: Event) -> str:
        """Tries until it is taken; the waits vary a little, so that many processes do not come at once."""
        for wait_s in (*hook.waits(), None):
            try:
                if hook.post(event):
                    return "told"
            except Refused as reason:
                _log.warning("[monitor] %s refuses the alert %s: %s", hook.url, event.get("alert"), reason)
                return "refused"
            if wait_s is not None:
                _sent.add(1, "retried")
                self._sleep(wait_s * random.uniform(0.8, 1.2))
        _log.warning("[monitor] %s was not reached in %d tries; the alert %s is lost", hook.url, hook.tries,
                     event.get("alert"))
        return "lost"


def _key(sink: Sink) -> Hashable:
    """Key under which equal sinks are one."""
    if isinstance(sink, Webhook):
        return sink.url
    try:
        hash(sink)
    except TypeError:
        return id(sink)
    return sink


delivery = Delivery()
