"""How workers agree: everybody says what it knows, one decides, all go on in the next epoch.

Each meeting is on a communicator of its own (the first one, or what is left after a death), so that nothing sent before
reaches anybody after it.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import morpho
from morpho.base import distribution
from morpho.cluster.launch.secret import proof


def say_all(mpi: Any, comm: Any, data: Any) -> list[Any]:
    """JSON of every rank to every rank."""
    raw = np.frombuffer(json.dumps(data).encode(), np.uint8)
    sizes = np.empty(comm.Get_size(), np.int64)
    comm.Allgather([np.array([raw.size], np.int64), mpi.INT64_T], [sizes, mpi.INT64_T])
    out = np.empty(int(sizes.sum()), np.uint8)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    comm.Allgatherv([raw, mpi.BYTE], [out, (sizes.tolist(), starts.tolist()), mpi.BYTE])
    return [json.loads(out[start:start + size].tobytes()) for start, size in zip(starts, sizes, strict=True)]


def digest_of(place: str) -> str:
    """Digest of a model without reading its weights: configuration, names, sizes and headers of the files; an
    empty text where there is nothing."""
    path = Path(place)
    files = sorted(path.iterdir()) if path.is_dir() else [path] if path.is_file() else []
    wanted = [file for file in files if file.suffix in (".json", ".safetensors", ".gguf") and file.is_file()]
    if not wanted:
        return ""
    found = hashlib.sha256()
    for file in wanted:
        with open(file, "rb") as opened:
            found.update(f"{file.name} {file.stat().st_size} ".encode() + opened.read(1 << 16))
    return found.hexdigest()


def stranger(said: Sequence[dict[str, Any]], secret: bytes, nonce: str) -> str:
    """Name the workers that do not belong here, in a sentence; empty if all do."""
    for each in said:
        if not hmac.compare_digest(each["proof"], proof(secret, nonce, each["node"])):
            return f"the worker on {each['node']} does not know the shared secret"
    for each in said:
        if each["version"] != said[0]["version"]:
            return (f"{each['node']} has Morpho {each['version']} and {said[0]['node']} {said[0]['version']}: install "
                    "the same one everywhere")
    return ""


def other_model(said: Sequence[dict[str, Any]], ship: bool = False) -> str:
    """Name the workers without the model, or with another one, in a sentence; empty where all have the same, or those
    that have none can get it from one that has all of it.

    >>> rows = [{"node": "a", "model": "m", "digest": "1"}, {"node": "b", "model": "m", "digest": ""}]
    >>> other_model(rows)
    'there is no model at m on b'
    >>> other_model([{**rows[0], "lacks": False}, {**rows[1], "lacks": True}], ship=True)
    ''
    """
    for each in said:
        if not each["digest"] and not ship:
            return f"there is no model at {each['model']} on {each['node']}"
    known = [each for each in said if each["digest"]]
    for each in known:
        if each["digest"] != known[0]["digest"]:
            return f"the model at {each['model']} on {each['node']} is not the one on {known[0]['node']}"
    if ship and all(each["lacks"] for each in said):
        return f"none of {', '.join(each['node'] for each in said)} has the whole model, of which the others get parts"
    return ""


@functools.cache
def version() -> str:
    """Of this Morpho: what is installed, and in short what its files are, since checkouts of one version may differ.

    >>> len(version().split("+")[-1])
    8
    """
    root = Path(morpho.__file__).parent
    sizes = sorted(f"{file.relative_to(root)} {file.stat().st_size}" for file in root.rglob("*.py"))
    return f"{distribution.version()}+{hashlib.sha256(chr(10).join(sizes).encode()).hexdigest()[:8]}"
