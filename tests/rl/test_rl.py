"""`mo.rl`: the sampler's log-probabilities are the trainer's, losses are what papers say, rewards are learnt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import morpho as mo
from morpho.cli.main import app
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Request, SamplingParams

FAMILIES: dict[str, dict[str, int]] = {
    "llama": {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 160},
    "gpt2": {"vocab_size": 40, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 160},
    "mixtral": {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
                "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 160,
                "num_local_experts": 4, "num_experts_per_tok": 2},
}


def create(family: str = "llama") -> Any:
    mo.nn.seed(0)
    return mo.models.create(family, **FAMILIES[family])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype, autocast", [("float32", None), ("bfloat16", None), ("float32", "bfloat16"),
                                             ("float32", "float16")])
def test_the_trainer_has_the_bits_of_the_sampler(family: str, dtype: str, autocast: str | None) -> None:
    """Texts across several pages, before and after an update, prompts of unlike lengths."""
    model = create(family)
    if dtype != "float32":
        model.to(dtype=dtype)
    optimizer = mo.optim.AdamW(model.parameters(), lr=1e-2)
    with mo.rl.GRPO(model, optimizer, lambda text: float(text.tokens[0] == 7), group_size=3, max_tokens=70, top_k=9,
                    temperature=0.8, pages=64, autocast=autocast) as trainer:
        for _ in range(2):
            report = trainer.step([[5, 6, 7], [1] * 20])
            assert (report.differing, report.kl_sampler_trainer) == (0, 0.0) and report.drawn > 100


def test_with_lora_only_its_matrices_learn(tmp_path: Path) -> None:
    """An adapter that was trained gives the same logits from its file in a served model."""
    model = create()
    before = {name: p.numpy(copy=True) for name, p in model.named_parameters()}
    learning = mo.nn.add_lora(model, rank=2, alpha=4, targets=["q_proj", "down_proj"])
    optimizer = mo.optim.AdamW(learning, lr=1e-1)
    with mo.rl.GRPO(model, optimizer, lambda text: float(text.tokens[0] > 20), group_size=4, max_tokens=4,
                    pages=32) as trainer:
        for _ in range(3):
            assert trainer.step([[5, 6, 7]]).differing == 0
        texts = trainer.rollouts.sample([[5, 6, 7]], n=2, seed=3)
    for name, p in model.named_parameters():
        if "lora_" not in name:
            assert np.array_equal(p.numpy(), before[name.replace(".layer.", ".")])
    assert any(np.abs(p.numpy()).max() > 0 for name, p in model.named_parameters() if "lora_B" in name)
    mo.models.save_adapter(model, tmp_path / "mine")
    with Engine(create(), pages=32, drafted=0) as engine:
        engine.add_adapter("mine", tmp_path / "mine")
        params = SamplingParams(seed=3 * 1_000_003, max_tokens=4, n=2)
        stream = engine.submit(Request((5, 6, 7), params, "a", adapter="mine"))
        tokens: list[list[int]] = [[], []]
        for event in stream:
            if event.token is not None:
                tokens[event.index].append(event.token)
    assert [list(text.tokens) for text in texts] == tokens


def test_a_difference_is_an_error() -> None:
    """A trainer in another precision than its sampler is off-policy."""
    model = create()
    trainer = mo.rl.GRPO(model, mo.optim.SGD(model.parameters(), lr=0.0), lambda text: float(text.tokens[0]),
                         max_tokens=4, pages=32)
    with trainer:
        trainer.rollouts.autocast = "bfloat16"  # of the trainer alone: the engine exists already
        with pytest.raises(mo.errors.ValueFault, match=r"log-probabilities of the trainer differ from the sampler's"):
            trainer.step([[1, 2, 3]])


def test_rollouts_follow_from_the_seed_and_take_over_weights() -> None:
    model = create()
    with mo.rl.Rollouts(model, max_tokens=6, pages=32, top_k=5) as rollouts:
        first, again, other = (rollouts.sample([[1, 2], [3]], n=2, seed=seed) for seed in (4, 4, 5))
        assert [text.tokens for text in first] == [text.tokens for text in again] != [text.tokens for text in other]
        assert [text.group for text in first] == [0, 0, 1, 1]
        embedding = next(iter(model.parameters()))
        embedding.assign(-embedding.value if hasattr(embedding, "value") else embedding * -1)
        changed = rollouts.sample([[1, 2], [3]], n=2, seed=4)
        assert not all(np.array_equal(a.log_probabilities, b.log_probabilities)
                       for a, b in zip(first, changed, strict=True))


def test_an_end_token_is_part_of_a_rollout() -> None:
    """Its probability is part of the policy's."""
    model = create()
    with mo.rl.Rollouts(model, max_tokens=60, pages=32, stop_token_ids=range(20)) as rollouts:
        for text in rollouts.sample([[30]], n=8, seed=1):
            assert len(text.tokens) == len(text.log_probabilities)
            assert (text.finish == "stop") == (text.tokens[-1] < 20) and all(t >= 20 for t in text.tokens[:-1])


def test_log_probabilities_against_float64(rng: np.random.Generator) -> None:
    logits = rng.normal(size=(5, 33)).astype(np.float32) * 4
    for temperature, top_k in ((1.0, 0), (0.7, 5), (3.0, 33), (1.0, 1)):
        scores = logits.astype(np.float64) / temperature
        if 0 < top_k < 33:
            scores[scores < np.sort(scores, axis=1)[:, -top_k, None]] = -np.inf
        wanted = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        logs = mo.rl.log_probabilities(mo.asarray(logits), temperature, top_k)
        np.testing.assert_allclose(logs.numpy(), wanted, atol=1e-5)


def test_losses_against_their_formulas(rng: np.random.Generator) -> None:
    new, old, reference = (rng.normal(size=(4, 6)).astype(np.float32) for _ in range(3))
    mask = (rng.random((4, 6)) < 0.7).astype(np.float32)
    advantages = rng.normal(size=4).astype(np.float32)
    ratio = np.exp(new - old)
    wanted = -np.minimum(ratio * advantages[:, None], np.clip(ratio, 0.8, 1.3) * advantages[:, None])
    rl, give = mo.rl, mo.asarray
    assert rl.clipped_loss(*map(give, (new, old, advantages, mask)), clip=0.2, clip_high=0.3).item() == pytest.approx(
        (wanted * mask).sum() / mask.sum(), rel=1e-5)
    assert rl.reinforce_loss(*map(give, (new, advantages, mask))).item() == pytest.approx(
        -(new * advantages[:, None] * mask).sum() / mask.sum(), rel=1e-5)
    distance = reference - new
    assert rl.kl_estimate(*map(give, (new, reference, mask))).item() == pytest.approx(
        ((np.exp(distance) - distance - 1) * mask).sum() / mask.sum(), rel=1e-5)
    a, b, c, d = (rng.normal(size=7).astype(np.float32) for _ in range(4))
    assert rl.dpo_loss(*map(give, (a, b, c, d)), beta=0.3).item() == pytest.approx(
        np.log1p(np.exp(-0.3 * ((a - c) - (b - d)))).mean(), rel=1e-5)
    rewards = rng.normal(size=12).astype(np.float32)
    groups = rewards.reshape(3, 4)
    np.testing.assert_allclose(rl.group_advantages(rewards, 4).numpy().reshape(3, 4),
                               (groups - groups.mean(1, keepdims=True)) / (groups.std(1, keepdims=True) + 1e-6),
                               rtol=1e-4)
    masked = np.where(mask > 0, new, np.nan).astype(np.float32)  # what is masked takes no part, even if it is NaN
    assert np.isfinite(rl.clipped_loss(*map(give, (masked, old, advantages, mask))).item())


@pytest.mark.parametrize("call, words", [
    (lambda m: mo.rl.Rollouts(m, temperature=0), "temperature above 0"),
    (lambda m: mo.rl.GRPO(m, None, None, kl=0.1), "without a reference"),
    (lambda m: mo.rl.GRPO(m, None, None, group_size=1), "leaves nothing to compare"),
    (lambda m: mo.rl.group_advantages([1.0, 2.0, 3.0], 2), "are no groups of 2"),
    (lambda m: mo.rl.make_batch([]), "there are no rollouts"),
    (lambda m: mo.rl.log_probabilities(mo.ones(3), 0.0), "temperature=0.0 is not"),
    (lambda m: mo.rl.token_log_probabilities(m, mo.asarray([[1]])), "hold no token after another"),
    (lambda m: SamplingParams(processed_logprobs=True, top_p=0.5), "top_p is 0.5"),
    (lambda m: mo.nn.add_lora(m, targets=["nothing"]), "its products are called .*q_proj"),
    (lambda m: mo.nn.LoRALinear(mo.nn.LayerNorm(3)), "is not a product"),
    (lambda m: mo.models.save_adapter(m, "x"), "has no LoRA layers"),
])
def test_errors(call: Any, words: str) -> None:
    with pytest.raises(mo.errors.ArgumentError if "hold no" not in words else mo.errors.ShapeError, match=words):
        call(create())


def test_a_reward_that_is_not_finite() -> None:
    model = create()
    with mo.rl.GRPO(model, mo.optim.SGD(model.parameters(), lr=0.1), lambda text: float("nan"), max_tokens=2,
                    pages=32) as trainer, pytest.raises(mo.errors.NotFinite, match="a reward is nan"):
        trainer.step([[1]])


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "In the", "want": "a"}\n{"prompt": "And God", "want": "e"}\n')
    (tmp_path / "reward.py").write_text("def reward(text, prompt, fields):\n    return text.count(fields['want'])\n")
    command = ["train", "grpo", "--model", str(mo.models.SHIPPED), "--prompts", str(tmp_path / "prompts.jsonl"),
               "--steps", "2", "--max-tokens", "6", "--group", "2", "--lora", "2", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*command, "--reward", f"{tmp_path}/reward.py:reward"])
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [line["differing"] for line in lines] == [0, 0] and (tmp_path / "out" / "adapter_model.safetensors").exists()
    for wrong, words in ((f"{tmp_path}/reward.py:none", "has no function none"), ("reward", "names no file")):
        result = CliRunner().invoke(app, [*command, "--reward", wrong])
        assert result.exit_code != 0 and words in " ".join((result.output + str(result.exception)).split())
