"""What a file says about making text: the keys of generation_config.json, which older files keep in config.json.

A setting that is not computed is accepted where it changes nothing and an error otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from morpho.weights import keys
from morpho.weights.keys import KeyTable, irrelevant, only, used

USUAL_TOP_K = 50  # what files mean that ask for sampling and do not say among how many
_BEAMS = "of a search with several beams, which num_beams=1 is not"
_RETURNED = "what else the library that wrote the file returns"
_SPEED = "how fast tokens are made, not which"
_nothing = only(None)

GENERATION = KeyTable({
    "do_sample": used(keys.flag().or_null()), "temperature": used(keys.number(1.0, least=0.0).or_null()),
    "top_k": used(keys.whole(50).or_null()), "top_p": used(keys.number(1.0, above=0.0, most=1.0).or_null()),
    "repetition_penalty": used(keys.number(1.0, above=0.0).or_null()),
    "max_new_tokens": used(keys.whole(20).or_null()), "max_length": used(keys.positive(20).or_null()),
    "eos_token_id": used(keys.tokens().or_null()), "decoder_start_token_id": used(keys.token().or_null()),
    "bos_token_id": irrelevant("a prompt holds its own tokens"), "pad_token_id": irrelevant("padding is told by masks"),
    "num_beams": only(1, None), "num_beam_groups": only(1, None), "num_return_sequences": only(1, None),
    "min_length": only(0, None), "min_new_tokens": only(0, None), "no_repeat_ngram_size": only(0, None),
    "encoder_no_repeat_ngram_size": only(0, None), "typical_p": only(1.0, 1, None), "min_p": only(0.0, 0, None),
    "top_h": _nothing, "epsilon_cutoff": only(0.0, 0, None), "eta_cutoff": only(0.0, 0, None),
    "encoder_repetition_penalty": only(1.0, 1, None), "diversity_penalty": only(0.0, 0, None),
    "penalty_alpha": only(0.0, 0, None), "guidance_scale": only(1.0, 1, None), "token_healing": only(False, None),
    "length_penalty": irrelevant(_BEAMS), "early_stopping": irrelevant(_BEAMS), "low_memory": irrelevant(_SPEED),
    **{name: _nothing for name in (
        "bad_words_ids", "forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty",
        "suppress_tokens", "begin_suppress_tokens", "sequence_bias", "constraints", "force_words_ids", "dola_layers",
        "watermarking_config", "stop_strings", "max_time", "forced_decoder_ids")},
    "renormalize_logits": irrelevant("sampling divides by the sum always"),
    "remove_invalid_values": irrelevant("logits that are not finite are an error"),
    **{name: irrelevant(_RETURNED) for name in (
        "output_attentions", "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate",
        "transformers_version", "_from_model_config", "_commit_hash")},
    **{name: irrelevant(_SPEED) for name in (
        "use_cache", "use_mtp", "cache_implementation", "cache_config", "max_cache_len", "return_legacy_cache",
        "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
        "prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit", "assistant_lookbehind",
        "target_lookbehind", "assistant_ensemble_weight", "speculation_type", "compile_config", "disable_compile",
        "continuous_batching_config", "prefill_chunk_size")},
})
_TOKENS = keys.Kind(lambda value: isinstance(value, list) and all(keys.is_whole(each, 0, 1 << 31) for each in value),
                    "a list of numbers of tokens").or_null()
# What only models with an encoder do; elsewhere these are errors.
FORCED = KeyTable({
    "forced_bos_token_id": used(keys.token().or_null()), "forced_eos_token_id": used(keys.token().or_null()),
    "suppress_tokens": used(_TOKENS), "begin_suppress_tokens": used(_TOKENS)})


USUAL_TEMPERATURE = 0.8  # of texts that are continued, where neither a file nor the user says how to draw


def usual_temperature(talks: bool) -> float:
    """The temperature where neither the model's files nor the user say one: 0 where it answers in a chat, whose small
    models wander otherwise.

    >>> usual_temperature(talks=True), usual_temperature(talks=False)
    (0.0, 0.8)
    """
    return 0.0 if talks else USUAL_TEMPERATURE


@dataclass(frozen=True)
class Defaults:
    """What `generate` does where its caller does not say otherwise; None leaves it to `generate`."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    max_new_tokens: int | None = None
    max_length: int | None = None
    forced_bos_token_id: int | None = None  # the first token
    forced_eos_token_id: int | None = None  # the last one of a text that is cut
    suppress_tokens: list[int] | None = None  # never made
    begin_suppress_tokens: list[int] | None = None  # not made first

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Defaults:
        """Out of the settings of a file. Without `do_sample` its temperature and cuts are not used: the likeliest
        token is taken, by a file that says false always."""
        found = {field.name: said.get(field.name) for field in fields(cls)}
        if not said.get("do_sample"):
            found.update(temperature=0.0 if said.get("do_sample") is False else None, top_k=None, top_p=None)
        else:
            found["temperature"] = 1.0 if found["temperature"] is None else found["temperature"]
            found["top_k"] = USUAL_TOP_K if found["top_k"] is None else found["top_k"]
        found["top_k"] = found["top_k"] or None  # 0 is all
        return cls(**found)

    def to_dict(self) -> dict[str, Any]:
        """As generation_config.json has it."""
        found = {name: value for name, value in asdict(self).items() if value is not None}
        if self.temperature is None:
            return found
        if self.temperature == 0:  # the file of another library would divide by it
            return {"do_sample": False, **{name: value for name, value in found.items() if name != "temperature"}}
        return {"do_sample": True, "top_k": 0, **found}
