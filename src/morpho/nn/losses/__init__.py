"""Losses: how far predictions are from what was wanted, as functions; `modules.py` has them as modules.

Each takes `reduction`: "mean" over all elements, "sum", or "none" for one value each.
"""

from morpho.nn.losses.binary import binary_cross_entropy, binary_cross_entropy_with_logits, focal_loss
from morpho.nn.losses.classes import cross_entropy, multi_margin_loss, nll_loss
from morpho.nn.losses.ctc import ctc_loss
from morpho.nn.losses.distances import (
    cosine_embedding_loss,
    cosine_similarity,
    hinge_embedding_loss,
    margin_ranking_loss,
    pairwise_distance,
    triplet_margin_loss,
)
from morpho.nn.losses.regression import huber_loss, kl_div, l1_loss, mse_loss, smooth_l1_loss

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity",
    "cross_entropy", "ctc_loss", "focal_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss",
    "margin_ranking_loss", "mse_loss", "multi_margin_loss", "nll_loss", "pairwise_distance", "smooth_l1_loss",
    "triplet_margin_loss",
]
