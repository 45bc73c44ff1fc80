"""A model in Llama's form from a GGUF file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.files import names
from morpho.models.files.filling import check_depth, filled, kept, wanted
from morpho.models.registry import from_config
from morpho.models.text.generation_keys import Defaults
from morpho.nn import init
from morpho.weights import FileFault, GgufFile, NameFault, match
from morpho.weights.gguf.keys import SIZES, check_model
from morpho.weights.scanner import shortened

ENDS = ("eos", "eot", "eom")  # tokens that end a text, a turn, a message


def from_gguf(file: GgufFile, dtype: Any, packed: bool, keep: Callable[[Any], None] | None = None) -> Any:
    """The model, with weights packed as the file has them or not. Every key of the header is used, known not to
    matter, or an error that names it."""
    name, form = file.path.name, file.metadata.get("general.architecture")
    if form != "llama":
        raise fail(ArgumentError, "models.load", f"{name}: general.architecture is {shortened(form)}, which cannot be "
                                                 "built", "files of Llama form can")
    check_model(file.metadata, name, file.ignore)
    sizes = file.config
    check_depth({"llama.block_count": sizes.layers}, len(file.tensors), name)
    with init.undrawn():
        model = from_config(config_of_gguf(file), dtype=dtype)
    try:
        found = match(file.tensors, wanted(model), names.gguf_llama(sizes.heads, sizes.kv_heads))
    except NameFault as error:
        sizes_said = {f"llama.{key}": file.metadata.get(f"llama.{key}") for key in SIZES}
        said = ", ".join(f"{key}={value}" for key, value in sizes_said.items() if value is not None)
        rest = ", ".join(key for key, value in sizes_said.items() if value is None)
        raise NameFault(f"{error} Hint: {name} says {said}{', and leaves out ' + rest if rest else ''}.") from None
    found = kept(model, found, keep)
    if not packed:
        found = {name: each.dequantise() if isinstance(each, mo.Quantised) else each for name, each in found.items()}
    model.defaults = _defaults(file)
    return filled(model, found, name)


def config_of_gguf(file: GgufFile) -> dict[str, Any]:
    """The settings of a Llama, out of a file's header."""
    sizes = file.config
    if sizes.rope_dimensions != sizes.head_width:
        raise fail(FileFault, "models.load", f"{file.path.name}: llama.rope.dimension_count is {sizes.rope_dimensions},"
                                             f" and only llama.attention.key_length, {sizes.head_width}, is computed")
    if sizes.value_width != sizes.head_width:
        raise fail(FileFault, "models.load", f"{file.path.name}: llama.attention.value_length is {sizes.value_width}, "
                                             f"and only llama.attention.key_length, {sizes.head_width}, is computed")
    ends = [file.metadata[key] for key in (f"tokenizer.ggml.{end}_token_id" for end in ENDS) if key in file.metadata]
    ends = [*dict.fromkeys(ends)]
    return {
        "model_type": "llama", "vocab_size": sizes.vocab_size, "hidden_size": sizes.width,
        "intermediate_size": sizes.feed_forward, "num_hidden_layers": sizes.layers, "head_dim": sizes.head_width,
        "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.kv_heads,
        "max_position_embeddings": sizes.context, "rms_norm_eps": sizes.norm_eps or 1e-5,
        "rope_theta": sizes.rope_theta or 10000.0, "rope_scaling": _scaling(file), "tie_word_embeddings": sizes.tied,
        "sliding_window": sizes.window, "attention_scale": sizes.attention_scale,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors, "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
        "eos_token_id": (ends[0] if len(ends) == 1 else ends) if ends else None}


def _scaling(file: GgufFile) -> dict[str, Any] | None:
    """How positions are stretched: by one factor, or by one for each pair, which such files keep as a tensor."""
    factor, weights = file.config.rope_factor, file.tensors
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
