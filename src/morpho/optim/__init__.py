"""`mo.optim`: optimisers and what goes with them."""

from morpho.optim.optimizer import Group, Optimizer, clip_grad_norm
from morpho.optim.rules import SGD, Adam, AdamW

__all__ = ["SGD", "Adam", "AdamW", "Group", "Optimizer", "clip_grad_norm"]
