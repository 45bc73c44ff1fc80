"""Small JSON files beside a model's weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from morpho.base.errors import fail
from morpho.weights.errors import FileFault
from morpho.weights.scanner import without_duplicates

MOST_CONFIG_BYTES = 1 << 20


def read_json(file: Path) -> dict[str, Any] | None:
    """The object of a small JSON file, without keys that stand there twice; None where there is no file."""
    if not file.is_file():
        return None
    try:
        if file.stat().st_size > MOST_CONFIG_BYTES:
            raise ValueError(f"it has more than {MOST_CONFIG_BYTES} bytes")
        found = json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=without_duplicates)
        if not isinstance(found, dict):
            raise ValueError("it is not an object")
    except OSError as error:
        raise fail(FileFault, "models.load", f"{file} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise fail(FileFault, "models.load", f"{file} is not a configuration: {error}",
                   "it is JSON, as published with the model; fetch it again") from None
    return found
