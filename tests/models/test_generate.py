"""Generation: the same logits as the whole model, no recompilation, and the ways to choose a token."""

from __future__ import annotations

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, MorphoError
from morpho.models.text.sampling import Sampling, probabilities
from morpho.models.text.stop_strings import StopStrings

IDS = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46]


def _model(kind: str, **others: object) -> mo.models.LanguageModel:
    mo.nn.seed(11)
    if kind == "gpt2":
        return mo.models.create("gpt2", **{"vocab_size": 97, "n_embd": 16, "n_layer": 2, "n_head": 2,  # type: ignore
                                           "n_positions": 48, **others})
    return mo.models.create("prenorm-small", **{"vocab_size": 97, "width": 24, "layers": 2, "heads": 3,  # type: ignore
                                                "kv_heads": 1, "hidden": 40, "max_seq_len": 48, **others})


@pytest.fixture(scope="module", params=["gpt2", "prenorm"])
def model(request: pytest.FixtureRequest) -> mo.models.LanguageModel:
    found = _model(request.param)
    for parameter in found.parameters():  # larger than at first, so that tokens differ in their logits
        parameter.assign(parameter + 0.3 * mo.asarray(np.random.default_rng(2).standard_normal(parameter.shape)
                                                      .astype(np.float32)))
    return found


def test_pieces_and_steps_equal_the_whole(model: mo.models.LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, for prompts of every length in pieces, with two compilations in all."""
    monkeypatch.setattr("morpho.models.text.generators.CHUNK", 4)
    whole = model(mo.asarray([IDS])).numpy()[0]
    generator = mo.models.Generator(model)
    for length in (1, 2, 5, 9):
        generator.ids = []
        assert (generator.start(IDS[:length]) == whole[length - 1]).all()
        for position in range(length, len(IDS)):
            assert (generator.step(IDS[position]) == whole[position]).all()
    assert generator.compilations == 2 and generator.prefill.stats["recompiles"] == 0
    assert generator.decode.stats["recompiles"] == 0 and generator.decode.fallbacks == 0


def test_the_prompt_before_is_not_computed_again(model: mo.models.LanguageModel) -> None:
    generator = mo.models.Generator(model)
    generator.start(IDS)
    calls = generator.prefill.calls
    assert (generator.start([*IDS[:6], 7]) == model(mo.asarray([[*IDS[:6], 7]])).numpy()[0, -1]).all()
    assert generator.prefill.calls == calls + 1 and generator.ids == [*IDS[:6], 7]


def test_greedy_is_the_likeliest_token_of_the_whole_model(model: mo.models.LanguageModel) -> None:
    made = [*mo.models.generate(model, IDS, max_new_tokens=8)]
    whole = model(mo.asarray([IDS + made])).numpy()[0]
    assert made == [int(i) for i in whole[len(IDS) - 1:-1].argmax(axis=-1)]


def test_one_seed_one_text(model: mo.models.LanguageModel) -> None:
    def text(seed: int) -> list[int]:
        return [*mo.models.generate(model, IDS, max_new_tokens=12, temperature=1.5, top_k=50, top_p=0.95, seed=seed)]

    assert text(1) == text(1) and len({tuple(text(seed)) for seed in range(4)}) > 1
    for seed in (-1, 0.5, "a"):
        with pytest.raises(ArgumentError, match=r"^\[generate\] seed=.* is not a whole number of at least 0"):
            text(seed)  # type: ignore[arg-type]


def test_two_streams_at_once_do_not_mix(model: mo.models.LanguageModel) -> None:
    alone = [[*mo.models.generate(model, ids, max_new_tokens=6)] for ids in (IDS, IDS[::-1])]
    both = zip(*[mo.models.generate(model, ids, max_new_tokens=6) for ids in (IDS, IDS[::-1])], strict=True)
    assert [[*part] for part in zip(*both, strict=True)] == alone


def test_changed_weights_are_seen_without_compiling(model: mo.models.LanguageModel) -> None:
    before = [*mo.models.generate(model, IDS, max_new_tokens=6)]
    compiled = [kept.compilations for kept in model._generators.free]  # type: ignore[attr-defined]
    held = {name: value.numpy(copy=True) for name, value in model.state_dict().items()}
    for parameter in model.parameters():
        parameter.assign(-parameter)
    try:
        made = [*mo.models.generate(model, IDS, max_new_tokens=6)]
        assert made == [int(model(mo.asarray([IDS + made[:i]])).numpy()[0, -1].argmax()) for i in range(6)]
        assert [kept.compilations for kept in model._generators.free] == compiled  # type: ignore[attr-defined]
    finally:
        model.load_state_dict(held)
    assert [*mo.models.generate(model, IDS, max_new_tokens=6)] == before


def test_stops() -> None:
    model = _model("gpt2")
    made = [*mo.models.generate(model, IDS, max_new_tokens=10, temperature=2.0, seed=3)]

    def again(**others: object) -> list[int]:
        return [*mo.models.generate(model, IDS, max_new_tokens=10, temperature=2.0, seed=3, **others)]  # type: ignore

    assert len(set(made)) > 4
    first = made.index(made[4])
    assert again(stop=made[4]) == made[:first]

    class Speller:
        def decode(self, ids: list[int]) -> str:
            return "".join(f"<{i}>" for i in ids)

    assert again(stop=f"{made[2]}><{made[3]}", tokenizer=Speller()) == made[:4]
    model.eos_token_id = [96, made[4]]
    assert again() == made[:first]
    with pytest.raises(ArgumentError, match="needs text"):
        again(stop="x")


class Counting:
    """A tokenizer with `decode` alone, whose words have a space between them, and what it was asked for."""

    def __init__(self) -> None:
        self.decoded = 0

    def decode(self, ids: list[int]) -> str:
        self.decoded += len(ids)
        return " ".join(f"w{i}" for i in ids)


def test_stop_strings_are_those_of_the_whole_text(rng: np.random.Generator) -> None:
    bytes_ = mo.weights.train_bpe("déjà vu, all over again: déjà vu", vocab_size=280)
    for _ in range(200):
        tokenizer = Counting() if rng.integers(2) else bytes_
        ids = rng.integers(1, bytes_.vocab_size if tokenizer is bytes_ else 12, 30).tolist()
        text = tokenizer.decode(ids)
        at, length = int(rng.integers(len(text))), int(rng.integers(1, 7))
        if "\N{REPLACEMENT CHARACTER}" in text[at:at + length]:
            continue
        stop = StopStrings([text[at:at + length], "never there"], tokenizer)
        found = [stop.push(token) for token in ids].index(True)
        wanted = next(n for n in range(1, 31) if text[at:at + length] in tokenizer.decode(ids[:n])) - 1
        assert found == wanted, (text, at, length)


def test_the_work_for_stop_strings_does_not_grow_with_the_text() -> None:
    tokenizer = Counting()
    stop = StopStrings(["w5 w7"], tokenizer)
    assert not any(stop.push(5) for _ in range(3000)) and stop.push(7) and tokenizer.decoded < 5 * 3000
    with pytest.raises(ArgumentError, match="an empty text cannot be stopped at"):
        mo.models.generate(_model("gpt2"), IDS, stop="", tokenizer=tokenizer)


def test_it_ends_when_the_context_is_full() -> None:
    model = _model("gpt2", n_positions=14)
    assert len([*mo.models.generate(model, IDS)]) == 3 == len([*mo.models.generate(model, IDS, max_new_tokens=50)])
    with pytest.raises(ArgumentError, match="15 tokens, more than the limit of 14"):
        mo.models.generate(model, [1] * 15)
    generator = mo.models.Generator(model)
    generator.start([1] * 14)
    with pytest.raises(ArgumentError, match="the cache is full"):
        generator.step(1)


def test_long_texts_move_to_longer_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tokens as from one cache that is long enough, and one pair of functions for each power of two."""
    model = _model("prenorm")
    wanted = [*mo.models.generate(model, IDS[:3], max_new_tokens=40, temperature=1.0, seed=1)]
    model._generators.free.clear()  # type: ignore[attr-defined]
    monkeypatch.setattr("morpho.models.text.generators.LEAST_LENGTH", 4)
    monkeypatch.setattr("morpho.models.text.generation.AHEAD", 2)
    for _ in range(2):
        assert [*mo.models.generate(model, IDS[:3], max_new_tokens=40, temperature=1.0, seed=1)] == wanted
    kept = model._generators.free  # type: ignore[attr-defined]
    assert sorted(each.length for each in kept) == [8, 16, 32, 48] and sum(each.compilations for each in kept) == 8


def test_dropout_is_off_and_the_mode_comes_back() -> None:
    model = _model("prenorm", dropout=0.5)
    assert [*mo.models.generate(model, IDS, max_new_tokens=3)] == [*mo.models.generate(model, IDS, max_new_tokens=3)]
    assert model._training and all(module._training for module in model.modules())


def test_later_tokens_and_other_rows_change_nothing(model: mo.models.LanguageModel) -> None:
    """Causality and independence of the rows of a batch, bit for bit."""
    ids = np.array([IDS, IDS[::-1]])
    both = model(mo.asarray(ids)).numpy()
    assert (both[0] == model(mo.asarray(ids[:1])).numpy()[0]).all()
    ids[0, 7:] = 1
    changed = model(mo.asarray(ids)).numpy()
    assert (changed[0, :7] == both[0, :7]).all() and (changed[0, 7:] != both[0, 7:]).any()
    assert (changed[1] == both[1]).all()


def test_configurations_are_plain_data() -> None:
    model = _model("prenorm")
    twin = mo.models.from_config(model.config)
    twin.load_state_dict(model.state_dict())
    ids = mo.asarray([IDS])
    assert twin.config == model.config and (twin(ids).numpy() == model(ids).numpy()).all()
    with pytest.raises(ArgumentError, match="no model_type"):
        mo.models.from_config({})
    with pytest.raises(ArgumentError, match="no family 'gpt9'"):
        mo.models.from_config({"model_type": "gpt9"})
    with pytest.raises(ArgumentError, match="unknown settings: colour"):
        mo.models.create("gpt2", colour=3)
    with pytest.raises(ArgumentError, match="there is no model 'gpt3'"):
        mo.models.create("gpt3")


# -- several prompts at once -------------------------------------------------------------------------------------------
def test_batches_have_the_tokens_of_each_alone(model: mo.models.LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of other lengths too, in pieces too, drawn too; two compilations for each number of rows."""
    prompts = [IDS[:3], IDS[:1], IDS, IDS[4:9], IDS[::-1]]
    monkeypatch.setattr("morpho.models.text.generators.CHUNK", 4)
    for how in ({}, {"temperature": 1.5, "top_k": 20, "seed": 5}):
        alone = [[*mo.models.generate(model, prompt, max_new_tokens=7, **how)] for prompt in prompts]  # type: ignore
        assert [*mo.models.generate(model, prompts, max_new_tokens=7, **how)] == alone  # type: ignore[arg-type]
    ends = alone[2][3]
    stopped = [[*mo.models.generate(model, prompt, max_new_tokens=7, stop=ends, **how)]  # type: ignore[arg-type]
               for prompt in prompts]
    assert [*mo.models.generate(model, prompts, max_new_tokens=7, stop=ends, **how)] == stopped != alone  # type: ignore
    kept = [each for each in model._generators.free if each.rows == 8]  # type: ignore[attr-defined]
    assert len(kept) == 1 and kept[0].compilations == 2
    ids, mask = np.zeros((5, 11), np.int64), np.zeros((5, 11), bool)
    for row, prompt in enumerate(prompts):
        ids[row, 11 - len(prompt):], mask[row, 11 - len(prompt):] = prompt, True
    assert [*mo.models.generate(model, ids, mask=mask, max_new_tokens=7, **how)] == alone  # type: ignore[arg-type]
    assert [*mo.models.generate(model, [prompts[0]], max_new_tokens=7, **how)] == alone[:1]  # type: ignore[arg-type]


def test_long_batches_move_to_longer_caches_and_end_with_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model("prenorm", max_seq_len=24)
    prompts = [IDS[:2], IDS]
    alone = [[*mo.models.generate(model, prompt)] for prompt in prompts]
    assert [len(each) for each in alone] == [22, 13]
    monkeypatch.setattr("morpho.models.text.generators.LEAST_LENGTH", 4)
    monkeypatch.setattr("morpho.models.text.generation.AHEAD", 2)
    monkeypatch.setattr("morpho.models.text.generation.MOST_ROWS", 2)
    assert [*mo.models.generate(model, [*prompts, IDS[:2]])] == [*alone, alone[0]]


@pytest.mark.parametrize(("ids", "others", "words"), [
    ([1.5, 2], {}, "whole numbers, not 1.5"), ([[1.0, 2.0]], {}, "whole numbers, not 1.0"),
    (np.array([1.0]), {}, "whole numbers, not"), ([True], {}, "whole numbers, not True"), ([-1], {}, "token -1 is not"),
    ([97], {}, "token 97 is not in a vocabulary of 97"), ([[1, 2], [97]], {}, "token 97"), ([], {}, "is empty"),
    ([[1], []], {}, "is empty"), ([[1], 2], {}, "mixes"), (3, {}, "not a list of token numbers"), ("ab", {}, "is text"),
    (["ab"], {}, "is text"), (np.zeros((1, 2, 3), int), {}, "neither one nor several"),
    ([1], {"max_new_tokens": 2.5}, "max_new_tokens=2.5 is not a whole number"),
    ([1], {"max_new_tokens": -1}, "max_new_tokens=-1"), ([1], {"max_new_tokens": "4"}, "max_new_tokens='4'"),
    ([1], {"max_new_tokens": True}, "max_new_tokens=True"), ([1], {"stop": [1.5]}, "neither a token number nor"),
    ([[1, 2], [3]], {"mask": [1, 0]}, "the mask is not"), ([[1, 2], [3]], {"mask": [[1, 0]]}, "the mask is not"),
])
def test_prompts_and_numbers_that_make_no_sense(ids: object, others: dict[str, object], words: str) -> None:
    with pytest.raises(ArgumentError, match=rf"^\[generate\] .*{words}"):
        mo.models.generate(_model("gpt2"), ids, **others)  # type: ignore[arg-type]


def test_t5_has_no_limit() -> None:
    """Prompts and answers longer than n_positions, which only says how much is made where nobody does."""
    mo.nn.seed(2)
    model = mo.models.create("t5-small", vocab_size=50, d_model=8, d_kv=4, d_ff=12, num_layers=1, num_heads=2,
                             n_positions=8, eos_token_id=None)
    prompt = [int(token) for token in np.random.default_rng(1).integers(0, 50, 40)]
    made = [*mo.models.generate(model, prompt, max_new_tokens=12)]
    whole = model(mo.asarray([prompt]), mo.asarray([[0, *made[:-1]]])).numpy()[0]
    assert made == [int(row.argmax()) for row in whole] and len(made) == 12
    assert [*mo.models.generate(model, prompt)] == made[:8]


# -- masks, positions, states ------------------------------------------------------------------------------------------
def test_masks_positions_and_states(model: mo.models.LanguageModel) -> None:
    """Padding is invisible on either side; the numbers of other libraries are in test_references.py."""
    ids, alone = mo.asarray([[7, 7, *IDS[:6]]]), model(mo.asarray([IDS[:6]])).numpy()[0]
    mask, places = [[0, 0, 1, 1, 1, 1, 1, 1]], [[0, 0, 0, 1, 2, 3, 4, 5]]
    padded = model(ids, attention_mask=mask, position_ids=mo.asarray(places)).numpy()[0, 2:]
    np.testing.assert_allclose(padded, alone, rtol=0, atol=1e-4 * np.abs(alone).max())
    after = model(mo.asarray([[*IDS[:6], 7, 7]]), np.array([[1] * 6 + [0] * 2])).numpy()[0, :6]
    assert (after == alone).all()
    found = model(ids, output_hidden_states=True)
    assert isinstance(found, mo.models.Output) and (found.logits.numpy() == model(ids).numpy()).all()
    assert len(found.hidden_states) == 3 and {each.shape[:2] for each in found.hidden_states} == {(1, 8)}
    assert (model.head(found.hidden_states[-1]).numpy() == found.logits.numpy()).all()


@pytest.mark.parametrize(("name", "value", "words"), [
    ("attention_mask", [1] * 8, r"a mask of shape \(8,\) is not of the ids' \(1, 8\).*x\[None\]"),
    ("attention_mask", [[1] * 7], r"a mask of shape \(1, 7\)"), ("attention_mask", [[[1] * 8]], "a mask of shape"),
    ("position_ids", [0] * 8, r"position_ids of shape \(8,\)"), ("position_ids", [[0.5] * 8], "are no positions"),
])
def test_masks_that_do_not_fit(name: str, value: object, words: str) -> None:
    with pytest.raises(MorphoError, match=words):
        _model("gpt2")(mo.asarray([[1] * 8]), **{name: value})
    if name == "attention_mask":
        bert = mo.models.create("bert-base", vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1,
                                intermediate_size=4, max_position_embeddings=8)
        with pytest.raises(MorphoError, match=words):
            bert(mo.asarray([[1] * 8]), value)


# -- choosing ----------------------------------------------------------------------------------------------------------
LOGITS = np.array([1.0, 3.0, 2.0, -1.0, 2.5])


def test_cuts() -> None:
    def kept(**how: float) -> list[int]:
        return [int(i) for i in np.flatnonzero(np.isfinite(Sampling(temperature=1.0, **how).scores(LOGITS)))]  # type: ignore

    assert kept() == [0, 1, 2, 3, 4] and kept(top_k=2) == [1, 4] and kept(top_k=99) == [0, 1, 2, 3, 4]
    likely = np.sort(probabilities(LOGITS))[::-1].cumsum()
    assert kept(top_p=likely[0] - 1e-9) == [1] and kept(top_p=likely[0] + 1e-9) == [1, 4]
    assert kept(top_p=1e-12) == [1] and kept(top_p=1.0) == [0, 1, 2, 3, 4] and kept(top_k=3, top_p=0.99) == [1, 2, 4]


def test_penalty_and_temperature() -> None:
    found = Sampling(temperature=2.0, repetition_penalty=2.0).scores(LOGITS, [1, 3, 3])
    assert found.tolist() == [0.5, 0.75, 1.0, -1.0, 1.25]
    assert Sampling(repetition_penalty=3.0).choose(LOGITS, [1], np.random.default_rng(0)) == 4


def test_draws_follow_the_probabilities() -> None:
    rng = np.random.default_rng(4)
    counts = np.bincount([Sampling(temperature=1.0).choose(LOGITS, [], rng) for _ in range(4000)], minlength=5)
    assert np.abs(counts / 4000 - probabilities(LOGITS)).max() < 0.03


@pytest.mark.parametrize("how", [{"temperature": -1.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5},
                                 {"repetition_penalty": 0.0}, {"temperature": float("nan")}])
def test_senseless_settings_are_errors(how: dict[str, float]) -> None:
    with pytest.raises(ArgumentError):
        Sampling(**how)  # type: ignore[arg-type]


def test_logits_that_are_not_numbers_are_an_error() -> None:
    with pytest.raises(ArgumentError, match="not finite"):
        Sampling().choose(np.array([1.0, np.nan]), [], np.random.default_rng(0))


def test_a_frozen_part_stays_in_evaluation_mode() -> None:
    model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=2, n_head=2, n_positions=32)
    frozen = list(model.modules())[-1].eval()
    list(mo.models.generate(model, [1, 2, 3], max_new_tokens=2))
    assert model.training and not frozen.training
    assert sum(not module.training for module in model.modules()) == 1


def test_a_text_that_grows_over_the_length_where_angles_change() -> None:
    """Every token is the likeliest after the whole text so far, on both sides of the original length."""
    scaling = {"rope_type": "longrope", "short_factor": [1.6, 1.8], "long_factor": [7.1, 3.8]}
    mo.nn.seed(3)
    model = mo.models.create("phi3", vocab_size=61, hidden_size=8, intermediate_size=20, num_hidden_layers=1,
                             num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=48,
                             original_max_position_embeddings=12, rope_scaling=scaling).eval()
    rng = np.random.default_rng(1)
    model.load_state_dict({name: mo.asarray(rng.standard_normal(value.shape).astype(np.float32))
                           for name, value in model.state_dict().items()})
    ids = [7 * place % 57 + 4 for place in range(9)]
    made = [*mo.models.generate(model, ids, max_new_tokens=6, stop=[])]
    whole = [*ids]
    for _ in made:
        whole.append(int(model(mo.asarray([whole])).numpy()[0, -1].argmax()))
    assert len(made) == 6 and ids + made == whole
