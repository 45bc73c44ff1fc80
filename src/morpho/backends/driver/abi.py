"""The ABI between Python and native code: every shared table, field by field, and the emitter of driver functions.

Tables are arrays of 64-bit words. A program is a table, so a new compiled function needs no driver of its own.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.driver.layout import BYTES_DATA, WORD, WRITABLE

LINE_WORDS = 8  # words of a cache line (64 bytes): counters of different threads lie on different lines (false sharing)
LONG_WORK = 1 << 18  # operations of a call that releases the interpreter lock, which costs 80 ns (notes/calls.md)

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
    LEAST = 11  # work above which it is divided among threads
    TOGETHER = 12  # 0, or how many steps from here on are one launch, or -1: it was part of an earlier step's; in a
    # program with loops a `ControlKind`, whose table FUNCTION is
    LAUNCH_TABLE = 13  # of such a launch: a `LaunchField` head, then its pieces
    ALTERNATES = 14  # 1 where a thread begins with every n-th piece
    WAKING = 15  # work above which a few threads that sleep are woken for it
    SHARE = 16  # work that is worth one more thread; 0: any
    CUTS = 17  # 1 where pieces take no longer than the whole, so that one thread may poll in between
    SIZE = 18


class ControlKind(IntEnum):
    """Kind of a step that is no kernel: `program.Control`."""

    LOOP = -2
    END = -3
    TEST = -4
    BRANCH = -5
    CASE = -6
    JOIN = -7
    SIZE = -8
    MEMORY = -9  # the slot ROWS is at the address that lies at its only place; no table


class ControlField(IntEnum):
    """The table of such a step."""

    COUNTER = 0  # the number of its loop among those of the program
    TURNS = 1  # index of the number of turns, or -1
    LENGTH = 2  # steps from a loop to its end; from a test to behind its loop's end; from a case to the join
    MOVING = 3  # how many cursors are set at every turn
    MOVING_TABLE = 4  # per cursor a `MovingField` row
    CARRIED = 5  # how many carried values have two buffers
    CARRIED_TABLE = 6  # per value a `CarriedField` row
    VALUE_SLOT = 7  # a bool, a whole number, or where the turn's number goes; -1: nowhere
    VALUE_OFFSET = 8  # index of its byte offset
    BACKWARDS = 9  # 1 where turns are counted down
    CASES = 10
    CASE_TABLE = 11  # steps from a branch to behind each case
    PROGRAM = 12  # of a size that is data: the program whose numbers depend on it
    SYMBOL = 13  # its place among the program's symbols, counted from 1
    SYMBOLS = 14
    SYMBOL_TABLE = 15  # per symbol the index of its number
    SIZE = 16


class MovingField(IntEnum):
    """A cursor: its slot, that of the memory it goes over, and the indices of its first byte and of its stride."""

    SLOT = 0
    BASE = 1
    OFFSET = 2
    STRIDE = 3
    SIZE = 4


class CarriedField(IntEnum):
    """The two buffers of a carried value: which slots show the one to read and the one to write, where each lies at
    first, where the value is to be at the end, and the index of its bytes."""

    READ = 0
    WRITTEN = 1
    FIRST = 2
    FIRST_OFFSET = 3
    SECOND = 4
    SECOND_OFFSET = 5
    HOME = 6
    HOME_OFFSET = 7
    BYTES = 8
    SIZE = 9


class LaunchField(IntEnum):
    """The head of a co-scheduled launch's table; a piece is a step of it, rows from and to, columns from and to."""

    PIECES = 0
    SCRATCH_STRIDE = 1  # bytes of scratch per thread
    PLACES = 2  # of all its steps
    HEAD = 3
    PIECE = 5  # words of a piece


class LaunchStep(IntEnum):
    """One step of a co-scheduled launch while it runs."""

    FUNCTION = 0
    PLACES = 1
    VALUES = 2
    STATUS = 3
    SIZE = 4


class ProgramField(IntEnum):
    """A program."""

    STEPS = 0
    STEP_TABLE = 1
    VALUES = 2  # how many numbers
    VALUE_TABLE = 3  # their values; 0 where they depend on symbols
    SYMBOLS = 4
    MOVING = 5  # how many values depend on symbols
    MOVING_TABLE = 6  # per such value: its number, its first term and the one after its last
    TERM_TABLE = 7  # per term: coefficient and four symbol numbers, 0 meaning the constant 1
    POOL = 8
    CO_SCHEDULED = 9  # co-scheduled launches so far
    CONTROLS = 10  # loops and branches; 0: its steps run in the order they stand in
    SLOTS = 11  # inputs, results, memories of others and the arena
    CURSORS = 12  # slots behind those
    SHIELD = 13  # the step from which on a run is not interrupted: it updates states in place
    SIZE = 14


class Enabled(IntEnum):
    """Whom a native entry serves."""

    NONE = 0  # every call goes through Python
    ALL = 1
    MATCHING = 2  # callers whose settings are those of SETTINGS: somewhere a `mo.settings` block is open


BINDING_WORDS = 6


class ContextField(IntEnum):
    """Fields of a compiled function's entry besides the program, for calls of one signature."""

    PROGRAM = 0
    TENSOR_TYPE = 1
    BYTES_TYPE = 2
    SLOW = 3  # Python callable that takes every call the entry does not
    FAULT = 4  # Python callable that raises; it is given the status and the specialisation
    OUT_NAME = 5  # the interned string "out"
    INPUTS = 6  # tensors among the arguments
    SLOTS = 7
    GUARD_TABLE = 8  # per argument and then the output: number of words, index of the first expected value
    BINDINGS = 9  # per symbol `BINDING_WORDS`: argument, word, least, most, factor, constant
    ARENA = 10
    BUSY = 11  # where it stands whether a call runs in the arena: a word of the specialisation's own
    COMMON = 12  # a `CommonField` table: what all tables of the function share
    GET_SETTINGS = 13  # PyContextVar_Get
    RELEASES = 14  # 1 + the number of the value that is a call's work; 0 when it never gives up the interpreter lock
    VECTORCALL = 15
    SAVE_THREAD = 16
    RESTORE_THREAD = 17
    INCREMENT = 18
    OVERLAP = 19  # 1 when the output may be one of the inputs
    SCRATCH = 20
    ENABLED = 21  # one of `Enabled`
    SETTINGS_VARIABLE = 22  # the context variable that holds a thread's or task's settings
    DECREMENT = 23
    OUTPUTS = 24
    OUTPUT_TABLE = 25  # per output: its slot, memory to stage it in or 0, bytes of an element
    TUPLE_TYPE = 26
    ALLOCATE = 27  # Python callable that makes a tuple of new outputs for a call's arguments
    SINGLE = 28  # 1 when the function returns one tensor, 0 when it returns a tuple
    SETTINGS = 29  # the settings that the program was chosen for
    NUMBER = 30  # PyLong_FromLongLong
    STAGED = 31  # 1 when an index may fault after an output was begun: the caller's memory is then written at the end
    COPY = 32  # memcpy
    FIXED = 33  # inputs that are no arguments: tensors of the surroundings, and what was prepared from them
    FIXED_TABLE = 34  # per such input: address, its tensor or 0, the record that tensor must still have
    CAPTURED = 35  # tensors of the surroundings
    CAPTURED_TABLE = 36
    STATES = 37  # slots whose values the function reads or replaces
    STATE_TABLE = 38  # per state a `StateRow`
    HOLD = 39  # Python callable that waits for the states' locks and returns one that lets them go; 0 for short runs
    NOTHING = 40  # what a function without outputs returns
    TEMPLATES = 41  # per output an `OutputRow`, or 0 where Python makes new outputs
    NONE = 42  # the object None, and the True of a new output's layout
    TRUE = 43
    NEW_OBJECT = 44  # PyType_GenericAlloc
    NEW_MEMORY = 45  # PyByteArray_FromStringAndSize
    MEMORY_AT = 46  # PyByteArray_AsString
    NEW_BYTES = 47  # PyBytes_FromStringAndSize
    NEW_TUPLE = 48  # PyTuple_New
    ARGUMENTS = 49  # what a plain call gives by position: tensors, and objects that the code was compiled for; or -1
    ARGUMENT_TABLE = 50  # per argument: that object, or 0 for a tensor
    ARRANGE = 51  # Python callable that makes the result of a tuple of outputs; 0 when that tuple is the result
    GATHER = 52  # Python callable that finds what is out= and the tensors among other arguments than plain ones, or 0
    ERROR_IS = 53  # PyErr_ExceptionMatches
    CLEAR_ERROR = 54  # PyErr_Clear
    ERROR_TYPE = 55  # the class Exception, which an interrupt is not of
    NEXT = 56  # tables for other calls of the function, or 0
    OWNER = 57  # the specialisation, a Python object: whoever runs its program holds it
    SIZE = 58


class CommonField(IntEnum):
    """Fields that the tables of one compiled function share."""

    CALLS = 0  # that its entry served
    LAST = 1  # the tables that served the last one; 0 when that went through Python
    SIZE = 2


class StateField(IntEnum):
    """The words of a state that native code shares."""

    HELD = 0  # how often its lock is held; whoever finds it held goes through Python and waits
    VERSION = 1
    SIZE = 2


class StateRow(IntEnum):
    """A state as the entry sees it: addresses of slots of Python objects, read at every call."""

    TENSOR = 0  # the slot that holds its tensor
    WORDS = 1  # its `StateField` words
    RESULT = 2  # the slot of the program that its new value is written to
    TARGET = 3  # the slot that holds the tensor to write: its own, a spare one, or 0 when it is only read
    SIZE = 4


class OutputRow(IntEnum):
    """Fields from which the entry makes a new output."""

    BYTES = 0
    RECORD = 1  # its record, but for the address
    RECORD_BYTES = 2
    SHAPE = 3  # the objects of its layout
    STRIDES = 4
    DTYPE = 5
    BLOCKS = 6  # the free blocks of another device whose memory it lies in (`entry/block_code.py`), or 0
    HOLDER = 7  # the object that holds one of those
    SIZE = 8


class Distances(NamedTuple):
    """Where native code finds things inside Python objects, in bytes."""

    context: int  # in a compiled function
    record: int  # in a tensor, as those that follow
    storage: int
    node: int
    layout: int
    track: int
    base: int
    key: int


class RecordField(IntEnum):
    """The words of a tensor's record (`layout.py`); the strides stand behind the shape."""

    ADDRESS = 0
    FLAGS = 1
    KIND = 2  # the dtype's code, the mark of the device, the rank
    SHAPE = 3


class PoolField(IntEnum):
    """The threads' meeting place; the first words are the C library's mutex and condition variables."""

    MUTEX = 0
    WORK = 8
    DONE = 16
    STATE = 24  # of the offer: its number * 2^32, and `OPEN` while threads may enter
    TASK = 25  # that is offered, or 0; whoever puts one here owns the pool until it is taken away
    SLEEPERS = 26  # of the few first threads asleep, or about to be: whoever finds none need not wake them
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
    BUDGET = 40  # the process's budget of threads
    SELF = 41  # the C library's pthread_self
    PIECES = 42  # table: the pieces each thread has taken so far, each count in a line of its own (`LINE_WORDS`)
    WAITING = 43  # 1 while the owner sleeps until nobody is inside
    INSIDE = 44  # table: 1 while a thread may be at a task, each in a line of its own
    WANTED = 45  # threads that the offer is for, the owner among them: those with the lowest numbers
    MORE = 46  # a condition variable, of eight words: the other threads wait here
    MORE_SLEEPERS = 54
    TIMED_WAIT = 55  # pthread_cond_timedwait
    RUNNER = 56  # of an exported library: the host's function that runs a task on several threads, and its data
    HOST = 57
    SIZE = 58


class BudgetField(IntEnum):
    """Fields that all threads of the process share: the engine's and those of `runtime/tasks/scheduler.py`."""

    RUNNING = 0  # task workers awake now
    HELPERS = 1  # engine threads at work beside the callers
    ALONE = 2  # kernels that stayed with their caller because there was no room for another thread
    LEFT = 3  # engine threads that left a kernel because tasks had begun meanwhile
    WORKERS = 4  # rows of the table below that are in use
    TABLE = 8  # the task workers' pthread identities


class TaskField(IntEnum):
    """One kernel divided among threads. After the fields every thread has a line of the cache with its `Range`."""

    FUNCTION = 0
    PLACES = 1
    VALUES = 2
    ROWS = 3
    COLUMNS = 4
    GRAIN = 5
    BY_COLUMNS = 6
    SCRATCH = 7
    SCRATCH_STRIDE = 8
    THREADS = 9  # how many ranges there are
    STEP = 10  # from a piece of a range to the next one
    STATUS = 11
    OUTSIDE = 12  # 1 when the caller is no task worker, and so not among those counted as running
    LEFT = 13  # helpers that left before the end, and took themselves off the budget
    POLLS = 14  # 1 where a piece takes long enough to poll after each
    RANGES = 16  # where the first one begins; `LINE_WORDS` each


class Range(IntEnum):
    """The pieces that a thread takes first. Others take of them when theirs are gone."""

    NEXT = 0
    END = 1


class Function:
    """One driver function being written: word access on tables, calls through pointers."""

    def __init__(self, name: str, arguments: str, result: str) -> None:
        self.e = Emitter(1)
        self.head = f"{result} @{name}({arguments}) nounwind"

    def text(self, *frame: str) -> str:
        """The function; lines of its `frame` stand before all that was written."""
        return defined(self.head, *(f"  {line}\n" for line in frame), self.e.text())

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

    def call_python(self, context: str, field: IntEnum, arguments: str) -> str:
        """The result of a function of Python's own, whose address the context holds; it returns a pointer."""
        name = "%" + self.e.fresh("p")
        self.e.line(f"{name} = call ptr {self.pointer(context, field)}({arguments})")
        return name

    def increment(self, context: str, thing: str) -> None:
        self.e.line(f"call void {self.pointer(context, ContextField.INCREMENT)}(ptr {thing})")

    def hold(self, thing: str) -> None:
        """One reference more to a Python object that is there for sure, by its first word: no call."""
        self.e.store(self.e.load(thing, "i32", 1) + 1, thing)

    def let_go(self, context: str, thing: str) -> None:
        """One reference less; the last one is Python's to see to."""
        e = self.e
        last, more, after = e.fresh("last"), e.fresh("more"), e.fresh("after")
        count = e.load(thing, "i32", 1)
        e.branch_if(e.icmp("eq", count, 1), last, more)
        e.label(last)
        self.decrement(context, thing)
        e.branch(after)
        e.label(more)
        e.store(count - 1, thing)
        e.branch(after)
        e.label(after)

    def decrement(self, context: str, thing: str) -> None:
        """Py_DecRef takes NULL too."""
        self.e.line(f"call void {self.pointer(context, ContextField.DECREMENT)}(ptr {thing})")

    def record_of(self, context: str, tensor: str, slow: str, at: Distances) -> str:
        """The record of what should be a realised tensor; anything else goes the slow way."""
        e = self.e
        kind = e.load_pointer(e.offset(tensor, "i8", WORD))
        self.go_unless(self.same(kind, self.pointer(context, ContextField.TENSOR_TYPE)), slow)
        record = e.load_pointer(e.offset(tensor, "i8", at.record))
        self.go_unless(self.is_null(record) ^ True, slow)
        held = e.load_pointer(e.offset(record, "i8", WORD))
        self.go_unless(self.same(held, self.pointer(context, ContextField.BYTES_TYPE)), slow)
        return e.offset(record, "i8", BYTES_DATA)

    def check_writable(self, tensor: str, record: str, slow: str, at: Distances) -> None:
        """Memory that is to be written over must allow it, and nothing but its tensor may hold it."""
        e = self.e
        self.go_unless(e.icmp("ne", self.word(record, RecordField.FLAGS) & WRITABLE, 0), slow)
        storage = e.load_pointer(e.offset(tensor, "i8", at.storage))
        self.go_unless(e.icmp("eq", e.load(storage, "i32", 1), 1), slow)

    def is_null(self, pointer: str) -> Value:
        return self.same(pointer, "null")

    def go_unless(self, condition: Value, target: str) -> None:
        following = self.e.fresh("next")
        self.e.branch_if(condition, following, target)
        self.e.label(following)

    def call_kernel(self, function: str, places: str, values: str, rows: tuple[Value, Value],
                    columns: tuple[Value, Value], scratch: str) -> Value:
        numbers = ", ".join(f"i64 {v.name}" for v in (*rows, *columns))
        return self.e.assign(f"call i32 {function}(ptr {places}, ptr {values}, {numbers}, ptr {scratch})", "i32", 1)
