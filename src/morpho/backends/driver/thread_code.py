"""Worker threads, native code: spin then sleep, take pieces (work stealing), stay off the caller's core."""

from __future__ import annotations

from morpho.backends.code.emit import FAULT_INTERRUPT, Emitter, Value
from morpho.backends.driver.abi import LINE_WORDS, BudgetField, Function, PoolField, Range, TaskField
from morpho.backends.driver.interrupts import TABLE, InterruptField, is_main

FEW_THREADS = 4  # with the caller: are woken in some 3 us, sixteen in 12 to 20, so the others wait apart
SPIN = 40_000  # iterations of the spin loop before a thread sleeps: some 20 us, less than a wake-up takes
LOOKS = 4  # of those iterations are as long as a look at who is inside
OPEN = 1 << 31  # in a pool's state: threads may enter
WAIT_NS = 20_000_000  # that the main thread sleeps at a time while other threads finish
LONGEST_PAUSE = 14  # log2 of the most iterations of a random pause (tests of races only)


def _smin(e: Emitter, a: Value, b: Value) -> Value:
    return e.select(e.icmp("slt", a, b), a, b)


def _atomic(f: Function, operation: str, table: str, index: Value | int, operand: Value | int = 1) -> Value:
    number = operand.name if isinstance(operand, Value) else operand
    return f.e.assign(f"atomicrmw {operation} ptr {f.address(table, index)}, i64 {number} monotonic", "i64", 1)


def _now(f: Function, table: str, index: Value | int, order: str = "monotonic") -> Value:
    return f.e.assign(f"load atomic i64, ptr {f.address(table, index)} {order}, align 8", "i64", 1)


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
    _atomic(f, "add", "%task", TaskField.LEFT)
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


def _poll_for(f: Function) -> None:
    """Poll, and let all threads leave the task if the program is interrupted."""
    e = f.e
    status = e.convert("zext", e.assign("call i32 @poll(i64 0)", "i32", 1), "i64") & FAULT_INTERRUPT
    with e.when(e.icmp("ne", status, 0)):
        e.assign(f"atomicrmw or ptr {f.address('%task', TaskField.STATUS)}, i64 {status.name} monotonic", "i64", 1)


def work_on(f: Function, pauses: bool = False, hosted: bool = False) -> str:
    """work_on(pool, task, thread): take pieces of a task until none is left, first those of the thread's own range,
    then those of other threads. Threads that are slow, late or given costly rows take fewer. A `hosted` one runs on
    threads of another program, which has no budget, and nobody interrupts it."""
    e = f.e

    def pause() -> None:
        if pauses:
            e.line("call void @pause()")

    pause()
    passed_at = f.alloca(1)  # ranges in which nothing is left
    f.store(0, passed_at, 0)
    budget = "" if hosted else f.pointer("%pool", PoolField.BUDGET)
    function, places, values = (f.pointer("%task", field) for field in (TaskField.FUNCTION, TaskField.PLACES,
                                                                         TaskField.VALUES))
    rows, columns, grain = (f.word("%task", field) for field in (TaskField.ROWS, TaskField.COLUMNS, TaskField.GRAIN))
    by_columns = e.icmp("ne", f.word("%task", TaskField.BY_COLUMNS), 0)
    base = f.pointer("%task", TaskField.SCRATCH)
    scratch = e.offset(base, "i8", f.value("%thread") * f.word("%task", TaskField.SCRATCH_STRIDE))
    zero = e.constant(0, "i64", 1)
    head, look, take, on, body, done = (e.fresh(name) for name in ("head", "look", "take", "on", "do", "done"))
    e.branch(head)
    e.label(head)
    stay = e.fresh("stay")
    e.branch_if(e.icmp("ne", _now(f, "%task", TaskField.STATUS) & FAULT_INTERRUPT, 0), done, stay)
    e.label(stay)
    if hosted:
        e.branch(look)
    else:
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
    if not hosted:
        _atomic(f, "add", f.pointer("%pool", PoolField.PIECES), f.value("%thread") * LINE_WORDS)
    pause()
    start = item * grain
    row_stop, column_stop = _smin(e, start + grain, rows), _smin(e, start + grain, columns)
    status = f.call_kernel(function, places, values,
                           (e.select(by_columns, zero, start), e.select(by_columns, rows, row_stop)),
                           (e.select(by_columns, start, zero), e.select(by_columns, column_stop, columns)), scratch)
    pause()
    if not hosted:
        with e.when(e.icmp("ne", f.word("%task", TaskField.POLLS), 0)):
            _poll_for(f)
    with e.when(e.icmp("ne", status, 0)):  # a word that all threads write is better left alone
        wide = e.convert("zext", status, "i64")
        e.assign(f"atomicrmw or ptr {f.address('%task', TaskField.STATUS)}, i64 {wide.name} monotonic", "i64", 1)
    e.branch(head)
    e.label(done)
    e.line("ret void")
    return f.text()


def _lock_call(f: Function, field: PoolField, *targets: PoolField | str) -> None:
    function = f.pointer("%pool", field)
    places = (target if isinstance(target, str) else f.address("%pool", target) for target in targets)
    arguments = ", ".join(f"ptr {place}" for place in places)
    f.e.line(f"call i32 {function}({arguments})")


def _inside(f: Function, thread: Value | int) -> str:
    """Where a thread says that it is inside."""
    return f.address(f.pointer("%pool", PoolField.INSIDE), thread * LINE_WORDS)


def _anyone_inside(f: Function) -> str:
    """anyone_inside(pool): not 0 while a thread may be at a task."""
    e = f.e
    table = f.pointer("%pool", PoolField.INSIDE)
    with e.loop(1, f.word("%pool", PoolField.THREADS), carried=[e.constant(0, "i64", 1)]) as loop:
        loop.next(loop.values[0] | _now(f, table, loop.index * LINE_WORDS, "seq_cst"))
    e.line(f"ret i64 {loop.values[0].name}")
    return f.text()


def _leave(f: Function) -> str:
    """leave(pool, thread): it is not inside any more, and wakes an owner that sleeps, who looks for others."""
    e = f.e
    e.line(f"store atomic i64 0, ptr {_inside(f, f.value('%thread'))} seq_cst, align 8")
    wake, done = e.fresh("wake"), e.fresh("done")
    e.branch_if(e.icmp("ne", _now(f, "%pool", PoolField.WAITING, "seq_cst"), 0), wake, done)
    e.label(wake)
    _lock_call(f, PoolField.LOCK, PoolField.MUTEX)
    _lock_call(f, PoolField.BROADCAST, PoolField.DONE)
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.branch(done)
    e.label(done)
    e.line("ret void")
    return f.text()


def _is_offer(f: Function, state: Value, seen: Value) -> Value:
    """Whether a state is an offer that this thread has not taken part in, and still open."""
    return f.e.icmp("ne", state.shift_right(32), seen) & f.e.icmp("ne", state & OPEN, 0)


def _worker(f: Function) -> str:
    """worker(pool, thread): look for an offer a short while, then sleep until there is one; ends when told to stop.

    A thread enters by saying so in a line of its own, then looks whether the offer is still open; the owner closes it,
    then looks who has entered. So threads write nothing that others write: adding to one word took sixteen of them
    some 5 us. No lock is taken where nobody sleeps.
    """
    e = f.e
    seen_at = f.alloca(1)
    f.store(0, seen_at, 0)
    few = e.icmp("slt", f.value("%thread"), FEW_THREADS)
    wake, sleepers = (f"%{e.fresh(name)}" for name in ("wake", "sleepers"))
    for place, fields in ((wake, (PoolField.WORK, PoolField.MORE)),
                          (sleepers, (PoolField.SLEEPERS, PoolField.MORE_SLEEPERS))):
        first, other = (f.address("%pool", field) for field in fields)
        e.line(f"{place} = select i1 {few.name}, ptr {first}, ptr {other}")
    top, tired, check, go_on, doze, up, asked, skip, enter, work, out, stop = (e.fresh(n) for n in (
        "top", "tired", "check", "on", "doze", "up", "asked", "skip", "enter", "work", "out", "stop"))
    e.branch(top)
    e.label(top)
    with e.loop(0, SPIN) as loop:
        following = e.fresh("look")
        e.branch_if(_is_offer(f, _now(f, "%pool", PoolField.STATE, "acquire"), f.word(seen_at, 0)), asked, following)
        e.label(following)
        loop.next()
    e.branch(tired)
    e.label(tired)
    _lock_call(f, PoolField.LOCK, PoolField.MUTEX)
    e.branch(check)
    e.label(check)
    e.branch_if(e.icmp("ne", f.word("%pool", PoolField.STOP), 0), stop, go_on)
    e.label(go_on)
    # First say that one is asleep, then look once more; the owner first offers, then looks who is.
    e.assign(f"atomicrmw add ptr {sleepers}, i64 1 seq_cst", "i64", 1)
    e.branch_if(_is_offer(f, _now(f, "%pool", PoolField.STATE, "seq_cst"), f.word(seen_at, 0)), up, doze)
    e.label(doze)
    _lock_call(f, PoolField.WAIT, wake, PoolField.MUTEX)
    e.assign(f"atomicrmw sub ptr {sleepers}, i64 1 seq_cst", "i64", 1)
    awake = e.fresh("awake")
    e.branch_if(_is_offer(f, _now(f, "%pool", PoolField.STATE, "seq_cst"), f.word(seen_at, 0)), awake, check)
    e.label(awake)
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.branch(asked)
    e.label(up)
    e.assign(f"atomicrmw sub ptr {sleepers}, i64 1 seq_cst", "i64", 1)
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.branch(asked)
    e.label(asked)  # whether this thread is meant; if that is said of a later offer, that one will be looked at, too
    state = _now(f, "%pool", PoolField.STATE, "acquire")
    e.branch_if(e.icmp("slt", f.value("%thread"), _now(f, "%pool", PoolField.WANTED)), enter, skip)
    e.label(skip)
    f.store(state.shift_right(32), seen_at, 0)
    e.branch(top)
    e.label(enter)
    e.line(f"store atomic i64 1, ptr {_inside(f, f.value('%thread'))} seq_cst, align 8")
    state = _now(f, "%pool", PoolField.STATE, "seq_cst")
    meant = e.icmp("slt", f.value("%thread"), _now(f, "%pool", PoolField.WANTED))
    e.branch_if(_is_offer(f, state, f.word(seen_at, 0)) & meant, work, out)
    e.label(work)
    f.store(state.shift_right(32), seen_at, 0)
    e.line(f"call void @work_on(ptr %pool, ptr {f.pointer('%pool', PoolField.TASK)}, i64 %thread)")
    e.branch(out)
    e.label(out)
    e.line("call void @leave(ptr %pool, i64 %thread)")
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


def _wake(f: Function, sleepers: PoolField, waiting: PoolField) -> None:
    with f.e.when(f.e.icmp("ne", _now(f, "%pool", sleepers, "seq_cst"), 0)):
        _lock_call(f, PoolField.LOCK, PoolField.MUTEX)
        _lock_call(f, PoolField.BROADCAST, waiting)
        _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)


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


def _wait_a_while(f: Function) -> None:
    """Wait until threads are done, or for `WAIT_NS`: the main thread has to poll meanwhile."""
    e, time_at = f.e, f.alloca(2)
    clock = f.pointer(TABLE, InterruptField.CLOCK)
    e.line(f"call i32 {clock}(i32 0, ptr {time_at})")
    later = f.word(time_at, 1) + WAIT_NS
    over = e.icmp("sge", later, 1_000_000_000)
    f.store(f.word(time_at, 0) + e.convert("zext", over, "i64"), time_at, 0)
    f.store(e.select(over, later - 1_000_000_000, later), time_at, 1)
    _lock_call(f, PoolField.TIMED_WAIT, PoolField.DONE, PoolField.MUTEX, time_at)


def _share(f: Function) -> str:
    """share(pool, task): offer a task to the threads, work on it too, wait for those inside. One task at a time:
    a second caller works alone, and so does one that finds no room beside running tasks."""
    e = f.e
    alone, offer, gone, still, sleep, finish, done = (e.fresh(n) for n in (
        "alone", "offer", "gone", "still", "sleep", "finish", "done"))
    ask, full = e.fresh("ask"), e.fresh("full")
    budget = f.pointer("%pool", PoolField.BUDGET)
    outside = e.assign("call i64 @outside(ptr %pool)", "i64", 1)
    f.store(outside, "%task", TaskField.OUTSIDE)
    f.store(0, "%task", TaskField.LEFT)
    room = _room(f, budget, outside, _now(f, budget, BudgetField.HELPERS))
    e.branch_if(e.icmp("sgt", room, 0), ask, full)
    e.label(full)
    _atomic(f, "add", budget, BudgetField.ALONE)
    e.line("call void @work_on(ptr %pool, ptr %task, i64 0)")
    e.line("ret void")
    e.label(ask)
    pair = "%" + e.fresh("pair")
    e.line(f"{pair} = cmpxchg ptr {f.address('%pool', PoolField.TASK)}, ptr null, ptr %task acq_rel monotonic")
    e.branch_if(e.assign(f"extractvalue {{ ptr, i1 }} {pair}, 1", "i1", 1), offer, alone)
    e.label(alone)
    e.line("call void @work_on(ptr %pool, ptr %task, i64 0)")
    e.line("ret void")
    e.label(offer)
    f.store(f.word("%pool", PoolField.RUNS) + 1, "%pool", PoolField.RUNS)
    e.line("call void @avoid(ptr %pool)")
    helpers = _smin(e, room, f.word("%task", TaskField.THREADS) - 1)
    _atomic(f, "add", budget, BudgetField.HELPERS, helpers)
    e.line(f"store atomic i64 {(helpers + 1).name}, ptr {f.address('%pool', PoolField.WANTED)} monotonic, align 8")
    e.assign(f"atomicrmw add ptr {f.address('%pool', PoolField.STATE)}, i64 {(1 << 32) + OPEN} seq_cst", "i64", 1)
    _wake(f, PoolField.SLEEPERS, PoolField.WORK)
    with e.when(e.icmp("sge", helpers, FEW_THREADS)):
        _wake(f, PoolField.MORE_SLEEPERS, PoolField.MORE)
    e.line("call void @work_on(ptr %pool, ptr %task, i64 0)")
    e.assign(f"atomicrmw sub ptr {f.address('%pool', PoolField.STATE)}, i64 {OPEN} seq_cst", "i64", 1)
    with e.loop(0, SPIN // LOOKS):  # nobody enters any more; those inside are mostly about to leave
        following = e.fresh("look")
        inside = e.assign("call i64 @anyone_inside(ptr %pool)", "i64", 1)
        e.branch_if(e.icmp("eq", inside, 0), done, following)
        e.label(following)
    e.branch(gone)
    e.label(gone)
    _lock_call(f, PoolField.LOCK, PoolField.MUTEX)
    e.line(f"store atomic i64 1, ptr {f.address('%pool', PoolField.WAITING)} seq_cst, align 8")
    e.branch(still)
    e.label(still)
    inside = e.assign("call i64 @anyone_inside(ptr %pool)", "i64", 1)
    e.branch_if(e.icmp("eq", inside, 0), finish, sleep)
    e.label(sleep)
    for ours in e.both(is_main(f)):
        if not ours:
            _lock_call(f, PoolField.WAIT, PoolField.DONE, PoolField.MUTEX)
            continue
        _wait_a_while(f)
        _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
        _poll_for(f)
        _lock_call(f, PoolField.LOCK, PoolField.MUTEX)
    e.branch(still)
    e.label(finish)
    e.line(f"store atomic i64 0, ptr {f.address('%pool', PoolField.WAITING)} seq_cst, align 8")
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.branch(done)
    e.label(done)
    _atomic(f, "sub", budget, BudgetField.HELPERS, helpers - _now(f, "%task", TaskField.LEFT))
    e.line(f"store atomic ptr null, ptr {f.address('%pool', PoolField.TASK)} release, align 8")
    e.line("ret void")
    return f.text()


def thread_functions(pauses: bool = False) -> list[str]:
    """The text of every function here. With `pauses`, threads wait before and after pieces now and then, so that tests
    see orders of events that are rare otherwise."""
    return [
        *([_pause(Function("pause", "", "void"))] if pauses else []),
        work_on(Function("work_on", "ptr %pool, ptr %task, i64 %thread", "void"), pauses),
        _anyone_inside(Function("anyone_inside", "ptr %pool", "i64")),
        _leave(Function("leave", "ptr %pool, i64 %thread", "void")),
        _worker(Function("worker", "ptr %pool, i64 %thread", "void")),
        _avoid(Function("avoid", "ptr %pool", "void")),
        _outside(Function("outside", "ptr %pool", "i64")),
        _share(Function("share", "ptr %pool, ptr %task", "void")),
    ]
