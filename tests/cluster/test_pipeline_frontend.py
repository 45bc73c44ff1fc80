"""The frontend's parts without processes: the inbox, the ledger, the state of runs, when a cut moves, hosts files."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import pytest
from pipeline_models import folder_of, plan_of

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.cli.cluster import history as show_history
from morpho.cli.planning import measure as measuring
from morpho.cluster.frontend import history, status
from morpho.cluster.frontend.adapting import Adapting
from morpho.cluster.frontend.reviving import Reviving
from morpho.cluster.hosts.file import read_hosts
from morpho.cluster.hosts.reaching import is_reachable
from morpho.cluster.hosts.run import check_plan
from morpho.cluster.launch.secret import proof
from morpho.cluster.workers.meeting import digest_of, other_model, stranger
from morpho.cluster.workers.reports import EVENTS, INBOX, Events, Inbox, InboxWriter
from morpho.plan import adapt


def test_lines_of_the_inbox_are_not_lost_when_one_ends_an_epoch(tmp_path):
    file, inbox = tmp_path / INBOX, Inbox(tmp_path)
    file.write_bytes(b'{"plan": 1}\n{"request": 2}\n{"requ')
    assert next(inbox.new()) == {"plan": 1}  # and something is raised
    assert [*inbox.new()] == [{"request": 2}]
    with open(file, "ab") as opened:
        opened.write(b'est": 3}\n')
    assert [*inbox.new()] == [{"request": 3}]


def test_the_inbox_of_a_long_run_stays_small_and_loses_nothing(tmp_path):
    still_open: list[dict[str, int]] = []
    writer, inbox, heard = InboxWriter(tmp_path, lambda: still_open, most_bytes=200), Inbox(tmp_path), []
    for number in range(500):
        still_open = [{"request": number - 1}] if number else []
        writer.write({"request": number})
        if number % 7 == 0:  # a reader that is behind, and comes to several replaced files at once
            heard += [news["request"] for news in inbox.new()]
    for _ in range(2):
        heard += [news["request"] for news in inbox.new()]
    assert (tmp_path / INBOX).stat().st_size < 300 and heard[-1] == 499
    assert [*dict.fromkeys(heard)] == sorted({*heard})  # in order; some twice, which the ledger takes once
    late = [news["request"] for news in Inbox(tmp_path).new()]
    assert late[-1] == 499 and len(late) < 30


class Dying:
    """A pipeline whose workers are told."""

    is_ready, failure = True, ""

    def __init__(self, plan):
        self.plan, self.processes, self.started = plan, {"n0": 1, "n1": 2}, []

    def restore(self, node):
        self.started.append(node)

    def start_again(self, nodes):
        self.started.append(tuple(nodes))


def test_workers_that_died_are_started_again_and_wait_longer_each_time(tmp_path):
    pipeline = Dying(plan_of(folder_of(tmp_path, "llama"), [3]))
    reviving = Reviving(pipeline, lambda name: name != "n1" or not unreachable, restarts=2)
    unreachable = False
    assert reviving.look(now=0.0) == []
    del pipeline.processes["n1"]
    assert [reviving.look(now=at) for at in (1.0, 1.5, 2.1, 2.2, 3.0, 4.2)] == [[], [], ["n1"], [], [], ["n1"]]
    pipeline.is_ready = False  # the others are meeting
    assert reviving.look(now=100.0) == []
    unreachable = True
    assert reviving.start_again(counted=True) and pipeline.started[-1] == ("n0",)
    unreachable = False
    assert reviving.start_again(counted=True) and pipeline.started[-1] == ("n0", "n1")
    assert not reviving.start_again(counted=True)  # it does not help
    assert reviving.start_again() and reviving.start_again()  # somebody asked for it


def test_a_crash_before_the_first_meeting_begins_anew_and_an_error_does_not(tmp_path):
    pipeline = Dying(plan_of(folder_of(tmp_path, "llama"), [3]))
    reviving, crash = Reviving(pipeline), "[vm:1] Signal: Segmentation fault (11) *** End of error message ***"
    assert not reviving.crashed("the worker on far does not know the shared secret")
    assert [reviving.crashed(crash) for _ in range(3)] == [True, True, False]
    until = time.monotonic() + 30
    while len(pipeline.started) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert pipeline.started == [("n0", "n1")] * 2


def test_a_worker_without_a_frontend_does_not_wait_for_it(tmp_path):
    os.mkfifo(tmp_path / EVENTS)
    with pytest.raises(BrokenPipeError, match="there is no frontend"):
        Events(tmp_path)


class Moving:
    """A pipeline whose stage times are told."""

    def __init__(self, plan):
        self.plan, self.times, self.cuts = plan, {}, []

    def recent_stage_times(self):
        return self.times

    def recut(self, plan):
        self.plan = plan
        self.cuts.append([stage.end for stage in plan.stages])


def alone_cut(plan, times):
    """What these times alone would lead to."""
    return [stage.end for stage in adapt(plan, times).plan.stages]


def test_a_cut_moves_once_per_cool_down_and_is_undone_if_it_did_not_help(tmp_path):
    plan = plan_of(folder_of(tmp_path, "llama"), [3])
    moving = Moving(plan)
    adapting = Adapting(moving, cool_down_s=10.0)
    assert adapting.look(now=0.0) == ""  # nothing measured yet
    usual = {stage.node: stage.compute_s for stage in plan.stages}
    moving.times = usual
    adapting.look(now=1.0)
    assert adapting.look(now=1.5).startswith("stay") and not moving.cuts
    moving.times = {**usual, "n0": 3 * usual["n0"]}
    assert adapting.look(now=2.0) == ""  # a window in which the load changed: not what it is now
    moving.times = {**usual, "n0": 8 * usual["n0"]}
    adapting.look(now=2.5)
    adapting.look(now=3.0)
    assert len(moving.cuts) == 1 and moving.cuts[0] == alone_cut(plan, {**usual, "n0": 8 * usual["n0"]})
    moving.times = {stage.node: 1.0 for stage in moving.plan.stages}  # much worse
    assert adapting.look(now=5.0) == adapting.look(now=6.0) == ""  # cooling down
    assert adapting.look(now=13.0).startswith("undone")
    assert moving.cuts[-1] == [stage.end for stage in plan.stages] and adapting.cool_down_s == 20.0


def test_the_ledger_keeps_what_was_predicted_and_measured(tmp_path, capsys):
    plan = plan_of(folder_of(tmp_path, "llama"), [3])
    said = history.predicted(plan, streams=1, prompt_tokens=7)
    measured = {"token_s": 2 * said["token_s"], "first_token_s": said["first_token_s"], "tokens_per_s": 1.0,
                "stage_s": {"n0": 3 * said["stage_s"]["n0"]}}
    history.record(plan, "llama", 1, 7, measured)
    row = history.rows()[-1]
    assert history.errors(row)["token_s"] == pytest.approx(1.0) and history.errors(row)["first_token_s"] == 0
    assert history.corrections([row]) == {"n0": pytest.approx(3.0)}
    assert {*row["predicted"]["memory_bytes"]} == {"n0", "n1"} and row["predicted"]["link_bytes_per_token"]
    assert {*row["predicted"]["binds"].values()} <= {"memory bandwidth", "compute", "link"}
    show_history(1)
    assert "llama" in (shown := capsys.readouterr().out) and "(+100%)" in shown
    with open(history.ledger_path(), "ab") as file:
        file.write(b"nonsense\n[1]\n")
    assert history.rows()[-1] == row


def test_measuring_a_machine_takes_the_bandwidth_that_its_runs_had(tmp_path, capsys, monkeypatch):
    plan = plan_of(folder_of(tmp_path, "llama"), [3])
    swept = {"memory_bytes": 8e9, "memory_bytes_per_s": 2e10, "f32": 1e11}
    monkeypatch.setattr(measuring, "profile", lambda anew: swept)
    with mo.settings(cache_dir=str(tmp_path / "cache")):
        for runs in range(1, 5):
            said = history.predicted(plan, streams=1)
            said["binds"]["n0"] = "memory bandwidth"
            measured = {"stage_s": {node: 2 * seconds for node, seconds in said["stage_s"].items()}}
            row = history.record(plan, "llama", 1, 7, measured)
            row["predicted"] = said
            history.ledger_path().write_text("".join(json.dumps(row) + "\n" for _ in range(runs)))
            measuring.show("n0")
            taken = runs >= history.LEAST_RUNS
            assert (f'memory_bandwidth = "{0.1 / 2:.1f}GB/s"' in capsys.readouterr().out) is taken  # planned with 0.1
        measuring.show("n0", history=False)
        assert 'memory_bandwidth = "20.0GB/s"' in capsys.readouterr().out
        assert "n0" not in history.effective(history.rows(), nodes=7)


def test_running_pipelines_are_shown_and_dead_ones_forgotten():
    now = time.time()
    silent = status.workers({"a": os.getpid()}, {"a": [0, 2]}, {}, now)  # one that has reported nothing yet
    status.write({"model": "m", "epoch": 1, "texts": 0, "workers": silent})
    (found,) = [run for run in status.running() if run["frontend"] == os.getpid()]  # others of this machine may run
    assert status.diagnosis(found, now) == []
    assert "has said nothing for 9 s" in status.diagnosis(found, now + 9)[0]
    gone = status.folder() / "999999999.json"
    gone.write_text(json.dumps({"frontend": 999999999}))
    status.clear()
    assert os.getpid() not in [run["frontend"] for run in status.running()] and not gone.exists()


def test_a_cache_that_cannot_be_written_stops_no_text(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    plan = plan_of(folder_of(tmp_path, "llama"), [3])
    with mo.settings(cache_dir=str(tmp_path / "file")), caplog.at_level("WARNING", "morpho"):
        for _ in range(2):
            status.write({"model": "m", "workers": {}})
        status.clear()
        assert status.running() == []
        history.record(plan, "m", 1, 4, {})
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and "status and doctor do not see this process" in said[0] and "ledger" in said[1]


def test_workers_that_do_not_belong_here_are_named(tmp_path):
    good = {"node": "a", "version": "1", "proof": proof(b"secret", "run", "a")}
    assert stranger([good], b"secret", "run") == ""
    assert "b does not know the shared secret" in stranger([good, {**good, "node": "b"}], b"secret", "run")
    other = {"node": "b", "version": "2", "proof": proof(b"secret", "run", "b")}
    assert stranger([good, other], b"secret", "run").startswith("b has Morpho 2 and a 1")
    folder = folder_of(tmp_path, "llama")
    rows = [{"node": node, "model": "m", "digest": digest_of(str(place))} for node, place in
            (("a", folder), ("b", mo.models.SHIPPED))]
    assert other_model(rows) == "the model at m on b is not the one on a"
    assert digest_of(str(tmp_path / "nowhere")) == ""


HOSTS = """
cluster = "office.toml"
interfaces = ["lo"]
[[host]]
name = "n0"
address = "127.0.0.1"
[[host]]
name = "n1"
model = "/data/m"
"""


def test_hosts_files(tmp_path):
    file = tmp_path / "hosts.toml"
    file.write_text(HOSTS)
    found = read_hosts(file)
    assert found.launch().slots == (("127.0.0.1", 1), ("n1", 1)) and found.hosts[1].model == "/data/m"
    assert is_reachable(found.hosts[0].address) and not is_reachable(found.hosts[1].address, "false")
    plan = plan_of(folder_of(tmp_path, "llama"), [3])
    check_plan(plan, found)
    with pytest.raises(ArgumentError, match=r"the plan is for n0, n1, and .* has n0"):
        check_plan(plan, replace(found, hosts=found.hosts[:1]))


@pytest.mark.parametrize(("text", "said"), [
    ("", "has no ..host.."), ("[[host]]\nname = 'a b'", "host 1 has name = 'a b'"), ("x = 1", "unknown key 'x'"),
    ("[[host]]\nname = 'a'\n[[host]]\nname = 'a'", "names 'a' twice"), ("[[host", "is not TOML"),
    ("[[host]]\nname = 'a'\naddress = '; rm'", "a has address = '; rm'"), ("secret = 1\n[[host]]\nname='a'", "secret")])
def test_hosts_files_that_are_wrong(tmp_path, text, said):
    file = tmp_path / "hosts.toml"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=said):
        read_hosts(file)
