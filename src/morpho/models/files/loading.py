"""Models from files: a folder with config.json and safetensors as the model hubs have them, or a GGUF file."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail, sentence
from morpho.base.python.ahead import Ahead
from morpho.models.base import LanguageModel
from morpho.models.family import Family
from morpho.models.files.filling import check_depth, filled, kept, wanted
from morpho.models.files.gguf import from_gguf
from morpho.models.files.json_file import read_json
from morpho.models.quantization_keys import block_size, integers_of
from morpho.models.registry import family, record
from morpho.models.registry import names as names_of_models
from morpho.models.rounding import check_activations, round_activations
from morpho.models.text.generation_keys import GENERATION, Defaults
from morpho.nn import init
from morpho.nn.containers import Identity
from morpho.weights import FileFault, MissingFile, NameFault, load_gguf, load_tokenizer, match
from morpho.weights import load as load_weights
from morpho.weights.atomic import atomic_file
from morpho.weights.integers import IntegerWeights, with_integers
from morpho.weights.keys import Key, KeyTable
from morpho.weights.mapping import Rule, choose, rename
from morpho.weights.pull import MODELS
from morpho.weights.scaled import ScaledWeights, with_scales

LOG = logging.getLogger("morpho")
PREFIXES = ("", "transformer.", "bert.", "roberta.", "distilbert.")  # before an embedding's name in some files
SHIPPED = Path(__file__).parent.parent / "shipped"  # the small model that comes with Morpho


def load(path: str | os.PathLike[str], *, dtype: Any = mo.float32, packed: bool = True,
         ignore: Collection[str] = (), activations: str = "exact") -> Any:
    """A model with the weights of a folder (config.json, and model.safetensors or shards with their index) of GPT-2,
    BERT, T5, Llama, another family or Morpho's own form, or of a GGUF file; in evaluation mode.

    Weights become `dtype`. Those that a GGUF file holds in blocks, and floats of 8 bits in a folder with the scales
    beside them, stay packed unless `packed` is off. Names that are missing, left over or of another shape are one error
    that lists them. Every setting in the files is used, known not to matter, or an error that names it; `ignore` lists
    settings to go on without. With `activations="int8"` linear layers multiply packed weights with activations rounded
    to 8 bits (docs/numerics.md, rule 6): faster, for use alone.

    >>> import json, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    >>> mo.models.save(folder, model)
    >>> mo.models.load(folder).config == model.config
    True
    """
    return _rounded(_loaded(path, dtype, packed, ignore)[0], activations)


def load_with_tokenizer(path: str | os.PathLike[str], *, dtype: Any = mo.float32, packed: bool = True,
                        ignore: Collection[str] = (), activations: str = "exact") -> tuple[Any, Any]:
    """`load`, and the tokenizer that lies beside the weights (tokenizer.json) or in the GGUF file.

    >>> model, tokenizer = mo.models.load_with_tokenizer(mo.models.SHIPPED)
    >>> tokenizer.decode(tokenizer.encode("In the beginning"))
    'In the beginning'
    """
    model, tokenizer = _loaded(path, dtype, packed, ignore, reads_tokenizer=True)
    return _rounded(model, activations), tokenizer()


def _rounded(model: Any, activations: str) -> Any:
    if check_activations(activations) == "int8" and not round_activations(model):
        raise fail(ArgumentError, "models.load", f"{type(model).__name__} has no linear layer whose rows are whole "
                                                 "blocks of 32", "leave out activations")
    return model


def load_part(path: str | os.PathLike[str], keep: Callable[[Any], None], *, dtype: Any = mo.float32,
              packed: bool = True, ignore: Collection[str] = ()) -> Any:
    """A part of a model: `keep` takes modules out of it before weights are read, and only those of the rest are."""
    return _loaded(path, dtype, packed, ignore, keep)[0]


def outline(path: str | os.PathLike[str], ignore: Collection[str] = ()) -> tuple[Any, Callable[[], Any]]:
    """A model with its configuration and defaults but without weights, which are not read, and what reads the
    tokenizer."""
    def strip(model: Any) -> None:
        for name, _ in [*model.named_children()]:
            setattr(model, name, Identity())

    return _loaded(path, mo.float32, True, ignore, strip)


def _loaded(path: str | os.PathLike[str], dtype: Any, packed: bool, ignore: Collection[str],
            keep: Callable[[Any], None] | None = None, reads_tokenizer: bool = False) -> tuple[Any, Any]:
    if isinstance(ignore, str) or not all(isinstance(name, str) for name in ignore):
        raise fail(ArgumentError, "models.load", f"ignore={ignore!r} is not a list of names")
    place = Path(path)
    if place.is_dir():
        model = _from_folder(place, dtype, ignore, keep, packed)
        return model, lambda: _tokenizer(place / "tokenizer.json", model, ignore)
    if not place.exists():
        raise fail(MissingFile, "models.load", f"there is no {place}", _elsewhere(str(path)))
    if place.suffix.lower() != ".gguf":
        raise fail(ArgumentError, "models.load", f"{place.name} is neither a folder nor a GGUF file",
                   "weights alone do not say what model they are of: give the folder with config.json")
    file = load_gguf(place, ignore=ignore)
    ahead = Ahead(lambda: file.tokenizer) if reads_tokenizer else None  # while weights are copied
    model = from_gguf(file, dtype, packed, keep)
    return model, lambda: _settled(ahead) and file.tokenizer


def _settled(ahead: Ahead[Any] | None) -> bool:
    """Wait for what was begun; what was wrong with it is said by whoever asks again, with the user's line."""
    if ahead is not None:
        with suppress(Exception):
            ahead.result()
    return True


def save(path: str | os.PathLike[str], model: Any, **others: Any) -> None:
    """Write a model to a folder: config.json, model.safetensors with the names of its `state_dict`, which are the
    published ones, and generation_config.json where it has defaults; `others` go to `mo.weights.save`.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    >>> mo.models.save(folder, model)
    >>> type(mo.models.load(folder)).__name__
    'GPT2'
    """
    place = Path(path)
    if not hasattr(model, "config"):
        raise fail(ArgumentError, "models.save", f"{type(model).__name__} is no model of a family: it has no config",
                   "save its weights with mo.weights.save(path, model.state_dict())")
    mo.weights.save(place, rename(model.state_dict(), record(model.model_type).names.published(model.config)), **others)
    with atomic_file(place / "config.json") as file:
        file.write(json.dumps(_written(model), indent=1).encode())
    said = model.defaults.to_dict() if isinstance(model, LanguageModel) else {}
    if said:
        with atomic_file(place / "generation_config.json") as file:
            file.write(json.dumps(said, indent=1).encode())
    else:
        (place / "generation_config.json").unlink(missing_ok=True)


def _written(model: Any) -> dict[str, Any]:
    """The configuration without settings that are null by default: other programs take a null for a value."""
    kind = model.config_class
    spelled = {ours: theirs for theirs, ours in kind.spelled.items()}
    return {spelled.get(name, name): value for name, value in model.config.items()
            if value is not None or (name in kind.names() and kind.default(name) is not None)}


def _elsewhere(name: str) -> str:
    """Hint for a name that is neither a folder nor a file."""
    if name in MODELS:
        return f"fetch it: morpho models pull {name}, then load mo.weights.model_path({name!r})"
    if name in names_of_models():
        return f"mo.models.create({name!r}) makes one with random weights; trained ones are in a folder or a GGUF file"
    return "give a folder with config.json, or a GGUF file"


# -- folders -----------------------------------------------------------------------------------------------------------
def _from_folder(folder: Path, dtype: Any, ignore: Collection[str], keep: Callable[[Any], None] | None = None,
                 packed: bool = True) -> Any:
    """What is said first is what is wrong with the configuration, then with the weights, then where they differ."""
    model, weights, rules, config = _unfilled(folder, dtype, ignore)
    if packed and isinstance(weights, ScaledWeights | IntegerWeights):
        weights = weights.packing([name for name in weights if _stays(name, rules)])
    try:
        found = match(weights, wanted(model), rules)
    except NameFault as error:
        raise NameFault(f"{error} Hint: {_sizes(config, model)}.") from None
    return filled(model, kept(model, found, keep), str(folder))


def _unfilled(folder: Path, dtype: Any, ignore: Collection[str]) -> tuple[Any, Any, Sequence[Rule], Any]:
    """A model of random weights, those of the folder, how their names become the model's, and the configuration."""
    file = folder / "config.json"
    config = read_json(file)
    if config is None:
        raise fail(MissingFile, "models.load", f"{folder} has no config.json",
                   "give the folder of a model as the hubs have them, with config.json and model.safetensors")
    with naming(file):
        known = family(config)
    kind = known.model
    kind.checked_config(config, file=str(file), ignore=ignore)
    said = _generation(folder, config, ignore, kind.config_class.honoured)
    integers = integers_of("models.load", str(file), config, ignore)
    weights: Any = load_weights(folder)
    weights = with_integers(weights, integers) if integers is not None else with_scales(
        weights, block_size("models.load", str(file), config, ignore))
    config = {**known.names.parts(config, weights), **config}  # what the file says goes before
    check_depth(config, len(weights), "config.json")
    config = _untied(known, config, weights, folder)  # type: ignore[assignment]
    with init.undrawn(), naming(file):
        model = kind.from_config(config, dtype=dtype, ignore=ignore)
    if isinstance(model, LanguageModel):
        _take_over(model, said)
    return model, weights, known.names.rules(model.config, [*weights]), config


def _stays(name: str, rules: Sequence[Rule]) -> bool:
    """Whether a weight goes into the model as it is: only such ones stay in blocks."""
    rule, _, _ = choose(name, rules)
    return rule is None or not rule.transforms


def part_ranges(folder: Path, keep: Callable[[Any], None]) -> list[tuple[str, int, int]]:
    """Which bytes of a folder's files `load_part` reads, as (file, start, stop): those of the tensors that what `keep`
    leaves is made of, and of those they are compared with.

    >>> [start < stop for _, start, stop in part_ranges(SHIPPED, lambda model: None)][:2]
    [True, True]
    """
    model, weights, rules, _ = _unfilled(folder, mo.float32, ())
    keep(model)
    needed, targets = set[str](), wanted(model)
    for name in weights:
        _, sources, made = choose(name, rules)
        if any(target in targets for target in made):
            needed.update(sources)
    known = record(model.model_type).names
    pairs = [(known.head, known.embedding), *known.twice.items()]
    for pair in pairs:
        alike = {start + name for name in pair for start in PREFIXES if start + name in weights}
        if alike & needed:
            needed |= alike
    places = [place for name in sorted(needed) for place in weights.places(name)]
    return sorted({(file.path.name, entry.start, entry.stop) for file, entry in places})


def _generation(folder: Path, config: Mapping[str, Any], ignore: Collection[str],
                honoured: Mapping[str, Key] = MappingProxyType({})) -> dict[str, Any]:
    """The settings of generation_config.json; where there is none, those that older files keep in config.json."""
    file = folder / "generation_config.json"
    said = read_json(file)
    if said is None:
        said = config  # type: ignore[assignment]
    else:
        KeyTable({**GENERATION, **honoured}).check("models.load", str(file), said, ignore=ignore)
    return {name: value for name, value in said.items() if name in GENERATION and name not in ignore}  # type: ignore[union-attr]


def _take_over(model: LanguageModel, said: Mapping[str, Any]) -> None:
    """Take over the settings of text generation from a file."""
    model.defaults = Defaults.of(said)
    for name in ("eos_token_id", "decoder_start_token_id"):
        if said.get(name) is not None and name in model.config:
            model.config[name] = said[name]
    model.eos_token_id = model.config["eos_token_id"]


def _untied(known: Family, config: Mapping[str, Any], weights: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """The configuration with a head of its own where the file holds another one than the embedding, which is said; and
    the same numbers where a file holds them twice."""
    kind = known.model
    for name, other in known.names.twice.items():
        if name in weights and other in weights and not _equal(weights[name], weights[other]):
            raise fail(FileFault, "models.load", f"{folder}: {name} differs from {other}, and one of them is used only")
    biases = [weights.get(f"cls.predictions.{name}") for name in ("bias", "decoder.bias")]
    if kind.model_type == "bert" and None not in biases and config.get("tie_word_embeddings", True) \
            and not _equal(*biases):
        LOG.warning(sentence("models.load", f"{folder}: cls.predictions.decoder.bias is not cls.predictions.bias: the "
                                            "decoder's is kept", line=""))
    head = known.names.head
    embedding = next((name for start in PREFIXES if (name := start + known.names.embedding) in weights), "")
    tied = config.get("tie_word_embeddings", kind.config_class.default("tie_word_embeddings")) if head else False
    if not tied or head not in weights or not embedding or _equal(weights[head], weights[embedding]):
        return config
    LOG.warning(sentence("models.load", f"{folder}: config.json says tie_word_embeddings, and {head} is not "
                                        f"{embedding}: the file's own head is kept", line=""))
    config = {**config, "tie_word_embeddings": False}
    if kind.model_type == "t5" and config.get("scale_decoder_outputs") is None:  # that is how tied ones are computed
        config["scale_decoder_outputs"] = True
    return config


def _equal(one: Any, two: Any) -> bool:
    return tuple(one.shape) == tuple(two.shape) and one.dtype is two.dtype and bool(
        np.array_equal(one.elements().numpy(), two.elements().numpy()))


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Errors about a configuration name the file it comes from."""
    try:
        yield
    except ArgumentError as error:
        if str(error).startswith(("[settings]", "[isa]")):  # of the environment, not of the file
            raise
        raise ArgumentError(str(error).replace("] ", f"] {file}: ", 1)) from None


def _sizes(config: Mapping[str, Any], model: Any) -> str:
    """Sizes in the configuration, for an error about names or shapes of weights."""
    kind = model.config_class
    given = {kind.renamed.get(name, name) for name, value in config.items() if value is not None}
    numbers = {name: value for name, value in model.config.items() if not isinstance(value, float | dict)
               and name != "model_type" and not name.endswith("_id")}
    said = ", ".join(f"{name}={value}" for name, value in numbers.items() if name in given)
    rest = ", ".join(f"{name} ({value} then)" for name, value in numbers.items() if name not in given)
    return f"config.json says {said or 'no sizes'}" + (f", and leaves out {rest}" if rest else "")


def _tokenizer(file: Path, model: Any, ignore: Collection[str]) -> Any:
    if not file.exists():
        raise fail(MissingFile, "models.load", f"{file.parent} has no tokenizer.json",
                   "put it beside config.json (vocab.json and merges.txt alone are not read), or use mo.models.load, "
                   "which needs none")
    found, words = load_tokenizer(file, ignore=ignore), model.config.get("vocab_size")
    if words is not None and found.vocab_size > words:
        LOG.warning("%s has %d tokens and the model %d: those beyond are errors where they occur", file,
                    found.vocab_size, words)
    return found
