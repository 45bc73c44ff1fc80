"""Training of byte-level BPE: again and again the most frequent pair becomes a token.

A text has few different words, so pairs are counted over those, each weighted by how often it occurs; a merge changes
the counts only of pairs in words that hold it. Ties go to the pair with the smaller numbers, so that the result is one.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from morpho.base.errors import ArgumentError, fail
from morpho.weights.text.bpe import BytePairs
from morpho.weights.text.pretokenise import byte_characters, pieces, words
from morpho.weights.text.tokenizer import checked_text

END = "<|endoftext|>"
Pair = tuple[int, int]


def train_bpe(text: str | Iterable[str], vocab_size: int, *, specials: Sequence[str] = (END,),
              split_digits: bool = False) -> BytePairs:
    """A byte-level BPE tokenizer learned from a text (or several): special tokens first, then the 256 bytes, then
    merged pairs until the vocabulary is full or no pair occurs twice. The first special token is the one that ends a
    text.

    >>> tokenizer = mo.weights.train_bpe("low lower lowest", vocab_size=260)
    >>> tokenizer.vocab_size, tokenizer.eos
    (260, 0)
    >>> tokenizer.decode(tokenizer.encode("lowest"))
    'lowest'
    """
    least = 256 + len(specials)
    if not isinstance(vocab_size, int) or vocab_size < least:
        raise fail(ArgumentError, "train_bpe", f"a vocabulary of {vocab_size!r} is too small",
                   f"256 bytes and {len(specials)} special tokens are {least}")
    if len({*specials}) != len(specials) or not all(isinstance(name, str) and name for name in specials):
        raise fail(ArgumentError, "train_bpe", f"the special tokens {list(specials)} are not different texts")
    counts: Counter[str] = Counter()
    for part in [text] if isinstance(text, str) else text:
        for piece in pieces(checked_text(part, "train_bpe")):
            counts.update(words(piece, split_digits))
    tokens = [*specials, *sorted(byte_characters())]
    merges = _merges(counts, tokens, len(specials), vocab_size)
    numbers = {token: number for number, token in enumerate(tokens)}
    return BytePairs({token: numbers[token] for token in tokens[len(specials):]}, merges,
                     {name: numbers[name] for name in specials}, split_digits=split_digits,
                     eos=0 if specials else None)


def _merges(counts: Counter[str], tokens: list[str], first: int, vocab_size: int) -> list[tuple[str, str]]:
    """Append the tokens found to `tokens`, and give the pairs they were made of."""
    number_of = {token: number for number, token in enumerate(tokens) if number >= first}
    numbers_of_byte = [number_of[character] for character in byte_characters()]
    pieces = [[numbers_of_byte[byte] for byte in word.encode()] for word in counts]
    weights = list(counts.values())
    pair_counts, where = _count_pairs(pieces, weights)
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)
    found: list[tuple[str, str]] = []
    while len(tokens) < vocab_size and heap:
        count, pair = heapq.heappop(heap)
        if -count != pair_counts.get(pair, 0):
            continue  # an entry from before a merge changed the count; the right one is in the heap too
        if -count < 2:
            break
        left, right = tokens[pair[0]], tokens[pair[1]]
        found.append((left, right))
        number = number_of.get(left + right)  # two pairs may spell the same token
        if number is None:
            number = number_of[left + right] = len(tokens)
            tokens.append(left + right)
        changed = {*_merge_everywhere(pair, number, pieces, weights, pair_counts, where)} - {pair}
        for other in changed:
            if pair_counts[other] > 0:
                heapq.heappush(heap, (-pair_counts[other], other))
    return found


def _count_pairs(pieces: list[list[int]], weights: list[int]) -> tuple[dict[Pair, int], dict[Pair, set[int]]]:
    counts: dict[Pair, int] = defaultdict(int)
    where: dict[Pair, set[int]] = defaultdict(set)
    for place, (piece, weight) in enumerate(zip(pieces, weights)):
        for pair in pairwise(piece):
            counts[pair] += weight
            where[pair].add(place)
    return counts, where


def _merge_everywhere(pair: Pair, number: int, pieces: list[list[int]], weights: list[int], counts: dict[Pair, int],
                      where: dict[Pair, set[int]]) -> Iterable[Pair]:
    """Merge a pair in every word that holds it, keep the counts right, and give the pairs whose counts changed."""
    for place in where.pop(pair):
        old, weight = pieces[place], weights[place]
        new = merged_once(old, pair, number)
        if len(new) == len(old):
            continue
        for other in pairwise(old):
            counts[other] -= weight
            yield other
        for other in pairwise(new):
            counts[other] += weight
            where[other].add(place)
            yield other
        pieces[place] = new
    counts.pop(pair, None)


def merged_once(piece: list[int], pair: Pair, number: int) -> list[int]:
    """A word with every occurrence of a pair merged, from the left."""
    left, right = pair
    found, at, last = [], 0, len(piece) - 1
    while at <= last:
        if at < last and piece[at] == left and piece[at + 1] == right:
            found.append(number)
            at += 2
        else:
            found.append(piece[at])
            at += 1
    return found
