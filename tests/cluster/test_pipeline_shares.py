"""Stages whose layers several nodes share: columns and heads, gathered, with the bits of whole layers."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from pipeline_models import folder_of, plan_of

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.cluster.groups.threads import run_threads
from morpho.cluster.pipeline.parts import Part
from morpho.cluster.pipeline.placement import places_of
from morpho.cluster.pipeline.shares import Share, check_packed, check_shares, cut
from morpho.cluster.pipeline.stages import make_stage

PROMPT, COUNT = [3, 14, 15, 9, 2, 6, 5], 30
CHANGES = {"llama": {}, "gpt2": {"n_head": 4}, "prenorm-small": {}}


@pytest.mark.parametrize("family", CHANGES)
def test_shares_have_the_bits_of_whole_layers(tmp_path, family):
    folder = str(folder_of(tmp_path, family, **CHANGES[family]))
    x, one = np.array([PROMPT]), np.array([[4]])

    def logits(part, share=None):
        stage = make_stage(part, 0, 6, 128, share)
        stage.open(1, 256)
        return [stage.run(1, x, 0).copy(), stage.run(1, one, len(PROMPT)).copy()]

    whole_part = Part(folder)
    whole, parts = logits(whole_part), [Part(folder), Part(folder)]
    for found in run_threads(2, lambda group: logits(parts[group.rank], Share(group.rank, 2, group))):
        assert all(np.array_equal(a, b) for a, b in zip(found, whole, strict=True))
    held, all_of_it = (sum(p.nbytes for name, p in part.model.named_parameters() if "embed" not in name and "wte" not in
                           name and "wpe" not in name) for part in (parts[0], whole_part))
    assert held < 0.6 * all_of_it  # norms are whole
    again = run_threads(2, lambda group: logits(parts[group.rank], Share(group.rank, 2, group)))  # another group
    assert np.array_equal(again[0][0], whole[0]) and len(parts[0].read) == 6  # and nothing was read again


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_sums_over_rows_are_an_option_and_near(tmp_path, family):
    folder = str(folder_of(tmp_path, family, **CHANGES[family]))
    x = np.array([PROMPT])

    def logits(share=None):
        stage = make_stage(Part(folder), 0, 6, 128, share)
        stage.open(1, 256)
        return stage.run(1, x, 0).copy()

    whole = logits()
    found = run_threads(2, lambda group: logits(Share(group.rank, 2, group, exact=False)))
    assert np.array_equal(*found) and not np.array_equal(found[0], whole)
    np.testing.assert_allclose(found[0], whole, atol=1e-4 * np.abs(whole).max())


def test_heads_that_do_not_part_are_an_error(tmp_path):
    plan = plan_of(folder_of(tmp_path, "llama"), [3], shared=(2, 1))
    assert places_of(plan)[0].members == ("n0", "n1")
    with pytest.raises(ArgumentError, match=r"num_attention_heads=3 does not part among the 2 nodes of a stage"):
        check_shares("llama", {"num_attention_heads": 3}, places_of(plan))
    with pytest.raises(ArgumentError, match="num_heads=3 does not part"):
        check_shares("t5", {"num_heads": 3}, places_of(plan))


def test_packed_weights_are_shared_by_their_outputs(tmp_path):
    def model():
        mo.nn.random.seed(3)
        made = mo.models.create("llama", vocab_size=60, hidden_size=64, intermediate_size=64, num_hidden_layers=1,
                                num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
        block = made.model.layers[0]
        for owner, names in ((block.self_attn, ("q_proj", "k_proj", "v_proj", "o_proj")),
                             (block.mlp, ("gate_proj", "up_proj", "down_proj"))):
            for number, name in enumerate(names):
                packed = mo.quantise(getattr(owner, name).weight.numpy(), ("q8_0", "q4_1")[number % 2])
                setattr(owner, name, mo.nn.QuantisedLinear(packed))
        return made, block

    x = mo.asarray(np.random.default_rng(1).standard_normal((1, 5, 64)).astype(np.float32))

    models = [model() for _ in range(3)]  # made one after another: the generator of weights is everybody's

    def through(group=None):
        made, block = models[2 if group is None else group.rank]
        if group is not None:
            cut(made, [block], Share(group.rank, group.size, group))
            assert block.mlp.down_proj.weight.shape == (32, 64) and block.self_attn.k_proj.weight.shape == (16, 64)
        with mo.no_grad():
            return block(x, None, 0, None, None).numpy()

    whole = through()
    assert all(np.array_equal(found, whole) for found in run_threads(2, through))
    places = places_of(plan_of(folder_of(tmp_path, "llama"), [3], shared=(2, 1)))
    check_packed("a.gguf", True, places)
    with pytest.raises(ArgumentError, match="cut by their outputs only"):
        check_packed("a.gguf", False, places)


def test_what_a_pipeline_cannot_share_is_said_before_anything_starts(tmp_path):
    pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")
    t5, llama = folder_of(tmp_path, "t5-small", num_heads=3), folder_of(tmp_path, "llama")
    with pytest.raises(ArgumentError, match="num_heads=3 does not part among the 2 nodes of a stage"):
        mo.cluster.Pipeline(t5, plan_of(t5, [3], shared=(2, 1)))
    plan = plan_of(llama, [3])
    copies = replace(plan, stages=tuple(replace(stage, replicas=(("n0",), ("n1",))) for stage in plan.stages))
    with pytest.raises(ArgumentError, match=r"the plan has copies of layers \[0, 3\), and a pipeline is one"):
        mo.cluster.Pipeline(llama, copies)


def test_a_stage_of_two_nodes_survives_the_death_of_either(tmp_path):
    pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")
    folder = folder_of(tmp_path, "llama")
    model = mo.models.load(folder)
    greedy = [*mo.models.generate(model, PROMPT, max_new_tokens=COUNT, temperature=0)]
    prompts = [PROMPT, PROMPT[:3]]
    seeded = [*mo.models.generate(model, prompts, max_new_tokens=COUNT, temperature=0.9, seed=5)]
    with mo.cluster.Pipeline(folder, plan_of(folder, [3], shared=(2, 2)), threads=1, chunk=4) as pipeline:
        pipeline.wait()
        assert [row["layers"] for row in pipeline.stages()] == [[0, 3], [0, 3], [3, 6], [3, 6]]
        assert [*pipeline.generate(prompts, max_new_tokens=COUNT, temperature=0.9, seed=5)] == seeded
        for epoch, other in ((2, plan_of(folder, [2, 3, 5])), (3, plan_of(folder, [3], shared=(2, 2)))):
            found = []
            for token in pipeline.generate(PROMPT, max_new_tokens=COUNT, temperature=0):
                found.append(token)
                if len(found) == 9:  # heads come together in one place, and part again
                    pipeline.recut(other)
            assert found == greedy
            rows = [event for event in pipeline.events if event.get("epoch") == epoch]
            assert min(next(row["resumed"] for row in rows if row["event"] == "epoch").values()) > len(PROMPT)
            assert sum(row["layers"] for row in rows if row["event"] == "moved") > 2
        for victim in ("n1", "n2"):  # one that follows, then one that leads
            found = []
            for token in pipeline.generate(PROMPT, max_new_tokens=COUNT, temperature=0):
                found.append(token)
                if len(found) == 9:
                    os.kill(pipeline.processes[victim], signal.SIGKILL)
            assert found == greedy
            assert victim not in {node for place in pipeline.places for node in place.members}
