"""Native entry, arguments: check tensors passed and captured against the signature, evaluate dynamic sizes.

A call that matches no compiled signature takes the slow path, through Python.
"""

from __future__ import annotations

from morpho.backends.code.emit import Value
from morpho.backends.driver.abi import BINDING_WORDS, ContextField, Distances, Function, ProgramField, RecordField


def read_inputs(f: Function, context: str, inputs: tuple[Value, str], records: str, slots: str, slow: str,
                at: Distances) -> None:
    """The records and addresses of the arguments. One that is differentiated goes the slow way."""
    e, none = f.e, f.pointer(context, ContextField.NONE)
    with e.loop(0, inputs[0]) as loop:
        tensor = f.pointer(inputs[1], loop.index)
        record = f.record_of(context, tensor, slow, at)
        track = e.load_pointer(e.offset(tensor, "i8", at.track))  # NULL in what native code makes
        f.go_unless(f.is_null(track) | f.same(track, none), slow)
        f.store_pointer(record, records, loop.index)
        f.store_pointer(f.pointer(record, RecordField.ADDRESS), slots, loop.index)


def check_fixed(f: Function, context: str, slow: str, at: Distances) -> None:
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


def place_fixed(f: Function, context: str, first: Value, slots: str) -> None:
    """The addresses of inputs that are no arguments."""
    e, table = f.e, f.pointer(context, ContextField.FIXED_TABLE)
    with e.loop(0, f.word(context, ContextField.FIXED)) as loop:
        f.store_pointer(f.pointer(table, loop.index * 3), slots, first + loop.index)


def find_numbers(f: Function, context: str, program: str, records: str, slow: str) -> str:
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
        argument, word, least, most, factor, constant = (f.word(bindings, loop.index * BINDING_WORDS + i)
                                                         for i in range(BINDING_WORDS))
        record = f.pointer(records, argument)
        rank = f.word(record, RecordField.KIND).shift_right(8)
        f.go_unless(e.icmp("slt", word - 3, rank), slow)
        number = e.instruction("sdiv", f.word(record, word) - constant, factor)  # guards see whether anything is left
        f.go_unless(e.icmp("sge", number, least) & e.icmp("sle", number, most), slow)
        f.store(number, bound, loop.index + 1)
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


def compare_inputs(f: Function, context: str, inputs: Value, records: str, values: str, slow: str) -> None:
    guards = f.pointer(context, ContextField.GUARD_TABLE)
    with f.e.loop(0, inputs) as loop:
        compare(f, f.pointer(records, loop.index), guards, loop.index, values, slow)


def compare(f: Function, record: str, guards: str, argument: Value, values: str, slow: str) -> None:
    """Every guarded word of a record must be the expected number."""
    e = f.e
    count, first = f.word(guards, argument * 2), f.word(guards, argument * 2 + 1)
    with e.loop(0, count) as loop:
        good = e.icmp("eq", f.word(record, loop.index + 2), f.word(values, first + loop.index))
        following = e.fresh("same")
        e.branch_if(good, following, slow)
        e.label(following)
