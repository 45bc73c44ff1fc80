"""Compiled functions with states and captured tensors, called again and again: with arguments that alias each other, a
state or an earlier result, and with `out=` that is one. Every call has what NumPy has, and nothing else changes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from checks import Mismatch, fails_with
from statements import CAPTURED, MORPHO, Array, Statements, Writer, by_numpy, made_of

import morpho as mo

CALLS = 6
ARGUMENTS = 2  # of the program's tensors; the others are states


def random_function(seed: int) -> Statements:
    """The function of a seed: over two arguments and two states."""
    writer = Writer(seed, masks=False)
    writer.count = ARGUMENTS + 2
    return made_of(seed, writer.lines(int(writer.rng.integers(3, 9))), writer.shape, writer.dtype, writer.count, 1)


class Caller:
    """A compiled function, what NumPy says its states are, and all values that were given or found so far."""

    def __init__(self, program: Statements) -> None:
        self.program, self.rng = program, np.random.default_rng((program.seed, 7))
        self.single = bool(self.rng.integers(2))
        self.captured = program.arrays(99, CAPTURED)
        self.held = [mo.asarray(array) for array in self.captured]
        self.values = program.arrays(98)[ARGUMENTS:]
        self.states = [mo.State(mo.asarray(array)) for array in self.values]
        self.kept: list[tuple[mo.Tensor, Array]] = []
        self.targets = 0  # calls with out= that were not refused
        body = program.body(MORPHO, self.held)

        def function(a: Any, b: Any) -> Any:
            found = body(0, [a, b, *[state.value[...] for state in self.states]])
            for state, value in zip(self.states, found[ARGUMENTS:], strict=True):
                state.value = value
            return found[0] if self.single else found[:ARGUMENTS]

        self.function = mo.compile(function)

    def argument(self, fresh: Array) -> tuple[mo.Tensor, Array]:
        """A tensor, and what is in it: new, part of a larger one, a state's value, or one that was there before."""
        which = int(self.rng.integers(5))
        if which == 1:
            larger = np.concatenate([fresh, fresh[:1]])
            return mo.asarray(larger)[1:], larger[1:]
        if which == 2:
            state = int(self.rng.integers(len(self.states)))
            return self.states[state].value, self.values[state]
        if which > 2 and self.kept:
            return self.kept[int(self.rng.integers(len(self.kept)))]
        return mo.asarray(fresh), fresh

    def call(self, number: int) -> None:
        """One call, looked at from all sides."""
        fresh = self.program.arrays(number, ARGUMENTS)
        (a, of_a), (b, of_b) = (self.argument(array) for array in fresh)
        if self.rng.random() < 0.25:
            b, of_b = a, of_a
        if self.rng.random() < 0.2:  # what was captured is read at every call
            place = int(self.rng.integers(CAPTURED))
            self.captured[place] = self.captured[place] + 1
            self.held[place][...] = mo.asarray(self.captured[place])
        wanted = by_numpy(self.program, [of_a, of_b, *self.values], self.captured, 1)[0]
        out = self.out(a, b) if self.single else None
        found = None
        if out is not None:
            self.kept = [pair for pair in self.kept if pair[0] is not out]
            try:
                found = self.function(a, b, out=out)
                self.targets += 1
            except mo.errors.SharedError:  # as if it had not been called
                self.look("after a refused out=")
        if found is None:
            found = self.function(a, b)
        self.values = wanted[ARGUMENTS:]
        results = [found] if self.single else list(found)
        self.kept += [pair for pair in ((a, of_a), (b, of_b)) if pair[0] is not out]
        self.kept += list(zip(results, wanted[:len(results)], strict=True))
        self.look(f"call {number}{'' if out is None else ' with out='}")

    def out(self, a: mo.Tensor, b: mo.Tensor) -> mo.Tensor | None:
        """Where the result goes: nowhere, to new memory, or over an argument."""
        which = int(self.rng.integers(4))
        shape, dtype = self.program.shape, self.program.dtype
        return (None, mo.empty(shape, dtype=dtype), a, b)[which]

    def look(self, how: str) -> None:
        """Nothing is what it should not be."""
        pairs = [*self.kept, *zip([state.value for state in self.states], self.values, strict=True)]
        for place, (tensor, array) in enumerate(pairs):
            if not np.array_equal(tensor.numpy(), array, equal_nan=True):
                kind = "a state" if place >= len(self.kept) else f"value {place} of {len(self.kept)}"
                raise Mismatch(f"{how}: {kind} is\n{tensor.numpy()!r}\nNumPy has\n{array!r}")


def check_calls(program: Statements) -> None:
    """Some calls of the function, each as NumPy has it."""
    caller = Caller(program)
    for number in range(CALLS):
        caller.call(number)


def run_calls(seed: int) -> None:
    """The function of a seed, with fewer lines where it fails."""
    program = random_function(seed)
    try:
        check_calls(program)
    except Exception as error:
        number = 0
        while number < len(program.lines):
            lines = (*program.lines[:number], *program.lines[number + 1:])
            tried = made_of(seed, lines, program.shape, program.dtype, program.count, 1)
            if fails_with(type(error), partial(check_calls, tried)):
                program = tried
            else:
                number += 1
        raise Mismatch(f"calls of seed {seed}: {type(error).__name__}: {error}\n{program.text()}") from error
