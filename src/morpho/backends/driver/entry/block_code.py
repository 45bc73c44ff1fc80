"""Native entry, outputs in memory of another device: a block from a stack of free ones, and the object that holds it.

A block is held by a capsule of Python's, whose destructor puts it back on its stack: neither taking nor
giving back runs any Python. The device's pool takes from the same stacks (`backends/cuda/driver/free_blocks.py`).
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
    """Words that all stacks of a device share."""

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
