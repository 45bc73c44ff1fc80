"""Native entry, outputs: small ones of static shape are allocated by native code through CPython's own C
functions; others by a Python function in the middle of the call.

A small output lies in a `bytearray` that only its tensor knows, at the first multiple of 64 bytes; one on another
device in a block that its pool had free (`block_code.py`).
"""

from __future__ import annotations

from functools import partial

from morpho.backends.code.emit import Value
from morpho.backends.driver.abi import ContextField, Distances, Function, OutputRow
from morpho.backends.driver.entry.block_code import BlocksField, new_block
from morpho.backends.driver.layout import BYTES_DATA, TUPLE_ITEMS
from morpho.base.target import ALIGNMENT_BYTES


def make_outputs(f: Function, context: str, inputs: tuple[Value, str], outputs: tuple[Value, str], made_at: str,
                 at: Distances) -> None:
    """New tensors in a table of pointers; how many there are stands in `made_at`. Returns NULL where that fails."""
    e = f.e
    look, native, python, done = e.fresh("look"), e.fresh("native"), e.fresh("python"), e.fresh("done")
    count, room = outputs
    template, address_at = f.pointer(context, ContextField.TEMPLATES), f.alloca(1)
    e.branch_if(f.is_null(template) & e.icmp("ne", count, 0), python, look)
    e.label(look)
    with e.loop(0, count) as loop:
        row = f.address(template, loop.index * int(OutputRow.SIZE))
        _go_unless_free(f, f.pointer(row, OutputRow.BLOCKS), count, python)
    e.branch(native)
    e.label(native)
    with e.loop(0, count) as loop:
        row = f.address(template, loop.index * int(OutputRow.SIZE))
        _new_tensor(f, context, row, (room, made_at), at, address_at)
    e.branch(done)
    e.label(python)
    maker = f.pointer(context, ContextField.ALLOCATE)
    made = f.call_python(context, ContextField.VECTORCALL,
                         f"ptr {maker}, ptr {inputs[1]}, i64 {inputs[0].name}, ptr null")
    _return_null_if(f, f.is_null(made))
    with e.loop(0, count) as loop:
        item = f.pointer(e.offset(made, "i8", TUPLE_ITEMS), loop.index)
        f.increment(context, item)
        f.store_pointer(item, room, loop.index)
    f.decrement(context, made)
    f.store(count, made_at, 0)
    e.branch(done)
    e.label(done)


def _return_null_if(f: Function, failed: Value) -> None:
    bad, good = f.e.fresh("bad"), f.e.fresh("good")
    f.e.branch_if(failed, bad, good)
    f.e.label(bad)
    f.e.line("ret ptr null")
    f.e.label(good)


def _go_unless_free(f: Function, blocks: str, count: Value, python: str) -> None:
    """Let Python make outputs of a device whose pool may have no block for each."""
    e = f.e
    device, fine = e.fresh("device"), e.fresh("fine")
    e.branch_if(f.is_null(blocks), fine, device)
    e.label(device)
    e.branch_if(e.icmp("sge", f.word(blocks, BlocksField.COUNT), count), fine, python)
    e.label(fine)


def _new_tensor(f: Function, context: str, row: str, made: tuple[str, str], at: Distances, address_at: str) -> None:
    """One more tensor, of its own memory. Where memory runs out, what was made is dropped and the call returns NULL."""
    e = f.e
    nbytes, length = f.word(row, OutputRow.BYTES), f.word(row, OutputRow.RECORD_BYTES)
    tensor = f.call_python(context, ContextField.NEW_OBJECT,
                           f"ptr {f.pointer(context, ContextField.TENSOR_TYPE)}, i64 0")
    _check(f, context, tensor, made)
    # From here on the tensor holds what is made for it: dropping it drops that too.
    number = f.word(made[1], 0)
    f.store_pointer(tensor, made[0], number)
    f.store(number + 1, made[1], 0)
    _set(f, context, tensor, at.node, f.pointer(context, ContextField.NONE))
    host, device, there = e.fresh("host"), e.fresh("device"), e.fresh("there")
    blocks = f.pointer(row, OutputRow.BLOCKS)
    e.branch_if(f.is_null(blocks), host, device)
    e.label(device)
    place = new_block(f, context, blocks, f.pointer(row, OutputRow.HOLDER), partial(_put, f),
                      lambda thing: _check(f, context, thing, made), lambda held: _put(f, tensor, at.storage, held))
    f.store(place, address_at, 0)
    e.branch(there)
    e.label(host)
    memory = f.call_python(context, ContextField.NEW_MEMORY, f"ptr null, i64 {(nbytes + ALIGNMENT_BYTES).name}")
    _check(f, context, memory, made)
    _put(f, tensor, at.storage, memory)
    start = f.call_python(context, ContextField.MEMORY_AT, f"ptr {memory}")
    place = (e.assign(f"ptrtoint ptr {start} to i64", "i64", 1) + (ALIGNMENT_BYTES - 1)) & -ALIGNMENT_BYTES
    f.store(place, address_at, 0)
    e.branch(there)
    e.label(there)
    address = f.word(address_at, 0)
    layout = f.call_python(context, ContextField.NEW_TUPLE, "i64 5")
    _check(f, context, layout, made)
    _put(f, tensor, at.layout, layout)
    word = f.call_python(context, ContextField.NUMBER, f"i64 {address.name}")
    _check(f, context, word, made)
    _put(f, layout, TUPLE_ITEMS, word)
    parts = [f.pointer(row, part) for part in (OutputRow.SHAPE, OutputRow.STRIDES, OutputRow.DTYPE)]
    for position, part in enumerate((*parts, f.pointer(context, ContextField.TRUE)), 1):
        _set(f, context, layout, TUPLE_ITEMS + 8 * position, part)
    record = f.call_python(context, ContextField.NEW_BYTES,
                           f"ptr {f.pointer(row, OutputRow.RECORD)}, i64 {length.name}")
    _check(f, context, record, made)
    e.store(address, e.offset(record, "i8", BYTES_DATA))
    _put(f, tensor, at.record, record)


def _put(f: Function, thing: str, where: Value | int, part: str) -> None:
    """Store a reference that is given away."""
    f.e.line(f"store ptr {part}, ptr {f.e.offset(thing, 'i8', where)}, align 8")


def _set(f: Function, context: str, thing: str, where: int, part: str) -> None:
    f.increment(context, part)
    _put(f, thing, where, part)


def _check(f: Function, context: str, thing: str, made: tuple[str, str]) -> None:
    """Go on with what was made, or drop everything and return NULL."""
    e = f.e
    bad, good = e.fresh("bad"), e.fresh("good")
    e.branch_if(f.is_null(thing), bad, good)
    e.label(bad)
    drop_outputs(f, context, *made)
    e.line("ret ptr null")
    e.label(good)


def drop_outputs(f: Function, context: str, room: str, made_at: str) -> None:
    """Let go of the outputs made so far."""
    with f.e.loop(0, f.word(made_at, 0)) as loop:
        f.decrement(context, f.pointer(room, loop.index))


def outputs_as_tuple(f: Function, context: str, outputs: tuple[Value, str], made_at: str) -> str:
    """The outputs, given away to a new tuple."""
    e = f.e
    made = f.call_python(context, ContextField.NEW_TUPLE, f"i64 {outputs[0].name}")
    _check(f, context, made, (outputs[1], made_at))
    with e.loop(0, outputs[0]) as loop:
        f.store_pointer(f.pointer(outputs[1], loop.index), e.offset(made, "i8", TUPLE_ITEMS), loop.index)
    return made
