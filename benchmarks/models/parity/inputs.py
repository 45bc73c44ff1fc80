"""What a case computes on: weights and inputs that follow from names alone."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from tests.models.make_references import drawn

Arrays = dict[str, np.ndarray]


def inputs(name: str, kind: str, config: dict[str, Any]) -> Arrays:
    """The inputs of a case."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if kind == "clip":
        text, vision = config["text_config"], config["vision_config"]
        ids = rng.integers(4, text["vocab_size"], (3, 9))
        ids[0, 8] = ids[1, 5] = ids[2, 7] = text["eos_token_id"]
        size = vision["image_size"]
        return {"ids": ids, "images": rng.standard_normal((2, vision.get("num_channels", 3), size, size), np.float32)}
    if kind == "whisper":
        shape = (2, config["num_mel_bins"], 2 * config["max_source_positions"])
        return {"features": rng.standard_normal(shape, np.float32), "start": rng.integers(4, config["vocab_size"],
                                                                                         (2, 5))}
    length = 33 if "long" in name else 17
    ids = rng.integers(4, config["vocab_size"], (2, length))
    mask = np.ones_like(ids)
    if kind in ("masked", "classify", "tokens", "spans", "replaced", "bart", "bart classify",
                "bart spans"):  # on the right
        mask[1, 11:] = 0
        ids[1, 11:] = config.get("pad_token_id") or 0
    else:  # on the left, as decoders have it
        mask[0, :3] = 0
    if kind.startswith("bart"):
        ids[0, -1] = ids[1, 10] = 2
    if kind == "bart classify":  # as many ends in each text
        mask[:], ids[1, 11:] = 1, 7
        ids[1, 10], ids[1, -1] = 7, 2
    start = np.concatenate([np.full((2, 1), 2), ids[:, :4]], axis=1)
    return {"ids": ids, "mask": mask, "start": start}


def write_folder(place: Path, files: dict[str, str], shapes: dict[str, list[int]]) -> None:
    """A folder as the library writes it, with drawn weights."""
    mo.weights.save(place, {name: drawn(name, shape) for name, shape in shapes.items()})
    for name, text in files.items():
        (place / name).write_text(text)


def config_of(files: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files["config.json"])
    return found
