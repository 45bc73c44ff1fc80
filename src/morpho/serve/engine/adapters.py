"""LoRA adapters: small matrices beside a model's products, a different pair for every row of a batch.

An adapter adds (x A) B to the result of a product, with A (in, rank) and B (rank, out), which holds the scale. All
adapters of a bank lie side by side, and a row takes its own by number: one function serves any mix of them, none is
compiled again when one is added, and rows do not see each other. `read_adapter` reads files as PEFT writes them:
`adapter_config.json` and `adapter_model.safetensors`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.nn.module import Module
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


class AdapterBank:
    """Room for `most` adapters of a model, of rank `rank` at most.

    >>> from morpho.serve.engine.adapters import AdapterBank
    >>> model = mo.models.create("llama", vocab_size=20, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
    ...                          num_attention_heads=2, max_position_embeddings=64)
    >>> bank = AdapterBank(model, most=2, rank=4)
    >>> bank.add("mine", {"model.layers.0.self_attn.q_proj": (np.ones((4, 8), "f4"), np.ones((8, 4), "f4"))})
    0
    >>> bank.number("mine")
    0
    """

    def __init__(self, model: Module, most: int = 8, rank: int = 16) -> None:
        self.model, self.most, self.rank = model, most, rank
        self.names: dict[str, int] = {}
        self.digests: dict[str, str] = {}  # of the matrices, by name of the adapter
        self._products = {name: module for name, module in model.named_modules()
                          if hasattr(module, "in_features") and hasattr(module, "out_features")}
        self._held: dict[str, tuple[mo.State, mo.State]] = {}  # of the products that some adapter has matrices for

    def number(self, name: str) -> int:
        if name not in self.names:
            known = ", ".join(self.names) or "none"
            raise fail(ArgumentError, "serve", f"there is no adapter {name!r}", f"there are: {known}")
        return self.names[name]

    @property
    def products(self) -> frozenset[str]:
        """The products that some adapter changes: with another one functions are made anew."""
        return frozenset(self._held)

    def add(self, name: str, matrices: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> int:
        """Put in an adapter: by the name of a product its A (rank, in) and B (out, rank), which holds the scale."""
        if name in self.names or len(self.names) >= self.most:
            why = "is there already" if name in self.names else f"is one more than the {self.most} there is room for"
            raise fail(ArgumentError, "serve", f"adapter {name!r} {why}")
        found = {self._found(product): pair for product, pair in matrices.items()}
        for product, (a, b) in found.items():
            self._check(name, product, a, b)
        number = len(self.names)
        for product, (a, b) in found.items():
            module = self._products[product]
            if product not in self._held:
                sizes = ((self.most, module.in_features, self.rank), (self.most, self.rank, module.out_features))
                first, second = (mo.State(mo.zeros(size)) for size in sizes)
                self._held[product] = (first, second)
            for state, new in zip(self._held[product], (a.T, b.T), strict=True):
                whole = state.value.numpy(copy=True)
                whole[number, :new.shape[0], :new.shape[1]] = new
                state.value = mo.asarray(whole, copy=True)
        self.names[name] = number
        self.digests[name] = _digest(found)
        return number

    def load(self, name: str, folder: str | Path) -> int:
        """Put in an adapter from a folder as PEFT writes it."""
        return self.add(name, read_adapter(Path(folder)))

    def _found(self, product: str) -> str:
        for name in (product, product.removeprefix("transformer."), "model." + product):
            if name in self._products:
                return name
        raise fail(ArgumentError, "serve", f"the model has no product {product!r} for an adapter",
                   "its names are those of model.named_modules()")

    def _check(self, name: str, product: str, a: np.ndarray, b: np.ndarray) -> None:
        module: Any = self._products[product]
        wanted = ((a.shape[0], module.in_features), (module.out_features, a.shape[0]))
        if (a.shape, b.shape) != wanted or a.shape[0] > self.rank:
            raise fail(ArgumentError, "serve", f"adapter {name!r}: matrices {a.shape} and {b.shape} of {product} do "
                                               f"not fit ({module.in_features} -> {module.out_features})",
                       f"their rank is {self.rank} at most")

    @contextmanager
    def applied(self, numbers: mo.Tensor) -> Iterator[None]:
        """While this lasts, products of row b add adapter `numbers[b]`'s part."""
        handles = [self._products[product].register_forward_hook(_adding(first, second, numbers))
                   for product, (first, second) in self._held.items()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _digest(matrices: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> str:
    total = hashlib.sha256()
    for product in sorted(matrices):
        for matrix in matrices[product]:
            total.update(f"{product} {matrix.shape}".encode() + np.ascontiguousarray(matrix, np.float32).tobytes())
    return f"sha256:{total.hexdigest()}"


def _adding(first: mo.State, second: mo.State, numbers: mo.Tensor) -> Any:
    def add(module: Module, inputs: Any, result: mo.Tensor) -> mo.Tensor:
        x = inputs[0].astype(mo.float32)  # (rows, n, in)
        a, b = (mo.take(state.value, numbers, axis=0) for state in (first, second))  # (rows, in, rank), ...
        return result + mo.matmul(mo.matmul(x, a), b).astype(result.dtype)
    return add
