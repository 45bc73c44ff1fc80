"""Keys of a GGUF header: used ones, irrelevant ones, and refused ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from morpho.base.errors import fail
from morpho.weights import keys
from morpho.weights.errors import FileFault
from morpho.weights.keys import KeyTable, irrelevant, only, used
from morpho.weights.scanner import shortened

_ABOUT = "about the file, not the model"
_size = used(keys.positive())
_scale = used(keys.number(above=0))
_off, _one = only(0, 0.0), only(1.0, 1, 0.0, 0)  # a scale of 0 stands for none
_id = irrelevant("a prompt holds its own tokens")

# Keys of a model, after the name of its architecture: Llama's.
SIZES = ("vocab_size", "context_length", "embedding_length", "block_count", "feed_forward_length",
         "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
         "rope.dimension_count")
MODEL = KeyTable({
    **{name: _size for name in SIZES},
    "attention.layer_norm_rms_epsilon": _scale, "attention.layer_norm_epsilon": _scale, "rope.freq_base": _scale,
    "attention.sliding_window": used(keys.whole()), "attention.scale": used(keys.number(least=0)),
    "rope.scaling.type": used(keys.one_of("none", "linear", "yarn")), "rope.scaling.factor": used(keys.number(least=0)),
    "rope.scale_linear": used(keys.number(least=0)),
    "rope.scaling.original_context_length": irrelevant("of other types of scaling"),
    "rope.scaling.yarn_*": irrelevant("of another type of scaling"), "rope.scaling.attn_factor": _one,
    "rope.scaling.finetuned": irrelevant("how the model was trained"),
    "logit_scale": _one, "residual_scale": _one, "embedding_scale": _one, "attention.causal": only(True),
    "attn_logit_softcapping": _off, "final_logit_softcapping": _off, "attention.max_alibi_bias": _off,
    "attention.clamp_kqv": _off, "pooling_type": _off, "use_parallel_residual": only(False),
    "expert_count": used(keys.whole()), "expert_used_count": used(keys.whole()), "expert_shared_count": _off,
    "tensor_data_layout": only("Meta AI original pth"),
})
# With rope.scaling.type "yarn", the parts of it; llama.cpp multiplies and overwrites the last three by its version.
YARN = {"rope.scaling.original_context_length": _size, "rope.scaling.yarn_beta_fast": _scale,
        "rope.scaling.yarn_beta_slow": _scale, "rope.scaling.yarn_ext_factor": only(1.0, 1, -1.0, -1),
        "rope.scaling.yarn_attn_factor": only(1.0, 1), "rope.scaling.yarn_log_multiplier": _off}
_DENSE = {"expert_count": _off, "expert_used_count": _off}
# Where architectures differ from Llama's.
ALL_SEEN = {**_DENSE, "attention.scale": _off, "attention.sliding_window": _off}  # by every layer
_WINDOW = {**_DENSE, "attention.scale": _off, "rope.scaling.type": used(keys.one_of("none", "linear")),
           "final_logit_softcapping": used(keys.number(least=0))}
OLMO = {**ALL_SEEN, "attention.clamp_kqv": used(keys.number(least=0))}
GEMMA2 = {**_WINDOW, "attn_logit_softcapping": used(keys.number(least=0))}
GEMMA3 = {**_WINDOW, "attention.sliding_window_pattern": _size, "rope.freq_base_swa": _scale}
PHI3 = {**_DENSE, "attention.scale": _off, "rope.scaling.original_context_length": _size,
        "rope.scaling.attn_factor": used(keys.number(least=0)), "rope.scaling.type": only("none", "longrope"),
        "rope.scaling.factor": _off}
GRANITE = {**_DENSE, "attention.sliding_window": _off, **{name: used(keys.number(least=0)) for name in (
    "logit_scale", "residual_scale", "embedding_scale")}}
NEOX = {**ALL_SEEN, "use_parallel_residual": used(keys.flag())}
REQUIRED = ("block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count")
GENERAL = KeyTable({
    "general.architecture": used(keys.text()), "general.name": used(keys.text()),
    "general.alignment": used(keys.positive()), "general.type": only("model"),
    "general.sampling.temp": used(keys.number(least=0)), "general.sampling.top_k": used(keys.whole()),
    "general.sampling.top_p": used(keys.number(above=0, most=1)), "general.sampling.min_p": _off,
    "general.sampling.penalty_repeat": _one, "general.sampling.xtc_probability": _off,
    "general.sampling.mirostat": _off, "general.sampling.penalty_last_n": irrelevant("there is no penalty"),
    "general.sampling.xtc_threshold": irrelevant("its probability is 0"),
    "general.sampling.mirostat_*": irrelevant("it is off"),
    **{f"general.{name}": irrelevant(_ABOUT) for name in (
        "quantization_version", "file_type", "author", "version", "organization", "finetune", "basename", "description",
        "quantized_by", "size_label", "license", "license.*", "url", "doi", "uuid", "repo_url", "source.*",
        "base_model.*", "dataset.*", "tags", "languages", "datasets")},
    "quantize.*": irrelevant(_ABOUT), "split.no": only(0), "split.count": only(0, 1),
    "split.tensors.count": irrelevant("there is one file"),
})
TOKENIZER = KeyTable({f"tokenizer.{name}": key for name, key in {
    "ggml.model": used(keys.text()), "ggml.pre": used(keys.text()),
    **{f"ggml.{name}": used(keys.Kind(lambda value: isinstance(value, list), "a list"))
       for name in ("tokens", "token_type", "merges", "scores")},
    **{f"ggml.{name}_token_id": used(keys.token()) for name in ("bos", "eos", "eot", "eom", "padding",
                                                                            "unknown")},
    "ggml.add_bos_token": used(keys.flag()), "ggml.add_eos_token": used(keys.flag()),
    "ggml.add_sep_token": only(False), "ggml.add_space_prefix": used(keys.flag()),
    "ggml.remove_extra_whitespaces": only(False),
    **{f"ggml.{name}_token_id": _id for name in (
        "seperator", "separator", "mask", "cls", "prefix", "suffix", "middle", "fim_pre", "fim_suf",
        "fim_mid", "fim_pad", "fim_rep", "fim_sep")},
    "chat_template": used(keys.text()), "chat_template.*": irrelevant("templates that a caller may choose by name"),
    "chat_templates": irrelevant("templates that a caller may choose by name"),
    "huggingface.json": irrelevant("the same tokenizer in another form"),
}.items()})


def check_model(metadata: Mapping[str, Any], file: str, ignore: Collection[str] = (), architecture: str = "llama",
                others: Mapping[str, keys.Key] = MappingProxyType({})) -> None:
    """Every key of a file is known; one that changes the result and is not computed is an error. `others` are keys that
    differ from Llama's."""
    form = metadata.get("general.architecture", "llama")
    if form != architecture:
        raise fail(FileFault, "load_gguf", f"{file}: general.architecture is {shortened(form)}, which is not known")
    for name in REQUIRED:
        if metadata.get(f"{form}.{name}") is None:
            raise fail(FileFault, "load_gguf", f"{file}: {form}.{name} is not there")
    model = {**MODEL, **others}
    if metadata.get(f"{form}.rope.scaling.type") == "yarn":
        del model["rope.scaling.yarn_*"]
        model = {**model, **YARN}
    table = KeyTable({**GENERAL, **TOKENIZER, **{f"{form}.{name}": key for name, key in model.items()}})
    table.check("load_gguf", file, metadata, ignore=ignore, kind=FileFault)


def rope_scaling(fields: Mapping[str, Any], file: str) -> float | None:
    """By how much positions are stretched, of any type; None where they are not. Files of before the types
    have `scale_linear`."""
    found = [fields[name] for name in ("rope.scaling.factor", "rope.scale_linear") if fields.get(name)]
    if fields.get("rope.scaling.type", "linear") == "none" or not found:
        return None
    if found[0] != found[-1]:
        raise fail(FileFault, "load_gguf", f"{file}: rope.scaling.factor is {shortened(found[0])}, and "
                                           f"rope.scale_linear {shortened(found[1])}")
    return None if found[0] == 1 else float(found[0])
