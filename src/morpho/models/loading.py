"""Models from files: a folder with config.json and safetensors as the model hubs have them, or a GGUF file."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models import names
from morpho.models.registry import family, from_config
from morpho.models.registry import names as names_of_models
from morpho.nn import init
from morpho.nn.layers.linear import Embedding, Linear
from morpho.nn.layers.quantised import QuantisedEmbedding, QuantisedLinear
from morpho.nn.module import Module
from morpho.weights import FileFault, GgufFile, MissingFile, NameFault, load_gguf, load_tokenizer, match
from morpho.weights import load as load_weights
from morpho.weights.atomic import atomic_file
from morpho.weights.pull import MODELS

LOG = logging.getLogger("morpho")
MOST_CONFIG_BYTES = 1 << 20
SHIPPED = Path(__file__).parent / "shipped"  # the small model that comes with Morpho


def load(path: str | os.PathLike[str], *, dtype: Any = mo.float32, packed: bool = True) -> Any:
    """A model with the weights of a folder (config.json, and model.safetensors or shards with their index) of GPT-2,
    BERT, T5, Llama or Morpho's own form, or of a GGUF file of Llama form; in evaluation mode.

    Weights become `dtype`. Those that a GGUF file holds in blocks stay packed unless `packed` is off. Names that are
    missing, left over or of another shape are one error that lists them.

    >>> import json, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    >>> mo.models.save(folder, model)
    >>> mo.models.load(folder).config == model.config
    True
    """
    return _loaded(path, dtype, packed)[0]


def load_with_tokenizer(path: str | os.PathLike[str], *, dtype: Any = mo.float32,
                        packed: bool = True) -> tuple[Any, Any]:
    """`load`, and the tokenizer that lies beside the weights (tokenizer.json) or in the GGUF file."""
    model, tokenizer = _loaded(path, dtype, packed)
    return model, tokenizer()


def _loaded(path: str | os.PathLike[str], dtype: Any, packed: bool) -> tuple[Any, Any]:
    place = Path(path)
    if place.is_dir():
        model = _from_folder(place, dtype)
        return model, lambda: _tokenizer(place / "tokenizer.json", model)
    if not place.exists():
        raise fail(MissingFile, "models.load", f"there is no {place}", _elsewhere(str(path)))
    if place.suffix.lower() != ".gguf":
        raise fail(ArgumentError, "models.load", f"{place.name} is neither a folder nor a GGUF file",
                   "weights alone do not say what model they are of: give the folder with config.json")
    file = load_gguf(place)
    return _from_gguf(file, dtype, packed), lambda: file.tokenizer


def save(path: str | os.PathLike[str], model: Any, **others: Any) -> None:
    """Write a model to a folder: config.json, and model.safetensors with the names of its `state_dict`, which are the
    published ones; `others` go to `mo.weights.save`."""
    place = Path(path)
    if not hasattr(model, "config"):
        raise fail(ArgumentError, "models.save", f"{type(model).__name__} is no model of a family: it has no config",
                   "save its weights with mo.weights.save(path, model.state_dict())")
    mo.weights.save(place, model.state_dict(), **others)
    with atomic_file(place / "config.json") as file:
        file.write(json.dumps(model.config, indent=1).encode())


def _elsewhere(name: str) -> str:
    """What to do where there is no folder or file of this name."""
    if name in MODELS:
        return f"fetch it: morpho models pull {name}, then load mo.weights.model_path({name!r})"
    if name in names_of_models():
        return f"mo.models.create({name!r}) makes one with random weights; trained ones are in a folder or a GGUF file"
    return "give a folder with config.json, or a GGUF file"


# -- folders -----------------------------------------------------------------------------------------------------------
def _from_folder(folder: Path, dtype: Any) -> Any:
    """What is said first is what is wrong with the configuration, then with the weights, then where they differ."""
    file = folder / "config.json"
    config = _read_config(file)
    with _naming(file):
        family(config).checked_config(config)
    weights = load_weights(folder)
    if config.get("model_type") == "bert":  # the file says which parts there are
        config = {**config, "masked_lm": any(name.startswith("cls.predictions") for name in weights),
                  "pooler": any("pooler." in name for name in weights)}
    _check_depth(config, len(weights))
    with init.undrawn(), _naming(file):
        model = from_config(config, dtype=dtype)
    table = names.TABLES.get(model.model_type)
    try:
        found = match(weights, _wanted(model), table(model.config) if table else ())
    except NameFault as error:
        raise NameFault(f"{error} Hint: {_sizes(config, model)}.") from None
    return _filled(model, found)


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Errors about a configuration name the file it comes from."""
    try:
        yield
    except ArgumentError as error:
        if str(error).startswith(("[settings]", "[isa]")):  # of the environment, not of the file
            raise
        raise ArgumentError(str(error).replace("] ", f"] {file}: ", 1)) from None


def _sizes(config: Mapping[str, Any], model: Any) -> str:
    """What the configuration says of the shapes, for weights of other ones."""
    kind = model.config_class
    given = {kind.renamed.get(name, name) for name in config}
    numbers = {name: value for name, value in model.config.items() if isinstance(value, int) and value > 1
               and not name.endswith("_id")}
    said = ", ".join(f"{name}={value}" for name, value in numbers.items() if name in given)
    rest = ", ".join(f"{name} ({value} then)" for name, value in numbers.items() if name not in given)
    return f"config.json says {said or 'no sizes'}" + (f", and leaves out {rest}" if rest else "")


def _tokenizer(file: Path, model: Any) -> Any:
    if not file.exists():
        raise fail(MissingFile, "models.load", f"{file.parent} has no tokenizer.json",
                   "put it beside config.json (vocab.json and merges.txt alone are not read), or use mo.models.load, "
                   "which needs none")
    found, words = load_tokenizer(file), model.config.get("vocab_size")
    if words is not None and found.vocab_size > words:
        LOG.warning("%s has %d tokens and the model %d: those beyond are errors where they occur", file,
                    found.vocab_size, words)
    return found


def _read_config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise fail(MissingFile, "models.load", f"{file.parent} has no config.json",
                   "give the folder of a model as the hubs have them, with config.json and model.safetensors")
    try:
        if file.stat().st_size > MOST_CONFIG_BYTES:
            raise ValueError(f"it has more than {MOST_CONFIG_BYTES} bytes")
        found = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it is not an object")
    except (ValueError, RecursionError) as error:
        raise fail(FileFault, "models.load", f"{file} is not a configuration: {error}",
                   "it is JSON, as published with the model; fetch it again") from None
    return found


def _check_depth(config: Mapping[str, Any], tensors: int) -> None:
    """A model of more layers than the file has tensors is not begun."""
    for name in ("n_layer", "num_hidden_layers", "num_layers", "num_decoder_layers", "layers"):
        found = config.get(name)
        counts = found if isinstance(found, list) else [found]
        if any(isinstance(count, int) and count > tensors for count in counts):
            raise fail(FileFault, "models.load", f"config.json says {name}={found}, and there are {tensors} tensors")


# -- GGUF --------------------------------------------------------------------------------------------------------------
def _from_gguf(file: GgufFile, dtype: Any, packed: bool) -> Any:
    sizes = file.config
    plain = sizes.rope_dimensions == sizes.head_width and "rope_freqs.weight" not in file.tensors
    if sizes.architecture != "llama" or not plain:
        raise fail(ArgumentError, "models.load", f"{file.path.name} is a {sizes.architecture!r} model"
                   + ("" if plain else " with rotary positions of its own") + ", which cannot be built",
                   "Llama form with plain rotary positions can")
    _check_depth({"layers": sizes.layers}, len(file.tensors))
    with init.undrawn():
        model = from_config({
            "model_type": "llama", "vocab_size": sizes.vocab_size, "hidden_size": sizes.width,
            "intermediate_size": sizes.feed_forward, "num_hidden_layers": sizes.layers, "head_dim": sizes.head_width,
            "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.kv_heads,
            "max_position_embeddings": sizes.context, "rms_norm_eps": sizes.norm_eps or 1e-5,
            "rope_theta": sizes.rope_theta or 10000.0, "tie_word_embeddings": sizes.tied,
            "attention_bias": "blk.0.attn_q.bias" in file.tensors, "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
            "eos_token_id": file.metadata.get("tokenizer.ggml.eos_token_id")}, dtype=dtype)
    found = match(file.tensors, _wanted(model), names.gguf_llama(sizes.heads, sizes.kv_heads))
    if not packed:
        found = {name: each.dequantise() if isinstance(each, mo.Quantised) else each for name, each in found.items()}
    return _filled(model, found)


# -- putting weights in ------------------------------------------------------------------------------------------------
def _wanted(model: Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}  # type: ignore[misc]


def _filled(model: Any, found: Mapping[str, Any]) -> Any:
    """The model with these weights; layers whose weight is packed are replaced by packed ones."""
    plain = {name: weight for name, weight in found.items() if not isinstance(weight, mo.Quantised)}
    for name, weight in found.items():
        if isinstance(weight, mo.Quantised):
            _pack(model, name.removesuffix(".weight"), weight, plain)
    model.load_state_dict(plain)
    return model.eval()


def _pack(model: Module, name: str, weight: mo.Quantised, plain: dict[str, Any]) -> None:
    *parents, last = name.split(".")
    parent: Any = model
    for part in parents:
        parent = getattr(parent, part)
    layer = getattr(parent, last)
    # Memory of its own: compiled functions pack what they own, and borrow a file's bytes anew at every call.
    weight = mo.Quantised.of_tensor(mo.asarray(weight.data, copy=True).realise(), weight.shape, weight.kind)
    if isinstance(layer, Embedding):
        setattr(parent, last, QuantisedEmbedding(weight, layer.weight.dtype))
    elif isinstance(layer, Linear):
        setattr(parent, last, QuantisedLinear(weight, plain.get(name + ".bias")))
    else:
        plain[name + ".weight"] = weight.dequantise()
