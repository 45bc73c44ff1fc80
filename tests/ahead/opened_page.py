"""Headless Chromium, spoken to over two pipes: a page opened, and expressions evaluated in it."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SECONDS = 150


class Page:
    """One page of a browser."""

    def __init__(self, write: int, read: int) -> None:
        self.write, self.read, self.number, self.rest = write, read, 0, b""
        self.session: str | None = None
        self.problems: list[str] = []

    def call(self, method: str, **parameters: Any) -> Any:
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            answer = self._next(end - time.monotonic())
            if answer.get("method") == "Log.entryAdded":
                self.problems.append(answer["params"]["entry"]["text"])
            if answer.get("id") == self.number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
        raise TimeoutError(method)

    def _next(self, seconds: float) -> Any:
        while b"\0" not in self.rest:
            if not select.select([self.read], [], [], max(seconds, 0))[0]:
                raise TimeoutError("the browser answers nothing")
            self.rest += os.read(self.read, 1 << 16)
        line, _, self.rest = self.rest.partition(b"\0")
        return json.loads(line)

    def value(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        end = time.monotonic() + SECONDS
        while not self.value(expression):
            assert time.monotonic() < end, (expression, self.value("document.body.innerText"), self.problems)
            time.sleep(0.1)


@contextmanager
def opened(address: str) -> Iterator[Page]:
    """A page in a browser of its own; skips where there is none."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("Chromium is not installed")
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    def place() -> None:
        for source, number in ((os.dup(to_read), 3), (os.dup(from_write), 4)):
            os.dup2(source, number)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=place, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        page = Page(to_write, from_read)
        try:
            target = page.call("Target.createTarget", url="about:blank")["targetId"]
            page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            page.call("Log.enable")
            page.call("Page.enable")
            page.call("Page.navigate", url=address)
            yield page
        finally:
            process.kill()
            process.wait()
            os.close(to_write)
            os.close(from_read)
