"""Every error text of the package in one list, to be read as a whole: `python -m docs.tools.error_texts [FOLDER]`.

A line has the place, the message and the hint; `{...}` stands for a value that is put in when the error is raised.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "morpho"
RAISERS = {"fail", "ApiError", "LogicError"}


def words(node: ast.expr) -> str:
    """Text of a string, with `{...}` for what is formatted into it; empty for another expression."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(words(part) if isinstance(part, ast.Constant) else "{...}" for part in node.values)
    if isinstance(node, ast.BinOp):
        return (words(node.left) or "{...}") + (words(node.right) or "{...}")
    return ""


def error_texts(package: Path = PACKAGE) -> Iterator[tuple[str, list[str]]]:
    """Place and sentences (message, then hint) of every error that names its text."""
    for path in sorted(package.glob("**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            texts = [text for value in [*node.args, *(each.value for each in node.keywords)]
                     if " " in (text := words(value))]
            if name in RAISERS and texts:
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", texts


if __name__ == "__main__":
    for place, texts in error_texts(PACKAGE / sys.argv[1] if len(sys.argv) > 1 else PACKAGE):
        print(f"{place}: {' | '.join(texts)}")
