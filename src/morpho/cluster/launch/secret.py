"""A shared secret: who works together shows that it knows it, before a weight or a token moves, and never says it."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import numpy as np

from morpho.base.errors import ArgumentError, GroupError, fail
from morpho.runtime.groups.group import Group

TEXT_BYTES = 64


def proof(secret: bytes, nonce: str, name: str) -> str:
    """That somebody of this name knows the secret; `nonce` is of this run alone.

    >>> proof(b"letters", "run", "a") == proof(b"letters", "run", "a"), len(proof(b"letters", "run", "b"))
    (True, 64)
    """
    return hmac.new(secret, f"{nonce} {name}".encode(), hashlib.sha256).hexdigest()


def read(file: Path) -> bytes:
    """The secret in a file; nothing where there is none.

    >>> read(Path("nowhere"))
    b''
    """
    return file.read_bytes().strip() if file.is_file() else b""


def check_file(file: Path) -> None:
    """An error where there is no secret in a file that was named.

    >>> check_file(Path("nowhere"))
    Traceback (most recent call last):
    ...
    morpho.base.errors.ArgumentError: [hosts] the secret nowhere is not there, or empty...
    """
    if not read(file):
        raise fail(ArgumentError, "hosts", f"the secret {file} is not there, or empty",
                   "write random letters into it, on every host, for you alone to read (chmod 600)")


def check_ranks(group: Group, file: Path, nonce: str, version: str) -> None:
    """An error on all ranks where one of them does not know the secret that lies in this file on each host, or has
    another Morpho. All ranks come here together."""
    secret = read(file)
    shown = _from_all(group, proof(secret, nonce, str(group.rank)))
    if not secret:
        raise fail(GroupError, "launch", f"the secret {file} is not there, or empty, on the host of rank {group.rank}",
                   "every host has the same one, which only its user can read", line="")
    for rank, text in enumerate(shown):
        if not hmac.compare_digest(text.encode(), proof(secret, nonce, str(rank)).encode()):
            raise fail(GroupError, "launch", f"rank {rank} does not know the shared secret of rank {group.rank}, "
                       f"{file}", "every host has the same one, which only its user can read", line="")
    for rank, other in enumerate(_from_all(group, version)):
        if other != version:
            raise fail(GroupError, "launch", f"rank {rank} has Morpho {other} and rank {group.rank} {version}: install "
                       "the same one everywhere", line="")


def _from_all(group: Group, text: str) -> list[str]:
    """A short ASCII text of every rank."""
    mine, found = np.zeros(TEXT_BYTES, np.uint8), np.empty((group.size, TEXT_BYTES), np.uint8)
    raw = text.encode()[:TEXT_BYTES]
    mine[:len(raw)] = np.frombuffer(raw, np.uint8)
    group.all_gather(mine, found)
    return [row.tobytes().rstrip(b"\0").decode("ascii", "replace") for row in found]
