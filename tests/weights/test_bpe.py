"""Byte-level BPE: the same words, merges and numbers as the tokenizers library, from the same file."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import morpho as mo
from morpho.weights.text.bpe import SHORT, merge_long, merge_short
from morpho.weights.text.pretokenise import byte_characters, pieces, words

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
TEXT = README + "naïve café Ünïcode 12345 67 世界 🙂🙂 don't"
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "digits"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A trained tokenizer, loaded again from its file, and the library's from the same file."""
    folder = tmp_path_factory.mktemp("bpe")
    made = mo.weights.train_bpe(TEXT, 600, specials=["<|endoftext|>", "<|a|>", "<|a|>b"], split_digits=request.param)
    mo.weights.save_tokenizer(folder, made)
    found = mo.weights.load_tokenizer(folder)
    assert isinstance(found, mo.weights.BytePairs)
    assert (found.vocabulary, found.merges, found.specials) == (made.vocabulary, made.merges, made.specials)
    return found, tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_training_is_the_librarys(tmp_path: Path) -> None:
    """The same vocabulary with the same numbers, and the same merges."""
    from tokenizers import models, pre_tokenizers, trainers

    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet,
                                  show_progress=False)
    library.train_from_iterator([TEXT, TEXT[::-1]], trainer)
    ours = mo.weights.train_bpe([TEXT, TEXT[::-1]], 700)
    assert {**ours.vocabulary, **ours.specials} == library.get_vocab()
    library.save(str(tmp_path / "t.json"))
    merges = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["model"]["merges"]
    assert [tuple(merge) for merge in merges] == ours.merges


def any_text(random_source: random.Random) -> str:
    """Words, spaces, digits, marks and characters from everywhere, special tokens among them."""
    pools = ["abcdefgh theand", "  \t\n\r\u00a0\u3000\u2028\x1c\x85", "0123456789²½Ⅷ٣", "!?.,'_-\"",
             "'s't're've'm'll'd", "éßñçÅ世界مرحباไทย", "🙂👩‍🔬🇩🇪\u0301\u200d\ufeff", "".join(map(chr, range(256)))]
    pieces = ["<|endoftext|>", "<|a|>", "<|a|>b", "<|", "|>"]
    found = []
    for _ in range(random_source.randrange(30)):
        pool = random_source.choice(pools)
        found.append("".join(random_source.choice(pool) for _ in range(random_source.randrange(12))))
        if random_source.random() < 0.1:
            found.append(random_source.choice(pieces))
        if random_source.random() < 0.1:
            found.append(chr(random_source.choice([*range(0xD800), *range(0xE000, 0x3400)])))
    return "".join(found)


def test_the_library_gives_the_same_numbers(pair, seed: int) -> None:
    """On 400 random texts, and back."""
    ours, library = pair
    source = random.Random(seed)
    for _ in range(400):
        text = any_text(source)
        ids = library.encode(text).ids
        assert ours.encode(text) == ids, repr(text)
        assert ours.decode(ids, specials=True) == text == library.decode(ids, skip_special_tokens=False)
        assert ours.decode(ids) == library.decode(ids)
        assert ours.decode(ours.encode(text, specials=False)) == text


def test_any_numbers_decode_as_the_library_does(pair, seed: int) -> None:
    """Also where they are not UTF-8; and a stream gives the same text in pieces."""
    ours, library = pair
    source = random.Random(seed)
    for _ in range(300):
        ids = [source.randrange(ours.vocab_size) for _ in range(source.randrange(12))]
        assert ours.decode(ids) == library.decode(ids)
        stream = ours.stream()
        assert "".join(stream.push(number) for number in ids) + stream.finish() == ours.decode(ids)


def test_a_stream_holds_incomplete_characters_back() -> None:
    """No piece ends within a character."""
    tokenizer = mo.weights.train_bpe("x", 257)
    stream = tokenizer.stream()
    assert [stream.push(number) for number in tokenizer.encode("é🙂")] == ["", "é", "", "", "", "🙂"]
    assert stream.finish() == ""
    stream.push(tokenizer.encode("🙂")[0])
    assert stream.finish() == "�"


@pytest.mark.parametrize("split_digits", [False, True])
def test_words_are_the_librarys(split_digits: bool, seed: int) -> None:
    """Every 13th character of Unicode that this Python knows, in company; `benchmarks/words.py` tries them all."""
    import unicodedata

    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    level = ByteLevel(add_prefix_space=False)
    library = Sequence([Digits(individual_digits=True), level]) if split_digits else level
    byte_of = {character: byte for byte, character in enumerate(byte_characters())}
    for code in range(seed % 13, 0x30000, 13):
        character = chr(code)
        if unicodedata.category(character) in ("Cs", "Cn"):
            continue
        text = f"a{character}{character}1{character} !{character}  {character}'s"
        found = [bytes(byte_of[c] for c in word).decode() for word, _ in library.pre_tokenize_str(text)]
        assert words(text, split_digits) == found, hex(code)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet="ab1 \n\t\x1c\u3000'!é", max_size=60), st.integers(1, 20), st.booleans())
def test_pieces_have_the_same_words(text: str, characters: int, split_digits: bool) -> None:
    """A long text is worked on in parts, none of which cuts a word."""
    parts = list(pieces(text, characters))
    assert "".join(parts) == text and all(parts)
    assert [word for part in parts for word in words(part, split_digits)] == words(text, split_digits)


def test_pieces_are_short() -> None:
    text = "some words in a line\n" * 1000
    assert max(map(len, pieces(text, 100))) <= 100 and len(list(pieces(text, 100))) < 400


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 4), max_size=40), st.dictionaries(
    st.tuples(st.integers(0, 9), st.integers(0, 9)), st.tuples(st.integers(0, 20), st.integers(5, 9)), max_size=12))
def test_both_ways_of_merging_agree(numbers: list[int], ranks: dict[tuple[int, int], tuple[int, int]]) -> None:
    """The quadratic one and the one with a heap, for any order of merges (each place is one pair's)."""
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    ranks = {pair: (place, number) for place, (pair, (_, number)) in enumerate(ordered)}
    assert merge_short(list(numbers), ranks) == merge_long(list(numbers), ranks)


def test_long_words(pair) -> None:
    """A word of 20,000 letters is no different, and not kept."""
    ours, library = pair
    word = "theandofthe" * 2000
    before = len(ours._cache)
    assert len(word) > SHORT and ours.encode(word) == library.encode(word).ids
    assert len(ours._cache) == before


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is emptied when full."""
    from morpho.weights.text import bpe

    monkeypatch.setattr(bpe, "CACHED_WORDS", 10)
    tokenizer = mo.weights.train_bpe("some words", 300)
    ids = tokenizer.encode(" ".join(f"x{'y' * k}" for k in range(50)))
    assert len(tokenizer._cache) <= 10 and tokenizer.decode(ids).startswith("x xy xyy")


def test_training_again_gives_the_same() -> None:
    """Nothing depends on the order of sets, and small texts end early."""
    first, second = (mo.weights.train_bpe(TEXT, 500) for _ in range(2))
    assert first.merges == second.merges and first.vocab_size == 500
    assert mo.weights.train_bpe("aa", 1000).vocab_size == 257
    assert mo.weights.train_bpe("", 256, specials=[]).eos is None


def test_wrong_arguments() -> None:
    tokenizer = mo.weights.train_bpe("a", 257)
    with pytest.raises(mo.errors.ArgumentError, match="too small"):
        mo.weights.train_bpe("a", 256)
    with pytest.raises(mo.errors.ArgumentError, match="different texts"):
        mo.weights.train_bpe("a", 300, specials=["a", "a"])
    with pytest.raises(mo.errors.ArgumentError, match="surrogate"):
        tokenizer.encode("\ud800")
    with pytest.raises(mo.errors.ArgumentError, match="bytes is not a text"):
        tokenizer.encode(b"a")  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="token 257"):
        tokenizer.decode([257])
    with pytest.raises(IndexError, match="token -1"):
        tokenizer.stream().push(-1)
    with pytest.raises(mo.errors.ArgumentError, match="integers"):
        tokenizer.decode(["a"])  # type: ignore[list-item]
    with pytest.raises(mo.errors.ArgumentError, match="not a special token"):
        tokenizer.special("<s>")


# -- files -------------------------------------------------------------------------------------------------------------
def document(tmp_path: Path) -> dict:
    mo.weights.save_tokenizer(tmp_path, mo.weights.train_bpe("to be or not to be", 262))
    return json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))


def put(folder: Path, changed: object) -> Path:
    (folder / "tokenizer.json").write_text(changed if isinstance(changed, str) else json.dumps(changed))
    return folder


def test_merges_as_texts(tmp_path: Path) -> None:
    """The older form of the file."""
    found = document(tmp_path)
    first = mo.weights.load_tokenizer(tmp_path)
    found["model"]["merges"] = [" ".join(merge) for merge in found["model"]["merges"]]
    assert mo.weights.load_tokenizer(put(tmp_path, found)).merges == first.merges


def test_damaged_files(tmp_path: Path) -> None:
    """One sentence each."""
    good = document(tmp_path)
    model = good["model"]
    cases = [
        ("[" * 100_000, "not JSON"), ("{", "not JSON"), ("[]", "not a JSON object"),
        ("[" * (1 + (1 << 21)), "more lists"),
        ({**good, "added_tokens": [{"id": "x"}]}, "added token"), ({**good, "added_tokens": 3}, "added_tokens is 3"),
        ({**good, "model": {**model, "vocab": []}}, "no vocabulary"),
        ({**good, "model": {**model, "vocab": {"a": "b"}}}, "not numbers"),
        ({**good, "model": {**model, "vocab": {**model["vocab"], "zz": 5}}}, "one number to two"),
        ({**good, "model": {**model, "vocab": {"a": 1}}}, "no token for 93"),
        ({**good, "model": {**model, "merges": [["x", "yy"]]}}, "not in the vocabulary"),
        ({**good, "model": {**model, "merges": ["abc"]}}, "the merge"),
        ({**good, "model": {"type": "Nothing"}}, "refused by the tokenizers library"),
    ]
    for changed, complaint in cases:
        with pytest.raises(mo.weights.FileFault, match=complaint):
            mo.weights.load_tokenizer(put(tmp_path, changed))
    with pytest.raises(FileNotFoundError):
        mo.weights.load_tokenizer(tmp_path / "gone")


def test_ends_of_texts(tmp_path: Path) -> None:
    """From the configuration beside the file, as text or record; else by its usual name."""
    tokenizer = mo.weights.train_bpe("a b", 262, specials=["<x>", "</s>"])
    tokenizer.eos, tokenizer.bos, tokenizer.chat_template = 1, 0, "template"
    mo.weights.save_tokenizer(tmp_path, tokenizer)
    found = mo.weights.load_tokenizer(tmp_path / "tokenizer.json")
    assert (found.eos, found.bos, found.chat_template) == (1, 0, "template")
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"eos_token": {"content": "<x>"}, "bos_token": None}))
    found = mo.weights.load_tokenizer(tmp_path)
    assert (found.eos, found.bos, found.chat_template) == (0, None, "")
    config.unlink()
    assert mo.weights.load_tokenizer(tmp_path).eos == 1


def word_pieces() -> str:
    """A small BERT-like tokenizer.json, which Morpho does not read by itself."""
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: number for number, word in enumerate(
        ["[UNK]", "[CLS]", "[SEP]", "the", "cat", "##s", "sa", "##t", "mat", "!", "a", "##b"])}
    library = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    library.decoder = decoders.WordPiece()
    library.add_special_tokens(["[UNK]", "[CLS]", "[SEP]"])
    return library.to_str()


def test_other_kinds_go_through_the_library(tmp_path: Path) -> None:
    """The same numbers and texts as the library's own, in a stream too, and saved as it was."""
    text = word_pieces()
    library = tokenizers.Tokenizer.from_str(text)
    found = mo.weights.load_tokenizer(put(tmp_path, text))
    ids = library.encode("The cats sat! Mat, ab").ids
    assert found.encode("The cats sat! Mat, ab") == ids
    assert found.decode(ids) == library.decode(ids) == "the cats sat! mat ab"
    assert found.eos == 2 and found.vocab_size == 12
    stream = found.stream()
    assert "".join(stream.push(number) for number in ids) + stream.finish() == found.decode(ids)
    mo.weights.save_tokenizer(tmp_path / "again", found)
    assert mo.weights.load_tokenizer(tmp_path / "again").encode("cats") == library.encode("cats").ids
    with pytest.raises(IndexError):
        found.decode([99])


def test_a_stream_through_the_library(tmp_path: Path) -> None:
    """A Llama-like vocabulary: spaces belong to words, rare characters are bytes; the pieces make the whole."""
    from tokenizers import decoders, models, pre_tokenizers

    tokens = ["<unk>", "<s>", "▁a", "▁b", "c", *(f"<0x{byte:02X}>" for byte in range(256))]
    library = tokenizers.Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, [],
                                              unk_token="<unk>", byte_fallback=True))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                         decoders.Strip(" ", 1, 0)])
    library.add_special_tokens(["<s>"])
    found = mo.weights.load_tokenizer(put(tmp_path, library.to_str()))
    ids = [1, 2, 3, 4, *(5 + byte for byte in "é🙂".encode()), 1, 3, 2]
    stream = found.stream()
    pieces = [stream.push(number) for number in ids]
    assert "".join(pieces) + stream.finish() == found.decode(ids) == "a bcé🙂 b a"
    assert not any("�" in piece for piece in pieces)
    assert stream.push(5 + 0xF0) == "" and stream.finish() == "�"
    assert 1 in found.encode("a<s>") and 1 not in found.encode("a<s>", specials=False)


@pytest.fixture(scope="module")
def good_document(tmp_path_factory: pytest.TempPathFactory) -> str:
    return json.dumps(document(tmp_path_factory.mktemp("good")))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_changed_documents_never_crash(data: st.DataObject, good_document: str, tmp_path: Path) -> None:
    """Any part of the document replaced by something else: a tokenizer that works, or one sentence."""
    changed = json.loads(good_document)
    something = st.sampled_from([None, True, 0, -1, 1 << 40, 1.5, "", "x", [], [[]], {}, {"type": "ByteLevel"}, [None]])
    for _ in range(data.draw(st.integers(1, 2))):
        place: object = changed
        for _ in range(data.draw(st.integers(0, 3))):
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))  # type: ignore[arg-type]
            inner = [key for key in keys if isinstance(place[key], dict | list)]  # type: ignore[index]
            if not inner:
                break
            place = place[data.draw(st.sampled_from(inner))]  # type: ignore[index]
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))  # type: ignore[arg-type]
        if keys:
            place[data.draw(st.sampled_from(keys))] = json.loads(json.dumps(data.draw(something)))  # type: ignore[index]
    try:
        found = mo.weights.load_tokenizer(put(tmp_path, changed))
        found.decode(found.encode("to be"))
    except mo.weights.FileFault as error:
        assert "\n" not in str(error)


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte-level BPE works; another kind says what to install."""
    import sys

    document(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert mo.weights.load_tokenizer(tmp_path).decode([5]) == mo.weights.load_tokenizer(tmp_path).decode([5])
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordPiece"}}))
    with pytest.raises(ImportError, match=r"morpho-tensor\[models\]"):
        mo.weights.load_tokenizer(tmp_path)
