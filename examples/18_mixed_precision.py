"""Mixed precision: products in half floats under `autocast`, gradients kept from vanishing by a `GradScaler`.

    python examples/18_mixed_precision.py
"""

from itertools import pairwise

import numpy as np

import morpho as mo
from morpho import nn

rng = np.random.default_rng(0)
x = rng.normal(size=(512, 32)).astype(np.float32)
y = np.tanh(x @ rng.normal(size=(32, 4)).astype(np.float32))


def trained(dtype, half=True, steps=60):
    """The losses of a run whose products are in `dtype`, or with half=False all in float32."""
    nn.seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 4))
    opt = mo.optim.AdamW(model.parameters(), lr=5e-3)
    scaler = mo.amp.GradScaler(init_scale=2.0**24, growth_interval=20, enabled=half and dtype == "float16")

    @mo.compile
    def step(x, y):
        with mo.amp.autocast(dtype, enabled=half):
            loss = nn.mse_loss(model(x), y)  # products in `dtype`, the loss in float32
        scaler.scale(loss).backward()  # the loss times the scale, so that small gradients do not become 0
        scaler.unscale_(opt)  # only needed because the gradients are looked at before the step
        mo.optim.clip_grad_norm(model.parameters(), 1.0)
        scaler.step(opt)  # nothing happens where a gradient overflowed
        scaler.update()  # then the scale is halved; after 20 good steps it doubles
        opt.zero_grad()
        return loss

    losses, scales = [], [scaler.get_scale()]
    for _ in range(steps):
        losses.append(step(x, y).item())
        scales.append(scaler.get_scale())
    skipped = sum(after < before for before, after in pairwise(scales))
    print(f"{dtype if half else 'float32':9} loss {losses[0]:.4f} -> {losses[-1]:.4f}, "
          f"weights {model[0].weight.dtype}, arena {step.stats['arena_bytes'] / 1e3:.0f} kB, "
          f"steps skipped {skipped}, scale {scales[-1]:g}")
    return losses


full = trained("float16", half=False)
brain = trained("bfloat16")  # the reach of float32: needs no scaler
half = trained("float16")  # the first steps overflow at this scale and are skipped
assert abs(brain[-1] - full[-1]) < 0.02 and half[-1] < 0.5 * half[0]

# Without a dtype, bfloat16 is taken only where it was measured to be no slower than float32 on this machine.
with mo.amp.autocast():
    print("chosen here:", (mo.ones((4, 4)) @ mo.ones((4, 4))).dtype, mo.amp.policy())
