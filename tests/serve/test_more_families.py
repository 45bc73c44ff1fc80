"""Every family that `mo.models` loads: the engine gives the tokens of `mo.models.generate` on each prompt alone, over
pages or in slots, or refuses the model with a sentence that says what to use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_models import greedy, paused, tokens_of

import morpho as mo
from benchmarks.models.parity.cases import ENCODERS
from benchmarks.models.parity.decoders import decoders
from morpho.base.errors import ArgumentError
from morpho.models.registry import families
from morpho.models.text.generation_keys import Defaults
from morpho.models.text.generators import JoinedGenerators
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Request
from morpho.serve.engine.runner import ModelRunner, Row
from morpho.serve.engine.slots import SlotRunner
from morpho.serve.hosting import engines
from morpho.serve.hosting.engines import EngineOptions
from morpho.serve.hosting.making import registry_of
from morpho.serve.hosting.registry import Spec

SMALL = {"vocab_size": 61, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 6,
         "num_key_value_heads": 2, "max_position_embeddings": 256}
ONE = {**SMALL, "num_hidden_layers": 1}
ALL_HEADS = {key: value for key, value in ONE.items() if key != "num_key_value_heads"}
LONG = {"type": "longrope", "short_factor": [1.0, 1.0], "long_factor": [2.0, 3.0],
        "original_max_position_embeddings": 64}
BART = {"vocab_size": 61, "d_model": 16, "encoder_layers": 1, "encoder_ffn_dim": 16, "encoder_attention_heads": 2,
        "decoder_layers": 1, "decoder_ffn_dim": 16, "decoder_attention_heads": 2, "max_position_embeddings": 64,
        "init_std": 0.5}
# Families of text beside those of test_same_bits.py, with what is special about them.
SERVED: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("mistral", {**ONE, "sliding_window": 5}),
    "mixtral": ("mixtral", {**ONE, "num_local_experts": 3, "num_experts_per_tok": 2}),
    "qwen2": ("qwen2", {**ONE, "use_sliding_window": True, "sliding_window": 70, "max_window_layers": 0}),
    "qwen3": ("qwen3", {**ONE, "head_dim": 8}),
    "smollm3": ("smollm3", ONE),
    "granite": ("granite", {**ONE, "residual_multiplier": 0.5, "attention_multiplier": 0.3, "logits_scaling": 4.0}),
    "phi3": ("phi3", {**ONE, "num_key_value_heads": 6}),
    "phi3, long": ("phi3", {**ONE, "num_key_value_heads": 6, "rope_scaling": LONG}),
    "gemma2": ("gemma2", {**ONE, "head_dim": 4}),
    "gemma3_text": ("gemma3_text", {**ONE, "head_dim": 4}),
    "olmo": ("olmo", ONE), "olmo2": ("olmo2", ONE),
    "gpt_neox": ("gpt_neox", {**ALL_HEADS, "rotary_pct": 0.5}),
    "opt": ("opt", {**{key: value for key, value in ALL_HEADS.items() if key != "intermediate_size"}, "ffn_dim": 20}),
    "t5": ("t5-small", {"vocab_size": 61, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}),
    "bart": ("bart-base", BART),
}
SLOTS = {"phi3, long", "gemma2", "t5", "bart"}
ELSEWHERE = {"gpt2", "llama", "prenorm"}  # test_same_bits.py
VECTORS = {"bert", "roberta", "distilbert", *ENCODERS}
REFUSED = {"resnet", "vit", "mlp", "cnn", "clip", "whisper"}


BARTS = {"mbart", "blenderbot", "pegasus", "marian", "m2m_100"}  # by BART's code


def test_no_family_is_forgotten() -> None:
    tabled = {case.family for case in decoders()}  # tests/models/test_every_decoder.py
    assert {name.partition(",")[0] for name in SERVED} | ELSEWHERE | VECTORS | REFUSED | tabled | BARTS == {*families()}


ALWAYS = SLOTS | {"mistral", "opt"}  # of the others, which are decoders by the same parts, some each time


@pytest.mark.parametrize("name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.sampled)
                                  for name in SERVED])
def test_a_mixed_batch_has_the_tokens_of_each_alone(name: str) -> None:
    """Prompts of one token and of several, one longer than a page, all at once; of one of them two texts."""
    family, settings = SERVED[name]
    mo.nn.seed(2)
    model = mo.models.create(family, **settings)
    rng = np.random.default_rng(3)
    prompts = [tuple(rng.integers(3, 61, length).tolist()) for length in (1, 9, 5, 30 if name == "bart" else 70, 9)]
    wanted = [[*mo.models.generate(model, list(prompt), max_new_tokens=5)] for prompt in prompts]
    with Engine(model, kv_bytes=1 << 18, max_batch=4) as engine:
        assert isinstance(engine.runner, SlotRunner) == (name in SLOTS)
        with paused(engine):
            streams = [engine.submit(Request(prompt, greedy(5, n=2 if number == 1 else 1), str(number)))
                       for number, prompt in enumerate(prompts)]
        found = [[*stream] for stream in streams]
        stats = engine.stats()
    assert [tokens_of(events) for events in found] == wanted
    assert tokens_of(found[1], 1) == wanted[1]
    assert stats.recompiles == stats.errors == stats.pages_used == 0


@pytest.mark.parametrize("name", sorted(SLOTS))
def test_next_tokens_of_slots_are_computed_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of five slots at places of their own, some waiting and some until their caches are full, with others that
    begin where one has ended, some with its first tokens, read in two pieces: the bits are those of each alone."""
    family, settings = SERVED[name]
    length, rng, sizes = 20, np.random.default_rng(3), []
    step = JoinedGenerators.step
    monkeypatch.setattr(JoinedGenerators, "step", lambda self, tokens: sizes.append(len(tokens)) or step(self, tokens))
    if name == "phi3, long":
        settings = {**settings, "rope_scaling": {**LONG, "original_max_position_embeddings": 10}}
    mo.nn.seed(2)
    model = mo.models.create(family, **settings)
    alone, together = (SlotRunner(model, 1 << 20, 5, length) for _ in range(2))
    assert together.pages.total == 5
    texts: dict[int, tuple[int, list[int]]] = {slot: (0, []) for slot in range(5)}  # tokens of the prompt, all of them

    def begin(slot: int) -> None:
        tokens = [*texts[slot][1][:int(rng.integers(3))], *rng.integers(3, 61, rng.integers(1, 15)).tolist()]
        cut = int(rng.integers(len(tokens)))
        pieces = [Row(part, start, [slot], prompt=len(tokens))
                  for part, start in ((tokens[:cut], 0), (tokens[cut:], cut)) if part]
        wanted, found = ([runner.prefill(piece) for piece in pieces][-1] for runner in (alone, together))
        assert found.tobytes() == wanted.tobytes()
        texts[slot] = (len(tokens), tokens)

    for turn in range(24):
        for slot, (prompt, tokens) in texts.items():
            full = len(tokens) == (prompt + length - 1 if together.two_parts else length)
            if not tokens or full or rng.random() < 0.03:
                begin(slot)
        rows = [Row([int(rng.integers(3, 61))], len(tokens), [slot], prompt=prompt)
                for slot, (prompt, tokens) in texts.items() if turn < 9 or rng.random() < 0.7]
        wanted = [alone.decode([row])[0].tobytes() for row in rows]
        assert [row.tobytes() for row in together.decode(rows)] == wanted if rows else True
        for row in rows:
            texts[row.pages[0]][1].extend(row.tokens)
    assert not alone._together and together.recompiles == 0
    assert max(sizes) == 5 and len({count for _, count in together._together}) > 1


def test_functions_of_slots_are_loaded_while_there_is_nothing_to_do() -> None:
    """No text waits for those of a slot that is used for the first time, or of so many slots."""
    def compiled(runner: Any) -> int:
        return sum(each.compilations for each in runner._generators.values()) + sum(
            len(each.decode.specialisations) for each in runner._together.values())

    with Engine(mo.models.create("t5-small", **SERVED["t5"][1]), kv_bytes=1 << 20, max_batch=3, warm=True) as engine:
        for _ in range(4):  # a turn of the engine each
            engine.refresh()
        before = compiled(engine.runner)
        with paused(engine):
            streams = [engine.submit(Request((5, 6, 7), greedy(4), "a")) for _ in range(3)]
        assert len({tuple(tokens_of([*stream])) for stream in streams}) == 1
        assert engine.runner.pages.total == 3 and not engine._cold and engine.last_error is None
        assert compiled(engine.runner) == before == 3 * 3 + 2


def test_a_text_goes_over_to_other_angles() -> None:
    """Longrope's angles change where the text gets longer than it was trained for: so they do in a slot."""
    mo.nn.seed(2)
    model = mo.models.create("phi3", **SERVED["phi3, long"][1])
    prompt = [*np.random.default_rng(1).integers(3, 61, 58).tolist()]
    wanted = [*mo.models.generate(model, prompt, max_new_tokens=12)]
    runner = SlotRunner(model, 1 << 18, 2)
    logits, found = runner.prefill(Row(prompt, 0, [0], prompt=58, most=3)), []
    for number in range(12):
        found.append(int(logits.argmax()))
        logits = runner.decode([Row(found[-1:], 58 + number, [0], prompt=58)])[0, 0]
    assert len(runner._generators) == 2 and found[7:] == wanted[7:]
    anew = runner.prefill(Row([*prompt, *found], 0, [1], prompt=58, most=3))  # as after a change of weights
    assert anew.tobytes() == logits.tobytes()


def test_slots_keep_to_the_bytes_they_may_hold() -> None:
    """Those too that have a cache for each kind of angles."""
    model = mo.models.create("phi3", **SERVED["phi3, long"][1])
    for limit, length in ((30_000, None), (60_000, None), (60_000, 100), (90_000, 100), (300_000, None)):
        runner = SlotRunner(model, limit, 4, length)
        for slot in range(runner.pages.total):
            for wanted in (1, runner.length):
                runner._generator(slot, wanted)
        held = [cache for each in runner._generators.values() for cache in each.caches]
        assert sum(int(state.value.nbytes) for cache in held for state in (cache.keys, cache.values)) <= limit
    with pytest.raises(ArgumentError, match="a cache of 383 bytes holds no text: a position has 192"):
        SlotRunner(model, 383, 4)


def test_tokens_that_files_force_are_made() -> None:
    model = mo.models.create("bart-base", **BART)
    model.defaults = Defaults(forced_bos_token_id=7, suppress_tokens=[9], forced_eos_token_id=8)
    wanted = [*mo.models.generate(model, [4, 5, 6], max_new_tokens=4)]
    with Engine(model, kv_bytes=1 << 18) as engine:
        found = tokens_of([*engine.submit(Request((4, 5, 6), greedy(4), "a"))])
    assert found == wanted and found[0] == 7 and found[-1] == 8


def test_long_prompts_and_adapters_are_refused_by_an_encoder() -> None:
    with Engine(mo.models.create("bart-base", **BART), kv_bytes=1 << 18) as engine:
        with pytest.raises(ArgumentError, match="65 tokens, and the encoder takes 64 at most"):
            engine.submit(Request((5,) * 65, greedy(2), "a"))
        with pytest.raises(ArgumentError, match="has no LoRA adapters here"):
            engine.add_adapter("pirate", ".")


def test_adapters_of_slots_are_refused_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "Engine", None)
    with pytest.raises(ArgumentError, match="the adapter 'pirate' cannot be used: a Gemma2 like this has no LoRA"):
        EngineOptions()(mo.models.create("gemma2", **SERVED["gemma2"][1]), None, Spec("g", Path(), {"pirate": Path()}))


TAKEN: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 5}, "qwen2": {"use_sliding_window": True, "sliding_window": 70,
                                                "max_window_layers": 1}, "qwen3": {"head_dim": 8}}


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_pages_give_the_bits_of_the_whole_text(name: str) -> None:
    model = mo.models.create(name, **SMALL, **TAKEN[name]).eval()
    ids = np.random.default_rng(3).integers(0, 61, 80).tolist()
    whole = model(mo.asarray([ids])).numpy()[0]
    runner = ModelRunner(model, pages=4, max_batch=2, chunk=64)
    assert (runner.prefill(Row(ids[:64], 0, [1])) == whole[63]).all()
    assert (runner.prefill(Row(ids[64:78], 64, [1, 3])) == whole[77]).all()  # over the end of a page
    assert (runner.decode([Row([ids[78]], 78, [1, 3])])[0, 0] == whole[78]).all()


WHISPER = {"vocab_size": 61, "d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 16,
           "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 16, "num_mel_bins": 8,
           "max_source_positions": 16, "max_target_positions": 16}


@pytest.mark.parametrize(("name", "settings", "reason"), [
    ("whisper-tiny", WHISPER, r"it makes text of sound.* use model\.transcribe\(features\) from Python"),
    ("qwen2", {**SMALL, "head": "token", "labels": 3}, r"its head is not that of the next token.*model\.classify"),
    ("bart-base", {**BART, "head": "sequence", "labels": 3}, r"its head is not that of the next token")])
def test_others_are_refused(name: str, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ArgumentError, match=f"(?s)like this is not served: .*{reason}"):
        Engine(mo.models.create(name, **settings))


ENCODERS: dict[str, dict[str, Any]] = {
    "roberta-base": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
                     "max_position_embeddings": 18},
    "distilbert-base": {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "max_position_embeddings": 16}}


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_give_vectors(name: str, tmp_path: Path) -> None:
    tokenizer = mo.weights.train_bpe("the cat sat on the mat " * 4, 280)
    mo.models.save(tmp_path, mo.models.create(name, vocab_size=tokenizer.vocab_size, **ENCODERS[name]))
    mo.weights.save_tokenizer(tmp_path, tokenizer)
    registry = registry_of([Spec("encoder", tmp_path)], EngineOptions())
    registry.load(None)
    served = registry.loaded()[0]
    assert served.engine is None and served.embed([[5, 6, 7], [8] * 16]).shape == (2, 8) and served.width == 8


def test_pictures_are_refused(tmp_path: Path) -> None:
    tokenizer = mo.weights.train_bpe("the cat sat on the mat " * 4, 280)
    mo.models.save(tmp_path, mo.models.create("mlp"))
    mo.weights.save_tokenizer(tmp_path, tokenizer)
    with pytest.raises(ArgumentError, match=r"makes neither text nor vectors of texts.*use mo\.models\.load"):
        registry_of([Spec("pictures", tmp_path)], EngineOptions()).load(None)
