"""`morpho serve` as a process: what it prints works, signals end it, a kill leaves no port behind."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from morpho.base.errors import ArgumentError, MorphoError
from morpho.cli.server.serve import specs_of

CHAT = "/v1/chat/completions"
LONG: dict[str, Any] = {"messages": [{"role": "user", "content": "to be"}], "max_tokens": 900, "ignore_eos": True,
                        "stream": True}


@contextmanager
def started(*words: str | Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """(the process, the server's address, its curl line)."""
    process = subprocess.Popen([sys.executable, "-m", "morpho", "serve", *map(str, words)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        first, curl = process.stdout.readline(), process.stdout.readline()
        assert " at http" in first, first + (process.stderr.read() if process.stderr else "")
        yield process, first.split(" at ")[1].split(": ")[0], curl
    finally:
        process.kill()
        process.communicate()


def test_what_it_prints_and_how_it_ends(chat_model: Path) -> None:
    with started(f"tiny={chat_model}", "--port", "0", "--kv", "2MB") as (process, url, curl):
        asked = shlex.split(curl)
        assert asked[0] == "curl" and asked[1].startswith(url)
        body = json.loads(asked[asked.index("-d") + 1])
        answer = httpx.post(asked[1], json={**body, "max_tokens": 4}, timeout=60)
        assert answer.status_code == 200 and answer.json()["model"] == "tiny"
        if shutil.which("curl"):
            said = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=120).stdout
            assert json.loads(said)["choices"]
        with httpx.stream("POST", url + CHAT, json=LONG, timeout=60) as response:
            lines = (line for line in response.iter_lines() if line)
            next(lines)
            process.send_signal(signal.SIGTERM)
            assert [*lines][-1] == "data: [DONE]"  # the stream is finished first
        assert process.wait(30) == 0
        log = [json.loads(line) for line in (process.stderr.read() if process.stderr else "").splitlines()]
        assert [line["event"] for line in log][-2:] == ["stopping", "request"] or "stopping" in {
            line["event"] for line in log}


def test_killed_and_started_again(chat_model: Path) -> None:
    with started(f"tiny={chat_model}", "--port", "0", "--kv", "2MB") as (process, url, _):
        port = url.rsplit(":", 1)[1]
        with pytest.raises(httpx.HTTPError), httpx.stream("POST", url + CHAT, json=LONG, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            os.kill(process.pid, signal.SIGKILL)
            for _line in lines:  # the client is told: the connection breaks
                pass
        process.wait(10)
        with started(f"tiny={chat_model}", "--port", port, "--kv", "2MB") as (_, again, _):
            assert again == url and httpx.get(url + "/ready").status_code == 200


@pytest.mark.parametrize(("words", "said"), [
    (["--host", "0.0.0.0"], "token"), (["--plan", "nowhere.json"], "nowhere.json cannot be read"),
        (["--port", "1"], "cannot be listened"),
    (["nothing-of-that-name"], "no model of that name"), (["--lora", "x"], "names no adapter"),
    (["--device", "reference"], "GPUs only"), (["--memory", "lots"], "lots"), (["--tls-key", "x"], "belong together"),
])
def test_mistakes_are_one_sentence(words: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from morpho.cli.main import app

    if "1" in words and os.geteuid() == 0:
        words = [*words[:-1], str(_taken())]
    result = CliRunner().invoke(app, ["serve", *words])
    assert result.exit_code and isinstance(result.exception, MorphoError), result.output
    assert said in str(result.exception)


def _taken() -> int:
    """A port that somebody listens on."""
    import socket

    listener = socket.create_server(("127.0.0.1", 0))
    _KEPT.append(listener)
    return int(listener.getsockname()[1])


_KEPT: list[Any] = []


def test_names_of_models(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    assert [(spec.name, spec.place) for spec in specs_of([str(folder), f"other={folder}"], [])] \
        == [("my-model", folder), ("other", folder)]
    assert specs_of([], [])[0].name == "shipped"
    (with_adapter,) = specs_of([str(folder)], [f"mine={folder}"])
    assert with_adapter.adapters == {"mine": folder}
    with pytest.raises(ArgumentError, match="two models"):
        specs_of([str(folder), str(folder)], [])
