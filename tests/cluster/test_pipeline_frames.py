"""Messages: what is short, corrupt, stale, too large or of another sender is an error that names the sender."""

from __future__ import annotations

import numpy as np
import pytest

from morpho.cluster.transport.frame import HEADER_BYTES, Header, Kind, TransportError, pack, unpack
from morpho.cluster.transport.rounding import decode, encode, rounded
from morpho.cluster.transport.shim import Shim

HEADER = Header(Kind.ACTIVATION, epoch=4, sender=2, request=9, stage=1, position=17)


def frame(x: np.ndarray | None = None) -> np.ndarray:
    return pack(HEADER, np.arange(12, dtype=np.float32).reshape(1, 3, 4) if x is None else x)


def test_a_frame_comes_back_as_it_was_packed():
    header, payload = unpack(frame(), sender=2, epoch=4)
    assert (header.kind, header.request, header.stage, header.position) == (Kind.ACTIVATION, 9, 1, 17)
    assert header.shape == (1, 3, 4) and np.array_equal(payload, np.arange(12).reshape(1, 3, 4))


@pytest.mark.parametrize("size", [0, 3, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 47])
def test_a_short_message_names_its_sender(size):
    with pytest.raises(TransportError, match="rank 2 "):
        unpack(frame()[:size], sender=2, epoch=4)


def test_every_flipped_bit_is_found():
    good = frame()
    for byte in range(good.size):
        bad = good.copy()
        bad[byte] ^= 1 << (byte % 8)
        with pytest.raises(TransportError, match="rank 2 "):
            unpack(bad, sender=2, epoch=4)


def test_stale_oversized_and_foreign_messages():
    with pytest.raises(TransportError, match="rank 2 is stale: it is of epoch 4, and this is 5"):
        unpack(frame(), sender=2, epoch=5)
    with pytest.raises(TransportError, match="rank 2 says it has 48 bytes, more than the 40"):
        unpack(frame(), sender=2, epoch=4, most_bytes=40)
    with pytest.raises(TransportError, match="a message from rank 1 says it is from rank 2"):
        unpack(frame(), sender=1, epoch=4)


def test_random_bytes_are_never_a_frame(rng):
    for size in rng.integers(0, 300, 300):
        with pytest.raises(TransportError):
            unpack(rng.integers(0, 256, size, dtype=np.uint8), sender=0, epoch=0)


@pytest.mark.parametrize(("dtype", "error"), [("f32", 0), ("f16", 2**-11), ("bf16", 2**-8), ("int8", 2**-7)])
def test_types_of_links_round_as_they_say(rng, dtype, error):
    x = rng.standard_normal((2, 5, 33)).astype(np.float32)
    found = rounded(x, dtype)
    assert np.abs(found - x).max() <= error * np.abs(x).max()
    assert np.array_equal(rounded(found, dtype), found) or dtype == "int8"
    special = np.array([[np.inf, -np.inf, 0.0, -0.0, 1e-40]], np.float32)
    if dtype != "int8":
        assert np.isinf(rounded(special, dtype)[0, :2]).all()
    assert np.isnan(rounded(np.array([[np.nan, 1.0]], np.float32), "bf16")[0, 0])


def test_half_precision_is_half_the_bytes():
    x, out = np.ones((1, 4, 64), np.float32), np.empty(4096, np.uint8)
    assert encode(x, "f16", out) * 2 == encode(x, "f32", out)
    assert encode(x, "int8", out) == 4 * 64 + 4 * 4
    assert np.array_equal(decode(out[:272], "int8", x.shape), x)


def test_the_shim_is_seeded():
    one, two = (Shim(1e-3, 1e6, jitter=0.5, seed=3) for _ in range(2))
    assert [one.due(0.0, 100) for _ in range(5)] == [two.due(0.0, 100) for _ in range(5)]
