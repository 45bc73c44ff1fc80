"""Execution of a program: steps in order, each kernel on the caller, divided among threads, or co-scheduled."""

from __future__ import annotations

from morpho.backends.code.emit import FAULT_INTERRUPT, Value
from morpho.backends.driver.abi import (
    LINE_WORDS,
    ControlKind,
    Function,
    LaunchField,
    LaunchStep,
    PoolField,
    ProgramField,
    Range,
    StepField,
    TaskField,
)
from morpho.backends.driver.interrupts import CUT_WORK, HOST_WORK, LONG_PIECE, PIECE_SHIFT, POLL_WORK, STEP_WORK
from morpho.backends.driver.thread_code import FEW_THREADS
from morpho.program.co_schedule import CHUNKS_PER_THREAD

WORTH_WAKING = 4  # times the least work that is shared: more than a few threads are woken for it


def _fill_places(f: Function, step: str, places: str) -> None:
    """The addresses of a step's operands."""
    e, table = f.e, f.pointer(step, StepField.PLACE_TABLE)
    with e.loop(0, f.word(step, StepField.PLACES)) as loop:
        slot, which = f.word(table, loop.index * 2), f.word(table, loop.index * 2 + 1)
        base = f.pointer("%slots", slot)
        address = e.offset(base, "i8", f.word("%values", which))
        e.line(f"store ptr {address}, ptr {e.offset(places, 'ptr', loop.index)}")  # addresses may have 32 bits


def set_memory(f: Function) -> str:
    """set_memory(step, slots, values): a slot lies where a host step has said, from here on."""
    found = f.alloca(1)
    _fill_places(f, "%step", found)
    f.store_pointer(f.pointer(f.pointer(found, 0), 0), "%slots", f.word("%step", StepField.ROWS))
    f.e.line("ret void")
    return f.text()


def _new_task(f: Function, items: Value, threads: Value, alternating: Value) -> str:
    """A task of so many pieces, an equal share of which is every thread's to begin with: what it read and wrote before
    is then often in its own cache. Shares are pieces side by side, or, where pieces differ in size, every n-th one."""
    e = f.e
    task = f.alloca(threads * LINE_WORDS + int(TaskField.RANGES))
    f.store(threads, task, TaskField.THREADS)
    f.store(e.select(alternating, threads, 1), task, TaskField.STEP)
    f.store(0, task, TaskField.STATUS)
    with e.loop(0, threads, carried=[e.constant(0, "i64", 1)]) as loop:
        line = f.address(task, loop.index * LINE_WORDS + int(TaskField.RANGES))
        end = e.instruction("udiv", items * (loop.index + 1), threads)
        f.store(e.select(alternating, loop.index, loop.values[0]), line, Range.NEXT)
        f.store(e.select(alternating, items, end), line, Range.END)
        loop.next(end)
    return task


def _poll_now_and_then(f: Function, work: Value) -> None:
    """Poll before a step, once the steps since the last poll have done much work; always before one of the host."""
    e = f.e
    spent = f.word("%spent", 0) + work + STEP_WORK
    f.store(spent, "%spent", 0)
    due, interrupted, on = e.fresh("due"), e.fresh("interrupted"), e.fresh("on")
    e.branch_if(e.icmp("sgt", spent, f.word("%spent", 1)), due, on)
    e.label(due)
    f.store(0, "%spent", 0)
    force = e.convert("zext", e.icmp("eq", work, HOST_WORK), "i64")
    status = e.assign(f"call i32 @poll(i64 {force.name})", "i32", 1)
    e.adapt(f.address("%spent", 1), POLL_WORK, status)
    e.branch_if(e.icmp("ne", status & FAULT_INTERRUPT, 0), interrupted, on)
    e.label(interrupted)
    e.line(f"ret i32 {FAULT_INTERRUPT}")
    e.label(on)


def run_step(f: Function) -> str:
    """run_step(step, slots, values, scratch, pool, spent): one kernel, alone or shared; returns its status. `spent` is
    the work of the steps since the last poll, and the most of it before the next one."""
    e = f.e
    places = f.alloca(f.word("%step", StepField.PLACES))
    _fill_places(f, "%step", places)
    function = f.pointer("%step", StepField.FUNCTION)
    numbers = f.address("%values", f.word("%step", StepField.VALUES))
    rows = f.word("%values", f.word("%step", StepField.ROWS))
    columns = f.word("%values", f.word("%step", StepField.COLUMNS))
    zero = e.constant(0, "i64", 1)
    stride = ((columns + 63) & -64) * f.word("%step", StepField.SCRATCH) + f.word("%step", StepField.SCRATCH_FIXED)
    alone, shared = e.fresh("alone"), e.fresh("shared")
    threads = e.assign("load i64, ptr %threads_at, align 8", "i64", 1)
    work = rows * columns * f.word("%step", StepField.WORK)
    _poll_now_and_then(f, work)
    by_columns = e.icmp("ne", f.word("%step", StepField.SPLITS), 0) & e.icmp("slt", rows, threads * CHUNKS_PER_THREAD)
    extent = e.select(by_columns, columns, rows)
    least = f.word("%step", StepField.LEAST)
    enough = e.icmp("sgt", work, least) & e.icmp("sgt", threads, 1) & e.icmp("sgt", extent, 1)
    share = f.word("%step", StepField.SHARE)
    fitting = e.instruction("udiv", work, e.select(e.icmp("eq", share, 0), 1, share))
    fitting = e.select(e.icmp("slt", fitting, 2), 2, fitting)
    threads = e.select(e.icmp("slt", threads, fitting), threads, fitting)
    many = e.icmp("sgt", threads, FEW_THREADS)
    # Waking threads takes longer than a little work: that is shared only while they are awake.
    few_asleep, more_asleep = (e.assign(f"load atomic i64, ptr %{name}_at monotonic, align 8", "i64", 1)
                               for name in ("sleepers", "more_sleepers"))
    awake = e.icmp("eq", few_asleep + e.select(many, more_asleep, 0), 0)
    worth = e.select(many, least * WORTH_WAKING, f.word("%step", StepField.WAKING))
    enough = enough & (awake | e.icmp("sgt", work, worth))
    cut = e.icmp("sgt", work, CUT_WORK) & e.icmp("ne", f.word("%step", StepField.CUTS), 0) & e.icmp("sgt", extent, 1)
    e.branch_if(enough | cut, shared, alone)
    e.label(alone)
    status = f.call_kernel(function, places, numbers, (zero, rows), (zero, columns), "%scratch")
    lost, fine = e.fresh("lost"), e.fresh("fine")
    is_host = e.icmp("eq", work, HOST_WORK)
    e.branch_if(is_host & e.icmp("eq", status, 0) & e.icmp("ne", f.word(places, 0), 0), lost, fine)
    e.label(lost)  # its function was not even begun: ctypes reported what a signal handler raised, and went on
    e.line(f"ret i32 {FAULT_INTERRUPT}")
    e.label(fine)
    e.line(f"ret i32 {status.name}")
    e.label(shared)
    threads = e.select(enough, threads, 1)
    small = work.shift_right(PIECE_SHIFT) + 1  # so that one thread polls in between
    pieces = e.select(enough, threads * f.word("%step", StepField.PIECES), small)
    grain = e.instruction("udiv", extent + pieces - 1, pieces)
    grain = e.select(by_columns, (grain + 1023) & -1024, grain)
    items = e.instruction("udiv", extent + grain - 1, grain)
    task = _new_task(f, items, threads, e.icmp("ne", f.word("%step", StepField.ALTERNATES), 0))
    f.store(e.convert("zext", e.icmp("sgt", e.instruction("udiv", work, items), LONG_PIECE), "i64"), task,
            TaskField.POLLS)
    f.store_pointer(function, task, TaskField.FUNCTION)
    f.store_pointer(places, task, TaskField.PLACES)
    f.store_pointer(numbers, task, TaskField.VALUES)
    f.store_pointer("%scratch", task, TaskField.SCRATCH)
    for field, value in ((TaskField.ROWS, rows), (TaskField.COLUMNS, columns), (TaskField.GRAIN, grain),
                         (TaskField.BY_COLUMNS, e.convert("zext", by_columns, "i64")),
                         (TaskField.SCRATCH_STRIDE, stride)):
        f.store(value, task, field)
    for several in e.both(enough):
        e.line(f"call void @share(ptr %pool, ptr {task})" if several else
               f"call void @work_on(ptr %pool, ptr {task}, i64 0)")
    e.line(f"ret i32 {e.convert('trunc', f.word(task, TaskField.STATUS), 'i32').name}")
    return f.text(*(f"%{name}_at = getelementptr i64, ptr %pool, i64 {int(field)}" for name, field in (
        ("threads", PoolField.THREADS), ("sleepers", PoolField.SLEEPERS), ("more_sleepers", PoolField.MORE_SLEEPERS))))


def launch_piece(f: Function) -> str:
    """launch_piece(rows, pieces, first, last, ...): pieces of several steps, called like a kernel over its rows."""
    e = f.e
    with e.loop(f.value("%first"), f.value("%last")) as loop:
        piece = f.address("%pieces", loop.index * int(LaunchField.PIECE))
        row = f.address("%rows", f.word(piece, 0) * int(LaunchStep.SIZE))
        first_row, last_row, first_column, last_column = (f.word(piece, i) for i in range(1, int(LaunchField.PIECE)))
        status = f.call_kernel(f.pointer(row, LaunchStep.FUNCTION), f.pointer(row, LaunchStep.PLACES),
                               f.pointer(row, LaunchStep.VALUES), (first_row, last_row), (first_column, last_column),
                               "%scratch")
        wide = e.convert("zext", status, "i64")
        e.assign(f"atomicrmw or ptr {f.address(row, LaunchStep.STATUS)}, i64 {wide.name} monotonic", "i64", 1)
    e.line("ret i32 0")
    return f.text()


def run_launch(f: Function) -> str:
    """run_launch(step, slots, values, scratch, pool): several steps as one launch; 0, or 2^32 * how many of them come
    before the first that failed + its status."""
    e = f.e
    count, table = f.word("%step", StepField.TOGETHER), f.pointer("%step", StepField.LAUNCH_TABLE)
    rows, places = f.alloca(count * int(LaunchStep.SIZE)), f.alloca(f.word(table, LaunchField.PLACES) + 1)
    zero = e.constant(0, "i64", 1)
    with e.loop(0, count, carried=[zero]) as loop:
        step = f.address("%step", loop.index * int(StepField.SIZE))
        row = f.address(rows, loop.index * int(LaunchStep.SIZE))
        own = e.offset(places, "ptr", loop.values[0])
        _fill_places(f, step, own)
        f.store_pointer(f.pointer(step, StepField.FUNCTION), row, LaunchStep.FUNCTION)
        f.store_pointer(own, row, LaunchStep.PLACES)
        f.store_pointer(f.address("%values", f.word(step, StepField.VALUES)), row, LaunchStep.VALUES)
        f.store(0, row, LaunchStep.STATUS)
        loop.next(loop.values[0] + f.word(step, StepField.PLACES))
    items = f.word(table, LaunchField.PIECES)
    task = _new_task(f, items, f.word("%pool", PoolField.THREADS), e.constant(True, "i1", 1))
    f.store_pointer("@launch_piece", task, TaskField.FUNCTION)
    f.store(0, task, TaskField.POLLS)
    f.store_pointer(rows, task, TaskField.PLACES)
    f.store_pointer(f.address(table, LaunchField.HEAD), task, TaskField.VALUES)
    f.store_pointer("%scratch", task, TaskField.SCRATCH)
    for field, value in ((TaskField.ROWS, items), (TaskField.COLUMNS, zero), (TaskField.GRAIN, zero + 1),
                         (TaskField.BY_COLUMNS, zero),
                         (TaskField.SCRATCH_STRIDE, f.word(table, LaunchField.SCRATCH_STRIDE))):
        f.store(value, task, field)
    e.line(f"call void @share(ptr %pool, ptr {task})")
    return_failed(f, zero, f.word(task, TaskField.STATUS))
    with e.loop(0, count) as loop:
        return_failed(f, loop.index, f.word(rows, loop.index * int(LaunchStep.SIZE) + int(LaunchStep.STATUS)))
    e.line("ret i64 0")
    return f.text()


def return_failed(f: Function, number: Value, status: Value) -> None:
    """Leave the function with 2^32 * number + status, unless the status is 0."""
    e = f.e
    failed, fine = e.fresh("failed"), e.fresh("fine")
    e.branch_if(e.icmp("ne", status, 0), failed, fine)
    e.label(failed)
    e.line(f"ret i64 {((number << 32) + status).name}")
    e.label(fine)


def evaluate(f: Function) -> str:
    """evaluate(program, symbols, values): every number of a program with dynamic dimensions, most of them constants."""
    e = f.e
    constants = f.pointer("%program", ProgramField.VALUE_TABLE)
    with e.loop(0, f.word("%program", ProgramField.VALUES)) as values:
        f.store(f.word(constants, values.index), "%values", values.index)
    moving, terms = f.pointer("%program", ProgramField.MOVING_TABLE), f.pointer("%program", ProgramField.TERM_TABLE)
    with e.loop(0, f.word("%program", ProgramField.MOVING)) as values:
        number, first, last = (f.word(moving, values.index * 3 + i) for i in range(3))
        with e.loop(first, last, carried=[e.constant(0, "i64", 1)]) as loop:
            product = f.word(terms, loop.index * 5)
            for position in range(1, 5):
                product = product * f.word("%symbols", f.word(terms, loop.index * 5 + position))
            loop.next(loop.values[0] + product)
        f.store(loop.values[0], "%values", number)
    e.line("ret void")
    return f.text()


def run(f: Function) -> str:
    """run(program, slots, values, scratch): every step in order; 0, or 2^32 * (step + 1) + its status."""
    e = f.e
    status_at = f.alloca(1)
    plain, controlled = e.fresh("plain"), e.fresh("controlled")
    e.branch_if(e.icmp("eq", f.word("%program", ProgramField.CONTROLS), 0), plain, controlled)
    e.label(controlled)
    found = e.assign("tail call i64 @run_control(ptr %program, ptr %slots, ptr %values, ptr %scratch)", "i64", 1)
    e.line(f"ret i64 {found.name}")
    e.label(plain)
    steps = f.pointer("%program", ProgramField.STEP_TABLE)
    pool = f.pointer("%program", ProgramField.POOL)
    spent, shielded = f.alloca(2), f.word("%program", ProgramField.SHIELD)
    f.store(0, spent, 0)
    f.store(POLL_WORK, spent, 1)
    with e.loop(0, f.word("%program", ProgramField.STEPS)) as loop:
        with e.when(e.icmp("eq", loop.index, shielded)):
            e.line("call void @shield()")
        step = f.address(steps, loop.index * int(StepField.SIZE))
        together = f.word(step, StepField.TOGETHER)
        alone, more, launch, check, fine, mark, memory = (
            e.fresh(n) for n in ("alone", "more", "launch", "check", "fine", "mark", "memory"))
        given = f"ptr {step}, ptr %slots, ptr %values, ptr %scratch, ptr {pool}"
        e.branch_if(e.icmp("eq", together, 0), alone, more)
        e.label(alone)
        f.store(e.convert("zext", e.assign(f"call i32 @run_step({given}, ptr {spent})", "i32", 1), "i64"), status_at, 0)
        e.branch(check)
        e.label(more)
        e.branch_if(e.icmp("slt", together, 0), mark, launch)
        e.label(mark)
        e.branch_if(e.icmp("eq", together, int(ControlKind.MEMORY)), memory, fine)  # others ran with an earlier one
        e.label(memory)
        e.line(f"call void @set_memory(ptr {step}, ptr %slots, ptr %values)")
        e.branch(fine)
        e.label(launch)
        e.line(f"atomicrmw add ptr {f.address('%program', ProgramField.CO_SCHEDULED)}, i64 1 monotonic")
        f.store(e.assign(f"call i64 @run_launch({given})", "i64", 1), status_at, 0)
        e.branch(check)
        e.label(check)
        return_failed(f, loop.index + 1, f.word(status_at, 0))
        e.branch(fine)
        e.label(fine)
    e.line("ret i64 0")
    return f.text()
