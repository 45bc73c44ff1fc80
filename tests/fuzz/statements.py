"""Random programs that write in place: slices, aliases, masks, rolled and joined values, loops; run by NumPy, and by
Morpho in every form there is. Shared by the tests and `benchmarks/fuzz.py`.

A program is the text of a loop's body over tensors `v0`, `v1`, ... of one shape, captured ones `c0`, `c1`, and the turn
`i`. `m` stands for the library: NumPy's is told to copy where a tensor is a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np
from checks import Mismatch, fails_with

import morpho as mo

Array = Any
DTYPES = ("float64", "float32", "int64", "int32")
CAPTURED = 2


# -- the two libraries -----------------------------------------------------------------------------------------------
def _np_at(x: Array, index: Any, name: str, value: Any) -> Array:
    found = x.copy()
    {"add": np.add, "multiply": np.multiply, "max": np.maximum}[name].at(found, index, value)
    return found


def _mo_at(x: Array, index: Any, name: str, value: Any) -> Array:
    return getattr(x.at[index], name)(value)


NUMPY = SimpleNamespace(maximum=np.maximum, minimum=np.minimum, where=np.where, roll=np.roll, concat=np.concatenate,
                        stack=np.stack, flip=lambda x, axis: np.flip(x, axis).copy(), value=np.copy, own=np.copy,
                        at=_np_at, array=np.asarray,
                        pad=lambda x, widths, value: np.pad(x, widths, constant_values=value))
MORPHO = SimpleNamespace(maximum=mo.maximum, minimum=mo.minimum, where=mo.where, roll=mo.roll, concat=mo.concat,
                         stack=mo.stack, flip=lambda x, axis: mo.flip(x, axis=axis), value=lambda x: x,
                         own=lambda x: x[...], at=_mo_at,
                         pad=lambda x, widths, value: mo.pad(x, widths, value=value), array=np.asarray)


@dataclass(frozen=True)
class Statements:
    """A program: its lines, and what it begins with."""

    seed: int
    lines: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    count: int  # of its tensors
    turns: int
    code: CodeType

    def arrays(self, draw: int = 0, count: int | None = None) -> list[Array]:
        """Arguments of a call; other ones for each `draw`."""
        rng = np.random.default_rng((self.seed, draw))
        return [_drawn(rng, self.shape, self.dtype) for _ in range(self.count if count is None else count)]

    def body(self, m: Any, captured: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
        """One turn: from the turn's number and the tensors to the tensors."""
        def run(i: Any, values: Sequence[Any]) -> tuple[Any, ...]:
            names = {"m": m, "i": i} | {f"v{n}": value for n, value in enumerate(values)}
            names |= {f"c{n}": value for n, value in enumerate(captured)}
            exec(self.code, names)
            found: list[Any] = []
            for value in (names[f"v{n}"] for n in range(self.count)):
                found.append(m.own(value) if any(value is one for one in found) else value)
            return tuple(found)  # a loop's values are apart, also where a turn gives one object twice

        return run

    def text(self) -> str:
        return "\n".join((f"# {self.dtype}{list(self.shape)}, {self.turns} turns", *self.lines))


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    whole = rng.integers(-40, 40, shape).astype(dtype)
    return whole if dtype[0] == "i" else whole / whole.dtype.type(8)


# -- making them -----------------------------------------------------------------------------------------------------
class Writer:
    """Draws statements."""

    def __init__(self, seed: int, masks: bool) -> None:
        self.rng = np.random.default_rng(seed)
        sides = [int(n) for n in self.rng.integers(2, 8, 2)]
        self.shape = ((sides[0] + 3,), (sides[0], sides[0]), tuple(sides))[self.rng.integers(3)]
        self.dtype = self.choose(DTYPES)
        self.count, self.masks = int(self.rng.integers(1, 4)), masks

    def choose(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def tensor(self) -> str:
        return f"v{self.rng.integers(self.count)}"

    def number(self) -> str:
        return str(self.choose((-2, -1, 1, 2, 3) if self.dtype[0] == "i" else (-1.5, -0.5, 0.25, 0.5, 1.0)))

    def region(self) -> tuple[int, ...]:
        return tuple(int(self.rng.integers(1, side + 1)) for side in self.shape)

    def slices(self, region: Sequence[int]) -> str:
        """An index that takes a region of this shape, forwards or backwards."""
        found = []
        for length, side in zip(region, self.shape, strict=True):
            step = int(self.rng.integers(1, (side - 1) // (length - 1) + 1)) if length > 1 else 1
            step = min(step, 3)
            low = int(self.rng.integers(0, side - (length - 1) * step))
            high = low + (length - 1) * step
            if self.rng.random() < 0.35:
                found.append(f"{high}:{low - 1 if low else ''}:{-step}")
            else:
                found.append(f"{low}:{high + 1}:{step}")
        return ", ".join(found)

    def term(self, region: Sequence[int]) -> str:
        """Elements of a tensor in the shape of a region."""
        name = self.tensor() if self.rng.random() < 0.8 else f"c{self.rng.integers(CAPTURED)}"
        turned = len(self.shape) == 2 and self.shape[0] == self.shape[1] and self.rng.random() < 0.2
        return f"{name}{'.T' if turned else ''}[{self.slices(region)}]"

    def value(self, region: Sequence[int]) -> str:
        one, other, number = self.term(region), self.term(region), self.number()
        return str(self.choose((one, one, f"{one} + {other}", f"{one} - {number}", f"m.maximum({one}, {other})",
                                f"m.where({one} > {other}, {one}, {number})", f"{one} * {number}", f"-{one}",
                                f"m.minimum({one}, {number})", f"m.flip({one}, 0)")))

    def operator(self) -> str:
        return str(self.choose(("+=", "-=", "*=", "=", "=")))

    def write(self) -> str:
        region = self.region()
        value = self.number() if self.rng.random() < 0.15 else self.value(region)
        return f"{self.tensor()}[{self.slices(region)}] {self.operator()} {value}"

    def alias(self) -> str:
        whole = "..." if self.rng.random() < 0.5 else self.slices(self.shape)
        return f"{self.tensor()} = {self.choose((self.tensor(), f'm.value({self.tensor()}[{whole}])'))}"

    def whole(self) -> str:
        return f"{self.tensor()} = {self.value(self.shape)} + 0"

    def moved(self) -> str:
        """Rolled, joined and padded."""
        x, other, axis = self.tensor(), self.tensor(), int(self.rng.integers(len(self.shape)))
        side = self.shape[axis]
        cut = int(self.rng.integers(1, side))
        first, last = (":, " * axis + part for part in (f":{side - cut}", f"{cut}:"))
        widths = [[0, 0] for _ in self.shape]
        widths[axis][int(self.rng.integers(2))] = cut
        kept = last if widths[axis][1] else first
        joined = f"m.concat(({x}[{last}], {other}[{':, ' * axis}:{cut}]), axis={axis})"
        return f"{self.tensor()} = " + str(self.choose((
            f"m.roll({x}, {cut}, axis={axis})", f"m.roll({x}, {-cut}, axis={axis}) + {other}", joined,
            f"m.value(m.stack(({x}, {other}), axis={axis})[{':, ' * axis}{self.rng.integers(2)}])",
            f"m.pad({x}[{kept}], {tuple(map(tuple, widths))}, {self.number()})", f"m.flip({x}, {axis})")))

    def functional(self) -> str:
        region, x = self.region(), self.tensor()
        name = self.choose(("add", "multiply", "max"))
        index = "(" + ", ".join(f"slice({part.replace('::', ':None:').replace(':', ', ')})"
                                for part in self.slices(region).split(", ")) + ",)"
        if self.rng.random() < 0.4:
            rows = [int(n) for n in self.rng.permutation(self.shape[0])[:region[0]]]
            index, region = f"m.array({rows})", (len(rows), *self.shape[1:])
        return f"{self.tensor()} = m.at({x}, {index}, {name!r}, {self.value(region)})"

    def row(self) -> str:
        """By a number, or the turn's."""
        side = self.shape[0]
        here, there = (self.choose((str(int(self.rng.integers(-side, side))), "i", f"{side - 1} - i"))
                       for _ in range(2))
        x, other = self.tensor(), self.tensor()
        found = self.choose((f"{other}[{there}]", f"{other}[{there}] + {x}[{here}]", self.number(),
                             f"m.maximum({other}[{there}], {self.number()})"))
        return f"{x}[{here}] {self.operator()} {found}"

    def exchange(self) -> str:
        side, x = self.shape[0], self.tensor()
        one, other = (int(n) for n in self.rng.integers(0, side, 2))
        return f"{x}[{one}], {x}[{other}] = m.value({x}[{other}]), m.value({x}[{one}])"

    def mask(self) -> str:
        x, mask = self.tensor(), f"{self.tensor()} > {self.number()}"
        value = self.choose((self.number(), self.number(), f"{self.tensor()}[{mask}]"))
        return f"{x}[{mask}] {self.operator()} {value}"

    def lines(self, count: int) -> tuple[str, ...]:
        kinds = [self.write, self.write, self.write, self.alias, self.whole, self.moved, self.functional, self.row,
                 self.row, self.exchange, *([self.mask] if self.masks else [])]
        return tuple(self.choose(kinds)() for _ in range(count))


def random_statements(seed: int, masks: bool = False) -> Statements:
    """The program of a seed; with `masks` it is none for a loop."""
    writer = Writer(seed, masks)
    lines = writer.lines(int(writer.rng.integers(2, 9)))
    return made_of(seed, lines, writer.shape, writer.dtype, writer.count, int(writer.rng.integers(1, 4)))


def made_of(seed: int, lines: tuple[str, ...], shape: tuple[int, ...], dtype: str, count: int,
            turns: int) -> Statements:
    """A program of these lines."""
    return Statements(seed, lines, shape, dtype, count, min(turns, shape[0]),
                      compile("\n".join(lines), f"<statements {seed}>", "exec"))


# -- running them ----------------------------------------------------------------------------------------------------
def by_numpy(program: Statements, arrays: Sequence[Array], captured: Sequence[Array], turns: int) -> list[list[Array]]:
    """The tensors after each turn."""
    body, values, found = program.body(NUMPY, captured), [array.copy() for array in arrays], []
    with np.errstate(all="ignore"):
        for i in range(turns):
            values = list(body(i, values))
            found.append([value.copy() for value in values])
    return found


def _agree(found: Sequence[Any], wanted: Sequence[Array], how: str) -> None:
    for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
        one = np.asarray(a.numpy())
        if one.dtype != b.dtype or one.shape != b.shape or not np.array_equal(one, b, equal_nan=True):
            raise Mismatch(f"{how}: v{number} is\n{one!r}\nNumPy has\n{b!r}")


def check_statements(program: Statements, loops: bool = True) -> None:
    """Eager, compiled, in the three kinds of loops and over rows: what NumPy has, for one call after the other."""
    captured = program.arrays(99, CAPTURED)
    held = [mo.asarray(array) for array in captured]
    body, turns = program.body(MORPHO, held), program.turns

    def unrolled(*values: Any) -> Any:
        for i in range(turns):
            values = body(i, values)
        return values

    def scanned(*values: Any) -> Any:
        def turn(values: Any, i: Any) -> Any:
            values = body(i, values)
            return values, values[0] + 0

        return mo.scan(turn, values, mo.arange(turns))

    forms = {"eager": unrolled, "compiled": mo.compile(unrolled)}
    if loops:
        forms["fori_loop"] = mo.compile(lambda *values: mo.fori_loop(0, turns, body, values))
    for draw in range(2):
        arrays = program.arrays(draw)
        wanted = by_numpy(program, arrays, captured, turns)
        for how, form in forms.items():
            given = [mo.asarray(array) for array in arrays]
            _agree(form(*given), wanted[-1], f"{how}, call {draw + 1}")
            if how != "eager":
                _agree(given, arrays, f"{how}, the arguments after call {draw + 1}")
    if loops:
        last, each = mo.compile(scanned)(*map(mo.asarray, arrays))
        _agree([*last, each], [*wanted[-1], np.stack([values[0] for values in wanted])], "scan")
    if not loops:  # what a mask takes has no size there
        return
    rows = [program.arrays(draw) for draw in range(3)]
    batches = [mo.asarray(np.stack(column)) for column in zip(*rows, strict=True)]
    wanted_rows = [by_numpy(program, row, captured, turns)[-1] for row in rows]
    _agree(mo.compile(mo.vmap(unrolled))(*batches), [np.stack(column) for column in zip(*wanted_rows, strict=True)],
           "vmap")


def run_statements(seed: int) -> None:
    """The program of a seed in every form, made smaller where it fails."""
    masks = seed % 4 == 3
    program = random_statements(seed, masks)
    try:
        check_statements(program, not masks)
    except Exception as error:
        small = _smaller(program, type(error), not masks)
        raise Mismatch(f"statements of seed {seed}: {type(error).__name__}: {error}\n{small.text()}") from error


def _smaller(program: Statements, kind: type[Exception], loops: bool) -> Statements:
    """Without the lines that the failure does not need."""
    number = 0
    while number < len(program.lines):
        lines = (*program.lines[:number], *program.lines[number + 1:])
        tried = made_of(program.seed, lines, program.shape, program.dtype, program.count, program.turns)
        if fails_with(kind, partial(check_statements, tried, loops)):
            program = tried
        else:
            number += 1
    return program
