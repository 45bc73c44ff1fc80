"""Settings: the only reader of the environment.

Each has a default that works, an environment variable `MORPHO_<NAME>`, and can be changed for a block of code:

>>> import morpho as mo
>>> with mo.settings(threads=1, level=0):
...     y = mo.asarray([1.0, 2.0]) + 1
"""

from __future__ import annotations

import logging
import os
import re
import threading
import warnings
import zlib
from collections.abc import Callable, Mapping
from contextlib import ContextDecorator
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from morpho.base.errors import ArgumentError, fail, fold_uncaught

if TYPE_CHECKING:
    from pathlib import Path

device_kinds: list[str] = []  # filled by `backends/registry.py`
RANKS_SECRET = "MORPHO_RANKS_SECRET"  # no setting: what a launcher with a dashboard tells its ranks
_SEVERITIES = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


MOST_THREADS = 4096


@dataclass(frozen=True, slots=True)
class Settings:
    """One immutable set of choices; `describe` below says what each one means."""

    device: str = "cpu"
    level: int = 3
    isa: str = "native"
    threads: int = 0
    cache: bool = True
    cache_dir: str = ""
    cache_bytes: int = 1 << 30
    pool_bytes: int = 0
    passes_off: str = ""
    autocast: str = ""
    nans: str = ""
    fast: bool = False
    tf32: bool = False
    fallback: bool = False
    co_schedule: bool = True
    tune: str = "kept"
    record: bool = True
    collective_timeout: int = 600
    compare_collectives: bool = True
    alone: bool = False
    log: str = "warning"

    def code_key(self) -> tuple[Any, ...]:
        """Values of the settings that compiled code depends on: a key of everything that is traced, planned or
        compiled. A new setting is part of it unless it is named among those that only say where things are kept, or
        what is said.

        >>> Settings(level=2).code_key() == Settings().code_key()
        False
        >>> Settings(log="info").code_key() == Settings().code_key()
        True
        """
        return _code_of(self)

    @property
    def cache_path(self) -> Path:
        """The folder of compiled code, and of fetched models below it."""
        from pathlib import Path

        if self.cache_dir:
            return Path(self.cache_dir)
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        return Path(home) / "morpho"


RENAMED = {"joint": "co_schedule"}  # older names: errors that say the new one
NOT_IN_CODE = frozenset({"cache", "cache_dir", "cache_bytes", "pool_bytes", "log", "tune", "fallback", "record",
                         "collective_timeout", "compare_collectives", "alone"})
_code_of = attrgetter(*(field.name for field in fields(Settings) if field.name not in NOT_IN_CODE))

describe = {
    "device": "where tensors are made and programs run: cpu (native code), reference (NumPy on the same memory, one "
              "operation at a time), auto (on the CPU's memory; each program on the CPU or a GPU, whichever is "
              "expected to be done first), or one of mo.devices()",
    "level": "optimisation level 0-3; every level gives the same bits",
    "isa": "native, scalar, neon, avx2, avx512, amx, or vector128/256/512 for a plain width",
    "threads": "worker threads; 0 means every core this process may really use",
    "cache": "whether compiled code and finished plans are kept on disk (0 or 1)",
    "cache_dir": "folder of compiled code and fetched models; empty means the user's cache folder",
    "cache_bytes": "most bytes of compiled code kept on disk",
    "pool_bytes": "most bytes the memory pool may hold; 0 means no limit",
    "passes_off": "comma-separated passes to switch off, like fuse,cse; memory: no two intermediate values share any",
    "autocast": "dtype of products: bfloat16, float16, auto (bfloat16 where it is no slower), or empty for their own",
    "nans": "look for the operation that first makes NaN or infinity: results, all (of every operation), or empty",
    "fast": "whether products may go to BLAS or Strassen, and einsum by this machine's rates, where `morpho doctor "
            "--measure` found that faster; bits then differ from machine to machine (0 or 1)",
    "tf32": "whether GPUs multiply float32 matrices on tensor cores, which round operands to 11 bits: products are off "
            "by 2^-11 of their magnitude (0 or 1)",
    "fallback": "whether a program that finds no memory on a GPU, after kept blocks were given back, runs on the CPU "
                "instead; counted, and logged once for each (0 or 1)",
    "co_schedule": "whether independent small kernels of a program run concurrently on all threads (0 or 1)",
    "tune": "choices of the tuner: kept (use what `morpho tune` found), off (the defaults), background (also explore "
            "beside the program, in one hundredth of the time); every choice gives the same bits",
    "record": "whether operations outside of compiled functions are recorded, so that a program that comes again is "
              "one call of compiled code; values are the same either way (0 or 1)",
    "collective_timeout": "seconds that a rank waits for others in a collective or message, until that is an error "
                          "which names who is missing; 0: for ever. What counts is the value when the group begins",
    "compare_collectives": "whether ranks compare operation, dtype, length and root of their collectives before any "
                           "bytes move: under 1 us on one host, a small all-gather between hosts (0 or 1)",
    "alone": "whether a process may be a group of one although a launcher's variables say that it is one of several (0 "
             "or 1)",
    "log": "the least of what is logged: debug, info (both need a handler of yours), warning or error",
}


def _parse(name: str, text: str, kind: type) -> object:
    try:
        if kind is bool:
            return {"0": False, "1": True, "false": False, "true": True, "no": False, "yes": True,
                    "off": False, "on": True}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        variable = f"MORPHO_{name.upper()}"
        raise fail(ArgumentError, "settings", f"{variable}={text!r} is not a valid {kind.__name__}",
                   describe[name], line="") from None


def _check(settings: Settings, line: str | None = None) -> Settings:
    for field in fields(Settings):
        value, kind = getattr(settings, field.name), type(field.default)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise fail(ArgumentError, "settings", f"{field.name}={value!r} is not of type {kind.__name__}",
                       describe[field.name], line)
    device_kind = settings.device.partition(":")[0]
    if device_kind != "cpu" and device_kind not in device_kinds:
        raise fail(ArgumentError, "settings", f"device {settings.device!r} is unknown",
                   "use " + " or ".join(device_kinds or ["cpu"]), line)
    if settings.level not in (0, 1, 2, 3):
        raise fail(ArgumentError, "settings", f"level {settings.level} is not one of 0, 1, 2, 3", "", line)
    if settings.collective_timeout < 0:
        raise fail(ArgumentError, "settings", f"collective_timeout {settings.collective_timeout} is negative",
                   "0 waits for ever", line)
    if settings.threads > MOST_THREADS:
        raise fail(ArgumentError, "settings", f"threads={settings.threads} is more than {MOST_THREADS}",
                   "give the number of cores, or 0 for all of them", line)
    if settings.threads < 0 or settings.pool_bytes < 0 or settings.cache_bytes < 0:
        raise fail(ArgumentError, "settings", "threads, pool_bytes and cache_bytes cannot be negative", "", line)
    if settings.autocast not in ("", "auto", "bfloat16", "float16"):
        raise fail(ArgumentError, "settings", f"autocast {settings.autocast!r} is unknown",
                   "use bfloat16, float16, auto, or an empty string", line)
    if settings.nans not in ("", "results", "all"):
        raise fail(ArgumentError, "settings", f"nans {settings.nans!r} is unknown",
                   "use results, all, or an empty string", line)
    if settings.tune not in ("kept", "off", "background"):
        raise fail(ArgumentError, "settings", f"tune {settings.tune!r} is unknown", "use kept, off or background", line)
    if settings.log not in _SEVERITIES:
        raise fail(ArgumentError, "settings", f"log {settings.log!r} is unknown", "use debug, info, warning or error",
                   line)
    return settings


def world_size() -> int | None:
    """How many processes an MPI launcher (mpiexec, srun) says it started together with this one; None without one."""
    for variable in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS" if "PMIX_RANK" in os.environ else ""):
        if os.environ.get(variable, "").isdigit():
            return int(os.environ[variable])
    return None


def other_launcher() -> tuple[int, int, str, str]:
    """Variables of a launcher that starts no MPI ranks: rank, size, the variables, and what sets them; a
    size of 1 where there are none. Those of `torchrun`, of Slurm's `srun` without PMIx, of `pbsdsh` and of an indexed
    job of Kubernetes are such."""
    if "OMPI_COMM_WORLD_SIZE" in os.environ or "PMIX_RANK" in os.environ:
        return 0, 1, "", ""  # a rank of MPI, whatever an outer launcher has left
    sizes = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    for rank, size, name in (("RANK", "WORLD_SIZE", "torchrun"), ("JOB_COMPLETION_INDEX", "WORLD_SIZE", "Kubernetes"),
                             ("PMI_RANK", "PMI_SIZE", "another MPI's mpiexec"),
                             ("SLURM_PROCID", next((each for each in sizes if each in os.environ), sizes[0]), "srun")):
        words = os.environ.get(rank, ""), os.environ.get(size, "")
        if all(word.isdigit() for word in words) and int(words[1]) > 1:
            return int(words[0]), int(words[1]), f"{rank}={words[0]} and {size}={words[1]}", name
    return _task_of_pbs()


def _task_of_pbs() -> tuple[int, int, str, str]:
    """A task of `pbsdsh`: OpenPBS numbers the lines of the file of nodes, Torque says the size too. Task 1 is the job's
    own script, no rank."""
    task = os.environ.get("PBS_TASKNUM", "")
    if not re.fullmatch("[0-9A-Fa-f]+", task) or int(task, 16) <= 1:
        return 0, 1, "", ""
    variable = "PBS_VNODENUM" if "PBS_VNODENUM" in os.environ else "PBS_NODENUM"
    size, of = os.environ.get("PBS_NP", ""), "PBS_NP"
    if not size.isdigit():
        size, of = str(len(_lines_of(os.environ.get("PBS_NODEFILE", "")))), "lines of PBS_NODEFILE"
    rank = os.environ.get(variable, "")
    if not rank.isdigit() or int(size) <= 1:
        return 0, 1, "", ""
    return int(rank), int(size), f"{variable}={rank} and {of}={size}", "pbsdsh"


def _lines_of(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().split()
    except (OSError, UnicodeDecodeError):
        return []


@dataclass(frozen=True)
class MeetingPlace:
    """Where ranks of another launcher meet. run: which of several starts; is_store: `torchrun` itself listens there."""

    address: str
    port: int
    run: str
    is_store: bool = False


def meeting_place(launcher: str) -> MeetingPlace | None:
    """Where the ranks of a launcher that `other_launcher` named meet: MASTER_ADDR and MASTER_PORT, else the first
    machine of the job and a port that follows from the job's number; None where the variables do not say."""
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    run = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if port and not (port.isdigit() and 0 < int(port) < 65536):
        raise fail(ArgumentError, "cluster", f"MASTER_PORT={port} is no port", "use a number from 1 to 65535", line="")
    if launcher in ("torchrun", "Kubernetes"):
        is_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        return MeetingPlace(address, int(port), run, is_store) if address and port else None
    if launcher == "srun" and {"SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID"} <= os.environ.keys():
        job, step = os.environ["SLURM_JOB_ID"], os.environ.get("SLURM_STEP_ID", "0")
        is_one = os.environ.get("SLURM_STEP_NUM_NODES", "1") == "1"
        address = address or ("127.0.0.1" if is_one else os.environ.get("SLURM_STEP_NODELIST", ""))
        return MeetingPlace(address, int(port or _port_of(f"{job}.{step}")), f"{job}.{step}") if address else None
    if launcher == "pbsdsh":
        nodes, job = [address] if address else _lines_of(os.environ.get("PBS_NODEFILE", "")), os.environ.get(
            "PBS_JOBID", "0")
        return MeetingPlace(nodes[0], int(port or _port_of(job)), job) if nodes else None
    return None


def _port_of(job: str) -> int:
    """A port that all processes of a job work out alike, outside of those the system gives away.

    >>> _port_of("4711.0")
    17573
    """
    return 15000 + zlib.crc32(job.encode()) % 5000


def world_rank() -> int | None:
    """Which of them this process is, as the launcher says; None without one."""
    for variable in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"):
        if os.environ.get(variable, "").isdigit():
            return int(os.environ[variable])
    return None


def adopt(variables: Mapping[str, str]) -> None:
    """Set variables of this process: those by which MPI knows a rank."""
    os.environ.update(variables)


def ranks_secret() -> str:
    """By what a rank shows the launcher's dashboard that it is one of its ranks; empty without a dashboard."""
    return os.environ.get(RANKS_SECRET, "")


def job_hosts() -> tuple[str, str]:
    """Machines of the job that a queue started: ("slurm", list of nodes) or ("pbs", file of them), or two empty
    texts."""
    for kind, variable in (("slurm", "SLURM_JOB_NODELIST"), ("slurm", "SLURM_NODELIST"), ("pbs", "PBS_NODEFILE")):
        if os.environ.get(variable):
            return kind, os.environ[variable]
    return "", ""


def environment(**changes: str) -> dict[str, str]:
    """The environment of a process to start: this one's, with changes."""
    return {**os.environ, **changes}


def from_environment() -> Settings:
    """The defaults with every `MORPHO_*` variable applied; unknown ones are an error, so a typo is not silent."""
    kinds = {field.name: type(field.default) for field in fields(Settings)}
    changes = {}
    for variable, text in os.environ.items():
        if not variable.startswith("MORPHO_") or variable == RANKS_SECRET:
            continue
        name = variable.removeprefix("MORPHO_").lower()
        if name in RENAMED:
            raise fail(ArgumentError, "settings", f"{variable} is MORPHO_{RENAMED[name].upper()} now", "", line="")
        if name not in kinds:
            raise fail(ArgumentError, "settings", f"the environment variable {variable} is unknown",
                       "the settings are " + ", ".join(sorted(kinds)), line="")
        changes[name] = _parse(name, text, kinds[name])
    return _check(replace(Settings(), **changes), "the environment's MORPHO_* variables")  # type: ignore[arg-type]


current: ContextVar[Settings | None] = ContextVar("morpho_settings", default=None)  # None outside every block
_base: Settings | None = None
_blocks = 0
_lock = threading.Lock()
changed: list[Callable[[], None]] = []  # called whenever a block begins or ends, in any thread


def is_usual() -> bool:
    """Whether, outside blocks, values are computed by the CPU as they are: no other device, no mixed precision, no
    search for NaN."""
    chosen = _base if _base is not None else outside()
    return chosen.device == "cpu" and not chosen.autocast and not chosen.nans


def get() -> Settings:
    """The settings in force here."""
    found = current.get()
    return outside() if found is None else found


def outside() -> Settings:
    """The settings in force outside of every block: the environment's."""
    global _base
    if _base is None:
        _base = from_environment()
    return _base


def blocks() -> int:
    """How many blocks are open in this process: while there are none, every thread has the same settings."""
    return _blocks


def settings(**changes: object) -> SettingsBlock:
    """Change settings inside a `with` block: `with mo.settings(level=0, threads=1): ...`, or around a function, as its
    decorator. The call alone changes nothing, and warns.

    >>> with mo.settings(threads=1, level=0):
    ...     print(mo.sum([1.0, 2.0]).item())
    3.0
    """
    unknown = set(changes) - {field.name for field in fields(Settings)}
    for name in unknown & RENAMED.keys():
        raise fail(ArgumentError, "settings", f"the setting {name!r} is named {RENAMED[name]!r} now",
                   f"write mo.settings({RENAMED[name]}=...)")
    if unknown:
        raise fail(ArgumentError, "settings", f"unknown settings {sorted(unknown)}",
                   "the settings are " + ", ".join(field.name for field in fields(Settings)))
    return SettingsBlock(_one(_check(replace(get(), **_switches(changes)))))  # type: ignore[arg-type]


def _switches(changes: dict[str, object]) -> dict[str, object]:
    """0 and 1 of switches as False and True, as in the environment."""
    kinds = {field.name: type(field.default) for field in fields(Settings)}
    return {name: bool(value) if kinds[name] is bool and type(value) is int and value in (0, 1) else value
            for name, value in changes.items()}


def of(chosen: Settings) -> SettingsBlock:
    """A block under settings that were in force elsewhere."""
    return SettingsBlock(_one(chosen))


@lru_cache(maxsize=256)
def _one(chosen: Settings) -> Settings:
    """The same object for equal settings: native code compares addresses."""
    return chosen


class SettingsBlock(ContextDecorator):
    """Settings as a block, or around a decorated function. One that is dropped without having been either says so:
    `mo.settings(threads=1)` on a line of its own changes nothing."""

    def __init__(self, chosen: Settings) -> None:
        self._chosen, self._used, self._entered = chosen, False, False

    def __call__(self, function: Any) -> Any:
        self._used = True
        return super().__call__(function)

    def _recreate_cm(self) -> SettingsBlock:
        return SettingsBlock(self._chosen)  # for every call of a decorated function

    def __enter__(self) -> Settings:
        if self._entered:
            raise fail(ArgumentError, "settings", "a block is entered twice", "write mo.settings(...) for each")
        self._used = self._entered = True
        self._token = current.set(self._chosen)
        _count(1)
        return self._chosen

    def __exit__(self, *exception: Any) -> None:
        current.reset(self._token)
        _count(-1)

    def __del__(self) -> None:
        if not self._used:
            warnings.warn("mo.settings(...) changes nothing by itself. Hint: write `with mo.settings(...):` for a "
                          "block, or set MORPHO_* variables for the whole process.", RuntimeWarning, stacklevel=2)


def _count(change: int) -> None:
    """Count first, then tell: who chooses code after hearing of the change knows that the block is open."""
    global _blocks
    with _lock:
        _blocks += change
    for function in changed:
        function()


class Within(ContextDecorator):
    """Some settings as a block, or around a decorated function, for classes that are used so."""

    def __init__(self, **changes: Any) -> None:
        self._changes = changes
        self._open = threading.local()

    def _recreate_cm(self) -> Within:
        return self  # blocks are counted per thread: a decorated function may call itself

    def __enter__(self) -> Within:
        block = settings(**self._changes)
        block.__enter__()
        self._open.blocks = [*getattr(self._open, "blocks", []), block]
        return self

    def __exit__(self, *exception: Any) -> None:
        *rest, block = self._open.blocks
        self._open.blocks = rest
        block.__exit__(*exception)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _is_wanted(record: logging.LogRecord) -> bool:
    """Whether the settings in force let a message through."""
    return record.levelno >= _SEVERITIES[get().log]


logging.getLogger("morpho").addFilter(_is_wanted)
logging.getLogger("morpho").setLevel(logging.DEBUG)  # what is said is decided by the filter
fold_uncaught(lambda: get().log == "debug")
