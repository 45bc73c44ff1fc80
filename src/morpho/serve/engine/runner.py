"""Runs the model: a few native functions over pages, each compiled once, whatever the number of rows and tokens.

| function | rows | tokens of a row | logits of |
|---|---|---|---|
| `single` | 1 | 1 | the token: decoding of one stream |
| `decode` | 1 to `max_batch` | 1 | every row |
| `verify` | 1 to `draft_rows` | 1 to `most_drafted` + 1 | every token: guesses that are checked |
| `prefill` | 1 | 1 to `chunk` | the last token: a piece of a prompt |
| `score` | 1 | 1 to `SCORED` | every token: a piece of a prompt whose tokens are scored |
| `prompts` | 1 to `chunk` | 1 | the first rows: pieces of several short prompts, a row for each token |

Rows do not see each other: a product's row is one chain of operations whatever rows are beside it, and attention's
blocks begin at absolute positions. So all six give a token the same bits (docs/numerics.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

import morpho as mo
from morpho.backends.registry import HOST
from morpho.base.errors import ArgumentError, fail
from morpho.ir.node import written_at
from morpho.models.base import LanguageModel
from morpho.models.text.generators import device_of
from morpho.nn.frozen import Frozen
from morpho.nn.transformer.paged import PagedCache
from morpho.ops.neural.paged import PAGE
from morpho.serve.engine.adapters import AdapterBank

SCORED = 64  # tokens of a prompt that are scored in one step: each has a row of logits
KEYS = ("ids", "start", "table", "places")
OTHERS = tuple(f"{key}_of_others" for key in KEYS)


@dataclass(frozen=True)
class Row:
    """Tokens of one sequence that are computed: they stand from position `start` on; `pages` are the sequence's."""

    tokens: Sequence[int]
    start: int
    pages: Sequence[int]
    adapter: int | None = None
    prompt: int = 0  # tokens of the text that are its prompt
    most: int = 0  # tokens of its answer at most


def check_served(model: Any) -> None:
    """Models that make text of text by one token after another; others are refused."""
    if not isinstance(model, LanguageModel):
        raise fail(ArgumentError, "serve", f"{type(model).__name__} is no language model")
    other = getattr(getattr(model, "shape", None), "head", "") or model.config.get("head")
    if hasattr(model, "listen") or other:
        reason = "its head is not that of the next token" if other else "it makes text of sound"
        call = "model(ids), model.classify(ids) or model.span_logits(ids)" if other else "model.transcribe(features)"
        raise fail(ArgumentError, "serve", f"a {type(model).__name__} like this is not served: {reason}",
                   f"use {call} from Python")


def page_bytes(model: LanguageModel, autocast: Any = None) -> int:
    """Bytes of one page in all layers."""
    return sum(2 * PAGE * heads * (depth + width) // 2 * (autocast or _kind(model)).itemsize
               for heads, depth, width in _layers(model))


def _layers(model: LanguageModel) -> list[tuple[int, int, int]]:
    """Key-value heads, and the depth of keys and values, of each layer."""
    found = []
    for cache in model.make_caches(1, 1, _kind(model)):
        keys, values = cache.keys.value.shape, cache.values.value.shape
        found.append((int(keys[1]), int(keys[3]), int(values[3])))
    return found


def _kind(model: LanguageModel) -> Any:
    return next((p.dtype for p in model.parameters()), mo.float32)


class ModelRunner:
    """A model with a cache in pages.

    >>> from morpho.serve.engine.runner import ModelRunner, Row
    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=128)
    >>> runner = ModelRunner(model, pages=2)
    >>> runner.prefill(Row([1, 2, 3], 0, [1])).shape, runner.decode([Row([4], 3, [1])]).shape, runner.recompiles
    ((50,), (1, 1, 50), 0)
    """

    def __init__(self, model: LanguageModel, pages: int, max_batch: int = 64, max_length: int | None = None,
                 chunk: int = 512, most_drafted: int = 7, draft_rows: int = 2,
                 adapters: AdapterBank | None = None, autocast: Any = None) -> None:
        check_served(model)
        reason = "it has an encoder" if hasattr(model, "remember") else getattr(model, "not_in_pages", "")
        if reason:
            raise fail(ArgumentError, "serve", f"a {type(model).__name__} like this is not served in pages: {reason}",
                       "use the Engine, which gives its texts slots")
        self.model, self.pages, self.max_batch, self.adapters = model, pages, max_batch, adapters
        self.max_length = min(max_length or model.context, model.context)
        self.length = self.max_length  # of a prompt, and of an answer
        self.chunk, self.most_drafted = min(chunk, self.max_length), most_drafted
        self.draft_rows = max(1, min(draft_rows, max_batch))
        self.blocks = -(-self.max_length // PAGE)
        model.eval()
        self.frozen = Frozen(model)
        self.place = device_of(model)
        self.autocast = autocast  # dtype of products and caches, where it is not the parameters'
        self.caches = [PagedCache(pages, heads, depth, autocast or _kind(model), width, self.place)
                       for heads, depth, width in _layers(model)]
        self.functions: dict[tuple[str, bool, int], Any] = {}  # by name, whether with adapters, rows if they are known
        self._copy = mo.compile(self._copy_page)

    def function(self, name: str, adapted: bool, rows_known: int = 0) -> Any:
        """Return one of the six functions, compiled at first use; with adapters it is another one, and for a number of
        rows that is known too: programs whose sizes are known are launched by native code on a GPU."""
        key = name, adapted, rows_known
        if key not in self.functions:
            rows = {0: mo.Dim("rows", 1, self.draft_rows if name == "verify" else self.max_batch)}
            dynamic: dict[str, Any] = {}
            if name == "prefill":
                dynamic = {argument: {1: mo.Dim("n", 1, self.chunk)} for argument in ("ids", "places")}
            elif name == "score":
                dynamic = {argument: {1: mo.Dim("n", 1, min(SCORED, self.chunk))} for argument in ("ids", "places")}
            elif name != "single" and not rows_known:
                dynamic = {argument: rows for argument in ("ids", "start", "table", "places", "adapter")[:4 + adapted]}
            if name == "verify" and not rows_known:
                both = {**rows, 1: mo.Dim("n", 1, self.most_drafted + 1)}
                dynamic = {**dynamic, "ids": both, "places": both}
            if name == "prompts":
                dynamic = {argument: {0: mo.Dim("others", 1, self.chunk)} for argument in OTHERS} | {
                    argument: rows for argument in KEYS}
            last = name == "prefill"
            body = (self._chosen_body() if name == "prompts" else self._adapted_body(last) if adapted
                    else self._body(last))
            self.functions[key] = mo.compile(body, dynamic=dynamic) if dynamic else mo.compile(body)
        return self.functions[key]

    def _body(self, last: bool) -> Any:
        def logits(ids: mo.Tensor, start: mo.Tensor, table: mo.Tensor, places: mo.Tensor) -> mo.Tensor:
            return self._logits(ids, start, table, places, last)
        return logits

    def _chosen_body(self) -> Any:
        def logits(ids: mo.Tensor, start: mo.Tensor, table: mo.Tensor, places: mo.Tensor, ids_of_others: mo.Tensor,
                   start_of_others: mo.Tensor, table_of_others: mo.Tensor, places_of_others: mo.Tensor) -> mo.Tensor:
            given = zip((ids, start, table, places), (ids_of_others, start_of_others, table_of_others,
                                                      places_of_others), strict=True)
            whole = [mo.concat([*pair]) for pair in given]
            return self._logits(whole[0], whole[1], whole[2], whole[3], False, ids.shape[0])
        return logits

    def _adapted_body(self, last: bool) -> Any:
        bank = self.adapters
        assert bank is not None

        def logits(ids: mo.Tensor, start: mo.Tensor, table: mo.Tensor, places: mo.Tensor,
                   adapter: mo.Tensor) -> mo.Tensor:
            with bank.applied(adapter):
                return self._logits(ids, start, table, places, last)
        return logits

    def _logits(self, ids: mo.Tensor, start: mo.Tensor, table: mo.Tensor, places: mo.Tensor, last: bool,
                first: Any = None) -> mo.Tensor:
        """ids (rows, n) from positions `start` (rows,) on -> (rows, n, vocabulary), or of the last token, or of the
        `first` rows only: the head is a fifth of a small model."""
        self.frozen.use()
        for cache in self.caches:
            cache.use(table, places)
        precision = nullcontext() if self.autocast is None else mo.amp.autocast(self.autocast)
        with mo.no_grad(), precision, written_at(""):  # no line of a user's, which every operation would look for
            x = self.model.hidden(ids, self.caches, start)  # type: ignore[arg-type]
            if first is not None:  # no `take`: what may fail after pages are written has all of them copied
                x = x[:first]
            return self.model.head(x[:, -1:] if last else x).astype(mo.float32)

    def _copy_page(self, source: mo.Tensor, target: mo.Tensor) -> mo.Tensor:
        for cache in self.caches:
            cache.copy_page(source, target)
        return source

    # -- calls ------------------------------------------------------------------------------------------------------
    def prefill(self, row: Row) -> np.ndarray:
        """A piece of a prompt: the logits after its last token, (vocabulary,)."""
        found: np.ndarray = self._call("prefill", [row], len(row.tokens))[0, 0]
        return found

    def score(self, row: Row) -> np.ndarray:
        """A piece of a prompt: the logits after each of its tokens, (tokens, vocabulary)."""
        found: np.ndarray = self._call("score", [row], len(row.tokens))[0]
        return found

    def prompts(self, rows: Sequence[Row]) -> np.ndarray:
        """Pieces of several prompts: the logits after the last token of each, (pieces, vocabulary). Each token is a row
        of its own, so that none is filled up; keys and values of all are written before any row reads them."""
        last = [Row(row.tokens[-1:], row.start + len(row.tokens) - 1, row.pages) for row in rows]
        others = [Row([token], position, row.pages) for row in rows
                  for position, token in enumerate(row.tokens[:-1], row.start)]
        found: np.ndarray = self._call("prompts", last, 1, others=others)[:, 0]
        return found

    def decode(self, rows: Sequence[Row]) -> np.ndarray:
        """One token of each row, or some: (rows, most tokens of a row, vocabulary)."""
        most = max(len(row.tokens) for row in rows)
        name = "verify" if most > 1 else "single" if len(rows) == 1 else "decode"
        return self._call(name, rows, most)

    def _call(self, name: str, rows: Sequence[Row], width: int, write: bool = True,
              others: Sequence[Row] | None = None) -> np.ndarray:
        count = len(rows)
        fixed = self.place != HOST and name == "decode"
        if fixed:
            count = min(1 << (count - 1).bit_length(), self.max_batch)  # rows that fill it up go nowhere
        given = self._arrays(rows, width, write, count)
        if others is not None:  # at least one, which may go nowhere
            given += self._arrays(others or [Row([0], 0, [0])], 1, write and bool(others), max(len(others), 1))
        adapted = rows[0].adapter is not None
        if adapted:
            adapter = np.zeros(count, np.int64)
            adapter[:len(rows)] = [row.adapter or 0 for row in rows]
            given.append(adapter)
        logits = self.function(name, adapted, count if fixed else 0)(*map(self._there, given))
        found = logits.numpy()
        return found[:len(rows)] if fixed else found  # type: ignore[no-any-return]

    def _there(self, numbers: Any) -> mo.Tensor:
        """Numbers where the model lies."""
        return mo.asarray(numbers) if self.place == HOST else mo.asarray(numbers, device=self.place)

    def _arrays(self, rows: Sequence[Row], width: int, write: bool, count: int) -> list[np.ndarray]:
        """ids, start, table and places of some rows, filled up to `count`."""
        ids = np.zeros((count, width), np.int64)
        places = np.full((count, width), -1, np.int64)  # tokens that fill up rows go nowhere
        table = np.zeros((count, self.blocks), np.int64)
        for number, row in enumerate(rows):
            length = len(row.tokens)
            ids[number, :length] = row.tokens
            table[number, :len(row.pages)] = row.pages
            at = np.arange(row.start, row.start + length)
            if write:
                places[number, :length] = table[number, at // PAGE] * PAGE + at % PAGE
        start = np.zeros(count, np.int64)
        start[:len(rows)] = [row.start for row in rows]
        return [ids, start, table, places]

    def copy_page(self, source: int, target: int) -> None:
        """The keys and values of one page into another, in all layers."""
        self._copy(self._there([source]), self._there([target]))

    def forget_adapted(self) -> None:
        """Adapters have come to more products: functions with adapters are made anew."""
        self.functions = {key: function for key, function in self.functions.items() if not key[1]}

    def refresh(self) -> bool:
        """Take over weights that have changed; says whether there were any."""
        return self.frozen.refresh()

    def cold(self, drafted: bool) -> list[str]:
        """Functions that `warm` compiles while the engine is idle."""
        return ["single", "decode", "prompts", *(["verify"] if drafted else [])]

    def warm(self, name: str) -> None:
        """Compile one of the functions, or load it from the cache of code."""
        several = name in ("decode", "prompts")
        rows = [Row([0], 0, [0])] * (min(2, self.max_batch) if several else 1)
        self._call(name, rows, 1, write=False, others=rows if name == "prompts" else None)

    @property
    def recompiles(self) -> int:
        """Functions compiled more than once: none, whatever comes."""
        made = [*self.functions.values(), self._copy]
        return sum(max(0, len(function.specialisations) - 1) for function in made)
