"""Write `src/morpho/tensor/spelled_types.pyi`: the methods that `spelling/methods.py` gives to tensors, for editors.

    python -m benchmarks.spelled_stubs
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from morpho.spelling import methods
from morpho.tensor import core

FOLDER = Path(core.__file__).parent
STUB = FOLDER / "spelled_types.pyi"
HEAD = '''"""The methods that NumPy's arrays and PyTorch's tensors have, for type checkers and editors; written by
`python -m benchmarks.spelled_stubs` from `spelling/methods.py`.
"""

from typing import Any

class Spelled:
    """Base of `Operators`, whose own methods come first."""

'''


def _members(path: Path, name: str) -> set[str]:
    (found,) = [node for node in ast.parse(path.read_text(encoding="utf-8")).body
                if isinstance(node, ast.ClassDef) and node.name == name]
    functions = {node.name for node in found.body if isinstance(node, ast.FunctionDef)}
    return functions | {node.target.id for node in found.body
                        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}


def _parameters(name: str, value: object) -> str:
    """The arguments of a method of this folder; those of a function of `mo` are checked when it is called."""
    if name not in methods.SPECIAL or not inspect.isfunction(value):
        return "self, *args: Any, **options: Any"
    parts, is_keyword = [], False
    for number, parameter in enumerate(inspect.signature(value).parameters.values()):
        if number == 0:
            parts.append("self")
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts.append(f"*{parameter.name}: Any")
            is_keyword = True
        elif parameter.kind is parameter.VAR_KEYWORD:
            parts.append(f"**{parameter.name}: Any")
        else:
            if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
                parts.append("*")
                is_keyword = True
            parts.append(f"{parameter.name}: Any" + (" = ..." if parameter.default is not parameter.empty else ""))
    written = ", ".join(parts)
    return written if len(written) < 90 else "self, *args: Any, **options: Any"


def text() -> str:
    """The whole stub."""
    own = _members(FOLDER / "core.py", "Tensor") | _members(FOLDER / "operator_types.pyi", "Operators")
    lines = []
    for name in methods.names():
        if name in own:
            continue
        value = methods.method(name)
        if isinstance(value, property):
            lines.append(f"    @property\n    def {name}(self) -> Any: ...")
        else:
            lines.append(f"    def {name}({_parameters(name, value)}) -> Any: ...")
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    STUB.write_text(text(), encoding="utf-8")
