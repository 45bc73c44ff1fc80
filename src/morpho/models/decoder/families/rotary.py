"""Configuration of decoders with rotary positions: the settings, checks and `Shape` that they share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from morpho.base.errors import ArgumentError, fail
from morpho.models.base import divided
from morpho.models.config import Config
from morpho.models.decoder.shape import Rope, Shape
from morpho.models.rope_keys import USUAL, check_rope
from morpho.nn.transformer.blocks import ACTIVATIONS
from morpho.weights.keys import Key, Kind, irrelevant, number, one_of, whole

HEADS = ("", "sequence", "token", "span")
NO_DROPOUT = irrelevant("of training: attention has no dropout")
KINDS = Kind(lambda value: isinstance(value, list) and all(
    each in ("full_attention", "sliding_attention") for each in value),
    "a list of 'full_attention' and 'sliding_attention'").or_null()


@dataclass
class RotaryConfig(Config):
    """Settings that all of them have; `head` and `labels` are Morpho's own: which head the weights have."""

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int = 2048
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    tie_word_embeddings: bool = False
    initializer_range: float = 0.02
    eos_token_id: int | list[int] | None = None
    head: str = ""
    labels: int | None = None
    renamed: ClassVar[Mapping[str, str]] = {"rope_parameters": "rope_scaling"}  # newer files keep theta in there
    others: ClassVar[Mapping[str, Key]] = {"attention_dropout": NO_DROPOUT}
    kinds: ClassVar[Mapping[str, Kind]] = {
        "hidden_act": one_of(*ACTIVATIONS), "rope_theta": number(10000.0, above=0), "head": one_of(*HEADS),
        "layer_types": KINDS, "max_window_layers": whole(28)}
    numbers: ClassVar[Mapping[str, str]] = {
        "width": "hidden_size", "vocabulary": "vocab_size", "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads", "depth": "head_dim", "hidden": "intermediate_size",
        "layers": "num_hidden_layers", "context": "max_position_embeddings"}
    shared: ClassVar[tuple[str, ...]] = ("num_attention_heads", "num_key_value_heads", "intermediate_size",
                                         "hidden_size")
    family: ClassVar[str] = ""
    partial: ClassVar[bool] = False  # whether a part of a head may turn only
    interleaved: ClassVar[bool] = False  # whether pairs of numbers that turn are neighbours
    scalings: ClassVar[tuple[str, ...]] = (*USUAL, "longrope")

    def __post_init__(self) -> None:
        if self.rope_scaling and "rope_theta" in self.rope_scaling:
            self.rope_theta = self.rope_scaling["rope_theta"]

    @classmethod
    def check_parts(cls, operation: str, file: str, given: Mapping[str, Any], config: Mapping[str, Any],
                    ignore: Collection[str]) -> None:
        where = file + ": " if file else ""
        count, kinds = given.get("num_hidden_layers"), given.get("layer_types")
        if kinds is not None and len(kinds) != (count or cls.default("num_hidden_layers")):
            raise fail(ArgumentError, operation, f"{where}layer_types has {len(kinds)} entries, and num_hidden_layers "
                                                 f"is {count}")
        if kinds and "sliding_attention" in kinds and not given.get("sliding_window", cls._window()):
            raise fail(ArgumentError, operation, f"{where}layer_types names sliding_attention, and there is no "
                                                 "sliding_window")
        if given.get("rope_scaling"):
            name = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
            cls.check_rope(operation, file, name, given, ignore)

    @classmethod
    def _window(cls) -> Any:
        return cls.default("sliding_window") if "sliding_window" in cls.names() else None

    @classmethod
    def check_rope(cls, operation: str, file: str, name: str, given: Mapping[str, Any],
                   ignore: Collection[str]) -> None:
        """Whether the angles are computed, and theta is said once."""
        scaling = given["rope_scaling"]
        check_rope(operation, file, name, scaling, None, ignore, cls.scalings, cls.partial)
        theta = scaling.get("rope_theta")
        if theta is not None and given.get("rope_theta", theta) != theta:
            raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}rope_theta is {given['rope_theta']}, "
                                                 f"and {name}.rope_theta {theta}")

    # -- the shape -----------------------------------------------------------------------------------------------------
    @property
    def depth(self) -> int:
        """The width of a head."""
        return self.head_dim or divided(self.family, self.hidden_size, self.num_attention_heads,
                                        ("hidden_size", "num_attention_heads"))

    def rope(self, share: float = 1.0) -> Rope:
        """The angles of a layer; `share` of a head turns."""
        depth = int(self.depth * share)
        if depth % 2 or not depth:
            count = f"head_dim={depth} is odd" if share == 1 else f"{depth} numbers of a head turn"
            raise fail(ArgumentError, self.family, f"{count}, and pairs of numbers are turned")
        scaling = {key: value for key, value in (self.rope_scaling or {}).items()
                   if key not in ("rope_theta", "partial_rotary_factor")}
        if scaling.get("rope_type", scaling.get("type", "default")) == "default":
            scaling = {}
        for name in ("short_factor", "long_factor", "factors"):
            if name in scaling and len(scaling[name]) != depth // 2:
                raise fail(ArgumentError, self.family, f"rope_scaling.{name} has {len(scaling[name])} numbers, not "
                                                       f"{depth // 2}, half of a head's rotated width")
        return Rope(depth, self.rope_theta, scaling or None, self.interleaved)

    def shape_of(self, **others: Any) -> Shape:
        """The shape with what the fields here say; `others` go before it."""
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads or self.num_attention_heads
        if heads % kv_heads:
            raise fail(ArgumentError, self.family, f"num_attention_heads={heads} is not a multiple of "
                                                   f"num_key_value_heads={kv_heads}")
        given: dict[str, Any] = {
            "family": self.family, "vocabulary": self.vocab_size, "width": self.hidden_size,
            "layers": self.num_hidden_layers, "heads": heads, "kv_heads": kv_heads, "depth": self.depth,
            "hidden": self.intermediate_size, "context": self.max_position_embeddings,
            "tied": self.tie_word_embeddings, "std": self.initializer_range, "head": self.head,
            "labels": self.labels or 0, **others}
        given.setdefault("windows", (None,) * self.num_hidden_layers)
        if "ropes" not in given:
            given["ropes"] = (self.rope(),) * self.num_hidden_layers
        return Shape(**given)

    def shape(self) -> Shape:
        raise NotImplementedError


@dataclass
class PlainConfig(RotaryConfig):
    """Settings of decoders with RMS norms and a gated feed-forward part."""

    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6

    def plain(self, **others: Any) -> Shape:
        return self.shape_of(activation=self.hidden_act, eps=self.rms_norm_eps, **others)


@dataclass
class PartialConfig(PlainConfig):
    """Settings of decoders of which a part of each head turns."""

    partial_rotary_factor: float | None = None
    partial: ClassVar[bool] = True
    usual_part: ClassVar[float] = 0.5
    kinds: ClassVar[Mapping[str, Kind]] = {
        **RotaryConfig.kinds, "partial_rotary_factor": number(0.5, above=0, most=1).or_null()}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rope_scaling and self.rope_scaling.get("partial_rotary_factor"):
            self.partial_rotary_factor = self.rope_scaling["partial_rotary_factor"]

    def plain(self, **others: Any) -> Shape:
        part = self.usual_part if self.partial_rotary_factor is None else self.partial_rotary_factor
        return super().plain(**{"ropes": (self.rope(part),) * self.num_hidden_layers, **others})


class TwoRopes(RotaryConfig):
    """Angles that differ between layers that see all and layers with a window: newer files have both in one object,
    older ones those of full attention alone."""

    @property
    def local_theta(self) -> float:
        return self.rope_theta

    def __post_init__(self) -> None:
        if not _KINDS_OF_ROPES & {*(self.rope_scaling or {})}:
            super().__post_init__()

    @classmethod
    def check_rope(cls, operation: str, file: str, name: str, given: Mapping[str, Any],
                   ignore: Collection[str]) -> None:
        scaling = given["rope_scaling"]
        if not _KINDS_OF_ROPES & {*scaling}:
            if name == "rope_parameters":
                raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}rope_parameters has neither "
                                                     "sliding_attention nor full_attention",
                           "give angles for both; older files keep those of full attention in rope_scaling")
            super().check_rope(operation, file, name, given, ignore)
            return
        for key, part in scaling.items():
            if key not in _KINDS_OF_ROPES or not isinstance(part, dict):
                raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}{name}.{key} is not the angles of "
                                                     "sliding_attention or of full_attention")
            check_rope(operation, file, f"{name}.{key}", part, None, ignore, cls.scalings, cls.partial)

    def ropes(self, kinds: list[str]) -> tuple[Rope, ...]:
        """The angles of each layer by its kind."""
        both = self.rope_scaling or {}
        if _KINDS_OF_ROPES & {*both}:
            usual = {"sliding_attention": self.local_theta, "full_attention": self.rope_theta}
            angles = {kind: replace(self, rope_scaling=both.get(kind) or {"rope_theta": theta}).rope()
                      for kind, theta in usual.items()}
        else:
            local = replace(self, rope_scaling=None, rope_theta=self.local_theta)
            angles = {"sliding_attention": local.rope(), "full_attention": self.rope()}
        return tuple(angles[kind] for kind in kinds)


_KINDS_OF_ROPES = {"sliding_attention", "full_attention"}


def windows(kinds: list[str], window: int | None) -> tuple[int | None, ...]:
    """The window of each layer by its kind."""
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)
