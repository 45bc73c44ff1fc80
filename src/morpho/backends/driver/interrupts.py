"""Interrupts: Ctrl-C, and whatever else a signal handler of Python raises, while native code runs.

Python runs its signal handlers in the main thread, between its own instructions, of which native code has none. So
long-running native code polls: `run_step` after so much work, `work_on` between pieces, kernels that loop by themselves
every so many turns, more of them while polls come too soon one after the other. A poll of the main thread reads the
clock. When `PERIOD` has passed it takes the interpreter lock
and asks CPython to run the handlers of the signals that have arrived. If one raises, the exception is put aside, the
run ends with the status `FAULT_INTERRUPT`, and Python raises the exception at the user's line.

Taking the lock may be slow where other Python threads hold it, so the next poll that takes it comes 256 times as much
later: polling costs less than 0.4 %. Other threads that work for the main one see `ABORT`, and leave too; they cannot
tell whose work they do, so they obey it only while no other thread has a program running (`OTHERS`).
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from enum import IntEnum

from morpho.backends.code.compiler import llvm
from morpho.backends.code.emit import FAULT_INTERRUPT, INTERRUPTS, POLL_LATER, POLL_SOONER, Value
from morpho.backends.driver.abi import Function

PERIOD = {"x86_64": 1 << 25}  # ticks of the processor's counter, 8 to 20 ms; nanoseconds elsewhere
PERIOD_NS = 10_000_000
CALM_SHIFT = 8  # log2 of how much longer than a poll it takes until the next one
POLL_WORK = 1 << 20  # operations of steps between the first two polls of a program
LONG_PIECE = 1 << 20  # operations of a piece of a divided step, after which a poll comes
STEP_WORK = 64  # operations that running a step counts for besides its own
CUT_WORK = 1 << 28  # operations of a step above which one thread runs it in pieces
PIECE_SHIFT = 27  # log2 of the operations of such a piece
HOST_WORK = 1 << 41  # operations that a host step counts for: a poll comes before each


class InterruptField(IntEnum):
    """The table that driver and kernels find under the symbol `INTERRUPTS`."""

    POLL = 0  # the driver's poll, for kernels
    MAIN = 1  # the main thread's pthread identity
    NEXT = 2  # time of the next poll that takes the interpreter lock
    CALM = 3  # time before which not even a forced poll takes it
    ABORT = 4  # 1 while the main thread leaves an interrupted program
    OTHERS = 5  # programs of other threads that run without the interpreter lock
    SHIELD = 6  # 1 while the main thread's program updates states in place, and must end
    ERROR = 7  # three words: the exception that a handler raised
    SELF = 10  # pthread_self
    HOLDS = 11  # PyGILState_Check
    ENSURE = 12  # PyGILState_Ensure
    RELEASE = 13  # PyGILState_Release
    CHECK = 14  # PyErr_CheckSignals
    FETCH = 15  # PyErr_Fetch
    CLOCK = 16  # clock_gettime
    LAST = 17  # time of the main thread's last poll
    SIZE = 18


table = (ctypes.c_int64 * int(InterruptField.SIZE))()
TABLE = f"@{INTERRUPTS}"


def _fill() -> None:
    library = ctypes.CDLL(None)
    for field, function in ((InterruptField.SELF, library.pthread_self), (InterruptField.CLOCK, library.clock_gettime),
                            (InterruptField.HOLDS, ctypes.pythonapi.PyGILState_Check),
                            (InterruptField.ENSURE, ctypes.pythonapi.PyGILState_Ensure),
                            (InterruptField.RELEASE, ctypes.pythonapi.PyGILState_Release),
                            (InterruptField.CHECK, ctypes.pythonapi.PyErr_CheckSignals),
                            (InterruptField.FETCH, ctypes.pythonapi.PyErr_Fetch)):
        table[field] = ctypes.cast(function, ctypes.c_void_p).value or 0
    _begin_process()


def _begin_process() -> None:
    """The thread that forks is the child's main thread; what others did is over."""
    table[InterruptField.MAIN] = threading.main_thread().ident or 0
    for field in (InterruptField.ABORT, InterruptField.OTHERS, InterruptField.SHIELD):
        table[field] = 0


_fill()
llvm.symbols[INTERRUPTS] = ctypes.addressof(table)
os.register_at_fork(after_in_child=_begin_process)
_restore = ctypes.pythonapi.PyErr_Restore
_restore.argtypes, _restore.restype = (ctypes.c_void_p,) * 3, None


def raised() -> BaseException:
    """The exception that ended the main thread's run."""
    at = int(InterruptField.ERROR)
    words = table[at:at + 3]
    table[at:at + 3] = [0, 0, 0]
    if words[0]:
        try:
            _restore(*words)
        except BaseException as error:
            return error
    return KeyboardInterrupt()  # ctypes reported the exception itself, at the first instruction of a host step


# -- native code -------------------------------------------------------------------------------------------------------
def _call(f: Function, field: InterruptField, arguments: str = "", result: str = "i32") -> str:
    """A call of a function of the table; the name of its result."""
    name = "%" + f.e.fresh("r")
    f.e.line(f"{name} = call {result} {f.pointer(TABLE, field)}({arguments})")
    return name


def _now(f: Function, architecture: str) -> Value:
    """The time, in ticks or nanoseconds."""
    e = f.e
    if architecture == "x86_64":
        return e.assign("call i64 @llvm.readcyclecounter()", "i64", 1)
    place = f.alloca(2)
    _call(f, InterruptField.CLOCK, f"i32 {int(getattr(time, 'CLOCK_MONOTONIC', 1))}, ptr {place}")
    return f.word(place, 0) * 1_000_000_000 + f.word(place, 1)


def is_main(f: Function) -> Value:
    """Whether the calling thread is Python's main one."""
    own = f.e.assign(f"call i64 {f.pointer(TABLE, InterruptField.SELF)}()", "i64", 1)
    return f.e.icmp("eq", own, f.word(TABLE, InterruptField.MAIN))


def poll(f: Function, architecture: str) -> str:
    """poll(force): `FAULT_INTERRUPT` where the program that this thread works for has to end, else 0, `POLL_LATER` or
    `POLL_SOONER`. With `force` it does not wait until `PERIOD` has passed."""
    e = f.e
    main, other, due, ask, later, wait, aborted, going, nothing = (e.fresh(n) for n in (
        "main", "other", "due", "ask", "later", "wait", "aborted", "going", "nothing"))
    period = PERIOD.get(architecture, PERIOD_NS)
    e.branch_if(is_main(f), main, other)

    e.label(main)
    now = _now(f, architecture)
    forced = e.icmp("ne", f.value("%force"), 0)
    elapsed = now - f.word(TABLE, InterruptField.LAST)
    f.store(now, TABLE, InterruptField.LAST)
    none = e.constant(0, "i32", 1)
    advice = e.select(e.icmp("slt", elapsed, period // 4), none + POLL_LATER,
                      e.select(e.icmp("sgt", elapsed, 2 * period), none + POLL_SOONER, none))
    earliest = e.select(forced, f.word(TABLE, InterruptField.CALM), f.word(TABLE, InterruptField.NEXT))
    e.branch_if(e.icmp("slt", now, earliest), going, due)
    e.label(due)
    held = e.assign(f"call i32 {f.pointer(TABLE, InterruptField.HOLDS)}()", "i32", 1)
    closed = e.icmp("ne", held, 0) | e.icmp("ne", f.word(TABLE, InterruptField.SHIELD), 0)
    e.branch_if(closed, later, ask)
    e.label(later)
    f.store(now + period, TABLE, InterruptField.NEXT)
    e.branch(going)
    e.label(ask)
    state = _call(f, InterruptField.ENSURE)
    wait_time = _now(f, architecture) - now  # not that of the handlers
    found = e.assign(f"call i32 {f.pointer(TABLE, InterruptField.CHECK)}()", "i32", 1)
    with e.when(e.icmp("ne", found, 0)):
        places = ", ".join(f"ptr {f.address(TABLE, InterruptField.ERROR + number)}" for number in range(3))
        e.line(f"call void {f.pointer(TABLE, InterruptField.FETCH)}({places})")
        e.line(f"store atomic i64 1, ptr {f.address(TABLE, InterruptField.ABORT)} seq_cst, align 8")
    e.line(f"call void {f.pointer(TABLE, InterruptField.RELEASE)}(i32 {state})")
    after = _now(f, architecture)
    calm = after + (wait_time << CALM_SHIFT)
    f.store(calm, TABLE, InterruptField.CALM)
    least = after + period
    f.store(e.select(e.icmp("slt", calm, least), least, calm), TABLE, InterruptField.NEXT)
    e.branch_if(e.icmp("ne", found, 0), aborted, going)
    e.label(going)
    e.line(f"ret i32 {advice.name}")

    e.label(other)
    e.branch_if(e.icmp("ne", _atomic(f, InterruptField.ABORT), 0), wait, nothing)
    e.label(wait)
    held = e.assign(f"call i32 {f.pointer(TABLE, InterruptField.HOLDS)}()", "i32", 1)
    own = e.icmp("ne", held, 0) | e.icmp("ne", _atomic(f, InterruptField.OTHERS), 0)
    e.branch_if(own, nothing, aborted)

    e.label(aborted)
    e.line(f"ret i32 {FAULT_INTERRUPT}")
    e.label(nothing)
    e.line("ret i32 0")
    return ("declare i64 @llvm.readcyclecounter()\n" if architecture == "x86_64" else "") + f.text()


def _atomic(f: Function, field: InterruptField) -> Value:
    return f.e.assign(f"load atomic i64, ptr {f.address(TABLE, field)} seq_cst, align 8", "i64", 1)


def run_released(f: Function) -> str:
    """run_released(program, slots, values, scratch): `run`, for callers that gave up the interpreter lock."""
    e = f.e
    main, other = e.fresh("main"), e.fresh("other")
    run = "call i64 @run(ptr %program, ptr %slots, ptr %values, ptr %scratch)"
    e.branch_if(is_main(f), main, other)
    e.label(main)
    shield = f.word(TABLE, InterruptField.SHIELD)
    f.store(0, TABLE, InterruptField.SHIELD)
    status = e.assign(run, "i64", 1)
    f.store(shield, TABLE, InterruptField.SHIELD)
    e.line(f"store atomic i64 0, ptr {f.address(TABLE, InterruptField.ABORT)} seq_cst, align 8")
    e.line(f"ret i64 {status.name}")
    e.label(other)
    others = f.address(TABLE, InterruptField.OTHERS)
    e.assign(f"atomicrmw add ptr {others}, i64 1 seq_cst", "i64", 1)
    status = e.assign(run, "i64", 1)
    e.assign(f"atomicrmw sub ptr {others}, i64 1 seq_cst", "i64", 1)
    e.line(f"ret i64 {status.name}")
    return f.text()


def shield(f: Function) -> str:
    """shield(): from here on the main thread's program has to end."""
    with f.e.when(is_main(f)):
        f.store(1, TABLE, InterruptField.SHIELD)
    f.e.line("ret void")
    return f.text()
