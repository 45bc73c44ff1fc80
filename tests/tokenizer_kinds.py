"""Small tokenizers of the kinds that published folders have, trained here by the tokenizers library."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

TEXT = ["to be or not to be, that is the question", 'she said: {"name": "Ann", "age": 31} and so on',
        "é è ü straße, ça va? 日本語のテキスト 日本 语", "[1, 2, 3] 4567 true false null yes no", "a\nb\n\n  c\td"] * 6
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"
CONTROL = ["<unk>", "<s>", "</s>"]
TEMPLATE = ("{% for message in messages %}{{ '[' + message['role'] + '] ' + message['content'] + '\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}")


class Kind(NamedTuple):
    """`text` is what the bytes of `encode(text)` join to, after the file's normalisation; None where that loses
    characters."""

    make: Callable[[Any], Any]
    text: Callable[[str], str] | None
    byte_level: bool  # whether any text can be written


def _same(text: str) -> str:
    return text


def _blanks(text: str) -> str:
    return text.replace("▁", " ")


def _byte_pairs(t: Any, **more: Any) -> Any:
    library = t.Tokenizer(t.models.BPE(**more))
    library.decoder = t.decoders.ByteLevel()
    return library


def _train_byte_level(t: Any, library: Any) -> Any:
    library.train_from_iterator(TEXT, t.trainers.BpeTrainer(
        vocab_size=360, special_tokens=CONTROL[1:], show_progress=False,
        initial_alphabet=t.pre_tokenizers.ByteLevel.alphabet()))
    return library


def _roberta(t: Any) -> Any:
    library = _byte_pairs(t)
    library.pre_tokenizer = t.pre_tokenizers.ByteLevel(add_prefix_space=True)
    return _train_byte_level(t, library)


def _gpt2(t: Any) -> Any:
    library = _byte_pairs(t)
    library.pre_tokenizer = t.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return _train_byte_level(t, library)


def _split(t: Any, library: Any) -> Any:
    library.pre_tokenizer = t.pre_tokenizers.Sequence([
        t.pre_tokenizers.Split(t.Regex(SPLIT), "isolated"),
        t.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return _train_byte_level(t, library)


def _qwen2(t: Any) -> Any:
    library = _byte_pairs(t)
    library.normalizer = t.normalizers.NFC()
    return _split(t, library)


def _llama3(t: Any) -> Any:
    library = _split(t, _byte_pairs(t, ignore_merges=True))
    library.post_processor = t.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", library.token_to_id("<s>"))])
    return library


def _fallback(t: Any, before: Any, normalizer: Any, strip: bool) -> Any:
    """Byte-fallback BPE: the library's trainer makes no tokens for bytes, so they are put into its file."""
    library = t.Tokenizer(t.models.BPE())
    library.normalizer = normalizer
    library.pre_tokenizer = before or t.pre_tokenizers.Metaspace(prepend_scheme="never")
    library.train_from_iterator(TEXT, t.trainers.BpeTrainer(vocab_size=110, show_progress=False))
    document = json.loads(library.to_str())
    pieces = sorted(document["model"]["vocab"], key=document["model"]["vocab"].get)
    names = [*CONTROL, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    document["model"].update(vocab={name: number for number, name in enumerate(names)}, byte_fallback=True,
                             unk_token="<unk>", fuse_unk=True)
    library = t.Tokenizer.from_str(json.dumps(document))
    library.pre_tokenizer = before
    library.add_special_tokens(CONTROL)
    steps = [t.decoders.Replace("▁", " "), t.decoders.ByteFallback(), t.decoders.Fuse()]
    library.decoder = t.decoders.Sequence([*steps, t.decoders.Strip(" ", 1, 0)] if strip else steps)
    return library


def _llama2(t: Any) -> Any:
    n = t.normalizers
    library = _fallback(t, None, n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")]), True)
    library.post_processor = t.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return library


def _mistral(t: Any) -> Any:
    return _fallback(t, t.pre_tokenizers.Metaspace(prepend_scheme="first", split=False), None, True)


def _gemma(t: Any) -> Any:
    return _fallback(t, t.pre_tokenizers.Split(" ", "merged_with_previous"), t.normalizers.Replace(" ", "▁"), False)


def _bert(t: Any) -> Any:
    library = t.Tokenizer(t.models.WordPiece(unk_token="[UNK]"))
    library.normalizer, library.pre_tokenizer = t.normalizers.BertNormalizer(), t.pre_tokenizers.BertPreTokenizer()
    library.decoder = t.decoders.WordPiece()
    library.train_from_iterator(TEXT, t.trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"],
                                                                 show_progress=False))
    return library


def _unigram(t: Any) -> Any:
    library = t.Tokenizer(t.models.Unigram())
    library.normalizer, library.pre_tokenizer = t.normalizers.NFKC(), t.pre_tokenizers.Metaspace()
    library.decoder = t.decoders.Metaspace()
    library.train_from_iterator(TEXT, t.trainers.UnigramTrainer(vocab_size=150, special_tokens=["<unk>"],
                                                               unk_token="<unk>", show_progress=False))
    return library


def _suffixed(t: Any) -> Any:
    library = t.Tokenizer(t.models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    library.pre_tokenizer, library.decoder = t.pre_tokenizers.Whitespace(), t.decoders.BPEDecoder("</w>")
    library.train_from_iterator(TEXT, t.trainers.BpeTrainer(vocab_size=150, special_tokens=["<unk>"],
                                                           end_of_word_suffix="</w>", show_progress=False))
    return library


KINDS = {
    "gpt2": Kind(_gpt2, _same, True),
    "roberta": Kind(_roberta, lambda text: text if not text or text[0] == " " else " " + text, True),
    "qwen2": Kind(_qwen2, lambda text: unicodedata.normalize("NFC", text), True),
    "llama3": Kind(_llama3, _same, True),
    "llama2": Kind(_llama2, lambda text: _blanks(" " + text) if text else "", True),
    "mistral": Kind(_mistral, lambda text: _blanks(text if not text or text[0] in " ▁" else " " + text), True),
    "gemma": Kind(_gemma, _blanks, True),
    "bert": Kind(_bert, None, False), "unigram": Kind(_unigram, None, False), "suffixed": Kind(_suffixed, None, False),
}


@cache
def document_of(kind: str) -> str:
    """The text of `tokenizer.json`."""
    import tokenizers

    return str(KINDS[kind].make(tokenizers).to_str())


def write_tokenizer(folder: Path, kind: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(document_of(kind), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "bos_token": "<s>",
                                                              "eos_token": "</s>"}), encoding="utf-8")
    return folder
