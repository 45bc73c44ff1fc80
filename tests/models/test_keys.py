"""Every key of config.json and generation_config.json, changed in every way: the result changes, or the key is declared
irrelevant, or an error names it and its file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, MorphoError
from morpho.models.config import COMMON, Config
from morpho.models.files.loading import _generation
from morpho.models.registry import families, family
from morpho.models.text.generation_keys import GENERATION, Defaults
from tests.models.make_references import drawn
from tests.models.test_references import CASES

WRONG: list[Any] = ["x", 1.5, -1, True, [1], ["a"], [12, 20], {"a": 1}, "", [], {}, 10 ** 30]
TRAINING = {"initializer_range", "dropout", "hidden_dropout_prob", "embd_pdrop", "resid_pdrop", "dropout_rate"}
OTHER = {"hidden_act": "relu", "activation_function": "gelu", "feed_forward_proj": "gelu", "activation": "geglu",
         "normalization": "layernorm", "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
         "rope_scaling": {"type": "linear", "factor": 2.0}, "scale_decoder_outputs": False,
         "id2label": {"0": "a"}, "num_key_value_heads": 3, "model_type": "gpt2", "eos_token_id": [3, 4],
         "relative_attention_max_distance": 20, "attention_scale": 1.0, "sliding_window": 2}
IDS = np.array([[3, 1, 4, 1, 5, 9]])
NAMES = {"gpt2": "gpt2 text", "llama": "llama tied, another head", "bert": "bert untied", "t5": "t5 tied"}
OWN = {
    "prenorm": {"vocab_size": 31, "max_seq_len": 16, "width": 8, "layers": 1, "heads": 2, "kv_heads": 1, "hidden": 12,
                "rope_theta": 100.0, "tie_embeddings": False},
    "vit": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "image_size": 8,
            "patch_size": 4, "num_labels": 3},
}


def _base(kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A configuration and weights that fit it."""
    if kind in OWN:
        model = mo.models.from_config({"model_type": kind, **OWN[kind]})
        return model.config, {name: drawn(name, list(value.shape)) for name, value in model.state_dict().items()}
    case = CASES[NAMES[kind]]
    config = json.loads(case["files"]["config.json"])
    weights = {name: drawn(name, shape) for name, shape in case["shapes"].items()}
    if kind == "llama":
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    return config, weights


class Seen:
    """What can be seen of a model: numbers, and facts about it."""

    def __init__(self, numbers: np.ndarray, facts: list[Any]) -> None:
        self.numbers, self.facts = numbers, facts

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Seen)
        return self.facts == other.facts and self.numbers.shape == other.numbers.shape and bool(
            np.allclose(self.numbers, other.numbers, rtol=1e-5, atol=1e-5))


class Folder:
    """A folder whose files are written again for each change."""

    def __init__(self, place: Path, kind: str) -> None:
        self.place, self.kind = place, kind
        self.config, weights = _base(kind)
        mo.weights.save(place, weights)
        self.observed, self.settings = self.observe(self.config)
        self.given = family(self.config).model.checked_config(self.config).to_dict()

    def observe(self, config: dict[str, Any], said: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """What a model of this configuration does, and the configuration it has in the end."""
        (self.place / "config.json").write_text(json.dumps(config))
        if said is not None:
            (self.place / "generation_config.json").write_text(json.dumps(said))
        model = mo.models.load(self.place)
        with mo.settings(device="reference"):
            if self.kind == "vit":
                found = model(mo.asarray(np.linspace(-1, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8)))
            elif self.kind == "t5":
                long = mo.asarray(np.arange(40)[None] % 31)
                found = model(long, long)
            else:
                found = model(mo.asarray(IDS))
            found = model.logits(found) if self.kind == "bert" else found
        about = [getattr(model, name, None) for name in ("context", "usual_length", "eos_token_id", "defaults")]
        start = model.config.get("decoder_start_token_id")
        return Seen(found.numpy(), [*map(repr, about), start, type(model).__name__]), model.config


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Folder]:
    with mo.settings(device="reference"):
        return {kind: Folder(tmp_path_factory.mktemp(kind), kind) for kind in (*NAMES, *OWN)}


def _changed(key: str, value: Any) -> Any:
    """Another value of the same kind."""
    if key in OTHER:
        return OTHER[key]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 2 + 0.25
    return {"0": "a", "1": "b"} if isinstance(value, dict) else "another"


def _check(folder: Folder, key: str, config: dict[str, Any], what: str) -> None:
    """The rule, for one changed key."""
    models = family(folder.config).model
    known, ours = models.config_class.table().find(key), models.config_class.renamed.get(key, key)
    try:
        settings = models.checked_config(config, file="config.json").to_dict()
    except ArgumentError as error:
        assert str(error).startswith("[models.load] config.json: ") and key in str(error), f"{what}: {error}"
        assert known is None or known.role != "irrelevant", what
        return
    assert known is not None, what
    if known.role != "used" or ours not in settings:  # what is accepted is declared to change nothing
        assert settings == folder.given, what
    elif settings == folder.given:  # it says what was said, or leaves it to a default that is the same
        assert config.get(key) in (None, folder.config.get(key), settings[ours]), f"{what} is not looked at"
    else:
        _check_result(folder, key, config, what)


def _check_result(folder: Folder, key: str, config: dict[str, Any], what: str) -> None:
    try:
        observed, _ = folder.observe(config)
    except MorphoError as error:
        assert "config.json" in str(error) and key in str(error), f"{what}: {error}"
        assert len(str(error)) < 2000 and "\n" not in str(error)
        return
    # A default may be what was said; a head that is not the embedding stays, and one that is may be tied or not.
    may_be_same = config.get(key) is None or key in TRAINING or (
        folder.kind in ("bert", "llama") and key == "tie_word_embeddings")
    assert observed != folder.observed or may_be_same, f"{what} changes nothing"


@pytest.mark.parametrize("kind", [*NAMES, *OWN])
def test_every_key_changed(kind: str, folders: dict[str, Folder]) -> None:
    folder = folders[kind]
    kinds = family(folder.config).model.config_class
    for key in dict.fromkeys([*folder.config, *kinds.table()]):
        if key.endswith("*") or key == "model_type":
            continue
        without = {name: value for name, value in folder.config.items() if name != key}
        _check(folder, key, without, f"{kind} without {key}")
        resolved = folder.settings.get(kinds.renamed.get(key, key), folder.config.get(key))
        _check(folder, key, {**without, key: _changed(key, resolved)}, f"{kind} with another {key}")
        _check(folder, key, {**without, key: None}, f"{kind} with no {key}")


@pytest.mark.parametrize("kind", [*NAMES, *OWN])
def test_every_key_of_another_kind(kind: str, folders: dict[str, Folder], sample: Callable[..., Any]) -> None:
    """What the table lets through must do something; most is an error before the weights are looked at."""
    folder = folders[kind]
    models = family(folder.config).model
    for key, known in models.config_class.table().items():
        if key.endswith("*") or key == "model_type" or known.role == "irrelevant":
            continue
        for value in sample(WRONG):
            if value != folder.config.get(key) and not (value == {} and key.startswith("rope")):
                config = {**{name: held for name, held in folder.config.items() if name != key}, key: value}
                _check(folder, key, config, f"{kind} with {key}={value!r}")


@pytest.mark.parametrize("kind", [*NAMES, *OWN])
def test_keys_that_nobody_knows(kind: str, folders: dict[str, Folder]) -> None:
    folder = folders[kind]
    with pytest.raises(ArgumentError, match=r"config\.json: logit_bias is 3, which Morpho does not know.*ignore"):
        folder.observe({**folder.config, "logit_bias": 3})
    (folder.place / "config.json").write_text(json.dumps({**folder.config, "logit_bias": 3, "colour": None}))
    assert mo.models.load(folder.place, ignore=["logit_bias"]).config == folder.settings
    (folder.place / "config.json").write_text('{"model_type": "gpt2", "model_type": "llama"}')
    with pytest.raises(mo.weights.FileFault, match="the key 'model_type' stands there twice"):
        mo.models.load(folder.place)
    with pytest.raises(ArgumentError, match="is not a list of names"):
        mo.models.load(folder.place, ignore="colour")


@pytest.mark.parametrize(("kind", "key", "value", "words"), [
    ("llama", "rope_scaling", 1, "rope_scaling is 1.*an object"),
    ("llama", "rope_scaling", ["a"], "rope_scaling is .*an object"),
    ("llama", "rope_scaling", {"rope_type": "linear"}, "'linear' has no factor.*a number"),
    ("llama", "rope_scaling", {"rope_type": "linear", "factor": "2"}, "rope_scaling.factor is '2'"),
    ("llama", "rope_scaling", {"rope_type": "linear", "factor": 2.0, "beta": 1}, "rope_scaling.beta is 1"),
    ("llama", "rope_scaling", {"rope_type": "su", "factor": 2.0}, "rope_type is 'su'.*one of default, linear"),
    ("llama", "rope_scaling", {"rope_type": ["linear"]}, "rope_scaling.rope_type is"),
    ("llama", "rope_scaling", {"rope_type": "linear", "type": "default", "factor": 2.0}, "type is 'default', and rope"),
    ("llama", "rope_scaling", {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0,
                               "original_max_position_embeddings": 16}, "high_freq_factor is 4.0, not above"),
    ("llama", "rope_scaling", {"rope_type": "factors", "factors": [1.0]}, "factors has 1 numbers, not 4"),
    ("llama", "hidden_size", [8], r"hidden_size is \[8\].*a positive whole number"),
    ("llama", "quantization_config", {"bits": 4}, "quantization_config.quant_method is None, and only fp8"),
    ("llama", "eos_token_id", "x", "eos_token_id is 'x'.*the number of a token, or a list"),
    ("gpt2", "eos_token_id", [1, "x"], "eos_token_id is .*the number of a token, or a list"),
    ("gpt2", "hidden_size", 13, "n_embd is 12, and n_embd is also|hidden_size is 13, and n_embd is also given"),
    ("vit", "image_size", [12, 20], r"image_size is \[12, 20\].*a positive whole number"),
    ("t5", "dense_act_fn", "silu", "dense_act_fn is 'silu', and feed_forward_proj makes it 'relu'"),
    ("t5", "relative_attention_max_distance", 9, "max_distance is 9, not more than half of"),
    ("gpt2", "num_beams", 4, "num_beams is 4, and only 1 or null is computed"),
    ("bert", "auto_map", {"AutoModel": "x.Y"}, "auto_map is"),
])
def test_structures_that_make_no_sense(kind: str, key: str, value: Any, words: str, folders: dict[str, Folder]) -> None:
    folder = folders[kind]
    config = {name: held for name, held in folder.config.items() if name != "rope_parameters" or key != "rope_scaling"}
    config |= {"head_dim": 8} if kind == "llama" else {}
    with pytest.raises(ArgumentError, match=rf"config\.json: .*({words})"):
        folder.observe({**config, key: value})


# -- generation_config.json --------------------------------------------------------------------------------------------
def test_every_key_of_generation(tmp_path: Path) -> None:
    base = {"do_sample": True, "temperature": 0.5, "top_k": 5, "top_p": 0.9, "repetition_penalty": 1.1, "max_length": 9,
            "max_new_tokens": 4, "eos_token_id": [0, 9], "decoder_start_token_id": 1}
    file = tmp_path / "generation_config.json"

    def said(settings: dict[str, Any]) -> list[Any]:
        file.write_text(json.dumps(settings))
        found = _generation(tmp_path, {"top_k": 3}, ())
        return [Defaults.of(found), found.get("eos_token_id"), found.get("decoder_start_token_id")]

    before = said(base)
    for key, known in GENERATION.items():
        for value in [*WRONG, _changed(key, base.get(key, 1))]:
            if value == base.get(key):
                continue
            try:
                after = said({**base, key: value})
            except ArgumentError as error:
                assert f"{file}: {key} is" in str(error) and known.role != "irrelevant", (key, value)
            else:
                assert (after != before) == (known.role == "used"), (key, value)
    with pytest.raises(ArgumentError, match=r"generation_config\.json: mood is 'glad', which Morpho does not know"):
        said({**base, "mood": "glad"})


def test_defaults_are_used_and_saved(folders: dict[str, Folder], tmp_path: Path) -> None:
    folder = folders["gpt2"]
    (folder.place / "config.json").write_text(json.dumps({**folder.config, "eos_token_id": None}))
    said = folder.place / "generation_config.json"
    try:
        said.write_text(json.dumps({"max_new_tokens": 3}))
        model = mo.models.load(folder.place)
        greedy = [*mo.models.generate(model, [5, 6])]
        assert len(greedy) == 3 and [*mo.models.generate(model, [5, 6], max_new_tokens=5)][:3] == greedy
        said.write_text(json.dumps({"max_length": 6, "eos_token_id": [30, greedy[2]]}))
        assert [*mo.models.generate(mo.models.load(folder.place), [5, 6])] == greedy[:greedy.index(greedy[2])]
        said.write_text(json.dumps({"do_sample": True, "temperature": 2.0, "top_p": 0.9, "max_length": 12}))
        model = mo.models.load(folder.place)
        assert model.defaults == Defaults(temperature=2.0, top_k=50, top_p=0.9, max_length=12)
        drawn = [*mo.models.generate(model, [5, 6], seed=1)]
        assert len(drawn) == 10 and drawn == [*mo.models.generate(
            model, [5, 6], seed=1, temperature=2.0, top_k=50, top_p=0.9, max_new_tokens=10)]
        assert [*mo.models.generate(model, [5, 6], temperature=0, max_new_tokens=3)] == greedy
        mo.models.save(tmp_path, model)
        assert mo.models.load(tmp_path).defaults == model.defaults
    finally:
        said.unlink()


def test_the_tables_are_whole() -> None:
    """Each field of each family is in its table as used, and no table says one thing twice."""
    for name in families():
        kind: type[Config] = families()[name].model.config_class
        table = kind.table()
        assert all(table[field].role == "used" for field in kind.names())
    assert all(key.why for table in (COMMON, GENERATION) for key in table.values() if key.role == "irrelevant")
