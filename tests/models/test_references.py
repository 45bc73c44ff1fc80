"""Folders as the transformers library writes them give its numbers: see make_references.py, which wrote them down."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from tests.models.make_references import drawn

CASES = json.loads((Path(__file__).parent / "references.json").read_text())


def _folder(place: Path, case: dict[str, Any]) -> Path:
    mo.weights.save(place, {name: drawn(name, shape) for name, shape in case["shapes"].items()})
    for name, text in case["files"].items():
        (place / name).write_text(text)
    return place


def _near(found: Any, wanted: Any, where: Any = ...) -> None:
    found, wanted = found.numpy()[where], np.array(wanted)[where]
    assert np.abs(found - wanted).max() < 2e-5 * max(1.0, np.abs(wanted).max())


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_librarys_numbers(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    case = CASES[name]
    with caplog.at_level(logging.WARNING, "morpho"):
        model = mo.models.load(_folder(tmp_path, case))
    another = "another head" in name or name == "t5 untied"
    assert ("the file's own head is kept" in caplog.text) == another and len(caplog.records) == another
    ids = mo.asarray(case["ids"])
    if "states" in case:
        seen = np.array(case["mask"]) == 1  # what padding gives is nobody's business
        found = model(ids, attention_mask=case["mask"], position_ids=case["positions"], output_hidden_states=True)
        assert len(found.hidden_states) == len(case["states"]) == 3
        for ours, theirs in zip(found.hidden_states, case["states"], strict=True):
            _near(ours, theirs, seen)
        _near(found.logits, case["logits"], seen)
    elif name.startswith("bert"):
        _near(model.logits(model(ids, case["mask"])), case["logits"], np.array(case["mask"]) == 1)
    elif name.startswith("t5"):
        _near(model(ids, mo.asarray(case["start"])), case["logits"])
    else:
        _near(model(ids), case["logits"])


@pytest.mark.parametrize("name", [name for name in sorted(CASES) if "prompts" in CASES[name]])
def test_the_librarys_texts(name: str, tmp_path: Path) -> None:
    """A batch of prompts of other lengths gives the tokens of the library's padded batch, and those of each alone."""
    case = CASES[name]
    model = mo.models.load(_folder(tmp_path, case))
    ends = model.eos_token_id if isinstance(model.eos_token_id, list) else [model.eos_token_id]
    assert not name.endswith("text") or ends == [0, 9, 17]
    wanted = []
    for row in case["tokens"]:  # theirs go on to the end token, then with padding
        end = next((place for place, token in enumerate(row) if token in ends), len(row))
        wanted.append(row[:end])
    found = [*mo.models.generate(model, case["prompts"], max_new_tokens=8)]
    assert found == wanted
    assert found == [[*mo.models.generate(model, prompt, max_new_tokens=8)] for prompt in case["prompts"]]
