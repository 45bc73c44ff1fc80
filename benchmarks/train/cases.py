"""The cases of the training benchmarks, by the first word of their names: inputs from a seed, and what is right."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.core.cases import Arrays, Shape

FAMILIES = {"mlp": "mlp", "gpt": "gpt", "resnet": "resnet_cases", "generate": "generation_cases",
            "smollm2": "smollm2_cases"}


def family(name: str) -> ModuleType:
    """The module that knows a case; KeyError for an unknown one."""
    return importlib.import_module(f"benchmarks.train.{FAMILIES[name.split('_')[0]]}")


def make_inputs(name: str, shape: Shape) -> Arrays:
    """The inputs of a case: the same in every process."""
    return family(name).make_inputs(name, shape)  # type: ignore[no-any-return]


def check(name: str, inputs: Arrays, results: tuple[np.ndarray, ...]) -> float:
    """The error as a share of what is allowed; ValueError when above 1."""
    return family(name).check(name, inputs, results)  # type: ignore[no-any-return]


def answer(name: str, results: tuple[np.ndarray, ...]) -> Any:
    """What was computed, in short, to be compared with other peers' answers."""
    return family(name).answer(name, results)
