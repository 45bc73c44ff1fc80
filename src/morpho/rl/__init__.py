"""Reinforcement learning on the bits of the sampler: rollouts by the engine in the training process, losses on
log-probabilities, and GRPO. The log-probabilities of the sampler and of the trainer are equal to the last bit.
"""

from morpho.models.text.log_probabilities import log_probabilities
from morpho.rl.grpo import GRPO, GRPOReport
from morpho.rl.losses import (
    clipped_loss,
    dpo_loss,
    group_advantages,
    kl_estimate,
    masked_mean,
    reinforce_loss,
    token_log_probabilities,
)
from morpho.rl.rollouts import Batch, Rollout, Rollouts, make_batch

__all__ = [
    "Batch", "GRPO", "GRPOReport", "Rollout", "Rollouts", "clipped_loss", "dpo_loss", "group_advantages", "kl_estimate",
    "log_probabilities", "make_batch", "masked_mean", "reinforce_loss", "token_log_probabilities",
]
