"""The training loop a newcomer writes first: eager with a scaler, and compiled with model and optimiser passed in."""

from __future__ import annotations

import numpy as np

import morpho as mo


def test_the_loop_as_it_is_written_first(rng: np.random.Generator) -> None:
    """Model and optimiser may be arguments of the compiled step; nothing is compiled twice, and the loss falls."""
    mo.nn.seed(0)
    model = mo.nn.Sequential(mo.nn.Embedding(50, 8), mo.nn.Linear(8, 50))  # a whole transformer takes long to compile
    opt = mo.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    scaler = mo.amp.GradScaler()
    criterion = mo.nn.CrossEntropyLoss(dim=-1)
    ids = mo.asarray(rng.integers(0, 50, (2, 9)))
    ids, targets = ids[:, :-1], ids[:, 1:]
    with mo.amp.autocast("bfloat16"):
        loss = criterion(model(ids), targets)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
    assert loss.dtype is mo.float32 and all(p.grad is None for p in model.parameters())

    @mo.compile
    def step(model: mo.models.Model, opt: mo.optim.AdamW, batch: tuple[mo.Tensor, mo.Tensor]) -> mo.Tensor:
        loss = criterion(model(batch[0]), batch[1])
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    losses = [step(model, opt, (ids, targets)).item() for _ in range(10)]
    assert losses[-1] < losses[0] < loss.item() and step.stats["recompiles"] == 0


def test_names_of_the_loop() -> None:
    """Checkpoints are where other libraries have them; the tools for when something is wrong are there too."""
    assert mo.nn.checkpoint is mo.checkpoint and mo.nn.checkpoint_sequential is mo.checkpoint_sequential
    layers = [mo.nn.Linear(3, 3), mo.nn.GELU(), mo.nn.Linear(3, 3)]
    x = mo.ones((2, 3))
    with mo.debug.nans():
        plain = mo.nn.Sequential(*layers)(x).numpy()
    assert mo.nn.checkpoint_sequential(layers, 2, x).numpy().tobytes() == plain.tobytes()
    assert mo.testing.check_gradients(lambda x: mo.nn.checkpoint(mo.gelu, x), x) < 1e-6
