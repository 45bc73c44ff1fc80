"""Encoders of the common kind: what config.json of each family says, the `EncoderShape` that follows, and the names of
its weights in published files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from morpho.base.errors import ArgumentError, fail
from morpho.models.base import divided
from morpho.models.config import Config
from morpho.models.decoder.families.rotary import KINDS as LAYER_KINDS
from morpho.models.decoder.families.rotary import RotaryConfig, TwoRopes, windows
from morpho.models.decoder.family import NO_BRACKETS
from morpho.models.encoders.heads import KINDS
from morpho.models.encoders.model import BUCKETS, Encoder
from morpho.models.encoders.shape import Convolution, Disentangled, EncoderShape, Heads
from morpho.models.family import Family, Names, Settings
from morpho.nn.transformer.blocks import ACTIVATIONS
from morpho.weights import Rule, concat, split
from morpho.weights.keys import Key, Kind, irrelevant, is_whole, number, one_of, only, token, whole
from morpho.weights.mapping import choose

FUNCTION = one_of(*ACTIVATIONS)
TRAINING = irrelevant("of training: attention has no dropout")
NO_TEXT = irrelevant("no text is made")
WORDS: dict[str, Key] = {"attention_probs_dropout_prob": TRAINING, "hidden_dropout_prob": TRAINING,
                         "eos_token_id": NO_TEXT, "position_embedding_type": only("absolute", None)}


@dataclass
class EncoderConfig(Config):
    """Settings that BERT's kin have; `pooler`, `masked_lm`, `head` and `labels` say which parts there are."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    pooler: bool = False
    masked_lm: bool = True
    head: str = ""
    labels: int | None = None
    family: ClassVar[str] = ""
    others: ClassVar[Mapping[str, Key]] = WORDS
    kinds: ClassVar[Mapping[str, Kind]] = {"hidden_act": FUNCTION, "head": one_of(*KINDS), "type_vocab_size": whole(2)}

    def shape_of(self, **others: Any) -> EncoderShape:
        """The shape with what the fields here say; `others` go before it."""
        depth = divided(self.family, self.hidden_size, self.num_attention_heads, ("hidden_size", "num_attention_heads"))
        return EncoderShape(**{
            "family": self.family, "vocabulary": self.vocab_size, "width": self.hidden_size,
            "layers": self.num_hidden_layers, "heads": self.num_attention_heads, "kv_heads": self.num_attention_heads,
            "depth": depth, "hidden": self.intermediate_size, "activation": self.hidden_act,
            "context": self.max_position_embeddings, "eps": self.layer_norm_eps, "std": self.initializer_range,
            "tied": self.tie_word_embeddings, "head": self.head, "labels": self.labels, "pooler": self.pooler,
            "masked": self.masked_lm, "heads_of": Heads(self.hidden_act), "embed_width": self.hidden_size,
            "positions": self.max_position_embeddings, "types": self.type_vocab_size, **others})


@dataclass
class AlbertConfig(EncoderConfig):
    """The settings of an ALBERT: groups of layers share weights."""

    embedding_size: int = 128
    hidden_size: int = 4096
    num_attention_heads: int = 64
    intermediate_size: int = 16384
    num_hidden_groups: int = 1
    inner_group_num: int = 1
    hidden_act: str = "gelu_new"
    vocab_size: int = 30000
    family: ClassVar[str] = "albert"
    others: ClassVar[Mapping[str, Key]] = {
        **WORDS, "classifier_dropout_prob": TRAINING, "down_scale_factor": irrelevant("of another program"),
        "gap_size": irrelevant("of another program"), "net_structure_type": irrelevant("of another program"),
        "num_memory_blocks": irrelevant("of another program")}

    def shape(self) -> EncoderShape:
        groups, inner = self.num_hidden_groups, self.inner_group_num
        if groups > self.num_hidden_layers:
            raise fail(ArgumentError, "albert", f"num_hidden_groups={groups} is more than num_hidden_layers="
                                                f"{self.num_hidden_layers}")
        order = tuple(int(layer / (self.num_hidden_layers / groups)) * inner + each
                      for layer in range(self.num_hidden_layers) for each in range(inner))
        return self.shape_of(embed_width=self.embedding_size, project="after", order=order)


@dataclass
class ElectraConfig(EncoderConfig):
    """The settings of an ELECTRA; `replaced` is a head that says which tokens were replaced (a discriminator)."""

    embedding_size: int = 128
    hidden_size: int = 256
    num_attention_heads: int = 4
    intermediate_size: int = 1024
    replaced: bool = False
    family: ClassVar[str] = "electra"
    others: ClassVar[Mapping[str, Key]] = {**WORDS, "summary_*": irrelevant("of choices between several texts")}

    def shape(self) -> EncoderShape:
        return self.shape_of(
            embed_width=self.embedding_size, project="after" if self.embedding_size != self.hidden_size else "",
            heads_of=Heads("gelu", text_function=self.hidden_act if self.replaced else "gelu",
                           everywhere=self.replaced))


@dataclass
class MPNetConfig(EncoderConfig):
    """The settings of an MPNet: positions of RoBERTa and a table of distances of T5."""

    vocab_size: int = 30527
    relative_attention_num_buckets: int = 32
    pad_token_id: int = 1
    family: ClassVar[str] = "mpnet"
    others: ClassVar[Mapping[str, Key]] = {**WORDS, "type_vocab_size": irrelevant("there are no segments")}
    kinds: ClassVar[Mapping[str, Kind]] = {
        **EncoderConfig.kinds, "pad_token_id": token(), "relative_attention_num_buckets": Kind(
            lambda value: is_whole(value, BUCKETS, 1 << 20), f"a whole number of at least {BUCKETS}, which are used")}

    def shape(self) -> EncoderShape:
        return self.shape_of(types=0, padding=1, buckets=self.relative_attention_num_buckets,
                             heads_of=Heads("gelu", text_function="tanh"))


PARTS = Kind(lambda value: isinstance(value, str) or (isinstance(value, list) and all(
    isinstance(each, str) for each in value)), 'a list of "c2p" and "p2c"').or_null()
ANY_WHOLE = Kind(lambda value: type(value) is int and -1 <= value < 1 << 20, "a whole number, -1 for none")


@dataclass
class DebertaV2Config(EncoderConfig):
    """The settings of a DeBERTa, versions 2 and 3."""

    vocab_size: int = 128100
    hidden_size: int = 1536
    num_hidden_layers: int = 24
    num_attention_heads: int = 24
    intermediate_size: int = 6144
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-7
    relative_attention: bool = False
    max_relative_positions: int = -1
    position_buckets: int = -1
    position_biased_input: bool = True
    pos_att_type: Any = None
    share_att_key: bool = False
    norm_rel_ebd: str = "none"
    pooler_hidden_act: str = "gelu"
    conv_kernel_size: int = 0
    conv_groups: int = 1
    conv_act: str = "tanh"
    embedding_size: int | None = None
    legacy: bool = True
    family: ClassVar[str] = "deberta-v2"
    others: ClassVar[Mapping[str, Key]] = {
        **WORDS, "pooler_dropout": TRAINING, "cls_dropout": TRAINING, "summary_*": irrelevant("of another program"),
        "attention_head_size": irrelevant("checked against hidden_size and num_attention_heads"),
        "pooler_hidden_size": irrelevant("checked against hidden_size"), "z_steps": only(0)}
    kinds: ClassVar[Mapping[str, Kind]] = {
        **EncoderConfig.kinds, "pos_att_type": PARTS, "max_relative_positions": ANY_WHOLE, "conv_act": FUNCTION,
        "position_buckets": ANY_WHOLE, "pooler_hidden_act": FUNCTION, "conv_kernel_size": Kind(
            lambda value: value == 0 or (is_whole(value, 1, 1 << 10) and value % 2 == 1), "an odd number, or 0"),
        "type_vocab_size": whole(0)}

    @classmethod
    def check_parts(cls, operation: str, file: str, given: Mapping[str, Any], config: Mapping[str, Any],
                    ignore: Collection[str]) -> None:
        where = f"{file}: " if file else ""
        width = given.get("hidden_size", cls.hidden_size)
        wanted = {"attention_head_size": width // given.get("num_attention_heads", cls.num_attention_heads),
                  "pooler_hidden_size": width}
        for name, value in wanted.items():
            if name not in ignore and config.get(name, value) not in (value, None):
                raise fail(ArgumentError, operation, f"{where}{name} is {config[name]!r}, and only {value} is computed")
        for part in cls._parts(given.get("pos_att_type")):
            if part not in ("c2p", "p2c"):
                raise fail(ArgumentError, operation, f"{where}pos_att_type names {part!r}, and only c2p and p2c are "
                                                     "computed")

    @staticmethod
    def _parts(said: Any) -> list[str]:
        return [each.strip() for each in said.lower().split("|")] if isinstance(said, str) else list(said or ())

    def shape(self) -> EncoderShape:
        parts = self._parts(self.pos_att_type)
        most = self.max_relative_positions if self.max_relative_positions > 0 else self.max_position_embeddings
        form = Disentangled(tuple(parts), most, self.position_buckets, self.share_att_key,
                            "layer_norm" in [each.strip() for each in self.norm_rel_ebd.lower().split("|")])
        beside = Convolution(self.conv_kernel_size, self.conv_groups, self.conv_act) if self.conv_kernel_size else None
        if parts and not self.relative_attention:
            raise fail(ArgumentError, "deberta-v2", "pos_att_type is set, and relative_attention is false",
                       "set relative_attention, or pos_att_type to null")
        narrow = self.embedding_size or self.hidden_size
        return self.shape_of(
            disentangled=form if self.relative_attention else None, convolution=beside, embed_width=narrow,
            project="before" if narrow != self.hidden_size else "", masks_embeddings=True,
            positions=self.max_position_embeddings if self.position_biased_input else 0,
            heads_of=Heads(self.hidden_act, text_function=self.pooler_hidden_act))


@dataclass
class ModernBertConfig(TwoRopes):
    """The settings of a ModernBERT: norms before each part, windows, gates, rotary positions."""

    vocab_size: int = 50368
    hidden_size: int = 768
    intermediate_size: int = 1152
    num_hidden_layers: int = 22
    num_attention_heads: int = 12
    hidden_activation: str = "gelu"
    max_position_embeddings: int = 8192
    norm_eps: float = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    layer_types: list[str] | None = None
    global_attn_every_n_layers: int = 3
    rope_theta: float = 160000.0
    local_rope_theta: float = 10000.0
    local_attention: int = 128
    mlp_bias: bool = False
    decoder_bias: bool = True
    classifier_pooling: str = "cls"
    classifier_bias: bool = False
    classifier_activation: str = "gelu"
    tie_word_embeddings: bool = True
    pooler: bool = False
    masked_lm: bool = True
    family: ClassVar[str] = "modernbert"
    renamed: ClassVar[Mapping[str, str]] = {**RotaryConfig.renamed, "global_rope_theta": "rope_theta"}
    others: ClassVar[Mapping[str, Key]] = {
        "attention_dropout": TRAINING, "embedding_dropout": TRAINING, "mlp_dropout": TRAINING, "eos_token_id": NO_TEXT,
        "initializer_cutoff_factor": TRAINING, "deterministic_flash_attn": irrelevant("another program's kernel"),
        "sparse_prediction": irrelevant("of losses"), "sparse_pred_ignore_index": irrelevant("of losses"),
        "reference_compile": irrelevant("another program's compiler"),
        "repad_logits_with_grad": irrelevant("of training"), "position_embedding_type": only("absolute", "rope", None),
        "layer_norm_eps": irrelevant("norm_eps is used")}
    kinds: ClassVar[Mapping[str, Kind]] = {
        **RotaryConfig.kinds, "hidden_activation": FUNCTION, "classifier_pooling": one_of("cls", "mean"),
        "classifier_activation": FUNCTION, "layer_types": LAYER_KINDS, "local_rope_theta": number(10000.0, above=0),
        "num_key_value_heads": Kind(lambda value: value is None, "null"),
        "head_dim": Kind(lambda value: value is None, "null")}

    @classmethod
    def _window(cls) -> Any:
        return cls.local_attention

    @property
    def local_theta(self) -> float:
        return self.local_rope_theta

    def shape(self) -> EncoderShape:  # type: ignore[override]
        kinds = self.layer_types or ["sliding_attention" if layer % self.global_attn_every_n_layers else
                                     "full_attention" for layer in range(self.num_hidden_layers)]
        depth, norm = self.depth, "layer" if self.norm_bias else "layer0"
        return EncoderShape(
            self.family, self.vocab_size, self.hidden_size, self.num_hidden_layers, self.num_attention_heads,
            self.num_attention_heads, depth, self.intermediate_size, self.hidden_activation,
            self.max_position_embeddings, self.norm_eps, self.initializer_range, self.tie_word_embeddings, self.head,
            self.labels, self.pooler, self.masked_lm,
            Heads(self.classifier_activation, dense_bias=self.classifier_bias, decoder_bias=self.decoder_bias,
                  pooling="mean" if self.classifier_pooling == "mean" else "first",
                  text_function=self.classifier_activation, text_bias=self.classifier_bias, text_norm=True,
                  everywhere=True),
            self.hidden_size, norm=norm, before=True, first_norm=False, final_norm=True, qkv_bias=self.attention_bias,
            out_bias=self.attention_bias, mlp_bias=self.mlp_bias, gated=True, ropes=self.ropes(kinds),
            windows=windows(kinds, self.local_attention // 2))


@dataclass
class EuroBertConfig(RotaryConfig):
    """The settings of a EuroBERT: Llama's layers that see both ways."""

    vocab_size: int = 128256
    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    hidden_act: str = "silu"
    max_position_embeddings: int = 8192
    rms_norm_eps: float = 1e-5
    attention_bias: bool = False
    mlp_bias: bool = False
    classifier_pooling: str = "late"
    pooler: bool = False
    masked_lm: bool = True
    family: ClassVar[str] = "eurobert"
    scalings: ClassVar[tuple[str, ...]] = ("default", "linear", "llama3", "yarn")
    others: ClassVar[Mapping[str, Key]] = {
        "attention_dropout": TRAINING, "eos_token_id": NO_TEXT, "mask_token_id": irrelevant("a text holds it"),
        "pretraining_tp": only(1), "clf_pooling": irrelevant("classifier_pooling is used"),
        "hidden_dropout": TRAINING}
    kinds: ClassVar[Mapping[str, Kind]] = {
        **RotaryConfig.kinds, "classifier_pooling": one_of("bos", "mean", "late")}

    def shape(self) -> EncoderShape:  # type: ignore[override]
        kv_heads, rope = self.num_key_value_heads or self.num_attention_heads, self.rope()
        pooling = {"bos": "first"}.get(self.classifier_pooling, self.classifier_pooling)
        return EncoderShape(
            self.family, self.vocab_size, self.hidden_size, self.num_hidden_layers, self.num_attention_heads, kv_heads,
            self.depth, self.intermediate_size, self.hidden_act, self.max_position_embeddings, self.rms_norm_eps,
            self.initializer_range, self.tie_word_embeddings, self.head, self.labels, self.pooler, self.masked_lm,
            Heads(plain=True, decoder_bias=self.mlp_bias, pooling=pooling, text_function="gelu"), self.hidden_size,
            embed_norm=False, norm="rms", before=True, final_norm=True, qkv_bias=self.attention_bias,
            out_bias=self.attention_bias, mlp_bias=self.mlp_bias, gated=True,
            ropes=(rope,) * self.num_hidden_layers)


@dataclass
class NomicBertConfig(RotaryConfig):
    """The settings of a NomicBERT: BERT's norms, gates, rotary positions."""

    vocab_size: int = 30528
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    rope_theta: float = 1000.0
    tie_word_embeddings: bool = True
    pooler: bool = False
    masked_lm: bool = True
    family: ClassVar[str] = "nomic_bert"
    scalings: ClassVar[tuple[str, ...]] = ("default", "linear", "llama3", "yarn")
    renamed: ClassVar[Mapping[str, str]] = {
        **RotaryConfig.renamed, "n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_inner": "intermediate_size",
        "n_head": "num_attention_heads", "n_positions": "max_position_embeddings", "rotary_emb_base": "rope_theta",
        "layer_norm_epsilon": "layer_norm_eps"}
    others: ClassVar[Mapping[str, Key]] = {  # the second half is that of files older than the library's class
        **WORDS, "activation_function": only("swiglu"), "causal": only(False), "prenorm": only(False),
        "parallel_block": only(False), "parallel_block_tied_norm": irrelevant("of parallel blocks"),
        "mlp_fc1_bias": only(False), "mlp_fc2_bias": only(False), "qkv_proj_bias": only(False),
        "rotary_emb_fraction": only(1.0, 1), "rotary_emb_interleaved": only(False), "rotary_emb_scale_base": only(None),
        "rotary_scaling_factor": only(None), "use_rms_norm": only(None, False), "scale_attn_weights": only(True),
        "scale_attn_by_inverse_layer_idx": only(False), "attn_pdrop": TRAINING, "embd_pdrop": TRAINING,
        "resid_pdrop": TRAINING, "summary_*": irrelevant("of another program"), "fused_*": irrelevant("a kernel"),
        "use_flash_attn": irrelevant("a kernel"), "use_xentropy": irrelevant("a kernel"),
        "reorder_and_upcast_attn": irrelevant("a kernel"), "dense_seq_output": irrelevant("of losses"),
        "last_layer_subset": irrelevant("of losses"), "max_trained_positions": irrelevant("of rotary_scaling_factor"),
        "pad_vocab_size_multiple": irrelevant("vocab_size says it")}
    kinds: ClassVar[Mapping[str, Kind]] = {
        **RotaryConfig.kinds, "type_vocab_size": whole(2),
        "num_key_value_heads": Kind(lambda value: value is None, "null")}

    def shape(self) -> EncoderShape:  # type: ignore[override]
        rope = self.rope()
        return EncoderShape(
            self.family, self.vocab_size, self.hidden_size, self.num_hidden_layers, self.num_attention_heads,
            self.num_attention_heads, self.depth, self.intermediate_size, self.hidden_act,
            self.max_position_embeddings, self.layer_norm_eps, self.initializer_range, self.tie_word_embeddings,
            self.head, self.labels, self.pooler, self.masked_lm, Heads(self.hidden_act), self.hidden_size,
            types=self.type_vocab_size, qkv_bias=False, out_bias=False, mlp_bias=False, gated=True,
            ropes=(rope,) * self.num_hidden_layers)


# -- names -------------------------------------------------------------------------------------------------------------
Pairs = Sequence[tuple[str, str]]


def _layer(theirs: str, names: Mapping[str, str], number: str = "{i}") -> Pairs:
    return [(f"{theirs}.{name}.{{what}}", f"model.layers.{number}.{ours}.{{what}}") for ours, name in names.items()]


BERT_ENDS = {"mlp.up_proj": "intermediate.dense", "mlp.down_proj": "output.dense", "mlp_norm": "output.LayerNorm"}


def _embeddings(prefix: str) -> Pairs:
    return [(f"({prefix}.)embeddings.{theirs}.{{what}}", f"model.embeddings.{ours}.{{what}}") for theirs, ours in (
        ("word_embeddings", "words"), ("position_embeddings", "positions"), ("token_type_embeddings", "types"),
        ("LayerNorm", "norm"))]


def _predictions(name: str, norm: str = "LayerNorm") -> Pairs:
    return [(f"{name}.dense.{{what}}", "masked.transform.dense.{what}"),
            (f"{name}.{norm}.{{what}}", "masked.transform.norm.{what}")]


def _two_steps(settings: Settings) -> Pairs:
    """RoBERTa's names of the head for texts; the one for tokens has no product before it."""
    return [("classifier.dense.{what}", "text.dense.{what}"), ("classifier.out_proj.{what}", "classifier.{what}")] \
        if settings.get("head", "sequence") == "sequence" else []


CLS: Pairs = [*_predictions("cls.predictions.transform"), ("cls.predictions.decoder.weight", "masked.decoder.weight"),
              ("cls.predictions.bias", "masked.bias")]


def _attention(name: str, parts: Sequence[str], out: str, norm: str) -> dict[str, str]:
    """Names of queries, keys and values within `name`, of the product after them, and of the norm."""
    return {**{f"self_attn.{ours}_proj": f"{name}{theirs}" for ours, theirs in zip("qkv", parts, strict=True)},
            "self_attn.o_proj": out, "attn_norm": norm}


def encoder_family(name: str, title: str, config: type[Any], prefix: str, pairs: Callable[[Settings], Pairs], *,
                   embedding: str = "", head: str = "cls.predictions.decoder.weight", dropped: Sequence[str] = (),
                   joined: Sequence[tuple[str, Sequence[str]]] = (), bias: str = "") -> Family:
    """The record of an encoder. `pairs` say how published names read here, by what config.json says, `joined` which of
    their weights are several here, `dropped` what is left out; `bias` is another name of the masked head's bias."""
    def rules(settings: Settings, names: Collection[str]) -> list[Rule]:
        twice = [Rule(bias, "masked.bias"), Rule("cls.predictions.bias", None), Rule("predictions.bias", None),
                 Rule("lm_head.bias", None)] if bias and bias in names else []
        return [*([Rule(head, None)] if settings["tie_word_embeddings"] else []), *twice,
                *(Rule(each, None) for each in (f"({prefix}.)embeddings.position_ids", *dropped)),
                *(Rule(theirs, ours, split(0)) for theirs, ours in joined),
                *(Rule(theirs, ours) for theirs, ours in pairs(settings))]

    def published(settings: Settings) -> list[Rule]:
        return [*(Rule(ours, theirs.translate(NO_BRACKETS), concat(0)) for theirs, ours in joined),
                *(Rule(ours, theirs.translate(NO_BRACKETS)) for theirs, ours in pairs(settings))]

    def parts(settings: Settings, weights: Any) -> dict[str, Any]:
        by_ours = {target: each for each in weights
                   for target in choose(each, rules({**settings, "tie_word_embeddings": False}, weights))[2]}
        said = " ".join(map(str, settings.get("architectures") or ()))
        found: dict[str, Any] = {"pooler": "text.dense.weight" in by_ours,
                                 "masked_lm": any(each.startswith("masked.") for each in by_ours)}
        if "qa_outputs.weight" in by_ours:
            return {**found, "head": "span"}
        if "classifier.weight" not in by_ours:
            return found
        if "QuestionAnswering" in said:  # ModernBERT calls it a classifier
            return {**found, "head": "span", "masked_lm": False}
        if any("discriminator_predictions" in each for each in weights):
            return {**found, "head": "token", "labels": 1, "replaced": True}
        usual = found["pooler"] or name == "modernbert"
        texts = "SequenceClassification" in said or ("TokenClassification" not in said and usual)
        return {**found, "head": "sequence" if texts else "token",
                "masked_lm": found["masked_lm"] and name != "modernbert",
                "labels": int(weights.shapes[by_ours["classifier.weight"]][0])}

    model: type[Encoder] = type(title, (Encoder,), {"model_type": name, "config_class": config,
                                                    "__module__": config.__module__})
    words = embedding or f"{prefix}.embeddings.word_embeddings.weight"
    return Family(name, model, {name: {}}, Names(head, words, rules, published, parts=parts))


def _kin(prefix: str) -> Pairs:
    """Names of BERT's layers."""
    return _layer(f"({prefix}.)encoder.layer.{{i}}", {**_attention(
        "attention.self.", ("query", "key", "value"), "attention.output.dense", "attention.output.LayerNorm"),
        **BERT_ENDS})


_SAME = {name: name for name in (*(f"self_attn.{each}_proj" for each in "qkvo"),
                                 *(f"mlp.{each}_proj" for each in ("gate", "up", "down")))}



def _albert(settings: Settings) -> Pairs:
    names = {**_attention("attention.", ("query", "key", "value"), "attention.dense", "attention.LayerNorm"),
             "mlp.up_proj": "ffn", "mlp.down_proj": "ffn_output", "mlp_norm": "full_layer_layer_norm"}
    groups, inner = (settings.get(name) or 1 for name in ("num_hidden_groups", "inner_group_num"))
    layers = [_layer(f"(albert.)encoder.albert_layer_groups.{group}.albert_layers.{each}", names,
                     str(group * inner + each)) for group in range(groups) for each in range(inner)]
    return [*_embeddings("albert"), ("(albert.)encoder.embedding_hidden_mapping_in.{what}",
                                     "model.embeddings.project.{what}"),
            *(pair for layer in layers for pair in layer), ("(albert.)pooler.{what}", "text.dense.{what}"),
            *_predictions("predictions"), ("predictions.decoder.weight", "masked.decoder.weight"),
            ("predictions.bias", "masked.bias")]


def _electra(settings: Settings) -> Pairs:
    replaced = [("discriminator_predictions.dense.{what}", "text.dense.{what}"),
                ("discriminator_predictions.dense_prediction.{what}", "classifier.{what}")]
    return [*_embeddings("electra"), ("(electra.)embeddings_project.{what}", "model.embeddings.project.{what}"),
            *_kin("electra"), *_predictions("generator_predictions"),
            ("generator_lm_head.weight", "masked.decoder.weight"), ("generator_lm_head.bias", "masked.bias"),
            *(replaced if settings.get("replaced", True) else []), *_two_steps(settings)]


def _mpnet(settings: Settings) -> Pairs:
    return [*_embeddings("mpnet"), ("(mpnet.)encoder.relative_attention_bias.{what}", "model.biases.{what}"),
            *_layer("(mpnet.)encoder.layer.{i}", {**_attention(
                "attention.attn.", "qkv", "attention.attn.o", "attention.LayerNorm"), **BERT_ENDS}),
            *_predictions("lm_head", "layer_norm"), ("lm_head.decoder.weight", "masked.decoder.weight"),
            ("lm_head.bias", "masked.bias"), *([] if settings.get("head", "") == "sequence" else [
                ("(mpnet.)pooler.dense.{what}", "text.dense.{what}")]), *_two_steps(settings)]


def _deberta(settings: Settings) -> Pairs:
    newer = [*_predictions("lm_predictions.lm_head"), ("lm_predictions.lm_head.bias", "masked.bias")]
    return [*_embeddings("deberta"), ("(deberta.)embeddings.embed_proj.{what}", "model.embeddings.project.{what}"),
            *_layer("(deberta.)encoder.layer.{i}", {**_attention(
                "attention.self.", ("query_proj", "key_proj", "value_proj"), "attention.output.dense",
                "attention.output.LayerNorm"), "self_attn.pos_k_proj": "attention.self.pos_key_proj",
                "self_attn.pos_q_proj": "attention.self.pos_query_proj", **BERT_ENDS}),
            ("(deberta.)encoder.rel_embeddings.{what}", "model.distances.{what}"),
            ("(deberta.)encoder.LayerNorm.{what}", "model.distances_norm.{what}"),
            ("(deberta.)encoder.conv.conv.{what}", "model.beside.{what}"),
            ("(deberta.)encoder.conv.LayerNorm.{what}", "model.beside.norm.{what}"),
            *(CLS if settings.get("legacy", True) else newer), ("pooler.dense.{what}", "text.dense.{what}")]


def _nomic(settings: Settings) -> Pairs:
    return [*_embeddings("nomic_bert")[:3], ("(nomic_bert.)emb_ln.{what}", "model.embeddings.norm.{what}"),
            *_layer("(nomic_bert.)encoder.layers.{i}", {
                "self_attn.o_proj": "attn.out_proj", "mlp.up_proj": "mlp.fc11", "mlp.gate_proj": "mlp.fc12",
                "mlp.down_proj": "mlp.fc2", "attn_norm": "norm1", "mlp_norm": "norm2"}),
            ("(nomic_bert.)pooler.dense.{what}", "text.dense.{what}"),
            *_predictions("cls.predictions.transform", "layer_norm"), *CLS[2:]]


def _eurobert(settings: Settings) -> Pairs:
    return [("(model.)embed_tokens.weight", "model.embeddings.words.weight"), *_layer("(model.)layers.{i}", {
                **_SAME, "attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}),
            ("(model.)norm.weight", "model.norm.weight"), ("lm_head.weight", "masked.decoder.weight"),
            ("lm_head.bias", "masked.bias"), ("dense.{what}", "text.dense.{what}")]


def _modernbert(settings: Settings) -> Pairs:
    ours = "text" if settings.get("head") else "masked.transform"
    return [("(model.)embeddings.tok_embeddings.weight", "model.embeddings.words.weight"),
            ("(model.)embeddings.norm.{what}", "model.embeddings.norm.{what}"), *_layer("(model.)layers.{i}", {
                "self_attn.o_proj": "attn.Wo", "attn_norm": "attn_norm", "mlp_norm": "mlp_norm",
                "mlp.down_proj": "mlp.Wo"}),
            ("(model.)final_norm.{what}", "model.norm.{what}"), ("decoder.weight", "masked.decoder.weight"),
            ("decoder.bias", "masked.bias"), ("head.dense.{what}", f"{ours}.dense.{{what}}"),
            ("head.norm.{what}", f"{ours}.norm.{{what}}"),
            *([("classifier.{what}", "qa_outputs.{what}")] if settings.get("head") == "span" else [])]


_JOINED_NOMIC = [("(nomic_bert.)encoder.layers.{i}.attn.Wqkv.weight",
                  [f"model.layers.{{i}}.self_attn.{each}_proj.weight" for each in "qkv"])]
_JOINED = [(f"(model.)layers.{{i}}.{theirs}.{what}", [f"model.layers.{{i}}.{ours}_proj.{what}" for ours in parts])
           for theirs, parts in (("attn.Wqkv", [f"self_attn.{each}" for each in "qkv"]),
                                 ("mlp.Wi", ["mlp.gate", "mlp.up"])) for what in ("weight", "bias")]
FAMILIES = (
    encoder_family("albert", "Albert", AlbertConfig, "albert", _albert, head="predictions.decoder.weight",
                   bias="predictions.decoder.bias", dropped=("sop_classifier.classifier.{what}",)),
    encoder_family("electra", "Electra", ElectraConfig, "electra", _electra, head="generator_lm_head.weight"),
    encoder_family("mpnet", "MPNet", MPNetConfig, "mpnet", _mpnet, head="lm_head.decoder.weight",
                   bias="lm_head.decoder.bias"),
    encoder_family("deberta-v2", "DebertaV2", DebertaV2Config, "deberta", _deberta,
                   bias="cls.predictions.decoder.bias", dropped=("mask_predictions.{rest:*}",)),
    encoder_family("nomic_bert", "NomicBert", NomicBertConfig, "nomic_bert", _nomic,
                   bias="cls.predictions.decoder.bias", joined=_JOINED_NOMIC),
    encoder_family("eurobert", "EuroBert", EuroBertConfig, "model", _eurobert, head="lm_head.weight",
                   embedding="model.embed_tokens.weight"),
    encoder_family("modernbert", "ModernBert", ModernBertConfig, "model", _modernbert, head="decoder.weight",
                   embedding="model.embeddings.tok_embeddings.weight", joined=_JOINED),
)
