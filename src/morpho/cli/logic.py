"""``morpho logic``: run a logic program over facts from files, and print what a query asks for.

    morpho logic program.dl --facts edges.csv --query 'path(a, X)'
    morpho logic program.dl --facts edge=graph.db:edges --query 'path(a, X)' --semantics '(min, +)' --weights
    morpho logic program.dl --query 'ancestor(ann, X)' --proof        # why each answer holds
    morpho logic program.dl --explain                                 # rules, plans, kernels
"""

from __future__ import annotations

import csv
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.logic.model import Answer
from morpho.logic.program import Program
from morpho.logic.syntax.terms import show_value

FORMATS = ("table", "csv", "json")


def run(path: Path, facts: Sequence[str], queries: Sequence[str], semantics: str = "boolean", weights: bool = False,
        output: str = "table", explain: bool = False, proof: bool = False, header: bool | None = None) -> None:
    """The command; without a query, those of the program, and without any, all that its rules derive."""
    if output not in FORMATS:
        raise fail(ArgumentError, "logic", f"--format {output} is not known", f"those are {', '.join(FORMATS)}")
    program = Program.load(path)
    for one in facts:
        _read(program, one, weights, header)
    if explain:
        print(program.explain(semantics=semantics))
        return
    asked = [*queries] or [str(query) for query in program.parsed.queries]
    if not asked:
        _print_all(program, semantics, output)
    for query in asked:
        if len(asked) > 1:
            print(f"?- {query}.")
        answer = program.query(query, semantics)
        _print(answer, output)
        if proof:
            _print_proofs(program, query, answer)


def _read(program: Program, text: str, weights: bool, header: bool | None) -> None:
    name, sign, rest = text.partition("=")
    if not sign:
        name, rest = "", text
    file, _, table = rest.rpartition(":") if ":" in rest and not Path(rest).exists() else (rest, "", "")
    name = name or _predicate(program, table or Path(file).stem, text)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        program.read(name, file, table or None, header, weights)
    for one in said:
        print(f"note: {one.message}", file=sys.stderr)


def _predicate(program: Program, stem: str, text: str) -> str:
    """Which predicate a file's facts are of: the one with its name, or the only one without facts."""
    known, missing = program.predicates, program.undefined()
    for name in (stem, stem.removesuffix("s"), stem.removesuffix("es")):
        if name in known or name in missing:
            return name
    if len(missing) == 1:
        return missing[0]
    raise fail(ArgumentError, "logic", f"--facts {text}: the program has no predicate {stem}",
               f"say which: --facts {(missing or list(known) or ['edge'])[0]}={text}")


def _print_all(program: Program, semantics: str, output: str) -> None:
    model = program.run(semantics)
    heads = dict.fromkeys(rule.head.predicate for rule in program.parsed.rules if not rule.is_fact)
    for name in heads or model:
        answer = model[name]
        print(f"{name}: {len(answer)}")
        _print(answer, output)


def _print(answer: Answer, output: str) -> None:
    names = [*answer.names, *(["weight"] if answer.weights is not None else [])]
    rows = [[*row, *([float(answer.weights[number])] if answer.weights is not None else [])]
            for number, row in enumerate(answer.rows)]
    if output == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerows([names, *rows])
    elif output == "json":
        print(json.dumps([dict(zip(names, row)) for row in rows]))
    elif not answer.names:
        print(("true" if answer else "false") + (f"  {_weight(rows[0][0])}" if rows and rows[0] else ""))
    else:
        width = len(answer.names)
        shown = [[*map(show_value, row[:width]), *map(_weight, row[width:])] for row in rows]
        widths = [max(len(cell) for cell in column) for column in zip(names, *shown)]
        for line in (names, ["-" * width for width in widths], *shown):
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
        print(f"({len(answer)} row{'' if len(answer) == 1 else 's'})")


def _weight(value: Any) -> str:
    """Twelve digits: enough to tell weights apart, too few for what rounding left in the last ones."""
    return f"{value:.12g}"


def _print_proofs(program: Program, query: str, answer: Answer) -> None:
    for proof in program.proofs(query, answer):
        print()
        print(proof)
