"""The timed twin of the driver: its functions with time stamps around them, compiled only while somebody profiles.

The twin is the plain driver's text with four functions renamed and a wrapper put in front of each; the plain text knows
nothing of it. An event is `EVENT_BYTES` long: first and last time stamp, what ran (the address of its table or kernel),
and a word with its kind and a number. Every thread writes to a ring of its own, so nothing is locked; who reads behind
the writer finds out by the ring's head how many events were lost.
"""

from __future__ import annotations

import re
from enum import IntEnum

from morpho.backends.driver.abi import Distances, ProgramField, StepField, TaskField
from morpho.backends.driver.driver import FUNCTIONS, driver_text

TIMED_FUNCTIONS = (*FUNCTIONS, "now", "set_recorder")
EVENT_WORDS = 4
EVENT_BYTES = 8 * EVENT_WORDS
KIND_BITS = 8  # of an event's last word; the number stands above them


class Kind(IntEnum):
    """What an event is about; the comment says what its pointer and its number are."""

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


WRAPPED = {  # result, arguments, the first of them whose address is recorded, the number's text, the kind
    "run": ("i64", ("ptr %program", "ptr %slots", "ptr %values", "ptr %scratch"), Kind.RUN),
    "run_step": ("i32", ("ptr %step", "ptr %slots", "ptr %values", "ptr %scratch", "ptr %pool", "ptr %spent"),
                 Kind.STEP),
    "run_launch": ("i64", ("ptr %step", "ptr %slots", "ptr %values", "ptr %scratch", "ptr %pool"), Kind.LAUNCH),
    "work_on": ("void", ("ptr %pool", "ptr %task", "i64 %thread"), Kind.WORK),
}


def timed_text(at: Distances, architecture: str, pauses: bool = False) -> str:
    """The twin's module."""
    text = driver_text(at, pauses, architecture)
    for name in WRAPPED:
        text, count = re.subn(rf"^define (\w+) @{name}\(", rf"define \1 @{name}_plain(", text, flags=re.MULTILINE)
        assert count == 1, f"the driver has {count} functions {name}"
    now = "call i64 @llvm.readcyclecounter()" if architecture == "x86_64" else "call i64 @now()"
    added = "\n".join([*(_wrapper(name) for name in WRAPPED), _ring(), _record(), _now(architecture), _set_recorder()])
    return f"{text}\n{added.replace('NOW', now)}"


def plain_text(timed: str) -> str:
    """A twin's text without what makes it one: the plain driver's."""
    text = timed[:timed.index("\n" + MARK)]
    for name in WRAPPED:
        text = text.replace(f"@{name}_plain(", f"@{name}(")
    return text


MARK = "; the timed twin\n"


def _wrapper(name: str) -> str:
    """A function that calls the plain one between two time stamps. A step begins where the one before it ended."""
    result, arguments, kind = WRAPPED[name]
    given = ", ".join(arguments)
    called = f"call {result} @{name}_plain({given})"
    call, back = (f"  {called}", "  ret void") if result == "void" else (f"  %result = {called}",
                                                                        f"  ret {result} %result")
    bare = called if result == "void" else f"%alone = {called}"
    end = back.replace("%result", "%alone")
    begin = _load("first", "%ring", RingField.LAST) if kind in (Kind.STEP, Kind.LAUNCH) else [
        "  %first = NOW", f"  %last_place = getelementptr i64, ptr %ring, i64 {int(RingField.LAST)}",
        "  store i64 %first, ptr %last_place, align 8"]
    lines = [f"define {result} @{name}({given}) nounwind noinline {{", "entry:", "  %ring = call ptr @ring()",
             "  %none = icmp eq ptr %ring, null", "  br i1 %none, label %bare, label %timed", "bare:", f"  {bare}", end,
             "timed:", *_described(kind), *begin, call, f"  %tagged = or i64 %shifted, {int(kind)}",
             "  call void @record(ptr %ring, i64 %first, ptr %what, i64 %tagged)", back, "}\n"]
    return (MARK if name == next(iter(WRAPPED)) else "") + "\n".join(lines)


def _described(kind: Kind) -> list[str]:
    """`%what` and `%shifted`: the pointer of an event, and its number above the bits of the kind."""
    shift = f"  %shifted = shl i64 %number, {KIND_BITS}"
    if kind is Kind.RUN:
        return [*_load("moving", "%program", ProgramField.MOVING_TABLE, "ptr"), *_load("at", "%moving", 0),
                *_load("number", "%values", "%at"), "  %what = getelementptr i8, ptr %program, i64 0", shift]
    if kind is Kind.LAUNCH:
        return [*_load("number", "%step", StepField.TOGETHER), "  %what = getelementptr i8, ptr %step, i64 0", shift]
    if kind is Kind.WORK:
        return [*_load("what", "%task", TaskField.FUNCTION, "ptr"), f"  %shifted = shl i64 %thread, {KIND_BITS}"]
    lines = ["  %what = getelementptr i8, ptr %step, i64 0"]
    for field in (StepField.ROWS, StepField.COLUMNS):
        name = field.name.lower()
        lines += [*_load(f"{name}_at", "%step", field), *_load(name, "%values", f"%{name}_at")]
    return [*lines, "  %number = mul i64 %rows, %columns", shift]


def _load(name: str, table: str, index: int | str, kind: str = "i64") -> list[str]:
    number = index if isinstance(index, str) else int(index)
    return [f"  %{name}_place = getelementptr i64, ptr {table}, i64 {number}",
            f"  %{name} = load {kind}, ptr %{name}_place, align 8"]


def _ring() -> str:
    """ring(): this thread's ring, which its first event takes; NULL where there is none left."""
    fields = "\n".join([*_load("get", "%recorder", RecorderField.GET, "ptr"),
                        *_load("key", "%recorder", RecorderField.KEY)])
    taking = "\n".join(line for name, field, kind in (
        ("rings", RecorderField.RINGS, "i64"), ("table", RecorderField.RING_TABLE, "ptr"),
        ("words", RecorderField.RING_WORDS, "i64"), ("set", RecorderField.SET, "ptr"),
        ("self", RecorderField.SELF, "ptr")) for line in _load(name, "%recorder", field, kind))
    return f"""@recorder = internal global ptr null, align 8
define ptr @ring() nounwind noinline {{
entry:
  %recorder = load ptr, ptr @recorder, align 8
{fields}
  %key32 = trunc i64 %key to i32
  %known = call ptr %get(i32 %key32)
  %unknown = icmp eq ptr %known, null
  br i1 %unknown, label %take, label %found
found:
  ret ptr %known
take:
{taking}
  %taken_place = getelementptr i64, ptr %recorder, i64 {int(RecorderField.TAKEN)}
  %number = atomicrmw add ptr %taken_place, i64 1 seq_cst
  %there = icmp slt i64 %number, %rings
  br i1 %there, label %have, label %lost
lost:
  %lost_place = getelementptr i64, ptr %recorder, i64 {int(RecorderField.LOST)}
  %before = atomicrmw add ptr %lost_place, i64 1 monotonic
  ret ptr null
have:
  %distance = mul i64 %number, %words
  %new = getelementptr i64, ptr %table, i64 %distance
  %own = call i64 %self()
  %thread_place = getelementptr i64, ptr %new, i64 {int(RingField.THREAD)}
  store i64 %own, ptr %thread_place, align 8
  %ignored = call i32 %set(i32 %key32, ptr %new)
  ret ptr %new
}}
"""


def _record() -> str:
    """record(ring, first, what, tagged): one event, which ends now."""
    stores = "\n".join(f"  %place{i} = getelementptr i64, ptr %event, i64 {i}\n  store {value}, ptr %place{i}, align 8"
                       for i, value in enumerate(("i64 %first", "i64 %last", "ptr %what", "i64 %tagged")))
    return f"""define void @record(ptr %ring, i64 %first, ptr %what, i64 %tagged) nounwind noinline {{
entry:
  %last = NOW
  %recorder = load ptr, ptr @recorder, align 8
{chr(10).join(_load("mask", "%recorder", RecorderField.MASK))}
  %last_place = getelementptr i64, ptr %ring, i64 {int(RingField.LAST)}
  store i64 %last, ptr %last_place, align 8
  %head_place = getelementptr i64, ptr %ring, i64 {int(RingField.HEAD)}
  %head = load i64, ptr %head_place, align 8
  %index = and i64 %head, %mask
  %word = mul i64 %index, {EVENT_WORDS}
  %behind = add i64 %word, {int(RingField.EVENTS)}
  %event = getelementptr i64, ptr %ring, i64 %behind
{stores}
  %next = add i64 %head, 1
  store atomic i64 %next, ptr %head_place release, align 8
  ret void
}}
"""


def _now(architecture: str) -> str:
    """now(): the processor's steady counter where it can be read in user mode, else nanoseconds of the system."""
    if architecture == "x86_64":
        return ("define i64 @now() nounwind {\nentry:\n"
                "  %ticks = call i64 @llvm.readcyclecounter()\n  ret i64 %ticks\n}\n")
    clock = "\n".join(_load("clock", "%recorder", RecorderField.CLOCK, "ptr"))
    return f"""define i64 @now() nounwind {{
entry:
  %time = alloca [2 x i64], align 8
  %recorder = load ptr, ptr @recorder, align 8
{clock}
  %ignored = call i32 %clock(i32 {MONOTONIC}, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest_place = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest_place, align 8
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}}
"""


def _clock_number() -> int:
    import time

    return int(getattr(time, "CLOCK_MONOTONIC", 1))


MONOTONIC = _clock_number()


def _set_recorder() -> str:
    return ("define void @set_recorder(ptr %table) nounwind {\nentry:\n"
            "  store atomic ptr %table, ptr @recorder release, align 8\n  ret void\n}\n")
