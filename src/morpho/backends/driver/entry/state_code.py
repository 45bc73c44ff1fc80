"""Native entry, states: lock them, check and donate their memory, and bump their versions after the run.

While the interpreter lock is held no other thread runs, so a short program needs no lock of its own: it suffices that
nobody holds a state's lock at that moment. Long programs give up the interpreter lock; they take the states' locks
first, by a Python function, and hand them back at the end.
"""

from __future__ import annotations

from morpho.backends.code.emit import Value
from morpho.backends.driver.abi import ContextField, Distances, Function, RecordField, StateField, StateRow
from morpho.backends.driver.layout import TUPLE_ITEMS


def hold_states(f: Function, context: str, held_at: str, failed: str) -> None:
    """Wait for the states' locks, where the program is a long one. `held_at` gets what holds them, their number and
    their table: the entry may have other ones by the time they are let go."""
    e = f.e
    with e.when(e.icmp("ne", f.word(context, ContextField.HOLD), 0)):
        f.store(f.word(context, ContextField.STATES), held_at, 1)
        f.store_pointer(f.pointer(context, ContextField.STATE_TABLE), held_at, 2)
        hold = f.pointer(context, ContextField.HOLD)
        f.increment(context, hold)  # while this waits, another thread may give the entry other tables
        token = _call(f, context, hold)
        f.decrement(context, hold)
        f.store_pointer(token, held_at, 0)
        f.go_unless(f.is_null(token) ^ True, failed)


def leave_states(f: Function, context: str, held_at: str) -> None:
    """Let the states' locks go, if they are held: by C functions, so that no signal handler runs before all are."""
    e, token = f.e, f.pointer(held_at, 0)
    with e.when(f.is_null(token) ^ True):
        count, table = f.word(held_at, 1), f.pointer(held_at, 2)
        with e.loop(0, count) as loop:
            words = f.pointer(f.address(table, loop.index * int(StateRow.SIZE)), StateRow.WORDS)
            f.store(f.word(words, StateField.HELD) - 1, words, StateField.HELD)
        with e.loop(1, count + 1) as loop:
            f.decrement(context, _call(f, context, f.pointer(e.offset(token, "i8", TUPLE_ITEMS), loop.index)))
        f.decrement(context, token)


def _call(f: Function, context: str, function: str) -> str:
    return f.call_python(context, ContextField.VECTORCALL, f"ptr {function}, ptr null, i64 0, ptr null")


def read_states(f: Function, context: str, states: tuple[Value, str], held_at: str, slots: tuple[str, Value],
                slow: str, at: Distances) -> None:
    """Where the states' values lie and where their new ones go, in slots from a first one on. Nobody may hold a lock
    but this call, and memory is written over only if nothing but its tensor holds it."""
    e = f.e
    mine = e.convert("zext", f.is_null(f.pointer(held_at, 0)) ^ True, "i64")
    with e.loop(0, states[0]) as loop:
        row = f.address(states[1], loop.index * int(StateRow.SIZE))
        f.go_unless(e.icmp("eq", f.word(f.pointer(row, StateRow.WORDS), StateField.HELD), mine), slow)
        record = f.record_of(context, f.pointer(f.pointer(row, StateRow.TENSOR), 0), slow, at)
        f.store_pointer(f.pointer(record, RecordField.ADDRESS), slots[0], slots[1] + loop.index)
        target = f.pointer(row, StateRow.TARGET)
        with e.when(f.is_null(target) ^ True):
            tensor = f.pointer(target, 0)
            record = f.record_of(context, tensor, slow, at)
            f.check_writable(tensor, record, slow, at)
            f.store_pointer(f.pointer(record, RecordField.ADDRESS), slots[0], f.word(row, StateRow.RESULT))


def replace_states(f: Function, states: tuple[Value, str], status: Value) -> None:
    """After a run without fault: a new version of every state written. One written to other memory changes tensors with
    it; the old one is what a later call writes to, once nobody holds it."""
    e = f.e
    count = e.select(e.icmp("eq", status, 0), states[0], 0)
    with e.loop(0, count) as loop:
        row = f.address(states[1], loop.index * int(StateRow.SIZE))
        own, target = f.pointer(row, StateRow.TENSOR), f.pointer(row, StateRow.TARGET)
        with e.when(f.is_null(target) ^ True):
            old, new = f.pointer(own, 0), f.pointer(target, 0)
            f.store_pointer(new, own, 0)
            f.store_pointer(old, target, 0)
            words = f.pointer(row, StateRow.WORDS)
            f.store(f.word(words, StateField.VERSION) + 1, words, StateField.VERSION)
