"""GGUF files made by the gguf library: the same metadata, tensors and tokens; and files that lie about themselves."""

from __future__ import annotations

import logging
import random
import struct
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import morpho as mo
from morpho.weights.gguf import file as our_gguf
from morpho.weights.gguf import header as gguf_header
from morpho.weights.text.chat import chatml

gguf = pytest.importorskip("gguf", reason="gguf is not installed")
KINDS = {"f32": "F32", "f16": "F16", "bf16": "BF16", "eight": "Q8_0", "four": "Q4_1", "cube": "Q8_0", "old": "Q4_0",
         "large": "Q5_1", "ternary": "TQ1_0"}
TEXT = "one two three four five six seven eight nine ten, and so on and on " * 3


def values(rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {"f32": (3,), "cube": (2, 3, 32), "f16": (2, 5), "ternary": (2, 256)}
    return {name: rng.standard_normal(shapes.get(name, (4, 64))).astype(np.float32) for name in KINDS}


def write(path: Path, tensors: dict[str, np.ndarray], fields: dict[str, Any] | None = None,
          tokenizer: Any = None) -> Path:
    """A small file of Llama form."""
    writer = gguf.GGUFWriter(str(path), "llama")
    sizes = {"block_count": 2, "context_length": 64, "embedding_length": 64, "feed_forward_length": 96,
             "attention.head_count": 4, "attention.head_count_kv": 2, "vocab_size": 300}
    for key, value in {**sizes, **(fields or {})}.items():
        if isinstance(value, list):
            writer.add_array(f"llama.{key}", value)
        elif value is not None:
            writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.rope.freq_base", 5000.0)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    if tokenizer is not None:
        add_tokenizer(writer, tokenizer)
    for name, array in tensors.items():
        kind = getattr(gguf.GGMLQuantizationType, KINDS[name])
        writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_tokenizer(writer: Any, tokenizer: mo.weights.BytePairs) -> None:
    every = {**tokenizer.vocabulary, **tokenizer.added, **tokenizer.specials}
    tokens = sorted(every, key=every.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in tokenizer.specials else 4 if token in tokenizer.added else 1
                            for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer.merges])
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(0)
    writer.add_chat_template(chatml("Be kind."))


@pytest.fixture(scope="module")
def tokenizer() -> mo.weights.BytePairs:
    made = mo.weights.train_bpe(TEXT, 300, specials=["<|im_start|>", "<|im_end|>"], split_digits=True)
    added = {"<tool>": max(made.vocabulary.values()) + 1}
    return mo.weights.BytePairs(made.vocabulary, made.merges, made.specials, added=added, split_digits=True)


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """TQ1_0 as a type that the gguf library alone knows."""
    monkeypatch.delitem(our_gguf.REPACKED, "TQ1_0")
    monkeypatch.delitem(gguf_header.NATIVE, 34)


@pytest.mark.usefixtures("unknown")
def test_tensors(tmp_path: Path, rng: np.random.Generator, caplog: pytest.LogCaptureFixture) -> None:
    """Floats are borrowed, q8_0 and q4_1 stay packed, blocks of other kinds are put into those that products read or
    become float32, all with the library's values."""
    arrays = values(rng)
    with caplog.at_level(logging.WARNING, "morpho"):
        file = mo.weights.load_gguf(write(tmp_path / "a.gguf", arrays))
    assert "1 tensors of a.gguf become float32" in caplog.text and file.tensors.converted == ["ternary"]
    assert set(file.tensors) == set(arrays) and file.tensors.kinds == KINDS
    for tensor in gguf.GGUFReader(tmp_path / "a.gguf").tensors:
        ours = file.tensors[tensor.name]
        assert tuple(ours.shape) == arrays[tensor.name].shape == file.tensors.shapes[tensor.name]
        plain = ours.dequantise() if isinstance(ours, mo.Quantised) else ours
        assert np.array_equal(plain.numpy(), gguf.dequantize(tensor.data, tensor.tensor_type))
        assert isinstance(ours, mo.Quantised) == (tensor.name in ("eight", "four", "old", "large"))
    assert file.tensors["f16"].dtype is mo.float16 and file.tensors["bf16"].dtype is mo.bfloat16
    assert file.tensors["eight"].kind == "q8_0" and file.tensors["four"].kind == "q4_1"
    start = np.frombuffer(file._map, np.uint8).ctypes.data
    for tensor in (file.tensors["f32"], file.tensors["four"].data, file.tensors["old"].data):
        assert start < tensor.numpy().ctypes.data < start + len(file._map)
    with pytest.raises(KeyError, match="no tensor"):
        file.tensors["gone"]
    assert repr(file).startswith("GgufFile('a.gguf', 9 tensors")


def test_packed_products(tmp_path: Path, rng: np.random.Generator) -> None:
    """Borrowed blocks give the product that copied ones give."""
    arrays = {"four": values(rng)["four"]}
    weight = mo.weights.load_gguf(write(tmp_path / "a.gguf", arrays)).tensors["four"]
    copied = mo.Quantised.from_bytes(weight.data.numpy().tobytes(), weight.shape, weight.kind)
    x = mo.asarray(rng.standard_normal((3, 64)).astype(np.float32))
    assert np.array_equal((x @ weight.T).numpy(), (x @ copied.T).numpy())


def test_configuration(tmp_path: Path) -> None:
    config = mo.weights.load_gguf(write(tmp_path / "a.gguf", {"f32": np.ones(3, np.float32)})).config
    assert (config.architecture, config.layers, config.width, config.feed_forward) == ("llama", 2, 64, 96)
    assert (config.heads, config.kv_heads, config.head_width, config.rope_dimensions) == (4, 2, 16, 16)
    assert (config.vocab_size, config.context, config.rope_theta, config.tied) == (300, 64, 5000.0, True)
    assert config.norm_eps == pytest.approx(1e-5) and config.name == "a"


@pytest.mark.parametrize(("fields", "complaint"), [
    ({"block_count": None}, "block_count is None"), ({"attention.head_count": 0}, "head_count is 0"),
    ({"attention.head_count_kv": 3}, "head_count=4 heads do not share attention.head_count_kv=3"),
    ({"attention.head_count_kv": [1, 2]}, "layers differ"),
    ({"vocab_size": None}, "vocab_size is None"), ({"context_length": 1 << 31}, "context_length"),
])
def test_a_wrong_configuration(fields: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    file = mo.weights.load_gguf(write(tmp_path / "a.gguf", {"f32": np.ones(3, np.float32)}, fields))
    with pytest.raises(mo.weights.FileFault, match=complaint):
        file.config  # noqa: B018 (the property is what fails)
    assert file.tensors["f32"].tolist() == [1, 1, 1]


def test_tokenizer(tmp_path: Path, tokenizer: mo.weights.BytePairs, seed: int) -> None:
    """The same numbers as the tokenizer that was written, specials and added tokens included."""
    path = write(tmp_path / "a.gguf", {"f32": np.ones(3, np.float32)}, tokenizer=tokenizer)
    file = mo.weights.load_gguf(path)
    found = file.tokenizer
    assert (found.specials, found.added, found.eos, found.bos) == (tokenizer.specials, tokenizer.added, 1, 0)
    source = random.Random(seed)
    for _ in range(50):
        text = "".join(source.choice([*"ontw 12", "<tool>", "<|im_end|>", "é", "\n"]) for _ in range(30))
        assert found.encode(text) == tokenizer.encode(text)
        assert found.decode(found.encode(text), specials=True) == text
        assert found.decode(found.encode(text)) == text.replace("<|im_end|>", "")
    assert found.encode("<tool>", specials=False) == [found.added["<tool>"]]
    assert file.chat_template == found.chat_template == chatml("Be kind.")
    prompt = mo.weights.render_chat([{"role": "user", "content": "on"}], file.chat_template)
    assert prompt == ("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\non<|im_end|>\n"
                      "<|im_start|>assistant\n")


def test_a_vocabulary_without_some_bytes() -> None:
    """Bytes that a foreign vocabulary lacks are left out of the text, as the tokenizers library does."""
    library = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    made = mo.weights.train_bpe(TEXT, 280, specials=[])
    lacking = {token: number for token, number in made.vocabulary.items() if token not in "Āā"}  # bytes 0 and 1
    ours = mo.weights.BytePairs(lacking, made.merges, {})
    theirs = library.Tokenizer(library.models.BPE(lacking, made.merges))
    theirs.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert ours.encode("on\x00e \x01") == theirs.encode("on\x00e \x01").ids
    assert ours.decode(ours.encode("on\x00e")) == "one"


@pytest.mark.parametrize(("key", "value", "complaint"), [
    ("tokenizer.ggml.model", "llama", "unknown tokenizer"), ("tokenizer.ggml.pre", "tekken", "unknown tokenizer"),
    ("tokenizer.ggml.add_space_prefix", True, "add_space_prefix is True"),
    ("tokenizer.ggml.tokens", ["a", "a"], "one token twice"), ("tokenizer.ggml.tokens", [1, 2], "no tokens"),
    ("tokenizer.ggml.merges", ["abc"], "not two words"), ("tokenizer.ggml.merges", ["a zzz"], "a merge needs"),
    ("tokenizer.ggml.token_type", [1], "a type for each"), ("tokenizer.ggml.eos_token_id", 999, "eos_token_id is 999"),
])
def test_a_wrong_tokenizer(key: str, value: Any, complaint: str, tokenizer: mo.weights.BytePairs) -> None:
    tokens = sorted(tokenizer.vocabulary, key=tokenizer.vocabulary.__getitem__)
    metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
                "tokenizer.ggml.merges": [" ".join(pair) for pair in tokenizer.merges]}
    assert our_gguf.tokenizer_of(metadata, "x").encode("on")
    with pytest.raises(mo.weights.FileFault, match=complaint):
        our_gguf.tokenizer_of({**metadata, key: value}, "x")


@pytest.mark.usefixtures("unknown")
def test_without_the_library(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Morpho reads by itself needs nothing; the rest says what to install."""
    arrays = values(rng)
    write(tmp_path / "own.gguf", {name: arrays[name] for name in ("f32", "four", "eight")})
    write(tmp_path / "other.gguf", arrays)
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert mo.weights.load_gguf(tmp_path / "own.gguf").tensors["four"].shape == (4, 64)
    with pytest.raises(ImportError, match=r"morpho-tensor\[models\]"):
        mo.weights.load_gguf(tmp_path / "other.gguf")


# -- hostile files -----------------------------------------------------------------------------------------------------
def text(found: str) -> bytes:
    return struct.pack("<Q", len(found.encode())) + found.encode()


def header(fields: list[bytes] = [], tensors: list[bytes] = [], version: int = 3,  # noqa: B006 (never changed)
           counts: tuple[int, int] | None = None) -> bytes:
    counted = counts or (len(tensors), len(fields))
    return b"GGUF" + struct.pack("<IQQ", version, *counted) + b"".join(fields) + b"".join(tensors)


def record(name: str = "a", shape: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


HOSTILE = [
    ("empty", b"", "empty"), ("short", b"GGUF\x03", "GGUF and two counts"),
    ("another magic", b"GGML" + bytes(40), "GGUF and two counts"), ("version 1", header(version=1), "version 1"),
    ("the other byte order", header(version=3 << 24), "byte order"),
    ("endless tensors", header(counts=(1 << 60, 0)), "more than allowed"),
    ("endless fields", header(counts=(0, 1 << 60)), "more than allowed"),
    ("fields that are not there", header(counts=(0, 1000)), "needs more"),
    ("tensors that are not there", header(counts=(1000, 0)), "needs more"),
    ("an endless key", header([struct.pack("<Q", 1 << 62)]), "at most"),
    ("an endless text", header([text("k") + struct.pack("<IQ", 8, 1 << 40)]), "at most"),
    ("a cut text", header([text("k") + struct.pack("<IQ", 8, 50)]), "needs more"),
    ("an endless array", header([text("k") + struct.pack("<IIQ", 9, 4, 1 << 61)]), "needs more"),
    ("endless texts", header([text("k") + struct.pack("<IIQ", 9, 8, 1 << 61)]), "more than"),
    ("texts that are not there", header([text("k") + struct.pack("<IIQ", 9, 8, 1 << 20)]), "needs more"),
    ("arrays of arrays", header([text("k") + struct.pack("<IIQ", 9, 9, 1)]), "unknown type 9"),
    ("an unknown type", header([text("k") + struct.pack("<I", 77)]), "unknown type 77"),
    ("no truth value", header([text("k") + struct.pack("<IB", 7, 5)]), "truth value"),
    ("not UTF-8", header([struct.pack("<Q", 1) + b"\xff" + bytes(12)]), "UTF-8"),
    ("a key twice", header([text("k") + struct.pack("<II", 4, 1)] * 2), "twice"),
    ("odd alignment", header([text("general.alignment") + struct.pack("<II", 4, 3)]), "alignment"),
    ("alignment of nothing", header([text("general.alignment") + struct.pack("<II", 4, 0)]), "alignment"),
    ("no dimensions", header(tensors=[text("a") + struct.pack("<IIQ", 0, 0, 0)]), "0 dimensions"),
    ("endless dimensions", header(tensors=[text("a") + struct.pack("<IIQ", 1 << 31, 0, 0)]), "dimensions"),
    ("a dimension of nothing", header(tensors=[record(shape=(0, 3))]), "shape"),
    ("a tensor beyond the file", header(tensors=[record(shape=(1 << 40,))]), "ends at byte"),
    ("overflow", header(tensors=[record(shape=(1 << 63, 1 << 63, 4))]), "ends at byte"),
    ("an offset beyond the file", header(tensors=[record(offset=1 << 60)]), "ends at byte"),
    ("an odd offset", header(tensors=[record(offset=5)]), "do not fit"),
    ("rows that are no blocks", header(tensors=[record(shape=(33,), kind=8)]), "do not fit"),
    ("an unknown type of tensor", header(tensors=[record(kind=250)]), "unknown type 250"),
    ("a name twice", header(tensors=[record(), record()]), "twice"),
    ("overlap", header(tensors=[record("a"), record("b", offset=32)]), "overlaps"),
    ("a type too small", header(tensors=[record("a", kind=1), record("b", offset=128)]), "the next free one"),
    ("a first tensor left out", header(tensors=[record("b", offset=128)]) + bytes(9), "the next free one"),
    ("a last tensor left out", header(tensors=[record("a")]) + bytes(300) + b"more", "more than zeros"),
]


@pytest.mark.parametrize(("what", "raw", "complaint"), HOSTILE, ids=[case[0] for case in HOSTILE])
def test_a_hostile_file(what: str, raw: bytes, complaint: str, tmp_path: Path) -> None:
    """One sentence, and no memory to speak of."""
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw + bytes(400 if raw.startswith(b"GGUF") and len(raw) > 60 and "not there" not in what
                                 and "cut" not in what else 0))
    tracemalloc.start()
    with pytest.raises(mo.weights.FileFault, match=complaint) as caught:
        mo.weights.load_gguf(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(caught.value) and peak < 2 << 20


def test_a_header_beyond_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_header, "MOST_HEADER_BYTES", 100)
    path = tmp_path / "a.gguf"
    path.write_bytes(header([text("k") + struct.pack("<I", 8) + text("x" * 80)]) + bytes(300))
    with pytest.raises(mo.weights.FileFault, match="more than the 100 bytes"):
        mo.weights.load_gguf(path)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    arrays = {"f32": np.ones(3, np.float32), "four": np.ones((4, 64), np.float32)}
    made = mo.weights.train_bpe("a", 258, specials=["<|im_end|>", "<s>"])
    return write(tmp_path_factory.mktemp("fuzz") / "a.gguf", arrays, tokenizer=made).read_bytes()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_mutations_never_crash(data: st.DataObject, sample: bytes, tmp_path: Path) -> None:
    """A changed file gives consistent tensors or one sentence, with little memory either way."""
    raw = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, max(len(raw) - 1, 0)))
        change = data.draw(st.sampled_from(["set", "cut", "insert", "number"]))
        if change == "set" and raw:
            raw[place] = data.draw(st.sampled_from([0, 1, 8, 9, 127, 255]))
        elif change == "cut":
            del raw[place:]
        elif change == "insert":
            raw[place:place] = bytes(data.draw(st.integers(1, 9)))
        else:
            raw[place:place + 8] = struct.pack("<Q", data.draw(st.sampled_from([0, 1, 1 << 20, 1 << 31, 1 << 63])))
    path = tmp_path / "mutant.gguf"
    path.write_bytes(raw)
    tracemalloc.start()
    try:
        file = mo.weights.load_gguf(path)
        for tensor in file.tensors.values():
            plain = tensor.data if isinstance(tensor, mo.Quantised) else tensor
            assert plain.numpy().nbytes <= len(raw)
        assert file.config.layers > 0 and file.tokenizer.vocab_size > 0
    except mo.weights.FileFault as error:
        assert "\n" not in str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 << 20


# -- chats -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("template", [chatml(), chatml("You are kind."), chatml("Be brief.").replace("\n", "\\n"),
                                      chatml().replace("'", '"')])
def test_chats_are_what_the_template_says(template: str) -> None:
    """Equal to Jinja's own rendering."""
    jinja = pytest.importorskip("jinja2", reason="jinja2 is not installed")
    user, system = {"role": "user", "content": "it's \"me\""}, {"role": "system", "content": "s"}
    for messages in ([user], [system, user], [user, {"role": "assistant", "content": "b"}, user], []):
        for reply in (True, False):
            theirs = jinja.Environment().from_string(template).render(messages=messages, add_generation_prompt=reply)
            assert mo.weights.render_chat(messages, template, reply=reply) == theirs


def test_chats_as_text() -> None:
    """What SmolLM2's form gives, written out."""
    user, system = {"role": "user", "content": "Hi"}, {"role": "system", "content": "s"}
    asked = "<|im_start|>user\nHi<|im_end|>\n"
    assert mo.weights.render_chat([user], chatml(), reply=False) == asked
    assert mo.weights.render_chat([user], chatml()) == asked + "<|im_start|>assistant\n"
    assert mo.weights.render_chat([system, user], chatml("x"), reply=False) == \
        f"<|im_start|>system\ns<|im_end|>\n{asked}"
    assert mo.weights.render_chat([user, user], chatml("x"), reply=False) == \
        f"<|im_start|>system\nx<|im_end|>\n{asked}{asked}"


def test_a_type_that_nobody_reads(tmp_path: Path) -> None:
    """Q8_1 has a size, and no way to float32."""
    path = tmp_path / "a.gguf"
    path.write_bytes(header(tensors=[record(kind=9)]) + bytes(200))
    with pytest.raises(mo.weights.FileFault, match="type Q8_1 cannot be read"):
        mo.weights.load_gguf(path).tensors["a"]


def test_other_templates() -> None:
    pytest.importorskip("jinja2", reason="templates other than ChatML's")
    for template in ("", "{{ messages", "{% include 'x' %}", "{{ messages.__class__.__mro__ }}"):
        with pytest.raises((mo.weights.FileFault, mo.errors.ArgumentError), match="template"):
            mo.weights.render_chat([], template)
    assert mo.weights.render_chat([{"role": "user", "content": "x"}], "{{ messages[0].content }}{{ bos_token }}",
                                  bos_token="<s>") == "x<s>"
    with pytest.raises(mo.errors.ArgumentError, match="not a message"):
        mo.weights.render_chat([{"role": "user"}], chatml())
    with pytest.raises(mo.errors.ArgumentError, match="quotes"):
        chatml("it's")
