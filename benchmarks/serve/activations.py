"""How far `activations="int8"` is from exact: `python -m benchmarks.serve.activations [model] [windows]`. Perplexity of
both over windows of a text, how often they would choose the same next token, and how far their logits are apart.
"""

from __future__ import annotations

import lzma
import sys
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.cli.text.run import find

TEXT = Path(__file__).parents[1] / "corpus" / "corpus.txt.xz"
LENGTH = 256  # tokens of a window


def windows(tokenizer: Any, count: int) -> list[list[int]]:
    """Pieces of the corpus, evenly spread over it."""
    text = lzma.decompress(TEXT.read_bytes()).decode()
    step = len(text) // count
    return [list(tokenizer.encode(text[at:at + 8 * LENGTH]))[:LENGTH] for at in range(0, step * count, step)]


def surprise(logits: np.ndarray, ids: list[int]) -> np.ndarray:
    """The negative log-probability of each token but the first."""
    wide = logits[:-1].astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    found: np.ndarray = np.log(np.exp(wide).sum(axis=-1)) - wide[np.arange(len(ids) - 1), ids[1:]]
    return found


def main(name: str, count: int) -> int:
    place = find(name)
    exact, tokenizer = mo.models.load_with_tokenizer(place)
    int8 = mo.models.load(place, activations="int8")
    functions = [mo.compile(lambda ids, model=model: model(ids), dynamic={"ids": {1: mo.Dim("n", 2, LENGTH)}})
                 for model in (exact, int8)]
    said: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    agreed, apart = list[np.ndarray](), list[np.ndarray]()
    for ids in windows(tokenizer, count):
        a, b = (function(mo.asarray([ids])).numpy()[0] for function in functions)
        said[0].append(surprise(a, ids))
        said[1].append(surprise(b, ids))
        agreed.append(a.argmax(-1) == b.argmax(-1))
        apart.append(np.abs(a - b).mean(axis=-1) / a.std(axis=-1))
    one, other = (float(np.exp(np.concatenate(each).mean())) for each in said)
    alike = 100 * np.concatenate(agreed).mean()
    print(f"{place.name}, {count} windows of {LENGTH} tokens: perplexity {one:.4f} exact, {other:.4f} with int8 "
          f"activations ({100 * (other / one - 1):+.2f} %); the same likeliest token at {alike:.2f} % "
          f"of {sum(map(len, agreed))} places; logits apart by {np.concatenate(apart).mean():.4f} of their spread")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "smollm2", int(sys.argv[2]) if len(sys.argv) > 2 else 40))
