"""Comparing what ranks bring to a collective, before any of its bytes move: operation, reduction, dtype, length, root.

Each rank shows a word for its n-th collective and looks at the words of the others: ranks of one host in memory that
they share (`Board`), ranks of several hosts by a small all-gather on a communicator of its own (`Wire`). All words are
of one size whatever the collective is, so ranks that come with different ones cannot harm each other, and all of them
see it. It is here, and not inside MPI, that a rank waits for others: who has ended, or does not come within the
timeout, is named in an error. Where all have come the comparison takes a rank of one host under 1 us.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from morpho.base.errors import GroupError, MorphoError, fail
from morpho.cluster.groups.limit import Waited
from morpho.runtime.groups import waiting

TEXT_BYTES = 1024
_TEXT_S = 10.0  # to hear what another rank called, once ranks have come with different collectives
_LOOKS = 300  # at the words of the others, some 20 us, before this rank lets others have its core
_YIELDS_S = 0.002  # then it only yields for so long, before it sleeps between looks
_LOOK_EVERY_S = 0.0001
_SAY_AFTER_S = 1.0  # a rank that waits longer says so to those of other hosts
_TAG_BITS = 48
_LIVES, _ENDED, _GAVE_UP = range(3)
_codes: dict[tuple[Any, ...], int] = {}

What = tuple[Any, ...]  # operation, then whatever all ranks must have in common
_UNEQUAL = ("all ranks come to the same collectives; where batches are not equally many, use `with replica.join():` of "
            "DistributedDataParallel")
SAME = "every rank of a group calls the same collectives, of the same length and dtype, in the same order"


def code_of(what: What) -> int:
    """48 bits of a hash, the same in every process.

    >>> code_of(("barrier",)) == code_of(("broadcast", 4, "float32", 0)), code_of(("barrier",)) >> 48
    (False, 0)
    """
    code = _codes.get(what)
    if code is None:
        if len(_codes) > 4096:
            _codes.clear()
        code = _codes[what] = int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:6], "little")
    return code


def name_of(what: What) -> str:
    """A collective as errors name it.

    >>> name_of(("all_reduce", 4, "float32", "sum", 0)), name_of(("broadcast", 1, "int64", 2)), name_of(("barrier",))
    ('all_reduce (sum) of 4 float32', 'broadcast (root 2) of 1 int64', 'barrier')
    """
    operation, *rest = what
    if not rest:
        return str(operation)
    count, dtype, *more = rest
    option = f" (root {more[0]})" if operation == "broadcast" else f" ({more[0]})" if more else ""
    where = " in memory of `buffer()`" if len(more) > 1 and more[1] else ""
    return f"{operation}{option} of {count} {dtype}{where}"


class Comparing:
    """Base of `Board` and `Wire`: how a rank waits, and what it says.

    look: drives MPI, and raises where a rank died or the group was revoked. why: what is known of ranks that do not
    come, a sentence each. give_up: has the others know that this rank does not wait any more."""

    def __init__(self, rank: int, size: int, timeout_s: float, look: Callable[[], None],
                 why: Callable[[Sequence[int]], list[str]], give_up: Callable[[], None]) -> None:
        self.rank, self.size, self.timeout_s = rank, size, timeout_s
        self.look, self.why, self._give_up = look, why, give_up
        self.number = 0
        self.members: tuple[int, ...] = ()  # the rank of each in the world
        self.verdict = ""  # what every further call says, once this rank or another one has given up

    # -- what a board and a wire have ----------------------------------------------------------------------------------
    def come(self, what: What, place: str) -> None:
        """Return when all ranks have come with the same; `place` is the line of a call that goes on in a thread."""
        raise NotImplementedError

    def has_ended(self, rank: int) -> bool:
        """Whether the script of a rank is done."""
        raise NotImplementedError

    def end(self) -> None:
        """Say that this rank takes part in nothing more."""
        raise NotImplementedError

    def heard(self, patience_s: float = 0.0) -> str:
        """Why another rank gave up; empty where none has. patience_s: how long its message may be under way."""
        return ""

    def _all_came(self) -> bool:
        raise NotImplementedError

    def _late(self) -> list[int]:
        """Ranks that are not known to have come."""
        raise NotImplementedError

    def _say_waiting(self) -> None:
        """Have ranks of other hosts know that this one waits."""

    def _publish(self, text: str) -> None:
        """Have the others know why this rank gave up."""

    def _texts(self, text: str) -> list[str]:
        """Words of all ranks, once all have arrived."""
        raise NotImplementedError

    # -- waiting -------------------------------------------------------------------------------------------------------
    def _wait(self, what: What, place: str) -> None:
        """Return when nobody is late."""
        clock, said = Waited(self.timeout_s), False
        while not self._all_came():
            try:
                self.look()
            except Exception:  # MPI may know of the end of a process before this loop looks at its word
                self._check_ended(what, place)
                raise
            self._check_verdict()
            waited = clock.seconds()
            self._check_ended(what, place)
            if said and waited > 2 * _SAY_AFTER_S:  # the others have had time to say that they wait
                waiting.silent[self.members] = [self.members[rank] for rank in self._late()]
            if not said and waited > min(_SAY_AFTER_S, self.timeout_s / 4 or _SAY_AFTER_S):
                said = True
                self._say_waiting()
            if 0 < self.timeout_s < waited and not self._all_came():
                late = self._late() or [rank for rank in range(self.size) if rank != self.rank]
                self.give_up(f"{name_of(what)} at {place or line()}", late, str(what[0]), place)
            if waited < _YIELDS_S:
                os.sched_yield()
            else:
                time.sleep(_LOOK_EVERY_S)

    def _check_ended(self, what: What, place: str) -> None:
        """An error where a rank that is late takes part in nothing more."""
        ended = {rank for rank in self._late() if self.has_ended(rank)}
        ended &= {*self._late()}  # one may have come, and ended, between two looks
        if ended:
            raise fail(GroupError, str(what[0]), f"rank {self.rank} waits in {name_of(what)} for rank "
                       f"{min(ended)}, whose script has ended", _UNEQUAL, place or None)

    def give_up(self, waits: str, late: Sequence[int], operation: str, place: str = "") -> None:
        """Raise after the timeout, with all that is known; the others get to know it. Where another rank has given up
        before, its reason stands."""
        self._check_verdict()
        for_whom = "rank " + str(late[0]) if len(late) == 1 else "ranks " + ", ".join(map(str, late))
        because = "".join(f"; {sentence}" for sentence in self.why(late))
        self.verdict = f"rank {self.rank} waited {self.timeout_s:g} s in {waits} for {for_whom}{because}"
        self._publish(self.verdict)
        self._give_up()
        raise fail(GroupError, operation, self.verdict, "the setting collective_timeout is how long a rank waits",
                   place or None)

    def _check_verdict(self) -> None:
        self.verdict = self.verdict or self.heard()
        if self.verdict:
            raise self.error()

    def error(self) -> MorphoError:
        """Error of a call after this rank or another one has given up."""
        return fail(GroupError, "group", f"the group is given up: {self.verdict}",
                    "the setting collective_timeout is how long a rank waits")

    def _refuse(self, what: What, place: str) -> None:
        """The error of all ranks, where they came with different collectives."""
        self._check_verdict()
        texts = self._texts(f"{name_of(what)} at {place or line()}")
        self._check_verdict()
        calls = [text.rpartition(" at ")[0] or text for text in texts]
        other = next((rank for rank, call in enumerate(calls) if call != calls[0]), self.size - 1)
        raise fail(GroupError, str(what[0]), f"ranks came with different collectives: rank 0 with {texts[0]}, "
                   f"rank {other} with {texts[other]}", SAME, place or None)


def line() -> str:
    """The user's line that this thread is at."""
    return waiting.line_of(sys._getframe()) or "an unknown line"


class Board(Comparing):
    """Words in memory of one host: of each rank two for collectives, of even and of odd numbers, since a rank is at
    most one ahead of another; its state; and a text.

    >>> memory = bytearray(Board.nbytes(2))
    >>> first, second = (Board(memory, rank, 2, 0.0, lambda: None, lambda late: [], lambda: None) for rank in range(2))
    >>> second.words[2 + second.rank] = first.words[2] = 1 << 48 | code_of(("barrier",))
    >>> first.come(("barrier",), "")
    >>> second.end()
    >>> first.come(("barrier",), "x.py:3")
    Traceback (most recent call last):
    ...
    morpho.base.errors.GroupError: [barrier] rank 0 waits in barrier for rank 1, whose script has ended. At x.py:3...
    """

    @staticmethod
    def nbytes(size: int) -> int:
        return size * (4 * 8 + TEXT_BYTES)

    def __init__(self, memory: mmap.mmap | bytearray, rank: int, size: int, *more: Any) -> None:
        super().__init__(rank, size, *more)
        whole = memoryview(memory)
        self.words = whole[:4 * 8 * size].cast("Q")
        self._text = [whole[32 * size + each * TEXT_BYTES:32 * size + (each + 1) * TEXT_BYTES] for each in range(size)]
        others = [each for each in range(size) if each != rank]
        self._places = others, [size + each for each in others]  # of the words of the others, by even and odd numbers
        self._states, self._said = 2 * size, 3 * size

    def come(self, what: What, place: str) -> None:
        self.number = number = self.number + 1
        code = (number & 0xFFFF) << _TAG_BITS | (_codes.get(what) or code_of(what))
        words, odd = self.words, number & 1
        words[odd * self.size + self.rank] = code
        looks = _LOOKS
        for at in self._places[odd]:
            while words[at] != code:
                looks -= 1
                if not looks:
                    self._slow(what, place, code)
                    return

    def _slow(self, what: What, place: str, code: int) -> None:
        if self.verdict:
            raise self.error()
        self._wait(what, place)
        if any(self.words[at] != code for at in self._places[self.number & 1]):
            self._refuse(what, place)

    def _all_came(self) -> bool:
        return not self._late()

    def _late(self) -> list[int]:
        odd, tag, words = (self.number & 1) * self.size, self.number & 0xFFFF, self.words
        return [rank for rank in range(self.size) if words[odd + rank] >> _TAG_BITS != tag]

    def has_ended(self, rank: int) -> bool:
        return self.words[self._states + rank] == _ENDED

    def end(self) -> None:
        if self.words[self._states + self.rank] == _LIVES:
            self.words[self._states + self.rank] = _ENDED

    def heard(self, patience_s: float = 0.0) -> str:
        return next((self._read(rank) for rank in range(self.size) if self.words[self._states + rank] == _GAVE_UP), "")

    def _publish(self, text: str) -> None:
        self._write(text)
        self.words[self._states + self.rank] = _GAVE_UP
        self.words[self.rank] = self.words[self.size + self.rank] = 0  # who comes later must not take it for present

    def _write(self, text: str) -> None:
        raw = text.encode()[:TEXT_BYTES]
        self._text[self.rank][:] = raw + bytes(TEXT_BYTES - len(raw))

    def _read(self, rank: int) -> str:
        return bytes(self._text[rank]).rstrip(b"\0").decode(errors="replace")

    def _texts(self, text: str) -> list[str]:
        self._write(text)
        self.words[self._said + self.rank] = self.number
        until = time.monotonic() + _TEXT_S
        while time.monotonic() < until and any(
                self.words[self._said + rank] != self.number for rank in range(self.size)):
            time.sleep(_LOOK_EVERY_S)
        return [self._read(rank) if self.words[self._said + rank] == self.number else "another collective"
                for rank in range(self.size)]


class Wire(Comparing):
    """The same over the network: an all-gather of the words. A rank that waits for long, ends or gives up says so in a
    message, which needs nobody that waits for it. The communicator is the wire's own, and is never revoked."""

    _NOTE = 1  # the tag of messages
    _kept: list[Any] = []  # buffers of all-gathers that came to no end: MPI may still write there

    def __init__(self, mpi: Any, communicator: Any, *more: Any) -> None:
        super().__init__(communicator.Get_rank(), communicator.Get_size(), *more)
        self._mpi, self.communicator = mpi, communicator
        self._request: Any = None
        self._ended: dict[int, int] = {}  # how many collectives ranks came to whose script has ended
        self._waits: dict[int, int] = {}  # the highest collective that each rank said it waits in
        self._given_up = ""

    def come(self, what: What, place: str) -> None:
        if self.verdict:
            raise self.error()
        self.number += 1
        mine = np.asarray([code_of(what)], np.int64)
        words = np.empty(self.size, np.int64)
        self._request = self.communicator.Iallgather(mine, words)
        try:
            for _ in range(_LOOKS):
                if self._request.Test():
                    break
            else:
                self._wait(what, place)
        except BaseException:
            Wire._kept.append((self._request, mine, words))
            raise
        finally:
            waiting.silent.pop(self.members, None)
        if (words != mine[0]).any():
            self._refuse(what, place)

    def _all_came(self) -> bool:
        return bool(self._request.Test())

    def _late(self) -> list[int]:
        self._hear()
        return [rank for rank in range(self.size) if rank != self.rank
                and max(self._waits.get(rank, 0), self._ended.get(rank, 0)) < self.number]

    def has_ended(self, rank: int) -> bool:
        self._hear()
        return rank in self._ended

    def heard(self, patience_s: float = 0.0) -> str:
        until = time.monotonic() + patience_s
        self._hear()
        while not self._given_up and time.monotonic() < until:
            time.sleep(_LOOK_EVERY_S)
            self._hear()
        return self._given_up

    def end(self) -> None:
        if not self.verdict:
            self._send(_ENDED, "")

    def _say_waiting(self) -> None:
        self._send(_LIVES, "")

    def _publish(self, text: str) -> None:
        self._send(_GAVE_UP, text)

    def _send(self, kind: int, text: str) -> None:
        note = np.zeros(16 + TEXT_BYTES, np.uint8)
        note[:16] = np.asarray([kind, self.number], np.int64).view(np.uint8)
        raw = text.encode()[:TEXT_BYTES]
        note[16:16 + len(raw)] = np.frombuffer(raw, np.uint8)
        for rank in range(self.size):
            if rank != self.rank:
                try:
                    Wire._kept.append((self.communicator.Isend(note, rank, self._NOTE), note))
                except self._mpi.Exception:
                    pass  # it is dead

    def _hear(self) -> None:
        status = self._mpi.Status()
        for rank in range(self.size):
            try:
                while rank != self.rank and self.communicator.Iprobe(rank, self._NOTE, status):
                    note = np.empty(16 + TEXT_BYTES, np.uint8)
                    self.communicator.Recv(note, rank, self._NOTE)
                    kind, number = note[:16].view(np.int64).tolist()
                    if kind == _ENDED:
                        self._ended[rank] = number
                    elif kind == _GAVE_UP:
                        self._given_up = bytes(note[16:]).rstrip(b"\0").decode(errors="replace")
                    else:
                        self._waits[rank] = max(number, self._waits.get(rank, 0))
            except self._mpi.Exception:
                pass  # it is dead: `look` says so

    def _texts(self, text: str) -> list[str]:
        raw = text.encode()[:TEXT_BYTES]
        mine, texts = np.zeros(TEXT_BYTES, np.uint8), np.empty((self.size, TEXT_BYTES), np.uint8)
        mine[:len(raw)] = np.frombuffer(raw, np.uint8)
        if not self._finish(self.communicator.Iallgather, mine, texts):
            return [text if rank == self.rank else "another collective" for rank in range(self.size)]
        self._finish(self.communicator.Ibarrier)  # no rank may fail, and be a lost one, before all have the texts
        return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in texts]

    def _finish(self, start: Callable[..., Any], *arrays: Any) -> bool:
        """Whether a collective of the wire's own came to its end: not where a rank died meanwhile, or does not come."""
        until = time.monotonic() + _TEXT_S
        try:
            self._request = start(*arrays)
            Wire._kept.append((self._request, *arrays))
            while not self._request.Test():
                if time.monotonic() > until:
                    return False
                time.sleep(_LOOK_EVERY_S)
        except self._mpi.Exception:
            return False
        return True
