"""A server under a mix of good, cancelled, malformed and oversized requests for a while: nothing may hang or leak.

    python -m benchmarks.serve.http_soak --minutes 10                # the shipped model
    python -m benchmarks.serve.http_soak --minutes 0.2 --model FOLDER --clients 4 --seed 1

It ends with status 1 where a request got no answer in time, an answer had another status than it should, pages or
requests are left when all have ended, the process has grown by more than a tenth after its first quarter, or it does
not end cleanly.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.serve.servers import answers, free_port

TIMEOUT_S = 120.0
GROWTH = 1.10
HEADERS = {"Content-Type": "application/json"}
TEXTS = ("In the beginning", "And the king said unto him", "Now there was a man", "The sea was", "Blessed")


@dataclass
class Soak:
    """What happened so far."""

    port: int
    seconds: float
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, name: str, status: int, *expected: int) -> None:
        with self.lock:
            self.counts[f"{name} {status}"] += 1
            if status not in expected:
                self.wrong.append(f"{name}: status {status}")

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)


def body(rng: random.Random, **more: Any) -> dict[str, Any]:
    """Any good request: prompts that begin alike and not, short and long, greedy and drawn."""
    prompt = " ".join(rng.choices(TEXTS, k=rng.choice((1, 1, 2, 8))))
    return {"prompt": prompt, "max_tokens": rng.choice((1, 8, 24)), "temperature": rng.choice((0, 0.8)),
            "seed": rng.randrange(100), "n": rng.choice((1, 1, 1, 3)), "ignore_eos": rng.random() < 0.5,
            "stop": rng.choice(([], ["."], [" the", "\n"])), **more}


def whole(soak: Soak, rng: random.Random) -> None:
    connection = soak.connection()
    connection.request("POST", "/v1/completions", json.dumps(body(rng)), HEADERS)
    response = connection.getresponse()
    response.read()
    soak.note("whole", response.status, 200, 429)
    connection.close()


def streamed(soak: Soak, rng: random.Random) -> None:
    connection = soak.connection()
    connection.request("POST", "/v1/completions", json.dumps(body(rng, stream=True)), HEADERS)
    response = connection.getresponse()
    said = response.read()
    soak.note("stream", response.status, 200, 429)
    if response.status == 200 and not said.endswith(b"data: [DONE]\n\n"):
        soak.wrong.append(f"stream: it ends with {said[-80:]!r}")
    connection.close()


def cancelled(soak: Soak, rng: random.Random) -> None:
    """Go away before, at or after the first pieces."""
    connection = soak.connection()
    connection.request("POST", "/v1/completions", json.dumps(body(rng, stream=rng.random() < 0.7, max_tokens=200,
                                                                  ignore_eos=True)), HEADERS)
    if rng.random() < 0.6:
        connection.sock.settimeout(rng.random())
        try:
            response = connection.getresponse()
            for _ in range(rng.randrange(5)):
                response.readline()
        except (TimeoutError, OSError, http.client.HTTPException):
            pass
    connection.close()
    soak.note("cancelled", 0, 0)


def structured(soak: Soak, rng: random.Random) -> None:
    connection = soak.connection()
    form = rng.choice(({"regex": "[a-c]{1,8}"}, {"choice": ["yes", "no"]}, {"json": {"type": "boolean"}},
                       {"regex": "("}, {"json": {"type": "nothing"}}))
    connection.request("POST", "/v1/completions", json.dumps(body(rng, structured_outputs=form)), HEADERS)
    response = connection.getresponse()
    response.read()
    soak.note("structured", response.status, 200, 400, 429)
    connection.close()


def malformed(soak: Soak, rng: random.Random) -> None:
    raw = rng.choice((b"{", b"\xff" * 100, b"[]", b'{"prompt": 5}', b'{"prompt": "x", "wat": 1}', b"{" * 70_000,
                      b'{"prompt": "x", "temperature": 1e999}', b'{"prompt": ["x", 7]}', b'{"model": "none"}',
                      json.dumps({"prompt": "x", "n": 10**9}).encode(),
                      json.dumps({"prompt": "x " * 100_000}).encode()))
    connection = soak.connection()
    connection.request("POST", rng.choice(("/v1/completions", "/v1/chat/completions", "/tokenize")), raw, HEADERS)
    response = connection.getresponse()
    response.read()
    soak.note("malformed", response.status, 400, 404, 200)  # a long text has tokens
    connection.close()


def oversized(soak: Soak, rng: random.Random) -> None:
    connection = soak.connection()
    try:
        connection.request("POST", "/v1/completions", b" " * (9 << 20), HEADERS)
        response = connection.getresponse()
        response.read()
        soak.note("oversized", response.status, 413)
    except OSError:  # the answer was there, and the connection closed, before all was sent
        soak.note("oversized", 0, 0)
    connection.close()


def broken(soak: Soak, rng: random.Random) -> None:
    """No HTTP, or half of it."""
    connection = soak.connection()
    connection.connect()
    connection.sock.sendall(rng.choice((b"\x16\x03\x01\x02", b"GET /",
                                        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n",
                                        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n"
                                        b"Content-Type: application/json\r\n\r\n{")))
    connection.close()
    soak.note("broken", 0, 0)


ACTIONS: dict[Callable[[Soak, random.Random], None], int] = {
    whole: 4, streamed: 6, cancelled: 6, structured: 1, malformed: 3, oversized: 1, broken: 2}


def client(soak: Soak, seed: int) -> None:
    rng, end = random.Random(seed), time.monotonic() + soak.seconds
    while time.monotonic() < end:
        (action,) = rng.choices([*ACTIONS], [*ACTIONS.values()])
        try:
            action(soak, rng)
        except TimeoutError:
            with soak.lock:
                soak.wrong.append(f"{action.__name__}: no answer within {TIMEOUT_S:g} s")
        except (OSError, http.client.HTTPException) as error:
            with soak.lock:
                soak.wrong.append(f"{action.__name__}: {type(error).__name__}: {error}")


def live(port: int) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/live")
    return dict(json.loads(connection.getresponse().read())["engines"][0])


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def soaked(soak: Soak, clients: int, seed: int, pid: int) -> list[tuple[float, int, int]]:
    """Run the clients; (seconds, resident bytes, open files) every now and then."""
    threads = [threading.Thread(target=client, args=(soak, seed + number), daemon=True) for number in range(clients)]
    begun, seen = time.monotonic(), []
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and time.monotonic() - begun < soak.seconds + 2 * TIMEOUT_S:
        seen.append((time.monotonic() - begun, resident_bytes(pid), len(os.listdir(f"/proc/{pid}/fd"))))
        if len(seen) % 10 == 1:
            print(f"{seen[-1][0]:4.0f} s: {seen[-1][1] / 1e6:.0f} MB, {seen[-1][2]} files, {len(soak.wrong)} wrong",
                  flush=True)
        time.sleep(max(soak.seconds / 100, 0.1))
    hung = sum(thread.is_alive() for thread in threads)
    if hung:
        soak.wrong.append(f"{hung} clients hang")
    return seen


def judge(soak: Soak, seen: list[tuple[float, int, int]], idle_files: int, pid: int) -> None:
    """What is left when all is over."""
    for _ in range(200):
        left = live(soak.port)
        if not left["running"] and not left["waiting"] and not left["pages_used"]:
            break
        time.sleep(0.1)
    for name in ("running", "waiting", "pages_used"):
        if left[name]:
            soak.wrong.append(f"{left[name]} {name} are left")
    if not left["alive"] or not answers(soak.port, "/ready"):
        soak.wrong.append("the server is not ready")
    time.sleep(1.0)
    files = len(os.listdir(f"/proc/{pid}/fd"))
    if files > idle_files + 8:
        soak.wrong.append(f"{files} open files are left of {idle_files} before")
    early = max((nbytes for at, nbytes, _ in seen if at <= soak.seconds / 4), default=0)
    late = max((nbytes for at, nbytes, _ in seen), default=0)
    print(f"resident: {early / 1e6:.0f} MB in the first quarter, {late / 1e6:.0f} MB at most; open files {idle_files} "
          f"before, {files} after; engine: {left}")
    if soak.seconds >= 120 and late > GROWTH * early:
        soak.wrong.append(f"memory has grown from {early} to {late} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--model", default="shipped")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    port = free_port()
    command = [sys.executable, "-m", "morpho", "serve", f"model={chosen.model}", "--port", str(port), "--quiet",
               "--kv", "32MB", "--queue", "32"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while not answers(port, "/ready"):
            if server.poll() is not None:
                return 1
            time.sleep(0.1)
        soak, idle_files = Soak(port, chosen.minutes * 60), len(os.listdir(f"/proc/{server.pid}/fd"))
        judge(soak, soaked(soak, chosen.clients, chosen.seed, server.pid), idle_files, server.pid)
        server.send_signal(signal.SIGTERM)
        try:
            if server.wait(90):
                soak.wrong.append(f"the server ended with {server.returncode}")
        except subprocess.TimeoutExpired:
            soak.wrong.append("the server does not end")
    finally:
        server.kill()
        server.wait()
    print(", ".join(f"{count} {name}" for name, count in sorted(soak.counts.items())))
    for told, count in Counter(soak.wrong).most_common(20):
        print(f"WRONG {count} x {told}")
    print(f"{sum(soak.counts.values())} requests, {len(soak.wrong)} wrong")
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
