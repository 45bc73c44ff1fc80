"""GRPO: draw a group of texts for each prompt, reward them, and move towards those better than their group.

Before an update the trainer's log-probabilities are those of the sampler to the last bit. Each step compares them, and
a difference is an error: training would be off-policy without anybody noticing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, NotFinite, ValueFault, fail
from morpho.models.base import LanguageModel
from morpho.rl.losses import clipped_loss, group_advantages, kl_estimate, token_log_probabilities
from morpho.rl.rollouts import Batch, Rollout, Rollouts, make_batch

Reward = Callable[[Rollout], float]


@dataclass(frozen=True)
class GRPOReport:
    """What one step did: `kl_sampler_trainer` is the mean difference of log-probabilities before the update over the
    drawn tokens, and `differing` how many of them differ in any bit.

    >>> mo.rl.GRPOReport(1, loss=0.0, reward=0.5, kl_sampler_trainer=0.0, differing=0, drawn=8).differing
    0
    """

    step: int
    loss: float
    reward: float
    kl_sampler_trainer: float
    differing: int
    drawn: int
    kl_reference: float = 0.0


class GRPO:
    """A trainer on rewards.

    Args:
        model: A language model of a family that the engine serves in pages.
        optimizer: Of the parameters that learn.
        reward: A number for each `Rollout`.
        group_size: Texts for each prompt.
        epochs: Updates on the same texts; from the second on the ratio is clipped.
        clip, clip_high: Bounds of the ratio, see `clipped_loss`.
        kl: Weight of the distance from `reference`.
        reference: Another model, or the same one before training; needed if `kl` is not 0.
        clip_norm: Largest norm of the gradients; 0: any.
        multiple: Lengths of batches are multiples of this.
        on_difference: "error", or "report" to count differing log-probabilities in the report only.
        options: Of `Rollouts`: `temperature`, `top_k`, `max_tokens`, `stop_token_ids`, `pages`, ...

    >>> model = mo.models.create("gpt2", vocab_size=20, n_embd=8, n_layer=1, n_head=2, n_positions=64)
    >>> optimizer = mo.optim.AdamW(model.parameters(), lr=1e-2)
    >>> with mo.rl.GRPO(model, optimizer, lambda text: float(text.tokens[0] == 7), max_tokens=1, pages=8) as trainer:
    ...     report = trainer.step([[1, 2, 3]])
    >>> report.kl_sampler_trainer, report.differing, report.drawn
    (0.0, 0, 8)
    """

    def __init__(self, model: LanguageModel, optimizer: Any, reward: Reward, *, group_size: int = 8, epochs: int = 1,
                 clip: float = 0.2, clip_high: float | None = None, kl: float = 0.0,
                 reference: LanguageModel | None = None, clip_norm: float = 1.0, multiple: int = 32, seed: int = 0,
                 on_difference: str = "error", **options: Any) -> None:
        if kl and reference is None:
            raise fail(ArgumentError, "GRPO", f"kl={kl} without a reference", "give reference=, a copy of the model")
        if group_size < 2:
            raise fail(ArgumentError, "GRPO", f"group_size={group_size} leaves nothing to compare", "use 2 or more")
        if on_difference not in ("error", "report"):
            raise fail(ArgumentError, "GRPO", f"on_difference={on_difference!r} is not 'error' or 'report'")
        self.model, self.optimizer, self.reward = model, optimizer, reward
        self.group_size, self.epochs, self.multiple, self.seed = group_size, epochs, multiple, seed
        self.clip, self.clip_high, self.kl, self.clip_norm = clip, clip_high, kl, clip_norm
        self.reference, self.on_difference, self.steps = reference, on_difference, 0
        self.rollouts = Rollouts(model, **options)
        self._update = mo.compile(self._one_update)
        self._of_reference = mo.compile(self._reference_log_probabilities)

    def __enter__(self) -> GRPO:
        return self

    def __exit__(self, *error: object) -> None:
        self.rollouts.close()

    def step(self, prompts: Sequence[Sequence[int]]) -> GRPOReport:
        """Draw, reward and update once (`epochs` times on the same texts)."""
        texts = self.rollouts.sample(prompts, self.group_size, self.seed + self.steps)
        rewards = np.array([self.reward(text) for text in texts], np.float32)
        if not np.isfinite(rewards).all():
            raise fail(NotFinite, "GRPO", f"a reward is {rewards[~np.isfinite(rewards)][0]}", "return finite numbers")
        batch = make_batch(texts, self.multiple)
        advantages = group_advantages(rewards, self.group_size)
        reference = batch.log_probabilities if self.reference is None else self._of_reference(batch.ids)
        training = self.model.training
        self.model.eval()  # no dropout: the sampler draws none
        try:
            first: tuple[float, float, np.ndarray] | None = None
            for _ in range(self.epochs):
                loss, distance, new = self._update(batch.ids, batch.mask, batch.log_probabilities, advantages,
                                                   reference)
                if first is None:
                    first = loss.item(), distance.item(), new.numpy()
                    self._compare(batch, first[2])
        finally:
            self.model.train(training)
        assert first is not None
        self.steps += 1
        drawn = batch.mask > 0
        difference = batch.log_probabilities[drawn].astype(np.float64) - first[2][drawn]
        return GRPOReport(self.steps, first[0], float(rewards.mean()), float(difference.mean()),
                          int(np.count_nonzero(difference)), int(drawn.sum()), first[1])

    def _compare(self, batch: Batch, new: np.ndarray) -> None:
        """Refuse a first update whose log-probabilities are not the sampler's."""
        drawn = batch.mask > 0
        differing = int((batch.log_probabilities[drawn] != new[drawn]).sum())
        if differing and self.on_difference == "error":
            raise fail(ValueFault, "GRPO", f"{differing} of {int(drawn.sum())} log-probabilities of the trainer differ "
                                           "from the sampler's",
                       "train in the sampler's dtype and without autocast, or give on_difference='report'")

    def _one_update(self, ids: mo.Tensor, mask: mo.Tensor, old: mo.Tensor, advantages: mo.Tensor,
                    reference: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor, mo.Tensor]:
        params = self.rollouts.params
        new = token_log_probabilities(self.model, ids, params.temperature, params.top_k, self.rollouts.autocast)
        loss = clipped_loss(new, old, advantages, mask, self.clip, self.clip_high)
        distance = kl_estimate(new, reference, mask)
        (loss + self.kl * distance if self.kl else loss).backward()
        if self.clip_norm:
            mo.optim.clip_grad_norm(self.model.parameters(), self.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss, distance, new

    def _reference_log_probabilities(self, ids: mo.Tensor) -> mo.Tensor:
        params = self.rollouts.params
        with mo.no_grad():
            return token_log_probabilities(self.reference, ids, params.temperature, params.top_k,
                                           self.rollouts.autocast)
