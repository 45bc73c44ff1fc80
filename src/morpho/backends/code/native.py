"""Native functions: a typed subset of Python, translated to LLVM text through the emitter.

    @native()
    def copy_words(target: Words, source: Words, count: i64) -> None:
        for i in range(count):
            target[i] = source[i]

    module(copy_words)                                    # LLVM text of the function and of all that it calls
    copy_words(Pointer([0] * 3), Pointer([1, 2, 3]), 3)   # runs in Python: for tests and for debuggers

What is known before run time (module constants, closures, enums, known tuples) is a constant in the text, and a branch
whose condition is known is not translated. `declare` gives functions of C. A native function without parentheses after
it is its address; a `bytes` constant lies in memory, with a zero behind; a `Global` is a variable of the module. An
annotation says what a word of a table is: `values: Words = region[Field.VALUES]`. `writes(f)` registers what writes a
call of the Python function `f` through the emitter: atomics, inline assembly, whatever has no syntax.

`and` and `or` give a bool. Not supported: several results, structs by value, vectors, exceptions, keywords in calls,
`else` of a loop. What is not supported is an error with file and line. Numbers behave as `typed.py` says.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from morpho.backends.code.emit import Emitter
from morpho.backends.code.typed import (
    VOID,
    Declared,
    Native,
    Operand,
    Operations,
    Pointer,
    Refusal,
    Unit,
    as_type,
)
from morpho.base.errors import CompileError, fail

F = TypeVar("F", bound=Callable[..., Any])
Variables = dict[str, Any]  # by name: an Operand, or what Python knows
OPERATORS: dict[type, str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.LShift: "lshift", ast.RShift: "rshift", ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor",
    ast.USub: "neg", ast.Invert: "invert", ast.UAdd: "pos", ast.Eq: "eq", ast.NotEq: "ne", ast.Is: "eq",
    ast.IsNot: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
# What may be computed and then not used: no effects, no loads, no divisions.
SIMPLE = (ast.Name, ast.Constant, ast.Attribute, ast.Compare, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.BitAnd,
          ast.BitOr, ast.BitXor, ast.cmpop, ast.expr_context)
MEETING = "value."  # the variable in which two branches of an expression leave their values: no name of Python's


def native(symbol: str = "", inline: bool | None = None) -> Callable[[F], F]:
    """Make a Python function native, under its own name or another symbol (`llvm.ctpop.i64`)."""
    def wrap(function: F) -> F:
        return cast(F, Native(function, symbol, inline))

    return wrap


def declare(symbol: str, kind: Any, variadic: bool = False, meaning: Callable[..., Any] | None = None) -> Any:
    """Return a function that another library has, by its symbol and type; `meaning`: what it does in Python.

    >>> labs = declare("labs", Callable[[i64], i64], meaning=abs)
    """
    return Declared(symbol, replace(as_type(kind), is_variadic=variadic), meaning)


def module(*exported: Any, internal: Sequence[Any] = (), elsewhere: Iterable[Any] = (),
           emitter: Callable[[], Emitter] = Emitter) -> str:
    """Return the LLVM text of native functions and of all that they call.

    `exported` can be looked up by their symbols; `internal` ones, and what is called, are for code of the same module.
    Functions and globals `elsewhere` stand in text that this one is joined with. `emitter` makes the emitter of each
    function.
    """
    unit = Unit([*exported, *internal], {each.symbol for each in exported}, {each.symbol for each in elsewhere},
                emitter)
    texts: list[str] = []
    while len(texts) < len(unit.natives):  # translating one may add others
        one = list(unit.natives.values())[len(texts)]
        if one.symbol in unit.elsewhere:
            texts.append("")
        else:
            texts.append(one.text() if isinstance(one, Declared) else Translation(one, unit).text())
    named = [each.text() for each in unit.globals.values() if each.symbol not in unit.elsewhere]
    return "\n".join([*named, *unit.constants.values(), *sorted(unit.declarations), *filter(None, texts), ""])


class Translation(Operations):
    """One native function being translated.

    A block begins when all ways into it are known, but the head of a loop. Variables that differ between the ways get a
    phi; a variable with no value on one of them, or values of two types, has none afterwards.
    """

    def __init__(self, function: Native, unit: Unit) -> None:
        super().__init__(unit)
        self.native, self.code = function, function.function.__code__
        self.is_open = True  # whether anything arrives here
        self.variables: Variables = {}  # never changed, but replaced
        self.edges: dict[str, list[tuple[str, Variables]]] = {}  # into blocks to come: from which, and its variables
        self.loops: list[tuple[str, str]] = []  # where `continue` and `break` go
        self.line = self.code.co_firstlineno

    def text(self) -> str:
        one = self.native
        try:
            *kinds, result = one.type.parts
            self.line = one.tree.lineno
            # The emitter's own names end with a digit, or are the first block's; those of arguments do not.
            names = [name + "." * (name[-1].isdigit() or name == "entry")
                     for name in (argument.arg for argument in one.tree.args.args)]
            given = [Operand(self.e, f"%{name}", kind) for name, kind in zip(names, kinds, strict=True)]
            self.variables = dict(zip([argument.arg for argument in one.tree.args.args], given, strict=True))
            self.run(one.tree.body)
            if self.is_open:
                self.leave_function(None)
        except (Refusal, TypeError, ValueError, AttributeError, IndexError, KeyError, OSError) as error:
            raise fail(CompileError, "native", f"{self.code.co_filename}:{self.line}: {one.symbol}: {error}") from error
        self.unit.declarations |= self.e.declarations
        linkage = "" if one.symbol in self.unit.exported else "internal "
        head = f"define {linkage}{result.name} @{one.symbol}({', '.join(map(str, given))}){one.attributes} {{"
        return "\n".join([head, "entry:", *self.frame, self.e.text(), "}"])

    # -- expressions --
    def value(self, node: ast.expr) -> Any:
        """Evaluate an expression: an Operand, or what Python knows."""
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return self.look_up(name)
            case ast.Attribute(owner, name):
                known = self.value(owner)
                if isinstance(known, Operand):
                    raise Refusal(f"{known.kind} has no attributes")
                return getattr(known, name)
            case ast.Subscript(table, index):
                return self.item(self.value(table), self.value(index))
            case ast.BinOp(left, sign, right) if type(sign) in OPERATORS:
                return self.binary(OPERATORS[type(sign)], self.value(left), self.value(right))
            case ast.UnaryOp(ast.Not()) | ast.BoolOp():
                return self.choose(node, ast.Constant(True), ast.Constant(False))
            case ast.UnaryOp(sign, operand):
                return self.unary(OPERATORS[type(sign)], self.value(operand))
            case ast.Compare(left, signs, others) if all(type(sign) in OPERATORS for sign in signs):
                return self.compare([left, *others], [OPERATORS[type(sign)] for sign in signs])
            case ast.IfExp(test, yes, no):
                return self.choose(test, yes, no)
            case ast.Call(function, arguments, []):
                return self.call(self.value(function), self.values(arguments))
            case ast.Tuple(parts):
                return tuple(self.values(parts))
            case ast.List(parts):  # of types, in an annotation
                return self.values(parts)
        raise Refusal(f"{ast.unparse(node)!r} is not supported")

    def values(self, nodes: Sequence[ast.expr]) -> list[Any]:
        return [value for node in nodes for value in (
            self.value(node.value) if isinstance(node, ast.Starred) else [self.value(node)])]

    def look_up(self, name: str) -> Any:
        if name in self.variables:
            return self.variables[name]
        if name in self.code.co_varnames:
            raise Refusal(f"{name} has no value here, or values of two types")
        for scope in (self.native.closure, self.native.function.__globals__, vars(builtins)):
            if name in scope:
                return scope[name]
        raise Refusal(f"{name} is not defined")

    def compare(self, nodes: list[ast.expr], words: list[str]) -> Any:
        """A comparison; of a chain all operands are computed, so these must be simple."""
        if len(words) > 1 and not all(isinstance(part, SIMPLE) for node in nodes[2:] for part in ast.walk(node)):
            raise Refusal("a chain of comparisons with operands that may have effects")
        values = [self.value(node) for node in nodes]
        result, *others = [self.binary(word, left, right) for word, left, right in
                           zip(words, values, values[1:], strict=False)]
        for other in others:
            result = self.binary("and_", result, other)
        return result

    def choose(self, test: ast.expr, yes: ast.expr, no: ast.expr) -> Any:
        """`yes if test else no`: one instruction where both may be computed, else two blocks."""
        plain = not isinstance(test, ast.BoolOp) and not (
            isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))
        if plain and all(isinstance(part, SIMPLE) for branch in (yes, no) for part in ast.walk(branch)):
            condition = self.value(test)
            if not isinstance(condition, Operand):
                return self.value(yes if condition else no)
            return self.select(self.truth(condition), *self.unify(self.value(yes), self.value(no)))
        then, otherwise, end = (self.e.fresh(stem) for stem in ("yes.", "no.", "end."))
        self.condition(test, then, otherwise)
        for label, branch in ((then, yes), (otherwise, no)):
            self.begin(label)
            if self.is_open:
                self.variables = {**self.variables, MEETING: self.value(branch)}
                self.jump(end)
        self.begin(end)
        if MEETING not in self.variables:
            raise Refusal("both values must be of one type")
        result = self.variables[MEETING]
        self.variables = {name: value for name, value in self.variables.items() if name != MEETING}
        return result

    def condition(self, node: ast.expr, yes: str, no: str) -> None:
        """Go to one of two blocks, by as many tests as that takes."""
        match node:
            case ast.BoolOp(sign, [*others, last]):
                for part in others:
                    rest = self.e.fresh("rest.")
                    self.condition(part, *((rest, no) if isinstance(sign, ast.And) else (yes, rest)))
                    self.begin(rest)
                self.condition(last, yes, no)
            case ast.UnaryOp(ast.Not(), operand):
                self.condition(operand, no, yes)
            case _ if self.is_open:
                self.branch(self.value(node), yes, no)

    # -- blocks --
    def leave(self, line: str, *labels: str) -> None:
        """End the block by a line that goes to one of these labels."""
        if self.is_open:
            self.e.line(line)
            for label in labels:
                self.edges.setdefault(label, []).append((self.e.block, self.variables))
        self.is_open = False

    def jump(self, label: str) -> None:
        self.leave(f"br label %{label}", label)

    def branch(self, test: Any, yes: str, no: str) -> None:
        """Go to one of two blocks; where the test is known, there is no other way."""
        if isinstance(test, Operand):
            self.leave(f"br i1 {self.truth(test).name}, label %{yes}, label %{no}", yes, no)
        else:
            self.jump(yes if test else no)

    def begin(self, label: str) -> None:
        """Begin a block with what variables are at the ends of those before it."""
        edges = self.edges.pop(label, [])
        self.is_open = bool(edges)
        if not edges:
            return
        self.e.label(label)
        self.variables = {}
        for name in edges[0][1]:
            values = [variables[name] for _, variables in edges if name in variables]
            kinds = {value.kind for value in values if isinstance(value, Operand)}
            if len(values) < len(edges) or len(kinds) > 1:
                continue
            if all(type(value) is type(values[0]) and value == values[0] for value in values):
                self.variables[name] = values[0]
            elif kinds or all(isinstance(value, int | float) for value in values):
                kind = kinds.pop() if kinds else self.fit(values[0]).kind
                self.variables[name] = Operand(self.e, "%" + self.e.fresh(f"{name}."), kind)
                self.e.lines.append(self.phi(name, self.variables[name], edges))

    def phi(self, name: str, value: Operand, edges: Sequence[tuple[str, Variables]]) -> str:
        if any(name not in variables for _, variables in edges):
            raise Refusal(f"{name} has no value, or one of another type, when the loop repeats")
        ways = [f"[ {self.fit(variables[name], value.kind).name}, %{block} ]" for block, variables in edges]
        return f"  {value.name} = phi {value.kind.name} {', '.join(ways)}"

    def loop(self, changed: set[str], test: Callable[[str, str], None], body: Callable[[], None],
             step: Callable[[], None] = lambda: None) -> None:
        """Repeat while `test(inside, end)` goes inside. `changed`: variables that may differ between iterations."""
        head, inside, again, end = (self.e.fresh(stem) for stem in ("head.", "inside.", "again.", "end."))
        self.jump(head)
        edges = self.edges.pop(head)
        before = {name: self.fit(value) if name in changed and isinstance(value, int | float) else value
                  for name, value in self.variables.items()}
        edges = [(edges[0][0], before)]
        phis = {name: Operand(self.e, "%" + self.e.fresh(f"{name}."), value.kind) for name, value in before.items()
                if name in changed and isinstance(value, Operand)}
        unchanged = {name: value for name, value in before.items() if name not in changed}
        self.is_open, self.variables = True, {**unchanged, **phis}
        self.e.label(head)
        place = len(self.e.lines)  # of the phis, which are written when the ways back are known
        test(inside, end)
        self.begin(inside)
        self.loops.append((again, end))
        body()
        self.loops.pop()
        self.jump(again)
        self.begin(again)
        if self.is_open:
            step()
        self.jump(head)
        edges += self.edges.pop(head, [])
        self.e.lines[place:place] = [self.phi(name, value, edges) for name, value in phis.items()]
        self.begin(end)

    # -- statements --
    def run(self, statements: Iterable[ast.stmt]) -> None:
        for node in statements:
            if self.is_open:  # else nothing arrives
                self.line = node.lineno
                self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Pass():
                pass
            case ast.Expr(value):
                self.value(value)
            case ast.Return(value):
                self.leave_function(value)
            case ast.Break():
                self.jump(self.loops[-1][1])
            case ast.Continue():
                self.jump(self.loops[-1][0])
            case ast.If(test, body, otherwise):
                yes, no, end = (self.e.fresh(stem) for stem in ("yes.", "no.", "end."))
                self.condition(test, yes, no)
                self.branches([(yes, body), (no, otherwise)], end)
            case ast.While(test, body, []):
                self.loop(assigned(node), lambda yes, no: self.condition(test, yes, no), lambda: self.run(body))
            case ast.For(target, ast.Call(function, bounds, []), body, []) if self.value(function) is range:
                self.count(target, self.values(bounds), assigned(node), body)
            case ast.For(target, sequence, body, []):
                self.unroll(target, self.value(sequence), body)
            case ast.Match(subject, cases):
                self.switch(self.fit(self.value(subject)), cases)
            case ast.Assign([target], value):
                self.store(target, self.value(value))
            case ast.AugAssign(ast.Name() as target, sign, value):
                self.store(target, self.binary(OPERATORS[type(sign)], self.look_up(target.id), self.value(value)))
            case ast.AugAssign(ast.Subscript(table, index), sign, value):
                place = self.place(self.value(table), self.value(index))
                self.put(place, 0, self.binary(OPERATORS[type(sign)], self.item(place, 0), self.value(value)))
            case ast.AnnAssign(target, annotation, ast.Subscript(table, index)):
                self.store(target, self.item(self.value(table), self.value(index), as_type(self.value(annotation))))
            case ast.AnnAssign(target, annotation, ast.expr() as value):
                self.store(target, self.fit(self.value(value), as_type(self.value(annotation))))
            case _:
                raise Refusal(f"{ast.unparse(node).splitlines()[0]!r} is not supported")

    def leave_function(self, node: ast.expr | None) -> None:
        result = self.native.type.parts[-1]
        value = None if node is None else self.value(node)
        if result == VOID and value is None:
            self.leave("ret void")
        elif node is None or result == VOID:
            raise Refusal(f"{result} is to be returned")
        else:
            self.leave(f"ret {self.fit(value, result)}")

    def store(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(name):
                if value is None or isinstance(value, int | float | bytes):  # it takes on the type of the variable
                    value = self.fit(value, getattr(self.variables.get(name), "kind", None))
                self.variables = {**self.variables, name: value}
            case ast.Subscript(table, index):
                self.put(self.value(table), self.value(index), value)
            case ast.Tuple(targets):
                for part, one in zip(targets, tuple(value), strict=True):
                    self.store(part, one)
            case _:
                raise Refusal(f"{ast.unparse(target)!r} cannot be assigned")

    def branches(self, bodies: list[tuple[str, list[ast.stmt]]], end: str) -> None:
        for label, body in bodies:
            self.begin(label)
            self.run(body)
            self.jump(end)
        self.begin(end)

    def count(self, target: ast.expr, bounds: list[Any], changed: set[str], body: list[ast.stmt]) -> None:
        """`for target in range(*bounds)`: a hidden variable counts, so that the body may change its own."""
        first, last, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        if isinstance(step, Operand) or step == 0:
            raise Refusal("the step of a range must be known, and not be 0")
        first, last = self.unify(first, last)
        counter = f"count{self.e.fresh('.')}"
        self.variables = {**self.variables, counter: first}

        def test(inside: str, end: str) -> None:
            self.branch(self.binary("lt" if step > 0 else "gt", self.variables[counter], last), inside, end)

        def iteration() -> None:
            self.store(target, self.variables[counter])
            self.run(body)

        def advance() -> None:
            self.variables = {**self.variables, counter: self.binary("add", self.variables[counter], step)}

        self.loop({*changed, counter}, test, iteration, advance)
        self.variables = {name: value for name, value in self.variables.items() if name != counter}

    def unroll(self, target: ast.expr, sequence: Any, body: list[ast.stmt]) -> None:
        """`for target in` a sequence that is known: the body once for each, with what is known of it."""
        if isinstance(sequence, Operand | Pointer):
            raise Refusal("a loop takes a range or a sequence that is known")
        end = self.e.fresh("end.")
        for value in sequence:
            again = self.e.fresh("again.")
            if isinstance(target, ast.Name):
                self.variables = {**self.variables, target.id: value}
            else:
                self.store(target, value)
            self.loops.append((again, end))
            self.run(body)
            self.loops.pop()
            self.jump(again)
            self.begin(again)
        self.jump(end)
        self.begin(end)

    def switch(self, subject: Operand, cases: list[ast.match_case]) -> None:
        end, labels, rows = self.e.fresh("end."), [self.e.fresh("case.") for _ in cases], list[str]()
        default = end
        for label, case in zip(labels, cases, strict=True):
            match case:
                case ast.match_case(ast.MatchAs(None, None), None):  # `_`
                    default = label
                case ast.match_case(ast.MatchValue() | ast.MatchOr(), None):
                    for pattern in getattr(case.pattern, "patterns", [case.pattern]):
                        rows.append(f"{self.fit(self.value(pattern.value), subject.kind)}, label %{label}")
                case _:
                    raise Refusal(f"'case {ast.unparse(case.pattern)}' is not supported")
        self.leave(f"switch {subject}, label %{default} [ {' '.join(rows)} ]", *dict.fromkeys([default, *labels]))
        self.branches([(label, case.body) for label, case in zip(labels, cases, strict=True)], end)


def assigned(node: ast.AST) -> set[str]:
    """Names that a statement assigns."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
