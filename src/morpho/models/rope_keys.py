"""The parts of `rope_scaling`: how rotary positions are stretched, and what each way needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.weights import keys
from morpho.weights.keys import KeyTable, Kind, irrelevant, one_of, only, used

_FACTOR = keys.number(8.0, above=0)
_FACTORS = Kind(lambda value: isinstance(value, list) and all(keys.is_number(each) and each > 0 for each in value),
                "a list of positive numbers")
_NEEDED = {  # type -> what it is made from
    "default": {},
    "linear": {"factor": _FACTOR},
    "llama3": {"factor": _FACTOR, "low_freq_factor": keys.number(1.0, above=0),
               "high_freq_factor": keys.number(4.0, above=0), "original_max_position_embeddings": keys.positive(8192)},
    "factors": {"factors": _FACTORS},  # of a GGUF file's own
    "yarn": {"factor": _FACTOR},
    "dynamic": {"factor": _FACTOR},
    "longrope": {"short_factor": _FACTORS, "long_factor": _FACTORS},
}
_SHARE = keys.number(1.0, above=0).or_null()
_OPTIONAL = {  # type -> what it may be made from besides
    "yarn": {"original_max_position_embeddings": keys.positive(4096).or_null(), "attention_factor": _SHARE,
             "beta_fast": _SHARE, "beta_slow": _SHARE, "mscale": _SHARE, "mscale_all_dim": _SHARE,
             "truncate": keys.flag()},
    "longrope": {"original_max_position_embeddings": keys.positive(4096).or_null(), "attention_factor": _SHARE,
                 "factor": _SHARE},
}
_NEEDED["su"], _OPTIONAL["su"] = _NEEDED["longrope"], _OPTIONAL["longrope"]  # as Phi-3's first files call it
USUAL = ("default", "linear", "llama3", "factors", "yarn", "dynamic")  # computed wherever angles are
_LENGTH = {"original_max_position_embeddings": irrelevant("of other types")}


def check_rope(operation: str, file: str, within: str, scaling: Mapping[str, Any], depth: int | None,
               ignore: Collection[str] = (), kinds: Collection[str] = USUAL, partial: bool = False) -> None:
    """Whether `rope_scaling`, or what newer files call so (`within`), has a type that is computed (one of `kinds`), all
    that it needs, and nothing else. `depth` is the width that turns; `partial`: it may be less than a head's."""
    where = f"{file}: " if file else ""
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    names = used(one_of(*kinds))
    share = used(keys.number(0.5, above=0, most=1).or_null()) if partial else only(1.0, 1, None)
    known = kind if isinstance(kind, str) else ""
    table = KeyTable({"rope_type": names, "type": names, "rope_theta": used(keys.number(10000.0, above=0)),
                      "partial_rotary_factor": share, **_LENGTH,
                      **{name: used(wanted) for name, wanted in {**_OPTIONAL.get(known, {}),
                                                                 **_NEEDED.get(known, {})}.items()}})
    if not names.kind.fits(kind):
        table = KeyTable({**table, "*": irrelevant("its type is the first error")})
    table.check(operation, file, scaling, ignore=ignore, within=within)
    if scaling.get("type", kind) != kind:
        raise fail(ArgumentError, operation, f"{where}{within}.type is {scaling['type']!r}, and rope_type {kind!r}")
    for name, wanted in _NEEDED[kind].items():
        if scaling.get(name) is None:
            raise fail(ArgumentError, operation, f"{where}{within} of type {kind!r} has no {name}",
                       f"give {wanted.wanted}")
    if kind == "llama3" and scaling["low_freq_factor"] >= scaling["high_freq_factor"]:
        raise fail(ArgumentError, operation, f"{where}{within}.high_freq_factor is {scaling['high_freq_factor']}, "
                                             f"not above low_freq_factor, {scaling['low_freq_factor']}")
    for name in ("factors", "short_factor", "long_factor"):
        if name in _NEEDED[kind] and depth is not None and len(scaling[name]) != depth // 2:
            raise fail(ArgumentError, operation, f"{where}{within}.{name} has {len(scaling[name])} numbers, not "
                                                 f"{depth // 2}, half of a head")
