"""Cases of decoders: families in odd configurations, a few of each."""

from __future__ import annotations

from typing import Any

from benchmarks.models.parity.case import DYNAMIC, FULL, PLAIN, SLIDING, SMALL, YARN, Case, rope

LLAMA3 = rope(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=12)
BIASES = {"attention_bias": True, "mlp_bias": True}
Cases = dict[str, tuple[str, dict[str, Any], dict[str, dict[str, Any]]]]


def _kin() -> Cases:
    return {
        "gemma": ("GemmaForCausalLM", SMALL, {
            "wide heads": {"head_dim": 8}, "biases, untied": {"head_dim": 6, "attention_bias": True,
                                                              "tie_word_embeddings": False, "hidden_act": "gelu"}}),
        "vaultgemma": ("VaultGemmaForCausalLM", SMALL, {
            "caps": {"head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 7, "attn_logit_softcapping": 2.0,
                     "final_logit_softcapping": 3.0, "layer_types": [SLIDING, FULL, SLIDING]}}),
        "olmo3": ("Olmo3ForCausalLM", SMALL, {
            "windows": {"sliding_window": 4, "layer_types": [SLIDING, FULL, SLIDING]},
            "angles of two kinds": {"sliding_window": 3, "layer_types": [FULL, SLIDING, FULL], "attention_bias": True,
                                    "rope_parameters": {FULL: YARN, SLIDING: rope(rope_theta=50.0)}}}),
        "exaone4": ("Exaone4ForCausalLM", SMALL, {
            "windows": {"sliding_window": 4, "layer_types": [SLIDING, FULL, SLIDING]},
            "no windows": {"sliding_window": None, "layer_types": [FULL] * 3, "rope_parameters": LLAMA3}}),
        "ministral": ("MinistralForCausalLM", SMALL, {
            "windows": {"sliding_window": 4, "layer_types": [SLIDING, FULL, SLIDING], "head_dim": 6}}),
        "ministral3": ("Ministral3ForCausalLM", SMALL, {
            "warm": {"head_dim": 8, "rope_parameters": {**YARN, "llama_4_scaling_beta": 0.3, "mscale": 1.0,
                                                        "mscale_all_dim": 1.0, "original_max_position_embeddings": 5}},
            "window": {"head_dim": 6, "sliding_window": 5, "rope_parameters": {**YARN, "llama_4_scaling_beta": 0.1}}}),
        "cwm": ("CwmForCausalLM", SMALL, {
            "windows": {"sliding_window": 4, "layer_types": [FULL, SLIDING, SLIDING], "head_dim": 8, "mlp_bias": True,
                        "rope_parameters": LLAMA3}}),
        "seed_oss": ("SeedOssForCausalLM", SMALL, {
            "biases": {"head_dim": 8}, "other biases": {"head_dim": 6, "attention_bias": False, "mlp_bias": True,
                                                        "attention_out_bias": True, "rope_parameters": DYNAMIC}}),
        "arcee": ("ArceeForCausalLM", SMALL, {"plain": {"head_dim": 4}, "biases": {"head_dim": 8, **BIASES}}),
        "nemotron": ("NemotronForCausalLM", SMALL, {
            "half turns": {"head_dim": 8}, "biases": {"head_dim": 8, **BIASES, "rope_parameters": rope(
                partial_rotary_factor=0.25), "norm_eps": 1e-3}}),
        "helium": ("HeliumForCausalLM", SMALL, {"plain": {"head_dim": 4}, "mlp biases": {"head_dim": 4,
                                                                                        "mlp_bias": True}}),
        "ernie4_5": ("Ernie4_5ForCausalLM", SMALL, {"tied": {"head_dim": 8}, "biases": {
            "head_dim": 6, "use_bias": True, "tie_word_embeddings": False}}),
        "hunyuan_v1_dense": ("HunYuanDenseV1ForCausalLM", SMALL, {
            "normed after the turn": {"head_dim": 8}, "dynamic, biases": {
                "head_dim": 6, "attention_bias": True, "rope_parameters": DYNAMIC}}),
        "starcoder2": ("Starcoder2ForCausalLM", SMALL, {
            "window": {"sliding_window": 5}, "no biases": {"use_bias": False, "tie_word_embeddings": False,
                                                           "norm_epsilon": 1e-3, "sliding_window": None}}),
        "jais2": ("Jais2ForCausalLM", SMALL, {"biases": {"head_dim": 8}, "none": {
            "head_dim": 6, "attention_bias": False, "mlp_bias": False}}),
        "glm": ("GlmForCausalLM", SMALL, {"half turns": {"head_dim": 8}, "all turns": {
            "head_dim": 6, "attention_bias": False, "rope_parameters": rope(partial_rotary_factor=1.0)}}),
        "glm4": ("Glm4ForCausalLM", SMALL, {"half turns": {"head_dim": 8}}),
        "cohere": ("CohereForCausalLM", SMALL, {"tied": {"logit_scale": 0.25}, "norms of heads": {
            "use_qk_norm": True, "attention_bias": True, "logit_scale": 2.0, "tie_word_embeddings": False}}),
        "cohere2": ("Cohere2ForCausalLM", SMALL, {"windows": {
            "sliding_window": 4, "layer_types": [SLIDING, FULL, SLIDING], "logit_scale": 0.5}}),
        "stablelm": ("StableLmForCausalLM", {**SMALL, "head_dim": None, "hidden_size": 48}, {
            "in sequence": {}, "parallel, normed": {"use_parallel_residual": True, "qk_layernorm": True,
                                                    "use_qkv_bias": True}}),
        "phi": ("PhiForCausalLM", {**SMALL, "hidden_size": 48}, {"parallel": {}, "normed": {
            "qk_layernorm": True, "rope_parameters": rope(partial_rotary_factor=0.25)}}),
        "persimmon": ("PersimmonForCausalLM", {**PLAIN, "hidden_size": 48}, {"normed": {}, "not normed": {
            "qk_layernorm": False, "rope_parameters": rope(partial_rotary_factor=0.25)}}),
        "nanochat": ("NanoChatForCausalLM", SMALL, {"capped": {"final_logit_softcapping": 2.0},
                                                    "uncapped": {"final_logit_softcapping": None}}),
        "hyperclovax": ("HyperCLOVAXForCausalLM", SMALL, {"norms behind": {
            "head_dim": 8, "embedding_multiplier": 3.0, "logits_scaling": 0.5, "residual_multiplier": 0.4,
            "attention_multiplier": 0.3}, "none behind": {"head_dim": 6, "use_post_norm": False, **BIASES}}),
    }


def decoders() -> list[Case]:
    return [Case(f"{family}: {name}", "decoder", architecture, {**base, **settings})
            for table in (_kin(),)
            for family, (architecture, base, variants) in table.items() for name, settings in variants.items()]
