"""The timed twin: not in the code when nobody profiles, events of 32 bytes in rings, the same bits."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest

import morpho as mo
from morpho.backends.driver import executable as driver
from morpho.backends.driver.abi import Distances
from morpho.backends.driver.driver import driver_text
from morpho.backends.driver.timed_code import EVENT_BYTES, WRAPPED, Kind, RecorderField, plain_text, timed_text
from morpho.runtime.trace.rings import Batch, Calibration, Rings, converter
from morpho.tensor.jit.native.entries import entries

AT = Distances(16, 24, 32, 40, 48, 56, 64, 72)


def test_the_plain_driver_has_no_time_stamp() -> None:
    """Off is not in the code: no counter is read, nothing is recorded."""
    text = driver_text(AT)
    poll = text[text.index("declare i64 @llvm.readcyclecounter" if "readcycle" in text else "define i32 @poll"):]
    text = text.replace(poll[:poll.index("\n}\n")], "")  # which looks whether it is time for signals
    for word in ("readcyclecounter", "clock", "@now", "@record", "_plain"):
        assert word not in text, word


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_the_twin_is_the_plain_driver_with_wrappers(architecture: str) -> None:
    """Taken off again, what is left is the plain text, letter by letter."""
    timed = timed_text(AT, architecture)
    assert plain_text(timed) == driver_text(AT, architecture=architecture)
    for name in WRAPPED:
        assert len(re.findall(rf"^define \w+ @{name}\(", timed, re.MULTILINE)) == 1
    assert ("readcyclecounter" in timed) == (architecture == "x86_64")


def test_an_event_is_32_bytes() -> None:
    assert EVENT_BYTES == 32


def test_who_does_not_profile_is_served_by_the_plain_entry() -> None:
    """Before and after, by the address that calls go to."""
    f = mo.compile(lambda x: x * 2 + 1)
    x = mo.ones(100)
    f(x)
    plain = driver.native().entry
    assert f.entry == plain
    with mo.profile():
        assert f.entry != plain and f.entry == driver.native().entry
        made = mo.compile(lambda x: x * 3)
        made(x)
        assert made.entry == f.entry
    assert f.entry == made.entry == plain == driver.native().entry
    assert driver.born is None


def test_the_twin_gives_the_same_bits(rng: np.random.Generator) -> None:
    """Products, reductions, loops, co-scheduled steps, host steps."""
    x = mo.asarray(rng.random((96, 96)).astype("f4"), copy=True)
    functions = [lambda x: mo.softmax(x @ x, axis=-1), lambda x: mo.sum(x, axis=0), mo.linalg.eigvals,
                 lambda x: mo.fori_loop(0, 5, lambda i, y: mo.tanh(y @ x), x),
                 lambda x: [mo.exp(x[i:i + 7]) @ mo.sin(x[i:i + 3]).mT for i in range(0, 60, 10)]]
    for function in functions:
        f = mo.compile(function)
        plain = [np.array(part.numpy()) for part in mo.tree.leaves(f(x))]
        with mo.profile():
            timed = [np.array(part.numpy()) for part in mo.tree.leaves(f(x))]
        for one, other in zip(plain, timed, strict=True):
            assert one.tobytes() == other.tobytes()


def test_faults_come_back_through_the_twin() -> None:
    f = mo.compile(lambda x, i: mo.take(x, i))
    x = mo.ones(10)
    f(x, mo.asarray([1, 2]))
    with mo.profile() as p, pytest.raises(mo.errors.IndexFault if hasattr(mo.errors, "IndexFault") else IndexError):
        f(x, mo.asarray([1, 20])).numpy()
    assert p.trace.wall_s > 0


# -- rings -------------------------------------------------------------------------------------------------------------
def fill(rings: Rings, number: int, count: int, first: int = 0) -> None:
    """What native code does: events, then the head."""
    rings.table[RecorderField.TAKEN] = max(int(rings.table[RecorderField.TAKEN]), number + 1)
    ring = rings._memory[number]
    for i in range(first, first + count):
        place = 8 + 4 * (i % rings.ring_events)
        ring[place:place + 4] = i, i + 1, 1000 + i, int(Kind.RUN)
        ring[0] = i + 1


def test_rings_are_emptied_in_order() -> None:
    rings = Rings(2, 8)
    fill(rings, 0, 3)
    fill(rings, 1, 2)
    assert [batch.events[:, 0].tolist() for batch in rings.drain()] == [[0, 1, 2], [0, 1]]
    assert rings.drain() == []
    fill(rings, 0, 5, first=3)
    (batch,) = rings.drain()
    assert batch.events[:, 0].tolist() == [3, 4, 5, 6, 7] and rings.lost == 0


def test_a_ring_that_was_written_over_counts_what_is_lost() -> None:
    """The slot being written is not trusted either."""
    rings = Rings(1, 8)
    fill(rings, 0, 20)
    (batch,) = rings.drain()
    assert batch.events[:, 0].tolist() == [13, 14, 15, 16, 17, 18, 19]
    assert rings.lost == 13


def test_threads_have_rings_of_their_own() -> None:
    """Several threads call compiled functions at once; every call is counted once."""
    f = mo.compile(lambda x: mo.tanh(x) + 1)
    x = mo.ones(50)
    f(x)
    with mo.profile() as p:
        together = threading.Barrier(4)

        def work() -> None:
            for _ in range(50):
                f(x)
            together.wait()  # the number of a thread that is gone may be given again

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(row.calls for row in p.trace.ops if "tanh" in row.name) == 200
    assert len({event.thread for event in p.trace.events if event.kind == "run"}) == 4


def test_ticks_become_nanoseconds() -> None:
    at = converter(Calibration(1000, 5000), Calibration(3000, 9000))
    assert at(1000) == 0 and at(3000) == 4000 and at(np.array([2000])).tolist() == [2000]
    assert isinstance(Batch(1, np.zeros((0, 4))), tuple)


def test_a_dropped_function_does_not_disturb() -> None:
    """Its program is held until its events are read."""
    with mo.profile() as p:
        for _ in range(3):
            mo.compile(lambda x: mo.sqrt(x) * 7)(mo.ones(33))
    assert sum(row.calls for row in p.trace.ops if "sqrt" in row.name) == 3
    assert len(entries.live) >= 0
