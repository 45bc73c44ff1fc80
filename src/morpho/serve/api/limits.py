"""How much a client may ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of one request; the engine has its own of the queue.

    >>> from morpho.serve.api.limits import Limits
    >>> Limits().body_bytes
    8388608
    """

    body_bytes: int = 8 << 20
    messages: int = 1024
    tools: int = 128
    prompts: int = 64  # of one request for completions
    inputs: int = 2048  # of one request for embeddings
    choices: int = 16
    stops: int = 16
    stop_characters: int = 256
    biases: int = 1024
    schema_bytes: int = 64 << 10
    max_tokens: int = 1 << 20
    tokens: int = 1 << 18  # of a text for /tokenize
    timeout_s: float = 600.0  # of one request, waiting included
    body_timeout_s: float = 30.0  # from the headers to the end of the body
    header_timeout_s: float = 15.0  # from the connection to the end of the headers
