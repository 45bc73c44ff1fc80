"""Runs models whose keys and values do not lie in pages: those with an encoder (T5, BART), with capped scores (Gemma 2)
or with angles that follow from the length of the text (Phi 3's long ones).

Each text has a slot, which is a cache of its own. Prompts go through the functions of `mo.models.generate` by
themselves; next tokens of several texts are computed in one call, each attending over its slot (`JoinedGenerators`),
with the bits it has alone. Nothing is shared between texts, and nothing guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Tokens
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import LanguageModel
from morpho.models.text.generation import AHEAD
from morpho.models.text.generators import Generator, JoinedGenerators, TwoPartGenerator, device_of
from morpho.serve.engine.pages import Holding, Match, Pages
from morpho.serve.engine.runner import Row, check_served

LEAST = 2  # positions of a text
MOST_SLOTS = 16  # each has functions of its own, which are made when it is first used
WARM_SLOTS = 4  # for which that is while nobody asks for anything: a step over a cache touches all its memory


def in_slots(model: LanguageModel) -> bool:
    """Whether a model's texts have caches of their own."""
    return hasattr(model, "remember") or bool(getattr(model, "not_in_pages", ""))


def check_adapters(model: LanguageModel, names: Iterable[str]) -> None:
    """A model in slots has no adapters: its functions are those of `mo.models.generate`."""
    name = next(iter(names), None)
    if name is not None and in_slots(model):
        raise fail(ArgumentError, "serve", f"the adapter {name!r} cannot be used: a {type(model).__name__} like this "
                                           "has no LoRA adapters here", "serve it without")


class Slots(Pages):
    """Slots as pages that hold a whole text: nobody shares them, and nothing is kept for others.

    >>> from morpho.serve.engine.pages import Holding
    >>> from morpho.serve.engine.slots import Slots
    >>> slots, first = Slots(1, 100), Holding()
    >>> slots.extend(first, 60), slots.extend(Holding(), 1), slots.release(first, [5] * 60, 60), slots.available
    (True, False, None, 1)
    """

    spare = 0  # who runs wants no more

    def match(self, tokens: Tokens[int], space: str | None = None) -> Match:
        return Match((), None, 0)

    def commit(self, holding: Holding, tokens: Tokens[int], computed: int) -> None:
        pass

    def release(self, holding: Holding, tokens: Tokens[int], computed: int) -> None:
        self.free = sorted([*self.free, *holding.pages], reverse=True)  # the lowest is the next: see `_joined`
        holding.pages = []

    def fork(self, holding: Holding, computed: int) -> None:
        return None  # every text reads the prompt


class SlotRunner:
    """A model with a cache for each text; it stands where a `ModelRunner` does.

    >>> from morpho.serve.engine.runner import Row
    >>> from morpho.serve.engine.slots import SlotRunner
    >>> model = mo.models.create("t5-small", vocab_size=50, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    >>> runner = SlotRunner(model, kv_bytes=1 << 20, max_batch=4, max_length=64)
    >>> runner.prefill(Row([1, 2, 3], 0, [0], prompt=3)).shape, runner.decode([Row([4], 3, [0], prompt=3)]).shape
    ((50,), (1, 1, 50))
    """

    def __init__(self, model: LanguageModel, kv_bytes: int, max_batch: int, max_length: int | None = None) -> None:
        check_served(model)
        model.eval()
        self.model, self.two_parts, self.place = model, hasattr(model, "remember"), device_of(model)
        longest = model.usual_length if self.two_parts else model.context
        each = _position_bytes(model)
        room = kv_bytes // each
        if room < LEAST:
            raise fail(ArgumentError, "serve", f"a cache of {kv_bytes} bytes holds no text: a position has {each}",
                       "give more kv_bytes")
        self.switch: int | None = getattr(model, "switch", None)
        longest = min(max_length or longest, longest, room)
        short = self.switch or 0
        if longest > short:  # a slot has a cache for either side of it
            longest = max(min(longest, room - short), min(short, room))
        self.length = max(longest, LEAST)  # of a text, or of each part
        self.max_length = 2 * self.length if self.two_parts else self.length
        held = self.length + short if self.length > short else self.length
        count = max(min(room // held, max_batch, MOST_SLOTS), 1)
        self.pages = Slots(count, self.max_length + 1)
        self.chunk, self.max_batch = self.max_length, max_batch
        self._generators: dict[tuple[int, int], Generator] = {}  # by slot and length of its cache
        self._texts: dict[int, list[int]] = {}  # by slot: the tokens that were told
        self._used: dict[int, Generator] = {}  # by slot
        self._together: dict[tuple[int, int], JoinedGenerators] = {}  # by length and number of slots, the first ones

    def prefill(self, row: Row) -> np.ndarray:
        """A piece of a prompt, or of a text that is computed anew; the logits are those of the last piece. An encoder
        sees its prompt as a whole."""
        slot = row.pages[0]
        tokens = self._texts[slot] = [*self._texts.get(slot, [])[:row.start], *row.tokens]
        wanted = max(row.prompt + min(max(row.most, 1), AHEAD), len(tokens))  # as `generate` begins, and goes on
        generator = self._used[slot] = self._generator(slot, wanted)
        if not self.two_parts:
            return generator.start(tokens)
        if len(tokens) < row.prompt:
            return np.zeros(0, np.float32)
        logits = generator.start(tokens[:row.prompt])
        for token in tokens[row.prompt:]:
            logits = generator.step(token)
        return logits

    def score(self, row: Row) -> np.ndarray:
        """A piece of a prompt: the logits after each of its tokens."""
        return np.stack([self.prefill(Row([token], place, row.pages, row.adapter, row.prompt, row.most))
                         for place, token in enumerate(row.tokens, row.start)])

    def prompts(self, rows: Tokens[Row]) -> list[np.ndarray]:
        """Pieces of several prompts, one after the other, and next tokens of texts, together."""
        joined: dict[int, list[int]] = {}  # by length of their caches
        for number, row in enumerate(rows):
            if self._follows(row):
                joined.setdefault(self._used[row.pages[0]].length, []).append(number)
        found: dict[int, np.ndarray] = {}
        for length, numbers in joined.items():
            if len(numbers) > 1:
                found |= zip(numbers, self._steps(length, [rows[number] for number in numbers]), strict=True)
        return [found[number] if number in found else self._step(row) for number, row in enumerate(rows)]

    def decode(self, rows: Tokens[Row]) -> np.ndarray:
        """One token of each row: (rows, 1, vocabulary)."""
        return np.stack(self.prompts(rows))[:, None]

    def _steps(self, length: int, rows: Tokens[Row]) -> list[np.ndarray]:
        """The next tokens of several texts, in one call."""
        tokens = {row.pages[0]: row.tokens[0] for row in rows}
        for slot, token in tokens.items():
            self._texts[slot].append(token)
        logits = self._joined(length, max(tokens) + 1).step(tokens)
        return [logits[slot] for slot in tokens]

    def _joined(self, length: int, slots: int) -> JoinedGenerators:
        """The function of the first slots, a power of two of them at least `slots`."""
        count = min(1 << (slots - 1).bit_length(), self.pages.total)
        if (length, count) not in self._together:
            self._together[length, count] = JoinedGenerators([self._generator(slot, length) for slot in range(count)])
        return self._together[length, count]

    def _follows(self, row: Row) -> bool:
        """Whether a row is the one token that comes after what its slot holds, and has room there: a cache that is full
        may have lost its last place to a step of others."""
        used, held = self._used.get(row.pages[0]), row.start
        if self.two_parts:
            held += 1 - row.prompt  # the decoder begins with a token of its own
        return (row.start >= row.prompt and len(row.tokens) == 1 and used is not None
                and len(used.ids) == held < used.length)

    def _step(self, row: Row) -> np.ndarray:
        """The next token of a text, what is left of its prompt, or all of it in a longer cache."""
        if not self._follows(row):
            return self.prefill(row)
        slot = row.pages[0]
        self._texts[slot] += row.tokens
        return self._used[slot].step(row.tokens[0])

    def _generator(self, slot: int, wanted: int) -> Generator:
        """The functions of a slot; where the length of a text changes its angles, there are some for either side."""
        short = self.switch is not None and wanted <= self.switch < self.length
        length = self.switch if short and self.switch is not None else self.length
        if (slot, length) not in self._generators:
            kind = TwoPartGenerator if self.two_parts else Generator
            self._generators[slot, length] = kind(self.model, length)
        return self._generators[slot, length]

    def copy_page(self, source: int, target: int) -> None:
        raise AssertionError("slots are never copied")

    def forget_adapted(self) -> None:
        """There are no adapters here."""

    def refresh(self) -> bool:
        """Take over weights that have changed; says whether there were any."""
        changed = [generator for generator in self._generators.values() if generator.frozen.refresh()]
        for generator in changed:
            generator.ids = []
        return bool(changed)

    def cold(self, drafted: bool) -> list[str]:
        """Functions that `warm` compiles while the engine is idle: those of each slot, and of those up to it."""
        return [f"slot {slot}" for slot in range(min(self.pages.total, WARM_SLOTS))]

    def warm(self, name: str) -> None:
        """Compile what the first text needs, or a slot."""
        slot = 0 if name == "prefill" else int(name.removeprefix("slot "))
        self.prefill(Row([0], 0, [slot], prompt=1))
        if name != "prefill":
            self.decode([Row([0], 1, [slot], prompt=1)])
        if slot:
            self._joined(self._used[slot].length, slot + 1).step({})

    @property
    def recompiles(self) -> int:
        """Functions compiled more than once: none, whatever comes."""
        usual = 3 if self.two_parts else 2
        joined = sum(max(0, len(each.decode.specialisations) - 1) for each in self._together.values())
        return joined + sum(max(0, generator.compilations - usual) for generator in self._generators.values())


def _position_bytes(model: LanguageModel) -> int:
    """Bytes of one position of a text in all layers."""
    kind = next((p.dtype for p in model.parameters()), mo.float32)
    caches: Any = model.make_caches(1, 1, kind)
    layers = [*caches.own, *caches.cross] if hasattr(caches, "own") else caches
    return max(sum(int(cache.keys.value.nbytes + cache.values.value.nbytes) for cache in layers), 1)
