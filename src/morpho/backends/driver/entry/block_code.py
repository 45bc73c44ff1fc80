"""Native entry, outputs in memory of another device: a block from a stack of free ones, and the object that holds it.

A block is held by a capsule of Python's, whose destructor puts it back on its stack (`drop_block`): neither taking nor
giving back runs any Python. The device's pool takes from the same stacks, by `take_block` and `give_block`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from morpho.backends.code.emit import Value
from morpho.backends.driver.abi import ContextField, Function


class BlocksField(IntEnum):
    """A stack of free blocks of one size."""

    COUNT = 0
    ROOM = 1  # the most it holds
    BYTES = 2  # of a block
    POOL = 3  # the address of the pool's `PoolWord`s
    FIRST = 4  # addresses


class PoolWord(IntEnum):
    """What all stacks of a device share."""

    USED = 0  # bytes that are not free
    PEAK = 1
    STREAMS = 2  # of the device: with several, blocks go back through Python, which lets them wait for each other
    GIVE = 3  # the address of a function (block, bytes) for those, and for what a stack has no room for
    SIZE = 4


class HolderField(IntEnum):
    """The object that holds a block (`runtime/memory/device_memory.py`): its class, what is the same in all of them,
    and where that lies inside one."""

    TYPE = 0
    BACKEND = 1
    EVENT = 2
    NBYTES = 3
    BACKEND_AT = 4
    EVENT_AT = 5
    NBYTES_AT = 6
    OWN_AT = 7
    ADDRESS_AT = 8
    BLOCK_AT = 9
    NEW_CAPSULE = 10  # PyCapsule_New, with the two arguments behind the pointer
    NAME = 11
    DESTRUCTOR = 12
    SET_CONTEXT = 13  # PyCapsule_SetContext
    SIZE = 14


Use = Callable[[str], None]
Put = Callable[[str, Value | int, str], None]


def new_block(f: Function, context: str, blocks: str, holder: str, put: Put, check: Use, keep: Use) -> Value:
    """Give an object that holds one of the free blocks to `keep`; the block's address. There must be one."""
    e = f.e
    made = f.call_python(context, ContextField.NEW_OBJECT, f"ptr {f.pointer(holder, HolderField.TYPE)}, i64 0")
    check(made)
    keep(made)
    count = f.word(blocks, BlocksField.COUNT) - 1
    address = f.word(blocks, count + int(BlocksField.FIRST))
    capsule = "%" + e.fresh("p")
    e.line(f"{capsule} = call ptr {f.pointer(holder, HolderField.NEW_CAPSULE)}(i64 {address.name}, "
           f"ptr {f.pointer(holder, HolderField.NAME)}, ptr {f.pointer(holder, HolderField.DESTRUCTOR)})")
    check(capsule)
    e.assign(f"call i32 {f.pointer(holder, HolderField.SET_CONTEXT)}(ptr {capsule}, ptr {blocks})", "i32", 1)
    f.store(count, blocks, BlocksField.COUNT)
    pool = f.pointer(blocks, BlocksField.POOL)
    used = f.word(pool, PoolWord.USED) + f.word(blocks, BlocksField.BYTES)
    peak = f.word(pool, PoolWord.PEAK)
    f.store(used, pool, PoolWord.USED)
    f.store(e.select(e.icmp("sgt", used, peak), used, peak), pool, PoolWord.PEAK)
    put(made, f.word(holder, HolderField.BLOCK_AT), capsule)
    number = f.call_python(context, ContextField.NUMBER, f"i64 {address.name}")
    check(number)
    put(made, f.word(holder, HolderField.ADDRESS_AT), number)
    parts = [(where, f.pointer(holder, part)) for part, where in (
        (HolderField.BACKEND, HolderField.BACKEND_AT), (HolderField.EVENT, HolderField.EVENT_AT),
        (HolderField.NBYTES, HolderField.NBYTES_AT))]
    for where, part in (*parts, (HolderField.OWN_AT, f.pointer(context, ContextField.TRUE))):
        f.increment(context, part)
        put(made, f.word(holder, where), part)
    return address


BLOCK_TEXT = """
define void @use_block(ptr %blocks) {
  %bp = getelementptr i64, ptr %blocks, i64 2
  %bytes = load i64, ptr %bp
  %pp = getelementptr i64, ptr %blocks, i64 3
  %pool = load ptr, ptr %pp
  %used = load i64, ptr %pool
  %now = add i64 %used, %bytes
  store i64 %now, ptr %pool
  %kp = getelementptr i64, ptr %pool, i64 1
  %peak = load i64, ptr %kp
  %higher = icmp sgt i64 %now, %peak
  %most = select i1 %higher, i64 %now, i64 %peak
  store i64 %most, ptr %kp
  ret void
}
define i64 @take_block(ptr %blocks) {
entry:
  %count = load i64, ptr %blocks
  %none = icmp eq i64 %count, 0
  br i1 %none, label %empty, label %some
empty:
  ret i64 0
some:
  %left = sub i64 %count, 1
  store i64 %left, ptr %blocks
  %at = add i64 %left, 4
  %p = getelementptr i64, ptr %blocks, i64 %at
  %address = load i64, ptr %p
  call void @use_block(ptr %blocks)
  ret i64 %address
}
define i64 @give_block(ptr %blocks, i64 %address) {
entry:
  %bp = getelementptr i64, ptr %blocks, i64 2
  %bytes = load i64, ptr %bp
  %pp = getelementptr i64, ptr %blocks, i64 3
  %pool = load ptr, ptr %pp
  %used = load i64, ptr %pool
  %less = sub i64 %used, %bytes
  store i64 %less, ptr %pool
  %count = load i64, ptr %blocks
  %rp = getelementptr i64, ptr %blocks, i64 1
  %room = load i64, ptr %rp
  %full = icmp uge i64 %count, %room
  br i1 %full, label %over, label %put
over:
  ret i64 0
put:
  %at = add i64 %count, 4
  %p = getelementptr i64, ptr %blocks, i64 %at
  store i64 %address, ptr %p
  %more = add i64 %count, 1
  store i64 %more, ptr %blocks
  ret i64 1
}
@get_pointer = global ptr null
@get_context = global ptr null
@block_name = constant [13 x i8] c"morpho.block\\00"
define ptr @name_blocks(ptr %pointer, ptr %context) {
  store ptr %pointer, ptr @get_pointer
  store ptr %context, ptr @get_context
  ret ptr @block_name
}
define void @drop_block(ptr %capsule) {
entry:
  %pointer = load ptr, ptr @get_pointer
  %address = call i64 %pointer(ptr %capsule, ptr @block_name)
  %context = load ptr, ptr @get_context
  %blocks = call ptr %context(ptr %capsule)
  %unknown = icmp eq ptr %blocks, null
  br i1 %unknown, label %done, label %known
known:
  %bp = getelementptr i64, ptr %blocks, i64 2
  %bytes = load i64, ptr %bp
  %pp = getelementptr i64, ptr %blocks, i64 3
  %pool = load ptr, ptr %pp
  %sp = getelementptr i64, ptr %pool, i64 2
  %streams = load i64, ptr %sp
  %several = icmp ugt i64 %streams, 1
  %count = load i64, ptr %blocks
  %rp = getelementptr i64, ptr %blocks, i64 1
  %room = load i64, ptr %rp
  %full = icmp uge i64 %count, %room
  %ask = or i1 %several, %full
  br i1 %ask, label %python, label %give
give:
  %kept = call i64 @give_block(ptr %blocks, i64 %address)
  ret void
python:
  %gp = getelementptr i64, ptr %pool, i64 3
  %function = load ptr, ptr %gp
  call void %function(i64 %address, i64 %bytes)
  ret void
done:
  ret void
}
"""
BLOCK_FUNCTIONS = ["use_block", "take_block", "give_block", "name_blocks", "drop_block"]
