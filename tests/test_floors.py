"""The house stands: a folder of `src/morpho/` imports only folders on lower floors, and no files import each other in
a circle.

Late imports inside functions, relative ones, those under `TYPE_CHECKING` and `importlib.import_module("...")` count
too. Also: no pickle in any form, one reader of the environment, and `import morpho` loads no heavy or optional package.
"""

from __future__ import annotations

import ast
import functools
import gc
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "morpho"

FLOORS: dict[str, int] = {
    "base": 1,
    "ir": 2,
    "ops": 3,
    "cost": 4,
    "passes": 5,
    "program": 6,
    "backends": 7,
    "runtime": 8,
    "tensor": 9,
    "linalg": 10, "sparse": 10, "logic": 10, "kernel": 10,
    "nn": 11, "optim": 11, "amp": 11, "data": 11, "weights": 11, "scipy": 11,
    "models": 12, "onnx": 12, "torch": 12, "spelling": 12, "distributions": 12,
    "plan": 13, "ahead": 13,
    "cluster": 14, "observe": 14,
    "serve": 15, "distributed": 15,
    "rl": 16,
    "cli": 17,
}
# `morpho/__init__.py` re-exports floors up to this one, those above `tensor` when first asked for.
TOP_OF_PACKAGE = FLOORS["rl"]
# What is built from tensors is written like a user's program: these may import the bare top package.
USERS_OF_PACKAGE = ("linalg", "sparse", "logic", "nn", "optim", "amp", "data", "weights", "models", "plan", "cluster",
                    "observe", "serve", "rl", "cli", "onnx", "torch", "spelling", "distributions", "scipy", "ahead",
                    "distributed")
# Entry files beside the folders, with the folder whose rights they have.
ENTRY_FILES = {"__main__.py": "cli"}

PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
READER_OF_ENVIRONMENT = "base/settings.py"
# What is looked for in expressions: a file that has none of these words is asked for its statements alone.
IN_EXPRESSIONS = re.compile("|".join(["import_module", "__import__", "find_spec", "allow_pickle", *ENVIRONMENT]))

# Packages that `import morpho` must not load: LLVM, the command line's, every extra, every peer.
NOT_AT_IMPORT = (
    "llvmlite", "typer", "rich", "scipy", "mpi4py", "cupy", "safetensors", "tokenizers", "gguf", "starlette", "uvicorn",
    "httptools", "uvloop", "prometheus_client", "opentelemetry", "tensorboardX", "matplotlib", "numba", "jax", "torch",
    "mpmath", "pytest", "onnx", "hypothesis",
)


@dataclass(frozen=True)
class Import:
    """One import: the dotted module, with the names taken from it where there are any."""

    line: int
    module: str
    names: tuple[str, ...] = ()


def _dotted_prefix(node: ast.expr) -> str | None:
    """The text of a string literal, or the literal beginning of an f-string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant):
        return str(node.values[0].value).rstrip(".")
    return None


def _absolute(module: str, level: int, package: tuple[str, ...]) -> str:
    """The dotted name of a relative import as seen from a module inside `package`."""
    if not level:
        return module
    base = package[: len(package) - (level - 1)]
    return ".".join([*base, module] if module else base)


def imports_of(nodes: list[ast.AST], package: tuple[str, ...]) -> Iterator[Import]:
    """Every import among the nodes of a tree, at whatever depth; `package` is the dotted package the file lies in."""
    computed = False
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(node.module or "", node.level, package)
            yield Import(node.lineno, module, tuple(alias.name for alias in node.names))
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__", "find_spec") and node.args:
                text = _dotted_prefix(node.args[0])
                if text is None:
                    computed = True
                else:
                    bare = text.lstrip(".")
                    yield Import(node.lineno, _absolute(bare, len(text) - len(bare), package))
    if computed:  # The name comes from a variable: every string that could be one of ours counts.
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if re.fullmatch(r"morpho(\.\w+)+", node.value):
                    yield Import(node.lineno, node.value)


def _targets(found: Import) -> Iterator[str]:
    """The folders of Morpho an import reaches; an empty string stands for the bare top package."""
    parts = found.module.split(".")
    if parts[0] != "morpho":
        return
    if len(parts) > 1:
        yield parts[1]
    elif not found.names:
        yield ""
    else:
        for name in found.names:
            yield name if name in FLOORS else ""


@pytest.fixture(scope="module", autouse=True)
def no_search_for_garbage() -> Iterator[None]:
    """Trees of some million nodes, in no circles, are made here; searching them took twice the time of parsing."""
    gc.disable()
    yield
    gc.enable()


@dataclass(frozen=True)
class Facts:
    """What the tests below ask of a file; its tree is not kept, which of the whole package is millions of objects."""

    imports: tuple[Import, ...]
    pickle_allowed: tuple[int, ...]  # lines
    environment: tuple[tuple[int, str], ...]


def statements(tree: ast.AST) -> list[ast.AST]:
    """The statements of a tree at whatever depth, without the expressions in them, which are most of its nodes."""
    found = [tree]
    for node in found:
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            found += getattr(node, part, ())
    return found


@functools.cache
def facts(path: Path, package: Path) -> Facts:
    """A file below `package` (the folder `morpho`), read and parsed once."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, str(path))
    nodes = [*ast.walk(tree)] if IN_EXPRESSIONS.search(text) else statements(tree)
    pickles, environment = [], []
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.keyword):
            if node.arg == "allow_pickle" and not (isinstance(node.value, ast.Constant) and node.value.value is False):
                pickles.append(node.value.lineno)
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id.strip("_") in ("os", "posix"):
                names = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names] if node.module in ("os", "posix") else []
        environment += [(node.lineno, name) for name in ENVIRONMENT.intersection(names)]
    imports = imports_of(nodes, ("morpho", *path.relative_to(package).parts[:-1]))
    return Facts(tuple(imports), tuple(pickles), tuple(environment))


def upward_imports(package: Path) -> list[str]:
    """What is wrong with the imports below `package` (the folder `morpho`), a line each; none when the house stands."""
    problems = []
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package)
        at_top = len(relative.parts) == 1
        here = ENTRY_FILES.get(relative.name, "") if at_top else relative.parts[0]
        is_package_itself = at_top and relative.name == "__init__.py"
        if not is_package_itself and here not in FLOORS:
            problems.append(f"{relative}: stands on no floor; put it into a folder of the table in docs/map.md")
            continue
        floor = TOP_OF_PACKAGE + 0.5 if is_package_itself else FLOORS[here]
        for found in facts(path, package).imports:
            for target in _targets(found):
                place = f"{relative}:{found.line}"
                if target == "":
                    if not is_package_itself and here not in USERS_OF_PACKAGE:
                        problems.append(f"{place}: {here} imports the top package; import from the folder it needs")
                elif target not in FLOORS:
                    problems.append(f"{place}: imports morpho.{target}, which stands on no floor")
                elif target == here:
                    continue
                elif FLOORS[target] == floor:
                    problems.append(f"{place}: {here} imports {target}, its neighbour on floor {floor}")
                elif FLOORS[target] > floor:
                    who = here or "the top package"
                    problems.append(f"{place}: {who} (floor {floor:g}) imports {target} (floor {FLOORS[target]})")
    return problems


def imported_files(package: Path) -> dict[str, set[str]]:
    """By dotted name below `morpho`: the files that each file names in its imports, at whatever depth. A package that
    is run because a file inside it is imported does not count, unless it is named itself."""
    files: dict[str, Path] = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        named = found.setdefault(name, set())
        for one in facts(path, package).imports:
            if one.module.split(".")[0] == "morpho":
                module = one.module.removeprefix("morpho").lstrip(".")
                inner = [f"{module}.{part}".lstrip(".") for part in one.names]
                named.update(part if part in files else module for part in inner or [module])
        named &= files.keys() - {name, ""}  # users of tensors import the bare top package, which has no circle to it
    return found


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of files that reach each other (Tarjan's strongly connected components of two and more)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_files: list[str] = []
    groups: list[list[str]] = []

    def visit(file: str) -> None:
        number[file] = lowest[file] = len(number)
        open_files.append(file)
        for other in sorted(edges[file]):
            if other not in number:
                visit(other)
                lowest[file] = min(lowest[file], lowest[other])
            elif other in open_files:
                lowest[file] = min(lowest[file], number[other])
        if lowest[file] == number[file]:
            group = open_files[open_files.index(file):]
            del open_files[-len(group):]
            if len(group) > 1:
                groups.append(sorted(group))

    for file in sorted(edges):
        if file not in number:
            visit(file)
    return groups


def pickle_uses(package: Path) -> list[str]:
    """Imports of pickle and its kin, and `allow_pickle=` with anything but False."""
    problems = []
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package)
        for found in facts(path, package).imports:
            if found.module.split(".")[0] in PICKLES:
                problems.append(f"{relative}:{found.line}: imports {found.module}")
        problems += [f"{relative}:{line}: allow_pickle is not False" for line in facts(path, package).pickle_allowed]
    return problems


def environment_reads(package: Path) -> list[str]:
    """Uses of the environment outside `base/settings.py`."""
    problems = []
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package)
        if relative.as_posix() != READER_OF_ENVIRONMENT:
            for line, name in facts(path, package).environment:
                problems.append(f"{relative}:{line}: uses os.{name}; ask morpho.base.settings")
    return problems


def test_imports_point_downwards() -> None:
    """The tree as it is."""
    assert list(PACKAGE.rglob("*.py")), "no source found"
    assert not (problems := upward_imports(PACKAGE)), "\n".join(problems)


def test_no_files_import_each_other_in_a_circle() -> None:
    """Inside folders too, and with late imports."""
    edges = imported_files(PACKAGE)
    for group in circles(edges):
        new = [f"{file} -> {', '.join(sorted(edges[file] & {*group}))}" for file in group]
        assert not new, "these files import each other in a circle:\n" + "\n".join(new)


def test_no_pickle() -> None:
    """Nothing in the source can load a pickle."""
    assert not (problems := pickle_uses(PACKAGE)), "\n".join(problems)


def test_one_reader_of_the_environment() -> None:
    """Only `base/settings.py` looks at environment variables."""
    assert not (problems := environment_reads(PACKAGE)), "\n".join(problems)


def test_import_loads_nothing_heavy() -> None:
    """`import morpho` in a fresh process loads neither LLVM, nor the command line's packages, nor any extra; nor does
    `mo.compile` before a first call."""
    program = (f"import json, sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); old = {{*sys.modules}}; import morpho; "
               "morpho.compile(lambda x: x + 1); print(json.dumps([*{*sys.modules} - old]))")
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    loaded = {name.split(".")[0] for name in json.loads(ran.stdout)}
    assert "morpho" in loaded
    assert not (heavy := sorted(loaded.intersection(NOT_AT_IMPORT))), f"import morpho loads {heavy}"


def test_every_folder_of_the_map_has_its_floor() -> None:
    """`docs/map.md` names each folder that exists."""
    text = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
    for folder in sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")):
        assert re.search(rf"^\| *{FLOORS[folder]} *\|.*`{folder}/`", text, re.MULTILINE), f"{folder}/ is not on the map"


# The checkers themselves: each fabricated file breaks one rule, or must not be complained about.

BAD_IMPORTS = [
    ("base/a.py", "import morpho.ir.graph", "base (floor 1) imports ir (floor 2)"),
    ("base/a.py", "from morpho.tensor import Tensor", "imports tensor"),
    ("base/a.py", "from morpho import ir", "imports ir"),
    ("base/a.py", "import morpho", "top package"),
    ("program/a.py", "from morpho import Tensor", "top package"),
    ("tensor/a.py", "from .. import asarray", "top package"),
    ("ops/a.py", "def late():\n    from morpho.passes.fusion.fuse import fuse", "imports passes"),
    ("ops/a.py", "import typing\nif typing.TYPE_CHECKING:\n    from morpho.runtime import pool", "imports runtime"),
    ("ops/deep/a.py", "from ...cost import flops", "imports cost"),
    ("ops/a.py", "from ..cost import flops", "imports cost"),
    ("ops/__init__.py", "from ..cost import flops", "imports cost"),
    ("cost/a.py", "import importlib\nimportlib.import_module('morpho.backends.code.emit')", "imports backends"),
    ("cost/a.py", "import importlib\nimportlib.import_module('..backends', __package__)", "imports backends"),
    ("cost/a.py", "from importlib import import_module\nimport_module(f'morpho.backends.{name}')", "imports backends"),
    ("cost/a.py", "import importlib\nT = ['morpho.backends.cpu']\nimportlib.import_module(T[k])", "imports backends"),
    ("cost/a.py", "__import__('morpho.backends')", "imports backends"),
    ("linalg/a.py", "from morpho.sparse import csr", "neighbour"),
    ("sparse/a.py", "from morpho.linalg import solve", "neighbour"),
    ("__init__.py", "from morpho.cli import main", "imports cli"),
    ("cellar/a.py", "x = 1", "no floor"),
    ("loose.py", "x = 1", "no floor"),
    ("base/a.py", "from morpho.cellar import x", "no floor"),
]

GOOD_IMPORTS = [
    ("base/a.py", "import numpy\nimport morphology\nfrom morpho.base.errors import fail\nfrom . import errors"),
    ("tensor/a.py", "def late():\n    import morpho.runtime.pool\nfrom ..backends import cpu\nfrom morpho import ir"),
    ("runtime/a.py", "import logging\nlogger = logging.getLogger('morpho.tensor')"),
    ("__init__.py", "from morpho.tensor import Tensor\nfrom .base import errors"),
    ("__main__.py", "from morpho.cli.main import main"),
    ("cli/a.py", "import morpho as mo\nfrom morpho import asarray\nfrom morpho.serve import engine"),
    ("cost/a.py", "import importlib\nimportlib.import_module(name)\nimportlib.import_module('numpy')"),
]


def fabricate(folder: Path, name: str, text: str) -> Path:
    """A package `morpho` with one file in it."""
    path = folder / "morpho" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
    return folder / "morpho"


@pytest.mark.parametrize(("name", "text", "complaint"), BAD_IMPORTS)
def test_a_wrong_import_is_found(name: str, text: str, complaint: str, tmp_path: Path) -> None:
    """Exactly one complaint, about the right thing."""
    problems = upward_imports(fabricate(tmp_path, name, text))
    assert len(problems) == 1 and complaint in problems[0], problems


@pytest.mark.parametrize(("name", "text"), GOOD_IMPORTS)
def test_a_right_import_passes(name: str, text: str, tmp_path: Path) -> None:
    """No complaint."""
    assert upward_imports(fabricate(tmp_path, name, text)) == []


CIRCLES = [
    ({"ir/a.py": "from morpho.ir.b import x", "ir/b.py": "def late():\n    from morpho.ir.a import y"},
     [["ir.a", "ir.b"]]),
    ({"ir/a.py": "from . import b", "ir/b.py": "from .c import x", "ir/c.py": "from morpho.ir import a"},
     [["ir.a", "ir.b", "ir.c"]]),
    ({"ir/a.py": "import typing\nif typing.TYPE_CHECKING:\n    from .b import B", "ir/b.py": "import morpho.ir.a"},
     [["ir.a", "ir.b"]]),
    ({"ir/__init__.py": "from morpho.ir.a import x", "ir/a.py": "from morpho.ir import y"}, [["ir", "ir.a"]]),
    ({"ir/__init__.py": "", "ir/a.py": "from morpho.ir.b import c", "ir/b.py": "import ast"}, []),
    ({"__init__.py": "from morpho.nn.a import x", "nn/a.py": "import morpho as mo"}, []),
]


@pytest.mark.parametrize(("files", "found"), CIRCLES)
def test_a_circle_is_found(files: dict[str, str], found: list[list[str]], tmp_path: Path) -> None:
    for name, text in files.items():
        package = fabricate(tmp_path, name, text)
    assert circles(imported_files(package)) == found


@pytest.mark.parametrize("text", [
    "import pickle", "from pickle import loads", "def late():\n    import cloudpickle", "import dill as d",
    "import marshal", "__import__('pickle')", "numpy.load(f, allow_pickle=True)", "numpy.load(f, allow_pickle=x)",
])
def test_pickle_is_found(text: str, tmp_path: Path) -> None:
    """Each way of reaching pickle is one complaint."""
    assert len(pickle_uses(fabricate(tmp_path, "runtime/a.py", text))) == 1


def test_refusing_pickle_is_fine(tmp_path: Path) -> None:
    """`allow_pickle=False` is what we want."""
    assert pickle_uses(fabricate(tmp_path, "runtime/a.py", "import numpy\nnumpy.load(f, allow_pickle=False)")) == []


@pytest.mark.parametrize("text", [
    "import os\nos.environ['A']", "import os\nos.getenv('A')", "from os import environ",
    "import os as _os\n_os.environ",
])
def test_reading_the_environment_is_found(text: str, tmp_path: Path) -> None:
    """Each way of reading the environment is one complaint, except in the one file that may."""
    assert len(environment_reads(fabricate(tmp_path / "bad", "cli/a.py", text))) == 1
    assert environment_reads(fabricate(tmp_path / "good", READER_OF_ENVIRONMENT, text)) == []
