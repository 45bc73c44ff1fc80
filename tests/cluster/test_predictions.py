"""What a pipeline is predicted to do: the loop of stages and lines, and the constants that are measured before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pipeline_models import folder_of

from morpho import plan as planning
from morpho.base.errors import ArgumentError
from morpho.cluster.frontend.calibrating import Seen, _settled, line, placed, uneven_ends
from morpho.cluster.frontend.times import StageTimes
from morpho.cluster.pipeline.parts import Part
from morpho.cluster.pipeline.stages import make_stage
from morpho.cluster.transport.channel import Patience
from morpho.cluster.transport.frame import Header, Kind, pack, unpack
from morpho.cluster.workers.statistics import Statistics
from morpho.plan.predict.generation import TOKEN_BYTES, Overheads, generation, line_seconds

LATENCY_S = 2e-3


def cluster(nodes: int = 2) -> planning.Cluster:
    made = [planning.Node(f"n{number}", 8 << 30, 1e10, {"f32": 1e11}) for number in range(nodes)]
    return planning.Cluster.uniform(made, 1e9, LATENCY_S)


def card(context: int = 64) -> planning.ModelCard:
    return planning.ModelCard.from_config("gpt2", context=context, dtype="f32")


def test_one_text_waits_for_every_stage_and_the_way_back() -> None:
    plan = placed(card(), cluster(), [7, 14])
    busy = [stage.compute_s for stage in plan.stages]
    sent = plan.card.cut_bytes(7, "f32") / 1e9
    found = generation(plan, 1)
    assert found.token_s == pytest.approx(sum(busy) + 2 * LATENCY_S + sent + TOKEN_BYTES / 1e9)
    more = generation(plan, 1, overheads=Overheads({"n0": 1e-3}, hop_s=1e-4))
    assert more.token_s == pytest.approx(found.token_s + 1e-3 + 2e-4)


def test_many_texts_wait_for_the_slowest_stage_and_not_for_latency() -> None:
    plan = placed(card(), cluster(), [10, 14])
    slowest = max(stage.compute_s for stage in plan.stages)
    assert generation(plan, 64).tokens_per_s == pytest.approx(1 / slowest)
    few, all_of_them = generation(plan, 2), generation(plan, 64)
    assert few.token_s == generation(plan, 1).token_s < all_of_them.token_s


def test_texts_that_wait_for_the_slowest_stage_go_through_it_together() -> None:
    plan = placed(card(), cluster(), [7, 14])
    turns, rows = (generation(plan, 8, overheads=Overheads(row=row)) for row in (1.0, 0.25))
    slowest = max(stage.compute_s for stage in plan.stages)
    assert turns.token_s == pytest.approx(8 * slowest) and rows.token_s < 0.6 * turns.token_s
    assert generation(plan, 1, overheads=Overheads(row=0.25)) == generation(plan, 1)


def test_texts_that_end_have_their_beginning_in_their_rate() -> None:
    plan = placed(card(), cluster(), [7, 14])
    endless, short = generation(plan, 4), generation(plan, 4, prompt_tokens=64, new_tokens=4)
    assert short.tokens_per_s < endless.tokens_per_s
    assert generation(plan, 4, 64, 100_000).tokens_per_s == pytest.approx(endless.tokens_per_s, rel=1e-3)
    with pytest.raises(ArgumentError, match="texts=0"):
        generation(plan, 0)


def test_one_node_has_no_lines() -> None:
    plan = placed(card(), cluster(1), [14])
    assert line_seconds(plan, Overheads(hop_s=1.0)) == ([], [])
    assert generation(plan, 1).token_s == pytest.approx(plan.stages[0].compute_s)


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_calibration_finds_what_runs_were_made_of(nodes: int) -> None:
    """Runs of known pace, offset, handling and hop: predictions of another cut are exact."""
    pace = {f"n{number}": 2.0 + number for number in range(nodes)}
    call_s, handling_s, hop_s, row, model = 3e-4, 2e-4, 1e-4, 0.3, card()
    truth = Overheads(dict.fromkeys(pace, call_s + handling_s), hop_s)

    def times(plan: planning.Plan) -> dict[str, float]:
        return {stage.node: pace[stage.node] * stage.compute_s + call_s for stage in plan.stages}

    seen = []
    for large in (True, False):
        plan = placed(model, cluster(nodes), uneven_ends(model.depth, nodes, large))
        stage_s = times(plan)
        loop_s = sum(stage_s.values()) + nodes * handling_s + sum(line_seconds(plan, truth)[0])
        for texts, rows in ((1, 1.0), (nodes, 1.0), (6, 3.0)):
            grown = (1 + (rows - 1) * row) / rows  # of a token, where a call has so many
            seen.append(Seen(plan, texts, {node: each * grown for node, each in stage_s.items()},
                             dict.fromkeys(pace, handling_s * grown), dict.fromkeys(pace, 1e-3), loop_s, 1.0,
                             dict.fromkeys(pace, rows)))
    found = _settled(cluster(nodes), seen, 8)
    assert found.overheads.hop_s == pytest.approx(hop_s) and found.overheads.cooling == 0.0
    assert found.overheads.stage_s == pytest.approx(truth.stage_s) and found.overheads.row == pytest.approx(row)
    other = [model.depth * number // nodes for number in range(1, nodes + 1)]
    predicted = generation(placed(model, found.cluster, other), 1, overheads=found.overheads)
    plan = placed(model, cluster(nodes), other)
    assert predicted.token_s == pytest.approx(sum(times(plan).values()) + nodes * handling_s
                                              + sum(line_seconds(plan, truth)[0]))


def test_stages_that_wait_before_their_calls_are_slower_and_said_to_be() -> None:
    """Times that grow with the wait before a call: the pace without one is found, and every run is predicted."""
    cooling, base_s, handling_s, model = 40.0, {"n0": 3e-3, "n1": 2e-3}, 1e-4, card()
    plan = placed(model, cluster(2), [7, 14])
    seen = []
    for texts, token_s in ((1, 0.030), (2, 0.026), (6, 0.030)):
        waited = token_s / texts - handling_s  # t = base * (1 + cooling * (waited - t))
        stage_s = {node: each * (1 + cooling * waited) / (1 + cooling * each) for node, each in base_s.items()}
        seen.append(Seen(plan, texts, stage_s, dict.fromkeys(base_s, handling_s), {}, token_s, 0.05,
                         dict.fromkeys(base_s, 1.0)))
    found = _settled(cluster(2), seen, 8)
    assert found.overheads.cooling == pytest.approx(cooling) and 0.02 < found.overheads.coldest_s < 0.03
    here = placed(model, found.cluster, [7, 14])
    assert [stage.compute_s for stage in here.stages] == pytest.approx([*base_s.values()])
    assert generation(here, 1, overheads=found.overheads).token_s == pytest.approx(0.030, rel=1e-6)
    assert generation(here, 1, overheads=replace(found.overheads, cooling=0.0)).token_s < 0.027


def test_a_line_that_makes_no_sense_goes_through_the_origin() -> None:
    assert line([(1.0, 3.0), (2.0, 2.0)]) == (pytest.approx(5 / 3), 0.0)


def test_runs_that_compile_say_nothing_of_a_stage(tmp_path) -> None:
    stage = make_stage(Part(str(folder_of(tmp_path, "llama"))), 0, 2, 16)
    stage.open(1, 64)
    compiles = [stage.compiles]
    for position, ids in ((0, [3, 4, 5]), (3, [6]), (4, [7]), (5, [8])):
        stage.run(1, np.array([ids], np.int64), position)
        compiles.append(stage.compiles)
    assert compiles == [0, 1, 2, 2, 2]  # a prompt, a token, and then nothing new
    said = Statistics()
    said.add(1, 1, 2.0, first=False, compiled=True)
    said.add(1, 1, 0.5, first=False)
    assert (said.tokens, said.compute_s, said.compile_s) == (1, 0.5, 2.0)


def test_handling_is_what_a_round_takes_beside_the_stage() -> None:
    said = Statistics()
    before = said.mark()
    said.add(1, 1, 0.5, first=False)
    said.handle(before, 0.75)
    before = said.mark()
    said.add(1, 4, 0.5, first=True)  # a prompt: left out
    said.handle(before, 2.0)
    assert (said.handled, said.handling_s) == (1, 0.25)
    times = StageTimes()
    times.add("a", {"tokens": 8, "compute_s": 4.0, "handled": 8, "handling_s": 2.0})
    assert (times.all(), times.handling(), times.prompts()) == ({"a": 0.5}, {"a": 0.25}, {})


def test_a_message_knows_its_age() -> None:
    raw = pack(Header(Kind.TOKEN, 1, 0, 3), np.array([5], np.int64))
    header, _ = unpack(raw, 0, 1)
    assert 0 <= header.age_s < 60


def test_who_has_a_core_does_not_sleep_while_texts_are_on_their_way() -> None:
    slept: list[float] = []
    patience = Patience(sleep=slept.append, spin_s=60.0)
    for _ in range(500):
        patience.wait(spin=True)
    assert not slept
    for _ in range(500):
        patience.wait(spin=False)
    assert len(slept) == 500 and max(slept) <= 0.001
    patience.wait(most_s=-1.0)  # what is held back is due
    assert len(slept) == 500
