"""expects: recompiles
remedy: `dynamic=` with a `mo.Dim`

Judges product reviews one by one with a small attention network: each review has the length it has.
"""

import numpy as np

import morpho as mo
from morpho import nn

WORDS, WIDTH, HEADS, REVIEWS = 5_000, 64, 4, 24


class Judge(nn.Module):
    """Embedding, two rounds of attention, the mean over words, a number."""

    def __init__(self):
        self.words = nn.Embedding(WORDS, WIDTH)
        self.mix = [nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH)]
        self.back = [nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)]
        self.norm = [nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)]
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, review):
        x = self.words(review)
        for mix, back, norm in zip(self.mix, self.back, self.norm, strict=True):
            parts = mix(norm(x)).reshape((-1, 3, HEADS, WIDTH // HEADS))
            q, k, v = (mo.permute_dims(parts[:, i], (1, 0, 2)) for i in range(3))
            heads = mo.softmax(q @ mo.permute_dims(k, (0, 2, 1)) / 4.0) @ v
            x = x + back(mo.permute_dims(heads, (1, 0, 2)).reshape((-1, WIDTH)))
        return mo.sigmoid(self.out(x.mean(axis=0)))


def reviews(seed: int):
    """Lengths as people write: most short, some long."""
    rng = np.random.default_rng(seed)
    for _ in range(REVIEWS):
        length = int(np.clip(rng.gamma(3.0, 6.0), 4, 70))
        yield rng.integers(0, WORDS, length)


def main() -> None:
    nn.seed(21)
    model = Judge().eval()
    judge = mo.compile(lambda review: model(review))
    marks = [judge(review).item() for review in reviews(seed=22)]
    print(f"{len(marks)} reviews, mean mark {np.mean(marks):.3f}, {np.mean(np.array(marks) > 0.5):.0%} positive")


if __name__ == "__main__":
    main()
