"""Trees of pairs over many tensors: the fastest of all by dynamic programming, or a good one by a greedy search.

Labels and sets of tensors are bits of a number. Nothing here sees a node or a value.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from morpho.cost.contraction import ContractionRates, pair_cost
from morpho.ir.op import Cost

RESTARTS = 16
IMPROVED = 3  # greedy trees that are improved
TOGETHER = 7  # tensors of a part of a greedy tree that is looked at exactly
FINE_S_PER_BYTE = 1e3  # in the estimate of a greedy tree, for an intermediate over the limit: it is driven below
HUGE = 1 << 1000  # products of sizes stay below what a float holds

Labels = tuple[str, ...]
Tree = list[tuple[int, int]]  # pairs of subsets of the tensors, as bits, in the order of contraction


@dataclass(frozen=True, slots=True)
class Network:
    """A contraction: the labels of each tensor, those of the result, and every label's (largest) size.

    A label of one tensor only stands in the result too: it is summed before.
    """

    terms: tuple[Labels, ...]
    output: Labels
    sizes: tuple[tuple[str, int], ...]
    itemsize: int


class Search:
    """A network with labels and tensors as bits, and the searches over it."""

    def __init__(self, network: Network, rates: ContractionRates) -> None:
        self.network, self.rates = network, rates
        self.names = [label for label, _ in network.sizes]
        self.sizes = [size for _, size in network.sizes]
        bit = {label: 1 << i for i, label in enumerate(self.names)}
        self.terms = [sum(bit[label] for label in term) for term in network.terms]
        self.output = sum(bit[label] for label in network.output)
        self.whole = (1 << len(self.terms)) - 1
        self._elements: dict[int, int] = {}
        self._kept: dict[int, int] = {1 << i: labels for i, labels in enumerate(self.terms)}

    def elements(self, labels: int) -> int:
        """The product of the sizes of labels."""
        found = self._elements.get(labels)
        if found is None:
            found = self._elements[labels] = min(math.prod(self.sizes[i] for i in bits(labels)), HUGE)
        return found

    def kept(self, subset: int) -> int:
        """The labels of a contracted subset: those the result or another tensor has too."""
        found = self._kept.get(subset)
        if found is None:
            inside, outside = 0, self.output
            for i, labels in enumerate(self.terms):
                if subset >> i & 1:
                    inside |= labels
                else:
                    outside |= labels
            found = self._kept[subset] = inside & outside
        return found

    def nbytes(self, labels: int) -> int:
        return self.elements(labels) * self.network.itemsize

    def cost(self, left: int, right: int, result: int) -> Cost:
        union = left | right
        return pair_cost(self.elements(left), self.elements(right), self.elements(result), self.elements(union),
                         union != result, self.network.itemsize)

    def seconds(self, left: int, right: int, result: int) -> float:
        return self.rates.seconds(self.cost(left, right, result))

    # -- every tree ----------------------------------------------------------------------------------------------------
    def exact(self, limit: float) -> Tree | None:
        """The fastest of all trees, or None when none keeps to the limit."""
        return self.best_tree([1 << i for i in range(len(self.terms))], limit)

    def best_tree(self, parts: Sequence[int], limit: float, fine: float = math.inf) -> Tree | None:
        """The fastest tree over some disjoint subsets, each of which stands for the tensor it has become."""
        whole = (1 << len(parts)) - 1
        joined = [0] * (whole + 1)
        for subset in range(1, whole + 1):
            low = subset & -subset
            joined[subset] = joined[subset ^ low] | parts[low.bit_length() - 1]
        kept = [self.kept(subset) for subset in joined]
        best = [math.inf] * (whole + 1)
        split = [0] * (whole + 1)
        for subset in range(1, whole + 1):
            rest = subset & (subset - 1)  # without its first part, which stays on the left: each split is seen once
            if not rest:
                best[subset] = 0.0
                continue
            result, least, right = kept[subset], math.inf, rest
            if fine == math.inf and not self.fits(joined[subset], limit):
                continue
            while right:
                below = best[subset ^ right] + best[right]
                if below < least:
                    total = below + self.seconds(kept[subset ^ right], kept[right], result)
                    if total < least:
                        least, split[subset] = total, right
                right = (right - 1) & rest
            best[subset] = least + self.fine(joined[subset], limit, fine)
        return None if best[whole] == math.inf else unfolded(joined, split, whole)

    def least_limit(self) -> int:
        """The smallest limit that some tree keeps to."""
        sizes = sorted({self.nbytes(self.kept(subset)) for subset in range(1, self.whole)})
        low, high = 0, len(sizes) - 1
        while low < high:
            middle = (low + high) // 2
            if self.exact(sizes[middle]) is None:
                low = middle + 1
            else:
                high = middle
        return sizes[low]

    # -- a good tree ---------------------------------------------------------------------------------------------------
    def greedy(self, limit: float) -> Tree | None:
        """The best of some greedy trees, the first few of them improved; the same one every time."""
        trees = self.greedy_trees(math.inf)
        if limit < math.inf:
            trees += self.greedy_trees(limit)
        best = self.best_improved(trees, limit)
        if self.largest_bytes(best) > limit:
            best = self.improved(self.narrowest(), limit)
        return best if self.largest_bytes(best) <= limit else None

    def narrowest(self) -> Tree:
        """A tree with small intermediates, whatever time it takes: each byte of them is fined."""
        return self.best_improved(self.greedy_trees(math.inf), 0)

    def best_improved(self, trees: list[Tree], limit: float) -> Tree:
        """The best of the first few, improved."""
        few = sorted(trees, key=lambda tree: self.tree_seconds(tree, limit))[:IMPROVED]
        return min((self.improved(tree, limit) for tree in few), key=lambda tree: self.tree_seconds(tree, limit))

    def greedy_trees(self, limit: float) -> list[Tree]:
        """One greedy tree without noise and some with it, those that keep to the limit."""
        found = [self.greedy_tree(limit, random.Random(number), 0.0 if number == 0 else 0.5)
                 for number in range(RESTARTS)]
        return [tree for tree in found if tree is not None]

    def greedy_tree(self, limit: float, draws: random.Random, noise: float) -> Tree | None:
        """Always the pair that shrinks memory most, with some noise; None when no pair keeps to the limit."""
        alive = {1 << i: labels for i, labels in enumerate(self.terms)}
        heap: list[tuple[float, int, int]] = []
        share = draws.uniform(0.5, 1.5) if noise else 1.0

        def offer(one: int, other: int) -> None:
            a, b = alive[one], alive[other]
            if a & b:
                gain = self.elements(self.kept(one | other)) - share * (self.elements(a) + self.elements(b))
                heapq.heappush(heap, (gain * math.exp(noise * draws.gauss(0.0, 1.0)), one, other))

        order = list(alive)
        for i, one in enumerate(order):
            for other in order[i + 1:]:
                offer(one, other)
        tree: Tree = []
        while len(alive) > 1:
            pair = self.next_pair(heap, alive, limit)
            if pair is None:
                return None
            tree.append(pair)
            del alive[pair[0]], alive[pair[1]]
            new = pair[0] | pair[1]
            alive[new] = self.kept(new)
            for other in list(alive):
                if other != new:
                    offer(other, new)
        return tree

    def next_pair(self, heap: list[tuple[float, int, int]], alive: dict[int, int],
                  limit: float) -> tuple[int, int] | None:
        """The best pair that shares a label; when there is none, the two smallest tensors."""
        while heap:
            _, one, other = heapq.heappop(heap)
            if one in alive and other in alive and self.fits(one | other, limit):
                return one, other
        smallest = heapq.nsmallest(2, alive, key=lambda subset: (self.elements(alive[subset]), subset))
        one, other = sorted(smallest)
        return (one, other) if self.fits(one | other, limit) else None

    def fits(self, subset: int, limit: float) -> bool:
        return subset == self.whole or self.nbytes(self.kept(subset)) <= limit

    def improved(self, tree: Tree, limit: float) -> Tree:
        """The tree with parts of a few tensors each replaced by the best tree over the same tensors, until none is."""
        children = {left | right: (left, right) for left, right in tree}
        waiting = [left | right for left, right in tree]  # the top is looked at first
        while waiting:
            top = waiting.pop()
            parts, inner = self.opened(top, children)
            if not inner:  # gone with an earlier replacement
                continue
            found = self.best_tree(sorted(parts), limit, FINE_S_PER_BYTE)
            before = self.tree_seconds([children[part] for part in inner], limit)
            if found is not None and self.tree_seconds(found, limit) < before * (1 - 1e-9):
                for part in inner:
                    del children[part]
                children.update({left | right: (left, right) for left, right in found})
                near = (part for part in children if part & top in (part, top))  # below the change, or above it
                waiting += [part for part in near if part not in waiting]
        return ordered(children, self.whole)

    def opened(self, top: int, children: dict[int, tuple[int, int]]) -> tuple[list[int], list[int]]:
        """A subset as a few smaller ones, the widest opened first, and those that were opened."""
        parts, inner = [top], []
        while len(parts) < TOGETHER and (open_ones := [part for part in parts if part in children]):
            widest = max(open_ones, key=lambda part: (self.nbytes(self.kept(part)), part))
            parts.remove(widest)
            inner.append(widest)
            parts.extend(children[widest])
        return parts, inner

    def largest_bytes(self, tree: Tree) -> int:
        """Of the largest result of a pair that is not the last."""
        return max((self.nbytes(self.kept(left | right)) for left, right in tree[:-1]), default=0)

    def tree_seconds(self, tree: Tree, limit: float) -> float:
        """The estimated time of a tree, or of a part of one, and the fines for what is over the limit."""
        return sum(self.seconds(self.kept(left), self.kept(right), self.kept(left | right))
                   + self.fine(left | right, limit, FINE_S_PER_BYTE) for left, right in tree)

    def fine(self, subset: int, limit: float, fine_s_per_byte: float) -> float:
        return 0.0 if self.fits(subset, limit) else self.nbytes(self.kept(subset)) * fine_s_per_byte


def bits(number: int) -> Iterator[int]:
    """The positions of the ones in a number, lowest first.

    >>> list(bits(0b1011))
    [0, 1, 3]
    """
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


def unfolded(joined: Sequence[int], split: Sequence[int], whole: int) -> Tree:
    """The pairs of the best splits, inner ones first."""
    children, stack = {}, [whole]
    while stack:
        subset = stack.pop()
        right = split[subset]
        if right:
            children[joined[subset]] = (joined[subset ^ right], joined[right])
            stack += [right, subset ^ right]
    return ordered(children, joined[whole])


def ordered(children: dict[int, tuple[int, int]], whole: int) -> Tree:
    """A tree as pairs, each after those it is made of."""
    tree, stack = [], [whole]
    while stack:
        subset = stack.pop()
        if subset in children:
            tree.append(children[subset])
            stack += children[subset]
    return tree[::-1]
