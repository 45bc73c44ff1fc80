"""Commitments: what a server writes beside an answer so that anybody with the weights can replay it exactly.

Each token has a record of 6 bytes: the bits of its float32 log-probability, and two bytes of a digest of the token, its
position, the row of logits, the distribution after temperature, cuts and penalties, and the random number that was
drawn. Every 32 tokens a link of 24 bytes hashes the whole digests together with the link before; the first link begins
with the header (weights, prompt, sampling). 32 tokens take 288 bytes of base64.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from morpho.nn.module import Module
from morpho.serve.engine.request import Request, SamplingParams
from morpho.serve.engine.sampler import logprobs_of
from morpho.tensor.state.variable import Variable

FORMAT = "morpho commitment 1"
BLOCK, RECORD, LINK = 32, 6, 24  # tokens of a link; bytes
# Of what a request asks to be told, not of how its tokens are chosen.
_TELLING = ("logprobs", "prompt_logprobs", "processed_logprobs", "n", "show_specials", "commitment", "max_tokens")


def canonical(value: Any) -> bytes:
    """JSON in one form only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def weights_digest(model: Module, values: Sequence[Any] | None = None) -> str:
    """SHA-256 of all parameters and buffers with their names, dtypes and shapes, and the kinds of their modules.

    Args:
        model: The module whose names are hashed.
        values: Tensors to hash instead of the module's own, in the order of its variables.

    >>> from morpho.serve.engine.commitment import weights_digest
    >>> weights_digest(mo.nn.ReLU())[:14]
    'sha256:e3b0c44'
    """
    total = hashlib.sha256()
    kinds = {name: type(module).__name__ for name, module in model.named_modules()}
    for number, (name, variable) in enumerate(model._variables(Variable)):
        tensor = variable.state.value if values is None else values[number]
        array = np.ascontiguousarray(tensor.numpy())
        kind = kinds.get(name.rpartition(".")[0], "")
        total.update(canonical([name, kind, str(tensor.dtype), list(array.shape)]))
        total.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return f"sha256:{total.hexdigest()}"


def sampling_of(params: SamplingParams) -> dict[str, Any]:
    """How tokens are chosen, as JSON: parameters that keep their first values are left out."""
    usual, plain = SamplingParams(), {}
    for field in fields(SamplingParams):
        value = getattr(params, field.name)
        if field.name in _TELLING:
            continue
        if field.name not in ("seed", "temperature") and value == getattr(usual, field.name):
            continue
        if isinstance(value, Mapping):
            value = {str(key): value[key] for key in sorted(value)}
        elif field.name == "grammar":
            value = {"kind": value.kind, "source": value.source}
        elif isinstance(value, tuple):
            value = [*value]
        plain[field.name] = value
    return plain


def header_of(request: Request, index: int, most: int, stops: Sequence[int], place: Mapping[str, Any]
              ) -> dict[str, Any]:
    """Subject of a commitment: `place` says weights, adapter, precision and device."""
    return {"format": FORMAT, **place, "prompt": [*request.prompt], "sampling": sampling_of(request.params),
            "index": index, "most": most, "stops": sorted(stops)}


def digest_of(position: int, token: int, row: np.ndarray, scores: np.ndarray, log_probability: np.float32,
              draw: float, min_p: float) -> bytes:
    """The digest of one token: `row` are the model's logits, `scores` what the token was drawn
    from, but for `min_p`."""
    number = struct.pack("<IIfdd", position, token, log_probability, draw, min_p)
    return hashlib.sha256(number + _hashed(row, np.float32) + _hashed(scores, np.float64)).digest()


def _hashed(values: np.ndarray, kind: type) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(values, kind).data).digest()


def record_of(log_probability: np.float32, digest: bytes) -> bytes:
    return struct.pack("<f", log_probability) + digest[:RECORD - 4]


def link_of(before: bytes, digests: Sequence[bytes], finish: str = "") -> bytes:
    """The link of a block; the last one also holds how the text ended."""
    return hashlib.sha256(before + b"".join(digests) + finish.encode()).digest()[:LINK]


def drawn_log_probability(row: np.ndarray, token: int, params: SamplingParams) -> np.float32:
    """Log-probability of a token after temperature and `top_k`; at temperature 0 before both. A token that other cuts
    or a grammar left over may have none there: its own is taken before them too."""
    if params.temperature > 0:
        value = np.float32(logprobs_of(row, token, 0, params)[0])
        if np.isfinite(value):
            return value
    return np.float32(logprobs_of(row, token, 0)[0])


def draws_of(params: SamplingParams, index: int) -> np.random.Generator | None:
    """The random numbers of a text, one for each token; None at temperature 0."""
    if params.temperature == 0:
        return None
    assert params.seed is not None
    return np.random.default_rng(params.seed if index == 0 else [params.seed, index])


class Chain:
    """A commitment as it grows with a text; `header` is asked for at the first token.

    >>> from morpho.serve.engine.commitment import Chain
    >>> from morpho.serve.engine.request import SamplingParams
    >>> chain = Chain(SamplingParams(temperature=0.0), 0, lambda: {"format": "x"})
    >>> chain.add(np.zeros(4, np.float32), np.zeros(4), 2)
    >>> chain.document("length")["tokens"]
    [2]
    """

    def __init__(self, params: SamplingParams, index: int, header: Callable[[], dict[str, Any]]) -> None:
        self.params, self._header_of = params, header
        self.header: dict[str, Any] | None = None
        self.tokens: list[int] = []
        self._draws = draws_of(params, index)
        self._parts: list[bytes] = []
        self._digests: list[bytes] = []  # of the block that is not full
        self._link = b""

    def add(self, row: np.ndarray, scores: np.ndarray, token: int) -> None:
        """Commit to a token that was drawn."""
        self._begin()
        value = drawn_log_probability(row, token, self.params)
        draw = 0.0 if self._draws is None else self._draws.random()
        digest = digest_of(len(self.tokens), token, row, scores, value, draw, self.params.min_p)
        if len(self._digests) == BLOCK:
            self._close("")
        self._digests.append(digest)
        self._parts.append(record_of(value, digest))
        self.tokens.append(token)

    def _begin(self) -> None:
        if self.header is None:
            self.header = self._header_of()
            self._link = hashlib.sha256(canonical(self.header)).digest()

    def _close(self, finish: str) -> None:
        self._link = link_of(self._link, self._digests, finish)
        self._parts.append(self._link)
        self._digests = []

    def document(self, finish: str) -> dict[str, Any]:
        """The whole commitment, as JSON; the text has ended."""
        self._begin()
        self._close(finish)
        assert self.header is not None
        return sealed({**self.header, "tokens": self.tokens, "finish": finish,
                       "records": base64.b64encode(b"".join(self._parts)).decode()})


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """With a hash of all the rest, by which a damaged file is told from a lie."""
    rest = {name: value for name, value in document.items() if name not in ("seal", "text")}
    return {**rest, **({"text": document["text"]} if "text" in document else {}),
            "seal": hashlib.sha256(canonical(rest)).hexdigest()}


def place_of(model: Module, values: Sequence[Any] | None, place: Any, autocast: Any) -> dict[str, Any]:
    """Weights, precision and device of an engine."""
    dtype = next((str(p.dtype) for p in model.parameters()), "float32")
    return {"weights": weights_digest(model, values), "dtype": dtype,
            "autocast": None if autocast is None else str(autocast), "device": str(place).partition(":")[0]}
