"""Plans that are none, or another's, are one sentence before anything starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pipeline_models import folder_of, plan_of

from morpho.base.errors import MorphoError
from morpho.cli.text.spread import Spread
from morpho.cluster.frontend import pipeline
from morpho.cluster.frontend.local import local_plan
from morpho.plan import Plan

Change = Callable[[Any], Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("model"), "llama")


@pytest.fixture(scope="module")
def good(place: Path) -> Any:
    return json.loads(plan_of(place, [2, 4], spare=1).to_json())


class Started(Exception):
    """A plan that nobody objected to."""


def run(place: Path, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> None:
        raise Started

    monkeypatch.setattr(pipeline, "mpiexec", start)
    pipeline.Pipeline(place, Plan.from_json(json.dumps(data)))


def stage(number: int, **changes: Any) -> Change:
    return lambda data: data["stages"][number].update(changes)


def on(number: int, *nodes: str) -> Change:
    return stage(number, node=nodes[0], members=[*nodes], replicas=[[*nodes]])


@pytest.mark.parametrize(("change", "said"), [
    (stage(1, start=1), r"\[1, 4\) on n1 where 2 comes next"),  # layers twice
    (stage(1, start=3), r"\[3, 4\) on n1 where 2 comes next"),  # one on nobody
    (stage(0, start=1), r"\[1, 2\) on n0 where 0 comes next"),
    (stage(1, end=2), "on n1 where 2 comes next"),
    (lambda data: data["stages"].reverse(), r"\[4, 6\) on n2 where 0 comes next"),
    (lambda data: data.update(stages=[]), "the stages end at layer 0 of 6"),
    (on(1, "n0"), "node n0 is used twice"), (on(1, "n1", "n1"), "node n1 is used twice"),
    (on(1, "zz"), "node zz is not there"), (stage(1, members=[]), "stage of n1 lists other members"),
    (stage(1, members=["n3"]), "stage of n1 lists other members"),
    (on(1, "n1", "n3"), "the degrees of the stage on n1 are not allowed"),
    (stage(0, activation_dtype="int8"), "n0 sends int8"),  # which nobody allowed
    (lambda data: data["constraints"].update(excluded=["n0"]), "n0 is excluded"),
    (lambda data: data["cluster"]["nodes"][0].update(memory_bytes=1), "needs 180032 bytes, n0 has 0"),
    (lambda data: data["cluster"]["nodes"][0].update(memory_bytes=-1), "node 'n0' has memory_bytes = -1"),
    (lambda data: data["cluster"]["nodes"][0].update(memory_bytes=10 ** 400), "a whole number of 401 digits"),
    (stage(0, start=-1), r"\[-1, 2\) on n0 where 0 comes next"), (stage(0, compute_s=-1.0), "n0 has compute_s = -1.0"),
    (stage(0, compute_s=float("nan")), "compute_s is nan"), (stage(0, compute_s=1e308), "is 1e.308, not a finite"),
    (lambda data: data["predicted"].update(tokens_per_s=-1.0), "the prediction has tokens_per_s = -1.0"),
    (lambda data: data["predicted"].update(bottleneck=3), "stage 4 of 3 is said to be the bottleneck"),
    (lambda data: data["card"]["layers"][1].update(key="block 9x9"), "its layer 1 is 'block 9x9', and that of llama"),
])
def test_a_plan_that_is_no_placement(place: Path, good: Any, change: Change, said: str,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    data = deepcopy(good)
    change(data)
    with pytest.raises(MorphoError, match=said):
        run(place, data, monkeypatch)


@pytest.mark.parametrize(("family", "changes"), [("llama", {"hidden_size": 48}), ("gpt2", {})])
def test_a_plan_for_another_model_of_as_many_layers(place: Path, tmp_path: Path, family: str, changes: dict[str, int],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    other = json.loads(plan_of(folder_of(tmp_path, family, **changes), [2, 4]).to_json())
    with pytest.raises(MorphoError, match="the plan is for another model: its layer 0 is 'embedding"):
        run(place, other, monkeypatch)


def test_a_plan_in_a_file_is_the_one_that_runs(place: Path, good: Any, monkeypatch: pytest.MonkeyPatch,
                                               tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(good))
    with pytest.raises(MorphoError, match="the plan is for 4 nodes, and --nodes says 2"):
        Spread(2, None, file).pipeline(place)

    (tmp_path / "empty.json").write_text("")
    with pytest.raises(MorphoError, match=r"empty\.json: the plan is not valid JSON.*--json FILE` wrote"):
        Spread(None, None, tmp_path / "empty.json").pipeline(place)

    def started(model: Path, plan: Plan) -> None:
        assert plan == Plan.from_json(json.dumps(good))
        raise Started

    monkeypatch.setattr(pipeline, "Pipeline", started)
    with pytest.raises(Started):
        Spread(None, None, file).pipeline(place)
    assert "n1: layers [2, 4)" in capsys.readouterr().err  # shown first


def test_plans_of_this_model_are_run(place: Path, good: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for data in (good, json.loads(local_plan(place, 3, streams=4).to_json())):
        with pytest.raises(Started):
            run(place, data, monkeypatch)
