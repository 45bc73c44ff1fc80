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

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.cluster.collectives import all_gather, all_reduce
from morpho.cluster.parallel.tensor_parallel import ColumnParallelLinear, RowParallelLinear, parallel_attention
from morpho.cluster.pipeline.placement import Place
from morpho.nn.layers.linear import Linear
from morpho.nn.module import Module
from morpho.nn.transformer.attention import KeyValueCache, attend, join_heads, split_heads
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


HEADS: dict[str, tuple[str, ...]] = {  # what a number of members must divide, by family
    "llama": ("num_attention_heads", "num_key_value_heads", "intermediate_size", "hidden_size"),
    "gpt2": ("n_head", "n_embd"), "prenorm": ("heads", "kv_heads", "width")}


def check_shares(family: str, config: Mapping[str, Any], places: Sequence[Place]) -> None:
    """A model whose heads do not part among the members of a stage is an error that says so.

    >>> check_shares("gpt2", {"n_head": 3, "n_embd": 24}, [Place("a", 0, 6, "f32", ("a", "b"))])
    Traceback (most recent call last):
    ...
    morpho.base.errors.ArgumentError: [pipeline] n_head=3 does not part among the 2 nodes of a stage (a, b). ...
    """
    for place in places:
        count = len(place.members)
        if count < 2:
            continue
        if family not in HEADS:
            raise fail(ArgumentError, "pipeline", f"layers of the family {family!r} are not shared among nodes",
                       "plan with tensor=1; those of " + ", ".join(HEADS) + " are shared")
        for name in HEADS[family]:
            if (config.get(name) or 0) % count:
                raise fail(ArgumentError, "pipeline", f"{name}={config[name]} does not part among the {count} nodes of "
                           f"a stage ({', '.join(place.members)})", "plan with another tensor=N")


def check_packed(place: str, family: str, exact: bool, places: Sequence[Place]) -> None:
    """Packed weights of a GGUF file, a Llama's, are shared by their outputs, never added over members.

    >>> check_packed("tiny.gguf", "llama", False, [Place("a", 0, 6, "f32", ("a", "b"))])
    Traceback (most recent call last):
    ...
    morpho.base.errors.ArgumentError: [pipeline] packed weights of a GGUF file are cut by their outputs ...
    """
    if not place.lower().endswith(".gguf") or all(len(each.members) == 1 for each in places):
        return
    if family != "llama":
        raise fail(ArgumentError, "pipeline", f"packed weights of the family {family!r} are not shared among nodes",
                   "plan with tensor=1")
    if not exact:
        raise fail(ArgumentError, "pipeline", "packed weights of a GGUF file are cut by their outputs only, and "
                   "exact=False adds parts of products over the nodes of a stage", "leave exact=True")


def cut(family: str, model: Any, blocks: Sequence[Any], share: Share) -> None:
    """Keep this member's columns of these blocks, and of a head of its own, in place."""
    for block in blocks:
        if family == "gpt2":
            block.attn, mlp = AttentionShare(block.attn, share), block.mlp
            mlp.c_fc, mlp.c_proj = TransposedColumns(mlp.c_fc, share.group), _last(mlp.c_proj, share)
            continue
        parallel_attention(block.self_attn if family == "llama" else block.attention, share.group, share.exact)
        mlp = block.mlp if family == "llama" else block.feed_forward
        if mlp.gate_proj is not None:
            mlp.gate_proj = ColumnParallelLinear.of(mlp.gate_proj, False, group=share.group)
        mlp.up_proj = ColumnParallelLinear.of(mlp.up_proj, False, group=share.group)
        mlp.down_proj = (ColumnParallelLinear.of(mlp.down_proj, True, True, share.group) if share.exact else
                         RowParallelLinear.of(mlp.down_proj, True, share.group))
    if isinstance(model.lm_head, Linear) and model.lm_head.out_features % share.size == 0:
        model.lm_head = ColumnParallelLinear.of(model.lm_head, True, group=share.group)


def rebind(model: Any, group: Group) -> None:
    """Let what has been cut speak over another group, of the same members."""
    for module in model.modules():
        if isinstance(module, (ColumnParallelLinear, RowParallelLinear, TransposedColumns, TransposedRows)):
            module.group = group


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


def _last(whole: Any, share: Share) -> Module:
    """The product that a branch of GPT-2 ends with."""
    return TransposedColumns(whole, share.group, gathers=True) if share.exact else TransposedRows(whole, share.group)


def _columns(whole: Any, group: Group, parts: int) -> Any:
    """A member's columns of a matrix that is `parts` matrices side by side."""
    split = whole.reshape(*whole.shape[:-1], parts, group.size, -1)[..., group.rank, :]
    return split.reshape(*whole.shape[:-1], -1).copy()


class AttentionShare(Module):
    """Some of the heads of GPT-2's attention."""

    def __init__(self, whole: Any, share: Share) -> None:
        self.heads, self.scale = whole.heads // share.size, whole.scale
        self.c_attn, self.c_proj = TransposedColumns(whole.c_attn, share.group, parts=3), _last(whole.c_proj, share)

    def forward(self, x: mo.Tensor, cache: KeyValueCache | None, offset: Any, mask: Any = None) -> mo.Tensor:
        joined = self.c_attn(x)
        width = int(joined.shape[-1]) // 3
        q, k, v = (split_heads(joined[..., i * width:(i + 1) * width], self.heads) for i in range(3))
        seen = attend(q, k, v, causal=True, mask=mask, cache=cache, offset=offset, scale=self.scale)
        return self.c_proj(join_heads(seen))  # type: ignore[no-any-return]
