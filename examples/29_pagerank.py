"""PageRank of a graph with 400,000 links: a sparse matrix as an argument of one native loop.

    python examples/29_pagerank.py
"""

import time

import numpy as np

import morpho as mo

PAGES, LINKS, DAMPING = 50_000, 400_000, 0.85

rng = np.random.default_rng(1)
source = rng.integers(0, PAGES, LINKS)
target = (PAGES * rng.random(LINKS) ** 3).astype(np.int64)  # a few pages have most of the links
links = mo.sparse.coo(np.ones(LINKS), (source, target), (PAGES, PAGES)).tocsr()
out = links.sum(axis=1)
follow = (links / mo.where(out == 0, mo.ones_like(out), out)[:, None]).T.tocsr()
stuck = mo.astype(out == 0, "float64")


@mo.compile
def rank(follow, stuck):
    def turn(state):
        count, r, _ = state
        new = DAMPING * (follow @ r + mo.sum(r * stuck) / PAGES) + (1 - DAMPING) / PAGES
        return count + 1, new, mo.sum(mo.abs(new - r))

    start = mo.full(PAGES, 1 / PAGES, dtype="float64")
    count, r, _ = mo.while_loop(lambda s: s[2] > 1e-9, turn, (0, start, mo.asarray(1.0, dtype="float64")))
    return r, count


rank(follow, stuck)
start = time.perf_counter()
r, count = rank(follow, stuck)
seconds = time.perf_counter() - start
best = mo.argsort(r, descending=True)[:5].tolist()
print(f"{links.nnz} links, {count.item()} turns in {seconds * 1e3:.1f} ms; first pages {best}")
assert abs(r.sum().item() - 1) < 1e-6 and rank.stats["host_steps"] == 0 and best[:2] == [0, 1]
