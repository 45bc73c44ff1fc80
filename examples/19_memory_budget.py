"""Less memory for a training step: checkpoints by hand, or a budget that Morpho keeps by itself, with the same bits.

    python examples/19_memory_budget.py
"""

import numpy as np

import morpho as mo
from morpho import nn

x = np.random.default_rng(0).normal(size=(1024, 64)).astype(np.float32)


def make_step(checkpointed=False, **options):
    """A model of four blocks with dropout, and its compiled step."""
    nn.seed(0)
    blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1))
                           for _ in range(4))
    opt = mo.optim.SGD(blocks.parameters(), lr=0.05)

    @mo.compile(**options)
    def step(x):
        h = x
        for block in blocks:
            # A checkpoint keeps what the block was given, and computes the rest again when the gradient needs it.
            h = h + (nn.checkpoint(block, h) if checkpointed else block(h))
        loss = (h * h).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    return step, blocks


def show(name, step, blocks):
    """Run two steps and say what they hold; the weights as bytes."""
    for _ in range(2):
        loss = step(x)
    stats = step.stats
    print(f"{name:16} loss {loss.item():.6f}, {stats['predicted_peak_bytes'] / 1e6:5.2f} MB at most, of which "
          f"activations {stats['arena_bytes'] / 1e6:5.2f} MB, {stats['flops'] / 1e6:.0f} million operations")
    return b"".join(p.numpy().tobytes() for p in blocks.parameters())


with mo.settings(threads=2):  # each thread has a tile of its own: many of them would outweigh this small model
    plain = show("plain", *make_step())
    assert show("checkpoints", *make_step(checkpointed=True)) == plain  # also the dropout is the same
    fitted, blocks = make_step(memory_budget=0.9)  # a share of what it would hold, bytes, or "200MB"
    assert show("budget of 90 %", fitted, blocks) == plain
    print(next(line.strip() for line in fitted.explain().splitlines() if line.strip().startswith("for a budget")))

    try:
        make_step(memory_budget="1MB")[0](x)
    except MemoryError as error:
        print(error)
