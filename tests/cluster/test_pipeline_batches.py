"""Several texts in one call of a stage: the bits of each alone, messages with a row of each, and prompts in between."""

from __future__ import annotations

import os

import numpy as np
import pytest
from pipeline_models import folder_of, plan_of

import morpho as mo
from morpho.cluster.pipeline.paged_stage import PagedStage
from morpho.cluster.pipeline.parts import Part
from morpho.cluster.transport.frame import HEADER_BYTES, Header, Kind, TransportError, pack, unpack
from morpho.cluster.workers.waiting import Piece, Waiting


def stage_of(folder, start, end, **options):
    part = Part(str(folder))
    part.hold(range(start, end))
    return PagedStage(part, start, end, chunk=64, **{"streams": 4, **options})


@pytest.mark.parametrize("family", ["llama", "gpt2", "prenorm-small"])
def test_rows_of_several_texts_have_the_bits_of_each_alone(tmp_path, rng, family):
    folder = folder_of(tmp_path, family)
    alone, together = ([stage_of(folder, 0, 3), stage_of(folder, 3, 6)] for _ in range(2))
    prompts = [rng.integers(3, 60, (1, length)) for length in (3, 62, 64)]  # over the edge of a page, and beside it

    def through(stages, stream, x, position):
        for stage in stages:
            x = stage.run(stream, x, position)
        return x.copy()

    for stages in (alone, together):
        for stream, prompt in enumerate(prompts):
            through(stages, stream, prompt, 0)
    for step in range(4):
        tokens, positions = rng.integers(3, 60, (3, 1)), [prompt.shape[1] + step for prompt in prompts]
        expected = [through(alone, stream, tokens[stream:stream + 1], positions[stream]) for stream in range(3)]
        order = rng.permutation(3)  # whatever row a text has
        x = tokens[order]
        for stage in together:
            x = stage.run_rows([int(each) for each in order], x, [positions[each] for each in order])
        for row, stream in enumerate(order):
            assert np.array_equal(x[row], expected[stream]), (step, stream)


def test_pages_come_back_and_the_pool_grows_when_they_are_used_up(tmp_path, rng):
    folder = folder_of(tmp_path, "llama")
    small, large = stage_of(folder, 0, 3, streams=1), stage_of(folder, 0, 3, streams=4)
    small.context = large.context  # the first pool has room for one whole text: 8 pages
    for stream in (1, 2):
        for at in range(0, 320, 64):
            x = rng.integers(3, 60, (1, 64))
            assert np.array_equal(small.run(stream, x, at), large.run(stream, x, at)), (stream, at)
    assert len(small.pages[1]) == len(small.pages[2]) == 5 and small._count > 8
    token = np.array([[7]])
    assert np.array_equal(small.run(1, token, 320), large.run(1, token, 320))  # nothing was lost on the way
    held = small.kv_bytes
    small.close(1)
    assert small.kv_bytes < held and len(small._free) + len(small.pages[2]) == small._count


def test_caches_that_move_are_those_that_were(tmp_path, rng):
    folder = folder_of(tmp_path, "gpt2")
    here, there = stage_of(folder, 0, 3), stage_of(folder, 0, 3)
    here.run(7, rng.integers(3, 60, (1, 64)), 0)
    here.run(7, rng.integers(3, 60, (1, 6)), 64)
    there.run(3, rng.integers(3, 60, (1, 5)), 0)  # its pages are others
    there.put_cache(7, 256, [np.stack(here.cache_of(7, layer)) for layer in here.block_layers], 70)
    token = np.array([[9]])
    assert np.array_equal(there.run(7, token, 70), here.run(7, token, 70))


def test_a_message_with_rows_of_several_texts(rng):
    x = rng.standard_normal((3, 1, 8)).astype(np.float32)
    table = ((9, 17), (1 << 40, 5), (2, 1 << 20))
    raw = pack(Header(Kind.ACTIVATION, 4, 2, 9, 1, 17, final=True, table=table), x)
    header, payload = unpack(raw, sender=2, epoch=4)
    assert header.table == table and header.final and np.array_equal(payload, x)
    assert unpack(pack(Header(Kind.ACTIVATION, 4, 2), x), 2, 4)[0].table == ()
    for byte in [*range(HEADER_BYTES), *range(raw.size - 36, raw.size)]:
        bad = raw.copy()
        bad[byte] ^= 1 << (byte % 8)
        with pytest.raises(TransportError, match="rank 2 "):
            unpack(bad, sender=2, epoch=4)


def test_prompts_and_running_texts_take_turns():
    waiting = Waiting()
    for at in range(0, 512, 128):
        waiting.put(Piece(1, np.zeros((1, 128)), at, at == 384))
    taken = []
    for step in range(6):
        for number in (2, 3):
            waiting.put(Piece(number, np.zeros((1, 1)), 10 + step, True))
        taken.append([piece.number for piece in waiting.take(2)])
    assert taken == [[2, 3], [1], [2, 3], [1], [2, 3], [1]]


# -- with workers ------------------------------------------------------------------------------------------------------
def test_stages_compute_several_texts_in_one_call(tmp_path, rng):
    pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")
    folder = folder_of(tmp_path, "llama")
    prompts = [[int(word) for word in rng.integers(3, 60, length)] for length in (3, 9, 140, 5, 70, 2, 31, 12)]
    model = mo.models.load(folder)
    for_each = {"max_new_tokens": 40, "temperature": 0.9, "seed": 5}
    with mo.cluster.Pipeline(folder, plan_of(folder, [3]), threads=1, chunk=32) as pipeline:
        found = [*pipeline.wait().generate(prompts, **for_each)]
        pipeline.hear_times()
        rows = pipeline.rows_per_call()
    assert found == [*mo.models.generate(model, prompts, **for_each)]
    assert set(rows) == {"n0", "n1"} and all(1.5 < each <= 4 for each in rows.values()), rows


def test_texts_wait_for_positions(tmp_path):
    pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")
    folder = folder_of(tmp_path, "llama")
    prompts = [[3, 4, 5], [6, 7], [8, 9, 10, 11]]
    with mo.cluster.Pipeline(folder, plan_of(folder, [3]), threads=1, positions=12) as pipeline:
        found = [*pipeline.wait().generate(prompts, max_new_tokens=10, temperature=0)]
        pipeline.hear_times()
        assert all(each == 1 for each in pipeline.rows_per_call().values())  # one text at a time had room
    assert found == [*mo.models.generate(mo.models.load(folder), prompts, max_new_tokens=10, temperature=0)]


@pytest.mark.parametrize("damaged", ["9,24,40", ",".join(map(str, range(5, 200, 4)))])
def test_damaged_messages_cost_no_token(tmp_path, rng, monkeypatch, damaged):
    """A damaged message ends the epoch, and all texts in it go on from the tokens there are; a worker that gets too
    many of them leaves, and is done without."""
    pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")
    folder = folder_of(tmp_path, "llama")
    prompts = [[int(word) for word in rng.integers(3, 60, length)] for length in (3, 40, 5, 17)]
    prompts.append(prompts[1])
    monkeypatch.setenv("DAMAGED", damaged)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [
        os.path.dirname(__file__), os.environ.get("PYTHONPATH")])))
    for_each = {"max_new_tokens": 30, "temperature": 0.9, "seed": 5}
    with mo.cluster.Pipeline(folder, plan_of(folder, [3]), threads=1, chunk=16, module="damaging_worker") as pipeline:
        found = [*pipeline.wait().generate(prompts, **for_each)]
        told = [event["text"] for event in pipeline.events if event["event"] == "fault"]
    assert found == [*mo.models.generate(mo.models.load(folder), prompts, **for_each)]
    assert told and all("from rank" in text or "messages to it were damaged" in text for text in told), told
