"""Every key of tokenizer.json and tokenizer_config.json is used, known not to matter, or an error that names it and its
file; encoding is plain, and batches come with their mask."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.weights import FileFault
from morpho.weights.text.tokenizer_keys import CONFIG, DOCUMENT, PARTS

TEXT = "so on and So 12 on, naïve text"
WRONG: list[Any] = ["x", 1.5, -1, True, [1], {"a": 1}, "", []]


def _byte_level(folder: Path) -> None:
    made = mo.weights.train_bpe("so on and so 12 on 12", vocab_size=266, specials=["<s>", "</s>", "<pad>"])
    mo.weights.save_tokenizer(folder, made)


def _word_pieces(folder: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "so", "on", "and", "##n", "s", "##o", "12", ",", "naive", "text", "o"]
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece({word: n for n, word in enumerate(words)},
                                                            unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made.decoder = tokenizers.decoders.WordPiece()
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    made.enable_truncation(8)
    made.enable_padding(length=8, pad_id=0)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "pad_token": "[PAD]",
                                                              "model_max_length": 8, "cls_token": "[CLS]"}))


FORMS = {"byte level": _byte_level, "word pieces": _word_pieces}


class Files:
    def __init__(self, folder: Path, form: str) -> None:
        self.folder = folder
        FORMS[form](folder)
        self.document = json.loads((folder / "tokenizer.json").read_text())
        self.config = json.loads((folder / "tokenizer_config.json").read_text())
        self.before = self.seen()

    def seen(self, document: Any = None, config: Any = None, **others: Any) -> list[Any]:
        (self.folder / "tokenizer.json").write_text(json.dumps(document or self.document))
        (self.folder / "tokenizer_config.json").write_text(json.dumps(self.config if config is None else config))
        found = mo.weights.load_tokenizer(self.folder, **others)
        ids = found.encode(TEXT)
        return [ids, found.decode(ids), found.eos, found.bos, found.pad, found.chat_template, dict(found.specials)]


@pytest.fixture(params=sorted(FORMS))
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return Files(tmp_path, request.param)


def test_every_key_of_the_document(files: Files) -> None:
    for key, known in DOCUMENT.items():
        for value in [None, *WRONG]:
            document = {**files.document, key: value}
            if value is None:
                del document[key]
            if value == files.document.get(key):
                continue
            try:
                after = files.seen(document)
            except FileFault as error:
                assert "tokenizer.json" in str(error) and known.role != "irrelevant", (key, value, error)
            else:
                neutral = known.role != "used" or value in (None, [], {}) or key == "padding"
                assert neutral or after != files.before, (key, value)
                assert after == files.before or known.role == "used", (key, value)
    with pytest.raises(FileFault, match=r"tokenizer\.json: mood is 'glad', which Morpho does not know"):
        files.seen({**files.document, "mood": "glad"})
    assert files.seen({**files.document, "mood": "glad"}, ignore=["mood"]) == files.before


def test_every_part(files: Files) -> None:
    """A key that a part does not have is an error with its place; each that it has is used or does not matter."""
    def parts(held: Any, place: tuple[Any, ...] = ()) -> Any:
        if isinstance(held, dict):
            if held.get("type") in PARTS:
                yield place
            for key, each in held.items():
                yield from parts(each, (*place, key))
        elif isinstance(held, list):
            for number, each in enumerate(held[:4]):
                yield from parts(each, (*place, number))

    places = [*parts(files.document)]
    assert len(places) >= 3
    for place in places:
        document = copy.deepcopy(files.document)
        part = document
        for step in place:
            part = part[step]
        part["mood"] = "glad"
        with pytest.raises(FileFault, match=rf"tokenizer\.json: {'.'.join(map(str, place))}\.mood is 'glad'"):
            files.seen(document)
    document = copy.deepcopy(files.document)
    document["added_tokens"][0]["mood"] = 1
    with pytest.raises(FileFault, match=r"tokenizer\.json: added_tokens\.0\.mood is 1"):
        files.seen(document)
    document["added_tokens"][0] = {**files.document["added_tokens"][0], "special": "yes"}
    with pytest.raises(FileFault, match=r"added_tokens\.0\.special is 'yes'"):
        files.seen(document)


def test_an_empty_value_of_another_kind_is_not_one_left_out(tmp_path: Path) -> None:
    """What the library refuses is refused where Morpho would not have needed the library, too."""
    files = Files(tmp_path, "byte level")
    assert isinstance(mo.weights.load_tokenizer(tmp_path), mo.weights.BytePairs)
    piece = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    files.document["post_processor"] = {
        "type": "TemplateProcessing", "single": [piece, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [piece], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}
    files.before = files.seen()
    for place in ("model.fuse_unk", "model.byte_fallback", "model.ignore_merges", "model.unk_token", "model.dropout",
                  "model.end_of_word_suffix", "decoder.use_regex", "decoder.trim_offsets", "added_tokens.0.lstrip",
                  "pre_tokenizer.trim_offsets", "post_processor.pair", "post_processor.pair.0.SpecialToken.type_id",
                  "post_processor.special_tokens.<s>.tokens", "normalizer", "version"):
        document = part = copy.deepcopy(files.document)
        *steps, key = place.split(".")
        for step in steps:
            part = part[int(step) if isinstance(part, list) else step]
        for value in ("", 0, [], {}, False, None):
            part[key] = value
            try:
                tokenizers.Tokenizer.from_str(json.dumps(document))
            except BaseException:  # its panics are no exceptions
                with pytest.raises(FileFault, match=r"tokenizer\.json"):
                    files.seen(document)
            else:
                assert files.seen(document) == files.before, (place, value)


def test_added_tokens_have_the_numbers_that_the_library_gives_them(tmp_path: Path) -> None:
    """The library numbers added tokens by the vocabulary, whatever the file says: other numbers are refused."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(["[END]", "b", "[PAD]"])
    document = json.loads(made.to_str())
    assert {token["content"]: token["id"] for token in document["added_tokens"]} == {"b": 1, "[END]": 3, "[PAD]": 4}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document))
    ids = mo.weights.load_tokenizer(tmp_path).encode("a [END] b [PAD]")
    assert ids == made.encode("a [END] b [PAD]").ids == [0, 3, 1, 4]
    for place, wrong in ((0, 0), (1, 2), (1, 7), (2, 3)):
        damaged = copy.deepcopy(document)
        damaged["added_tokens"][place]["id"] = wrong
        path.write_text(json.dumps(damaged))
        assert tokenizers.Tokenizer.from_file(str(path)).encode("a [END] b [PAD]").ids == [0, 3, 1, 4]
        with pytest.raises(FileFault, match=rf"added_tokens\.{place}\.id is {wrong}, and by the vocabulary"):
            mo.weights.load_tokenizer(tmp_path)


def test_every_key_of_the_configuration(files: Files) -> None:
    special = next(token["content"] for token in files.document["added_tokens"] if token["id"] == 1)
    for key, known in CONFIG.items():
        for value in [*WRONG, special, False] if known.role != "irrelevant" else ("x", [1]):
            if value == files.config.get(key):
                continue
            try:
                after = files.seen(config={**files.config, key: value})
            except FileFault as error:
                assert f"tokenizer_config.json: {key}" in str(error) and known.role != "irrelevant", (key, value)
            else:
                assert known.role == "used" or after == files.before, (key, value)
    for key in ("eos_token", "bos_token", "pad_token"):
        for value in (special, {"content": special}):
            found = files.seen(config={**files.config, key: value})
            assert found[{"eos_token": 2, "bos_token": 3, "pad_token": 4}[key]] == 1
    assert files.seen(config={**files.config, "chat_template": [{"name": "default", "template": "T"}]})[5] == "T"
    with pytest.raises(FileFault, match=r"tokenizer_config\.json: mood is 'glad'"):
        files.seen(config={**files.config, "mood": "glad"})


def test_files_that_contradict_each_other(tmp_path: Path) -> None:
    files = Files(tmp_path, "word pieces")
    for key, value in (("do_lower_case", False), ("tokenize_chinese_chars", False), ("add_bos_token", True),
                       ("added_tokens_decoder", {"1": {"content": "[MASK]"}}),
                       ("added_tokens_decoder", {"99": {"content": "[MASK]"}})):
        with pytest.raises(FileFault, match=rf"tokenizer_config\.json: {key}.* in tokenizer\.json .*ignore"):
            files.seen(config={**files.config, key: value})
        assert files.seen(config={**files.config, key: value}, ignore=[key]) == files.before
    agreed = {"add_bos_token": False, "strip_accents": None, "added_tokens_decoder": {"1": {"content": "[UNK]"}}}
    assert files.seen(config={**files.config, **agreed}) == files.before


def test_encoding_is_plain(tmp_path: Path) -> None:
    """Neither cut nor filled up, whatever the file asks for."""
    _word_pieces(tmp_path)
    found = mo.weights.load_tokenizer(tmp_path)
    assert found.encode("") == [2, 3] and len(found.encode("so " * 20)) == 22
    assert found.encode("so", specials=False) == found.encode("so") == [2, 4, 3]


def test_batches_with_their_mask(files: Files) -> None:
    tokenizer = mo.weights.load_tokenizer(files.folder)
    texts = ["so on", "so", "so on and so on", ""]
    alone = [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch(texts) == alone
    ids, mask = tokenizer.encode_batch(texts, pad=True)
    assert ids.shape == mask.shape == (4, max(map(len, alone))) and ids.dtype == mask.dtype == np.int64
    assert [row[kept == 1].tolist() for row, kept in zip(ids, mask, strict=True)] == alone
    assert (ids[mask == 0] == (tokenizer.pad or 0)).all()
    assert tokenizer.encode_batch([], pad=True)[0].shape == (0, 0)
    with pytest.raises(ArgumentError, match="one text is not several"):
        tokenizer.encode_batch("so on")


def test_what_the_library_refuses_later_is_a_sentence(tmp_path: Path) -> None:
    """It takes a file whose token for the unknown is not in the vocabulary, and raises a bare Exception at a text."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, [], unk_token="<unk>"))
    made.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(FileFault, match=r"\[encode\] tokenizer.json is refused by the tokenizers library: .*<unk>"):
        mo.weights.load_tokenizer(tmp_path).encode("ab")
