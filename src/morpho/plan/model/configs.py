"""Cards of the known families, by name, from a `config.json`, or from its contents: of every decoder by its `Shape`, of
BERT, T5 and BART by their own sizes.

Sizes are those published. See `docs/planner.md` for the formulas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from morpho.base.errors import ArgumentError, ValueFault, fail
from morpho.cost.layers import BlockShape, linear_flops, norm_flops
from morpho.models.config import Config as ModelConfig
from morpho.models.decoder.layers import block_parameters
from morpho.models.decoder.shape import Shape
from morpho.models.registry import config_of, families, names, record
from morpho.plan.model.layer import BYTES_OF, Layer
from morpho.plan.model.strict_json import read_limited, strict_json


def _gpt2(width: int, layers: int, heads: int) -> dict[str, Any]:
    return {"model_type": "gpt2", "n_embd": width, "n_layer": layers, "n_head": heads, "vocab_size": 50257,
            "n_positions": 1024}


def _llama(width: int, hidden: int, layers: int, heads: int, key_heads: int, words: int) -> dict[str, Any]:
    return {"model_type": "llama", "hidden_size": width, "intermediate_size": hidden, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": key_heads, "vocab_size": words}


def _bert(width: int, layers: int, heads: int) -> dict[str, Any]:
    return {"model_type": "bert", "hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers,
            "num_attention_heads": heads, "vocab_size": 30522, "max_position_embeddings": 512}


def _t5(width: int, hidden: int, layers: int, heads: int) -> dict[str, Any]:
    return {"model_type": "t5", "d_model": width, "d_ff": hidden, "num_layers": layers, "num_heads": heads, "d_kv": 64,
            "vocab_size": 32128}


NAMED: dict[str, dict[str, Any]] = {
    "gpt2": _gpt2(768, 12, 12), "gpt2-medium": _gpt2(1024, 24, 16), "gpt2-large": _gpt2(1280, 36, 20),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "bert-base": _bert(768, 12, 12), "bert-large": _bert(1024, 24, 16),
    "t5-small": _t5(512, 2048, 6, 8), "t5-base": _t5(768, 3072, 12, 12), "t5-large": _t5(1024, 4096, 24, 16),
    "llama-1b": {**_llama(2048, 8192, 16, 32, 8, 128256), "tie_word_embeddings": True},
    "llama-3b": {**_llama(3072, 8192, 28, 24, 8, 128256), "head_dim": 128, "tie_word_embeddings": True},
    "llama-7b": _llama(4096, 11008, 32, 32, 32, 32000), "llama-8b": _llama(4096, 14336, 32, 32, 8, 128256),
    "llama-13b": _llama(5120, 13824, 40, 40, 40, 32000), "llama-70b": _llama(8192, 28672, 80, 64, 8, 128256),
    "llama-405b": _llama(16384, 53248, 126, 128, 8, 128256),
}


@dataclass(frozen=True)
class Workload:
    """Workload of a card: batch, context, types."""

    batch: int
    context: int
    dtype: str

    @property
    def rows(self) -> int:
        """Tokens of all prompts."""
        return self.batch * self.context

    @property
    def number_bytes(self) -> int:
        """Bytes of an activation or a cached number: 4 in f32 models, else 2."""
        return 4 if self.dtype == "f32" else 2

    def weights(self, parameters: int) -> int:
        """Bytes of so many parameters."""
        return round(parameters * BYTES_OF[self.dtype])


def block_layer(name: str, block: BlockShape, work: Workload, encoder: bool = False) -> Layer:
    """A block of a decoder, or of an encoder, which has no work when tokens are decoded."""
    rows, batch, size = work.rows, work.batch, work.number_bytes
    source = work.context if block.cross else 0
    source_rows = batch * source
    weights, cache = work.weights(block.parameters()), batch * block.cache(work.context, source) * size
    kept = 0 if encoder else cache
    once = 0 if encoder else 1
    cross = source_rows * block.width  # a decoder's cut carries the encoder's output along
    return Layer(
        name, "cross block" if block.cross else "block",
        prefill_flops=block.flops(rows, work.context, batch, source, source_rows),
        prefill_bytes=weights + block.activations(rows, source_rows) * size + kept,
        decode_flops=once * block.flops(batch, work.context, batch, source, 0),
        decode_bytes=once * (weights - work.weights(block.unread(batch)) + block.activations(batch) * size + cache),
        weight_bytes=weights, kv_bytes=kept, prefill_cut_elements=rows * block.width + cross,
        decode_cut_elements=batch * block.width, workspace_bytes=block.workspace(rows) * size,
        prefill_reduce_elements=(3 if block.cross else 2) * rows * block.width,
        decode_reduce_elements=once * (3 if block.cross else 2) * batch * block.width, reduces=3 if block.cross else 2,
        key=_key("cross block" if block.cross else "block", block.width, block.hidden, block.heads, block.cached,
                 int(block.gated), *((block.experts, block.experts_used) if block.experts else ()), work=work))


def embedding_layer(width: int, parameters: int, work: Workload) -> Layer:
    """A look-up: one row of the table for each token."""
    size = work.number_bytes
    return Layer("embedding", "embedding", 0, work.rows * width * (BYTES_OF[work.dtype] + size), 0,
                 work.batch * width * (BYTES_OF[work.dtype] + size), work.weights(parameters),
                 prefill_cut_elements=work.rows * width, decode_cut_elements=work.batch * width,
                 key=_key("embedding", width, parameters, work=work))


def head_layer(width: int, words: int, parameters: int, work: Workload, dense: bool = False) -> Layer:
    """The last norm and the product with all words; `dense` is BERT's further layer before it.

    A prompt's logits are computed for every token, as 2 S H V has it.
    """
    size, weights = work.number_bytes, work.weights(parameters)

    def flops(rows: int) -> int:
        return linear_flops(rows, width, words) + norm_flops(rows, width) + (
            linear_flops(rows, width, width) if dense else 0)

    def moved(rows: int) -> int:
        return weights + rows * (3 * width + words + (2 * width if dense else 0)) * size

    return Layer("head", "head", flops(work.rows), moved(work.rows), flops(work.batch), moved(work.batch), weights,
                 prefill_cut_elements=work.rows * words, decode_cut_elements=work.batch * words,
                 workspace_bytes=work.rows * 2 * width * size + work.batch * words * size,
                 key=_key("head", width, words, work=work))


def _key(kind: str, *sizes: int, work: Workload) -> str:
    return f"{kind} {'x'.join(map(str, sizes))} batch {work.batch} context {work.context} {work.dtype}"


MOST_LAYERS, MOST = 10_000, 10**9  # of layers, and of anything else that a config counts
USUAL_CONTEXT = 1024
LAYERS_NAMED = ("moe_layers", "mlp_layer_types", "mlp_only_layers", "full_attn_idxs")  # with experts, or attention


class Config:
    """A config with errors that name the file and the field."""

    def __init__(self, data: Mapping[str, Any], origin: str) -> None:
        self.data, self.origin = data, origin

    def size(self, *names: str, default: int | None = None) -> int:
        """A positive whole number under the first of the names there is."""
        for name in names:
            value = self.data.get(name)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                raise fail(ValueFault, "plan", f"{self.origin}: {name} is {value!r}", "give a positive whole number")
            if value > (MOST_LAYERS if "layer" in name else MOST):
                raise fail(ValueFault, "plan", f"{self.origin}: {name} is {value}, which no model has", "repair it")
            return value
        if default is None:
            raise fail(ArgumentError, "plan", f"{self.origin} lacks {names[0]!r}",
                       "a config.json as published with the model has it")
        return default

    def called(self, kind: type[ModelConfig], key: str) -> tuple[str, ...]:
        """A setting's name and its older ones."""
        older = tuple(theirs for theirs, ours in kind.renamed.items() if ours == key)
        return (key, *older, *(("n_ctx",) if key == "n_positions" else ()))

    def settings(self, kind: type[ModelConfig]) -> Any:
        """The family's configuration by the settings that are numbers, names and flags."""
        known = {*kind.names(), *kind.renamed}
        plain = {name: value for name, value in self.data.items() if name in known and
                 (isinstance(value, bool | int | float | str) or name == "q_lora_rank"  # whose null means none
                  or (isinstance(value, list) and (name in LAYERS_NAMED or "conv" in value)))}
        try:
            return kind.of("plan", plain)
        except ArgumentError as error:
            raise ArgumentError(str(error).replace("[models] ", f"[plan] {self.origin}: ", 1)) from None

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.data.get(name)
        if value is not None and not isinstance(value, bool):
            raise fail(ValueFault, "plan", f"{self.origin}: {name} is {value!r}", "give true or false")
        return default if value is None else value

    def heads(self, name: str, width: str, key_heads: str = "", head_width: str = "",
              kind: type[ModelConfig] = ModelConfig) -> int:
        """The number of heads, which must divide the width (unless a head has a width of its own); `kind` knows other
        names of these settings."""
        count, whole = self.size(*self.called(kind, name)), self.size(*self.called(kind, width))
        if not (head_width and self.data.get(head_width)) and whole % count:
            raise fail(ValueFault, "plan", f"{self.origin}: {width} is {whole} and {name} is {count}, which does not "
                       "divide it", "repair one of the two")
        if key_heads and count % self.size(key_heads, default=count):
            raise fail(ValueFault, "plan", f"{self.origin}: {name} is {count} and {key_heads} is "
                       f"{self.size(key_heads)}, which does not divide it", "repair one of the two")
        return count


def card_fields(config: str | Path | Mapping[str, Any], batch: int, context: int | None, dtype: str
                ) -> dict[str, Any]:
    """The fields of a `ModelCard`; see `ModelCard.from_config`."""
    name, data = _read(config)
    fields, family = Config(data, name), str(data.get("model_type", ""))
    if not is_planned(family):
        known = [each for each in (*families(), *FAMILIES) if is_planned(each)]
        raise fail(ArgumentError, "plan", f"{name}: model_type {family!r} is not known",
                   f"known are {', '.join(sorted({*known}))}; trace other models with ModelCard.from_graph")
    if dtype not in BYTES_OF:
        raise fail(ValueFault, "plan", f"dtype {dtype!r} is not known", f"use one of {', '.join(BYTES_OF)}")
    context, assumed = (context, ()) if context is not None else _usual_context(fields)
    for what, value in (("batch", batch), ("context", context)):
        if not isinstance(value, int) or value <= 0:
            raise fail(ValueFault, "plan", f"{what} is {value!r}", "give a positive whole number")
    work = Workload(batch, context, dtype)
    layers, shared, phase, notes = FAMILIES.get(family, decoder_layers)(fields, work)
    return {"name": name, "layers": layers, "batch": batch, "context": context, "dtype": dtype, "phase": phase,
            "tied": (0, len(layers) - 1) if shared else None, "tied_bytes": work.weights(shared),
            "notes": (*assumed, *notes)}


def _read(config: str | Path | Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    if isinstance(config, Mapping):
        return str(config.get("_name_or_path") or config.get("model_type", "model")), config
    if str(config) in NAMED:
        return str(config), NAMED[str(config)]
    path = Path(config)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        return str(config), _registered(str(config))
    if path.suffix == ".gguf":
        raise fail(ArgumentError, "plan", f"{path} is a GGUF file, and plans are made from a config.json",
                   "give the config.json of the model it was made from, or its name")
    try:
        text = read_limited(path)
    except (OSError, UnicodeDecodeError) as error:
        raise fail(ValueFault, "plan", f"{path} cannot be read: {error}", "give the config.json of a model") from None
    data = strict_json(text, str(path))
    if not isinstance(data, dict):
        raise fail(ValueFault, "plan", f"{path} holds no object", "give the config.json of a model")
    return str(path), data


def _registered(name: str) -> Mapping[str, Any]:
    """The configuration that `mo.models.create` would make this model from; models that are fetched have their own."""
    known = [each for each in names() if is_planned(config_of(each)["model_type"])]
    same = {"smollm2": "smollm2-135m"}.get(name, name)
    if same in known:
        return config_of(same)
    kind = f", and {name} is of another kind" if same in names() else ""
    raise fail(ArgumentError, "plan", f"there is no model {name!r} of transformer blocks{kind}",
               f"give a config.json, or one of {', '.join(dict.fromkeys([*NAMED, *known]))}; other models go through "
               "ModelCard.from_graph")


Family = tuple[tuple[Layer, ...], int, str, tuple[str, ...]]  # layers, shared parameters, phase, notes


def _usual_context(fields: Config) -> tuple[int, tuple[str, ...]]:
    """The context to plan for where none is given, with a note where the model's positions are more or fewer."""
    most = fields.size("n_positions", "n_ctx", "max_position_embeddings", "max_seq_len", default=USUAL_CONTEXT)
    context = min(USUAL_CONTEXT, most)
    return context, () if most == USUAL_CONTEXT else (
        f"a context of {context} tokens is assumed; the model has positions for {most}",)


def _longer(fields: Config, work: Workload, *names: str) -> tuple[str, ...]:
    """A note where the context is longer than the positions the model has."""
    most = fields.size(*names, default=10**9)
    text = f"the context of {work.context} is longer than the model's {most} positions"
    return (text,) if work.context > most else ()


def is_planned(family: str) -> bool:
    """True for families that have a `Shape`, and for some others: there are cards of them."""
    return family in FAMILIES or (family in families() and families()[family].has_shape)


def decoder_layers(fields: Config, work: Workload) -> Family:
    """Any decoder, by its `Shape`."""
    kind = record(fields.data["model_type"]).model.config_class
    keys = kind.numbers
    for name in ("width", "vocabulary", "heads", "hidden", "layers"):
        fields.size(*fields.called(kind, keys[name]), default=1 if kind.default(keys[name]) is None else None)
    fields.heads(keys["heads"], keys["width"], keys.get("kv_heads", ""), keys.get("depth", ""), kind)
    shape = fields.settings(kind).shape()
    mixes = shape.convolutions or (0,) * shape.layers
    kinds = [(bool(shape.mixture) and number not in shape.dense, bool(mixes[number])) for number in range(shape.layers)]
    cards = {each: _decoder_block(shape, each[0], kinds.index(each)) for each in {*kinds}}
    width = shape.embed_width or shape.width
    layers = (embedding_layer(shape.width, shape.embedding_parameters, work),
              *(block_layer(f"block {i}", cards[kinds[i]], work) for i in range(shape.layers)),
              head_layer(width, shape.vocabulary, shape.head_parameters, work))
    shared = shape.table_parameters if shape.tied else 0
    return layers, shared, "decode", _longer(fields, work, *fields.called(kind, keys["context"]))


def _decoder_block(shape: Shape, mixed: bool, layer: int) -> BlockShape:
    """A block of a decoder, with experts or without, by a layer that is such a one."""
    mixture, latent = shape.mixture, shape.latent
    sizes: dict[str, Any] = {"hidden": shape.hidden, "heads": shape.heads, "key_heads": shape.kv_heads,
                             "head_width": shape.depth}
    if mixed and mixture is not None:
        sizes |= {"hidden": mixture.hidden, "experts": mixture.count, "experts_used": mixture.used}
    if shape.convolutions and shape.convolutions[layer]:  # four matrices, and a line in the cache
        sizes |= {"heads": 1, "key_heads": 1, "head_width": shape.width}
    if latent is not None:  # what the cache has of a token, as keys and values of half of it each
        sizes |= {"head_width": latent.depth + latent.value_depth, "key_heads": 1}
    formula = BlockShape(shape.width, gated=shape.gated, biased=shape.qkv_bias, mlp_biased=shape.mlp_bias,
                         norm_parameters=1 if shape.norm in ("rms", "rms1") else 2, **sizes)
    return replace(formula, more_parameters=block_parameters(shape, layer) - formula.parameters())


def _with_parameters(layer: Layer, count: int, work: Workload) -> Layer:
    """A layer with some more parameters, which are read with the others."""
    size = work.weights(count)
    return replace(layer, weight_bytes=layer.weight_bytes + size, prefill_bytes=layer.prefill_bytes + size,
                   decode_bytes=layer.decode_bytes + size if layer.decode_bytes else 0)


def _bert_layers(fields: Config, work: Workload) -> Family:
    width, words = fields.size("hidden_size"), fields.size("vocab_size")
    heads = fields.heads("num_attention_heads", "hidden_size")
    block = BlockShape(width, fields.size("intermediate_size"), heads, biased=True)
    table = words * width
    rest = (fields.size("max_position_embeddings", default=512) + fields.size("type_vocab_size", default=2) + 2) * width
    pooler = width * width + width if fields.flag("pooler", True) else 0
    masked = fields.flag("masked_lm", True)
    blocks = [block_layer(f"block {i}", block, work, encoder=True) for i in range(fields.size("num_hidden_layers"))]
    if masked:  # the matrix of the head is the embedding; before it a product and a norm
        last = head_layer(width, words, table + width * width + 3 * width + words + pooler, work, dense=True)
    else:  # the pooler belongs to the last block, of which it takes the first token
        last, blocks[-1] = None, _with_parameters(blocks[-1], pooler, work)
    layers = (embedding_layer(width, table + rest, work), *blocks, *((last,) if last else ()))
    return layers, table if masked else 0, "prefill", _longer(fields, work, "max_position_embeddings")


def _t5_layers(fields: Config, work: Workload) -> Family:
    width, words = fields.size("d_model"), fields.size("vocab_size")
    heads = fields.heads("num_heads", "d_model", head_width="d_kv")
    gated = str(fields.data.get("feed_forward_proj", "relu")).startswith("gated")
    count = fields.size("num_layers")
    shape = {"width": width, "hidden": fields.size("d_ff"), "heads": heads, "gated": gated, "norm_parameters": 1,
             "head_width": fields.size("d_kv", default=64)}
    table, biases = words * width, fields.size("relative_attention_num_buckets", default=32) * heads
    encoder = [block_layer(f"encoder {i}", BlockShape(**shape), work, encoder=True) for i in range(count)]  # type: ignore[arg-type]
    decoder = [block_layer(f"decoder {i}", BlockShape(**shape, cross=True), work)  # type: ignore[arg-type]
               for i in range(fields.size("num_decoder_layers", default=count))]
    # The first block of each side holds the biases of relative positions, the last of the encoder a norm.
    encoder[0], decoder[0] = (_with_parameters(side[0], biases, work) for side in (encoder, decoder))
    encoder[-1] = _with_parameters(encoder[-1], width, work)
    layers = (embedding_layer(width, table, work), *encoder, *decoder, head_layer(width, words, table + width, work))
    shared = table if fields.flag("tie_word_embeddings", True) else 0
    return layers, shared, "decode", ()


def _bart_layers(fields: Config, work: Workload) -> Family:
    width, words = fields.size("d_model"), fields.size("vocab_size")
    table, positions = words * width, (fields.size("max_position_embeddings", default=1024) + 2) * width + 2 * width
    blocks = {}
    for side in ("encoder", "decoder"):
        shape = BlockShape(width, fields.size(f"{side}_ffn_dim"), fields.heads(f"{side}_attention_heads", "d_model"),
                           biased=True, cross=side == "decoder")
        blocks[side] = [block_layer(f"{side} {i}", shape, work, encoder=side == "encoder")
                        for i in range(fields.size(f"{side}_layers"))]
    blocks["decoder"][0] = _with_parameters(blocks["decoder"][0], positions, work)  # where its tokens enter
    layers = (embedding_layer(width, table + positions, work), *blocks["encoder"], *blocks["decoder"],
              head_layer(width, words, table + words, work))
    shared = table if fields.flag("tie_word_embeddings", True) else 0
    return layers, shared, "decode", _longer(fields, work, "max_position_embeddings")


FAMILIES = {"bert": _bert_layers, "t5": _t5_layers, "bart": _bart_layers}  # besides those that have a `Shape`
