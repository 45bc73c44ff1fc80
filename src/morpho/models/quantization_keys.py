"""`quantization_config` of config.json: weights of 8-bit floats with scales are read, whatever wrote them, and whole
numbers of a few bits as GPTQ, AWQ and compressed-tensors have them; other kinds are refused by name. Activations are
never rounded here, so what is said about them does not matter."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.weights import keys
from morpho.weights.integers import Integers
from morpho.weights.keys import Key, KeyTable, Kind, irrelevant, only, used
from morpho.weights.scanner import shortened

NAME = "quantization_config"
MX_GROUP = 32  # values of a row that share an exponent
_FORMATS = ("float-quantized", "naive-quantized", "mxfp8-quantized")
_STORED = irrelevant("the tensors' own dtypes say which are in 8 bits")
_ACTIVATIONS = irrelevant("activations are not rounded")
_WRITER = irrelevant("how the file was made")
_BLOCK = used(Kind(lambda value: isinstance(value, list) and len(value) == 2 and all(keys.is_whole(each, 1)
                                                                                    for each in value),
                   "two sizes, such as [128, 128]").or_null())
_SHARED: dict[str, Key] = {"quant_method": used(keys.text("fp8")), "modules_to_not_convert": _STORED,
                           "ignored_layers": _STORED, "ignore": _STORED, "kv_cache_scheme": _ACTIVATIONS,
                           "kv_cache_quant_algo": _ACTIVATIONS}
_WEIGHTS = KeyTable({
    "num_bits": only(8), "type": only("float"), "symmetric": only(True), "dynamic": only(False),
    "group_size": used(Kind(lambda value: value in (None, MX_GROUP), "32, that of MX formats").or_null()),
    "strategy": used(keys.one_of("tensor", "channel", "block", "group")), "block_structure": _BLOCK,
    "actorder": only(None), "scale_dtype": _WRITER, "zp_dtype": irrelevant("there are no zero points"),
    "observer": _WRITER, "observer_kwargs": _WRITER})
_GROUP = KeyTable({"weights": used(keys.record()), "targets": _STORED, "input_activations": _ACTIVATIONS,
                   "output_activations": _ACTIVATIONS, "format": only(*_FORMATS, None)})
_GROUPS = {"config_groups": used(keys.record()), "quantization_status": _WRITER, "version": _WRITER}
METHODS: dict[str, KeyTable] = {
    "fp8": KeyTable({**_SHARED, "fmt": only("e4m3", "e5m2"), "weight_block_size": _BLOCK, "scale_fmt": _WRITER,
                     "activation_scheme": _ACTIVATIONS, "dequantize": _WRITER}),
    "mxfp4": KeyTable({**_SHARED, "dequantize": _WRITER}),  # gpt-oss: the names of the weights say which
    "fbgemm_fp8": KeyTable({**_SHARED, "activation_scale_ub": _ACTIVATIONS}),
    "compressed-tensors": KeyTable({**_SHARED, **_GROUPS, "format": only(*_FORMATS),
                                    "global_compression_ratio": _WRITER, "sparsity_config": only({}, None),
                                    "transform_config": only({}, None)}),
    "modelopt": KeyTable({**_SHARED, **_GROUPS, "quant_algo": only("FP8", "MXFP8"), "producer": _WRITER}),
}
_BITS = Kind(lambda value: value in (2, 3, 4, 8) and type(value) is int, "2, 3, 4 or 8")
_GROUP_SIZE = used(Kind(lambda value: value == -1 or keys.is_whole(value, 1), "a size, or -1 for whole rows"))
_FEW: dict[str, Key] = {"bits": used(_BITS), "group_size": _GROUP_SIZE, "quant_method": used(keys.text("gptq")),
                        "modules_to_not_convert": _STORED, "backend": _WRITER, "model_seqlen": _WRITER}
METHODS |= {
    "gptq": KeyTable({**_FEW, "checkpoint_format": only("gptq", "gptq_v2", "", None), "desc_act": _STORED,
                      "sym": _STORED, "true_sequential": _WRITER, "static_groups": _WRITER, "damp_percent": _WRITER,
                      "model_name_or_path": _WRITER, "model_file_base_name": _WRITER, "is_marlin_format": only(False),
                      "quantizer": _WRITER, "meta": _WRITER, "exllama_config": _WRITER, "use_exllama": _WRITER,
                      "max_input_length": _WRITER, "use_cuda_fp16": _WRITER, "dataset": _WRITER, "tokenizer": _WRITER,
                      "batch_size": _WRITER, "block_name_to_quantize": _STORED, "pad_token_id": _WRITER,
                      "module_name_preceding_first_block": _STORED, "modules_in_block_to_quantize": _STORED,
                      "cache_block_outputs": _WRITER, "disable_exllama": _WRITER, "lm_head": _STORED,
                      "dynamic": only(None, {}), "pack_dtype": only("int32", None), "format": only("gptq", "gptq_v2"),
                      "hyb_act": only(False), "mse": _WRITER}),
    "awq": KeyTable({**_FEW, "version": only("gemm", "GEMM"), "zero_point": only(True), "bits": only(4),
                     "exllama_config": _WRITER, "do_fuse": _WRITER, "fuse_max_seq_len": _WRITER,
                     "modules_to_fuse": _WRITER}),
}
_INTEGER_FORMATS = ("pack-quantized", "int-quantized")
_INTEGER_WEIGHTS = KeyTable({**_WEIGHTS, "num_bits": used(Kind(lambda value: value in (4, 8), "4 or 8")),
                             "type": only("int"), "symmetric": _STORED, "actorder": _STORED,
                             "strategy": used(keys.one_of("tensor", "channel", "group")),
                             "group_size": used(Kind(lambda value: value is None or value == -1 or keys.is_whole(
                                 value, 1), "a size").or_null())})
_INTEGER_TABLE = KeyTable({**METHODS["compressed-tensors"], "format": only(*_INTEGER_FORMATS)})
_INTEGER_GROUP = KeyTable({**_GROUP, "format": only(*_INTEGER_FORMATS, None)})


def integers_of(operation: str, file: str, config: Mapping[str, Any], ignore: Collection[str] = ()) -> Integers | None:
    """Return the checked description of weights of a few bits; None where they are floats.

    >>> integers_of("load", "", {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}})
    Integers(method='gptq', bits=4, shift=1)
    """
    said = config.get(NAME)
    method = said.get("quant_method") if isinstance(said, Mapping) else None
    if NAME in ignore or method not in ("gptq", "awq", "compressed-tensors"):
        return None
    assert isinstance(said, Mapping)
    if method != "compressed-tensors":
        METHODS[method].check(operation, file, said, ignore=ignore, within=NAME)
        if "bits" not in said:
            raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}{NAME} does not say bits")
        newer = "gptq_v2" in (said.get("checkpoint_format"), said.get("format"))
        return Integers(method, said["bits"], int(method == "gptq" and not newer))
    if said.get("format") not in _INTEGER_FORMATS:
        return None
    _INTEGER_TABLE.check(operation, file, said, ignore=ignore, within=NAME)
    bits = set()
    for name, group in (said.get("config_groups") or {}).items():
        within = f"{NAME}.config_groups.{name}"
        parts = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(parts, Mapping):
            raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}{within} is {shortened(group)}, which "
                                                 "says nothing about weights")
        _INTEGER_GROUP.check(operation, file, group, ignore=ignore, within=within)
        _INTEGER_WEIGHTS.check(operation, file, parts, ignore=ignore, within=f"{within}.weights")
        bits.add(parts.get("num_bits", 8))
    if len(bits) != 1:
        raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}{NAME} says {sorted(bits)} bits of "
                                             "weights, and one number of them is read")
    return Integers(method, bits.pop())


def block_size(operation: str, file: str, config: Mapping[str, Any],
               ignore: Collection[str] = ()) -> tuple[int, int] | None:
    """The size of the blocks of weights that share a scale, if it is said; everything else in it is checked.

    >>> block_size("load", "", {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})
    (128, 128)
    >>> block_size("load", "config.json", {"quantization_config": {"quant_method": "bitsandbytes"}})
    Traceback (most recent call last):
    ...
    morpho.base.errors.ArgumentError: [load] config.json: quantization_config.quant_method is 'bitsandbytes', and only \
fp8, mxfp4, fbgemm_fp8, compressed-tensors, modelopt, gptq, awq are read. At ...
    """
    found = config.get(NAME)
    if found is None or NAME in ignore:
        return None
    if integers_of(operation, file, config, ignore) is not None:
        return None
    where = f"{file}: " if file else ""
    method = found.get("quant_method") if isinstance(found, Mapping) else None
    if method not in METHODS:
        raise fail(ArgumentError, operation, f"{where}{NAME}.quant_method is {shortened(method)}, and only "
                                             f"{', '.join(METHODS)} are read")
    METHODS[method].check(operation, file, found, ignore=ignore, within=NAME)
    sizes = [found.get("weight_block_size"), *(_group_block(operation, file, name, group, ignore)
                                               for name, group in (found.get("config_groups") or {}).items())]
    said = {tuple(size) for size in sizes if size is not None}
    if len(said) > 1:
        raise fail(ArgumentError, operation, f"{where}{NAME} says several sizes of blocks: {sorted(said)}")
    return said.pop() if said else None


def _group_block(operation: str, file: str, name: str, group: Any, ignore: Collection[str]) -> Any:
    within = f"{NAME}.config_groups.{name}"
    given = group if isinstance(group, Mapping) else {}
    _GROUP.check(operation, file, given, ignore=ignore, within=within)
    weights = given.get("weights")
    if not isinstance(weights, Mapping):
        raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}{within} is {shortened(group)}, which says "
                                             "nothing about weights")
    _WEIGHTS.check(operation, file, weights, ignore=ignore, within=f"{within}.weights")
    group = [1, MX_GROUP] if weights.get("group_size") else None
    by_groups = weights.get("strategy", "group" if group else None) == "group"
    if by_groups != (group is not None) or (group is not None and weights.get("block_structure") is not None):
        raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}{within}.weights says a strategy, "
                                             "group_size and block_structure that do not belong together")
    return group or weights.get("block_structure")
