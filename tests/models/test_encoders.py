"""The encoders of one implementation: names when saved, bits of a text beside others, what a server makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from benchmarks.models.parity.cases import ENCODERS
from benchmarks.models.parity.inputs import config_of, inputs, write_folder
from morpho.models.registry import families
from morpho.serve.hosting.embedder import Embedder, Scorer, positions_of

CASES = json.loads((Path(__file__).parent / "families.json").read_text())
SMALL = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 16, "max_position_embeddings": 24}


@pytest.mark.parametrize("family", ENCODERS)
def test_saved_under_the_published_names(family: str, tmp_path: Path) -> None:
    name = f"{family}: masked"
    case = CASES[name]
    write_folder(tmp_path, case["files"], case["shapes"])
    model, given = mo.models.load(tmp_path), inputs(name, "masked", config_of(case["files"]))
    mo.models.save(tmp_path / "again", model)
    assert {*mo.weights.load(tmp_path / "again")} <= {*case["shapes"]}
    ids, mask = mo.asarray(given["ids"]), given["mask"]
    with mo.settings(device="reference"):
        one, two = (each.logits(each(ids, mask)).numpy() for each in (model, mo.models.load(tmp_path / "again")))
    assert (one == two).all()


@pytest.mark.parametrize("family, odd", [
    ("deberta-v2", {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 6,
                    "conv_kernel_size": 3}), ("modernbert", {"local_attention": 6})])
def test_a_server_reads_each_text_as_it_is_alone(family: str, odd: dict[str, object]) -> None:
    mo.nn.seed(3)
    model = mo.models.create(family, **SMALL, **odd, head="sequence", labels=1).eval()
    rows = [np.random.default_rng(length).integers(1, 50, length).tolist() for length in (3, 11, 7)]
    embed, score = Embedder(model, positions_of(model)), Scorer(model, positions_of(model))
    assert (embed(rows) == np.concatenate([embed([row]) for row in rows])).all()
    pairs = [(row, [0] * len(row)) for row in rows]
    assert (score(pairs) == np.concatenate([score([pair]) for pair in pairs])).all()


def test_an_encoder_learns() -> None:
    mo.nn.seed(2)
    model = mo.models.create("albert", **{**SMALL, "embedding_size": 8}, head="token", labels=3)
    optimiser = mo.optim.AdamW(model.parameters(), lr=1e-2)
    ids, losses = mo.arange(18).reshape((2, 9)), []
    with mo.settings(device="reference"):
        for _ in range(3):
            loss = mo.cross_entropy(mo.reshape(model.token_logits(model(ids)), (-1, 3)), mo.reshape(ids % 3, (-1,)))
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
            losses.append(loss.item())
    assert losses[2] < losses[0]


@pytest.mark.parametrize("family, setting, says", [
    ("deberta-v2", {"pos_att_type": ["p2p"]}, "pos_att_type names 'p2p'"),
    ("deberta-v2", {"conv_kernel_size": 4}, "conv_kernel_size is 4"), ("deberta-v2", {"z_steps": 2}, "z_steps is 2"),
    ("mpnet", {"relative_attention_num_buckets": 8}, "at least 32"),
    ("modernbert", {"classifier_pooling": "max"}, "classifier_pooling is 'max'"),
    ("nomic_bert", {"rotary_emb_fraction": 0.5}, "rotary_emb_fraction is 0.5")])
def test_what_is_not_computed_is_refused(family: str, setting: dict[str, object], says: str) -> None:
    with pytest.raises(mo.errors.ArgumentError, match=says):
        families()[family].model.checked_config({"model_type": family, **setting})


def test_more_tokens_than_positions() -> None:
    model = mo.models.create("mpnet", **SMALL)
    with pytest.raises(mo.errors.ShapeError, match="23 tokens are more than the 22 positions"):
        model(mo.zeros((1, 23), dtype=mo.int64))
    with pytest.raises(mo.errors.ArgumentError, match="has no segments"):
        model(mo.zeros((1, 3), dtype=mo.int64), types=mo.zeros((1, 3), dtype=mo.int64))
