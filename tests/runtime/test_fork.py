"""After a fork: the child's pool starts anew, no lock stays taken, results are the parent's."""

from __future__ import annotations

import os
import sys

import pytest
from subprograms import run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

PARALLEL = """
    import warnings; warnings.simplefilter("ignore", DeprecationWarning)
    from morpho.backends.driver import threads
    x = mo.asarray(np.linspace(0, 1, 3_000_000, dtype=np.float32))
    f = mo.compile(lambda x: mo.exp(x) * 2 + 1)
    target = mo.empty(3_000_000)
    f(x, out=target); f(x, out=target)
    expected = target.numpy(copy=True)
    lazily = (mo.exp(x).sum()).item()
    def runs():
        return sum(pool.runs for pool in threads._pools.values())
    def check():
        before = runs()
        f(x, out=target)
        f(x, out=target)
        assert (target.numpy() == expected).all()
        assert (f(x).numpy() == expected).all()
        assert mo.exp(x).sum().item() == lazily
        assert threads.wanted_threads() == 1 or runs() > before, "not in parallel"
"""


def test_os_fork_after_parallel_work() -> None:
    printed, _ = run(PARALLEL + """
    check()
    for _ in range(3):
        child = os.fork()
        if child == 0:
            try:
                check()
                grandchild = os.fork()
                if grandchild == 0:
                    check()
                    os._exit(0)
                os._exit(os.waitpid(grandchild, 0)[1] != 0)
            except BaseException as error:
                print("child:", repr(error), flush=True)
                os._exit(1)
        check()
        assert os.waitpid(child, 0)[1] == 0
    print("good")
    """, timeout_s=40, MORPHO_THREADS="2")
    assert printed == "good"


def test_multiprocessing_fork() -> None:
    printed, _ = run(PARALLEL + """
    import multiprocessing
    def work(number):
        check()
        return float((mo.ones(10) * number).sum())
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        print(pool.map(work, range(4)))
    check()
    """, timeout_s=40, MORPHO_THREADS="2")
    assert printed == "[0.0, 10.0, 20.0, 30.0]"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="forking beside threads is refused in words there")
def test_forks_while_other_threads_compute_and_compile() -> None:
    """Whatever another thread held at that moment, the child can build, compile and run."""
    printed, _ = run("""
    import faulthandler
    stop = False
    def busy(number):
        i = 0
        state = mo.State(mo.zeros(10))
        step = mo.compile(lambda x: setattr(state, "value", state.value + x))
        while not stop:
            i += 1
            f = mo.compile(lambda x: x * (number * 1000 + i) + 1)
            f(mo.ones(100 + i % 7)); step(mo.ones(10)); (mo.arange(50) * i).numpy()
    threads = [threading.Thread(target=busy, args=(n,)) for n in range(2)]
    shared = mo.compile(lambda x: x + 2)
    shared(mo.ones(4))
    for thread in threads: thread.start()
    for round in range(6):
        time.sleep(0.02)
        child = os.fork()
        if child == 0:
            faulthandler.dump_traceback_later(15, exit=True)
            ok = shared(mo.ones(4)).tolist() == [3] * 4
            ok = ok and (mo.exp(mo.ones(5)) * (round + 0.5)).numpy().shape == (5,)
            fresh = mo.compile(lambda x: mo.sin(x) + round)
            ok = ok and fresh(mo.zeros(3)).tolist() == [round] * 3
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0, round
    stop = True
    for thread in threads: thread.join()
    print("good")
    """, timeout_s=40, MORPHO_CACHE="0")
    assert printed == "good"
