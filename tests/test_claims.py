"""What README.md and docs/ say of single expressions, as in "`5 // 0` is `0`", is what they give."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo

ROOT = Path(__file__).resolve().parent.parent
CLAIM = re.compile(r"`([^`\n]+)` (?:is|gives) `([^`\n]+)`")
LEAST = 15  # claims that are found, so that the pattern cannot stop finding them unseen


class _Tensors(ast.NodeTransformer):
    """Numbers that are operated on are tensors: `inf // 1` is Morpho's."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        node.left = ast.Call(ast.Attribute(ast.Name("mo", ast.Load()), "asarray", ast.Load()), [node.left], [])
        return node


def claims() -> Iterator[tuple[str, str, str]]:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))):
        text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for left, right in CLAIM.findall(re.sub(r"\n\s*", " ", text)):
            try:
                ast.parse(left, mode="eval"), ast.literal_eval(right.replace("nan", "None").replace("inf", "1e999"))
            except (SyntaxError, ValueError):
                continue  # words, not values
            yield path.name, left, right


FOUND = list(claims())


def test_claims_are_found() -> None:
    assert len(FOUND) >= LEAST, FOUND


@pytest.mark.parametrize(("page", "left", "right"), FOUND)
def test_a_claim_holds(page: str, left: str, right: str) -> None:
    names: dict[str, Any] = {"mo": mo, "np": np, "inf": math.inf, "nan": math.nan}
    tree = ast.fix_missing_locations(_Tensors().visit(ast.parse(left, mode="eval")))
    found = eval(compile(tree, page, "eval"), names)
    found = found.tolist() if isinstance(found, mo.Tensor) else found
    wanted = eval(right, names)
    assert str(found) == str(wanted) or found == wanted, f"{page}: {left} is {found}"
