"""Prices of European calls, by the formula and by a lattice of paths."""
import numpy as np

S, K, T, r, sigma = 100.0, np.linspace(80, 120, 9, dtype=np.float64), 1.0, 0.05, 0.2


def normal_cdf(x):
    t = 1 / (1 + 0.2316419 * np.abs(x))
    poly = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-x * x / 2) / np.sqrt(2 * np.pi) * poly
    return np.where(x >= 0, 1 - tail, tail)


d1 = (np.log(S / K) + (r + sigma ** 2 / 2) * T) / (sigma * np.sqrt(T))
d2 = d1 - sigma * np.sqrt(T)
calls = S * normal_cdf(d1) - K * np.exp(-r * T) * normal_cdf(d2)
steps = 50
up = np.exp(sigma * np.sqrt(T / steps))
share = (np.exp(r * T / steps) - 1 / up) / (up - 1 / up)
value = np.maximum(S * up ** (2 * np.arange(steps + 1, dtype=np.float64) - steps) - 100.0, 0)
for _ in range(steps):
    value = np.exp(-r * T / steps) * (share * value[1:] + (1 - share) * value[:-1])
result = [calls, value[0]]
