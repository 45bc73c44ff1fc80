"""`x[i]` of a realised tensor by native code: a view, made through CPython's own C functions.

The function is a method of the class, called by the interpreter with the tensor and the key. Anything but a whole
number inside the first axis of a realised tensor in the CPU's memory, while nobody traces, differentiates or has other
settings, goes to the Python function that it stands before.
"""

from __future__ import annotations

from enum import IntEnum

from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.driver.abi import ContextField, Distances, Function, RecordField
from morpho.backends.driver.layout import BYTES_DATA, TUPLE_ITEMS, WORD

FUNCTIONS = ("row", "set_row_context")
CODES = 31  # bits of a record's third word that are the dtype's code; the device's mark stands above, then the rank


class RowField(IntEnum):
    """Fields beyond the first words of a `ContextField` table."""

    QUIET = int(ContextField.SIZE)  # address of a word that is 0 while the function must not serve
    ITEM_SIZES = QUIET + 1  # table: bytes of an element, by the dtype's code
    INT_TYPE = QUIET + 2
    AS_NUMBER = QUIET + 3  # PyLong_AsLongLongAndOverflow
    PART = QUIET + 4  # PyTuple_GetSlice
    SIZE = QUIET + 5


def row_text(at: Distances) -> str:
    """The module: `row(tensor, key)`, and `set_row_context(table)`, to be called before."""
    function = Function("row", "ptr %self, ptr %key", "ptr")
    set_context = Emitter(1)
    set_context.line("store ptr %table, ptr @row_context, align 8")
    set_context.line("ret void")
    return ("@row_context = internal global ptr null, align 8\n"
            + defined("void @set_row_context(ptr %table) nounwind", set_context.text()) + _row(function, at))


def _row(f: Function, at: Distances) -> str:
    e = f.e
    slow, context = "slow", e.load_pointer("@row_context")
    overflow = f.alloca(1)
    f.go_unless(e.icmp("ne", f.word(f.pointer(context, RowField.QUIET), 0), 0), slow)
    kind = e.load_pointer(e.offset("%key", "i8", WORD))
    f.go_unless(f.same(kind, f.pointer(context, RowField.INT_TYPE)), slow)
    record = f.record_of(context, "%self", slow, at)
    track = e.load_pointer(e.offset("%self", "i8", at.track))
    f.go_unless(f.is_null(track) | f.same(track, f.pointer(context, ContextField.NONE)), slow)
    layout, storage, held = (e.load_pointer(e.offset("%self", "i8", where))
                             for where in (at.layout, at.storage, at.record))
    f.go_unless(f.is_null(layout) ^ True, slow)
    f.go_unless(f.same(e.load_pointer(e.offset(layout, "i8", WORD)), f.pointer(context, ContextField.TUPLE_TYPE)), slow)
    kind_word = f.word(record, RecordField.KIND)
    rank = kind_word.shift_right(8)
    f.go_unless(e.icmp("ult", kind_word & 255, CODES + 1) & e.icmp("ne", rank, 0), slow)
    number = e.assign(f"call i64 {f.pointer(context, RowField.AS_NUMBER)}(ptr %key, ptr {overflow})", "i64", 1)
    f.go_unless(e.icmp("eq", e.load(overflow, "i32", 1), 0), slow)
    size, stride = f.word(record, RecordField.SHAPE), f.word(record, rank + int(RecordField.SHAPE))
    number = e.select(e.icmp("slt", number, 0), number + size, number)
    f.go_unless(e.icmp("ult", number, size), slow)
    item_size = f.word(f.pointer(context, RowField.ITEM_SIZES), kind_word & CODES)
    address = f.word(record, RecordField.ADDRESS) + number * stride * item_size
    for thing in (layout, storage, held):  # making objects may run Python, which may change the tensor
        f.increment(context, thing)
    made = f.call_python(context, ContextField.NEW_OBJECT,
                         f"ptr {f.pointer(context, ContextField.TENSOR_TYPE)}, i64 0")
    _drop_if(f, context, f.is_null(made), (storage, layout, held))
    parts = _Parts(f, context, made, (layout, held))
    parts.give(made, at.storage, storage)
    parts.share(made, at.node, f.pointer(context, ContextField.NONE))
    parts.share(made, at.base, "%self")  # what an assignment to the part goes to
    parts.share(made, at.key, "%key")
    mine = parts.new(made, at.layout, ContextField.NEW_TUPLE, "i64 5")
    parts.new(mine, TUPLE_ITEMS, ContextField.NUMBER, f"i64 {address.name}")
    for position in (1, 2):  # shape and strides
        whole = e.load_pointer(e.offset(layout, "i8", TUPLE_ITEMS + WORD * position))
        parts.new(mine, TUPLE_ITEMS + WORD * position, RowField.PART, f"ptr {whole}, i64 1, i64 {rank.name}")
    dtype, writable = (e.load_pointer(e.offset(layout, "i8", TUPLE_ITEMS + WORD * position)) for position in (3, 4))
    parts.share(mine, TUPLE_ITEMS + WORD * 3, dtype)
    parts.share(mine, TUPLE_ITEMS + WORD * 4, writable)
    less = rank - 1
    text = parts.new(made, at.record, ContextField.NEW_BYTES, f"ptr null, i64 {(less * (2 * WORD) + 3 * WORD).name}")
    words = e.offset(text, "i8", BYTES_DATA)
    f.store(address, words, RecordField.ADDRESS)
    is_writable = f.same(writable, f.pointer(context, ContextField.TRUE))
    f.store(e.convert("zext", is_writable, "i64"), words, RecordField.FLAGS)
    f.store(kind_word - 256, words, RecordField.KIND)
    with e.loop(0, less) as loop:
        f.store(f.word(record, loop.index + 4), words, loop.index + 3)
        f.store(f.word(record, loop.index + rank + 4), words, loop.index + rank + 2)
    f.decrement(context, layout)
    f.decrement(context, held)
    e.line(f"ret ptr {made}")
    e.label(slow)
    arguments = f.alloca(2)
    f.store_pointer("%self", arguments, 0)
    f.store_pointer("%key", arguments, 1)
    slow_way = f.pointer(context, ContextField.SLOW)
    found = f.call_python(context, ContextField.VECTORCALL, f"ptr {slow_way}, ptr {arguments}, i64 2, ptr null")
    e.line(f"ret ptr {found}")
    return f.text()


def _drop_if(f: Function, context: str, failed: Value, things: tuple[str, ...]) -> None:
    """Let go of objects and return NULL where making another one failed."""
    e = f.e
    bad, good = e.fresh("bad"), e.fresh("good")
    e.branch_if(failed, bad, good)
    e.label(bad)
    for thing in things:
        f.decrement(context, thing)
    e.line("ret ptr null")
    e.label(good)


class _Parts:
    """The parts of an object being made, which holds them from the beginning: dropping it drops them too."""

    def __init__(self, f: Function, context: str, whole: str, held: tuple[str, ...]) -> None:
        self.f, self.context, self.whole, self.held = f, context, whole, held

    def give(self, thing: str, where: int, part: str) -> None:
        """Store a reference that is given away."""
        self.f.e.line(f"store ptr {part}, ptr {self.f.e.offset(thing, 'i8', where)}, align 8")

    def share(self, thing: str, where: int, part: str) -> None:
        """Store a reference to what others hold too."""
        self.f.increment(self.context, part)
        self.give(thing, where, part)

    def new(self, thing: str, where: int, maker: IntEnum, arguments: str) -> str:
        """Make a part with a function of Python's own and store it."""
        part = self.f.call_python(self.context, maker, arguments)
        _drop_if(self.f, self.context, self.f.is_null(part), (self.whole, *self.held))
        self.give(thing, where, part)
        return part
