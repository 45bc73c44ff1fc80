"""Servers of one model as processes of their own: Morpho's, llama.cpp's from the wheel xllamacpp, and transformers'.

    python -m benchmarks.serve.servers llama_cpp FILE PORT SLOTS THREADS     # what a process of llama.cpp's runs
"""

from __future__ import annotations

import atexit
import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

SLOTS, CONTEXT = 64, 1024  # texts at once, and tokens of each
START_S = 300.0


class Missing(Exception):
    """A server that cannot be started here; the text says why."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def answers(port: int, path: str = "/v1/models") -> bool:
    with suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", path)
        return connection.getresponse().status == 200
    return False


@cache
def _bytecode() -> str:
    """A folder for modules' bytecode, for as long as this process lives."""
    folder = tempfile.TemporaryDirectory(prefix="bytecode-")
    atexit.register(folder.cleanup)
    return folder.name


@contextmanager
def process(command: list[str], port: int, path: str, threads: int) -> Iterator[tuple[float, int]]:
    """A server that answers; gives the seconds it took to, and its process."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MORPHO_THREADS": str(threads), "HF_HUB_OFFLINE": "1",
                   "PYTHONPYCACHEPREFIX": _bytecode()}  # as installed packages have it, whatever this process does
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as told:
        begun = time.perf_counter()
        running = subprocess.Popen(command, stdout=told, stderr=told, env=environment)
        try:
            while not answers(port, path):
                if running.poll() is not None or time.perf_counter() - begun > START_S:
                    told.seek(0)
                    lines = told.read().decode("utf-8", "replace").strip().splitlines()
                    raise Missing((lines or ["it ended without a word"])[-1][:200])
                time.sleep(0.01)
            yield time.perf_counter() - begun, running.pid
        finally:
            running.terminate()
            try:
                running.wait(20)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


@contextmanager
def morpho(file: Path, threads: int) -> Iterator[tuple[int, str, float]]:
    """(port, the model's name, seconds to ready)."""
    port = free_port()
    command = [sys.executable, "-m", "morpho", "serve", f"model={file}", "--port", str(port), "--quiet", "--max-batch",
               str(SLOTS), "--context", str(CONTEXT), "--no-watch"]
    with process(command, port, "/ready", threads) as (took, _):
        yield port, "model", took


@contextmanager
def llama_cpp(file: Path, threads: int) -> Iterator[tuple[int, str, float]]:
    try:
        import xllamacpp  # noqa: F401
    except ImportError as error:
        raise Missing(str(error)) from None
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.serve.servers", "llama_cpp", str(file), str(port), str(SLOTS),
               str(threads)]
    with process(command, port, "/health", threads) as (took, _):
        yield port, "model", took


@contextmanager
def transformers(file: Path, threads: int) -> Iterator[tuple[int, str, float]]:
    """`transformers serve` with the GGUF file's folder, where this version of it takes one."""
    program = Path(sys.executable).with_name("transformers")
    if not program.exists():
        raise Missing("the command `transformers` is not installed")
    port = free_port()
    command = [str(program), "serve", "--port", str(port), "--device", "cpu", f"{file.parent}:{file.name}"]
    with process(command, port, "/v1/models", threads) as (took, _):
        yield port, f"{file.parent}:{file.name}", took


SERVERS: dict[str, Callable[..., object]] = {"morpho": morpho, "llama_cpp": llama_cpp, "transformers": transformers}


def _llama_cpp(file: str, port: int, slots: int, threads: int) -> None:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path, parameters.port = file, port
    parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = slots * CONTEXT, slots, 0
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    _llama_cpp(sys.argv[2], *map(int, sys.argv[3:6]))
