"""Time of a pipeline that generates text: a closed loop of stages, lines and the way back.

The closed form (`evaluate`) prices one pass; text needs one pass after another: the token that the last stage chose
goes back to the first, and every message is received, checked, noticed and sent by somebody. `Overheads` are those
seconds, measured on the machines before (`cluster.calibrated`), never in the run that is predicted.

    loop_s  = sum over stages of compute_s + stage_s, and over lines, the way back among them, of their time + hop_s
    token_s = max(loop_s, texts * the longest stage)       what one text waits for its next token

Where a stage computes tokens of several texts in one call (`Overheads.row` < 1), texts that wait for the slowest stage
go through it together: rows grow until it keeps up, or until every stage has its share of the texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from morpho.base.errors import ArgumentError, fail
from morpho.plan.predict.plan import Plan, Stage

CHUNK = 128  # tokens of a prompt that go through a stage at once
MOST_ROUNDS = 40  # each halves what is left
TOKEN_BYTES = 72  # of the message that brings a token back: a header and a number


@dataclass(frozen=True, slots=True)
class Overheads:
    """Seconds that running a pipeline adds to its layers and lines.

    `stage_s`: of a node, for each token, beside its layers: calling the stage, receiving, checking, choosing, sending.
    `hop_s`: from a message being there until who it is for has noticed. `text_s`: of a text, once: from being asked for
    until its first stage begins. `prompt`: how much longer the products of a prompt take than the roofline says.
    `cooling`: how much longer a stage takes for each second that it waited before: others have its core's caches by
    then; `coldest_s`: the longest wait that was looked at, beyond which nothing is added. `row`: what a further text in
    the same call takes, over what the first one does; 1 where texts take turns.

    >>> Overheads({"a": 1e-4}).of("a"), Overheads().of("b")
    (0.0001, 0.0)
    """

    stage_s: Mapping[str, float] = field(default_factory=dict)
    hop_s: float = 0.0
    text_s: float = 0.0
    prompt: float = 1.0
    cooling: float = 0.0
    coldest_s: float = 0.0
    row: float = 1.0

    def of(self, node: str) -> float:
        """Overheads of a node's stage."""
        return self.stage_s.get(node, 0.0)

    def colder(self, idle_s: float) -> float:
        """How many times as long layers take after such a wait.

        >>> Overheads(cooling=50.0, coldest_s=0.01).colder(0.004), Overheads(cooling=50.0, coldest_s=0.01).colder(1.0)
        (1.2, 1.5)
        """
        return 1.0 + self.cooling * min(max(idle_s, 0.0), self.coldest_s)


@dataclass(frozen=True, slots=True)
class Generation:
    """Times of texts that begin together: `first_token_s` of the first of them, `token_s` between two tokens of
    one text, `tokens_per_s` of all from beginning to end.

    >>> Generation(0.1, 0.02, 50.0).token_s
    0.02
    """

    first_token_s: float
    token_s: float
    tokens_per_s: float


def generation(plan: Plan, texts: int = 1, prompt_tokens: int = 0, new_tokens: int = 0,
               overheads: Overheads | None = None) -> Generation:
    """Predict texts that are on their way at once; without numbers of tokens, of prompts as long as the plan's context
    and texts without end.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": 1e11}) for name in ("a", "b")]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-3))
    >>> one, many = generation(p, 1), generation(p, 8)
    >>> one.token_s > p.predicted.latency_s, many.tokens_per_s > one.tokens_per_s
    (True, True)
    """
    if texts < 1:
        raise fail(ArgumentError, "plan", f"texts={texts} are no texts", "give 1 or more")
    costs = overheads or Overheads()
    card, stages, copies = plan.card, plan.stages, len(plan.stages[0].replicas)
    lines, carried = line_seconds(plan, costs)
    busy, token_s = _settled(stages, lines, carried, texts / copies, costs)
    prompt = prompt_tokens or card.context
    pieces = math.ceil(prompt / CHUNK)
    part = min(1.0, prompt / pieces / card.context)  # a piece's, of the card's prompt
    piece = [each + costs.prompt * stage.prefill_compute_s * part for each, stage in zip(busy, stages)]
    first = costs.text_s + math.fsum([*piece, *lines]) + (pieces - 1) * max(piece)
    if not new_tokens:
        return Generation(first, token_s, texts * card.tokens_per_pass / token_s)
    whole = first + (texts - 1) * pieces * max(piece) + (new_tokens - 1) * token_s
    return Generation(first, token_s, texts * card.tokens_per_pass * new_tokens / whole)


def _settled(stages: Sequence[Stage], lines: Sequence[float], carried: Sequence[float], texts: float, costs: Overheads
             ) -> tuple[list[float], float]:
    """Time of the stages for a text, and the wait for its next token, where each call is as slow as the wait
    before it makes it."""
    busy = [stage.compute_s + costs.of(stage.node) for stage in stages]
    rows, token_s = together(busy, lines, carried, texts, costs.row)
    for _ in range(MOST_ROUNDS if costs.cooling else 0):
        idle = [token_s * rows / texts - each * (1 + (rows - 1) * costs.row) for each in busy]
        colder = [stage.compute_s * costs.colder(wait) + costs.of(stage.node) for stage, wait in zip(stages, idle)]
        busy = [(one + other) / 2 for one, other in zip(busy, colder)]
        rows, token_s = together(busy, lines, carried, texts, costs.row)
    return busy, token_s


def together(busy: Sequence[float], lines: Sequence[float], carried: Sequence[float], texts: float, row: float
             ) -> tuple[float, float]:
    """How many texts go through a stage in one call, on average, and what a text waits for its next token.

    >>> together([2.0, 1.0], [0.5, 0.5], [0.0, 0.0], 1, 0.5), together([2.0, 1.0], [0.5, 0.5], [0.0, 0.0], 8, 0.5)
    ((1.0, 4.0), (4.0, 10.0))
    """
    def loop_s(rows: float) -> float:
        return math.fsum(busy) * (1 + (rows - 1) * row) + math.fsum(lines) + (rows - 1) * math.fsum(carried)

    def bound_s(rows: float) -> float:
        return texts / rows * max(max(busy) * (1 + (rows - 1) * row), rows * max([*carried, 0.0]))

    low, high = 1.0, max(1.0, texts / len(busy))
    if bound_s(high) > loop_s(high):
        return high, bound_s(high)
    if bound_s(low) <= loop_s(low):
        return low, loop_s(low)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if bound_s(middle) > loop_s(middle) else (low, middle)
    return high, loop_s(high)


def line_seconds(plan: Plan, costs: Overheads) -> tuple[list[float], list[float]]:
    """Seconds of a message on each line, and those of them in which the line can carry no other one."""
    if len(plan.stages) == 1:
        return [], []
    found, carried = [], []
    for stage, following in zip(plan.stages, (*plan.stages[1:], plan.stages[0])):
        link = plan.cluster.link(stage.node, following.node)
        last = following is plan.stages[0]
        size = TOKEN_BYTES if last else plan.card.cut_bytes(stage.end, stage.activation_dtype
                                                            or plan.card.activation_dtype)
        found.append(link.seconds(size) + costs.hop_s)
        carried.append(link.seconds(size) - link.latency_s)
    return found, carried
