"""Owners of the pages of the KV cache, and pages with equal beginnings: a radix tree of prefixes, a page a node.

A page is free, private to one sequence, or a node of the tree. A node holds the keys and values of its tokens after
those of its ancestors; sequences that begin with them lock it and share it, and nobody writes to it again. What nobody
locks stays, as long as nobody needs the room: then the leaf that was not used for the longest time goes first. The last
page of a text, which may not be full, becomes a leaf too; who begins with a part of it gets a copy.

>>> from morpho.serve.engine.pages import Holding, Pages
>>> pages = Pages(4, page_tokens=2)
>>> first = Holding()
>>> pages.extend(first, 3), pages.commit(first, [5, 6, 7], 3), pages.release(first, [5, 6, 7], 3)
(True, None, None)
>>> found = pages.match([5, 6, 7, 8])
>>> len(found.nodes), found.length
(1, 3)
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(eq=False)
class Node:
    """A page of the tree: the tokens whose keys and values it holds, those of a full page or, of a leaf, fewer."""

    tokens: tuple[int, ...]
    page: int
    parent: Node | None
    children: dict[tuple[int, ...], Node] = field(default_factory=dict)
    by_first: dict[int, list[Node]] = field(default_factory=dict)  # children by their first token
    locks: int = 0  # sequences that share it
    used: int = 0  # when, by the count of uses
    alive: bool = True


@dataclass(eq=False)
class Holding:
    """The pages of one sequence, in order: first those of `nodes`, which it shares, then its own."""

    pages: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    space: str | None = None  # texts of different adapters have nothing in common


@dataclass(frozen=True)
class Match:
    """Cached beginning of a prompt: full pages, and perhaps a node whose first tokens match."""

    nodes: tuple[Node, ...]
    partial: Node | None
    length: int  # tokens in all


class Pages:
    """The pages of a cache, by number."""

    spare = 1  # pages that are left for each text that runs when another is admitted

    def __init__(self, count: int, page_tokens: int) -> None:
        self.total, self.page_tokens = count, page_tokens
        self.evictions = 0
        self._clock = self._serial = 0
        self.reset()

    def reset(self) -> None:
        """Every page is free; nobody may hold one."""
        self.free = list(range(self.total - 1, -1, -1))
        self.roots: dict[str | None, Node] = {}
        self.cached = 0  # pages of the tree that nobody locks
        self._leaves: list[tuple[int, int, Node]] = []  # heap of (used, serial, node), some of them out of date

    @property
    def used(self) -> int:
        """Pages that a sequence holds."""
        return self.total - len(self.free) - self.cached

    @property
    def available(self) -> int:
        """Pages that can be had at once."""
        return len(self.free) + self.cached

    def pages_of(self, tokens: int) -> int:
        """How many pages so many tokens take."""
        return -(-tokens // self.page_tokens)

    # -- finding ----------------------------------------------------------------------------------------------------
    def match(self, tokens: Sequence[int], space: str | None = None) -> Match:
        """The longest beginning of `tokens` that the tree holds."""
        node, found, at, size = self.root(space), [], 0, self.page_tokens
        while (child := node.children.get(tuple(tokens[at:at + size]))) is not None and len(child.tokens) == size:
            found.append(child)
            node, at = child, at + size
        rest = tuple(tokens[at:at + size])
        best, most = None, 0
        for child in node.by_first.get(rest[0], ()) if rest else ():
            common = next((i for i, (a, b) in enumerate(zip(child.tokens, rest, strict=False)) if a != b),
                          min(len(child.tokens), len(rest)))
            if common > most:
                best, most = child, common
        return Match(tuple(found), best, at + most)

    def take(self, found: Match, holding: Holding) -> tuple[int, tuple[int, int] | None]:
        """Share the full pages of a match with an empty holding, and get a copy of the one that matches in part: how
        many tokens it holds then, and from which page to which is to be copied. Where there is no room for a copy, and
        nobody else needs the page, it is taken itself."""
        for node in found.nodes:
            self._lock(node)
            holding.nodes.append(node)
            holding.pages.append(node.page)
        full, partial = len(found.nodes) * self.page_tokens, found.partial
        if partial is None:
            return full, None
        self._lock(partial)  # it must not go to make room for its own copy
        page = self.allocate()
        self._unlock(partial)
        if page is not None:
            holding.pages.append(page)
            return found.length, (partial.page, page)
        if partial.locks or partial.children:
            return full, None
        self._remove(partial)
        holding.pages.append(self.free.pop())
        return found.length, None

    # -- room -------------------------------------------------------------------------------------------------------
    def allocate(self) -> int | None:
        """A free page, one that was kept for others if need be; None where all are held."""
        if not self.free:
            self._evict()
        return self.free.pop() if self.free else None

    def extend(self, holding: Holding, tokens: int) -> bool:
        """Make room for so many tokens in all; False, and nothing changes, where there is none."""
        missing = self.pages_of(tokens) - len(holding.pages)
        if missing > self.available:
            return False
        for _ in range(missing):
            page = self.allocate()
            if page is None:  # cannot be: it was counted
                return False
            holding.pages.append(page)
        return True

    def _evict(self) -> None:
        while self._leaves:
            used, _, node = heapq.heappop(self._leaves)
            if self._may_go(used, node):
                self._remove(node)
                self.evictions += 1
                return

    @staticmethod
    def _may_go(used: int, node: Node) -> bool:
        """Whether an entry of the heap is not out of date."""
        return node.alive and not node.locks and not node.children and node.used == used

    # -- the tree ---------------------------------------------------------------------------------------------------
    def commit(self, holding: Holding, tokens: Sequence[int], computed: int) -> None:
        """Pages that are full go into the tree, where others find them. One that is there already is shared, and the
        own one freed: equal tokens have equal keys and values, bit for bit."""
        size = self.page_tokens
        while (len(holding.nodes) + 1) * size <= computed:
            number = len(holding.nodes)
            key = tuple(tokens[number * size:(number + 1) * size])
            parent = holding.nodes[-1] if holding.nodes else self.root(holding.space)
            node = parent.children.get(key)
            if node is None:
                node = self.insert(parent, key, holding.pages[number])
            else:
                self.free.append(holding.pages[number])
                holding.pages[number] = node.page
            self._lock(node)
            holding.nodes.append(node)

    def release(self, holding: Holding, tokens: Sequence[int], computed: int) -> None:
        """The sequence needs its pages no more; what is computed stays for others until the room is needed."""
        self.commit(holding, tokens, computed)
        own = holding.pages[len(holding.nodes):]
        parent = holding.nodes[-1] if holding.nodes else self.root(holding.space)
        rest = tuple(tokens[len(holding.nodes) * self.page_tokens:computed])
        if rest and own and not any(node.tokens[:len(rest)] == rest for node in parent.by_first.get(rest[0], ())):
            self.insert(parent, rest, own.pop(0))
        self.free.extend(own)
        for node in reversed(holding.nodes):
            self._unlock(node)
        holding.pages, holding.nodes = [], []

    def fork(self, holding: Holding, computed: int) -> tuple[Holding, tuple[int, int] | None] | None:
        """Another holding of the same tokens: full pages are shared, a last one that is not full is to be copied, from
        page to page; None where there is no room."""
        full = computed // self.page_tokens
        made = Holding(space=holding.space)
        copy = None
        if computed % self.page_tokens:
            page = self.allocate()
            if page is None:
                return None
            copy = (holding.pages[full], page)
        for node in holding.nodes[:full]:
            self._lock(node)
            made.nodes.append(node)
            made.pages.append(node.page)
        if copy is not None:
            made.pages.append(copy[1])
        return made, copy

    def clear(self) -> None:
        """Forget what was kept for others; sequences keep what they hold, but nobody will find it."""
        for root in self.roots.values():
            stack = list(root.children.values())
            while stack:
                node = stack.pop()
                stack.extend(node.children.values())
                node.alive, node.children, node.by_first = False, {}, {}
                if not node.locks:
                    self.cached -= 1
                    self.free.append(node.page)
        self.roots, self._leaves = {}, []

    def root(self, space: str | None) -> Node:
        """The node of no tokens, above all texts of an adapter, or of none."""
        return self.roots.setdefault(space, Node((), -1, None))

    def insert(self, parent: Node, tokens: tuple[int, ...], page: int) -> Node:
        """Put a page of these tokens below a node; nobody holds it yet."""
        for other in list(parent.by_first.get(tokens[0], ())):  # a shorter one that says no more than this
            if not other.locks and not other.children and tokens[:len(other.tokens)] == other.tokens:
                self._remove(other)
        node = Node(tokens, page, parent, used=self._tick())
        parent.children[tokens] = node
        parent.by_first.setdefault(tokens[0], []).append(node)
        self.cached += 1
        self._offer(node)
        return node

    def _remove(self, node: Node) -> None:
        assert node.parent is not None
        del node.parent.children[node.tokens]
        same = node.parent.by_first[node.tokens[0]]
        same.remove(node)
        if not same:
            del node.parent.by_first[node.tokens[0]]
        node.alive = False
        self.cached -= 1
        self.free.append(node.page)
        self._offer(node.parent)

    def _lock(self, node: Node) -> None:
        if not node.locks:
            self.cached -= 1
        node.locks += 1
        node.used = self._tick()

    def _unlock(self, node: Node) -> None:
        node.locks -= 1
        node.used = self._tick()
        if node.locks:
            return
        if not node.alive:  # forgotten meanwhile
            self.free.append(node.page)
            return
        self.cached += 1
        self._offer(node)

    def _offer(self, node: Node) -> None:
        """A leaf that nobody locks may go."""
        if node.parent is not None and node.alive and not node.locks and not node.children:
            self._serial += 1
            heapq.heappush(self._leaves, (node.used, self._serial, node))
            if len(self._leaves) > 4 * self.total + 64:  # most are out of date
                self._leaves = [entry for entry in self._leaves if self._may_go(entry[0], entry[2])]
                heapq.heapify(self._leaves)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock
