"""Keys of `tokenizer.json` and `tokenizer_config.json`: which keys are used, which do not matter, and which are
refused. Values inside a part of the pipeline are looked at by what runs it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from morpho.base.errors import fail
from morpho.weights import keys
from morpho.weights.errors import FileFault
from morpho.weights.keys import KeyTable, Kind, irrelevant, only, used
from morpho.weights.scanner import shortened

_part = used(keys.record().or_null())
_TEXT = Kind(lambda value: isinstance(value.get("content") if isinstance(value, dict) else value, str),
             "the text of a token, or an object with its content").or_null()
_LIST = Kind(lambda value: isinstance(value, list), "a list")
_PLAIN = "encode is plain, and encode_batch(pad=True) pads to the longest"
_SAID = "tokenizer.json says it"
_LIBRARY = "how the library that wrote the file calls its tokenizers"
_TEMPLATE = Kind(lambda value: isinstance(value, str) or (isinstance(value, list) and all(
    isinstance(each, dict) and isinstance(each.get("template"), str) for each in value)),
    "a template, or a list of objects with name and template").or_null()

DOCUMENT = KeyTable({
    "version": only("1.0"), "truncation": irrelevant(_PLAIN), "padding": _part,
    "added_tokens": used(_LIST), "normalizer": _part, "pre_tokenizer": _part, "post_processor": _part, "decoder": _part,
    "model": used(keys.record()),
})
ADDED = KeyTable({"id": used(keys.token()), "content": used(Kind(lambda value: isinstance(value, str) and bool(value),
                                                              "a text")),
                  **dict.fromkeys(("special", "single_word", "lstrip", "rstrip", "normalized"), used(keys.flag()))})
# The parts that the tokenizers library knows: type -> what they may hold.
_LEVEL = "add_prefix_space trim_offsets use_regex"
PARTS = {name: frozenset(held.split()) for name, held in {
    "BertNormalizer": "clean_text handle_chinese_chars strip_accents lowercase", "StripAccents": "", "NFC": "",
    "NFD": "", "NFKC": "", "NFKD": "", "Nmt": "", "Lowercase": "", "Precompiled": "precompiled_charsmap",
    "Replace": "pattern content", "Prepend": "prepend", "Strip": "strip_left strip_right content start stop",
    "BertPreTokenizer": "", "ByteLevel": _LEVEL, "CharDelimiterSplit": "delimiter", "Whitespace": "",
    "WhitespaceSplit": "", "Metaspace": "replacement add_prefix_space prepend_scheme split str_rep",
    "Split": "pattern behavior invert", "Punctuation": "behavior", "Digits": "individual_digits", "UnicodeScripts": "",
    "FixedLength": "length", "BertProcessing": "sep cls", "RobertaProcessing": "sep cls trim_offsets add_prefix_space",
    "TemplateProcessing": "single pair special_tokens", "BPEDecoder": "suffix", "WordPiece": "prefix cleanup unk_token "
    "continuing_subword_prefix max_input_chars_per_word vocab", "CTC": "pad_token word_delimiter_token cleanup",
    "Fuse": "", "ByteFallback": "", "WordLevel": "vocab unk_token", "Unigram": "unk_id vocab byte_fallback",
    "BPE": "dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback ignore_merges vocab "
    "merges", "Sequence": "normalizers pretokenizers processors decoders",
}.items()}
# What these keys hold in every part that has them: an empty value of another kind is not one that was left out.
_WORD = Kind(lambda value: isinstance(value, str), "a text").or_null()
VALUES = {"dropout": keys.number().or_null(),
          **dict.fromkeys(("unk_token", "continuing_subword_prefix", "end_of_word_suffix"), _WORD),
          **dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), keys.flag().or_null()),
          **dict.fromkeys(("add_prefix_space", "trim_offsets", "use_regex", "individual_digits"), keys.flag())}

_flag = used(keys.flag().or_null())
CONFIG = KeyTable({
    "eos_token": used(_TEXT), "bos_token": used(_TEXT), "pad_token": used(_TEXT), "chat_template": used(_TEMPLATE),
    "add_bos_token": _flag, "add_eos_token": _flag, "add_prefix_space": _flag, "do_lower_case": _flag,
    "strip_accents": _flag, "tokenize_chinese_chars": _flag,
    "added_tokens_decoder": used(keys.record().or_null()), "split_special_tokens": only(False),
    "auto_map": only(None), "errors": only("replace", None),
    "clean_up_tokenization_spaces": irrelevant("decode follows the decoder of tokenizer.json"),
    "spaces_between_special_tokens": irrelevant("decode follows the decoder of tokenizer.json"),
    **{name: irrelevant(_SAID) for name in (
        "unk_token", "sep_token", "cls_token", "mask_token", "additional_special_tokens", "extra_special_tokens",
        "extra_ids", "sp_model_kwargs", "legacy", "do_basic_tokenize", "never_split", "remove_space", "keep_accents",
        "trim_offsets", "wordpieces_prefix", "vocab_file", "merges_file", "add_dummy_prefix_space", "unk_id",
        "eos_token_id", "bos_token_id", "pad_token_id", "image_token", "model_specific_special_tokens")},
    **{name: irrelevant(_PLAIN) for name in (
        "model_max_length", "max_len", "max_length", "padding_side", "truncation_side", "padding", "truncation",
        "stride", "pad_to_multiple_of", "pad_token_type_id", "truncation_strategy", "pad_to_max_length")},
    **{name: irrelevant(_LIBRARY) for name in (
        "tokenizer_class", "name_or_path", "special_tokens_map_file", "tokenizer_file", "model_input_names",
        "return_token_type_ids", "use_fast", "use_default_system_prompt", "backend", "is_local", "local_files_only",
        "from_slow", "processor_class", "_commit_hash", "transformers_version", "device_map", "trust_remote_code")},
})


def check_document(document: Mapping[str, Any], file: str, ignore: Collection[str]) -> None:
    """Every key of a tokenizer.json is known, inside its parts too."""
    DOCUMENT.check("load_tokenizer", file, document, ignore=ignore, kind=FileFault)
    for place, token in enumerate(document.get("added_tokens") or []):
        if not isinstance(token, dict) or "id" not in token or "content" not in token:
            raise fail(FileFault, "load_tokenizer", f"{file} has the added token {shortened(token)}",
                       "give an object with id and content")
        ADDED.check("load_tokenizer", file, token, ignore=ignore, within=f"added_tokens.{place}", kind=FileFault)
    for name, part in _parts(document):
        known = PARTS.get(part.get("type", "BPE" if name == "model" else ""))  # unknown types are the library's errors
        for key in part if known is not None else ():
            where, value = f"{name}.{key}", part[key]
            if key == "type" or where in ignore:
                continue
            if key not in known and value is not None:  # type: ignore[operator]
                raise fail(FileFault, "load_tokenizer", f"{file}: {where} is {shortened(value)}, and what that means "
                                                        "is not known",
                           f"if it does not matter, go on without it: ignore=[{where!r}]")
            if key in VALUES and not VALUES[key].fits(value):
                raise fail(FileFault, "load_tokenizer", f"{file}: {where} is {shortened(value)}",
                           f"give {VALUES[key].wanted}")


def check_numbers(document: Mapping[str, Any], file: str) -> None:
    """Added tokens have the numbers that follow from the vocabulary: its own, or the next ones after it. The tokenizers
    library gives them those, whatever the file says."""
    model = document.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict):
        numbers = dict(vocab)
    elif isinstance(vocab, list) and all(isinstance(row, list) and row and isinstance(row[0], str) for row in vocab):
        numbers = {row[0]: place for place, row in enumerate(vocab)}
    else:
        return  # the library's error
    size = after = len(numbers)
    for place, token in enumerate(document.get("added_tokens") or []):
        text, said = token["content"], token["id"]
        if not text:
            continue
        if numbers.setdefault(text, after) != said:
            raise fail(FileFault, "load_tokenizer", f"{file}: added_tokens.{place}.id is {shortened(said)}, and by the "
                                                    f"vocabulary {shortened(text)} has the number {numbers[text]}",
                       "give the added tokens the numbers after the vocabulary, or fetch the file again")
        if said >= size:
            after = max(after, said + 1)


def _parts(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The parts of the pipeline, and of sequences in it, with where they stand."""
    waiting = [(name, document.get(name)) for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder",
                                                       "model")]
    while waiting:
        name, part = waiting.pop()
        if isinstance(part, dict) and isinstance(part.get("type", ""), str):
            yield name, part
            for held in ("normalizers", "pretokenizers", "processors", "decoders"):
                inner = part.get(held)
                waiting += [(f"{name}.{held}.{place}", each) for place, each in enumerate(
                    inner if isinstance(inner, list) else ())]


def check_config(config: Mapping[str, Any], document: Mapping[str, Any], file: str, ignore: Collection[str]) -> None:
    """Every key of a tokenizer_config.json is known, and none says other things than tokenizer.json."""
    CONFIG.check("load_tokenizer", file, config, ignore=ignore, kind=FileFault)
    for key, kind, field in (("do_lower_case", "BertNormalizer", "lowercase"),
                             ("strip_accents", "BertNormalizer", "strip_accents"),
                             ("tokenize_chinese_chars", "BertNormalizer", "handle_chinese_chars"),
                             ("add_prefix_space", "ByteLevel", "add_prefix_space")):
        said = config.get(key)
        if said is None or key in ignore:
            continue
        for name, part in _parts(document):
            if part.get("type") == kind and name.startswith(("normalizer", "pre_tokenizer")) \
                    and isinstance(part.get(field), bool) and part[field] is not said:
                raise _contradiction(file, key, said, f"{name}.{field} is {part[field]}")
    texts = {token["id"]: token["content"] for token in document.get("added_tokens") or []}
    known = {} if "added_tokens_decoder" in ignore else config.get("added_tokens_decoder") or {}
    for number, token in known.items():
        text = token.get("content") if isinstance(token, dict) else None
        ours = next((content for place, content in texts.items() if str(place) == number), None)
        if text is None or text != ours:
            raise _contradiction(file, f"added_tokens_decoder.{number}", text, f"that added token is {shortened(ours)}")


def check_around(config: Mapping[str, Any], tokenizer: Any, file: str, ignore: Collection[str]) -> None:
    """Whether the tokens that tokenizer.json puts around a text are those that the configuration asks for."""
    around = tokenizer.encode("")
    for key, number in (("add_bos_token", tokenizer.bos), ("add_eos_token", tokenizer.eos)):
        said = config.get(key)
        if said is None or key in ignore:
            continue
        ends = around[:1] if key == "add_bos_token" else around[-1:]
        if said is not (number is not None and ends == [number]):
            raise _contradiction(file, key, said, "a text becomes " + ("no such token" if said else "one") + " there")


def _contradiction(file: str, key: str, said: Any, other: str) -> Exception:
    return fail(FileFault, "load_tokenizer", f"{file}: {key} is {shortened(said)}, and in tokenizer.json {other}",
                f"one of them is wrong; to go by tokenizer.json, ignore=[{key.split('.')[0]!r}]")
