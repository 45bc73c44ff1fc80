"""Values that `keys.py` puts into configurations: for each key those that a family computes, or a program writes."""

from __future__ import annotations

from typing import Any

_ORIGINAL = {"original_max_position_embeddings": 12}
_YARN = {"rope_type": "yarn", "factor": 4.0}
ROPES: list[Any] = [
    {"rope_type": "linear", "factor": 2.0}, {**_YARN, **_ORIGINAL}, _YARN,
    {**_YARN, **_ORIGINAL, "mscale": 0.7, "mscale_all_dim": 1.3}, {**_YARN, **_ORIGINAL, "mscale": 0.7},
    {**_YARN, **_ORIGINAL, "truncate": False}, {**_YARN, **_ORIGINAL, "factor": 0.5},
    {**_YARN, **_ORIGINAL, "rope_theta": 77.0, "beta_fast": 0.0}, {**_YARN, **_ORIGINAL, "attention_factor": 0.0},
    {"rope_type": "dynamic", "factor": 2.0}, {"rope_type": "dynamic", "factor": 2.0, **_ORIGINAL},
    {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **_ORIGINAL},
    {"type": "linear", "factor": 3.0}, {"rope_type": "default"}, {"rope_type": "default", "factor": 3.0},
    {"rope_type": "linear", "factor": 2.0, "attention_factor": 3.0},
    {"rope_type": "linear", "factor": 2.0, **_ORIGINAL},
    {"rope_type": "proportional", "factor": 2.0},
    {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.5},
    {"rope_type": "longrope", "short_factor": [1.0, 1.3], "long_factor": [2.0, 3.0], **_ORIGINAL},
]
FUNCTIONS = ["relu", "gelu", "gelu_new", "silu", "tanh", "quick_gelu", "gelu_pytorch_tanh", "relu2", "swish", "sigmoid",
             "gelu_fast", "gelu_10", "mish", "linear", "laplace", "gelu_python", "leaky_relu", "relu6", "elu"]
FULL, SLIDING = "full_attention", "sliding_attention"
WRONG: list[Any] = [None, True, "x", -1, 0, 1.5, [], {}, 2**70]  # for any key

_POSITIONS: dict[str, list[Any]] = {
    "rope_scaling": ROPES, "rope_parameters": ROPES, "rope_theta": [10.0, 500], "rotary_emb_base": [50],
    "rotary_pct": [0.5, 0.25], "partial_rotary_factor": [0.5, 0.25, 1.0], "rope_local_base_freq": [50.0],
    "rope_interleaved": [True], "no_rope_layers": [[1, 0, 1], [0, 0, 0], [1, 1, 1], []],
    "no_rope_layer_interval": [1, 2, 3], "original_max_position_embeddings": [10], "max_position_embeddings": [20, 64],
    "position_embedding_type": ["relative_key", "relative_key_query"], "sinusoidal_pos_embds": [True],
    "static_position_embeddings": [True], "extra_pos_embeddings": [3], "max_source_positions": [14],
    "max_target_positions": [18, 64]}
_ATTENTION: dict[str, list[Any]] = {
    "sliding_window": [None, 0, 1, 3, 5, -1, 100], "use_sliding_window": [True, False, None, 1],
    "layer_types": [[FULL] * 3, [SLIDING] * 3, [SLIDING, FULL, SLIDING], ["chunked_attention"] * 3, [FULL] * 2, []],
    "max_window_layers": [0, 1, 2, 5], "sliding_window_pattern": [1, 2, 3], "_sliding_window_pattern": [2],
    "num_attention_heads": [2, 3, 4], "num_key_value_heads": [1, 2, 3, 6, None], "head_dim": [2, 4, 6, 8, None],
    "encoder_attention_heads": [1, 2], "decoder_attention_heads": [1, 3], "n_heads": [2, 4],
    "attention_bias": [True, False],
    "qkv_bias": [False, True], "clip_qkv": [0.2, None], "use_qk_norm": [True], "qk_layernorm": [True],
    "qk_norm": [True],
    "attn_logit_softcapping": [1.0, None], "query_pre_attn_scalar": [3, 100.5], "attention_multiplier": [0.3],
    "scale_attn_weights": [False], "scale_attn_by_inverse_layer_idx": [True], "reorder_and_upcast_attn": [True],
    "attention_softmax_in_fp32": [True], "use_bidirectional_attention": [True], "is_causal": [False, True],
    "is_decoder": [True], "attention_type": ["x"], "dual_chunk_attention_config": [{"a": 1}],
    "attention_dropout": [0.5],
    "pruned_heads": [{"0": [1]}]}
_PARTS: dict[str, list[Any]] = {
    "hidden_act": FUNCTIONS, "activation": FUNCTIONS, "activation_function": FUNCTIONS, "hidden_activation": FUNCTIONS,
    "rms_norm_eps": [1e-2, 0.0, 0.5], "layer_norm_eps": [1e-2, 0.0, 0.5], "layer_norm_elementwise_affine": [False],
    "do_layer_norm_before": [False], "normalize_before": [True], "add_final_layer_norm": [True],
    "_remove_final_layer_norm": [True], "use_parallel_residual": [False, True], "mlp_bias": [True],
    "enable_bias": [False],
    "num_experts_per_tok": [1, 2, 3, 9], "num_local_experts": [2, 3], "num_experts": [2],
    "norm_topk_prob": [True, False],
    "router_aux_loss_coef": [0.5], "router_jitter_noise": [0.9], "output_router_logits": [True],
    "residual_multiplier": [0.5], "residual_in_fp32": [True], "chunk_size_feed_forward": [4], "layerdrop": [0.5],
    "encoder_layerdrop": [0.5], "decoder_layerdrop": [0.5], "hidden_dropout": [0.5], "dropout": [0.3],
    "activation_dropout": [0.3], "seq_classif_dropout": [0.3], "qa_dropout": [0.3]}
_ENDS: dict[str, list[Any]] = {
    "tie_word_embeddings": [True, False, None, 0], "tie_weights_": [False], "tie_encoder_decoder": [True],
    "scale_embedding": [True], "embedding_multiplier": [2.0], "logit_scale": [0.5], "logits_scaling": [2.0],
    "final_logit_softcapping": [2.0, None], "word_embed_proj_dim": [8, 24], "type_vocab_size": [1, 2],
    "projection_dim": [5], "logit_scale_init_value": [1.0], "num_channels": [1], "initializer_factor": [2.0],
    "use_weighted_layer_sum": [True], "classifier_proj_size": [8], "num_labels": [3], "problem_type": ["regression"],
    "classifier_dropout": [0.1], "summary_type": ["x"], "return_dict": [False], "output_hidden_states": [True]}
_TOKENS: dict[str, list[Any]] = {
    "pad_token_id": [0, 2, 5, None], "bos_token_id": [7], "eos_token_id": [3, 7, [3, 4], None], "sep_token_id": [4],
    "decoder_start_token_id": [4], "forced_eos_token_id": [5, None], "forced_bos_token_id": [6],
    "suppress_tokens": [[5], None], "begin_suppress_tokens": [[6]], "temperature": [0.5], "repetition_penalty": [1.7],
    "do_sample": [True], "max_length": [5], "min_length": [3], "no_repeat_ngram_size": [1], "bad_words_ids": [[[3]]]}
_SIZES: dict[str, list[Any]] = {
    "vocab_size": [61, 70], "hidden_size": [24, 12], "intermediate_size": [20], "num_hidden_layers": [1, 2],
    "encoder_layers": [1], "decoder_layers": [1], "encoder_ffn_dim": [16], "decoder_ffn_dim": [16], "d_model": [18, 24],
    "dim": [24], "n_layers": [1], "hidden_dim": [16], "num_mel_bins": [8], "image_size": [8, 13], "patch_size": [2, 5],
    "embed_dim": [3], "pretraining_tp": [2]}
_FILES: dict[str, list[Any]] = {
    "architectures": [["Other"], None], "model_type": [None], "torch_dtype": ["float16", "bfloat16"],
    "dtype": ["bfloat16"], "use_cache": [False], "cache_implementation": ["static"], "is_encoder_decoder": [False],
    "apply_spec_augment": [True], "mask_time_prob": [0.9], "median_filter_width": [3], "add_cross_attention": [True],
    "cross_attention_hidden_size": [8], "unknown_key": [1], "quantization_config": [{"quant_method": "awq"}],
    "auto_map": [{"AutoModel": "x"}], "text_config_dict": [{"hidden_size": 24}],
    "vision_config_dict": [{"hidden_size": 24}]}
OTHERS: dict[str, list[Any]] = {**_POSITIONS, **_ATTENTION, **_PARTS, **_ENDS, **_TOKENS, **_SIZES, **_FILES}
