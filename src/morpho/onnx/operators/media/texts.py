"""Texts, on the host."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from morpho.onnx.operators.registry import Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import Array, is_text

FAMILY = Family("texts")


def _texts(call: Call, x: Any) -> Array:
    if not is_text(x):
        raise call.error("it takes texts")
    return np.asarray(x)


def _mapped(x: Array, function: Any, dtype: Any = object) -> Array:
    made = np.empty(x.size, dtype)
    made[:] = [function(text) for text in x.reshape(-1).tolist()]
    return made.reshape(x.shape)


@FAMILY.op("StringConcat")
def string_concat(call: Call, a: Any, b: Any) -> Any:
    a, b = np.broadcast_arrays(_texts(call, a), _texts(call, b))
    return _mapped(np.asarray([*zip(a.reshape(-1), b.reshape(-1)), None], object)[:-1], "".join).reshape(a.shape)


@FAMILY.op("StringSplit")
def string_split(call: Call, x: Any) -> Any:
    x, mark, most = _texts(call, x), call.get("delimiter"), call.get("maxsplit")
    rows = [text.split(mark or None, -1 if most is None else most) for text in x.reshape(-1).tolist()]
    widest = max((len(row) for row in rows), default=0)
    table = np.full((len(rows), widest), "", object)
    for place, row in enumerate(rows):
        table[place, :len(row)] = row
    return table.reshape(*x.shape, widest), np.asarray([len(row) for row in rows], np.int64).reshape(x.shape)


@FAMILY.op("RegexFullMatch")
def regex_full_match(call: Call, x: Any) -> Any:
    try:
        pattern = re.compile(call.need("pattern"))
    except re.error as error:
        raise call.error(f"the pattern is wrong: {error}") from None
    return _mapped(_texts(call, x), lambda text: pattern.fullmatch(text) is not None, np.bool_)


@FAMILY.op("StringNormalizer")
def string_normalizer(call: Call, x: Any) -> Any:
    x = _texts(call, x)
    case, stops = call.get("case_change_action", "NONE"), call.get("stopwords", [])
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise call.error(f"it takes the shapes (C,) and (1, C), not {x.shape}")
    exact = bool(call.get("is_case_sensitive", 0))
    banned = {*stops} if exact else {word.lower() for word in stops}
    kept = [text for text in x.reshape(-1).tolist() if (text if exact else text.lower()) not in banned]
    changes: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    kept = [changes[case](text) for text in kept] or [""]
    made = np.empty(len(kept), object)
    made[:] = kept
    return made if x.ndim == 1 else made[None]


@FAMILY.op("TfIdfVectorizer")
def tf_idf(call: Call, x: Any) -> Any:
    """Counts of n-grams, with gaps, weighted."""
    array = x if is_text(x) else call.static(x, "its tokens")
    pool = call.get("pool_strings") or call.need("pool_int64s")
    starts, places = call.need("ngram_counts"), call.need("ngram_indexes")
    shortest, longest, gaps = call.need("min_gram_length"), call.need("max_gram_length"), call.need("max_skip_count")
    known: dict[tuple[Any, ...], int] = {}
    for size, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)]), start=1):
        for at in range(begin, end - size + 1, size):
            known[tuple(pool[at:at + size])] = places[len(known)]
    rows = array.reshape(array.shape[0] if array.ndim > 1 else 1, -1) if array.size else np.zeros((1, 0), array.dtype)
    width = max(places) + 1
    counts = np.zeros((len(rows), width), np.float32)
    for row, tokens in zip(counts, rows.tolist()):
        for size in range(shortest, longest + 1):
            for gap in range(1 if size == 1 else gaps + 1):
                for at in range(len(tokens) - (size - 1) * (gap + 1)):
                    place = known.get(tuple(tokens[at:at + (size - 1) * (gap + 1) + 1:gap + 1]))
                    if place is not None:
                        row[place] += 1
    weights = np.ones(width, np.float32)
    if call.get("weights"):
        weights[places] = call.get("weights")
    mode = call.choice("mode", "TF", ("TF", "IDF", "TFIDF"))
    made = {"TF": counts, "IDF": (counts > 0) * weights, "TFIDF": counts * weights}[mode].astype(np.float32)
    return made[0] if array.ndim == 1 else made
