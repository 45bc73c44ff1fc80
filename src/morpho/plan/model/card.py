"""A model as the planner sees it: a chain of layers, each with its work, its bytes, and what crosses the cut after it.

>>> block = Layer("block", "block", prefill_flops=8e9, prefill_bytes=4e7, decode_flops=8e6, decode_bytes=3e7,
...               weight_bytes=28_000_000, kv_bytes=6_000_000, prefill_cut_elements=786_432, decode_cut_elements=768)
>>> card = ModelCard("toy", (block, block), batch=1, context=1024, dtype="f32")
>>> card.depth, card.cut_bytes(1, "f16"), card.cut_bytes(1, "f16", phase="prefill")
(2, 1536.0, 1572864.0)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from morpho.base.errors import ArgumentError, ValueFault, fail
from morpho.plan.model.layer import BYTES_OF, PHASES, Layer


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A model: its layers in order, and the work it is asked to do.

    `phase` is what the objectives speak of: "decode" for models that generate, "prefill" for encoders. `tied` names
    two layers (by index) that share `tied_bytes` of weights: a stage that holds both holds them once, two stages hold
    a copy each. `micro_batches` is how many batches are in flight, each with a KV cache of its own.

    >>> card = ModelCard.from_config("gpt2", batch=8, context=1024, dtype="bf16")
    >>> card.depth, card.layers[1].kind, card.tied
    (14, 'block', (0, 13))
    """

    name: str
    layers: tuple[Layer, ...]
    batch: int = 1
    context: int = 1024
    dtype: str = "f32"
    phase: str = "decode"
    tied: tuple[int, int] | None = None
    tied_bytes: int = 0
    micro_batches: int = 1
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.layers:
            raise fail(ArgumentError, "plan", f"the model {self.name!r} has no layers", "give at least one layer")
        if self.dtype not in BYTES_OF:
            raise fail(ValueFault, "plan", f"dtype {self.dtype!r} is not known", f"use one of {', '.join(BYTES_OF)}")
        if self.phase not in PHASES:
            raise fail(ValueFault, "plan", f"phase {self.phase!r} is not known", "use 'decode' or 'prefill'")
        if self.tied is not None:
            first, last = self.tied
            if not (0 <= first < last < len(self.layers)) or self.tied_bytes > min(
                    self.layers[first].weight_bytes, self.layers[last].weight_bytes):
                raise fail(ValueFault, "plan", f"layers {first} and {last} of {self.name!r} cannot share "
                           f"{self.tied_bytes} bytes", "name two layers in order, and no more than either has")
        for name in ("batch", "context", "micro_batches"):
            if not (isinstance(getattr(self, name), int) and getattr(self, name) > 0):
                raise fail(ValueFault, "plan", f"{name} is {getattr(self, name)!r}", "give a positive whole number")

    @property
    def depth(self) -> int:
        """How many layers there are; cuts are the boundaries 1 to depth - 1."""
        return len(self.layers)

    @property
    def weight_bytes(self) -> int:
        """All weights, shared ones once."""
        return sum(layer.weight_bytes for layer in self.layers) - (self.tied_bytes if self.tied else 0)

    @property
    def activation_dtype(self) -> str:
        """Dtype of activations inside a stage, and what links send unless a plan may send less.

        >>> block = Layer("b", "block", 0, 0, 0, 0, weight_bytes=10)
        >>> [ModelCard("toy", (block,), dtype=dtype).activation_dtype for dtype in ("f32", "bf16", "q4")]
        ['f32', 'bf16', 'f16']
        """
        return self.dtype if self.dtype in ("f32", "bf16") else "f16"

    @property
    def tokens_per_pass(self) -> int:
        """Tokens one pass through the chain yields: one per sequence when decoding, the prompts when not."""
        return self.batch if self.phase == "decode" else self.batch * self.context

    def cut_bytes(self, boundary: int, dtype: str, phase: str | None = None) -> float:
        """Bytes that cross the cut before layer `boundary`, sent as `dtype`, in the card's phase or the given one."""
        return self.layers[boundary - 1].cut_elements(phase or self.phase) * BYTES_OF[dtype]

    def memory_bytes(self, start: int, end: int) -> int:
        """Memory that layers [start, end) need: weights (shared ones once), caches, the largest workspace.

        >>> block = Layer("b", "block", 0, 0, 0, 0, weight_bytes=10, kv_bytes=3, workspace_bytes=5)
        >>> ModelCard("toy", (block, block), micro_batches=2).memory_bytes(0, 2)
        37
        """
        part = self.layers[start:end]
        total = sum(layer.weight_bytes + self.micro_batches * layer.kv_bytes for layer in part)
        if self.tied and start <= self.tied[0] and self.tied[1] < end:
            total -= self.tied_bytes
        return total + max((layer.workspace_bytes for layer in part), default=0)

    def with_(self, **changes: Any) -> ModelCard:
        """A copy with other fields; layers are not computed anew (use `from_config` for another batch or context)."""
        return replace(self, **changes)

    @staticmethod
    def from_config(config: str | Path | Mapping[str, Any], batch: int = 1, context: int | None = 1024,
                    dtype: str = "f32", micro_batches: int = 1) -> ModelCard:
        """The card of a named model ("gpt2-xl", "llama-70b", ...), of a `config.json`, or of its contents as a dict.
        A context of None is 1024 tokens, or as many as the model has positions for if those are fewer; a note says so.
        """
        from morpho.plan.model.configs import card_fields

        return ModelCard(micro_batches=micro_batches, **card_fields(config, batch, context, dtype))

    @staticmethod
    def from_graph(function: Any, *arguments: Any, name: str = "graph", dtype: str = "f32") -> ModelCard:
        """The card of a traced Morpho function: its operations as a chain of layers, cut where one value crosses."""
        from morpho.plan.model.graphs import layers_of

        return ModelCard(name, layers_of(function, arguments), 1, 1, dtype, phase="prefill")

    @staticmethod
    def from_onnx(model: Any, inputs: Mapping[str, Any] | None = None) -> ModelCard:
        """The card of an ONNX file, or of what `mo.onnx.load` made of it, for these inputs; zeros where none are given.
        Weights have the file's types, and what flows the type that most of them have.

        >>> import morpho as mo
        >>> w = mo.ones((64, 64))
        >>> path = mo.onnx.save(lambda x: mo.relu(x @ w) @ w, "two.onnx", mo.zeros((1, 64)))
        >>> card = ModelCard.from_onnx(path)
        >>> card.depth, card.dtype, card.layers[0].kind
        (2, 'f32', 'matmul')
        """
        from morpho.plan.model.onnx_files import card_fields

        return ModelCard(**card_fields(model, inputs))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> ModelCard:
        """The card that `to_dict` described."""
        rest = {name: value for name, value in data.items() if name != "layers"}
        for name in ("tied", "notes"):
            if rest.get(name) is not None:
                rest[name] = tuple(rest[name])
        return ModelCard(layers=tuple(Layer(**layer) for layer in data["layers"]), **rest)
