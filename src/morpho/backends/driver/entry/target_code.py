"""Native entry, `out=`: results written into the caller's tensors, or staged and copied there once nothing faulted."""

from __future__ import annotations

from morpho.backends.code.emit import Value
from morpho.backends.driver.abi import ContextField, Distances, Function, RecordField
from morpho.backends.driver.entry.argument_code import compare
from morpho.backends.driver.layout import BYTES_DATA, TUPLE_ITEMS, TUPLE_SIZE, WORD


def take_targets(f: Function, context: str, outputs: Value, items_at: str, slow: str) -> None:
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


def check_targets(f: Function, context: str, slots: str, values: str, counts: tuple[Value, Value, Value], items: str,
                  slow: str, at: Distances) -> None:
    """Each target must fit, be writable, be held by its tensor alone, and lie apart from inputs and other targets."""
    e = f.e
    (inputs, states, outputs), guards = counts, f.pointer(context, ContextField.GUARD_TABLE)
    free = e.icmp("ne", f.word(context, ContextField.OVERLAP), 0)
    with e.loop(0, outputs) as loop:
        tensor = f.pointer(items, loop.index)
        record = f.record_of(context, tensor, slow, at)
        compare(f, record, guards, inputs + loop.index, values, slow)
        f.check_writable(tensor, record, slow, at)
        out = f.pointer(record, RecordField.ADDRESS)
        with e.loop(0, inputs) as others:
            f.go_unless((f.same(f.pointer(slots, others.index), out) ^ True) | free, slow)
        with e.loop(inputs, inputs + states) as others:
            f.go_unless(f.same(f.pointer(slots, others.index), out) ^ True, slow)
        with e.loop(0, loop.index) as others:
            f.go_unless(f.same(f.pointer(items, others.index), tensor) ^ True, slow)
        fixed = f.pointer(context, ContextField.FIXED_TABLE)
        with e.loop(0, f.word(context, ContextField.FIXED)) as others:  # nor may it be a tensor of the surroundings
            f.go_unless(f.same(f.pointer(fixed, others.index * 3), out) ^ True, slow)


def place_outputs(f: Function, context: str, slots: str, outputs: Value, items: str, staging: tuple[str, Value],
                  at: Distances) -> None:
    """Where the outputs are written: in their tensors, or, where a fault could leave the caller's memory half written,
    in memory of the function's own, with what is to be moved afterwards (bytes, from, to)."""
    e = f.e
    moves, staged = staging
    table = f.pointer(context, ContextField.OUTPUT_TABLE)
    with e.loop(0, outputs) as loop:
        record = e.offset(e.load_pointer(e.offset(f.pointer(items, loop.index), "i8", at.record)), "i8", BYTES_DATA)
        target, slot = f.pointer(record, RecordField.ADDRESS), f.word(table, loop.index * 3)
        f.store_pointer(target, slots, slot)
        stage, following = e.fresh("stage"), e.fresh("following")
        e.branch_if(staged, stage, following)
        e.label(stage)
        room = f.pointer(table, loop.index * 3 + 1)
        needed = e.assign(f"icmp ne ptr {room}, null", "i1", 1)
        rank = f.word(record, RecordField.KIND).shift_right(8)
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


def deliver(f: Function) -> str:
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
