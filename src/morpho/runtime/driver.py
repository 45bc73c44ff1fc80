"""The native driver: one compiled function that checks a call's arguments and runs a whole program, no Python between.

It is data-driven: a program is a table, so a new compiled function needs no driver of its own. Written once in LLVM
text here, compiled once per machine, kept in the disk cache like any kernel. The tables are arrays of 64-bit words;
the classes below name their fields.
"""

from __future__ import annotations

from morpho.kernels.emit import Value
from morpho.kernels.joint import CHUNKS_PER_THREAD
from morpho.runtime.entry_code import entry, through_python
from morpho.runtime.layout import BYTES_DATA, TUPLE_ITEMS, TUPLE_SIZE, WORD, WRITABLE
from morpho.runtime.output_code import drop_outputs, make_outputs, outputs_as_tuple
from morpho.runtime.state_code import hold_states, leave_states, read_states, replace_states
from morpho.runtime.tables import (
    LONG_WORK,
    ContextField,
    Distances,
    Enabled,
    Function,
    JointField,
    JointRow,
    PoolField,
    ProgramField,
    StepField,
    TaskField,
)
from morpho.runtime.thread_code import thread_functions


def _fill_places(f: Function, step: str, places: str) -> None:
    """The addresses of a step's operands."""
    e, table = f.e, f.pointer(step, StepField.PLACE_TABLE)
    with e.loop(0, f.word(step, StepField.PLACES)) as loop:
        slot, which = f.word(table, loop.index * 2), f.word(table, loop.index * 2 + 1)
        base = f.pointer("%slots", slot)
        f.store_pointer(e.offset(base, "i8", f.word("%values", which)), places, loop.index)


def _run_step(f: Function) -> str:
    """run_step(step, slots, values, scratch, pool): one kernel, alone or shared; returns its status."""
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
    by_columns = e.icmp("ne", f.word("%step", StepField.SPLITS), 0) & e.icmp("slt", rows, threads * CHUNKS_PER_THREAD)
    pieces = threads * f.word("%step", StepField.PIECES)
    extent = e.select(by_columns, columns, rows)
    least = f.word("%step", StepField.LEAST)
    enough = e.icmp("sgt", work, least) & e.icmp("sgt", threads, 1) & e.icmp("sgt", extent, 1)
    e.branch_if(enough, shared, alone)
    e.label(alone)
    status = f.call_kernel(function, places, numbers, (zero, rows), (zero, columns), "%scratch")
    e.line(f"ret i32 {status.name}")
    e.label(shared)
    grain = e.instruction("udiv", extent + pieces - 1, pieces)
    grain = e.select(by_columns, (grain + 1023) & -1024, grain)
    items = e.instruction("udiv", extent + grain - 1, grain)
    task = f.alloca(TaskField.SIZE)
    f.store_pointer(function, task, TaskField.FUNCTION)
    f.store_pointer(places, task, TaskField.PLACES)
    f.store_pointer(numbers, task, TaskField.VALUES)
    f.store_pointer("%scratch", task, TaskField.SCRATCH)
    for field, value in ((TaskField.ROWS, rows), (TaskField.COLUMNS, columns), (TaskField.GRAIN, grain),
                         (TaskField.ITEMS, items), (TaskField.BY_COLUMNS, e.convert("zext", by_columns, "i64")),
                         (TaskField.SCRATCH_STRIDE, stride), (TaskField.NEXT, zero), (TaskField.STATUS, zero)):
        f.store(value, task, field)
    e.line(f"call void @share(ptr %pool, ptr {task})")
    e.line(f"ret i32 {e.convert('trunc', f.word(task, TaskField.STATUS), 'i32').name}")
    head = f.head.replace("entry:\n", "entry:\n  %threads_at = getelementptr i64, ptr %pool, i64 "
                          f"{int(PoolField.THREADS)}\n")
    return head + e.text() + "\n}\n"


def _joint_piece(f: Function) -> str:
    """joint_piece(rows, pieces, first, last, ...): pieces of several steps, called like a kernel over its rows."""
    e = f.e
    with e.loop(f.value("%first"), f.value("%last")) as loop:
        piece = f.address("%pieces", loop.index * int(JointField.PIECE))
        row = f.address("%rows", f.word(piece, 0) * int(JointRow.SIZE))
        first_row, last_row, first_column, last_column = (f.word(piece, i) for i in range(1, int(JointField.PIECE)))
        status = f.call_kernel(f.pointer(row, JointRow.FUNCTION), f.pointer(row, JointRow.PLACES),
                               f.pointer(row, JointRow.VALUES), (first_row, last_row), (first_column, last_column),
                               "%scratch")
        wide = e.convert("zext", status, "i64")
        e.assign(f"atomicrmw or ptr {f.address(row, JointRow.STATUS)}, i64 {wide.name} monotonic", "i64", 1)
    e.line("ret i32 0")
    return f.text()


def _run_joint(f: Function) -> str:
    """run_joint(step, slots, values, scratch, pool): several steps as one launch; 0, or 2^32 * how many of them come
    before the first that failed + its status."""
    e = f.e
    count, table = f.word("%step", StepField.TOGETHER), f.pointer("%step", StepField.JOINT_TABLE)
    rows, places = f.alloca(count * int(JointRow.SIZE)), f.alloca(f.word(table, JointField.PLACES) + 1)
    zero = e.constant(0, "i64", 1)
    with e.loop(0, count, carried=[zero]) as loop:
        step = f.address("%step", loop.index * int(StepField.SIZE))
        row = f.address(rows, loop.index * int(JointRow.SIZE))
        own = f.address(places, loop.values[0])
        _fill_places(f, step, own)
        f.store_pointer(f.pointer(step, StepField.FUNCTION), row, JointRow.FUNCTION)
        f.store_pointer(own, row, JointRow.PLACES)
        f.store_pointer(f.address("%values", f.word(step, StepField.VALUES)), row, JointRow.VALUES)
        f.store(0, row, JointRow.STATUS)
        loop.next(loop.values[0] + f.word(step, StepField.PLACES))
    items, task = f.word(table, JointField.PIECES), f.alloca(TaskField.SIZE)
    f.store_pointer("@joint_piece", task, TaskField.FUNCTION)
    f.store_pointer(rows, task, TaskField.PLACES)
    f.store_pointer(f.address(table, JointField.HEAD), task, TaskField.VALUES)
    f.store_pointer("%scratch", task, TaskField.SCRATCH)
    for field, value in ((TaskField.ROWS, items), (TaskField.COLUMNS, zero), (TaskField.GRAIN, zero + 1),
                         (TaskField.ITEMS, items), (TaskField.BY_COLUMNS, zero), (TaskField.NEXT, zero),
                         (TaskField.STATUS, zero),
                         (TaskField.SCRATCH_STRIDE, f.word(table, JointField.SCRATCH_STRIDE))):
        f.store(value, task, field)
    e.line(f"call void @share(ptr %pool, ptr {task})")
    with e.loop(0, count) as loop:
        _return_failed(f, loop.index, f.word(rows, loop.index * int(JointRow.SIZE) + int(JointRow.STATUS)))
    e.line("ret i64 0")
    return f.text()


def _return_failed(f: Function, number: Value, status: Value) -> None:
    """Leave the function with 2^32 * number + status, unless the status is 0."""
    e = f.e
    failed, fine = e.fresh("failed"), e.fresh("fine")
    e.branch_if(e.icmp("ne", status, 0), failed, fine)
    e.label(failed)
    e.line(f"ret i64 {((number << 32) + status).name}")
    e.label(fine)


def _evaluate(f: Function) -> str:
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


def _run(f: Function) -> str:
    """run(program, slots, values, scratch): every step in order; 0, or 2^32 * (step + 1) + its status."""
    e = f.e
    steps = f.pointer("%program", ProgramField.STEP_TABLE)
    pool = f.pointer("%program", ProgramField.POOL)
    status_at = f.alloca(1)
    with e.loop(0, f.word("%program", ProgramField.STEPS)) as loop:
        step = f.address(steps, loop.index * int(StepField.SIZE))
        together = f.word(step, StepField.TOGETHER)
        alone, more, joint, check, fine = (e.fresh(n) for n in ("alone", "more", "joint", "check", "fine"))
        given = f"ptr {step}, ptr %slots, ptr %values, ptr %scratch, ptr {pool}"
        e.branch_if(e.icmp("eq", together, 0), alone, more)
        e.label(alone)
        f.store(e.convert("zext", e.assign(f"call i32 @run_step({given})", "i32", 1), "i64"), status_at, 0)
        e.branch(check)
        e.label(more)
        e.branch_if(e.icmp("slt", together, 0), fine, joint)  # it ran with an earlier one
        e.label(joint)
        e.line(f"atomicrmw add ptr {f.address('%program', ProgramField.JOINT)}, i64 1 monotonic")
        f.store(e.assign(f"call i64 @run_joint({given})", "i64", 1), status_at, 0)
        e.branch(check)
        e.label(check)
        _return_failed(f, loop.index + 1, f.word(status_at, 0))
        e.branch(fine)
        e.label(fine)
    e.line("ret i64 0")
    return f.text()


def _compare(f: Function, record: str, guards: str, argument: Value, values: str, slow: str) -> None:
    """Every guarded word of a record must be the expected number."""
    e = f.e
    count, first = f.word(guards, argument * 2), f.word(guards, argument * 2 + 1)
    with e.loop(0, count) as loop:
        good = e.icmp("eq", f.word(record, loop.index + 2), f.word(values, first + loop.index))
        following = e.fresh("same")
        e.branch_if(good, following, slow)
        e.label(following)


def _serve(f: Function, at: Distances) -> str:
    """serve(context, tensors, target, args, nargs, kwnames): the tensors among a call's arguments are guarded and the
    program runs; target is out=, or NULL. Calls that it does not serve go to Python with what was given."""
    e = f.e
    slow, context, tensors = "slow", "%context", "%tensors"
    _admit(f, context, slow)
    inputs, outputs = f.word(context, ContextField.INPUTS), f.word(context, ContextField.OUTPUTS)
    f.go_unless(e.icmp("eq", f.word(context, ContextField.BUSY), 0), slow)
    program = f.pointer(context, ContextField.PROGRAM)
    slots = f.alloca(f.word(context, ContextField.SLOTS))
    records = f.alloca(inputs + 1)
    _read_inputs(f, context, (inputs, tensors), records, slots, slow, at)
    _check_fixed(f, context, slow, at)
    values = _numbers(f, context, program, records, slow)
    _compare_inputs(f, context, inputs, records, values, slow)
    room, items_at, made_at, held_at = f.alloca(outputs + 1), f.alloca(1), f.alloca(1), f.alloca(3)
    f.store_pointer(room, items_at, 0)
    f.store(0, made_at, 0)
    f.store_pointer("null", held_at, 0)
    told, fresh, python, targets, check, ready = (e.fresh(n) for n in ("told", "fresh", "python", "targets", "check",
                                                                       "ready"))
    is_told = f.is_null("%target") ^ True
    e.branch_if(is_told, told, fresh)
    e.label(told)
    _take_targets(f, context, outputs, items_at, slow)
    e.branch_if(e.icmp("ne", f.word(context, ContextField.HOLD), 0), python, targets)
    e.label(fresh)
    make_outputs(f, context, (inputs, tensors), (outputs, room), made_at, at)
    e.branch(python)
    e.label(python)
    hold_states(f, context, held_at, "lost")
    # That was Python: other threads may have run, used the arena, or changed the arguments. Look at everything again.
    f.go_unless(e.icmp("ne", f.word(context, ContextField.ENABLED), 0), "undo")
    f.go_unless(f.same(f.pointer(context, ContextField.PROGRAM), program), "undo")
    f.go_unless(e.icmp("eq", f.word(context, ContextField.BUSY), 0), "undo")
    _read_inputs(f, context, (inputs, tensors), records, slots, "undo", at)
    _check_fixed(f, context, "undo", at)
    _compare_inputs(f, context, inputs, records, values, "undo")
    e.branch(targets)
    e.label(targets)
    states = (f.word(context, ContextField.STATES), f.pointer(context, ContextField.STATE_TABLE))
    read_states(f, context, states, held_at, (slots, inputs), "undo", at)
    items, single = f.pointer(items_at, 0), f.word(context, ContextField.SINGLE)
    e.branch_if(is_told, check, ready)
    e.label(check)
    _check_targets(f, context, slots, values, (inputs, states[0], outputs), items, "undo", at)
    e.branch(ready)
    e.label(ready)
    staged = e.icmp("ne", f.word(context, ContextField.STAGED), 0) & is_told
    moves = f.alloca(outputs * 3 + 1)
    _place_outputs(f, context, slots, outputs, items, (moves, staged), at)
    _fixed_inputs(f, context, inputs + states[0], slots)
    f.store_pointer(f.pointer(context, ContextField.ARENA), slots, f.word(context, ContextField.SLOTS) - 1)
    moved = e.select(staged, outputs, e.constant(0, "i64", 1))
    captured = (f.word(context, ContextField.CAPTURED), f.pointer(context, ContextField.CAPTURED_TABLE))
    nothing, arrange = f.pointer(context, ContextField.NOTHING), f.pointer(context, ContextField.ARRANGE)
    held, free = e.fresh("held"), e.fresh("free")
    e.branch_if(f.is_null(arrange), free, held)
    e.label(held)
    f.increment(context, arrange)  # while the program runs, the tables may be filled for another one
    e.branch(free)
    e.label(free)
    status = _guarded_run(f, context, (program, slots, values), ((inputs, tensors), (outputs, items), captured),
                          at, (moves, moved))
    replace_states(f, states, status)
    leave_states(f, context, held_at)
    _return(f, context, program, status, (single, nothing, arrange), (outputs, room), made_at)
    e.label("undo")
    leave_states(f, context, held_at)
    drop_outputs(f, context, room, made_at)
    e.branch(slow)
    e.label("lost")
    drop_outputs(f, context, room, made_at)
    e.line("ret ptr null")
    e.label(slow)
    through_python(f, context)
    return f.text()


def _compare_inputs(f: Function, context: str, inputs: Value, records: str, values: str, slow: str) -> None:
    guards = f.pointer(context, ContextField.GUARD_TABLE)
    with f.e.loop(0, inputs) as loop:
        _compare(f, f.pointer(records, loop.index), guards, loop.index, values, slow)


def _admit(f: Function, context: str, slow: str) -> None:
    """Whether the entry serves this caller. Only while a block of settings is open somewhere are its own looked
    up: another thread or task may have chosen the code."""
    e = f.e
    enabled, found_at = f.word(context, ContextField.ENABLED), f.alloca(1)
    admitted, other, failed, known = (e.fresh(n) for n in ("admitted", "other", "failed", "known"))
    e.branch_if(e.icmp("eq", enabled, int(Enabled.ALL)), admitted, other)
    e.label(other)
    f.go_unless(e.icmp("eq", enabled, int(Enabled.MATCHING)), slow)
    status = e.assign(f"call i32 {f.pointer(context, ContextField.GET_SETTINGS)}("
                      f"ptr {f.pointer(context, ContextField.SETTINGS_VARIABLE)}, ptr null, ptr {found_at})", "i32", 1)
    e.branch_if(e.icmp("slt", status, 0), failed, known)
    e.label(failed)
    e.line("ret ptr null")
    e.label(known)
    found = f.pointer(found_at, 0)
    e.line(f"call void {f.pointer(context, ContextField.DECREMENT)}(ptr {found})")  # its variable holds it
    f.go_unless(f.same(found, f.pointer(context, ContextField.SETTINGS)), slow)
    e.branch(admitted)
    e.label(admitted)


def _read_inputs(f: Function, context: str, inputs: tuple[Value, str], records: str, slots: str, slow: str,
                 at: Distances) -> None:
    """The records and addresses of the arguments."""
    e = f.e
    with e.loop(0, inputs[0]) as loop:
        record = f.record_of(context, f.pointer(inputs[1], loop.index), slow, at)
        f.store_pointer(record, records, loop.index)
        f.store_pointer(f.pointer(record, 0), slots, loop.index)


def _check_fixed(f: Function, context: str, slow: str, at: Distances) -> None:
    """Tensors of the surroundings must be what they were; one that got other elements has another record."""
    e, table = f.e, f.pointer(context, ContextField.FIXED_TABLE)
    with e.loop(0, f.word(context, ContextField.FIXED)) as loop:
        tensor, record = f.pointer(table, loop.index * 3 + 1), f.pointer(table, loop.index * 3 + 2)
        held, free, join = e.fresh("held"), e.fresh("free"), e.fresh("join")
        e.branch_if(f.same(tensor, "null"), free, held)
        e.label(held)
        f.go_unless(f.same(e.load_pointer(e.offset(tensor, "i8", at.record)), record), slow)
        e.branch(join)
        e.label(free)
        e.branch(join)
        e.label(join)


def _fixed_inputs(f: Function, context: str, first: Value, slots: str) -> None:
    """The addresses of inputs that are no arguments."""
    e, table = f.e, f.pointer(context, ContextField.FIXED_TABLE)
    with e.loop(0, f.word(context, ContextField.FIXED)) as loop:
        f.store_pointer(f.pointer(table, loop.index * 3), slots, first + loop.index)


def _take_targets(f: Function, context: str, outputs: Value, items_at: str, slow: str) -> None:
    """out= is one tensor, or a tuple of as many as there are outputs."""
    e, target, cell = f.e, "%target", f.alloca(1)
    f.go_unless(e.icmp("ne", outputs, 0), slow)
    one, many, taken = e.fresh("one"), e.fresh("many"), e.fresh("taken")
    e.branch_if(e.icmp("ne", f.word(context, ContextField.SINGLE), 0), one, many)
    e.label(one)
    f.store_pointer(target, cell, 0)
    f.store_pointer(cell, items_at, 0)
    e.branch(taken)
    e.label(many)
    f.go_unless(f.same(e.load_pointer(e.offset(target, "i8", WORD)), f.pointer(context, ContextField.TUPLE_TYPE)), slow)
    f.go_unless(e.icmp("eq", e.load(e.offset(target, "i8", TUPLE_SIZE), "i64", 1), outputs), slow)
    f.store_pointer(e.offset(target, "i8", TUPLE_ITEMS), items_at, 0)
    e.branch(taken)
    e.label(taken)


def _check_targets(f: Function, context: str, slots: str, values: str, counts: tuple[Value, Value, Value], items: str,
                   slow: str, at: Distances) -> None:
    """Each target must fit, be writable, be held by its tensor alone, and lie apart from inputs and other targets."""
    e = f.e
    (inputs, states, outputs), guards = counts, f.pointer(context, ContextField.GUARD_TABLE)
    free = e.icmp("ne", f.word(context, ContextField.OVERLAP), 0)
    with e.loop(0, outputs) as loop:
        tensor = f.pointer(items, loop.index)
        record = f.record_of(context, tensor, slow, at)
        _compare(f, record, guards, inputs + loop.index, values, slow)
        f.go_unless(e.icmp("ne", f.word(record, 1) & WRITABLE, 0), slow)
        storage = e.load_pointer(e.offset(tensor, "i8", at.storage))
        f.go_unless(e.icmp("eq", e.load(storage, "i32", 1), 1), slow)
        out = f.pointer(record, 0)
        with e.loop(0, inputs) as others:
            f.go_unless((f.same(f.pointer(slots, others.index), out) ^ True) | free, slow)
        with e.loop(inputs, inputs + states) as others:
            f.go_unless(f.same(f.pointer(slots, others.index), out) ^ True, slow)
        with e.loop(0, loop.index) as others:
            f.go_unless(f.same(f.pointer(items, others.index), tensor) ^ True, slow)
        fixed = f.pointer(context, ContextField.FIXED_TABLE)
        with e.loop(0, f.word(context, ContextField.FIXED)) as others:  # nor may it be a tensor of the surroundings
            f.go_unless(f.same(f.pointer(fixed, others.index * 3), out) ^ True, slow)


def _place_outputs(f: Function, context: str, slots: str, outputs: Value, items: str, staging: tuple[str, Value],
                   at: Distances) -> None:
    """Where the outputs are written: in their tensors, or, where a fault could leave the caller's memory half written,
    in memory of the function's own, with what is to be moved afterwards (bytes, from, to)."""
    e = f.e
    moves, staged = staging
    table = f.pointer(context, ContextField.OUTPUT_TABLE)
    with e.loop(0, outputs) as loop:
        record = e.offset(e.load_pointer(e.offset(f.pointer(items, loop.index), "i8", at.record)), "i8", BYTES_DATA)
        target, slot = f.pointer(record, 0), f.word(table, loop.index * 3)
        f.store_pointer(target, slots, slot)
        stage, following = e.fresh("stage"), e.fresh("following")
        e.branch_if(staged, stage, following)
        e.label(stage)
        room = f.pointer(table, loop.index * 3 + 1)
        needed = e.assign(f"icmp ne ptr {room}, null", "i1", 1)
        rank = f.word(record, 2).shift_right(8)
        with e.loop(0, rank, carried=[f.word(table, loop.index * 3 + 2)]) as sizes:
            sizes.next(sizes.values[0] * f.word(record, sizes.index + 3))
        f.store(e.select(needed, sizes.values[0], e.constant(0, "i64", 1)), moves, loop.index * 3)
        f.store_pointer(room, moves, loop.index * 3 + 1)
        f.store_pointer(target, moves, loop.index * 3 + 2)
        chosen = "%" + e.fresh("p")
        e.line(f"{chosen} = select i1 {needed.name}, ptr {room}, ptr {target}")
        f.store_pointer(chosen, slots, slot)
        e.branch(following)
        e.label(following)


def _deliver(f: Function) -> str:
    """deliver(moves, count, status, copy): staged outputs to their targets, if nothing faulted."""
    e = f.e
    fine, over = e.fresh("fine"), e.fresh("over")
    e.branch_if(e.icmp("eq", f.value("%status"), 0), fine, over)
    e.label(fine)
    with e.loop(0, f.value("%count")) as loop:
        nbytes = f.word("%moves", loop.index * 3)
        source, target = f.pointer("%moves", loop.index * 3 + 1), f.pointer("%moves", loop.index * 3 + 2)
        e.line(f"call ptr %copy(ptr {target}, ptr {source}, i64 {nbytes.name})")
    e.branch(over)
    e.label(over)
    e.line("ret void")
    return f.text()


def _return(f: Function, context: str, program: str, status: Value, kind: tuple[Value, str, str],
            made: tuple[Value, str], made_at: str) -> None:
    """The targets given, the outputs made as a tuple, the only one of them, or nothing; or the fault. `kind` says
    whether there is a single one, what nothing is, and how Python arranges several; a reference to that is held."""
    e = f.e
    names = ("fault", "fine", "told", "fresh", "none", "some", "single", "many")
    fault, fine, told, fresh, none, some, single, many = (e.fresh(n) for n in names)
    single_one, nothing, arrange = kind
    e.branch_if(e.icmp("eq", status, 0), fine, fault)
    e.label(fine)
    e.branch_if(f.is_null("%target"), fresh, told)
    e.label(told)
    f.increment(context, "%target")
    _arranged(f, context, arrange, "%target")
    e.label(fresh)
    e.branch_if(e.icmp("eq", made[0], 0), none, some)
    e.label(none)
    f.increment(context, nothing)
    e.line(f"ret ptr {nothing}")
    e.label(some)
    e.branch_if(e.icmp("ne", single_one, 0), single, many)
    e.label(single)
    e.line(f"ret ptr {f.pointer(made[1], 0)}")
    e.label(many)
    _arranged(f, context, arrange, outputs_as_tuple(f, context, made, made_at))
    e.label(fault)
    f.decrement(context, arrange)
    drop_outputs(f, context, made[1], made_at)
    _raise(f, context, status, program)


def _arranged(f: Function, context: str, arrange: str, results: str) -> None:
    """Return a tuple of outputs, or what Python makes of it: lists, dicts, tuples of those."""
    e, arguments = f.e, f.alloca(1)
    plain, other = e.fresh("plain"), e.fresh("other")
    e.branch_if(f.is_null(arrange), plain, other)
    e.label(plain)
    e.line(f"ret ptr {results}")
    e.label(other)
    f.store_pointer(results, arguments, 0)
    made = f.call_python(context, ContextField.VECTORCALL, f"ptr {arrange}, ptr {arguments}, i64 1, ptr null")
    f.decrement(context, results)
    f.decrement(context, arrange)
    e.line(f"ret ptr {made}")


def _raise(f: Function, context: str, status: Value, program: str) -> None:
    """Tell Python the status and the program, as arguments: another thread may fault at the same time."""
    e = f.e
    number, arguments = f.pointer(context, ContextField.NUMBER), f.alloca(2)
    address = "%" + e.fresh("n")
    e.line(f"{address} = ptrtoint ptr {program} to i64")
    for position, value in enumerate((status.name, address)):
        made = "%" + e.fresh("p")
        e.line(f"{made} = call ptr {number}(i64 {value})")
        failed, fine = e.fresh("failed"), e.fresh("fine")
        e.branch_if(e.assign(f"icmp eq ptr {made}, null", "i1", 1), failed, fine)
        e.label(failed)
        e.line("ret ptr null")
        e.label(fine)
        f.store_pointer(made, arguments, position)
    raised = "%" + e.fresh("p")
    e.line(f"{raised} = call ptr {f.pointer(context, ContextField.VECTORCALL)}("
           f"ptr {f.pointer(context, ContextField.FAULT)}, ptr {arguments}, i64 2, ptr null)")
    for position in range(2):
        e.line(f"call void {f.pointer(context, ContextField.DECREMENT)}(ptr {f.pointer(arguments, position)})")
    e.line(f"ret ptr {raised}")


def _numbers(f: Function, context: str, program: str, records: str, slow: str) -> str:
    """The program's numbers: a table, or computed from the arguments' shapes where dimensions are dynamic."""
    e = f.e
    symbols = f.word(program, ProgramField.SYMBOLS)
    fixed, dynamic, ready = e.fresh("fixed"), e.fresh("dynamic"), e.fresh("ready")
    table = f.pointer(program, ProgramField.VALUE_TABLE)
    e.branch_if(e.icmp("eq", symbols, 0), fixed, dynamic)
    e.label(dynamic)
    bound = f.alloca(symbols + 1)
    f.store(1, bound, 0)
    bindings = f.pointer(context, ContextField.BINDINGS)
    with e.loop(0, symbols) as loop:
        argument, word, least, most = (f.word(bindings, loop.index * 4 + i) for i in range(4))
        record = f.pointer(records, argument)
        rank = f.word(record, 2).shift_right(8)
        f.go_unless(e.icmp("slt", word - 3, rank), slow)
        size = f.word(record, word)
        f.go_unless(e.icmp("sge", size, least) & e.icmp("sle", size, most), slow)
        f.store(size, bound, loop.index + 1)
    computed = f.alloca(f.word(program, ProgramField.VALUES))
    e.line(f"call void @evaluate(ptr {program}, ptr {bound}, ptr {computed})")
    after = e.block
    e.branch(ready)
    e.label(fixed)
    e.branch(ready)
    e.label(ready)
    values = "%" + e.fresh("p")
    e.line(f"{values} = phi ptr [ {computed}, %{after} ], [ {table}, %{fixed} ]")
    return values


def _guarded_run(f: Function, context: str, running: tuple[str, str, str], tensors: tuple[tuple[Value, str], ...],
                 at: Distances, moving: tuple[str, Value]) -> Value:
    """Run, giving up the interpreter lock for long programs; the arena is marked busy and the memory of every tensor
    is held meanwhile: another thread may give a tensor other elements."""
    e = f.e
    program, slots, values = running
    f.store(1, context, ContextField.BUSY)
    f.store(f.word(context, ContextField.CALLS) + 1, context, ContextField.CALLS)
    scratch = f.pointer(context, ContextField.SCRATCH)
    result = f.alloca(1)
    long, short, done = e.fresh("long"), e.fresh("short"), e.fresh("done")
    copy = f.pointer(context, ContextField.COPY)

    def run() -> None:
        status = e.assign(f"call i64 @run(ptr {program}, ptr {slots}, ptr {values}, ptr {scratch})", "i64", 1)
        f.store(status, result, 0)
        e.line(f"call void @deliver(ptr {moving[0]}, i64 {moving[1].name}, i64 {status.name}, ptr {copy})")

    number, ask = f.word(context, ContextField.RELEASES), e.fresh("ask")
    e.branch_if(e.icmp("eq", number, 0), short, ask)
    e.label(ask)
    e.branch_if(e.icmp("sgt", f.word(values, number - 1), LONG_WORK), long, short)
    e.label(short)
    run()
    e.branch(done)
    e.label(long)
    held = [(count, table, f.alloca(count + 1)) for count, table in tensors]
    for count, table, keep in held:
        with e.loop(0, count) as loop:
            storage = e.load_pointer(e.offset(f.pointer(table, loop.index), "i8", at.storage))
            f.store_pointer(storage, keep, loop.index)
            e.line(f"call void {f.pointer(context, ContextField.INCREMENT)}(ptr {storage})")
    saved = "%" + e.fresh("p")
    e.line(f"{saved} = call ptr {f.pointer(context, ContextField.SAVE_THREAD)}()")
    run()
    e.line(f"call void {f.pointer(context, ContextField.RESTORE_THREAD)}(ptr {saved})")
    for count, _, keep in held:
        with e.loop(0, count) as loop:
            e.line(f"call void {f.pointer(context, ContextField.DECREMENT)}(ptr {f.pointer(keep, loop.index)})")
    e.branch(done)
    e.label(done)
    f.store(0, context, ContextField.BUSY)
    return f.word(result, 0)


FUNCTIONS = ("entry", "run", "evaluate", "worker")


def driver_text(at: Distances) -> str:
    """The driver's module, for objects in which things lie at these distances."""
    parts = [
        *thread_functions(),
        _run_step(Function("run_step", "ptr %step, ptr %slots, ptr %values, ptr %scratch, ptr %pool", "i32")),
        _joint_piece(Function("joint_piece", "ptr %rows, ptr %pieces, i64 %first, i64 %last, i64 %left, i64 %right, "
                                             "ptr %scratch", "i32")),
        _run_joint(Function("run_joint", "ptr %step, ptr %slots, ptr %values, ptr %scratch, ptr %pool", "i64")),
        _evaluate(Function("evaluate", "ptr %program, ptr %symbols, ptr %values", "void")),
        _deliver(Function("deliver", "ptr %moves, i64 %count, i64 %status, ptr %copy", "void")),
        _run(Function("run", "ptr %program, ptr %slots, ptr %values, ptr %scratch", "i64")),
        _serve(Function("serve", "ptr %context, ptr %tensors, ptr %target, ptr %args, i64 %count, ptr %names",
                        "ptr"), at),
        entry(Function("entry", "ptr %self, ptr %args, i64 %count, ptr %names", "ptr"), at),
    ]
    return "\n".join(parts)
