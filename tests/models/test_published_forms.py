"""Folders in the form in which checkpoints were published: config.json with all that older versions of the library
wrote, older names of weights, shards with an index. Sizes are small and weights random; numbers are the library's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CLOSE = 2e-5  # of the largest value
OLDER: dict[str, Any] = {  # what a tower's record holds in files of 2021 and 2022
    "_name_or_path": "", "add_cross_attention": False, "architectures": None, "bad_words_ids": None,
    "chunk_size_feed_forward": 0, "cross_attention_hidden_size": None, "decoder_start_token_id": None,
    "diversity_penalty": 0.0, "do_sample": False, "early_stopping": False, "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": None, "finetuning_task": None, "forced_bos_token_id": None,
    "forced_eos_token_id": None, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "is_decoder": False,
    "is_encoder_decoder": False, "label2id": {"LABEL_0": 0, "LABEL_1": 1}, "length_penalty": 1.0, "max_length": 20,
    "min_length": 0, "no_repeat_ngram_size": 0, "num_beam_groups": 1, "num_beams": 1, "num_return_sequences": 1,
    "output_attentions": False, "output_hidden_states": False, "output_scores": False, "prefix": None,
    "problem_type": None, "pruned_heads": {}, "remove_invalid_values": False, "repetition_penalty": 1.0,
    "return_dict": True, "return_dict_in_generate": False, "sep_token_id": None, "task_specific_params": None,
    "temperature": 1.0, "tie_encoder_decoder": False, "tie_word_embeddings": True, "tokenizer_class": None,
    "top_k": 50, "top_p": 1.0, "torch_dtype": None, "torchscript": False, "transformers_version": "4.21.0.dev0",
    "typical_p": 1.0, "use_bfloat16": False, "dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.02,
    "initializer_factor": 1.0, "layer_norm_eps": 1e-05, "projection_dim": 512}
TEXT = {**OLDER, "vocab_size": 99, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
        "num_attention_heads": 2, "max_position_embeddings": 12, "hidden_act": "quick_gelu", "bos_token_id": 0,
        "eos_token_id": 2, "pad_token_id": 1, "model_type": "clip_text_model"}
VISION = {**OLDER, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 3,
          "image_size": 8, "patch_size": 4, "hidden_act": "quick_gelu", "bos_token_id": None, "eos_token_id": None,
          "pad_token_id": None, "model_type": "clip_vision_model"}
CLIP = {"architectures": ["CLIPModel"], "initializer_factor": 1.0, "logit_scale_init_value": 2.6592,
        "model_type": "clip", "projection_dim": 20, "text_config": TEXT, "text_config_dict": None,
        "vision_config": VISION, "vision_config_dict": None, "torch_dtype": "float32", "transformers_version": None}
SAID = {"text_config_dict": {key: TEXT[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers",
                                                        "num_attention_heads", "vocab_size")},
        "vision_config_dict": {key: VISION[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers",
                                                            "num_attention_heads", "image_size", "patch_size")}}
PHI = {"_name_or_path": "Phi-3-mini-128k-instruct", "architectures": ["Phi3ForCausalLM"], "attention_bias": False,
       "attention_dropout": 0.0, "model_type": "phi3", "hidden_act": "silu", "embd_pdrop": 0.0, "resid_pdrop": 0.0,
       "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "bos_token_id": 1, "eos_token_id": 90,
       "pad_token_id": 90, "vocab_size": 99, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
       "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.02,
       "original_max_position_embeddings": 16, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 7,
       "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.40.2", "use_cache": True}
FACTORS = {"short_factor": [1.0, 1.1, 1.5, 2.0], "long_factor": [1.0, 2.5, 9.0, 31.0]}
MINI = {**PHI, "tie_word_embeddings": True, "full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False,
        "mlp_bias": False, "partial_rotary_factor": 0.75, "sliding_window": 262144,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.1, 1.5], "long_factor": [1.0, 2.5, 9.0]}}
MIXTRAL = {"architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
           "hidden_act": "silu", "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 40,
           "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 4,
           "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_key_value_heads": 2, "num_local_experts": 8,
           "output_router_logits": False, "rms_norm_eps": 1e-05, "rope_theta": 1e6, "router_aux_loss_coef": 0.02,
           "router_jitter_noise": 0.0, "sliding_window": None, "tie_word_embeddings": False, "use_cache": True,
           "torch_dtype": "bfloat16", "transformers_version": "4.36.0.dev0", "vocab_size": 99}
BERT = {"architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "classifier_dropout": None,
        "directionality": "bidi", "gradient_checkpointing": False, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
        "hidden_size": 24, "initializer_range": 0.02, "intermediate_size": 32, "layer_norm_eps": 1e-12,
        "max_position_embeddings": 32, "model_type": "bert", "num_attention_heads": 3, "num_hidden_layers": 2,
        "pad_token_id": 0, "pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128, "pooler_type": "first_token_transform", "position_embedding_type": "absolute",
        "transformers_version": "4.6.0.dev0", "type_vocab_size": 2, "use_cache": True, "vocab_size": 99}


def published(folder: Path, config: dict[str, Any], shard: str = "1GB", older: bool = False) -> Any:
    """The library's model of a configuration, with random weights, and its folder with that configuration as it is.
    The library's newer versions do not read "su" any more, which older ones took for longrope."""
    torch.manual_seed(0)
    own = json.loads(json.dumps(config).replace('"su"', '"longrope"'))
    made = transformers.CONFIG_MAPPING[config["model_type"]](**{**own, "auto_map": None})
    model = getattr(transformers, config["architectures"][0])(made).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name != "logit_scale":
                parameter.normal_(0.0, 0.3).add_(1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0)
    model.save_pretrained(folder, max_shard_size=shard)
    (folder / "config.json").write_text(json.dumps(config))
    if older:  # names of weights, and a buffer that was saved
        weights = mo.weights.load(folder / "model.safetensors")
        renamed = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"):
                   value.numpy() for name, value in weights.items()}
        mo.weights.save(folder / "model.safetensors", {
            **renamed, "bert.embeddings.position_ids": np.arange(config["max_position_embeddings"])[None]})
    return model


def check(found: Any, expected: Any) -> None:
    expected = expected.numpy()
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=CLOSE * np.abs(expected).max())


@pytest.mark.parametrize("more", [{}, SAID, {"text_config_dict": {**SAID["text_config_dict"], "hidden_act": "gelu"}}],
                         ids=["none", "the same", "another"])
def test_clip(more: dict[str, Any], tmp_path: Path, rng: np.random.Generator) -> None:
    """`text_config_dict` goes before `text_config` where both say something."""
    model = published(tmp_path, {**CLIP, **more})
    ids = rng.integers(3, 98, (2, 9))
    ids[:, 6] = 98
    pixels = rng.standard_normal((2, 3, 8, 8)).astype(np.float32)
    with torch.no_grad():
        expected = model(input_ids=torch.tensor(ids), pixel_values=torch.tensor(pixels))
    found = mo.models.load(tmp_path)(mo.asarray(ids), mo.asarray(pixels))
    check(found[0], expected.logits_per_image)


@pytest.mark.parametrize("config", [{**PHI, "rope_scaling": {"type": "su", **FACTORS}}, PHI, MINI, MIXTRAL],
                         ids=["phi 3 of type su", "phi 3", "phi 4 mini", "mixtral"])
def test_decoders_in_shards(config: dict[str, Any], tmp_path: Path, rng: np.random.Generator) -> None:
    model = published(tmp_path, config, shard="20KB")
    assert len([*tmp_path.glob("*.safetensors")]) > 1
    loaded = mo.models.load(tmp_path)
    for length in (9, 30):  # within the original length, and beyond
        ids = rng.integers(3, 99, (2, length))
        with torch.no_grad():
            check(loaded(mo.asarray(ids)), model(torch.tensor(ids)).logits)


def test_bert_with_older_names(tmp_path: Path, rng: np.random.Generator) -> None:
    model = published(tmp_path, BERT, older=True)
    loaded = mo.models.load(tmp_path)
    ids, kinds = rng.integers(3, 99, (2, 9)), np.repeat([[0, 1]], [4, 5], axis=1).repeat(2, axis=0)
    with torch.no_grad():
        expected = model(input_ids=torch.tensor(ids), token_type_ids=torch.tensor(kinds)).logits
    check(loaded.logits(loaded(mo.asarray(ids), None, mo.asarray(kinds))), expected)


@pytest.mark.parametrize("key, value", [("lm_head_bias", True), ("mlp_bias", True), ("full_attn_mod", 2),
                                        ("interpolate_factor", 2)])
def test_what_phi_4_mini_says_otherwise_is_refused(key: str, value: Any) -> None:
    with pytest.raises(mo.errors.ArgumentError, match=f"{key} is {value}"):
        mo.models.from_config({**MINI, key: value})
