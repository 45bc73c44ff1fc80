"""`mo.optim`: optimisers, clipping, schedules."""

from morpho.optim.adafactor import Adafactor
from morpho.optim.chains import ChainedScheduler, ReduceLROnPlateau, SequentialLR
from morpho.optim.clip import clip_grad_norm, clip_grad_value
from morpho.optim.cycles import CosineAnnealingWarmRestarts, OneCycleLR
from morpho.optim.lbfgs import LBFGS
from morpho.optim.more_rules import ASGD, Adadelta, Adamax, CyclicLR, MultiplicativeLR, Muon, RAdam, Rprop
from morpho.optim.optimizer import Optimizer, ParamGroup
from morpho.optim.root_mean_square import Adagrad, NAdam, RMSprop
from morpho.optim.rules import SGD, Adam, AdamW, Lion
from morpho.optim.schedules import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    PolynomialLR,
    StepLR,
    WarmupCosineLR,
    WarmupLinearLR,
)
from morpho.tensor.tools.foreign_calls import hint_calls as _hint_calls
from morpho.tensor.tools.foreign_names import module_attribute as _module_attribute

__all__ = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ChainedScheduler", "ConstantLR",
    "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR", "LBFGS", "LRScheduler",
    "LambdaLR", "LinearLR", "Lion", "MultiStepLR", "MultiplicativeLR", "Muon", "NAdam", "OneCycleLR", "Optimizer",
    "ParamGroup", "PolynomialLR", "RAdam", "RMSprop", "ReduceLROnPlateau", "Rprop", "SGD", "SequentialLR", "StepLR",
    "WarmupCosineLR", "WarmupLinearLR", "clip_grad_norm", "clip_grad_value",
]

_hint_calls(globals(), __all__)  # calls with other libraries' keywords
__getattr__ = _module_attribute("optim", __name__)  # a hint for names of other libraries
