"""Random programs whose indices, masks, bounds and sizes are results of other operations, as lines of Python.

A line is one public call; later lines read earlier names. The meaning of a program is its lines run one by one by the
NumPy reference, each value realised: numbers are small multiples of 1/4, so all arithmetic is exact. Lazily, compiled
and on other devices it must give the same bits. A failing program is minimised by leaving out lines and by putting
constants in place of names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import MorphoError

LENGTHS = (1, 2, 4, 6, 9, 20)
WIDTHS = (1, 3, 5)
NAME = re.compile(r"\bv\d+\b")


@dataclass(frozen=True)
class Value:
    """A name of the program: "float", "index" (integers in [0, bound)) or "bool", with its static shape."""

    name: str
    kind: str
    shape: tuple[int, ...]
    bound: int = 0


@dataclass
class Program:
    """Inputs by name, lines in order, and the names of the results."""

    seed: int
    inputs: dict[str, np.ndarray]
    lines: list[str]
    outputs: list[str]

    def text(self) -> str:
        arrays = [f"{name} = mo.asarray(np.array({array.tolist()}, {array.dtype.str!r}).reshape({array.shape}))"
                  for name, array in self.inputs.items() if any(name in NAME.findall(line) for line in self.lines)]
        return "\n".join([*arrays, *self.lines, f"print({', '.join(f'{name}.tolist()' for name in self.outputs)})"])


@dataclass
class Writer:
    """Adds lines to a program; every choice is drawn from its seed."""

    seed: int
    values: list[Value] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def name(self) -> str:
        return f"v{len(self.inputs) + len(self.lines)}"

    def line(self, text: str, kind: str, shape: tuple[int, ...], bound: int = 0) -> Value:
        value = Value(self.name(), kind, shape, bound)
        self.lines.append(f"{value.name} = {text}")
        self.values.append(value)
        return value

    def input(self, kind: str, shape: tuple[int, ...], bound: int = 0) -> Value:
        array = (self.rng.integers(-8, 9, shape).astype(np.float32) / 4 if kind == "float" else
                 self.rng.integers(0, bound, shape))
        value = Value(self.name(), kind, shape, bound)
        self.inputs[value.name] = np.asarray(array)
        self.values.append(value)
        return value

    def known(self, kind: str, suits: Callable[[Value], bool]) -> Value | None:
        fitting = [value for value in self.values if value.kind == kind and suits(value)]
        return self.pick(fitting) if fitting and self.rng.random() < 0.6 else None

    def floats(self, shape: tuple[int, ...]) -> Value:
        return self.known("float", lambda value: value.shape == shape) or self.input("float", shape)

    def mask(self, length: int) -> Value:
        """A condition computed from other values."""
        if (value := self.known("bool", lambda value: value.shape == (length,))) is not None:
            return value
        ways: list[Callable[[], str]] = [
            lambda: f"{self.floats((length,)).name} > {self.pick((0.0, 0.25, -1.0))}",
            lambda: f"{self.index(5, length, 2).name} == {self.index(5, length, 2).name}",
            lambda: f"mo.arange({length}) < {self.index(length + 1, 1, 2).name}[0]",
            lambda: f"mo.cumulative_sum({self.floats((length,)).name}) > 0.5"]
        return self.line(self.pick(ways)(), "bool", (length,))

    def index(self, bound: int, length: int, depth: int = 3) -> Value:
        """`length` integers in [0, bound), computed from other values while `depth` lasts."""
        if (value := self.known("index", lambda value: value.shape == (length,) and value.bound <= bound)) is not None:
            return value
        if depth <= 0:
            return self.input("index", (length,), bound)
        other = self.pick(LENGTHS)

        def inner(most: int, count: int = length) -> str:
            return self.index(most, count, depth - 1).name

        ways: list[Callable[[], str]] = [
            lambda: f"mo.arange({bound})[{inner(bound)}]",
            lambda: f"mo.take(mo.arange({bound}), {inner(bound)})",
            lambda: f"(mo.arange({other}) * {self.pick((1, 2, 3))} + {self.pick((0, 1))})[{inner(other)}] % {bound}",
            lambda: f"{inner(bound, other)}[{inner(other)}]",
            lambda: f"mo.argsort({self.floats((bound,)).name})[{inner(bound)}]",
            lambda: f"mo.sort({inner(bound)})",
            lambda: f"mo.flip({inner(bound)})",
            lambda: f"mo.roll({inner(bound)}, {self.pick((1, 2, -1))})",
            lambda: f"mo.where({self.mask(length).name}, {inner(bound)}, {inner(bound)})",
            lambda: f"mo.minimum(mo.cumulative_sum({inner(3)}), {bound - 1})",
            lambda: f"({inner(other)} * {self.pick((2, 5))} + {inner(other)}) % {bound}",
            lambda: f"mo.astype(mo.floor(mo.abs({self.floats((length,)).name}) * 3), mo.int64) % {bound}",
            lambda: f"mo.argmax({self.floats((length, bound)).name}, axis=1)",
            lambda: (f"mo.minimum(mo.searchsorted(mo.sort({self.floats((other,)).name}), "
                     f"{self.floats((length,)).name}), {bound - 1})"),
            lambda: f"mo.zeros({length}, dtype=mo.int64).at[{inner(length, other)}].set({inner(bound, other)})",
            lambda: f"mo.arange({length})[mo.argsort({inner(bound)})] % {bound}",
            lambda: f"mo.reshape(mo.stack([{inner(bound)}, {inner(bound)}], axis=1), (-1,))[{length}:]",
            lambda: f"mo.reshape(mo.broadcast_to({inner(bound, 1)}, ({length},)), ({length},))"]
        return self.line(self.pick(ways)(), "index", (length,), bound)

    def use(self) -> Value:
        """A line that reads at a computed index or under a computed mask."""
        size, width, count = self.pick(LENGTHS), self.pick(WIDTHS), self.pick(LENGTHS)
        vector, table = self.floats((size,)), self.floats((size, width))
        index = self.index(size, count)
        shifted = self.pick((index.name, index.name, f"({index.name} - {size})"))  # counted from the end
        updates, rows = self.floats((count,)), self.floats((count, width))
        how = self.pick(("add", "set", "min", "max", "multiply")) if self.rng.random() < 0.7 else "add"
        if how == "set":  # the last of several to one place is whichever is last: make them alike
            updates, rows = (Value(f"({index.name} + 0.5)", "float", (count,)),
                             Value(f"mo.broadcast_to({index.name}[:, None] * 2.0, ({count}, {width}))", "float",
                                   (count, width)))
        ways: list[tuple[str, tuple[int, ...]]] = [
            (f"mo.take({vector.name}, {shifted})", (count,)),
            (f"{vector.name}[{shifted}]", (count,)),
            (f"{table.name}[{shifted}]", (count, width)),
            (f"mo.take({table.name}, {shifted}, axis=0) * {rows.name}", (count, width)),
            (f"{table.name}[{shifted}, {self.index(width, count).name}]", (count,)),
            (f"mo.take_along_axis({vector.name}, {index.name}, axis=0)", (count,)),
            (f"{vector.name}.at[{shifted}].{how}({updates.name})", (size,)),
            (f"mo.zeros({size}).at[{shifted}].{how}({updates.name})", (size,)),
            (f"{table.name}.at[{shifted}].{how}({rows.name})", (size, width)),
            (f"mo.scatter_add(mo.zeros({size}), {index.name}, {updates.name})", (size,)),
            (f"mo.grad(lambda w: (mo.take(w, {shifted}) * {updates.name}).sum())({vector.name})", (size,)),
            (f"mo.grad(lambda w: (w[{shifted}] * {rows.name}).sum())({table.name})", (size, width)),
            (f"mo.where({self.mask(count).name}, {vector.name}[{index.name}], {updates.name})", (count,)),
            (f"mo.clip({updates.name}, {vector.name}[{index.name}], {vector.name}[{index.name}] + 1.0)", (count,)),
            (f"mo.fori_loop(0, {index.name}[0], lambda i, c: c + {vector.name}[i], mo.zeros(()))", ()),
            (f"mo.cond({self.mask(count).name}[0], lambda x: x * 2.0, lambda x: x - 1.0, {updates.name})", (count,)),
            (f"mo.sum(mo.one_hot({index.name}, {size}) * {updates.name}[:, None], axis=0)", (size,))]
        text, shape = self.pick(ways)
        return self.line(text, "float", shape)


def random_program(seed: int) -> Program:
    """A program of a few lines that use computed operands, one after another."""
    writer = Writer(seed)
    results = [writer.use() for _ in range(int(writer.rng.integers(1, 4)))]
    return Program(seed, writer.inputs, writer.lines, [results[-1].name, *(
        [value.name for value in results[:-1] if writer.rng.random() < 0.5])])


# -- ways to run it ----------------------------------------------------------------------------------------------------
def run_lines(program: Program, arguments: dict[str, Any], realised: bool = False) -> list[Any]:
    space: dict[str, Any] = {"mo": mo, **arguments}
    for line in program.lines:
        exec(line, space)
        name = line.split(" = ")[0]
        space[name] = space[name].realise() if realised else space[name]
    return [space[name] for name in program.outputs]


def bits(value: Any) -> bytes:
    """The value's bytes; zeros have no sign here, which two of them lose in a maximum by the order of operands."""
    array = value.numpy()
    return bytes((array + 0.0 if array.dtype.kind == "f" else array).tobytes())


def tensors(program: Program, device: str = "cpu") -> dict[str, Any]:
    return {name: mo.asarray(array, device=device) for name, array in program.inputs.items()}


def by_single_steps(program: Program) -> list[bytes]:
    with mo.settings(level=0, device="reference"):
        return [bits(value) for value in run_lines(program, tensors(program), realised=True)]


def lazily(program: Program, level: int = 3, device: str = "cpu") -> list[bytes]:
    with mo.settings(level=level):
        return [bits(value) for value in run_lines(program, tensors(program, device))]


def compiled(programs: Sequence[Program], level: int = 3, device: str = "cpu") -> list[list[bytes]]:
    """Several programs in one compiled function: most of a compilation is per function."""
    with mo.settings(level=level):
        run = mo.compile(lambda arguments: [run_lines(program, own)
                                            for program, own in zip(programs, arguments, strict=True)])
        results = run([tensors(program, device) for program in programs])
        return [[bits(value) for value in one] for one in results]


# -- finding and showing a failure -------------------------------------------------------------------------------------
def fails(program: Program, run: Callable[[Program], list[bytes]]) -> bool:
    """Whether a way of running gives other bits, or an error where single steps give none."""
    try:
        expected = by_single_steps(program)
    except Exception:  # a smaller program may have lost its meaning
        return False
    try:
        return run(program) != expected
    except MorphoError:
        return True


def smaller(program: Program) -> Iterator[Program]:
    """The program with one output alone, with fewer lines, or with a constant in place of a line's value."""
    if len(program.outputs) > 1:
        for output in program.outputs:
            yield Program(program.seed, program.inputs, program.lines, [output])
    used = {name for line in program.lines for name in NAME.findall(line.split(" = ", 1)[1])} | set(program.outputs)
    for place, line in enumerate(program.lines):
        name = line.split(" = ")[0]
        rest = [*program.lines[:place], *program.lines[place + 1:]]
        if name not in used:
            yield Program(program.seed, program.inputs, rest, program.outputs)
        elif name not in program.outputs:
            with mo.settings(level=0, device="reference"):
                head = Program(program.seed, program.inputs, program.lines[:place + 1], [name])
                value = run_lines(head, tensors(head), realised=True)[0].numpy()
            yield Program(program.seed, {**program.inputs, name: value}, rest, program.outputs)


def minimised(program: Program, run: Callable[[Program], list[bytes]]) -> Program:
    """The smallest program found that still fails."""
    found = True
    while found:
        found = False
        for candidate in smaller(program):
            if fails(candidate, run):
                program, found = candidate, True
                break
    return program


def check(programs: Sequence[Program], level: int, device: str = "cpu", lazy: int = 1) -> None:
    """Raise an error with a minimised program where one function of all programs, or the first `lazy` of them run
    lazily, gives other bits than single steps."""
    expected = [by_single_steps(program) for program in programs]

    def alone(program: Program) -> list[bytes]:
        return compiled([program], level, device)[0]

    def uncompiled(program: Program) -> list[bytes]:
        return lazily(program, level, device)

    try:
        together = compiled(programs, level, device) == expected
    except MorphoError:
        together = False
    suspects = [(program, uncompiled, "lazily") for program in programs[:lazy]]
    if not together:
        suspects += [(program, alone, "compiled") for program in programs]
    for program, run, how in suspects:
        if fails(program, run):
            raise AssertionError(f"seed {program.seed} {how} at level {level} on {device} differs from single steps:\n"
                                 + minimised(program, run).text())
    if not together:
        raise AssertionError(f"seeds {[program.seed for program in programs]} differ in one function, not alone")
