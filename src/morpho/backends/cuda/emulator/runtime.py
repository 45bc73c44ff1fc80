"""The functions `@gpu.*` of a grid on the CPU. A thread of a block is a fiber (`swapcontext`) with a stack of its own;
it gives way at barriers and where the lanes of a warp exchange values, and the others of its block run meanwhile, by
their numbers or the last one first, in turn. Blocks whose kernel waits for other blocks (`pause`) take turns too.

The context is a table of words (`Context`). Kernels without barriers need no fibers: threads run in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import cache

from morpho.backends.code.compiler.code import stored_text
from morpho.backends.code.native import declare, module, native
from morpho.backends.code.typed import (
    Address,
    Bytes,
    Global,
    Volatile,
    Word,
    Words,
    i32,
    i64,
    u32,
)
from morpho.backends.cuda.emulator.guards import guard_text


class Context(IntEnum):
    """The words of a block being run."""

    BLOCK = 0
    BLOCKS = 1
    THREADS = 2
    THREAD = 3  # the one that runs now
    SHARED = 4  # address of shared memory
    EXCHANGE = 5  # address: a line of words per thread
    ARRIVED = 6  # threads at the block's barrier
    PHASE = 7  # barriers passed
    FIBERS = 8  # whether threads are fibers
    MAIN = 9  # address: the context of whoever runs the block
    LINES = 10  # address: the contexts of the fibers
    STACKS = 11  # address
    DONE = 12  # address: a word per thread
    KERNEL = 13
    WORDS = 14
    WARPS = 15  # address: arrived and phase of every warp; of every warpgroup, from the end on
    VAIN = 16  # threads of this round that found nothing changed where they wait
    RANGES = 17  # address: sorted (first, end) addresses of live memory
    HALVINGS = 18  # logarithm of the number of these
    SCRATCH = 19  # address: where accesses outside go
    FAULT = 20  # five words: whether there was one, its address, the number of its line, thread, block
    TURN = 26  # of a block
    TOGETHER = 25  # blocks that run by turns; their contexts follow each other
    SIZE = 32


EXCHANGE_WORDS = 64  # of a thread
LINE_BYTES = 8192  # of a ucontext_t, at most
STACK_BYTES = 256 << 10


class Fiber(IntEnum):
    """The words of a ucontext_t that are set before `makecontext`."""

    LINK = 1  # address: the context that follows
    STACK = 2  # address
    STACK_SIZE = 4


Kernel = Callable[[Words, Words], None]  # the launch's words, the context
now = Global("emu.now", Words)  # the context of the block that runs


getcontext = declare("getcontext", Callable[[Address], i32])
makecontext = declare("makecontext", Callable[[Address, Callable[[], None], i32], None], variadic=True)
swapcontext = declare("swapcontext", Callable[[Address, Address], i32])


@native("gpu.thread", inline=True)
def thread(context: Words) -> i64:
    number: i64 = context[Context.THREAD]
    return number


@native("gpu.block", inline=True)
def block(context: Words) -> i64:
    number: i64 = context[Context.BLOCK]
    return number


@native("gpu.threads", inline=True)
def threads(context: Words) -> i64:
    count: i64 = context[Context.THREADS]
    return count


@native("gpu.blocks", inline=True)
def blocks(context: Words) -> i64:
    count: i64 = context[Context.BLOCKS]
    return count


@native("gpu.shared", inline=True)
def shared(context: Words) -> Bytes:
    memory: Bytes = context[Context.SHARED]
    return memory


@native("emu.line")
def fiber_of(context: Words, number: i64) -> Bytes:
    lines: Bytes = context[Context.LINES]
    return lines + number * LINE_BYTES


@native("emu.exchange")
def exchange(context: Words, number: i64) -> Words:
    """The line of a thread from which others read."""
    lines: Words = context[Context.EXCHANGE]
    return lines + number * EXCHANGE_WORDS


@native("emu.give_way", inline=False)
def give_way(context: Words) -> None:
    main: Address = context[Context.MAIN]
    swapcontext(fiber_of(context, thread(context)), main)


@native("emu.in_vain")
def in_vain(context: Words) -> None:
    Volatile[i64](context)[Context.VAIN] += 1


@native("emu.meet", inline=False)
def meet(context: Words, barrier: Volatile[i64], everyone: i64) -> None:
    """Wait until so many threads have come; `barrier`: how many have, and how often all did."""
    phase = barrier[1]
    arrived = barrier[0] + 1
    if arrived == everyone:
        barrier[0] = 0
        barrier[1] = phase + 1
        return
    barrier[0] = arrived
    give_way(context)
    while barrier[1] == phase:
        in_vain(context)
        give_way(context)


@native("gpu.prefetch")
def prefetch(context: Words, source: Address) -> None:
    pass


@native("gpu.grid_early")
def grid_early(context: Words) -> None:
    pass


@native("gpu.grid_wait")
def grid_wait(context: Words) -> None:
    pass


@native("gpu.barrier", inline=False)
def barrier(context: Words) -> None:
    meet(context, Volatile[i64](context + Context.ARRIVED), threads(context))


@native("gpu.warp_barrier", inline=False)
def warp_barrier(context: Words) -> None:
    warps: Volatile[i64] = context[Context.WARPS]
    meet(context, warps + (thread(context) >> 5) * 2, 32)


@native("emu.group_barrier", inline=False)
def group_barrier(context: Words) -> None:
    """Of the four warps of a warpgroup."""
    warps: Volatile[i64] = context[Context.WARPS]
    meet(context, warps + (threads(context) - 1 - (thread(context) >> 7)) * 2, 128)


@native("gpu.shuffle_xor", inline=False)
def shuffle_xor(context: Words, value: i32, mask: u32) -> i32:
    number = thread(context)
    Volatile[i32](exchange(context, number))[0] = value
    warp_barrier(context)
    theirs = Volatile[i32](exchange(context, number ^ i64(mask)))[0]
    warp_barrier(context)
    return theirs


@native("gpu.shuffle", inline=False)
def shuffle(context: Words, value: i32, lane: u32) -> i32:
    number = thread(context)
    Volatile[i32](exchange(context, number))[0] = value
    warp_barrier(context)
    theirs = Volatile[i32](exchange(context, (number & -32) + i64(lane & 31)))[0]
    warp_barrier(context)
    return theirs


@native("gpu.shuffle_up", inline=False)
def shuffle_up(context: Words, value: i32, distance: u32) -> i32:
    lane = thread(context) & 31
    return shuffle(context, value, u32(lane - i64(distance) if lane >= i64(distance) else lane))


@native("gpu.ballot", inline=False)
def ballot(context: Words, test: i32) -> i32:
    lanes = same_lanes(context, i32(test != 0))
    return lanes if test != 0 else ~lanes


@native("gpu.same_lanes", inline=False)
def same_lanes(context: Words, value: i32) -> i32:
    number, lanes = thread(context), i32(0)
    Volatile[i32](exchange(context, number))[0] = value
    warp_barrier(context)
    for lane in range(32):
        if Volatile[i32](exchange(context, (number & -32) + lane))[0] == value:
            lanes = lanes | i32(1) << i32(lane)
    warp_barrier(context)
    return lanes


@native("gpu.pause", inline=False)
def pause(context: Words) -> None:
    """Let others run: a word of another block is still to come."""
    in_vain(context)
    give_way(context)


@native("emu.fiber", inline=False)
def run_fiber() -> None:
    """One thread of a block. Its context is never left by returning."""
    context = Volatile[Words](now)[0]
    kernel: Kernel = context[Context.KERNEL]
    words: Words = context[Context.WORDS]
    kernel(words, context)
    done: Volatile[i64] = context[Context.DONE]
    done[thread(context)] = 1
    while True:
        give_way(context)


@native("emu.begin", inline=False)
def begin_block(context: Words, number: i64) -> None:
    """Make the threads of a block: fibers that have not yet run."""
    done: Volatile[i64] = context[Context.DONE]
    stacks: Bytes = context[Context.STACKS]
    main: Address = context[Context.MAIN]
    Volatile[Word](context)[Context.BLOCK] = number
    Volatile[Word](context)[Context.TURN] = number
    for i in range(threads(context)):
        fiber = Words(fiber_of(context, i))
        getcontext(fiber)
        fiber[Fiber.LINK] = main
        fiber[Fiber.STACK] = stacks + i * STACK_BYTES
        fiber[Fiber.STACK_SIZE] = STACK_BYTES
        makecontext(fiber, run_fiber, 0)
        done[i] = 0


@native("emu.turn", inline=False)
def turn_of_block(context: Words) -> i64:
    """Let every thread of a block run until it waits; returns how many are not over."""
    count = threads(context)
    moving = Volatile[Word](context)
    done: Volatile[i64] = context[Context.DONE]
    main: Address = context[Context.MAIN]
    moving[Context.VAIN] = 0
    moving[Context.TURN] += 1
    turn: i64 = moving[Context.TURN]
    left = 0
    for i in range(count):
        j = i if turn & 1 else count - 1 - i  # the last thread first, every other time
        if done[j] == 0:
            moving[Context.THREAD] = j
            Volatile[Words](now)[0] = context
            swapcontext(main, fiber_of(context, j))
            left += 1
    return left


@native("emu.blocks", inline=False)
def run_blocks(first: Words) -> i64:
    """Run the blocks of a grid, as many of them at a time as there are contexts, by turns: the last block
    first, every other time. 1 where those that are left wait for each other."""
    together: i64 = first[Context.TOGETHER]
    waiting, total = 0, blocks(first)
    for k in range(together):
        Volatile[Word](first + k * Context.SIZE)[Context.BLOCK] = -1
    turn = 1
    while True:
        left, vain = 0, 0
        for k in range(together):
            context = first + (together - 1 - k if turn & 1 else k) * Context.SIZE
            moving = Volatile[Word](context)
            number: i64 = moving[Context.BLOCK]
            if number < 0 and waiting < total:
                number = waiting
                begin_block(context, number)
                waiting += 1
            if number >= 0:
                threads_left = turn_of_block(context)
                in_block: i64 = moving[Context.VAIN]
                left += threads_left
                vain += in_block
                if threads_left == 0:
                    moving[Context.BLOCK] = -1
                    left += 1
        if left == 0:
            return 0
        if vain == left:  # nobody did anything that another could wait for
            return 1
        turn += 1


@native("emu.run")
def run(context: Words) -> i64:
    """Run all blocks of a grid; 1 where threads wait for each other for ever."""
    kernel: Kernel = context[Context.KERNEL]
    words: Words = context[Context.WORDS]
    Volatile[Words](now)[0] = context
    if context[Context.FIBERS]:
        return run_blocks(context)
    for number in range(blocks(context)):
        context[Context.BLOCK] = number
        for i in range(threads(context)):
            context[Context.THREAD] = i
            kernel(words, context)
    return 0


OF_KERNELS = (thread, block, threads, blocks, shared, exchange, give_way, in_vain, prefetch, grid_early, grid_wait,
              barrier, warp_barrier, group_barrier, shuffle_xor, shuffle, shuffle_up, ballot, same_lanes,
              pause)  # what the text of kernels calls


@cache
def runtime_text() -> str:
    return stored_text("emulator", lambda: module(run, internal=OF_KERNELS)) + guard_text(
        "@emu.now", Context.HALVINGS, Context.RANGES, Context.FAULT, Context.SCRATCH, Context.THREAD, Context.BLOCK)
