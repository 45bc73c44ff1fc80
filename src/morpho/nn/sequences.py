"""`torch.nn.utils.rnn`: sequences of several lengths as one padded batch, or packed without padding.

>>> from morpho.nn.utils.rnn import pad_sequence, pack_padded_sequence, pad_packed_sequence
>>> batch = pad_sequence([mo.asarray([1.0, 2.0]), mo.asarray([3.0])], batch_first=True)
>>> packed = pack_padded_sequence(batch, [2, 1], batch_first=True)
>>> packed.data.tolist(), packed.batch_sizes.tolist()
([1.0, 3.0, 2.0], [2, 1])
>>> pad_packed_sequence(packed, batch_first=True)[0].tolist()
[[1.0, 2.0], [3.0, 0.0]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail

__all__ = ["PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence",
           "pad_sequence", "unpack_sequence", "unpad_sequence"]


class PackedSequence(NamedTuple):
    """Steps of several sequences, all first ones, all second ones and so on, the longest sequence first.

    batch_sizes: how many sequences have each step.
    sorted_indices, unsorted_indices: the way to the order by length and back, None where it is the order of the batch.
    """

    data: mo.Tensor
    batch_sizes: mo.Tensor
    sorted_indices: mo.Tensor | None = None
    unsorted_indices: mo.Tensor | None = None

    @property
    def lengths(self) -> np.ndarray:
        """Steps of each sequence, in the order of the batch."""
        sizes = self.batch_sizes.numpy()
        lengths: np.ndarray = (sizes[None, :] > np.arange(sizes[0])[:, None]).sum(1)
        return lengths if self.unsorted_indices is None else np.asarray(lengths[self.unsorted_indices.numpy()])

    def to(self, *args: Any, **options: Any) -> PackedSequence:
        return self._replace(data=self.data.to(*args, **options))

    def with_data(self, data: mo.Tensor) -> PackedSequence:
        return self._replace(data=data)


def _places(sizes: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Step and sequence of each element of a packed batch."""
    times = np.repeat(np.arange(len(sizes)), sizes)
    return times, np.concatenate([order[:size] for size in sizes])


def _timed(x: mo.Tensor, batch_first: bool) -> mo.Tensor:
    return mo.moveaxis(x, 0, 1) if batch_first else x


def pack_padded_sequence(input: Any, lengths: Any, batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """The steps of a padded batch that are within the length of each sequence."""
    x = mo.asarray(input)
    if x.ndim < 2:
        raise fail(ShapeError, "pack_padded_sequence", f"shape {tuple(x.shape)} has no axes of steps and sequences")
    x, counts = _timed(x, batch_first), np.asarray(lengths, np.int64)
    steps, batch = x.shape[:2]
    if counts.shape != (batch,):
        raise fail(ShapeError, "pack_padded_sequence", f"{counts.size} lengths for {batch} sequences")
    if counts.min() < 1 or counts.max() > steps:
        raise fail(ArgumentError, "pack_padded_sequence", f"lengths {counts.tolist()} are not all between 1 and "
                                                          f"{steps}")
    order = np.argsort(-counts, kind="stable")
    if enforce_sorted and np.any(np.diff(counts) > 0):
        raise fail(ArgumentError, "pack_padded_sequence", "the lengths do not fall", "give enforce_sorted=False")
    sizes = (counts[order][None, :] > np.arange(counts.max())[:, None]).sum(1)
    times, rows = _places(sizes, order)
    ways = (None, None) if enforce_sorted else (mo.asarray(order), mo.asarray(np.argsort(order)))
    return PackedSequence(x[mo.asarray(times), mo.asarray(rows)], mo.asarray(sizes), *ways)


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[mo.Tensor, mo.Tensor]:
    """A padded batch of a packed one, and the lengths."""
    sizes, data = sequence.batch_sizes.numpy(), sequence.data
    steps = len(sizes) if total_length is None else int(total_length)
    if steps < len(sizes):
        raise fail(ArgumentError, "pad_packed_sequence", f"total_length={steps} is less than the longest sequence, "
                                                         f"{len(sizes)} steps")
    order = np.arange(sizes[0]) if sequence.sorted_indices is None else sequence.sorted_indices.numpy()
    times, rows = _places(sizes, order)
    numbers = np.full((steps, sizes[0]), len(times))  # of the element; those of padding are the row behind all
    numbers[times, rows] = np.arange(len(times))
    border = mo.full((1, *data.shape[1:]), padding_value, dtype=data.dtype)
    padded = mo.concat([data, border])[mo.asarray(numbers)]
    return _timed(padded, batch_first), mo.asarray(sequence.lengths)


def pad_sequence(sequences: Sequence[Any], batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: str = "right") -> mo.Tensor:
    """Sequences of several lengths as one batch."""
    if padding_side not in ("left", "right"):
        raise fail(ArgumentError, "pad_sequence", f"padding_side={padding_side!r} is neither 'left' nor 'right'")
    lines = [mo.asarray(one) for one in sequences]
    if not lines:
        raise fail(ArgumentError, "pad_sequence", "there are no sequences")
    longest = max(line.shape[0] for line in lines)
    padded = []
    for line in lines:
        border = mo.full((longest - line.shape[0], *line.shape[1:]), padding_value, dtype=line.dtype)
        padded.append(mo.concat([line, border] if padding_side == "right" else [border, line]))
    return mo.stack(padded, axis=0 if batch_first else 1)


def pack_sequence(sequences: Sequence[Any], enforce_sorted: bool = True) -> PackedSequence:
    lengths = [len(one) for one in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[mo.Tensor]:
    rows = _timed(mo.asarray(padded_sequences), not batch_first)
    return [rows[number, :int(length)] for number, length in enumerate(np.asarray(lengths).tolist())]


def unpack_sequence(packed_sequences: PackedSequence) -> list[mo.Tensor]:
    return unpad_sequence(*pad_packed_sequence(packed_sequences))


def invert_permutation(permutation: mo.Tensor | None) -> mo.Tensor | None:
    return None if permutation is None else mo.argsort(permutation)
