"""The planner's rooms: few files each, and no file imports itself over others, late imports included."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

from morpho import plan

FOLDER = Path(plan.__file__).parent
COMMANDS = FOLDER.parent / "cli"


def module_of(file: Path) -> str:
    parts = file.relative_to(FOLDER.parent.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_import_cycle() -> None:
    files = {module_of(file): file for file in [*FOLDER.rglob("*.py"), *COMMANDS.glob("*.py")]}
    graph: dict[str, set[str]] = {}
    for name, file in files.items():
        found = graph.setdefault(name, set())
        for part in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(part, ast.ImportFrom) and part.module:
                names = {f"{part.module}.{alias.name}" for alias in part.names}
                found.update(names & files.keys() or {part.module} & files.keys())
        found.discard(name)
    assert len(list(TopologicalSorter(graph).static_order())) == len(files)  # a cycle is an error of the sorter


def test_no_room_is_a_warehouse() -> None:
    for room in (path for path in FOLDER.rglob("*") if path.is_dir() and path.name != "__pycache__"):
        assert len([file for file in room.glob("*.py") if file.name != "__init__.py"]) <= 12, room
    assert [file.name for file in FOLDER.glob("*.py")] == ["__init__.py"]
