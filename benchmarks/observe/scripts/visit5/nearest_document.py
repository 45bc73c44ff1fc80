"""expects: memory
remedy: several queries in one product; the table in half floats

Answers a log of queries against a table of document embeddings: for each query the nearest document.
"""

import time

import numpy as np

import morpho as mo

DOCUMENTS, WIDTH, QUERIES = 600_000, 256, 200


def table(seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).random((DOCUMENTS, WIDTH), dtype=np.float32)
    rows -= 0.5
    return rows


@mo.compile
def nearest(documents, query):
    """The row with the largest dot product, and that product."""
    scores = documents @ query
    return mo.argmax(scores), mo.max(scores)


def query_log(documents: np.ndarray, seed: int):
    """Queries that are noisy copies of some documents."""
    rng = np.random.default_rng(seed)
    for _ in range(QUERIES):
        wanted = int(rng.integers(DOCUMENTS))
        yield wanted, documents[wanted] + rng.standard_normal(WIDTH, dtype=np.float32) * 0.2


def main() -> None:
    rows = table(seed=5)
    documents = mo.asarray(rows, copy=False)
    hits, started = 0, time.perf_counter()
    for wanted, query in query_log(rows, seed=6):
        index, score = nearest(documents, query)
        hits += index.item() == wanted
    took = time.perf_counter() - started
    print(f"{hits} of {QUERIES} queries found their document, {1e3 * took / QUERIES:.1f} ms a query")


if __name__ == "__main__":
    main()
