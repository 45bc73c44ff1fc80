"""Records of decoders: inside, every decoder has Llama's names, so a record says only what is called otherwise.

>>> from morpho.models.registry import record
>>> record("qwen3").title, record("qwen3").gguf.architecture
('Qwen3', 'qwen3')
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from morpho.models.config import Config
from morpho.models.decoder.model import Decoder
from morpho.models.family import Family, Gguf, Names, Settings, no_rules, tied_head
from morpho.weights import Rule, concat, reshape, split

LAYER = "layers.{i}."
NO_BRACKETS = str.maketrans("", "", "()")  # around parts of a name that files may leave out
Stacked = list[tuple[list[str], str, tuple[int, ...]]]  # names in files, ours, the shape of each


def no_stacks(settings: Settings) -> Stacked:
    """No weights of a file are one here."""
    return []


def decoder_family(name: str, title: str, config: type[Config], *, sizes: Mapping[str, Mapping[str, Any]] | None = None,
                   pairs: Sequence[tuple[str, str]] = (), dropped: Sequence[str] = (),
                   stacked: Callable[[Settings], Stacked] = no_stacks, prefix: str = "model",
                   head: str = "lm_head.weight", embedding: str = "model.embed_tokens.weight",
                   gguf: Gguf | None = None, more: Callable[[Settings, Collection[str]], list[Rule]] = no_rules,
                   published_more: Callable[[Settings], list[Rule]] = lambda settings: []) -> Family:
    """The record of a decoder whose configuration has a `shape`. `pairs` say how published names read here, the first
    that fits; `dropped` names are left out; `stacked` weights lie one by one in files and are one here; `more` rules,
    and back `published_more`, are those of weights that lie otherwise."""
    def rules(settings: Settings, names: Collection[str]) -> list[Rule]:
        return [*tied_head(settings, head), Rule(f"{prefix}.{LAYER}self_attn.rotary_emb.inv_freq", None),
                *(Rule(each, None) for each in dropped),
                *(Rule(theirs, ours, concat(0), reshape(len(theirs), *shape))
                  for theirs, ours, shape in stacked(settings)), *more(settings, names),
                *(Rule(theirs, ours) for theirs, ours in pairs),
                Rule("transformer.{rest:*}", "model.{rest}")]  # heads for spans

    def published(settings: Settings) -> list[Rule]:
        return [*published_more(settings),
                *(Rule(ours, theirs, split(0), reshape(*shape)) for theirs, ours, shape in stacked(settings)),
                *(Rule(ours.replace("{rest}", "{rest:*}"), theirs.replace("{rest:*}", "{rest}").translate(NO_BRACKETS))
                  for theirs, ours in pairs)]

    model: type[Decoder] = type(title, (Decoder,), {"model_type": name, "config_class": config,
                                                    "__module__": config.__module__})
    return Family(name, model, sizes or {name: {}}, Names(head, embedding, rules, published, parts=_head), gguf)


def _head(settings: Settings, weights: Any) -> dict[str, Any]:
    """The head that the weights have, where it is not that of the next token."""
    if "qa_outputs.weight" in weights:
        return {"head": "span"}
    if "score.weight" in weights:
        return {"head": "token" if "score.bias" in weights else "sequence",
                "labels": int(weights.shapes["score.weight"][0])}
    return {}
