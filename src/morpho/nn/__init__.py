"""`mo.nn`: modules, layers, losses.

>>> model = mo.nn.Sequential(mo.nn.Linear(4, 8), mo.nn.GELU(), mo.nn.Linear(8, 2))
>>> print(model.summary().splitlines()[-1].split())
['total', '58']
"""

from typing import Any as _Any

from morpho.nn import init, transformer
from morpho.nn.containers import Flatten, Identity, Lambda, ModuleDict, ModuleList, ParameterList, Sequential, Unflatten
from morpho.nn.frozen import Frozen
from morpho.nn.layers.activations import (
    ELU,
    GELU,
    GLU,
    SELU,
    Hardsigmoid,
    Hardswish,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
    activation,
)
from morpho.nn.layers.batch_norm import BatchNorm1d, BatchNorm2d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from morpho.nn.layers.cells import GRUCell, LSTMCell, RNNCell
from morpho.nn.layers.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d
from morpho.nn.layers.dropout import Dropout, Dropout2d
from morpho.nn.layers.embedding_bag import EmbeddingBag
from morpho.nn.layers.gated import GatedUnit, GeGLU, SwiGLU
from morpho.nn.layers.linear import Embedding, FusedMLP, Linear, linear
from morpho.nn.layers.lora import LoRALinear, add_lora
from morpho.nn.layers.norm import GroupNorm, LayerNorm, RMSNorm
from morpho.nn.layers.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AvgPool1d,
    AvgPool2d,
    GlobalAvgPool,
    GlobalMaxPool,
    MaxPool1d,
    MaxPool2d,
)
from morpho.nn.layers.quantised import QuantisedEmbedding, QuantisedLinear
from morpho.nn.layers.recurrent import GRU, LSTM, RNN
from morpho.nn.layers.rounded import Int8Linear
from morpho.nn.layers.upsample import Upsample, interpolate
from morpho.nn.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cosine_similarity,
    cross_entropy,
    ctc_loss,
    focal_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    multi_margin_loss,
    nll_loss,
    pairwise_distance,
    smooth_l1_loss,
    triplet_margin_loss,
)
from morpho.nn.losses.modules import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    CTCLoss,
    FocalLoss,
    HingeEmbeddingLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    Loss,
    MarginRankingLoss,
    MSELoss,
    MultiMarginLoss,
    NLLLoss,
    SmoothL1Loss,
    TripletMarginLoss,
)
from morpho.nn.module import Module, RemovableHandle
from morpho.nn.random import seed
from morpho.nn.streaming import stream
from morpho.nn.transformer.attention import KeyValueCache, MultiHeadAttention
from morpho.nn.transformer.blocks import FeedForward, TransformerBlock, TransformerDecoderBlock
from morpho.nn.transformer.paged import PagedCache
from morpho.nn.transformer.positions import LearnedPositions, RotaryPositions, SinusoidalPositions
from morpho.tensor.autodiff.checkpoint import checkpoint, checkpoint_sequential
from morpho.tensor.state.variable import Buffer, Parameter
from morpho.tensor.tools.foreign_calls import hint_calls as _hint_calls
from morpho.tensor.tools.foreign_names import module_attribute as _module_attribute

__all__ = [
    # the tree
    "Buffer", "Flatten", "Identity", "Lambda", "Module", "ModuleDict", "ModuleList", "Parameter", "ParameterList",
    "RemovableHandle", "Sequential", "Unflatten", "checkpoint", "checkpoint_sequential", "init", "seed",
    # layers
    "BatchNorm1d", "BatchNorm2d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "Dropout",
    "Dropout2d", "Embedding", "EmbeddingBag", "FusedMLP", "GRU", "GRUCell", "GatedUnit", "GeGLU", "GroupNorm",
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "Int8Linear", "LSTM", "LSTMCell", "LayerNorm", "Linear",
    "LoRALinear", "RMSNorm", "RNN", "RNNCell", "SwiGLU", "Upsample", "add_lora", "interpolate", "linear",
    # transformers
    "FeedForward", "Frozen", "KeyValueCache", "LearnedPositions", "MultiHeadAttention", "PagedCache",
    "QuantisedEmbedding", "QuantisedLinear", "RotaryPositions", "SinusoidalPositions", "TransformerBlock",
    "TransformerDecoderBlock", "stream", "transformer",
    # pooling
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AvgPool1d", "AvgPool2d",
    "GlobalAvgPool", "GlobalMaxPool", "MaxPool1d", "MaxPool2d",
    # activations
    "ELU", "GELU", "GLU", "Hardsigmoid", "Hardswish", "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "ReLU",
    "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh", "activation",
    # losses
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "FocalLoss",
    "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "Loss", "MSELoss", "MarginRankingLoss", "MultiMarginLoss",
    "NLLLoss", "SmoothL1Loss", "TripletMarginLoss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "ctc_loss", "focal_loss", "hinge_embedding_loss",
    "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss", "multi_margin_loss", "nll_loss",
    "pairwise_distance", "smooth_l1_loss", "triplet_margin_loss",
]

_hint_calls(globals(), __all__)  # calls with other libraries' keywords
_missing = _module_attribute("nn", __name__)  # a hint for names of other libraries
_LATE = {"functional": "morpho.nn.functional", "utils": "morpho.nn.utils"}  # loaded when a program first uses one
_TORCH_LAYERS = "morpho.nn.layers.from_functions"
_TORCH_TRANSFORMERS = ("MultiheadAttention", "Transformer", "TransformerEncoder", "TransformerEncoderLayer",
                       "TransformerDecoder", "TransformerDecoderLayer")


def __getattr__(name: str) -> _Any:
    """PyTorch's names that `__all__` does not list."""
    import importlib

    if name in _LATE:
        return importlib.import_module(_LATE[name])
    if name in _TORCH_TRANSFORMERS:
        return getattr(importlib.import_module("morpho.nn.transformer.pytorch"), name)
    if name[:1].isupper():
        layers = importlib.import_module(_TORCH_LAYERS).CLASSES
        if name in layers:
            return layers[name]
    return _missing(name)
