"""Makes references.json: what the transformers library computes for small models in odd configurations.

    pip install torch transformers safetensors
    python tests/models/make_references.py

The tests build the same folders (the library's own config.json, weights drawn by name with NumPy) and compare, without
the library. A case holds the files' texts, the names and shapes of the weights, the inputs and the outputs.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent


def drawn(name: str, shape: list[int]) -> np.ndarray:
    """The weight of this name: the same numbers wherever it is asked for."""
    noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape) * 0.3
    norm = any(part in name.lower() for part in ("norm", "ln_"))
    return (noise + 1 if norm and name.endswith("weight") else noise).astype(np.float32)


def _case(model: Any, heads: tuple[str, ...], compute: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """A folder as the library writes it, with drawn weights (and `heads` beside the tied ones), loaded and run."""
    import torch
    from safetensors import safe_open
    from safetensors.numpy import save_file

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        place = Path(folder)
        config = json.loads((place / "config.json").read_text()) | changes
        (place / "config.json").write_text(json.dumps(config))
        with safe_open(place / "model.safetensors", "np") as file:
            shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        vocabulary = next(shape for name, shape in shapes.items() if "word_emb" in name or "wte" in name
                          or "shared" in name or "embed_tokens" in name)
        shapes |= {name: vocabulary for name in heads}
        save_file({name: drawn(name, shape) for name, shape in shapes.items()}, place / "model.safetensors",
                  {"format": "pt"})
        loaded = type(model).from_pretrained(folder).eval()
        with torch.no_grad():
            found = compute(loaded)
        texts = {name: (place / name).read_text() for name in ("config.json", "generation_config.json")
                 if (place / name).exists()}
    return {"files": texts, "shapes": shapes, **found}


def _rounded(tensor: Any) -> Any:
    return np.round(tensor.numpy().astype(np.float64), 6).tolist()


def cases() -> dict[str, Any]:
    import torch
    import transformers as hf

    rng = np.random.default_rng(5)
    ids = rng.integers(2, 31, (2, 7))
    mask = np.ones_like(ids)
    mask[0, :3] = 0  # on the left, as decoders have it
    right = np.ones_like(ids)
    right[1, 4:] = 0
    places = (mask.cumsum(1) - 1).clip(0)
    gpt2 = {"vocab_size": 31, "n_positions": 24, "n_embd": 12, "n_layer": 2, "eos_token_id": 0, "bos_token_id": 0}
    llama = {"vocab_size": 31, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
             "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 48, "eos_token_id": 0,
             "bos_token_id": 1}
    bert = {"vocab_size": 31, "hidden_size": 12, "num_hidden_layers": 2, "intermediate_size": 20,
            "num_attention_heads": 3, "max_position_embeddings": 16}
    t5 = {"vocab_size": 31, "d_model": 12, "d_kv": 5, "d_ff": 20, "num_layers": 2, "num_heads": 3,
          "decoder_start_token_id": 0}

    def plain(model: Any) -> dict[str, Any]:
        return {"ids": ids.tolist(), "logits": _rounded(model(torch.tensor(ids)).logits)}

    def states(model: Any) -> dict[str, Any]:
        found = model(torch.tensor(ids), attention_mask=torch.tensor(mask), position_ids=torch.tensor(places),
                      output_hidden_states=True)
        return {"ids": ids.tolist(), "mask": mask.tolist(), "positions": places.tolist(),
                "logits": _rounded(found.logits), "states": [_rounded(each) for each in found.hidden_states]}

    def masked(model: Any) -> dict[str, Any]:
        found = model(torch.tensor(ids), attention_mask=torch.tensor(right))
        return {"ids": ids.tolist(), "mask": right.tolist(), "logits": _rounded(found.logits)}

    def text(model: Any) -> dict[str, Any]:
        """Prompts of other lengths in one batch, padded on the left."""
        found = model.generate(torch.tensor(ids), attention_mask=torch.tensor(mask), max_new_tokens=8, pad_token_id=30)
        prompts = [row[kept == 1].tolist() for row, kept in zip(ids, mask, strict=True)]
        return {"prompts": prompts, "tokens": found[:, ids.shape[1]:].tolist(), **plain(model)}

    def answers(model: Any) -> dict[str, Any]:
        found = model.generate(torch.tensor(ids), attention_mask=torch.tensor(right), max_new_tokens=8, pad_token_id=30)
        prompts = [row[kept == 1].tolist() for row, kept in zip(ids, right, strict=True)]
        return {"prompts": prompts, "tokens": found[:, 1:].tolist(), **decoded(model)}

    def decoded(model: Any, given: Any = ids) -> dict[str, Any]:
        start = np.concatenate([np.zeros((len(given), 1), np.int64), given[:, :3]], axis=1)
        found = model(input_ids=torch.tensor(given), decoder_input_ids=torch.tensor(start))
        return {"ids": given.tolist(), "start": start.tolist(), "logits": _rounded(found.logits)}

    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 16, "rope_theta": 500.0}
    long = rng.integers(2, 31, (1, 700))
    made = {
        "gpt2 untied": (hf.GPT2LMHeadModel(hf.GPT2Config(**gpt2, n_head=3, tie_word_embeddings=False)), (), plain, {}),
        "gpt2 tied, another head": (hf.GPT2LMHeadModel(hf.GPT2Config(**gpt2, n_head=2)), ("lm_head.weight",), plain,
                                    {}),
        "gpt2 states": (hf.GPT2LMHeadModel(hf.GPT2Config(**gpt2, n_head=1, activation_function="relu")), (), states,
                        {}),
        "gpt2 text": (hf.GPT2LMHeadModel(hf.GPT2Config(**gpt2, n_head=2)), (), text, {}),
        "llama linear": (hf.LlamaForCausalLM(hf.LlamaConfig(**llama)), (), states,
                         {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 100.0}}),
        "llama tied, another head": (hf.LlamaForCausalLM(hf.LlamaConfig(**llama, tie_word_embeddings=True)),
                                     ("lm_head.weight",), plain, {}),
        "llama text": (hf.LlamaForCausalLM(hf.LlamaConfig(**llama, attention_bias=True, mlp_bias=True, head_dim=6)), (),
                       text, {"rope_parameters": llama3}),
        "bert untied": (hf.BertForMaskedLM(hf.BertConfig(**bert, tie_word_embeddings=False)), (), masked, {}),
        "bert tied, another head": (hf.BertForMaskedLM(hf.BertConfig(**bert, hidden_act="relu")),
                                    ("cls.predictions.decoder.weight",), masked, {}),
        "t5 tied": (hf.T5ForConditionalGeneration(hf.T5Config(**t5)), (), answers, {}),
        "t5 untied": (hf.T5ForConditionalGeneration(hf.T5Config(**t5, feed_forward_proj="gated-gelu",
                                                                tie_word_embeddings=False)), ("lm_head.weight",),
                      answers, {}),
        "t5 tied, another head": (hf.T5ForConditionalGeneration(hf.T5Config(**t5)), ("lm_head.weight",), decoded, {}),
        "t5 long": (hf.T5ForConditionalGeneration(hf.T5Config(**t5, relative_attention_num_buckets=12,
                                                              relative_attention_max_distance=300)), (),
                    lambda model: decoded(model, long), {}),
    }
    for name, (model, *_) in made.items():
        if "text" in name:  # several ends, by the file's own defaults
            model.generation_config.eos_token_id = [0, 9, 17]
    return {name: _case(*case) for name, case in made.items()}


if __name__ == "__main__":
    (HERE / "references.json").write_text(json.dumps(cases(), separators=(",", ":")))
