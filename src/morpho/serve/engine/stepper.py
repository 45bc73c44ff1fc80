"""One step after another: what the scheduler planned goes through the model, and every text takes its next token."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

import numpy as np

from morpho.serve.engine.request import Finish
from morpho.serve.engine.runner import ModelRunner, Row
from morpho.serve.engine.scheduler import Plan, Scheduler
from morpho.serve.engine.sequence import Sequence
from morpho.serve.engine.slots import SlotRunner

SHORT = 256  # positions of a piece whose tokens are rows of their own: each looks at its keys by itself
TOGETHER = 3  # rows and pieces that are worth one call
JOINED = 4  # rows being decoded that are worth joining: fewer are multiplied without unpacking weights
Piece = tuple[Sequence, int]  # of a prompt: so many tokens


class Stepper:
    """Runs plans, and counts."""

    def __init__(self, runner: ModelRunner | SlotRunner, scheduler: Scheduler) -> None:
        self.runner, self.scheduler = runner, scheduler
        self.siblings: dict[int, list[Sequence]] = {}  # by request: its texts that begin when the prompt is read
        self.steps = self.batch_size = self.prompt_tokens = self.generated = self.accepted = self.calls_together = 0
        self.ended: Counter[Finish] = Counter()
        self.request_s = 0.0  # running average of how long requests take

    def step(self) -> None:
        """One plan. Pieces of prompts come first: their texts are in the next step's rows."""
        plan = self.scheduler.plan()
        for source, target in plan.copies:
            self.runner.copy_page(source, target)
        if not plan:
            return
        self.steps += 1
        self.batch_size = len(plan.decode)
        for sequence, count in self._together(plan):
            self._prefill(sequence, count)
        self._decode(plan.decode)

    def _together(self, plan: Plan) -> list[Piece]:
        """Read short pieces of prompts in one call, with the rows that are decoded where those are several: weights are
        unpacked once for all. What is left of the pieces is given back."""
        short = [(sequence, count) for sequence, count in plan.prefill
                 if sequence.adapter is None and not sequence.scoring and sequence.computed + count <= SHORT]
        plain = not any(each.draft or each.adapter is not None for each in plan.decode)
        joined = plan.decode if plain and len(plan.decode) >= JOINED else []
        room = self.runner.chunk - len(joined)
        while short and (len(joined) + len(short) > self.runner.max_batch or sum(count for _, count in short) > room):
            short.pop()
        if not short or len(short) + len(joined) < TOGETHER:
            return plan.prefill
        begun = time.perf_counter()
        pieces = [*((each, 1) for each in joined), *short]
        found = self.runner.prompts([self._row(sequence, count) for sequence, count in pieces])
        self.calls_together += 1
        self.scheduler.took("prefill", begun, sum(count for _, count in short), bool(joined))
        for (sequence, count), logits in zip(pieces[len(joined):], found[len(joined):], strict=True):
            self._was_read(sequence, count, logits)
        for sequence, logits in zip(joined, found, strict=False):
            sequence.computed += 1
            self._advance(sequence, [logits])
        plan.decode = [] if joined else plan.decode
        return [piece for piece in plan.prefill if piece not in short]

    def _row(self, sequence: Sequence, count: int) -> Row:
        start = sequence.computed
        return Row(sequence.tokens[start:start + count], start, sequence.holding.pages, sequence.adapter,
                   sequence.prompt_length, sequence.most)

    def _prefill(self, sequence: Sequence, count: int) -> None:
        begun = time.perf_counter()
        if sequence.scoring:
            rows = self.runner.score(self._row(sequence, count))
            sequence.score(sequence.computed, rows)
            logits = rows[-1]
        else:
            logits = self.runner.prefill(self._row(sequence, count))
        self.scheduler.took("prefill", begun, count)
        self._was_read(sequence, count, logits)

    def _was_read(self, sequence: Sequence, count: int, logits: np.ndarray) -> None:
        """A piece of a prompt; the text begins where it was the last one."""
        sequence.computed += count
        self.prompt_tokens += count
        self.scheduler.pages.commit(sequence.holding, sequence.tokens, sequence.computed)
        if not sequence.waiting_tokens:
            self._advance(sequence, [logits])

    def _decode(self, decoded: list[Sequence]) -> None:
        for rows in (  # with adapters other functions run; neither sees the other's rows
                [each for each in decoded if each.adapter is None],
                [each for each in decoded if each.adapter is not None]):
            if not rows:
                continue
            begun = time.perf_counter()
            most = max(len(each.draft) for each in rows)
            if max(each.computed for each in rows) + most >= self.runner.max_length:  # positions of filled up rows
                for each in rows:
                    each.draft = []
            found = self.runner.decode([Row([each.tokens[-1], *each.draft], each.computed, each.holding.pages,
                                            each.adapter, each.prompt_length, each.most) for each in rows])
            seconds, before = time.perf_counter() - begun, self.generated
            self.scheduler.took("decode", begun)
            for sequence, logits in zip(rows, found, strict=True):
                sequence.computed += 1
                self._advance(sequence, logits[:1 + len(sequence.draft)])
            if rows is not decoded and len(rows) != len(decoded):
                continue  # some have adapters: two calls
            if most == 0:
                self.scheduler.payoff.plain(len(rows), seconds)
            elif self.scheduler.source is not None:
                self.scheduler.payoff.guessed(len(rows), self.scheduler.source, seconds + self.scheduler.draft_s,
                                              self.generated - before)

    def _advance(self, sequence: Sequence, logits: Iterable[np.ndarray]) -> None:
        """Take a token from each row of logits while the guesses are right."""
        draft, sequence.draft = sequence.draft, []
        if not sequence.forked:
            sequence.tell_scores()
            self._fork(sequence, logits)
        for number, row in enumerate(logits):
            if number:
                sequence.computed += 1  # the guess was right: its keys and values stand
                self.accepted += 1
            token = sequence.advance(row)
            self.generated += token is not None
            if sequence.finished is not None:
                self._finish(sequence)
                return
            if number >= len(draft) or token != draft[number]:
                break
        self.scheduler.pages.commit(sequence.holding, sequence.tokens, sequence.computed)

    def _fork(self, first: Sequence, logits: Iterable[np.ndarray]) -> None:
        """The other texts of a request begin with the prompt's pages, and the same logits."""
        first.forked = True
        row = next(iter(logits))
        self.scheduler.pages.commit(first.holding, first.tokens, first.computed)  # a step of decoding may fill a page
        others = self.siblings.get(id(first.group), [])
        while others:  # each belongs to somebody at every moment: after a fault its reader must be told
            sequence = others[0]
            full = len(self.scheduler.running) >= self.scheduler.max_batch
            forked = None if full else self.scheduler.pages.fork(first.holding, first.computed)
            if forked is None:  # later, from the prefixes that are kept
                self.scheduler.waiting.append(others.pop(0))
                continue
            sequence.holding, copy = forked
            if copy is not None:
                self.runner.copy_page(*copy)
            sequence.computed = first.computed
            self.scheduler.running.append(others.pop(0))
            self._advance(sequence, [row])
        self.siblings.pop(id(first.group), None)

    # -- ends -------------------------------------------------------------------------------------------------------
    def _finish(self, sequence: Sequence) -> None:
        assert sequence.finished is not None
        self.scheduler.remove(sequence)
        self.ended[sequence.finished] += 1
        if not sequence.group.left:
            seconds = time.monotonic() - sequence.group.begun
            self.request_s = seconds if not self.request_s else 0.9 * self.request_s + 0.1 * seconds

    def _all(self) -> list[Sequence]:
        hidden = [each for some in list(self.siblings.values()) for each in some]  # others submit meanwhile
        return [*self.scheduler.running, *self.scheduler.waiting, *hidden]

    def end(self, sequence: Sequence, finish: Finish, error: str | None = None) -> None:
        if sequence.finished is None:
            sequence.end(finish, error)
            self._finish(sequence)
        self.siblings.pop(id(sequence.group), None)

    def sweep(self, now: float) -> None:
        """End what was cancelled, and what took too long."""
        for sequence in self._all():
            group = sequence.group
            if group.stream.cancelled:
                self.end(sequence, "cancelled")
            elif group.deadline is not None and now > group.deadline:
                self.end(sequence, "error", f"the request was not answered in {group.request.deadline_s} s")

    def end_all(self, finish: Finish, error: str | None = None) -> None:
        for sequence in self._all():
            self.end(sequence, finish, error if finish == "error" else None)

    def fail_all(self, error: str) -> None:
        """A step failed: its texts end with the error, and so do those that would have begun with them; what it left in
        pages is forgotten. Those that wait have their turn."""
        for sequence in self.scheduler.forget():
            for each in (sequence, *self.siblings.get(id(sequence.group), ())):
                self.end(each, "error", error)
