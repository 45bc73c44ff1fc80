"""expects: transfers
remedy: convert once, before the loop

Logistic regression on a customer table with mini-batches; the table comes from NumPy in double precision.
"""

import numpy as np

import morpho as mo

CUSTOMERS, FEATURES, BATCH, STEPS, RATE = 500_000, 48, 10_000, 50, 0.3


def customers(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    table = rng.random((CUSTOMERS, FEATURES)) - 0.5
    truth = np.linspace(-3, 3, FEATURES)
    left = rng.random(CUSTOMERS) < 1 / (1 + np.exp(-(table @ truth)))
    return table, left.astype(np.float64)


def loss(weights, bias, features, left):
    logits = features @ weights + bias
    return mo.mean(mo.softplus(logits) - left * logits)


@mo.compile
def step(weights, bias, features, left):
    value, (of_weights, of_bias) = mo.value_and_grad(loss, argnums=(0, 1))(weights, bias, features, left)
    return value, weights - RATE * of_weights, bias - RATE * of_bias


def main() -> None:
    table, left = customers(seed=71)
    weights, bias = mo.zeros(FEATURES), mo.zeros(())
    for number in range(STEPS):
        start = number * BATCH % CUSTOMERS
        features = mo.asarray(table, dtype=mo.float32)[start:start + BATCH]
        labels = mo.asarray(left, dtype=mo.float32)[start:start + BATCH]
        value, weights, bias = step(weights, bias, features, labels)
        if number % 25 == 24:
            print(f"step {number + 1}: loss {value.item():.4f}")
    guess = table[:20_000] @ weights.numpy() + bias.item() > 0
    print(f"accuracy {np.mean(guess == (left[:20_000] > 0.5)):.1%}")


if __name__ == "__main__":
    main()
