"""Every cut of every family gives the tokens of one process; only the weights of a stage are read."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from pipeline_models import FAMILIES, folder_of, plan_of

import morpho as mo
from morpho.base.machine import other_load
from morpho.cli.text.spread import summary
from morpho.cluster.frontend import history, local
from morpho.cluster.frontend.local import LEAST_IN_RESERVE, local_cluster, local_plan
from morpho.cluster.pipeline.chain import Chain
from morpho.cluster.pipeline.parts import Part
from morpho.cluster.pipeline.placement import Place, placement, places_of, stored_failures
from morpho.cluster.pipeline.request import Request
from morpho.models.text.sampling import Sampling

PROMPT = (3, 14, 15, 9, 2, 6, 5)
SEEDED = Sampling(0.9, top_k=20, repetition_penalty=1.1)


def one_process(folder, count=12, **settings):
    return [*mo.models.generate(mo.models.load(folder), PROMPT, max_new_tokens=count, **settings)]


def chain_of(folder, cuts, dtype="f32", chunk=128):
    edges = [0, *cuts, 6]
    return Chain(str(folder), [Place(str(i), a, b, dtype) for i, (a, b) in enumerate(itertools.pairwise(edges))], chunk)


@pytest.mark.parametrize("family", FAMILIES)
def test_cuts_give_the_tokens_of_one_process(tmp_path, family):
    folder = folder_of(tmp_path, family)
    greedy = one_process(folder, temperature=0)
    seeded = one_process(folder, temperature=0.9, top_k=20, repetition_penalty=1.1, seed=5)
    assert len(set(greedy)) > 1 and greedy != seeded
    for cuts in ([], [3], [1, 5], [1, 2, 3, 4, 5]):
        chain = chain_of(folder, cuts, chunk=3)
        assert chain.tokens(Request(1, PROMPT, 12)) == greedy, cuts
        assert chain.tokens(Request(2, PROMPT, 12, SEEDED, 5)) == seeded, cuts
        assert chain.tokens(Request(3, PROMPT, 12, SEEDED, 5), made=seeded[:7]) == seeded, "replayed"


def test_a_lossy_link_rounds_where_the_plan_says(tmp_path):
    folder = folder_of(tmp_path, "llama")
    x = np.array([PROMPT])
    exact, half = (chain_of(folder, [3], dtype) for dtype in ("f32", "f16"))
    for chain in (exact, half):
        for stage in chain.stages:
            stage.open(1, 256)
    found = [chain._through(1, x, 0) for chain in (exact, half)]
    assert not np.array_equal(*found) and np.allclose(*found, atol=0.1 * np.abs(found[0]).max())


def test_links_send_what_the_plan_says_and_the_text_is_that_of_one_process_that_rounds_there(tmp_path):
    pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")
    folder = folder_of(tmp_path, "llama")
    plan = plan_of(folder, [2, 4], activations=("int8", "bf16"))
    places = places_of(plan)
    assert [place.dtype for place in places[:2]] == ["int8", "bf16"]
    loose = {"temperature": 1.0, "seed": 8}  # a text that a little rounding changes soon
    alone = [Chain(str(folder), places).tokens(request) for request in (
        Request(1, PROMPT, 30), Request(2, PROMPT, 40, Sampling(1.0), 8))]
    assert alone[1] != one_process(folder, 40, **loose)
    with mo.cluster.Pipeline(folder, plan, threads=1, chunk=3) as pipeline:
        found = [[*pipeline.wait().generate([*PROMPT], max_new_tokens=count, **settings)] for count, settings in (
            (30, {"temperature": 0}), (40, loose))]
    assert found == alone


def test_a_part_reads_its_own_layers_and_no_layer_twice(tmp_path):
    part = Part(str(folder_of(tmp_path, "llama")))
    part.hold(range(2, 4))
    names = {name for name, _ in part.model.named_parameters()}
    assert names and all(name.startswith(("model.layers.1.", "model.layers.2.")) for name in names)
    part.hold(range(1, 4))
    assert part.read == [2, 3, 1]
    part.hold(range(4, 6))
    assert {name.split(".")[2] for name, _ in part.model.named_parameters() if "layers" in name} == {"3"}


def test_streams_take_turns_in_one_function(tmp_path):
    chain = chain_of(folder_of(tmp_path, "gpt2"), [3])
    for stage in chain.stages:
        for stream in (1, 2, 3):
            stage.open(stream, 256)
    found = {}
    for turn in range(6):
        for stream in (1, 2, 3):
            x = np.array([[PROMPT[turn] if stream < 3 else PROMPT[turn] + 1]])
            found.setdefault(stream, []).append(chain._through(stream, x, turn).copy())
    assert all(np.array_equal(a, b) for a, b in zip(found[1], found[2], strict=True))
    assert not np.array_equal(found[1][-1], found[3][-1])
    for stage in chain.stages:
        stage.close(3)  # the one whose caches are in the states: the others find theirs
    again = [chain._through(stream, np.array([[PROMPT[6]]]), 6).copy() for stream in (1, 2)]
    assert np.array_equal(*again)
    assert chain.stages[0].compiles == 1  # one function for single tokens, whoever they are of


def test_what_runs_when_nodes_are_gone(tmp_path):
    plan = plan_of(folder_of(tmp_path, "llama"), [2, 4])
    stored = stored_failures(plan)
    assert placement(plan, {"n0", "n1", "n2"}, stored) == places_of(plan)
    for dead in ("n0", "n1", "n2"):
        found = placement(plan, {"n0", "n1", "n2"} - {dead}, stored)
        assert dead not in {place.node for place in found} and found[0].start == 0 and found[-1].end == 6
    assert [place.node for place in placement(plan, {"n1"}, stored)] == ["n1"]


def test_more_workers_than_layers_can_use(tmp_path):
    with pytest.raises(mo.errors.ArgumentError, match=r"200 workers are too many for the \d+ layers"):
        mo.cluster.Pipeline(folder_of(tmp_path, "llama"), nodes=200)


def test_a_prediction_says_the_load_that_it_was_made_under(tmp_path, monkeypatch):
    """What other programs take is measured before, said beside the plan, and kept beside the run in the ledger."""
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "stat").write_text(f"cpu  1 2 3\nprocs_running {1 + 3 * (os.cpu_count() or 1)}\n")
    assert other_load(0.0, proc) == 3.0 and other_load(0.0, tmp_path / "none") >= 0
    monkeypatch.setattr(local, "other_load", lambda: 3.0)
    plan = local_plan(folder_of(tmp_path, "llama"), 2)
    assert "other programs want 300 % of the cores; beside them times are about" in plan.notes[-1]
    assert "predicted where nothing else runs" in summary(plan)
    monkeypatch.setattr(local, "other_load", lambda: 0.0)
    quiet = local_plan(tmp_path / "llama", 2)
    assert quiet.stages == plan.stages and quiet.notes[-1].endswith("other programs keep 0 % of the cores busy")
    assert history.record(plan, "llama", 1, 7, {}, load=3.0)["load"] == 3.0


def test_workers_without_work_are_in_reserve_up_to_as_many_as_work(tmp_path):
    place = folder_of(tmp_path, "llama", num_hidden_layers=12)
    found = {count: local_plan(place, count) for count in (3, 24)}
    for count, chosen in found.items():
        busy, there = chosen.predicted.nodes_used, len(chosen.cluster.nodes)
        assert there == min(count, busy + max(busy, LEAST_IN_RESERVE))
    there = found[24].cluster.nodes  # how many is up to the speeds that were measured here
    assert [*there] == [*local_cluster(24).nodes[:len(there)]]
