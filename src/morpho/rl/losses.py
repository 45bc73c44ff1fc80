"""Losses on the log-probabilities of tokens, as small functions: every argument is a tensor of (texts, tokens) or of
(texts,), and `mask` is 1 at the tokens that the model drew.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.models.text.log_probabilities import log_probabilities


def token_log_probabilities(model: Any, ids: mo.Tensor, temperature: float = 1.0, top_k: int = 0,
                            autocast: Any = None) -> mo.Tensor:
    """Log-probabilities that a model gives each token of texts after those before it, (texts, length - 1).

    These are the bits that the engine reports for the same tokens (`SamplingParams.processed_logprobs`). Use the model
    in evaluation mode: a trainer that draws dropout masks is off-policy.

    Args:
        model: A language model; `model(ids)` gives logits.
        ids: (texts, length) token numbers. Texts of different lengths are filled up at their ends.
        temperature: As the texts were drawn.
        top_k: As the texts were drawn; 0 for all tokens.
        autocast: Dtype of the model's products and attention, as in `mo.amp.autocast`; None for its parameters'.

    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    >>> mo.rl.token_log_probabilities(model, mo.asarray([[1, 2, 3]])).shape
    (1, 2)
    """
    if ids.ndim != 2 or ids.shape[1] < 2:
        raise fail(ShapeError, "token_log_probabilities",
                   f"ids of shape {tuple(ids.shape)} hold no token after another",
                   "give (texts, length) with a length of 2 or more")
    with nullcontext() if autocast is None else mo.amp.autocast(autocast):
        logits = model(ids[:, :-1])
    every = log_probabilities(logits, temperature, top_k)  # (texts, length - 1, vocabulary)
    return mo.take_along_axis(every, ids[:, 1:, None], axis=-1)[..., 0]


def masked_mean(values: mo.Tensor, mask: mo.Tensor) -> mo.Tensor:
    """The mean over the tokens where the mask is 1; 0 if it is 0 everywhere.

    >>> mo.rl.masked_mean(mo.asarray([1.0, 3.0, 100.0]), mo.asarray([1.0, 1.0, 0.0])).item()
    2.0
    """
    mask = mask.astype(mo.float32)
    return mo.where(mask > 0, values, 0.0).sum() / mo.maximum(mask.sum(), 1.0)


def group_advantages(rewards: Any, group_size: int, normalise: bool = True) -> mo.Tensor:
    """Rewards less the mean of their group, over the group's standard deviation with `normalise` (GRPO).

    Args:
        rewards: (texts,), the texts of one prompt side by side.
        group_size: Texts of one prompt.
        normalise: Divide by the standard deviation; False keeps the scale of the rewards.

    >>> mo.rl.group_advantages([1.0, 0.0, 5.0, 5.0], 2)
    Tensor([ 0.999998, -0.999998,  0.      ,  0.      ], dtype=float32)
    """
    rewards = mo.asarray(rewards, dtype=mo.float32)
    if rewards.ndim != 1 or group_size < 2 or rewards.shape[0] % group_size:
        raise fail(ArgumentError, "group_advantages", f"rewards of shape {tuple(rewards.shape)} are no groups of "
                                                      f"{group_size}", "draw at least two texts for each prompt")
    groups = rewards.reshape(-1, group_size)
    centred = groups - groups.mean(axis=1, keepdims=True)
    if normalise:
        centred = centred / (mo.sqrt(mo.square(centred).mean(axis=1, keepdims=True)) + 1e-6)
    advantages: mo.Tensor = centred.reshape(-1)
    return advantages


def clipped_loss(new: mo.Tensor, old: mo.Tensor, advantages: mo.Tensor, mask: mo.Tensor, clip: float = 0.2,
                 clip_high: float | None = None) -> mo.Tensor:
    """PPO's clipped objective as a loss, the mean over the drawn tokens; with group advantages it is GRPO's.

    Args:
        new: Log-probabilities by the model that learns, (texts, tokens).
        old: Log-probabilities by the model that drew the tokens.
        advantages: (texts,), or one for each token.
        mask: 1 at drawn tokens.
        clip: The ratio of probabilities counts from `1 - clip`...
        clip_high: ...to `1 + clip_high`; default: `clip`.

    >>> zeros, ones = mo.zeros((1, 2)), mo.ones((1, 2))
    >>> mo.rl.clipped_loss(zeros, zeros, mo.asarray([2.0]), ones).item()
    -2.0
    """
    advantages = _by_token(advantages)
    ratio = mo.exp(mo.where(mask > 0, new - old, 0.0))
    bounded = mo.clip(ratio, 1 - clip, 1 + (clip if clip_high is None else clip_high))
    return masked_mean(-mo.minimum(ratio * advantages, bounded * advantages), mask)


def reinforce_loss(new: mo.Tensor, advantages: mo.Tensor, mask: mo.Tensor) -> mo.Tensor:
    """REINFORCE: minus the advantage times the log-probability, the mean over the drawn tokens.

    >>> mo.rl.reinforce_loss(mo.asarray([[-1.0, -3.0]]), mo.asarray([0.5]), mo.ones((1, 2))).item()
    1.0
    """
    return masked_mean(-_by_token(advantages) * new, mask)


def kl_estimate(new: mo.Tensor, reference: mo.Tensor, mask: mo.Tensor) -> mo.Tensor:
    """Estimate of KL(new || reference) from drawn tokens, never negative: the mean of `exp(d) - d - 1` with
    `d = reference - new`.

    >>> mo.rl.kl_estimate(mo.zeros((1, 2)), mo.zeros((1, 2)), mo.ones((1, 2))).item()
    0.0
    """
    difference = mo.where(mask > 0, reference - new, 0.0)
    return masked_mean(mo.expm1(difference) - difference, mask)


def dpo_loss(chosen: mo.Tensor, rejected: mo.Tensor, reference_chosen: mo.Tensor, reference_rejected: mo.Tensor,
             beta: float = 0.1) -> mo.Tensor:
    """Direct preference optimisation: each argument is the sum of a text's log-probabilities, (pairs,).

    >>> zero = mo.zeros(3)
    >>> round(mo.rl.dpo_loss(zero, zero, zero, zero).item(), 4)
    0.6931
    """
    margin = (chosen - reference_chosen) - (rejected - reference_rejected)
    return mo.softplus(-beta * margin).mean()


def _by_token(advantages: mo.Tensor) -> mo.Tensor:
    return advantages[:, None] if advantages.ndim == 1 else advantages
