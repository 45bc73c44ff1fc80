"""Names of the decoders' weights in published files, both ways: what `models.load` reads and `models.save` writes.

Inside, every decoder has Llama's names. A pair says how a published name reads here; the first that fits is taken."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from morpho.weights import Rule, concat, reshape, split
from morpho.weights.transforms import Transform

Config = Mapping[str, Any]

_LAYER = "layers.{i}."
PAIRS: dict[str, list[tuple[str, str]]] = {  # published -> ours
    "gpt_neox": [
        ("gpt_neox.embed_in.weight", "model.embed_tokens.weight"), ("embed_out.{what}", "lm_head.{what}"),
        ("gpt_neox.final_layer_norm.{what}", "model.norm.{what}"),
        *((f"gpt_neox.{_LAYER}{theirs}.{{what}}", f"model.{_LAYER}{ours}.{{what}}") for theirs, ours in (
            ("attention.query_key_value", "self_attn.qkv_proj"), ("attention.dense", "self_attn.o_proj"),
            ("mlp.dense_h_to_4h", "mlp.up_proj"), ("mlp.dense_4h_to_h", "mlp.down_proj"))),
        ("gpt_neox.{rest:*}", "model.{rest}")],
    "opt": [
        ("model.decoder.embed_positions.weight", "model.embed_positions.weight"),
        ("model.decoder.final_layer_norm.{what}", "model.norm.{what}"),
        *((f"model.decoder.{_LAYER}{theirs}.{{what}}", f"model.{_LAYER}{ours}.{{what}}") for theirs, ours in (
            ("self_attn.out_proj", "self_attn.o_proj"), ("fc1", "mlp.up_proj"), ("fc2", "mlp.down_proj"))),
        ("model.decoder.{rest:*}", "model.{rest}")],
    "mixtral": [(f"model.{_LAYER}block_sparse_moe.gate.weight", f"model.{_LAYER}mlp.gate.weight")],
}
_DROPPED = {
    "gpt_neox": [f"gpt_neox.{_LAYER}attention.{name}" for name in ("bias", "masked_bias", "rotary_emb.inv_freq")],
}
FAMILIES = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "smollm3", "phi3", "gemma2", "gemma3_text", "olmo",
            "olmo2", "gpt_neox", "opt")
HEAD = {"gpt_neox": "embed_out.weight"}  # lm_head.weight elsewhere
EMBEDDING = {"gpt_neox": "gpt_neox.embed_in.weight", "opt": "model.decoder.embed_tokens.weight"}


def _experts(config: Config) -> list[tuple[list[str], str, Transform]]:
    """The matrices of a layer's experts, one by one in files and stacked here."""
    count, sizes = config["num_local_experts"], (config["intermediate_size"], config["hidden_size"])
    return [([f"model.{_LAYER}block_sparse_moe.experts.{number}.{theirs}.weight" for number in range(count)],
             f"model.{_LAYER}mlp.{ours}", reshape(count, *shape))
            for theirs, ours, shape in (("w1", "gate_proj", sizes), ("w3", "up_proj", sizes),
                                        ("w2", "down_proj", sizes[::-1]))]


def rules(family: str) -> Callable[[Config, Collection[str]], list[Rule]]:
    """The table of a family, as `names.TABLES` has it."""
    def table(config: Config, names: Collection[str]) -> list[Rule]:
        tied = [Rule(HEAD.get(family, "lm_head.weight"), None)] if config["tie_word_embeddings"] else []
        stacked = [Rule(theirs, ours, concat(0), shape) for theirs, ours, shape in _experts(config)] \
            if family == "mixtral" else []
        old = f"{'gpt_neox' if family == 'gpt_neox' else 'model'}.{_LAYER}"
        return [*tied, Rule(old + "self_attn.rotary_emb.inv_freq", None),
                *(Rule(name, None) for name in _DROPPED.get(family, ())), *stacked,
                *(Rule(theirs, ours) for theirs, ours in PAIRS.get(family, ())),
                Rule("transformer.{rest:*}", "model.{rest}")]  # heads for spans
    return table


def published(family: str, config: Config) -> list[Rule]:
    """The rules that give our names back as published ones."""
    stacked = []
    if family == "mixtral":
        sizes = (config["intermediate_size"], config["hidden_size"])
        for theirs, ours, _ in _experts(config):
            shape = sizes[::-1] if "down" in ours else sizes
            stacked.append(Rule(ours, theirs, split(0), reshape(*shape)))
    return [*stacked, *(Rule(ours.replace("{rest}", "{rest:*}"), theirs.replace("{rest:*}", "{rest}"))
                        for theirs, ours in PAIRS.get(family, ()))]
