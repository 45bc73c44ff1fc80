"""Every family that makes text of text plans, runs as a pipeline and in shares of several nodes, with the bits of the
whole model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import morpho as mo
from benchmarks.models.parity.decoders import decoders
from morpho.base.errors import ArgumentError
from morpho.cluster.frontend.local import card_of
from morpho.cluster.groups.threads import run_threads
from morpho.cluster.pipeline.parts import Part
from morpho.cluster.pipeline.shares import Share
from morpho.cluster.pipeline.stages import make_stage
from morpho.cluster.pipeline.two_parts import TwoPartStage
from morpho.models import registry
from morpho.models.decoder.families.rotary import RotaryConfig
from morpho.models.decoder.family import decoder_family
from morpho.models.registry import families
from morpho.models.text.generators import TwoPartGenerator
from morpho.plan.model.configs import is_planned

PROMPT = (3, 14, 15, 9, 2, 6, 5)
SMALL = {"vocab_size": 62, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 256}
ALL_HEADS = {**SMALL, "num_key_value_heads": 4}
NO_GROUPS = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
NO_HIDDEN = {key: value for key, value in NO_GROUPS.items() if key != "intermediate_size"}
BART = {"vocab_size": 62, "d_model": 24, "encoder_layers": 1, "encoder_ffn_dim": 16, "encoder_attention_heads": 2,
        "decoder_layers": 1, "decoder_ffn_dim": 16, "decoder_attention_heads": 2, "max_position_embeddings": 256,
        "init_std": 0.5, "eos_token_id": None}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {"vocab_size": 62, "n_embd": 24, "n_layer": 1, "n_head": 4, "n_positions": 256}),
    "llama": ("llama", {**SMALL, "attention_bias": True, "tie_word_embeddings": True}),
    "prenorm": ("prenorm-small", {"vocab_size": 62, "width": 24, "layers": 1, "heads": 4, "kv_heads": 2, "hidden": 20,
                                  "max_seq_len": 256}),
    "mistral": ("mistral", {**SMALL, "sliding_window": 5}),
    "mixtral": ("mixtral", {**SMALL, "num_local_experts": 3, "num_experts_per_tok": 2}),
    "qwen2": ("qwen2", {**SMALL, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}),
    "qwen3": ("qwen3", {**SMALL, "head_dim": 8}),
    "smollm3": ("smollm3", {**SMALL, "no_rope_layer_interval": 1}),
    "granite": ("granite", {**SMALL, "embedding_multiplier": 12.0, "residual_multiplier": 0.25,
                            "attention_multiplier": 0.3, "logits_scaling": 8.0}),
    "phi3": ("phi3", SMALL),
    "gemma2": ("gemma2", {**SMALL, "head_dim": 8}),
    "gemma3_text": ("gemma3_text", {**SMALL, "head_dim": 8, "sliding_window": 4, "sliding_window_pattern": 2}),
    "olmo": ("olmo", {**ALL_HEADS, "clip_qkv": 0.5}),
    "olmo2": ("olmo2", SMALL),
    "gpt_neox": ("gpt_neox", {**NO_GROUPS, "rotary_pct": 0.67}),
    "opt": ("opt", {**NO_HIDDEN, "ffn_dim": 20, "word_embed_proj_dim": 12}),
    "t5": ("t5-small", {"vocab_size": 62, "d_model": 24, "d_kv": 6, "d_ff": 20, "num_layers": 1, "num_heads": 4,
                        "eos_token_id": None, "tie_word_embeddings": False}),
    "bart": ("bart-base", BART),
}


BARTS = {"mbart", "blenderbot", "pegasus", "marian", "m2m_100"}  # no card of the planner yet


def folder_of(where, name, sizes):
    """A model with weights so large that tokens differ, in a folder."""
    mo.nn.random.seed(7)
    model = mo.models.create(name, **sizes)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.assign(mo.asarray(parameter.numpy() * 12))
    mo.models.save(where, model)
    return str(where), model.eval()


def of_the_whole(model):
    """Logits after a prompt, and after one more token."""
    generator = (TwoPartGenerator if hasattr(model, "remember") else mo.models.Generator)(model, 256)
    return [generator.start(PROMPT).copy(), generator.step(4).copy()]


def of_a_chain(stages, model, further=((4,),)):
    """The same of stages one after another."""
    x, ids, position, found = np.array([PROMPT]), PROMPT, 0, []
    for stage in stages:
        stage.open(1, 256)
        if isinstance(stage, TwoPartStage):
            x, ids = stage.encode(1, x), (model.config["decoder_start_token_id"],)
    for tokens in (ids, *further):
        x = np.array([tokens])
        for stage in stages:
            if not isinstance(stage, TwoPartStage) or stage.takes_tokens or x.dtype == np.float32:
                x = stage.run(1, x, position)
        position += len(tokens)
        found.append(x.copy())
    return found


def check_everywhere(where, name, sizes):
    folder, model = folder_of(where, name, sizes)
    return check_folder(folder, model)


def check_folder(folder, model):
    card = card_of(folder, context=32)
    depth = card.depth
    assert card.weight_bytes == 4 * model.parameter_count()
    whole = of_the_whole(model)
    stages = [make_stage(Part(folder), start, end, 128) for start, end in ((0, depth - 2), (depth - 2, depth))]
    assert [row.reshape(-1).tolist() for row in of_a_chain(stages, model)] == [row.tolist() for row in whole]
    for found in () if not model.config_class.shared else run_threads(2, lambda group: of_a_chain(
            [make_stage(Part(folder), 0, depth, 128, Share(group.rank, 2, group))], model, ())):
        assert np.array_equal(found[0], whole[0])
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pipeline_and_shares_have_the_bits_of_the_whole(tmp_path, family):
    check_everywhere(tmp_path, *FAMILIES[family])


@dataclass
class BloomConfig(RotaryConfig):
    """A family that nobody has heard of: LayerNorms after the parts, scaled embeddings, joined matrices."""

    hidden_act: str = "relu2"
    beta: float = 2.0
    family: ClassVar[str] = "bloomlet"

    def shape(self):
        return self.shape_of(activation=self.hidden_act, eps=1e-5, norm="layer", embed_scale=self.beta, mlp_bias=True,
                             norms={"after_attention": "norm_1", "after_mlp": "norm_2"}, gated=False, joined="parts")


@pytest.fixture
def bloomlet(monkeypatch):
    monkeypatch.setattr(registry, "_records", dict(families()))
    return registry.register(decoder_family(
        "bloomlet", "Bloomlet", BloomConfig, sizes={"bloomlet-tiny": SMALL}, head="unembed.weight", pairs=[
            ("unembed.weight", "lm_head.weight"), ("trunk.{rest:*}", "model.{rest}")],
        embedding="trunk.embed_tokens.weight"))


def test_a_new_family_is_a_record(tmp_path, bloomlet):
    """It is created, saved under its published names, loaded, planned, cut into stages and shared."""
    model = check_everywhere(tmp_path, "bloomlet-tiny", {})
    assert type(model).__name__ == "Bloomlet" and "bloomlet-tiny" in mo.models.list()
    stored = mo.weights.load(tmp_path)
    assert {name.split(".")[0] for name in stored} == {"unembed", "trunk"}
    with pytest.raises(ArgumentError, match="there is a family 'bloomlet' already"):
        registry.register(replace(bloomlet))


def test_no_family_is_forgotten():
    texts = {name for name, family in families().items() if family.cuts is not None}
    elsewhere = {case.family for case in decoders()}  # tests/models/test_every_decoder.py
    assert texts == {*FAMILIES} | elsewhere | BARTS and not {*FAMILIES} & elsewhere
    assert all(is_planned(name) for name in texts - BARTS)
