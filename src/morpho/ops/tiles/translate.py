"""From the syntax tree of a kernel to its tile IR.

Python evaluates what is known (constants, closures, shapes of tiles); the rest becomes operations. Loops and branches
with a runtime condition become blocks; a variable that differs between their ways keeps its shape and dtype. A plain
Python function that receives a tile is read in its place.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import operator
import textwrap
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from morpho.base.dtypes import DType, bool_, int64
from morpho.base.errors import CompileError, MorphoError, fail
from morpho.ir.op import REGISTRY
from morpho.ops.tiles.builder import Builder, Parameter, Reading, Refusal, Window, exact, finished, from_the_end
from morpho.ops.tiles.ir import Block, Operation, TileProgram, Value

BINARY: dict[type, str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder", ast.Pow: "pow", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor", ast.LShift: "bitwise_left_shift", ast.RShift: "bitwise_right_shift",
    ast.Eq: "equal", ast.NotEq: "not_equal", ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater",
    ast.GtE: "greater_equal", ast.MatMult: "dot"}
KNOWN: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not}
UNARY: dict[type, Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos,
                                           ast.Invert: operator.invert, ast.Not: operator.not_}
ALIASES = {"abs": "absolute", "mod": "remainder", "power": "pow", "rsqrt": "rsqrt"}
REDUCTIONS = ("sum", "max", "min", "prod", "any", "all")
MOST_DEPTH = 20  # of functions inside functions
PRIMITIVES: dict[Any, str] = {}  # functions of mo.kernel -> names of methods of `Reader`
Scope = dict[str, Any]
Tree = tuple[ast.FunctionDef, str]  # and the file


def translate(function: Callable[..., Any], arrays: Sequence[tuple[str, DType, int]],
              constants: dict[str, Any]) -> TileProgram:
    """The program of a kernel whose globals and closures stay as they are."""
    return translate_now(function, arrays, constants)[0]


def translate_now(function: Callable[..., Any], arrays: Sequence[tuple[str, DType, int]],
                  constants: dict[str, Any], tree: Tree | None = None) -> tuple[TileProgram, list[Reading]]:
    """The program of a kernel for arrays (name, dtype, rank) and constants, and the values of globals, closures and
    their attributes that are in it."""
    parameters = [Parameter(number, *one) for number, one in enumerate(arrays)]
    reader = Reader(function, tree=tree)
    for parameter in parameters:
        parameter.shape = tuple(reader.builder.add("size", (), (), int64, array=parameter.index, axis=axis)
                                for axis in range(parameter.rank))
    scope: Scope = {**{p.name: p for p in parameters}, **constants}
    try:
        if reader.body(reader.tree.body, scope) is not None:
            raise Refusal("a kernel returns nothing: it stores")
    except (Refusal, MorphoError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        said = error.message if isinstance(error, MorphoError) else error
        raise fail(CompileError, "kernel", f"{reader.tree.name}: {said}",
                   line=f"{reader.file}:{reader.builder.line}") from error
    return finished(reader.builder, reader.tree.name, parameters, reader.file), reader.builder.readings


def tree_of(function: Callable[..., Any]) -> Tree:
    """The syntax tree of a function, with the lines of its file."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError) as error:
        raise fail(CompileError, "kernel", f"the source of {function.__name__} is not available ({error})",
                   "write the kernel in a file; source typed into python -c is not kept") from None
    first = tree.body[0]
    if not isinstance(first, ast.FunctionDef):
        raise fail(CompileError, "kernel", f"{function.__name__} is no function written with def")
    ast.increment_lineno(tree, code.co_firstlineno - 1)
    return first, code.co_filename


class Reader:
    """One kernel, or a function that it calls, being read."""

    def __init__(self, function: Callable[..., Any], builder: Builder | None = None, depth: int = 0,
                 tree: Tree | None = None) -> None:
        self.tree, self.file = tree or tree_of(function)
        self.function, self.depth = function, depth
        self.builder = builder or Builder()
        self.cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    # -- statements --
    def body(self, statements: Sequence[ast.stmt], scope: Scope) -> Any:
        """Run statements; the value of a `return`, else None."""
        for number, node in enumerate(statements):
            self.builder.line = node.lineno
            if isinstance(node, ast.Return):
                return None if node.value is None else self.value(node.value, scope)
            if isinstance(node, ast.If):  # one of known ways may return
                condition = self.value(node.test, scope)
                if not isinstance(condition, Value):
                    return self.body([*(node.body if condition else node.orelse), *statements[number + 1:]], scope)
                self.branch(condition, node.body, node.orelse, scope)
            else:
                self.statement(node, scope)
        return None

    def statement(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.Pass() | ast.Expr(ast.Constant()):
                pass
            case ast.Expr(value):
                self.value(value, scope)
            case ast.Assign([target], value):
                self.assign(target, self.value(value, scope), scope)
            case ast.AnnAssign(target, _, ast.expr() as value):
                self.assign(target, self.value(value, scope), scope)
            case ast.AugAssign(ast.Name(name), sign, value):
                scope[name] = self.binary(type(sign), self.look_up(name, scope), self.value(value, scope))
            case ast.If(test, body, otherwise):
                condition = self.value(test, scope)
                if isinstance(condition, Value):
                    self.branch(condition, body, otherwise, scope)
                else:
                    self.nested(body if condition else otherwise, scope)
            case ast.For(ast.Name(name), ast.Call(function, bounds, []), body, []) if (
                    self.value(function, scope) is range):
                self.count(name, [self.value(bound, scope) for bound in bounds], body, scope)
            case ast.For(target, sequence, body, []):
                known = self.value(sequence, scope)
                if not isinstance(known, tuple | list | range):
                    raise Refusal("a loop takes range(...) or a known tuple")
                for one in known:
                    self.assign(target, one, scope)
                    self.nested(body, scope)
            case ast.While(test, body, []):
                self.repeat(test, body, scope)
            case _:
                raise Refusal(f"{ast.unparse(node).splitlines()[0]!r} is not supported in a kernel")

    def nested(self, statements: Sequence[ast.stmt], scope: Scope) -> None:
        for node in statements:
            self.builder.line = node.lineno
            if isinstance(node, ast.Return):
                raise Refusal("return inside a loop or a branch")
            self.statement(node, scope)

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        match target:
            case ast.Name(name):
                scope[name] = value
            case ast.Tuple(parts):
                values = list(value)
                if len(values) != len(parts):
                    raise Refusal(f"{len(values)} values for {len(parts)} names")
                for part, one in zip(parts, values, strict=True):
                    self.assign(part, one, scope)
            case _:
                raise Refusal(f"{ast.unparse(target)!r} cannot be assigned: use mo.kernel.store")

    # -- blocks --
    @contextmanager
    def inside(self, block: Block) -> Iterator[None]:
        """Write operations into a block."""
        outer, self.builder.block = self.builder.block, block
        yield
        self.builder.block = outer

    def carried(self, body: Sequence[ast.stmt], scope: Scope) -> list[str]:
        """Variables with numbers or tiles that statements assign."""
        names = {part.id for node in body for part in ast.walk(node)
                 if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        return [name for name in scope if name in names and isinstance(scope[name], Value | bool | int | float)]

    def loop(self, name: str, inputs: Sequence[Value], body: Sequence[ast.stmt], scope: Scope,
             test: ast.expr | None, index: str = "") -> None:
        """A loop whose variables keep their dtype; literals take on that of the body."""
        builder, names = self.builder, self.carried(body, scope)
        dtypes: dict[str, DType] = {}
        for attempt in range(2):
            mark, first = len(builder.block.operations), dict[str, Value]()
            for one in names:
                value = scope[one]
                first[one] = builder.constant(value, dtypes.get(one) if not isinstance(value, Value) else None)
            arguments = {one: builder.new(value.shape, value.dtype) for one, value in first.items()}
            inner: Scope = {**scope, **arguments}
            blocks: list[Block] = []
            if test is not None:
                condition = Block(tuple(arguments.values()))
                blocks.append(condition)
                with self.inside(condition):
                    condition.results = (self.scalar_test(test, inner),)
                arguments = {one: builder.new(value.shape, value.dtype) for one, value in first.items()}
                inner = {**scope, **arguments}
            counter = [builder.new((), int64)] if index else []
            inner.update(zip([index], counter, strict=False))
            block = Block((*counter, *arguments.values()))
            blocks.append(block)
            with self.inside(block):
                self.nested(body, inner)
            ends = {one: inner[one] for one in names}
            dtypes = {one: end.dtype for one, end in ends.items() if isinstance(end, Value)}
            literals = [one for one in names if not isinstance(scope[one], Value) and one in dtypes
                        and dtypes[one] is not first[one].dtype]
            if attempt == 0 and literals:
                del builder.block.operations[mark:]
                continue
            break
        with self.inside(block):
            block.results = tuple(self.like(one, ends[one], first[one]) for one in names)
        outputs = tuple(builder.new(value.shape, value.dtype) for value in first.values())
        builder.block.operations.append(
            Operation(name, (*inputs, *first.values()), {}, outputs, tuple(blocks), builder.line))
        scope.update(zip(names, outputs, strict=True))
        if index:
            scope.pop(index, None)

    def like(self, name: str, value: Any, model: Value) -> Value:
        """A variable at the end of an iteration or a branch, as it was before."""
        if not isinstance(value, Value | bool | int | float):
            raise Refusal(f"{name} is a number or a tile before and {type(value).__name__} behind")
        end = self.builder.constant(value, model.dtype if not isinstance(value, Value) else None)
        if end.shape == () and model.shape:
            end = self.builder.expanded(end, model.shape)
        if (end.shape, end.dtype) != (model.shape, model.dtype):
            raise Refusal(f"{name} is {model.dtype}{list(model.shape)} before the loop or branch and "
                          f"{end.dtype}{list(end.shape)} behind it: it must stay the same")
        return end

    def scalar_test(self, test: ast.expr, scope: Scope) -> Value:
        value = self.builder.constant(self.value(test, scope))
        if value.shape:
            raise Refusal(f"a condition is one value, not a tile of shape {value.shape}: use mo.where, any() or all()")
        return self.builder.cast(value, bool_)

    def count(self, name: str, bounds: list[Any], body: Sequence[ast.stmt], scope: Scope) -> None:
        first, last, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        if type(step) is not int or step < 1:
            raise Refusal("the step of a range is a known number of at least 1")
        if name in scope and isinstance(scope[name], Value | int):
            scope.pop(name)
        inputs = [self.builder.integer(first), self.builder.integer(last), self.builder.integer(step)]
        self.loop("for", inputs, body, scope, None, name)

    def repeat(self, test: ast.expr, body: Sequence[ast.stmt], scope: Scope) -> None:
        if isinstance(test, ast.Constant):
            raise Refusal("a loop without an end")
        self.loop("while", (), body, scope, test)

    def branch(self, condition: Value, body: Sequence[ast.stmt], otherwise: Sequence[ast.stmt], scope: Scope) -> None:
        if condition.shape:
            raise Refusal(f"a condition is one value, not a tile of shape {condition.shape}: use mo.where")
        condition = self.builder.cast(condition, bool_)
        blocks, scopes = (Block(), Block()), (dict(scope), dict(scope))
        for block, inner, statements in zip(blocks, scopes, (body, otherwise), strict=True):
            with self.inside(block):
                self.nested(statements, inner)
        results: list[Value] = []
        names: list[str] = []
        for name in scopes[0]:
            values = [inner.get(name) for inner in scopes]
            if values[0] is values[1] or (not isinstance(values[0], Value) and not isinstance(values[1], Value)
                                          and exact(values[0]) == exact(values[1])):
                scope[name] = values[0]
            elif all(isinstance(value, Value | bool | int | float) for value in values):
                kinds = [value for value in values if isinstance(value, Value)]
                model = max(kinds, key=lambda value: len(value.shape)) if kinds else None
                fitted: list[Value] = []
                for block, value in zip(blocks, values, strict=True):
                    with self.inside(block):
                        fitted.append(self.builder.constant(value) if model is None else
                                      self.like(name, value, model))
                if fitted[0].dtype is not fitted[1].dtype:
                    raise Refusal(f"{name} is {fitted[0].dtype} or {fitted[1].dtype}, by the branch that is taken")
                for block, value in zip(blocks, fitted, strict=True):
                    block.results = (*block.results, value)
                names.append(name)
                results.append(self.builder.new(fitted[0].shape, fitted[0].dtype))
            else:
                scope.pop(name, None)
        self.builder.block.operations.append(
            Operation("if", (condition,), {}, tuple(results), blocks, self.builder.line))
        scope.update(zip(names, results, strict=True))

    # -- expressions --
    def look_up(self, name: str, scope: Scope) -> Any:
        if name in scope:
            return scope[name]
        if name in self.function.__code__.co_varnames:
            raise Refusal(f"{name} has no value here: it is assigned in a loop or in one branch alone")
        return self.builder.reading(lambda: self.free(name))

    def free(self, name: str) -> Any:
        """The value that a name has outside of the function."""
        if name in self.cells:
            return self.cells[name].cell_contents
        for place in (self.function.__globals__, vars(builtins)):
            if name in place:
                return place[name]
        raise Refusal(f"{name} is not defined")

    def value(self, node: ast.expr, scope: Scope) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return self.look_up(name, scope)
            case ast.Attribute(owner, name):
                return self.attribute(self.value(owner, scope), name)
            case ast.Subscript(table, index):
                return self.item(self.value(table, scope), self.value(index, scope), index)
            case ast.Slice(start, stop, step):
                return slice(*(None if part is None else self.value(part, scope) for part in (start, stop, step)))
            case ast.BinOp(left, sign, right):
                return self.binary(type(sign), self.value(left, scope), self.value(right, scope))
            case ast.UnaryOp(sign, operand):
                return self.unary(type(sign), self.value(operand, scope))
            case ast.Compare(left, signs, others):
                return self.compare([self.value(part, scope) for part in (left, *others)], signs)
            case ast.BoolOp(sign, parts):
                return self.logical(isinstance(sign, ast.And), parts, scope)
            case ast.IfExp(test, yes, no):
                condition = self.value(test, scope)
                if not isinstance(condition, Value):
                    return self.value(yes if condition else no, scope)
                return self.builder.map("where", condition, self.value(yes, scope), self.value(no, scope))
            case ast.Call(function, arguments, keywords):
                given = [one for part in arguments for one in (
                    self.value(part.value, scope) if isinstance(part, ast.Starred) else [self.value(part, scope)])]
                if any(keyword.arg is None for keyword in keywords):
                    raise Refusal("** in a call is not supported")
                named = {str(keyword.arg): self.value(keyword.value, scope) for keyword in keywords}
                return self.call(self.value(function, scope), given, named)
            case ast.Tuple(parts) | ast.List(parts):
                return tuple(self.value(part, scope) for part in parts)
        raise Refusal(f"{ast.unparse(node)!r} is not supported in a kernel")

    def attribute(self, owner: Any, name: str) -> Any:
        if isinstance(owner, Value):
            if name in ("shape", "dtype"):
                return getattr(owner, name)
            if name == "ndim":
                return len(owner.shape)
            if name == "T":
                return owner if len(owner.shape) < 2 else self.builder.view(owner, "transpose")
            if name in REDUCTIONS or name in ("astype", "cumsum", "to"):
                return Method(owner, "astype" if name == "to" else name)
            raise Refusal(f"a tile has no attribute {name!r}")
        if isinstance(owner, Parameter | Window) and name not in ("shape", "dtype", "ndim"):
            raise Refusal(f"an array has no attribute {name!r}: load it first")
        if isinstance(owner, Window) and name == "shape":
            raise Refusal("a window has no shape: the shape of the tile is the second argument of load")
        if isinstance(owner, ModuleType) and owner.__name__.split(".")[0] in ("morpho", "numpy", "math"):
            return getattr(owner, name)
        return self.builder.reading(lambda: getattr(owner, name))

    def item(self, table: Any, index: Any, node: ast.expr) -> Any:
        if isinstance(table, Parameter):
            for axis, part in enumerate(node.elts if isinstance(node, ast.Tuple) else [node]):
                match part:
                    case ast.Slice(lower=ast.UnaryOp(ast.USub(), ast.Constant(int(start)))):
                        raise from_the_end(table, axis, -start)
            return self.builder.window(table, index)
        if isinstance(table, Value):
            parts = index if isinstance(index, tuple) else (index,)
            everything = slice(None)
            if len(table.shape) == 1 and parts == (everything, None):
                return self.builder.view(table, "column")
            if len(table.shape) == 1 and parts == (None, everything):
                return self.builder.view(table, "row")
            raise Refusal("a tile takes [:, None] and [None, :] alone")
        if isinstance(index, Value):
            raise Refusal("an index of a known tuple must be known")
        return self.builder.reading(lambda: table[index])

    def binary(self, sign: type, left: Any, right: Any) -> Any:
        if not isinstance(left, Value) and not isinstance(right, Value):
            if isinstance(left, Parameter | Window) or isinstance(right, Parameter | Window):
                raise Refusal("an array is no tile: load it first")
            return KNOWN[sign](left, right)
        if sign not in BINARY:
            raise Refusal("this comparison is not supported for tiles")
        if BINARY[sign] == "dot":
            return self.builder.dot(left, right)
        return self.arithmetic(BINARY[sign], left, right)

    def arithmetic(self, op: str, *values: Any) -> Value:
        for value in values:
            if not isinstance(value, Value | bool | int | float):
                kind = "an array: load it first" if isinstance(value, Parameter | Window) else repr(value)
                raise Refusal(f"{op} of {kind}")
        return self.builder.map(op, *values)

    def unary(self, sign: type, value: Any) -> Any:
        if not isinstance(value, Value):
            return UNARY[sign](value)
        if sign is ast.UAdd:
            return value
        if sign is ast.Not:
            return self.builder.map("logical_not", self.builder.cast(value, bool_))
        return self.builder.map("negative" if sign is ast.USub else "bitwise_invert", value)

    def compare(self, values: list[Any], signs: Sequence[ast.cmpop]) -> Any:
        results = [self.binary(type(sign), left, right)
                   for sign, left, right in zip(signs, values, values[1:], strict=False)]
        total = results[0]
        for one in results[1:]:
            total = self.builder.map("logical_and", total, one) if isinstance(total, Value) or isinstance(one, Value) \
                else total and one
        return total

    def logical(self, both: bool, parts: Sequence[ast.expr], scope: Scope) -> Any:
        """`and`, `or`: all operands are computed unless a known one decides."""
        total: Any = both
        for part in parts:
            value = self.value(part, scope)
            if not isinstance(value, Value):
                if bool(value) is not both:
                    return value
                continue
            value = self.builder.cast(value, bool_)
            total = self.builder.map("logical_and" if both else "logical_or", total, value) if isinstance(
                total, Value) else value
        return total

    # -- calls --
    def call(self, callee: Any, given: list[Any], named: dict[str, Any]) -> Any:
        everything = [*given, *named.values()]
        runtime = any(isinstance(one, Value | Parameter | Window) for one in everything)
        if isinstance(callee, Method):
            return self.method(callee, given, named)
        if isinstance(callee, Hashable) and callee in PRIMITIVES:
            return getattr(self, PRIMITIVES[callee])(*given, **named)
        if isinstance(callee, DType) and len(given) == 1:
            return self.builder.cast(self.builder.constant(given[0]), callee)
        if callee in (float, int, bool) and runtime:
            raise Refusal(f"{callee.__name__}() of a tile: use .astype(dtype)")
        name = self.elementwise(callee)
        if name in REDUCTIONS and (runtime or callee not in (builtins.sum, builtins.max, builtins.min)):
            if len(given) == 2 and callee in (max, min):
                return self.builder.map("maximum" if callee is max else "minimum", *given)
            return self.reduction(name, *given, **named)
        if not runtime:
            return callee(*given, **named)
        if name == "rsqrt" and not named:
            return self.builder.map("divide", 1.0, self.builder.map("sqrt", *given))
        if name in REGISTRY and REGISTRY[name].kind == "elementwise" and not named:
            return self.arithmetic(name, *given)
        own = getattr(callee, "__module__", "").startswith("morpho.")
        if inspect.isfunction(callee) and (not own or callee.__module__ == self.function.__module__):
            return self.inlined(callee, given, named)
        raise Refusal(f"{getattr(callee, '__name__', callee)!s} is not supported in a kernel")

    @staticmethod
    def elementwise(callee: Any) -> str:
        """The op that a function of `mo`, `math` or NumPy names, else nothing."""
        module = getattr(callee, "__module__", None) or ""
        name = str(getattr(callee, "__name__", ""))
        if module.split(".")[0] in ("morpho", "math", "numpy", "builtins") or type(callee).__module__ == "numpy":
            return ALIASES.get(name, name)
        return ""

    def reduction(self, name: str, value: Any, axis: Any = None) -> Value:
        if name in ("any", "all"):
            tile = self.builder.cast(self.builder.constant(value), bool_)
            return self.builder.cast(self.builder.reduce("max" if name == "any" else "min", tile, axis), bool_)
        return self.builder.reduce(name, value, axis)

    def method(self, method: Method, given: list[Any], named: dict[str, Any]) -> Value:
        if method.name == "astype":
            return self.astype(method.owner, *given, **named)
        if method.name == "cumsum":
            return self.builder.scan("sum", method.owner, *given, **named)
        return self.reduction(method.name, method.owner, *given, **named)

    def astype(self, value: Any, dtype: Any) -> Value:
        from morpho.base.dtypes import as_dtype

        return self.builder.cast(self.builder.constant(value), as_dtype(dtype))

    def inlined(self, function: Callable[..., Any], given: list[Any], named: dict[str, Any]) -> Any:
        """A function of the user's, read in the place of its call."""
        if self.depth >= MOST_DEPTH:
            raise Refusal(f"{function.__name__} calls itself")
        bound = inspect.signature(function).bind(*given, **named)
        bound.apply_defaults()
        line = self.builder.line
        inner = Reader(function, self.builder, self.depth + 1)
        result = inner.body(inner.tree.body, dict(bound.arguments))
        self.builder.line = line
        return result

    # -- functions of mo.kernel --
    def program_id(self, axis: Any = 0) -> Value:
        return self.grid("program_id", axis)

    def num_programs(self, axis: Any = 0) -> Value:
        return self.grid("num_programs", axis)

    def grid(self, name: str, axis: Any) -> Value:
        if axis not in (0, 1, 2):
            raise Refusal(f"axis {axis!r} of the grid: it has up to three")
        return self.builder.add(name, (), (), int64, axis=axis)

    def arange(self, start: Any, stop: Any = None) -> Value:
        first, last = (0, start) if stop is None else (start, stop)
        if type(first) is not int or type(last) is not int:
            raise Refusal("arange takes known numbers: add what is not known")
        tile = self.builder.add("iota", (), (last - first,), int64)
        return tile if first == 0 else self.builder.map("add", tile, first)

    def cdiv(self, a: Any, b: Any) -> Any:
        if not isinstance(a, Value) and not isinstance(b, Value):
            return -(-a // b)
        return self.builder.map("floor_divide", self.builder.map("add", a, self.binary(ast.Sub, b, 1)), b)

    def zeros(self, shape: Any, dtype: Any = "float32") -> Value:
        return self.builder.full(shape, 0, dtype)

    def full(self, shape: Any, value: Any, dtype: Any = None) -> Value:
        return self.builder.full(shape, value, dtype)

    def load(self, *given: Any, **named: Any) -> Value:
        return self.builder.load(*given, **named)

    def store(self, window: Any, value: Any, mask: Any = None) -> None:
        self.builder.store(window, value, mask)

    def atomic_add(self, window: Any, value: Any, mask: Any = None, unordered: bool = False) -> None:
        self.builder.store(window, value, mask, "add", unordered)

    def atomic_max(self, window: Any, value: Any, mask: Any = None) -> None:
        self.builder.store(window, value, mask, "max")

    def atomic_min(self, window: Any, value: Any, mask: Any = None) -> None:
        self.builder.store(window, value, mask, "min")

    def dot(self, *given: Any, **named: Any) -> Value:
        return self.builder.dot(*given, **named)

    def cumsum(self, *given: Any, **named: Any) -> Value:
        return self.builder.scan("sum", *given, **named)

    def cumprod(self, *given: Any, **named: Any) -> Value:
        return self.builder.scan("prod", *given, **named)

    def cummax(self, *given: Any, **named: Any) -> Value:
        return self.builder.scan("max", *given, **named)

    def cummin(self, *given: Any, **named: Any) -> Value:
        return self.builder.scan("min", *given, **named)

    def sort(self, value: Any) -> Value:
        return self.builder.sort(value)

    def where(self, *given: Any) -> Value:
        return self.builder.map("where", *given)

    def require(self, condition: Any) -> None:
        value = self.builder.cast(self.builder.constant(condition), bool_)
        if value.shape:
            raise Refusal(f"require takes one value, not a tile of shape {value.shape}")
        self.builder.add("require", (value,), None)

    def prod(self, *given: Any, **named: Any) -> Value:
        return self.reduction("prod", *given, **named)

    def maximum(self, *given: Any) -> Value:
        return self.builder.map("maximum", *given)

    def minimum(self, *given: Any) -> Value:
        return self.builder.map("minimum", *given)

    def sum(self, *given: Any, **named: Any) -> Value:
        return self.reduction("sum", *given, **named)

    def max(self, *given: Any, **named: Any) -> Value:
        return self.reduction("max", *given, **named)

    def min(self, *given: Any, **named: Any) -> Value:
        return self.reduction("min", *given, **named)


class Method:
    """A method of a tile, looked up and not yet called."""

    def __init__(self, owner: Value, name: str) -> None:
        self.owner, self.name = owner, name
