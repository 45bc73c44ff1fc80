"""Every decoder whose record has no test of its own: the library's numbers, the published names when saved, shards in
bfloat16, a pipeline and shares with the bits of the whole, a batch with the tokens of each text alone, training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from benchmarks.models.parity import ours
from benchmarks.models.parity.__main__ import picks
from benchmarks.models.parity.decoders import decoders
from benchmarks.models.parity.inputs import config_of, inputs, write_folder
from morpho.models.registry import families
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Request, SamplingParams
from tests.cluster.test_every_family import check_folder

CASES = json.loads((Path(__file__).parent / "families.json").read_text())
FIRST: dict[str, str] = {}
for _case in decoders():
    FIRST.setdefault(_case.family, _case.name)
sampled = pytest.mark.parametrize("family", [pytest.param(name, marks=pytest.mark.sampled) for name in FIRST])


def folder_of(place: Path, family: str) -> dict[str, np.ndarray]:
    case = CASES[FIRST[family]]
    write_folder(place, case["files"], case["shapes"])
    return inputs(FIRST[family], "decoder", config_of(case["files"]))


@sampled
def test_numbers_names_and_shards(family: str, tmp_path: Path) -> None:
    given, case = folder_of(tmp_path, family), CASES[FIRST[family]]
    logits = ours.computed(tmp_path, "decoder", given)
    for name, found in logits.items():
        wanted = np.array(case["results"][name])
        flat = found.reshape(-1)
        assert np.abs((flat if name == "tokens" else flat[picks(flat.size)]) - wanted).max(initial=0) < 2e-5 * max(
            1.0, np.abs(wanted).max(initial=0))
    model = mo.models.load(tmp_path)
    mo.models.save(tmp_path / "again", model)
    assert {*mo.weights.load(tmp_path / "again")} <= {*case["shapes"]}
    again = ours.computed(tmp_path / "again", "decoder", given, texts=False)
    assert (again["logits"] == logits["logits"]).all()
    halves = {name: mo.asarray(weight.numpy()).astype(mo.bfloat16)
              for name, weight in mo.weights.load(tmp_path).items()}
    mo.weights.save(tmp_path / "halves", halves, shard_bytes=1 << 13)
    assert len([*(tmp_path / "halves").glob("*.safetensors")]) > 1
    for name, text in case["files"].items():
        (tmp_path / "halves" / name).write_text(text)
    near = ours.computed(tmp_path / "halves", "decoder", given, texts=False)["logits"]
    apart = np.abs(near - logits["logits"]).max(-1)  # of each token: rounding sends a few to other experts
    assert np.median(apart) < 0.05 * np.abs(logits["logits"]).max()


@sampled
def test_cut_served_and_trained(family: str, tmp_path: Path) -> None:
    folder_of(tmp_path, family)
    model = mo.models.load(tmp_path)
    check_folder(str(tmp_path), model)
    rng = np.random.default_rng(3)
    prompts = [tuple(rng.integers(3, 61, length).tolist()) for length in (1, 9, 5, 14)]
    wanted = [[*mo.models.generate(model, list(prompt), max_new_tokens=4)] for prompt in prompts]
    with Engine(model, kv_bytes=1 << 18, max_batch=4) as engine:
        streams = [engine.submit(Request(prompt, SamplingParams(temperature=0.0, max_tokens=4), "test"))
                   for prompt in prompts]
        found = [[event.token for event in stream if event.token is not None] for stream in streams]
        assert found == wanted and engine.stats().errors == 0
    before = [parameter.numpy(copy=True) for parameter in model.parameters() if parameter.requires_grad]
    ids = mo.asarray(rng.integers(3, 61, (2, 9)))
    optimiser = mo.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], lr=1e-3)
    losses = []
    with mo.settings(device="reference"):
        for _ in range(2):
            loss = mo.cross_entropy(mo.reshape(model.train()(ids[:, :-1]), (-1, 61)), mo.reshape(ids[:, 1:], (-1,)))
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
            losses.append(loss.item())
    assert losses[1] < losses[0]
    after = [parameter.numpy() for parameter in model.parameters() if parameter.requires_grad]
    assert sum((one != two).any() for one, two in zip(before, after, strict=True)) >= len(after) * 2 // 3


def test_no_decoder_is_forgotten() -> None:
    assert {*FIRST} <= {*families()} and len(families()) >= 80
