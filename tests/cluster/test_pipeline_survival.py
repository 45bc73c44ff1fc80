"""Real workers, really killed: the text goes on, no token is lost or doubled, and nobody waits for ever."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")

from pipeline_models import folder_of, plan_of

import morpho as mo
from morpho.base.errors import ArgumentError, GroupError
from morpho.cluster import Pipeline
from morpho.cluster.pipeline.chain import Chain
from morpho.cluster.pipeline.placement import places_of
from morpho.cluster.pipeline.request import Request
from morpho.cluster.workers import job
from morpho.models.text.sampling import Sampling

PROMPT, COUNT = [3, 14, 15, 9, 2, 6, 5], 40


def until(condition, seconds=60.0):
    """Wait for something to become true; what does not is a failure, never a hang."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


class Workers:
    """A pipeline of small workers, with the texts that one process makes."""

    def __init__(self, folder, pipeline):
        self.folder, self.pipeline = folder, pipeline
        model = mo.models.load(folder)
        self.greedy = [*mo.models.generate(model, PROMPT, max_new_tokens=COUNT, temperature=0)]
        self.seeded = [*mo.models.generate(model, PROMPT, max_new_tokens=COUNT, temperature=0.9, seed=5)]
        assert len(set(self.seeded)) > 5

    def hit(self, *nodes, kind=signal.SIGKILL):
        for node in nodes:
            os.kill(self.pipeline.processes[node], kind)

    def text_while(self, at, action, slowed=1.0, **settings):
        """A text, something happening after so many tokens; stages may be slowed down until it has happened, so that it
        does before the last token even where this process gets its turn late."""
        found = []
        if slowed > 1:
            self.pipeline.slow_down(dict.fromkeys(self.pipeline.processes, slowed))
        for token in self.pipeline.generate(PROMPT, max_new_tokens=COUNT, **settings):
            found.append(token)
            if len(found) == at:
                action()
                if slowed > 1:
                    self.pipeline.slow_down({})
        return found

    def moved(self, epoch):
        """Where texts went on from in an epoch, and the layers whose caches went there or stayed."""
        events = [event for event in self.pipeline.events if event.get("epoch") == epoch]
        resumed = next(event["resumed"] for event in events if event["event"] == "epoch")
        return resumed, {event["node"]: event for event in events if event["event"] == "moved"}

    @property
    def nodes(self):
        return [place.node for place in self.pipeline.places]


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    folder = folder_of(tmp_path_factory.mktemp("model"), "llama")
    with Pipeline(folder, plan_of(folder, [2, 3, 5]), threads=1, chunk=4) as pipeline:
        yield Workers(folder, pipeline.wait())


def test_several_texts_at_once_are_those_of_one_process(workers):
    prompts = [PROMPT, PROMPT[:3], PROMPT * 5]
    model = mo.models.load(workers.folder)
    for settings in ({"temperature": 0}, {"temperature": 0.9, "seed": 5}):
        found = [*workers.pipeline.generate(prompts, max_new_tokens=20, **settings)]
        assert found == [*mo.models.generate(model, prompts, max_new_tokens=20, **settings)]
    assert workers.pipeline.epoch == 1 and workers.nodes == ["n0", "n1", "n2", "n3"]


def test_a_cut_moves_while_a_text_goes_on(workers):
    other = plan_of(workers.folder, [1, 2, 4])

    def recut():
        """Before the next token is taken, of which some may be there already: workers do not wait for who reads."""
        workers.pipeline.recut(other)
        until(lambda: workers.pipeline.epoch == 2 and workers.pipeline.is_ready)

    assert workers.text_while(7, recut, 30.0, temperature=0) == workers.greedy
    resumed, moved = workers.moved(epoch=2)
    assert min(resumed.values()) >= len(PROMPT) + 5  # nothing was fed again but what was on its way
    assert {node for node, row in moved.items() if row["layers"]} == {"n1", "n2", "n3"}  # one layer each, by message
    assert sum(row["layers"] for row in moved.values()) == 3 and sum(row["kept"] for row in moved.values()) == 1
    workers.pipeline.recut(plan_of(workers.folder, [2, 3, 5]))
    assert [*workers.pipeline.generate(PROMPT, max_new_tokens=5, temperature=0)] == workers.greedy[:5]
    assert workers.pipeline.epoch == 3 and workers.nodes == ["n0", "n1", "n2", "n3"]


def test_a_text_that_nobody_wants_any_more_ends(workers):
    tokens = workers.pipeline.generate(PROMPT, max_new_tokens=400)
    next(tokens)
    tokens.close()
    assert [*workers.pipeline.generate(PROMPT, max_new_tokens=5, temperature=0)] == workers.greedy[:5]


def drawn(rng):
    """A token after which something happens; the seed that is printed says which."""
    return int(rng.integers(2, COUNT - 4))


def test_a_worker_in_the_middle_is_killed(workers, rng):
    assert workers.text_while(drawn(rng), lambda: workers.hit("n1"), 30.0, temperature=0.9, seed=5) == workers.seeded
    assert "n1" not in workers.nodes


def test_the_frontends_worker_dies_and_another_one_during_the_recovery(workers, rng):
    def both():
        epoch = workers.pipeline.epoch
        workers.hit("n0")
        until(lambda: workers.pipeline.epoch > epoch)
        workers.hit("n2")

    assert workers.text_while(drawn(rng), both, 30.0, temperature=0) == workers.greedy
    assert workers.nodes == ["n3"]


def test_nodes_that_come_back_widen_the_plan_while_texts_go_on(workers):
    def both():
        workers.pipeline.restore("n0")
        until(lambda: "n0" in workers.nodes)
        workers.pipeline.restore("n1")
        until(lambda: "n1" in workers.nodes)

    assert workers.text_while(5, both, temperature=0.9, seed=5) == workers.seeded
    assert {*workers.nodes} <= {"n0", "n1", "n3"} and len(workers.nodes) > 1


def test_a_worker_that_only_stops_is_found_by_its_silence(workers, rng):
    last = workers.nodes[-1]
    process = workers.pipeline.processes[last]
    stop = partial(workers.hit, last, kind=signal.SIGSTOP)
    assert workers.text_while(drawn(rng), stop, 30.0, temperature=0) == workers.greedy
    assert last not in workers.nodes
    until(lambda: is_over(process))  # fenced: it does not come back by itself


def test_when_all_are_gone_the_client_hears_it(workers):
    with pytest.raises(GroupError, match="all workers are gone"):
        workers.text_while(5, lambda: workers.hit(*workers.pipeline.processes), 30.0, temperature=0)
    with pytest.raises(GroupError, match="all workers are gone"):
        workers.pipeline.generate(PROMPT)


def is_over(process):
    """Whether a process is gone, or dead and not yet taken notice of by its parent."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"
    return True


def test_who_crashes_before_the_first_meeting_is_started_again(tmp_path, monkeypatch):
    """The plan that was asked for runs, not one for those that are left: its links round, so that shows in the text."""
    folder = folder_of(tmp_path, "llama")
    plan = plan_of(folder, [2, 4], activations=("int8",))
    monkeypatch.setenv("CRASHED", str(tmp_path / "crashed"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [
        os.path.dirname(__file__), os.environ.get("PYTHONPATH")])))
    rounded = Chain(str(folder), places_of(plan)).tokens(Request(1, tuple(PROMPT), 20, Sampling(1.0), 8))
    with Pipeline(folder, plan, threads=1, module="crashing_worker") as pipeline:
        found = [*pipeline.generate(PROMPT, max_new_tokens=20, temperature=1.0, seed=8)]
        assert (tmp_path / "crashed").exists() and [place.node for place in pipeline.places] == ["n0", "n1", "n2"]
        assert [event["event"] for event in pipeline.events].count("restart") == 1
        there_s = max(event["time"] for event in pipeline.events if event["event"] == "ready")
        assert pipeline.measured()["first_token_s"] <= time.time() - there_s  # not from when it was asked for
    assert found == rounded


def test_encoder_and_decoder_survive_too(tmp_path):
    folder = folder_of(tmp_path, "t5-small")
    expected = [*mo.models.generate(mo.models.load(folder), PROMPT, max_new_tokens=20, temperature=0.9, seed=5)]
    found = []
    with Pipeline(folder, plan_of(folder, [2]), threads=1) as pipeline:
        for token in pipeline.wait().generate(PROMPT, max_new_tokens=20, temperature=0.9, seed=5):
            found.append(token)
            if len(found) == 9:
                os.kill(pipeline.processes["n0"], signal.SIGKILL)
    assert found == expected


# -- before anything starts --------------------------------------------------------------------------------------------
def test_plans_of_another_model_are_refused(tmp_path):
    folder, other = folder_of(tmp_path, "llama"), folder_of(tmp_path, "gpt2", n_layer=3)
    with pytest.raises(ArgumentError, match="the plan is for a model of 5 layers, and llama has 6"):
        Pipeline(folder, plan_of(other, [2]))
    with pytest.raises(ArgumentError, match="there is no model at"):
        Pipeline(tmp_path / "nowhere", nodes=2)


def test_without_mpi_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("morpho.cluster.launch.mpiexec.importlib.util.find_spec", lambda name: None)
    with pytest.raises(GroupError, match=r"MPI is not installed.*morpho-tensor.cluster"):
        Pipeline(folder_of(tmp_path, "llama"), nodes=2)


def test_the_command_spreads_a_model_and_shows_its_plan():
    words = [sys.executable, "-m", "morpho", "run", "In the beginning", "--tokens", "8", "--temperature", "0"]
    one, spread = (subprocess.run([*words, *more], capture_output=True, text=True, timeout=120)
                   for more in ((), ("--nodes", "2")))
    assert one.returncode == spread.returncode == 0, spread.stderr
    assert one.stdout == spread.stdout
    assert "plan: 2 stages" in spread.stderr and "worker-2: layers [" in spread.stderr


def test_folders_of_killed_frontends_go(tmp_path):
    """Those of a frontend that is no process any more, unless somebody of the run is left, who holds the lock."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    for name, frontend in {"left": ended.pid, "held": ended.pid, "alive": os.getpid()}.items():
        folder = tmp_path / f"{job.PREFIX}{name}"
        folder.mkdir()
        (folder / job.OUTPUT).touch()
        (folder / "config.json").write_text(json.dumps({"frontend": frontend}))
    (tmp_path / f"{job.PREFIX}begun").mkdir()  # nothing in it yet
    with open(tmp_path / f"{job.PREFIX}held" / job.OUTPUT, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        job.remove_left_behind(tmp_path)
    left = sorted(path.name.removeprefix(job.PREFIX) for path in tmp_path.iterdir())
    assert left == ["alive", "begun", "held"]
