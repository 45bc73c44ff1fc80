"""Counts of a worker between two reports.

>>> found = Statistics()
>>> found.add(3, 1, 0.006, first=False)
>>> found.tokens, found.calls, found.compute_s
(3, 1, 0.006)
"""

from __future__ import annotations


class Statistics:
    """Seconds a stage computes, compiles and handles messages, since the last report. What compiles says nothing of how
    long the same takes again, so it is counted apart."""

    def __init__(self) -> None:
        self.tokens = self.calls = self.prompt_tokens = self.handled = 0
        self.compute_s = self.prompt_s = self.compile_s = self.handling_s = 0.0

    def add(self, texts: int, tokens: int, seconds: float, first: bool, compiled: bool = False) -> None:
        """One run of the stage, with so many texts in it and so many tokens of each."""
        if compiled:
            self.compile_s += seconds
        elif tokens == 1 and not first:
            self.tokens, self.calls, self.compute_s = self.tokens + texts, self.calls + 1, self.compute_s + seconds
        else:
            self.prompt_tokens, self.prompt_s = self.prompt_tokens + tokens, self.prompt_s + seconds

    @property
    def spent_s(self) -> float:
        """Seconds in the stage itself, whatever it did."""
        return self.compute_s + self.prompt_s + self.compile_s

    def handle(self, before: tuple[int, int, float, float], seconds: float) -> None:
        """A round of the worker of which the stage was a part: the rest is receiving, choosing and sending. Rounds with
        prompts are left out: a prompt's messages are larger."""
        tokens, prompt_tokens, compile_s, spent_s = before
        if self.tokens > tokens and self.prompt_tokens == prompt_tokens and self.compile_s == compile_s:
            self.handled += self.tokens - tokens
            self.handling_s += seconds - (self.spent_s - spent_s)

    def mark(self) -> tuple[int, int, float, float]:
        """Where a round begins."""
        return self.tokens, self.prompt_tokens, self.compile_s, self.spent_s
