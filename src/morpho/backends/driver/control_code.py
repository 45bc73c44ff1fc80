"""The native side of loops and branches: programs whose steps do not run in the order they stand in.

A loop of a program costs a few nanoseconds a turn besides its steps. Memory that changes from turn to turn (a slice of
the values a scan goes over, the two buffers that a carried value alternates between) is a slot of its own, a cursor,
whose address is written before each turn; kernels do not know of it.
"""

from __future__ import annotations

from morpho.backends.code.emit import Value
from morpho.backends.driver.abi import (
    CarriedField,
    ControlField,
    ControlKind,
    Function,
    MovingField,
    ProgramField,
    StepField,
)
from morpho.backends.driver.interrupts import POLL_WORK
from morpho.backends.driver.run_code import return_failed


def _place(f: Function, slot: Value, which: Value) -> str:
    """The address of a slot's memory and so many bytes behind it."""
    return f.e.offset(f.pointer("%slots", slot), "i8", f.word("%values", which))


def set_turn(f: Function) -> str:
    """set_turn(table, slots, values, turn): the cursors, and the turn's number where somebody reads it."""
    e, turn = f.e, f.value("%turn")
    rows = f.pointer("%table", ControlField.MOVING_TABLE)
    with e.loop(0, f.word("%table", ControlField.MOVING)) as loop:
        row = f.address(rows, loop.index * int(MovingField.SIZE))
        first = _place(f, f.word(row, MovingField.BASE), f.word(row, MovingField.OFFSET))
        stride = f.word("%values", f.word(row, MovingField.STRIDE))
        f.store_pointer(e.offset(first, "i8", stride * turn), "%slots", f.word(row, MovingField.SLOT))
    slot = f.word("%table", ControlField.VALUE_SLOT)
    told, done = e.fresh("told"), e.fresh("done")
    e.branch_if(e.icmp("sge", slot, 0), told, done)
    e.label(told)
    last = f.word("%values", f.word("%table", ControlField.TURNS)) - 1
    number = e.select(e.icmp("ne", f.word("%table", ControlField.BACKWARDS), 0), last - turn, turn)
    f.store(number, _place(f, slot, f.word("%table", ControlField.VALUE_OFFSET)), 0)
    e.branch(done)
    e.label(done)
    e.line("ret void")
    return f.text()


def settle(f: Function) -> str:
    """settle(table, slots, values): carried values to where what follows the loop reads them, if they are elsewhere."""
    e = f.e
    rows = f.pointer("%table", ControlField.CARRIED_TABLE)
    with e.loop(0, f.word("%table", ControlField.CARRIED)) as loop:
        row = f.address(rows, loop.index * int(CarriedField.SIZE))
        home = _place(f, f.word(row, CarriedField.HOME), f.word(row, CarriedField.HOME_OFFSET))
        found = f.pointer("%slots", f.word(row, CarriedField.READ))
        nbytes = f.word("%values", f.word(row, CarriedField.BYTES))
        count = e.select(f.same(home, found), e.constant(0, "i64", 1), nbytes)
        with e.loop(0, count) as each:
            e.store(e.load(e.offset(found, "i8", each.index), "i8", 1), e.offset(home, "i8", each.index))
    e.line("ret void")
    return f.text()


def _exchange(f: Function, table: str) -> None:
    """Exchange read and written memory: what was written is read in the next iteration."""
    rows = f.pointer(table, ControlField.CARRIED_TABLE)
    with f.e.loop(0, f.word(table, ControlField.CARRIED)) as loop:
        row = f.address(rows, loop.index * int(CarriedField.SIZE))
        read, written = f.word(row, CarriedField.READ), f.word(row, CarriedField.WRITTEN)
        one, other = f.pointer("%slots", read), f.pointer("%slots", written)
        f.store_pointer(other, "%slots", read)
        f.store_pointer(one, "%slots", written)


def _begin(f: Function, table: str) -> None:
    """The two buffers of every carried value in the order of the first turn."""
    rows = f.pointer(table, ControlField.CARRIED_TABLE)
    with f.e.loop(0, f.word(table, ControlField.CARRIED)) as loop:
        row = f.address(rows, loop.index * int(CarriedField.SIZE))
        for field, slot, offset in ((CarriedField.READ, CarriedField.FIRST, CarriedField.FIRST_OFFSET),
                                    (CarriedField.WRITTEN, CarriedField.SECOND, CarriedField.SECOND_OFFSET)):
            f.store_pointer(_place(f, f.word(row, slot), f.word(row, offset)), "%slots", f.word(row, field))


def control(f: Function) -> str:
    """control(row, slots, values, counters): how many steps further the program goes on."""
    e = f.e
    table = f.pointer("%row", StepField.FUNCTION)
    kind = f.word("%row", StepField.TOGETHER)
    length, turns_at = f.word(table, ControlField.LENGTH), f.word(table, ControlField.TURNS)
    counter = f.address("%counters", f.word(table, ControlField.COUNTER))
    labels = {each: e.fresh(each.name.lower()) for each in ControlKind if each is not ControlKind.MEMORY}
    e.line(f"switch i64 {kind.name}, label %{labels[ControlKind.JOIN]} [" + " ".join(
        f"i64 {int(each)}, label %{labels[each]}" for each in labels if each is not ControlKind.JOIN) + "]")

    def turn_or_leave(number: Value, back: Value) -> None:
        """The next turn, unless there were enough."""
        known, ask, on, leave = (e.fresh(name) for name in ("known", "ask", "on", "leave"))
        e.branch_if(e.icmp("sge", turns_at, 0), ask, on)
        e.label(ask)
        turns = f.word("%values", turns_at)
        e.branch_if(e.icmp("slt", number, turns), on, leave)
        e.label(on)
        e.line(f"call void @set_turn(ptr {table}, ptr %slots, ptr %values, i64 {number.name})")
        e.line(f"ret i64 {back.name}")
        e.label(leave)
        e.line(f"call void @settle(ptr {table}, ptr %slots, ptr %values)")

    e.label(labels[ControlKind.LOOP])
    f.store(0, counter, 0)
    _begin(f, table)
    turn_or_leave(e.constant(0, "i64", 1), e.constant(1, "i64", 1))
    e.line(f"ret i64 {(length + 1).name}")

    e.label(labels[ControlKind.END])
    number = f.word(counter, 0) + 1
    f.store(number, counter, 0)
    _exchange(f, table)
    turn_or_leave(number, e.constant(1, "i64", 1) - length)
    e.line("ret i64 1")

    e.label(labels[ControlKind.TEST])
    at = _place(f, f.word(table, ControlField.VALUE_SLOT), f.word(table, ControlField.VALUE_OFFSET))
    on, leave = e.fresh("on"), e.fresh("leave")
    e.branch_if(e.icmp("ne", e.load(at, "i8", 1), 0), on, leave)
    e.label(on)
    e.line("ret i64 1")
    e.label(leave)
    e.line(f"call void @settle(ptr {table}, ptr %slots, ptr %values)")
    e.line(f"ret i64 {length.name}")

    e.label(labels[ControlKind.BRANCH])
    at = _place(f, f.word(table, ControlField.VALUE_SLOT), f.word(table, ControlField.VALUE_OFFSET))
    which = f.word(at, 0)
    which = e.select(e.icmp("slt", which, 0), e.constant(0, "i64", 1), which)
    last = f.word(table, ControlField.CASES) - 1
    which = e.select(e.icmp("sgt", which, last), last, which)
    e.line(f"ret i64 {f.word(f.pointer(table, ControlField.CASE_TABLE), which).name}")

    e.label(labels[ControlKind.SIZE])  # all numbers anew, with what was counted
    at = _place(f, f.word(table, ControlField.VALUE_SLOT), f.word(table, ControlField.VALUE_OFFSET))
    symbols, places = f.word(table, ControlField.SYMBOLS), f.pointer(table, ControlField.SYMBOL_TABLE)
    bound = f.alloca(symbols + 1)
    f.store(1, bound, 0)
    with e.loop(0, symbols) as loop:
        f.store(f.word("%values", f.word(places, loop.index)), bound, loop.index + 1)
    f.store(f.word(at, 0), bound, f.word(table, ControlField.SYMBOL))
    e.line(f"call void @evaluate(ptr {f.pointer(table, ControlField.PROGRAM)}, ptr {bound}, ptr %values)")
    e.line("ret i64 1")

    e.label(labels[ControlKind.CASE])  # the end of the case before
    e.line(f"ret i64 {length.name}")
    e.label(labels[ControlKind.JOIN])
    e.line("ret i64 1")
    return f.text()


def run_control(f: Function) -> str:
    """run_control(program, slots, values, scratch): as `run`, for a program with loops or branches."""
    e = f.e
    steps, pool = f.pointer("%program", ProgramField.STEP_TABLE), f.pointer("%program", ProgramField.POOL)
    fixed = f.word("%program", ProgramField.SLOTS)
    own = f.alloca(fixed + f.word("%program", ProgramField.CURSORS) + 1)
    spent, shielded = f.alloca(2), f.word("%program", ProgramField.SHIELD)
    f.store(0, spent, 0)
    f.store(POLL_WORK, spent, 1)
    counters, delta_at = f.alloca(f.word("%program", ProgramField.CONTROLS) + 1), f.alloca(1)
    with e.loop(0, fixed) as loop:
        f.store_pointer(f.pointer("%slots", loop.index), own, loop.index)
    with e.loop(0, f.word("%program", ProgramField.STEPS)) as loop:
        with e.when(e.icmp("eq", loop.index, shielded)):
            e.line("call void @shield()")
        step = f.address(steps, loop.index * int(StepField.SIZE))
        kernel, turn, done, mark, memory = (e.fresh(n) for n in ("kernel", "turn", "done", "mark", "memory"))
        together = f.word(step, StepField.TOGETHER)
        f.store(1, delta_at, 0)
        e.branch_if(e.icmp("sge", together, 0), kernel, mark)
        e.label(mark)
        e.branch_if(e.icmp("eq", together, int(ControlKind.MEMORY)), memory, turn)
        e.label(memory)  # in the caller's table too, for who runs the steps one by one
        for table in ("%slots", own):
            e.line(f"call void @set_memory(ptr {step}, ptr {table}, ptr %values)")
        e.branch(done)
        e.label(turn)
        f.store(e.assign(f"call i64 @control(ptr {step}, ptr {own}, ptr %values, ptr {counters})", "i64", 1),
                delta_at, 0)
        e.branch(done)
        e.label(kernel)
        given = f"ptr {step}, ptr {own}, ptr %values, ptr %scratch, ptr {pool}, ptr {spent}"
        status = e.assign(f"call i32 @run_step({given})", "i32", 1)
        return_failed(f, loop.index + 1, e.convert("zext", status, "i64"))
        e.branch(done)
        e.label(done)
        loop.step = f.word(delta_at, 0)
    e.line("ret i64 0")
    return f.text()
