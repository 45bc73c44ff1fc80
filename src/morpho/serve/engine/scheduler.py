"""Which tokens the next step computes: pieces of prompts, and one token, or some guessed ones, of every running text.

Prompts are read in pieces that take about as long as `stall` steps of decoding, so that a long one does not hold up the
texts that run. Texts are admitted in the order they came, while there are rows and pages. Where a running text needs a
page and there is none, the one that came last gives its pages away and waits; it is computed again from its tokens,
with the same bits. None of this changes what a text says.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import cast

from morpho.serve.engine.drafts import DraftModel, Payoff, Source
from morpho.serve.engine.pages import Holding, Match, Pages
from morpho.serve.engine.runner import SCORED
from morpho.serve.engine.sequence import Sequence

LEAST_PIECE = 16  # tokens of a prompt that go through at once, however long they take
MEMORY = 0.9  # of a running average of times


@dataclass
class Plan:
    """One step: pages to be copied first, pieces of prompts by their number of tokens, then rows to be decoded."""

    copies: list[tuple[int, int]] = field(default_factory=list)
    prefill: list[tuple[Sequence, int]] = field(default_factory=list)
    decode: list[Sequence] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.prefill or self.decode)


class Scheduler:
    """Holds the sequences that wait and run, and the pages."""

    def __init__(self, pages: Pages, max_batch: int, chunk: int, prefill_tokens: int | None, stall: float,
                 drafted: int, draft_rows: int, draft: DraftModel | None = None) -> None:
        self.pages, self.max_batch, self.chunk = pages, max_batch, chunk
        self.prefill_tokens, self.stall = prefill_tokens, stall
        self.drafted, self.draft_rows, self.draft = drafted, draft_rows, draft
        self.payoff = Payoff()
        self.draft_s, self.source = 0.0, cast("Source | None", None)  # time of the last guesses, and whose they are
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.prefix_hits = self.preemptions = self.guessed = 0
        self.decode_s = self.token_s = 0.0  # running averages: a step of decoding, a token of a prompt

    def plan(self) -> Plan:
        """The next step; its pages are there."""
        plan = Plan()
        self._admit(plan)
        for sequence in [each for each in self.running if each.waiting_tokens == 1]:
            if sequence in self.running and self._room(sequence, len(sequence.tokens)):
                plan.decode.append(sequence)
        plan.decode = [each for each in plan.decode if each in self.running]  # some may have given their pages away
        self._draft(plan.decode)
        self._pieces(plan, self._piece(bool(plan.decode)))
        running = {id(each) for each in self.running}
        plan.decode = [each for each in plan.decode if id(each) in running]
        plan.prefill = [(each, count) for each, count in plan.prefill if id(each) in running]
        return plan

    def _pieces(self, plan: Plan, budget: int) -> None:
        """Divide so many tokens among the prompts that are read: half for the first that came, then short ones before
        long ones, so that a long prompt holds up neither the texts that run nor the prompts behind it."""
        reading = self._reading(plan)
        if not reading:
            return
        first, others = reading[0], sorted(reading[1:], key=lambda each: each.waiting_tokens)
        shares = {id(first): min(first.waiting_tokens, max(budget // 2, 1) if others else budget)}
        left = budget - shares[id(first)]
        for sequence in others:
            shares[id(sequence)] = min(sequence.waiting_tokens, left)
            left -= shares[id(sequence)]
        shares[id(first)] += min(left, first.waiting_tokens - shares[id(first)])
        for sequence in reading:
            count = min(shares[id(sequence)], SCORED if sequence.scoring else self.chunk)
            if count and sequence in self.running and self._room(sequence, sequence.computed + count):
                plan.prefill.append((sequence, count))

    def _reading(self, plan: Plan) -> list[Sequence]:
        """The prompts that are read now. One whose next page is another's next page too waits, and finds it then."""
        found, begun = [], set()
        for sequence in [each for each in self.running if each.waiting_tokens > 1]:
            if sequence.computed == sequence.found:  # nothing of it is computed yet: others may have been faster
                self._find_more(sequence, plan)
            size, at, nodes = self.pages.page_tokens, sequence.computed, sequence.holding.nodes
            if at == len(nodes) * size and sequence.waiting_tokens > size and not sequence.scoring:
                key = (sequence.holding.space, id(nodes[-1]) if nodes else None, tuple(sequence.tokens[at:at + size]))
                if key in begun:
                    continue
                begun.add(key)
            found.append(sequence)
        return found

    def _find_more(self, sequence: Sequence, plan: Plan) -> None:
        """Pages that have come into the tree since the sequence was admitted."""
        found = self._match(sequence)
        if len(found.nodes) > len(sequence.holding.nodes):
            self.pages.release(sequence.holding, sequence.tokens, sequence.computed)
            self.prefix_hits -= sequence.computed
            self._take(sequence, plan)

    def _take(self, sequence: Sequence, plan: Plan) -> None:
        """Begin with what the tree has of a sequence."""
        found = self._match(sequence)
        sequence.computed, copy = self.pages.take(found, sequence.holding)
        sequence.found = sequence.computed
        if copy is not None:
            plan.copies.append(copy)
        self.prefix_hits += sequence.computed
        if not sequence.made:
            sequence.group.cached = max(sequence.group.cached, sequence.computed)

    def _match(self, sequence: Sequence) -> Match:
        if sequence.scoring:
            return Match((), None, 0)
        return self.pages.match(sequence.tokens[:-1], sequence.holding.space)

    # -- admitting --------------------------------------------------------------------------------------------------
    def _admit(self, plan: Plan) -> None:
        while self.waiting and len(self.running) < self.max_batch:
            sequence = self.waiting[0]
            found = self._match(sequence)
            needed = self.pages.pages_of(len(sequence.tokens)) - len(found.nodes)
            left = self.pages.available - sum(not node.locks for node in found.nodes) - needed
            if self.running and left < len(self.running) * self.pages.spare:  # those that run will want a page each
                return
            self.running.append(self.waiting.popleft())
            self._take(sequence, plan)

    # -- pages ------------------------------------------------------------------------------------------------------
    def _room(self, sequence: Sequence, tokens: int) -> bool:
        """Room for so many tokens of a sequence; the last ones that came give theirs away, perhaps itself."""
        while not self.pages.extend(sequence.holding, tokens):
            last = self.running[-1]
            self.preempt(last)
            if last is sequence:
                return False
        return True

    def preempt(self, sequence: Sequence) -> None:
        """Take the pages of a running sequence; it waits, before all others."""
        self.running.remove(sequence)
        self.pages.release(sequence.holding, sequence.tokens, sequence.computed)
        sequence.computed, sequence.found, sequence.draft = 0, 0, []
        self.waiting.appendleft(sequence)
        self.preemptions += 1

    def remove(self, sequence: Sequence) -> None:
        """A sequence that has ended."""
        if sequence in self.running:
            self.running.remove(sequence)
            self.pages.release(sequence.holding, sequence.tokens, sequence.computed)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def forget(self) -> list[Sequence]:
        """After a fault: what ran, and holds nothing any more; every page is free."""
        found, self.running = self.running, []
        for sequence in found:
            sequence.holding = Holding(space=sequence.holding.space)
        self.pages.reset()
        return found

    # -- how much ---------------------------------------------------------------------------------------------------
    def _piece(self, decoding: bool) -> int:
        """Tokens of prompts in the next step."""
        if not decoding:
            return self.chunk
        if self.prefill_tokens is not None:
            return self.prefill_tokens
        if not self.token_s or not self.decode_s:
            return LEAST_PIECE
        return max(LEAST_PIECE, min(self.chunk, int(self.stall * self.decode_s / self.token_s)))

    def _draft(self, rows: list[Sequence]) -> None:
        """Guesses, where few texts run: what is computed for one that is wrong is time of the others."""
        self.source = None
        if not self.drafted or len(rows) > self.draft_rows:
            for sequence in rows:
                sequence.draft = []
            return
        begun = time.perf_counter()
        pays: dict[Source, bool] = {source: self.payoff.pays(len(rows), source) for source in ("lookup", "draft")}
        for sequence in rows:
            guess = self._guess(sequence, pays)
            if guess and not self.pages.extend(sequence.holding, len(sequence.tokens) + len(guess)):
                guess = []
            sequence.draft = guess
            self.guessed += len(guess)
        self.draft_s = time.perf_counter() - begun

    def _guess(self, sequence: Sequence, pays: dict[Source, bool]) -> list[int]:
        """The tokens that followed where the text's last ones stood before, else the draft model's likeliest."""
        most = min(self.drafted, sequence.most - sequence.made - 1)
        if most <= 0 or sequence.matcher is not None:
            return []
        guess = sequence.lookup.guess(sequence.tokens, most) if pays["lookup"] else []
        if guess:
            self.source = self.source or "lookup"
        elif self.draft is not None and pays["draft"] and sequence.adapter is None:
            guess = self.draft.guess(id(sequence), sequence.tokens, most)
            self.source = "draft" if guess else self.source
        return guess

    def took(self, kind: str, begun: float, tokens: int = 1, joined: bool = False) -> None:
        """How long something took, for what comes next; prompts that were `joined` by the rows that run took what such
        a step takes longer than others."""
        seconds = (time.perf_counter() - begun - (self.decode_s if joined else 0.0)) / tokens
        if seconds <= 0:
            return
        name = "decode_s" if kind == "decode" else "token_s"
        old = getattr(self, name)
        setattr(self, name, seconds if not old else MEMORY * old + (1 - MEMORY) * seconds)
