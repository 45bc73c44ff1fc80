"""The pool: size classes, blocks and views, regions."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pytest
from pools import SIZES

from morpho.base import dtypes
from morpho.base.errors import ArgumentError, DeviceError, MemoryLimit, ValueFault
from morpho.runtime.memory.pool import ALIGNMENT_BYTES, HUGE_PAGE_BYTES, Piece, Pool, size_class

# ------------------------------------------------------------------------------------------------- size classes


def test_classes_round_up_waste_at_most_a_quarter_and_are_aligned() -> None:
    for nbytes in [*range(1, 5000), *(2**k + d for k in range(12, 45) for d in (-1, 0, 1))]:
        capacity = size_class(nbytes)
        assert capacity >= nbytes
        assert capacity % ALIGNMENT_BYTES == 0
        assert capacity - nbytes < max(ALIGNMENT_BYTES, capacity / 4)
        assert size_class(capacity) == capacity
        assert size_class(capacity + 1) > capacity


def test_there_are_four_classes_per_power_of_two() -> None:
    assert len({size_class(n) for n in range(1025, 2049)}) == 4


def test_large_blocks_begin_where_a_huge_page_does() -> None:
    """Else those of 2.5 MB have room for one only by chance; the last byte is theirs as well."""
    pool = Pool()
    for nbytes in (2 << 20, 5 << 19, 3 << 20, 7 << 19, 5 << 20):
        block = pool.acquire(nbytes)
        assert block.address % HUGE_PAGE_BYTES == 0
        block.numpy("uint8", nbytes)[-1] = 1
        del block


def test_1500_after_releasing_1024_does_not_get_the_1024_block() -> None:
    pool = Pool()
    block = pool.acquire(1024)
    small = block.address
    del block
    larger = pool.acquire(1500)
    assert larger.address != small
    assert larger.capacity >= 1500
    larger.numpy(np.uint8, 1500)[:] = 7
    again = pool.acquire(1024)
    assert again.address == small


# ---------------------------------------------------------------------------------------------- blocks and views


@pytest.mark.parametrize("nbytes", SIZES)
def test_every_byte_asked_for_is_there_and_aligned(nbytes: int) -> None:
    pool = Pool()
    for _ in range(3):
        block = pool.acquire(nbytes)
        assert block.address % ALIGNMENT_BYTES == 0
        assert (block.nbytes, block.capacity) == (nbytes, size_class(nbytes))
        view = block.numpy(np.uint8, nbytes)
        view[:] = 255
        assert view.size == nbytes and (view == 255).all()
        assert np.asarray(block).nbytes == nbytes


@pytest.mark.parametrize("nbytes", SIZES)
def test_zero_is_zero_on_fresh_and_on_dirty_blocks(nbytes: int) -> None:
    pool = Pool()
    assert not pool.acquire(nbytes, zero=True).numpy(np.uint8, nbytes).any()
    dirty = pool.acquire(nbytes)
    dirty.numpy(np.uint8, nbytes)[:] = 255
    address = dirty.address
    del dirty
    clean = pool.acquire(nbytes, zero=True)
    assert clean.address == address, "the dirty block itself must come back"
    assert not clean.numpy(np.uint8, nbytes).any()


@pytest.mark.parametrize("nbytes", [1000, 5_000_000])
def test_a_released_block_is_reused(nbytes: int) -> None:
    pool = Pool()
    addresses = {pool.acquire(nbytes).address for _ in range(10)}
    assert len(addresses) == 1
    assert pool.stats()["hits"] == 9


@pytest.mark.parametrize("nbytes", [1000, 5_000_000])
def test_a_live_view_is_never_recycled(nbytes: int) -> None:
    pool = Pool()
    block = pool.acquire(nbytes)
    address = block.address
    view = block.numpy(np.uint8, nbytes)[1:][::2].reshape(-1, 1).T
    del block
    gc.collect()
    view[:] = 3
    others = [pool.acquire(nbytes) for _ in range(5)]
    assert address not in {other.address for other in others}
    for other in others:
        other.numpy(np.uint8, nbytes)[:] = 9
    assert pool.trim() == 0
    assert (view == 3).all()
    del view
    assert pool.acquire(nbytes).address == address


def test_numpy_sees_dtypes_strides_offsets() -> None:
    block = Pool().acquire(96)
    block.numpy(np.int32, 24)[:] = np.arange(24)
    assert block.numpy(dtypes.int32, (2, 3), offset=8).tolist() == [[2, 3, 4], [5, 6, 7]]
    assert block.numpy("<i4", (3, 2), strides=(4, 12)).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert block.numpy(np.int32, 24, strides=(-4,), offset=92).tolist() == list(range(23, -1, -1))
    assert block.numpy(np.float64, ()).shape == ()


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [((25,), None, 0), ((24,), None, 4), ((2,), (96,), 0), ((2,), (-4,), 0), ((1,), None, -4), ((-2,), None, 0)],
)
def test_numpy_refuses_to_look_outside(shape: tuple[int, ...], strides: tuple[int, ...] | None, offset: int) -> None:
    with pytest.raises(ValueFault, match="96 bytes cannot be seen as"):
        Pool().acquire(96).numpy(np.int32, shape, strides, offset)


def test_a_read_only_view_stays_so() -> None:
    view = Pool().acquire(64).numpy(np.float32, 16, readonly=True)
    with pytest.raises(ValueError):
        view[0] = 1
    with pytest.raises(ValueError):
        view.flags.writeable = True
    with pytest.raises(ValueError):
        view[2:].flags.writeable = True


def test_a_handle_is_neither_copied_nor_pickled() -> None:
    block = Pool().acquire(64)
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ArgumentError, match="neither be copied"):
            duplicate(block)


def test_bad_requests() -> None:
    pool = Pool()
    with pytest.raises(ValueFault, match="-1 bytes"):
        pool.acquire(-1)
    with pytest.raises(ArgumentError, match="not a number of bytes"):
        pool.acquire(1.5)  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="cuda:0"):
        pool.acquire(64, device="cuda:0")
    with pytest.raises(ValueFault, match="negative"):
        Pool(limit_bytes=-1)
    assert pool.stats()["acquires"] == 0


def test_a_block_keeps_its_pool() -> None:
    view = Pool().acquire(5_000_000).numpy(np.uint8, 5_000_000)
    gc.collect()
    view[:] = 1
    assert view.sum() == 5_000_000


# ------------------------------------------------------------------------------------------------------- regions


def test_region_pieces_are_aligned_disjoint_and_released_at_once() -> None:
    pool = Pool()
    with pool.region() as region:
        pieces = [region.acquire(n, zero=True) for n in (1, 100, 0, 70_000, 64, 3_000_000)]
        views = [piece.numpy(np.uint8, piece.nbytes) for piece in pieces]
        assert not any(view.any() for view in views)
        for number, view in enumerate(views):
            view[:] = number + 1
        assert all((view == number + 1).all() for number, view in enumerate(views))
        assert all(piece.address % ALIGNMENT_BYTES == 0 and isinstance(piece, Piece) for piece in pieces)
        assert pool.stats()["regions"] == 1
        assert pool.stats()["live_bytes"] == region.capacity_bytes >= region.used_bytes
        del pieces, views, view
    assert (pool.stats()["live_bytes"], pool.stats()["regions"]) == (0, 0)
    with pytest.raises(ValueFault, match="closed"):
        region.acquire(1)


def test_a_planned_region_is_one_block() -> None:
    pool = Pool()
    with pool.region(1_000_000) as region:
        for _ in range(100):
            region.acquire(10_000)
        assert pool.stats()["live_blocks"] == 1


def test_a_view_of_a_piece_outlives_its_region() -> None:
    pool = Pool()
    with pool.region() as region:
        view = region.acquire(1000).numpy(np.float64, 125)
        view[:] = 2.5
    others = [pool.acquire(65_536) for _ in range(4)]
    for other in others:
        other.numpy(np.uint8, 65_536)[:] = 0
    pool.trim()
    assert (view == 2.5).all()
    assert pool.stats()["live_blocks"] == 5
    del view
    assert pool.stats()["live_blocks"] == 4


def test_a_region_closes_after_an_error() -> None:
    pool = Pool(limit_bytes=1 << 20)
    with pytest.raises(MemoryLimit), pool.region() as region:
        region.acquire(1000)
        region.acquire(1 << 21)
    assert (pool.stats()["live_blocks"], pool.stats()["regions"]) == (0, 0)
