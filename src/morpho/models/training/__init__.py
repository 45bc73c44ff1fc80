"""Training a language model on a text file: what `morpho train` does, as a library."""

from morpho.models.training.checkpoints import Checkpoints
from morpho.models.training.run import Run
from morpho.models.training.settings import Progress, Settings, read_text

__all__ = ["Checkpoints", "Progress", "Run", "Settings", "read_text"]
