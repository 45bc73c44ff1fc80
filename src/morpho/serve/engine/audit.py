"""An audit: replay an answer with the weights, and confirm or refute its commitment exactly."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.models.text.sampling import forbidden
from morpho.serve.engine.commitment import (
    BLOCK,
    FORMAT,
    LINK,
    RECORD,
    canonical,
    digest_of,
    drawn_log_probability,
    draws_of,
    link_of,
    record_of,
    sealed,
)
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Grammar, Request, SamplingParams
from morpho.serve.engine.sampler import Sampler
from morpho.serve.engine.text import TextStream

MOST_BYTES = 1 << 28  # of a file
_HEADER = ("format", "weights", "dtype", "autocast", "device", "adapter", "prompt", "sampling", "index", "most",
           "stops")
_NAMES = {*_HEADER, "tokens", "finish", "records", "seal", "text"}
_HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Verdict:
    """Result of an audit: `reasons` say what differs, at most a few, and are empty where the answer is confirmed.
    `first` is the first position of the answer that differs, `differing` how many of the `checked` ones do.

    >>> from morpho.serve.engine.audit import Verdict
    >>> Verdict(32, 64, 0, None, ()).confirmed
    True
    """

    checked: int
    total: int
    differing: int
    first: int | None
    reasons: tuple[str, ...]

    @property
    def confirmed(self) -> bool:
        return not self.reasons


def read_commitments(file: str | Path) -> list[dict[str, Any]]:
    """The commitments of a file: one, or those of an answer of `/v1/completions` or `/v1/chat/completions`, with the
    text that each belongs to."""
    try:
        with open(file, "rb") as opened:
            raw = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise fail(ArgumentError, "audit", f"{file} cannot be read: {error.strerror or error}") from None
    if len(raw) > MOST_BYTES:
        raise fail(ArgumentError, "audit", f"{file} has more than {MOST_BYTES} bytes", "no commitment is that long")
    try:
        whole = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise fail(ArgumentError, "audit", f"{file} is not JSON: {error}",
                   "give what morpho run --commit wrote, or an answer of the server") from None
    documents = []
    for choice in _choices(whole):
        document = choice.get("commitment")
        if not isinstance(document, dict):
            continue
        message = choice.get("message")
        text = choice.get("text") if message is None else message.get("content") if isinstance(message, dict) else None
        plain = not isinstance(message, dict) or not {"tool_calls", "reasoning_content"} & message.keys()
        documents.append({**document, **({"text": text} if isinstance(text, str) and plain else {})})
    if isinstance(whole, dict) and "records" in whole:
        documents = [whole]
    if not documents:
        raise fail(ArgumentError, "audit", f"{file} holds no commitment",
                   'ask the server with "commitment": true, or use morpho run --commit')
    return [check_document(each) for each in documents]


def _choices(whole: Any) -> list[dict[str, Any]]:
    choices = whole.get("choices") if isinstance(whole, dict) else None
    return [each for each in choices if isinstance(each, dict)] if isinstance(choices, list) else []


def check_document(document: Any) -> dict[str, Any]:
    """Refuse a commitment that is damaged or of another format, and name what is wrong."""
    def wrong(reason: str, hint: str = "the file was damaged or changed: ask for the answer again") -> MorphoError:
        return fail(ArgumentError, "audit", reason, hint)

    if not isinstance(document, dict):
        raise wrong("a commitment is not an object")
    if document.get("format") != FORMAT:
        raise wrong(f"the format is {str(document.get('format'))[:40]!r}, and {FORMAT!r} is read")
    missing = [name for name in sorted(_NAMES - {"text"}) if name not in document]
    if missing or document.keys() - _NAMES:
        name = missing[0] if missing else min(document.keys() - _NAMES, key=str)
        raise wrong(f"{str(name)[:40]!r} {'is missing' if missing else 'is no field of a commitment'}")
    for name in ("prompt", "tokens", "stops"):
        if not isinstance(document[name], list) or not all(type(t) is int and 0 <= t < 1 << 32 for t in document[name]):
            raise wrong(f"{name!r} is not a list of token numbers")
    for name, least in (("index", 0), ("most", 0)):
        if type(document[name]) is not int or document[name] < least:
            raise wrong(f"{name!r} is {str(document[name])[:40]}, which is no whole number of at least {least}")
    for name, kinds in (("weights", str), ("dtype", str), ("device", str), ("seal", str), ("sampling", dict),
                        ("autocast", str | None), ("adapter", str | None), ("records", str), ("text", str)):
        if name in document and not isinstance(document[name], kinds):
            raise wrong(f"{name!r} is {str(document[name])[:40]!r}, which is of the wrong kind")
    if document["finish"] not in ("stop", "length"):
        raise wrong(f"'finish' is {str(document['finish'])[:40]!r}, and a text ends by 'stop' or 'length'")
    if not document["prompt"] or not document["tokens"] or len(document["tokens"]) > document["most"]:
        raise wrong(f"there are {len(document['prompt'])} tokens of a prompt and {len(document['tokens'])} of an "
                    f"answer of at most {document['most']}")
    try:
        raw = base64.b64decode(document["records"], validate=True)
        seal = sealed(document)["seal"]
    except (ValueError, binascii.Error) as error:
        raise wrong(f"'records' or a number cannot be read: {error}") from None
    count = len(document["tokens"])
    if len(raw) != count * RECORD + -(-count // BLOCK) * LINK:
        raise wrong(f"'records' has {len(raw)} bytes, and {count} tokens have "
                    f"{count * RECORD + -(-count // BLOCK) * LINK}")
    if seal != document["seal"]:
        raise wrong("the seal does not fit the rest")
    return document


def params_from(document: Mapping[str, Any]) -> SamplingParams:
    """The sampling that a commitment claims; what this version does not know is refused by name."""
    said = dict(document["sampling"])
    try:
        if (grammar := said.pop("grammar", None)) is not None:
            said["grammar"] = Grammar(grammar["kind"], grammar["source"])
        for name in ("stop", "stop_token_ids", "allowed_token_ids"):
            if name in said:
                said[name] = tuple(said[name])
        if "logit_bias" in said:
            said["logit_bias"] = {int(token): float(bias) for token, bias in said["logit_bias"].items()}
        return SamplingParams(**said)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise fail(ArgumentError, "audit", f"the sampling of the commitment cannot be read: {error}",
                   "it was written by another version") from None


class Replay:
    """The tokens of a commitment, checked one after another against rows of logits."""

    def __init__(self, document: Mapping[str, Any], engine: Engine, blocks: Sequence[int]) -> None:
        self.document, self.engine, self.blocks = document, engine, {*blocks}
        self.params, self.index = params_from(document), document["index"]
        self.tokens: list[int] = document["tokens"]
        self.raw = base64.b64decode(document["records"])
        self.stops = frozenset({*self.params.stop_token_ids, *(() if self.params.ignore_eos else engine.ends)})
        if self.params.temperature > 0 and self.params.seed is None:
            raise fail(ArgumentError, "audit", "the commitment names no seed", "it was not written by morpho")
        self.sampler = Sampler(self.params, tuple(document["prompt"]), self.index, self.stops)
        self.matcher = None if self.params.grammar is None else engine.grammars.matcher(self.params.grammar)
        self._draws = draws_of(self.params, self.index)
        header = {name: document[name] for name in _HEADER}
        self._first = hashlib.sha256(canonical(header)).digest()
        self._digests: list[bytes] = []
        self.reasons: list[str] = []
        self.differing = self.checked = 0
        self.first: int | None = None
        self.position = 0

    def _record(self, position: int) -> bytes:
        begin = position * RECORD + position // BLOCK * LINK
        return self.raw[begin:begin + RECORD]

    def _link(self, block: int) -> bytes:
        """The link of a block as the commitment has it; that before the first follows from the header."""
        if block < 0:
            return self._first
        end = min((block + 1) * BLOCK, len(self.tokens)) * RECORD + (block + 1) * LINK
        return self.raw[end - LINK:end]

    def wants(self, position: int) -> bool:
        return position // BLOCK in self.blocks

    def row(self, position: int, row: np.ndarray) -> None:
        """The logits of the token at a position; positions come in order."""
        while self.position < position:
            self._skip()
        if self.wants(position):
            self._check(row)
        else:
            self._skip()

    def _skip(self) -> None:
        """Pass a token that is not checked: its random number is drawn all the same."""
        if self._draws is not None:
            self._draws.random(), self.sampler.rng.random()
        if self.matcher is not None:
            self.matcher.choice()
        self._took(self.tokens[self.position])
        self.position += 1

    def _took(self, token: int) -> None:
        if token in self.stops:
            return
        self.sampler.took(token)
        if self.matcher is not None:
            self.matcher.took(token)

    def _check(self, row: np.ndarray) -> None:
        position, token, record = self.position, self.tokens[self.position], self._record(self.position)
        block, last = position // BLOCK, position == len(self.tokens) - 1
        told = forbidden(row, self.engine.model.defaults, position, self.document["most"])
        allowed, without = (None, None) if self.matcher is None else self.matcher.choice()
        drawn = self.sampler.choose(told, allowed, without)
        scores = self.sampler.scores(told, allowed)
        value = drawn_log_probability(row, token, self.params)
        draw = 0.0 if self._draws is None else self._draws.random()
        digest = digest_of(position, token, row, scores, value, draw, self.params.min_p)
        self._digests.append(digest)
        wanted, problems = record_of(value, digest), []
        if drawn != token:
            problems.append(f"the model draws token {drawn}, and the answer has {token}")
        if wanted[:4] != record[:4]:
            said = float(np.frombuffer(record[:4], "<f4")[0])
            problems.append(f"token {token} has log-probability {float(value)!r}, and the file says {said!r}")
        elif wanted != record:
            problems.append("the logits, the distribution after temperature and cuts, or the random number differ")
        if last or position % BLOCK == BLOCK - 1:
            link = link_of(self._link(block - 1), self._digests, self.document["finish"] if last else "")
            if link != self._link(block) and not problems and not self.differing:
                problems.append("the hash of its 32 tokens differs: the header, the link before or a digest is another")
            self._digests = []
        self.checked += 1
        if problems:
            self.differing += 1
            if self.first is None:
                self.first = position
                self.reasons.append(f"token {position} of the answer: {'; '.join(problems)}")
        self._took(token)
        self.position += 1


def audit(document: Mapping[str, Any], engine: Engine, *, blocks: int | None = None, seed: int = 0) -> Verdict:
    """Replay a commitment with the weights of an engine.

    Args:
        document: A commitment, as `Event.commitment` or `read_commitments` give it.
        engine: With the weights that the answer claims; it may serve requests meanwhile.
        blocks: How many blocks of 32 tokens are checked, drawn by `seed`; None: all.
        seed: Of the choice of blocks.

    >>> from morpho.serve.engine.audit import audit
    >>> from morpho.serve.engine.engine import Engine
    >>> from morpho.serve.engine.request import Request, SamplingParams
    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=128)
    >>> with Engine(model, pages=4) as engine:
    ...     params = SamplingParams(max_tokens=40, seed=1, commitment=True)
    ...     *_, last = engine.submit(Request((1, 2, 3), params, "a"))
    ...     verdict = audit(last.commitment, engine)
    >>> verdict.confirmed, verdict.checked
    (True, 40)
    """
    document = check_document(dict(document))
    prompt, tokens = document["prompt"], document["tokens"]
    number = -(-len(tokens) // BLOCK)
    if blocks is not None and blocks < 1:
        raise fail(ArgumentError, "audit", f"blocks={blocks} checks nothing", "check one block of 32 tokens or more")
    chosen = list(range(number)) if blocks is None or blocks >= number else sorted(
        int(each) for each in np.random.default_rng(seed).choice(number, blocks, replace=False))
    adapter = _adapter(document, engine)
    reasons = _place(document, engine, adapter)
    replay = Replay(document, engine, chosen)
    reasons += _ends(document, replay, engine)
    end = min((chosen[-1] + 1) * BLOCK, len(tokens))
    begin = len(prompt) - 1

    errors: list[Exception] = []

    def take(place: int, row: np.ndarray) -> None:
        if place < begin or errors:
            return
        try:
            replay.row(place - begin, row)
        except Exception as error:
            errors.append(error)

    params = SamplingParams(temperature=0.0, max_tokens=0, prompt_logprobs=0)
    request = Request((*prompt, *tokens[:end - 1]), params, "audit", adapter, rows=take)
    for event in engine.submit(request):
        if event.error is not None:
            raise fail(MorphoError, "audit", event.error)
    if errors:
        if not isinstance(errors[0], MorphoError):
            raise errors[0]
        reasons.append(f"token {replay.position} of the answer: {errors[0].message or errors[0]}")
    return Verdict(replay.checked, len(tokens), replay.differing, replay.first, (*reasons, *replay.reasons))


def _adapter(document: Mapping[str, Any], engine: Engine) -> str | None:
    """The engine's name of the adapter of a commitment."""
    if document["adapter"] is None:
        return None
    names = [name for name, digest in engine.adapters.digests.items() if digest == document["adapter"]]
    if names:
        return names[0]
    others = [*engine.adapters.digests]
    if not others:
        raise fail(ArgumentError, "audit", "the answer was written with an adapter", "give --adapter FOLDER")
    return others[0]  # another one: its weights are refuted below


def _place(document: Mapping[str, Any], engine: Engine, adapter: str | None) -> list[str]:
    """Differences of weights and precision; what no replay here could confirm is refused."""
    place = engine.place()
    half = document["dtype"] in _HALVES or document["autocast"] in _HALVES
    if half and document["device"] != place["device"]:
        raise fail(ArgumentError, "audit", f"the answer was written on {document['device']!r} in half floats, whose "
                                           f"bits are not those of {place['device']!r}",
                   f"replay it on {document['device']}; float32 has the same bits on both")
    reasons = [f"the weights are {document['weights'][:23]}..., and the model's are {place['weights'][:23]}..."
               ] if document["weights"] != place["weights"] else []
    for name in ("dtype", "autocast"):
        if document[name] != place[name]:
            reasons.append(f"{name} is {document[name]}, and the replay's is {place[name]}")
    if adapter is not None and engine.adapters.digests[adapter] != document["adapter"]:
        reasons.append("the adapter is another")
    return reasons


def _ends(document: Mapping[str, Any], replay: Replay, engine: Engine) -> list[str]:
    """Faults of the end of a text, and of the text itself."""
    tokens, params = document["tokens"], replay.params
    limit = max(engine.vocabulary, 1)
    wrong = next((t for t in (*document["prompt"], *tokens) if t >= limit), None)
    if wrong is not None:
        raise fail(ArgumentError, "audit", f"token {wrong} is not in the model's vocabulary of {limit}",
                   "give the model that wrote the answer")
    if sorted(replay.stops) != sorted(document["stops"]):
        return ["the tokens that end a text are not the model's"]
    reasons, text = [], None
    early = next((t for t, token in enumerate(tokens[:-1]) if token in replay.stops), None)
    if early is not None:
        reasons.append(f"token {early} of the answer ends it, and more follow")
    stopped = None
    if engine.tokenizer is not None:
        stream = TextStream(engine.tokenizer, params.stop, document["prompt"], exact=params.grammar is not None,
                            include=params.include_stop)
        parts = []
        for number, token in enumerate(tokens, 1):
            if token in replay.stops:
                break
            parts.append(stream.push(token, number > params.min_tokens))
        text = "".join(parts) + stream.finish()
        stopped = stream.stopped
    elif params.stop:
        reasons.append("stop strings cannot be checked without a tokenizer")
    if document["finish"] == "length" and (len(tokens) != document["most"] or tokens[-1] in replay.stops):
        reasons.append(f"the answer says that it ended by its length, and has {len(tokens)} of "
                       f"{document['most']} tokens")
    if document["finish"] == "stop" and tokens[-1] not in replay.stops and not stopped and params.grammar is None:
        reasons.append("the answer says that it stopped, and neither its last token nor a stop string ends it")
    if text is not None and isinstance(document.get("text"), str) and text.strip() != document["text"].strip():
        reasons.append(f"the text is not that of the tokens: {_difference(text.strip(), document['text'].strip())}")
    return reasons


def _difference(wanted: str, said: str) -> str:
    place = next((i for i, (a, b) in enumerate(zip(wanted, said, strict=False)) if a != b),
                 min(len(wanted), len(said)))
    return (f"at character {place} the tokens say {wanted[place:place + 20]!r}, and the file "
            f"{said[place:place + 20]!r}")


def reseal(document: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """A commitment with other fields and a seal that fits them, as somebody who lies writes it."""
    return sealed({**document, **changes})


__all__ = ["Verdict", "audit", "check_document", "read_commitments", "reseal"]
