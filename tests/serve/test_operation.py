"""Cancellation, limits, health, figures, logs, models that come and go, the end."""

from __future__ import annotations

import io
import json
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Running, chat_folder, serving

import morpho as mo
from morpho.serve.hosting.registry import NoRoom, Registry, Spec
from morpho.serve.http import small, state
from morpho.serve.http.logs import logging_to

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "to be"}]
ENDLESS: dict[str, Any] = {"messages": HELLO, "max_tokens": 900, "ignore_eos": True, "stream": True}


def until(check: Any, what: str) -> None:
    for _ in range(1000):
        if check():
            return
        time.sleep(0.01)
    raise AssertionError(f"never: {what}")


class Gate:
    """Lets the engine of a server take single steps."""

    def __init__(self, running: Running) -> None:
        self.engine = running.engine()
        self.engine.gate = threading.Semaphore(0)

    def __enter__(self) -> Gate:
        return self

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.engine.gate.release()

    def __exit__(self, *error: object) -> None:
        gate, self.engine.gate = self.engine.gate, threading.Semaphore(1 << 30)
        gate.release(1 << 20)
        until(lambda: self.engine.current is None, "the engine is idle")


def test_a_client_that_goes_away_is_noticed_within_one_step(held: Running) -> None:
    engine = held.engine()
    before = engine.counts["cancelled"]
    with Gate(held) as gate:
        with httpx.stream("POST", held.url + CHAT, json=ENDLESS) as response:
            gate.step(3)
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            until(lambda: engine.counts["steps"] >= 3, "three steps")
            stream, steps = engine.current, engine.counts["steps"]
        until(stream.cancelled.is_set, "the stream is cancelled")
        gate.step()
        until(lambda: engine.current is None, "the engine is free")
        assert engine.counts["steps"] == steps and engine.counts["cancelled"] == before + 1


def test_one_that_waits_for_the_whole_is_noticed_too(held: Running) -> None:
    engine = held.engine()
    with Gate(held) as gate:
        body = json.dumps({**ENDLESS, "stream": False}).encode()
        with socket.create_connection(("127.0.0.1", held.port)) as connection:
            connection.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:{held.port}\r\nContent-Type: application/json"
                               f"\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            until(lambda: engine.current is not None, "it runs")
        until(lambda: engine.current is not None and engine.current.cancelled.is_set(), "it is cancelled")
        gate.step()
        until(lambda: engine.current is None, "the engine is free")


def test_a_full_queue_is_429_with_retry_after(held: Running) -> None:
    engine, answers = held.engine(), []

    def ask() -> None:
        answers.append(httpx.post(held.url + TEXT, json={"prompt": "to be", "max_tokens": 1}, timeout=60))

    with Gate(held) as gate:
        threads = [threading.Thread(target=ask) for _ in range(9)]  # one runs, eight wait
        threads[0].start()
        until(lambda: engine.current is not None, "one runs")
        for thread in threads[1:]:
            thread.start()
        until(lambda: engine.stats().waiting == 8, "eight wait")
        refused = held.post(TEXT, prompt="to be", max_tokens=1)
        assert refused.status_code == 429 and refused.headers["retry-after"] == "3"
        assert refused.json()["error"]["type"] == "rate_limit_error"
        gate.step(100)
        for thread in threads:
            thread.join(30)
    assert [answer.status_code for answer in answers] == [200] * 9


def test_live_and_metrics_tell_what_runs(held: Running) -> None:
    with Gate(held) as gate, httpx.stream("POST", held.url + CHAT, json=ENDLESS) as response:
        gate.step(2)
        lines = response.iter_lines()  # a generator that is dropped closes the connection
        next(lines)
        until(lambda: held.engine().current is not None, "it runs")
        live = held.client.get("/live").json()
        assert live["engines"][0]["running"] == 1 and live["ready"] is True
        text = held.client.get("/metrics").text
        assert 'morpho_running{model="tiny"} 1.0' in text and 'morpho_pages_total{model="tiny"} 64.0' in text
        assert text.count("# TYPE morpho_running ") == 1 and "morpho_pool_live_bytes " in text  # the process's own too
        assert {"labels": {"model": "tiny"}, "value": 1} in mo.monitor.snapshot()["morpho_running"]["values"]
    held.post(TEXT, prompt="to be", max_tokens=3)
    text = held.client.get("/metrics").text
    for name in ("morpho_time_to_first_token_seconds_count", "morpho_time_per_output_token_seconds_bucket",
                 "morpho_prefix_hits_total", "morpho_waiting", "morpho_batch_size", "morpho_kv_usage_ratio"):
        assert f'{name}{{' in text, name
    assert 'morpho_http_requests_total{route="/v1/completions",status="200"}' in text
    assert "/nothing" not in text  # addresses that somebody makes up are no labels


def test_a_dead_engine_is_told(chat_model: Path) -> None:
    with serving(Spec("tiny", chat_model)) as running:
        assert running.client.get("/ready").status_code == running.client.get("/health").status_code == 200
        running.engine().fault = RuntimeError("the machine is on fire")
        lost = running.post(CHAT, messages=HELLO, max_tokens=4)
        assert lost.status_code == 500 and "on fire" in lost.json()["error"]["message"]
        until(lambda: not running.engine().alive, "the engine is dead")
        for path in ("/ready", "/health"):
            answer = running.client.get(path)
            assert answer.status_code == 503 and "on fire" in answer.json()["reason"]
        assert running.post(CHAT, messages=HELLO).status_code == 503


def test_an_error_in_a_stream_is_its_last_event(chat_model: Path) -> None:
    with serving(Spec("tiny", chat_model)) as running, Gate(running) as gate:
        with running.client.stream("POST", CHAT, json=ENDLESS) as response:
            gate.step(2)
            lines = (line for line in response.iter_lines() if line)
            next(lines)
            running.engine().fault = RuntimeError("broken in the middle")
            gate.step(5)
            last = [*lines][-1]
        assert "broken in the middle" in json.loads(last.removeprefix("data: "))["error"]["message"]


def test_an_engine_that_makes_no_steps_is_not_ready(held: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with Gate(held) as gate, httpx.stream("POST", held.url + CHAT, json=ENDLESS) as response:
        gate.step()
        lines = response.iter_lines()  # a generator that is dropped closes the connection
        next(lines)
        until(lambda: held.engine().gate._value == 0, "the step is taken")
        monkeypatch.setattr(small, "STUCK_S", 0.0)
        held.client.get("/ready")
        answer = held.client.get("/ready")
        assert answer.status_code == 503 and "no step" in answer.json()["reason"]
        gate.step()
        until(lambda: held.client.get("/ready").status_code == 200, "it goes on")


def test_a_model_is_evicted_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [chat_folder(tmp_path / name) for name in ("one", "two")]
    nbytes = Spec("x", folders[0]).file_bytes()
    with serving(*(Spec(folder.name, folder) for folder in folders), memory_bytes=nbytes + 10) as running:
        def answer(name: str) -> httpx.Response:
            return running.post(TEXT, model=name, prompt="to be", max_tokens=2, temperature=0)

        first, engine = answer("one").json()["choices"], running.engine("one")
        assert answer("two").status_code == 200
        assert [served.name for served in running.registry.loaded()] == ["two"] and running.registry.evictions == 1
        until(lambda: not engine.alive, "the engine of the evicted one has ended")
        assert answer("one").json()["choices"][0]["text"] == first[0]["text"]
        monkeypatch.setattr(state, "PATIENCE_S", 60.0)
        asked, statuses = threading.Semaphore(0), []
        load = running.registry.load
        monkeypatch.setattr(running.registry, "load", lambda name: asked.release() or load(name))
        with running.registry.lease("one"):  # by a request whose answer has been read, and that is not over yet
            other = threading.Thread(target=lambda: statuses.append(answer("two").status_code))
            other.start()
            assert asked.acquire(timeout=60) and asked.acquire(timeout=60)
        other.join(60)
        assert statuses == [200] and answer("one").status_code == 200
        monkeypatch.setattr(state, "PATIENCE_S", 0.0)
        with Gate(running) as gate, httpx.stream("POST", running.url + CHAT, json={**ENDLESS, "model": "one"}) as busy:
            gate.step(2)
            lines = busy.iter_lines()  # a generator that is dropped closes the connection
            next(lines)
            until(lambda: running.engine("one").current is not None, "it runs")
            refused = answer("two")  # nothing is idle: the one in use stays
            assert refused.status_code == 503 and "retry-after" in refused.headers


def test_models_that_are_loaded_at_the_same_moment_share_the_memory(chat_model: Path) -> None:
    """And one that is loaded while the server ends is ended too."""
    specs, ended, refused = [Spec("one", chat_model), Spec("two", chat_model)], [], []

    class Quick:
        def shutdown(self, drain: bool, timeout_s: float | None) -> None:
            ended.append(drain)

    def load(place: Path) -> Any:
        if not refused:  # of the first model: meanwhile another one is asked for
            refused.append("once")
            with pytest.raises(NoRoom, match="two needs"):
                registry.load("two")
        else:
            registry.close()
        return mo.models.load_with_tokenizer(place)

    registry = Registry(specs, lambda *_: Quick(), specs[0].file_bytes() + 10, load)
    registry.load("one")
    assert [served.name for served in registry.loaded()] == ["one"] and registry.evictions == 0
    registry.load("two")
    assert registry.loaded() == [] and len(ended) == 2 and registry.evictions == 1


def test_a_changed_folder_is_loaded_anew(tmp_path: Path) -> None:
    folder = chat_folder(tmp_path / "model")
    with serving(Spec("tiny", folder)) as running:
        asked: dict[str, Any] = {"prompt": "to be", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        before, engine = running.post(TEXT, **asked).json()["choices"][0]["text"], running.engine()
        with Gate(running) as gate, running.client.stream("POST", CHAT, json={**ENDLESS, "max_tokens": 6}) as response:
            gate.step(2)
            lines = (line for line in response.iter_lines() if line)
            next(lines)
            until(lambda: engine.current is not None, "it runs")
            model = mo.models.load(folder)
            for parameter in model.parameters():
                parameter.assign(parameter * -3.0)
            mo.models.save(folder, model)
            assert running.registry.look_for_changes() == []  # files may still be written
            assert running.registry.look_for_changes() == ["tiny"] and running.registry.look_for_changes() == []
            assert running.engine() is not engine and engine.alive  # the old one finishes its stream
            gate.step(10)
            assert [*lines][-1] == "data: [DONE]"
        until(lambda: not engine.alive, "the old engine has ended")
        assert running.post(TEXT, **asked).json()["choices"][0]["text"] != before
        (folder / "config.json").write_text("{")
        running.registry.look_for_changes()
        assert running.registry.look_for_changes() == []  # it cannot be loaded: what there is stays
        assert running.post(TEXT, **asked).status_code == 200


def test_the_end_finishes_streams(chat_model: Path) -> None:
    with serving(Spec("tiny", chat_model), shutdown_timeout_s=120.0) as running, Gate(running) as gate:
        with httpx.stream("POST", running.url + CHAT, json={**ENDLESS, "max_tokens": 5}, timeout=120) as response:
            gate.step()
            lines = (line for line in response.iter_lines() if line)
            next(lines)
            running.server.should_exit = True  # what SIGTERM does
            until(lambda: not _reachable(running), "new connections are refused")
            gate.step(10)
            assert [*lines][-1] == "data: [DONE]"
        running.thread.join(120)
        assert not running.thread.is_alive()


def _reachable(running: Running) -> bool:
    try:
        return httpx.get(running.url + "/health", timeout=1).status_code == 200
    except httpx.HTTPError:
        return False


def test_logs_have_ids_and_no_texts(held: Running) -> None:
    stream = io.StringIO()
    with logging_to(stream):
        answer = held.client.post(TEXT, json={"prompt": "to be or not", "max_tokens": 2, "ignore_eos": True},
                                  headers={"X-Request-Id": "mine-1"})
        until(lambda: stream.getvalue().count("\n") >= 1, "the first line")  # it is written after the answer is sent
        held.client.get("/health", headers={"X-Request-Id": "bad id!"})
        until(lambda: stream.getvalue().count("\n") >= 2, "the second line")
        with socket.create_connection(("127.0.0.1", held.port)) as connection:
            connection.sendall(b"no HTTP\r\n\r\n")
            assert b" 400 " in connection.recv(1000)
        until(lambda: stream.getvalue().count("\n") >= 3, "three lines")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["level"] for line in lines] == ["info", "info", "warning"], lines
    assert answer.headers["x-request-id"] == "mine-1"
    first, second = lines[:2]
    assert first["id"] == "mine-1" and first["status"] == 200 and first["completion_tokens"] == 2
    assert first["model"] == "tiny" and first["first_token_ms"] > 0 and "to be" not in stream.getvalue()
    assert second["id"].startswith("req-")


def test_tls_by_certificate_files(chat_model: Path, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    try:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("openssl makes no certificate here")
    with serving(Spec("tiny", chat_model), certificate=certificate, key=key) as running:
        trusting = ssl.create_default_context(cafile=str(certificate))
        answer = httpx.get(running.url + "/v1/models", verify=trusting)
        assert answer.status_code == 200 and running.url.startswith("https://")
        with pytest.raises(httpx.HTTPError):
            httpx.get(running.url.replace("https", "http") + "/v1/models")
