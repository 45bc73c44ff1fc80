"""Native entry, one call: check the signature, place the results, run the program, return tensors or raise."""

from __future__ import annotations

from morpho.backends.code.emit import Value
from morpho.backends.driver.abi import LONG_WORK, CommonField, ContextField, Distances, Enabled, Function
from morpho.backends.driver.entry.argument_code import (
    check_fixed,
    compare_inputs,
    find_numbers,
    place_fixed,
    read_inputs,
)
from morpho.backends.driver.entry.entry_code import go_elsewhere
from morpho.backends.driver.entry.output_code import drop_outputs, make_outputs, outputs_as_tuple
from morpho.backends.driver.entry.state_code import hold_states, leave_states, read_states, replace_states
from morpho.backends.driver.entry.target_code import check_targets, place_outputs, take_targets


def serve(f: Function, at: Distances) -> str:
    """serve(context, tensors, target, args, nargs, kwnames): the tensors among a call's arguments are guarded and the
    program runs; target is out=, or NULL. Calls that it does not serve go elsewhere with what was given."""
    e = f.e
    slow, context, tensors = "slow", "%context", "%tensors"
    _admit(f, context, slow)
    inputs, outputs = f.word(context, ContextField.INPUTS), f.word(context, ContextField.OUTPUTS)
    owner, busy = f.pointer(context, ContextField.OWNER), f.pointer(context, ContextField.BUSY)
    f.go_unless(e.icmp("eq", f.word(busy, 0), 0), slow)
    program = f.pointer(context, ContextField.PROGRAM)
    slots = f.alloca(f.word(context, ContextField.SLOTS))
    records = f.alloca(inputs + 1)
    read_inputs(f, context, (inputs, tensors), records, slots, slow, at)
    check_fixed(f, context, slow, at)
    values = find_numbers(f, context, program, records, slow)
    compare_inputs(f, context, inputs, records, values, slow)
    f.hold(owner)  # from here on Python may run, and the tables be filled for another one
    room, items_at, made_at, held_at = f.alloca(outputs + 1), f.alloca(1), f.alloca(1), f.alloca(3)
    f.store_pointer(room, items_at, 0)
    f.store(0, made_at, 0)
    f.store_pointer("null", held_at, 0)
    told, fresh, python, targets, check, ready = (e.fresh(n) for n in ("told", "fresh", "python", "targets", "check",
                                                                       "ready"))
    is_told = f.is_null("%target") ^ True
    e.branch_if(is_told, told, fresh)
    e.label(told)
    take_targets(f, context, outputs, items_at, "undo")
    e.branch_if(e.icmp("ne", f.word(context, ContextField.HOLD), 0), python, targets)
    e.label(fresh)
    make_outputs(f, context, (inputs, tensors), (outputs, room), made_at, at)
    e.branch(python)
    e.label(python)
    hold_states(f, context, held_at, "lost")
    # That was Python: other threads may have run, used the arena, or changed the arguments. Look at everything again.
    f.go_unless(e.icmp("ne", f.word(context, ContextField.ENABLED), 0), "undo")
    f.go_unless(f.same(f.pointer(context, ContextField.OWNER), owner), "undo")
    f.go_unless(e.icmp("eq", f.word(busy, 0), 0), "undo")
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
    nothing, arrange = f.pointer(context, ContextField.NOTHING), f.pointer(context, ContextField.ARRANGE)
    held, free = e.fresh("held"), e.fresh("free")
    e.branch_if(f.is_null(arrange), free, held)
    e.label(held)
    f.increment(context, arrange)  # while the program runs, the tables may be filled for another one
    e.branch(free)
    e.label(free)
    status = _guarded_run(f, context, busy, (program, slots, values),
                          ((inputs, tensors), (outputs, items), captured), at, (moves, moved))
    replace_states(f, states, status)
    leave_states(f, context, held_at)
    _return(f, context, owner, status, (single, nothing, arrange), (outputs, room), made_at)
    e.label("undo")
    leave_states(f, context, held_at)
    drop_outputs(f, context, room, made_at)
    f.let_go(context, owner)
    e.branch(slow)
    e.label("lost")
    drop_outputs(f, context, room, made_at)
    f.let_go(context, owner)
    e.line("ret ptr null")
    e.label(slow)
    go_elsewhere(f, context)
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


def _guarded_run(f: Function, context: str, busy: str, running: tuple[str, str, str],
                 tensors: tuple[tuple[Value, str], ...], at: Distances, moving: tuple[str, Value]) -> Value:
    """Run, giving up the interpreter lock for long programs; the arena is marked busy and the memory of every tensor
    is held meanwhile: another thread may give a tensor other elements."""
    e = f.e
    program, slots, values = running
    f.store(1, busy, 0)
    common = f.pointer(context, ContextField.COMMON)
    f.store(f.word(common, CommonField.CALLS) + 1, common, CommonField.CALLS)
    f.store_pointer(context, common, CommonField.LAST)
    scratch = f.pointer(context, ContextField.SCRATCH)
    result = f.alloca(1)
    long, short, done = e.fresh("long"), e.fresh("short"), e.fresh("done")
    copy = f.pointer(context, ContextField.COPY)

    def run(function: str) -> None:
        status = e.assign(f"call i64 @{function}(ptr {program}, ptr {slots}, ptr {values}, ptr {scratch})", "i64", 1)
        f.store(status, result, 0)
        e.line(f"call void @deliver(ptr {moving[0]}, i64 {moving[1].name}, i64 {status.name}, ptr {copy})")

    number, ask = f.word(context, ContextField.RELEASES), e.fresh("ask")
    e.branch_if(e.icmp("eq", number, 0), short, ask)
    e.label(ask)
    e.branch_if(e.icmp("sgt", f.word(values, number - 1), LONG_WORK), long, short)
    e.label(short)
    run("run")
    e.branch(done)
    e.label(long)
    held = [(count, table, f.alloca(count + 1)) for count, table in tensors]
    for count, table, keep in held:
        with e.loop(0, count) as loop:
            storage = e.load_pointer(e.offset(f.pointer(table, loop.index), "i8", at.storage))
            f.store_pointer(storage, keep, loop.index)
            f.increment(context, storage)
    count, items = tensors[1]  # where other threads can see what is being written
    f.store_pointer(items, busy, 2)
    f.store(count, busy, 1)
    saved = "%" + e.fresh("p")
    e.line(f"{saved} = call ptr {f.pointer(context, ContextField.SAVE_THREAD)}()")
    run("run_released")
    e.line(f"call void {f.pointer(context, ContextField.RESTORE_THREAD)}(ptr {saved})")
    for count, _, keep in held:
        with e.loop(0, count) as loop:
            e.line(f"call void {f.pointer(context, ContextField.DECREMENT)}(ptr {f.pointer(keep, loop.index)})")
    e.branch(done)
    e.label(done)
    f.store(0, busy, 0)
    f.store(0, busy, 1)
    return f.word(result, 0)


def _return(f: Function, context: str, owner: str, status: Value, kind: tuple[Value, str, str],
            made: tuple[Value, str], made_at: str) -> None:
    """The targets given, the outputs made as a tuple, the only one of them, or nothing; or the fault. `kind` says
    whether there is a single one, what nothing is, and how Python arranges several; a reference to that is held."""
    e = f.e
    names = ("fault", "fine", "told", "fresh", "none", "some", "single", "many")
    fault, fine, told, fresh, none, some, single, many = (e.fresh(n) for n in names)
    single_one, nothing, arrange = kind
    e.branch_if(e.icmp("eq", status, 0), fine, fault)
    e.label(fine)
    f.let_go(context, owner)
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
    _raise(f, context, status, owner)


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


def _raise(f: Function, context: str, status: Value, owner: str) -> None:
    """Tell Python the status and whose it is, as arguments: another thread may fault at the same time."""
    e = f.e
    number, arguments = f.pointer(context, ContextField.NUMBER), f.alloca(2)
    made, raised = "%" + e.fresh("p"), "%" + e.fresh("p")
    e.line(f"{made} = call ptr {number}(i64 {status.name})")
    failed, fine = e.fresh("failed"), e.fresh("fine")
    e.branch_if(f.is_null(made), failed, fine)
    e.label(failed)
    f.let_go(context, owner)
    e.line("ret ptr null")
    e.label(fine)
    f.store_pointer(made, arguments, 0)
    f.store_pointer(owner, arguments, 1)
    e.line(f"{raised} = call ptr {f.pointer(context, ContextField.VECTORCALL)}("
           f"ptr {f.pointer(context, ContextField.FAULT)}, ptr {arguments}, i64 2, ptr null)")
    f.decrement(context, made)
    f.let_go(context, owner)
    e.line(f"ret ptr {raised}")
