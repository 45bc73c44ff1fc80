"""Candidates of a problem: choices of the same bits, each a knob away from another, or two.

Tile shapes keep the order of k, micro-kernels keep one chain per element, and fusing changes no rounding: see
`docs/numerics.md`. `tests/runtime/test_tuner_bits.py` compares the bits of all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from morpho.cost.dispatch_thresholds import GEMV_WAY, MOST_GEMV_ROWS
from morpho.cost.tuned_choices import PANELS_AHEAD, PLAIN, Choice, Problem

TILE_ROWS = (16, 32, 64, 128, 256)
TILE_COLUMNS = (96, 192, 384, 768, 1536)
K_BLOCKS = (128, 256, 512, 1024)
MICRO_KERNELS = ((8, 2), (8, 1), (4, 3), (4, 4), (4, 6), (2, 4))  # rows x vectors that fit 32 registers with operands
SMALL_MICRO_KERNELS = ((4, 2), (4, 1), (2, 3), (2, 4))  # ... 16 registers
GEMV_TILES = (64, 256, 1024, 4096)
ATTENTION_ROWS = (8, 16, 32, 64)  # of queries in a tile: the default is one of the last two
ROW_SPLITS = (128, 256, 512, 2048, 4096, 16384)  # rows and elements that a thread takes at once; the default: 1024
GEMV_WAYS = ("columns", "streamed")
TURNED_WITH_THREADS = ("way", "gemv")
Knobs = dict[str, list[dict[str, Any]]]


def knobs(problem: Problem) -> Knobs:
    """By knob, its settings besides the default, for the sizes of a problem."""
    if problem.kind == "device":  # of another backend, whose lowering has named its ways
        return {"way": [{"way": way} for way in problem.ways[1:]]}
    if problem.kind == "loop":
        return {"threads": _threads(problem)}
    if problem.kind == "attention":
        return {"tile_rows": [{"tile_rows": rows} for rows in ATTENTION_ROWS if rows < 2 * problem.sizes[1]],
                "threads": _threads(problem)}
    if problem.kind == "sparse":
        return {"tile_rows": [{"tile_rows": steps} for steps in ROW_SPLITS if steps < 2 * sum(problem.sizes[:2])],
                "threads": _threads(problem)}
    if problem.kind == "conv":
        return {"way": [{"way": way} for way in problem.ways[1:]], "threads": _threads(problem),
                "epilogue": [{"epilogue": "split"}] * problem.has_epilogue}
    _, m, k, n = problem.sizes
    ways, plain = list(problem.ways[1:]), bool(problem.register[1])
    if m <= MOST_GEMV_ROWS and problem.ways and GEMV_WAY not in problem.ways and plain and problem.changes:
        ways.append(GEMV_WAY)  # beyond the thresholds: the lowering takes it where it can
    found: Knobs = {
        "way": [{"way": way} for way in ways],
        "micro": [{"height": height, "vectors": vectors} for height, vectors in _micro_kernels(problem)],
        "tile_rows": [{"tile_rows": rows} for rows in TILE_ROWS if rows < 2 * m and m > 8],
        "tile_columns": [{"tile_columns": columns} for columns in TILE_COLUMNS if columns < 2 * n],
        "k_block": [{"k_block": depth} for depth in K_BLOCKS if depth < 2 * k],
        "prefetch": [{"prefetch": word} for word in ("off" if problem.prefetches else "on", *PANELS_AHEAD)
                     if problem.register[1]],
        "threads": _threads(problem),
        "epilogue": [{"epilogue": "split"}] * problem.has_epilogue,
        "prologue": [{"prologue": "split"}] * problem.has_prologue,
    }
    if m <= MOST_GEMV_ROWS and problem.changes:
        found["gemv"] = [{"gemv": way} for way in GEMV_WAYS]
        found["tile_columns"] = [{"tile_columns": columns} for columns in GEMV_TILES if columns < 2 * n]
    return found


def _threads(problem: Problem) -> list[dict[str, Any]]:
    return [{"threads": "one"}, {"threads": "many"}] if problem.threads > 1 else []


def _micro_kernels(problem: Problem) -> list[tuple[int, int]]:
    """Rows and vectors of register tiles besides the default: only those that some tile of the problem has rows for."""
    heights, vectors, lanes = problem.register
    if not vectors or lanes < 2:
        return []
    table = MICRO_KERNELS if heights[0] >= 8 else SMALL_MICRO_KERNELS
    most_rows, columns = problem.sizes[1], problem.sizes[3]
    fits = [(rows, width) for rows, width in table if rows <= max(most_rows, 1) and (width - 1) * lanes < columns]
    return [pair for pair in fits if pair != (heights[0], vectors)]


def neighbours(problem: Problem, choice: Choice) -> list[Choice]:
    """Choices that differ from one in a single knob, the default's setting of it among them; and in a way together with
    its threads: what loses on one thread may be best on all, and neither step there is a gain."""
    found: dict[Choice, None] = {}
    table = {name: _settings(several) for name, several in knobs(problem).items() if several}
    for settings in table.values():
        found |= dict.fromkeys(replace(choice, **setting) for setting in settings)
    for name in TURNED_WITH_THREADS:
        found |= dict.fromkeys(replace(choice, **one, **other) for one in table.get(name, ())
                               for other in table.get("threads", ()))
    found.pop(choice, None)
    return list(found)


def _settings(several: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All settings of a knob, the default's first."""
    names = {name for setting in several for name in setting}
    return [{name: getattr(PLAIN, name) for name in sorted(names)}, *several]


def whole_space(problem: Problem, names: tuple[str, ...] = ()) -> Iterator[Choice]:
    """Every combination of knobs (those of `names`, or all), the default first: for exhaustive search."""
    table = [settings for name, settings in knobs(problem).items() if settings and (not names or name in names)]
    for combination in itertools.product(*([{}, *settings] for settings in table)):
        changes: dict[str, Any] = {}
        for setting in combination:
            changes |= setting
        yield replace(PLAIN, **changes)
