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
from benchmarks.models.parity.decoders import decoders
from benchmarks.models.parity.inputs import config_of, inputs, write_folder

CASES = json.loads((Path(__file__).parent / "families.json").read_text())
FIRST: dict[str, str] = {}  # one case of each family always runs, and a few of the others, drawn
TABLED = {case.family for case in decoders()}  # test_every_decoder.py
for _name in CASES:
    if _name.split(":")[0] not in TABLED:
        FIRST.setdefault(_name.split(":")[0], _name)
ALWAYS = [*FIRST.values(), "llama: dynamic", "distilbert: classify", "roberta: tokens", "bert: spans"]  # and each head
OTHERS = sorted({name for name in CASES if name.split(":")[0] not in TABLED} - {*ALWAYS})
DRAWN = 2
TEXTS = ("mistral", "gemma2", "bart", "whisper")  # families whose texts are compared here too; the command compares all


def _folder(place: Path, name: str) -> dict[str, np.ndarray]:
    case = CASES[name]
    write_folder(place, case["files"], case["shapes"])
    return inputs(name, case["kind"], config_of(case["files"]))


def _check(name: str, place: Path) -> None:
    texts = name.startswith(TEXTS)
    found = ours.computed(place, CASES[name]["kind"], _folder(place, name), texts)
    for result, wanted in CASES[name]["results"].items():
        if result == "tokens" and not texts:
            continue
        flat = found[result].reshape(-1)
        if result == "tokens":
            assert flat.tolist() == wanted
        else:
            few = flat[picks(flat.size)]
            assert np.abs(few - wanted).max() < 2e-5 * max(1.0, np.abs(wanted).max())


@pytest.mark.parametrize("name", sorted(ALWAYS))
def test_the_librarys_numbers(name: str, tmp_path: Path) -> None:
    _check(name, tmp_path)


def test_the_librarys_numbers_in_other_configurations(tmp_path: Path, request: pytest.FixtureRequest,
                                                      rng: np.random.Generator) -> None:
    """A few of the other cases, all with --exhaustive; the command compares all."""
    some = OTHERS if request.config.getoption("--exhaustive") else rng.choice(OTHERS, DRAWN, replace=False).tolist()
    for number, name in enumerate(some):
        _check(name, tmp_path / str(number))


@pytest.mark.parametrize("name", ["mixtral: two of five", "phi3: longrope, long"])
def test_a_cache_gives_the_whole_texts_bits(name: str, tmp_path: Path) -> None:
    """Windows, capped scores, experts, angles that change with the length."""
    given = _folder(tmp_path, name)
    assert ours.cached_error(tmp_path, given) == 0


@pytest.mark.parametrize("name", ["mixtral: two of five", "clip: plain"])
def test_saved_and_loaded_again(name: str, tmp_path: Path) -> None:
    """The names in the file are the published ones, and the numbers the same."""
    given = _folder(tmp_path, name)
    mo.models.save(tmp_path / "again", mo.models.load(tmp_path))
    assert {*mo.weights.load(tmp_path / "again")} <= {*CASES[name]["shapes"], "final_logits_bias"}
    one, two = (ours.computed(place, CASES[name]["kind"], given, texts=False)
                for place in (tmp_path, tmp_path / "again"))
    assert all((one[key] == two[key]).all() for key in one)


@pytest.mark.parametrize("name", ["qwen3: layer types", "bart: plain"])
def test_the_library_itself(name: str) -> None:
    """As the command does it, where the library is installed."""
    pytest.importorskip("transformers", reason="the transformers library is the reference here")
    pytest.importorskip("torch", reason="the transformers library computes with it")
    from benchmarks.models.parity.__main__ import _compared
    from benchmarks.models.parity.cases import CASES as ALL

    found, _ = _compared(ALL[name])
    assert found["passed"], found


@pytest.mark.parametrize("change, says", [
    ({"attn_logit_softcapping": 1.5}, "attn_logit_softcapping is 1.5"),
    ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "neither sliding_attention nor full_attention")])
def test_what_gemma_3_has_not_is_refused(change: dict[str, object], says: str, tmp_path: Path) -> None:
    """The library has the first key and does not use it, and takes the second for a form it is not."""
    _folder(tmp_path, FIRST["gemma3_text"])
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(mo.errors.ArgumentError, match=says):
        mo.models.load(tmp_path)


def test_two_original_lengths_of_phi_3_are_refused(tmp_path: Path) -> None:
    _folder(tmp_path, "phi3: longrope, long")
    config = json.loads((tmp_path / "config.json").read_text())
    config["rope_parameters"]["original_max_position_embeddings"] = 10
    (tmp_path / "config.json").write_text(json.dumps(config | {"original_max_position_embeddings": 20}))
    with pytest.raises(mo.errors.ArgumentError, match=r"embeddings is 20, and rope_parameters\."):
        mo.models.load(tmp_path)
