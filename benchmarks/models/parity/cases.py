"""The cases: families in odd configurations. `settings` make the library's configuration, `changes` are put into its
config.json afterwards (older forms of keys)."""

from __future__ import annotations

from typing import Any

from benchmarks.models.parity.case import DYNAMIC, FULL, PLAIN, SLIDING, SMALL, YARN, Case
from benchmarks.models.parity.case import rope as _rope
from benchmarks.models.parity.decoders import decoders


def _long(count: int, **others: Any) -> dict[str, Any]:
    return {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0 + 0.1 * i for i in range(count)],
            "long_factor": [2.0 + 0.7 * i for i in range(count)], **others}


def _decoders() -> list[Case]:
    table: dict[str, tuple[str, dict[str, Any], dict[str, dict[str, Any]]]] = {
        "llama": ("LlamaForCausalLM", SMALL, {
            "yarn": {"rope_parameters": YARN}, "dynamic": {"rope_parameters": DYNAMIC}}),
        "mistral": ("MistralForCausalLM", SMALL, {
            "window 5": {"sliding_window": 5, "head_dim": 6}, "no window": {"sliding_window": None},
            "one key head, tied": {"num_key_value_heads": 1, "sliding_window": 2, "tie_word_embeddings": True,
                                   "hidden_act": "gelu", "rms_norm_eps": 1e-3}}),
        "qwen2": ("Qwen2ForCausalLM", SMALL, {
            "windows from layer 1": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
            "yarn": {"rope_parameters": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 0.7}},
            "window that is off, tied": {"sliding_window": 3, "tie_word_embeddings": True,
                                         "rope_parameters": _rope(rope_theta=77.0)}}),
        "qwen3": ("Qwen3ForCausalLM", SMALL, {
            "wide heads, biases": {"head_dim": 8, "attention_bias": True},
            "layer types": {"head_dim": 6, "use_sliding_window": True, "sliding_window": 3,
                            "layer_types": [SLIDING, FULL, SLIDING]},
            "dynamic": {"head_dim": 4, "rope_parameters": DYNAMIC}}),
        "gemma2": ("Gemma2ForCausalLM", SMALL, {
            "caps": {"head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 7, "attn_logit_softcapping": 2.0,
                     "final_logit_softcapping": 3.0},
            "no caps, biases": {"head_dim": 4, "sliding_window": 3, "attn_logit_softcapping": None,
                                "final_logit_softcapping": None, "attention_bias": True, "tie_word_embeddings": False},
            "layer types": {"head_dim": 6, "sliding_window": 2, "layer_types": [FULL, SLIDING, SLIDING]}}),
        "gemma3_text": ("Gemma3ForCausalLM", SMALL, {
            "windows": {"head_dim": 8, "sliding_window": 3, "query_pre_attn_scalar": 7,
                        "layer_types": [SLIDING, FULL, SLIDING]},
            "stretched": {"head_dim": 6, "sliding_window": 5, "layer_types": [FULL, SLIDING, FULL],
                          "rope_parameters": {FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
                                              SLIDING: {"rope_type": "default", "rope_theta": 100.0}}},
            "all layers see all": {"head_dim": 4, "num_key_value_heads": 3, "layer_types": [FULL] * 3,
                                   "hidden_activation": "relu"}}),
        "phi3": ("Phi3ForCausalLM", SMALL, {
            "half of a head turns": {"rope_parameters": _rope(partial_rotary_factor=0.5), "sliding_window": 6},
            "longrope, short": {"rope_parameters": _long(2), "original_max_position_embeddings": 40},
            "longrope, long": {"rope_parameters": _long(2), "original_max_position_embeddings": 16},
            "longrope of a part": {"rope_parameters": _long(1, factor=2.5, partial_rotary_factor=0.5),
                                   "original_max_position_embeddings": 10}}),
        "smollm3": ("SmolLM3ForCausalLM", SMALL, {
            "no positions in the middle": {"no_rope_layers": [1, 0, 1]},
            "every second, biases": {"no_rope_layer_interval": 2, "attention_bias": True, "mlp_bias": True,
                                     "tie_word_embeddings": False},
            "windows": {"no_rope_layers": [1, 1, 0], "use_sliding_window": True, "sliding_window": 4,
                        "layer_types": [FULL, SLIDING, SLIDING]}}),
        "olmo": ("OlmoForCausalLM", SMALL, {
            "bounds": {"clip_qkv": 0.5}, "no bounds, biases": {"attention_bias": True, "num_key_value_heads": 6},
            "tied, relu": {"tie_word_embeddings": True, "hidden_act": "relu"}}),
        "olmo2": ("Olmo2ForCausalLM", SMALL, {
            "shared keys": {}, "biases": {"attention_bias": True, "num_key_value_heads": 6, "rms_norm_eps": 1e-3},
            "linear": {"rope_parameters": _rope(rope_type="linear", factor=2.0)}}),
        "gpt_neox": ("GPTNeoXForCausalLM", PLAIN, {
            "half turns": {"rope_parameters": _rope(partial_rotary_factor=0.5)},
            "in sequence": {"use_parallel_residual": False, "rope_parameters": _rope(partial_rotary_factor=1.0)},
            "no biases, tied": {"attention_bias": False, "tie_word_embeddings": True, "hidden_act": "gelu_new",
                                "rope_parameters": _rope(partial_rotary_factor=0.5, rope_theta=200.0)}}),
        "opt": ("OPTForCausalLM", {**{name: value for name, value in PLAIN.items() if name != "intermediate_size"},
                                   "ffn_dim": 20}, {
            "norms before": {"word_embed_proj_dim": 24}, "norms after, narrow words": {
                "do_layer_norm_before": False, "word_embed_proj_dim": 10},
            "no biases, no weights in norms": {"enable_bias": False, "layer_norm_elementwise_affine": False,
                                               "word_embed_proj_dim": 24, "activation_function": "gelu"}}),
        "mixtral": ("MixtralForCausalLM", SMALL, {
            "two of five": {"num_local_experts": 5, "num_experts_per_tok": 2},
            "one of three, window": {"num_local_experts": 3, "num_experts_per_tok": 1, "sliding_window": 4},
            "all of two": {"num_local_experts": 2, "num_experts_per_tok": 2, "hidden_act": "gelu", "head_dim": 6}}),
    }
    return [Case(f"{family}: {name}", "decoder", architecture, {**base, **settings})
            for family, (architecture, base, variants) in table.items() for name, settings in variants.items()]


def _older() -> list[Case]:
    """Texts beyond a model's positions, and keys as files of before have them."""
    return [
        *(Case(f"{family}: dynamic, beyond the positions", "forward", architecture,
               {**SMALL, "rope_parameters": DYNAMIC, "max_position_embeddings": 12})
          for family, architecture in (("llama", "LlamaForCausalLM"), ("qwen2", "Qwen2ForCausalLM"))),
        Case("gpt_neox: older keys", "decoder", "GPTNeoXForCausalLM", {
            **PLAIN, "rope_parameters": _rope(partial_rotary_factor=0.5, rope_theta=300.0)},
             {"rope_parameters": None, "rotary_pct": 0.5, "rotary_emb_base": 300}),
        Case("qwen2: older keys", "decoder", "Qwen2ForCausalLM", {**SMALL, "rope_parameters": _rope(rope_theta=99.0)},
             {"rope_parameters": None, "rope_theta": 99.0, "rope_scaling": None, "layer_types": None,
              "torch_dtype": "float32"}),
    ]


_MODERN = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 4, "intermediate_size": 20,
           "num_attention_heads": 4, "max_position_embeddings": 40, "local_attention": 6, "pad_token_id": 0,
           "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}


def _encoders(bert: dict[str, Any]) -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Families of `models/encoders/families.py`: a usual and an odd configuration."""
    far = {"relative_attention": True, "type_vocab_size": 0}
    euro = {**bert, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "mask_token_id": 3, "hidden_size": 24,
            "num_attention_heads": 4}
    return [
        ("xlm-roberta", "XLMRoberta", {**bert, "type_vocab_size": 1}, {"pad_token_id": 3}),
        ("camembert", "Camembert", {**bert, "type_vocab_size": 1}, {"tie_word_embeddings": False}),
        ("albert", "Albert", {**bert, "embedding_size": 8}, {
            "num_hidden_layers": 5, "num_hidden_groups": 2, "inner_group_num": 2, "hidden_act": "relu"}),
        ("electra", "Electra", {**bert, "embedding_size": 8}, {"embedding_size": 12, "type_vocab_size": 3,
                                                               "tie_word_embeddings": False, "hidden_act": "relu"}),
        ("mpnet", "MPNet", bert, {"relative_attention_num_buckets": 40, "layer_norm_eps": 1e-3, "hidden_act": "relu"}),
        ("deberta-v2", "DebertaV2", {**bert, **far, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"],
                                     "share_att_key": True, "norm_rel_ebd": "layer_norm",
                                     "position_biased_input": False, "max_relative_positions": 20}, {
            "pos_att_type": "c2p", "share_att_key": False, "position_buckets": -1, "conv_kernel_size": 3,
            "conv_act": "gelu", "position_biased_input": True, "type_vocab_size": 2, "embedding_size": 8,
            "max_relative_positions": 5, "norm_rel_ebd": "none"}),
        ("nomic_bert", "NomicBert", {**bert, "num_attention_heads": 2}, {"num_attention_heads": 3, "rope_parameters": {
            "rope_type": "linear", "factor": 2.0, "rope_theta": 50.0}, "type_vocab_size": 3,
            "tie_word_embeddings": False}),
        ("eurobert", "EuroBert", euro, {"num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True,
                                        "tie_word_embeddings": True, "head_dim": 8}),
        ("modernbert", "ModernBert", _MODERN, {
            "attention_bias": True, "mlp_bias": True, "norm_bias": True, "decoder_bias": False, "classifier_bias": True,
            "classifier_activation": "relu", "hidden_activation": "silu", "tie_word_embeddings": False,
            "layer_types": [SLIDING, FULL, SLIDING, SLIDING], "local_attention": 3,
            "rope_parameters": {FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
                                SLIDING: {"rope_type": "default", "rope_theta": 100.0}}}),
    ]


def _heads() -> list[Case]:
    names = {"masked": "MaskedLM", "classify": "SequenceClassification", "tokens": "TokenClassification",
             "spans": "QuestionAnswering"}
    bert = {"vocab_size": 61, "hidden_size": 12, "num_hidden_layers": 2, "intermediate_size": 20,
            "num_attention_heads": 3, "max_position_embeddings": 40, "hidden_act": "gelu"}
    distil = {"vocab_size": 61, "dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 20, "max_position_embeddings": 40}
    found = []
    for family, kind, base, odd in (
            ("bert", "Bert", bert, {"type_vocab_size": 3, "layer_norm_eps": 1e-3}),
            ("roberta", "Roberta", bert, {"pad_token_id": 3, "type_vocab_size": 1, "hidden_act": "relu"}),
            ("distilbert", "DistilBert", distil, {"activation": "relu", "n_heads": 2})):
        for place, (task, name) in enumerate(names.items()):
            labels = {} if task in ("masked", "spans") else {"num_labels": 5}
            settings = {**base, **(odd if place % 2 else {}), **labels}
            found.append(Case(f"{family}: {task}", task, f"{kind}For{name}", settings))
        found.append(Case(f"{family}: untied", "masked", f"{kind}ForMaskedLM",
                          {**base, **odd, "tie_word_embeddings": False}))
    for family, kind, base, odd in _encoders(bert):
        for place, (task, name) in enumerate(names.items()):
            if not (family == "nomic_bert" and task == "spans") and not (family == "eurobert" and task == "spans"):
                labels = {} if task in ("masked", "spans") else {"num_labels": 5}
                found.append(Case(f"{family}: {task}", task, f"{kind}For{name}",
                                  {**base, **(odd if place % 2 else {}), **labels}))
        found.append(Case(f"{family}: other masked", "masked", f"{kind}ForMaskedLM", {**base, **odd}))
    found.append(Case("electra: replaced tokens", "replaced", "ElectraForPreTraining", {
        **bert, "embedding_size": 8, "hidden_act": "relu"}))
    found.append(Case("modernbert: mean", "classify", "ModernBertForSequenceClassification", {
        **_MODERN, "classifier_pooling": "mean", "num_labels": 3}))
    for pooling in ("bos", "mean"):
        found.append(Case(f"eurobert: {pooling}", "classify", "EuroBertForSequenceClassification", {
            **bert, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "mask_token_id": 3,
            "classifier_pooling": pooling, "num_labels": 3}))
    for task, name in [*names.items()][1:]:
        labels = {} if task == "spans" else {"num_labels": 4}
        found.append(Case(f"qwen2: {task}", f"decoder {task}", f"Qwen2For{name}", {**SMALL, **labels}))
    return found


def _others() -> list[Case]:
    bart = {"vocab_size": 61, "d_model": 12, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 3,
            "decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 14, "max_position_embeddings": 40}
    whisper = {"vocab_size": 61, "d_model": 12, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 3,
               "decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 14, "num_mel_bins": 7,
               "max_source_positions": 15, "max_target_positions": 20, "pad_token_id": 3, "bos_token_id": 3,
               "eos_token_id": 3, "decoder_start_token_id": 2}
    text = {"vocab_size": 61, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
            "num_attention_heads": 3, "max_position_embeddings": 16, "eos_token_id": 3, "bos_token_id": 0,
            "pad_token_id": 1}
    vision = {"hidden_size": 18, "intermediate_size": 22, "num_hidden_layers": 3, "num_attention_heads": 2,
              "image_size": 12, "patch_size": 4}
    return [
        Case("bart: plain", "bart", "BartForConditionalGeneration", bart),
        Case("bart: scaled words, relu", "bart", "BartForConditionalGeneration",
             {**bart, "scale_embedding": True, "activation_function": "relu", "forced_eos_token_id": None}),
        Case("bart: classify", "bart classify", "BartForSequenceClassification", {**bart, "num_labels": 4}),
        Case("bart: spans", "bart spans", "BartForQuestionAnswering", bart),
        *(Case(f"{family}: {name}", "bart", f"{kind}ForConditionalGeneration" if kind != "Marian" else "MarianMTModel",
               {**bart, **settings}) for family, kind, name, settings in (
            ("mbart", "MBart", "scaled", {"scale_embedding": True, "decoder_start_token_id": 2}),
            ("blenderbot", "Blenderbot", "plain", {"encoder_no_repeat_ngram_size": 0}),
            ("pegasus", "Pegasus", "table of the file", {"scale_embedding": True, "eos_token_id": 2,
                                                         "decoder_start_token_id": 2, "forced_eos_token_id": None}),
            ("marian", "Marian", "sines", {"decoder_vocab_size": 61, "eos_token_id": 2, "pad_token_id": 1,
                                           "decoder_start_token_id": 2, "forced_eos_token_id": None}),
            ("m2m_100", "M2M100", "sines", {}))),
        Case("whisper: plain", "whisper", "WhisperForConditionalGeneration", whisper),
        Case("whisper: forbidden tokens", "whisper", "WhisperForConditionalGeneration",
             {**whisper, "suppress_tokens": [5, 8], "begin_suppress_tokens": [9, 3]}),
        Case("whisper: untied, one head", "whisper", "WhisperForConditionalGeneration",
             {**whisper, "tie_word_embeddings": False, "encoder_attention_heads": 1, "activation_function": "relu"}),
        Case("clip: plain", "clip", "CLIPModel", {"text_config": text, "vision_config": vision, "projection_dim": 10}),
        Case("clip: one channel, gelu, the end token of before", "clip", "CLIPModel", {
            "text_config": {**text, "eos_token_id": 2, "hidden_act": "gelu"}, "projection_dim": 7,
            "vision_config": {**vision, "num_channels": 1, "hidden_act": "gelu", "patch_size": 3}}),
    ]


CASES = {case.name: case for case in [*_decoders(), *decoders(), *_older(), *_heads(), *_others()]}
ENCODERS = ("xlm-roberta", "camembert", "albert", "electra", "mpnet", "deberta-v2", "nomic_bert", "eurobert",
            "modernbert")
