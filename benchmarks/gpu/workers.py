"""Cases in processes of their own: a kernel that reads a wrong address ends the context of its process, so the parent
writes that case down as failed and a new process goes on with the next one.

A worker is this interpreter with `-m MODULE --worker DEVICE NUMBERS`; it prints a line of JSON before and after every
case.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

CASE_SECONDS = 40.0

def parent(module: str, device: str, count: int, seconds: float, processes: int = 1,
           told: Callable[[dict[str, Any]], None] = lambda row: None,
           chosen: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """Run cases 0 to count, or those chosen, in so many processes for so many seconds at most; their rows, in order of
    number. A case that takes longer than `CASE_SECONDS` is ended with its process."""
    rows: dict[int, dict[str, Any]] = {}
    lock, ends = threading.Lock(), time.monotonic() + seconds

    def keep(row: dict[str, Any]) -> None:
        with lock:
            rows[row["case"]] = row
            told(row)

    def lane(numbers: Sequence[int]) -> None:
        left = list(numbers)
        while left and time.monotonic() < ends:
            left = _until_it_ends(module, device, left, ends, keep)

    numbers = list(range(count)) if chosen is None else list(chosen)
    lanes = [threading.Thread(target=lane, args=(numbers[n::processes],)) for n in range(processes)]
    for one in lanes:
        one.start()
    for one in lanes:
        one.join()
    return [rows[number] for number in sorted(rows)]


def _until_it_ends(module: str, device: str, numbers: Sequence[int], ends: float,
                   keep: Callable[[dict[str, Any]], None]) -> list[int]:
    """One process; the cases that are left when it is over."""
    command = [sys.executable, "-m", module, "--worker", device, ",".join(map(str, numbers))]
    left, begun, said = list(numbers), -1, ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        timer = _ending(process, ends)
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):
                said = (said + line)[-1500:]
                continue
            row = json.loads(line)
            timer.cancel()
            timer = _ending(process, ends)
            if row.get("begun"):
                begun = row["case"]
                continue
            keep(row)
            left.remove(row["case"])
            begun = -1
        timer.cancel()
    if time.monotonic() >= ends:
        return []
    if begun >= 0:  # the process died in it
        keep({"case": begun, "name": str(begun), "failed": f"the process ended: {said[-600:]}"})
        left.remove(begun)
    elif process.returncode and len(left) == len(numbers):  # it did not even begin
        keep({"case": left[0], "name": str(left[0]), "failed": f"no process: {said[-600:]}"})
        return []
    return left


def _ending(process: subprocess.Popen[str], ends: float) -> threading.Timer:
    """Ends a process that says nothing for too long."""
    timer = threading.Timer(max(min(ends - time.monotonic(), CASE_SECONDS), 0.1), process.kill)
    timer.start()
    return timer


def worker(device: str, numbers: str, run: Callable[[int], dict[str, Any]]) -> None:
    """What the child does: case by case; it ends after one that lost the device."""
    for number in map(int, numbers.split(",")):
        print(json.dumps({"begun": True, "case": number}), flush=True)
        try:
            row = run(number)
        except Exception as error:
            row = {"name": str(number), "failed": f"{type(error).__name__}: {error}"[:800]}
        print(json.dumps({**row, "case": number}), flush=True)
        if "is lost" in str(row.get("failed", "")) or "CUDA error" in str(row.get("failed", "")):
            sys.exit(0)


def failed(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Those with an error."""
    return (row for row in rows if "failed" in row)
