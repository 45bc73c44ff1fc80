"""Kernels compiled in several processes: the same code, and nothing lost when a process fails."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import numpy as np
import pytest

import morpho as mo
from morpho.backends.code.compiler import code, compilation, llvm
from morpho.backends.code.compiler import queue as compile_queue
from morpho.backends.code.compiler.code import current_isa
from morpho.backends.code.compiler.queue import CompileQueue
from morpho.backends.kernels.gemm.packing.pack import PackKernel
from morpho.base.errors import CompileError


def module(number: int) -> str:
    return f"define double @f{number}(double %x) {{\n  %y = fmul double %x, {number}.5\n  ret double %y\n}}\n"


TEXTS = {f"f{number}": module(number) for number in range(9)}


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process, however little there is to do."""
    monkeypatch.setattr(compile_queue, "LEAST_CHARACTERS", 1)
    monkeypatch.setattr(compile_queue.threads, "wanted_threads", lambda: 2)
    compile_queue._say_failed.cache_clear()


def compile_all() -> dict[str, bytes]:
    with CompileQueue(current_isa()) as queue:
        for name, text in TEXTS.items():
            queue.put(name, text)
        return queue.finish()


def here() -> dict[str, bytes]:
    return {name: llvm.compile_text(text, current_isa()) for name, text in TEXTS.items()}


def test_a_process_gives_the_same_code(eager: None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "morpho"), CompileQueue(current_isa()) as queue:
        for name, text in TEXTS.items():
            queue.put(name, text)
        with queue.changed:  # nobody compiles here until the process has done all
            assert queue.changed.wait_for(lambda: len(queue.done) == len(TEXTS), 60)
        found = dict(queue.finish())
    assert found == here() and not caplog.records
    assert not any(helper.is_alive() for helper in queue.helpers)
    assert all(process.poll() is not None for process in queue.processes)


@pytest.mark.parametrize("executable", ["/bin/false", "/no/such/python"])
def test_a_process_that_fails_is_replaced(executable: str, eager: None, monkeypatch: pytest.MonkeyPatch,
                                          caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with caplog.at_level(logging.WARNING, "morpho"), CompileQueue(current_isa()) as queue:
        for name, text in TEXTS.items():
            queue.put(name, text)
        queue.helpers[0].join(60)
        assert queue.finish() == here()
    assert len(caplog.records) == 1


def test_a_process_that_hangs_is_given_up(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_queue, "MOST_SECONDS", 0.2)
    taken = threading.Event()

    def hang(process: subprocess.Popen[bytes], text: str) -> None:
        taken.set()
        process.wait()  # until it is killed: nothing was asked of it

    monkeypatch.setattr(compile_queue, "_ask", hang)
    with CompileQueue(current_isa()) as queue:
        queue.put("f1", TEXTS["f1"])
        assert taken.wait(60)
        assert queue.finish() == {"f1": llvm.compile_text(TEXTS["f1"], current_isa())}


def test_little_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: pytest.fail("no process is worth it"))
    assert compile_all() == here()


def test_wrong_text_is_an_error(eager: None) -> None:
    with pytest.raises(CompileError, match="rejects"), CompileQueue(current_isa()) as queue:
        queue.put("wrong", "define nothing")
        queue.finish()


def test_kernels_are_compiled_while_a_program_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel is put into the queue before the last one is known; afterwards none is compiled."""
    events = []
    put, finish = CompileQueue.put, CompileQueue.finish
    monkeypatch.setattr(CompileQueue, "put", lambda self, *a: (events.append("put"), put(self, *a)))
    monkeypatch.setattr(CompileQueue, "finish", lambda self: (events.append("finish"), finish(self))[1])
    x = mo.asarray(np.linspace(0, 1, 7, dtype="f"))
    with mo.settings(cache=False):
        (x + 0.25).numpy()  # the driver is compiled for the first program
        events.clear()
        before = code.counters.compiled
        f = mo.compile(lambda x: [mo.exp(x[:n] * (0.3721 + n)) for n in (2, 3, 4)])  # numbers no other test has
        f(x)
    puts = events.count("put")
    assert puts == 3 and events[:puts] == ["put"] * puts and code.counters.compiled - before == puts


def test_a_large_graph_starts_a_process_with_its_first_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(CompileQueue, "expect_more", lambda self: started.append(1))
    kernels = [PackKernel(mo.float32, "general", width) for width in (101, 102, 103)]
    with mo.settings(cache=False):
        for nodes, expected in ((compilation.MANY_NODES - 1, 0), (compilation.MANY_NODES, 1)):
            with compilation.Compilation(nodes) as made:
                assert not started
                for kernel in kernels:
                    made.offer(kernel)
                assert len(started) == expected


def test_a_thread_that_cannot_start_is_no_error(eager: None, monkeypatch: pytest.MonkeyPatch,
                                                caplog: pytest.LogCaptureFixture) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with caplog.at_level(logging.WARNING, "morpho"):
        assert compile_all() == here()
    assert len(caplog.records) == 1 and compile_queue._running.count == 0


def test_a_helper_that_breaks_gives_its_module_back(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(process: subprocess.Popen[bytes], text: str) -> bytes:
        raise MemoryError

    monkeypatch.setattr(compile_queue, "_ask", burst)
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    with CompileQueue(current_isa()) as queue:
        queue.put("f1", TEXTS["f1"])
        queue.helpers[0].join(60)
        assert queue.finish() == {"f1": llvm.compile_text(TEXTS["f1"], current_isa())}
    assert compile_queue._running.count == 0


def test_queues_share_the_cores(eager: None) -> None:
    with CompileQueue(current_isa()) as first, CompileQueue(current_isa()) as second:
        first.expect_more()
        second.expect_more()
        assert len(first.helpers) == 1 and not second.helpers  # two threads: this process and one more
