"""Lies for the checker of error bounds: certificates that claim too little, or another program. None may be accepted.

    python -m benchmarks.certify_lies [COUNT]
"""

from __future__ import annotations

import sys
from collections import Counter
from copy import deepcopy
from typing import Any

import numpy as np

import morpho as mo
from morpho.tensor.tools.bound_checker import Refused, check, program_hash


def documents() -> list[dict[str, Any]]:
    """True certificates of small programs."""
    ranges = [mo.within((4, 16), -1, 1), mo.within((16, 8), -1, 1)]
    return [mo.certify(lambda x, w: mo.softmax(mo.gelu(x @ w) * 0.5, axis=-1), *ranges).document,
            mo.certify(lambda x, w: mo.layer_norm(x) @ w + mo.sum(x), *ranges).document,
            mo.certify(mo.attention, *[mo.within((2, 64, 16), -1, 1)] * 3).document]


def lie_of(document: dict[str, Any], rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """A false certificate, and its kind: a smaller error, a narrower range, wider inputs, a changed operation, size,
    attribute or hash."""
    lie = deepcopy(document)
    claim, program = lie["bounds"][0], lie["program"]
    node = program[rng.integers(len(program))]
    kind = str(rng.choice(["error", "range", "inputs", "operation", "size", "dtype", "hash", "graph"]))
    if kind == "error":
        claim["error"] = (float.fromhex(claim["error"]) * (1 - 2.0 ** -int(rng.integers(1, 50)))).hex()
    elif kind == "range":
        low, high = map(float.fromhex, claim["range"])
        cut = (high - low) * 2.0 ** -int(rng.integers(1, 40))
        claim["range"] = [(low + cut).hex(), high.hex()] if rng.random() < 0.5 else [low.hex(), (high - cut).hex()]
    elif kind == "inputs":  # wider ones, under a hash that fits
        given = lie["inputs"][str(rng.integers(len(lie["inputs"])))]["range"]
        given[int(rng.integers(2))] = float(rng.choice([-1, 1]) * (1 + 2.0 ** -int(rng.integers(1, 10)))).hex()
        if float.fromhex(given[0]) > float.fromhex(given[1]):
            given.reverse()
        given[0], given[1] = min(float.fromhex(given[0]), -1.0).hex(), max(float.fromhex(given[1]), 1.0).hex()
        lie["hash"] = program_hash(lie)
    elif kind == "operation":
        node["op"] = str(rng.choice([op for op in ("add", "exp", "softmax", "matmul", "sum", "reshape", "no such")
                                     if op != node["op"]]))
    elif kind == "size":
        node["shape"] = [*node["shape"], 2]
    elif kind == "dtype":
        node["dtype"] = str(rng.choice([dtype for dtype in ("float64", "bfloat16", "int32") if dtype != node["dtype"]]))
    elif kind == "hash":
        lie["hash"] = "".join(rng.choice(list("0123456789abcdef"), 64))
    else:
        lie["graph"] = "0" * 64
    return kind, lie


def accepted(count: int, seed: int = 0) -> dict[str, int]:
    """How many lies of each kind the checker accepts, of so many."""
    rng, truths, outcomes = np.random.default_rng(seed), documents(), Counter[str]()
    for truth in truths:
        check(truth)
    for number in range(count):
        kind, lie = lie_of(truths[number % len(truths)], rng)
        outcomes[kind] += 0
        try:
            check(lie)
            outcomes[kind] += 1
        except Refused:
            pass
    return dict(outcomes)


if __name__ == "__main__":
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    found = accepted(total)
    print(f"{sum(found.values())} of {total} accepted: {found}")
    sys.exit(1 if any(found.values()) else 0)
