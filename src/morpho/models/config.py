"""Configurations of the families: dataclasses whose fields are the settings that are used, under the names of the
published config.json, and tables of what else such a file may say."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, get_args, get_type_hints

from morpho.base.errors import ArgumentError, fail
from morpho.models.quantization_keys import block_size
from morpho.models.text.generation_keys import GENERATION
from morpho.weights import keys
from morpho.weights.keys import Key, KeyTable, Kind, irrelevant, only, used
from morpho.weights.scanner import shortened

_LIBRARY = "how the library that wrote the file calls its models"
_TRAINING = "of training, or of first values"
_HEADS = "of another head than the one that is built"

COMMON = KeyTable({
    "transformers_version": irrelevant(_LIBRARY), "_name_or_path": irrelevant(_LIBRARY),
    "name_or_path": irrelevant(_LIBRARY), "_commit_hash": irrelevant(_LIBRARY), "return_dict": irrelevant(_LIBRARY),
    "use_return_dict": irrelevant(_LIBRARY), "output_attentions": irrelevant(_LIBRARY),
    "output_hidden_states": irrelevant(_LIBRARY), "output_past": irrelevant(_LIBRARY),
    "use_cache": irrelevant("generation always keeps keys and values"), "torchscript": irrelevant(_LIBRARY),
    "_attn_implementation*": irrelevant("the same numbers by other kernels"),
    "attn_implementation": irrelevant("the same numbers by other kernels"),
    "chunk_size_feed_forward": irrelevant("the same numbers in pieces"),
    "dtype": irrelevant("load(dtype=) says it"), "torch_dtype": irrelevant("load(dtype=) says it"),
    "use_bfloat16": irrelevant("load(dtype=) says it"), "tf_legacy_loss": irrelevant(_TRAINING),
    "gradient_checkpointing": irrelevant(_TRAINING), "initializer_range": irrelevant(_TRAINING),
    "architectures": irrelevant("the names of the weights say which parts there are"),
    "sentence_transformers": irrelevant("what is made of the logits: `morpho serve` reads it"),
    "sbert_ce_default_activation_function": irrelevant("what is made of the logits: `morpho serve` reads it"),
    "finetuning_task": irrelevant(_HEADS), "id2label": irrelevant(_HEADS), "label2id": irrelevant(_HEADS),
    "num_labels": irrelevant(_HEADS), "problem_type": irrelevant(_HEADS), "classifier_dropout": irrelevant(_HEADS),
    "task_specific_params": irrelevant("settings that a caller may choose by the name of a task"),
    "tokenizer_class": irrelevant("tokenizer.json says it"),
    "bos_token_id": irrelevant("a prompt holds its own tokens"),
    "pad_token_id": irrelevant("padding is told by masks"), "sep_token_id": irrelevant("a prompt holds its own tokens"),
    "cls_token_id": irrelevant("a prompt holds its own tokens"), "prefix": only("", None),
    "is_encoder_decoder": only(False), "is_decoder": only(False), "add_cross_attention": only(False),
    "cross_attention_hidden_size": only(None), "tie_encoder_decoder": only(False), "pruned_heads": only({}, None),
    "quantization_config": used(keys.record().or_null()), "auto_map": only(None),
})
SHARE = ("_pdrop", "dropout", "_prob", "dropout_rate")  # fields that are probabilities


class Config:
    """Base of the families' configurations. `renamed` are other names of fields (theirs -> ours), `others` the keys
    besides the fields, `kinds` what a field takes where its type does not say it."""

    renamed: ClassVar[Mapping[str, str]] = {}
    spelled: ClassVar[Mapping[str, str]] = {}  # those of `renamed` that published files have
    others: ClassVar[Mapping[str, Key]] = {}
    kinds: ClassVar[Mapping[str, Kind]] = {}
    numbers: ClassVar[Mapping[str, str]] = {}  # fields of `Shape` -> settings
    shared: ClassVar[tuple[str, ...]] = ()  # numbers that the nodes which share a layer divide
    honoured: ClassVar[Mapping[str, Key]] = {}  # of generation_config.json, besides what every family takes

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    @classmethod
    def default(cls, name: str) -> Any:
        return next(field.default for field in dataclasses.fields(cls) if field.name == name)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def table(cls) -> KeyTable:
        """Every key that a file of this family may have."""
        hints = get_type_hints(cls)
        fields = {field.name: used(cls.kinds.get(field.name) or _kind(field, hints[field.name]))
                  for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        aliases = {theirs: used(cls.kinds.get(theirs) or fields[ours].kind) for theirs, ours in cls.renamed.items()}
        return KeyTable({**COMMON, **GENERATION, "model_type": used(keys.text()), **cls.others, **aliases, **fields})

    @classmethod
    def of(cls, family: str, config: Mapping[str, Any], *, strict: bool = False, file: str = "",
           ignore: Collection[str] = ()) -> Any:
        """The configuration out of what a file (or a dict like it) says; `strict` takes nothing but its fields."""
        operation, where, known = "models.load" if file else "models", f"{file}: " if file else "", cls.names()
        unknown = [name for name in config if name not in known and name not in cls.renamed and name != "model_type"]
        if strict and unknown:
            raise fail(ArgumentError, family, "unknown settings: " + ", ".join(unknown), "one of " + ", ".join(known))
        cls.table().check(operation, file, config, ignore=ignore)
        block_size(operation, file, config, ignore)
        given: dict[str, Any] = {}
        for name, value in config.items():
            ours = cls.renamed.get(name, name)
            if ours not in known or name in ignore:
                continue
            if given.get(ours) is not None and value is not None and given[ours] != value:
                raise fail(ArgumentError, operation, f"{where}{name} is {shortened(value)}, and {ours} is also given, "
                                                     "with another value")
            given[ours] = value if given.get(ours) is None else given[ours]
        cls.check_parts(operation, file, given, config, ignore)
        return cls(**given)

    @classmethod
    def check_parts(cls, operation: str, file: str, given: Mapping[str, Any], config: Mapping[str, Any],
                    ignore: Collection[str]) -> None:
        """Check settings that have parts, or depend on each other."""


def _kind(field: Any, hint: Any) -> Kind:
    """The kind of values that a field takes, by its type and its default."""
    parts = {*(get_args(hint) or (hint,))}
    default = None if field.default is dataclasses.MISSING else field.default
    name = field.name
    if hint == list[int]:
        return keys.sizes()
    if name.endswith("_token_id"):
        found = keys.tokens() if list[int] in parts else keys.token()
    elif bool in parts:
        found = keys.flag()
    elif str in parts:
        found = keys.text(default)
    elif int in parts:
        found = keys.positive(default)
    elif float in parts:
        share = name.endswith(SHARE)
        found = keys.number(default, least=0.0, most=1.0) if share else keys.number(default, least=0.0)
    else:
        found = keys.record()
    return found.or_null() if type(None) in parts else found
