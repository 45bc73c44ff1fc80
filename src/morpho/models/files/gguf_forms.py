"""Parts of GGUF forms that families share: settings of a header, names of weights. `llama.cpp` turns pairs that stand
side by side in some architectures (their query and key rows are put into that order when files are written) and halves
of a head in the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from morpho.base.errors import fail
from morpho.weights import FileFault, GgufFile, Rule, unpermute

PLAIN_NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
NORMS_AROUND = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
           "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}


def eps(file: GgufFile) -> dict[str, Any]:
    return {"rms_norm_eps": needed(file, "attention.layer_norm_rms_epsilon")}


def either_eps(file: GgufFile) -> dict[str, Any]:
    """The first files of Llama's form have it under the other norm's name."""
    return eps(file) if file.config.norm_eps is None else {"rms_norm_eps": file.config.norm_eps}


def needed(file: GgufFile, key: str) -> Any:
    found = file.fields.get(key)
    if found is None:
        raise fail(FileFault, "models.load", f"{file.path.name}: {file.config.architecture}.{key} is not there")
    return found


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


def paired(*extra: dict[str, str]) -> Callable[[GgufFile], list[Rule]]:
    """Names of architectures whose pairs stand side by side."""
    return lambda file: gguf_rules({**PLAIN_NORMS, **{k: v for part in extra for k, v in part.items()}},
                                   file.config.heads, file.config.kv_heads)


def halves(*parts: dict[str, str]) -> Callable[[GgufFile], list[Rule]]:
    return lambda file: gguf_rules({k: v for part in parts for k, v in part.items()})
