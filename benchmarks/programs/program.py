"""What a program is: inputs from a seed, a definition in NumPy, two sizes, and how far an answer may be off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Shape = tuple[int, ...]
Inputs = Callable[..., Arrays]


@dataclass(frozen=True)
class Program:
    """One computation. ``inputs(rng, *sizes)`` makes the arguments; ``constants`` go by keyword to every peer."""

    definition: Callable[..., Any]
    inputs: Inputs
    small: Shape
    large: Shape
    constants: dict[str, Any] = field(default_factory=dict)
    relative: float = 1e-9
    absolute: float = 1e-10
    native: bool = True  # whether Morpho's version promises to be one native function, without host steps

    @property
    def name(self) -> str:
        """The definition's."""
        return self.definition.__name__


def table(*programs: Program) -> dict[str, Program]:
    """Programs by name."""
    return {program.name: program for program in programs}


def uniform(**shapes: str) -> Inputs:
    """Inputs uniform in [0, 1): the axes of each as letters, ``a="ij"``.

    i is the first of the sizes, j the second, then k and l.
    """
    def make(rng: np.random.Generator, *sizes: int) -> Arrays:
        of = dict(zip("ijkl", sizes, strict=False))
        return {name: rng.random([of[letter] for letter in axes]) for name, axes in shapes.items()}

    return make
