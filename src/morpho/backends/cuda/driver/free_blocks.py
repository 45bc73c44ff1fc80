"""The free blocks of a device's pool, on stacks that native code takes from and gives back to.

What happens to a stack is one native call with Python's lock held, from here and from the entry of a compiled function
alike (`backends/driver/entry/block_code.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from morpho.backends.code.compiler import llvm
from morpho.backends.code.compiler.code import addresses_of
from morpho.backends.code.native import native
from morpho.backends.code.typed import Address, Bytes, Global, Words, i64
from morpho.backends.driver.entry.block_code import BlocksField, PoolWord
from morpho.base.target import isa_named

ROOM = 256  # blocks of a stack
GIVE = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_int64)


Blocks = Words  # a stack's words, by `BlocksField`
GetPointer = Callable[[Address, Bytes], i64]
GetContext = Callable[[Address], Words]
GiveBack = Callable[[i64, i64], None]  # a block's address and bytes
NAME = cast(Bytes, b"morpho.block")  # of the capsules
get_pointer = Global("get_pointer", GetPointer)  # PyCapsule_GetPointer
get_context = Global("get_context", GetContext)  # PyCapsule_GetContext


@native()
def use_block(blocks: Blocks) -> None:
    pool: Words = blocks[BlocksField.POOL]
    used = pool[PoolWord.USED] + blocks[BlocksField.BYTES]
    pool[PoolWord.USED] = used
    pool[PoolWord.PEAK] = max(pool[PoolWord.PEAK], used)


@native()
def take_block(blocks: Blocks) -> i64:
    """Return the address of a free block, or 0."""
    count = blocks[BlocksField.COUNT]
    if count == 0:
        return 0
    blocks[BlocksField.COUNT] = count - 1
    address: i64 = blocks[count - 1 + BlocksField.FIRST]
    use_block(blocks)
    return address


@native()
def give_block(blocks: Blocks, address: i64) -> i64:
    """Count a block as free; return whether its stack had room for it."""
    pool: Words = blocks[BlocksField.POOL]
    pool[PoolWord.USED] -= blocks[BlocksField.BYTES]
    count = blocks[BlocksField.COUNT]
    if count >= blocks[BlocksField.ROOM]:
        return 0
    blocks[BlocksField.FIRST + count] = address
    blocks[BlocksField.COUNT] = count + 1
    return 1


@native()
def name_blocks(pointer: GetPointer, context: GetContext) -> Bytes:
    """Set what `drop_block` calls; return the name of the capsules."""
    get_pointer[0] = pointer
    get_context[0] = context
    return NAME


@native()
def drop_block(capsule: Address) -> None:
    """Destructor of a capsule: its block goes back to its stack, or through Python."""
    pointer: GetPointer = get_pointer[0]
    context: GetContext = get_context[0]
    address = pointer(capsule, NAME)
    blocks = context(capsule)
    if not blocks:
        return
    pool: Words = blocks[BlocksField.POOL]
    if pool[PoolWord.STREAMS] > 1 or blocks[BlocksField.COUNT] >= blocks[BlocksField.ROOM]:
        give_back: GiveBack = pool[PoolWord.GIVE]
        give_back(address, blocks[BlocksField.BYTES])
    else:
        give_block(blocks, address)


def _immortal(thing: Any) -> Any:
    """Never freed: capsules that die at the very end of the process still call the code, and see the stacks."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


class BlockFunctions:
    """The native functions, and what a capsule needs."""

    def __init__(self) -> None:
        use, take, give, name, self.drop = addresses_of(
            "free blocks", use_block, take_block, give_block, name_blocks, drop_block, isa=isa_named("scalar"))
        _immortal(llvm._engines[-1])
        self.use = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(use)
        self.take = ctypes.PYFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(take)
        self.give = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_uint64)(give)
        called = [ctypes.cast(getattr(ctypes.pythonapi, f"PyCapsule_{part}"), ctypes.c_void_p)
                  for part in ("GetPointer", "GetContext")]
        self.name = int(ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(name)(*called))


@cache
def functions() -> BlockFunctions:
    """Compiled when a device is first used."""
    return BlockFunctions()


class FreeBlocks:
    """Stacks by size. `more(address, nbytes)` takes what a stack has no room for, and what must wait for other streams.

    >>> blocks = FreeBlocks(print)
    >>> blocks.use(1 << 20), blocks.give(1 << 20, 4096), blocks.count(1 << 20), blocks.used_bytes
    (None, True, 1, 0)
    >>> blocks.take(1 << 20), blocks.take(1 << 20), blocks.used_bytes, blocks.peak_bytes
    (4096, 0, 1048576, 1048576)
    """

    def __init__(self, more: Callable[[int, int], None]) -> None:
        self.stacks: dict[int, Any] = {}
        self.words = _immortal((ctypes.c_int64 * int(PoolWord.SIZE))())
        self.called = _immortal(GIVE(more))
        self.words[PoolWord.GIVE] = ctypes.cast(self.called, ctypes.c_void_p).value or 0

    def stack(self, size: int) -> int:
        """The address of the stack of blocks of so many bytes."""
        found = self.stacks.get(size)
        if found is None:
            found = self.stacks[size] = _immortal((ctypes.c_int64 * (int(BlocksField.FIRST) + ROOM))())
            found[BlocksField.ROOM], found[BlocksField.BYTES] = ROOM, size
            found[BlocksField.POOL] = ctypes.addressof(self.words)
        return ctypes.addressof(found)

    def take(self, size: int) -> int:
        """A free block, which is used from now on; 0 where there is none."""
        return int(functions().take(self.stack(size)))

    def use(self, size: int) -> None:
        """A block of so many bytes more is used."""
        functions().use(self.stack(size))

    def give(self, size: int, address: int) -> bool:
        """A block that is not used any more; False where the stack is full."""
        return bool(functions().give(self.stack(size), address))

    def count(self, size: int) -> int:
        """Free blocks of a size."""
        found = self.stacks.get(size)
        return 0 if found is None else int(found[BlocksField.COUNT])

    def all(self) -> list[int]:
        """The addresses of all free blocks."""
        first = int(BlocksField.FIRST)
        return [address for stack in list(self.stacks.values())
                for address in stack[first:first + stack[BlocksField.COUNT]]]

    def drained(self) -> list[int]:
        """The addresses of all free blocks, which leave the stacks."""
        found: list[int] = []
        for size in list(self.stacks):
            while address := self.take(size):
                found.append(address)
                self.words[PoolWord.USED] -= size
        return found

    @property
    def used_bytes(self) -> int:
        """Bytes of blocks that are not free."""
        return int(self.words[PoolWord.USED])

    @property
    def peak_bytes(self) -> int:
        """The most that were used at once."""
        return int(self.words[PoolWord.PEAK])
