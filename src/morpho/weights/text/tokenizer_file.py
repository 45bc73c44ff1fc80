"""`tokenizer.json` in and out: byte-level BPE by Morpho itself, anything else through the tokenizers library.

Beside it, `tokenizer_config.json` says which special tokens begin and end a text, and how a chat is written.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from morpho.base.errors import fail
from morpho.weights.atomic import atomic_file, storing
from morpho.weights.errors import FileFault, MissingFile
from morpho.weights.safetensors import open_regular
from morpho.weights.scanner import is_text, shortened
from morpho.weights.text.bpe import BytePairs
from morpho.weights.text.library import LibraryTokenizer
from morpho.weights.text.post_processor import around_of, is_byte_level, template_of
from morpho.weights.text.pretokenise import GROUPS, published_pattern
from morpho.weights.text.tokenizer import Tokenizer
from morpho.weights.text.tokenizer_keys import check_around, check_config, check_document, check_numbers

NAME, CONFIG, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
MOST_BYTES = 64 << 20
MOST_BRACKETS, MOST_QUOTES = 1 << 21, 1 << 23  # what parsing may build is bounded before it begins
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # of either half: most files have none, and are not searched
ENDS = ("<|endoftext|>", "<|im_end|>", "<|end_of_text|>", "<|eot_id|>", "</s>", "<eos>", "[SEP]")


def load_tokenizer(path: str | os.PathLike[str], *, ignore: Collection[str] = ()) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`, or of a folder with one. Byte-level BPE needs nothing else; other kinds
    (WordPiece, Unigram, normalisers) go through the tokenizers library (`pip install 'morpho-tensor[models]'`).

    Every key of it and of `tokenizer_config.json` is used, known not to matter, or an error that names it; `ignore` are
    keys to go on without. Truncation and padding in the file are not obeyed: `encode` gives all tokens and no others.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> mo.weights.save_tokenizer(folder, mo.weights.train_bpe("a rose is a rose", vocab_size=262))
    >>> tokenizer = mo.weights.load_tokenizer(folder)
    >>> tokenizer.decode(tokenizer.encode("a rose"))
    'a rose'
    """
    place = Path(path)
    file = place / NAME if place.is_dir() else place
    raw = _read(file)
    document = parse_json(raw, file.name)
    config = _config(file.with_name(CONFIG))
    check_document(document, file.name, ignore)
    check_config(config, document, CONFIG, ignore)
    config = {key: value for key, value in config.items() if key not in ignore}
    specials, added = _added(document)
    eos, bos, pad = (_number(config, f"{which}_token", specials) for which in ("eos", "bos", "pad"))
    if eos is None:
        eos = next((specials[name] for name in ENDS if name in specials), None)
    if pad is None:
        pad = _padding(document, file.name)
    options: dict[str, Any] = {"eos": eos, "bos": bos, "pad": pad,
                               "chat_template": _template(config, file.with_name(TEMPLATE))}
    form = _own_form(document)
    if form is None:
        kept = {key: value for key, value in document.items() if key not in ignore}
        plain = {**kept, "truncation": None, "padding": None}
        if plain != document:
            raw = json.dumps(plain, ensure_ascii=False).encode()
        found: Tokenizer = LibraryTokenizer(raw.decode("utf-8"), specials, name=file.name, **options)
    else:
        found = _byte_pairs(document["model"], specials, file.name, {**options, **form, "added": added})
    check_numbers(document, file.name)  # of a vocabulary that is one
    check_around(config, found, CONFIG, ignore)
    return found


def save_tokenizer(path: str | os.PathLike[str], tokenizer: Tokenizer) -> None:
    """Write `tokenizer.json`, and `tokenizer_config.json` beside it, whole or not at all. The tokenizers library reads
    the file and gives the same numbers.

    >>> import tempfile
    >>> mo.weights.save_tokenizer(tempfile.mkdtemp(), mo.weights.train_bpe("one and one", vocab_size=258))
    """
    place = Path(path)
    file = place if place.suffix == ".json" else place / NAME
    if isinstance(tokenizer, LibraryTokenizer):
        text = tokenizer.document
    elif isinstance(tokenizer, BytePairs):
        text = json.dumps(_document(tokenizer), ensure_ascii=False, indent=1)
    else:
        raise fail(FileFault, "save_tokenizer", f"a {type(tokenizer).__name__} has no form as {NAME}")
    names = {number: name for name, number in tokenizer.specials.items()}
    config = {"eos_token": names.get(tokenizer.eos), "bos_token": names.get(tokenizer.bos),  # type: ignore[arg-type]
              "pad_token": names.get(tokenizer.pad), "chat_template": tokenizer.chat_template or None}  # type: ignore[arg-type]
    with storing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        for target, content in ((file, text), (file.with_name(CONFIG), json.dumps(config, indent=1))):
            with atomic_file(target) as opened:
                opened.write(content.encode())


# -- reading -----------------------------------------------------------------------------------------------------------
def _read(file: Path) -> bytes:
    with open_regular(file) as opened:
        raw = opened.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise fail(FileFault, "load_tokenizer", f"{file.name} has more than {MOST_BYTES} bytes")
    return raw  # type: ignore[no-any-return]


def parse_json(raw: bytes, name: str) -> dict[str, Any]:
    """A JSON object out of bytes that others wrote, with a bound on what is built from them."""
    if raw.count(b"[") + raw.count(b"{") > MOST_BRACKETS or raw.count(b'"') > MOST_QUOTES:
        raise fail(FileFault, "load_tokenizer", f"{name} holds more lists and texts than a tokenizer has")
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        raise fail(FileFault, "load_tokenizer", f"{name} is not JSON") from None
    if not isinstance(document, dict):
        raise fail(FileFault, "load_tokenizer", f"{name} is not a JSON object")
    if _SURROGATE.search(raw) and (place := _half_of_a_pair(document)):
        raise fail(FileFault, "load_tokenizer", f"{name}: a text in {place} holds half of a surrogate pair",
                   "fetch the file again; such a text is no Unicode")
    return document


def _half_of_a_pair(document: Any) -> str:
    """Where a text stands that UTF-8 cannot say, by the keys that lead to it; "" where none is."""
    waiting: list[tuple[Any, tuple[str, ...]]] = [(document, ())]
    while waiting:
        part, place = waiting.pop()
        if isinstance(part, str) and not is_text(part):
            return ".".join(place) or "its keys"
        if isinstance(part, dict):
            waiting += [(key, place) for key in part]
            waiting += [(value, (*place, key) if is_text(key) else place) for key, value in part.items()]
        elif isinstance(part, list):
            waiting += [(value, place) for value in part]
    return ""


def _config(file: Path) -> dict[str, Any]:
    try:
        return parse_json(_read(file), file.name)
    except MissingFile:
        return {}


def _template(config: Mapping[str, Any], file: Path) -> str:
    """The template of a chat: in a file of its own, or in the configuration."""
    try:
        return _read(file).decode("utf-8", "replace")
    except MissingFile:
        found = config.get("chat_template")
        if isinstance(found, list):  # several, by name
            found = next((each["template"] for each in found if each.get("name") == "default"), "")
        return found or ""


def _added(document: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """The special tokens of the document, and others that are texts of their own."""
    found: tuple[dict[str, int], dict[str, int]] = {}, {}
    for token in document.get("added_tokens") or []:
        found[0 if token.get("special") else 1][token["content"]] = token["id"]
    return found


def _padding(document: Mapping[str, Any], name: str) -> int | None:
    """The token that the document fills up with; how far it does is not obeyed."""
    found = (document.get("padding") or {}).get("pad_id")
    if found is not None and (type(found) is not int or not 0 <= found < 1 << 31):
        raise fail(FileFault, "load_tokenizer", f"{name}: padding.pad_id is {shortened(found)}",
                   "give the number of a token")
    return found


def _number(config: Mapping[str, Any], key: str, specials: Mapping[str, int]) -> int | None:
    """The number of a token that the configuration names, as a text or as a record with `content`."""
    found = config.get(key)
    found = found.get("content") if isinstance(found, dict) else found
    return specials.get(found) if isinstance(found, str) else None


def _own_form(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Whether digits are split, and what stands around a text, if Morpho reads this form by itself; None if it needs
    the library."""
    around, split_digits = around_of(document.get("post_processor")), _splits_digits(document)
    return None if around is None or split_digits is None else {**around, "split_digits": split_digits}


def _splits_digits(document: Mapping[str, Any]) -> bool | None:
    model = document.get("model")
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
        return None
    if document.get("normalizer") is not None or any(model.get(key) for key in (
            "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback",
            "ignore_merges")):
        return None
    if not is_byte_level(document.get("decoder"), regex=False):
        return None
    for token in document.get("added_tokens") or []:
        if any(token.get(key) for key in ("single_word", "lstrip", "rstrip", "normalized")):
            return None
    before = document.get("pre_tokenizer")
    if is_byte_level(before, regex=True):
        return False
    steps = before.get("pretokenizers") if isinstance(before, dict) and before.get("type") == "Sequence" else None
    if isinstance(steps, list) and len(steps) == 2 and is_byte_level(steps[1], regex=True):
        if steps[0] == {"type": "Digits", "individual_digits": True}:
            return True
    return None


def _byte_pairs(model: Mapping[str, Any], specials: dict[str, int], name: str, options: dict[str, Any]) -> BytePairs:
    vocabulary, merges = model.get("vocab"), model.get("merges")
    if not isinstance(vocabulary, dict) or not isinstance(merges, list):
        raise fail(FileFault, "load_tokenizer", f"{name} has no vocabulary and merges")
    if not all(type(number) is int and 0 <= number < 1 << 31 for number in vocabulary.values()):
        raise fail(FileFault, "load_tokenizer", f"{name} has token ids that are not numbers")
    others = {**options["added"], **specials}
    plain = {text: number for text, number in vocabulary.items() if others.get(text) != number}
    if len({*plain.values(), *others.values()}) != len(plain) + len(others):
        raise fail(FileFault, "load_tokenizer", f"{name} gives one number to two tokens")
    return BytePairs(plain, [_pair(merge, name) for merge in merges], specials, **options)


def _pair(merge: Any, name: str) -> tuple[str, str]:
    """A merge as a list of two, or as two words in one text."""
    parts = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise fail(FileFault, "load_tokenizer", f"{name} has the merge {shortened(merge)}")
    return parts[0], parts[1]


# -- writing -----------------------------------------------------------------------------------------------------------
def _document(tokenizer: BytePairs) -> dict[str, Any]:
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    before = {"type": "Sequence", "pretokenizers": [digits, level]} if tokenizer.split_digits else level
    if tokenizer.pattern in GROUPS:
        split = {"type": "Split", "pattern": {"Regex": published_pattern(tokenizer.pattern)}, "behavior": "Isolated",
                 "invert": False}
        before = {"type": "Sequence", "pretokenizers": [split, {**level, "use_regex": False}]}
    others = {**tokenizer.added, **tokenizer.specials}
    added = [{"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": text in tokenizer.specials}
             for text, number in sorted(others.items(), key=lambda item: item[1])]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": before, "post_processor": template_of(tokenizer), "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": tokenizer.whole_words,
                  "vocab": {**others, **tokenizer.vocabulary},
                  "merges": [list(pair) for pair in tokenizer.merges]},
    }
