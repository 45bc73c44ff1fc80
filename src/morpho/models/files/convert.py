"""`morpho convert`: models between folders and GGUF files.

What is written is read again: a setting of the model that the new file does not say the same way is an error that names
it, and the file is taken away.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.decoder.shape import Shape
from morpho.models.family import Gguf
from morpho.models.files.gguf import config_of_gguf, forms
from morpho.models.files.loading import load, save
from morpho.models.registry import record
from morpho.weights import BytePairs, Rule, load_gguf, load_tokenizer, save_tokenizer
from morpho.weights.gguf.quantise import PLAIN, WRITTEN, quantise
from morpho.weights.gguf.tokenizer import CONTROL, PATTERNS, UNUSED, USER_DEFINED
from morpho.weights.gguf.writer import Written, write_gguf
from morpho.weights.mapping import choose

KINDS = (*PLAIN, *WRITTEN)
FLOATS = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str], *, kind: str = "",
            ignore: Collection[str] = ()) -> Path:
    """Write a model in another form: a folder or a GGUF file as `target`, which ends with .gguf then.

    Weights become `kind`: "f32", "f16" or "bf16", and in GGUF files "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k",
    "q5_k" or "q6_k" for matrices whose rows are whole blocks. By default they keep the dtype that most of a folder's
    numbers have; those of a GGUF file become float32.

    >>> import tempfile
    >>> place = tempfile.mkdtemp()
    >>> mo.models.save(place + "/small", mo.models.create("llama", vocab_size=32, hidden_size=32, intermediate_size=32,
    ...     num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=16))
    >>> file = mo.models.convert(place + "/small", place + "/small.gguf", kind="q8_0")
    >>> file.name, mo.models.load(file).config["hidden_size"]
    ('small.gguf', 32)
    """
    source, target = Path(source), Path(target)
    if kind not in ("", *KINDS):
        raise fail(ArgumentError, "convert", f"there is no kind {kind!r}", "one of " + ", ".join(KINDS))
    if target.exists() and (target.is_file() or any(target.iterdir())):
        raise fail(ArgumentError, "convert", f"{target} is there already", "give a name that is free")
    to_file = target.suffix.lower() == ".gguf"
    if not to_file and kind and kind not in FLOATS:
        raise fail(ArgumentError, "convert", f"folders hold floats, not {kind}", "write a file that ends with .gguf")
    kind = kind or _usual(source)
    model = load(source, dtype=getattr(mo, FLOATS.get(kind, "float32")) if not to_file else mo.float32, packed=False,
                 ignore=ignore)
    if not to_file:
        target.parent.mkdir(parents=True, exist_ok=True)
        save(target, model)
        tokenizer = _tokenizer(source, ignore)
        if tokenizer is not None:
            save_tokenizer(target, tokenizer)
        return target
    try:
        _write_gguf(source, target, model, kind, ignore)
        _check(target, model)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target


def _usual(source: Path) -> str:
    """The dtype of most numbers of a folder."""
    if not source.is_dir():
        return "f32"
    weights = mo.weights.load(source)
    sizes: dict[str, int] = {}
    for name, dtype in weights.dtypes.items():
        sizes[dtype.name] = sizes.get(dtype.name, 0) + int(np.prod(weights.shapes[name]))
    most = max(sizes, key=lambda name: sizes[name], default="float32")
    return next((kind for kind, name in FLOATS.items() if name == most), "f32")


def _tokenizer(source: Path, ignore: Collection[str]) -> Any:
    if source.is_dir():
        return load_tokenizer(source, ignore=ignore) if (source / "tokenizer.json").exists() else None
    file = load_gguf(source, ignore=ignore)
    return file.tokenizer if "tokenizer.ggml.model" in file.metadata else None


# -- to GGUF -----------------------------------------------------------------------------------------------------------
def _write_gguf(source: Path, target: Path, model: Any, kind: str, ignore: Collection[str]) -> None:
    form = record("llama" if model.model_type == "mistral" else model.model_type).gguf  # llama.cpp has one for both
    if form is None:
        raise fail(ArgumentError, "convert", f"{model.model_type} has no form in GGUF files",
                   "models of " + ", ".join(forms()) + " have")
    shape: Shape = model.shape
    metadata = {"general.architecture": form.architecture, "general.name": source.stem, "general.file_type": (
        PLAIN[kind][1] if kind in PLAIN else WRITTEN[kind][1]), "general.quantization_version": 2,
        **{f"{form.architecture}.{key}": value for key, value in _header(shape, model.config).items()},
        **_words(_tokenizer(source, ignore), shape.vocabulary, model)}
    tensors = {}
    for name, weight in _named(model, form, shape).items():
        tensors[name] = _tensor(name, weight, kind)
    rope = (model.config.get("rope_scaling") or {}) if "rope_scaling" in model.config else {}
    table = _factors(rope, shape)
    if table is not None:
        tensors["rope_freqs.weight"] = Written(0, table.shape, lambda: table)
    for length in ("long", "short"):
        if f"{length}_factor" in rope:
            numbers = np.asarray(rope[f"{length}_factor"], np.float32)
            tensors[f"rope_factors_{length}.weight"] = Written(0, numbers.shape, partial(np.copy, numbers))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_gguf(target, metadata, tensors)


def _header(shape: Shape, config: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of the header that follow from the shape."""
    rope = next((each for each in shape.ropes if each is not None), None)
    local = next((each for each, window in zip(shape.ropes, shape.windows, strict=True) if each is not None and window
                  and each != next((other for other, far in zip(shape.ropes, shape.windows, strict=True)
                                    if not far), each)), None)
    far = next((each for each, window in zip(shape.ropes, shape.windows, strict=True) if each is not None
                and not window), rope)
    window = next((each for each in shape.windows if each), None)
    rms = shape.norm.startswith("rms")
    said: dict[str, Any] = {
        "vocab_size": shape.vocabulary, "context_length": shape.context, "embedding_length": shape.width,
        "block_count": shape.layers, "feed_forward_length": shape.mixture.hidden if shape.mixture else shape.hidden,
        "attention.head_count": shape.heads, "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.depth, "attention.value_length": shape.depth,
        f"attention.layer_norm{'_rms' if rms else ''}_epsilon": float(shape.eps)}
    if far is not None:
        said |= {"rope.dimension_count": far.depth, "rope.freq_base": float(far.theta)}
    if local is not None:
        said["rope.freq_base_swa"] = float(local.theta)
    if window is not None:
        said["attention.sliding_window"] = window
    if "sliding_window_pattern" in config and window is not None:
        said["attention.sliding_window_pattern"] = config["sliding_window_pattern"]
    if shape.mixture is not None:
        said |= {"expert_count": shape.mixture.count, "expert_used_count": shape.mixture.used}
    factors: tuple[tuple[str, float | None, float | None], ...] = (
            ("attn_logit_softcapping", shape.score_cap, None), ("final_logit_softcapping", shape.logit_cap, None),
            ("attention.clamp_kqv", shape.clip, None), ("residual_scale", shape.residual_scale, 1.0),
            ("logit_scale", shape.logit_divisor, 1.0))
    for key, value, usual in factors:
        if value is not None and value != usual:
            said[key] = float(value)
    for key, name in (("embedding_scale", "embedding_multiplier"), ("attention.scale", "attention_multiplier"),
                      ("attention.scale", "attention_scale")):
        if config.get(name) is not None:
            said[key] = float(config[name])
    if "use_parallel_residual" in config:
        said["use_parallel_residual"] = bool(shape.parallel)
    return {**said, **_stretched(config.get("rope_scaling") or {}, far)}


def _stretched(scaling: Mapping[str, Any], rope: Any) -> dict[str, Any]:
    """Keys of stretched positions."""
    if {"full_attention", "sliding_attention"} & {*scaling}:
        scaling = (rope.scaling if rope is not None else None) or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind in ("linear", "yarn"):
        found: dict[str, Any] = {"rope.scaling.type": kind, "rope.scaling.factor": float(scaling["factor"])}
        for ours, theirs in (("original_max_position_embeddings", "original_context_length"),
                             ("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")):
            if kind == "yarn" and scaling.get(ours) is not None:
                value = scaling[ours]
                found[f"rope.scaling.{theirs}"] = value if ours.startswith("original") else float(value)
        return found
    if kind in ("longrope", "su"):
        found = {"rope.scaling.type": "longrope"}
        if scaling.get("original_max_position_embeddings"):
            found["rope.scaling.original_context_length"] = scaling["original_max_position_embeddings"]
        if scaling.get("attention_factor"):
            found["rope.scaling.attn_factor"] = float(scaling["attention_factor"])
        return found
    if kind not in ("default", "factors", "llama3"):
        raise fail(ArgumentError, "convert", f"GGUF files have no angles of type {kind!r}")
    return {}


def _factors(scaling: Mapping[str, Any], shape: Shape) -> np.ndarray | None:
    """Divisors of the angles of pairs, which Llama 3's files hold as a tensor."""
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "factors":
        return np.asarray(scaling["factors"], np.float32)
    if kind != "llama3":
        return None
    rope = shape.ropes[0]
    assert rope is not None
    pairs = np.arange(0, rope.depth, 2, dtype=np.float64)
    lengths = 2 * np.pi * rope.theta ** (pairs / rope.depth)
    original = scaling["original_max_position_embeddings"]
    slow, fast, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    smooth = (original / lengths - slow) / (fast - slow)
    between = 1 / ((1 - smooth) / factor + smooth)
    return np.where(lengths < original / fast, 1.0, np.where(lengths > original / slow, factor, between)).astype(
        np.float32)


def _named(model: Any, form: Gguf, shape: Shape) -> dict[str, np.ndarray]:
    """Weights by their names in the file, with what its rules do undone."""
    sizes = SimpleNamespace(heads=shape.heads, kv_heads=shape.kv_heads)
    rules = form.rules(SimpleNamespace(config=sizes, fields={}, tensors={}))  # type: ignore[arg-type]
    back = [(Rule(rule.targets[0], rule.patterns[0]), rule) for rule in rules if rule.targets]
    found: dict[str, np.ndarray] = {}
    for name, weight in model.state_dict().items():
        there, _, theirs = choose(name, [each for each, _ in back])
        if there is None:
            raise fail(ArgumentError, "convert", f"{model.model_type} has no name in GGUF files for {name}")
        rule = next(rule for each, rule in back if each is there)
        array = np.asarray(weight.astype(mo.float32).numpy())
        found[theirs[0]] = _undone(rule, array)
    return found


def _undone(rule: Rule, array: np.ndarray) -> np.ndarray:
    """The numbers that a rule makes these of, by what it does to rows and to zeros."""
    if not rule.transforms:
        return array
    rows = array.shape[0]

    def done(numbers: np.ndarray) -> np.ndarray:
        tensors: list[Any] = [mo.asarray(numbers.reshape(rows, *(1,) * (array.ndim - 1)))]
        for transform in rule.transforms:
            tensors = transform(tensors, 1)
        return np.asarray(tensors[0].numpy()).reshape(-1)

    added = done(np.zeros(rows, np.float32))[0]
    order = np.rint(done(np.arange(rows, dtype=np.float32)) - added).astype(np.int64)
    result = np.empty_like(array)
    result[order] = array - added
    return result


def _tensor(name: str, array: np.ndarray, kind: str) -> Written:
    """A tensor to write: vectors and routers stay float32, as llama.cpp has them."""
    if array.ndim < 2 or "ffn_gate_inp" in name or kind == "f32":
        return Written(0, array.shape, lambda: array.astype("<f4"))
    if kind == "f16":
        if float(np.abs(array).max(initial=0)) > 65504:
            raise fail(ArgumentError, "convert", f"{name} holds numbers beyond float16", "write bf16")
        return Written(1, array.shape, lambda: array.astype("<f2"))
    if kind == "bf16":
        return Written(30, array.shape, lambda: _bfloat16(array))
    number, _, size, _ = WRITTEN[kind]
    if array.shape[-1] % size and size > 32:  # llama.cpp does so too
        return _tensor(name, array, "q8_0")
    if array.shape[-1] % size:
        return Written(1, array.shape, lambda: array.astype("<f2"))
    return Written(number, array.shape, lambda: quantise(array.reshape(-1, array.shape[-1]), kind))


def _bfloat16(array: np.ndarray) -> np.ndarray:
    """The upper halves of float32, rounded to the nearest and ties to even."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(array), bits >> 16 | 0x40, rounded).astype("<u2")


def _words(tokenizer: Any, vocabulary: int, model: Any) -> dict[str, Any]:
    """Keys of the tokenizer: byte-level BPE, which GGUF files know by the name of its pattern."""
    ends = model.config.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    roles = {f"tokenizer.ggml.{name}_token_id": number for name, number in zip(("eos", "eot", "eom"), ends)}
    if tokenizer is None:
        return roles
    if not isinstance(tokenizer, BytePairs):
        raise fail(ArgumentError, "convert", "the tokenizer is no byte-level BPE, which GGUF files get alone",
                   "take tokenizer.json out of the folder to convert the weights alone")
    before = next((name for name, form in PATTERNS.items() if form == (tokenizer.pattern, tokenizer.split_digits)), "")
    if not before:
        raise fail(ArgumentError, "convert", f"GGUF files have no name for the pattern {tokenizer.pattern!r} with "
                                             f"split_digits={tokenizer.split_digits}")
    if tokenizer.vocab_size > vocabulary:
        raise fail(ArgumentError, "convert", f"the tokenizer has {tokenizer.vocab_size} tokens and the model "
                                             f"{vocabulary}")
    tokens, types = [f"[PAD{number}]" for number in range(vocabulary)], [UNUSED] * vocabulary
    for table, kind in ((tokenizer.vocabulary, 1), (tokenizer.added, USER_DEFINED), (tokenizer.specials, CONTROL)):
        for text, number in table.items():
            if text != tokens[number]:
                tokens[number], types[number] = text, kind
    found: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": before, "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": [" ".join(pair) for pair in tokenizer.merges]}
    for name, role in (("bos", tokenizer.bos), ("eos", tokenizer.eos), ("padding", tokenizer.pad)):
        if role is not None:
            roles.setdefault(f"tokenizer.ggml.{name}_token_id", role)
    for name, around, role in (("bos", tokenizer.before, tokenizer.bos), ("eos", tokenizer.after, tokenizer.eos)):
        if around and around != [role]:
            raise fail(ArgumentError, "convert", f"GGUF files cannot say that {around} stands around a text")
        found[f"tokenizer.ggml.add_{name}_token"] = bool(around)
    if tokenizer.chat_template:
        found["tokenizer.chat_template"] = tokenizer.chat_template
    return {**found, **roles}


def _check(target: Path, model: Any) -> None:
    """Compare what the file says of the model with the model."""
    file = load_gguf(target)
    config = config_of_gguf(file)
    said, wanted = (record(each["model_type"]).model.checked_config({
        name: value for name, value in each.items() if value is not None}) for each in (config, model.config))
    if config["model_type"] != model.model_type and (config["model_type"], model.model_type) != ("llama", "mistral"):
        raise fail(ArgumentError, "convert", f"the file would be read as {config['model_type']}, and the model is "
                                             f"{model.model_type}")
    one, two = said.shape(), wanted.shape()
    for name in one.__dataclass_fields__:
        ours, theirs = getattr(two, name), getattr(one, name)
        if name not in ("std", "family") and not _alike(ours, theirs):
            raise fail(ArgumentError, "convert", f"GGUF files of {file.config.architecture} cannot say what the "
                                                 f"model's {name} is: {ours!r} would be read as {theirs!r}")


def _alike(one: Any, two: Any) -> bool:
    """Whether two settings are the same up to the rounding of float32; tables of angles are compared by their use."""
    if isinstance(one, float | int) and isinstance(two, float | int):
        return abs(one - two) <= 1e-6 * abs(one)
    if isinstance(one, tuple | list) and isinstance(two, tuple | list):
        return len(one) == len(two) and all(map(_alike, one, two))
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        kinds = {one.get("rope_type", one.get("type")), two.get("rope_type", two.get("type"))}
        if kinds == {"llama3", "factors"}:
            return True
        values = {name: value for name, value in one.items() if value is not None}
        others = {name: value for name, value in two.items() if value is not None}
        shared = {*values, *others} - {"type", "rope_type"}
        return len(kinds) == 1 and all(_alike(values.get(name), others.get(name)) for name in shared)
    if hasattr(one, "__dataclass_fields__") and type(one) is type(two):
        return all(_alike(getattr(one, name), getattr(two, name)) for name in one.__dataclass_fields__)
    return bool(one == two)
