"""The header of a GGUF file, read with bounds: metadata, then where every tensor lies.

The gguf library trusts what it reads, and takes seconds for the hundred thousand texts of a vocabulary; so this reader
goes over the header itself. Nothing is believed before it is compared with the size of the file, and no array is made
from a count alone: it grows with the bytes that are really there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from morpho.weights.scanner import Malformed, shortened

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_HEADER_BYTES = 128 << 20
MOST_FIELDS, MOST_TENSORS, MOST_ITEMS = 1 << 16, 1 << 17, 1 << 21  # items: of an array of texts
MOST_DIMENSIONS = 4
DEFAULT_ALIGNMENT = 32
MOST_PADDING = 1 << 16  # bytes behind the last tensor that are looked at
KEY_BYTES = 1 << 16  # the longest key or name of a tensor

LENGTH = struct.Struct("<Q")
STRING, ARRAY, BOOL = 8, 9, 7
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# number of a type -> its name, values in a block, bytes of a block; the types that Morpho reads by itself
NATIVE = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34), 24: ("I8", 1, 1), 25: ("I16", 1, 2),
    26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8), 30: ("BF16", 1, 2),
    2: ("Q4_0", 32, 18), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 20: ("IQ4_NL", 32, 18),
    23: ("IQ4_XS", 256, 136), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
}


@dataclass(frozen=True, slots=True)
class Place:
    """One tensor: the number of its type, its shape (rows first), and bytes `start` to `stop` of the file."""

    type: int
    kind: str
    shape: tuple[int, ...]
    start: int
    stop: int


class Cursor:
    """A position in the bytes of a file; each method reads one thing there and moves on."""

    def __init__(self, data: Any, size: int) -> None:
        self.data, self.at, self.end = data, 0, min(size, MOST_HEADER_BYTES)

    def take(self, count: int) -> int:
        """Room for so many bytes, given as where they begin."""
        start = self.at
        if count > self.end - start:
            raise Malformed(f"its header needs more than the {self.end} bytes it may have")
        self.at = start + count
        return start

    def number(self, form: str) -> Any:
        shape = struct.Struct("<" + form)
        return shape.unpack_from(self.data, self.take(shape.size))[0]

    def text(self, most: int = MOST_HEADER_BYTES) -> str:
        length = self.number("Q")
        if length > most:
            raise Malformed(f"a text of {length} bytes stands where at most {most} are allowed")
        start = self.take(length)
        try:
            return self.data[start:start + length].decode("utf-8")  # type: ignore[no-any-return]
        except UnicodeDecodeError:
            raise Malformed("a text is not UTF-8") from None

    def texts(self, count: int) -> list[str]:
        """As `text`, so many times, in a loop without calls: a vocabulary has a hundred thousand."""
        if count > MOST_ITEMS:
            raise Malformed(f"an array has {count} texts, more than {MOST_ITEMS}")
        data, at, end, read_length = self.data, self.at, self.end, LENGTH.unpack_from
        found: list[bytes] = []
        add = found.append
        for _ in range(count):
            start = at + 8
            if start > end or (at := start + read_length(data, at)[0]) > end:
                raise Malformed(f"its header needs more than the {end} bytes it may have")
            add(data[start:at])
        self.at = at
        try:
            return [raw.decode("utf-8") for raw in found]
        except UnicodeDecodeError:
            raise Malformed("a text is not UTF-8") from None

    def value(self) -> Any:
        """A number, a text, or an array of either."""
        kind = self.number("I")
        if kind == STRING:
            return self.text()
        if kind in SCALARS:
            return self._flag() if kind == BOOL else self.number(SCALARS[kind])
        if kind != ARRAY:
            raise Malformed(f"a value has the unknown type {kind}")
        inner, count = self.number("I"), self.number("Q")
        if inner == STRING:
            return self.texts(count)
        if inner not in SCALARS:
            raise Malformed(f"an array holds the unknown type {inner}")
        shape = struct.Struct("<" + ("B" if inner == BOOL else SCALARS[inner]))
        start = self.take(count * shape.size)
        if count > MOST_ITEMS:
            raise Malformed(f"an array has {count} numbers, more than {MOST_ITEMS}")
        return [found for (found,) in shape.iter_unpack(self.data[start:start + count * shape.size])]

    def _flag(self) -> bool:
        found = self.number("B")
        if found > 1:
            raise Malformed(f"a truth value is {found}")
        return bool(found)


def read_header(data: Any, size: int, sizes: Any) -> tuple[dict[str, Any], dict[str, Place]]:
    """Metadata and the checked places of all tensors. `sizes(type)` tells name, block and bytes of a type."""
    cursor = Cursor(data, size)
    if size < 24 or data[:4] != MAGIC:
        raise Malformed("it does not begin with GGUF and two counts")
    cursor.take(4)
    version = cursor.number("I")
    if version not in VERSIONS:
        raise Malformed("it is written for machines of the other byte order" if version & 0xFFFF == 0
                        else f"it has version {version}, neither 2 nor 3")
    tensors, fields = cursor.number("Q"), cursor.number("Q")
    if tensors > MOST_TENSORS or fields > MOST_FIELDS:
        raise Malformed(f"it counts {tensors} tensors and {fields} fields, more than allowed")
    metadata: dict[str, Any] = {}
    for _ in range(fields):
        key = cursor.text(KEY_BYTES)
        if key in metadata:
            raise Malformed(f"the key {shortened(key)} stands there twice")
        metadata[key] = cursor.value()
    records = [_record(cursor) for _ in range(tensors)]
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
        raise Malformed(f"general.alignment is {shortened(alignment)}, no power of two")
    base = (cursor.at + alignment - 1) // alignment * alignment
    places = _places(records, base, alignment, size, sizes)
    end = max((place.stop for place in places.values()), default=base)
    if any(data[end:end + MOST_PADDING]):
        raise Malformed(f"its {tensors} tensors end at byte {end}, and more than zeros stand behind them")
    return metadata, places


def _record(cursor: Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name = cursor.text(KEY_BYTES)
    count = cursor.number("I")
    if not 1 <= count <= MOST_DIMENSIONS:
        raise Malformed(f"{shortened(name)} has {count} dimensions")
    dimensions = [cursor.number("Q") for _ in range(count)]
    if 0 in dimensions:
        raise Malformed(f"{shortened(name)} has shape {dimensions}")
    return name, tuple(reversed(dimensions)), cursor.number("I"), cursor.number("Q")


def _places(records: list[tuple[str, tuple[int, ...], int, int]], base: int, alignment: int, size: int,
            sizes: Any) -> dict[str, Place]:
    """Each tensor within the file, aligned, and one after the other as llama.cpp wants them: bytes that belong to none
    say that a type, a shape or the number of tensors is wrong."""
    found: dict[str, Place] = {}
    for name, shape, kind, offset in records:
        label, block, block_bytes = sizes(kind)
        if name in found:
            raise Malformed(f"the name {shortened(name)} stands there twice")
        if shape[-1] % block or offset % alignment:
            raise Malformed(f"{shortened(name)} of {label} has rows of {shape[-1]} values at offset {offset}, which do "
                            f"not fit blocks of {block} and an alignment of {alignment}")
        nbytes = block_bytes
        for length in (*shape[:-1], shape[-1] // block):
            nbytes *= length
        if base + offset + nbytes > size:
            raise Malformed(f"{shortened(name)} ends at byte {base + offset + nbytes}, the file at {size}")
        found[name] = Place(kind, label, shape, base + offset, base + offset + nbytes)
    ordered = sorted(found.items(), key=lambda item: item[1].start)
    for (one, first), (two, second) in pairwise(ordered):
        if second.start < first.stop:
            raise Malformed(f"{shortened(two)} overlaps {shortened(one)}")
    end = base
    for name, place in ordered:
        if place.start != end:
            raise Malformed(f"{shortened(name)} begins at byte {place.start}, where {end} is the next free one")
        end = place.stop + -place.stop % alignment
    return found
