"""Datasets, token files and the loader: one order for any number of threads, bounded, overlapped, resumed exactly."""

from __future__ import annotations

import gc
import itertools
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, IndexFault, MemoryLimit, MorphoError, ShapeError, ValueFault
from morpho.data import batch_size as sizes

TIMEOUT_S = 30  # of waits that end at once unless something is broken


class Numbers(mo.data.Dataset):
    """The items are their numbers; what was asked for is remembered."""

    def __init__(self, count: int) -> None:
        self.count, self.asked, self.lock = count, [], threading.Lock()  # type: ignore[var-annotated]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> int:
        with self.lock:
            self.asked.append(number)
        return number


def epoch(loader: mo.data.DataLoader) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def flat(batches: list[list[int]]) -> list[int]:
    return [item for batch in batches for item in batch]


def loader_threads() -> int:
    return sum(thread.name.startswith("morpho-loader") for thread in threading.enumerate())


# -- the order ---------------------------------------------------------------------------------------------------------
def test_a_shuffle_is_a_permutation_that_looks_random(seed: int) -> None:
    """For every small count and some large ones; epochs and seeds differ; no place is favoured."""
    for count in [*range(70), 1000, 4097]:
        assert sorted(mo.data.permuted(np.arange(count), count, seed).tolist()) == list(range(count))
    first, second, third = (mo.data.permuted(np.arange(4096), 4096, seed, e) for e in (0, 1, 2))
    other = mo.data.permuted(np.arange(4096), 4096, seed + 1, 0)
    for a, b in itertools.combinations((np.arange(4096), first, second, third, other), 2):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.1 and (a == b).mean() < 0.01
    huge = 10**12  # computed where it is asked for: nothing of this length is stored
    found = mo.data.permuted(np.arange(1000), huge, seed)
    assert len(set(found.tolist())) == 1000 and found.min() >= 0 and huge // 2 < found.max() < huge


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    """Not on workers or prefetch; each epoch has its own; without shuffling it is the dataset's."""
    def make(**how: Any) -> mo.data.DataLoader:
        return mo.data.DataLoader(Numbers(23), batch_size=4, **how)

    assert flat(epoch(make())) == list(range(23)) == flat(epoch(make(num_workers=3)))
    loaders = [make(shuffle=True, seed=7, num_workers=w, prefetch_factor=p)
               for w, p in ((0, 2), (1, 1), (2, 3), (4, 2))]
    for _ in range(2):
        found = [epoch(loader) for loader in loaders]
        assert all(one == found[0] for one in found) and sorted(flat(found[0])) == list(range(23))
    assert found[0] != epoch(make(shuffle=True, seed=7)) != epoch(make(shuffle=True, seed=8))
    assert len(make()) == 6 and len(make(drop_last=True)) == 5 and len(epoch(make(drop_last=True))[-1]) == 4


@pytest.mark.parametrize("workers", [0, 2])
def test_a_position_is_resumed_exactly(workers: int) -> None:
    """At every batch of an epoch, through JSON; the epochs after it are the same too."""
    def make() -> mo.data.DataLoader:
        return mo.data.DataLoader(Numbers(11), batch_size=3, shuffle=True, seed=3, num_workers=workers)

    whole = make()
    all_batches = [batch for _ in range(4) for batch in epoch(whole)]
    running, seen = make(), 0
    for _ in range(2):
        for batch in running:
            assert batch.tolist() == all_batches[seen]
            seen += 1
            other = make()
            other.load_state_dict(json.loads(json.dumps(running.state_dict())))
            rest = epoch(other) + epoch(other)
            assert rest == all_batches[seen:seen + len(rest)]
    with pytest.raises(ArgumentError, match="batch_size=3, not 2"):
        mo.data.DataLoader(Numbers(11), batch_size=2).load_state_dict(running.state_dict())


def test_a_loop_left_early_ends_its_epoch() -> None:
    """The next one is whole and another; two at once are refused."""
    loader = mo.data.DataLoader(Numbers(6), batch_size=2, shuffle=True, num_workers=1)
    next(iter(loader))
    assert sorted(flat(epoch(loader))) == list(range(6)) and loader.epoch == 2
    first = iter(loader)
    next(first)
    next(iter(loader))
    with pytest.raises(ArgumentError, match="another loop"):
        next(first)


# -- threads -----------------------------------------------------------------------------------------------------------
class Watched(mo.data.Dataset):
    """Says when each item has been read, and keeps count of how far ahead reading is."""

    def __init__(self, count: int) -> None:
        self.read = [threading.Event() for _ in range(count)]
        self.delivered, self.furthest = 0, 0

    def __len__(self) -> int:
        return len(self.read)

    def __getitem__(self, number: int) -> int:
        self.furthest = max(self.furthest, number + 1 - self.delivered)
        self.read[number].set()
        return number


@pytest.mark.parametrize(("workers", "prefetch"), [(1, 2), (2, 2), (3, 1)])
def test_reading_goes_on_while_the_loop_computes_and_no_further_than_asked(workers: int, prefetch: int) -> None:
    """While the loop is at a batch the next ones, `prefetch` of each worker, are read without being asked for; never
    more."""
    data = Watched(12)
    ahead = workers * prefetch
    loader = mo.data.DataLoader(data, batch_size=1, num_workers=workers, prefetch_factor=prefetch)
    for number, batch in enumerate(loader):
        assert batch.tolist() == [number]
        for coming in range(number + 1, min(number + 1 + ahead, 12)):  # "computing": the loop asks for nothing
            assert data.read[coming].wait(TIMEOUT_S), f"item {coming} was not read ahead"
        data.delivered = number + 1
    assert data.furthest <= ahead + 1  # a batch counts as taken when the loop has it


def test_several_threads_read_at_the_same_time() -> None:
    """Two items that wait for each other."""
    meeting = threading.Barrier(2)

    class Meeting(Numbers):
        def __getitem__(self, number: int) -> int:
            meeting.wait(TIMEOUT_S)
            return number

    assert epoch(mo.data.DataLoader(Meeting(4), num_workers=2)) == [[0], [1], [2], [3]]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_what_a_dataset_raises_arrives_in_the_loop(workers: int) -> None:
    """At its batch, after those before it, as what it was; the threads are gone then."""

    class Broken(Numbers):
        def __getitem__(self, number: int) -> int:
            if number == 5:
                raise ZeroDivisionError("item 5")
            return number

    seen = []
    with pytest.raises(ZeroDivisionError, match="item 5"):
        for batch in mo.data.DataLoader(Broken(8), batch_size=2, num_workers=workers):
            seen.append(batch.tolist())
    assert seen == [[0, 1], [2, 3]] and loader_threads() == 0


def test_an_abandoned_loop_takes_its_threads_along() -> None:
    """Left by break, dropped, or never begun."""
    data = Numbers(1000)
    loader = mo.data.DataLoader(data, num_workers=2)
    for _ in loader:
        assert loader_threads() == 2
        break
    gc.collect()
    assert loader_threads() == 0
    loop = iter(loader)
    next(loop)
    del loop
    gc.collect()
    assert loader_threads() == 0 and len(data.asked) < 20
    iter(loader)
    assert loader_threads() == 0
    assert epoch(mo.data.DataLoader(Numbers(0), num_workers=2)) == []


def test_settings_hold_in_the_threads() -> None:
    """Those of whoever began the loop."""

    class Casting(Numbers):
        def __getitem__(self, number: int) -> Any:
            return (mo.ones((1, 1)) @ mo.ones((1, 1))).dtype is mo.bfloat16

    with mo.amp.autocast("bfloat16"):
        assert epoch(mo.data.DataLoader(Casting(1), num_workers=1)) == [[True]]


# -- datasets ----------------------------------------------------------------------------------------------------------
def test_tensors_and_trees_become_batches() -> None:
    """Rows taken at once and one by one are the same; dicts, lists, strings and numbers."""
    data = mo.data.TensorDataset(mo.arange(10).reshape((5, 2)), mo.arange(5, dtype=mo.float32).astype(mo.bfloat16))
    for how in ({}, {"collate_fn": mo.data.default_collate}):
        (x, y), = list(mo.data.DataLoader(data, batch_size=5, shuffle=True, seed=2, **how))  # type: ignore[arg-type]
        assert (x[:, 0] // 2).tolist() == y.astype("int64").tolist() and y.dtype is mo.bfloat16
        assert sorted(y.tolist()) == [0, 1, 2, 3, 4]
    batch = mo.data.default_collate([{"a": [1, 2.0], "s": "x"}, {"a": [3, 4.0], "s": "y"}])
    assert batch["a"][0].tolist() == [1, 3] and batch["a"][1].dtype is mo.float32 and batch["s"] == ["x", "y"]
    with pytest.raises(ShapeError, match="do not stack"):
        mo.data.default_collate([np.ones(2), np.ones(3)])
    with pytest.raises(ShapeError, match="first axes"):
        mo.data.TensorDataset(mo.ones(2), mo.ones(3))
    for wrong in ({"batch_size": 0}, {"num_workers": -1}, {"prefetch_factor": 0}):
        with pytest.raises(ArgumentError, match="DataLoader"):
            mo.data.DataLoader([1], **wrong)
    with pytest.raises(ArgumentError, match="no length"):
        mo.data.DataLoader(5)


@pytest.mark.parametrize("kind", ["uint16", "uint32", "plain"])
def test_token_files(kind: str, tmp_path: Path) -> None:
    """Windows with what follows them, of a header's or a given dtype, at every stride."""
    tokens = np.arange(100) + (70_000 if kind == "uint32" else 0)
    path = tmp_path / "tokens"
    if kind == "plain":
        tokens.astype("<u2").tofile(path)
    else:
        mo.data.write_tokens(path, tokens)
    given = {"dtype": "uint16"} if kind == "plain" else {}
    data = mo.data.TokenFile(path, 9, **given)  # type: ignore[arg-type]
    assert data.tokens.dtype == ("uint32" if kind == "uint32" else "uint16") and isinstance(data.tokens, np.memmap)
    assert len(data) == 11 and len(mo.data.TokenFile(path, 9, stride=1, **given)) == 91  # type: ignore[arg-type]
    x, y = data[10]
    assert (x == tokens[90:99]).all() and (y == tokens[91:100]).all() and x.dtype == np.int32
    pairs = list(mo.data.DataLoader(data, batch_size=4, shuffle=True, num_workers=2))
    assert all((y - x == 1).all().item() for x, y in pairs) and pairs[0][0].shape == (4, 9)
    assert sorted(int(row) for x, _ in pairs for row in x[:, 0].tolist()) == tokens[:99:9].tolist()
    with pytest.raises(IndexFault, match="there are 11"):
        data[11]
    with pytest.raises(ValueFault, match=r"token \d+ at position 50 is not below"):
        mo.data.TokenFile(path, 9, vocabulary=int(tokens[50]), **given).windows(np.array([5]))  # type: ignore[arg-type]


def test_damaged_token_files_are_refused(tmp_path: Path) -> None:
    """Cut off, grown, of another kind, with a header that lies: an error before anything is mapped."""
    path = mo.data.write_tokens(tmp_path / "good.npy", np.arange(50))
    good = path.read_bytes()
    bad = tmp_path / "bad.npy"

    def refused(content: bytes, match: str, **how: Any) -> None:
        bad.write_bytes(content)
        with pytest.raises(MorphoError, match=match):
            mo.data.TokenFile(bad, 4, **how)

    refused(good[:-2], "speaks of 50 tokens")
    refused(good + b"xx", "speaks of 50 tokens")
    refused(good[:60], "damaged header")
    refused(good.replace(b"(50,)", b"(9999999999999,)".ljust(5))[:len(good)], "header|speaks")
    refused(good.replace(b"<u2", b"<f2"), "not a line of uint16")
    refused(good.replace(b"<u2", b"|O8"), "not a line of uint16|damaged")
    refused(good, "holds uint16, not uint32", dtype="uint32")
    refused(b"abc", "no header")
    refused(b"abc", "no whole number", dtype="uint16")
    refused(b"", "has 0 tokens", dtype="uint16")
    with pytest.raises(MorphoError, match="cannot be read"):
        mo.data.TokenFile(tmp_path / "none", 4)
    with pytest.raises(MorphoError, match="do not fit"):
        mo.data.write_tokens(bad, [-1])
    with pytest.raises(MorphoError, match="one window needs"):
        mo.data.TokenFile(path, 50)


# -- batch size --------------------------------------------------------------------------------------------------------
def test_the_best_batch_size_is_the_fastest_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock of our own: 4 items take 1 s, 8 take 4 s; 64 do not fit. The limit holds while trying."""
    seconds = {1: 1.0, 4: 1.0, 8: 4.0}
    ran: list[int] = []

    class Clock:
        ticks = 0.0

        @staticmethod
        def perf_counter() -> float:
            return Clock.ticks

    monkeypatch.setattr(sizes, "time", Clock)

    def step(x: mo.Tensor) -> mo.Tensor:
        ran.append(x.shape[0])
        Clock.ticks += seconds[x.shape[0]]
        return x + 1

    def make(size: int) -> mo.Tensor:
        return mo.ones((size, 1 << 16)).realise()  # 256 KiB an item

    gc.collect()  # what others have left, and would be given back in the midst of it
    mo.pool.trim()
    limit = int(mo.pool.stats()["live_bytes"]) + (12 << 20)
    found = mo.data.best_batch_size(step, make, memory_limit=limit, candidates=(64, 1, 8, 4, 256))
    assert found.best == int(found) == 4 and ran == [1] * 4 + [4] * 4 + [8] * 4
    assert [(t.size, t.fits) for t in found.trials] == [(1, True), (4, True), (8, True), (64, False)]
    assert found.trials[1].items_per_s == 4.0 and found.trials[2].peak_bytes >= 8 << 18
    assert "best" in str(found).splitlines()[2] and "over the limit" in str(found)
    with pytest.raises(MemoryLimit, match="even a batch of 64"):
        mo.data.best_batch_size(step, make, memory_limit=limit, candidates=(64,))
    with pytest.raises(ArgumentError, match="candidates"):
        mo.data.best_batch_size(step, make, candidates=(0,))
