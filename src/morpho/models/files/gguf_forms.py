"""Architectures of GGUF files: which family each is here, what its header says beyond what all have, and the names of
its weights. `llama.cpp` turns pairs that stand side by side in some architectures (their query and key rows are put
into that order when files are written) and halves of a head in the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from morpho.base.errors import fail
from morpho.models.files.names import gguf_rules
from morpho.weights import FileFault, GgufFile, Rule
from morpho.weights.transforms import heads_together, shift

_NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
_AROUND = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
           "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
_QK = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}


@dataclass(frozen=True)
class Form:
    """An architecture: the family, settings beyond those of all, rules for its names."""

    family: str
    settings: Callable[[GgufFile], dict[str, Any]]
    rules: Callable[[GgufFile], list[Rule]]


def form_of(file: GgufFile) -> Form | None:
    """The form of a file's model, None where it is not built here."""
    name = file.metadata.get("general.architecture")
    if name == "llama" and file.fields.get("expert_count"):
        name = "mixtral"
    return FORMS.get(name) if isinstance(name, str) else None


# -- settings ----------------------------------------------------------------------------------------------------------
def _llama(file: GgufFile) -> dict[str, Any]:
    sizes = file.config
    return {**_either_eps(file), "sliding_window": sizes.window,
            "attention_scale": sizes.attention_scale, "attention_bias": "blk.0.attn_q.bias" in file.tensors,
            "mlp_bias": "blk.0.ffn_up.bias" in file.tensors}


def _mixtral(file: GgufFile) -> dict[str, Any]:
    return {**_either_eps(file), "sliding_window": file.config.window,
            "num_local_experts": file.fields["expert_count"],
            "num_experts_per_tok": _needed(file, "expert_used_count")}


def _eps(file: GgufFile) -> dict[str, Any]:
    return {"rms_norm_eps": _needed(file, "attention.layer_norm_rms_epsilon")}


def _either_eps(file: GgufFile) -> dict[str, Any]:
    """The first files of Llama's form have it under the other norm's name."""
    return _eps(file) if file.config.norm_eps is None else {"rms_norm_eps": file.config.norm_eps}


def _gemma(file: GgufFile) -> dict[str, Any]:
    """Scores are scaled by the width of a head, in the models of 27 billion by that of the layers over the heads."""
    sizes, large = file.config, {"gemma2": 46, "gemma3": 62}[file.config.architecture]
    width = sizes.width / sizes.heads if sizes.layers == large else sizes.head_width
    return {**_eps(file), "query_pre_attn_scalar": width, "sliding_window": sizes.window,
            "final_logit_softcapping": file.fields.get("final_logit_softcapping") or None}


def _gemma2(file: GgufFile) -> dict[str, Any]:
    """The first files do not say caps and windows; llama.cpp has them nevertheless. 0 is none."""
    said = {name: file.fields.get(key, constant) or None for name, key, constant in (
        ("attn_logit_softcapping", "attn_logit_softcapping", 50.0),
        ("final_logit_softcapping", "final_logit_softcapping", 30.0),
        ("sliding_window", "attention.sliding_window", 4096))}
    full = {} if said["sliding_window"] else {"layer_types": ["full_attention"] * file.config.layers}
    return {**_gemma(file), **said, **full}


def _gemma3(file: GgufFile) -> dict[str, Any]:
    period = file.fields.get("attention.sliding_window_pattern", 6) if file.config.window else 1
    return {**_gemma(file), "sliding_window_pattern": period,
            "rope_theta": _needed(file, "rope.freq_base"),
            "rope_local_base_freq": file.fields.get("rope.freq_base_swa", 10000.0)}


def _phi3(file: GgufFile) -> dict[str, Any]:
    sizes, found = file.config, file.tensors
    made = {**_eps(file), "sliding_window": sizes.window,
            "partial_rotary_factor": sizes.rope_dimensions / sizes.head_width}
    if "rope_factors_long.weight" not in found:
        return made
    tables = {name: found[f"rope_factors_{name}.weight"].numpy().astype(float).tolist()  # type: ignore[union-attr]
              for name in ("long", "short")}
    length = _needed(file, "rope.scaling.original_context_length")
    scaling = {"rope_type": "longrope", "long_factor": tables["long"], "short_factor": tables["short"],
               "original_max_position_embeddings": length}
    said = file.fields.get("rope.scaling.attn_factor")
    return {**made, "rope_scaling": scaling if not said else {**scaling, "attention_factor": said}}


def _neox(file: GgufFile) -> dict[str, Any]:
    sizes = file.config
    return {"layer_norm_eps": _needed(file, "attention.layer_norm_epsilon"),
            "use_parallel_residual": _needed(file, "use_parallel_residual"),
            "rotary_pct": sizes.rope_dimensions / sizes.head_width,
            "attention_bias": "blk.0.attn_qkv.bias" in file.tensors}


def _olmo(file: GgufFile) -> dict[str, Any]:
    if abs(_needed(file, "attention.layer_norm_epsilon") - 1e-5) > 1e-9:
        raise fail(FileFault, "models.load", f"{file.path.name}: olmo.attention.layer_norm_epsilon is "
                                             f"{file.config.norm_eps}, and only 1e-05 is computed")
    return {"clip_qkv": file.fields.get("attention.clamp_kqv") or None}


def _needed(file: GgufFile, key: str) -> Any:
    found = file.fields.get(key)
    if found is None:
        raise fail(FileFault, "models.load", f"{file.path.name}: {file.config.architecture}.{key} is not there")
    return found


# -- names -------------------------------------------------------------------------------------------------------------
def _paired(*extra: dict[str, str]) -> Callable[[GgufFile], list[Rule]]:
    """Names of architectures whose pairs stand side by side."""
    return lambda file: gguf_rules({**_NORMS, **{k: v for part in extra for k, v in part.items()}},
                                   file.config.heads, file.config.kv_heads)


def _halves(*parts: dict[str, str]) -> Callable[[GgufFile], list[Rule]]:
    return lambda file: gguf_rules({k: v for part in parts for k, v in part.items()})


def _gemma_rules(names: dict[str, str]) -> Callable[[GgufFile], list[Rule]]:
    """Norms are kept less 1 here, and whole in such files."""
    def rules(file: GgufFile) -> list[Rule]:
        shifted = [Rule(f"blk.{{i}}.{theirs}.weight", f"model.layers.{{i}}.{ours}.weight", shift(-1.0))
                   for theirs, ours in names.items()]
        return [Rule("output_norm.weight", "model.norm.weight", shift(-1.0)), *shifted, *gguf_rules({})]
    return rules


def _experts(file: GgufFile) -> list[Rule]:
    stacked = [Rule(f"blk.{{i}}.ffn_{theirs}_exps.weight", f"model.layers.{{i}}.mlp.{theirs}_proj")
               for theirs in ("gate", "up", "down")]
    return [*stacked, Rule("blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.mlp.gate.weight"),
            *gguf_rules(_NORMS, file.config.heads, file.config.kv_heads)]


def _phi3_rules(file: GgufFile) -> list[Rule]:
    return [*(Rule(f"rope_factors_{name}.weight", None) for name in ("long", "short")),  # read with the settings
            *gguf_rules({**_NORMS, "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"})]


def _neox_rules(file: GgufFile) -> list[Rule]:
    return [Rule("blk.{i}.attn_qkv.{what}", "model.layers.{i}.self_attn.qkv_proj.{what}",
                 heads_together(file.config.heads)),
            Rule("output_norm.{what}", "model.norm.{what}"), *gguf_rules(_NORMS)]


FORMS = {
    "llama": Form("llama", _llama, _paired()),
    "mixtral": Form("mixtral", _mixtral, _experts),
    "qwen2": Form("qwen2", _eps, _halves(_NORMS)),
    "qwen3": Form("qwen3", _eps, _halves(_NORMS, _QK)),
    "gemma2": Form("gemma2", _gemma2, _gemma_rules(_AROUND)),
    "gemma3": Form("gemma3_text", _gemma3, _gemma_rules({**_AROUND, **_QK})),
    "phi3": Form("phi3", _phi3, _phi3_rules),
    "smollm3": Form("smollm3", _eps, _paired()),
    "olmo": Form("olmo", _olmo, _paired()),
    "olmo2": Form("olmo2", _eps, _halves(_QK, {"post_attention_norm": "post_attention_layernorm",
                                              "post_ffw_norm": "post_feedforward_layernorm"})),
    "gptneox": Form("gpt_neox", _neox, _neox_rules),
}
