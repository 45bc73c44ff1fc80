"""Frames: a header of 64 bytes and a payload, checked whole before anything in them is believed.

>>> import numpy as np
>>> raw = pack(Header(Kind.ACTIVATION, epoch=2, sender=1, request=7, stage=1, position=5), np.ones((1, 3), np.float32))
>>> header, payload = unpack(raw, sender=1, epoch=2)
>>> header.position, payload.shape
(5, (1, 3))
"""

from __future__ import annotations

import enum
import math
import struct
import time
from typing import Any, NamedTuple

import numpy as np

from morpho.base.errors import MorphoError, fail
from morpho.cluster.transport.checksum import WEIGHTS, WORD, WRAP, checksum, folded

MAGIC = b"MoF2"
HEADER = struct.Struct("<4sBBBBIIQIIIIIIQII")  # magic .. shape, bytes of the payload, checksum, when it was sent
HEADER_BYTES = HEADER.size  # 64: payloads begin aligned
SUM = HEADER_BYTES - WORD  # where the checksum stands: the lower half of the header's last word
SUM_WEIGHT = int(WEIGHTS[SUM // WORD])
MOST_DIMENSIONS = 4
TABLE_ROW = struct.Struct("<QI")  # request and position of a row
FINAL, TABLE = 1, 2  # flags


class TransportError(MorphoError, ConnectionError):
    """A message that is short, corrupt, stale or too large; it names its sender.

    >>> unpack(b"abc", sender=3, epoch=0)
    Traceback (most recent call last):
    ...
    morpho.cluster.transport.frame.TransportError: [transport] a message from rank 3 has 3 bytes, fewer ...
    """


class Kind(enum.IntEnum):
    """Subject of a message."""

    ACTIVATION = 1  # of tokens of a request, from one stage to the next
    TOKEN = 2  # chosen by the last stage, for the first
    REQUEST = 3  # to every worker: JSON
    FINISHED = 4  # to every worker: a request has ended, or is not wanted any more
    REPORT = 5  # to the worker that the frontend hears: JSON
    MEMORY = 6  # what an encoder made, to the decoder's stages
    STOP = 7  # to every worker
    NEWS = 8  # to every worker: JSON of the frontend
    # What a stage computes next, to those that share its layers: `stage` is the length of the cache, and `final` says
    # that it is a prompt on its way through an encoder.
    SHARE = 9
    PIECE = 10  # of a file of weights: its hash and its bytes; `stage` is the file, `request` the number
    CACHE = 11  # keys and values of a layer (`stage`) of a request that another worker has now


DTYPES: dict[str, np.dtype[Any]] = {
    "bytes": np.dtype(np.uint8), "f32": np.dtype(np.float32), "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16), "int8": np.dtype(np.int8), "i64": np.dtype(np.int64),
}
_KINDS = {int(kind): kind for kind in Kind}
_CODES = {name: number for number, name in enumerate(DTYPES)}
_NAMES = dict(enumerate(DTYPES))


class Header(NamedTuple):
    """Header of a frame. `position` is that of the payload's first token; `dtype` is the type it is sent in."""

    kind: Kind
    epoch: int
    sender: int
    request: int = 0
    stage: int = 0
    position: int = 0
    dtype: str = "bytes"
    shape: tuple[int, ...] = ()
    final: bool = False  # the last part of a prompt, or a single token: logits are wanted
    age_s: float = 0.0  # of what was received: since it was sent, by the clock that processes of one machine share
    table: tuple[tuple[int, int], ...] = ()  # request and position of each row, where rows are of several requests


def payload_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a payload; int8 has a scale of four bytes for each row.

    >>> payload_bytes("int8", (1, 2, 8))
    24
    """
    count = math.prod(shape)
    scales = 4 * math.prod(shape[:-1]) if dtype == "int8" else 0
    return count * DTYPES[dtype].itemsize + scales


def table_bytes(rows: int) -> int:
    """Bytes of the table of requests and positions behind so many rows."""
    return TABLE_ROW.size * rows


def seal(out: np.ndarray, header: Header, nbytes: int) -> int:
    """Header, table and checksum of a frame whose payload already stands in `out`, behind where the header goes: the
    bytes of the whole frame."""
    shape = (*header.shape, *[0] * (MOST_DIMENSIONS - len(header.shape)))
    for row in header.table:
        TABLE_ROW.pack_into(out.data, HEADER_BYTES + nbytes, *row)
        nbytes += TABLE_ROW.size
    HEADER.pack_into(out.data, 0, MAGIC, header.kind, _CODES[header.dtype], len(header.shape),
                     FINAL * header.final | TABLE * bool(header.table), header.epoch, header.sender, header.request,
                     header.stage, header.position, *shape, nbytes, 0, _clock())
    out[SUM:SUM + 4].view(np.uint32)[0] = folded(checksum(out[:HEADER_BYTES + nbytes]))
    return HEADER_BYTES + nbytes


def _clock() -> int:
    """Microseconds, of which only differences count."""
    return time.perf_counter_ns() // 1000 & 0xFFFFFFFF


def pack(header: Header, payload: np.ndarray | bytes) -> np.ndarray:
    """A frame of its own memory: for control messages and tests."""
    if isinstance(payload, bytes):
        flat = np.frombuffer(payload, np.uint8)
        header = header._replace(dtype="bytes", shape=(flat.size,))
    else:
        name = next(name for name, kind in DTYPES.items() if kind == payload.dtype)
        header = header._replace(dtype=name, shape=payload.shape)
        flat = np.ascontiguousarray(payload).reshape(-1).view(np.uint8)
    out = np.empty(HEADER_BYTES + flat.size + table_bytes(len(header.table)), np.uint8)
    out[HEADER_BYTES:HEADER_BYTES + flat.size] = flat
    seal(out, header, flat.size)
    return out


def unpack(raw: Any, sender: int, epoch: int, most_bytes: int = 1 << 31) -> tuple[Header, np.ndarray]:
    """Header and payload (a view of `raw`; int8 and its scales as bytes) of a message that `sender` sent."""
    buffer = np.frombuffer(raw, np.uint8) if isinstance(raw, (bytes, bytearray, memoryview)) else raw
    who = f"a message from rank {sender}"
    if buffer.size < HEADER_BYTES:
        raise fail(TransportError, "transport", f"{who} has {buffer.size} bytes, fewer than a header", line="")
    magic, kind, code, dimensions, flags, its_epoch, its_sender, request, stage, position, *rest = HEADER.unpack_from(
        buffer.data)
    shape, nbytes, said, sent = tuple(rest[:MOST_DIMENSIONS]), rest[-3], rest[-2], rest[-1]
    if magic != MAGIC:
        raise fail(TransportError, "transport", f"{who} does not begin as frames do", line="")
    if nbytes > most_bytes:
        raise fail(TransportError, "transport", f"{who} says it has {nbytes} bytes, more than the {most_bytes} agreed "
                                                "on", line="")
    if buffer.size < HEADER_BYTES + nbytes:
        raise fail(TransportError, "transport", f"{who} is short: {buffer.size - HEADER_BYTES} of {nbytes} bytes",
                   line="")
    whole = buffer[:HEADER_BYTES + nbytes]
    if folded((checksum(whole) - said * SUM_WEIGHT) % WRAP) != said:  # it was made with nothing in its own place
        raise fail(TransportError, "transport", f"{who} is corrupt: its checksum differs", line="")
    if kind not in _KINDS or code not in _NAMES or dimensions > MOST_DIMENSIONS:
        raise fail(TransportError, "transport", f"{who} is of a kind or type that nobody knows", line="")
    shape = shape[:dimensions]
    size = payload_bytes(_NAMES[code], shape)
    rows = shape[0] if flags & TABLE and shape else 0
    if size + table_bytes(rows) != nbytes:
        raise fail(TransportError, "transport", f"{who} has {nbytes} bytes, and its shape {shape} of {_NAMES[code]} "
                                                f"{size + table_bytes(rows)}", line="")
    if its_sender != sender:
        raise fail(TransportError, "transport", f"{who} says it is from rank {its_sender}", line="")
    if its_epoch != epoch:
        raise fail(TransportError, "transport", f"{who} is stale: it is of epoch {its_epoch}, and this is {epoch}",
                   line="")
    table = tuple(TABLE_ROW.iter_unpack(whole[HEADER_BYTES + size:].data)) if rows else ()
    header = Header(_KINDS[kind], its_epoch, its_sender, request, stage, position, _NAMES[code], shape,
                    bool(flags & FINAL), (_clock() - sent & 0x7FFFFFFF) * 1e-6, table)
    payload = whole[HEADER_BYTES:HEADER_BYTES + size]
    if header.dtype in ("bytes", "int8"):
        return header, payload
    return header, payload.view(DTYPES[header.dtype]).reshape(shape)
