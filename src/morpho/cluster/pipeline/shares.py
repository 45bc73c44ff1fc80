"""Tensor parallel inside a stage: each of its members keeps the columns and heads of its share of every block.

Heads are gathered before the projection behind them, and so is what a feed-forward has inside, so that every product
sums whole rows: bits are those of whole layers. Norms, the embedding and a head that is tied to it stay whole. With
`exact` off those products are cut by rows and their results added over the members: two sums a block instead of four
gathers, equal to a tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.cluster.collectives import all_gather, all_reduce
from morpho.cluster.parallel.tensor_parallel import ColumnParallelLinear, RowParallelLinear, own_part
from morpho.cluster.pipeline.placement import Place
from morpho.models.cuts import module_at
from morpho.models.decoder.experts import Experts
from morpho.models.gpt2 import TransposedLinear
from morpho.models.registry import record
from morpho.nn.layers.linear import Linear
from morpho.nn.module import Module
from morpho.nn.transformer.attention import Parts
from morpho.runtime.groups.group import Group


@dataclass
class Share:
    """Which part of each layer a member has. The group is another one in every epoch."""

    index: int
    size: int
    group: Group
    exact: bool = True

    def like(self, other: Share | None) -> bool:
        """Whether the same columns belong to both."""
        return other is not None and (self.index, self.size, self.exact) == (other.index, other.size, other.exact)


def shared_numbers(family: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a number of members must divide.

    >>> shared_numbers("gpt2", {"n_head": 3, "n_embd": 24, "n_layer": 5})
    {'n_head': 3, 'n_embd': 24}
    """
    return {name: config[name] for name in record(family).model.config_class.shared if config.get(name)}


def check_shares(family: str, config: Mapping[str, Any], places: Sequence[Place]) -> None:
    """A model whose heads do not part among the members of a stage is an error that says so.

    >>> check_shares("gpt2", {"n_head": 3, "n_embd": 24}, [Place("a", 0, 6, "f32", ("a", "b"))])
    Traceback (most recent call last):
    ...
    morpho.base.errors.ArgumentError: [pipeline] n_head=3 does not part among the 2 nodes of a stage (a, b). ...
    """
    for place in places:
        count = len(place.members)
        if count > 1 and not record(family).model.config_class.shared:
            raise fail(ArgumentError, "pipeline", f"the layers of a {family} are not shared among the {count} nodes of "
                       f"a stage ({', '.join(place.members)})", "plan with tensor=1")
        for name, number in shared_numbers(family, config).items() if count > 1 else ():
            if number % count:
                raise fail(ArgumentError, "pipeline", f"{name}={number} does not part among the {count} nodes of a "
                           f"stage ({', '.join(place.members)})", "plan with another tensor=N")


def check_packed(place: str, exact: bool, places: Sequence[Place]) -> None:
    """Packed weights of a GGUF file are shared by their outputs, never added over members.

    >>> check_packed("tiny.gguf", False, [Place("a", 0, 6, "f32", ("a", "b"))])
    Traceback (most recent call last):
    ...
    morpho.base.errors.ArgumentError: [pipeline] packed weights of a GGUF file are cut by their outputs ...
    """
    if not exact and place.lower().endswith(".gguf") and any(len(each.members) > 1 for each in places):
        raise fail(ArgumentError, "pipeline", "packed weights of a GGUF file are cut by their outputs only, and "
                   "exact=False adds parts of products over the nodes of a stage", "leave exact=True")


def cut(model: Any, blocks: Sequence[Any], share: Share) -> None:
    """Keep this member's columns of these blocks, and of a head of its own, in place."""
    for layer in [layer for layer in model.modules() if hasattr(layer, "parts")]:
        for name in layer.parts().tables:  # every stage has them, whatever its blocks
            getattr(layer, name).weight = _own(getattr(layer, name).weight, 1, share.group)
            _count(layer, layer.parts(), share)
    for block in blocks:
        for layer in [layer for layer in block.modules() if hasattr(layer, "parts")]:
            _share(layer, layer.parts(), share)
        for name, part in [*block.named_children()]:
            if isinstance(part, Experts):
                setattr(block, name, ExpertsShare(part, share))
    if isinstance(model.lm_head, Linear) and model.lm_head.out_features % share.size == 0:
        model.lm_head = ColumnParallelLinear.of(model.lm_head, True, group=share.group)


def _share(layer: Any, parts: Parts, share: Share) -> None:
    group, last = share.group, getattr(layer, parts.last)
    for name, widths in parts.columns.items():
        whole = getattr(layer, name)
        setattr(layer, name, TransposedColumns(whole, group, parts=len(widths) or 1)
                if isinstance(whole, TransposedLinear) else ColumnParallelLinear.of(whole, False, False, group, widths))
    if isinstance(last, TransposedLinear):
        ending: Module = TransposedColumns(last, group, gathers=True) if share.exact else TransposedRows(last, group)
    else:
        ending = (ColumnParallelLinear.of(last, True, True, group) if share.exact else
                  RowParallelLinear.of(last, True, group))
    setattr(layer, parts.last, ending)
    for name in parts.whole:
        setattr(layer, name, NormOverAll(getattr(layer, name), group))
    for path in parts.rows:
        owner, _, name = path.rpartition(".")
        owner = module_at(layer, owner) if owner else layer
        whole = getattr(owner, name)
        part = len(whole) // share.size if isinstance(whole, np.ndarray) else 0
        setattr(owner, name, whole[group.rank * part:(group.rank + 1) * part] if part else _own(whole, 0, group))
    if not parts.tables:
        _count(layer, parts, share)


def _count(layer: Any, parts: Parts, share: Share) -> None:
    for name in parts.counts:
        setattr(layer, name, getattr(layer, name) // share.size)


def rebind(model: Any, group: Group) -> None:
    """Let what has been cut speak over another group, of the same members."""
    for module in model.modules():
        if isinstance(module, MEETING):
            module.group = group


def _own(whole: Any, axis: int, group: Group) -> mo.nn.Parameter:
    """This member's part of a parameter."""
    mine = mo.asarray(own_part(whole.value, axis, group).numpy(copy=True)).astype(whole.dtype)
    return mo.nn.Parameter(mine, whole.requires_grad)


class TransposedColumns(Module):
    """Columns of one of GPT-2's products, whose weight is (inputs, outputs)."""

    def __init__(self, whole: Any, group: Group, gathers: bool = False, parts: int = 1) -> None:
        self.group, self.gathers = group, gathers
        self.weight, self.bias = (mo.nn.Parameter(mo.asarray(_columns(held.numpy(), group, parts)).astype(held.dtype),
                                                  held.requires_grad) for held in (whole.weight, whole.bias))

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        x = all_gather(x, -1, self.group) if self.gathers else x
        y = mo.matmul(x, self.weight) + self.bias
        return all_gather(y, -1, self.group) if self.gathers else y


class TransposedRows(Module):
    """Rows of one of GPT-2's products: the result is a sum over the members."""

    def __init__(self, whole: Any, group: Group) -> None:
        self.group, share = group, int(whole.weight.shape[0]) // group.size
        mine = whole.weight.numpy()[group.rank * share:(group.rank + 1) * share].copy()
        self.weight = mo.nn.Parameter(mo.asarray(mine).astype(whole.weight.dtype), whole.weight.requires_grad)
        self.bias = whole.bias

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return all_reduce(mo.matmul(x, self.weight), "sum", self.group) + self.bias  # type: ignore[no-any-return]


def _columns(whole: Any, group: Group, parts: int) -> Any:
    """A member's columns of a matrix that is `parts` matrices side by side."""
    split = whole.reshape(*whole.shape[:-1], parts, group.size, -1)[..., group.rank, :]
    return split.reshape(*whole.shape[:-1], -1).copy()


class NormOverAll(Module):
    """A norm over the heads of all members."""

    def __init__(self, norm: Any, group: Group) -> None:
        self.norm, self.group = norm, group

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return own_part(self.norm(all_gather(x, -1, self.group)), -1, self.group)


class ExpertsShare(Experts):
    """Every expert's share of what it has between its products, and of its results."""

    def __init__(self, whole: Experts, share: Share) -> None:
        vars(self).update(vars(whole))
        self.group, self.exact, last = share.group, share.exact, 1 if share.exact else 2
        for name, axis in (("gate_proj", 1), ("up_proj", 1), ("down_proj", last), ("gate_bias", 1), ("up_bias", 1)):
            if getattr(whole, name) is not None:
                setattr(self, name, _own(getattr(whole, name), axis, share.group))
        if whole.down_bias is not None:
            self.down_bias = _own(whole.down_bias, 1, share.group) if share.exact else mo.nn.Parameter(
                whole.down_bias.value / share.size, whole.down_bias.requires_grad)

    def _whole(self, routed: mo.Tensor) -> mo.Tensor:
        return all_gather(routed, -1, self.group) if self.exact else all_reduce(routed, "sum", self.group)

    def _between(self, inner: mo.Tensor) -> mo.Tensor:
        return all_gather(inner, -1, self.group) if self.exact else inner


MEETING = (ColumnParallelLinear, RowParallelLinear, TransposedColumns, TransposedRows, NormOverAll, ExpertsShare)
