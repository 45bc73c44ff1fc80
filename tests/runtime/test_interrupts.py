"""Ctrl-C while native code runs: a real SIGINT to a real process ends the run at the user's line, nothing is lost."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, threading, traceback
import numpy as np
import morpho as mo

ENDLESS = 1 << 60
x, one, m = mo.ones(64).realise(), mo.asarray(1.0), mo.eye(16).realise()
state = mo.State(mo.zeros(64))
calls = []
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it

def looping(body):
    return mo.compile(lambda s: mo.fori_loop(0, ENDLESS, lambda i, s: body(s), s))

def stepping(s):
    state.value = state.value + 1
    return mo.fori_loop(0, ENDLESS, lambda i, s: mo.sin(s) * 1.5, s + state.value)

identity = mo.extend.op("own_identity", reference=lambda a: calls.append(1) or a, native=False)
lanes, number, steps, host = (looping(lambda s: mo.sin(s) * 1.0001 + 0.1), looping(lambda s: s * 0.5 + 1),
                              looping(lambda s: mo.sort(s @ s)), looping(lambda s: identity(s) * 0.5))
stepped = mo.compile(stepping)
big = mo.ones((1 << 13, 1 << 13)).realise()
product = mo.compile(lambda a: a @ a @ a @ a @ a @ a @ a @ a @ a @ a)
cases = {
    "lanes": lambda: lanes(x), "number": lambda: number(one), "steps": lambda: steps(m), "host": lambda: host(one),
    "while": lambda: mo.while_loop(lambda c: c >= 0, lambda c: c * 1, one).numpy(), "state": lambda: stepped(x),
    "product": lambda: product(big),
}
with mo.settings(threads=int(sys.argv[1])):
    for name in sys.argv[2:]:
        timer = threading.Timer(0.3, lambda: print("ready", name, flush=True))
        timer.start()
        try:
            cases[name]()
        except KeyboardInterrupt as error:
            frames = traceback.extract_tb(error.__traceback__)
            print("interrupted", name, sum(frame.filename == "<string>" for frame in frames), flush=True)
        timer.join()
        assert mo.compile(lambda a: a @ a)(m).tolist() == m.tolist() and not state.value.numpy().any()

    def handler(number, frame):
        calls.append((mo.asarray([1.0, 2.0]) * 2).tolist())
        if len(calls) == 2:
            raise OverflowError("enough")
        signal.setitimer(signal.ITIMER_REAL, 0.1)

    calls.clear()
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        lanes(x)
    except OverflowError:
        print("handled", calls, flush=True)

    done = threading.Event()
    turns = mo.asarray(20_000_000)
    def count(n, s):
        return mo.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 0.5 + 1), (0, s))[0]
    counted = mo.compile(count)
    results = []
    thread = threading.Thread(target=lambda: (results.append(counted(turns, one).item()), done.set()))
    thread.start()
    threading.Timer(0.1, lambda: print("ready thread", flush=True)).start()
    try:
        lanes(x)
    except KeyboardInterrupt:
        pass
    thread.join()
    print("others", results, flush=True)
"""


@pytest.mark.parametrize(("threads", "names"), [
    (1, ["lanes", "number", "steps", "host", "while", "state", "product"]), (2, ["lanes", "product"])])
def test_an_interrupt_ends_native_code(threads: int, names: list[str]) -> None:
    command = [sys.executable, "-c", PROGRAM, str(threads), *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        heard = []
        try:
            for line in process.stdout:
                heard.append(line.strip())
                if line.startswith("ready"):
                    process.send_signal(signal.SIGINT)
            process.wait(60)
        finally:
            process.kill()
        errors = process.stderr.read()
    told = [line for line in heard if not line.startswith("ready")]
    assert told == [*(f"interrupted {name} 2" for name in names),
                    "handled [[2.0, 4.0], [2.0, 4.0]]", "others [20000000]"], (heard, errors)
    assert not errors, errors
