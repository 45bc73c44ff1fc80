"""Every family in odd configurations gives the numbers of the transformers library, which
`python -m benchmarks.models.parity --store` wrote down: the same folders, weights drawn by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from benchmarks.models.parity import ours
from benchmarks.models.parity.__main__ import picks
from benchmarks.models.parity.inputs import config_of, inputs, write_folder

CASES = json.loads((Path(__file__).parent / "families.json").read_text())
FIRST = {}  # one case of each family always runs, the others in a draw
for _name in CASES:
    FIRST.setdefault((_name.split(":")[0], CASES[_name]["kind"]), _name)


def _folder(place: Path, name: str) -> dict[str, np.ndarray]:
    case = CASES[name]
    write_folder(place, case["files"], case["shapes"])
    return inputs(name, case["kind"], config_of(case["files"]))


def _check(name: str, place: Path) -> None:
    found = ours.computed(place, CASES[name]["kind"], _folder(place, name))
    for result, wanted in CASES[name]["results"].items():
        flat = found[result].reshape(-1)
        if result == "tokens":
            assert flat.tolist() == wanted
        else:
            few = flat[picks(flat.size)]
            assert np.abs(few - wanted).max() < 2e-5 * max(1.0, np.abs(wanted).max())


@pytest.mark.parametrize("name", sorted(FIRST.values()))
def test_the_librarys_numbers(name: str, tmp_path: Path) -> None:
    _check(name, tmp_path)


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted({*CASES} - {*FIRST.values()}))
def test_the_librarys_numbers_in_other_configurations(name: str, tmp_path: Path) -> None:
    _check(name, tmp_path)


@pytest.mark.parametrize("name", ["gemma2: caps", "mixtral: two of five", "phi3: longrope, long"])
def test_a_cache_gives_the_whole_texts_bits(name: str, tmp_path: Path) -> None:
    """Windows, capped scores, experts, angles that change with the length."""
    given = _folder(tmp_path, name)
    assert ours.cached_error(tmp_path, given) == 0


@pytest.mark.parametrize("name", ["gpt_neox: half turns", "mixtral: two of five", "clip: plain", "bart: plain"])
def test_saved_and_loaded_again(name: str, tmp_path: Path) -> None:
    """The names in the file are the published ones, and the numbers the same."""
    given = _folder(tmp_path, name)
    mo.models.save(tmp_path / "again", mo.models.load(tmp_path))
    assert {*mo.weights.load(tmp_path / "again")} <= {*CASES[name]["shapes"], "final_logits_bias"}
    one, two = (ours.computed(place, CASES[name]["kind"], given) for place in (tmp_path, tmp_path / "again"))
    assert all((one[key] == two[key]).all() for key in one)
