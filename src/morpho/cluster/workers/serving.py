"""One epoch of a worker: messages in, layers computed, messages out, until something ends the epoch.

The first stage feeds prompts in pieces and the tokens that come back, the last one chooses tokens; any number of
streams are on their way at once, so that every stage has work. Tokens that wait at a stage go through it in one call,
as many as leave work for the other stages.
"""

from __future__ import annotations

import json
import resource
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from morpho.base.errors import MorphoError, PeerLost, fail
from morpho.cluster.pipeline.baseline import FAST, Baseline
from morpho.cluster.pipeline.placement import Place
from morpho.cluster.pipeline.request import MakeStream, Request, Stream
from morpho.cluster.pipeline.stage import Stage, cache_length
from morpho.cluster.pipeline.two_parts import TwoPartStage
from morpho.cluster.transport.channel import Channels, Patience
from morpho.cluster.transport.frame import Header, Kind, TransportError
from morpho.cluster.workers.ledger import Ledger
from morpho.cluster.workers.links import Links
from morpho.cluster.workers.statistics import Statistics
from morpho.cluster.workers.waiting import Piece, Waiting

STATISTICS_EVERY_S = 0.5
MOST_LOOKS = 8  # for messages, before one piece of work: those that are there go through together
MOST_PIECES = 2  # of prompts that wait at a stage, before it takes no more


class Regroup(Exception):
    """The epoch is over: somebody wants another plan, or another worker."""


class Stopped(Exception):
    """The work is over."""


class Serving:
    """A worker with a stage, or a spare one without, in one epoch."""

    def __init__(self, channels: Channels, places: tuple[Place, ...], nodes: list[str], node: str, stage: Stage | None,
                 ledger: Ledger, width: int, context: int, report: Callable[..., None],
                 shims: dict[str, dict[str, float]], streams: int, baseline: Baseline = FAST,
                 make_stream: MakeStream = Stream, at: Mapping[int, int] | None = None,
                 positions: int | None = None) -> None:
        self.channels, self.places, self.nodes, self.node = channels, places, nodes, node
        self.stage, self.ledger, self.context, self.report = stage, ledger, context, report
        self.most_streams, self.slow, self.baseline, self.make_stream = streams, 1.0, baseline, make_stream
        self.index = next((i for i, place in enumerate(places) if place.node == node), None)
        self.follows = next((place for place in places if node in place.members[1:]), None)  # a stage led by another
        self.statistics, self._reported_s, self._work_at = Statistics(), time.monotonic(), time.monotonic()
        self.queue: deque[Request] = deque()  # the first stage's: not begun yet
        self.waiting = Waiting()
        self.positions = positions  # that all texts together may have, as far as the first stage decides
        self.two_parts = isinstance(stage, TwoPartStage)
        self.active: set[int] = set()
        self.unsaid: list[dict[str, Any]] = []
        self.streams: dict[int, Stream] = {}  # the last stage's
        self.expected = dict(at or {})  # the next position of each stream here: not 0 where caches were kept
        self.early: dict[int, list[tuple[Header, np.ndarray]]] = {}  # activations that overtook their request
        self.links = Links(channels, places, nodes, node, stage, width, shims, baseline)
        for request in ledger.open():
            self.begin(request)

    @property
    def has_texts(self) -> bool:
        """Whether texts are on their way through this stage."""
        return self.stage is not None and bool(self.stage.streams)

    # -- requests ----------------------------------------------------------------------------------------------------
    def begin(self, request: Request) -> None:
        """Take up a request: the first stage feeds it when it is its turn."""
        if self.stage is None or self.follows is not None or request.number in self.ledger.finished:
            return
        if self.stage.is_last:
            try:
                stream = self.streams[request.number] = self.make_stream(request, self.ledger.made[request.number])
            except MorphoError as error:
                self.end(request.number, error=str(error))
                return
            if stream.ended:  # its last token was made before the last epoch ended
                self.end(request.number, finish=stream.finish)
                return
        if self.stage.is_first:
            self.queue.append(request)
        for header, payload in self.early.pop(request.number, ()):
            self._receive(header, payload)

    def _admit(self) -> None:
        """Begin with requests as long as there is room for more streams."""
        assert self.stage is not None
        while self.queue and len(self.active) < self.most_streams and self._has_room_for(self.queue[0]):
            request = self.queue.popleft()
            if request.number in self.ledger.finished:
                continue
            self.active.add(request.number)
            if self.two_parts:  # an encoder looks both ways: the whole prompt at once
                self.waiting.put(Piece(request.number, np.array([request.prompt], np.int64), 0, False, Kind.MEMORY))
                continue
            ids = [*request.prompt, *self.ledger.made[request.number]]
            chunk = self.stage.chunk
            for at in range(self.expected.get(request.number, 0), len(ids), chunk):
                part = np.array([ids[at:at + chunk]], np.int64)
                self.waiting.put(Piece(request.number, part, at, at + chunk >= len(ids)))

    def _has_room_for(self, request: Request) -> bool:
        """Whether one more text fits into the positions there are; one alone always does."""
        if self.positions is None or not self.active:
            return True
        lengths = [self.ledger.requests[number].length(self.two_parts) for number in self.active
                   if number in self.ledger.requests]
        return sum(lengths) + request.length(self.two_parts) <= self.positions

    def finish(self, number: int) -> None:
        """A request has ended, here or elsewhere."""
        self.ledger.finish(number)
        self.active.discard(number)
        self.streams.pop(number, None)
        self.expected.pop(number, None)
        if self.stage is not None:
            self.stage.close(number)

    def end(self, number: int, **why: Any) -> None:
        """End a request for everybody, and tell the frontend."""
        self.unsaid.append({"event": "end", "request": number, **why})
        self._tell_all()
        for rank in range(len(self.nodes)):
            if rank != self.channels.rank:
                self.channels.control(rank, Kind.FINISHED, b"", number)
        self.finish(number)

    # -- work --------------------------------------------------------------------------------------------------------
    def step(self) -> bool:
        """Look at messages and do one piece of work; whether there was anything."""
        begun, before = time.perf_counter(), self.statistics.mark()
        busy = self._look()
        if self.stage is not None and self.follows is None:
            if self.stage.is_first:
                self._admit()
            if self.waiting and (self.links.to_next is None or self.links.to_next.has_room):
                busy = True
                self._work(self.waiting.take(self._most_rows()))
        if busy:
            self._work_at = time.monotonic()
            self.statistics.handle(before, time.perf_counter() - begun)
        return busy

    def _look(self) -> bool:
        """Take the messages that are there; who has pieces of prompts to compute leaves more of them on the line."""
        for looks in range(MOST_LOOKS):
            found = False
            wanted = self.stage is None or self.stage.is_first or len(self.waiting.pieces) < MOST_PIECES
            for header, payload in self.channels.poll(wanted):
                found = True
                self._receive(header, payload)
            if not found:
                return looks > 0
        return True

    def _most_rows(self) -> int:
        """Tokens of different texts in one call: as many as let every stage have a share of the texts."""
        assert self.stage is not None
        share = 1 if self.baseline.turns else -(-len(self.stage.streams) // len(self.places))
        return max(1, min(self.stage.most_rows, share))

    def _work(self, pieces: list[Piece]) -> None:
        assert self.stage is not None
        pieces = [piece for piece in pieces if piece.number not in self.ledger.finished]
        if not pieces:
            return
        if pieces[0].kind == Kind.MEMORY:
            self._encode(pieces[0].number, pieces[0].x)
        elif self.stage.takes_tokens or not self.stage.is_first:
            self._compute(pieces)
        else:
            for piece in pieces:
                self._pass_by(piece.number, piece.x, piece.position)

    def _pass_by(self, number: int, ids: np.ndarray, position: int) -> None:
        """Tokens of the decoder go by the encoder's stages."""
        assert self.links.to_next is not None
        self.links.to_next.send(self.links.header(Kind.TOKEN, [(number, position)], True), ids.reshape(-1))

    def _encode(self, number: int, x: np.ndarray) -> None:
        """A prompt on its way through encoder and decoder; at its end the decoder begins."""
        stage, request = self.stage, self.ledger.requests[number]
        assert isinstance(stage, TwoPartStage)
        try:
            length = cache_length(self.context, request.length(True))
            stage.open(number, length)
            self._tell_followers(number, length, x, 0, True)
            found = stage.encode(number, x)
        except MorphoError as error:
            self.end(number, error=str(error))
            return
        if not stage.is_last:
            assert self.links.to_next is not None
            self.links.to_next.send(self.links.header(Kind.MEMORY, [(number, 0)], False), found)
            return
        begin = stage.part.model.config["decoder_start_token_id"] or 0
        ids = np.array([begin, *self.streams[number].made], np.int64)
        if self.links.to_first is None:
            self.waiting.put(Piece(number, ids.reshape(1, -1), 0, True))
        else:
            self.links.to_first.send(self.links.header(Kind.TOKEN, [(number, 0)], True), ids)

    def _receive(self, header: Header, payload: np.ndarray) -> None:
        if header.table:
            for row, (number, position) in enumerate(header.table):
                self._receive(header._replace(request=number, position=position, table=()), payload[row:row + 1])
        elif header.kind == Kind.REQUEST:
            data = json.loads(payload.tobytes())
            request = Request.from_dict(data)
            if self.ledger.add(request, data.get("made", ())):
                self.begin(request)
        elif header.kind == Kind.FINISHED:
            self.finish(header.request)
        elif header.kind == Kind.STOP:
            raise Stopped
        elif header.kind == Kind.NEWS:
            self.slow = json.loads(payload.tobytes())["slow"].get(self.node, 1.0)
        elif header.kind == Kind.REPORT:
            self.report(json.loads(payload.tobytes()))
        elif header.kind == Kind.SHARE:
            self._share(header, payload)
        elif header.request in self.ledger.finished:
            return  # on its way when the request ended
        elif header.request not in self.ledger.requests:
            self.early.setdefault(header.request, []).append((header, payload))
        elif header.kind == Kind.TOKEN:
            self._fed(header.request, payload.reshape(1, -1), header.position)
        elif header.kind == Kind.MEMORY:
            self._encode(header.request, payload)
        else:
            self.waiting.put(Piece(header.request, payload, header.position, header.final))

    def _fed(self, number: int, ids: np.ndarray, position: int) -> None:
        """The token that the last stage chose comes to the first one, or by it to where the decoder begins."""
        assert self.stage is not None
        if not self.stage.is_first and not self.stage.takes_tokens:
            self._pass_by(number, ids, position)
            return
        if position and self.stage.is_first:  # a decoder's beginning is no token of the text
            self.ledger.made[number].append(int(ids[0, -1]))
        self.waiting.put(Piece(number, ids, position, True))

    def _share(self, header: Header, x: np.ndarray) -> None:
        """Compute what the leader of the stage computes, whatever is known of the request here: in the stage all come
        to the same collectives in the same order."""
        assert self.stage is not None
        self.stage.open(header.request, header.stage)
        if header.final:
            assert isinstance(self.stage, TwoPartStage)
            self.stage.encode(header.request, x)
            return
        self.stage.run(header.request, x, header.position)
        self.expected[header.request] = header.position + x.shape[1]
        if header.request in self.ledger.finished:
            self.stage.close(header.request)
            self.expected.pop(header.request)

    def _run(self, number: int, x: np.ndarray, position: int) -> np.ndarray:
        """The stage, here and on those that share its layers."""
        assert self.stage is not None
        length = cache_length(self.context, self.ledger.requests[number].length(self.two_parts))
        self.stage.open(number, length)
        self._tell_followers(number, length, x, position)
        return self.stage.run(number, x, position)

    def _tell_followers(self, number: int, length: int, x: np.ndarray, position: int, encodes: bool = False) -> None:
        for follower in self.links.followers:
            follower.send_now(Header(Kind.SHARE, self.channels.epoch, self.channels.rank, number, length, position,
                                     final=encodes), x)

    def _compute(self, pieces: list[Piece]) -> None:
        """A piece of a prompt, or a token of each of several texts, through the stage."""
        stage = self.stage
        assert stage is not None
        for piece in pieces:
            if self.expected.get(piece.number, 0) != piece.position:
                raise fail(TransportError, "transport", f"{self.node} got position {piece.position} of request "
                           f"{piece.number}, and expected {self.expected.get(piece.number, 0)}", line="")
        begun, compiles = time.perf_counter(), stage.compiles
        try:
            found = self._through(pieces)
        except PeerLost:
            raise
        except MorphoError as error:
            self._failed(pieces, error)
            return
        seconds = time.perf_counter() - begun
        compiled = stage.compiles > compiles
        if self.slow > 1 and not compiled:
            time.sleep(seconds * (self.slow - 1))
            seconds = time.perf_counter() - begun
        first = pieces[0]
        self.statistics.add(len(pieces), first.x.shape[1], seconds, first.position == 0, compiled)
        for piece in pieces:
            self.expected[piece.number] = piece.position + piece.x.shape[1]
        if not stage.is_last:
            assert self.links.to_next is not None
            rows = [(piece.number, piece.position) for piece in pieces]
            self.links.to_next.send(self.links.header(Kind.ACTIVATION, rows, first.final), found)
        elif first.final:
            self._choose([piece.number for piece in pieces], found)

    def _through(self, pieces: Sequence[Piece]) -> np.ndarray:
        """Run pieces through this stage; return activations for the next stage, or logits, one row for each text."""
        assert self.stage is not None
        if len(pieces) == 1:
            found = self._run(pieces[0].number, pieces[0].x, pieces[0].position)
            return found[None] if self.stage.is_last else found
        return self.stage.run_rows([piece.number for piece in pieces], np.concatenate([piece.x for piece in pieces]),
                                   [piece.position for piece in pieces])

    def _failed(self, pieces: list[Piece], error: MorphoError) -> None:
        """A call failed: whose fault it was shows when each is computed alone."""
        if len(pieces) == 1:
            self.end(pieces[0].number, error=str(error))
            return
        for piece in pieces:
            self._compute([piece])

    def _choose(self, numbers: Sequence[int], logits: np.ndarray) -> None:
        """The last stage chooses a token of each text, tells the frontend and the first stage."""
        chosen = [(number, found) for number, row in zip(numbers, logits, strict=True)
                  if (found := self._chosen(number, row)) is not None]
        self._tell_all()
        if self.links.to_first is None:
            for number, (token, position) in chosen:
                self._fed(number, np.array([[token]], np.int64), position)
        elif chosen:
            header = self.links.header(Kind.TOKEN, [(number, position) for number, (_, position) in chosen], True)
            self.links.to_first.send(header, np.array([token for _, (token, _) in chosen], np.int64))

    def _chosen(self, number: int, logits: np.ndarray) -> tuple[int, int] | None:
        """The next token of a text and its position; None where it has ended."""
        stream = self.streams[number]
        try:
            token = stream.take(logits)
        except MorphoError as error:
            self.end(number, error=str(error))
            return None
        if token is not None:
            self.unsaid.append({"event": "token", "request": number, "index": len(stream.made) - 1, "token": token,
                                **stream.told})
            if self.links.to_first is not None:
                self.ledger.made[number].append(token)
        if stream.ended:
            self.end(number, finish=stream.finish)
            return None
        assert token is not None
        return token, len(stream.made) if self.two_parts else len(stream.tokens) - 1

    def _tell_all(self) -> None:
        """Tokens of one call are told together: whoever hears them wakes up once."""
        self.unsaid, told = [], self.unsaid
        if told:
            self.report(*told)

    # -- what is said ------------------------------------------------------------------------------------------------
    def tell(self) -> None:
        """Say now and then how it goes: times of the stage, bytes of the links, what is waited for."""
        now = time.monotonic()
        if now - self._reported_s < STATISTICS_EVERY_S:
            return
        self._reported_s, found = now, self.statistics
        self.statistics = Statistics()
        sent = sum(sender.counters.bytes for sender in self.channels.senders.values())
        self.report({"event": "statistics", "node": self.node, "epoch": self.channels.epoch, **vars(found),
                     "sent_bytes": sent, "idle_s": round(now - self._work_at, 3), "doing": self._doing(),
                     "streams": len(self.active),
                     "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                     "kv_bytes": 0 if self.stage is None else self.stage.kv_bytes})

    def _doing(self) -> str:
        if self.follows is not None:
            return f"sharing the layers of {self.follows.node}"
        if self.stage is None or self.index is None:
            return "spare: no layers"
        if self.stage.is_first:
            if self.waiting and self.links.to_next is not None and not self.links.to_next.has_room:
                return f"waiting for {self.places[self.index + 1].node} to take activations"
            if not self.active:
                return "waiting for requests"
            return f"waiting for tokens from {self.places[-1].node}"
        return f"waiting for activations from {self.places[self.index - 1].node}"


def serve(serving: Serving, look: Callable[[Serving], bool], spin_s: float = 0.0) -> None:
    """Work until somebody ends the epoch. `look` looks for news from the frontend; `spin_s` is how long a worker that
    has texts on their way looks for messages without sleeping."""
    patience = Patience(spin_s=spin_s)
    while True:
        busy = serving.step()
        if look(serving) or busy:
            patience.reset()
        else:
            patience.wait(serving.channels.due_in_s(), spin=serving.has_texts)
        serving.tell()
