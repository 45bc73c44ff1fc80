"""`mo.models`: model families, their weights, and text from them.

>>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16)
>>> len([*mo.models.generate(model, [1, 2, 3], max_new_tokens=4)])
4
"""

from morpho.models.base import LanguageModel, Model, Output
from morpho.models.features.images import ImageFeatures
from morpho.models.features.mel import LogMel
from morpho.models.files.adapters import save_adapter
from morpho.models.files.convert import convert
from morpho.models.files.loading import SHIPPED, load, load_with_tokenizer, save
from morpho.models.registry import create, from_config
from morpho.models.registry import names as list
from morpho.models.text.generation import generate
from morpho.models.text.generators import Generator
from morpho.models.training.checkpoints import Checkpoints
from morpho.models.transformer import (
    prenorm_transformer_base,
    prenorm_transformer_large,
    prenorm_transformer_small,
)
from morpho.tensor.tools.foreign_calls import hint_calls as _hint_calls

__all__ = [
    "Checkpoints", "Generator", "ImageFeatures", "LanguageModel", "LogMel", "Model", "Output", "SHIPPED", "convert",
    "create", "from_config", "generate", "list", "load", "load_with_tokenizer", "prenorm_transformer_base",
    "prenorm_transformer_large",
    "prenorm_transformer_small", "save", "save_adapter",
]

_hint_calls(globals(), __all__)  # calls with other libraries' keywords
