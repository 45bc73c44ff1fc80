"""The functions `@gpu.*` of a grid on the CPU. A thread of a block is a fiber (`swapcontext`) with a stack of its own;
it gives way at barriers and where the lanes of a warp exchange values, and the others of its block run meanwhile, by
their numbers or the last one first, in turn.

The context is a table of words (`Context`). Kernels without barriers need no fibers: threads run in turn.
"""

from __future__ import annotations

from enum import IntEnum

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
    SIZE = 32


EXCHANGE_WORDS = 64  # of a thread
LINE_BYTES = 8192  # of a ucontext_t, at most
STACK_BYTES = 256 << 10


def _get(name: str, field: int, kind: str = "i64") -> str:
    return f"""
define internal {kind} @gpu.{name}(ptr %c) alwaysinline {{
  %a = getelementptr i64, ptr %c, i64 {int(field)}
  %x = load {kind}, ptr %a, align 8
  ret {kind} %x
}}
"""


RUNTIME = (_get("thread", Context.THREAD) + _get("block", Context.BLOCK) + _get("threads", Context.THREADS)
           + _get("blocks", Context.BLOCKS) + _get("shared", Context.SHARED, "ptr") + f"""
declare i32 @getcontext(ptr)
declare void @makecontext(ptr, ptr, i32, ...)
declare i32 @swapcontext(ptr, ptr)
@emu.now = internal global ptr null

define internal ptr @emu.line(ptr %c, i64 %t) {{
  %la = getelementptr i64, ptr %c, i64 {int(Context.LINES)}
  %l = load ptr, ptr %la
  %o = mul i64 %t, {LINE_BYTES}
  %r = getelementptr i8, ptr %l, i64 %o
  ret ptr %r
}}

define internal void @emu.give_way(ptr %c) noinline {{
  %t = call i64 @gpu.thread(ptr %c)
  %mine = call ptr @emu.line(ptr %c, i64 %t)
  %ma = getelementptr i64, ptr %c, i64 {int(Context.MAIN)}
  %main = load ptr, ptr %ma
  %r = call i32 @swapcontext(ptr %mine, ptr %main)
  ret void
}}

define internal void @emu.in_vain(ptr %c) {{
  %va = getelementptr i64, ptr %c, i64 {int(Context.VAIN)}
  %v = load volatile i64, ptr %va
  %v1 = add i64 %v, 1
  store volatile i64 %v1, ptr %va
  ret void
}}

define internal void @emu.meet(ptr %c, ptr %place, i64 %all) noinline {{
entry:
  %pa = getelementptr i64, ptr %place, i64 1
  %phase = load volatile i64, ptr %pa
  %before = load volatile i64, ptr %place
  %here = add i64 %before, 1
  %full = icmp eq i64 %here, %all
  br i1 %full, label %last, label %wait
last:
  store volatile i64 0, ptr %place
  %next = add i64 %phase, 1
  store volatile i64 %next, ptr %pa
  ret void
wait:
  store volatile i64 %here, ptr %place
  br label %look
look:
  call void @emu.give_way(ptr %c)
  %now = load volatile i64, ptr %pa
  %still = icmp eq i64 %now, %phase
  br i1 %still, label %again, label %over
again:
  call void @emu.in_vain(ptr %c)
  br label %look
over:
  ret void
}}

define internal void @gpu.prefetch(ptr %c, ptr %source) {{
  ret void
}}
define internal void @gpu.grid_early(ptr %c) {{
  ret void
}}
define internal void @gpu.grid_wait(ptr %c) {{
  ret void
}}
define internal void @gpu.barrier(ptr %c) noinline {{
  %place = getelementptr i64, ptr %c, i64 {int(Context.ARRIVED)}
  %all = call i64 @gpu.threads(ptr %c)
  call void @emu.meet(ptr %c, ptr %place, i64 %all)
  ret void
}}

define internal void @gpu.warp_barrier(ptr %c) noinline {{
  %t = call i64 @gpu.thread(ptr %c)
  %w = lshr i64 %t, 5
  %wa = getelementptr i64, ptr %c, i64 {int(Context.WARPS)}
  %warps = load ptr, ptr %wa
  %at = shl i64 %w, 1
  %place = getelementptr i64, ptr %warps, i64 %at
  call void @emu.meet(ptr %c, ptr %place, i64 32)
  ret void
}}

define internal void @emu.group_barrier(ptr %c) noinline {{
  %t = call i64 @gpu.thread(ptr %c)
  %n = call i64 @gpu.threads(ptr %c)
  %g = lshr i64 %t, 7
  %last = sub i64 %n, 1
  %behind = sub i64 %last, %g
  %wa = getelementptr i64, ptr %c, i64 {int(Context.WARPS)}
  %warps = load ptr, ptr %wa
  %at = shl i64 %behind, 1
  %place = getelementptr i64, ptr %warps, i64 %at
  call void @emu.meet(ptr %c, ptr %place, i64 128)
  ret void
}}

define internal ptr @emu.exchange(ptr %c, i64 %t) {{
  %ea = getelementptr i64, ptr %c, i64 {int(Context.EXCHANGE)}
  %e = load ptr, ptr %ea
  %o = mul i64 %t, {EXCHANGE_WORDS}
  %r = getelementptr i64, ptr %e, i64 %o
  ret ptr %r
}}

define internal i32 @gpu.shuffle_xor(ptr %c, i32 %x, i32 %mask) noinline {{
  %t = call i64 @gpu.thread(ptr %c)
  %mine = call ptr @emu.exchange(ptr %c, i64 %t)
  store volatile i32 %x, ptr %mine
  call void @gpu.warp_barrier(ptr %c)
  %m = zext i32 %mask to i64
  %u = xor i64 %t, %m
  %theirs = call ptr @emu.exchange(ptr %c, i64 %u)
  %r = load volatile i32, ptr %theirs
  call void @gpu.warp_barrier(ptr %c)
  ret i32 %r
}}

define internal void @emu.fiber() noinline {{
entry:
  %c = load volatile ptr, ptr @emu.now
  %ka = getelementptr i64, ptr %c, i64 {int(Context.KERNEL)}
  %k = load ptr, ptr %ka
  %wa = getelementptr i64, ptr %c, i64 {int(Context.WORDS)}
  %w = load ptr, ptr %wa
  call void %k(ptr %w, ptr %c)
  %t = call i64 @gpu.thread(ptr %c)
  %da = getelementptr i64, ptr %c, i64 {int(Context.DONE)}
  %d = load ptr, ptr %da
  %mine = getelementptr i64, ptr %d, i64 %t
  store volatile i64 1, ptr %mine
  br label %away
away:
  call void @emu.give_way(ptr %c)
  br label %away
}}

define internal i64 @emu.block(ptr %c) noinline {{
entry:
  %n = call i64 @gpu.threads(ptr %c)
  %last = sub i64 %n, 1
  %b = call i64 @gpu.block(ptr %c)
  %ta = getelementptr i64, ptr %c, i64 {int(Context.THREAD)}
  %da = getelementptr i64, ptr %c, i64 {int(Context.DONE)}
  %d = load ptr, ptr %da
  %sa = getelementptr i64, ptr %c, i64 {int(Context.STACKS)}
  %stacks = load ptr, ptr %sa
  %ma = getelementptr i64, ptr %c, i64 {int(Context.MAIN)}
  %main = load ptr, ptr %ma
  %va = getelementptr i64, ptr %c, i64 {int(Context.VAIN)}
  br label %make
make:
  %i = phi i64 [ 0, %entry ], [ %i1, %make ]
  %line = call ptr @emu.line(ptr %c, i64 %i)
  %g = call i32 @getcontext(ptr %line)
  %link = getelementptr i8, ptr %line, i64 8
  store ptr %main, ptr %link
  %so = mul i64 %i, {STACK_BYTES}
  %stack = getelementptr i8, ptr %stacks, i64 %so
  %sp = getelementptr i8, ptr %line, i64 16
  store ptr %stack, ptr %sp
  %ss = getelementptr i8, ptr %line, i64 32
  store i64 {STACK_BYTES}, ptr %ss
  call void (ptr, ptr, i32, ...) @makecontext(ptr %line, ptr @emu.fiber, i32 0)
  %done = getelementptr i64, ptr %d, i64 %i
  store volatile i64 0, ptr %done
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %make, label %round
round:
  %r = phi i64 [ 0, %make ], [ %r1, %waiting ]
  %parity = xor i64 %r, %b
  %turned = trunc i64 %parity to i1  ; the last thread first, every other round
  store volatile i64 0, ptr %va
  br label %each
each:
  %i2 = phi i64 [ 0, %round ], [ %i3, %next ]
  %left = phi i64 [ 0, %round ], [ %left1, %next ]
  %back = sub i64 %last, %i2
  %j = select i1 %turned, i64 %back, i64 %i2
  %dj = getelementptr i64, ptr %d, i64 %j
  %isdone = load volatile i64, ptr %dj
  %skip = icmp ne i64 %isdone, 0
  br i1 %skip, label %next, label %go
go:
  store volatile i64 %j, ptr %ta
  store volatile ptr %c, ptr @emu.now
  %theirs = call ptr @emu.line(ptr %c, i64 %j)
  %s = call i32 @swapcontext(ptr %main, ptr %theirs)
  br label %next
next:
  %w = phi i64 [ 0, %each ], [ 1, %go ]
  %left1 = add i64 %left, %w
  %i3 = add i64 %i2, 1
  %again = icmp slt i64 %i3, %n
  br i1 %again, label %each, label %after
after:
  %r1 = add i64 %r, 1
  %any = icmp ne i64 %left1, 0
  br i1 %any, label %waiting, label %fine
waiting:
  %vain = load volatile i64, ptr %va
  %endless = icmp eq i64 %vain, %left1  ; nobody did anything that another could wait for
  br i1 %endless, label %stuck, label %round
stuck:
  ret i64 1
fine:
  ret i64 0
}}

define i64 @emu.run(ptr %c) {{
entry:
  %blocks = call i64 @gpu.blocks(ptr %c)
  %threads = call i64 @gpu.threads(ptr %c)
  %ba = getelementptr i64, ptr %c, i64 {int(Context.BLOCK)}
  %ta = getelementptr i64, ptr %c, i64 {int(Context.THREAD)}
  %fa = getelementptr i64, ptr %c, i64 {int(Context.FIBERS)}
  %f = load i64, ptr %fa
  %ka = getelementptr i64, ptr %c, i64 {int(Context.KERNEL)}
  %k = load ptr, ptr %ka
  %wa = getelementptr i64, ptr %c, i64 {int(Context.WORDS)}
  %w = load ptr, ptr %wa
  %fibers = icmp ne i64 %f, 0
  store volatile ptr %c, ptr @emu.now
  br label %block
block:
  %b = phi i64 [ 0, %entry ], [ %b1, %done ]
  store i64 %b, ptr %ba
  br i1 %fibers, label %together, label %thread
together:
  %failed = call i64 @emu.block(ptr %c)
  %bad = icmp ne i64 %failed, 0
  br i1 %bad, label %stuck, label %done
thread:
  %t = phi i64 [ 0, %block ], [ %t1, %thread ]
  store i64 %t, ptr %ta
  call void %k(ptr %w, ptr %c)
  %t1 = add i64 %t, 1
  %more = icmp slt i64 %t1, %threads
  br i1 %more, label %thread, label %done
done:
  %b1 = add i64 %b, 1
  %again = icmp slt i64 %b1, %blocks
  br i1 %again, label %block, label %over
stuck:
  ret i64 1
over:
  ret i64 0
}}
""" + guard_text("@emu.now", Context.HALVINGS, Context.RANGES, Context.FAULT, Context.SCRATCH, Context.THREAD,
                 Context.BLOCK))
