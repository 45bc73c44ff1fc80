"""The native entry: what Python calls. It checks, finds memory for the results, runs, and returns them or raises."""

from __future__ import annotations

from morpho.kernels.emit import Value
from morpho.runtime.argument_code import (
    check_fixed,
    compare_inputs,
    find_numbers,
    place_fixed,
    read_inputs,
    take_tensors,
)
from morpho.runtime.output_code import drop_outputs, make_outputs, outputs_as_tuple
from morpho.runtime.state_code import hold_states, leave_states, read_states, replace_states
from morpho.runtime.tables import LONG_WORK, ContextField, Distances, Enabled, Function
from morpho.runtime.target_code import check_targets, place_outputs, take_targets


def entry(f: Function, at: Distances) -> str:
    """entry(self, args, nargs, kwnames): f(a, b) and f(a, b, out=c) on guarded tensors and known objects; other
    calls go to Python."""
    e = f.e
    slow = "slow"
    context = e.load_pointer(e.offset("%self", "i8", at.context))
    _admit(f, context, slow)
    given = f.value("%count") & ((1 << 63) - 1)
    inputs, outputs = f.word(context, ContextField.INPUTS), f.word(context, ContextField.OUTPUTS)
    f.go_unless(e.icmp("eq", given, f.word(context, ContextField.ARGUMENTS)), slow)
    f.go_unless(e.icmp("eq", f.word(context, ContextField.BUSY), 0), slow)
    program = f.pointer(context, ContextField.PROGRAM)
    slots = f.alloca(f.word(context, ContextField.SLOTS))
    tensors, records = f.alloca(inputs + 1), f.alloca(inputs + 1)
    take_tensors(f, context, given, tensors, slow)
    read_inputs(f, context, (inputs, tensors), records, slots, slow, at)
    check_fixed(f, context, slow, at)
    values = find_numbers(f, context, program, records, slow)
    compare_inputs(f, context, inputs, records, values, slow)
    room, items_at, made_at, held_at = f.alloca(outputs + 1), f.alloca(1), f.alloca(1), f.alloca(3)
    f.store_pointer(room, items_at, 0)
    f.store(0, made_at, 0)
    f.store_pointer("null", held_at, 0)
    told, fresh, python, targets, check, ready = (e.fresh(n) for n in ("told", "fresh", "python", "targets", "check",
                                                                       "ready"))
    is_told = f.is_null("%names") ^ True
    e.branch_if(is_told, told, fresh)
    e.label(told)
    take_targets(f, context, given, outputs, items_at, slow)
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
    read_inputs(f, context, (inputs, tensors), records, slots, "undo", at)
    check_fixed(f, context, "undo", at)
    compare_inputs(f, context, inputs, records, values, "undo")
    e.branch(targets)
    e.label(targets)
    states = (f.word(context, ContextField.STATES), f.pointer(context, ContextField.STATE_TABLE))
    read_states(f, context, states, held_at, (slots, inputs), "undo", at)
    items, single = f.pointer(items_at, 0), f.word(context, ContextField.SINGLE)
    e.branch_if(is_told, check, ready)
    e.label(check)
    check_targets(f, context, slots, values, (inputs, states[0], outputs), items, "undo", at)
    e.branch(ready)
    e.label(ready)
    staged = e.icmp("ne", f.word(context, ContextField.STAGED), 0) & is_told
    moves = f.alloca(outputs * 3 + 1)
    place_outputs(f, context, slots, outputs, items, (moves, staged), at)
    place_fixed(f, context, inputs + states[0], slots)
    f.store_pointer(f.pointer(context, ContextField.ARENA), slots, f.word(context, ContextField.SLOTS) - 1)
    moved = e.select(staged, outputs, e.constant(0, "i64", 1))
    captured = (f.word(context, ContextField.CAPTURED), f.pointer(context, ContextField.CAPTURED_TABLE))
    nothing = f.pointer(context, ContextField.NOTHING)
    status = _guarded_run(f, context, (program, slots, values), ((inputs, tensors), (outputs, items), captured),
                          at, (moves, moved))
    replace_states(f, states, status)
    leave_states(f, context, held_at)
    _return(f, context, program, status, (given, outputs), (single, nothing), room, made_at)
    e.label("undo")
    leave_states(f, context, held_at)
    drop_outputs(f, context, room, made_at)
    e.branch(slow)
    e.label("lost")
    drop_outputs(f, context, room, made_at)
    e.line("ret ptr null")
    e.label(slow)
    _slowly(f, context)
    return f.text()


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
    f.decrement(context, found)  # its variable holds it
    f.go_unless(f.same(found, f.pointer(context, ContextField.SETTINGS)), slow)
    e.branch(admitted)
    e.label(admitted)


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
            f.increment(context, storage)
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


def _return(f: Function, context: str, program: str, status: Value, counts: tuple[Value, Value],
            kind: tuple[Value, str], room: str, made_at: str) -> None:
    """The target given, the outputs made as a tuple, the only one of them, or nothing; or the fault. `kind` says
    whether there is a single one, and what nothing is."""
    e = f.e
    names = ("fault", "fine", "told", "fresh", "none", "some", "single", "many")
    fault, fine, told, fresh, none, some, single, many = (e.fresh(n) for n in names)
    given, outputs = counts
    e.branch_if(e.icmp("eq", status, 0), fine, fault)
    e.label(fine)
    e.branch_if(f.is_null("%names"), fresh, told)
    e.label(told)
    target = f.pointer("%args", given)
    f.increment(context, target)
    e.line(f"ret ptr {target}")
    e.label(fresh)
    e.branch_if(e.icmp("eq", outputs, 0), none, some)
    e.label(none)
    f.increment(context, kind[1])
    e.line(f"ret ptr {kind[1]}")
    e.label(some)
    e.branch_if(e.icmp("ne", kind[0], 0), single, many)
    e.label(single)
    e.line(f"ret ptr {f.pointer(room, 0)}")
    e.label(many)
    _arranged(f, context, outputs_as_tuple(f, context, (outputs, room), made_at))
    e.label(fault)
    drop_outputs(f, context, room, made_at)
    _raise(f, context, status, program)


def _arranged(f: Function, context: str, results: str) -> None:
    """Return a tuple of outputs, or what Python makes of it: lists, dicts, tuples of those."""
    e = f.e
    arrange, arguments = f.pointer(context, ContextField.ARRANGE), f.alloca(1)
    plain, other = e.fresh("plain"), e.fresh("other")
    e.branch_if(f.is_null(arrange), plain, other)
    e.label(plain)
    e.line(f"ret ptr {results}")
    e.label(other)
    f.store_pointer(results, arguments, 0)
    made = "%" + e.fresh("p")
    call, drop = f.pointer(context, ContextField.VECTORCALL), f.pointer(context, ContextField.DECREMENT)
    e.line(f"{made} = call ptr {call}(ptr {arrange}, ptr {arguments}, i64 1, ptr null)")
    e.line(f"call void {drop}(ptr {results})")
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
        e.branch_if(f.is_null(made), failed, fine)
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


def _slowly(f: Function, context: str) -> None:
    """Let Python serve the call."""
    e = f.e
    function, target = f.pointer(context, ContextField.VECTORCALL), f.pointer(context, ContextField.SLOW)
    name = "%" + e.fresh("p")
    e.line(f"{name} = call ptr {function}(ptr {target}, ptr %args, i64 %count, ptr %names)")
    e.line(f"ret ptr {name}")
