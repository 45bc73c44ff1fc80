"""What every test shares: one seed for everything random, Hypothesis profiles, and a temporary folder of its own.

`python -m pytest -n auto` runs on all cores; `--seed N` repeats the draws of an earlier session, whose seed is in the
closing summary and beside every failure. Morpho's disk cache lies in the session's temporary folder, so that tests
neither read nor fill the user's.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import random
import secrets
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

# One folder for a session, removed at its end: what tests, examples and the processes they start leave in "/tmp", and
# Morpho's stored code, which processes of pytest-xdist share. Set before anything imports Morpho: settings are read
# from the environment once. The name is short, because sockets lie below it.
if not ("PYTEST_XDIST_WORKER" in os.environ and "morpho-test-" in os.environ.get("TMPDIR", "")):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # `tmp_path` stays, to look into
    _FOLDER = tempfile.mkdtemp(prefix="morpho-test-")
    os.environ["TMPDIR"] = tempfile.tempdir = _FOLDER
    os.environ["MORPHO_CACHE_DIR"] = os.path.join(_FOLDER, "cache")
    os.mkdir(os.environ["MORPHO_CACHE_DIR"])
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):  # not beside the source, then; hundreds of processes start here
        os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(_FOLDER, "bytecode")
    _OWNER_PROCESS = os.getpid()

    @atexit.register
    def _remove_folder() -> None:
        """Clean up, though not at the end of a process that a test has forked."""
        if os.getpid() == _OWNER_PROCESS:
            shutil.rmtree(_FOLDER, ignore_errors=True)


# A checkout that is not installed tests itself, in the processes that tests start too.
if importlib.util.find_spec("morpho") is None:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH")]))

# Helpers beside the tests of a floor import by their bare name; last on the path, so that they hide nothing.
sys.path.extend(str(folder) for folder in sorted(Path(__file__).parent.iterdir()) if folder.is_dir())
sys.path.append(str(Path(__file__).parent / "backends" / "cpu"))
sys.path.append(str(Path(__file__).parent / "backends" / "cuda"))

import hypothesis
import numpy as np
import pytest

from core_cases import CORE, core_cases
from morpho.tensor import recording

TESTS = Path(__file__).resolve().parent
_SHARED = {
    "deadline": None,
    "derandomize": False,
    "print_blob": True,
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
}
hypothesis.settings.register_profile("ci", max_examples=50, **_SHARED)
hypothesis.settings.register_profile("quick", max_examples=20, **_SHARED)
hypothesis.settings.register_profile("thorough", max_examples=2000, **_SHARED)
hypothesis.settings.load_profile("ci")


SAMPLED = 5  # one in so many cases of a large table


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seed N`: the one number that all random draws of the session follow from."""
    parser.addoption("--seed", type=int, default=None, metavar="N",
                     help="seed of every random draw, Hypothesis included (default: a new one, printed at the end)")
    parser.addoption("--shuffle", action="store_true",
                     help="run the tests in an order drawn from the seed: what one leaves behind, another may find")
    parser.addoption("--exhaustive", action="store_true",
                     help="run all of the large tables (`sampled`), not a fifth of each group drawn from the seed")


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, None]:
    """Half of the processes of a session begin folders at their end: assertions of all tests are rewritten, half of
    collecting, and what one has done the other finds as bytecode."""
    outcome = yield
    if isinstance(collector, pytest.Dir) and int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 2:
        (outcome.get_result().result or []).reverse()  # none where the folder cannot be read


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without a core test where `-m core` is all that is asked for: reading all takes half a minute."""
    if config.option.markexpr != "core" or collection_path.suffix != ".py" or TESTS not in collection_path.parents:
        return None
    return collection_path.relative_to(TESTS).as_posix() not in CORE or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The mark of core tests, the sample of large tables and the order of `--shuffle`, the same in all processes of a
    session."""
    names = [(item.path.relative_to(TESTS).as_posix() if TESTS in item.path.parents else "", item.name)
             for item in items]
    for index in core_cases(names):
        items[index].add_marker("core")
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.path.parts)  # as if all had begun at the same end
    whole = config.option.exhaustive or config.option.markexpr == "core"
    if not whole and not any("::" in str(name) for name in config.args):
        items[:] = _sample(items, config.option.seed)
    if config.option.shuffle:
        random.Random(config.option.seed).shuffle(items)


def _sample(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Of tests marked `sampled` a fifth of each group, drawn from the seed: CI's is always the same, everyone
    else's another each time. A group is what differs in its last parameter alone, such as the dtypes of one case."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") is not None:
            test, _, parameters = item.nodeid.partition("[")
            groups.setdefault(f"{test}[{parameters.rpartition('-')[0]}", []).append(item)
    kept: set[str] = set()
    for group in groups.values():
        group.sort(key=lambda item: zlib.crc32(item.nodeid.encode(), seed & 0xFFFFFFFF))
        kept.update(item.nodeid for item in group[:-(-len(group) // SAMPLED)])
    return [item for item in items if item.nodeid in kept or item.get_closest_marker("sampled") is None]


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Generator[None, None, None]:
    """Collecting makes thousands of items that stay: nothing looks for garbage meanwhile, nor at them later."""
    gc.disable()
    yield
    gc.enable()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def earlier_modules_are_not_searched() -> None:
    """What is still held when a module begins (caches, libraries) is not looked through for garbage again: a search
    took a second in a session of all tests, and tests of lifetimes make ten."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def values_of_earlier_tests_are_forgotten() -> None:
    """A test begins as a program does: looks of the one before do not decide that operations are computed at once."""
    own = vars(recording.local).get("recording")
    if own is not None:
        own.budget = own.short = 0


@pytest.fixture
def nothing_foreign() -> Generator[None, None, None]:
    """As if no other module of this process had added operations, passes or rules of its own: with such nothing is kept
    on disk."""
    from morpho.ir.op import foreign

    others = set(foreign)
    foreign.clear()
    yield
    foreign.update(others)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Several processes begin with a stretch each, and one that is done takes from another: nearly every module runs in
    one of them, which starts its server and compiles its programs once, and not in all."""
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """`-n auto`: a process for every core that the affinity mask and the cgroup's quota leave, 16 at most."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # pytest-xdist's own answer
    from morpho.base.machine import allowed_cores, quota_cores, usable_cores

    return min(16, usable_cores(allowed_cores(), quota_cores()))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Processes of pytest-xdist draw from the session's seed: the one that is printed at the end."""
    node.workerinput["seed"] = node.config.option.seed


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Settle the session's seed, and hand it to Hypothesis where the user has not given that one its own."""
    if hasattr(config, "workerinput"):  # one of several processes of a session
        config.option.seed = config.workerinput["seed"]
    if config.option.seed is None:
        # CI repeats one seed, so that a red run means a change; everyone else draws a new one.
        config.option.seed = 20261115 if os.environ.get("CI") else secrets.randbelow(2**31)
    if getattr(config.option, "hypothesis_seed", None) is None:
        hypothesis.core.global_force_seed = config.option.seed


def pytest_unconfigure() -> None:
    """What was set aside is freed at the end: extensions tell of every type that is not."""
    gc.unfreeze()


def pytest_report_header(config: pytest.Config) -> str:
    """The seed, above a verbose run."""
    return f"seed: {config.option.seed}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The seed, below every run: a quiet one has no header."""
    terminalreporter.write_line(f"seed: {terminalreporter.config.option.seed} (repeat with --seed)")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.Item, None]:
    """Print the seed beside a failure."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        report.sections.append(("seed", f"--seed {item.config.option.seed} '{item.nodeid}'"))


@pytest.fixture(scope="session")
def session_seed(pytestconfig: pytest.Config) -> int:
    """The number given with `--seed`, or the one chosen for this session."""
    return int(pytestconfig.option.seed)


@pytest.fixture
def seed(session_seed: int, request: pytest.FixtureRequest) -> int:
    """A seed of this test's own: the same for any order or selection of tests, given the session's seed."""
    return zlib.crc32(request.node.nodeid.encode(), session_seed & 0xFFFFFFFF)


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """A NumPy generator seeded for this test."""
    return np.random.default_rng(seed)


@pytest.fixture
def sample(pytestconfig: pytest.Config, seed: int) -> Callable[[Iterable[Any]], list[Any]]:
    """Of a table inside a test a fifth, in its order, drawn from the seed; with `--exhaustive` all of it."""
    rng = np.random.default_rng([seed, 1])  # draws of the test itself are the same with it and without

    def drawn(table: Iterable[Any]) -> list[Any]:
        rows = list(table)
        if pytestconfig.option.exhaustive:
            return rows
        return [rows[place] for place in sorted(rng.permutation(len(rows))[:-(-len(rows) // SAMPLED)])]

    return drawn
