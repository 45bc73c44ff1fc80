"""LoRA adapters as PEFT writes them: `adapter_config.json` and `adapter_model.safetensors`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, fail
from morpho.weights.files import load

Pairs = dict[str, tuple[np.ndarray, np.ndarray]]  # by the name of a product: A (rank, in) and B (rank's, scaled)
MOST_RANK = 1024
USED = {"r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "peft_type", "init_lora_weights", "bias"}
# Of training, of who wrote the file, or said by the names and shapes of the matrices.
IRRELEVANT = {"base_model_name_or_path", "auto_mapping", "revision", "inference_mode", "task_type", "target_modules",
              "exclude_modules", "layers_to_transform", "layers_pattern", "fan_in_fan_out", "lora_dropout",
              "peft_version", "megatron_core", "loftq_config", "eva_config", "runtime_config", "qalora_group_size"}
FIRST_VALUES = (None, True, False, "gaussian", "eva", "orthogonal")  # others change the model's own weights


def read_adapter(folder: Path) -> Pairs:
    """The matrices of an adapter; what its files ask for and is not computed is an error that names it."""
    file = folder / "adapter_config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise fail(ArgumentError, "serve", f"{file} cannot be read: {error}") from None
    _check(file, config)
    found: dict[str, dict[str, np.ndarray]] = {}
    for key, tensor in load(folder / "adapter_model.safetensors").items():
        product, pair, kind = key.removesuffix(".weight").rpartition(".lora_")
        if not pair or kind not in ("A", "B"):
            raise fail(ArgumentError, "serve", f"{folder}: {key} is not a matrix of LoRA")
        found.setdefault(product.removeprefix("base_model.model."), {})[kind] = tensor.numpy().astype(np.float32)
    return {product: (pair["A"], _scale(file, config, product, pair) * pair["B"]) for product, pair in found.items()}


def _check(file: Path, config: Any) -> None:
    if not isinstance(config, dict):
        raise fail(ArgumentError, "serve", f"{file} holds no object of settings")
    for name in ("r", "lora_alpha"):
        if not isinstance(config.get(name, config.get("r")), int | float) or config.get("r", 0) < 1:
            raise fail(ArgumentError, "serve", f"{file}: r={config.get('r')!r} and "
                                               f"lora_alpha={config.get('lora_alpha')!r} are not numbers of an adapter")
    said = {"peft_type": config.get("peft_type", "LORA") == "LORA", "bias": config.get("bias", "none") == "none",
            "init_lora_weights": config.get("init_lora_weights") in FIRST_VALUES,
            **{name: not value for name, value in config.items() if name not in USED | IRRELEVANT}}
    wrong = next((name for name, right in said.items() if not right), None)
    if wrong is not None:
        raise fail(ArgumentError, "serve", f"{file}: {wrong}={str(config[wrong])[:80]} is not served",
                   "merge the adapter into the model")


def _scale(file: Path, config: Mapping[str, Any], product: str, pair: Mapping[str, np.ndarray]) -> float:
    """Factor of B; products may have a rank and an alpha of their own."""
    if len(pair) != 2:
        raise fail(ArgumentError, "serve", f"{file.parent}: {product} has one of two matrices only")
    rank = _said(file, config, "rank_pattern", product, config["r"])
    if rank != len(pair["A"]):
        raise fail(ArgumentError, "serve", f"{file} says rank {rank} of {product}, and its matrix has {len(pair['A'])}")
    alpha = _said(file, config, "alpha_pattern", product, config.get("lora_alpha", config["r"]))
    return float(alpha / rank ** 0.5 if config.get("use_rslora") else alpha / rank)


def _said(file: Path, config: Mapping[str, Any], name: str, product: str, usual: Any) -> Any:
    """Of the product itself, or of the first expression that its name ends with."""
    pattern = config.get(name) or {}
    try:
        found = next((value for key, value in pattern.items() if re.match(rf"(.*\.)?({key})$", product)), usual)
    except (AttributeError, re.error):
        found = None
    if not isinstance(found, int | float) or found <= 0:
        raise fail(ArgumentError, "serve", f"{file}: {name}={str(pattern)[:80]} says no number of {product}")
    return found


def rank_of(folder: Path) -> int:
    """The largest rank of an adapter; what is wrong with its files is told when it is loaded."""
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        found = [config.get("r"), *(config.get("rank_pattern") or {}).values()]
    except (OSError, ValueError, AttributeError):
        return 1
    return min(max([1, *(each for each in found if isinstance(each, int))]), MOST_RANK)
