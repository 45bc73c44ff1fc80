"""The native driver: one compiled function that checks a call's arguments and runs a whole program, no Python between.

It is data-driven: a program is a table, so a new compiled function needs no driver of its own. Written once in LLVM
text here, compiled once per machine, kept in the disk cache like any kernel. The tables are arrays of 64-bit words;
the classes below name their fields.
"""

from __future__ import annotations

from enum import IntEnum

from morpho.kernels.emit import Emitter, Value
from morpho.runtime.layout import BYTES_DATA, WORD, WRITABLE

WORK_PER_THREAD = 1 << 20  # below this much work (columns x operations) a second thread costs more than it gives
CHUNKS_PER_THREAD = 4
SPIN = 4000  # looks at the work word before a thread goes to sleep


class StepField(IntEnum):
    """One step of a program."""

    FUNCTION = 0
    PLACES = 1  # how many
    PLACE_TABLE = 2  # pairs: slot, index of the byte offset among the values
    VALUES = 3  # index of the kernel's first number
    ROWS = 4  # index of the number of rows
    COLUMNS = 5  # index of the number of columns
    SPLITS = 6  # 1 when columns may be divided among threads
    WORK = 7  # operations per column
    SCRATCH = 8  # bytes of scratch per column
    SCRATCH_FIXED = 9  # bytes of scratch besides
    PIECES = 10  # pieces per thread
    SIZE = 11


class ProgramField(IntEnum):
    """A program."""

    STEPS = 0
    STEP_TABLE = 1
    VALUES = 2  # how many numbers
    VALUE_TABLE = 3  # their values, when there are no symbols
    SYMBOLS = 4
    TERM_STARTS = 5  # per value: its first term; one more at the end
    TERM_TABLE = 6  # per term: coefficient and four symbol numbers, 0 meaning the constant 1
    POOL = 7
    SIZE = 8


class ContextField(IntEnum):
    """What a compiled function's entry needs besides the program."""

    PROGRAM = 0
    TENSOR_TYPE = 1
    BYTES_TYPE = 2
    SLOW = 3  # Python callable that takes every call the entry does not
    FAULT = 4  # Python callable that raises for the status
    OUT_NAME = 5  # the interned string "out"
    INPUTS = 6
    SLOTS = 7
    GUARD_TABLE = 8  # per argument and then the output: number of words, index of the first expected value
    BINDINGS = 9  # per symbol: argument, word, least, most
    ARENA = 10
    BUSY = 11
    CALLS = 12
    STATUS = 13
    RELEASES = 14  # 1 when the interpreter lock is given up during the run
    VECTORCALL = 15
    SAVE_THREAD = 16
    RESTORE_THREAD = 17
    INCREMENT = 18
    OVERLAP = 19  # 1 when the output may be one of the inputs
    SCRATCH = 20
    ENABLED = 21
    FAULTED = 22  # the program behind STATUS
    DECREMENT = 23
    OUTPUTS = 24
    OUTPUT_TABLE = 25  # per output: its slot
    TUPLE_TYPE = 26
    ALLOCATE = 27  # Python callable that makes a tuple of new outputs for a call's arguments
    SINGLE = 28  # 1 when the function returns one tensor, 0 when it returns a tuple
    SIZE = 29


class PoolField(IntEnum):
    """The threads' meeting place; the first words are the C library's mutex and condition variables."""

    MUTEX = 0
    WORK = 8
    DONE = 16
    GENERATION = 24
    TASK = 25
    INSIDE = 26
    STOP = 27
    THREADS = 28
    LOCK = 29
    UNLOCK = 30
    WAIT = 31
    BROADCAST = 32
    RUNS = 33  # parallel runs so far, for tests
    GETCPU = 34  # the C library's sched_getcpu and sched_setaffinity, or 0 where there are none
    SETAFFINITY = 35
    LAST_CPU = 36  # the caller's processor when the workers were last told to stay off it
    IDENTITIES = 37  # table of the workers' thread numbers
    MASK = 38  # room for a processor mask
    GETAFFINITY = 39
    SIZE = 40


class TaskField(IntEnum):
    """One kernel divided among threads."""

    FUNCTION = 0
    PLACES = 1
    VALUES = 2
    ROWS = 3
    COLUMNS = 4
    GRAIN = 5
    ITEMS = 6
    BY_COLUMNS = 7
    SCRATCH = 8
    SCRATCH_STRIDE = 9
    NEXT = 10
    STATUS = 11
    SIZE = 12


class _Function:
    """One driver function being written: word access on tables, calls through pointers."""

    def __init__(self, name: str, arguments: str, result: str) -> None:
        self.e = Emitter(1)
        self.head = f"define {result} @{name}({arguments}) nounwind {{\nentry:\n"

    def text(self) -> str:
        return self.head + self.e.text() + "\n}\n"

    def address(self, table: str, index: Value | int) -> str:
        return self.e.offset(table, "i64", index)

    def word(self, table: str, index: Value | int) -> Value:
        return self.e.load(self.address(table, index), "i64", 1)

    def pointer(self, table: str, index: Value | int) -> str:
        return self.e.load_pointer(self.address(table, index))

    def store(self, value: Value | int, table: str, index: Value | int) -> None:
        self.e.store(self.e.like(value, self.e.constant(0, "i64", 1)), self.address(table, index))

    def store_pointer(self, value: str, table: str, index: Value | int) -> None:
        self.e.line(f"store ptr {value}, ptr {self.address(table, index)}, align 8")

    def alloca(self, words: Value | int) -> str:
        name = "%" + self.e.fresh("a")
        count = words.name if isinstance(words, Value) else str(words)
        self.e.line(f"{name} = alloca i64, i64 {count}, align 64")
        return name

    def same(self, left: str, right: str) -> Value:
        return self.e.assign(f"icmp eq ptr {left}, {right}", "i1", 1)

    def value(self, name: str) -> Value:
        return self.e.argument(name, "i64", 1)

    def go_unless(self, condition: Value, target: str) -> None:
        following = self.e.fresh("next")
        self.e.branch_if(condition, following, target)
        self.e.label(following)

    def call_kernel(self, function: str, places: str, values: str, rows: tuple[Value, Value],
                    columns: tuple[Value, Value], scratch: str) -> Value:
        numbers = ", ".join(f"i64 {v.name}" for v in (*rows, *columns))
        return self.e.assign(f"call i32 {function}(ptr {places}, ptr {values}, {numbers}, ptr {scratch})", "i32", 1)


def _smin(e: Emitter, a: Value, b: Value) -> Value:
    return e.select(e.icmp("slt", a, b), a, b)


def _work_on(f: _Function) -> str:
    """work_on(task, thread): take pieces of a task until none is left."""
    e = f.e
    function, places, values = (f.pointer("%task", field) for field in (0, 1, 2))
    rows, columns, grain, items = (f.word("%task", field) for field in (3, 4, 5, 6))
    by_columns = e.icmp("ne", f.word("%task", TaskField.BY_COLUMNS), 0)
    base = f.pointer("%task", TaskField.SCRATCH)
    scratch = e.offset(base, "i8", f.value("%thread") * f.word("%task", TaskField.SCRATCH_STRIDE))
    zero = e.constant(0, "i64", 1)
    head, body, done = e.fresh("take"), e.fresh("do"), e.fresh("done")
    e.branch(head)
    e.label(head)
    item = e.assign(f"atomicrmw add ptr {f.address('%task', TaskField.NEXT)}, i64 1 monotonic", "i64", 1)
    e.branch_if(e.icmp("slt", item, items), body, done)
    e.label(body)
    start = item * grain
    row_stop, column_stop = _smin(e, start + grain, rows), _smin(e, start + grain, columns)
    status = f.call_kernel(function, places, values,
                           (e.select(by_columns, zero, start), e.select(by_columns, rows, row_stop)),
                           (e.select(by_columns, start, zero), e.select(by_columns, column_stop, columns)), scratch)
    wide = e.convert("zext", status, "i64")
    e.assign(f"atomicrmw or ptr {f.address('%task', TaskField.STATUS)}, i64 {wide.name} monotonic", "i64", 1)
    e.branch(head)
    e.label(done)
    e.line("ret void")
    return f.text()


def _lock_call(f: _Function, field: PoolField, *targets: PoolField) -> None:
    function = f.pointer("%pool", field)
    arguments = ", ".join("ptr " + f.address("%pool", target) for target in targets)
    f.e.line(f"call i32 {function}({arguments})")


def _worker(f: _Function) -> str:
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
    f.store(f.word("%pool", PoolField.INSIDE) + 1, "%pool", PoolField.INSIDE)
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.line(f"call void @work_on(ptr {task}, i64 %thread)")
    _lock_call(f, PoolField.LOCK, PoolField.MUTEX)
    left = f.word("%pool", PoolField.INSIDE) - 1
    f.store(left, "%pool", PoolField.INSIDE)
    with e.when(e.icmp("eq", left, 0)):
        _lock_call(f, PoolField.BROADCAST, PoolField.DONE)
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.branch(top)
    e.label(stop)
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.line("ret void")
    return f.text()


MASK_WORDS = 16  # of a processor mask: 1024 processors


def _avoid(f: _Function) -> str:
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


def _share(f: _Function) -> str:
    """share(pool, task): offer a task to the threads, work on it too, wait for those inside. One task at a time:
    a second caller works alone."""
    e = f.e
    alone, offer, wait, sleep, finish = (e.fresh(n) for n in ("alone", "offer", "wait", "sleep", "finish"))
    _lock_call(f, PoolField.LOCK, PoolField.MUTEX)
    taken = e.assign(f"icmp ne ptr {f.pointer('%pool', PoolField.TASK)}, null", "i1", 1)
    e.branch_if(taken, alone, offer)
    e.label(alone)
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.line("call void @work_on(ptr %task, i64 0)")
    e.line("ret void")
    e.label(offer)
    f.store_pointer("%task", "%pool", PoolField.TASK)
    following = f.word("%pool", PoolField.GENERATION) + 1
    e.line(f"store atomic i64 {following.name}, ptr {f.address('%pool', PoolField.GENERATION)} release, align 8")
    f.store(f.word("%pool", PoolField.RUNS) + 1, "%pool", PoolField.RUNS)
    e.line("call void @avoid(ptr %pool)")
    _lock_call(f, PoolField.BROADCAST, PoolField.WORK)
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.line("call void @work_on(ptr %task, i64 0)")
    _lock_call(f, PoolField.LOCK, PoolField.MUTEX)
    f.store_pointer("null", "%pool", PoolField.TASK)
    e.branch(wait)
    e.label(wait)
    e.branch_if(e.icmp("eq", f.word("%pool", PoolField.INSIDE), 0), finish, sleep)
    e.label(sleep)
    _lock_call(f, PoolField.WAIT, PoolField.DONE, PoolField.MUTEX)
    e.branch(wait)
    e.label(finish)
    _lock_call(f, PoolField.UNLOCK, PoolField.MUTEX)
    e.line("ret void")
    return f.text()


def _run_step(f: _Function) -> str:
    """run_step(step, slots, values, scratch, pool): one kernel, alone or shared; returns its status."""
    e = f.e
    count = f.word("%step", StepField.PLACES)
    places = f.alloca(count)
    table = f.pointer("%step", StepField.PLACE_TABLE)
    with e.loop(0, count) as loop:
        slot, which = f.word(table, loop.index * 2), f.word(table, loop.index * 2 + 1)
        base = f.pointer("%slots", slot)
        f.store_pointer(e.offset(base, "i8", f.word("%values", which)), places, loop.index)
    function = f.pointer("%step", StepField.FUNCTION)
    numbers = f.address("%values", f.word("%step", StepField.VALUES))
    rows = f.word("%values", f.word("%step", StepField.ROWS))
    columns = f.word("%values", f.word("%step", StepField.COLUMNS))
    zero = e.constant(0, "i64", 1)
    stride = ((columns + 63) & -64) * f.word("%step", StepField.SCRATCH) + f.word("%step", StepField.SCRATCH_FIXED)
    alone, shared = e.fresh("alone"), e.fresh("shared")
    threads = e.assign("load i64, ptr %threads_at, align 8", "i64", 1)
    work = rows * columns * f.word("%step", StepField.WORK)
    by_columns = e.icmp("ne", f.word("%step", StepField.SPLITS), 0) & e.icmp("slt", rows, threads * CHUNKS_PER_THREAD)
    pieces = threads * f.word("%step", StepField.PIECES)
    extent = e.select(by_columns, columns, rows)
    enough = e.icmp("sgt", work, WORK_PER_THREAD) & e.icmp("sgt", threads, 1) & e.icmp("sgt", extent, 1)
    e.branch_if(enough, shared, alone)
    e.label(alone)
    status = f.call_kernel(function, places, numbers, (zero, rows), (zero, columns), "%scratch")
    e.line(f"ret i32 {status.name}")
    e.label(shared)
    grain = e.instruction("udiv", extent + pieces - 1, pieces)
    grain = e.select(by_columns, (grain + 1023) & -1024, grain)
    items = e.instruction("udiv", extent + grain - 1, grain)
    task = f.alloca(TaskField.SIZE)
    f.store_pointer(function, task, TaskField.FUNCTION)
    f.store_pointer(places, task, TaskField.PLACES)
    f.store_pointer(numbers, task, TaskField.VALUES)
    f.store_pointer("%scratch", task, TaskField.SCRATCH)
    for field, value in ((TaskField.ROWS, rows), (TaskField.COLUMNS, columns), (TaskField.GRAIN, grain),
                         (TaskField.ITEMS, items), (TaskField.BY_COLUMNS, e.convert("zext", by_columns, "i64")),
                         (TaskField.SCRATCH_STRIDE, stride), (TaskField.NEXT, zero), (TaskField.STATUS, zero)):
        f.store(value, task, field)
    e.line(f"call void @share(ptr %pool, ptr {task})")
    e.line(f"ret i32 {e.convert('trunc', f.word(task, TaskField.STATUS), 'i32').name}")
    head = f.head.replace("entry:\n", "entry:\n  %threads_at = getelementptr i64, ptr %pool, i64 "
                          f"{int(PoolField.THREADS)}\n")
    return head + e.text() + "\n}\n"


def _evaluate(f: _Function) -> str:
    """evaluate(program, symbols, values): every number of a program with dynamic dimensions."""
    e = f.e
    starts, terms = f.pointer("%program", ProgramField.TERM_STARTS), f.pointer("%program", ProgramField.TERM_TABLE)
    with e.loop(0, f.word("%program", ProgramField.VALUES)) as values:
        first, last = f.word(starts, values.index), f.word(starts, values.index + 1)
        with e.loop(first, last, carried=[e.constant(0, "i64", 1)]) as loop:
            product = f.word(terms, loop.index * 5)
            for position in range(1, 5):
                product = product * f.word("%symbols", f.word(terms, loop.index * 5 + position))
            loop.next(loop.values[0] + product)
        f.store(loop.values[0], "%values", values.index)
    e.line("ret void")
    return f.text()


def _run(f: _Function) -> str:
    """run(program, slots, values, scratch): every step in order; 0, or 2^32 * (step + 1) + its status."""
    e = f.e
    steps = f.pointer("%program", ProgramField.STEP_TABLE)
    pool = f.pointer("%program", ProgramField.POOL)
    with e.loop(0, f.word("%program", ProgramField.STEPS)) as loop:
        step = f.address(steps, loop.index * int(StepField.SIZE))
        status = e.assign(f"call i32 @run_step(ptr {step}, ptr %slots, ptr %values, ptr %scratch, ptr {pool})",
                          "i32", 1)
        failed, fine = e.fresh("failed"), e.fresh("fine")
        e.branch_if(e.icmp("ne", status, 0), failed, fine)
        e.label(failed)
        e.line(f"ret i64 {(((loop.index + 1) << 32) + e.convert('zext', status, 'i64')).name}")
        e.label(fine)
    e.line("ret i64 0")
    return f.text()


def _guard(f: _Function, tensor: str, context: str, slow: str, record_at: int) -> str:
    """The record of a tensor argument; anything else goes the slow way."""
    e = f.e
    kind = e.load_pointer(e.offset(tensor, "i8", WORD))
    f.go_unless(f.same(kind, f.pointer(context, ContextField.TENSOR_TYPE)), slow)
    record = e.load_pointer(e.offset(tensor, "i8", record_at))
    f.go_unless(e.assign(f"icmp ne ptr {record}, null", "i1", 1), slow)
    held = e.load_pointer(e.offset(record, "i8", WORD))
    f.go_unless(f.same(held, f.pointer(context, ContextField.BYTES_TYPE)), slow)
    return e.offset(record, "i8", BYTES_DATA)


def _compare(f: _Function, record: str, guards: str, argument: Value, values: str, slow: str) -> None:
    """Every guarded word of a record must be the expected number."""
    e = f.e
    count, first = f.word(guards, argument * 2), f.word(guards, argument * 2 + 1)
    with e.loop(0, count) as loop:
        good = e.icmp("eq", f.word(record, loop.index + 2), f.word(values, first + loop.index))
        following = e.fresh("same")
        e.branch_if(good, following, slow)
        e.label(following)


def _entry(f: _Function, context_at: int, record_at: int, storage_at: int) -> str:
    """entry(self, args, nargs, kwnames): f(a, b) and f(a, b, out=c) on guarded tensors; other calls go to Python."""
    e = f.e
    slow = "slow"
    context = e.load_pointer(e.offset("%self", "i8", context_at))
    f.go_unless(e.icmp("ne", f.word(context, ContextField.ENABLED), 0), slow)
    given = f.value("%count") & ((1 << 63) - 1)
    inputs, outputs = f.word(context, ContextField.INPUTS), f.word(context, ContextField.OUTPUTS)
    f.go_unless(e.icmp("eq", given, inputs), slow)
    f.go_unless(e.icmp("eq", f.word(context, ContextField.BUSY), 0), slow)
    program = f.pointer(context, ContextField.PROGRAM)
    guards = f.pointer(context, ContextField.GUARD_TABLE)
    slots = f.alloca(f.word(context, ContextField.SLOTS))
    records = f.alloca(inputs + 1)
    _read_inputs(f, context, inputs, records, slots, slow, record_at)
    values = _numbers(f, context, program, records, slow)
    with e.loop(0, inputs) as loop:
        _compare(f, f.pointer(records, loop.index), guards, loop.index, values, slow)
    items_at, made_at = f.alloca(1), f.alloca(1)
    f.store_pointer("null", made_at, 0)
    told, fresh, ready = e.fresh("told"), e.fresh("fresh"), e.fresh("ready")
    e.branch_if(e.assign("icmp ne ptr %names, null", "i1", 1), told, fresh)
    e.label(told)
    _take_targets(f, context, inputs, outputs, items_at, slow)
    _check_targets(f, context, slots, values, inputs, outputs, items_at, slow, (record_at, storage_at))
    e.branch(ready)
    e.label(fresh)
    _make_targets(f, context, items_at, made_at)
    # That was Python: other threads may have run, used the arena, or changed the arguments. Look at everything again.
    f.go_unless(e.icmp("ne", f.word(context, ContextField.ENABLED), 0), "undo")
    f.go_unless(f.same(f.pointer(context, ContextField.PROGRAM), program), "undo")
    f.go_unless(e.icmp("eq", f.word(context, ContextField.BUSY), 0), "undo")
    _read_inputs(f, context, inputs, records, slots, "undo", record_at)
    guards = f.pointer(context, ContextField.GUARD_TABLE)
    with e.loop(0, inputs) as loop:
        _compare(f, f.pointer(records, loop.index), guards, loop.index, values, "undo")
    e.branch(ready)
    e.label(ready)
    items, table = f.pointer(items_at, 0), f.pointer(context, ContextField.OUTPUT_TABLE)
    with e.loop(0, outputs) as loop:
        record = e.offset(e.load_pointer(e.offset(f.pointer(items, loop.index), "i8", record_at)), "i8", BYTES_DATA)
        f.store_pointer(f.pointer(record, 0), slots, f.word(table, loop.index))
    f.store_pointer(f.pointer(context, ContextField.ARENA), slots, inputs + outputs)
    status = _guarded_run(f, context, program, slots, values, ((inputs, "%args"), (outputs, items)), storage_at)
    _return(f, context, program, status, inputs, items_at, made_at)
    e.label("undo")
    e.line(f"call void {f.pointer(context, ContextField.DECREMENT)}(ptr {f.pointer(made_at, 0)})")
    e.branch(slow)
    e.label(slow)
    _python(f, context, ContextField.SLOW, "%args", "%count", "%names")
    return f.text()


def _read_inputs(f: _Function, context: str, inputs: Value, records: str, slots: str, slow: str,
                 record_at: int) -> None:
    """The records and addresses of the arguments."""
    e = f.e
    with e.loop(0, inputs) as loop:
        record = _guard(f, f.pointer("%args", loop.index), context, slow, record_at)
        f.store_pointer(record, records, loop.index)
        f.store_pointer(f.pointer(record, 0), slots, loop.index)


def _take_targets(f: _Function, context: str, inputs: Value, outputs: Value, items_at: str, slow: str) -> None:
    """out= is one tensor, or a tuple of as many as there are outputs; it stands after the arguments in `args`."""
    e = f.e
    f.go_unless(e.icmp("eq", e.load(e.offset("%names", "i8", 16), "i64", 1), 1), slow)
    f.go_unless(f.same(e.load_pointer(e.offset("%names", "i8", 24)), f.pointer(context, ContextField.OUT_NAME)), slow)
    one, many, taken = e.fresh("one"), e.fresh("many"), e.fresh("taken")
    e.branch_if(e.icmp("ne", f.word(context, ContextField.SINGLE), 0), one, many)
    e.label(one)
    f.store_pointer(f.address("%args", inputs), items_at, 0)
    e.branch(taken)
    e.label(many)
    target = f.pointer("%args", inputs)
    f.go_unless(f.same(e.load_pointer(e.offset(target, "i8", WORD)), f.pointer(context, ContextField.TUPLE_TYPE)), slow)
    f.go_unless(e.icmp("eq", e.load(e.offset(target, "i8", 16), "i64", 1), outputs), slow)
    f.store_pointer(e.offset(target, "i8", 24), items_at, 0)
    e.branch(taken)
    e.label(taken)


def _check_targets(f: _Function, context: str, slots: str, values: str, inputs: Value, outputs: Value, items_at: str,
                   slow: str, distances: tuple[int, int]) -> None:
    """Each target must fit, be writable, be held by its tensor alone, and lie apart from inputs and other targets."""
    e = f.e
    guards, items = f.pointer(context, ContextField.GUARD_TABLE), f.pointer(items_at, 0)
    free = e.icmp("ne", f.word(context, ContextField.OVERLAP), 0)
    with e.loop(0, outputs) as loop:
        tensor = f.pointer(items, loop.index)
        record = _guard(f, tensor, context, slow, distances[0])
        _compare(f, record, guards, inputs + loop.index, values, slow)
        f.go_unless(e.icmp("ne", f.word(record, 1) & WRITABLE, 0), slow)
        storage = e.load_pointer(e.offset(tensor, "i8", distances[1]))
        f.go_unless(e.icmp("eq", e.load(storage, "i32", 1), 1), slow)
        out = f.pointer(record, 0)
        with e.loop(0, inputs) as others:
            f.go_unless((f.same(f.pointer(slots, others.index), out) ^ True) | free, slow)
        with e.loop(0, loop.index) as others:
            f.go_unless(f.same(f.pointer(items, others.index), tensor) ^ True, slow)


def _make_targets(f: _Function, context: str, items_at: str, made_at: str) -> None:
    """New outputs, made by Python."""
    e = f.e
    made = "%" + e.fresh("p")
    e.line(f"{made} = call ptr {f.pointer(context, ContextField.VECTORCALL)}("
           f"ptr {f.pointer(context, ContextField.ALLOCATE)}, ptr %args, i64 %count, ptr null)")
    failed, fine = e.fresh("failed"), e.fresh("fine")
    e.branch_if(e.assign(f"icmp eq ptr {made}, null", "i1", 1), failed, fine)
    e.label(failed)
    e.line("ret ptr null")
    e.label(fine)
    f.store_pointer(made, made_at, 0)
    f.store_pointer(e.offset(made, "i8", 24), items_at, 0)


def _return(f: _Function, context: str, program: str, status: Value, inputs: Value, items_at: str,
            made_at: str) -> None:
    """The target given, the tuple made, or its only item; or the fault."""
    e = f.e
    fault, fine, told, fresh, single, many = (e.fresh(n) for n in ("fault", "fine", "told", "fresh", "single", "many"))
    made = f.pointer(made_at, 0)
    increment, decrement = (f.pointer(context, n) for n in (ContextField.INCREMENT, ContextField.DECREMENT))
    e.branch_if(e.icmp("eq", status, 0), fine, fault)
    e.label(fine)
    e.branch_if(e.assign(f"icmp eq ptr {made}, null", "i1", 1), told, fresh)
    e.label(told)
    target = f.pointer("%args", inputs)
    e.line(f"call void {increment}(ptr {target})")
    e.line(f"ret ptr {target}")
    e.label(fresh)
    e.branch_if(e.icmp("ne", f.word(context, ContextField.SINGLE), 0), single, many)
    e.label(single)
    item = f.pointer(f.pointer(items_at, 0), 0)
    e.line(f"call void {increment}(ptr {item})")
    e.line(f"call void {decrement}(ptr {made})")
    e.line(f"ret ptr {item}")
    e.label(many)
    e.line(f"ret ptr {made}")
    e.label(fault)
    f.store(status, context, ContextField.STATUS)
    f.store_pointer(program, context, ContextField.FAULTED)
    e.line(f"call void {decrement}(ptr {made})")  # Py_DecRef takes NULL
    _python(f, context, ContextField.FAULT, "null", "0", "null")


def _numbers(f: _Function, context: str, program: str, records: str, slow: str) -> str:
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
        argument, word, least, most = (f.word(bindings, loop.index * 4 + i) for i in range(4))
        record = f.pointer(records, argument)
        rank = f.word(record, 2).shift_right(8)
        f.go_unless(e.icmp("slt", word - 3, rank), slow)
        size = f.word(record, word)
        f.go_unless(e.icmp("sge", size, least) & e.icmp("sle", size, most), slow)
        f.store(size, bound, loop.index + 1)
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


def _guarded_run(f: _Function, context: str, program: str, slots: str, values: str,
                 tensors: tuple[tuple[Value, str], ...], storage_at: int) -> Value:
    """Run, giving up the interpreter lock for long programs; the arena is marked busy and the memory of every tensor
    is held meanwhile: another thread may give a tensor other elements."""
    e = f.e
    f.store(1, context, ContextField.BUSY)
    f.store(f.word(context, ContextField.CALLS) + 1, context, ContextField.CALLS)
    scratch = f.pointer(context, ContextField.SCRATCH)
    result = f.alloca(1)
    long, short, done = e.fresh("long"), e.fresh("short"), e.fresh("done")
    call = f"call i64 @run(ptr {program}, ptr {slots}, ptr {values}, ptr {scratch})"
    e.branch_if(e.icmp("ne", f.word(context, ContextField.RELEASES), 0), long, short)
    e.label(short)
    f.store(e.assign(call, "i64", 1), result, 0)
    e.branch(done)
    e.label(long)
    held = [(count, table, f.alloca(count + 1)) for count, table in tensors]
    for count, table, keep in held:
        with e.loop(0, count) as loop:
            storage = e.load_pointer(e.offset(f.pointer(table, loop.index), "i8", storage_at))
            f.store_pointer(storage, keep, loop.index)
            e.line(f"call void {f.pointer(context, ContextField.INCREMENT)}(ptr {storage})")
    saved = "%" + e.fresh("p")
    e.line(f"{saved} = call ptr {f.pointer(context, ContextField.SAVE_THREAD)}()")
    f.store(e.assign(call, "i64", 1), result, 0)
    e.line(f"call void {f.pointer(context, ContextField.RESTORE_THREAD)}(ptr {saved})")
    for count, _, keep in held:
        with e.loop(0, count) as loop:
            e.line(f"call void {f.pointer(context, ContextField.DECREMENT)}(ptr {f.pointer(keep, loop.index)})")
    e.branch(done)
    e.label(done)
    f.store(0, context, ContextField.BUSY)
    return f.word(result, 0)


def _python(f: _Function, context: str, field: ContextField, arguments: str, count: str, names: str) -> None:
    e = f.e
    function, target = f.pointer(context, ContextField.VECTORCALL), f.pointer(context, field)
    name = "%" + e.fresh("p")
    e.line(f"{name} = call ptr {function}(ptr {target}, ptr {arguments}, i64 {count}, ptr {names})")
    e.line(f"ret ptr {name}")


FUNCTIONS = ("entry", "run", "evaluate", "worker")


def driver_text(context_at: int, record_at: int, storage_at: int) -> str:
    """The driver's module. The three distances say where, inside their objects, a compiled function keeps its
    context and a tensor its record and its storage."""
    parts = [
        _work_on(_Function("work_on", "ptr %task, i64 %thread", "void")),
        _worker(_Function("worker", "ptr %pool, i64 %thread", "void")),
        _avoid(_Function("avoid", "ptr %pool", "void")),
        _share(_Function("share", "ptr %pool, ptr %task", "void")),
        _run_step(_Function("run_step", "ptr %step, ptr %slots, ptr %values, ptr %scratch, ptr %pool", "i32")),
        _evaluate(_Function("evaluate", "ptr %program, ptr %symbols, ptr %values", "void")),
        _run(_Function("run", "ptr %program, ptr %slots, ptr %values, ptr %scratch", "i64")),
        _entry(_Function("entry", "ptr %self, ptr %args, i64 %count, ptr %names", "ptr"), context_at, record_at,
               storage_at),
    ]
    return "\n".join(parts)
