"""Weights for hosts that lack them: the pieces of their layers, hashed, taken up again where they were interrupted."""

from __future__ import annotations

import hashlib
import os
import time

import pytest
from pipeline_models import folder_of, plan_of

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.cluster.pipeline.parts import Part
from morpho.cluster.transport.frame import TransportError
from morpho.cluster.workers.meeting import digest_of, other_model
from morpho.cluster.workers.pieces import JOURNAL, PIECE_BYTES, Store, manifest, missing, piece

PROMPT, COUNT = [3, 14, 15, 9, 2, 6, 5], 12
LARGE = {"hidden_size": 64, "intermediate_size": 1024, "vocab_size": 60}  # about 0.9 MB a layer


def until(condition, seconds=60.0):
    """Wait for something to become true; what does not is a failure, never a hang."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("model"), "llama", **LARGE)


def fetched(folder, layers, store):
    """What a host that holds a part of the model asks for, put into its store; how many pieces."""
    todo = missing(store.files, Part.ranges(str(folder), layers), store.said())
    for name, number in todo:
        store.put(name, number, *piece(folder, name, number))
    return len(todo)


def test_a_host_gets_the_pieces_of_its_layers_and_no_piece_twice(folder):
    files = manifest(folder)
    store = Store.open(digest_of(str(folder)), "m1", files)
    whole = sum(-(-file["size"] // PIECE_BYTES) for file in files)
    first = fetched(folder, range(3, 6), store)
    assert 0 < first < 0.8 * whole and not store.is_whole
    assert digest_of(store.place) == digest_of(str(folder))
    alone, here = Part(str(folder)), Part(store.place)
    for part in (alone, here):
        part.hold(range(3, 6))
    assert all((a.numpy() == b.numpy()).all() for a, b in zip(alone.model.parameters(), here.model.parameters(),
                                                              strict=True))
    assert fetched(folder, range(3, 6), store) == 0
    assert fetched(folder, range(6), store) == whole - first and store.is_whole


def test_what_was_interrupted_goes_on_and_what_was_damaged_is_sent_again(folder):
    store = Store.open(digest_of(str(folder)), "m2", manifest(folder))
    fetched(folder, range(6), store)
    journal = store.folder / JOURNAL
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-2]) + b"half a li")  # two pieces were under way
    damaged = next(line for line in lines if b"safetensors" in line and not line.startswith(b"0 "))
    with open(store.folder / "model.safetensors", "r+b") as file:
        file.seek(int(damaged.split()[0]) * PIECE_BYTES + 5)
        file.write(b"other")
    again = Store.open(digest_of(str(folder)), "m2", manifest(folder))
    assert fetched(folder, range(6), again) == 3 and again.is_whole
    ours, theirs = (hashlib.sha256((place / "model.safetensors").read_bytes()).digest() for place in
                    (store.folder, folder))
    assert ours == theirs


def test_pieces_and_names_that_are_wrong(folder):
    store = Store.open(digest_of(str(folder)), "m3", manifest(folder))
    with pytest.raises(TransportError, match=r"piece 0 of config\.json came with another hash"):
        store.put("config.json", 0, b"abc", b"0" * 32)
    with pytest.raises(ArgumentError, match=r"'\.\./config\.json' is no name"):
        Store.open("d", "m", [{"name": "../config.json", "size": 1, "head": 1}])
    rows = [{"node": node, "model": "m", "digest": "1", "lacks": True} for node in "ab"]
    assert other_model([rows[0], {**rows[1], "digest": ""}]) == "there is no model at m on b"  # with ship=False
    assert other_model(rows, ship=True) == "none of a, b has the whole model, of which the others get parts"


def test_a_worker_whose_folder_is_absent_and_that_dies_meanwhile(folder, tmp_path, monkeypatch):
    """It is killed in the middle of a piece; the text comes from the others, and it goes on where it was."""
    pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")
    monkeypatch.setenv("DIED", str(tmp_path / "died"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [
        os.path.dirname(__file__), os.environ.get("PYTHONPATH")])))
    alone = [*mo.models.generate(mo.models.load(folder), PROMPT, max_new_tokens=COUNT, temperature=0)]
    plan, nowhere = plan_of(folder, [4]), {"n1": str(tmp_path / "nowhere")}
    with mo.cluster.Pipeline(folder, plan, threads=1, models=nowhere, module="dying_taker") as pipeline:
        assert [*pipeline.wait().generate(PROMPT, max_new_tokens=COUNT, temperature=0)] == alone
        assert [place.node for place in pipeline.places] == ["n0"] and (tmp_path / "died").exists()
        pipeline.restore("n1")
        until(lambda: "n1" in [place.node for place in pipeline.places] and pipeline.is_ready)
        assert [*pipeline.generate(PROMPT, max_new_tokens=COUNT, temperature=0)] == alone
        shipped = [event for event in pipeline.events if event["event"] == "shipped"]
        assert [(event["node"], event["kept"]) for event in shipped] == [("n1", 2)] and shipped[0]["pieces"] > 2
        assert shipped[0]["bytes"] < 0.7 * (folder / "model.safetensors").stat().st_size
        pipeline.recut(plan_of(folder, [2]))  # two more layers there: only their pieces go
        assert [*pipeline.generate(PROMPT, max_new_tokens=COUNT, temperature=0)] == alone
        more = [event for event in pipeline.events if event["event"] == "shipped"][-1]
        assert more["kept"] == shipped[0]["pieces"] + 2 and 0 < more["pieces"] <= 8
