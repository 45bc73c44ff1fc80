"""Vectors of texts from an encoder: the mean of its last layer over a text's tokens (or the first token's, where the
folder says so), of length 1. Each vector has the bits that it has alone, whatever it is computed together with."""

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
    """What `1_Pooling/config.json` says, as the sentence-transformers library writes it; without it, the mean."""
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
    """The most tokens of a text that an encoder takes; RoBERTa counts from the number after padding's."""
    config = network.config
    found = int(config.get("max_position_embeddings") or 512)
    return found - config["pad_token_id"] - 1 if config.get("model_type") == "roberta" else found


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
