"""Encoders of texts. Vectors: the mean of the last layer over a text's tokens (or the first token's, where
the folder says so), of length 1. Scores of pairs: the logit of a head with one class. Each has the bits that it has
alone, whatever it is computed together with."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail

MOST_ROWS, MOST_TOKENS = 64, 8192  # of one call: bounds its memory
POOLINGS = ("mean", "cls")


def pooling_of(folder: Path) -> str:
    """Pooling of `1_Pooling/config.json`, as the sentence-transformers library writes it; the mean without it."""
    try:
        said = json.loads((folder / "1_Pooling" / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "mean"
    except (OSError, ValueError) as error:
        raise fail(ArgumentError, "serve", f"{folder / '1_Pooling' / 'config.json'} cannot be read: {error}") from None
    modes = {name.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token") for name, on in
             said.items() if name.startswith("pooling_mode_") and on is True} | ({said["pooling_mode"]} if isinstance(
                 said.get("pooling_mode"), str) else set())
    if len(modes) != 1 or not modes <= {*POOLINGS}:
        raise fail(ArgumentError, "serve", f"{folder}: pooling by {', '.join(sorted(modes)) or 'nothing'} is not "
                                           f"computed", "mean and cls are")
    return str(modes.pop())


def positions_of(network: Any) -> int:
    """The most tokens of a text that an encoder takes."""
    found: int = getattr(network, "most_tokens", 0) or int(network.config.get("max_position_embeddings") or 512)
    return found


def says_segments(folder: Path) -> bool:
    """Whether the tokenizer of a folder tells the segments of a pair: it does unless it names its outputs without."""
    try:
        names = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("model_input_names")
    except (OSError, ValueError):
        return True
    return not isinstance(names, list) or "token_type_ids" in names


def says_logits(folder: Path) -> bool:
    """Whether config.json wants the logits of a head with one class as they are, and not between 0 and 1, as the
    sentence-transformers library writes it."""
    try:
        said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the loader has read it already, or there is none
        return False
    newer = said.get("sentence_transformers")
    name = newer.get("activation_fn") if isinstance(newer, dict) else said.get("sbert_ce_default_activation_function")
    kind = str(name or "Sigmoid").rpartition(".")[2]
    if kind not in ("Sigmoid", "Identity"):
        raise fail(ArgumentError, "serve", f"{folder}: scores by {kind!r} are not computed", "Sigmoid and Identity are")
    return kind == "Identity"


class Scorer:
    """Pairs of texts as tokens and segments -> how well the second answers the first, by the head of an encoder.

    >>> from morpho.serve.hosting.embedder import Scorer
    >>> model = mo.models.create("bert-base", vocab_size=50, hidden_size=8, num_hidden_layers=1, labels=1,
    ...                          num_attention_heads=2, intermediate_size=16, max_position_embeddings=16,
    ...                          head="sequence")
    >>> score = Scorer(model, 16)
    >>> pair, other = ([1, 2, 3], [0, 0, 1]), ([4, 5], [0, 1])
    >>> score([pair, other]).tolist()[0] == score([pair]).tolist()[0]
    True
    """

    def __init__(self, network: Any, context: int, logits: bool = False, segments: bool = True) -> None:
        self.network, self.context, self.logits, self._lock = network, context, logits, threading.Lock()
        self._segments = segments and int(network.config.get("type_vocab_size") or 1) > 1
        rows, length = mo.Dim("rows", 1, MOST_ROWS), mo.Dim("length", 1, min(context, MOST_TOKENS))
        sizes = {0: rows, 1: length}
        self._call = mo.compile(self._scores, dynamic={name: sizes for name in ("ids", "mask", "types")})

    def _scores(self, ids: mo.Tensor, mask: mo.Tensor, types: mo.Tensor) -> mo.Tensor:
        hidden = self.network(ids, mask, types) if self._segments else self.network(ids, mask)
        found: mo.Tensor = self.network.classify(hidden, mask)[:, 0].astype(mo.float32)
        return found if self.logits else mo.sigmoid(found)

    def __call__(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> np.ndarray:
        found: list[np.ndarray] = []
        with self._lock, mo.no_grad():
            for batch in _batches([ids for ids, _ in pairs]):
                begun = sum(map(len, found))
                ids = np.zeros((len(batch), max(map(len, batch))), np.int64)
                mask, types = np.zeros(ids.shape, np.int64), np.zeros(ids.shape, np.int64)
                for place, (row, kinds) in enumerate(pairs[begun:begun + len(batch)]):
                    ids[place, :len(row)], mask[place, :len(row)], types[place, :len(row)] = row, 1, kinds
                found.append(self._call(ids, mask, types).numpy(copy=True))
        return np.concatenate(found)


class Embedder:
    """Rows of tokens -> rows of vectors, by one compiled function for all sizes.

    >>> from morpho.serve.hosting.embedder import Embedder
    >>> model = mo.models.create("bert-base", vocab_size=50, hidden_size=8, num_hidden_layers=1,
    ...                          num_attention_heads=2, intermediate_size=16, max_position_embeddings=16)
    >>> embed = Embedder(model, 16)
    >>> both, alone = embed([[1, 2, 3], [4, 5]]), embed([[4, 5]])
    >>> both.shape, both[1].tobytes() == alone[0].tobytes()
    ((2, 8), True)
    """

    def __init__(self, network: Any, context: int, pooling: str = "mean") -> None:
        self.network, self.pooling, self._lock = network, pooling, threading.Lock()
        longest = min(context, MOST_TOKENS)
        rows, length = mo.Dim("rows", 1, MOST_ROWS), mo.Dim("length", 1, longest)
        sizes = {0: rows, 1: length}
        self._call = mo.compile(self._vectors, dynamic={"ids": sizes, "mask": sizes})

    def _vectors(self, ids: mo.Tensor, mask: mo.Tensor) -> mo.Tensor:
        encode = getattr(self.network, "encode", self.network)  # T5's encoder is a part of it
        hidden = encode(ids, mask)
        if self.pooling == "cls":
            found = hidden[:, 0]
        else:
            kept = mask.astype(hidden.dtype)[:, :, None]
            found = (hidden * kept).sum(axis=1) / kept.sum(axis=1)
        length = mo.sqrt(mo.maximum((found * found).sum(axis=-1, keepdims=True), 1e-24))
        return found / length  # type: ignore[no-any-return]

    def __call__(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        found: list[np.ndarray] = []
        with self._lock, mo.no_grad():
            for batch in _batches(rows):
                ids = np.zeros((len(batch), max(map(len, batch))), np.int64)
                mask = np.zeros(ids.shape, np.int64)
                for place, row in enumerate(batch):
                    ids[place, :len(row)], mask[place, :len(row)] = row, 1
                found.append(self._call(ids, mask).numpy(copy=True).astype(np.float32))
        return np.concatenate(found)


def _batches(rows: Sequence[Sequence[int]]) -> list[list[Sequence[int]]]:
    """Rows in their order, in groups that are not too large with their padding."""
    found: list[list[Sequence[int]]] = []
    longest = 0
    for row in rows:
        longest = max(longest, len(row))
        if not found or len(found[-1]) >= MOST_ROWS or longest * (len(found[-1]) + 1) > MOST_TOKENS:
            found.append([])
            longest = len(row)
        found[-1].append(row)
    return found
