"""New outputs on a device by the native entry: blocks come from the pool's stacks and go back there, without Python."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from native_device import Native

import morpho as mo
from morpho.backends.cuda.driver.free_blocks import ROOM, FreeBlocks
from morpho.backends.driver.entry.block_code import PoolWord
from morpho.runtime.memory import device_memory


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of every block that Python asks for."""
    found: list[int] = []
    plain = device_memory.Block.__init__

    def counted(self: Any, backend: Any, nbytes: int) -> None:
        found.append(nbytes)
        plain(self, backend, nbytes)

    monkeypatch.setattr(device_memory.Block, "__init__", counted)
    return found


def test_results_are_made_and_dropped_natively(native: Native, made: list[int]) -> None:
    x = mo.asarray(np.arange(64, dtype="f").reshape(8, 8), device="cuda")
    f = mo.compile(lambda a: (a * 2 + 1, mo.sum(a, axis=0)))
    for _ in range(3):
        f(x)
    made.clear()
    used, given = native.pool.used_bytes, native.given_back
    held = [f(x) for _ in range(2)]  # the first finds the blocks of the call before it
    made.clear()
    del held
    gc.collect()
    assert native.pool.used_bytes == used
    for turn in range(20):
        first, second = f(x)
        assert first.device == second.device == "cuda:0" and first.shape == (8, 8)
        if turn % 5 == 0:
            np.testing.assert_array_equal(first.numpy(), x.numpy() * 2 + 1)
            np.testing.assert_array_equal(second.numpy(), x.numpy().sum(axis=0))
    assert made == [] and native.given_back - given <= 4  # those that Python had made
    storage = first.elements().storage
    assert storage.own and storage.nbytes == 256 and storage.raw.address == first.elements().address
    again = mo.asarray(first)  # what Python does with such memory
    del first
    np.testing.assert_array_equal((again + 1).numpy(), x.numpy() * 2 + 2)


def test_a_held_result_keeps_its_memory(native: Native) -> None:
    x = mo.asarray(np.arange(16, dtype="f"), device="cuda")
    f = mo.compile(lambda a, b: a * b)
    numbers = [mo.asarray(np.float32(n), device="cuda") for n in range(40)]
    kept = [f(x, n) for n in numbers]
    kept += [f(x, n) for n in numbers]
    assert len({one.elements().address for one in kept}) == 80
    for one, n in zip(kept, [*range(40), *range(40)], strict=True):
        np.testing.assert_array_equal(one.numpy(), np.arange(16, dtype="f") * n)
    del kept, one
    gc.collect()
    assert native.pool.count(512) >= 80


def test_blocks_wait_for_other_streams_through_python(native: Native) -> None:
    x = mo.asarray(np.arange(16, dtype="f"), device="cuda")
    f = mo.compile(lambda a: a + 1)
    for _ in range(4):
        f(x)
    given = native.given_back
    native.pool.words[PoolWord.STREAMS] = 2
    f(x)
    assert native.given_back == given + 1
    native.pool.words[PoolWord.STREAMS] = 1
    f(x)
    assert native.given_back == given + 1


def test_a_full_stack_gives_to_python() -> None:
    over: list[tuple[int, int]] = []
    blocks = FreeBlocks(lambda address, nbytes: over.append((address, nbytes)))
    for number in range(ROOM):
        blocks.use(4096)
        assert blocks.give(4096, 64 + number)
    blocks.use(4096)
    assert not blocks.give(4096, 63) and blocks.used_bytes == 0 and blocks.peak_bytes == 4096
    assert blocks.count(4096) == ROOM and len(blocks.all()) == ROOM
    assert sorted(blocks.drained()) == list(range(64, 64 + ROOM)) and blocks.count(4096) == 0 == blocks.used_bytes
