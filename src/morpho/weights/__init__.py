"""Weights from files, tokenizers, and what `morpho models pull` fetches: names and tensors, no models.

>>> import os, tempfile
>>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
>>> mo.weights.save(path, {"bias": mo.zeros(4)})
>>> mo.weights.load(path)["bias"].shape
(4,)
"""

from morpho.weights.errors import (
    FileFault,
    FolderInUse,
    MissingExtra,
    MissingFile,
    NameFault,
    PullError,
    StorageError,
)
from morpho.weights.files import load, save
from morpho.weights.gguf.file import GgufConfig, GgufFile, load_gguf
from morpho.weights.mapping import Rule, match
from morpho.weights.pull import is_pulled, model_path
from morpho.weights.pull import pull as pull_model
from morpho.weights.safetensors import Weights
from morpho.weights.text.bpe import BytePairs
from morpho.weights.text.bpe_train import train_bpe
from morpho.weights.text.chat import chatml, encode_chat, render_chat
from morpho.weights.text.sentencepieces import SentencePieces
from morpho.weights.text.tokenizer import StreamDecoder, Tokenizer
from morpho.weights.text.tokenizer_file import load_tokenizer, save_tokenizer
from morpho.weights.transforms import concat, reshape, split, transpose, unpermute

__all__ = [
    "BytePairs", "FileFault", "FolderInUse", "GgufConfig", "GgufFile", "MissingExtra", "MissingFile", "NameFault",
    "PullError", "Rule", "SentencePieces", "StorageError", "StreamDecoder", "Tokenizer", "Weights", "chatml", "concat",
    "encode_chat", "is_pulled",
    "load", "load_gguf", "load_tokenizer", "match", "model_path", "pull_model", "render_chat", "reshape", "save",
    "save_tokenizer", "split", "train_bpe", "transpose", "unpermute",
]
