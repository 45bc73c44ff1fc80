"""Where a token stands: rotary positions turn queries and keys, sinusoidal and learned ones are added to embeddings.

A sequence begins at `offset`: a Python number, or an integer tensor when it is known only at run time, as in decoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.checks import check_sizes
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn import init
from morpho.nn.module import Module
from morpho.nn.transformer.rope_scaling import frequencies, kind_of, original_length
from morpho.tensor.functions.searching.search import rows_of
from morpho.tensor.state.variable import Parameter

MOST_ENTRIES = 1 << 27  # of a table of angles: a million positions of 128


def rows_at(table: mo.Tensor, length: Any, offset: Any) -> mo.Tensor:
    """Rows offset, offset + 1, ... of a table, `length` of them: (length, width), or (batch, length, width) where there
    is an offset for each sequence. An offset of (batch, length) says where each token stands."""
    if isinstance(offset, int) and isinstance(length, int):
        if offset + length > table.shape[0]:
            raise fail(ShapeError, "positions", f"{length} tokens from position {offset} on are more than the "
                                                f"{table.shape[0]} positions there are", "cut the sequence")
        return table[offset:offset + length]
    steps = mo.arange(length)
    if not isinstance(offset, int) and offset.ndim == 2:
        return rows_of("positions", table, offset)
    if not isinstance(offset, int) and offset.ndim:  # (batch,) -> (batch, length)
        return rows_of("positions", table, mo.expand_dims(offset, axis=-1) + steps)
    return rows_of("positions", table, steps + offset)


def _checked(name: str, length: int, width: int, even: bool = True, called: str = "width") -> None:
    check_sizes(name, **{"length": length, called: width})
    if even and width % 2:
        raise fail(ArgumentError, name, f"{length} positions of {width} numbers cannot be made",
                   f"the {called} is even")


class RotaryPositions(Module):
    """RoPE: pairs of numbers of a query or key turn by an angle that grows with the position, so that their product
    depends on the distance alone.

    Pair i turns by position / theta ** (2 i / head_dim). The pairs are (i, i + head_dim / 2), as in Llama, or (2 i,
    2 i + 1) where `interleaved`. `head_dim` may be less than that of the heads: the rest is left alone. `scaling` is
    the `rope_scaling` of a configuration: of type "linear", "llama3", "yarn", "dynamic" or "longrope", or "factors", a
    number for each pair that its angle is divided by. `backwards` turns by the negative angles.

    >>> rope = mo.nn.RotaryPositions(8, length=16)
    >>> rope(mo.ones((1, 2, 5, 8))).shape
    (1, 2, 5, 8)
    """

    def __init__(self, head_dim: int, length: int = 2048, theta: float = 10000.0, interleaved: bool = False,
                 scaling: Mapping[str, Any] | None = None, backwards: bool = False) -> None:
        self.backwards = backwards
        _checked("RotaryPositions", length, head_dim, called="head_dim")
        self.head_dim, self.length, self.theta, self.interleaved = head_dim, length, float(theta), interleaved
        self.scaling = dict(scaling) if scaling else None
        self._kind = kind_of(scaling)
        first = original_length(self.scaling, length) if self.scaling and self._kind == "longrope" else length
        self.cosines, self.sines = self._made(length, first)
        self._longer: dict[int, tuple[mo.Tensor, mo.Tensor]] = {}  # of texts whose length changes the angles

    def _made(self, length: int, reach: int) -> tuple[mo.Tensor, mo.Tensor]:
        """Cosines and signed sines of so many positions, for texts of length `reach`."""
        depth = self.head_dim
        if length * depth > MOST_ENTRIES:
            raise fail(ArgumentError, "RotaryPositions", f"a table of {length} positions of {depth} angles is too "
                                                         f"large", "make it for a shorter length")
        turns, factor = frequencies(depth, self.theta, self.scaling, self.length, reach)
        angles = np.outer(np.arange(length, dtype=np.float32), turns)
        # Both as they are multiplied: (length, head_dim), in the order of the pairs.
        spread = np.repeat(angles, 2, axis=1) if self.interleaved else np.concatenate([angles, angles], axis=1)
        # The pair (a, b) turns to (a cos - b sin, b cos + a sin).
        signs = np.array([1, -1] if self.backwards else [-1, 1], np.float32)
        signs = np.tile(signs, depth // 2) if self.interleaved else np.repeat(signs, depth // 2)
        found = (np.cos(spread, dtype=np.float32), np.sin(spread, dtype=np.float32) * signs)
        found = found if factor == 1 else tuple(part * np.float32(factor) for part in found)
        return tuple(mo.asarray(part, copy=True).realise() for part in found)  # type: ignore

    def forward(self, x: mo.Tensor, offset: Any = 0) -> mo.Tensor:
        """x is (batch, heads, length, depth or more); the first of the length stands at `offset`."""
        return self.turn(x, *self.tables(x.shape[-2], offset))

    def tables(self, length: Any, offset: Any = 0, reach: int | None = None) -> tuple[mo.Tensor, mo.Tensor]:
        """Cosines and signed sines of some positions, to be used for several `turn`s. `reach` is how long the text is
        in the end, where that changes the angles; as far as these positions go by default."""
        if reach is None and isinstance(length, int) and isinstance(offset, int):
            reach = offset + length
        found = tuple(rows_at(part, length, offset) for part in self._of(reach))
        # (batch, length, depth) -> (batch, 1, length, depth): the same for all heads
        return tuple(mo.expand_dims(part, axis=-3) if part.ndim == 3 else part for part in found)  # type: ignore

    def _of(self, reach: int | None) -> tuple[mo.Tensor, mo.Tensor]:
        """The tables for a text of this length; lengths that are not known are within the model's positions."""
        if self._kind == "longrope":
            if reach is None:
                raise fail(ArgumentError, "RotaryPositions", "angles of type 'longrope' follow from the length of the "
                           "text, which is not known here", "compile for one length, or say reach=")
            assert self.scaling is not None
            original = original_length(self.scaling, self.length)
            return self._table(original + 1, self.length) if reach > original else (self.cosines, self.sines)
        if self._kind == "dynamic" and reach is not None and reach > self.length:
            return self._table(reach, reach)
        return self.cosines, self.sines

    def _table(self, reach: int, length: int) -> tuple[mo.Tensor, mo.Tensor]:
        if reach not in self._longer:
            self._longer[reach] = self._made(length, reach)
        return self._longer[reach]

    def turn(self, x: mo.Tensor, cosines: mo.Tensor, sines: mo.Tensor) -> mo.Tensor:
        """x turned; half floats are turned in float32 and rounded once."""
        whole = int(x.shape[-1])
        part = x if whole == self.head_dim else x[..., :self.head_dim]
        wide = part.astype(mo.float32) if x.dtype in (mo.float16, mo.bfloat16) else part
        # In pairs, (..., 2, depth / 2) or (..., depth / 2, 2): the partner is a view then, and the turn one kernel.
        pairs, axis = ((self.head_dim // 2, 2), -1) if self.interleaved else ((2, self.head_dim // 2), -2)
        wide, cosines, sines = (mo.reshape(y, (*y.shape[:-1], *pairs)) for y in (wide, cosines, sines))
        turned = wide * cosines.astype(wide.dtype) + mo.flip(wide, axis=axis) * sines.astype(wide.dtype)
        turned = mo.reshape(turned, part.shape).astype(x.dtype)
        return turned if whole == self.head_dim else mo.concat([turned, x[..., self.head_dim:]], axis=-1)

    def describe(self) -> str:
        return f"{self.head_dim}, length={self.length}, theta={self.theta}"


def sinusoids(length: int, width: int) -> np.ndarray:
    """The table of "Attention is all you need": sin and cos of position / 10000 ** (2 i / width) at 2 i and 2 i + 1."""
    _checked("sinusoids", length, width)
    angles = np.arange(length)[:, None] / 10000.0 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, width)


class SinusoidalPositions(Module):
    """Adds a fixed table of sines and cosines to embeddings (..., length, embedding_dim).

    >>> mo.nn.SinusoidalPositions(16, 4)(mo.zeros((1, 2, 4)))[0, 0].numpy()
    array([0., 1., 0., 1.], dtype=float32)
    """

    def __init__(self, length: int, embedding_dim: int, dtype: Any = mo.float32) -> None:
        _checked("SinusoidalPositions", length, embedding_dim, called="embedding_dim")
        self.length, self.embedding_dim = length, embedding_dim
        self.table = mo.asarray(sinusoids(length, embedding_dim)).astype(dtype).realise()

    def forward(self, x: mo.Tensor, offset: Any = 0) -> mo.Tensor:
        return x + rows_at(self.table, x.shape[-2], offset).astype(x.dtype)

    def describe(self) -> str:
        return f"{self.length}, {self.embedding_dim}"


class LearnedPositions(Module):
    """Adds a trained row for each position to embeddings (..., length, embedding_dim); the weight is (length,
    embedding_dim).

    >>> mo.nn.LearnedPositions(16, 4)(mo.zeros((1, 2, 4))).shape
    (1, 2, 4)
    """

    def __init__(self, length: int, embedding_dim: int, dtype: Any = mo.float32, std: float = 0.02) -> None:
        _checked("LearnedPositions", length, embedding_dim, even=False, called="embedding_dim")
        self.length, self.embedding_dim = length, embedding_dim
        self.weight = Parameter(init.normal((length, embedding_dim), std, dtype=dtype))

    def forward(self, x: mo.Tensor, offset: Any = 0) -> mo.Tensor:
        return x + rows_at(self.weight, x.shape[-2], offset)

    def describe(self) -> str:
        return f"{self.length}, {self.embedding_dim}"
