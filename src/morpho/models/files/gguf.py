"""A decoder from a GGUF file, of any architecture that a family's record has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.family import Family, Gguf
from morpho.models.files.filling import check_depth, filled, kept, wanted
from morpho.models.registry import families, from_config
from morpho.models.text.generation_keys import Defaults
from morpho.nn import init
from morpho.weights import FileFault, GgufFile, NameFault, match
from morpho.weights.gguf.keys import SIZES, check_model
from morpho.weights.scanner import shortened

ENDS = ("eos", "eot", "eom")  # tokens that end a text, a turn, a message


def from_gguf(file: GgufFile, dtype: Any, packed: bool, keep: Callable[[Any], None] | None = None) -> Any:
    """The model, with weights packed as the file has them or not. Every key of the header is used, known not to
    matter, or an error that names it."""
    name = file.path.name
    config, form = config_of_gguf(file), _form(file)[1]
    with init.undrawn():
        model = from_config(config, dtype=dtype)
    try:
        found = match(file.tensors, wanted(model), form.rules(file))
    except NameFault as error:
        before = file.config.architecture
        sizes = {f"{before}.{key}": file.fields.get(key) for key in SIZES}
        said = ", ".join(f"{key}={value}" for key, value in sizes.items() if value is not None)
        rest = ", ".join(key for key, value in sizes.items() if value is None)
        raise NameFault(f"{error} Hint: {name} says {said}{', and leaves out ' + rest if rest else ''}.") from None
    found = kept(model, found, keep)
    if not packed:
        found = {name: each.dequantise() if isinstance(each, mo.Quantised) else each for name, each in found.items()}
    model.defaults = _defaults(file)
    return filled(model, found, name)


def config_of_gguf(file: GgufFile) -> dict[str, Any]:
    """The settings of a model, out of a file's header, which is checked."""
    family, form = _form(file)
    check_model(file.metadata, file.path.name, file.ignore, form.architecture, form.keys)
    sizes = file.config
    before = sizes.architecture
    check_depth({f"{before}.block_count": sizes.layers}, len(file.tensors), file.path.name)
    if sizes.rope_dimensions != sizes.head_width and not form.partial:
        raise fail(FileFault, "models.load", f"{file.path.name}: {before}.rope.dimension_count is "
                                             f"{sizes.rope_dimensions}, and only {before}.attention.key_length, "
                                             f"{sizes.head_width}, is computed")
    if sizes.value_width != sizes.head_width:
        raise fail(FileFault, "models.load", f"{file.path.name}: {before}.attention.value_length is "
                                             f"{sizes.value_width}, and only {before}.attention.key_length, "
                                             f"{sizes.head_width}, is computed")
    ends = [file.metadata[key] for key in (f"tokenizer.ggml.{end}_token_id" for end in ENDS) if key in file.metadata]
    ends = [*dict.fromkeys(ends)]
    return {
        "model_type": family.name, "vocab_size": sizes.vocab_size, "hidden_size": sizes.width,
        "intermediate_size": sizes.feed_forward, "num_hidden_layers": sizes.layers, "head_dim": sizes.head_width,
        "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.kv_heads,
        "max_position_embeddings": sizes.context, "rope_theta": sizes.rope_theta or 10000.0,
        "rope_scaling": _scaling(file), "tie_word_embeddings": sizes.tied,
        "eos_token_id": (ends[0] if len(ends) == 1 else ends) if ends else None, **form.settings(file)}


def forms() -> dict[str, tuple[Family, Gguf]]:
    """Families that GGUF files hold, by architecture; those of experts by their own name."""
    return {family.name if family.gguf.experts else family.gguf.architecture: (family, family.gguf)
            for family in families().values() if family.gguf is not None}


def _form(file: GgufFile) -> tuple[Family, Gguf]:
    architecture, has_experts = file.metadata.get("general.architecture"), bool(file.fields.get("expert_count"))
    known = [(family, form) for family, form in forms().values() if form.architecture == architecture]
    if not known:
        raise fail(ArgumentError, "models.load", f"{file.path.name}: general.architecture is "
                   f"{shortened(architecture)}, which cannot be built", "files of " + ", ".join(forms()) + " can")
    return next((each for each in known if each[1].experts == has_experts), known[0])


def _scaling(file: GgufFile) -> dict[str, Any] | None:
    """How positions are stretched: by one factor, by YaRN, or by a factor for each pair, kept as a tensor."""
    factor, weights, fields = file.config.rope_factor, file.tensors, file.fields
    if fields.get("rope.scaling.type") == "yarn" and factor is not None:
        if "rope_freqs.weight" in weights:
            raise fail(FileFault, "models.load", f"{file.path.name}: rope_freqs.weight divides angles that "
                       "rope.scaling.type yarn stretches, and only one of the two is computed")
        return {"rope_type": "yarn", "factor": factor,
                "original_max_position_embeddings": fields.get("rope.scaling.original_context_length"),
                "beta_fast": fields.get("rope.scaling.yarn_beta_fast"),
                "beta_slow": fields.get("rope.scaling.yarn_beta_slow")}
    if "rope_freqs.weight" not in weights:
        return None if factor is None else {"rope_type": "linear", "factor": factor}
    table = weights["rope_freqs.weight"].numpy().astype(float) * (factor or 1.0)  # type: ignore[union-attr]
    if table.shape != (file.config.head_width // 2,) or not (table > 0).all():
        raise fail(FileFault, "models.load", f"{file.path.name}: rope_freqs.weight of shape {table.shape} is not a "
                                             f"positive number for each of {file.config.head_width // 2} pairs")
    return {"rope_type": "factors", "factors": table.tolist()}


def _defaults(file: GgufFile) -> Defaults:
    said = {theirs: file.metadata[key] for theirs in ("temp", "top_k", "top_p")
            if (key := f"general.sampling.{theirs}") in file.metadata and key not in file.ignore}
    if not said:
        return Defaults()
    return Defaults.of({"do_sample": True, "temperature": said.get("temp"), "top_k": said.get("top_k", 0),
                        "top_p": said.get("top_p")})
