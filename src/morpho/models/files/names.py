"""How the families' published files name their weights: tables of rules from a file's names to a model's.

A model's own names are the published ones, so a table says only what differs: prefixes that some files leave out, names
of long ago, and what a file holds besides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from morpho.models.files import decoder_names
from morpho.weights import Rule, unpermute
from morpho.weights.mapping import rename

Config = Mapping[str, Any]
Names = Collection[str]

# The matrix of the head, and the embedding that it is where they are tied.
HEADS = {
    "gpt2": ("lm_head.weight", "wte.weight"),
    "bert": ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
    "roberta": ("lm_head.decoder.weight", "embeddings.word_embeddings.weight"),
    "distilbert": ("vocab_projector.weight", "embeddings.word_embeddings.weight"),
    "t5": ("lm_head.weight", "shared.weight"),
    "bart": ("lm_head.weight", "model.shared.weight"),
    "whisper": ("proj_out.weight", "model.decoder.embed_tokens.weight"),
    **{name: (decoder_names.HEAD.get(name, "lm_head.weight"),
              decoder_names.EMBEDDING.get(name, "model.embed_tokens.weight")) for name in decoder_names.FAMILIES},
}
PREFIXES = ("", "transformer.", "bert.", "roberta.", "distilbert.")  # before an embedding's name in some files
# What a file may hold twice: the same numbers under another name.
TWICE = {
    "t5": {"encoder.embed_tokens.weight": "shared.weight", "decoder.embed_tokens.weight": "shared.weight"},
    "bart": {f"model.{part}.embed_tokens.weight": "model.shared.weight" for part in ("encoder", "decoder")},
}


def gpt2(config: Config, names: Names) -> list[Rule]:
    return [
        *_tied_head(config),
        Rule("(transformer.)h.{i}.attn.bias", None),  # masks
        Rule("(transformer.)h.{i}.attn.masked_bias", None),
        Rule("lm_head.{rest:*}", "lm_head.{rest}"),
        Rule("(transformer.){rest:*}", "{rest}"),
    ]


def _tied_head(config: Config) -> list[Rule]:
    """Where it is tied, the head in the file is known to be the embedding."""
    return [Rule("lm_head.weight", None)] if config["tie_word_embeddings"] else []


def bert(config: Config, names: Names) -> list[Rule]:
    old = [rule for ours, theirs in (("weight", "gamma"), ("bias", "beta")) for rule in (
        Rule(f"cls.{{rest:*}}.{theirs}", f"cls.{{rest}}.{ours}"),
        Rule(f"(bert.){{rest:*}}.{theirs}", f"bert.{{rest}}.{ours}"))]
    head = [Rule("cls.predictions.decoder.weight", None)] if config["tie_word_embeddings"] else []
    if "cls.predictions.decoder.bias" in names:  # newer files say it twice, and this one is added
        head += [Rule("cls.predictions.bias", None), Rule("cls.predictions.decoder.bias", "cls.predictions.bias")]
    return [
        Rule("(bert.)embeddings.position_ids", None),
        Rule("cls.seq_relationship.{what}", None),  # of the next sentence
        *head,
        *old,
        *(Rule(f"{name}.{{rest:*}}", f"{name}.{{rest}}") for name in ("cls", "classifier", "qa_outputs")),
        Rule("(bert.){rest:*}", "bert.{rest}"),
    ]


def roberta(config: Config, names: Names) -> list[Rule]:
    head = [Rule("lm_head.decoder.weight", None)] if config["tie_word_embeddings"] else []
    if "lm_head.decoder.bias" in names:  # the same numbers twice, and this one is added
        head += [Rule("lm_head.bias", None), Rule("lm_head.decoder.bias", "lm_head.bias")]
    return [
        Rule("(roberta.)embeddings.position_ids", None), *head,
        *(Rule(f"{name}.{{rest:*}}", f"{name}.{{rest}}") for name in ("lm_head", "classifier", "qa_outputs")),
        Rule("(roberta.){rest:*}", "roberta.{rest}"),
    ]


def distilbert(config: Config, names: Names) -> list[Rule]:
    heads = ("vocab_transform", "vocab_layer_norm", "vocab_projector", "pre_classifier", "classifier", "qa_outputs")
    return [
        *([Rule("vocab_projector.weight", None)] if config["tie_word_embeddings"] else []),
        *(Rule(f"{name}.{{rest:*}}", f"{name}.{{rest}}") for name in heads),
        Rule("(distilbert.){rest:*}", "distilbert.{rest}"),
    ]


def t5(config: Config, names: Names) -> list[Rule]:
    return [
        *_tied_head(config),
        *(Rule(name, None) for name in TWICE["t5"]),
        Rule("decoder.block.{i}.layer.1.EncDecAttention.relative_attention_bias.weight", None),  # never used
    ]


def bart(config: Config, names: Names) -> list[Rule]:
    shared = "model.shared.weight"
    old = [Rule(name, None) for name in TWICE["bart"]] if shared in names else [
        Rule("model.decoder.embed_tokens.weight", None), Rule("model.encoder.embed_tokens.weight", shared)]
    head = [Rule("final_logits_bias", None)] if config["head"] else []
    return [*_tied_head(config), *old, *head]


def whisper(config: Config, names: Names) -> list[Rule]:
    return [Rule("proj_out.weight", None)] if config["tie_word_embeddings"] else []


def vit(config: Config, names: Names) -> list[Rule]:
    """Files of later versions name the parts of a layer otherwise."""
    here = "vit.encoder.layer.{i}."
    parts = {"attention.q_proj": "attention.attention.query", "attention.k_proj": "attention.attention.key",
             "attention.v_proj": "attention.attention.value", "attention.o_proj": "attention.output.dense",
             "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense"}
    return [
        Rule("vit.pooler.{rest:*}", None),
        *(Rule(f"vit.layers.{{i}}.{theirs}.{{what}}", f"{here}{ours}.{{what}}") for theirs, ours in parts.items()),
        Rule("vit.layers.{i}.{rest:*}", here + "{rest}"),
    ]


def clip(config: Config, names: Names) -> list[Rule]:
    return [Rule("{tower}.embeddings.position_ids", None)]


def resnet(config: Config, names: Names) -> list[Rule]:
    """Files of transformers; torchvision's are named as the model is."""
    parts = {"convolution": "conv", "normalization": "bn"}
    blocks = [(f"layer.{number}", {theirs: f"{ours}{number + 1}" for theirs, ours in parts.items()})
              for number in range(3)]
    blocks.append(("shortcut", {theirs: f"downsample.{number}" for number, theirs in enumerate(parts)}))
    return [
        *(Rule(f"(resnet.)embedder.embedder.{theirs}.{{what}}", f"{ours}1.{{what}}")
          for theirs, ours in parts.items()),
        *(Rule(f"(resnet.)encoder.stages.{stage}.layers.{{i}}.{place}.{theirs}.{{what}}",
               f"layer{stage + 1}.{{i}}.{ours}.{{what}}")
          for stage in range(len(config["layers"])) for place, both in blocks for theirs, ours in both.items()),
        Rule("classifier.1.{what}", "fc.{what}"),
    ]


TABLES: dict[str, Callable[[Config, Names], list[Rule]]] = {"gpt2": gpt2, "bert": bert, "t5": t5,
                                                             "roberta": roberta, "distilbert": distilbert,
                                                             "bart": bart, "whisper": whisper, "clip": clip,
                                                             "vit": vit, "resnet": resnet,
                                                             **{name: decoder_names.rules(name)
                                                                            for name in decoder_names.FAMILIES}}


def gguf_rules(norms: Mapping[str, str], heads: int = 0, kv_heads: int = 0) -> list[Rule]:
    """A decoder in a GGUF file: other names, `norms` and other weights of a layer by theirs. With a number of heads,
    queries and keys have the numbers that turn together side by side."""
    plain = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj", **norms}
    turned = {"attn_q": heads, "attn_k": kv_heads} if heads else {}
    return [
        Rule("token_embd.weight", "model.embed_tokens.weight"),
        Rule("output_norm.weight", "model.norm.weight"),
        Rule("output.weight", "lm_head.weight"),
        Rule("rope_freqs.weight", None),  # read with the configuration
        *(Rule(f"blk.{{i}}.{theirs}.{{what}}", f"model.layers.{{i}}.{plain[theirs]}.{{what}}", unpermute(count))
          for theirs, count in turned.items()),
        *(Rule(f"blk.{{i}}.{theirs}.{{what}}", f"model.layers.{{i}}.{ours}.{{what}}")
          for theirs, ours in plain.items() if theirs not in turned),
    ]


def published(family: str, config: Config, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """A model's weights under the names of published files."""
    return rename(state, decoder_names.published(family, config)) if family in decoder_names.FAMILIES else state
