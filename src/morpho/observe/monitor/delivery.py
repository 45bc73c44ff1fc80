"""Telling of alerts, in a thread of its own with a bounded queue: log, functions, webhooks with retries."""

from __future__ import annotations

import json
import logging
import os
import queue
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from morpho.base.errors import ArgumentError, fail
from morpho.runtime.metrics import metrics

_log = logging.getLogger("morpho")
WAITING = 256  # events in the queue; more are dropped and counted
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
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise fail(ArgumentError, "monitor", f"{self.url!r} is no address of a webhook", "write https://...")
        if self.tries < 1:
            raise fail(ArgumentError, "monitor", f"tries={self.tries} is not positive")

    def waits(self) -> tuple[float, ...]:
        """Seconds before each further try."""
        return tuple(min(self.most_wait_s, self.first_wait_s * 2 ** number) for number in range(self.tries - 1))

    def post(self, event: Event) -> bool:
        """One try; False where another may go better, an error where none will."""
        request = urllib.request.Request(self.url, json.dumps(event).encode(), method="POST",
                                         headers={"Content-Type": "application/json", **self.headers})
        try:
            with _opener.open(request, timeout=self.timeout_s):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500 and error.code not in (408, 425, 429):
                raise Refused(f"{error.code} {error.reason}") from None
            return False
        except (OSError, ValueError):
            return False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A webhook's address is where it is: an answer that points elsewhere is a refusal."""

    def redirect_request(self, *args: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect())


class Refused(Exception):
    """The other side says that this is not to be sent again."""


Sink = Callable[[Event], Any] | Webhook | Literal["log"]


class Delivery:
    """The queue and its thread, which starts with the first event. `sleep` is for tests."""

    def __init__(self, sleep: Callable[[float], Any] = time.sleep) -> None:
        self._queue: queue.Queue[tuple[Sink, Event]] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._sleep = sleep

    def send(self, sink: Sink, event: Event) -> None:
        """Have a sink told; never waits. Where too many wait already the event is dropped and counted."""
        try:
            self._queue.put_nowait((sink, event))
        except queue.Full:
            _sent.add(1, "dropped")
            return
        with self._lock:
            if self._thread is None or not self._thread.is_alive() or self._process != os.getpid():
                self._process = os.getpid()
                self._thread = threading.Thread(target=self._run, name="morpho-alerts", daemon=True)
                self._thread.start()

    def drain(self) -> None:
        """Return when all is told that was sent before; for tests and the end of programs."""
        self._queue.join()

    def _run(self) -> None:
        while True:
            sink, event = self._queue.get()
            try:
                _sent.add(1, self._tell(sink, event))
            except Exception:
                _sent.add(1, "failed")
                _log.warning("[monitor] the alert %s could not be told", event.get("alert"), exc_info=True)
            finally:
                self._queue.task_done()

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


delivery = Delivery()
