"""Training and text against the peers in the same run.

    morpho bench train                           # everything: some ten minutes on two cores
    morpho bench train --only gpt_step           # one theme
    morpho bench train --quick --json out.json   # fewer rounds, figures kept

One file per theme; `cases.py` finds the inputs and the answers in float64 (`mlp.py`, `gpt.py`, `resnet_cases.py`,
`generation_cases.py`, `smollm2_cases.py`), `peers/` has a file per peer, `*_morpho.py` and `*_torch.py` the models.
"""
