"""Worker threads, native code: spin then sleep, take pieces (work stealing), stay off the caller's core."""

from __future__ import annotations

from morpho.backends.cpu.codegen.emit import Emitter, Value
from morpho.backends.cpu.driver.abi import LINE_WORDS, BudgetField, Function, PoolField, Range, TaskField

SPIN = 40_000  # iterations of the spin loop before a thread sleeps: some 20 us, less than a wake-up takes
LONGEST_PAUSE = 14  # log2 of the most iterations of a random pause (tests of races only)


def _smin(e: Emitter, a: Value, b: Value) -> Value:
    return e.select(e.icmp("slt", a, b), a, b)


def _atomic(f: Function, operation: str, table: str, index: Value | int, operand: Value | int = 1) -> Value:
    number = operand.name if isinstance(operand, Value) else operand
    return f.e.assign(f"atomicrmw {operation} ptr {f.address(table, index)}, i64 {number} monotonic", "i64", 1)


def _now(f: Function, table: str, index: Value | int, order: str = "monotonic") -> Value:
    return f.e.assign(f"load atomic i64, ptr {f.address(table, index)} {order}, align 8", "i64", 1)


def _publish(f: Function, value: Value, field: PoolField) -> None:
    """Store a word of the pool after all that was written before."""
    f.e.line(f"store atomic i64 {value.name}, ptr {f.address('%pool', field)} release, align 8")


def _room(f: Function, budget: str, outside: Value, helpers: Value) -> Value:
    """How many more threads the pool's number leaves beside the tasks, the helpers and a caller that is no task."""
    return f.word("%pool", PoolField.THREADS) - outside - _now(f, budget, BudgetField.RUNNING) - helpers


def _stay_or_leave(f: Function, budget: str, stay: str) -> None:
    """A helper leaves when tasks have taken its place; as many leave as there are too many, no more."""
    e = f.e
    look, crowded, leave = e.fresh("look"), e.fresh("crowded"), e.fresh("leave")
    e.branch_if(e.icmp("eq", f.value("%thread"), 0), stay, look)
    e.label(look)
    helpers = _now(f, budget, BudgetField.HELPERS)
    room = _room(f, budget, f.word("%task", TaskField.OUTSIDE), helpers)
    e.branch_if(e.icmp("slt", room, 0), crowded, stay)
    e.label(crowded)
    fewer = helpers - 1
    pair = "%" + e.fresh("pair")
    e.line(f"{pair} = cmpxchg ptr {f.address(budget, BudgetField.HELPERS)}, i64 {helpers.name}, i64 {fewer.name} "
           "monotonic monotonic")
    e.branch_if(e.assign(f"extractvalue {{ i64, i1 }} {pair}, 1", "i1", 1), leave, look)
    e.label(leave)
    _atomic(f, "add", budget, BudgetField.LEFT)
    e.line("ret void")


def _pause(f: Function) -> str:
    """pause(): spin for a while that differs from call to call, up to some 10 us."""
    e = f.e
    number = e.assign("atomicrmw add ptr @pauses, i64 1 monotonic", "i64", 1)
    turns = (number * 0x9E3779B97F4A7C15).shift_right(64 - LONGEST_PAUSE)
    turns = e.select(e.icmp("eq", number & 3, 0), turns, e.constant(0, "i64", 1))  # three of four do not wait at all
    with e.loop(0, turns):
        e.assign("load volatile i64, ptr @pauses, align 8", "i64", 1)
    e.line("ret void")
    return "@pauses = internal global i64 0, align 8\n" + f.text()


def _work_on(f: Function, pauses: bool) -> str:
    """work_on(pool, task, thread): take pieces of a task until none is left, first those of the thread's own range,
    then those of other threads. Threads that are slow, late or given costly rows take fewer."""
    e = f.e

    def pause() -> None:
        if pauses:
            e.line("call void @pause()")

    pause()
    passed_at = f.alloca(1)  # ranges in which nothing is left
    f.store(0, passed_at, 0)
    budget = f.pointer("%pool", PoolField.BUDGET)
    helps = e.icmp("ne", f.value("%thread"), 0)
    function, places, values = (f.pointer("%task", field) for field in (TaskField.FUNCTION, TaskField.PLACES,
                                                                         TaskField.VALUES))
    rows, columns, grain = (f.word("%task", field) for field in (TaskField.ROWS, TaskField.COLUMNS, TaskField.GRAIN))
    by_columns = e.icmp("ne", f.word("%task", TaskField.BY_COLUMNS), 0)
    base = f.pointer("%task", TaskField.SCRATCH)
    scratch = e.offset(base, "i8", f.value("%thread") * f.word("%task", TaskField.SCRATCH_STRIDE))
    zero = e.constant(0, "i64", 1)
    with e.when(helps):
        _atomic(f, "add", budget, BudgetField.HELPERS)
    head, look, take, on, body, done = (e.fresh(name) for name in ("head", "look", "take", "on", "do", "done"))
    e.branch(head)
    e.label(head)
    _stay_or_leave(f, budget, look)
    e.label(look)
    threads, passed = f.word("%task", TaskField.THREADS), f.word(passed_at, 0)
    other = f.value("%thread") + passed
    other = e.select(e.icmp("slt", other, threads), other, other - threads)
    line = f.address("%task", other * LINE_WORDS + int(TaskField.RANGES))
    end = f.word(line, Range.END)
    e.branch_if(e.icmp("slt", _now(f, line, Range.NEXT), end), take, on)
    e.label(take)
    item = _atomic(f, "add", line, Range.NEXT, f.word("%task", TaskField.STEP))
    e.branch_if(e.icmp("slt", item, end), body, on)
    e.label(on)
    f.store(passed + 1, passed_at, 0)
    e.branch_if(e.icmp("slt", passed + 1, threads), look, done)
    e.label(body)
    _atomic(f, "add", f.pointer("%pool", PoolField.PIECES), f.value("%thread") * LINE_WORDS)
    pause()
    start = item * grain
    row_stop, column_stop = _smin(e, start + grain, rows), _smin(e, start + grain, columns)
    status = f.call_kernel(function, places, values,
                           (e.select(by_columns, zero, start), e.select(by_columns, rows, row_stop)),
                           (e.select(by_columns, start, zero), e.select(by_columns, column_stop, columns)), scratch)
    pause()
    with e.when(e.icmp("ne", status, 0)):  # a word that all threads write is better left alone
        wide = e.convert("zext", status, "i64")
        e.assign(f"atomicrmw or ptr {f.address('%task', TaskField.STATUS)}, i64 {wide.name} monotonic", "i64", 1)
    e.branch(head)
    e.label(done)
    with e.when(helps):
        _atomic(f, "sub", budget, BudgetField.HELPERS)
    e.line("ret void")
    return f.text()


def _lock_call(f: Function, field: PoolField, *targets: PoolField) -> None:
    function = f.pointer("%pool", field)
    arguments = ", ".join("ptr " + f.address("%pool", target) for target in targets)
    f.e.line(f"call i32 {function}({arguments})")


def _worker(f: Function) -> str:
    """worker(pool, thread): look for a task a short while, then sleep until there is one; ends when told to stop."""
    e = f.e
    seen_at = f.alloca(1)
    f.store(0, seen_at, 0)
    top, asleep, wake, check, enter, stop, again = (e.fresh(n) for n in (
        "top", "asleep", "wake", "check", "enter", "stop", "again"))
    e.branch(top)
    e.label(top)
    seen = f.word(seen_at, 0)
    with e.loop(0, SPIN) as loop:
        now = e.assign(f"load atomic i64, ptr {f.address('%pool', PoolField.GENERATION)} monotonic, align 8", "i64", 1)
        following = e.fresh("look")
        e.branch_if(e.icmp("ne", now, seen), asleep, following)
        e.label(following)
        loop.next()
    e.branch(asleep)
    e.label(asleep)
    _lock_call(f, PoolField.LOCK, PoolField.MUTEX)
    e.branch(check)
    e.label(check)
    stopping = e.icmp("ne", f.word("%pool", PoolField.STOP), 0)
    e.branch_if(stopping, stop, again)
    e.label(again)
    generation = f.word("%pool", PoolField.GENERATION)
    task = f.pointer("%pool", PoolField.TASK)
    fresh = e.icmp("ne", generation, f.word(seen_at, 0))
    present = e.assign(f"icmp ne ptr {task}, null", "i1", 1)
    e.branch_if(fresh & present, enter, wake)
    e.label(wake)
    _lock_call(f, PoolField.WAIT, PoolField.WORK, PoolField.MUTEX)
    e.branch(check)
    e.label(enter)
    f.store(generation, seen_at, 0)
    _publish(f, f.word("%pool", PoolField.INSIDE) + 1, PoolField.INSIDE)
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.line(f"call void @work_on(ptr %pool, ptr {task}, i64 %thread)")
    _lock_call(f, PoolField.LOCK, PoolField.MUTEX)
    left = f.word("%pool", PoolField.INSIDE) - 1
    _publish(f, left, PoolField.INSIDE)
    with e.when(e.icmp("eq", left, 0)):
        _lock_call(f, PoolField.BROADCAST, PoolField.DONE)
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.branch(top)
    e.label(stop)
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.line("ret void")
    return f.text()


MASK_WORDS = 16  # of a processor mask: 1024 processors


def _avoid(f: Function) -> str:
    """avoid(pool): keep the workers off the caller's processor. A woken thread is often put on the processor of the
    thread that wakes it and stays there for milliseconds, while another one idles."""
    e = f.e
    function = f.pointer("%pool", PoolField.GETCPU)
    ask, told, done = e.fresh("ask"), e.fresh("told"), e.fresh("done")
    e.branch_if(e.assign(f"icmp eq ptr {function}, null", "i1", 1), done, ask)
    e.label(ask)
    here = e.convert("sext", e.assign(f"call i32 {function}()", "i32", 1), "i64")
    moved = e.icmp("ne", here, f.word("%pool", PoolField.LAST_CPU)) & e.icmp("sge", here, 0)
    e.branch_if(moved & e.icmp("slt", here, 64 * MASK_WORDS), told, done)
    e.label(told)
    f.store(here, "%pool", PoolField.LAST_CPU)
    mask = f.pointer("%pool", PoolField.MASK)
    size = e.assign(f"call i32 {f.pointer('%pool', PoolField.GETAFFINITY)}(i32 0, i64 {8 * MASK_WORDS}, ptr {mask})",
                    "i32", 1)
    f.go_unless(e.icmp("sge", size, 0), done)
    word = here.shift_right(6)
    bit = e.constant(1, "i64", 1) << (here & 63)
    f.store(f.word(mask, word) & (bit ^ -1), mask, word)
    with e.loop(0, MASK_WORDS, carried=[e.constant(0, "i64", 1)]) as loop:
        loop.next(loop.values[0] | f.word(mask, loop.index))
    f.go_unless(e.icmp("ne", loop.values[0], 0), done)  # the caller may use one processor only: nothing to tell
    workers = f.pointer("%pool", PoolField.IDENTITIES)
    with e.loop(1, f.word("%pool", PoolField.THREADS)) as loop:
        identity = e.convert("trunc", f.word(workers, loop.index), "i32")
        e.line(f"call i32 {f.pointer('%pool', PoolField.SETAFFINITY)}(i32 {identity.name}, i64 {8 * MASK_WORDS}, "
               f"ptr {mask})")
    e.branch(done)
    e.label(done)
    e.line("ret void")
    return f.text()


def _outside(f: Function) -> str:
    """outside(pool): 1 unless the calling thread is a task worker, which is counted as running already."""
    e = f.e
    budget = f.pointer("%pool", PoolField.BUDGET)
    own = e.assign(f"call i64 {f.pointer('%pool', PoolField.SELF)}()", "i64", 1)
    with e.loop(0, f.word(budget, BudgetField.WORKERS), carried=[e.constant(1, "i64", 1)]) as loop:
        same = e.icmp("eq", f.word(budget, loop.index + int(BudgetField.TABLE)), own)
        loop.next(e.select(same, e.constant(0, "i64", 1), loop.values[0]))
    e.line(f"ret i64 {loop.values[0].name}")
    return f.text()


def _share(f: Function) -> str:
    """share(pool, task): offer a task to the threads, work on it too, wait for those inside. One task at a time:
    a second caller works alone, and so does one that finds no room beside running tasks."""
    e = f.e
    alone, offer, wait, look, gone, still, sleep, finish, done = (e.fresh(n) for n in (
        "alone", "offer", "wait", "look", "gone", "still", "sleep", "finish", "done"))
    ask, full = e.fresh("ask"), e.fresh("full")
    budget = f.pointer("%pool", PoolField.BUDGET)
    outside = e.assign("call i64 @outside(ptr %pool)", "i64", 1)
    f.store(outside, "%task", TaskField.OUTSIDE)
    room = _room(f, budget, outside, _now(f, budget, BudgetField.HELPERS))
    e.branch_if(e.icmp("sgt", room, 0), ask, full)
    e.label(full)
    _atomic(f, "add", budget, BudgetField.ALONE)
    e.line("call void @work_on(ptr %pool, ptr %task, i64 0)")
    e.line("ret void")
    e.label(ask)
    _lock_call(f, PoolField.LOCK, PoolField.MUTEX)
    taken = e.assign(f"icmp ne ptr {f.pointer('%pool', PoolField.TASK)}, null", "i1", 1)
    e.branch_if(taken, alone, offer)
    e.label(alone)
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.line("call void @work_on(ptr %pool, ptr %task, i64 0)")
    e.line("ret void")
    e.label(offer)
    f.store_pointer("%task", "%pool", PoolField.TASK)
    f.store(f.word("%pool", PoolField.RUNS) + 1, "%pool", PoolField.RUNS)
    e.line("call void @avoid(ptr %pool)")
    # As late as can be: whoever sees it asks for the lock, and who finds that taken may go to sleep.
    _publish(f, f.word("%pool", PoolField.GENERATION) + 1, PoolField.GENERATION)
    _lock_call(f, PoolField.BROADCAST, PoolField.WORK)
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.line("call void @work_on(ptr %pool, ptr %task, i64 0)")
    _lock_call(f, PoolField.LOCK, PoolField.MUTEX)
    f.store_pointer("null", "%pool", PoolField.TASK)
    e.branch(wait)
    e.label(wait)
    e.branch_if(e.icmp("eq", f.word("%pool", PoolField.INSIDE), 0), finish, look)
    e.label(look)  # nobody enters any more; those inside are mostly about to leave, and need the lock for it
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    with e.loop(0, SPIN):
        following = e.fresh("look")
        e.branch_if(e.icmp("eq", _now(f, "%pool", PoolField.INSIDE, "acquire"), 0), done, following)
        e.label(following)
    e.branch(gone)
    e.label(gone)
    _lock_call(f, PoolField.LOCK, PoolField.MUTEX)
    e.branch(still)
    e.label(still)
    e.branch_if(e.icmp("eq", f.word("%pool", PoolField.INSIDE), 0), finish, sleep)
    e.label(sleep)
    _lock_call(f, PoolField.WAIT, PoolField.DONE, PoolField.MUTEX)
    e.branch(still)
    e.label(finish)
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.branch(done)
    e.label(done)
    e.line("ret void")
    return f.text()


def thread_functions(pauses: bool = False) -> list[str]:
    """The text of every function here. With `pauses`, threads wait before and after pieces now and then, so that tests
    see orders of events that are rare otherwise."""
    return [
        *([_pause(Function("pause", "", "void"))] if pauses else []),
        _work_on(Function("work_on", "ptr %pool, ptr %task, i64 %thread", "void"), pauses),
        _worker(Function("worker", "ptr %pool, i64 %thread", "void")),
        _avoid(Function("avoid", "ptr %pool", "void")),
        _outside(Function("outside", "ptr %pool", "i64")),
        _share(Function("share", "ptr %pool, ptr %task", "void")),
    ]
