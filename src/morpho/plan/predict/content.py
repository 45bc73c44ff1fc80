"""A model or a cluster by its content: plain data without names, and its hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from morpho.plan.cluster.cluster import Cluster
from morpho.plan.model.card import ModelCard


def content_of(described: ModelCard | Cluster) -> dict[str, Any]:
    """All that matters for a plan as plain data: not what the whole is called, nor notes for the reader."""
    data = _plain(asdict(described))
    return {key: value for key, value in data.items() if key not in ("name", "notes")}


def _plain(value: Any) -> Any:
    """Lists for tuples, and one spelling for equal numbers."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def content_hash(described: ModelCard | Cluster) -> str:
    """SHA-256 of the content; equal for equal models and clusters, whatever they are called.

    >>> from morpho.plan import Cluster, Node
    >>> one, two = (Cluster((Node("a", 1, 1.0, {"f32": 1.0}),), ((0.0,),), ((0.0,),), name) for name in "xy")
    >>> content_hash(one) == content_hash(two)
    True
    """
    text = json.dumps(content_of(described), sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
