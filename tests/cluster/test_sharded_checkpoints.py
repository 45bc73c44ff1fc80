"""Checkpoints in shards: any number of ranks reads what any number wrote, and a failure keeps the old one."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import cluster
from morpho import distributed as dist
from morpho.base.errors import ArgumentError, GroupError, MorphoError, ShapeError
from morpho.cluster.groups.threads import run_threads
from morpho.runtime.groups.group import Group

_one_at_a_time = threading.Lock()
Values = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]


def small(group: Group, width: int = 5) -> tuple[Any, Any]:
    with _one_at_a_time:
        mo.nn.seed(0)
        model = mo.nn.Sequential(mo.nn.Linear(3, width), mo.nn.BatchNorm1d(width), mo.nn.Linear(width, 2))
    whole = cluster.shard(model, group)
    return whole, mo.optim.AdamW(whole.parameters(), lr=0.1)


def values(model: Any, rule: Any) -> Values:
    return ({name: value.numpy() for name, value in model.state_dict().items()},
            {name: value.numpy() for name, value in model.optimizer_state_dict(rule)["slots"].items()})


def saved(group: Group, folder: Path, steps: int = 1) -> Values:
    model, rule = small(group)
    for _ in range(steps):
        model(mo.ones((4, 3)) * (1.0 + group.rank)).sum().backward()
        rule.step()
        rule.zero_grad()
    saving = dist.save_checkpoint(model, folder, rule, async_op=True)
    assert saving is not None
    saving.wait()
    return values(model, rule)


@pytest.mark.parametrize("writers", [1, 3])
def test_any_number_of_ranks_reads_it(tmp_path: Path, writers: int) -> None:
    dist.init_process_group()
    expected = run_threads(writers, lambda group: saved(group, tmp_path))[0]  # running statistics are rank 0's

    def read(group: Group) -> tuple[Values, int]:
        model, rule = small(group)
        dist.load_checkpoint(model, tmp_path, rule)
        return values(model, rule), rule.state_dict()["count"]

    for readers in (1, 2, 4):
        for found, count in run_threads(readers, read):
            assert count == 1
            for ours, theirs in zip(expected, found, strict=True):
                assert ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)
    files = {*json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"].values()}
    assert len(files) == writers == len([*tmp_path.glob("*.safetensors")])
    load_file = pytest.importorskip("safetensors.numpy").load_file  # Hugging Face's reader
    read_by_others = {name: tensor for file in files for name, tensor in load_file(tmp_path / file).items()}
    assert all(np.array_equal(read_by_others[name], value) for name, value in expected[0].items())


def test_shards_of_others_go_straight_into_parts(tmp_path: Path) -> None:
    """Under other names and in another dtype, by two ranks."""
    dist.init_process_group()
    rng = np.random.default_rng(0)
    state = {"model.0.weight": rng.normal(size=(5, 3)), "model.0.bias": rng.normal(size=5)}
    mo.weights.save(tmp_path, {name: mo.asarray(value, dtype=mo.bfloat16) for name, value in state.items()},
                    shard_bytes=16)

    def read(group: Group) -> dict[str, np.ndarray]:
        with _one_at_a_time:
            model = mo.nn.Sequential(mo.nn.Linear(3, 5))
        whole = cluster.shard(model, group)
        dist.load_checkpoint(whole, tmp_path, names=lambda name: f"model.{name}")
        return {name: value.numpy() for name, value in whole.state_dict().items()}

    for found in run_threads(2, read):
        for name, value in found.items():
            expected = mo.asarray(state[f"model.{name}"], dtype=mo.bfloat16).astype("float32")
            assert np.array_equal(value, expected.numpy())


def test_a_rank_that_cannot_write_keeps_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dist.init_process_group()
    expected = run_threads(2, lambda group: saved(group, tmp_path))[0]
    write = mo.weights.save

    def full(path: Path, tensors: Any, **more: Any) -> None:
        if "00002-of" in path.name:
            raise OSError(28, "No space left on device")
        write(path, tensors, **more)

    monkeypatch.setattr(mo.weights, "save", full)

    def again(group: Group) -> str:
        try:
            saved(group, tmp_path, steps=2)
        except (OSError, MorphoError) as error:
            return str(error)
        return "saved"

    texts = run_threads(2, again)
    assert "saved" not in texts and any("1 of 2 ranks could not write" in text for text in texts)
    monkeypatch.undo()

    def read(group: Group) -> Values:
        model, rule = small(group)
        dist.load_checkpoint(model, tmp_path, rule)
        return values(model, rule)

    assert all(np.array_equal(value, expected[0][name]) for name, value in run_threads(1, read)[0][0].items())


def test_what_is_not_there(tmp_path: Path) -> None:
    dist.init_process_group()
    model = mo.nn.Linear(2, 3)
    dist.save_checkpoint(model, tmp_path)
    before = model.weight.numpy().copy()
    with pytest.raises(ShapeError, match=r"weight has the shape \(3, 2\)"):
        dist.load_checkpoint(mo.nn.Linear(2, 4), tmp_path)
    with pytest.raises(ArgumentError, match=r"has no 0\.weight, 0\.bias.*names="):
        dist.load_checkpoint(mo.nn.Sequential(mo.nn.Linear(2, 3)), tmp_path)
    sharded = dist.fully_shard(mo.nn.Linear(2, 3))
    with pytest.raises(ArgumentError, match="holds no optimiser"):
        dist.load_checkpoint(sharded, tmp_path, mo.optim.SGD(sharded.parameters(), lr=0.1))
    with pytest.raises(MorphoError):
        dist.load_checkpoint(model, tmp_path / "nowhere")
    with pytest.raises((ArgumentError, GroupError), match="is no model"):
        dist.save_checkpoint({"w": 1}, tmp_path)
    assert np.array_equal(model.weight.numpy(), before)
