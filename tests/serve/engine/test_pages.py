"""Pages: who holds which, prefixes in common, what goes first; against a model that keeps plain lists."""

from __future__ import annotations

import numpy as np
import pytest

import morpho as mo
from morpho.serve.engine.pages import Holding, Pages
from morpho.tensor.functions.neural.paged import paged_attention, write_pages


def begin(pages: Pages, tokens: list[int]) -> tuple[Holding, int]:
    """A sequence of these tokens, all computed, and how many were found."""
    holding = Holding()
    found = pages.match(tokens[:-1])
    length, _ = pages.take(found, holding)
    assert pages.extend(holding, len(tokens))
    pages.commit(holding, tokens, len(tokens))
    return holding, length


def test_prefixes_are_found_to_the_token() -> None:
    pages = Pages(8, page_tokens=4)
    first, _ = begin(pages, [1, 2, 3, 4, 5, 6])
    second, found = begin(pages, [1, 2, 3, 4, 5, 9])  # the first's last page is still being written
    assert found == 4 and first.pages[0] == second.pages[0] and first.pages[1] != second.pages[1]
    pages.release(first, [1, 2, 3, 4, 5, 6], 6)
    third, found = begin(pages, [1, 2, 3, 4, 5, 6, 7])
    assert found == 6 and third.pages[0] == second.pages[0]
    assert begin(pages, [1, 2, 7])[1] == 2  # the beginning of a full page
    assert begin(pages, [2, 2])[1] == 0


def test_equal_pages_become_one() -> None:
    pages = Pages(8, page_tokens=2)
    both = [Holding(), Holding()]
    for holding in both:
        assert pages.extend(holding, 4)
    assert len(pages.free) == 4
    for holding in both:
        pages.commit(holding, [1, 2, 3, 4], 4)
    assert both[0].pages == both[1].pages and len(pages.free) == 6


def test_what_was_not_used_for_long_goes_first() -> None:
    pages = Pages(5, page_tokens=2)
    for tokens in ([1, 1, 1, 1], [2, 2, 2, 2]):
        pages.release(begin(pages, tokens)[0], tokens, 4)
    pages.release(begin(pages, [1, 1, 1, 1])[0], [1, 1, 1, 1], 4)  # used again
    assert pages.cached == 4 and len(pages.free) == 1
    assert pages.allocate() is not None and pages.allocate() is not None and pages.evictions == 1
    assert pages.match([2, 2, 2, 2]).length == 2 and pages.match([1, 1, 1, 1]).length == 4


def test_what_is_used_again_and_again_takes_no_more_memory() -> None:
    pages = Pages(4, page_tokens=2)
    for _ in range(1000):
        pages.release(begin(pages, [1, 2, 3])[0], [1, 2, 3], 3)
    assert len(pages._leaves) <= 4 * 4 + 64 and pages.available == 4


def test_adapters_have_nothing_in_common() -> None:
    pages = Pages(4, page_tokens=2)
    pages.release(begin(pages, [1, 2, 3])[0], [1, 2, 3], 3)
    assert pages.match([1, 2, 3]).length == 3 and pages.match([1, 2, 3], "other").length == 0
    pages.clear()
    assert pages.match([1, 2, 3]).length == 0 and len(pages.free) == 4


def test_what_is_forgotten_is_not_found_by_who_holds_its_beginning() -> None:
    pages = Pages(6, page_tokens=2)
    pages.release(begin(pages, [1, 2, 3, 4])[0], [1, 2, 3, 4], 4)
    holding, _ = begin(pages, [1, 2, 7])
    pages.clear()  # [3, 4] is free now, and [1, 2] held
    assert pages.extend(holding, 4)
    pages.commit(holding, [1, 2, 3, 4], 4)
    pages.release(holding, [1, 2, 3, 4], 4)
    assert len({*pages.free}) == len(pages.free) and pages.available == 6


def test_random_use_keeps_account(rng: np.random.Generator) -> None:
    """At any time a page is free, held, or kept: once; and what is found are the tokens that were put there."""
    pages, held = Pages(24, page_tokens=3), []
    content: dict[int, list[int]] = {}
    for _ in range(2500):
        if held and (rng.random() < 0.5 or len(held) > 5):
            holding, tokens = held.pop(int(rng.integers(len(held))))
            pages.release(holding, tokens, len(tokens))
        elif rng.random() < 0.02:
            pages.clear()
        else:
            tokens, holding = rng.integers(0, 2, int(rng.integers(1, 14))).tolist(), Holding()
            found = pages.match(tokens[:-1])
            length, copy = pages.take(found, holding)
            if copy is not None:
                content[copy[1]] = list(content[copy[0]])
            if not pages.extend(holding, len(tokens)):
                pages.release(holding, tokens, length)
                continue
            for at, token in enumerate(tokens):
                if at < length:  # what the tree says is there, is there
                    assert content[holding.pages[at // 3]][at % 3] == token
                else:
                    content.setdefault(holding.pages[at // 3], [0] * 3)[at % 3] = token
            pages.commit(holding, tokens, len(tokens))
            held.append((holding, tokens))
        shared = {page for holding, _ in held for page in holding.pages}
        assert pages.used == len(shared) and not shared & set(pages.free)
        assert len(set(pages.free)) == len(pages.free) and pages.available == 24 - len(shared)
    assert pages.evictions


# -- the cache itself --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [mo.float32, mo.bfloat16, mo.float16, mo.float64])
def test_attention_over_pages_has_the_bits_of_attention(dtype: mo.DType, rng: np.random.Generator) -> None:
    pools = [mo.asarray(rng.normal(size=(9, 2, 64, 16))).astype(dtype) for _ in range(2)]
    table, offset = np.stack([rng.permutation(9)[:3] for _ in range(3)]), np.array([0, 70, 150])
    side_by_side = [mo.reshape(mo.permute_dims(mo.take(pool, mo.asarray(table.reshape(-1)), axis=0).reshape(
        (3, 3, 2, 64, 16)), (0, 2, 1, 3, 4)), (3, 2, 192, 16)) for pool in pools]
    for queries in (1, 3, 40):
        q = mo.asarray(rng.normal(size=(3, 4, queries, 16))).astype(dtype)
        wanted = mo.attention(q, *side_by_side, causal=True, offset=mo.asarray(offset.reshape(3, 1)))
        found = paged_attention(q, *pools, mo.asarray(table), mo.asarray(offset))
        assert found.numpy().tobytes() == wanted.numpy().tobytes()


def test_pages_are_written_in_place() -> None:
    """A pool that a compiled function keeps is never copied, whatever is written."""
    pool = mo.State(mo.zeros((16, 2, 64, 8)))

    @mo.compile(dynamic={"new": {0: mo.Dim("n", 1, 8)}, "places": {0: mo.Dim("n", 1, 8)}})
    def write(new: mo.Tensor, places: mo.Tensor) -> mo.Tensor:
        pool.value = write_pages(pool.value, new, places)
        return pool.value[0, 0, 0, 0]

    address = pool.value.numpy().ctypes.data
    for count in (1, 5, 8):
        write(mo.ones((count, 2, 1, 8)), mo.asarray(np.arange(count).reshape(count, 1) * 70))
    assert pool.value.numpy().ctypes.data == address and len(write.specialisations) == 1
    assert [each.aliases for each in dict(write.specialisations).values()] == [{1: 2}]
    assert float(mo.sum(pool.value).item()) == 8 * 2 * 8
