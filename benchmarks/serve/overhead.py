"""What HTTP adds to the engine: a server whose engine makes a token every few milliseconds and writes into it when. The
client compares with its own clock, which is the same on one machine; and the server's CPU time is divided by tokens.
What the engine that makes a token every few milliseconds takes by itself, in a process without a server, is no part of
what HTTP adds.

    python -m benchmarks.serve.overhead serve PORT      # the server's process
    python -m benchmarks.serve.overhead pace TOKENS     # the engine alone: seconds of CPU time a token
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.serve import servers

PAUSE_S, TOKENS = 0.003, 400


def run(session: Session) -> ThemeResult:
    tokens, rounds = (50, 2) if session.quick else (TOKENS, 5)
    port = servers.free_port()
    first, each, costs = [], [], []
    command = [sys.executable, "-m", "benchmarks.serve.overhead", "serve", str(port)]
    with servers.process(command, port, "/ready", session.threads) as (_, pid):
        for number in range(rounds + 1):
            begun, busy = time.perf_counter(), _cpu_s(pid)
            late = _lateness(port, tokens)
            if number:  # the first one warms up
                first.append(late[0][0] - begun + late[0][1])
                each += [seen for _, seen in late[1:]]
                costs.append((_cpu_s(pid) - busy) / tokens)
    alone = median(_alone(tokens) for _ in range(rounds))
    result = ThemeResult("overhead")
    table = Table(f"a token every {PAUSE_S * 1e3:g} ms, {tokens} of them, {rounds} rounds", ["what", "median"])
    table.rows = [["request to first token, with an engine that has it at once", duration(median(first))],
                  ["from the engine to the client, a token", duration(median(each))],
                  ["CPU time of the server, a token", duration(median(costs))],
                  ["CPU time of the engine that paces it, a token", duration(alone)]]
    result.tables.append(table)
    added = median(costs) - alone
    result.targets = [Target("HTTP before the first token", 1e3 * median(first), 5.0, at_least=False, unit=" ms"),
                      Target("HTTP, CPU time per token", 1e3 * added, 0.2, at_least=False, unit=" ms")]
    result.figures = {"first_s": median(first), "per_token_s": median(each), "cpu_per_token_s": median(costs),
                      "engine_cpu_per_token_s": alone}
    return result


def _alone(tokens: int) -> float:
    command = [sys.executable, "-m", "benchmarks.serve.overhead", "pace", str(tokens)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _lateness(port: int, tokens: int) -> list[tuple[float, float]]:
    """(when the engine made it, seconds until the client had it) of each token."""
    import http.client
    import json

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": tokens, "stream": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    found = []
    for line in connection.getresponse():
        now = time.perf_counter()
        if line.startswith(b"data: {"):
            for word in (json.loads(line[6:])["choices"][0]["delta"].get("content") or "").split():
                found.append((float(word), now - float(word)))
    connection.close()
    if len(found) != tokens:
        raise ValueError(f"{len(found)} tokens arrived of {tokens}")
    return found


def _cpu_s(pid: int) -> float:
    """What a process has used so far: of its threads to the nanosecond, where the system says it."""
    try:
        tasks = [*Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except OSError:  # without CONFIG_SCHED_INFO, or a thread that has just ended
        pass
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- the server's process ----------------------------------------------------------------------------------------------
class _Paced:
    """An engine that makes a token at once and then one every few milliseconds; a stream at a time."""

    alive, last_error = True, None

    def submit(self, request: Any) -> Any:
        from morpho.serve.engine.request import Event, Usage

        class Stream:
            def on_event(self, call: Any) -> None:
                def make() -> None:
                    for _ in range(request.params.max_tokens):
                        call(Event(0, f"{time.perf_counter():.7f} ", 1))
                        time.sleep(PAUSE_S)
                    call(Event(0, "", finish="length", usage=Usage(1, request.params.max_tokens)))

                threading.Thread(target=make, daemon=True).start()

            def cancel(self) -> None:
                pass

        return Stream()

    def unready(self) -> str | None:
        return None

    def stages(self) -> list[dict[str, Any]]:
        return []

    def stats(self) -> Any:
        from morpho.serve.engine.request import EngineStats

        return EngineStats(**dict.fromkeys(EngineStats.__dataclass_fields__, 0))

    def shutdown(self, drain: bool = True, timeout_s: float | None = None) -> None:
        pass


def _serve(port: int) -> None:
    import tempfile

    import morpho as mo
    from morpho.serve.hosting.registry import Spec
    from morpho.serve.http.background import Server

    model, tokenizer = mo.models.load_with_tokenizer(mo.models.SHIPPED)
    if not tokenizer.chat_template:
        tokenizer.chat_template = "{{ messages[0].content }}"
    with tempfile.TemporaryDirectory() as folder:
        mo.models.save(folder, model)
        mo.weights.save_tokenizer(folder, tokenizer)
        with Server([Spec("paced", Path(folder))], make_engine=lambda *_: _Paced(), port=port) as server:
            server.thread.join()


def _pace(tokens: int) -> float:
    """Seconds of CPU time a token, of the engine and a reader that does nothing."""
    from morpho.serve.engine.request import Event, Request, SamplingParams

    ended = threading.Event()

    def read(event: Event) -> None:
        if event.finish is not None:
            ended.set()

    before = time.process_time()
    _Paced().submit(Request((1,), SamplingParams(max_tokens=tokens), "pace")).on_event(read)
    ended.wait()
    return (time.process_time() - before) / tokens


if __name__ == "__main__":
    if sys.argv[1] == "pace":
        print(_pace(int(sys.argv[2])))
    else:
        _serve(int(sys.argv[2]))
