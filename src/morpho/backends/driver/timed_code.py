"""The timed twin of the driver: its functions with time stamps around them, compiled only while somebody profiles.

The twin is the plain driver's text with four functions renamed and a wrapper put in front of each; the plain text knows
nothing of it. An event is `EVENT_BYTES` long: first and last time stamp, what ran (the address of its table or kernel),
and a word with its kind and a number. Every thread writes to a ring of its own, so nothing is locked; who reads behind
the writer finds out by the ring's head how many events were lost.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from morpho.backends.code.compiler.code import stored_text
from morpho.backends.code.native import declare, module, native
from morpho.backends.code.typed import NULL, Address, Global, Words, atomic_store, atomic_update, i32, i64, local
from morpho.backends.driver.abi import Distances, ProgramField, StepField, TaskField
from morpho.backends.driver.driver import FUNCTIONS, driver_text

TIMED_FUNCTIONS = (*FUNCTIONS, "now", "set_recorder")
EVENT_WORDS = 4
EVENT_BYTES = 8 * EVENT_WORDS
KIND_BITS = 8  # of an event's last word; the number stands above them


class Kind(IntEnum):
    """Kind of an event; the comment says what its pointer and its number are."""

    RUN = 1  # a program's table; the first of its numbers that follow from dynamic sizes, at this call
    STEP = 2  # the row of a step; its rows x columns at this call
    LAUNCH = 3  # the row of the first of several co-scheduled steps; how many
    WORK = 4  # the address of a kernel that a thread works on with others; the thread's number


class RecorderField(IntEnum):
    """The table that the twin finds its rings by."""

    GET = 0  # pthread_getspecific and pthread_setspecific, and the key of a thread's ring
    SET = 1
    KEY = 2
    RINGS = 3  # how many there are
    TAKEN = 4  # how many have a thread
    RING_TABLE = 5
    RING_WORDS = 6
    MASK = 7  # events of a ring, less one
    LOST = 8  # events of threads that found no ring
    CLOCK = 9  # clock_gettime, where the processor's counter cannot be read
    SELF = 10  # pthread_self
    SIZE = 11


class RingField(IntEnum):
    """The head of a ring; events follow."""

    HEAD = 0  # events written so far
    THREAD = 1  # pthread_self of the writer
    LAST = 2  # its last time stamp: where a step of a program begins, which saves it one
    EVENTS = 8


WRAPPED = "run", "run_step", "run_launch", "work_on"
MARK = "; the timed twin\n"
MONOTONIC = int(getattr(time, "CLOCK_MONOTONIC", 1))

recorder = Global("recorder", Words)
run_plain = declare("run_plain", Callable[[Words, Words, Words, Address], i64])
run_step_plain = declare("run_step_plain", Callable[[Words, Words, Words, Address, Words, Words], i32])
run_launch_plain = declare("run_launch_plain", Callable[[Words, Words, Words, Address, Words], i64])
work_on_plain = declare("work_on_plain", Callable[[Words, Words, i64], None])
read_counter = declare("llvm.readcyclecounter", Callable[[], i64])
now = declare("now", Callable[[], i64])


@native("now", inline=True)
def ticks() -> i64:
    """The processor's steady counter."""
    return i64(read_counter())


@native("now")
def nanoseconds() -> i64:
    """The system's clock, where the counter cannot be read in user mode."""
    table: Words = recorder[0]
    clock: Callable[[i32, Words], i32] = table[RecorderField.CLOCK]
    time_of_day = local(i64, 2)
    clock(MONOTONIC, time_of_day)
    return i64(time_of_day[0] * 1_000_000_000 + time_of_day[1])


@native()
def set_recorder(table: Words) -> None:
    atomic_store(recorder, table)


@native("ring", inline=False)
def find_ring() -> Words:
    """Return this thread's ring, which its first event takes; null where none is left."""
    table: Words = recorder[0]
    get: Callable[[i32], Words] = table[RecorderField.GET]
    key = i32(table[RecorderField.KEY])
    known: Words = get(key)
    if known:
        return known
    rings: Words = table[RecorderField.RING_TABLE]
    own: Callable[[], i64] = table[RecorderField.SELF]
    put: Callable[[i32, Words], i32] = table[RecorderField.SET]
    number = atomic_update("add", table + RecorderField.TAKEN, 1, "seq_cst")
    if number >= table[RecorderField.RINGS]:
        atomic_update("add", table + RecorderField.LOST, 1, "monotonic")
        nothing: Words = NULL
        return nothing
    ring = Words(rings + number * table[RecorderField.RING_WORDS])
    ring[RingField.THREAD] = own()
    put(key, ring)
    return ring


@native(inline=False)
def record(ring: Words, first: i64, subject: Words, tag: i64) -> None:
    """Write one event, which ends now."""
    last = now()
    table: Words = recorder[0]
    ring[RingField.LAST] = last
    head = ring[RingField.HEAD]
    event = ring + (head & table[RecorderField.MASK]) * EVENT_WORDS + RingField.EVENTS
    event[0], event[1], event[2], event[3] = first, last, subject, tag
    atomic_store(ring + RingField.HEAD, head + 1)


@native(inline=False)
def run(program: Words, slots: Words, values: Words, scratch: Address) -> i64:
    ring = find_ring()
    if not ring:
        return i64(run_plain(program, slots, values, scratch))
    moving: Words = program[ProgramField.MOVING_TABLE]
    number = values[moving[0]]
    first = now()
    ring[RingField.LAST] = first
    status = i64(run_plain(program, slots, values, scratch))
    record(ring, first, program, number << KIND_BITS | Kind.RUN)
    return status


@native(inline=False)
def run_step(step: Words, slots: Words, values: Words, scratch: Address, pool: Words, spent: Words) -> i32:
    """A step begins where the one before it ended."""
    ring = find_ring()
    if not ring:
        return i32(run_step_plain(step, slots, values, scratch, pool, spent))
    number = values[step[StepField.ROWS]] * values[step[StepField.COLUMNS]]
    first = ring[RingField.LAST]
    status = i32(run_step_plain(step, slots, values, scratch, pool, spent))
    record(ring, first, step, number << KIND_BITS | Kind.STEP)
    return status


@native(inline=False)
def run_launch(step: Words, slots: Words, values: Words, scratch: Address, pool: Words) -> i64:
    ring = find_ring()
    if not ring:
        return i64(run_launch_plain(step, slots, values, scratch, pool))
    number = step[StepField.TOGETHER]
    first = ring[RingField.LAST]
    status = i64(run_launch_plain(step, slots, values, scratch, pool))
    record(ring, first, step, number << KIND_BITS | Kind.LAUNCH)
    return status


@native(inline=False)
def work_on(pool: Words, task: Words, thread: i64) -> None:
    ring = find_ring()
    if not ring:
        work_on_plain(pool, task, thread)
        return
    kernel: Words = task[TaskField.FUNCTION]
    first = now()
    ring[RingField.LAST] = first
    work_on_plain(pool, task, thread)
    record(ring, first, kernel, thread << KIND_BITS | Kind.WORK)


def timed_text(at: Distances, architecture: str, pauses: bool = False) -> str:
    """The twin's module."""
    text = driver_text(at, pauses, architecture)
    for name in WRAPPED:
        text, count = re.subn(rf"^define (\w+) @{name}\(", rf"define \1 @{name}_plain(", text, flags=re.MULTILINE)
        assert count == 1, f"the driver has {count} functions {name}"
    return f"{text}\n{MARK}{stored_text(f'timed twin {architecture}', lambda: _twin(architecture))}"


def _twin(architecture: str) -> str:
    """The wrappers and what they call; the text of the driver has the plain functions, and the counter's declaration
    where it reads that itself."""
    there: list[Any] = [run_plain, run_step_plain, run_launch_plain, work_on_plain]
    clock = module(ticks if architecture == "x86_64" else nanoseconds, elsewhere=[recorder, read_counter])
    return clock + module(run, run_step, run_launch, work_on, record, find_ring, set_recorder, elsewhere=[*there, now])


def plain_text(timed: str) -> str:
    """A twin's text without what makes it one: the plain driver's."""
    text = timed[:timed.index("\n" + MARK)]
    for name in WRAPPED:
        text = text.replace(f"@{name}_plain(", f"@{name}(")
    return text
