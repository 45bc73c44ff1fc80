"""Safetensors in and out: the same bytes as the library's, nothing copied, and no file that can do harm."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import morpho as mo
from morpho.weights import files, safetensors, scanner
from morpho.weights.atomic import atomic_file

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16",
          "float32", "float64", "complex64"]


def some_tensors(rng: np.random.Generator) -> dict[str, mo.Tensor]:
    """Every dtype, and shapes with no axis, no element, and odd sizes."""
    shapes = [(), (0, 3), (5,), (2, 3), (1, 1, 7)]
    found = {}
    for place, dtype in enumerate(DTYPES):
        shape = shapes[place % len(shapes)]
        found[f"{dtype}.{place}é"] = mo.asarray(rng.integers(0, 2, shape)).astype(dtype)
    return found


def raw_file(path: Path, header: object, data: bytes = b"", length: int | None = None) -> Path:
    """A file with this header (JSON, or bytes as they are) and data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def test_round_trip(tmp_path: Path, rng: np.random.Generator) -> None:
    """Every dtype and shape comes back, with names and metadata, in a file and in shards."""
    tensors, notes = some_tensors(rng), {"step": "7", "who": "ü"}
    for target, options in [(tmp_path / "a.safetensors", {}), (tmp_path / "one", {}),
                            (tmp_path / "many", {"shard_bytes": 16})]:
        mo.weights.save(target, tensors, metadata=notes, **options)
        found = mo.weights.load(target)
        assert set(found) == set(tensors) and found.metadata == notes
        assert found.nbytes == sum(tensor.nbytes for tensor in tensors.values())
        for name, tensor in tensors.items():
            assert found[name].dtype is tensor.dtype and found[name].shape == tensor.shape
            assert found[name].tolist() == tensor.tolist()
            assert found.dtypes[name] is tensor.dtype and found.shapes[name] == tensor.shape
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2


def test_the_library_reads_what_is_written(tmp_path: Path, rng: np.random.Generator) -> None:
    """Names, dtypes, bytes and metadata are the same for `safetensors`; and the same tensors give the same file."""
    library = pytest.importorskip("safetensors", reason="safetensors is not installed")
    tensors = some_tensors(rng)
    path = tmp_path / "a.safetensors"
    mo.weights.save(path, tensors, metadata={"a": "b"})
    with library.safe_open(path, "np") as opened:
        assert set(opened.keys()) == set(tensors) and opened.metadata() == {"a": "b"}
        for name in opened.keys():  # noqa: SIM118 (it is no dict)
            assert tuple(opened.get_slice(name).get_shape()) == tensors[name].shape
            if tensors[name].dtype is not mo.bfloat16:
                assert np.array_equal(opened.get_tensor(name), tensors[name].numpy())
    raw = dict(library.deserialize(path.read_bytes()))
    for name, tensor in tensors.items():
        assert bytes(raw[name]["data"]) == tensor.elements().numpy().tobytes()
    first = path.read_bytes()
    mo.weights.save(path, dict(reversed(tensors.items())), metadata={"a": "b"})
    assert path.read_bytes() == first


def test_reads_what_the_library_writes(tmp_path: Path, rng: np.random.Generator) -> None:
    """Also where its order leaves a tensor unaligned."""
    numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    arrays = {f"t{k}": rng.standard_normal((k, 3)).astype(dtype)
              for k, dtype in enumerate([np.float16, np.float32, np.float64, np.int8, np.int64])}
    numpy.save_file(arrays, tmp_path / "a.safetensors", metadata={"k": "v"})
    found = mo.weights.load(tmp_path / "a.safetensors")
    assert found.metadata == {"k": "v"}
    for name, array in arrays.items():
        assert np.array_equal(found[name].numpy(), array) and found[name].numpy().dtype == array.dtype


def test_nothing_is_copied(tmp_path: Path) -> None:
    """A tensor's memory is the file's mapping; opening a large file allocates next to nothing."""
    path = tmp_path / "large.safetensors"
    mo.weights.save(path, {"w": np.zeros((1 << 22,), np.float32), "b": np.ones(3, np.float32)})
    tracemalloc.start()
    weights = mo.weights.load(path)
    tensor = weights["w"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    file = weights._places["w"][0]
    start = np.frombuffer(file._map, np.uint8).ctypes.data
    assert start <= tensor.numpy().ctypes.data < start + path.stat().st_size
    assert weights["w"] is tensor
    path.unlink()
    assert tensor.sum().item() == 0 and (weights["b"] + 1).tolist() == [2, 2, 2]


def test_an_unaligned_tensor_is_copied_and_right(tmp_path: Path) -> None:
    """A float behind a single byte."""
    data = b"\x01" + np.array([1.5, 2.5], np.float32).tobytes()
    path = raw_file(tmp_path / "a", {"a": entry("U8", [1], 0, 1), "b": entry("F32", [2], 1, 9)}, data)
    assert mo.weights.load(path)["b"].tolist() == [1.5, 2.5]


GOOD = {"a": entry("F32", [2], 0, 8)}
HOSTILE = [
    ("nothing", b"", "0 bytes"),
    ("a few bytes", b"\x08\x00\x00", "3 bytes"),
    ("a length beyond the file", struct.pack("<Q", 1 << 62) + b"{}", "should have"),
    ("a length beyond the file by one", struct.pack("<Q", 3) + b"{}", "should have"),
]
BAD_HEADERS = [
    ("not JSON", b"not json", 0, "begin with"),
    ("a list", b"[]", 0, "begin with"),
    ("not UTF-8", b'{"\xff":1}', 0, "UTF-8"),
    ("cut", b'{"a":{"dtype":"F32"', 0, "does not end"),
    ("no end", b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}', 8, "too early"),
    ("text behind", b'{} {}', 0, "follows"),
    ("overlap", {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}, 12, "overlaps"),
    ("the same place", {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 0, 8)}, 8, "overlaps"),
    ("a gap", {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 12, 20)}, 20, "gap"),
    ("beyond the file", GOOD, 4, "tensors end"),
    ("bytes left over", GOOD, 12, "tensors end"),
    ("wrong size", {"a": entry("F32", [3], 0, 8)}, 8, "needs 12 bytes"),
    ("backwards", {"a": entry("F32", [2], 8, 0)}, 8, "data_offsets"),
    ("negative", {"a": entry("F32", [2], -8, 0)}, 8, "data_offsets"),
    ("three offsets", {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4, 8]}}, 8, "data_offsets"),
    ("negative sizes", {"a": entry("F32", [-2, -1], 0, 8)}, 8, "shape"),
    ("a size that is no integer", {"a": {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}}, 8, "shape"),
    ("a bool as size", {"a": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}, 1, "shape"),
    ("overflow", {"a": entry("F32", [1 << 62, 4], 0, 0)}, 0, "shape"),
    ("overflow beside nothing", {"a": entry("F32", [0, 1 << 62], 0, 0)}, 0, "shape"),
    ("too many axes", {"a": entry("F32", [1] * 65, 0, 4)}, 4, "shape"),
    ("unknown dtype", {"a": entry("F4_E2M1", [8], 0, 4)}, 4, "F4_E2M1"),
    ("a dtype that is no text", {"a": {"dtype": [], "shape": [2], "data_offsets": [0, 8]}}, 8, "dtype"),
    ("missing keys", {"a": {"dtype": "F32", "shape": [2]}}, 8, "not dtype, shape"),
    ("one key more", {"a": {**GOOD["a"], "x": 1}}, 8, "not dtype, shape"),
    ("a name twice", b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                     b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', 2, "twice"),
    ("a key twice", b'{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1, "not a record"),
    ("metadata of numbers", {"__metadata__": {"a": 1}}, 0, "belongs"),
    ("metadata of lists", {"__metadata__": {"a": []}}, 0, "belongs"),
    ("deep", b'{"a":' + b"[" * 100_000 + b"}", 0, "record"),
    ("deep inside", b'{"a":{"dtype":"F32","shape":' + b"[" * 2000 + b"}", 0, "not a record"),
    ("half a surrogate pair", b'{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1, "surrogate"),
    ("an endless number", b'{"a":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,1]}}', 1, "4096"),
]


@pytest.mark.parametrize(("what", "raw", "complaint"), HOSTILE, ids=[case[0] for case in HOSTILE])
def test_a_hostile_beginning(what: str, raw: bytes, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(raw)
    with pytest.raises(mo.weights.FileFault, match=complaint):
        mo.weights.load(path)


@pytest.mark.parametrize(("what", "header", "count", "complaint"), BAD_HEADERS, ids=[case[0] for case in BAD_HEADERS])
def test_a_hostile_header(what: str, header: object, count: int, complaint: str, tmp_path: Path) -> None:
    """One sentence that says what is wrong."""
    path = raw_file(tmp_path / "bad.safetensors", header, bytes(count))
    with pytest.raises(mo.weights.FileFault, match=complaint) as caught:
        mo.weights.load(path)
    assert len(str(caught.value)) < 600 and "\n" not in str(caught.value)


def test_an_oversized_header(tmp_path: Path) -> None:
    """A sparse file with room for the header it claims: refused before the header is read."""
    path = raw_file(tmp_path / "big.safetensors", b"{}", length=safetensors.MOST_HEADER_BYTES + 1)
    os.truncate(path, safetensors.MOST_HEADER_BYTES + 100)
    tracemalloc.start()
    with pytest.raises(mo.weights.FileFault, match="more than"):
        mo.weights.load(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_what_a_header_can_make_is_bounded(tmp_path: Path) -> None:
    """Two million empty lists in a header are refused without being built."""
    path = raw_file(tmp_path / "many.safetensors", b'{"a":[' + b"[]," * 2_000_000 + b"[]]}")
    tracemalloc.start()
    with pytest.raises(mo.weights.FileFault):
        mo.weights.load(path)
    assert tracemalloc.get_traced_memory()[1] < 4 * path.stat().st_size
    tracemalloc.stop()
    with pytest.raises(scanner.Malformed, match="more than 4 keys"):
        list(scanner.Scanner('{"a":"","b":"","c":"","d":"","e":""}', most_keys=4).texts())


def test_bytes_that_are_no_bool(tmp_path: Path) -> None:
    path = raw_file(tmp_path / "a", {"a": entry("BOOL", [2], 0, 2)}, b"\x01\x02")
    with pytest.raises(mo.weights.FileFault, match="no bool"):
        mo.weights.load(path)["a"]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("fuzz") / "a.safetensors"
    mo.weights.save(path, {"w": np.ones((2, 3), np.float32), "b": np.ones(3, np.int8)}, metadata={"a": "b"})
    return path.read_bytes()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_mutations_never_crash(data: st.DataObject, sample: bytes, tmp_path: Path) -> None:
    """A changed file loads as something consistent or is refused in one sentence, with little memory either way."""
    raw = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, max(len(raw) - 1, 0)))
        change = data.draw(st.sampled_from(["set", "cut", "insert", "repeat"]))
        piece = data.draw(st.sampled_from([b"\x00", b"\xff", b"[", b"]", b"{", b"}", b'"', b",", b"-", b"9", b"0"]))
        if change == "set" and raw:
            raw[place:place + 1] = piece
        elif change == "cut":
            del raw[place:]
        elif change == "insert":
            raw[place:place] = piece
        else:
            raw[place:place] = raw[place:place + data.draw(st.integers(1, 40))]
    path = tmp_path / "mutant.safetensors"
    path.write_bytes(raw)
    tracemalloc.start()
    try:
        weights = mo.weights.load(path)
        for tensor in weights.values():
            assert tensor.numpy().nbytes == tensor.nbytes <= len(raw)
    except mo.weights.FileFault as error:
        assert "\n" not in str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(("start", "hint"), [
    (b"GGUF", "load_gguf"), (b"PK\x03\x04", "pickle"), (b"\x80\x02", "pickle"),
])
def test_other_kinds_of_files(start: bytes, hint: str, tmp_path: Path) -> None:
    """A hint says what they are."""
    path = tmp_path / "model.bin"
    path.write_bytes(start + b"\xff" * 100)
    with pytest.raises(mo.weights.FileFault, match=hint):
        mo.weights.load(path)


# -- folders and shards ------------------------------------------------------------------------------------------------
def write_index(folder: Path, weight_map: object, **others: object) -> None:
    (folder / files.INDEX).write_text(json.dumps({"metadata": {"total_size": 8}, "weight_map": weight_map, **others}))


@pytest.mark.parametrize("shard", ["../a.safetensors", "/etc/a.safetensors", "x/a.safetensors", "..\\a.safetensors",
                                   "a.bin", "", ".safetensors", "a\x00.safetensors", "~/a.safetensors"])
def test_shards_stay_in_their_folder(shard: str, tmp_path: Path) -> None:
    """Even where the file is there."""
    folder = tmp_path / "in"
    folder.mkdir()
    mo.weights.save(tmp_path / "a.safetensors", {"a": mo.ones(2)})
    write_index(folder, {"a": shard})
    with pytest.raises(mo.weights.FileFault, match="not a file name"):
        mo.weights.load(folder)


def test_wrong_indices(tmp_path: Path) -> None:
    """Missing shards, names that a shard does not have, no index at all."""
    with pytest.raises(mo.weights.MissingFile, match="neither"):
        mo.weights.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        mo.weights.load(tmp_path / "nowhere")
    mo.weights.save(tmp_path / "s.safetensors", {"a": mo.ones(2)})
    write_index(tmp_path, {"a": "s.safetensors", "b": "gone.safetensors"})
    with pytest.raises(mo.weights.MissingFile, match=r"1 of the shards .* gone\.safetensors"):
        mo.weights.load(tmp_path)
    write_index(tmp_path, {"a": "s.safetensors", "b": "s.safetensors"})
    with pytest.raises(mo.weights.FileFault, match="does not hold 'b'"):
        mo.weights.load(tmp_path)
    for text in ("[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', '{"weight_map": {"a": "s.safetensors"',
                 '{"weight_map": {"a": "s.safetensors", "a": "s.safetensors"}}', "\udcff"):
        (tmp_path / files.INDEX).write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(mo.weights.FileFault, match="index of shards"):
            mo.weights.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(mo.weights.FileFault, match="plain file"):
        mo.weights.load(tmp_path / "pipe")


def test_saving_again_leaves_only_the_new(tmp_path: Path) -> None:
    """One file, shards, other shards, one file: each time only what belongs is left, and it is the new one."""
    for step, options in enumerate([{}, {"shard_bytes": 8}, {"shard_bytes": 8}, {"shard_bytes": 100}, {}]):
        mo.weights.save(tmp_path, {name: mo.full(2, step) for name in "abc"}, **options)
        found = mo.weights.load(tmp_path)
        assert {name: found[name].tolist() for name in found} == {name: [step, step] for name in "abc"}
        assert len(list(tmp_path.iterdir())) == (4 if options.get("shard_bytes") == 8 else 2 if options else 1)


def test_a_write_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old file stays, and no temporary one."""
    path = tmp_path / "a.safetensors"
    mo.weights.save(path, {"a": mo.ones(2)})
    for broken in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            def fails(*_: object) -> None:
                raise OSError(28, "No space left on device")
            patch.setattr(os, broken, fails)
            with pytest.raises(mo.weights.StorageError, match="No space left"):
                mo.weights.save(path, {"a": mo.zeros(2)})
        assert mo.weights.load(path)["a"].tolist() == [1, 1] and list(tmp_path.iterdir()) == [path]
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert mo.weights.load(path)["a"].tolist() == [1, 1] and list(tmp_path.iterdir()) == [path]


def test_the_order_of_an_atomic_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Synchronised before it is moved, and the folder after."""
    steps: list[str] = []
    real_sync, real_move = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (steps.append("sync"), real_sync(number))[1])
    monkeypatch.setattr(os, "replace", lambda old, new: (steps.append("move"), real_move(old, new))[1])
    mo.weights.save(tmp_path / "a.safetensors", {"a": mo.ones(2)})
    assert steps == ["sync", "move", "sync"]


def test_wrong_arguments(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with pytest.raises(mo.errors.ArgumentError, match="list does not map"):
        mo.weights.save(path, [mo.ones(2)])  # type: ignore[arg-type]
    with pytest.raises(mo.errors.ArgumentError, match="cannot be the name"):
        mo.weights.save(path, {"__metadata__": mo.ones(2)})
    with pytest.raises(mo.errors.ArgumentError, match="cannot be the name"):
        mo.weights.save(path, {"\ud800": mo.ones(2)})
    with pytest.raises(mo.errors.ArgumentError, match="two texts"):
        mo.weights.save(path, {}, metadata={"a": 1})  # type: ignore[dict-item]
    with pytest.raises(mo.errors.ArgumentError, match="shards"):
        mo.weights.save(path, {}, shard_bytes=10)
    with pytest.raises(mo.errors.ArgumentError, match="positive"):
        mo.weights.save(tmp_path / "f", {}, shard_bytes=0)
    with pytest.raises(mo.errors.DTypeError, match="complex128"):
        mo.weights.save(path, {"a": mo.ones(2, dtype="complex128")})
    with pytest.raises(mo.errors.DTypeError, match="quantised"):
        mo.weights.save(path, {"a": mo.quantise(mo.ones((1, 32)), "q8_0")})
    mo.weights.save(path, {})
    with pytest.raises(KeyError, match="no tensor has the name 'a'"):
        mo.weights.load(path)["a"]
    assert "a" not in mo.weights.load(path) and mo.weights.load(path).get("a") is None


def test_many_names_take_as_many_steps() -> None:
    """300,000 names are read, and a name takes the same steps however many there are."""
    class Counted(scanner.Scanner):
        steps = 0

        def _peek(self) -> str:
            Counted.steps += 1
            return super()._peek()

    def steps(count: int) -> int:
        Counted.steps = 0
        text = "{" + ",".join(f'"layer.{n}.weight": {{"shape":[1]}}' for n in range(count)) + "}"
        reading = Counted(text)
        assert sum(len(reading.record()) for _ in reading.keys()) == count  # noqa: SIM118
        return Counted.steps

    assert steps(4000) - steps(3000) == steps(3000) - steps(2000)
    assert len(scanner.Scanner("{" + ",".join(f'"{n}":""' for n in range(300_000)) + "}").texts()) == 300_000
