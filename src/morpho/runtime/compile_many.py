"""Many modules compiled at once, in processes of their own: LLVM is behind one lock in this one.

A process takes a while to start, so a few kernels are compiled here. What a process fails to give is compiled here too,
said once.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from morpho.backends import compile_worker, cpu
from morpho.base.machine import Isa
from morpho.runtime import threads

log = logging.getLogger("morpho")

LEAST_CHARACTERS = 400_000  # of LLVM text: about half a second of a slow core
STARTING = 120_000  # what this process compiles while another one starts
MOST_PROCESSES = 4
MOST_SECONDS = 600


def compile_many(texts: Sequence[str], isa: Isa) -> list[bytes]:
    """The object code of each module."""
    shares = divide([len(text) for text in texts], _processes(sum(map(len, texts))))
    started = [(share, _start([texts[i] for i in share], isa)) for share in shares[1:]]
    found = {i: cpu.compile_text(texts[i], isa) for i in shares[0]}
    for share, process in started:
        codes = _finish(process, len(share)) if process is not None else None
        if codes is None:
            _say_failed()
            codes = [cpu.compile_text(texts[i], isa) for i in share]
        found.update(zip(share, codes, strict=True))
    return [found[i] for i in range(len(texts))]


def _processes(characters: int) -> int:
    """How many processes, this one among them, such a text is worth."""
    if characters < LEAST_CHARACTERS or not sys.executable:
        return 1
    return max(1, min(threads.wanted_threads(), MOST_PROCESSES))


def divide(lengths: Sequence[int], processes: int) -> list[list[int]]:
    """Numbers of modules for each process, the longest first, each to whom has least; the first has a head start."""
    loads = [0] + [STARTING] * (processes - 1)
    shares: list[list[int]] = [[] for _ in loads]
    for number in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        least = loads.index(min(loads))
        shares[least].append(number)
        loads[least] += lengths[number]
    return [share for i, share in enumerate(shares) if share or i == 0]


def _start(texts: Sequence[str], isa: Isa) -> subprocess.Popen[bytes] | None:
    modules = [text.encode() for text in texts]
    header = {"cpu": isa.llvm_cpu, "features": isa.llvm_features, "lengths": [len(module) for module in modules]}
    try:
        process = subprocess.Popen([sys.executable, str(Path(compile_worker.__file__))], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdin is not None
        process.stdin.write(json.dumps(header).encode() + b"\n" + b"".join(modules))
        process.stdin.close()
        process.stdin = None  # `communicate` would write to it
        return process
    except OSError:
        return None


def _finish(process: subprocess.Popen[bytes], count: int) -> list[bytes] | None:
    """The codes that a process gives, or None where it failed."""
    try:
        said, _ = process.communicate(timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None
    codes, at = [], 0
    while at + 8 <= len(said) and len(codes) < count:
        length = int.from_bytes(said[at:at + 8], "little")
        codes.append(said[at + 8:at + 8 + length])
        at += 8 + length
    return codes if process.returncode == 0 and len(codes) == count and at == len(said) else None


@cache
def _say_failed() -> None:
    log.warning("a process that compiles kernels failed; they are compiled in this one (said once)")
