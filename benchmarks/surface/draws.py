"""What a case is made of: arrays that are drawn, and a form, the call of every library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Call = Callable[..., Any]


@dataclass(frozen=True)
class Draw:
    """An array of a case: its shape, and how its values are drawn. `kind` is "same" for the case's dtype, "index" for
    whole numbers below `high`, "bool", or "float" for the dtype of its results."""

    shape: tuple[int, ...]
    kind: str = "same"
    low: float = -3.0
    high: float = 3.0
    special: str = ""  # "sorted", "spd", "square", "normal", "half": half of them true

    def array(self, rng: np.random.Generator, dtype: str) -> np.ndarray:
        base = {"bfloat16": "float32"}.get(dtype, dtype)
        if self.kind == "index":
            values: np.ndarray = rng.integers(0, int(self.high), self.shape)
            return np.sort(values) if self.special == "sorted" else values
        if self.kind == "bool" or base == "bool":
            return rng.random(self.shape) < 0.5
        if base.startswith(("int", "uint")):
            low, high = (0, 100) if base.startswith("u") else (-100, 100)
            if (self.low, self.high) != (-3.0, 3.0):
                low, high = max(1, int(np.ceil(self.low))), max(3, int(self.high))
            values = rng.integers(low, high, self.shape).astype(base)
            return np.sort(values) if self.special == "sorted" else values
        if self.special == "normal":
            drawn = rng.standard_normal(self.shape)
        else:
            drawn = rng.uniform(self.low, self.high, self.shape) if self.shape else rng.uniform(self.low, self.high)
        if base.startswith("complex"):
            drawn = drawn + 1j * rng.uniform(self.low, self.high, self.shape)
        drawn = np.asarray(drawn)
        if self.special == "sorted":
            drawn = np.sort(drawn)
        if self.special in ("spd", "square"):
            size = self.shape[-1]
            if self.special == "spd":
                drawn = drawn @ np.conj(np.swapaxes(drawn, -1, -2)) / size
            drawn = drawn + np.eye(size) * (4.0 if self.special == "spd" else np.sqrt(size))
        return np.asarray(drawn, base)


@dataclass(frozen=True)
class Form:
    """A call of a function at one shape, by every library that has it."""

    name: str
    label: str
    draws: Sequence[Draw]
    own: Call
    peers: Mapping[str, Call]
    dtypes: tuple[str, ...] = ("float32",)
    slopes: tuple[int, ...] = ()  # arguments with a gradient
    quick: bool = True
    rough: bool = False  # results are not unique: signs of vectors, order of equal elements
    family: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def draw_of(*shape: int, **named: Any) -> Draw:
    return Draw(shape, **named)


FLOATS = ("float32", "float64")
REAL = ("float32", "float64", "bfloat16")
NUMBERS = ("float32", "float64", "int32", "int64")
