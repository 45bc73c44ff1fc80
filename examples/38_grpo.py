"""Train a small model on a reward: it learns to add two digits without seeing a single solution.

    python examples/38_grpo.py [STEPS]

The sampler and the trainer agree to the last bit in every step: KL(sampler, trainer) is 0.
"""

import sys

import numpy as np

import morpho as mo

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 150
ASK, EQUALS = 20, 21  # tokens 0 to 19 are numbers

mo.nn.seed(0)
model = mo.models.create("llama", vocab_size=22, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, intermediate_size=64, max_position_embeddings=64)
optimizer = mo.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)


def reward(text):
    """1 for the right sum, and a little for an answer near it."""
    _, first, second, _ = text.prompt
    return 1.0 if text.tokens[0] == first + second else 0.1 / (1 + abs(text.tokens[0] - first - second))


digits = np.random.default_rng(0)
with mo.rl.GRPO(model, optimizer, reward, group_size=8, max_tokens=1, temperature=0.9, top_k=20, pages=160,
                multiple=8) as trainer:
    for _ in range(STEPS):
        report = trainer.step([[ASK, *digits.integers(0, 4, 2).tolist(), EQUALS] for _ in range(16)])
        assert report.kl_sampler_trainer == 0.0 and report.differing == 0
        if report.step % 25 == 0 or report.step == 1:
            print(f"step {report.step:4d}: reward {report.reward:.3f}, "
                  f"KL(sampler, trainer) {report.kl_sampler_trainer}")
