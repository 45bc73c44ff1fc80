"""Random programs of collectives, and others that differ from them by a call."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from morpho.runtime.groups.group import Group

Call = tuple[Any, ...]
DTYPES = ("float32", "int32", "float64", "uint8")


def random_call(rng: random.Random, size: int) -> Call:
    operation = rng.choice(["all_reduce", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all",
                            "barrier"])
    count = rng.choice([size, 3 * size, 50_000 * size])
    return operation, rng.choice(DTYPES), count, rng.choice(["sum", "max", "product"]), rng.randrange(size)


def make(group: Group, call: Call, wait: bool = True) -> Any:
    """One call, to its end; wait: or started first, and then waited for."""
    operation, dtype, count, op, root = call
    buffer = np.ones(count, dtype)
    if operation == "barrier":
        work = group.barrier(wait=wait)
    elif operation == "all_reduce":
        work = group.all_reduce(buffer, op, wait=wait)
    elif operation == "broadcast":
        work = group.broadcast(buffer, root, wait=wait)
    elif operation == "all_gather":
        work = group.all_gather(buffer, np.empty(count * group.size, dtype), wait=wait)
    elif operation == "reduce_scatter":
        work = group.reduce_scatter(buffer, np.empty(count // group.size, dtype), op, wait=wait)
    else:
        work = group.all_to_all(buffer, np.empty_like(buffer), wait=wait)
    work.wait()


def relevant(call: Call) -> Call:
    """What of a call other ranks must have in common."""
    operation, dtype, count, op, root = call
    return {"barrier": (operation,), "broadcast": (operation, dtype, count, root)}.get(operation, (
        operation, dtype, count, op) if "reduce" in operation else (operation, dtype, count))


def differ(calls: list[Call], others: list[Call]) -> bool:
    """Whether two programs differ before the shorter one ends: a rank whose program is only shorter sees no error."""
    return any(relevant(call) != relevant(other) for call, other in zip(calls, others, strict=False))


def unlike(calls: list[Call], rng: random.Random, size: int) -> list[Call]:
    """A program that differs from these calls in one call."""
    while True:
        other = [*calls]
        at = rng.randrange(len(calls) - 1)
        operation, dtype, count, op, root = calls[at]
        kind = rng.choice(["dtype", "count", "op", "root", "order", "less", "more", "other"])
        if kind == "order":
            other[at], other[at + 1] = other[at + 1], other[at]
        elif kind == "less":
            del other[at]
        elif kind == "more":
            other.insert(at, random_call(rng, size))
        else:
            other[at] = {"dtype": (operation, rng.choice(DTYPES), count, op, root),
                         "count": (operation, dtype, count + size, op, root),
                         "op": (operation, dtype, count, rng.choice(["sum", "max", "min"]), root),
                         "root": (operation, dtype, count, op, rng.randrange(size)),
                         "other": random_call(rng, size)}[kind]
        if differ(calls, other):
            return other


def play(group: Group, seed: int) -> None:
    """A random program, in which one rank differs."""
    rng = random.Random(seed)
    calls = [*(random_call(rng, group.size) for _ in range(4)), ("barrier", "uint8", 1, "sum", 0)]
    which = rng.randrange(group.size)
    other = unlike(calls, rng, group.size)
    wait = rng.random() < 0.7
    for call in other if group.rank == which else calls:
        make(group, call, wait)
