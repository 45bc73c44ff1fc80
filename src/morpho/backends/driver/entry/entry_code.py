"""Native entry, dispatch: the vectorcall target of a compiled function; finds tensors and `out=` among its arguments.

A plain call gives them by position, with nothing by name but out=. For others, whose tensors stand in lists or dicts or
are given by name, a Python function made for their structure (`tensor/jit/native/argument_extractor.py`) finds them.
"""

from __future__ import annotations

from morpho.backends.code.emit import Value
from morpho.backends.driver.abi import ContextField, Distances, Enabled, Function
from morpho.backends.driver.layout import TUPLE_ITEMS, TUPLE_SIZE

_GIVEN = "ptr %args, i64 %count, ptr %names"
COUNT = (1 << 63) - 1  # of the arguments; the bit above it says that their table may be used for another call


def entry(f: Function, at: Distances) -> str:
    """entry(self, args, nargs, kwnames): called by Python, for every call."""
    context = f.e.load_pointer(f.e.offset("%self", "i8", at.context))
    _forward(f, f"@try_tables(ptr {context}, {_GIVEN})")
    return f.text()


def elsewhere(f: Function) -> str:
    """elsewhere(context, args, nargs, kwnames): a call that these tables do not serve: by the next ones, or Python."""
    following, python, others = f.pointer("%context", ContextField.NEXT), f.e.fresh("python"), f.e.fresh("others")
    f.e.branch_if(f.is_null(following), python, others)
    f.e.label(others)
    _forward(f, f"@try_tables(ptr {following}, {_GIVEN})")
    f.e.label(python)
    slow = f.pointer("%context", ContextField.SLOW)
    _forward(f, f"{f.pointer('%context', ContextField.VECTORCALL)}(ptr {slow}, {_GIVEN})")
    return f.text()


def go_elsewhere(f: Function, context: str) -> None:
    """Leave the function with what others make of the call."""
    _forward(f, f"@elsewhere(ptr {context}, {_GIVEN})", "call")


def _forward(f: Function, callee: str, call: str = "tail call") -> None:
    """Return what another function returns."""
    made = "%" + f.e.fresh("p")
    f.e.line(f"{made} = {call} ptr {callee}")
    f.e.line(f"ret ptr {made}")


def try_tables(f: Function) -> str:
    """try_tables(context, args, nargs, kwnames): the tensors and the target are found as one signature has them."""
    e, context = f.e, "%context"
    f.go_unless(e.icmp("ne", f.word(context, ContextField.ENABLED), int(Enabled.NONE)), "slow")
    given, inputs = f.value("%count") & COUNT, f.word(context, ContextField.INPUTS)
    f.go_unless(e.icmp("eq", given, f.word(context, ContextField.ARGUMENTS)), "other")
    target = _plain_target(f, context, given)
    alike, mixed = e.fresh("alike"), e.fresh("mixed")
    e.branch_if(e.icmp("eq", given, inputs), alike, mixed)
    e.label(alike)
    _forward(f, f"@serve(ptr {context}, ptr %args, ptr {target}, {_GIVEN})")  # nothing of this frame is needed
    e.label(mixed)
    tensors = f.alloca(inputs + 1)
    _take_tensors(f, context, given, tensors)
    e.line(f"ret ptr {_serve_call(f, context, tensors, target)}")
    e.label("other")
    _gather(f, context)
    e.label("slow")
    go_elsewhere(f, context)
    return f.text()


def _serve_call(f: Function, context: str, tensors: str, target: str) -> str:
    made = "%" + f.e.fresh("p")
    f.e.line(f"{made} = call ptr @serve(ptr {context}, ptr {tensors}, ptr {target}, {_GIVEN})")
    return made


def _plain_target(f: Function, context: str, given: Value) -> str:
    """Operand given as out=, which stands after the arguments in `args`; NULL if nothing is given by name."""
    e, before = f.e, f.e.block
    named, found = e.fresh("named"), e.fresh("found")
    e.branch_if(f.is_null("%names"), found, named)
    e.label(named)
    f.go_unless(e.icmp("eq", f.word(context, ContextField.ARRANGE), 0), "other")  # targets stand in a tree
    f.go_unless(e.icmp("eq", e.load(e.offset("%names", "i8", TUPLE_SIZE), "i64", 1), 1), "other")
    name = e.load_pointer(e.offset("%names", "i8", TUPLE_ITEMS))
    f.go_unless(f.same(name, f.pointer(context, ContextField.OUT_NAME)), "other")
    told, after = f.pointer("%args", given), e.block
    e.branch(found)
    e.label(found)
    target = "%" + e.fresh("p")
    e.line(f"{target} = phi ptr [ null, %{before} ], [ {told}, %{after} ]")
    return target


def _take_tensors(f: Function, context: str, given: Value, tensors: str) -> None:
    """The tensors among the arguments; the others must be the very objects that the code was compiled for."""
    e, table = f.e, f.pointer(context, ContextField.ARGUMENT_TABLE)
    with e.loop(0, given, carried=[e.constant(0, "i64", 1)]) as loop:
        argument, wanted = f.pointer("%args", loop.index), f.pointer(table, loop.index)
        is_tensor = f.is_null(wanted)
        f.go_unless(is_tensor | f.same(argument, wanted), "other")
        f.store_pointer(argument, tensors, loop.values[0])  # the next one writes over what is none
        loop.next(loop.values[0] + e.convert("zext", is_tensor, "i64"))


def _gather(f: Function, context: str) -> None:
    """Let Python find the target and the tensors. What it returns holds them until the call is over, whatever becomes
    of the lists and dicts that they stood in."""
    e, gather = f.e, f.pointer(context, ContextField.GATHER)
    f.go_unless(f.is_null(gather) ^ True, "slow")
    f.increment(context, gather)  # while it runs, other threads may fill the tables for another program
    found = f.call_python(context, ContextField.VECTORCALL, f"ptr {gather}, {_GIVEN}")
    current = f.same(f.pointer(context, ContextField.GATHER), gather)
    enabled = e.icmp("ne", f.word(context, ContextField.ENABLED), int(Enabled.NONE))
    f.decrement(context, gather)
    f.go_unless(f.is_null(found) ^ True, "refused")
    f.go_unless(current & enabled, "elsewhere")
    count = e.load(e.offset(found, "i8", TUPLE_SIZE), "i64", 1)
    f.go_unless(e.icmp("eq", count, f.word(context, ContextField.INPUTS) + 1), "elsewhere")
    items = e.offset(found, "i8", TUPLE_ITEMS)
    first = f.pointer(items, 0)
    target = "%" + e.fresh("p")
    is_none = f.same(first, f.pointer(context, ContextField.NONE))
    e.line(f"{target} = select i1 {is_none.name}, ptr null, ptr {first}")
    result = _serve_call(f, context, f.address(items, 1), target)
    f.decrement(context, found)
    e.line(f"ret ptr {result}")
    e.label("elsewhere")  # another program is served by now
    f.decrement(context, found)
    e.branch("slow")
    e.label("refused")  # another structure, or a call that the signature does not allow. An interrupt is passed on
    matches = e.assign(f"call i32 {f.pointer(context, ContextField.ERROR_IS)}("
                       f"ptr {f.pointer(context, ContextField.ERROR_TYPE)})", "i32", 1)
    clear, pass_on = e.fresh("clear"), e.fresh("pass")
    e.branch_if(e.icmp("ne", matches, 0), clear, pass_on)
    e.label(pass_on)
    e.line("ret ptr null")
    e.label(clear)
    e.line(f"call void {f.pointer(context, ContextField.CLEAR_ERROR)}()")
    e.branch("slow")
