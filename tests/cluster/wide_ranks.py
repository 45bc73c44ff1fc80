"""Ranks that train a model of independent layers without `mo.compile`, and whose other programs differ.

    python -m morpho.cluster.launch.worker tests/cluster/wide_ranks.py       (under mpiexec)
"""

from __future__ import annotations

import numpy as np

import morpho as mo
from morpho import cluster
from morpho.runtime.groups.group import Group

LAYERS = 6


class Wide(mo.nn.Module):
    """Layers of unlike sizes that do not wait for each other; their weights are those of `numbers`."""

    def __init__(self, numbers: np.random.Generator) -> None:
        self.layers = [mo.nn.Linear(4 + k, 3) for k in range(LAYERS)]
        for layer in self.layers:
            layer.weight.assign(mo.asarray(numbers.standard_normal(layer.weight.shape).astype(np.float32)))
            layer.bias.assign(mo.zeros(layer.bias.shape))

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        total = mo.zeros((x.shape[0], 3))
        for k, layer in enumerate(self.layers):
            total = total + layer(x[:, :4 + k])
        return total


def train(group: Group, sharded: bool, compiled: bool) -> np.ndarray:
    """All weights after some steps, two losses each."""
    model: mo.nn.Module = Wide(np.random.default_rng(1))
    if sharded:
        model = cluster.shard(model, group)
    rule = mo.optim.AdamW(model.parameters(), lr=0.05)

    def step(x: mo.Tensor) -> mo.Tensor:
        first = mo.mean(mo.square(model(x)))
        first.backward()
        mo.mean(mo.abs(model(x * 2))).backward()
        mo.optim.clip_grad_norm(model.parameters(), 1.0)
        rule.step()
        rule.zero_grad()
        return first

    run = mo.compile(step) if compiled else step
    for number in range(3):
        for k in range(7 * group.rank):
            (mo.ones(k + 1) * number).realise()
        run(mo.asarray(np.random.default_rng(number).standard_normal((5, 4 + LAYERS)).astype(np.float32))).item()
    return np.concatenate([tensor.numpy().ravel() for tensor in model.state_dict().values()])


if __name__ == "__main__":
    ranks = cluster.init()
    print(f"rank {ranks.rank}: {np.round(np.abs(train(ranks, True, False)).sum(), 3)}")
