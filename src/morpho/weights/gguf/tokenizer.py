"""The tokenizer that the header of a GGUF file describes: byte-level BPE (`gpt2`) or SentencePiece's (`llama`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import repeat
from typing import Any

from morpho.base.errors import fail
from morpho.weights.errors import FileFault
from morpho.weights.gguf.keys import TOKENIZER
from morpho.weights.scanner import shortened
from morpho.weights.text.bpe import BytePairs
from morpho.weights.text.sentencepieces import BLANK, SentencePieces
from morpho.weights.text.tokenizer import Tokenizer

# Pre-tokenizers of byte-level BPE: the pattern of its words, and whether numbers fall into single digits first.
PATTERNS = {**{name: ("gpt-2", False) for name in ("gpt-2", "phi-2", "mpt", "olmo", "jais")},
            **{name: ("gpt-2", True) for name in ("smollm", "refact", "command-r", "codeshell", "exaone")},
            **{name: ("qwen2", False) for name in ("qwen2", "deepseek-r1-qwen")},
            **{name: ("llama-bpe", False) for name in ("llama-bpe", "llama3", "llama-v3", "smaug-bpe")}}
UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 2, 3, 4, 5, 6  # types of tokens; 1 is a usual one


def tokenizer_of(metadata: Mapping[str, Any], name: str, ignore: Collection[str] = ()) -> Tokenizer:
    """The tokenizer that a file's metadata describes."""
    metadata = {key: value for key, value in metadata.items() if key.startswith("tokenizer.") and key not in ignore}
    TOKENIZER.check("load_gguf", name, metadata, kind=FileFault)
    kind, before = text_of(metadata, "tokenizer.ggml.model"), text_of(metadata, "tokenizer.ggml.pre", "")
    if kind == "llama" and before in ("", "default"):
        return _sentence_pieces(metadata, name)
    if kind != "gpt2" or before not in PATTERNS:
        raise fail(FileFault, "load_gguf", f"{name}: tokenizer.ggml.model is {shortened(kind)} and "
                   f"tokenizer.ggml.pre {shortened(before)}: an unknown tokenizer",
                   "byte-level BPE with " + ", ".join(PATTERNS) + " and SentencePiece's are known; load another with "
                   "load_tokenizer")
    return _byte_pairs(metadata, name, *PATTERNS[before])


def _byte_pairs(metadata: Mapping[str, Any], name: str, pattern: str, split_digits: bool) -> BytePairs:
    _only(metadata, name, "add_space_prefix", False)
    tokens, types = _tokens(metadata, name)
    merges = metadata.get("tokenizer.ggml.merges")
    if not _are_texts(merges):
        raise fail(FileFault, "load_gguf", f"{name} has no merges")
    if {*map(str.count, merges, repeat(" "))} != {1}:  # type: ignore[arg-type]
        raise fail(FileFault, "load_gguf", f"{name} has a merge that is not two words")
    halves = " ".join(merges).split(" ")  # type: ignore[arg-type]  # without a loop of Python's over a hundred thousand
    pairs = [*zip(halves[::2], halves[1::2], strict=True)]
    of_type = _by_type(tokens, types)
    plain = dict(zip(tokens, range(len(tokens)), strict=True))
    for number in [number for number, kind in enumerate(types) if kind in (CONTROL, USER_DEFINED)]:
        del plain[tokens[number]]
    return BytePairs(plain, pairs, of_type[CONTROL], added=of_type[USER_DEFINED], split_digits=split_digits,
                     pattern=pattern, **_named(metadata, name, len(tokens)))


def _sentence_pieces(metadata: Mapping[str, Any], name: str) -> SentencePieces:
    tokens, types = _tokens(metadata, name)
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens) or not all(
            type(score) in (int, float) and score == score for score in scores):
        raise fail(FileFault, "load_gguf", f"{name} does not have a score for each token")
    of_type = _by_type(tokens, types)
    letters = {}
    for number, token in enumerate(tokens):
        if types[number] == BYTE:
            if len(token) != 6 or not token.startswith("<0x") or not token.endswith(">"):
                raise fail(FileFault, "load_gguf", f"{name}: token {number}, {shortened(token)}, is said to be a byte")
            try:
                letters[int(token[3:5], 16)] = number
            except ValueError:
                raise fail(FileFault, "load_gguf", f"{name}: token {number}, {shortened(token)}, is said to be a byte"
                           ) from None
    apart = (UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE)
    pieces = {token: number for number, token in enumerate(tokens) if types[number] not in apart and token}
    for token, number in of_type[USER_DEFINED].items():  # they are pieces of a text, too, that merges may reach
        pieces.setdefault(token.replace(" ", BLANK), number)
    return SentencePieces(pieces, scores, letters, specials=of_type[CONTROL],
                          added={token.replace(BLANK, " "): number for token, number in of_type[USER_DEFINED].items()},
                          blank_first=metadata.get("tokenizer.ggml.add_space_prefix", True),
                          unknown=_token(metadata, "unknown", len(tokens)), **_named(metadata, name, len(tokens)))


# -- parts -------------------------------------------------------------------------------------------------------------
def _tokens(metadata: Mapping[str, Any], name: str) -> tuple[list[str], list[int]]:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not _are_texts(tokens) or len({*tokens}) != len(tokens):  # type: ignore[arg-type, misc]
        raise fail(FileFault, "load_gguf", f"{name} has no tokens and merges, or one token twice")
    types = metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)  # type: ignore[arg-type]
    if not isinstance(types, list) or len(types) != len(tokens):  # type: ignore[arg-type]
        raise fail(FileFault, "load_gguf", f"{name} does not have a type for each token")
    return tokens, types  # type: ignore[return-value]


def _by_type(tokens: list[str], types: list[int]) -> dict[int, dict[str, int]]:
    apart = [(number, kind) for number, kind in enumerate(types) if kind in (CONTROL, USER_DEFINED)]
    return {wanted: {tokens[number]: number for number, kind in apart if kind == wanted and tokens[number]}
            for wanted in (CONTROL, USER_DEFINED)}


def _named(metadata: Mapping[str, Any], name: str, count: int) -> dict[str, Any]:
    """Tokens with a role, what is put around a text, the form of a chat."""
    return {**{which: _token(metadata, said, count) for which, said in (("eos", "eos"), ("bos", "bos"),
                                                                        ("pad", "padding"))},
            **_around(metadata, name), "chat_template": text_of(metadata, "tokenizer.chat_template", "")}


def _only(metadata: Mapping[str, Any], name: str, key: str, value: Any) -> None:
    found = metadata.get(f"tokenizer.ggml.{key}", value)
    if found != value:
        raise fail(FileFault, "load_gguf", f"{name}: tokenizer.ggml.{key} is {shortened(found)}, and only {value} is "
                                           "computed for this tokenizer",
                   f'go on without it with ignore=["tokenizer.ggml.{key}"]')


def text_of(fields: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """Value of a key, if it is a text."""
    found = fields.get(key, default)
    if not isinstance(found, str):
        raise fail(FileFault, "load_gguf", f"{key} is {shortened(found)}, not a text")
    return found


def _around(metadata: Mapping[str, Any], name: str) -> dict[str, list[int]]:
    """Which tokens are put around a text."""
    found: dict[str, list[int]] = {"before": [], "after": []}
    for which, where in (("bos", "before"), ("eos", "after")):
        if metadata.get(f"tokenizer.ggml.add_{which}_token"):
            if f"tokenizer.ggml.{which}_token_id" not in metadata:
                raise fail(FileFault, "load_gguf", f"{name}: tokenizer.ggml.add_{which}_token is True, and there is no "
                                                   f"{which}_token_id")
            found[where] = [metadata[f"tokenizer.ggml.{which}_token_id"]]
    return found


def _are_texts(found: Any) -> bool:
    return isinstance(found, list) and {*map(type, found)} == {str}


def _token(metadata: Mapping[str, Any], which: str, count: int) -> int | None:
    found = metadata.get(f"tokenizer.ggml.{which}_token_id")
    if found is not None and (type(found) is not int or not 0 <= found < count):
        raise fail(FileFault, "load_gguf", f"tokenizer.ggml.{which}_token_id is {shortened(found)} in a vocabulary of "
                                           f"{count}")
    return found
