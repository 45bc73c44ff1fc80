"""A model that runs as a pipeline of processes: the frontend, which holds every request and every token it got."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from morpho.base.errors import ArgumentError, GroupError, fail
from morpho.base.machine import other_load
from morpho.cluster.frontend import history, status
from morpho.cluster.frontend.adapting import Adapting
from morpho.cluster.frontend.answers import Answer, Listener
from morpho.cluster.frontend.asking import Asking
from morpho.cluster.frontend.local import card_of, config_of, local_plan
from morpho.cluster.frontend.reviving import Reviving
from morpho.cluster.frontend.times import StageTimes
from morpho.cluster.frontend.watching import watch
from morpho.cluster.launch.mpiexec import HERE, Hosts, fair_threads, has_cores, mpiexec, own_cores
from morpho.cluster.pipeline.baseline import FAST, Baseline
from morpho.cluster.pipeline.placement import faults_of, from_rows, places_of, stored_failures
from morpho.cluster.pipeline.request import Request
from morpho.cluster.pipeline.shares import check_packed, check_shares, shared_numbers
from morpho.cluster.workers.job import WORKER, Job
from morpho.cluster.workers.reports import end_process, is_running
from morpho.models.text.sampling import Sampling
from morpho.plan import Plan
from morpho.plan.predict.generation import Overheads

MOST_DONE = 1000  # answers that are kept for what was measured
TEXTS_A_STAGE = 4  # on their way at once, where nobody says how many
CHUNK = 128  # tokens of a prompt that go from stage to stage at once
MOST_WISHES = 8  # for another plan or worker, that a worker may not have heard of yet
SPIN_S = 0.05  # where each worker has a core: how long it looks for messages of texts on their way without a sleep
ENCODER_CHUNK = 512  # an encoder looks both ways: a prompt goes through it as a whole
START_S = 120.0  # what workers are given until they have met
FOR_THIS = "plan for this model: morpho plan MODEL --cluster FILE"
WIDTHS = ("hidden_size", "n_embd", "width", "d_model")


class Pipeline:
    """A model cut into stages by a plan, each in a process of its own. Text is the same as that of one process, token
    by token, whatever the cut, and whoever dies meanwhile.

    `model` is a folder or a GGUF file, `plan` what `morpho.plan.solve` gave (or the path of its JSON); without one,
    `nodes` workers on this machine are planned for. `streams` is how many texts are on their way at once, by default
    four for each stage, which computes a token of several in one call; `positions` is how many tokens, prompts and
    answers, all of them together may have; `chunk` how many tokens of a prompt go at a time; `pin` keeps each worker on
    cores of its own, where nothing else runs on this machine. A host without the model gets the weights of its layers
    from one that has them, unless `ship` is off. With `revive` workers that died are started again. With `exact` off
    the nodes of a shared stage add parts of products instead of gathering them: fewer messages, and
    text that is equal to a tolerance only. `events` lists what happened: epochs, deaths, faults.

        with cluster.Pipeline("my-model", nodes=3) as pipeline:
            for token in pipeline.generate([1, 2, 3], max_new_tokens=20): ...

    >>> mo.cluster.Pipeline("nowhere", nodes=3)
    Traceback (most recent call last):
    ...
    morpho.base.errors.ArgumentError: [pipeline] there is no model at ...
    """

    def __init__(self, model: str | os.PathLike[str], plan: Plan | str | os.PathLike[str] | None = None, *,
                 nodes: int | None = None, streams: int | None = None, chunk: int = CHUNK, threads: int | None = None,
                 hosts: Hosts = HERE, models: Mapping[str, str] | None = None, secret: Path | None = None,
                 shims: dict[str, dict[str, float]] | None = None, baseline: Baseline = FAST,
                 heard: Callable[[dict[str, Any]], None] | None = None, module: str = WORKER,
                 ship: bool = True, revive: bool = False, reachable: Callable[[str], bool] | None = None,
                 restarts: int = 0, exact: bool = True, pin: bool = False, positions: int | None = None) -> None:
        self.place = str(Path(model).resolve())
        config = config_of(self.place)
        if plan is None:
            plan = local_plan(self.place, 2 if nodes is None else nodes)
        elif not isinstance(plan, Plan):
            plan = Plan.from_json(Path(plan).read_text())
        self.plan, self._load = plan, other_load()  # before the workers start
        places = self._checked(plan)
        mpiexec()  # no MPI: said before anything starts
        self.network = Asking(self.place)
        family, sizes = self.network.model.model_type, self.network.model.config
        check_shares(family, sizes, places)
        check_packed(self.place, exact, places)
        chunk = self.chunk = max(chunk, ENCODER_CHUNK) if self.network.two_parts else chunk
        all_names = [node.name for node in plan.cluster.nodes]
        cores = 0 if hosts.slots else fair_threads(len(places))
        self.streams = streams or TEXTS_A_STAGE * len(places)
        self._lock = threading.RLock()
        self._job_number = 0  # what workers of an earlier job say is not heard
        self._last_number, self._answers = 0, dict[int, Answer]()
        self._serial, self._wishes, self._cancelled = 0, list[dict[str, Any]](), set[int]()
        self.events: list[dict[str, Any]] = []
        self.processes: dict[str, int] = {}
        self.statistics: dict[str, dict[str, Any]] = {}
        self.epoch, self.places, self._ready, self._failure = 0, places, dict[str, int](), ""
        self._met, self._closed, self._heard = threading.Event(), threading.Event(), heard
        self._hosts, self._beats, self._times = hosts, dict[str, float](), StageTimes()
        self._done, self._most_at_once, self._said_s = list[Answer](), 0, 0.0
        self._adapting: Adapting | None = None
        self._moved_s = time.monotonic()  # when weights last came to a host that lacks them
        self.overheads: Overheads | None = None  # as `calibrating.calibrated` found them
        width = next(int(config[name]) for name in WIDTHS if name in config)
        config = {"model": self.place, "models": dict(models or {}), "ship": ship, "exact": exact,
                  "family": family, "sizes": shared_numbers(family, sizes),
                  "stored": stored_failures(plan, lambda places: check_shares(family, sizes, places)),
                  "width": width, "context": self.network.context, "chunk": chunk,
                  "streams": self.streams, "positions": positions, "threads": threads or cores, "shims": shims or {},
                  "baseline": baseline.to_dict(), "cores": dict(zip(
                      all_names, own_cores(len(all_names), threads or cores))) if pin and not hosts.slots else {},
                  "spin_s": SPIN_S if hosts.slots or has_cores(len(all_names)) else 0.0}
        self._start: Callable[[list[str], Any], Job] = lambda names, finished: Job(
            {**config, "plan": self.plan.to_json(), "finished": finished}, names,
            partial(self._of, self._job_number, self._handle), partial(self._of, self._job_number, self._ended),
            hosts.of([all_names.index(name) for name in names]), secret, module, self._open_news)
        self._reviving = Reviving(self, reachable, restarts)
        self._asked_for = all_names  # of those that were started last
        self._job = self._start(all_names, None)
        if not hosts.slots:
            threading.Thread(target=watch, args=(self._closed, self._watched, self._silent), daemon=True).start()
        if revive:
            self._reviving.start()

    def _checked(self, plan: Plan) -> tuple[Any, ...]:
        """The places of a plan for this model; a plan for another one, or one that is no placement, is an error."""
        card, name = plan.card, Path(self.place).name
        own = card_of(self.place, card.context, batch=card.batch, dtype=card.dtype)
        if card.depth != own.depth:
            raise fail(ArgumentError, "pipeline", f"the plan is for a model of {card.depth} layers, and {name} has "
                       f"{own.depth}", FOR_THIS)
        for number, (planned, layer) in enumerate(zip(card.layers, own.layers, strict=True)):
            if planned.key != layer.key:
                raise fail(ArgumentError, "pipeline", f"the plan is for another model: its layer {number} is "
                           f"{planned.key!r}, and that of {name} is {layer.key!r}", FOR_THIS)
        places = places_of(plan)
        if wrong := faults_of(plan):
            raise fail(ArgumentError, "pipeline", f"the plan cannot be run: {'; '.join(wrong)}",
                       "`morpho plan check` says all that is wrong with it")
        return places

    # -- what the user calls -----------------------------------------------------------------------------------------
    def generate(self, ids: Any, **settings: Any) -> Iterator[Any]:
        """As `mo.models.generate`: the tokens that follow one prompt, as they are made, or a list for each of several
        prompts, which are on their way together."""
        prompts, several, rest = self.network.requests(ids, **settings)
        longest = max(len(each[0]) for each in prompts)
        if self.network.two_parts and longest > self.chunk:
            raise fail(ArgumentError, "pipeline", f"the prompt has {longest} tokens, and an encoder's go through at "
                       f"once, {self.chunk} at most", f"make the pipeline with chunk={longest}")
        with self._lock:
            answers = [self._submit(Request(self._number(), *each, said=self.network.defaults)) for each in prompts]
        if not several:
            return self._tokens(answers[0], rest(prompts[0][0]))
        return ([*self._tokens(answer, rest(each[0]))] for answer, each in zip(answers, prompts, strict=True))

    def submit(self, listener: Listener, prompt: tuple[int, ...], count: int, sampling: Sampling, seed: int,
               stops: tuple[int, ...] = (), more: dict[str, Any] | None = None) -> int:
        """Begin with a request whose tokens are told to a function, from the thread that hears the workers, which must
        return at once: `{"event": "token", "token": ...}`, in the end `{"event": "end", "error": ..., "finish": ...}`.
        Its number is what `cancel` takes; `more` is for streams of another kind (`Request`)."""
        with self._lock:  # numbers are handed out and written in one order: see `Finished`
            return self._submit(Request(self._number(), prompt, count, sampling, seed, stops, more or {},
                                        self.network.defaults),
                                listener).request.number

    def _number(self) -> int:
        self._last_number += 1
        return self._last_number

    def cancel(self, number: int) -> None:
        """End a request of `submit`; its listener hears nothing more."""
        with self._lock:
            answer = self._answers.pop(number, None)
            if answer is not None and not answer.over and not self._failure:
                answer.over = True
                self._forget(number)

    def _forget(self, number: int) -> None:
        """Tell the workers that nobody wants a text any more, until they have heard it."""
        self._cancelled.add(number)
        self._job.write({"cancel": number})

    def _open_news(self) -> list[dict[str, Any]]:
        """News for workers that know nothing yet: texts under way, with their tokens so far."""
        texts = [{"request": {**answer.request.to_dict(), "made": answer.made}} for _, answer in sorted(
            self._answers.items()) if not answer.over]
        return [*texts, *({"cancel": number} for number in sorted(self._cancelled)), *self._wishes]

    def _submit(self, request: Request, listener: Listener | None = None) -> Answer:
        answer = Answer(request, listener)
        with self._lock:
            if self._failure:
                raise fail(GroupError, "pipeline", self._failure)
            self._answers[request.number] = answer
            self._most_at_once = max(self._most_at_once, len(self._answers))
            if request.count == 0:
                answer.end()
                self._forget(request.number)
            else:
                self._job.write({"request": request.to_dict()})
        return answer

    def _tokens(self, answer: Answer, stops: Any) -> Iterator[int]:
        try:
            while True:
                found = answer.news.get()
                if isinstance(found, str):
                    raise fail(GroupError, "pipeline", found)
                if found is None:
                    return
                yield found
                if stops.push(found):
                    return
        finally:
            with self._lock:
                self._answers.pop(answer.request.number, None)
                self._done = [*self._done[-MOST_DONE:], answer]
                if not answer.over and not self._failure:
                    self._forget(answer.request.number)

    def wait(self, timeout_s: float = START_S) -> Pipeline:
        """Until all workers of the plan are ready; what keeps them from it is an error. Weights on their way to a host
        have the time they take."""
        self._moved_s = time.monotonic()
        while not self._met.wait(max(0.0, self._moved_s + timeout_s - time.monotonic())):
            if time.monotonic() < self._moved_s + timeout_s:
                continue
            raise fail(GroupError, "pipeline", f"the workers were not ready after {timeout_s:g} s", self._job.output())
        if self._failure:
            raise fail(GroupError, "pipeline", self._failure)
        return self

    def restore(self, node: str) -> None:
        """Let a node that is gone come back: a worker is started for it, and the plan widens again. Over several hosts
        all workers are started again, and texts go on from the tokens there are."""
        self.plan.cluster.index(node)
        if self._hosts.slots:
            self._reviving.start_again()
        else:
            self._wish({"join": node})

    def start_again(self, nodes: list[str]) -> None:
        """Begin with new workers on these nodes; texts on their way go on from the tokens there are."""
        with self._lock:
            old, self._wishes, self._job_number = self._job, [], self._job_number + 1
            on_their_way = {number for number, answer in self._answers.items() if not answer.over}
            self._cancelled -= on_their_way
            self.epoch, self._ready, self._beats = 0, {}, {}
            self.processes, self.statistics = {}, {}
            first = min(on_their_way, default=self._last_number + 1)
            over = [number for number in range(first, self._last_number + 1) if number not in on_their_way]
        old.close()
        with self._lock:
            self._cancelled.clear()
            self.events.append({"event": "restart", "nodes": nodes, "time": time.time()})
            self._asked_for = nodes
            self._job = self._start(nodes, {"all_below": first, "others": over})
            for news in self._open_news():
                self._job.write(news)

    def recut(self, plan: Plan) -> None:
        """Go on with another plan; texts on their way go on with it."""
        check_shares(self.network.model.model_type, self.network.model.config, self._checked(plan))
        self._wish({"plan": plan.to_json()})
        self.plan = plan

    def _wish(self, news: dict[str, Any]) -> None:
        """Ask for another plan or worker: workers meet for it once, whoever of them reads it."""
        with self._lock:
            self._serial += 1
            self._wishes = [*self._wishes[-MOST_WISHES + 1:], {**news, "serial": self._serial}]
            self._job.write(self._wishes[-1])

    def stage_times(self) -> dict[str, float]:
        """Seconds that each stage takes for a token, measured in this epoch; a stage that made too few has none."""
        with self._lock:
            return self._times.all()

    def recent_stage_times(self) -> dict[str, float]:
        """The same since the last time this was asked; a stage that made too few tokens in between has none."""
        with self._lock:
            return self._times.recent()

    def rows_per_call(self) -> dict[str, float]:
        """How many texts a call of each stage made a token of, on average in this epoch; prompts are not counted."""
        with self._lock:
            return self._times.rows()

    def handling_times(self) -> dict[str, float]:
        """Seconds that each worker spends on a token beside its stage: receiving, choosing, sending."""
        with self._lock:
            return self._times.handling()

    def hear_times(self, timeout_s: float = 2.0) -> None:
        """Until every worker has said once more how it went."""
        asked = time.time()
        while time.time() < asked + timeout_s and any(
                self.statistics.get(place.node, {}).get("time", 0.0) <= asked for place in self.places):
            time.sleep(0.01)

    def fresh_times(self) -> StageTimes:
        """Times of the stages that are measured from now on, until somebody asks for fresh ones again."""
        self.hear_times()
        with self._lock:
            self._times = StageTimes()
            return self._times

    @property
    def done(self) -> list[Answer]:
        """Answers that are over, the last of them."""
        return self._done

    def adapting(self, **settings: Any) -> Adapting:
        """Cut the model anew where measured times say that it pays: see `Adapting`; until the pipeline is closed."""
        self._adapting = Adapting(self, **settings).start()
        return self._adapting

    def measured(self) -> dict[str, Any]:
        """Figures of this run; see `history`."""
        with self._lock:
            return history.measured(list(self._done), self.statistics, self.stage_times())

    def stages(self) -> list[dict[str, Any]]:
        """The nodes of the plan: who is alive, with which layers, and what it does."""
        with self._lock:
            layers = {node: [place.start, place.end] for place in self.places for node in place.members}
            there, said = dict(self.processes), dict(self.statistics)
        alive = [name for name, process in there.items() if self._hosts.slots or is_running(process)]
        return status.stages([node.name for node in self.plan.cluster.nodes], alive, there, layers, said)

    @property
    def lock(self) -> threading.RLock:
        """The lock of requests and their tokens: who calls `submit` and `cancel` under a lock takes this one, as
        listeners are called under it."""
        return self._lock

    @property
    def failure(self) -> str:
        """Why no more text is made; empty while it is."""
        return self._failure

    def slow_down(self, factors: dict[str, float]) -> None:
        """For tests: let nodes take longer than they need."""
        self._job.write({"slow": factors})

    @property
    def context(self) -> int:
        """The most positions of a text."""
        return self.network.context

    def close(self) -> None:
        """End the workers."""
        if not self._closed.is_set():
            self._closed.set()
            self._reviving.stop()
            if self._adapting is not None:
                self._adapting.stop()
            if self._done:
                history.record(self.plan, Path(self.place).name, self._most_at_once, len(self._done[0].request.prompt),
                               self.measured(), max(len(answer.made) for answer in self._done), self.overheads,
                               self._load)
            status.clear()
        self._fail("the pipeline is closed")
        self._job.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- what workers say --------------------------------------------------------------------------------------------
    def _of(self, number: int, hear: Callable[[Any], None], said: Any) -> None:
        if number == self._job_number:
            hear(said)

    def _handle(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        with self._lock:
            if kind == "token":
                answer = self._answers.get(event["request"])
                if answer is not None:
                    answer.token(event["index"], event["token"], event)
            elif kind == "end":
                self._cancelled.discard(event["request"])
                answer = self._answers.get(event["request"])
                if answer is not None:
                    answer.end(event.get("error"), event.get("finish", ""))
                    if answer.listener is not None:
                        del self._answers[event["request"]]
                        self._done = [*self._done[-MOST_DONE:], answer]
            elif kind == "shipping":
                self._moved_s = time.monotonic()
            elif kind == "beat":
                self._beat(event["node"])
            elif kind == "statistics":
                self.statistics[event["node"]] = {**event, "time": time.time()}
                if event["epoch"] == self.epoch:
                    self._times.add(event["node"], event)
                self._say_status()
            else:
                self._happened(event)
        if self._heard is not None:
            self._heard(event)

    def _say_status(self) -> None:
        """Keep the file of `morpho cluster status` up to date."""
        now = time.time()
        if now - self._said_s >= 0.5:
            self._said_s = now
            layers = {node: [place.start, place.end] for place in self.places for node in place.members}
            status.write({"model": self.place, "epoch": self.epoch, "texts": len(self._answers),
                          "workers": status.workers(self.processes, layers, self.statistics, now)})

    def _happened(self, event: dict[str, Any]) -> None:
        """Record an unusual event."""
        self.events.append({**event, "time": time.time()})
        if event["event"] == "epoch" and event["epoch"] == 1 and self._reviving.lacks(
                [name for name in self._asked_for if name not in event["nodes"]]):
            self.epoch = 0  # nobody is ready before they are all there
        elif event["event"] == "epoch":
            gone = [name for name in self.processes if name not in event["nodes"]]
            self.epoch, self.places = event["epoch"], from_rows(event["places"])
            self._times.begin()
            for name in gone:
                self._fence(name)
        elif event["event"] == "ready":
            self.processes[event["node"]] = event["process"]
            self._ready[event["node"]] = event["epoch"]
        elif event["event"] == "problem":
            self._fail(event["text"])
        if self.is_ready and not self._met.is_set():
            for answer in self._answers.values():  # asked for while workers started, which nobody predicts
                answer.begun_s = time.perf_counter()
            self._met.set()

    @property
    def is_ready(self) -> bool:
        """Whether every stage of the epoch has its worker, with its layers."""
        return self.epoch > 0 and all(
            self._ready.get(node) == self.epoch for place in self.places for node in place.members)

    def _fence(self, name: str) -> None:
        """A worker that the others took for dead must not come back by itself: one that was only stopped is ended."""
        process = self.processes.pop(name)
        self._beats.pop(name, None)
        self.events.append({"event": "gone", "node": name, "time": time.time()})
        if not self._hosts.slots:
            end_process(process)

    def _beat(self, node: str) -> None:
        self._beats[node] = time.monotonic()

    def _watched(self) -> dict[str, tuple[int, float]]:
        """Processes of this machine, and when each was heard last."""
        with self._lock:
            now = time.monotonic()
            return {node: (process, self._beats.get(node, now)) for node, process in self.processes.items()}

    def _silent(self, node: str) -> None:
        with self._lock:
            self.events.append({"event": "silent", "node": node, "time": time.time()})

    def _ended(self, output: str) -> None:
        if not self._closed.is_set() and (self._reviving.start_again(counted=True) if self.epoch
                                          else self._reviving.crashed(output)):
            return
        self._fail("all workers are gone" + (f"; the last they said: {output}" if output else ""))

    def _fail(self, text: str) -> None:
        """Nobody waits for tokens that will not come."""
        with self._lock:
            self._failure = self._failure or text
            for answer in self._answers.values():
                answer.end(self._failure)
        self._met.set()
