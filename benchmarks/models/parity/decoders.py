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
        "lfm2": ("Lfm2ForCausalLM", {**SMALL, "block_multiple_of": 8}, {
            "every second": {"layer_types": ["conv", FULL, "conv"]},
            "wide, biases": {"layer_types": ["conv", "conv", FULL], "conv_bias": True, "conv_L_cache": 5,
                             "block_auto_adjust_ff_dim": False, "tie_word_embeddings": False, "norm_eps": 1e-3}}),
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


def _mixtures() -> Cases:
    moe = {**SMALL, "moe_intermediate_size": 12, "num_experts_per_tok": 2}
    groups = {"n_group": 2, "topk_group": 1, "n_routed_experts": 6, "routed_scaling_factor": 1.7}
    latent = {**moe, "num_key_value_heads": 6, "kv_lora_rank": 10, "q_lora_rank": 14, "qk_nope_head_dim": 6,
              "qk_rope_head_dim": 4, "v_head_dim": 8}
    plain_latent = {name: value for name, value in latent.items() if name not in ("moe_intermediate_size",
                                                                                  "num_experts_per_tok")}
    granite = {**SMALL, "num_local_experts": 4, "embedding_multiplier": 3.0, "residual_multiplier": 0.4,
               "attention_multiplier": 0.3, "logits_scaling": 2.0}
    mscale = {**YARN, "mscale": 0.7, "mscale_all_dim": 1.3}
    return {
        "qwen2_moe": ("Qwen2MoeForCausalLM", {**moe, "num_experts": 4, "shared_expert_intermediate_size": 10}, {
            "shared": {}, "some dense, normed": {"mlp_only_layers": [1], "norm_topk_prob": True, "qkv_bias": False},
            "windows": {"use_sliding_window": True, "sliding_window": 4}}),
        "qwen3_moe": ("Qwen3MoeForCausalLM", {**moe, "num_experts": 5, "head_dim": 8}, {
            "every second": {"decoder_sparse_step": 2, "norm_topk_prob": True},
            "window": {"use_sliding_window": True, "sliding_window": 5, "attention_bias": True}}),
        "olmoe": ("OlmoeForCausalLM", {**SMALL, "num_experts": 5, "num_experts_per_tok": 3}, {
            "bounds": {"clip_qkv": 0.5}, "normed": {"norm_topk_prob": True, "attention_bias": True}}),
        "flex_olmo": ("FlexOlmoForCausalLM", {**SMALL, "num_experts": 5, "num_experts_per_tok": 3}, {"plain": {}}),
        "granitemoe": ("GraniteMoeForCausalLM", granite, {"plain": {}}),
        "granitemoeshared": ("GraniteMoeSharedForCausalLM", granite, {"shared": {"shared_intermediate_size": 10}}),
        "phimoe": ("PhimoeForCausalLM", {**SMALL, "num_local_experts": 4}, {
            "mixer": {"router_jitter_noise": 0.2}, "biases": {
                "attention_bias": True, "lm_head_bias": True, "sliding_window": 5}}),
        "glm4_moe": ("Glm4MoeForCausalLM", {**moe, "n_routed_experts": 6, "head_dim": 8}, {
            "groups": groups, "normed": {"use_qk_norm": True, "attention_bias": True, "first_k_dense_replace": 2,
                                         "norm_topk_prob": False, "n_shared_experts": 2}}),
        "dots1": ("Dots1ForCausalLM", {**moe, "n_routed_experts": 6, "head_dim": 4, "n_shared_experts": 1}, {
            "groups": {**groups, "first_k_dense_replace": 1, "layer_types": [FULL] * 3}}),
        "solar_open": ("SolarOpenForCausalLM", {**moe, "n_routed_experts": 6, "head_dim": 8}, {"plain": {}}),
        "exaone_moe": ("ExaoneMoeForCausalLM", {**moe, "num_experts": 6}, {
            "windows": {"sliding_window": 4, "layer_types": [SLIDING, FULL, SLIDING], "first_k_dense_replace": 1,
                        "mlp_layer_types": ["dense", "sparse", "sparse"]}}),
        "minimax_m2": ("MiniMaxM2ForCausalLM", {**SMALL, "num_local_experts": 5, "num_experts_per_tok": 2}, {
            "half turns": {"head_dim": 8, "rope_parameters": rope(partial_rotary_factor=0.5)}}),
        "ernie4_5_moe": ("Ernie4_5_MoeForCausalLM", {**SMALL, "moe_intermediate_size": 12, "moe_k": 2,
                                                     "moe_num_experts": 4}, {
            "shared": {"moe_num_shared_experts": 2}, "biases": {"use_bias": True, "moe_layer_interval": 2,
                                                                         "tie_word_embeddings": False}}),
        "hunyuan_v1_moe": ("HunYuanMoEV1ForCausalLM", {**SMALL, "num_experts": 4, "moe_topk": 2, "head_dim": 8}, {
            "shared": {}}),
        "gpt_oss": ("GptOssForCausalLM", {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}, {
            "sinks": {"sliding_window": 4, "layer_types": [SLIDING, FULL, SLIDING],
                      "rope_parameters": {**YARN, "truncate": False}, "swiglu_limit": 0.5}}),
        "llama4_text": ("Llama4ForCausalLM", {**SMALL, "intermediate_size_mlp": 22, "num_local_experts": 4,
                                              "head_dim": 8}, {
            "pieces": {"attention_chunk_size": 5, "no_rope_layers": [1, 1, 0], "floor_scale": 4, "attn_scale": 0.3,
                       "moe_layers": [0, 2], "num_experts_per_tok": 1},
            "two experts": {"attention_chunk_size": 6, "use_qk_norm": False, "num_experts_per_tok": 2}}),
        "deepseek_v2": ("DeepseekV2ForCausalLM", {**latent, "n_routed_experts": 4, "first_k_dense_replace": 1}, {
            "greedy": {"q_lora_rank": None, "attention_bias": True},
            "groups, yarn": {"topk_method": "group_limited_greedy", "n_group": 2, "topk_group": 1,
                             "routed_scaling_factor": 2.0, "rope_parameters": mscale}}),
        "deepseek_v3": ("DeepseekV3ForCausalLM", {**latent, **groups, "first_k_dense_replace": 1}, {
            "groups": {}, "halves, yarn": {"rope_interleave": False, "rope_parameters": mscale, "norm_topk_prob": False,
                                           "q_lora_rank": None, "attention_bias": True}}),
        "glm4_moe_lite": ("Glm4MoeLiteForCausalLM", {**latent, **groups}, {
            "plain": {"mlp_layer_types": ["dense", "sparse", "sparse"]}}),
        "youtu": ("YoutuForCausalLM", {**plain_latent, "pad_token_id": None}, {
            "plain": {}, "yarn": {"rope_parameters": mscale, "tie_word_embeddings": False}}),
        "minicpm3": ("MiniCPM3ForCausalLM", plain_latent, {"scaled": {"scale_emb": 3, "dim_model_base": 12}}),
    }


def _gpts() -> Cases:
    ends = {"vocab_size": 61, "eos_token_id": 0, "bos_token_id": 1, "pad_token_id": 2}
    gpt = {**ends, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 48}
    neo = {**ends, "hidden_size": 24, "num_layers": 3, "num_heads": 6, "max_position_embeddings": 48}
    falcon = {**ends, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
              "max_position_embeddings": 48}
    xglm = {**ends, "d_model": 24, "num_layers": 3, "attention_heads": 6, "ffn_dim": 20, "max_position_embeddings": 48}
    return {
        "gptj": ("GPTJForCausalLM", gpt, {"part turns": {"rotary_dim": 4}, "all turns": {"rotary_dim": 12,
                                                                                         "n_inner": 20}}),
        "codegen": ("CodeGenForCausalLM", gpt, {"pieces": {"rotary_dim": 6, "n_head": 8}}),
        "gpt_neo": ("GPTNeoForCausalLM", neo, {
            "windows": {"window_size": 4, "attention_types": [[["global", "local", "local"], 1]]},
            "untied": {"window_size": 5, "attention_types": [[["local"], 3]], "intermediate_size": 20,
                       "tie_word_embeddings": False, "activation_function": "relu"}}),
        "gpt_bigcode": ("GPTBigCodeForCausalLM", gpt, {"one key head": {}, "a key for each head": {
            "multi_query": False, "n_inner": 20, "scale_attn_weights": False}}),
        "bloom": ("BloomForCausalLM", {**ends, "hidden_size": 24, "n_layer": 3, "n_head": 6}, {
            "six heads": {}, "four heads, untied": {"n_head": 4, "tie_word_embeddings": False}}),
        "mpt": ("MptForCausalLM", {**ends, "d_model": 24, "n_layers": 3, "n_heads": 6, "max_seq_len": 48}, {
            "six heads": {}, "bounds": {"n_heads": 4, "attn_config": {
                "clip_qkv": 0.5, "softmax_scale": 0.3}}}),
        "falcon": ("FalconForCausalLM", falcon, {
            "one key head": {"ffn_hidden_size": 20}, "in sequence, slopes": {
                "alibi": True, "parallel_attn": False, "multi_query": False, "bias": True},
            "new": {"new_decoder_architecture": True, "num_kv_heads": 2},
            "new, one norm": {"new_decoder_architecture": True, "num_kv_heads": 3, "num_ln_in_parallel_attn": 1,
                              "alibi": True, "tie_word_embeddings": False}}),
        "xglm": ("XGLMForCausalLM", xglm, {"scaled": {}, "not scaled": {"scale_embedding": False,
                                                                       "activation_function": "relu"}}),
        "biogpt": ("BioGptForCausalLM", {**PLAIN}, {"scaled": {}}),
    }


def decoders() -> list[Case]:
    return [Case(f"{family}: {name}", "decoder", architecture, {**base, **settings}, {},
                 "sdpa" if settings.get("alibi") else "eager")
            for table in (_kin(), _mixtures(), _gpts())
            for family, (architecture, base, variants) in table.items() for name, settings in variants.items()]
