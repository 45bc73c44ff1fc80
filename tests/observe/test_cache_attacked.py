"""The disk tier under attack: files cut, flipped, swapped, foreign, gone, and other processes that evict. Whatever
happens to the folder, a value that comes back is the right one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, ValueFault
from morpho.runtime.object_cache import locks
from morpho.runtime.object_cache.cache import ObjectCache

KEYS = 40
LIMIT = 24_000  # of some 60 kB that all values take: somebody is always evicted


def value_of(key: int) -> list[object]:
    """What is kept under a key, and nowhere else."""
    return [key, str(key) * 20, np.full(100 + key, key, np.float64)]


def same(found: object, key: int) -> bool:
    """Whether a value is that of its key, to the last element."""
    wanted = value_of(key)
    return (isinstance(found, list) and found[:2] == wanted[:2] and found[2].dtype == np.float64
            and np.array_equal(found[2], wanted[2]))


def cut(file: Path, draws: np.random.Generator, others: list[Path]) -> None:
    os.truncate(file, int(draws.integers(0, file.stat().st_size)))


def flip(file: Path, draws: np.random.Generator, others: list[Path]) -> None:
    content = bytearray(file.read_bytes())
    content[int(draws.integers(len(content)))] ^= 1 << int(draws.integers(8))
    file.write_bytes(content)


def swap(file: Path, draws: np.random.Generator, others: list[Path]) -> None:
    """A whole, good file of another key under this one's name."""
    other = others[(others.index(file) + 1) % len(others)]
    file.write_bytes(other.read_bytes() if other != file else b"")


def foreign(file: Path, draws: np.random.Generator, others: list[Path]) -> None:
    file.write_bytes(draws.bytes(int(draws.integers(0, 3000))))


def grow(file: Path, draws: np.random.Generator, others: list[Path]) -> None:
    with file.open("ab") as more:
        more.write(b"x")


def vanish(file: Path, draws: np.random.Generator, others: list[Path]) -> None:
    file.unlink()


def close(file: Path, draws: np.random.Generator, others: list[Path]) -> None:
    """Others could have written it."""
    file.chmod(0o666)


def link(file: Path, draws: np.random.Generator, others: list[Path]) -> None:
    file.unlink()
    file.symlink_to(others[0])


ATTACKS: tuple[Callable[[Path, np.random.Generator, list[Path]], None], ...] = (
    cut, flip, swap, foreign, grow, vanish, close, link)
WRONG = {"cut", "flip", "swap", "foreign", "grow", "close", "link"}  # what a reader finds out, and counts


def attacked(folder: Path, which: int, draws: np.random.Generator) -> bool:
    """One attack on one file, if there are any: it may be evicted under the attacker's hands, a link, or empty."""
    files = sorted(folder.glob("*.morpho"))
    with contextlib.suppress(OSError, ValueError):
        ATTACKS[which % len(ATTACKS)](files[int(draws.integers(len(files)))], draws, files)
    return bool(files)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_one_damaged_file_is_found_out(attack: Callable[..., None], tmp_path: Path,
                                       rng: np.random.Generator) -> None:
    store = ObjectCache(0, tmp_path, LIMIT)
    for key in (1, 2):
        store.put(key, value_of(key))
    files = sorted(tmp_path.iterdir())
    attack(files[1], rng, files)
    reader = ObjectCache(0, tmp_path, LIMIT)
    found = [reader.get(key) for key in (1, 2)]
    assert sum(one is None for one in found) == 1 and all(one is None or same(one, key + 1)
                                                        for key, one in enumerate(found))
    assert reader.stats()["disk"]["corrupt"] == (attack.__name__ in WRONG)
    assert all(same(reader.get_or_create(key, lambda key=key: value_of(key)), key) for key in (1, 2))
    assert all(same(ObjectCache(0, tmp_path, LIMIT).get(key), key) for key in (1, 2))


def test_no_wrong_value_ever_comes_back(tmp_path: Path, rng: np.random.Generator) -> None:
    """Three caches over one folder, like three processes, each evicting behind the others' backs, and an attacker."""
    stores = [ObjectCache(0, tmp_path, LIMIT) for _ in range(3)]
    right = missing = 0
    for turn in range(1500):
        store, key = stores[int(rng.integers(3))], int(rng.integers(KEYS))
        if turn % 4 == 0:
            attacked(tmp_path, turn // 4, rng)
        if rng.random() < 0.5:
            found = store.get(key)
            missing += found is None
            assert found is None or same(found, key)
        else:
            assert same(store.get_or_create(key, lambda key=key: value_of(key)), key)
        right += 1
    stats = [store.stats()["disk"] for store in stores]
    assert sum(one["corrupt"] for one in stats) > 50 and sum(one["hits"] for one in stats) > 200
    assert sum(one["evictions"] for one in stats) > 20 and missing and right == 1500
    held = sum(os.lstat(file).st_size for file in tmp_path.glob("*.morpho"))
    assert held <= LIMIT * (1 + 3 / 4) + 3000


READER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
import numpy as np
from test_cache_attacked import KEYS, LIMIT, same, value_of
from morpho.runtime.object_cache.cache import ObjectCache
draws, store = np.random.default_rng(int(sys.argv[2])), ObjectCache(0, Path(sys.argv[1]), LIMIT)
for turn in range(400):
    key = int(draws.integers(KEYS))
    assert same(store.get_or_create(key, lambda: value_of(key)), key), key
stats = store.stats()["disk"]
print(stats["hits"], stats["evictions"])
"""


def test_processes_that_evict_beside_each_other(tmp_path: Path, rng: np.random.Generator) -> None:
    """Real processes, and damage while they run: all their values are right, and they end well."""
    readers = [subprocess.Popen([sys.executable, "-c", READER, str(tmp_path), str(number), str(Path(__file__).parent)],
                                stdout=subprocess.PIPE, text=True) for number in range(2)]
    damaged = 0
    while any(reader.poll() is None for reader in readers):
        damaged += attacked(tmp_path, damaged, rng)
        time.sleep(0.001)
    told = [reader.communicate()[0].split() for reader in readers]
    assert [reader.returncode for reader in readers] == [0, 0] and damaged
    assert all(int(evictions) > 0 for _, evictions in told)


@pytest.mark.parametrize("folder", [False, True])
def test_a_value_that_ends_before_it_is_given_is_given_once(folder: bool, tmp_path: Path) -> None:
    """A clock that runs faster than the value's time: it is made for each call, and each call ends."""
    now, made = [0.0], []  # type: ignore[var-annotated]

    def clock() -> float:
        now[0] += 10.0
        return now[0]

    store = ObjectCache(1 << 20, tmp_path if folder else None, ttl_s=1.0, clock=clock)

    def make() -> int:
        made.append(len(made))
        assert len(made) < 9, "made again and again"
        return len(made)

    assert [store.get_or_create("a", make) for _ in range(3)] == [1, 2, 3]


def test_a_clock_that_goes_back_keeps_nothing_longer_than_its_time(tmp_path: Path) -> None:
    now = [1e6]
    store = ObjectCache(1 << 20, tmp_path, ttl_s=10.0, clock=lambda: now[0])
    store.put("a", 1)
    store.put("b", 2)
    now[0] -= 1e5
    other = ObjectCache(1 << 20, tmp_path, ttl_s=10.0, clock=lambda: now[0])
    assert (store.get("a"), other.get("b"), other.get("a")) == (None, None, None)
    store.put("c", 3)
    now[0] -= 5
    assert store.get("c") is None
    store.put("c", 4)
    now[0] += 9
    assert store.get("c") == 4


def test_keys_that_memory_holds_equal_are_equal_on_disk(tmp_path: Path) -> None:
    """Else `put(1.0)` would leave an older value of `put(1)` there, for the next process."""
    equal = [(1, 1.0, True, np.int64(1), np.float32(1), 1 + 0j), (0.0, -0.0, False),
             (("a", (2, b"x")), ("a", (2.0, b"x"))), (frozenset([1, "a"]), frozenset([True, "a"])),
             (2**70, float(2**70)), (0.5, np.float64(0.5))]
    for keys in equal:
        for first in keys:
            for second in keys:
                ObjectCache(1 << 20, tmp_path).put(first, "old")
                ObjectCache(1 << 20, tmp_path).put(second, "new")
                assert ObjectCache(1 << 20, tmp_path).get(first) == "new", (first, second)
        ObjectCache(1 << 20, tmp_path).remove(keys[-1])
        assert ObjectCache(1 << 20, tmp_path).get(keys[0]) is None
    different = [1, "1", b"1", (1,), ((1,),), 0.1, np.float32(0.1), 2**53 + 1, 2.0**53, None, "", b"", (), 1j]
    store = ObjectCache(1 << 20, tmp_path)
    for number, key in enumerate(different):
        store.put(key, number)
    assert [ObjectCache(1 << 20, tmp_path).get(key) for key in different] == list(range(len(different)))


def test_what_contains_itself_is_said(tmp_path: Path) -> None:
    loop: list[object] = []
    loop.append(loop)
    table: dict[str, object] = {}
    table["a"] = (1, table)
    deep: object = 0
    for _ in range(5000):
        deep = [deep]
    key: object = 0
    for _ in range(5000):
        key = (key,)
    store = ObjectCache(1 << 20, tmp_path)
    for value in (loop, table, deep):
        with pytest.raises(ArgumentError, match="levels deep"):
            store.put("a", value)
    with pytest.raises(ArgumentError, match="levels deep"):
        store.put(key, 1)
    assert store.get("a") is None
    kept = mo.cache(lambda value: value)
    for value in (loop, table, deep):
        with pytest.raises(ArgumentError, match="levels deep"):
            kept(value)
        with pytest.raises(ArgumentError, match="levels deep"):
            mo.cache().put("a", [mo.ones(2), value])
    fine: object = 0
    for _ in range(90):
        fine = [fine]
    store.put("a", fine)
    assert ObjectCache(1 << 20, tmp_path).get("a") == fine


@pytest.mark.parametrize("ttl_s", ["x", None, True, -1, 0, float("nan"), [1]])
def test_a_time_that_is_none_is_said(ttl_s: object) -> None:
    if ttl_s is None:
        ObjectCache(1 << 20, ttl_s=None)
        return
    with pytest.raises((ValueFault, ArgumentError), match="ttl_s"):
        ObjectCache(1 << 20, ttl_s=ttl_s)  # type: ignore[arg-type]


def test_two_processes_that_need_each_others_values_do_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "NESTED_S", 0.2)

    def run(mine: str, other: str) -> str:
        store = ObjectCache(1 << 20, tmp_path)

        def make() -> str:
            (tmp_path / f"{mine}.begun").touch()
            ends = time.monotonic() + 30
            while not (tmp_path / f"{other}.begun").exists() and time.monotonic() < ends:
                time.sleep(0.01)
            return mine + str(store.get_or_create(other, lambda: other))

        return str(store.get_or_create(mine, make))

    child = os.fork()
    if child == 0:
        try:
            (tmp_path / "said").write_text(run("b", "a"))
        finally:
            os._exit(0)
    said = run("a", "b")
    os.waitpid(child, 0)
    found = [said, (tmp_path / "said").read_text()]
    assert [set(text) for text in found] == [{"a", "b"}] * 2, "its own, with the other's, finished or not"
