"""`quantization_config` of config.json: weights of 8-bit floats with scales are read, whatever wrote them; other kinds
are refused by name. Activations are never rounded here, so what is said about them does not matter."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.weights import keys
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


def block_size(operation: str, file: str, config: Mapping[str, Any],
               ignore: Collection[str] = ()) -> tuple[int, int] | None:
    """The size of the blocks of weights that share a scale, if it is said; everything else in it is checked.

    >>> block_size("load", "", {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})
    (128, 128)
    >>> block_size("load", "config.json", {"quantization_config": {"quant_method": "awq"}})
    Traceback (most recent call last):
    ...
    morpho.base.errors.ArgumentError: [load] config.json: quantization_config.quant_method is 'awq', and only fp8, \
mxfp4, fbgemm_fp8, compressed-tensors, modelopt are read. At ...
    """
    found = config.get(NAME)
    if found is None or NAME in ignore:
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
