"""Layers in parts: each rank has some columns, rows, words or heads, and all ranks have the same activations between.

A loss that every rank computes alike has the gradient of one rank: what goes into a part is the same on all ranks, so
its gradient is the sum of theirs; what comes out as a sum has everybody's gradient. Columns and heads whose results are
gathered have the bits of the whole layer going forward; sums over rows are equal to a tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.cluster import world
from morpho.cluster.collectives import Across, all_gather, all_reduce
from morpho.nn.module import Module
from morpho.runtime.groups.group import Group


# -- between the parts -------------------------------------------------------------------------------------------------
def copy_to_parts(x: mo.Tensor, group: Group) -> mo.Tensor:
    """x as it is; its gradient is the sum of those of all parts."""
    if group.size == 1:
        return x
    return mo.custom_gradient(lambda x: (x, lambda cotangent: all_reduce(cotangent, "sum", group)))(x)  # type: ignore[no-any-return]


def sum_of_parts(x: mo.Tensor, group: Group) -> mo.Tensor:
    """The sum over the ranks, whose gradient is that of each part."""
    if group.size == 1:
        return x
    return mo.custom_gradient(lambda x: (all_reduce(x, "sum", group), lambda cotangent: cotangent))(x)  # type: ignore[no-any-return]


def join_parts(x: mo.Tensor, axis: int, group: Group) -> mo.Tensor:
    """All parts along an axis; the gradient of each is its part."""
    if group.size == 1:
        return x
    joined = mo.custom_gradient(lambda x: (all_gather(x, axis, group), lambda c: own_part(c, axis, group)))
    return joined(x)  # type: ignore[no-any-return]


def own_part(x: mo.Tensor, axis: int, group: Group) -> mo.Tensor:
    """This rank's part along an axis.

    >>> from morpho.cluster.groups.one import OneGroup
    >>> own_part(mo.ones((4, 2)), 0, OneGroup()).shape
    (4, 2)
    """
    axis %= x.ndim
    size = int(x.shape[axis])
    if size % group.size:
        raise fail(ArgumentError, "tensor parallel", f"an axis of size {size} does not part into {group.size} equal "
                   "shares", "choose a number of ranks that divides heads and widths")
    share = size // group.size
    index = [slice(None)] * x.ndim
    index[axis] = slice(group.rank * share, (group.rank + 1) * share)
    return x[tuple(index)]


class _Part(Module):
    """A layer of which this rank has a part: `cuts` are the axes along which its parameters are cut."""

    cuts: dict[str, int]

    def _take(self, layer: mo.nn.Module, group: Group | None, widths: Sequence[int] = (), **cuts: int) -> None:
        self.group, self.cuts = world.init() if group is None else group, cuts
        across, order = Across(self.group), by_member(widths, self.group.size) if len(widths) > 1 else None
        for name in ("weight", "bias"):
            held = vars(layer).get(name)
            if isinstance(held, mo.Quantised):
                held = _own_rows(held, cuts[name], self.group, order)
            elif held is not None:
                value = held.value if order is None else mo.take(held.value, order, axis=0)
                value = value if name not in cuts else own_part(value, cuts[name], self.group)
                held = mo.nn.Parameter(mo.asarray(value.numpy(copy=True)).astype(held.dtype),
                                       getattr(held, "requires_grad", False))
                held.across = across if name in cuts else None
            setattr(self, name, held)


def by_member(widths: Sequence[int], members: int) -> np.ndarray:
    """Rows of matrices of these widths that lie below each other, in the order in which members have them.

    >>> by_member((4, 2), 2).tolist()
    [0, 1, 4, 2, 3, 5]
    """
    begins = np.cumsum([0, *widths[:-1]])
    return np.concatenate([np.arange(begin + width * member // members, begin + width * (member + 1) // members)
                           for member in range(members) for begin, width in zip(begins, widths, strict=True)])


def _own_rows(weight: mo.Quantised, axis: int, group: Group, order: np.ndarray | None = None) -> mo.Quantised:
    """This rank's outputs of a packed weight, packed as they are."""
    if axis != 0:
        raise fail(ArgumentError, "tensor parallel", "packed weights are cut by their outputs only", "leave exact=True")
    mine = own_part(weight.data if order is None else mo.take(weight.data, order, axis=0), 0, group)
    return mo.Quantised.from_bytes(mine.numpy(copy=True), (int(mine.shape[0]), weight.shape[1]), weight.kind)


def _product(x: mo.Tensor, weight: Any, bias: Any) -> mo.Tensor:
    if not isinstance(weight, mo.Quantised):
        return mo.nn.linear(x, weight, bias)
    y = mo.matmul(x, weight)
    return y if bias is None else y + bias


class ColumnParallelLinear(_Part):
    """A `Linear` of which each rank computes some of the results; all of them come together with `gather_output`. With
    `parallel_input` each rank has a part of the input, which is gathered first.

    >>> layer = mo.cluster.ColumnParallelLinear(4, 6)
    >>> layer(mo.ones((2, 4))).shape
    (2, 6)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, gather_output: bool = True,
                 parallel_input: bool = False, group: Group | None = None, dtype: Any = mo.float32) -> None:
        self._set(mo.nn.Linear(in_features, out_features, bias, dtype), gather_output, parallel_input, group)

    def _set(self, linear: Any, gather_output: bool, parallel_input: bool, group: Group | None,
             widths: Sequence[int] = ()) -> None:
        self.gather_output, self.parallel_input = gather_output, parallel_input
        self._take(linear, group, widths, weight=0, bias=0)

    @staticmethod
    def of(linear: Any, gather_output: bool = True, parallel_input: bool = False, group: Group | None = None,
           widths: Sequence[int] = ()) -> ColumnParallelLinear:
        """This rank's part of a layer that all ranks have alike; with `widths`, of each of the matrices of these widths
        that lie side by side in it."""
        made: ColumnParallelLinear = object.__new__(ColumnParallelLinear)
        made._set(linear, gather_output, parallel_input, group, widths)
        return made

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        x = join_parts(x, -1, self.group) if self.parallel_input else x
        y = _product(copy_to_parts(x, self.group), self.weight, self.bias)
        return join_parts(y, -1, self.group) if self.gather_output else y


class RowParallelLinear(_Part):
    """A `Linear` of which each rank takes some of the inputs; the results are sums over the ranks.

    >>> layer = mo.cluster.RowParallelLinear(4, 6)
    >>> layer(mo.ones((2, 4))).shape
    (2, 6)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, parallel_input: bool = False,
                 group: Group | None = None, dtype: Any = mo.float32) -> None:
        self._set(mo.nn.Linear(in_features, out_features, bias, dtype), parallel_input, group)

    def _set(self, linear: Any, parallel_input: bool, group: Group | None) -> None:
        self.parallel_input = parallel_input
        self._take(linear, group, weight=1)

    @staticmethod
    def of(linear: Any, parallel_input: bool = False, group: Group | None = None) -> RowParallelLinear:
        """This rank's part of a layer that all ranks have alike."""
        made: RowParallelLinear = object.__new__(RowParallelLinear)
        made._set(linear, parallel_input, group)
        return made

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        if not self.parallel_input:
            x = own_part(copy_to_parts(x, self.group), -1, self.group)
        y = sum_of_parts(mo.nn.linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias.astype(y.dtype)


class VocabParallelEmbedding(_Part):
    """An `Embedding` of which each rank has some of the words; the result has the bits of the whole.

    >>> mo.cluster.VocabParallelEmbedding(10, 4)(mo.asarray([1, 9])).shape
    (2, 4)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, group: Group | None = None,
                 dtype: Any = mo.float32) -> None:
        self._set(mo.nn.Embedding(num_embeddings, embedding_dim, dtype=dtype), group)

    def _set(self, embedding: Any, group: Group | None) -> None:
        self._take(embedding, group, weight=0)

    @staticmethod
    def of(embedding: Any, group: Group | None = None) -> VocabParallelEmbedding:
        """This rank's part of a table that all ranks have alike."""
        made: VocabParallelEmbedding = object.__new__(VocabParallelEmbedding)
        made._set(embedding, group)
        return made

    def forward(self, ids: mo.Tensor) -> mo.Tensor:
        share = int(self.weight.shape[0])
        local = mo.asarray(ids) - self.group.rank * share
        here = mo.logical_and(local >= 0, local < share)
        rows = mo.take(self.weight, mo.where(here, local, 0), axis=0)
        return sum_of_parts(mo.where(here[..., None], rows, mo.zeros_like(rows)), self.group)


def parallel_attention(attention: Any, group: Group | None = None, exact: bool = True) -> Any:
    """An `nn.MultiHeadAttention` of which each rank keeps some of the heads, in place. `exact` gathers the heads before
    the last projection, which keeps the bits; otherwise that is a sum over the ranks, with fewer bytes on the way.

    >>> attention = mo.cluster.parallel_attention(mo.nn.MultiHeadAttention(8, 4))
    >>> attention(mo.ones((1, 3, 8))).shape
    (1, 3, 8)
    """
    chosen = world.init() if group is None else group
    if attention.num_heads % chosen.size or attention.num_kv_heads % chosen.size:
        raise fail(ArgumentError, "tensor parallel", f"{attention.num_heads} heads over {attention.num_kv_heads} of "
                   f"keys do not part among {chosen.size} ranks")
    for name in ("q_proj", "k_proj", "v_proj"):
        setattr(attention, name, ColumnParallelLinear.of(getattr(attention, name), False, group=chosen))
    attention.num_heads //= chosen.size
    attention.num_kv_heads //= chosen.size
    last = attention.o_proj
    attention.o_proj = (ColumnParallelLinear.of(last, True, True, chosen) if exact else
                        RowParallelLinear.of(last, True, chosen))
    return attention


def whole_state_dict(model: mo.nn.Module) -> dict[str, mo.Tensor]:
    """The state of a model with layers in parts, as of one whose layers are whole: all ranks ask, each gets all.

    >>> list(whole_state_dict(mo.nn.Sequential(ColumnParallelLinear(4, 6))))
    ['0.weight', '0.bias']
    """
    found = dict(model.state_dict())
    for path, module in model.named_modules():
        for name, axis in (module.cuts if isinstance(module, _Part) else {}).items():
            full = f"{path}.{name}" if path else name
            if full in found:
                found[full] = all_gather(found[full], axis, module.group)
    return found
