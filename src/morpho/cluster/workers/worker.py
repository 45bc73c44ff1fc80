"""The process of a worker: `python -m morpho.cluster.workers.worker FOLDER NODE ...`, started by mpiexec.

It meets the others, holds its layers, serves; when one dies, those that are left revoke the communicator, shrink it,
meet again and go on with the plan for that case. Nothing it does waits for ever on somebody who is dead.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import morpho as mo
from morpho.base.errors import GroupError, MorphoError, PeerLost, fail
from morpho.cluster.groups.limit import AGREE_S, leave, limited
from morpho.cluster.groups.mpi import MPIGroup
from morpho.cluster.launch.secret import proof
from morpho.cluster.launch.secret import read as read_secret
from morpho.cluster.pipeline.baseline import Baseline
from morpho.cluster.pipeline.parts import Part
from morpho.cluster.pipeline.placement import Place, from_rows, placement, to_rows
from morpho.cluster.pipeline.request import MakeStream, Request, Stream, longest
from morpho.cluster.pipeline.shares import Share, check_shares
from morpho.cluster.pipeline.stage import Stage, cache_length
from morpho.cluster.pipeline.stages import make_stage
from morpho.cluster.transport.channel import Channels
from morpho.cluster.transport.frame import Kind, TransportError
from morpho.cluster.workers.caches import CacheMoving, Kept, Move, held_of, homes, plan_moves
from morpho.cluster.workers.ledger import Ledger
from morpho.cluster.workers.meeting import digest_of, other_model, say_all, stranger, version
from morpho.cluster.workers.pieces import Store
from morpho.cluster.workers.reports import Events, Inbox, is_running
from morpho.cluster.workers.serving import Regroup, Serving, Stopped, serve
from morpho.cluster.workers.shipping import Shipping
from morpho.plan import Plan

StreamsOf = Callable[[str], MakeStream]
LOOK_EVERY_S = 0.001
MOST_FAULTS = 3  # corrupt messages before a worker leaves


class Worker:
    """One worker, through all its epochs."""

    def __init__(self, mpi: Any, comm: Any, node: str, config: dict[str, Any] | None, folder: Path, secret_file: str,
                 streams_of: StreamsOf | None = None) -> None:
        self.mpi, self.comm, self.node, self.folder = mpi, comm, node, folder
        self._deaths = (mpi.ERR_PROC_FAILED, mpi.ERR_PROC_FAILED_PENDING, mpi.ERR_REVOKED)
        self.secret_file, self.secret = secret_file, secret_of(folder, secret_file)
        self.config: dict[str, Any] = config or {}
        self.epoch, self.ledger = 0, Ledger(self.config.get("finished"))
        self.part: Part | None = None
        self.streams_of = streams_of
        self.make_stream: MakeStream | None = None if streams_of else Stream
        self.sees = (folder / "inbox.jsonl").exists()
        self.inbox = Inbox(folder) if self.sees else None
        self.events = Events(folder) if self.sees else None
        if self.events is not None:
            self.events.beat(node)
        self.nodes: list[str] = []
        self.gate = 0  # the rank that reads requests, and hears those that the frontend does not
        self.channels: Channels | None = None
        self.share: Share | None = None  # of a stage that several nodes share
        self.kept: Kept | None = None  # caches of the last epoch
        self.at: dict[int, int] = {}  # where requests go on from, and the caches that move for it
        self.moves: list[Move] = []
        self.store: Store | None = None  # of a host that lacks the model
        self.lacks: list[bool] = []  # by rank
        self.digest = ""  # of the model
        self.want: dict[str, Any] = {}
        self.faults, self._looked_s, self._frontend_s = 0, 0.0, time.monotonic()
        self.slow = 1.0  # for tests: how much longer than it needs the stage takes
        self.unsaid: list[dict[str, Any]] = []
        self.heard = 0  # the serial number of the last wish for another plan or worker that has been met

    # -- talking -----------------------------------------------------------------------------------------------------
    def report(self, *events: dict[str, Any]) -> None:
        """Tell the frontend, or the worker that can."""
        if self.events is not None:
            self.events.write(*events)
            return
        for event in events:
            if self.channels is not None:
                self.channels.control(self.gate, Kind.REPORT, json.dumps(event).encode())
            else:
                self.unsaid.append(event)

    # -- epochs ------------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Until the frontend has enough."""
        fresh = True
        while True:
            try:
                if not fresh:
                    self._shrink()
                fresh = False
                places = self._meet()
                self._serve(places)
            except Stopped:
                return
            except Regroup:
                pass
            except TransportError as error:
                self.faults += 1
                self.report({"event": "fault", "node": self.node, "text": str(error)})
            except PeerLost:
                pass  # a member of the stage died, or knows of a death elsewhere
            except self.mpi.Exception as error:
                if error.Get_error_class() not in self._deaths:
                    raise

    def _shrink(self) -> None:
        """A communicator of those that are alive; the old one is of no use to anybody any more."""
        self.channels = None
        if self.share is not None:  # a member may wait for us in a collective of the stage
            self.share.group.revoke()
            self.share = None
        with limited(AGREE_S, f"on {self.node}, the survivors' agreement on who is left"):
            self.comm.Revoke()
            self.comm = self.comm.Shrink()
        self.comm.Set_errhandler(self.mpi.ERRORS_RETURN)

    def _meet(self) -> tuple[Any, ...]:
        """Agree with the others on epoch, requests, tokens and places. Nothing is told to a worker that does not know
        the secret, or has another Morpho or another model."""
        self._adopt()
        said = self._said()
        joining = sorted({node for each in said for node in each["want"].get("join", ())}
                         - {each["node"] for each in said})
        if joining:
            self.want = {}
            self._spawn(joining)
            self._adopt()
            said = self._said()
        self._leave_if_damaged(said)
        self.nodes = [each["node"] for each in said]
        decision = say_all(self.mpi, self.comm, self._decide(said) if self.comm.Get_rank() == 0 else None)[0]
        self._stop_if(decision.get("problem", ""))
        self.epoch, self.config = decision["epoch"], decision["config"]
        self.want = {}
        self._learn(said)
        self.at, self.moves = self._resumed(said, from_rows(decision["places"]))
        if self.comm.Get_rank() == self.gate:
            self.report({"event": "epoch", "epoch": self.epoch, "nodes": self.nodes, "places": decision["places"],
                         "resumed": {str(number): at for number, at in self.at.items()}})
        places = from_rows(decision["places"])
        self._ship(places)
        return places

    def _leave_if_damaged(self, said: list[dict[str, Any]]) -> None:
        """A worker that got too many damaged messages leaves; where all did, one stays, whom nobody sends any."""
        tired = [rank for rank, each in enumerate(said) if each["faults"] > MOST_FAULTS]
        if self.comm.Get_rank() in (tired if len(tired) < len(said) else tired[1:]):
            raise fail(GroupError, "pipeline", f"{self.node} leaves: {self.faults} messages to it were damaged",
                       line="")
        if self.comm.Get_rank() in tired:
            self.faults = 0

    def _adopt(self) -> None:
        """Take over the newest configuration, after everybody has shown that it belongs here."""
        nonce = self.folder.name
        said = say_all(self.mpi, self.comm, {"node": self.node, "epoch": self.epoch, "sees": self.sees,
                                             "version": version(), "proof": proof(self.secret, nonce, self.node)})
        self.gate = next((rank for rank, each in enumerate(said) if each["sees"]), 0)
        if not any(each["sees"] for each in said):
            print("none of the hosts is the machine that asked: name it among them", file=sys.stderr)
            raise Stopped
        self._stop_if(stranger(said, self.secret, nonce))
        found = say_all(self.mpi, self.comm, {"epoch": self.epoch, "config": self.config})
        newest = max(found, key=lambda each: (bool(each["config"]), each["epoch"]))
        self.epoch, self.config = newest["epoch"], newest["config"]
        digest = digest_of(self.place)
        held = say_all(self.mpi, self.comm, {"node": self.node, "model": self.place, "digest": digest,
                                             "lacks": not digest or not (self.store is None or self.store.is_whole)})
        self._stop_if(other_model(held, self.config["ship"]))
        self.lacks = [each["lacks"] for each in held]
        self.digest = next(each["digest"] for each in held if each["digest"])

    @property
    def place(self) -> str:
        """Where the model lies on this host."""
        if self.store is not None:
            return self.store.place
        return str(self.config["models"].get(self.node, self.config["model"]))

    def _ship(self, places: tuple[Place, ...]) -> None:
        """Let hosts that lack the model have what their layers need of it."""
        if not any(self.lacks):
            return
        shipping = Shipping(self.mpi, self.comm, self.epoch, self.node, self.report)
        files = shipping.files(self.place, self.lacks)
        lacks = self.lacks[self.comm.Get_rank()]
        if lacks and self.store is None:
            self.store = Store.open(self.digest, self.place, files)
        mine = next((place for place in places if self.node in place.members), None)
        layers = range(mine.start, mine.end) if mine is not None else range(0)
        shipping.exchange(self.place, layers, self.store if lacks else None, files)

    def _stop_if(self, problem: str) -> None:
        """All know the same problem: the one that the frontend hears says it, and all stop."""
        if problem:
            if self.comm.Get_rank() == self.gate:
                self.report({"event": "problem", "text": problem})
            raise Stopped

    def _said(self) -> list[dict[str, Any]]:
        ledger = self.ledger
        return say_all(self.mpi, self.comm, {
            "node": self.node, "want": self.want, "kept": None if self.kept is None else self.kept.said(),
            "heard": self.heard, "finished": ledger.finished.to_dict(), "faults": self.faults,
            "requests": [request.to_dict() for request in ledger.open()],
            "made": {str(number): made for number, made in ledger.made.items()}})

    def _decide(self, said: list[dict[str, Any]]) -> dict[str, Any]:
        """By the first rank: what all do next."""
        config = dict(self.config)
        for each in said:
            if each["want"].get("plan"):
                config.update(plan=each["want"]["plan"], stored={})
        try:
            places = placement(Plan.from_json(config["plan"]), {each["node"] for each in said}, config["stored"],
                               lambda places: check_shares(config["family"], config["sizes"], places))
        except MorphoError as error:
            return {"problem": error.message or str(error)}
        return {"epoch": self.epoch + 1, "config": config, "places": to_rows(places)}

    def _learn(self, said: list[dict[str, Any]]) -> None:
        """Take over what the others know of requests."""
        ledger = self.ledger
        self.heard = max(each["heard"] for each in said)
        for each in said:
            ledger.learn(each["finished"])
        for each in said:
            for row in each["requests"]:
                ledger.add(Request.from_dict(row))
        for number in ledger.requests:
            ledger.made[number] = longest(ledger.made[number], *(each["made"].get(str(number), []) for each in said))

    def _resumed(self, said: list[dict[str, Any]], places: tuple[Place, ...]) -> tuple[dict[int, int], list[Move]]:
        """Where requests go on from: all workers find the same. A token is left to be fed in any case."""
        held, heads = held_of(said)
        most = {request.number: len(request.prompt) + len(self.ledger.made[request.number]) - 1
                for request in self.ledger.open()}
        return plan_moves(held, homes(places, self.nodes, heads), places[-1].end, most) if heads else ({}, [])

    def _stage(self, mine: Place) -> Stage:
        """The stage of a place, with the caches that belong into it; the last one where nothing has changed."""
        self.part = self.part or Part(self.place)
        if self.kept is not None and self.kept.stage.is_still(self.part, mine.start, mine.end) and self.share is None:
            for number in [number for number in self.kept.stage.streams if number not in self.ledger.requests]:
                self.kept.stage.close(number)
            return self.kept.stage
        return make_stage(self.part, mine.start, mine.end, self.config["chunk"], self.share, self.config["streams"])

    def _move(self, stage: Stage | None) -> None:
        """Caches to where their layers are now."""
        moving = CacheMoving(self.mpi, self.comm, self.epoch)
        same = stage is not None and self.kept is not None and stage is self.kept.stage
        moves = [move for move in self.moves if not (same and move.target == moving.rank == move.source)]
        lengths = {number: cache_length(self.config["context"], self.ledger.requests[number].length())
                   for number in self.at}
        low = 0 if stage is None or self.share is None else self.share.index * stage.kv_heads
        moving.run(moves, self.at, lengths, self.kept, stage, low)
        if moving.moved or moving.kept or same:
            self.report({"event": "moved", "node": self.node, "epoch": self.epoch, "layers": moving.moved,
                         "bytes": moving.moved_bytes, "kept": moving.kept + (len(self.moves) - len(moves))})

    def _spawn(self, joining: list[str]) -> None:
        """Start workers for nodes that came back; they meet us on the merged communicator."""
        count = len(joining)
        words = ["-m", self.config["module"], str(self.folder), self.secret_file]
        arguments = [[*words, node] for node in joining]
        try:
            inter = self.comm.Spawn_multiple([sys.executable] * count, arguments, [1] * count, root=0)
        except self.mpi.Exception as error:
            if error.Get_error_class() in self._deaths:
                raise
            self.report({"event": "fault", "node": self.node,
                         "text": f"{', '.join(joining)} could not be started: {error.Get_error_string()}"})
            return  # those that are there go on
        inter.Set_errhandler(self.mpi.ERRORS_RETURN)
        with limited(AGREE_S, f"on {self.node}, meeting {', '.join(joining)}"):
            self.comm = inter.Merge(high=False)
        self.comm.Set_errhandler(self.mpi.ERRORS_RETURN)

    def _serve(self, places: tuple[Any, ...]) -> None:
        mine = next((place for place in places if self.node in place.members), None)
        self.share = self._shared(places)
        stage, config, slow = None, self.config, self.slow
        baseline = Baseline(**config["baseline"])
        if config["cores"].get(self.node):
            os.sched_setaffinity(0, config["cores"][self.node])
        with mo.settings(**baseline.settings(config["threads"])):
            if mine is not None:
                stage = self._stage(mine)
                if self.make_stream is None and self.streams_of is not None:
                    self.make_stream = self.streams_of(self.place)
            self._move(stage)
            self.kept = None
            self.channels = Channels(self.mpi, self.comm, self.epoch)
            while self.unsaid:
                self.report(self.unsaid.pop(0))
            serving = Serving(self.channels, places, self.nodes, self.node, stage, self.ledger, config["width"],
                              config["context"], self.report, config["shims"], config["streams"], baseline,
                              self.make_stream or Stream, self.at, config["positions"])
            serving.slow = slow
            self.report({"event": "ready", "node": self.node, "epoch": self.epoch, "process": os.getpid(),
                         "layers": [] if mine is None else [mine.start, mine.end],
                         "read": [] if self.part is None else self.part.read[-16:]})
            try:
                serve(serving, self._look, config["spin_s"])
            finally:
                self.slow = serving.slow
                if stage is not None and not serving.two_parts and stage.kv_heads:
                    self.kept = Kept(stage, serving.expected, self.share)

    def _shared(self, places: tuple[Place, ...]) -> Share | None:
        """The group of those that share this worker's stage; all workers ask together."""
        if all(len(place.members) == 1 for place in places):
            return None
        index = next((index for index, place in enumerate(places) if len(place.members) > 1
                      and self.node in place.members), None)
        members = () if index is None else places[index].members
        color, key = (self.mpi.UNDEFINED, 0) if index is None else (index, members.index(self.node))
        found = self.comm.Split(color, key)
        return None if index is None else Share(key, len(members), MPIGroup(found, self.epoch),
                                                   self.config["exact"])

    # -- the frontend ------------------------------------------------------------------------------------------------
    def _look(self, serving: Serving) -> bool:
        """The gate looks for news."""
        now = time.monotonic()
        if self.inbox is None or self.comm.Get_rank() != self.gate or now - self._looked_s < LOOK_EVERY_S:
            return False
        self._looked_s, found = now, False
        for news in self.inbox.new():
            found = True
            self._hear(serving, news)
        if now - self._frontend_s > 1.0:
            self._frontend_s = now
            if not is_running(self.config["frontend"]):
                self._stop(serving)
        return found

    def _hear(self, serving: Serving, news: dict[str, Any]) -> None:
        others = [rank for rank in range(len(self.nodes)) if rank != self.gate]
        if "request" in news:
            request = Request.from_dict(news["request"])
            if self.ledger.add(request, news["request"].get("made", ())):
                raw = json.dumps(news["request"]).encode()
                for rank in others:
                    serving.channels.control(rank, Kind.REQUEST, raw)
                serving.begin(request)
        elif "cancel" in news:
            if news["cancel"] not in self.ledger.finished:
                serving.end(news["cancel"], cancelled=True)
        elif "slow" in news:
            serving.slow = news["slow"].get(self.node, 1.0)
            for rank in others:
                serving.channels.control(rank, Kind.NEWS, json.dumps(news).encode())
        elif ("join" in news or "plan" in news) and news["serial"] > self.heard:
            self.heard = news["serial"]  # all know it after the meeting; a gate that dies before leaves it to the next
            self.want = {"join": [news["join"]]} if "join" in news else {"plan": news["plan"]}
            raise Regroup
        elif "stop" in news:
            self._stop(serving)

    def _stop(self, serving: Serving) -> None:
        for rank in range(len(self.nodes)):
            if rank != self.gate:
                serving.channels.control(rank, Kind.STOP, b"")
        for _ in range(20):  # let them go out; those who leave at once are no loss
            try:
                for _ in serving.channels.poll():
                    pass
            except self.mpi.Exception:
                pass
            time.sleep(0.001)
        raise Stopped


def secret_of(folder: Path, file: str) -> bytes:
    """The secret of a run: the user's, which every host has, or the folder's own on this machine."""
    return read_secret(Path(file) if file else folder / "secret")


def main(arguments: list[str], streams_of: StreamsOf | None = None) -> None:
    """The entry of the process; `streams_of` makes, for a model's place, what chooses the tokens of requests."""
    folder = Path(arguments[0])
    from mpi4py import MPI  # with threads: the heartbeat is one of its own

    parent = MPI.Comm.Get_parent()
    MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)
    if parent != MPI.COMM_NULL:
        parent.Set_errhandler(MPI.ERRORS_RETURN)
        comm, node, config = parent.Merge(high=True), arguments[2], None
        comm.Set_errhandler(MPI.ERRORS_RETURN)
    else:
        comm, names = MPI.COMM_WORLD, arguments[2:]
        node = names[comm.Get_rank()] if len(names) > 1 else names[0]
        config = json.loads(file.read_text()) if (file := folder / "config.json").exists() else None
    status, worker = 0, None
    try:
        worker = Worker(MPI, comm, node, config, folder, arguments[1], streams_of)
        worker.run()
    except BrokenPipeError:
        pass
    except BaseException as error:
        status = 1
        traceback.print_exc()
        try:
            if worker is not None:
                worker.report({"event": "fault", "node": node, "text": str(error)[:1000] or type(error).__name__})
        except Exception:  # the frontend may be what is gone: then this worker's own output says it
            traceback.print_exc()
    if status:
        leave()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a communicator that has lost a member cannot be finalised


if __name__ == "__main__":
    main(sys.argv[1:])
