"""Typed values of native code, and the operations on them, written through the emitter.

A `Type` knows what LLVM's types do not say: the sign of an integer, what a pointer points to. In Python a type converts
as the machine does, and a `Pointer` is a view of a list, so that native functions run there too. An instruction is a
Python function, its meaning, with another that writes it (`writes`): atomics, or what has no syntax.

Integers wrap. `//` and `%` round down, as in Python. Only literals change type silently. Undefined, as in C: a divisor
of 0, the least integer // -1, shifts by the width or more, floats turned to integers that do not hold them.
"""

from __future__ import annotations

import ast
import collections.abc
import hashlib
import inspect
import linecache
import operator
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar, cast

from morpho.backends.code.emit import Emitter, Value

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Refusal(Exception):
    """Code outside the subset, or operands whose types do not fit; becomes an error with the line."""


# -- types and what they mean in Python ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Type:
    """A machine type. `parts`: what a pointer points to, or the arguments of a function and, last, its result."""

    name: str  # LLVM's
    family: str  # int, unsigned, float, pointer, volatile (pointer), function, void
    bits: int
    parts: tuple[Type, ...] = ()
    is_variadic: bool = False

    def __str__(self) -> str:
        if self.parts:
            return f"{self.family}[{', '.join(map(str, self.parts))}]"
        return "u" + self.name[1:] if self.family == "unsigned" and self.bits > 1 else self.name

    def __call__(self, number: Any) -> Any:
        """Convert in Python, to what the machine would have."""
        if self.family == "float":
            return float(number)
        if self == BOOL:
            return bool(number)
        low = int(number) & ((1 << self.bits) - 1)
        return low - (1 << self.bits) if self.family == "int" and low >> (self.bits - 1) else low

    @property
    def is_integer(self) -> bool:
        return self.family in ("int", "unsigned")

    @property
    def is_address(self) -> bool:
        return self.family in ("pointer", "volatile", "function")

    @property
    def bytes(self) -> int:
        return max(1, self.bits // 8)


VOID, BOOL, INT64 = Type("void", "void", 0), Type("i1", "unsigned", 1), Type("i64", "int", 64)
if TYPE_CHECKING:  # checkers see Python's numbers
    i1: TypeAlias = bool
    i8: TypeAlias = int
    i16: TypeAlias = int
    i32: TypeAlias = int
    i64: TypeAlias = int
    u8: TypeAlias = int
    u16: TypeAlias = int
    u32: TypeAlias = int
    u64: TypeAlias = int
    f32: TypeAlias = float
    f64: TypeAlias = float
    Word: TypeAlias = Any  # an integer or an address: an annotation tells which
    Nothing: TypeAlias = Any
else:
    i1, (i8, i16, i32, i64) = BOOL, (Type(f"i{bits}", "int", bits) for bits in (8, 16, 32, 64))
    u8, u16, u32, u64 = (Type(f"i{bits}", "unsigned", bits) for bits in (8, 16, 32, 64))
    f32, f64, Word, Nothing = Type("float", "float", 32), Type("double", "float", 64), i64, VOID


class Pointer(Generic[T]):
    """The address of elements of one type; in Python, a view of a list."""

    def __init__(self, elements: Any, first: int = 0) -> None:
        self.elements, self.first = elements, first

    def __getitem__(self, index: int) -> T:
        return cast(T, self.elements[self.first + index])

    def __setitem__(self, index: int, value: T) -> None:
        self.elements[self.first + index] = value

    def __add__(self, distance: int) -> Self:
        return cast(Self, Pointer(self.elements, self.first + distance))


class Volatile(Pointer[T]):
    """A pointer whose every load and store happens, in order."""


class Global(Pointer[Any]):
    """A variable of the module: elements of one type, zero at first; with `external`, another module has it."""

    def __init__(self, symbol: str, kind: Any, count: int = 1, external: bool = False) -> None:
        super().__init__([0] * count)
        self.symbol, self.kind, self.count, self.external = symbol, kind, count, external

    def text(self) -> str:
        words = "external global" if self.external else "internal global"
        end = "" if self.external else " zeroinitializer"
        return f"@{self.symbol} = {words} [{self.count} x {as_type(self.kind).name}]{end}"


Words = Pointer[Word]
Bytes = Pointer[u8]
Address = Pointer[Nothing]  # of anything
NULL: Any = None  # where a checker wants an address
FAMILIES = {Pointer: "pointer", Volatile: "volatile", collections.abc.Callable: "function"}


def as_type(annotation: Any) -> Type:
    """Return the machine type that an annotation stands for."""
    if annotation is None or annotation is type(None):
        return VOID
    if isinstance(annotation, Type):
        return annotation
    family = FAMILIES.get(getattr(annotation, "__origin__", None))
    if family is None:
        raise Refusal(f"{annotation!r} is no type of native code")
    return Type("ptr", family, 64, tuple(map(as_type, annotation.__args__)))


class Native:
    """A native function. `inline`: whether LLVM must or must not inline it; None leaves that to LLVM."""

    def __init__(self, function: Callable[..., Any], symbol: str, inline: bool | None) -> None:
        self.function, self.symbol = function, symbol or function.__name__
        self.attributes = {None: "", True: " alwaysinline", False: " noinline"}[inline]
        self.__doc__ = function.__doc__

    def __call__(self, *arguments: Any) -> Any:
        """Run in Python."""
        return self.function(*arguments)

    @cached_property
    def closure(self) -> dict[str, Any]:
        cells = zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True)
        return {name: cell.cell_contents for name, cell in cells}

    @cached_property
    def type(self) -> Type:
        signature = inspect.signature(self.function, eval_str=True, locals=self.closure)
        annotations = [part.annotation for part in signature.parameters.values()]
        return Type("ptr", "function", 64, tuple(map(as_type, (*annotations, signature.return_annotation))))

    @cached_property
    def tree(self) -> ast.FunctionDef:
        code = self.function.__code__
        trees = trees_of(code.co_filename)
        if code.co_firstlineno in trees:
            return trees[code.co_firstlineno]
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))  # a block of a page, say
        return cast(ast.FunctionDef, ast.increment_lineno(tree, code.co_firstlineno - 1).body[0])


class Declared:
    """A function of C's or of LLVM's. `meaning`: what it does in Python."""

    def __init__(self, symbol: str, kind: Type, meaning: Callable[..., Any] | None) -> None:
        self.symbol, self.type, self.meaning = symbol, kind, meaning

    def __call__(self, *arguments: Any) -> Any:
        """Run in Python."""
        if self.meaning is None:
            raise TypeError(f"{self.symbol} has no meaning in Python")
        return self.meaning(*arguments)

    def text(self) -> str:
        *kinds, result = self.type.parts
        types = ", ".join([*(kind.name for kind in kinds), *["..."] * self.type.is_variadic])
        return f"declare {result.name} @{self.symbol}({types})"


@cache
def trees_of(path: str) -> dict[int, ast.FunctionDef]:
    """The functions of a file by their first lines, decorators included; none where the file is not Python's."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return {}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {min([node.lineno, *(part.lineno for part in node.decorator_list)]): node for node in functions}


class Unit:
    """One module being translated: what it has by its symbols."""

    def __init__(self, natives: Sequence[Native | Declared], exported: set[str], elsewhere: set[str],
                 emitter: Callable[[], Emitter] = Emitter) -> None:
        self.emitter = emitter
        self.natives, self.exported, self.elsewhere = {each.symbol: each for each in natives}, exported, elsewhere
        self.globals: dict[str, Global] = {}
        self.constants: dict[str, str] = {}  # by symbol, the text of bytes in memory
        self.declarations: set[str] = set()  # of intrinsics that the emitter used

    def symbol_of(self, part: Native | Declared | Global | bytes) -> str:
        """The name of a part in the text; the part is added."""
        if isinstance(part, bytes):
            symbol, codes = "bytes." + hashlib.sha256(part).hexdigest()[:16], "".join(f"\\{n:02X}" for n in part)
            self.constants[symbol] = f'@{symbol} = private constant [{len(part) + 1} x i8] c"{codes}\\00"'
            return "@" + symbol
        table = cast(dict[str, Any], self.natives if isinstance(part, Native | Declared) else self.globals)
        if table.setdefault(part.symbol, part) is not part:
            raise Refusal(f"two parts of the module are named {part.symbol}")
        return f"@{part.symbol}"


# -- operations ------------------------------------------------------------------------------------------------------
class Operand(Value):
    """A value of the emitter's whose type also says its sign, or what it points to."""

    __slots__ = ("kind",)

    def __init__(self, emitter: Emitter, name: str, kind: Type) -> None:
        super().__init__(emitter, name, kind.name, 1)
        self.kind = kind

    def __str__(self) -> str:
        return f"{self.kind.name} {self.name}"


# Types of literals where nothing else is needed.
LITERALS: list[tuple[type, Type]] = [(bool, BOOL), (int, INT64), (float, Type("double", "float", 64))]
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "lshift": "shl", "and_": "and", "or_": "or", "xor": "xor"}
FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "truediv": "fdiv"}
CONVERSIONS = {("float", "int"): "fptosi", ("float", "unsigned"): "fptoui", ("int", "float"): "sitofp",
               ("unsigned", "float"): "uitofp"}
WRITERS: dict[Any, Callable[..., Any]] = {}  # Python function -> what writes a call of it: (translation, *arguments)


def writes(meaning: Any) -> Callable[[F], F]:
    """Register what writes a call of a Python function: it takes the translation, whose `e` is the emitter, and the
    arguments, and gives a value, a constant or None."""

    def register(write: F) -> F:
        WRITERS[meaning] = write
        return write

    return register


class Operations:
    """Typed operations, written through an emitter."""

    def __init__(self, unit: Unit) -> None:
        self.unit, self.e = unit, unit.emitter()
        self.frame: list[str] = []  # arrays of the function

    def assign(self, text: str, kind: Type) -> Operand:
        """An instruction that has a result."""
        return Operand(self.e, self.e.assign(text, kind.name, 1).name, kind)

    def fit(self, value: Any, kind: Type | None = None) -> Operand:
        """`value` as an operand of a type: literals take it on, everything else must have it."""
        if isinstance(value, Operand):
            anything = kind is not None and kind.is_address and value.kind.is_address and VOID in (
                kind.parts[0], value.kind.parts[0])
            if kind not in (None, value.kind) and not anything:
                raise Refusal(f"{kind} is needed, not {value.kind}")
            return value
        if isinstance(value, Native | Declared):
            return self.fit(Operand(self.e, self.unit.symbol_of(value), value.type), kind)
        if isinstance(value, Global):
            pointer = Type("ptr", "pointer", 64, (as_type(value.kind),))
            return self.fit(Operand(self.e, self.unit.symbol_of(value), pointer), kind)
        if isinstance(value, bytes):
            return self.fit(Operand(self.e, self.unit.symbol_of(value), as_type(Bytes)), kind)
        if value is None:
            if kind is not None and not kind.is_address:
                raise Refusal(f"{kind} is needed, not None")
            return Operand(self.e, "null", kind or as_type(Address))
        kind = kind or next((one for python, one in LITERALS if isinstance(value, python)), VOID)
        if kind.is_address or kind == VOID or not isinstance(value, int | float) or (
                isinstance(value, float) and kind.family != "float"):
            raise Refusal(f"{value!r} is no constant of {kind}")
        return Operand(self.e, self.e.constant(value, kind.name, 1).name, kind)

    def unify(self, *values: Any) -> list[Operand]:
        """Values as operands of one type: that of the first which has one."""
        kind = next((value.kind for value in values if isinstance(value, Operand)), None)
        return [self.fit(value, kind) for value in values]

    def truth(self, value: Operand) -> Operand:
        """Whether a value is not zero, or not null."""
        if value.kind == BOOL:
            return value
        return cast(Operand, self.binary("ne", value, None if value.kind.is_address else 0))

    def unary(self, word: str, value: Any) -> Any:
        if not isinstance(value, Operand):
            return getattr(operator, word)(value)
        if word == "pos":
            return value
        if value.kind.family == "float" and word == "neg":
            return self.assign(f"fneg {value}", value.kind)
        return self.binary("sub", self.fit(0, value.kind), value) if word == "neg" else self.binary("xor", value, -1)

    def binary(self, word: str, left: Any, right: Any) -> Any:
        """An operation named as in Python's `operator`."""
        if not isinstance(left, Operand) and not isinstance(right, Operand):
            if word in ("add", "sub") and isinstance(left, Global | bytes):
                left = self.fit(left)
            else:
                return getattr(operator, word)(left, right)
        if isinstance(left, Operand) and left.kind.family in ("pointer", "volatile") and word in ("add", "sub"):
            return self.place(left, self.unary("neg", right) if word == "sub" else right)
        left, right = self.unify(left, right)
        kind, pair = left.kind, f"{left}, {right.name}"
        signed = kind.family == "int"
        if word in COMPARISONS:
            if kind.family == "float":
                return self.assign(f"fcmp {'une' if word == 'ne' else 'o' + word} {pair}", BOOL)
            order = word if word in ("eq", "ne") else ("s" if signed else "u") + word
            return self.assign(f"icmp {order} {pair}", BOOL)
        if kind.family == "float" and word in FLOAT:
            return self.assign(f"{FLOAT[word]} {pair}", kind)
        if kind.is_integer and word in INTEGER:
            return self.assign(f"{INTEGER[word]} {pair}", kind)
        if kind.is_integer and word == "rshift":
            return self.assign(f"{'ashr' if signed else 'lshr'} {pair}", kind)
        if kind.is_integer and word in ("floordiv", "mod"):
            return self.divide(word, left, right)
        raise Refusal(f"{word.rstrip('_')} of {kind}")

    def divide(self, word: str, left: Operand, right: Operand) -> Operand:
        """Quotient or rest of a division that rounds down; LLVM's rounds towards zero."""
        kind, pair = left.kind, f"{left}, {right.name}"
        if kind.family == "unsigned":
            return self.assign(f"{'udiv' if word == 'floordiv' else 'urem'} {pair}", kind)
        quotient, rest = self.assign(f"sdiv {pair}", kind), self.assign(f"srem {pair}", kind)
        signs = self.binary("lt", self.binary("xor", rest, right), 0)
        above = self.binary("and_", self.binary("ne", rest, 0), signs)
        if word == "floordiv":
            return cast(Operand, self.binary("add", quotient, self.assign(f"sext {above} to {kind.name}", kind)))
        return cast(Operand, self.binary("add", rest, self.select(above, right, self.fit(0, kind))))

    def select(self, test: Operand, first: Operand, second: Operand) -> Operand:
        return self.assign(f"select {test}, {first}, {second}", first.kind)

    def convert(self, value: Any, kind: Type) -> Operand:
        """A call of a type."""
        if not isinstance(value, Operand):
            if isinstance(value, Native | Declared | Global | bytes):
                value = self.fit(value)
            elif kind.is_address and value is not None:
                value = self.fit(value, INT64)
            else:
                return self.fit(value if value is None else kind(value), kind)
        if kind == BOOL:
            return self.truth(value)
        old, new = value.kind, kind
        if old.name == new.name:
            return Operand(self.e, value.name, kind)
        if old.is_integer and new.is_integer:
            word = "trunc" if new.bits < old.bits else "sext" if old.family == "int" else "zext"
        elif old.family == new.family == "float":
            word = "fptrunc" if new.bits < old.bits else "fpext"
        elif old.bits == new.bits and (old.is_address, old.is_integer) == (new.is_integer, new.is_address):
            word = "ptrtoint" if old.is_address else "inttoptr"
        elif (old.family, new.family) in CONVERSIONS:
            word = CONVERSIONS[old.family, new.family]
        else:
            raise Refusal(f"{old} cannot become {new}")
        return self.assign(f"{word} {value} to {new.name}", new)

    def pointer(self, value: Any) -> Operand:
        """A value that has elements in memory."""
        value = self.fit(value)
        if value.kind.family not in ("pointer", "volatile") or value.kind.parts[0] == VOID:
            raise Refusal(f"{value.kind} has no elements")
        return cast(Operand, value)

    def place(self, table: Any, index: Any) -> Operand:
        """The address of an element."""
        table = self.pointer(table)
        if not isinstance(index, Operand) and index == 0:
            return cast(Operand, table)
        index = self.convert(self.fit(index), INT64)
        return self.assign(f"getelementptr {table.kind.parts[0].name}, {table}, {index}", table.kind)

    def item(self, table: Any, index: Any, kind: Type | None = None) -> Any:
        """An element; a word may be read as anything of its size."""
        if not isinstance(table, Operand | Global) and not isinstance(index, Operand):
            return table[index] if kind is None else self.fit(table[index], kind)
        if not isinstance(table, Operand | Global | bytes):
            raise Refusal(f"a {type(table).__name__} has no memory: its index must be known")
        place = self.place(table, index)
        element = place.kind.parts[0]
        if kind not in (None, element) and (element != INT64 or kind is None or kind.bits != 64):
            raise Refusal(f"elements are {element}, not {kind}")
        kind = kind or element
        return self.assign(f"load {self.volatile(place)}{kind.name}, {place}, align {kind.bytes}", kind)

    def put(self, table: Any, index: Any, value: Any) -> None:
        """Set an element; a word may be anything of its size."""
        place = self.place(table, index)
        element = place.kind.parts[0]
        if element == INT64 and (value is None or isinstance(value, Native | Declared | Global | bytes | Operand)):
            value = self.fit(value)
            element = value.kind if value.kind.bits == 64 else element
        self.e.line(f"store {self.volatile(place)}{self.fit(value, element)}, {place}, align {element.bytes}")

    def volatile(self, place: Operand) -> str:
        return "volatile " if place.kind.family == "volatile" else ""

    def call(self, callee: Any, arguments: Sequence[Any]) -> Any:
        """Call a native function or an address; convert to a type; write an instruction; or ask Python."""
        known = not any(isinstance(argument, Operand) for argument in arguments)
        if isinstance(callee, Native | Declared):
            callee = self.fit(callee)
        elif isinstance(callee, collections.abc.Hashable) and callee in WRITERS and not (
                known and callee in (min, max, bool)):
            result = WRITERS[callee](self, *arguments)
            plain = isinstance(result, Value) and not isinstance(result, Operand)
            return Operand(self.e, result.name, kind_of(result)) if plain else result
        elif isinstance(callee, Type) or getattr(callee, "__origin__", None) in FAMILIES:
            (value,) = arguments
            return self.convert(value, as_type(callee))
        elif not isinstance(callee, Operand):
            if not known or not callable(callee):
                raise Refusal(f"{getattr(callee, '__name__', callee)} is no native function")
            return callee(*arguments)
        if callee.kind.family != "function":
            raise Refusal(f"{callee.kind} cannot be called")
        *kinds, result = callee.kind.parts
        variadic = callee.kind.is_variadic
        if len(arguments) < len(kinds) or (len(arguments) > len(kinds) and not variadic):
            raise Refusal(f"{len(kinds)} arguments are needed, not {len(arguments)}")
        fitted = [self.fit(value, kind) for value, kind in zip(arguments, kinds, strict=False)]
        fitted += map(self.fit, arguments[len(kinds):])
        signature = f" ({', '.join([*(kind.name for kind in kinds), '...'])})" if variadic else ""
        text = f"call {result.name}{signature} {callee.name}({', '.join(map(str, fitted))})"
        return self.e.line(text) if result == VOID else self.assign(text, result)


def kind_of(value: Value) -> Type:
    """The type of a value that the emitter wrote: its integers are signed."""
    kinds: list[Type] = [BOOL, i8, i16, i32, i64, f32, f64]  # type: ignore[list-item]
    return next(kind for kind in kinds if kind.name == value.type)


# -- instructions: what they are in Python, and what writes them -----------------------------------------------------
def local(kind: Any, count: int) -> Any:
    """Reserve an array in the frame of the function, for the whole call."""
    return Pointer([0] * count)


def atomic_load(place: Any, order: str = "acquire") -> Any:
    return place[0]


def atomic_store(place: Any, value: Any, order: str = "release") -> None:
    place[0] = value


def atomic_update(operation: str, place: Any, value: Any, order: str = "acq_rel") -> Any:
    """Change an element at once by `add`, `sub`, `and`, `or`, `xor`, `max`, `min` or `xchg`; returns what it was."""
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "and": operator.and_, "or": operator.or_, "max": max, "min": min, "xchg": lambda old, new: new}
    old = place[0]
    place[0] = (functions.get(operation) or getattr(operator, operation))(old, value)
    return old


def compare_exchange(place: Any, expected: Any, value: Any, order: str = "acq_rel") -> bool:
    """Set an element if it is what was expected; returns whether it was."""
    same = place[0] == expected
    if same:
        place[0] = value
    return bool(same)


def fence(order: str = "seq_cst") -> None:
    pass


@writes(local)
def _local(code: Operations, kind: Any, count: int) -> Operand:
    name, element = "%" + code.e.fresh("array."), as_type(kind)
    code.frame.append(f"  {name} = alloca [{count} x {element.name}], align {max(8, element.bytes)}")
    return Operand(code.e, name, Type("ptr", "pointer", 64, (element,)))


@writes(atomic_load)
def _atomic_load(code: Operations, place: Any, order: str = "acquire") -> Operand:
    place = code.pointer(place)
    kind = place.kind.parts[0]
    return code.assign(f"load atomic {kind.name}, {place} {order}, align {kind.bytes}", kind)


@writes(atomic_store)
def _atomic_store(code: Operations, place: Any, value: Any, order: str = "release") -> None:
    place = code.pointer(place)
    kind = place.kind.parts[0]
    code.e.line(f"store atomic {code.fit(value, kind)}, {place} {order}, align {kind.bytes}")


@writes(atomic_update)
def _atomic_update(code: Operations, operation: str, place: Any, value: Any, order: str = "acq_rel") -> Operand:
    place = code.pointer(place)
    kind = place.kind.parts[0]
    word = "u" + operation if kind.family == "unsigned" and operation in ("max", "min") else operation
    return code.assign(f"atomicrmw {word} {place}, {code.fit(value, kind)} {order}", kind)


@writes(compare_exchange)
def _compare_exchange(code: Operations, place: Any, expected: Any, value: Any, order: str = "acq_rel") -> Operand:
    place = code.pointer(place)
    kind = place.kind.parts[0]
    pair = "%" + code.e.fresh("pair.")
    code.e.line(f"{pair} = cmpxchg {place}, {code.fit(expected, kind)}, {code.fit(value, kind)} {order} acquire")
    return code.assign(f"extractvalue {{ {kind.name}, i1 }} {pair}, 1", BOOL)


@writes(fence)
def _fence(code: Operations, order: str = "seq_cst") -> None:
    code.e.line(f"fence {order}")


@writes(min)
def _min(code: Operations, first: Any, second: Any) -> Operand:
    first, second = code.unify(first, second)
    return code.select(code.binary("lt", second, first), second, first)


@writes(max)
def _max(code: Operations, first: Any, second: Any) -> Operand:
    first, second = code.unify(first, second)
    return code.select(code.binary("gt", second, first), second, first)


@writes(bool)
def _bool(code: Operations, value: Operand) -> Operand:
    return code.truth(value)
